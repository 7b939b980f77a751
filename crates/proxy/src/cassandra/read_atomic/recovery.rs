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
use std::time::{Duration, Instant};

use ::locks::MonotonicTime;
use cql::request::{Parameters, Query as CqlQuery, Request};
use cql::{Bound, Consistency, CqlValue, ValueList, Version};

use super::super::control_connection::{ControlConnection, Table};
use super::super::node_connection::quoted;
use super::super::shared_state::CassandraState;
use super::designated_table;
use super::node_queries::{self, NodeQuery};
use super::open_transactions::{NumberLease, OpenTransactions};
use super::record::TransactionRecord;
use super::transaction_id::{Bucket, NUMBERS, Owner, TransactionId};
use super::{RECORD_TABLE, statement::READ_LIMIT};
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
/// How many records of a partition are read at once.
const PAGE: usize = 100;

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

/// The thread's state.
pub(crate) struct Recovery<'a> {
    state: &'a CassandraState,
    seeds: &'a Seeds,
    connection: Option<(SocketAddr, ControlConnection)>,
    /// Chooses the node to connect to.
    turn: usize,
    keyspaces: Vec<KeyspaceRecovery>,
}

/// The state of a keyspace.
struct KeyspaceRecovery {
    transactions: Arc<OpenTransactions>,
    number: Option<u8>,
    lease_due: Instant,
    own_due: Instant,
    others_due: Instant,
    /// Transactions of this proxy that were taken, and are not completed.
    taken: BTreeMap<Bucket, BTreeSet<TransactionId>>,
    /// Since when all transactions of a bucket of this proxy are known to be complete.
    complete: BTreeMap<Bucket, Instant>,
    /// When this proxy has completed transactions of others.
    completed: HashMap<(Owner, TransactionId), Instant>,
    /// The last failure, which is logged once.
    failure: Option<String>,
}

impl<'a> Recovery<'a> {
    pub(crate) fn new(state: &'a CassandraState, seeds: &'a Seeds) -> Recovery<'a> {
        let now = Instant::now();
        let keyspaces = state.setting.read_atomic.keyspaces.iter();
        let keyspaces = keyspaces.map(|transactions| KeyspaceRecovery {
            transactions: Arc::clone(transactions),
            number: None,
            lease_due: now,
            own_due: now + OWN_ROUND,
            others_due: now + OTHERS_ROUND,
            taken: BTreeMap::new(),
            complete: BTreeMap::new(),
            completed: HashMap::new(),
            failure: None,
        });
        Recovery {
            state,
            seeds,
            connection: None,
            turn: fastrand::usize(..1024),
            keyspaces: keyspaces.collect(),
        }
    }

    /// Works until the proxy stops.
    pub(crate) fn run(&mut self) {
        while !self.state.is_stopping() {
            let mut keyspaces = std::mem::take(&mut self.keyspaces);
            for keyspace in &mut keyspaces {
                keyspace.step(self);
            }
            self.keyspaces = keyspaces;
            std::thread::sleep(STEP);
        }
    }

    /// Sends a request to a node.
    fn ask(&mut self, request: Request<'_>, text: &str) -> Result<Table, ProxyError> {
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
        match connection.rows(request, text) {
            Ok(table) => {
                self.connection = Some((address, connection));
                Ok(table)
            }
            // Another node is asked next.
            Err(error) => Err(ProxyError::unavailable(format!("{address} {error}"))),
        }
    }

    fn quorum(&mut self, query: &NodeQuery) -> Result<Table, ProxyError> {
        let request = query.request(Version::V4, Consistency::Quorum);
        self.ask(request, &query.text)
    }

    /// Writes all rows of a transaction. Its record is written before, for the case that no quorum has it.
    fn complete(&mut self, keyspace: &str, record: &TransactionRecord) -> Result<(), ProxyError> {
        let known = self.state.known();
        let rows = record.writes.iter().map(|write| {
            let schema = designated_table::find(&known.read_atomic, keyspace, &write.key.table)?;
            Ok(node_queries::commit(schema, record, write))
        });
        let rows = rows.collect::<Result<Vec<NodeQuery>, ProxyError>>()?;
        self.quorum(&node_queries::prepare(keyspace, record))?;
        for row in &rows {
            self.quorum(row)?;
        }
        Ok(())
    }
}

