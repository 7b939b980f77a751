//! Completes transactions, removes records, and leases the proxy's number: one thread of each proxy.
//!
//! | who | which records | what is done |
//! |---|---|---|
//! | this proxy | transactions that are still open [`OWN_AGE`] after their bucket has ended | their rows are written |
//! | this proxy | buckets without open transactions, [`RETENTION`] later | removed by one DELETE |
//! | the others | records of other owners, [`OTHERS_AGE`] after their bucket has ended | their rows are written |
//! | the others | the same records, [`RETENTION`] later | each is removed |
//!
//! An owner removes its records before the others look for them, unless it is gone. The ages decide who
//! does the work, and not if it is right: a record is removed only by a proxy that knows, for as long as
//! [`RETENTION`], that a quorum has all of its rows.
//!
//! **Numbers.** A number is leased by a row in the table of records: `owner` is the number, `bucket` is −1,
//! `writes` is the owner of the lease. A lightweight transaction inserts it with a TTL of [`LEASE_TTL_S`]
//! seconds, and others extend it. The proxy uses the number for [`LEASE_USE`] after the last success.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::locks::MonotonicTime;
use cql::{Consistency, CqlValue, Version};

use super::super::control_connection::{ControlConnection, Table};
use super::super::shared_state::CassandraState;
use super::super::topology::Topology;
use super::designated_table;
use super::node_queries::{self, NodeQuery};
use super::open_transactions::{NumberLease, OpenTransactions};
use super::record::TransactionRecord;
use super::statement::READ_LIMIT;
use super::transaction_id::{Bucket, NUMBERS, Owner, TransactionId};
use crate::error::ProxyError;
use crate::locks::clock;
use crate::seeds::Seeds;

/// How long a record stays after a quorum has all of its rows.
pub(crate) const RETENTION: Duration = Duration::from_secs(60);
/// The age of a bucket of this proxy at which recovery takes its open transactions.
const OWN_AGE: Duration = Duration::from_secs(10);
/// The age of a bucket at which other proxies complete its transactions.
const OTHERS_AGE: Duration = Duration::from_secs(90);
/// Interval between two rounds over the own buckets.
const OWN_ROUND: Duration = Duration::from_secs(2);
/// Interval between two rounds over the records of others.
const OTHERS_ROUND: Duration = Duration::from_secs(10);
/// The interval at which the thread looks if it must end.
const STEP: Duration = Duration::from_millis(50);
/// How many records of a partition are read, and removed, at once.
const PAGE: usize = 100;
/// The most transactions that are completed in one step.
const PIECE: usize = 50;
/// The most rows, and bytes, of a transaction that are written as one batch. Nodes warn of batches above
/// 5 KiB, and of more than ten partitions.
const BATCH_ROWS: usize = 10;
const BATCH_BYTES: usize = 4096;

/// The life of a lease without a renewal, in seconds.
const LEASE_TTL_S: u32 = 60;
/// How long the proxy uses its number after it has asked for the lease. The difference to the TTL is for
/// clocks that differ, of the nodes and of the proxies.
const LEASE_USE: Duration = Duration::from_secs(30);
const LEASE_ROUND: Duration = Duration::from_secs(8);

const _: () = {
    assert!(RETENTION.as_secs() >= 3 * READ_LIMIT.as_secs());
    assert!(LEASE_TTL_S as u64 >= 2 * LEASE_USE.as_secs());
    assert!(LEASE_USE.as_secs() >= 3 * LEASE_ROUND.as_secs());
    assert!(OTHERS_AGE.as_secs() >= OWN_AGE.as_secs() + RETENTION.as_secs() + 20);
};

/// The nodes, as recovery asks them.
pub(crate) trait RecoveryNodes {
    /// Sends a query with consistency QUORUM, and returns the rows of its answer.
    ///
    /// # Errors
    /// Returns an error if no node answers, or one refuses the query.
    fn quorum(&mut self, query: &NodeQuery) -> Result<Table, ProxyError>;

    /// Returns the designated tables.
    fn tables(&self) -> Arc<Topology>;

    /// Returns the time.
    fn now(&self) -> MonotonicTime;
}

/// The thread: its keyspaces, and the nodes.
pub(crate) struct Recovery<'a> {
    nodes: QuorumConnection<'a>,
    keyspaces: Vec<KeyspaceRecovery>,
}

