//! Tables of locks before real Cassandra nodes: drivers see what they see without the proxy, no
//! lock has two holders, and no statement on a table of locks reaches a node.
//!
//! `cargo xtask peers` installs Cassandra and the drivers. Without them a test says so and passes;
//! with `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::cassandra::SharedNode;
use crate::support::cql::{Connection, Received};
use crate::support::drivers::{Drivers, lines};
use crate::support::process::proxy;
use crate::support::replicas::Replicas;
use cql::response::{INVALID, UNPREPARED};
use cql::{CqlValue, Version};
use testkit::SetOnDrop;
use testkit::eventually;
use testkit::process::Server;
use testkit::wait::go_on_until;

/// Those of the drivers' programs, which are named after language and version.
const KEYSPACES: [&str; 5] = ["python4", "python5", "java4", "java5", "rust4"];

/// A node and the drivers.
struct Stage {
    node: SharedNode,
    drivers: Drivers,
}

impl Stage {
    /// Finds a node; `None`, with a message, if something is not installed.
    fn set() -> Option<Stage> {
        let drivers = Drivers::find()?;
        let node = SharedNode::get(&drivers.installed);
        Some(Stage { node, drivers })
    }

    fn node(&self) -> SocketAddr {
        self.node.address()
    }

    /// Returns a proxy that keeps these tables, with further options.
    fn proxy(&self, tables: &str, further: &[&str]) -> Server {
        let node = self.node().to_string();
        let mut args = vec!["--cassandra", &node, "--lock-table", tables];
        args.extend(further);
        proxy(&args)
    }

    /// Returns the output of the programs for Cassandra at `address`, all run at the same time:
    /// each has a keyspace of its own.
    fn run(&self, address: SocketAddr) -> Vec<(String, Vec<String>)> {
        std::thread::scope(|scope| {
            let runs = KEYSPACES.map(|name| {
                let mut command = match &name[..name.len() - 1] {
                    "python" => self.drivers.python("lock_recipe.py"),
                    "java" => self.drivers.java("LockRecipe.java"),
                    _ => self.drivers.rust("locks"),
                };
                command.args([address.ip().to_string(), address.port().to_string()]);
                command.args([name, &name[name.len() - 1..]]);
                scope.spawn(move || (name.to_owned(), lines(&mut command)))
            });
            runs.map(|run| run.join().expect("it ends well")).into()
        })
    }
}

/// Returns the answer to a text on a connection.
fn ask(connection: &mut Connection, text: &str) -> Received {
    connection.query(text).expect("the proxy answers")
}

/// Makes a keyspace with a table of locks.
fn make(address: SocketAddr, keyspace: &str) -> Connection {
    let mut connection = Connection::open(address, Version::V5).expect("the proxy listens");
    for text in [
        &*format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', \
             'replication_factor': 1}}"
        ),
        &format!("CREATE TABLE {keyspace}.locks (name text PRIMARY KEY, owner text)"),
    ] {
        assert_eq!(ask(&mut connection, text), Received::Done, "{text}");
    }
    connection
}

#[test]
fn drivers_see_locks_as_cassandra_has_them() {
    let Some(stage) = Stage::set() else {
        return;
    };
    let tables = KEYSPACES.map(|name| format!("{name}.locks,{name}.leases"));
    let proxy = stage.proxy(&tables.join(","), &[]);
    let through = stage.run(proxy.address);
    let directly = stage.run(stage.node());
    for ((name, through), (_, directly)) in through.iter().zip(&directly) {
        assert!(through.len() > 20, "{name}: {through:#?}");
        for (through, directly) in through.iter().zip(directly) {
            assert_eq!(through, directly, "{name}");
        }
        assert_eq!(through.len(), directly.len(), "{name}");
    }
    what_is_no_recipe_is_refused(&stage, proxy.address);
    what_was_given_back_is_free(proxy.address);
    the_shell_takes_locks(&stage, proxy.address);
    assert!(proxy.terminate().success());
    stage.node.leave();
}

