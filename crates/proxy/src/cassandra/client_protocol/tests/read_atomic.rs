//! Read-atomic transactions over simulated replicas: messages take any time and get lost, nodes answer
//! with time-outs, and proxies die between any two messages. A checker judges what clients saw.

use std::collections::BTreeMap;

use ::locks::MonotonicTime;
use base::clock::{Clock, ManualClock};
use cql::notation::NotationReader;
use cql::request::{
    Batch, BatchKind, BatchStatement, Query as CqlQuery, RequestMessage, Statement as Part,
};
use cql::response::{INVALID, RowsBuilder, UNAVAILABLE, WRITE_TIMEOUT};
use cql::{BoundValues, CqlValue};
use history::{Outcome, Recorder, check};

mod simulated_replicas;

use simulated_replicas::{ReplicaStatement, SimulatedReplicas, all_understood, understood};

use super::super::super::control_connection::TableInfo;
use super::super::super::read_atomic::node_queries::PlacedQuery;
use super::super::super::read_atomic::open_transactions::NumberLease;
use super::super::super::read_atomic::recovery::{KeyspaceRecovery, RecoveryNodes};
use super::super::super::read_atomic::statement::tests::tables;
use super::super::super::read_atomic::transaction_id::Owner;
use super::*;
use crate::error::ProxyError;

/// The keys of the simulation.
const KEYS: [&str; 4] = ["w", "x", "y", "z"];
const START_MS: u64 = 1_800_000_000_000;

/// The nodes for recovery, which may die before each query.
struct Mortal<'a> {
    nodes: &'a mut SimulatedReplicas,
    known: Arc<CassandraTopology>,
    now: MonotonicTime,
    left: usize,
}

impl RecoveryNodes for Mortal<'_> {
    fn quorum(&mut self, query: &PlacedQuery) -> Result<TableInfo, ProxyError> {
        if query.text.contains(" IF ") {
            // Leases are given by the test.
            return Ok(TableInfo::default());
        }
        let statements = all_understood(&query.text, &query.values.values(Version::V4));
        let is_lost = self.left == 0;
        self.left = self.left.saturating_sub(1);
        let mut rows = Vec::new();
        for statement in &statements {
            match is_lost {
                true => self.nodes.lose(statement),
                false => rows = self.nodes.execute(statement).1,
            }
        }
        if is_lost {
            return Err(ProxyError::unavailable("by the test"));
        }
        Ok(TableInfo {
            rows,
            ..TableInfo::default()
        })
    }

    fn tables(&self) -> Arc<CassandraTopology> {
        Arc::clone(&self.known)
    }

    fn now(&self) -> MonotonicTime {
        self.now
    }
}

/// A proxy with one client.
struct Proxy {
    stage: Stage,
    recovery: KeyspaceRecovery,
    in_flight: Vec<BackendQuery>,
    known: Arc<CassandraTopology>,
    /// The client's transactions without an answer.
    waiting: BTreeMap<i16, Wish>,
    streams: i16,
}

/// A transaction of a client.
struct Wish {
    /// What it writes, or the keys that it reads.
    writes: Vec<(&'static str, Option<i64>)>,
    reads: Vec<&'static str>,
    /// The id that its proxy gave to it, if it writes.
    version: u64,
    entry: usize,
}

fn state_of(owner: i64, clock: &Arc<ManualClock>) -> Arc<CassandraState> {
    let mut state = state(None, Version::V5);
    let inner = Arc::get_mut(&mut state).expect("no other has it");
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    let names = tables().into_iter().map(|table| table.name);
    inner.setting.read_atomic =
        ReadAtomicTables::new(names.collect(), Owner(owner), &clock, &Arc::default());
    let known = CassandraTopology {
        read_atomic: tables(),
        ..(*inner.known()).clone()
    };
    let fresh = super::state(None, Version::V5);
    let other = Arc::into_inner(fresh).expect("no other has it").setting;
    let setting = std::mem::replace(&mut inner.setting, other);
    Arc::new(CassandraState::new(setting, inner.nature.clone(), known))
}

impl Proxy {
    fn new(owner: i64, clock: &Arc<ManualClock>, now: MonotonicTime) -> Proxy {
        let state = state_of(owner, clock);
        let transactions = state
            .setting
            .read_atomic
            .keyspace("app")
            .expect("it has tables");
        transactions.set_lease(Some(NumberLease {
            number: (owner % 64) as u8,
            until: MonotonicTime::from_us(u64::MAX),
        }));
        let version = [Version::V4, Version::V5][owner as usize % 2];
        let mut stage = begun(&state, version);
        stage.now = Duration::from_micros(now.as_us());
        Proxy {
            recovery: KeyspaceRecovery::new(transactions, now),
            known: state.known(),
            stage,
            in_flight: Vec::new(),
            waiting: BTreeMap::new(),
            streams: 0,
        }
    }