/// A connection to one of the nodes, another one after each failure.
struct QuorumConnection<'a> {
    state: &'a CassandraState,
    seeds: &'a Seeds,
    connection: Option<(SocketAddr, ControlConnection)>,
    /// Chooses the node to connect to.
    turn: usize,
}

/// The state of a keyspace.
pub(crate) struct KeyspaceRecovery {
    transactions: Arc<OpenTransactions>,
    number: Option<u8>,
    lease_due: MonotonicTime,
    own_due: MonotonicTime,
    others_due: MonotonicTime,
    /// Transactions of this proxy that were taken, and are not completed.
    taken: BTreeMap<Bucket, BTreeSet<TransactionId>>,
    /// Since when all transactions of a bucket of this proxy are known to be complete.
    complete: BTreeMap<Bucket, MonotonicTime>,
    /// When this proxy has completed transactions of others.
    completed: HashMap<(Owner, TransactionId), MonotonicTime>,
    /// The last failure, which is logged once.
    failure: Option<String>,
}

impl<'a> Recovery<'a> {
    pub(crate) fn new(state: &'a CassandraState, seeds: &'a Seeds) -> Recovery<'a> {
        let now = clock::now();
        let keyspaces = state.setting.read_atomic.keyspaces.iter();
        Recovery {
            nodes: QuorumConnection {
                state,
                seeds,
                connection: None,
                turn: fastrand::usize(..1024),
            },
            keyspaces: keyspaces
                .map(|transactions| KeyspaceRecovery::new(transactions, now))
                .collect(),
        }
    }

    /// Works until the proxy stops.
    pub(crate) fn run(&mut self) {
        while !self.nodes.state.is_stopping() {
            for keyspace in &mut self.keyspaces {
                keyspace.step(&mut self.nodes);
            }
            std::thread::sleep(STEP);
        }
    }
}

impl RecoveryNodes for QuorumConnection<'_> {
    fn quorum(&mut self, query: &NodeQuery) -> Result<Table, ProxyError> {
        if self.connection.is_none() {
            let addresses = self.state.addresses(self.seeds);
            self.turn = self.turn.wrapping_add(1);
            let address = addresses.get(self.turn % addresses.len().max(1));
            let address = *address.ok_or_else(|| ProxyError::unavailable("there is no node"))?;
            let connection = ControlConnection::connect(address, &self.state.options)
                .map_err(|error| ProxyError::unavailable(format!("{address} {error}")))?;
            self.connection = Some((address, connection));
        }
        let Some((address, mut connection)) = self.connection.take() else {
            return Err(ProxyError::unavailable("there is no node"));
        };
        let request = query.request(Version::V4, Consistency::Quorum);
        match connection.rows(request, &query.text) {
            Ok(table) => {
                self.connection = Some((address, connection));
                Ok(table)
            }
            // Another node is asked next.
            Err(error) => Err(ProxyError::unavailable(format!("{address} {error}"))),
        }
    }

    fn tables(&self) -> Arc<Topology> {
        self.state.known()
    }

    fn now(&self) -> MonotonicTime {
        clock::now()
    }
}

/// Writes all rows of a transaction. Its record is written before, for the case that no quorum has it.
fn complete(
    nodes: &mut dyn RecoveryNodes,
    keyspace: &str,
    record: &TransactionRecord,
) -> Result<(), ProxyError> {
    let known = nodes.tables();
    let rows = record.writes.iter().map(|write| {
        let schema = designated_table::find(&known.read_atomic, keyspace, &write.key.table)?;
        Ok(node_queries::commit(schema, record, write))
    });
    let rows = rows.collect::<Result<Vec<NodeQuery>, ProxyError>>()?;
    nodes.quorum(&node_queries::prepare(keyspace, record))?;
    let bytes: usize = rows.iter().map(NodeQuery::len).sum();
    if rows.len() <= BATCH_ROWS && bytes <= BATCH_BYTES {
        nodes.quorum(&node_queries::together(&rows))?;
        return Ok(());
    }
    for row in &rows {
        nodes.quorum(row)?;
    }
    Ok(())
}

/// Returns the time that is `after` later.
fn later(now: MonotonicTime, after: Duration) -> MonotonicTime {
    MonotonicTime::from_us(now.as_us() + after.as_micros() as u64)
}

