//! Archives that the kernel unpacks into the memory that it starts from: cpio's format `newc`.
//!
//! An archive is a row of entries. All numbers are hexadecimal in ASCII:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 6 | `070701` |
//! | 6 | 8 × 13 | inode, mode, owner, group, links, time, length of the content, 4 numbers of devices, length of the name with its zero, checksum (zero) |
//! | 110 | | name, a zero, zeros up to a multiple of 4 |
//! | | | content, zeros up to a multiple of 4 |
//!
//! The last entry is named `TRAILER!!!`. Archives may follow each other in one file; what a later
//! one has replaces what an earlier one had.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: u32 = 0o04_0755;
const FILE: u32 = 0o10_0755;
const ALIGNMENT: usize = 4;

/// An archive that is being made.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    /// The folders that it has already.
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a folder and those around it.
    pub(crate) fn folder(&mut self, name: &str) {
        let mut end = 0;
        while end < name.len() {
            end = name[end + 1..]
                .find('/')
                .map_or(name.len(), |at| end + 1 + at);
            let folder = &name[..end];
            if self.folders.insert(folder.to_owned()) {
                self.entry(folder, DIRECTORY, &[]);
            }
        }
    }

    /// Adds a file, which may be executed, and the folders around it.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.folder(folder);
        }
        self.entry(name, FILE, content);
    }

    /// Adds a copy of a file of this machine.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn copy(&mut self, name: &str, from: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(name, &content);
        Ok(())
    }

    /// Returns the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let len = u32::try_from(content.len()).expect("files in archives are below 4 GiB");
        let name_len = name.len() as u32 + 1;
        let numbers = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend(b"070701");
        for number in numbers {
            self.bytes.extend(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        let len = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads names, modes and contents as the table says.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let number = |index: usize| {
                let at = 6 + 8 * index;
                let text = std::str::from_utf8(&bytes[at..at + 8]).expect("ASCII");
                u32::from_str_radix(text, 16).expect("hexadecimal") as usize
            };
            let (mode, len, name_len) = (number(1), number(6), number(11));
            let name = String::from_utf8(bytes[110..110 + name_len - 1].to_vec()).expect("UTF-8");
            let at = (110 + name_len).next_multiple_of(ALIGNMENT);
            let content = bytes[at..at + len].to_vec();
            bytes = &bytes[(at + len).next_multiple_of(ALIGNMENT)..];
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, mode as u32, content));
        }
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut archive = Archive::default();
        archive.file("bin/a", b"12345");
        archive.folder("bin/deep/deeper");
        archive.file("bin/deep/b", b"");
        let expected: Vec<(String, u32, Vec<u8>)> = [
            ("bin", DIRECTORY, &b""[..]),
            ("bin/a", FILE, b"12345"),
            ("bin/deep", DIRECTORY, b""),
            ("bin/deep/deeper", DIRECTORY, b""),
            ("bin/deep/b", FILE, b""),
        ]
        .map(|(name, mode, content)| (name.to_owned(), mode, content.to_vec()))
        .into();
        assert_eq!(read(&archive.finish()), expected);
    }
}
