//! A file as words of memory, which other processes read and write at the same time.
//!
//! Safety contract: a [`Mapping`] owns one mapping of a whole file. The length of the file is a
//! multiple of a word, and the mapping lasts as long as the value. It is accessible as atomic words
//! only, so that no write of another process is a data race. Words of a mapping that is for reading
//! are loaded with relaxed order only, which does not write to memory; see [`load`].

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use base::memory::WORD;
use memmap2::{MmapOptions, MmapRaw};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Mapping {
    raw: MmapRaw,
    words: usize,
}

impl Mapping {
    /// Maps a file that has exactly `words` words.
    pub(super) fn new(file: &File, words: usize, writable: bool) -> io::Result<Mapping> {
        let len = (words * WORD) as u64;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() != len {
            return Err(io::Error::other("the file is not as long as was said"));
        }
        let mut options = MmapOptions::new();
        options.len(words * WORD);
        let raw = if writable {
            options.map_raw(file)?
        } else {
            options.map_raw_read_only(file)?
        };
        Ok(Mapping { raw, words })
    }

    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping begins at a page, has as many words, and is borrowed with `self`.
        // Other processes write to it word by word or in parts of words, which atomic loads bear. A
        // process that has mapped it for reading only loads, see the module's description.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr().cast(), self.words) }
    }
}

/// Loads a word, which may lie in memory that is for reading: a fence behind it establishes an
/// order.
#[inline]
pub(super) fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
