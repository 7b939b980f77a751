//! A client of tables of locks: answers of the locks, requests to nodes, and refusals. Also writes that
//! may be merged.

use std::sync::atomic::{AtomicBool, Ordering};

use base::partition::OwnedReply;
use base::transaction::{Abort, Transaction};
use cql::request::{Batch, BatchKind, BatchStatement, Query as CqlQuery, Statement as Part};
use cql::response::{INVALID, Row};
use cql::{BoundValues, CqlValue};
use disk::RealDisk;

use super::super::super::lock_table::schema::{self, tests::simple};
use super::super::super::merge;
use super::*;
use crate::error::ProxyError;
use crate::locks::lock_service::LockService;
use crate::locks::pending_requests::{LockReply, MOST_ASKED};
use crate::locks::{Execute as Executes, LockStorage, Options as LockOptions};

/// Returns a proxy that keeps `app.locks`, and the directory of its ledger.
fn with_schema(
    schema: Result<schema::Schema, ProxyError>,
) -> (Arc<CassandraState>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let memory = LockStorage::Memory {
        disk: Arc::new(RealDisk),
        directory: dir.path().join("locks"),
    };
    (kept_by(memory, schema), dir)
}

/// Returns a proxy whose `app.locks` is in this storage.
fn kept_by(
    storage: LockStorage,
    schema: Result<schema::Schema, ProxyError>,
) -> Arc<CassandraState> {
    let options = LockOptions {
        keeping: storage,
        longest_lease: Duration::from_secs(60),
    };
    let name = schema::tests::name();
    let mut state = state(None, Version::V5);
    let inner = Arc::get_mut(&mut state).expect("no other has it");
    inner.setting.lock_tables = LockTables {
        tables: vec![name.clone()],
        locks: Some(Arc::new(LockService::start(&options, 1).expect("locks"))),
    };
    let known = CassandraTopology {
        lock_tables: vec![schema::KnownTable {
            name,
            schema: schema.map(Arc::new),
        }],
        ..(*inner.known()).clone()
    };
    let setting = std::mem::replace(&mut inner.setting, state_setting());
    Arc::new(CassandraState::new(setting, inner.nature.clone(), known))
}

/// An executor that says nothing until it may, and then that nothing can be done.
#[derive(Default)]
struct Silent(AtomicBool);

impl Silent {
    /// Returns a proxy whose `app.locks` is kept by this executor.
    fn state(self: &Arc<Silent>) -> Arc<CassandraState> {
        let storage = LockStorage::Partition {
            name: "silent",
            executor: Arc::<Silent>::clone(self),
            prefix: b"locks/".to_vec(),
        };
        kept_by(storage, Ok(simple()))
    }

