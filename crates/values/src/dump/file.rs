//! Reading of Redis's files (`dump.rdb`), item by item, from any source of bytes.
//!
//! | bytes | are |
//! |---|---|
//! | 9 | the word `REDIS`, and the version of the format as four digits; Valkey's word is `VALKEY`, with three digits |
//! | … | items; each begins with a byte, which is a mark of the table below, or else the type of a value |
//! | 1 | the mark of the end |
//! | 8 | the CRC-64 of all bytes before, little-endian; 0 if the file was written without it |
//!
//! | mark | item |
//! |---|---|
//! | 244 | three lengths: a slot of a cluster, its keys, and those that expire |
//! | 245 | a library of functions: its source, a string |
//! | 247 | what a module has to say |
//! | 248, 249 | how the next key was used: a length, or a byte |
//! | 250 | a property of the file: its name and its value, strings |
//! | 251 | two lengths: the number of keys of the database, and of those that expire |
//! | 252, 253 | the deadline of the next key: 8 bytes of milliseconds, or 4 of seconds, little-endian |
//! | 254 | the database of the next keys, a length |
//! | 255 | the end |
//!
//! A value is its type, its key, which is a string, and the value as in a payload of `DUMP`. In a file of Valkey the
//! type 22 is a hash with deadlines of fields: their number, and for each its name, its value, and its deadline (8 bytes
//! of milliseconds, little-endian; -1: none).
//!
//! Invariants:
//! 1. No input makes the reader panic, or take more memory than a small multiple of what it has read, and of the longest
//!    value.
//! 2. An error names the position of the item in which it was found.

use std::io::{self, Read};

use crc::{Digest, Table};

use super::payload::PayloadError;
use super::reader::{
    COMPRESSED, INTEGER_8, INTEGER_16, INTEGER_32, PayloadReader, WIDE_LENGTH, WIDEST_LENGTH,
};
use super::value_type as types;
use super::{CRC, EARLY_LIBRARY, LIBRARY, NEWEST_VERSION, encode_footer, writer};

/// The newest versions of the format that are read: Redis's, and Valkey's own ones.
const NEWEST: u32 = 12;
const VALKEY: std::ops::RangeInclusive<u32> = 80..=80;

const SLOT: u8 = 244;
const MODULE: u8 = 247;
const IDLE_TIME: u8 = 248;
const FREQUENCY: u8 = 249;
pub(super) const PROPERTY: u8 = 250;
pub(super) const SIZES: u8 = 251;
pub(super) const DEADLINE_MS: u8 = 252;
const DEADLINE_SECONDS: u8 = 253;
pub(super) const DATABASE: u8 = 254;
pub(super) const END: u8 = 255;

/// Valkey's type of hashes with deadlines of fields.
const VALKEY_HASH: u8 = 22;

/// The types of values of modules.
const MODULE_VALUE: u8 = 6;
const MODULE_VALUE_2: u8 = 7;

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum RdbError {
    /// It cannot be read.
    #[error("byte {position}: {error}")]
    Io {
        /// Where the item begins.
        position: u64,
        /// The error of the source.
        error: io::Error,
    },
    /// It ends in the middle.
    #[error("byte {position}: the file ends in what begins there; it is not whole")]
    Truncated {
        /// Where the item begins.
        position: u64,
    },
    /// It does not begin like such a file.
    #[error("it is no file of Redis (dump.rdb): it does not begin with REDIS and a version")]
    Other,
    /// Its version is not known.
    #[error("its format has version {version}; those up to {NEWEST} are known, and Valkey's up to {}", VALKEY.end())]
    Version {
        /// The version.
        version: u32,
    },
    /// It has something that is malformed.
    #[error("byte {position}: what begins there is malformed; the file is damaged")]
    Malformed {
        /// Where the item begins.
        position: u64,
    },
    /// It has a value of a type that is not known, or of a module.
    #[error("byte {position}: the key '{key}' has a value of the type {kind}, which cannot be imported ({})", why(*kind))]
    Unsupported {
        /// Where the item begins.
        position: u64,
        /// The key, as text.
        key: String,
        /// The type.
        kind: u8,
    },
    /// It has a library of functions in the format of a release before the first one.
    #[error("byte {position}: functions in the format of a release candidate of Redis 7.0")]
    EarlyLibrary {
        /// Where the item begins.
        position: u64,
    },
    /// A value is longer than values may be.
    #[error("byte {position}: a value of more than {longest} bytes")]
    TooLong {
        /// Where the item begins.
        position: u64,
        /// The length that values may have.
        longest: usize,
    },
    /// The checksum at its end is wrong.
    #[error("the checksum at its end is wrong; the file is damaged")]
    Checksum,
    /// Something follows the end.
    #[error(
        "byte {position}: something follows the end; of an append-only file only the part before can be imported"
    )]
    Behind {
        /// Where it begins.
        position: u64,
    },
}

