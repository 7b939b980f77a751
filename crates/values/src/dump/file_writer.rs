//! Writing of Redis's files; the description of their format is that of [`super::file`].

use std::io::{self, Write};

use crc::{Digest, Table};

use super::file::{DATABASE, DEADLINE_MS, END, PROPERTY, SIZES};
use super::value_type::STRING;
use super::{CRC, FOOTER, NEWEST_VERSION, VERSION, body_of, writer};

/// The release of Redis for which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdbRelease {
    /// Redis 7.0: the format has version 10.
    Redis7_0,
    /// Redis 7.4: the format has version 12. Fields of hashes have deadlines.
    Redis7_4,
}

/// Why a value cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RdbWriteError {
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The payload is none.
    #[error("its value is malformed")]
    Malformed,
    /// The release of Redis does not read such values.
    #[error("its fields have deadlines, which Redis 7.0 does not have")]
    Newer,
}

/// Writes a file, item by item. A file that was not finished is not whole.
pub struct RdbWriter<W> {
    output: W,
    version: u16,
    item: Vec<u8>,
    checksum: Digest<'static, u64, Table<16>>,
}

impl<W: Write> RdbWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn new(output: W, release: RdbRelease) -> io::Result<RdbWriter<W>> {
        let version = match release {
            RdbRelease::Redis7_0 => VERSION,
            RdbRelease::Redis7_4 => NEWEST_VERSION,
        };
        let mut file = RdbWriter {
            output,
            version,
            item: format!("REDIS{version:04}").into_bytes(),
            checksum: CRC.digest(),
        };
        file.end_item()?;
        Ok(file)
    }

    /// Writes a property of the file.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn property(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.item.push(PROPERTY);
        writer::string(name, &mut self.item);
        writer::string(value, &mut self.item);
        self.end_item()
    }

    /// Writes the libraries of functions that `FUNCTION DUMP` has answered.
    ///
    /// # Errors
    /// See [`RdbWriteError`].
    pub fn libraries(&mut self, payload: &[u8]) -> Result<(), RdbWriteError> {
        let body = body_of(payload).ok_or(RdbWriteError::Malformed)?;
        self.item.extend_from_slice(body);
        Ok(self.end_item()?)
    }

    /// Begins the keys of a database: about so many, and so many of them with deadlines.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn database(&mut self, number: u64, keys: u64, expiring: u64) -> io::Result<()> {
        self.item.push(DATABASE);
        writer::length(number as usize, &mut self.item);
        self.item.push(SIZES);
        writer::length(keys as usize, &mut self.item);
        writer::length(expiring as usize, &mut self.item);
        self.end_item()
    }

    /// Writes a key whose value is a string.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn string(&mut self, key: &[u8], deadline_ms: Option<u64>, value: &[u8]) -> io::Result<()> {
        self.begin_key(STRING, key, deadline_ms);
        writer::string(value, &mut self.item);
        self.end_item()
    }

    /// Writes a key with the payload that `DUMP` has answered.
    ///
    /// # Errors
    /// See [`RdbWriteError`].
    pub fn payload(
        &mut self,
        key: &[u8],
        deadline_ms: Option<u64>,
        payload: &[u8],
    ) -> Result<(), RdbWriteError> {
        let body = body_of(payload).ok_or(RdbWriteError::Malformed)?;
        let (kind, value) = body.split_first().ok_or(RdbWriteError::Malformed)?;
        let footer = &payload[payload.len() - FOOTER..];
        if u16::from_le_bytes([footer[0], footer[1]]) > self.version {
            return Err(RdbWriteError::Newer);
        }
        self.begin_key(*kind, key, deadline_ms);
        self.item.extend_from_slice(value);
        Ok(self.end_item()?)
    }

    /// Ends the file, and returns the output.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.item.push(END);
        self.end_item()?;
        let checksum = self.checksum.clone().finalize();
        self.output.write_all(&checksum.to_le_bytes())?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn begin_key(&mut self, kind: u8, key: &[u8], deadline_ms: Option<u64>) {
        if let Some(deadline) = deadline_ms {
            self.item.push(DEADLINE_MS);
            self.item.extend(deadline.to_le_bytes());
        }
        self.item.push(kind);
        writer::string(key, &mut self.item);
    }

    fn end_item(&mut self) -> io::Result<()> {
        self.checksum.update(&self.item);
        self.output.write_all(&self.item)?;
        self.item.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base::transaction::Kind;

    use super::super::{RdbItem, RdbReader, RdbValue, encode, encode_libraries};
    use super::*;
    use crate::call::StoredBlock;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let string = StoredBlock {
            kind: Kind::String,
            bytes: b"12345",
        };
        let libraries =
            encode_libraries([&b"#!lua name=one\n"[..], b"#!lua name=two\n"].into_iter());
        let mut file = RdbWriter::new(Vec::new(), RdbRelease::Redis7_0).unwrap();
        file.property(b"redis-ver", b"7.0.0").unwrap();
        file.libraries(&libraries).unwrap();
        file.database(0, 2, 1).unwrap();
        file.string(b"a\r\n\0", Some(u64::MAX >> 1), &[0xff; 100])
            .unwrap();
        file.database(70, 1, 0).unwrap();
        file.payload(b"", None, &encode(string)).unwrap();
        assert!(matches!(
            file.payload(b"", None, b"x"),
            Err(RdbWriteError::Malformed)
        ));
        let bytes = file.finish().unwrap();
        let mut reader = RdbReader::new(&bytes[..], 1 << 20).unwrap();
        let mut items = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            items.push(item);
        }
        let key = |key: &[u8], deadline, value: &[u8]| RdbItem::Key {
            key: key.to_vec(),
            deadline,
            value: RdbValue::String(value.to_vec()),
        };
        let expected = [
            RdbItem::Property {
                name: b"redis-ver".to_vec(),
                value: b"7.0.0".to_vec(),
            },
            RdbItem::Library(b"#!lua name=one\n".to_vec()),
            RdbItem::Library(b"#!lua name=two\n".to_vec()),
            RdbItem::Database(0),
            key(b"a\r\n\0", Some(u64::MAX >> 1), &[0xff; 100]),
            RdbItem::Database(70),
            key(b"", None, b"12345"),
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn values_of_a_later_release_are_refused() {
        let mut payload = vec![24, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        super::super::encode_footer(NEWEST_VERSION, &mut payload);
        let mut file = RdbWriter::new(Vec::new(), RdbRelease::Redis7_0).unwrap();
        let refused = file.payload(b"k", None, &payload);
        assert!(matches!(refused, Err(RdbWriteError::Newer)));
        let mut file = RdbWriter::new(Vec::new(), RdbRelease::Redis7_4).unwrap();
        file.payload(b"k", None, &payload).unwrap();
    }
}
