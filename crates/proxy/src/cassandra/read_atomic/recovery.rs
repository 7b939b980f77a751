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

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ::locks::MonotonicTime;
use cql::{Consistency, CqlValue, Version};

use super::super::control_connection::{ControlConnection, TableInfo};
use super::super::shared_state::CassandraState;
use super::super::topology::CassandraTopology;
use super::designated_table;
use super::node_queries::{self, PlacedQuery};
use super::open_transactions::{NumberLease, OpenTransactions};
use super::record::TransactionRecord;
use super::statement::READ_LIMIT;
use super::transaction_id::{AtomicTransactionId, Bucket, NUMBERS, Owner};
use crate::error::ProxyError;
use crate::locks::clock;
use crate::seeds::SeedAddresses;

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
/// How many records of a partition are read, and removed, at once. Together they are at most 64 MiB.
const PAGE: usize = 16;
/// The most transactions that are completed in one step.
const PIECE: usize = 256;
/// How long a step looks at records of others before it leaves the rest to the next one: the lease is
/// extended between steps.
const LONGEST_STEP: Duration = Duration::from_secs(2);
/// The most queries that a node gets together, and about how many bytes they have.
const TOGETHER: usize = 32;
const TOGETHER_BYTES: usize = 1024 * 1024;
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
    fn quorum(&mut self, query: &PlacedQuery) -> Result<TableInfo, ProxyError>;

    /// Sends queries with consistency QUORUM, several at once where nodes can take them, and returns the
    /// rows of each, or why it has none.
    fn quorum_of_each(&mut self, queries: &[PlacedQuery]) -> Vec<Result<TableInfo, ProxyError>> {
        queries.iter().map(|query| self.quorum(query)).collect()
    }

    /// Returns the designated tables.
    fn tables(&self) -> Arc<CassandraTopology>;

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
    seeds: &'a SeedAddresses,
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
    taken: BTreeMap<Bucket, BTreeSet<AtomicTransactionId>>,
    /// Since when all transactions of a bucket of this proxy are known to be complete.
    complete: BTreeMap<Bucket, MonotonicTime>,
    /// Partitions of others that the current round has not looked at.
    unseen: VecDeque<(Owner, Bucket)>,
    /// When this proxy has completed transactions of others.
    completed: HashMap<(Owner, AtomicTransactionId), MonotonicTime>,
    unfinished: PartOfSum,
    left_partitions: PartOfSum,
    /// The last failure, which is logged once.
    failure: Option<String>,
}

/// The part that this keyspace has in a figure of all keyspaces.
#[derive(Default)]
struct PartOfSum(u64);

impl PartOfSum {
    fn set(&mut self, sum: &AtomicU64, part: u64) {
        sum.fetch_add(part.wrapping_sub(self.0), Relaxed);
        self.0 = part;
    }
}

impl<'a> Recovery<'a> {
    pub(crate) fn new(state: &'a CassandraState, seeds: &'a SeedAddresses) -> Recovery<'a> {
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

impl QuorumConnection<'_> {
    /// Takes the connection, or connects to the next node.
    fn connected(&mut self) -> Result<(SocketAddr, ControlConnection), ProxyError> {
        if let Some(connected) = self.connection.take() {
            return Ok(connected);
        }
        let addresses = self.state.addresses(self.seeds);
        self.turn = self.turn.wrapping_add(1);
        let address = addresses.get(self.turn % addresses.len().max(1));
        let address = *address.ok_or_else(|| ProxyError::unavailable("there is no node"))?;
        let connection = ControlConnection::connect(address, &self.state.options)
            .map_err(|error| ProxyError::unavailable(format!("{address} {error}")))?;
        Ok((address, connection))
    }
}

impl RecoveryNodes for QuorumConnection<'_> {
    fn quorum(&mut self, query: &PlacedQuery) -> Result<TableInfo, ProxyError> {
        let mut found = self.quorum_of_each(std::slice::from_ref(query));
        found.pop().expect("an answer for each query")
    }

    fn quorum_of_each(&mut self, queries: &[PlacedQuery]) -> Vec<Result<TableInfo, ProxyError>> {
        let mut found = Vec::with_capacity(queries.len());
        while found.len() < queries.len() {
            let some = together(&queries[found.len()..]);
            let texts: Vec<&str> = some.iter().map(|query| query.text.as_str()).collect();
            let requests = some
                .iter()
                .map(|query| query.request(Version::V4, Consistency::Quorum));
            let answers = self.connected().and_then(|(address, mut connection)| {
                let named = |error| ProxyError::unavailable(format!("{address} {error}"));
                let answers = connection.rows_of_each(requests, &texts).map_err(named)?;
                let answers: Vec<_> = answers.into_iter().map(|it| it.map_err(named)).collect();
                // After a failure another node is asked next.
                if answers.iter().all(Result::is_ok) {
                    self.connection = Some((address, connection));
                }
                Ok(answers)
            });
            match answers {
                Ok(answers) => found.extend(answers),
                Err(error) => {
                    let text = error.to_string();
                    let missing = queries.len() - found.len();
                    found.extend((0..missing).map(|_| Err(ProxyError::unavailable(text.clone()))));
                    break;
                }
            }
        }
        found
    }

    fn tables(&self) -> Arc<CassandraTopology> {
        self.state.known()
    }

    fn now(&self) -> MonotonicTime {
        clock::now()
    }
}