fn why(kind: u8) -> &'static str {
    match kind {
        MODULE_VALUE | MODULE_VALUE_2 => "a module wrote it",
        _ => "a newer release wrote it",
    }
}

/// What a file contains.
#[derive(Debug, PartialEq, Eq)]
pub enum RdbItem {
    /// A property of the file.
    Property {
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// The next keys are of the database with this number.
    Database(u64),
    /// The source of a library of functions.
    Library(Vec<u8>),
    /// A key with its value.
    Key {
        /// The key.
        key: Vec<u8>,
        /// Its deadline, in milliseconds since the Unix epoch.
        deadline: Option<u64>,
        /// The value.
        value: RdbValue,
    },
}

/// A value in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum RdbValue {
    /// The bytes of a string.
    String(Vec<u8>),
    /// The payload of another value, as `RESTORE` takes it.
    Payload(Vec<u8>),
}

/// Reads a file.
pub struct RdbReader<R> {
    input: R,
    /// The longest string, and the longest payload, in bytes.
    longest: usize,
    /// What was read of the item.
    item: Vec<u8>,
    /// Where the item begins.
    position: u64,
    checksum: Digest<'static, u64, Table<16>>,
    version: u32,
    is_valkey: bool,
    has_ended: bool,
}

impl<R: Read> RdbReader<R> {
    /// Begins to read a file whose values have at most `longest` bytes.
    ///
    /// # Errors
    /// See [`RdbError`].
    pub fn new(input: R, longest: usize) -> Result<RdbReader<R>, RdbError> {
        let mut reader = RdbReader {
            input,
            longest,
            item: Vec::new(),
            position: 0,
            checksum: CRC.digest(),
            version: 0,
            is_valkey: false,
            has_ended: false,
        };
        reader.take(9).map_err(|error| match error {
            RdbError::Truncated { .. } => RdbError::Other,
            other => other,
        })?;
        let head = reader.item.clone();
        let digits = head.strip_prefix(b"REDIS");
        let digits = digits.or_else(|| head.strip_prefix(b"VALKEY"));
        let version = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        reader.version = version.ok_or(RdbError::Other)?;
        let version = reader.version;
        reader.is_valkey = head.starts_with(b"VALKEY");
        let known = match reader.is_valkey {
            true => VALKEY,
            false => 1..=NEWEST,
        };
        if !known.contains(&version) {
            return Err(RdbError::Version { version });
        }
        reader.end_item();
        Ok(reader)
    }

    /// Returns where the item begins that was read last; after the end, where the checksum begins.
    #[must_use]
    pub fn item_position(&self) -> u64 {
        self.position
    }