impl KeyspaceRecovery {
    fn step(&mut self, recovery: &mut Recovery<'_>) {
        let name = self.transactions.keyspace.clone();
        let known = recovery.state.known();
        let mut tables = known.read_atomic.iter();
        if !tables.any(|table| table.name.keyspace == name && table.schema.is_ok()) {
            return;
        }
        let mut result = Ok(());
        if Instant::now() >= self.lease_due {
            result = self.lease(recovery);
            let pause = match self.number {
                Some(_) if result.is_ok() => LEASE_ROUND,
                _ => Duration::from_secs(1),
            };
            self.lease_due = Instant::now() + pause;
        }
        if Instant::now() >= self.own_due {
            result = result.and(self.own_round(recovery));
            self.own_due = Instant::now() + OWN_ROUND;
        }
        if Instant::now() >= self.others_due {
            result = result.and(self.others_round(recovery));
            self.others_due = Instant::now() + OTHERS_ROUND;
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
    fn lease(&mut self, recovery: &mut Recovery<'_>) -> Result<(), ProxyError> {
        if let Some(number) = self.number {
            let text = format!(
                "UPDATE {} USING TTL {LEASE_TTL_S} SET writes = ? WHERE owner = ? AND bucket = ? \
                 AND id = 0 IF writes = ?",
                self.records()
            );
            if self.try_lease(recovery, number, &text, true)? {
                return Ok(());
            }
            tracing::warn!("the lease of transaction number {number} is lost; leasing another one");
            self.number = None;
            self.transactions.set_lease(None);
        }
        let text = format!(
            "INSERT INTO {} (writes, owner, bucket, id) VALUES (?, ?, ?, 0) IF NOT EXISTS USING TTL \
             {LEASE_TTL_S}",
            self.records()
        );
        let first = fastrand::u8(..NUMBERS);
        for step in 0..NUMBERS {
            let number = (first + step) % NUMBERS;
            if self.try_lease(recovery, number, &text, false)? {
                self.number = Some(number);
                return Ok(());
            }
        }
        Err(ProxyError::unavailable(format!(
            "all {NUMBERS} transaction numbers are leased"
        )))
    }

    fn records(&self) -> String {
        format!("{}.{RECORD_TABLE}", quoted(&self.transactions.keyspace))
    }

    /// Returns `true` if the lightweight transaction `text` was applied.
    fn try_lease(
        &self,
        recovery: &mut Recovery<'_>,
        number: u8,
        text: &str,
        compares: bool,
    ) -> Result<bool, ProxyError> {
        let asked: MonotonicTime = clock::now();
        let own = self.transactions.owner.0.to_be_bytes();
        let place = i64::from(number).to_be_bytes();
        let bucket = Bucket::LEASE.0.to_be_bytes();
        let mut values = ValueList::new();
        for value in [&own, &place, &bucket] {
            values.push(Bound::Bytes(value));
        }
        if compares {
            values.push(Bound::Bytes(&own));
        }
        let parameters = Parameters::new(Consistency::Quorum, values.values(Version::V4));
        let answer = recovery.ask(Request::Query(CqlQuery { text, parameters }), text)?;
        let row = answer.rows.first();
        let applied = row.and_then(|row| answer.value(row, "[applied]"));
        if applied != Some(&CqlValue::Boolean(true)) {
            return Ok(false);
        }
        self.transactions.set_lease(Some(NumberLease {
            number,
            until: MonotonicTime::from_us(asked.as_us() + LEASE_USE.as_micros() as u64),
        }));
        Ok(true)
    }

    /// Completes transactions of this proxy that stayed open, and removes records.
    fn own_round(&mut self, recovery: &mut Recovery<'_>) -> Result<(), ProxyError> {
        let transactions = Arc::clone(&self.transactions);
        let (keyspace, owner) = (&transactions.keyspace, transactions.owner);
        let before_us = transactions.wall_us() - OWN_AGE.as_micros() as i64;
        for (bucket, open) in transactions.take_closed(before_us) {
            self.taken.entry(bucket).or_default().extend(open);
        }
        let mut result = Ok(());
        for (bucket, taken) in &mut self.taken {
            while let Some(&id) = taken.first() {
                let done = complete_recorded(recovery, keyspace, owner, id);
                if done.is_err() {
                    result = result.and(done);
                    break;
                }
                taken.pop_first();
            }
            if taken.is_empty() {
                self.complete.entry(*bucket).or_insert_with(Instant::now);
            }
        }
        self.taken.retain(|_, taken| !taken.is_empty());
        let over = self.complete.iter();
        let over = over.filter(|(_, since)| since.elapsed() >= RETENTION);
        for bucket in over.map(|(bucket, _)| *bucket).collect::<Vec<_>>() {
            recovery.quorum(&node_queries::delete_bucket(keyspace, owner, bucket))?;
            self.complete.remove(&bucket);
            transactions.forget(bucket);
        }
        result
    }

    /// Completes transactions of proxies that are gone, and removes their records.
    fn others_round(&mut self, recovery: &mut Recovery<'_>) -> Result<(), ProxyError> {
        let text = format!("SELECT DISTINCT owner, bucket FROM {}", self.records());
        let values = ValueList::new();
        let parameters = Parameters::new(Consistency::Quorum, values.values(Version::V4));
        let query = CqlQuery {
            text: &text,
            parameters,
        };
        let found = recovery.ask(Request::Query(query), &text)?;
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
                result = result.and(self.partition_of_other(recovery, owner, bucket));
            }
        }
        // Other proxies may have removed the record.
        self.completed
            .retain(|_, since| since.elapsed() < 10 * RETENTION);
        result
    }

