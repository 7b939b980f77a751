//! Tables of locks: the proxy answers statements about them as Cassandra would.
//!
//! | module | concept |
//! |---|---|
//! | [`schema`] | the tables' columns, as nodes report them |
//! | [`row`] | a row as the value of a lock |
//! | [`reading`] | reads a statement with its values |
//! | [`step`] | the effect of a statement on its lock, and the reply |
//!
//! The requests about them are in [`lock_requests`](super::lock_requests).

pub(crate) mod reading;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod step;

use std::fmt;
use std::sync::Arc;

use cql::StreamId;
use cql::statement::{Summary, TableName};

use self::step::{LockStep, StepOutcome};
use crate::config::CqlTable;
use crate::locks::lock_service::LockService;

/// The locks, and the tables that are kept as locks.
#[derive(Default)]
pub(crate) struct LockTables {
    pub(crate) tables: Vec<CqlTable>,
    /// The lock service; `None`: the proxy keeps no locks.
    pub(crate) locks: Option<Arc<LockService>>,
}

/// A statement whose answer comes as a lock reply.
#[derive(Debug)]
pub(crate) struct PendingLockRequest {
    pub(super) stream: StreamId,
    pub(super) step: Arc<LockStep>,
    pub(super) skip_metadata: bool,
}

impl fmt::Display for CqlTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.table)
    }
}

impl LockTables {
    /// Returns `true` if the proxy keeps one of these tables.
    pub(super) fn has_one_of(&self, tables: &[TableName<'_>], current: Option<&str>) -> bool {
        let is = |table: &TableName<'_>| self.tables.iter().any(|own| own.is(table, current));
        tables.iter().any(is)
    }

    /// Returns `true` if a text is about a table that the proxy keeps.
    pub(crate) fn answers(&self, text: &str, current: Option<&str>) -> bool {
        !self.tables.is_empty()
            && Summary::of(text).is_ok_and(|summary| self.has_one_of(&summary.tables, current))
    }
}

impl CqlTable {
    pub(super) fn is(&self, table: &TableName<'_>, current: Option<&str>) -> bool {
        table.is(&self.keyspace, &self.table, current)
    }
}

impl StepOutcome {
    pub(super) fn verdict(self) -> ::locks::ChangeVerdict {
        match self {
            StepOutcome::Applied(verdict) => verdict,
            StepOutcome::Missing | StepOutcome::Differs(_) | StepOutcome::Refused(_) => {
                ::locks::ChangeVerdict::Keep
            }
        }
    }
}