impl KeyspaceRecovery {
    pub(crate) fn new(
        transactions: &Arc<OpenTransactions>,
        now: MonotonicTime,
    ) -> KeyspaceRecovery {
        KeyspaceRecovery {
            transactions: Arc::clone(transactions),
            number: None,
            lease_due: now,
            own_due: later(now, OWN_ROUND),
            others_due: later(now, OTHERS_ROUND),
            taken: BTreeMap::new(),
            complete: BTreeMap::new(),
            completed: HashMap::new(),
            failure: None,
        }
    }

    /// Does what is due, in pieces that leave time to extend the lease.
    pub(crate) fn step(&mut self, nodes: &mut dyn RecoveryNodes) {
        let name = self.transactions.keyspace.clone();
        let known = nodes.tables();
        let mut tables = known.read_atomic.iter();
        if !tables.any(|table| table.name.keyspace == name && table.schema.is_ok()) {
            return;
        }
        let mut result = Ok(());
        if nodes.now() >= self.lease_due {
            result = self.lease(nodes);
            let pause = match self.number {
                Some(_) if result.is_ok() => LEASE_ROUND,
                _ => Duration::from_secs(1),
            };
            self.lease_due = later(nodes.now(), pause);
        }
        if nodes.now() >= self.own_due {
            result = result.and(self.own_round(nodes));
            self.own_due = later(nodes.now(), OWN_ROUND);
        }
        if nodes.now() >= self.others_due {
            let mut left = PIECE;
            result = result.and(self.others_round(nodes, &mut left));
            // A round that is not at its end goes on in the next step.
            let pause = match left {
                0 => Duration::ZERO,
                _ => OTHERS_ROUND,
            };
            self.others_due = later(nodes.now(), pause);
        }
        match result {
            Ok(()) => self.failure = None,
            Err(error) => {
                let text = error.to_string();
                if self.failure.as_ref() != Some(&text) {
                    tracing::warn!("transactions of keyspace {name} wait for recovery: {text}");
                }
                self.failure = Some(text);
            }
        }
    }

    /// Extends the lease of the number, or leases one.
    fn lease(&mut self, nodes: &mut dyn RecoveryNodes) -> Result<(), ProxyError> {
        let keyspace = self.transactions.keyspace.clone();
        if let Some(number) = self.number {
            let text = node_queries::extend_lease_text(&keyspace, LEASE_TTL_S);
            if self.try_lease(nodes, number, text)? {
                return Ok(());
            }
            tracing::warn!("the lease of transaction number {number} is lost; leasing another one");
            self.number = None;
            self.transactions.set_lease(None);
        }
        let text = node_queries::take_lease_text(&keyspace, LEASE_TTL_S);
        let first = fastrand::u8(..NUMBERS);
        for step in 0..NUMBERS {
            let number = (first + step) % NUMBERS;
            if self.try_lease(nodes, number, text.clone())? {
                self.number = Some(number);
                return Ok(());
            }
        }
        Err(ProxyError::unavailable(format!(
            "all {NUMBERS} transaction numbers are leased"
        )))
    }

    /// Returns `true` if the lightweight transaction `text` was applied.
    fn try_lease(
        &self,
        nodes: &mut dyn RecoveryNodes,
        number: u8,
        text: String,
    ) -> Result<bool, ProxyError> {
        let asked = nodes.now();
        let query = node_queries::lease(text, self.transactions.owner, number);
        let answer = nodes.quorum(&query)?;
        let row = answer.rows.first();
        let applied = row.and_then(|row| answer.value(row, "[applied]"));
        let is_applied = applied == Some(&CqlValue::Boolean(true));
        if is_applied {
            let until = later(asked, LEASE_USE);
            let lease = NumberLease { number, until };
            self.transactions.set_lease(Some(lease));
        }
        Ok(is_applied)
    }

    /// Completes transactions of this proxy that stayed open, and removes records.
    fn own_round(&mut self, nodes: &mut dyn RecoveryNodes) -> Result<(), ProxyError> {
        let transactions = Arc::clone(&self.transactions);
        let (keyspace, owner) = (&transactions.keyspace, transactions.owner);
        let before_us = transactions.wall_us() - OWN_AGE.as_micros() as i64;
        for (bucket, open) in transactions.take_closed(before_us) {
            self.taken.entry(bucket).or_default().extend(open);
        }
        let mut result = Ok(());
        let mut left = PIECE;
        for (bucket, taken) in &mut self.taken {
            while let Some(&id) = taken.first() {
                if left == 0 {
                    break;
                }
                left -= 1;
                let done = complete_recorded(nodes, keyspace, owner, id);
                if done.is_err() {
                    result = result.and(done);
                    break;
                }
                taken.pop_first();
            }
            if taken.is_empty() {
                self.complete.entry(*bucket).or_insert(nodes.now());
            }
        }
        self.taken.retain(|_, taken| !taken.is_empty());
        let now = nodes.now();
        let over = self.complete.iter();
        let over = over.filter(|(_, since)| now.since(**since) >= RETENTION);
        for bucket in over.map(|(bucket, _)| *bucket).collect::<Vec<_>>() {
            nodes.quorum(&node_queries::delete_bucket(keyspace, owner, bucket))?;
            self.complete.remove(&bucket);
            transactions.forget(bucket);
        }
        result
    }

