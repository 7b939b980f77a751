//! What checkpoints need of the run of the journal in which they are made.

use std::sync::{Arc, OnceLock};

use crate::file_pins::FilePins;
use crate::options::Options;
use crate::recovery::Recovered;

/// The state at the start of a journal's run that checkpoints need.
pub(crate) struct RunOrigin {
    pub(super) run: u32,
    pub(super) salt: u64,
    /// The segments of the logs that this run does not write: those with greater numbers than its
    /// loggers.
    pub(super) idle: Vec<u32>,
    /// The reason why the directory of checkpoints cannot be relied on any more.
    pub(super) broken: Arc<OnceLock<String>>,
    /// The files that are kept although they are not needed.
    pub(crate) pins: Arc<FilePins>,
}

impl RunOrigin {
    /// Returns the origin of the run that begins with these.
    pub(crate) fn new(options: &Options, recovered: &Recovered) -> RunOrigin {
        let idle = recovered.next_segments.iter().skip(options.loggers);
        RunOrigin {
            run: recovered.run + 1,
            salt: options.salt,
            idle: idle.copied().collect(),
            broken: Arc::default(),
            pins: Arc::default(),
        }
    }

    /// Returns the number of logs that this run does not write.
    pub(crate) fn idle_logs(&self) -> usize {
        self.idle.len()
    }
}