/// The nodes have no data of a table of locks, and statements that would write some are refused.
fn what_is_no_recipe_is_refused(stage: &Stage, address: SocketAddr) {
    let mut connection = make(address, "python4");
    let mut directly = Connection::open(stage.node(), Version::V5).expect("it listens");
    let take =
        "INSERT INTO python4.locks (name, owner) VALUES ('a', 'me') IF NOT EXISTS USING TTL 60";
    assert_eq!(ask(&mut connection, take).applied(), Some(true));
    for text in [
        "INSERT INTO python4.locks (name, owner) VALUES ('a', 'me')",
        "UPDATE python4.locks SET owner = 'x' WHERE name = 'a'",
        "UPDATE python4.locks SET owner = 'x' WHERE name = 'a' IF owner > 'b'",
        "DELETE owner FROM python4.locks WHERE name = 'a'",
        "SELECT * FROM python4.locks",
        "SELECT * FROM python4.locks WHERE name IN ('a', 'b')",
        "SELECT count(*) FROM python4.locks WHERE name = 'a'",
        "TRUNCATE python4.locks",
        "BEGIN BATCH INSERT INTO python4.locks (name) VALUES ('b'); APPLY BATCH",
    ] {
        let told = ask(&mut connection, text);
        assert_eq!(told.code(), INVALID, "{text}: {told:?}");
        assert!(told.words().contains("a table of locks takes"), "{told:?}");
        let prepared = connection.prepare(text).expect("the proxy answers");
        assert_eq!(
            prepared.err().map(|told| told.code()),
            Some(INVALID),
            "{text}"
        );
    }
    // The id was given by a node, which would execute it.
    let prepared = directly.prepare(take).expect("it answers");
    let prepared = prepared.unwrap_or_else(|told| panic!("{told:?}"));
    let told = connection
        .execute(&prepared, &[])
        .expect("the proxy answers");
    assert_eq!(told.code(), UNPREPARED, "{told:?}");
    let rows = ask(&mut directly, "SELECT * FROM python4.locks");
    assert_eq!(rows, Received::Rows(Vec::new()));
    let owner = ask(
        &mut connection,
        "SELECT owner FROM python4.locks WHERE name = 'a'",
    );
    let me = ("owner".to_owned(), CqlValue::text("me"));
    assert_eq!(owner, Received::Rows(vec![vec![me]]));
}

/// Breaks a connection while the statement that gives its lock back waits behind others.
fn what_was_given_back_is_free(address: SocketAddr) {
    let mut connection = Connection::open(address, Version::V5).expect("it listens");
    let take = "INSERT INTO python4.locks (name, owner) VALUES ('gone', 'ann') \
                IF NOT EXISTS USING TTL 600";
    let renew = "UPDATE python4.locks USING TTL 600 SET owner = 'ann' WHERE name = 'gone' \
                 IF owner = 'ann'";
    let give = "DELETE FROM python4.locks WHERE name = 'gone' IF owner = 'ann'";
    let mut texts = vec![renew; 20];
    texts.push(give);
    for version in [Version::V4, Version::V5] {
        assert_eq!(ask(&mut connection, take).applied(), Some(true));
        let holder = Connection::open(address, version).expect("it listens");
        holder.ask_and_go(&texts).expect("the proxy answers");
        let select = "SELECT owner FROM python4.locks WHERE name = 'gone'";
        eventually("the lock is free", || {
            ask(&mut connection, select) == Received::Rows(Vec::new())
        });
    }
}

/// Types lines into cqlsh, as a person would.
fn the_shell_takes_locks(stage: &Stage, address: SocketAddr) {
    let said = [
        "INSERT INTO python4.locks (name, owner) VALUES ('shell', 'ann') IF NOT EXISTS USING TTL 60",
        "INSERT INTO python4.locks (name, owner) VALUES ('shell', 'bob') IF NOT EXISTS USING TTL 60",
        "SELECT owner FROM python4.locks WHERE name = 'shell'",
        "DELETE FROM python4.locks WHERE name = 'shell' IF owner = 'bob'",
        "DELETE FROM python4.locks WHERE name = 'shell' IF owner = 'ann'",
    ]
    .map(|text| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&stage.drivers.python);
        command.arg(stage.drivers.libraries.join("bin/cqlsh"));
        command.args([address.ip().to_string(), address.port().to_string()]);
        command.args(["-e", text]).env("PYTHONPATH", &stage.drivers.libraries);
        let lines = lines(&mut command);
        let words = lines.iter().flat_map(|line| line.split(['|', ' ']));
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    });
    let has = |at: usize, words: &[&str]| {
        let all: Vec<&str> = said[at].iter().map(String::as_str).collect();
        assert!(
            words.iter().all(|word| all.contains(word)),
            "{words:?} in {all:?}"
        );
    };
    has(0, &["[applied]", "True"]);
    has(1, &["[applied]", "name", "owner", "False", "shell", "ann"]);
    has(2, &["owner", "ann", "(1", "rows)"]);
    has(3, &["[applied]", "owner", "False", "ann"]);
    has(4, &["[applied]", "True"]);
}

const LEASE: Duration = Duration::from_secs(2);

/// The counts and findings of clients.
#[derive(Default)]
struct Seen {
    over: AtomicBool,
    grants: AtomicU64,
    /// The certain holder of each lock, counted from 1.
    holders: [AtomicUsize; 2],
}