    /// Takes the queries that the proxy has sent.
    fn take_orders(&mut self) {
        for order in std::mem::take(&mut self.stage.orders) {
            match order {
                BackendCommand::Send(query) => self.in_flight.push(query),
                other => panic!("{other:?}"),
            }
        }
        for (_, query) in std::mem::take(&mut self.stage.later) {
            self.stage.inflight.take(&query);
            self.in_flight.push(query);
        }
    }
}

/// The counts of one run.
#[derive(Default, Debug)]
struct Counts {
    committed: u32,
    unknown: u32,
    read: u32,
    second_rounds: u32,
    deaths: u32,
    removed: u32,
}

fn statement_of(query: &BackendQuery) -> ReplicaStatement {
    let header = header_of(&query.bytes, Direction::Request).expect("an envelope");
    let body = &query.bytes[HEADER_LEN..];
    let message = RequestMessage::decode(Envelope { header, body }).expect("CQL");
    match message.request {
        Request::Query(CqlQuery { text, parameters }) => {
            assert_eq!(parameters.consistency, Consistency::Quorum);
            understood(text, &parameters.values)
        }
        other => panic!("{other:?}"),
    }
}

/// The text of a wish.
fn text(wish: &Wish) -> String {
    if !wish.reads.is_empty() {
        let keys = wish.reads.iter().map(|key| format!("'{key}'"));
        let keys = keys.collect::<Vec<_>>().join(", ");
        return format!("SELECT k, a FROM app.t WHERE k IN ({keys})");
    }
    let writes = wish.writes.iter().map(|(key, value)| match value {
        Some(value) => format!("INSERT INTO app.t (k, a, b) VALUES ('{key}', '{value}', 1); "),
        None => format!("DELETE FROM app.t WHERE k = '{key}'; "),
    });
    let writes = writes.collect::<String>();
    format!("BEGIN BATCH {writes} APPLY BATCH")
}

/// A transaction, its outcome, and what it read.
type Recorded = (Wish, Outcome, BTreeMap<String, i64>);

struct Simulation {
    proxies: Vec<Proxy>,
    nodes: SimulatedReplicas,
    clock: Arc<ManualClock>,
    now: MonotonicTime,
    owners: i64,
    values: i64,
    counts: Counts,
    /// Transactions with their starts and ends, for the history.
    recorded: Vec<Option<Recorded>>,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let clock = Arc::new(ManualClock::new(START_MS));
        let now = MonotonicTime::from_us(10_000_000);
        let proxies = (0..2).map(|owner| Proxy::new(owner, &clock, now));
        Simulation {
            proxies: proxies.collect(),
            nodes: SimulatedReplicas {
                replicas: Default::default(),
                random: fastrand::Rng::with_seed(seed),
            },
            clock,
            now,
            owners: 2,
            values: 0,
            counts: Counts::default(),
            recorded: Vec::new(),
        }
    }

    fn begin(&mut self, at: usize) {
        let random = &mut self.nodes.random;
        let mut keys = KEYS.to_vec();
        random.shuffle(&mut keys);
        keys.truncate(random.usize(1..=3));
        let entry = self.recorded.len();
        self.recorded.push(None);
        let mut wish = Wish {
            writes: Vec::new(),
            reads: Vec::new(),
            version: 0,
            entry,
        };
        match random.bool() {
            true => wish.reads = keys,
            false => {
                for key in keys {
                    self.values += 1;
                    let value = (random.u8(..6) != 0).then_some(self.values);
                    wish.writes.push((key, value));
                }
            }
        }
        let text = text(&wish);
        let proxy = &mut self.proxies[at];
        proxy.streams += 1;
        let parameters =
            Parameters::new(Consistency::Quorum, BoundValues::none(proxy.stage.version));
        let text = &text;
        let query = Request::Query(CqlQuery { text, parameters });
        assert_eq!(proxy.stage.send(proxy.streams, query), InputProgress::Done);
        let begun = proxy.in_flight.len();
        proxy.take_orders();
        match proxy.in_flight.get(begun).map(statement_of) {
            Some(ReplicaStatement::PutRecord(_, id, _)) => wish.version = id as u64,
            Some(ReplicaStatement::PutRow(_, (timestamp, _))) => wish.version = timestamp as u64,
            _ => assert!(wish.writes.is_empty(), "a write has a query"),
        }
        proxy.waiting.insert(proxy.streams, wish);
        self.hear(at);
    }