    /// Completes transactions of proxies that are gone, and removes their records.
    fn others_round(
        &mut self,
        nodes: &mut dyn RecoveryNodes,
        left: &mut usize,
    ) -> Result<(), ProxyError> {
        let query = node_queries::read_buckets(&self.transactions.keyspace);
        let found = nodes.quorum(&query)?;
        let before_us = self.transactions.wall_us() - OTHERS_AGE.as_micros() as i64;
        let mut result = Ok(());
        for row in &found.rows {
            let &[CqlValue::Bigint(owner), CqlValue::Bigint(bucket)] = &row[..] else {
                return Err(ProxyError::malformed(
                    "the table of records has other columns",
                ));
            };
            let (owner, bucket) = (Owner(owner), Bucket(bucket));
            let is_record = bucket > Bucket::LEASE && owner != self.transactions.owner;
            if is_record && bucket.end_us() < before_us {
                result = result.and(self.partition_of_other(nodes, (owner, bucket), left));
            }
        }
        let now = nodes.now();
        // Other proxies may have removed the record.
        self.completed
            .retain(|_, since| now.since(*since) < 10 * RETENTION);
        result
    }

    fn partition_of_other(
        &mut self,
        nodes: &mut dyn RecoveryNodes,
        (owner, bucket): (Owner, Bucket),
        left: &mut usize,
    ) -> Result<(), ProxyError> {
        let keyspace = self.transactions.keyspace.clone();
        let mut last = TransactionId(i64::MIN);
        loop {
            let query = node_queries::read_records(&keyspace, owner, bucket, last, PAGE);
            let found = nodes.quorum(&query)?;
            let mut over = Vec::new();
            for row in &found.rows {
                let [CqlValue::Bigint(id), CqlValue::Blob(writes)] = &row[..] else {
                    return Err(ProxyError::malformed(
                        "the table of records has other columns",
                    ));
                };
                last = TransactionId(*id);
                match self.completed.get(&(owner, last)) {
                    Some(since) if nodes.now().since(*since) >= RETENTION => over.push(last),
                    Some(_) => {}
                    None if *left == 0 => {}
                    None => {
                        *left -= 1;
                        let record = decoded(owner, last, writes)?;
                        complete(nodes, &keyspace, &record)?;
                        tracing::debug!("completed transaction {} of a proxy that is gone", last.0);
                        self.completed.insert((owner, last), nodes.now());
                    }
                }
            }
            if !over.is_empty() {
                nodes.quorum(&node_queries::delete_records(
                    &keyspace, owner, bucket, &over,
                ))?;
                for id in over {
                    self.completed.remove(&(owner, id));
                }
            }
            if found.rows.len() < PAGE {
                return Ok(());
            }
        }
    }
}

/// Completes a transaction if there is its record. Without a record it has no effect.
fn complete_recorded(
    nodes: &mut dyn RecoveryNodes,
    keyspace: &str,
    owner: Owner,
    id: TransactionId,
) -> Result<(), ProxyError> {
    let found = nodes.quorum(&node_queries::read_record(keyspace, owner, id))?;
    match found.rows.first().map(Vec::as_slice) {
        Some([CqlValue::Blob(writes)]) => {
            let record = decoded(owner, id, writes)?;
            complete(nodes, keyspace, &record)
        }
        _ => Ok(()),
    }
}

fn decoded(
    owner: Owner,
    id: TransactionId,
    writes: &[u8],
) -> Result<TransactionRecord, ProxyError> {
    TransactionRecord::decode(id, owner, writes).map_err(|fault| {
        ProxyError::malformed(format!(
            "the record of transaction {} is damaged: {fault}",
            id.0
        ))
    })
}