    fn may_speak(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Executes for Silent {
    fn execute(&self, _: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
        while !self.0.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Abort::Cancelled)
    }
}

/// Returns a setting of a state that is thrown away.
fn state_setting() -> CassandraOptions {
    let state = state(None, Version::V5);
    Arc::into_inner(state).expect("no other has it").setting
}

impl Stage {
    /// Waits for answers of the locks that do not come at once.
    fn lock_replies(&mut self) {
        for _ in 0..1000 {
            let mut lock_replies: Vec<LockReply> = Vec::new();
            self.protocol.collect(Duration::ZERO, &mut lock_replies);
            for lock_reply in lock_replies {
                self.with(|protocol, client, context| {
                    context.forget_deferred_reply();
                    protocol.deliver(client, lock_reply, context);
                });
            }
            if self.under_way == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the locks say nothing");
    }

    /// Returns the rows of the answer to a text, as text, or the error.
    fn ask(&mut self, text: &str) -> String {
        assert_eq!(
            self.send(9, plain_query(text, self.version)),
            InputProgress::Done
        );
        assert!(self.orders.is_empty(), "{text} is sent to a node");
        self.lock_replies();
        self.answer_as_text()
    }

    fn answer_as_text(&mut self) -> String {
        let told = self.told();
        let [(StreamId(9), _, bytes)] = &told[..] else {
            panic!("{told:?}");
        };
        let header = header_of(bytes, Direction::Response).expect("an envelope");
        let body = &bytes[HEADER_LEN..];
        let message = ResponseMessage::decode(Envelope { header, body }).expect("CQL");
        match message.response {
            Response::Result(ResultBody::Rows(rows)) => {
                let columns = rows.metadata.columns.clone().expect("they are told").0;
                let one = |row: Row<'_>| {
                    let values = columns.iter().zip(row).map(|(column, value)| {
                        let value = CqlValue::decode(&column.data_type, value).expect("a value");
                        format!("{}={value:?}", column.name)
                    });
                    values.collect::<Vec<_>>().join(" ")
                };
                rows.iter().map(one).collect::<Vec<_>>().join("; ")
            }
            Response::Result(ResultBody::Void) => "done".to_owned(),
            Response::Error(error) => {
                assert_eq!(error.kind.code(), INVALID, "{error:?}");
                error.message.to_owned()
            }
            other => panic!("{other:?}"),
        }
    }
}

const TAKE: &str =
    "INSERT INTO app.locks (name, owner) VALUES ('a', 'anna') IF NOT EXISTS USING TTL 30";

#[test]
fn locks_are_answered_without_a_node() {
    let (state, _dir) = with_schema(Ok(simple()));
    for version in [Version::V4, Version::V5] {
        let mut stage = begun(&state, version);
        assert_eq!(stage.ask(TAKE), "[applied]=Boolean(true)");
        let held = "[applied]=Boolean(false) name=Text(\"a\") note=Null owner=Text(\"anna\")";
        assert_eq!(stage.ask(TAKE), held);
        let owner = "SELECT owner FROM app.locks WHERE name = 'a'";
        assert_eq!(stage.ask(owner), "owner=Text(\"anna\")");
        assert_eq!(stage.ask("DELETE FROM app.locks WHERE name = 'a'"), "done");
        assert_eq!(stage.ask(owner), "");
        let endless = "INSERT INTO app.locks (name) VALUES ('a') IF NOT EXISTS";
        assert!(stage.ask(endless).contains("without a lease"));
        let long = format!("{endless} USING TTL 61");
        assert!(stage.ask(&long).contains("60000 ms"));
    }
}

#[test]
fn a_lock_is_prepared_by_a_node_and_executed_here() {
    let (state, _dir) = with_schema(Ok(simple()));
    for version in [Version::V4, Version::V5] {
        let mut stage = begun(&state, version);
        stage
            .prepare("UPDATE app.locks USING TTL 9 SET owner = 'b' WHERE name = ? IF owner = null");
        let mut values = ValueList::new();
        values.push(Bound::Bytes(b"key"));
        let execute = |version, values| {
            Request::Execute(Execute {
                id: b"id",
                result_metadata_id: (version == Version::V5).then_some(b"metadata"),
                parameters: Parameters::new(Consistency::One, values),
            })
        };
        assert_eq!(
            stage.send(9, execute(version, values.values(version))),
            InputProgress::Done
        );
        assert!(stage.orders.is_empty());
        stage.lock_replies();
        assert_eq!(stage.answer_as_text(), "[applied]=Boolean(true)");
        stage.ask("DELETE FROM app.locks WHERE name = 'key'");
        // A statement that another proxy has prepared may be about any table.
        let unknown = Request::Execute(Execute {
            id: b"unknown",
            result_metadata_id: (version == Version::V5).then_some(b"metadata"),
            parameters: Parameters::new(Consistency::One, BoundValues::none(version)),
        });
        stage.send(7, unknown);
        assert!(stage.orders.is_empty());
        assert_eq!(stage.error(), (StreamId(7), UNPREPARED));
    }
}

#[test]
fn what_is_not_of_the_recipe_reaches_no_node() {
    let (state, _dir) = with_schema(Ok(simple()));
    let mut stage = begun(&state, Version::V5);
    let texts = [
        "INSERT INTO app.locks (name) VALUES ('a')",
        "UPDATE app.locks SET owner = 'b' WHERE name = 'a'",
        "SELECT * FROM app.locks",
        "TRUNCATE app.locks",
        "BEGIN BATCH DELETE FROM app.locks WHERE name = 'a'; APPLY BATCH",
    ];
    for text in texts {
        assert!(stage.ask(text).contains("a table of locks takes"), "{text}");
        let keyspace = None;
        stage.send(8, Request::Prepare(Prepare { text, keyspace }));
        assert!(stage.orders.is_empty());
        assert_eq!(stage.error(), (StreamId(8), INVALID), "{text}");
    }
    let batch = |statement| {
        Request::Batch(Batch {
            kind: BatchKind::Logged,
            statements: vec![BatchStatement {
                statement,
                values: BoundValues::none(Version::V5),
            }],
            parameters: Parameters::new(Consistency::One, BoundValues::none(Version::V5)),
        })
    };
    for (statement, code) in [
        (
            Part::Text("DELETE FROM app.locks WHERE name = 'a'"),
            INVALID,
        ),
        (Part::Prepared(b"unknown"), UNPREPARED),
    ] {
        stage.send(6, batch(statement));
        assert!(stage.orders.is_empty());
        assert_eq!(stage.error(), (StreamId(6), code));
    }
    // Other tables are left to the nodes.
    stage.send(
        5,
        batch(Part::Text("DELETE FROM app.other WHERE name = 'a'")),
    );
    let query = stage.order();
    stage.answer(query, Response::Result(ResultBody::Void));
    stage.told();
    stage.send(4, plain_query("SELECT * FROM app.other", Version::V5));
    stage.order();
}

#[test]
fn a_table_that_keeps_no_locks_says_why() {
    let (state, _dir) = with_schema(Err(ProxyError::invalid_request(
        "table locks does not exist",
    )));
    let mut stage = begun(&state, Version::V4);
    assert_eq!(stage.ask(TAKE), "table locks does not exist");
}

#[test]
fn a_client_that_has_gone_waits_for_no_lock_reply() {
    let (state, _dir) = with_schema(Ok(simple()));
    let mut stage = begun(&state, Version::V4);
    stage.send(9, plain_query(TAKE, Version::V4));
    stage.with(|protocol, client, context| protocol.gone(client, context));
    assert!(stage.client.asked.is_empty());
    let mut lock_replies = Vec::new();
    stage.protocol.collect(Duration::ZERO, &mut lock_replies);
    assert!(lock_replies.is_empty());
}

#[test]
fn what_frees_a_lock_is_carried_out_though_its_client_has_gone() {
    for (text, is_cancelled) in [
        ("DELETE FROM app.locks WHERE name = 'a'", false),
        (
            "DELETE FROM app.locks WHERE name = 'a' IF owner = 'anna'",
            false,
        ),
        (
            "UPDATE app.locks SET owner = null WHERE name = 'a' IF owner = 'anna'",
            false,
        ),
        ("SELECT * FROM app.locks WHERE name = 'a'", false),
        (TAKE, true),
        (
            "UPDATE app.locks SET owner = 'b' WHERE name = 'a' IF owner = null",
            true,
        ),
    ] {
        let silent = Arc::new(Silent::default());
        let state = silent.state();
        let mut stage = begun(&state, Version::V5);
        assert_eq!(
            stage.send(9, plain_query(text, Version::V5)),
            InputProgress::Done
        );
        stage.with(|protocol, client, context| protocol.gone(client, context));
        let locks = state.setting.lock_tables.locks.as_ref().expect("locks");
        assert_eq!(locks.figures().cancelled, u64::from(is_cancelled), "{text}");
        silent.may_speak();
        // Its answer has no receiver.
        locks.stop();
        let mut lock_replies = Vec::new();
        stage.protocol.collect(Duration::ZERO, &mut lock_replies);
        assert!(
            lock_replies.is_empty() && !stage.protocol.has_deferred_replies(),
            "{text}"
        );
    }
}

#[test]
fn a_connection_waits_for_so_many_answers_of_the_locks_at_once() {
    let text = "DELETE FROM app.locks WHERE name = ?";
    for version in [Version::V4, Version::V5] {
        for executes in [false, true] {
            let silent = Arc::new(Silent::default());
            let mut stage = begun(&silent.state(), version);
            stage.prepare(text);
            let ask = |stage: &mut Stage, stream| {
                let mut values = ValueList::new();
                values.push(Bound::Bytes(b"a"));
                let parameters = Parameters::new(Consistency::One, values.values(version));
                stage.send(
                    stream,
                    match executes {
                        true => Request::Execute(Execute {
                            id: b"id",
                            result_metadata_id: (version == Version::V5).then_some(b"metadata"),
                            parameters,
                        }),
                        false => Request::Query(CqlQuery { text, parameters }),
                    },
                )
            };
            for stream in 0..MOST_ASKED as i16 {
                assert_eq!(ask(&mut stage, stream), InputProgress::Done);
            }
            let last = MOST_ASKED as i16;
            assert_eq!(ask(&mut stage, last), InputProgress::AwaitsReply);
            assert_eq!(stage.client.asked.len(), MOST_ASKED);
            assert!(stage.told().is_empty());
            silent.may_speak();
            stage.lock_replies();
            // The request that has waited goes on.
            assert_eq!(stage.send_bytes(&[]), InputProgress::Done);
            stage.lock_replies();
            let told = stage.told();
            assert_eq!(told.len(), MOST_ASKED + 1);
            assert_eq!(told.last().expect("the last").0, StreamId(last));
        }
    }
}

#[test]
fn answers_about_rows_are_counted() {
    let (state, _dir) = with_schema(Ok(simple()));
    let mut stage = begun(&state, Version::V5);
    for text in [
        TAKE,
        TAKE,
        "UPDATE app.locks USING TTL 40 SET owner = 'b' WHERE name = 'a' IF owner = 'anna'",
        "DELETE FROM app.locks WHERE name = 'a' IF owner = 'anna'",
        "DELETE FROM app.locks WHERE name = 'a' IF owner = 'b'",
        "SELECT * FROM app.locks WHERE name = 'a'",
        "INSERT INTO app.locks (name) VALUES ('a') IF NOT EXISTS USING TTL 61",
    ] {
        stage.ask(text);
    }
    let locks = state.setting.lock_tables.locks.as_ref().expect("locks");
    let figures = locks.figures();
    assert_eq!(figures.requests, 7);
    assert_eq!((figures.acquired, figures.renewed), (1, 1), "{figures:?}");
    assert_eq!((figures.released, figures.refused), (1, 2), "{figures:?}");
    assert_eq!((figures.failed, figures.held), (1, 0), "{figures:?}");
}

#[test]
fn only_plain_writes_may_be_merged() {
    let mut setting = state_setting();
    setting.merge_writes = true;
    let whole = state(None, Version::V5);
    let state = CassandraState::new(setting, whole.nature.clone(), (*whole.known()).clone());
    let state = Arc::new(state);
    for version in [Version::V4, Version::V5] {
        for (text, may) in [
            ("INSERT INTO app.t (k) VALUES (?)", true),
            ("DELETE FROM app.t WHERE k = ?", true),
            ("UPDATE app.t SET v = 1 WHERE k = ?", true),
            ("UPDATE app.t SET v = v + 1 WHERE k = ?", false),
            ("UPDATE app.t SET v = now() WHERE k = ?", false),
            ("INSERT INTO app.t (k) VALUES (?) IF NOT EXISTS", false),
            ("SELECT * FROM app.t WHERE k = ?", false),
        ] {
            let mut stage = begun(&state, version);
            stage.prepare(text);
            let query = stage.execute(9);
            assert_eq!(merge::may_merge(&query), may, "{text}");
            let again = BackendQuery {
                retries: 1,
                ..query
            };
            assert!(!merge::may_merge(&again));
        }
    }
    let mut stage = Stage::begun(Version::V5);
    stage.prepare("INSERT INTO app.t (k) VALUES (?)");
    let query = stage.execute(9);
    assert!(!merge::may_merge(&query), "it cannot be merged");
}