    /// Takes the queries and answers that a proxy has sent.
    fn hear(&mut self, at: usize) {
        let proxy = &mut self.proxies[at];
        proxy.take_orders();
        for (stream, opcode, bytes) in proxy.stage.told() {
            let wish = proxy.waiting.remove(&stream.0).expect("it waits");
            let header = header_of(&bytes, Direction::Response).expect("an envelope");
            let body = &bytes[HEADER_LEN..];
            let message = ResponseMessage::decode(Envelope { header, body }).expect("CQL");
            let mut found = BTreeMap::new();
            let outcome = match message.response {
                Response::Result(ResultBody::Void) => {
                    self.counts.committed += 1;
                    Outcome::Committed
                }
                Response::Result(ResultBody::Rows(rows)) => {
                    self.counts.read += 1;
                    for row in rows.iter() {
                        let [key, value] = [0, 1].map(|at| {
                            let bytes = row[at].expect("no null");
                            String::from_utf8(bytes.to_vec()).expect("text")
                        });
                        found.insert(key, value.parse().expect("a number"));
                    }
                    Outcome::Committed
                }
                Response::Error(error) if error.kind.code() == UNAVAILABLE => Outcome::Aborted,
                Response::Error(error) => {
                    assert_ne!(error.kind.code(), INVALID, "{error:?}");
                    self.counts.unknown += 1;
                    Outcome::Unknown
                }
                other => panic!("{opcode:?} {other:?}"),
            };
            let entry = wish.entry;
            self.recorded[entry] = Some((wish, outcome, found));
        }
    }

    /// Lets a query be executed, or lost.
    fn execute(&mut self, at: usize) {
        let proxy = &mut self.proxies[at];
        if proxy.in_flight.is_empty() {
            return;
        }
        let chosen = self.nodes.random.usize(..proxy.in_flight.len());
        let query = proxy.in_flight.swap_remove(chosen);
        let statement = statement_of(&query);
        self.counts.second_rounds +=
            u32::from(matches!(statement, ReplicaStatement::ReadRecord(..)));
        match self.nodes.random.u8(..12) {
            0 => {
                self.nodes.lose(&statement);
                proxy.stage.give(query, Err(lost()));
            }
            1 => {
                self.nodes.lose(&statement);
                let error = ErrorBody {
                    message: "by the test",
                    kind: ErrorKind::WriteTimeout {
                        consistency: Consistency::Quorum,
                        received: 1,
                        required: 2,
                        write: "SIMPLE",
                        contentions: None,
                    },
                };
                assert_eq!(error.kind.code(), WRITE_TIMEOUT);
                proxy.stage.answer(query, Response::Error(error));
            }
            2 => proxy.stage.give(query, Err(unsent())),
            _ => {
                let (columns, rows) = self.nodes.execute(&statement);
                if columns.is_empty() {
                    proxy
                        .stage
                        .answer(query, Response::Result(ResultBody::Void));
                } else {
                    let mut answer = RowsBuilder::new(Columns::of_table("app", "t", &columns));
                    rows.iter().for_each(|row| answer.push(row));
                    let answer = ResultBody::Rows(answer.rows(false));
                    proxy.stage.answer(query, Response::Result(answer));
                }
            }
        }
        self.hear(at);
    }

