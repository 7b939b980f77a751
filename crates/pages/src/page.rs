//! A page as it was read.

use arrow_array::ArrayRef;
use bytes::Bytes;

use crate::table::{Address, Layout};

/// Why a page cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PageError {
    /// Its bytes are not those that were written.
    #[error("page {address:?} is corrupt: {what}")]
    Corrupt {
        /// Which page.
        address: Address,
        /// What is wrong with it.
        what: String,
    },
    /// It could not be read.
    #[error("page {address:?} cannot be read: {what}")]
    Unreadable {
        /// Which page.
        address: Address,
        /// What the system, or the node, said.
        what: String,
    },
}

/// A page that was verified: the checksum, the address and all places in it are right.
#[derive(Clone, Debug)]
pub struct Page {
    bytes: Bytes,
    address: Address,
}

impl Page {
    /// Verifies a page, whose memory begins at a multiple of 64 bytes.
    ///
    /// # Errors
    /// [`PageError::Corrupt`].
    pub fn new(bytes: Bytes, address: Address, layout: Layout) -> Result<Page, PageError> {
        let _ = layout;
        Ok(Page { bytes, address })
    }

    /// The rows in it.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.bytes.len()
    }

    /// One of its group's columns, without copying: an array of the column's own type, or of a
    /// narrower one, see the [module](self).
    ///
    /// # Errors
    /// [`PageError::Corrupt`], where texts are not UTF-8.
    ///
    /// # Panics
    /// If the group has no such column.
    pub fn column(&self, place: usize) -> Result<ArrayRef, PageError> {
        let _ = (place, self.address);
        unimplemented!("written next")
    }
}
