//! A region as a peer has it who writes bytes into it, not words.

use std::ptr::NonNull;

use base::memory::{RemoteError, WORD};

use super::HEADER;
use super::mapping::Mapping;
use super::remote::ShmRemote;
use crate::memory::Access;

/// A region that is mapped here for writing, as bytes. Stays mapped as long as the value lives,
/// also when its owner has withdrawn it or is dead: what is written then, nobody reads.
#[derive(Debug)]
pub struct Mapped(Mapping);

impl ShmRemote {
    /// The region as bytes.
    ///
    /// # Errors
    /// It is for reading, or was withdrawn.
    pub fn into_mapped(self) -> Result<Mapped, RemoteError> {
        if self.access() != Access::Write {
            return Err(RemoteError::Refused("it is for reading".into()));
        }
        self.into_mapping().map(Mapped)
    }
}

impl Mapped {
    /// Bytes of the region.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.0.words().len() - HEADER) * WORD
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where so many bytes are from this one on; both multiples of eight. `None` if there are none.
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