/// Returns the first of these queries, as many as a node gets together.
fn together(queries: &[PlacedQuery]) -> &[PlacedQuery] {
    let mut bytes = 0;
    let fits = |query: &&PlacedQuery| {
        bytes += query.len();
        bytes <= TOGETHER_BYTES
    };
    let count = queries.iter().take(TOGETHER).take_while(fits).count();
    &queries[..count.max(1).min(queries.len())]
}

/// Writes all rows of transactions, and returns for each if that is done. Their records are written before,
/// for the case that no quorum has them.
fn complete(
    nodes: &mut dyn RecoveryNodes,
    keyspace: &str,
    records: &[TransactionRecord],
) -> Vec<Result<(), ProxyError>> {
    let known = nodes.tables();
    let queries = |record: &TransactionRecord| {
        let rows = record.writes.iter().map(|write| {
            let schema = designated_table::find(&known.read_atomic, keyspace, &write.key.table)?;
            Ok(node_queries::commit(schema, record, write))
        });
        let rows = rows.collect::<Result<Vec<PlacedQuery>, ProxyError>>()?;
        let bytes: usize = rows.iter().map(PlacedQuery::len).sum();
        let is_small = rows.len() <= BATCH_ROWS && bytes <= BATCH_BYTES;
        Ok(match is_small {
            true => vec![node_queries::together(&rows)],
            false => rows,
        })
    };
    let mut rows: Vec<Result<Vec<PlacedQuery>, ProxyError>> = records.iter().map(queries).collect();
    let prepares = records.iter().zip(&rows).filter(|(_, rows)| rows.is_ok());
    let prepares = prepares.map(|(record, _)| node_queries::prepare(keyspace, record));
    let prepared = nodes.quorum_of_each(&prepares.collect::<Vec<PlacedQuery>>());
    for (rows, prepared) in rows.iter_mut().filter(|rows| rows.is_ok()).zip(prepared) {
        if let Err(error) = prepared {
            *rows = Err(error);
        }
    }
    let all: Vec<PlacedQuery> = rows.iter().flatten().flatten().cloned().collect();
    let mut written = nodes.quorum_of_each(&all).into_iter();
    let done = rows.into_iter().map(|rows| {
        let answers: Vec<Result<TableInfo, ProxyError>> =
            written.by_ref().take(rows?.len()).collect();
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    });
    done.collect()
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
            unseen: VecDeque::new(),
            completed: HashMap::new(),
            unfinished: PartOfSum::default(),
            left_partitions: PartOfSum::default(),
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
            result = result.and(self.others_round(nodes));
            // A round that is not at its end goes on in the next step.
            let pause = match self.unseen.is_empty() {
                true => OTHERS_ROUND,
                false => Duration::ZERO,
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
            while left > 0 && !taken.is_empty() {
                let some: Vec<AtomicTransactionId> = taken.iter().copied().take(PAGE).collect();
                left = left.saturating_sub(some.len());
                let done = complete_recorded(nodes, keyspace, owner, &some);
                let fault = done.iter().find_map(|done| done.clone().err());
                for (id, _) in some.iter().zip(done).filter(|(_, done)| done.is_ok()) {
                    taken.remove(id);
                    transactions.figures.completed_own.fetch_add(1, Relaxed);
                }
                if let Some(fault) = fault {
                    result = result.and(Err(fault));
                    break;
                }
            }
            if taken.is_empty() {
                self.complete.entry(*bucket).or_insert(nodes.now());
            }
        }
        self.taken.retain(|_, taken| !taken.is_empty());
        let unfinished = self.taken.values().map(BTreeSet::len).sum::<usize>() as u64;
        self.unfinished
            .set(&transactions.figures.unfinished, unfinished);
        let now = nodes.now();
        let over = self.complete.iter();
        let over = over.filter(|(_, since)| now.since(**since) >= RETENTION);
        let over: Vec<Bucket> = over.map(|(bucket, _)| *bucket).collect();
        let deletes = over.iter();
        let deletes = deletes.map(|bucket| node_queries::delete_bucket(keyspace, owner, *bucket));
        let removed = nodes.quorum_of_each(&deletes.collect::<Vec<PlacedQuery>>());
        for (bucket, removed) in over.into_iter().zip(removed) {
            match removed {
                Ok(_) => {
                    self.complete.remove(&bucket);
                    transactions.forget(bucket);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Completes transactions of proxies that are gone, and removes their records. Partitions for which
    /// there is no time stay in `unseen`.
    fn others_round(&mut self, nodes: &mut dyn RecoveryNodes) -> Result<(), ProxyError> {
        if self.unseen.is_empty() {
            self.unseen = self.partitions_of_others(nodes)?;
            let figure = &self.transactions.figures.left_partitions;
            self.left_partitions.set(figure, self.unseen.len() as u64);
        }
        let (begin, mut left) = (nodes.now(), PIECE);
        let mut result = Ok(());
        while let Some(partition) = self.unseen.pop_front() {
            result = result.and(self.partition_of_other(nodes, partition, &mut left));
            if left == 0 || nodes.now().since(begin) >= LONGEST_STEP {
                break;
            }
        }
        if left < PIECE {
            let (name, count) = (&self.transactions.keyspace, PIECE - left);
            tracing::info!(
                "keyspace {name}: completed {count} transactions of proxies that are gone"
            );
        }
        let now = nodes.now();
        // Other proxies may have removed the record.
        self.completed
            .retain(|_, since| now.since(*since) < 10 * RETENTION);
        result
    }

    /// Returns the partitions with records of others that are old enough.
    fn partitions_of_others(
        &self,
        nodes: &mut dyn RecoveryNodes,
    ) -> Result<VecDeque<(Owner, Bucket)>, ProxyError> {
        let query = node_queries::read_buckets(&self.transactions.keyspace);
        let found = nodes.quorum(&query)?;
        let before_us = self.transactions.wall_us() - OTHERS_AGE.as_micros() as i64;
        let mut partitions = VecDeque::new();
        for row in &found.rows {
            let &[CqlValue::Bigint(owner), CqlValue::Bigint(bucket)] = &row[..] else {
                return Err(ProxyError::malformed(
                    "the table of records has other columns",
                ));
            };
            let (owner, bucket) = (Owner(owner), Bucket(bucket));
            let is_record = bucket > Bucket::LEASE && owner != self.transactions.owner;
            if is_record && bucket.end_us() < before_us {
                partitions.push_back((owner, bucket));
            }
        }
        Ok(partitions)
    }

    fn partition_of_other(
        &mut self,
        nodes: &mut dyn RecoveryNodes,
        (owner, bucket): (Owner, Bucket),
        left: &mut usize,
    ) -> Result<(), ProxyError> {
        let keyspace = self.transactions.keyspace.clone();
        let mut last = AtomicTransactionId(i64::MIN);
        let mut result = Ok(());
        loop {
            let query = node_queries::read_records(&keyspace, owner, bucket, last, PAGE);
            let found = nodes.quorum(&query)?;
            let (mut over, mut open) = (Vec::new(), Vec::new());
            for row in &found.rows {
                let [CqlValue::Bigint(id), CqlValue::Blob(writes)] = &row[..] else {
                    return Err(ProxyError::malformed(
                        "the table of records has other columns",
                    ));
                };
                last = AtomicTransactionId(*id);
                match self.completed.get(&(owner, last)) {
                    Some(since) if nodes.now().since(*since) >= RETENTION => over.push(last),
                    Some(_) => {}
                    None if *left == 0 => {}
                    None => match decoded(owner, last, writes) {
                        Ok(record) => {
                            *left -= 1;
                            open.push(record);
                        }
                        Err(damaged) => result = result.and(Err(damaged)),
                    },
                }
            }
            let done = complete(nodes, &keyspace, &open);
            for (record, done) in open.iter().zip(done) {
                match done {
                    Ok(()) => {
                        let figure = &self.transactions.figures.completed_others;
                        figure.fetch_add(1, Relaxed);
                        self.completed.insert((owner, record.id), nodes.now());
                    }
                    Err(error) => result = result.and(Err(error)),
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
                return result;
            }
        }
    }
}

/// Completes those of these transactions that have records, and returns for each if that is done. Without a
/// record one has no effect.
fn complete_recorded(
    nodes: &mut dyn RecoveryNodes,
    keyspace: &str,
    owner: Owner,
    ids: &[AtomicTransactionId],
) -> Vec<Result<(), ProxyError>> {
    let reads = ids.iter();
    let reads = reads.map(|id| node_queries::read_record(keyspace, owner, *id));
    let found = nodes.quorum_of_each(&reads.collect::<Vec<PlacedQuery>>());
    let mut done = Vec::new();
    let mut records = Vec::new();
    for (id, found) in ids.iter().zip(found) {
        let record = found.and_then(|found| match found.rows.first().map(Vec::as_slice) {
            Some([CqlValue::Blob(writes)]) => decoded(owner, *id, writes).map(Some),
            _ => Ok(None),
        });
        let record = record.map(|record| records.extend(record));
        done.push(record);
    }
    let completed = complete(nodes, keyspace, &records);
    for (record, completed) in records.iter().zip(completed) {
        if completed.is_err()
            && let Some(at) = ids.iter().position(|id| *id == record.id)
        {
            done[at] = completed;
        }
    }
    done
}

fn decoded(
    owner: Owner,
    id: AtomicTransactionId,
    writes: &[u8],
) -> Result<TransactionRecord, ProxyError> {
    TransactionRecord::decode(id, owner, writes).map_err(|fault| {
        ProxyError::malformed(format!(
            "the record of transaction {} is damaged: {fault}",
            id.0
        ))
    })
}