/// Takes, holds, renews and gives locks by one proxy after the other until it is stopped.
fn use_locks(owner: usize, proxies: &[SocketAddr], seen: &Seen) {
    let mut random = fastrand::Rng::with_seed(owner as u64);
    let version = [Version::V4, Version::V5][owner % 2];
    let (mut at, name) = (owner, format!("owner{owner}"));
    'connect: while !seen.over.load(Ordering::SeqCst) {
        at += 1;
        std::thread::sleep(Duration::from_millis(10));
        let Ok(mut connection) = Connection::open(proxies[at % proxies.len()], version) else {
            continue;
        };
        let texts = [
            "INSERT INTO shared.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 2",
            "DELETE FROM shared.locks WHERE name = ? IF owner = ?",
        ];
        let [Ok(Ok(take)), Ok(Ok(give))] = texts.map(|text| connection.prepare(text)) else {
            continue;
        };
        while !seen.over.load(Ordering::SeqCst) {
            let place = random.usize(..seen.holders.len());
            let (lock, sent) = (format!("lock{place}"), Instant::now());
            let values = [lock.as_bytes(), name.as_bytes()];
            let Ok(told) = connection.execute(&take, &values) else {
                continue 'connect;
            };
            if told.applied() != Some(true) {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let holder = &seen.holders[place];
            let before = holder.swap(owner + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(random.u64(1..10)));
            let after = holder.swap(0, Ordering::SeqCst);
            // A client that was stopped for longer than its lease does not know whether it held the
            // lock.
            if sent.elapsed() < LEASE {
                assert_eq!((before, after), (0, owner + 1), "two holders of {lock}");
                seen.grants.fetch_add(1, Ordering::SeqCst);
            }
            // Some forget to give it back.
            if random.u8(..20) > 0 && connection.execute(&give, &values).is_err() {
                continue 'connect;
            }
        }
    }
}

#[test]
fn no_lock_has_two_holders_whichever_proxy_dies() {
    let Some(stage) = Stage::set() else {
        return;
    };
    let replicas = Replicas::start(1, 3);
    let file = replicas.file();
    let mut proxies: Vec<Option<Server>> = (0..2)
        .map(|_| Some(stage.proxy("shared.locks", &["--lock-cluster", &file])))
        .collect();
    let addresses: Vec<SocketAddr> = proxies.iter().flatten().map(|one| one.address).collect();
    let mut connection = make(addresses[0], "shared");
    let long =
        "INSERT INTO shared.locks (name, owner) VALUES ('long', 'ann') IF NOT EXISTS USING TTL 600";
    eventually("a grant", || {
        ask(&mut connection, long).applied() == Some(true)
    });
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&seen.over);
        let clients: Vec<_> = (0..6)
            .map(|owner| {
                let (seen, addresses) = (&seen, &addresses);
                scope.spawn(move || use_locks(owner, addresses, seen))
            })
            .collect();
        let some_more = || {
            let enough = seen.grants.load(Ordering::SeqCst) + 40;
            go_on_until(|| seen.grants.load(Ordering::SeqCst) >= enough);
            assert!(
                seen.grants.load(Ordering::SeqCst) >= enough,
                "nothing is granted"
            );
        };
        some_more();
        proxies[0].take().expect("it runs").kill();
        some_more();
        seen.over.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().expect("it never shares a lock");
        }
    });
    // A lock that the dead proxy granted is held, and its holder continues with another proxy.
    let mut connection = Connection::open(addresses[1], Version::V4).expect("it listens");
    assert_eq!(ask(&mut connection, long).applied(), Some(false));
    let give = "DELETE FROM shared.locks WHERE name = 'long' IF owner = 'ann'";
    assert_eq!(ask(&mut connection, give).applied(), Some(true));
    drop(proxies);
    stage.node.leave();
}

#[test]
fn a_table_in_memory_wants_leases_and_settles_after_a_crash() {
    let Some(stage) = Stage::set() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().display().to_string();
    let options = ["--locks", "memory", "--data", &data, "--max-lease", "3s"];
    let proxy = stage.proxy("kept.locks", &options);
    let mut connection = make(proxy.address, "kept");
    let take = "INSERT INTO kept.locks (name, owner) VALUES ('a', 'ann') IF NOT EXISTS";
    let told = ask(&mut connection, take);
    assert_eq!(told.code(), INVALID, "{told:?}");
    assert!(told.words().contains("without a lease"), "{told:?}");
    let told = ask(&mut connection, &format!("{take} USING TTL 4"));
    assert_eq!(told.code(), INVALID, "longer than --max-lease: {told:?}");
    let leased = format!("{take} USING TTL 3");
    assert_eq!(ask(&mut connection, &leased).applied(), Some(true));
    let taken = Instant::now();
    proxy.kill();
    let proxy = stage.proxy("kept.locks", &options);
    let mut connection = Connection::open(proxy.address, Version::V4).expect("it listens");
    let told = ask(&mut connection, &leased);
    if taken.elapsed() < Duration::from_secs(3) {
        assert_eq!(told.code(), cql::response::UNAVAILABLE, "{told:?}");
    }
    eventually("a grant", || {
        ask(&mut connection, &leased).applied() == Some(true)
    });
    assert!(taken.elapsed() >= Duration::from_secs(3));
    assert!(proxy.terminate().success());
    stage.node.leave();
}
