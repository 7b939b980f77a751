//! The same over RDMA: recorded histories of writers and readers are read atomic and fresh, whether
//! they send requests or read memory; a killed node is noticed at once; and the region of a stopped
//! node is not believed for long.
//!
//! These need an RDMA device. `cargo xtask rdma` runs them in a machine that has one, where a missing
//! one is a failure, and where time is emulated: rounds are few, and patience is long.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ::client::{Algorithm, Client, Error, Transport, VerbsOptions, WriteCoordinator};
use fabric::verbs::Device;
use history::{Outcome, Recorder, check};

use crate::read_atomic::{TOP, connect_with, figure, whole};
use crate::support::cluster::{Cluster, Keeping};

/// Set where a missing device is a failure.
const REQUIRE: &str = "KUMIKI_REQUIRE_RDMA";
const NODES: usize = 3;
/// One key of a slot of each node, in their order.
const KEYS: [&str; NODES] = ["ra:y", "ra:x", "ra:z"];
const TIME: Duration = Duration::from_secs(8);
/// The most histories that are made until enough was seen.
const HISTORIES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns `true` if there is a device; prints a message if not.
fn has_device() -> bool {
    match Device::open(&VerbsOptions::default()) {
        Ok(_) => true,
        Err(error) if std::env::var_os(REQUIRE).is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

/// How clients reach the nodes.
#[derive(Clone, Copy)]
struct AccessMode {
    transport: Transport,
    one_sided: bool,
    writes: WriteCoordinator,
}

/// Messages through rings; nodes coordinate writes.
const RINGS: AccessMode = AccessMode {
    transport: Transport::Verbs,
    one_sided: false,
    writes: WriteCoordinator::Node,
};
/// The same, and reads in memory.
const ONE_SIDED: AccessMode = AccessMode {
    one_sided: true,
    ..RINGS
};
/// Messages by Send and Receive; nodes coordinate writes.
const SEND: AccessMode = AccessMode {
    transport: Transport::VerbsSend,
    ..RINGS
};

impl AccessMode {
    /// Returns the same, with writes that clients coordinate: the paper's PUT+.
    fn with_own_writes(self) -> AccessMode {
        AccessMode {
            writes: WriteCoordinator::Client,
            ..self
        }
    }
}

fn start(transport: &str) -> Cluster {
    let further = ["--transport", transport, "--published", "4mb"];
    Cluster::start_with(NODES, Keeping::Nothing, TOP, &further)
}

fn connect(cluster: &Cluster, way: AccessMode) -> Client {
    connect_with(cluster.fabrics(), |options| {
        options.transport = way.transport;
        options.one_sided = way.one_sided;
        options.writes = way.writes;
        options.timeout = PATIENCE;
        options.connect_within = PATIENCE / 4;
        options.answer_within = PATIENCE / 2;
    })
}

fn keys() -> [&'static [u8]; NODES] {
    KEYS.map(str::as_bytes)
}

fn put(client: &Client, value: i64) {
    let text = value.to_string();
    let pairs = keys().map(|key| (key, Some(text.as_bytes())));
    client
        .put_all(&pairs, Algorithm::Fast)
        .expect("it is written");
}

fn get(client: &Client, keys: &[&[u8]]) -> Result<Vec<Option<i64>>, Error> {
    let values = client.get_all(keys, Algorithm::Fast)?;
    let number = |value: Vec<u8>| String::from_utf8(value).ok()?.parse().ok();
    let read = |value: Option<Vec<u8>>| value.map(|value| number(value).expect("a number"));
    Ok(values.into_iter().map(read).collect())
}

/// The state that clients of a run share.
struct Run {
    /// The keys of this run alone.
    keys: [String; 6],
    recorder: Recorder,
    values: AtomicI64,
    until: Instant,
}

impl Run {
    fn bytes(&self) -> [&[u8]; 6] {
        self.keys.each_ref().map(String::as_bytes)
    }

    /// Writes all keys, or one of them, until the time is up.
    fn write(&self, client: &Client) {
        let mut log = self.recorder.process();
        let mut random = fastrand::Rng::with_seed(log.process().into());
        while Instant::now() < self.until {
            let value = self.values.fetch_add(1, Ordering::Relaxed);
            let written = match random.u8(..4) {
                0 => std::slice::from_ref(random.choice(&self.keys).expect("there are some")),
                _ => &self.keys[..],
            };
            let text = value.to_string();
            let pairs = written
                .iter()
                .map(|key| (key.as_bytes(), Some(text.as_bytes())));
            let pairs: Vec<_> = pairs.collect();
            let mut entry = log.begin();
            let done = client.put_all(&pairs, Algorithm::Fast);
            done.expect("it is written");
            written.iter().for_each(|key| entry.write(key, value, None));
            entry.end(Outcome::Committed);
            // Readers find keys that no client is writing.
            std::thread::sleep(Duration::from_millis(random.u64(..60)));
        }
    }

    /// Reads all keys until the time is up.
    fn read(&self, client: &Client) {
        let mut log = self.recorder.process();
        while Instant::now() < self.until {
            let mut entry = log.begin();
            let values = get(client, &self.bytes()).expect("they are read");
            for (key, value) in self.keys.iter().zip(values) {
                entry.read(key, value, None);
            }
            entry.end(Outcome::Committed);
        }
    }
}

/// Makes histories, and checks them, until they contain enough. Returns the number of keys that
/// were read in memory.
fn judge(cluster: &Cluster, name: &str, way: AccessMode) -> u64 {
    let (mut count, mut in_memory) = (0, 0);
    for history in 0..HISTORIES {
        let seen = judge_one(cluster, &format!("{name}{history}-"), way);
        count += seen.0;
        in_memory += seen.1;
        if count > 50 && (in_memory > 50 || !way.one_sided) {
            break;
        }
    }
    assert!(count > 50, "only {count} transactions");
    in_memory
}

/// Records writers and readers, and checks their history. Returns the number of transactions, and
/// the number of keys that were read in memory.
fn judge_one(cluster: &Cluster, name: &str, way: AccessMode) -> (usize, u64) {
    let clients = [(); 4].map(|()| connect(cluster, way));
    let run = Run {
        keys: [0, 1, 2, 3, 4, 5].map(|key| format!("ra:{name}{key}")),
        recorder: Recorder::new(),
        values: AtomicI64::new(1),
        until: Instant::now() + TIME,
    };
    std::thread::scope(|scope| {
        let run = &run;
        let (writers, readers) = clients.split_at(2);
        for client in writers {
            scope.spawn(move || run.write(client));
        }
        for client in readers {
            scope.spawn(move || run.read(client));
        }
    });
    let history = run.recorder.finish();
    let count = history.transactions.len();
    let in_memory: u64 = clients.iter().map(|one| one.read_counts().in_memory).sum();
    println!("{name}: {count} transactions, {in_memory} keys read in memory");
    let verdict = check::strictly_read_atomic(&history);
    assert!(verdict.is_accepted(), "{verdict}");
    (count, in_memory)
}

#[test]
fn what_is_seen_over_verbs_is_read_atomic_and_fresh() {
    if !has_device() {
        return;
    }
    let cluster = start("verbs");
    assert_eq!(judge(&cluster, "asked", RINGS), 0);
    let in_memory = judge(&cluster, "memory", ONE_SIDED);
    assert!(in_memory > 50, "only {in_memory} keys were read in memory");
    for node in 0..NODES {
        let links = figure(cluster.address(node), "cluster_links_through_memory");
        assert!(links > 0, "node {node} has no link through memory");
    }
}

/// PUT+ of paper 1: clients prepare and commit their writes, through rings that devices write, and find
/// what they and others have written in memory.
#[test]
fn writes_that_clients_coordinate_over_verbs_are_read_atomic() {
    if !has_device() {
        return;
    }
    let cluster = start("verbs");
    assert_eq!(judge(&cluster, "put", RINGS.with_own_writes()), 0);
    let in_memory = judge(&cluster, "put-memory", ONE_SIDED.with_own_writes());
    assert!(in_memory > 50, "only {in_memory} keys were read in memory");
}

/// Nodes and clients exchange all messages by Send and Receive.
#[test]
fn what_is_seen_by_send_and_receive_of_verbs_is_read_atomic() {
    if !has_device() {
        return;
    }
    let cluster = start("verbs-send");
    assert_eq!(judge(&cluster, "send", SEND), 0);
    assert_eq!(judge(&cluster, "send-put", SEND.with_own_writes()), 0);
    for node in 0..NODES {
        let links = figure(cluster.address(node), "cluster_links_send_receive");
        assert!(links > 0, "node {node} has no link by Send and Receive");
    }
    // Others reach the same nodes in other ways.
    for way in [RINGS, ONE_SIDED] {
        let client = connect(&cluster, way);
        put(&client, 7);
        assert_eq!(whole(&get(&client, &keys()).unwrap()), Some(7));
    }
}

/// A node that is killed does not hold up others, and is reached again by Send and Receive.
#[test]
fn a_killed_node_is_reached_again_by_send_and_receive() {
    if !has_device() {
        return;
    }
    let mut cluster = start("verbs-send");
    let client = connect(&cluster, SEND.with_own_writes());
    put(&client, 1);
    assert_eq!(whole(&get(&client, &keys()).unwrap()), Some(1));
    cluster.kill_node(1);
    assert_eq!(get(&client, &keys()[..1]).unwrap(), [Some(1)]);
    cluster.start_node(1).unwrap();
    assert_eq!(get(&client, &keys()).unwrap(), [Some(1), None, Some(1)]);
    put(&client, 2);
    assert_eq!(whole(&get(&client, &keys()).unwrap()), Some(2));
}

#[test]
fn a_killed_node_is_noticed_at_once_and_read_anew() {
    if !has_device() {
        return;
    }
    let mut cluster = start("verbs");
    let client = connect(&cluster, ONE_SIDED);
    // Its device takes much longer to give a peer up than the call has time.
    let hasty = connect_with(cluster.fabrics(), |options| {
        options.transport = Transport::Verbs;
        (options.timeout, options.connect_within) = (PATIENCE / 6, PATIENCE / 6);
        options.rdma.dead_after = PATIENCE * 2;
    });
    put(&client, 1);
    for client in [&client, &hasty] {
        for _ in 0..3 {
            assert_eq!(whole(&get(client, &keys()).unwrap()), Some(1));
        }
        assert!(client.read_counts().in_memory > 0, "nothing is published");
    }
    cluster.kill_node(1);
    let begun = Instant::now();
    let killed = get(&hasty, &keys()[1..2]);
    assert!(killed.is_err(), "a dead node has answered: {killed:?}");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert_eq!(get(&client, &keys()[..1]).unwrap(), [Some(1)]);
    cluster.start_node(1).unwrap();
    // The restarted node has kept nothing, and its former region is not taken for its data.
    assert_eq!(get(&client, &keys()).unwrap(), [Some(1), None, Some(1)]);
    put(&client, 2);
    let before = client.read_counts().in_memory;
    for _ in 0..3 {
        assert_eq!(whole(&get(&client, &keys()).unwrap()), Some(2));
    }
    let after = client.read_counts().in_memory;
    assert!(after >= before + NODES as u64, "it is not read anew");
}

#[test]
fn a_stopped_node_s_memory_is_not_believed_after_its_lease() {
    if !has_device() {
        return;
    }
    let cluster = start("verbs");
    let reader = connect(&cluster, ONE_SIDED);
    put(&reader, 1);
    for _ in 0..3 {
        assert_eq!(whole(&get(&reader, &keys()).unwrap()), Some(1));
    }
    let counts = reader.read_counts();
    assert!(counts.in_memory > 0, "nothing is published");
    cluster.pause_node(0);
    // A lease lasts a second; the device serves the memory as long as it exists.
    std::thread::sleep(Duration::from_secs(3));
    let read = std::thread::scope(|scope| {
        let read = scope.spawn(|| get(&reader, &keys()[..1]));
        std::thread::sleep(Duration::from_secs(2));
        assert!(
            !read.is_finished(),
            "it has believed what no server vouches for"
        );
        assert_eq!(reader.read_counts().in_memory, counts.in_memory);
        cluster.resume_node(0);
        read.join().expect("it reads")
    });
    assert_eq!(read.unwrap(), [Some(1)]);
    // The other nodes' leases have gone on.
    assert_eq!(whole(&get(&reader, &keys()).unwrap()), Some(1));
}

/// The machine may have a library, but none with this name.
#[test]
fn a_client_without_a_device_is_told_what_to_do() {
    let cluster = Cluster::start_with(1, Keeping::Nothing, TOP, &[]);
    let connect = |transport| {
        let mut options = ::client::Options::new("");
        options.transport = transport;
        options.rdma.library = "libkumiki-none.so.1".to_owned();
        Client::connect(cluster.fabrics(), options)
    };
    for transport in [Transport::Verbs, Transport::VerbsSend] {
        let error = connect(transport).expect_err("there is no device");
        let text = error.to_string();
        assert!(
            text.contains("libibverbs") && text.contains("install"),
            "{text}"
        );
    }
    assert!(connect(Transport::Auto).is_ok(), "there are other ways");
}