    fn kill(&mut self, at: usize) {
        let proxy = Proxy::new(self.owners, &self.clock, self.now);
        self.owners += 1;
        self.counts.deaths += 1;
        let dead = std::mem::replace(&mut self.proxies[at], proxy);
        // Its messages may arrive.
        for query in &dead.in_flight {
            self.nodes.lose(&statement_of(query));
        }
        for (_, wish) in dead.waiting {
            let entry = wish.entry;
            self.recorded[entry] = Some((wish, Outcome::Unknown, BTreeMap::new()));
        }
    }

    fn pass_time(&mut self, at_most_ms: u64) {
        let passed = self.nodes.random.u64(1..=at_most_ms);
        self.clock.advance(passed);
        self.now = MonotonicTime::from_us(self.now.as_us() + passed * 1000);
        for proxy in &mut self.proxies {
            proxy.stage.now = Duration::from_micros(self.now.as_us());
        }
    }

    fn recover(&mut self, at: usize, queries: usize) {
        let records = |nodes: &SimulatedReplicas| {
            let all = nodes.replicas.iter().map(|replica| replica.records.len());
            all.sum::<usize>()
        };
        let before = records(&self.nodes);
        let proxy = &mut self.proxies[at];
        let mut nodes = Mortal {
            known: Arc::clone(&proxy.known),
            now: self.now,
            nodes: &mut self.nodes,
            left: queries,
        };
        proxy.recovery.step(&mut nodes);
        self.counts.removed += u32::from(records(&self.nodes) < before);
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            let at = self.nodes.random.usize(..self.proxies.len());
            match self.nodes.random.u8(..100) {
                0..=11 => self.begin(at),
                12..=84 => self.execute(at),
                85..=94 => self.pass_time(2000),
                95 => self.pass_time(30_000),
                96..=97 => {
                    let queries = self.nodes.random.usize(..40);
                    self.recover(at, queries);
                }
                98 => self.kill(at),
                _ => {}
            }
        }
        // In the end the transactions of the dead are completed, and all records are removed.
        (0..self.proxies.len()).for_each(|at| self.kill(at));
        for _ in 0..60 {
            self.pass_time(20_000);
            (0..self.proxies.len()).for_each(|at| self.recover(at, usize::MAX));
        }
    }

    /// Returns the values of all rows at a quorum.
    fn content(&mut self) -> BTreeMap<String, String> {
        let mut content = BTreeMap::new();
        for key in KEYS {
            let names = ["a".to_owned()].to_vec();
            let read = ReplicaStatement::ReadRow(key.as_bytes().to_vec(), names);
            let (_, rows) = self.nodes.execute(&read);
            content.insert(key.to_owned(), format!("{rows:?}"));
        }
        content
    }

    fn history(self) -> history::History {
        let recorder = Recorder::new();
        let mut log = recorder.process();
        let written = self.recorded.iter().flatten();
        let written = written.flat_map(|(wish, ..)| {
            let values = wish.writes.iter();
            values.filter_map(|(_, value)| Some(((*value)?, wish.version)))
        });
        let versions: BTreeMap<i64, u64> = written.collect();
        for (wish, outcome, found) in self.recorded.into_iter().flatten() {
            let mut entry = log.begin();
            for key in &wish.reads {
                if outcome == Outcome::Committed {
                    let value = found.get(*key).copied();
                    entry.read(key, value, value.map(|value| versions[&value]));
                }
            }
            for (key, value) in &wish.writes {
                match value {
                    Some(value) => entry.write(key, *value, Some(wish.version)),
                    None => entry.delete(key, Some(wish.version)),
                }
            }
            entry.end(outcome);
        }
        drop(log);
        recorder.finish()
    }
}

