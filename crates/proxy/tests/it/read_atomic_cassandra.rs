//! Read-atomic transactions before three real Cassandra nodes, while proxies and nodes are killed: a
//! checker judges what clients saw, transactions of dead proxies are completed, and records are removed.
//!
//! `cargo xtask peers cassandra` installs Cassandra. Without it the test says so and passes; with
//! `KUMIKI_REQUIRE_PEERS=1` it fails. The test takes about six minutes, so that it runs in the nightly run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cassandra::{CassandraNodes, ConnectionError, CqlConnection, Installed, Options};
use cql::{Bound, Consistency, ResultBody, ValueList, Version};
use history::{History, HistoryOp, Key, Outcome, RecordedTransaction, Recorder, check};
use kumiki_proxy::{Config, NodeAddress, Nodes};
use testkit::own_process::test_as_process;
use testkit::peers::{self, Group};
use testkit::wait::go_on_until;

/// The variables of a process that plays a proxy: the nodes, and the address on which it listens.
const NODES: &str = "KUMIKI_TEST_PROXY_NODES";
const LISTEN: &str = "KUMIKI_TEST_PROXY_LISTEN";
const TABLE: &str = "app.posts";
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const CLIENTS: usize = 6;
/// Transactions that there must be between two events.
const ENOUGH: u64 = 100;
/// All clients begin their transactions at multiples of this time, and so at the same moment. The nodes are
/// to keep some thousand records, and not as many as their machine allows.
const BEAT: Duration = Duration::from_millis(200);
/// How long all records may take to be removed after the load. Those of a proxy that died are completed
/// when they are 90 s old, and removed a minute later.
const LONGEST: Duration = Duration::from_secs(400);

/// A proxy in a process of its own. It is killed when this is dropped.
struct ProxyProcess {
    child: Child,
    address: SocketAddr,
}

impl ProxyProcess {
    fn start(address: SocketAddr, nodes: &[SocketAddr]) -> ProxyProcess {
        let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        let mut command = test_as_process(module_path!(), "plays_a_proxy_if_it_has_nodes");
        command.env(NODES, nodes.join(","));
        command.env(LISTEN, address.to_string());
        let child = command.stdout(Stdio::null()).spawn().expect("it starts");
        let proxy = ProxyProcess { child, address };
        testkit::eventually("the proxy writes", || {
            let connection = CqlConnection::connect(address, Version::V4);
            let text = "DELETE FROM app.notes WHERE k = 'start'";
            connection.is_ok_and(|mut it| it.query(text, Consistency::Quorum).is_ok())
        });
        proxy
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it has ended");
    }
}

#[test]
fn plays_a_proxy_if_it_has_nodes() {
    let (Ok(nodes), Ok(listen)) = (std::env::var(NODES), std::env::var(LISTEN)) else {
        return;
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let nodes = nodes.split(',').map(|node| {
        let address: SocketAddr = node.parse().expect("an address");
        NodeAddress::from(address)
    });
    let mut config = Config::new(Nodes::Cassandra(nodes.collect()));
    config.listen = listen.parse().expect("an address");
    let tables = [TABLE, "app.notes", "app.pairs"];
    config.read_atomic = tables.map(|table| table.parse().expect("a table")).to_vec();
    config.timeout = Duration::from_secs(3);
    let running = kumiki_proxy::start(&config).expect("it starts");
    running.wait().expect("it runs until it is killed");
}

/// Runs the program with the Python driver on a proxy.
fn python_driver(address: SocketAddr) {
    let Some(python) = peers::program(Group::Cassandra, "python3") else {
        return;
    };
    let Some(driver) = peers::installed(Group::Cassandra, "python/cassandra") else {
        return;
    };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/read_atomic.py");
    for version in ["4", "5"] {
        let mut command = Command::new("timeout");
        command.arg("300").arg(&python).arg(program);
        command.args([
            &address.ip().to_string(),
            &address.port().to_string(),
            version,
        ]);
        command.env("PYTHONPATH", driver.parent().expect("a folder"));
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "version {version}: {text}");
        assert!(
            text.contains("all steps are done"),
            "version {version}: {text}"
        );
    }
}

/// The counts of the load.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    values: AtomicI64,
    good: AtomicU64,
    failed: AtomicU64,
}

/// The statements of a client on its connection.
struct Client {
    connection: CqlConnection,
    write: cassandra::PreparedStatement,
    read: cassandra::PreparedStatement,
}

impl Client {
    fn connect(address: SocketAddr, version: Version) -> Result<Client, ConnectionError> {
        let mut connection = CqlConnection::connect(address, version)?;
        let insert = format!("INSERT INTO {TABLE} (k, v) VALUES (?, ?); ");
        Ok(Client {
            write: connection.prepare(&format!("BEGIN BATCH {} APPLY BATCH", insert.repeat(3)))?,
            read: connection.prepare(&format!(
                "SELECT k, v, kumiki_txn FROM {TABLE} WHERE k IN ?"
            ))?,
            connection,
        })
    }
}

