//! Read-atomic transactions over tables of Cassandra, by RAMP-Fast (P. Bailis et al., "Scalable Atomic
//! Visibility with RAMP Transactions", SIGMOD 2014, section 4.1), without a change to the nodes.
//!
//! | module | concept |
//! |---|---|
//! | [`transaction_id`] | ids of transactions, and the partitions of their records |
//! | [`open_transactions`] | the transactions that this proxy has begun in a keyspace |
//! | [`designated_table`] | the tables as the nodes know them, and what they must have |
//! | [`record`] | records of transactions, and the tags of rows, as bytes |
//! | [`statement`] | reads a statement with its values |
//! | [`request_under_way`] | a client's request, and what its queries have found |
//! | [`second_round`] | the versions that a read has to fetch in a second round |
//! | [`node_queries`] | the queries to the nodes |
//! | [`recovery`] | completes transactions, removes records, leases the proxy's number |
//!
//! The requests about them are in [`atomic_requests`](super::atomic_requests).
//!
//! A designated table has a column `kumiki_txn blob`, the *tag* of a row's version. Each keyspace with
//! such tables has one table of records:
//!
//! | column of `kumiki_transactions` | content |
//! |---|---|
//! | `owner bigint` | the life of a proxy, by a random number |
//! | `bucket bigint` | the time and a shard, see [`transaction_id`]; −1: a lease |
//! | `id bigint` | the transaction's id, which is also its timestamp at the nodes |
//! | `writes blob` | all rows that it writes |
//!
//! **Write.** One INSERT puts the record of a transaction at the nodes (PREPARE). When a quorum has it,
//! the rows are written to their tables, each with all columns, its tag, and the id as its timestamp
//! (COMMIT). The client has its answer when a quorum has each row. A transaction of one row needs no
//! record.
//!
//! **Read.** The first round reads the rows. A tag names the transaction, and the other rows that it
//! wrote. If a row that was read is older than the tag of another row demands, the second round fetches
//! the record of that transaction.
//!
//! Invariants:
//! 1. A row becomes visible only when a quorum has the transaction's whole record.
//! 2. No two transactions of a keyspace have the same id: an id contains the number that the proxy has
//!    leased. So the nodes, which keep the version with the greatest timestamp, never mix two versions
//!    of a row: every version sets all columns.
//! 3. A record is removed not earlier than [`recovery::RETENTION`] after a quorum has all of its rows.
//!    So a read that took less than [`statement::READ_LIMIT`] and finds no record knows that its first
//!    round began when all rows of that transaction were in place; the rows that it has read are at least
//!    as new. A read that took longer fails.
//! 4. A transaction that has not been completed is completed: by its own proxy, or when that is gone by
//!    another one. This can be done any number of times, because the timestamps stay the same.
//! 5. Either the thread that began a transaction starts its COMMIT, or recovery has taken it over;
//!    see [`open_transactions`].

pub(crate) mod designated_table;
pub(crate) mod node_queries;
pub(crate) mod open_transactions;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod request_under_way;
pub(crate) mod second_round;
pub(crate) mod statement;
pub(crate) mod transaction_id;

use std::sync::Arc;

use cql::statement::{Summary, TableName};

use self::open_transactions::OpenTransactions;
use crate::config::CqlTable;
use crate::figures::ReadAtomicFigures;

/// The column of a designated table that has the tag.
pub(crate) const TAG_COLUMN: &str = "kumiki_txn";
/// The table of records of each keyspace.
pub(crate) const RECORD_TABLE: &str = "kumiki_transactions";

/// The designated tables.
#[derive(Default)]
pub(crate) struct ReadAtomicTables {
    pub(crate) tables: Vec<CqlTable>,
    /// The transactions of each keyspace that has such tables.
    pub(crate) keyspaces: Vec<Arc<OpenTransactions>>,
}

impl ReadAtomicTables {
    /// Returns the tables, with no transactions begun.
    pub(crate) fn new(
        tables: Vec<CqlTable>,
        owner: transaction_id::Owner,
        clock: &Arc<dyn base::clock::Clock>,
        figures: &Arc<ReadAtomicFigures>,
    ) -> ReadAtomicTables {
        let mut names: Vec<&str> = tables.iter().map(|table| &*table.keyspace).collect();
        names.sort_unstable();
        names.dedup();
        let open = |name| {
            Arc::new(OpenTransactions::new(
                name,
                owner,
                Arc::clone(clock),
                Arc::clone(figures),
            ))
        };
        ReadAtomicTables {
            keyspaces: names.into_iter().map(open).collect(),
            tables,
        }
    }

    /// Returns `true` if one of these tables is designated, or keeps records.
    pub(crate) fn has_one_of(&self, tables: &[TableName<'_>], current: Option<&str>) -> bool {
        let is = |table: &TableName<'_>| {
            self.tables.iter().any(|own| own.is(table, current))
                || self
                    .keyspaces
                    .iter()
                    .any(|keyspace| table.is(&keyspace.keyspace, RECORD_TABLE, current))
        };
        tables.iter().any(is)
    }

    /// Returns `true` if a text is about such a table.
    pub(crate) fn answers(&self, text: &str, current: Option<&str>) -> bool {
        !self.tables.is_empty()
            && Summary::of(text).is_ok_and(|summary| self.has_one_of(&summary.tables, current))
    }

    /// Returns the transactions of a keyspace.
    pub(crate) fn keyspace(&self, name: &str) -> Option<&Arc<OpenTransactions>> {
        self.keyspaces.iter().find(|it| it.keyspace == name)
    }
}
