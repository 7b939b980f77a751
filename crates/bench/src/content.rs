//! File contents that follow from offsets, so that the reader of a part of a file knows whether it
//! is the right part.
//!
//! The eight bytes at an offset that is a multiple of eight are a hash of the offset. Of each piece
//! that was read the first and the last eight bytes are compared; of one piece in [`WHOLE`] all
//! bytes are.

use crate::error::RunError;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// One piece in so many is compared as a whole.
pub const WHOLE: u64 = 1000;
/// Bytes of a word.
const WORD: usize = 8;
/// The distance of planted bytes: so short that a few reads find one.
const PLANTED: usize = 128 << 10;
/// Bytes written at once, a multiple of [`PLANTED`].
const PIECE: usize = 4 << 20;

/// Returns the word at an offset.
#[inline]
fn word(offset: u64) -> [u8; WORD] {
    let mixed = (offset + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).to_le_bytes()
}

/// Fills a piece that begins at an offset.
pub fn fill(offset: u64, piece: &mut [u8]) {
    for (words, bytes) in piece.chunks_mut(WORD).enumerate() {
        let right = word(offset + (words * WORD) as u64);
        bytes.copy_from_slice(&right[..bytes.len()]);
    }
}

/// Writes a file of so many bytes, durably. If wrong bytes are planted, there is one every 128 KiB.
///
/// # Errors
/// Returns the errors of the operating system.
pub fn write(path: &Path, len: u64, plant: bool) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let mut piece = vec![0; PIECE];
    let mut offset = 0;
    while offset < len {
        let piece = &mut piece[..PIECE.min((len - offset) as usize)];
        fill(offset, piece);
        if plant {
            piece
                .iter_mut()
                .step_by(PLANTED)
                .for_each(|byte| *byte ^= 1);
        }
        file.write_all(piece)?;
        offset += piece.len() as u64;
    }
    file.sync_data()
}

/// Compares pieces. One for each thread.
#[derive(Debug, Default)]
pub struct Checker {
    compared: u64,
}

impl Checker {
    /// Compares a piece that was read from an offset, a multiple of eight.
    ///
    /// # Errors
    /// The text says from which byte on it differs.
    ///
    /// # Panics
    /// Panics if it is shorter than a word.
    #[inline]
    pub fn check(&mut self, offset: u64, piece: &[u8]) -> Result<(), RunError> {
        self.compared += 1;
        let last = piece.len() - WORD;
        let ends = piece[..WORD] == word(offset) && piece[last..] == word(offset + last as u64);
        if ends && !self.compared.is_multiple_of(WHOLE) {
            return Ok(());
        }
        compare(offset, piece)
    }
}

fn compare(offset: u64, piece: &[u8]) -> Result<(), RunError> {
    let offsets = (offset..).step_by(WORD);
    let wrong = offsets
        .zip(piece.chunks(WORD))
        .find(|(at, bytes)| word(*at)[..bytes.len()] != **bytes);
    match wrong {
        None => Ok(()),
        Some((at, _)) => Err(RunError::Failed(format!(
            "what was read from byte {offset} on has other bytes at {at}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_found() {
        let mut piece = vec![0; 512];
        fill(1024, &mut piece);
        let mut checker = Checker::default();
        checker.check(1024, &piece).unwrap();
        assert!(checker.check(1536, &piece).is_err(), "another place");
        for at in [0, 511] {
            piece[at] ^= 1;
            assert!(checker.check(1024, &piece).is_err(), "{at}");
            piece[at] ^= 1;
        }
        piece[256] ^= 1;
        let mut compared = (0..WHOLE).map(|_| checker.check(1024, &piece));
        let found = compared
            .find_map(Result::err)
            .expect("one is compared whole");
        assert!(found.to_string().contains("at 1280"), "{found}");
    }

    #[test]
    fn a_file_has_its_content_and_what_is_planted() {
        let dir = tempfile::tempdir().unwrap();
        for plant in [false, true] {
            let path = dir.path().join(plant.to_string());
            write(&path, 8 << 20, plant).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len(), 8 << 20);
            assert_eq!(compare(0, &bytes).is_err(), plant);
        }
    }
}
