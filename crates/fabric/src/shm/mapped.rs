//! A region as a peer has it that writes bytes into it, not words.

use std::ptr::NonNull;

use base::memory::{RemoteError, WORD};

use super::mapping::Mapping;
use super::region_file::HEADER;
use super::remote::ShmRemote;
use crate::memory::Access;

/// A region that is mapped here for writing, as bytes. It stays mapped as long as the value lives,
/// even if its owner has withdrawn it or is dead: then no process reads what is written.
#[derive(Debug)]
pub struct Mapped(Mapping);

impl ShmRemote {
    /// Returns the region as bytes.
    ///
    /// # Errors
    /// Returns an error if the region is for reading, or was withdrawn.
    pub fn into_mapped(self) -> Result<Mapped, RemoteError> {
        if self.access() != Access::Write {
            return Err(RemoteError::Refused("it is for reading".into()));
        }
        self.into_mapping().map(Mapped)
    }
}

impl Mapped {
    /// Returns the length of the region in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.0.words().len() - HEADER) * WORD
    }

    /// Returns `true` if the region is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the place of `len` bytes from `from` on; both are multiples of eight. Returns `None`
    /// if there are no such bytes.
    #[must_use]
    pub fn part(&self, from: usize, len: usize) -> Option<NonNull<[u8]>> {
        if !from.is_multiple_of(WORD) || !len.is_multiple_of(WORD) {
            return None;
        }
        let to = from.checked_add(len)?;
        let words = self.0.words()[HEADER..].get(from / WORD..to / WORD)?;
        Some(NonNull::slice_from_raw_parts(
            NonNull::from(words).cast(),
            len,
        ))
    }
}