/// Returns the value that an INSERT binds to `IN ?`.
fn list(keys: &[&str]) -> Vec<u8> {
    let mut bytes = (keys.len() as i32).to_be_bytes().to_vec();
    for key in keys {
        bytes.extend((key.len() as i32).to_be_bytes());
        bytes.extend(key.as_bytes());
    }
    bytes
}

/// A row that was read: key, value, and the id of the transaction that wrote it.
type Found = (String, i64, u64);

fn found(body: &ResultBody<'_>) -> Vec<Found> {
    let ResultBody::Rows(rows) = body else {
        panic!("{body:?}");
    };
    let one = |row: Vec<Option<&[u8]>>| {
        let [key, value, tag] = row[..] else {
            panic!("{row:?}");
        };
        let long = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().expect("8 bytes"));
        let key = String::from_utf8(key.expect("a key").to_vec()).expect("text");
        let tag = tag.expect("a tag");
        (key, long(value.expect("a value")), long(&tag[1..9]) as u64)
    };
    rows.iter().map(one).collect()
}

/// Writes and reads three keys at a time, at first through `proxies[number]`.
fn load(proxies: &[SocketAddr], number: usize, load: &Load, recorder: &Recorder) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut log = recorder.process();
    let mut client: Option<Client> = None;
    let mut turn = number;
    while !load.over.load(Ordering::Relaxed) {
        let Some(Client {
            connection,
            write,
            read,
        }) = &mut client
        else {
            turn += 1;
            let version = [Version::V4, Version::V5][turn / 2 % 2];
            client = Client::connect(proxies[turn % proxies.len()], version).ok();
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut keys = KEYS.to_vec();
        random.shuffle(&mut keys);
        keys.truncate(3);
        let mut values = ValueList::new();
        let mut entry = log.begin();
        let outcome = if random.bool() {
            values.push(Bound::Bytes(&list(&keys)));
            let rows = connection.execute(read, &values, Consistency::Quorum, |body| {
                Ok::<_, ConnectionError>(found(&body))
            });
            if let Ok(rows) = &rows {
                for key in keys {
                    let row = rows.iter().find(|(found, ..)| found == key);
                    entry.read(key, row.map(|row| row.1), row.map(|row| row.2));
                }
            }
            rows.map(drop)
        } else {
            for key in &keys {
                let value = load.values.fetch_add(1, Ordering::Relaxed) + 1;
                values.push(Bound::Bytes(key.as_bytes()));
                values.push(Bound::Bytes(&value.to_be_bytes()));
                entry.write(key, value, None);
            }
            connection.execute(write, &values, Consistency::Quorum, |_| {
                Ok::<_, ConnectionError>(())
            })
        };
        match outcome {
            Ok(()) => {
                load.good.fetch_add(1, Ordering::Relaxed);
                entry.end(Outcome::Committed);
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.expect("it is after 1970").as_micros();
                let after = BEAT.as_micros() - now % BEAT.as_micros();
                std::thread::sleep(Duration::from_micros(after as u64));
            }
            Err(error) => {
                println!("client {number}: {error}");
                load.failed.fetch_add(1, Ordering::Relaxed);
                entry.end(Outcome::Unknown);
                // The client does not look if its connection is still good.
                client = None;
            }
        }
    }
}

/// Waits until the load has gone on for a while.
fn go_on(load: &Load) {
    let good = load.good.load(Ordering::Relaxed);
    let is_enough = || load.good.load(Ordering::Relaxed) >= good + ENOUGH;
    go_on_until(is_enough);
    assert!(is_enough(), "{good} and {:?}", load.good);
}

fn create(address: SocketAddr) {
    let mut connection = CqlConnection::connect(address, Version::V4).expect("it answers");
    for text in [
        "CREATE KEYSPACE app WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
        "CREATE TABLE app.posts (k text PRIMARY KEY, v bigint, kumiki_txn blob)",
        "CREATE TABLE app.notes (k text PRIMARY KEY, v bigint, kumiki_txn blob)",
        "CREATE TABLE app.pairs (p text, c text, v bigint, kumiki_txn blob, PRIMARY KEY (p, c))",
        "CREATE TABLE app.kumiki_transactions (owner bigint, bucket bigint, id bigint, writes blob, \
         PRIMARY KEY ((owner, bucket), id)) WITH gc_grace_seconds = 3600",
    ] {
        connection.query(text, Consistency::Quorum).expect(text);
    }
}