    /// Returns the next item, without those that say nothing about keys and their values; `None`: the file has ended,
    /// and its checksum is right.
    ///
    /// # Errors
    /// See [`RdbError`].
    pub fn next_item(&mut self) -> Result<Option<RdbItem>, RdbError> {
        let mut deadline = None;
        while !self.has_ended {
            // A deadline is a part of the item that follows.
            if deadline.is_none() {
                self.end_item();
            }
            match self.byte()? {
                SLOT => (0..3).try_for_each(|_| self.length().map(drop))?,
                LIBRARY => return self.string().map(|source| Some(RdbItem::Library(source))),
                EARLY_LIBRARY => {
                    let position = self.position;
                    return Err(RdbError::EarlyLibrary { position });
                }
                MODULE => self.module()?,
                IDLE_TIME => drop(self.length()?),
                FREQUENCY => drop(self.byte()?),
                PROPERTY => {
                    let (name, value) = (self.string()?, self.string()?);
                    return Ok(Some(RdbItem::Property { name, value }));
                }
                SIZES => (0..2).try_for_each(|_| self.length().map(drop))?,
                DEADLINE_MS => deadline = Some(u64::from_le_bytes(self.array()?)),
                DEADLINE_SECONDS => {
                    let seconds = u32::from_le_bytes(self.array()?);
                    deadline = Some(u64::from(seconds) * 1000);
                }
                DATABASE => return self.length().map(|number| Some(RdbItem::Database(number))),
                END => self.end()?,
                kind => {
                    let key = self.string()?;
                    let value = self.value(kind, &key)?;
                    return Ok(Some(RdbItem::Key {
                        key,
                        deadline,
                        value,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Notes that the item has ended: the next one begins.
    fn end_item(&mut self) {
        self.checksum.update(&self.item);
        self.position += self.item.len() as u64;
        self.item.clear();
    }

    fn end(&mut self) -> Result<(), RdbError> {
        self.has_ended = true;
        self.end_item();
        // Formats before the fifth have no checksum.
        if self.version >= 5 {
            let expected = self.checksum.clone().finalize();
            let found = u64::from_le_bytes(self.array()?);
            if found != 0 && found != expected {
                return Err(RdbError::Checksum);
            }
        }
        let position = self.position + self.item.len() as u64;
        match self.byte() {
            Ok(_) => Err(RdbError::Behind { position }),
            Err(RdbError::Truncated { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn value(&mut self, kind: u8, key: &[u8]) -> Result<RdbValue, RdbError> {
        if kind == types::STRING {
            return self.string().map(RdbValue::String);
        }
        if self.is_valkey && kind == VALKEY_HASH {
            return self.valkey_hash();
        }
        let begin = self.item.len();
        match kind {
            types::LIST | types::SET | types::LIST_ZIPLISTS => self.strings(1)?,
            types::HASH => self.strings(2)?,
            types::SORTED_SET_TEXT => self.each(|file| {
                file.raw_string()?;
                match file.byte()? {
                    253..=255 => Ok(()),
                    length => file.take(length.into()),
                }
            })?,
            types::SORTED_SET => self.each(|file| {
                file.raw_string()?;
                file.take(8)
            })?,
            types::LIST_NODES => self.each(|file| {
                file.length()?;
                file.raw_string()
            })?,
            types::HASH_ZIPMAP
            | types::LIST_ZIPLIST
            | types::SET_INTSET
            | types::SORTED_SET_ZIPLIST
            | types::HASH_ZIPLIST
            | types::HASH_LISTPACK
            | types::SORTED_SET_LISTPACK
            | types::SET_LISTPACK
            | types::HASH_DEADLINES_LISTPACK_EARLY => self.raw_string()?,
            types::HASH_DEADLINES_LISTPACK => {
                self.take(8)?;
                self.raw_string()?;
            }
            types::HASH_DEADLINES | types::HASH_DEADLINES_EARLY => {
                if kind == types::HASH_DEADLINES {
                    self.take(8)?;
                }
                self.each(|file| {
                    file.length()?;
                    file.raw_string()?;
                    file.raw_string()
                })?;
            }
            types::STREAM | types::STREAM_2 | types::STREAM_3 => self.stream(kind)?,
            _ => {
                return Err(RdbError::Unsupported {
                    position: self.position,
                    key: String::from_utf8_lossy(key).into_owned(),
                    kind,
                });
            }
        }
        Ok(payload(kind, &self.item[begin..]))
    }

    /// Reads a hash with deadlines of fields as Valkey writes it, and returns it as Redis does.
    fn valkey_hash(&mut self) -> Result<RdbValue, RdbError> {
        let mut fields = Vec::new();
        let count = self.length()?;
        for _ in 0..count {
            let begin = self.item.len();
            self.raw_string()?;
            self.raw_string()?;
            let field = begin..self.item.len();
            let deadline = u64::try_from(i64::from_le_bytes(self.array()?)).ok();
            fields.push((field, deadline));
        }
        let deadlines = fields.iter().filter_map(|(_, deadline)| *deadline);
        let least = deadlines.min();
        let mut value = Vec::new();
        if let Some(least) = least {
            value.extend(least.to_le_bytes());
        }
        writer::length(fields.len(), &mut value);
        for (field, deadline) in fields {
            if let Some(least) = least {
                let offset = deadline.map_or(0, |deadline| deadline - least + 1);
                writer::length(offset as usize, &mut value);
            }
            value.extend_from_slice(&self.item[field]);
        }
        Ok(match least {
            Some(_) => payload(types::HASH_DEADLINES, &value),
            None => payload(types::HASH, &value),
        })
    }

    fn stream(&mut self, kind: u8) -> Result<(), RdbError> {
        let is_early = kind == types::STREAM;
        self.strings(2)?;
        // The number of entries and the last id; the first id, the greatest deleted one and the number of entries that
        // were ever added.
        self.lengths(if is_early { 3 } else { 8 })?;
        self.each(|file| {
            file.raw_string()?;
            file.lengths(if is_early { 2 } else { 3 })?;
            file.each(|file| {
                file.take(16 + 8)?;
                file.length().map(drop)
            })?;
            file.each(|file| {
                file.raw_string()?;
                file.take(if kind == types::STREAM_3 { 16 } else { 8 })?;
                file.each(|file| file.take(16))
            })
        })
    }

    /// Passes over what a module has written beside the keys.
    fn module(&mut self) -> Result<(), RdbError> {
        self.length()?;
        loop {
            match self.length()? {
                0 => return Ok(()),
                // Whole numbers with and without a sign.
                1 | 2 => drop(self.length()?),
                3 => self.take(4)?,
                4 => self.take(8)?,
                5 => self.raw_string()?,
                _ => {
                    let position = self.position;
                    return Err(RdbError::Malformed { position });
                }
            }
        }
    }

    /// Reads a number of elements, and each of them.
    fn each(
        &mut self,
        mut read: impl FnMut(&mut RdbReader<R>) -> Result<(), RdbError>,
    ) -> Result<(), RdbError> {
        let count = self.length()?;
        (0..count).try_for_each(|_| read(self))
    }

    /// Reads a number of elements, each of so many strings.
    fn strings(&mut self, of_each: usize) -> Result<(), RdbError> {
        self.each(|file| (0..of_each).try_for_each(|_| file.raw_string()))
    }

    fn lengths(&mut self, count: usize) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    /// Reads a string and returns its bytes.
    fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        let begin = self.item.len();
        self.raw_string()?;
        let (position, longest) = (self.position, self.longest);
        match PayloadReader::new(&self.item[begin..]).string(longest) {
            Ok(string) => Ok(string.into_owned()),
            Err(PayloadError::TooLong) => Err(RdbError::TooLong { position, longest }),
            Err(_) => Err(RdbError::Malformed { position }),
        }
    }

    /// Reads a string as it is written.
    fn raw_string(&mut self) -> Result<(), RdbError> {
        match self.byte()? {
            INTEGER_8 => self.take(1),
            INTEGER_16 => self.take(2),
            INTEGER_32 => self.take(4),
            COMPRESSED => {
                let compressed = self.length()?;
                self.length()?;
                self.take(compressed)
            }
            first => {
                let length = self.length_after(first)?;
                self.take(length)
            }
        }
    }

    fn length(&mut self) -> Result<u64, RdbError> {
        let first = self.byte()?;
        self.length_after(first)
    }

    /// Reads a length whose first byte is this one.
    fn length_after(&mut self, first: u8) -> Result<u64, RdbError> {
        let begin = self.item.len() - 1;
        self.take(match (first >> 6, first) {
            (1, _) => 1,
            (_, WIDE_LENGTH) => 4,
            (_, WIDEST_LENGTH) => 8,
            _ => 0,
        })?;
        let read = PayloadReader::new(&self.item[begin..]).length();
        let position = self.position;
        read.map_err(|_| RdbError::Malformed { position })
    }

    fn byte(&mut self) -> Result<u8, RdbError> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        let read = self.input.read_exact(&mut bytes);
        read.map_err(|error| self.failed(error))?;
        self.item.extend_from_slice(&bytes);
        Ok(bytes)
    }

    /// Reads so many bytes.
    fn take(&mut self, count: u64) -> Result<(), RdbError> {
        let position = self.position;
        let longest = self.longest;
        let is_within = (self.item.len() as u64)
            .checked_add(count)
            .is_some_and(|all| all <= longest as u64 + SLACK);
        if !is_within {
            return Err(RdbError::TooLong { position, longest });
        }
        let read = self.input.by_ref().take(count).read_to_end(&mut self.item);
        match read {
            Ok(read) if read as u64 == count => Ok(()),
            Ok(_) => Err(RdbError::Truncated { position }),
            Err(error) => Err(RdbError::Io { position, error }),
        }
    }

    fn failed(&self, error: io::Error) -> RdbError {
        let position = self.position;
        match error.kind() {
            io::ErrorKind::UnexpectedEof => RdbError::Truncated { position },
            _ => RdbError::Io { position, error },
        }
    }
}

/// Returns the payload of a value.
fn payload(kind: u8, value: &[u8]) -> RdbValue {
    let mut payload = Vec::with_capacity(value.len() + 16);
    payload.push(kind);
    payload.extend_from_slice(value);
    encode_footer(NEWEST_VERSION, &mut payload);
    RdbValue::Payload(payload)
}

/// The most bytes of an item besides its value: those of its key, above all.
const SLACK: u64 = 1 << 20;

#[cfg(test)]
mod tests;