    fn partition_of_other(
        &mut self,
        recovery: &mut Recovery<'_>,
        owner: Owner,
        bucket: Bucket,
    ) -> Result<(), ProxyError> {
        let keyspace = self.transactions.keyspace.clone();
        let mut last = TransactionId(i64::MIN);
        loop {
            let query = node_queries::read_records(&keyspace, owner, bucket, last, PAGE);
            let found = recovery.quorum(&query)?;
            for row in &found.rows {
                let [CqlValue::Bigint(id), CqlValue::Blob(writes)] = &row[..] else {
                    return Err(ProxyError::malformed(
                        "the table of records has other columns",
                    ));
                };
                last = TransactionId(*id);
                match self.completed.get(&(owner, last)) {
                    Some(since) if since.elapsed() >= RETENTION => {
                        recovery.quorum(&node_queries::delete_record(&keyspace, owner, last))?;
                        self.completed.remove(&(owner, last));
                    }
                    Some(_) => {}
                    None => {
                        let record = decoded(owner, last, writes)?;
                        recovery.complete(&keyspace, &record)?;
                        tracing::info!(
                            "completed transaction {} of a proxy that is gone",
                            record.id.0
                        );
                        self.completed.insert((owner, last), Instant::now());
                    }
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
    recovery: &mut Recovery<'_>,
    keyspace: &str,
    owner: Owner,
    id: TransactionId,
) -> Result<(), ProxyError> {
    let found = recovery.quorum(&node_queries::read_record(keyspace, owner, id))?;
    match found.rows.first().map(Vec::as_slice) {
        Some([CqlValue::Blob(writes)]) => {
            let record = decoded(owner, id, writes)?;
            recovery.complete(keyspace, &record)
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
