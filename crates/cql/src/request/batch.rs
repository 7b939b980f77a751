//! BATCH: several statements that are executed as one.

use super::Parameters;
use crate::bound::BoundValues;
use crate::envelope::Version;
use crate::notation::{Malformed, NotationReader, put_long_string, put_short_bytes, put_short_len};

/// The guarantee of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// All statements happen eventually, or none.
    Logged = 0,
    /// All statements of one partition happen, or none.
    Unlogged = 1,
    /// It changes counters.
    Counter = 2,
}

/// A statement to execute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statement<'a> {
    /// As text.
    Text(&'a str),
    /// By the id that PREPARE returned.
    Prepared(&'a [u8]),
}

/// A statement of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchStatement<'a> {
    /// The statement.
    pub statement: Statement<'a>,
    /// Values for its markers, without names.
    pub values: BoundValues<'a>,
}

/// Several statements that are executed as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch<'a> {
    /// The guarantee of the batch.
    pub kind: BatchKind,
    /// The statements in order.
    pub statements: Vec<BatchStatement<'a>>,
    /// How they are executed. Values, pages and names have no meaning in a batch.
    pub parameters: Parameters<'a>,
}

impl<'a> Batch<'a> {
    pub(super) fn read(
        reader: &mut NotationReader<'a>,
        version: Version,
    ) -> Result<Batch<'a>, Malformed> {
        let no_kind = reader.malformed("a batch of a kind that there is not");
        let kind = match reader.byte()? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            _ => return Err(no_kind),
        };
        Ok(Batch {
            kind,
            statements: reader.list(|reader| BatchStatement::read(reader, version))?,
            parameters: Parameters::read(reader, version)?,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, version: Version) {
        out.push(self.kind as u8);
        put_short_len(out, self.statements.len());
        for statement in &self.statements {
            statement.write(out);
        }
        self.parameters.write(out, version);
    }
}

impl<'a> BatchStatement<'a> {
    fn read(
        reader: &mut NotationReader<'a>,
        version: Version,
    ) -> Result<BatchStatement<'a>, Malformed> {
        let no_kind = reader.malformed("a statement that is neither text nor prepared");
        let statement = match reader.byte()? {
            0 => Statement::Text(reader.long_string()?),
            1 => Statement::Prepared(reader.short_bytes()?),
            _ => return Err(no_kind),
        };
        Ok(BatchStatement {
            statement,
            values: BoundValues::read(reader, false, version)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self.statement {
            Statement::Text(text) => {
                out.push(0);
                put_long_string(out, text);
            }
            Statement::Prepared(id) => {
                out.push(1);
                put_short_bytes(out, id);
            }
        }
        assert!(!self.values.are_named(), "a batch has no names for values");
        self.values.write(out);
    }
}
