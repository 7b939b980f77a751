//! Reads a statement on designated tables with a request's values: the rows that it writes or reads.

use std::sync::Arc;
use std::time::Duration;

use cql::statement::row::SUPPORTED_ON_ROWS;
use cql::statement::{RowChange, RowSelect, RowStatement, RowVerb, TableName};
use cql::{BoundValues, CqlValue, DataType};

use super::super::lock_table::reading::{ColumnValue, StatementReader};
use super::super::lock_table::schema::{KnownTable, Schema};
use super::TAG_COLUMN;
use super::record::{NamedColumns, RowKey, RowWrite};
use crate::error::ProxyError;

/// The longest time of a read, from its first query to its last answer. Records stay for three times as
/// long.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(20);
/// The most rows of a transaction, and of a read.
pub(crate) const MOST_ROWS: usize = 100;
/// The most bytes of a transaction's record. Nodes have a limit of 16 MiB for a write.
pub(crate) const MOST_BYTES: usize = 4 << 20;

/// Rows that a request writes or reads.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum AtomicStatement {
    Write {
        keyspace: String,
        writes: Vec<RowWrite>,
    },
    Read(AtomicRead),
}

/// A read of rows of one table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AtomicRead {
    pub(crate) schema: Arc<Schema>,
    pub(crate) keys: Vec<RowKey>,
    /// The columns of the result, with their names in it.
    pub(crate) columns: Vec<(usize, String)>,
}

/// The designated tables, as nodes describe them.
#[derive(Clone, Copy)]
pub(crate) struct StatementContext<'a> {
    pub(crate) tables: &'a [KnownTable],
    /// The keyspace of names without a keyspace.
    pub(crate) current: Option<&'a str>,
}

impl<'a> StatementContext<'a> {
    /// Reads a text with its values.
    ///
    /// # Errors
    /// Returns the error for the client.
    pub(crate) fn statement(
        self,
        text: &str,
        values: &BoundValues<'_>,
    ) -> Result<AtomicStatement, ProxyError> {
        let invalid = |error: cql::statement::row::RowSyntaxError| {
            ProxyError::invalid_request(error.to_string())
        };
        match RowStatement::parse(text).map_err(invalid)? {
            RowStatement::Select(select) => self.read(&select, values).map(AtomicStatement::Read),
            RowStatement::Change(change) => self.writes(&[change], values),
            RowStatement::Batch(changes) => self.writes(&changes, values),
        }
    }

