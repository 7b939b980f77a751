//! Statements that nodes have prepared, for all clients.
//!
//! A node knows the statements that it has prepared itself, and all nodes have the same id for the same
//! text. A client prepares a statement once; the proxy prepares it with the other nodes when they
//! report that they do not know it.
//!
//! The number and the bytes of the statements are bounded, because clients choose the texts. The oldest
//! statement is removed first. A client whose statement was removed prepares it again: drivers do that
//! when they get the error that it is not known.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cql::response::Prepared as PreparedResult;
use cql::statement::{StatementKind, Summary, is_idempotent};
use cql::{Version, request};
use parking_lot::RwLock;

use super::reply_time_limit::ReplyTimeLimit;
use super::system;

/// The most statements of one version that are remembered.
const MOST: usize = 100_000;
/// The most bytes that statements of one version take.
const MOST_BYTES: usize = 128 << 20;
/// The approximate size of a statement besides its texts.
const OVERHEAD: usize = 512;

/// A statement, with data from the answer of the node that prepared it first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CachedStatement {
    /// The PREPARE, as the client sent it.
    pub(crate) request: Bytes,
    pub(crate) text: String,
    /// The keyspace of the client's connection that sent it.
    pub(crate) connection_keyspace: Option<Arc<str>>,
    /// The keyspace of its table.
    pub(crate) keyspace: Option<String>,
    /// The markers of the partition key's columns.
    pub(crate) key: Vec<u16>,
    /// The names of those markers, by which clients may give values as well.
    pub(crate) key_names: Vec<String>,
    /// The body of the result that the client got.
    pub(crate) told: Bytes,
    /// It only reads.
    pub(crate) reads: bool,
    /// It writes under a condition.
    pub(crate) conditional: bool,
    /// The proxy answers it itself.
    pub(crate) is_local: bool,
    pub(crate) pace: ReplyTimeLimit,
    /// It is a write that can be merged with others.
    pub(crate) merges: bool,
}

impl CachedStatement {
    /// Makes a statement of a node's answer. `request` and `told` are copied, because they would keep
    /// whole input blocks in memory.
    pub(crate) fn new(
        request: &[u8],
        prepare: request::Prepare<'_>,
        connection_keyspace: Option<Arc<str>>,
        result: &PreparedResult<'_>,
        told: &[u8],
    ) -> CachedStatement {
        let summary = Summary::of(prepare.text).ok();
        let kind = summary.as_ref().map(|summary| summary.kind);
        let connection_keyspace = match prepare.keyspace {
            Some(keyspace) => Some(keyspace.into()),
            None => connection_keyspace,
        };
        let columns = &result.bind.columns.0;
        // Without markers no column names the table; the text does.
        let table = summary.as_ref().and_then(|summary| summary.tables.first());
        let keyspace = match (columns.first(), table) {
            (Some(column), _) => Some(column.keyspace.to_string()),
            (None, Some(table)) => {
                let named = table.keyspace.as_deref();
                named.or(connection_keyspace.as_deref()).map(str::to_owned)
            }
            (None, None) => None,
        };
        let key = result.bind.partition_key.iter();
        let names = key.map(|&marker| Some(columns.get(usize::from(marker))?.name.clone()));
        CachedStatement {
            request: Bytes::copy_from_slice(request),
            text: prepare.text.to_owned(),
            keyspace,
            key: result.bind.partition_key.clone(),
            key_names: names.collect::<Option<_>>().unwrap_or_default(),
            told: Bytes::copy_from_slice(told),
            reads: kind == Some(StatementKind::Select),
            conditional: summary.as_ref().is_some_and(|summary| summary.conditional),
            is_local: system::answers(prepare.text, connection_keyspace.as_deref()),
            pace: ReplyTimeLimit::of(kind),
            merges: merges(prepare.text, summary.as_ref()),
            connection_keyspace,
        }
    }

    /// Returns about how many bytes it takes.
    fn bytes(&self) -> usize {
        let names: usize = self.key_names.iter().map(|name| name.len() + 32).sum();
        self.request.len() + self.text.len() + self.told.len() + names + OVERHEAD
    }
}

/// Statements of one version.
#[derive(Debug, Default)]
struct ById {
    statements: HashMap<Bytes, Arc<CachedStatement>, foldhash::fast::RandomState>,
    /// The ids, the oldest first.
    order: VecDeque<Bytes>,
    /// The size of all statements.
    bytes: usize,
}