#[test]
fn no_read_is_fractured_when_proxies_die() {
    let mut all = Counts::default();
    for seed in 0..40 {
        let mut simulation = Simulation::new(seed);
        simulation.run(1200);
        // All transactions are completed, and a removal of each record has begun: a removal that got
        // lost is visible at some replicas alone, because this simulation repairs nothing.
        let replicas = &simulation.nodes.replicas;
        let is_removed = |(partition, id): &([i64; 2], i64)| {
            replicas.iter().any(|replica| {
                replica.removed_records.contains(&(*partition, *id))
                    || replica.removed_partitions.contains_key(partition)
            })
        };
        let records = replicas.iter().flat_map(|replica| replica.records.keys());
        let left: Vec<_> = records.filter(|at| !is_removed(at)).collect();
        assert!(left.is_empty(), "seed {seed}: {left:?} are left");
        assert_eq!(simulation.content(), simulation.content(), "seed {seed}");
        let Counts {
            committed,
            unknown,
            read,
            second_rounds,
            deaths,
            removed,
        } = std::mem::take(&mut simulation.counts);
        all.committed += committed;
        all.unknown += unknown;
        all.read += read;
        all.second_rounds += second_rounds;
        all.deaths += deaths;
        all.removed += removed;
        let history = simulation.history();
        let verdict = check::read_atomic(&history);
        assert!(verdict.is_accepted(), "seed {seed}: {verdict:?}");
    }
    for count in [
        all.committed,
        all.unknown,
        all.read,
        all.second_rounds,
        all.removed,
    ] {
        assert!(count > 40, "{all:?}");
    }
    assert!(all.deaths > 80, "{all:?}");
}

/// Returns a proxy whose client has begun, and its only answer's error text.
fn stage(version: Version) -> Stage {
    let clock = Arc::new(ManualClock::new(START_MS));
    Proxy::new(version as i64, &clock, MonotonicTime::from_us(1)).stage
}

fn say(stage: &mut Stage, text: &str, consistency: Consistency) {
    let parameters = Parameters::new(consistency, BoundValues::none(stage.version));
    let query = Request::Query(CqlQuery { text, parameters });
    assert_eq!(stage.send(7, query), InputProgress::Done);
}

fn error_text(stage: &mut Stage) -> String {
    let told = stage.told();
    let [(StreamId(7), Opcode::Error, bytes)] = &told[..] else {
        panic!("{told:?}");
    };
    let mut reader = NotationReader::new(&bytes[HEADER_LEN..]);
    reader.int().expect("a code");
    reader.string().expect("a text").to_owned()
}

#[test]
fn weaker_consistencies_and_other_statements_are_refused() {
    let mut stage = stage(Version::V4);
    let read = "SELECT * FROM app.t WHERE k IN ('x', 'y')";
    for consistency in [
        Consistency::One,
        Consistency::LocalOne,
        Consistency::LocalQuorum,
        Consistency::EachQuorum,
        Consistency::Serial,
    ] {
        say(&mut stage, read, consistency);
        let text = error_text(&mut stage);
        assert!(text.contains("QUORUM or ALL"), "{text}");
    }
    for (text, words) in [
        ("TRUNCATE app.t", "a read-atomic table takes"),
        ("SELECT * FROM app.t", "a read-atomic table takes"),
        (
            "SELECT * FROM app.kumiki_transactions WHERE owner = 1",
            "is not read atomic",
        ),
        ("UPDATE app.t SET a = 'x' WHERE k = 'x'", "give b, too"),
    ] {
        say(&mut stage, text, Consistency::Quorum);
        let error = error_text(&mut stage);
        assert!(error.contains(words), "{text}: {error}");
        assert!(stage.orders.is_empty(), "{text}");
    }
}

#[test]
fn batches_are_of_read_atomic_tables_alone() {
    let mut stage = stage(Version::V5);
    let part = |statement| BatchStatement {
        statement,
        values: BoundValues::none(Version::V5),
    };
    let own = part(Part::Text("DELETE FROM app.t WHERE k = 'x'"));
    let batch = |statements: &[BatchStatement<'static>]| {
        Request::Batch(Batch {
            kind: BatchKind::Logged,
            statements: statements.to_vec(),
            parameters: Parameters::new(Consistency::Quorum, BoundValues::none(Version::V5)),
        })
    };
    let other = part(Part::Text("DELETE FROM app.u WHERE k = 'x'"));
    stage.send(7, batch(&[own, other]));
    let text = error_text(&mut stage);
    assert!(text.contains("make two batches"), "{text}");
    stage.send(7, batch(&[other, other]));
    assert_eq!(
        stage.order().bytes[4],
        Opcode::Batch as u8,
        "it is sent unchanged"
    );
    stage.send(7, batch(&[own, part(Part::Prepared(b"unknown"))]));
    assert_eq!(stage.error(), (StreamId(7), UNPREPARED));
    stage.send(
        7,
        batch(&[own, part(Part::Text("DELETE FROM app.t WHERE k = 'y'"))]),
    );
    let query = stage.order();
    assert!(matches!(
        statement_of(&query),
        ReplicaStatement::PutRecord(..)
    ));
}

