//! RESULT: the result of a request.
//!
//! | kind (`[int]`) | what follows |
//! |---|---|
//! | 1 void | – |
//! | 2 rows | see [`Rows`] |
//! | 3 set keyspace | `[string]` keyspace |
//! | 4 prepared | see [`Prepared`] |
//! | 5 schema change | see [`SchemaChange`] |

use super::{Prepared, Rows};
use crate::envelope::Version;
use crate::event::SchemaChange;
use crate::notation::{Malformed, NotationReader, put_int, put_string};

const VOID: i32 = 1;
const ROWS: i32 = 2;
const SET_KEYSPACE: i32 = 3;
const PREPARED: i32 = 4;
const SCHEMA_CHANGE: i32 = 5;

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResultBody<'a> {
    /// It was done, without a result.
    Void,
    /// Rows.
    Rows(Rows<'a>),
    /// The connection now uses this keyspace.
    SetKeyspace(&'a str),
    /// A statement was prepared.
    Prepared(Prepared<'a>),
    /// The schema was changed.
    SchemaChange(SchemaChange<'a>),
}

impl<'a> ResultBody<'a> {
    pub(super) fn read(
        reader: &mut NotationReader<'a>,
        version: Version,
    ) -> Result<ResultBody<'a>, Malformed> {
        let no_kind = reader.malformed("a result of a kind that there is not");
        Ok(match reader.int()? {
            VOID => ResultBody::Void,
            ROWS => ResultBody::Rows(Rows::read(reader, version)?),
            SET_KEYSPACE => ResultBody::SetKeyspace(reader.string()?),
            PREPARED => ResultBody::Prepared(Prepared::read(reader, version)?),
            SCHEMA_CHANGE => ResultBody::SchemaChange(SchemaChange::read(reader)?),
            _ => return Err(no_kind),
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, version: Version) {
        put_int(
            out,
            match self {
                ResultBody::Void => VOID,
                ResultBody::Rows(_) => ROWS,
                ResultBody::SetKeyspace(_) => SET_KEYSPACE,
                ResultBody::Prepared(_) => PREPARED,
                ResultBody::SchemaChange(_) => SCHEMA_CHANGE,
            },
        );
        match self {
            ResultBody::Void => {}
            ResultBody::Rows(rows) => rows.write(out, version),
            ResultBody::SetKeyspace(keyspace) => put_string(out, keyspace),
            ResultBody::Prepared(prepared) => prepared.write(out, version),
            ResultBody::SchemaChange(change) => change.write(out),
        }
    }
}
