//! The bytes that the source has sent and that are not applied: a file without a name.
//!
//! The source holds in memory what a replica has not taken, and ends the connection beyond a limit
//! (`client-output-buffer-limit`). So everything is taken as it comes; the file is written from its start again as soon
//! as all of it is read.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// A file that is longer gives its room back when all of it is read.
const KEPT: u64 = 64 << 20;

/// See the module's description. Positions count the bytes that were ever written.
pub(super) struct Spool {
    file: File,
    /// The position of the file's first byte.
    base: u64,
    written: u64,
    read: u64,
}

impl Spool {
    /// Creates one in a directory.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn create(directory: &Path) -> io::Result<Spool> {
        let name = format!(
            "kumiki-import-{}-{:016x}",
            std::process::id(),
            fastrand::u64(..)
        );
        let path = directory.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        fs::remove_file(&path)?;
        Ok(Spool {
            file,
            base: 0,
            written: 0,
            read: 0,
        })
    }

    /// Returns the number of bytes that were ever written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of bytes that were ever read.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Writes bytes behind those that are there.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.read == self.written {
            if self.written - self.base > KEPT {
                self.file.set_len(0)?;
            }
            self.base = self.written;
        }
        self.file.write_all_at(bytes, self.written - self.base)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Reads the next bytes, those before position `end` at most; returns their number.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn read(&mut self, into: &mut [u8], end: u64) -> io::Result<usize> {
        let left = end.min(self.written).saturating_sub(self.read);
        let count = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let place = self.read - self.base;
        self.file.read_exact_at(&mut into[..count], place)?;
        self.read += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_the_order_in_which_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut read = Vec::new();
        for round in 0..200_u8 {
            spool.append(&[round; 7]).unwrap();
            let mut some = [0; 5 + 2];
            // Sometimes all of it is read, sometimes less, and never beyond a limit.
            let end = spool.written() - u64::from(round % 3);
            let count = spool.read(&mut some, end).unwrap();
            read.extend_from_slice(&some[..count]);
        }
        let mut rest = [0; 100];
        let count = spool.read(&mut rest, u64::MAX).unwrap();
        read.extend_from_slice(&rest[..count]);
        let expected: Vec<u8> = (0..200_u8).flat_map(|round| [round; 7]).collect();
        assert_eq!(read, expected);
        assert_eq!(spool.read_bytes(), spool.written());
    }
}