impl ById {
    fn put(&mut self, id: &[u8], statement: CachedStatement) {
        self.bytes += statement.bytes();
        let id = Bytes::copy_from_slice(id);
        match self.statements.insert(id.clone(), Arc::new(statement)) {
            Some(before) => self.bytes -= before.bytes(),
            None => self.order.push_back(id),
        }
        while self.statements.len() > MOST || self.bytes > MOST_BYTES {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            if let Some(forgotten) = self.statements.remove(&oldest) {
                self.bytes -= forgotten.bytes();
            }
        }
    }
}

/// Returns `true` if a statement only sets columns, so that it can be part of a batch with others.
fn merges(text: &str, summary: Option<&Summary<'_>>) -> bool {
    let writes = [
        StatementKind::Insert,
        StatementKind::Update,
        StatementKind::Delete,
    ];
    summary.is_some_and(|summary| writes.contains(&summary.kind) && !summary.conditional)
        && is_idempotent(text)
}

/// All statements; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct PreparedStatements([RwLock<ById>; 2]);

impl PreparedStatements {
    fn of(&self, version: Version) -> &RwLock<ById> {
        &self.0[usize::from(version == Version::V5)]
    }

    /// Adds a statement.
    pub(crate) fn put(&self, version: Version, id: &[u8], statement: CachedStatement) {
        self.of(version).write().put(id, statement);
    }

    /// Returns the statement of this id.
    pub(crate) fn get(&self, version: Version, id: &[u8]) -> Option<Arc<CachedStatement>> {
        self.of(version).read().statements.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: String) -> CachedStatement {
        CachedStatement {
            request: Bytes::new(),
            text,
            connection_keyspace: None,
            keyspace: None,
            key: Vec::new(),
            key_names: Vec::new(),
            told: Bytes::new(),
            reads: true,
            conditional: false,
            is_local: false,
            pace: ReplyTimeLimit::Rows,
            merges: false,
        }
    }

    #[test]
    fn versions_do_not_share_statements() {
        let prepared = PreparedStatements::default();
        let statement = statement("SELECT * FROM t".to_owned());
        prepared.put(Version::V4, b"id", statement.clone());
        assert_eq!(prepared.get(Version::V5, b"id"), None);
        let found = prepared.get(Version::V4, b"id");
        assert_eq!(found.as_deref(), Some(&statement));
    }

    #[test]
    fn what_is_remembered_is_bounded_in_bytes() {
        let prepared = PreparedStatements::default();
        let long = || statement("x".repeat(MOST_BYTES / 4));
        for id in 0..10_u8 {
            prepared.put(Version::V4, &[id], long());
            // It takes the place that it had.
            prepared.put(Version::V4, &[id], long());
        }
        let known: Vec<u8> = (0..10)
            .filter(|&id| prepared.get(Version::V4, &[id]).is_some())
            .collect();
        assert_eq!(known, [7, 8, 9]);
        let all = prepared.of(Version::V4).read();
        assert_eq!((all.order.len(), all.statements.len()), (3, 3));
        assert!(all.bytes <= MOST_BYTES);
        drop(all);
        let short = statement(String::new());
        for id in 0..MOST as u32 + 10 {
            prepared.put(Version::V5, &id.to_be_bytes(), short.clone());
        }
        let all = prepared.of(Version::V5).read();
        assert_eq!(all.statements.len(), all.order.len());
        assert!(all.statements.len() <= MOST && all.bytes <= MOST_BYTES);
    }

    #[test]
    fn without_markers_the_text_tells_the_keyspace() {
        use cql::response::{Columns, PreparedMetadata, RowsMetadata};
        let result = PreparedResult {
            id: b"id",
            result_metadata_id: None,
            bind: PreparedMetadata {
                partition_key: Vec::new(),
                columns: Columns::default(),
            },
            result: RowsMetadata::none(),
        };
        let of = |text, current: Option<&str>| {
            let prepare = request::Prepare {
                text,
                keyspace: None,
            };
            let current = current.map(Arc::from);
            CachedStatement::new(b"", prepare, current, &result, b"").keyspace
        };
        let found = of("SELECT * FROM system_views.clients", Some("app"));
        assert_eq!(found.as_deref(), Some("system_views"));
        let found = of("SELECT * FROM clients", Some("system_views"));
        assert_eq!(found.as_deref(), Some("system_views"));
        assert_eq!(of("SELECT * FROM clients", None), None);
    }
}