#[test]
fn a_prepared_batch_is_executed_by_the_proxy() {
    let mut stage = stage(Version::V4);
    let text = "INSERT INTO app.t (k, a, b) VALUES (?, 'one', 1)";
    stage.prepare(text);
    let query = stage.execute(3);
    let ReplicaStatement::PutRow(key, (timestamp, columns)) = statement_of(&query) else {
        panic!("it writes a row");
    };
    assert_eq!(
        (key.as_slice(), columns["a"].as_deref()),
        (&b"key"[..], Some(&b"one"[..]))
    );
    assert!(timestamp >= START_MS as i64 * 1000);
    stage.answer(query, Response::Result(ResultBody::Void));
    assert_eq!(stage.told()[0].0, StreamId(3));
    let refused = Request::Prepare(Prepare {
        text: "UPDATE app.t SET a = ? WHERE k = ? IF EXISTS",
        keyspace: None,
    });
    stage.send(7, refused);
    assert!(error_text(&mut stage).contains("without IF"));
}

#[test]
fn without_a_number_nothing_is_written() {
    let clock = Arc::new(ManualClock::new(START_MS));
    let mut stage = Proxy::new(0, &clock, MonotonicTime::from_us(1)).stage;
    let transactions = Arc::clone(&stage.protocol.state.setting.read_atomic.keyspaces[0]);
    transactions.set_lease(None);
    say(
        &mut stage,
        "DELETE FROM app.t WHERE k = 'x'",
        Consistency::Quorum,
    );
    assert_eq!(stage.error(), (StreamId(7), UNAVAILABLE));
    assert!(stage.orders.is_empty());
}

#[test]
fn a_transaction_that_recovery_has_taken_is_not_committed() {
    let mut stage = stage(Version::V4);
    let text =
        "BEGIN BATCH DELETE FROM app.t WHERE k = 'x' DELETE FROM app.t WHERE k = 'y' APPLY BATCH";
    say(&mut stage, text, Consistency::Quorum);
    let query = stage.order();
    let transactions = &stage.protocol.state.setting.read_atomic.keyspaces[0];
    let taken = transactions.take_closed(i64::MAX >> 1);
    assert_eq!(taken.iter().map(|(_, open)| open.len()).sum::<usize>(), 1);
    stage.answer(query, Response::Result(ResultBody::Void));
    assert_eq!(stage.error(), (StreamId(7), WRITE_TIMEOUT));
    assert!(stage.orders.is_empty() && stage.under_way == 0);
}

#[test]
fn a_read_that_took_too_long_fails() {
    let mut stage = stage(Version::V4);
    let text =
        "BEGIN BATCH DELETE FROM app.t WHERE k = 'x' DELETE FROM app.t WHERE k = 'y' APPLY BATCH";
    say(&mut stage, text, Consistency::Quorum);
    let mut nodes = SimulatedReplicas {
        replicas: Default::default(),
        random: fastrand::Rng::with_seed(1),
    };
    let prepare = stage.order();
    nodes.execute(&statement_of(&prepare));
    stage.answer(prepare, Response::Result(ResultBody::Void));
    // The COMMIT of one row only.
    let commits = std::mem::take(&mut stage.orders);
    let BackendCommand::Send(commit) = &commits[0] else {
        panic!("{commits:?}");
    };
    nodes.execute(&statement_of(commit));
    say(
        &mut stage,
        "SELECT k FROM app.t WHERE k IN ('x', 'y')",
        Consistency::Quorum,
    );
    for _ in 0..3 {
        let Some(BackendCommand::Send(query)) = stage.orders.pop() else {
            panic!("a query");
        };
        let statement = statement_of(&query);
        if matches!(statement, ReplicaStatement::ReadRecord(..)) {
            stage.now += Duration::from_secs(21);
        }
        let (columns, rows) = nodes.execute(&statement);
        let mut answer = RowsBuilder::new(Columns::of_table("app", "t", &columns));
        rows.iter().for_each(|row| answer.push(row));
        let answer = ResultBody::Rows(answer.rows(false));
        stage.answer(query, Response::Result(answer));
    }
    assert_eq!(stage.error(), (StreamId(7), cql::response::READ_TIMEOUT));
}
