//! The nodes whose data is backed up.

use std::time::Duration;

use store::{DataFiles, HeldMoment};

/// The data of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDescription {
    /// The node's number; 0: it is of no cluster.
    pub node: u16,
    /// Its partition; 0 without a cluster.
    pub partition: u16,
    /// The partition's slots, as text.
    pub slots: String,
    /// The cluster's name, if it has one.
    pub cluster: Option<String>,
    /// The id of its data directory.
    pub data: String,
    /// Its address, for people.
    pub address: String,
}

/// A running node. Errors are texts that name it.
pub trait NodeSource {
    /// Describes its data.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached, or its data cannot be backed up.
    fn describe(&mut self) -> Result<NodeDescription, String>;

    /// Pins the files that are there now.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached.
    fn pin(&mut self, name: &str, time: Duration) -> Result<(), String>;

    /// Lists the files, as far as they are durable.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached, or the pin has ended.
    fn files(&mut self, name: &str) -> Result<DataFiles, String>;

    /// Reads up to `count` bytes of a file, and fewer only at its end.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached, or the pin has ended.
    fn read(
        &mut self,
        name: &str,
        file: &str,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, String>;

    /// Narrows the pin to the segments from those numbers on, one for each log.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached, or the pin has ended.
    fn narrow(&mut self, name: &str, segments: &[u32]) -> Result<(), String>;

    /// Ends the pin.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached.
    fn unpin(&mut self, name: &str) -> Result<(), String>;

    /// Asks it to hold durability for `time` at most.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached.
    fn ask_hold(&mut self, time: Duration) -> Result<(), String>;

    /// Waits for the answer to [`NodeSource::ask_hold`].
    ///
    /// # Errors
    /// Returns an error if it cannot be reached, or does not hold.
    fn held(&mut self) -> Result<HeldMoment, String>;

    /// Asks it to end a hold.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached.
    fn ask_release(&mut self, hold: u64) -> Result<(), String>;

    /// Waits for the answer to [`NodeSource::ask_release`]. Returns `true` if the hold has lasted until then.
    ///
    /// # Errors
    /// Returns an error if it cannot be reached.
    fn released(&mut self) -> Result<bool, String>;
}
