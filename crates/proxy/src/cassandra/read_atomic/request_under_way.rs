//! A client's request about read-atomic tables while it is under way: its current round, and what its
//! earlier queries have found.

use std::sync::Arc;
use std::time::Duration;

use cql::response::{Columns, RowsBuilder};
use cql::{Consistency, CqlValue, Malformed, ResultBody, StreamId};

use super::open_transactions::OpenTransactions;
use super::record::{TransactionRecord, VersionTag};
use super::second_round::MissingVersion;
use super::statement::AtomicRead;
use super::{RECORD_TABLE, TAG_COLUMN};

/// A request under way.
#[derive(Debug)]
pub(crate) struct AtomicRequest {
    pub(crate) stream: StreamId,
    pub(crate) consistency: Consistency,
    /// Queries of the current round without a reply.
    pub(crate) outstanding: usize,
    pub(crate) work: AtomicWork,
}

/// The current round of a request.
#[derive(Debug)]
pub(crate) enum AtomicWork {
    Prepare(AtomicWrite),
    Commit(AtomicWrite),
    FirstRound(RowReads),
    SecondRound(RowReads),
}

/// A transaction that writes.
pub(crate) struct AtomicWrite {
    pub(crate) transactions: Arc<OpenTransactions>,
    pub(crate) record: TransactionRecord,
}

/// An answer that no row or record of a read-atomic table gives.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MalformedRow {
    /// It has no rows.
    #[error("an answer without rows")]
    NoRows,
    /// It has other columns than the table.
    #[error("a row of another table")]
    OtherTable,
    /// The tag of the row cannot be read.
    #[error("{TAG_COLUMN}: {0}")]
    Tag(Malformed),
    /// The record cannot be read.
    #[error("{RECORD_TABLE}: {0}")]
    Record(Malformed),
    /// The record does not have the row that refers to it.
    #[error("{RECORD_TABLE}: a record without the row")]
    RowMissing,
}

/// The values of a row, in the order of the table's columns.
pub(crate) type RowValues = Vec<Option<Vec<u8>>>;

/// A transaction that reads.
#[derive(Debug)]
pub(crate) struct RowReads {
    pub(crate) read: AtomicRead,
    /// When its first query was sent, since the proxy's start.
    pub(crate) since: Duration,
    /// For each key the row that was found.
    pub(crate) rows: Vec<Option<RowValues>>,
    pub(crate) tags: Vec<Option<VersionTag>>,
    pub(crate) missing: Vec<MissingVersion>,
}

impl std::fmt::Debug for AtomicWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.record.fmt(f)
    }
}

impl AtomicWrite {
    /// Returns `true` if it has several rows.
    pub(crate) fn has_record(&self) -> bool {
        self.record.writes.len() > 1
    }
}

impl RowReads {
    /// Takes the row of a key in the first round.
    ///
    /// # Errors
    /// Returns an error if the answer is not such a row.
    pub(crate) fn take_row(
        &mut self,
        place: usize,
        body: &ResultBody<'_>,
    ) -> Result<(), MalformedRow> {
        let ResultBody::Rows(rows) = body else {
            return Err(MalformedRow::NoRows);
        };
        let Some(row) = rows.iter().next() else {
            return Ok(());
        };
        let values: RowValues = row.into_iter().map(|it| it.map(<[u8]>::to_vec)).collect();
        let schema = &self.read.schema;
        let tag = schema
            .column(TAG_COLUMN)
            .and_then(|(at, _)| values.get(at)?.as_deref());
        if let Some(tag) = tag {
            let tag = VersionTag::decode(tag);
            self.tags[place] = Some(tag.map_err(MalformedRow::Tag)?);
        }
        if values.len() != schema.columns.0.len() {
            return Err(MalformedRow::OtherTable);
        }
        let is_deleted = self.tags[place].as_ref().is_some_and(|tag| tag.is_deleted);
        self.rows[place] = (!is_deleted).then_some(values);
        Ok(())
    }

    /// Takes a record of the second round. If there is none, the row of the first round is as new; see
    /// [`read_atomic`](super).
    ///
    /// # Errors
    /// Returns an error if the answer is not such a record.
    pub(crate) fn take_record(
        &mut self,
        at: usize,
        body: &ResultBody<'_>,
    ) -> Result<(), MalformedRow> {
        let MissingVersion { place, id, owner } = self.missing[at];
        let ResultBody::Rows(rows) = body else {
            return Err(MalformedRow::NoRows);
        };
        let Some(Some(writes)) = rows
            .iter()
            .next()
            .map(|row| row.into_iter().next().flatten())
        else {
            return Ok(());
        };
        let record = TransactionRecord::decode(id, owner, writes);
        let record = record.map_err(MalformedRow::Record)?;
        let key = &self.read.keys[place];
        let write = record.writes.iter().find(|write| write.key == *key);
        let write = write.ok_or(MalformedRow::RowMissing)?;
        let schema = &self.read.schema;
        let tag = record.tag(write);
        self.rows[place] = write.columns.as_ref().map(|columns| {
            let values = schema.columns.0.iter().enumerate().map(|(at, column)| {
                if let Some(rank) = schema.key.iter().position(|place| *place == at) {
                    return key.values.get(rank).cloned();
                }
                if column.name == TAG_COLUMN {
                    return Some(tag.encode());
                }
                let found = columns.iter().find(|(name, _)| *name == column.name);
                found.and_then(|(_, value)| value.clone())
            });
            values.collect()
        });
        self.tags[place] = Some(tag);
        Ok(())
    }

    /// Returns the rows of the answer.
    pub(crate) fn into_rows(self) -> RowsBuilder {
        let schema = &self.read.schema;
        let columns = self.read.columns.iter().map(|(at, name)| {
            let mut column = schema.columns.0[*at].clone();
            column.name.clone_from(name);
            column
        });
        let mut rows = RowsBuilder::new(Columns(columns.collect()));
        for row in self.rows.iter().flatten() {
            let values = self.read.columns.iter().map(|(at, _)| match &row[*at] {
                Some(bytes) => CqlValue::Blob(bytes.clone()),
                None => CqlValue::Null,
            });
            rows.push(&values.collect::<Vec<CqlValue>>());
        }
        rows
    }
}