/// Returns the number of records for each owner, and the age of the oldest.
fn records(address: SocketAddr) -> Result<BTreeMap<i64, (usize, Duration)>, ConnectionError> {
    let mut connection = CqlConnection::connect(address, Version::V4)?;
    let all = connection.prepare("SELECT owner, bucket, id FROM app.kumiki_transactions")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("it is after 1970");
    connection.execute(&all, &ValueList::new(), Consistency::Quorum, |body| {
        let ResultBody::Rows(rows) = &body else {
            panic!("{body:?}");
        };
        let mut found = BTreeMap::new();
        for row in rows.iter() {
            let number = |at: usize| {
                i64::from_be_bytes(row[at].expect("a key").try_into().expect("8 bytes"))
            };
            // The others are leases.
            if number(1) >= 0 {
                let age = now.saturating_sub(Duration::from_micros(number(2).cast_unsigned()));
                let (count, oldest) = found.entry(number(0)).or_default();
                *count += 1;
                *oldest = age.max(*oldest);
            }
        }
        Ok::<_, ConnectionError>(found)
    })
}

/// Waits until there are no records.
fn wait_for_removal(address: SocketAddr) {
    let begin = Instant::now();
    loop {
        let left = records(address);
        println!("{:.0?} after the load: {left:?}", begin.elapsed());
        if left.as_ref().is_ok_and(BTreeMap::is_empty) {
            return;
        }
        assert!(begin.elapsed() < LONGEST, "records are left: {left:?}");
        std::thread::sleep(Duration::from_secs(5));
    }
}

/// Returns the rows of all keys as the nodes have them.
fn rows_at_the_nodes(address: SocketAddr) -> Result<Vec<Found>, ConnectionError> {
    let mut connection = CqlConnection::connect(address, Version::V4)?;
    let all = connection.prepare(&format!("SELECT k, v, kumiki_txn FROM {TABLE}"))?;
    connection.execute(&all, &ValueList::new(), Consistency::Quorum, |body| {
        Ok::<_, ConnectionError>(found(&body))
    })
}

/// Adds a transaction to a history that reads these rows at its end.
fn read_at_the_end(history: &History, rows: &[Found]) -> History {
    let mut history = history.clone();
    let key = |name: &str| {
        let mut keys = (0..history.names() as u32).map(Key);
        keys.find(|key| history.name(*key) == name)
            .expect("a key of the history")
    };
    let ops = rows.iter().map(|(name, value, version)| HistoryOp::Read {
        key: key(name),
        value: Some(*value),
        version: Some(*version),
    });
    let all = history.transactions.iter();
    let (id, end) = all.fold((0, 0), |(id, end), it| (it.id.max(id), it.end.max(end)));
    let read = RecordedTransaction {
        process: u32::MAX,
        id: id + 1,
        start: end + 1,
        end: end + 2,
        outcome: Outcome::Committed,
        ops: ops.collect(),
    };
    history.transactions.push(read);
    history
}

#[test]
fn no_read_is_fractured_while_proxies_and_nodes_die() {
    if peers::installed(Group::Cassandra, "cassandra/lib").is_none() {
        return;
    }
    let installed = Installed::find(&peers::root()).expect("its jars are there");
    let options = Options::new(installed, 3).anywhere();
    let mut nodes = CassandraNodes::start(&options).expect("they start");
    let seeds = nodes.addresses();
    create(seeds[0]);
    let places: Vec<SocketAddr> = (0..2)
        .map(|_| testkit::free_address().expect("a free port"))
        .collect();
    let mut proxies: Vec<ProxyProcess> = places
        .iter()
        .map(|place| ProxyProcess::start(*place, &seeds))
        .collect();
    python_driver(proxies[0].address);
    let (recorder, counts) = (Recorder::new(), Load::default());
    std::thread::scope(|scope| {
        let over = testkit::SetOnDrop(&counts.over);
        for number in 0..CLIENTS {
            let (places, counts, recorder) = (&places, &counts, &recorder);
            scope.spawn(move || load(places, number, counts, recorder));
        }
        go_on(&counts);
        for (round, place) in places.iter().enumerate() {
            println!("round {round}: {:?} transactions", counts.good);
            // Its transactions under way are left to the other proxy.
            drop(proxies.remove(round));
            go_on(&counts);
            nodes.kill(round).expect("it is killed");
            go_on(&counts);
            proxies.insert(round, ProxyProcess::start(*place, &seeds));
            go_on(&counts);
            nodes.restart(round).expect("it starts again");
            go_on(&counts);
        }
        drop(over);
    });
    println!("{:?} transactions, {:?} failed", counts.good, counts.failed);
    let history = recorder.finish();
    let verdict = check::read_atomic(&history);
    assert!(verdict.is_accepted(), "{verdict:?}");
    // The dead proxies' transactions are completed, and in the end all records are removed.
    wait_for_removal(seeds[0]);
    let rows = rows_at_the_nodes(seeds[0]).expect("they answer");
    assert_eq!(rows.len(), KEYS.len());
    let verdict = check::read_atomic(&read_at_the_end(&history, &rows));
    assert!(
        verdict.is_accepted(),
        "with the rows at the end: {verdict:?}"
    );
    drop(proxies);
    nodes.stop().expect("they end in good order");
}
