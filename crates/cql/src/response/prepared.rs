//! The result of PREPARE.
//!
//! `[short bytes]` id; in version 5 `[short bytes]` id of the result's description; a description
//! of the markers; a description of the result's rows (see [`RowsMetadata`]).
//!
//! The description of the markers: `[int]` flags, `[int]` number of markers; from version 4 on
//! `[int]` *n*, *n* × `[short]` index of the marker of each column of the partition key; then the
//! markers, described like columns. No indexes: the statement does not give the whole key.

use super::{Columns, RowsMetadata};
use crate::envelope::Version;
use crate::notation::{Malformed, NotationReader, put_int, put_int_len, put_short_bytes};

/// A statement that a node has prepared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared<'a> {
    /// The id that EXECUTE uses.
    pub id: &'a [u8],
    /// The id of the description of the result (version 5, always there).
    pub result_metadata_id: Option<&'a [u8]>,
    /// The statement's markers.
    pub bind: PreparedMetadata,
    /// The columns of the rows that it will return.
    pub result: RowsMetadata,
}

/// The markers of a prepared statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PreparedMetadata {
    /// For each column of the partition key the marker that gives it; empty if markers do not give
    /// all of them, and in version 3.
    pub partition_key: Vec<u16>,
    /// The markers.
    pub columns: Columns,
}

impl PreparedMetadata {
    fn read(
        reader: &mut NotationReader<'_>,
        version: Version,
    ) -> Result<PreparedMetadata, Malformed> {
        let flags = reader.int()?;
        let count = reader.count("a negative number of markers")?;
        let mut partition_key = Vec::new();
        if version >= Version::V4 {
            for _ in 0..reader.count("a negative number of key columns")? {
                partition_key.push(reader.short()?);
            }
        }
        Ok(PreparedMetadata {
            partition_key,
            columns: Columns::read(reader, flags, count)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>, version: Version) {
        put_int(out, self.columns.flag());
        put_int_len(out, self.columns.0.len());
        if version >= Version::V4 {
            put_int_len(out, self.partition_key.len());
            for index in &self.partition_key {
                out.extend_from_slice(&index.to_be_bytes());
            }
        }
        self.columns.write(out);
    }
}

impl<'a> Prepared<'a> {
    pub(super) fn read(
        reader: &mut NotationReader<'a>,
        version: Version,
    ) -> Result<Prepared<'a>, Malformed> {
        let id = reader.short_bytes()?;
        let has_metadata_id = version >= Version::V5;
        let result_metadata_id = has_metadata_id.then(|| reader.short_bytes());
        Ok(Prepared {
            id,
            result_metadata_id: result_metadata_id.transpose()?,
            bind: PreparedMetadata::read(reader, version)?,
            result: RowsMetadata::read(reader, version)?,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, version: Version) {
        put_short_bytes(out, self.id);
        let has_metadata_id = self.result_metadata_id.is_some();
        assert_eq!(
            has_metadata_id,
            version >= Version::V5,
            "as version 5 alone"
        );
        if let Some(id) = self.result_metadata_id {
            put_short_bytes(out, id);
        }
        self.bind.write(out, version);
        self.result.write(out, version);
    }
}