    fn writes(
        self,
        changes: &[RowChange<'_>],
        values: &BoundValues<'_>,
    ) -> Result<AtomicStatement, ProxyError> {
        let mut keyspace = None;
        let mut writes = Vec::new();
        for change in changes {
            let (of, write) = self.write(change, values)?;
            keyspace.get_or_insert_with(|| of.clone());
            if keyspace.as_ref() != Some(&of) {
                return Err(ProxyError::invalid_request(
                    "a read-atomic batch writes to tables of one keyspace: make two batches",
                ));
            }
            writes.push(write);
        }
        AtomicStatement::of_writes(keyspace, writes)
    }

    fn schema(self, table: &TableName<'_>) -> Result<&'a Arc<Schema>, ProxyError> {
        let known = self
            .tables
            .iter()
            .find(|it| it.name.is(table, self.current));
        match known {
            Some(known) => known.schema.as_ref().map_err(ProxyError::clone),
            None => Err(ProxyError::invalid_request(format!(
                "{table} is not read atomic, and a read-atomic batch writes to such tables alone: \
                 make two batches, or name the table by --read-atomic"
            ))),
        }
    }

    fn write(
        self,
        change: &RowChange<'_>,
        values: &BoundValues<'_>,
    ) -> Result<(String, RowWrite), ProxyError> {
        let schema = self.schema(&change.table)?;
        let reader = StatementReader { schema, values };
        let (key, columns) = match &change.verb {
            RowVerb::Insert(equalities) => {
                let (key, columns) = reader.insert(equalities)?;
                (key, Some(columns))
            }
            RowVerb::Update { assignments, key } => {
                let columns = reader.assignments(assignments)?;
                (reader.key(key)?, Some(columns))
            }
            RowVerb::Delete(key) => (reader.key(key)?, None),
        };
        let columns = columns.map(|columns| all_columns(schema, columns));
        let write = RowWrite {
            key: row_key(schema, key)?,
            columns: columns.transpose()?,
        };
        Ok((schema.name.keyspace.to_string(), write))
    }

    fn read(
        self,
        select: &RowSelect<'_>,
        values: &BoundValues<'_>,
    ) -> Result<AtomicRead, ProxyError> {
        let schema = self.schema(&select.table)?;
        let reader = StatementReader { schema, values };
        let columns = reader.selection(&select.selection)?;
        let mut keys: Vec<RowKey> = Vec::new();
        for values in reader.keys(&select.key, MOST_ROWS)? {
            let key = row_key(schema, values)?;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Ok(AtomicRead {
            schema: Arc::clone(schema),
            keys,
            columns,
        })
    }
}

impl AtomicStatement {
    /// Returns the statement that writes these rows of a keyspace; without writes there is none.
    ///
    /// # Errors
    /// Returns the error for the client.
    pub(crate) fn of_writes(
        keyspace: Option<String>,
        writes: Vec<RowWrite>,
    ) -> Result<AtomicStatement, ProxyError> {
        if writes.len() > MOST_ROWS {
            return Err(ProxyError::invalid_request(format!(
                "a read-atomic batch writes at most {MOST_ROWS} rows, and this one {}",
                writes.len()
            )));
        }
        let keys: std::collections::HashSet<&RowKey> = writes.iter().map(|it| &it.key).collect();
        if keys.len() < writes.len() {
            return Err(ProxyError::invalid_request(
                "a read-atomic batch writes each row once",
            ));
        }
        let bytes: usize = writes.iter().map(bytes).sum();
        if bytes > MOST_BYTES {
            return Err(ProxyError::invalid_request(format!(
                "a read-atomic batch writes at most {MOST_BYTES} bytes, and this one {bytes}"
            )));
        }
        match keyspace {
            Some(keyspace) => Ok(AtomicStatement::Write { keyspace, writes }),
            None => Err(ProxyError::invalid_request(format!(
                "{SUPPORTED_ON_ROWS}: this batch is empty"
            ))),
        }
    }
}

/// Returns about how many bytes a write takes in a record.
fn bytes(write: &RowWrite) -> usize {
    let key: usize = write.key.values.iter().map(|value| value.len() + 4).sum();
    let columns = write.columns.iter().flatten();
    let columns = columns.map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len) + 8);
    write.key.table.len() + key + columns.sum::<usize>()
}

fn row_key(schema: &Schema, values: Vec<Vec<u8>>) -> Result<RowKey, ProxyError> {
    for (value, &place) in values.iter().zip(&schema.key) {
        check_value(schema, place, value)?;
    }
    Ok(RowKey {
        table: schema.name.table.to_string(),
        values,
    })
}

/// Returns the values of all columns besides those of the key and the tag.
fn all_columns(schema: &Schema, given: Vec<ColumnValue>) -> Result<NamedColumns, ProxyError> {
    let mut given = given;
    let mut all = Vec::new();
    for (place, column) in schema.columns.0.iter().enumerate() {
        let name = &column.name;
        let at = given.iter().position(|(at, _)| *at == place);
        let value = at.map(|at| given.swap_remove(at).1);
        match (value, name == TAG_COLUMN) {
            _ if schema.is_key(place) => {}
            (Some(_), true) => {
                return Err(ProxyError::invalid_request(format!(
                    "{TAG_COLUMN} is written by the proxy: leave it out"
                )));
            }
            (None, true) => {}
            (Some(value), false) => {
                if let Some(value) = &value {
                    check_value(schema, place, value)?;
                }
                all.push((name.clone(), value));
            }
            (None, false) => {
                return Err(ProxyError::invalid_request(format!(
                    "a row of a read-atomic table is written as a whole: give {name}, too, or null"
                )));
            }
        }
    }
    Ok(all)
}

/// Refuses values that nodes would refuse, which must not happen after the PREPARE of a transaction, and
/// that [`StatementReader`] accepts.
fn check_value(schema: &Schema, place: usize, value: &[u8]) -> Result<(), ProxyError> {
    let column = &schema.columns.0[place];
    let is_storable = match &column.data_type {
        DataType::Ascii | DataType::Text | DataType::Blob => true,
        DataType::Timeuuid => value.len() == 16 && value[6] >> 4 == 1,
        DataType::Time => value.len() == 8,
        DataType::Date => value.len() == 4,
        data_type => !value.is_empty() && CqlValue::decode(data_type, Some(value)).is_ok(),
    };
    match is_storable {
        true => Ok(()),
        false => Err(ProxyError::invalid_request(format!(
            "Invalid value for {} of type {:?}",
            column.name, column.data_type
        ))),
    }
}

#[cfg(test)]
pub(crate) mod tests;
