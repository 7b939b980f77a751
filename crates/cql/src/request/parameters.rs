//! The parameters behind a statement: how it must be executed, and with which values.
//!
//! `[short]` consistency; flags, an `[int]` in version 5 and a `[byte]` before; then, in this
//! order, the parts that the flags announce:
//!
//! | flag | what |
//! |---|---|
//! | 0x01 | a list of values, with names if 0x40 is set, too |
//! | 0x02 | nothing: the result shall come without its columns' names and types |
//! | 0x04 | `[int]` rows in a page |
//! | 0x08 | `[bytes]` paging state: where the last page ended |
//! | 0x10 | `[short]` consistency of the conditional part |
//! | 0x20 | `[long]` timestamp in microseconds |
//! | 0x80 | `[string]` keyspace of names that have none |
//! | 0x100 | `[int]` the present, in seconds since 1970, for expiry |
//!
//! The last two are of version 5. Version 4 has no bit for the last one; the bit 0x80 is read in
//! any version, as Cassandra does, lest two programs interpret one request differently.

use crate::bound::BoundValues;
use crate::consistency::Consistency;
use crate::envelope::Version;
use crate::notation::{Malformed, NotationReader, put_bytes, put_int, put_long, put_string};

const VALUES: u32 = 0x01;
const SKIP_METADATA: u32 = 0x02;
const PAGE_SIZE: u32 = 0x04;
const PAGING_STATE: u32 = 0x08;
const SERIAL_CONSISTENCY: u32 = 0x10;
const TIMESTAMP: u32 = 0x20;
const NAMES: u32 = 0x40;
const KEYSPACE: u32 = 0x80;
const NOW_IN_SECONDS: u32 = 0x100;

/// How a statement must be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters<'a> {
    /// The number of replicas that must answer.
    pub consistency: Consistency,
    /// Values for the statement's markers.
    pub values: BoundValues<'a>,
    /// `true` if the result must come without its columns' names and types.
    pub skip_metadata: bool,
    /// The most rows of a page.
    pub page_size: Option<i32>,
    /// The end of the last page.
    pub paging_state: Option<&'a [u8]>,
    /// The consistency of the conditional part; `Serial` if it is missing.
    pub serial_consistency: Option<Consistency>,
    /// The timestamp in microseconds; the server's if it is missing.
    pub timestamp: Option<i64>,
    /// The keyspace of names that have none; the connection's if it is missing (version 5).
    pub keyspace: Option<&'a str>,
    /// The present for expiry; the server's if it is missing (version 5).
    pub now_in_seconds: Option<i32>,
}

impl<'a> Parameters<'a> {
    /// Creates parameters with a consistency and values, and nothing else.
    #[must_use]
    pub fn new(consistency: Consistency, values: BoundValues<'a>) -> Parameters<'a> {
        Parameters {
            consistency,
            values,
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }

    /// Reads parameters.
    ///
    /// # Errors
    /// They are malformed.
    pub fn read(
        reader: &mut NotationReader<'a>,
        version: Version,
    ) -> Result<Parameters<'a>, Malformed> {
        let consistency = Consistency::read(reader)?;
        let flags = if version >= Version::V5 {
            reader.int()? as u32
        } else {
            reader.byte()?.into()
        };
        let has = |flag: u32| flags & flag != 0;
        let values = if has(VALUES) {
            BoundValues::read(reader, has(NAMES), version)?
        } else {
            BoundValues::none(version)
        };
        let mut parameters = Parameters::new(consistency, values);
        parameters.skip_metadata = has(SKIP_METADATA);
        if has(PAGE_SIZE) {
            parameters.page_size = Some(reader.int()?);
        }
        if has(PAGING_STATE) {
            parameters.paging_state = reader.bytes()?;
        }
        if has(SERIAL_CONSISTENCY) {
            parameters.serial_consistency = Some(Consistency::read(reader)?);
        }
        if has(TIMESTAMP) {
            parameters.timestamp = Some(reader.long()?);
        }
        if has(KEYSPACE) {
            parameters.keyspace = Some(reader.string()?);
        }
        if has(NOW_IN_SECONDS) {
            parameters.now_in_seconds = Some(reader.int()?);
        }
        Ok(parameters)
    }

    /// Writes parameters.
    ///
    /// # Panics
    /// Panics if they contain the present and this is an earlier version than 5.
    pub fn write(&self, out: &mut Vec<u8>, version: Version) {
        self.consistency.write(out);
        let flags = self.flags();
        if version >= Version::V5 {
            put_int(out, flags as i32);
        } else {
            assert_eq!(flags & NOW_IN_SECONDS, 0, "no bit for it before version 5");
            out.push(flags as u8);
        }
        if !self.values.is_empty() {
            self.values.write(out);
        }
        if let Some(size) = self.page_size {
            put_int(out, size);
        }
        if let Some(state) = self.paging_state {
            put_bytes(out, Some(state));
        }
        if let Some(consistency) = self.serial_consistency {
            consistency.write(out);
        }
        if let Some(timestamp) = self.timestamp {
            put_long(out, timestamp);
        }
        if let Some(keyspace) = self.keyspace {
            put_string(out, keyspace);
        }
        if let Some(now) = self.now_in_seconds {
            put_int(out, now);
        }
    }

    fn flags(&self) -> u32 {
        let set = |condition: bool, flag: u32| if condition { flag } else { 0 };
        set(!self.values.is_empty(), VALUES)
            | set(self.skip_metadata, SKIP_METADATA)
            | set(self.page_size.is_some(), PAGE_SIZE)
            | set(self.paging_state.is_some(), PAGING_STATE)
            | set(self.serial_consistency.is_some(), SERIAL_CONSISTENCY)
            | set(self.timestamp.is_some(), TIMESTAMP)
            | set(!self.values.is_empty() && self.values.are_named(), NAMES)
            | set(self.keyspace.is_some(), KEYSPACE)
            | set(self.now_in_seconds.is_some(), NOW_IN_SECONDS)
    }
}
