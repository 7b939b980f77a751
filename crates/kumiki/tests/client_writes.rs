//! Writes of read-atomic keys that clients coordinate, against servers of a cluster: clients die between any
//! two of their messages, and recorded histories are judged. Messages travel over TCP, by Send and Receive, and
//! in a machine with an RDMA device (`cargo xtask rdma`) through rings that it writes, and by its Sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base::{NodeId, Op, PartitionId, TransactionId};
use client::{Algorithm, Client, Options, WriteCoordinator};
use cluster::clock::HybridClock;
use cluster::message::{Answer, Message, Notice};
use cluster::ramp::{ReadAtomicWrite, WriteStep};
use cluster::{CoordinatorKey, Timeouts, Topology, codec};
use fabric::Secret;
use fabric::tcp::{Caller, CallerOptions, Encryption, Transport};
use fabric::verbs::{Device, Domain, VerbsOptions};
use history::recorder::HistoryLog;
use history::{Outcome, Recorder, check};
use server::{Config, Membership, Running, serve};
use store::Db;
use testkit::cluster_file::{NodeAddresses, describe};

const SECRET: &str = "of the tests, long enough";
const NODES: u16 = 3;
const THREADS: usize = 2;
/// The greatest time of any step: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Servers in this process, nodes of one cluster that keep data on disk.
struct Cluster {
    topology: Arc<Topology>,
    nodes: Vec<(Db, Running, tempfile::TempDir)>,
    transport: Transport,
    verbs: Option<Domain>,
}

impl Cluster {
    fn start() -> Cluster {
        Cluster::over(Transport::Tcp, None)
    }

    /// Starts one whose messages travel through an RDMA device. Prints a line and returns `None` if there is
    /// no device and none is required.
    fn over_device(transport: Transport) -> Option<Cluster> {
        match Device::open(&VerbsOptions::default()) {
            Ok(device) => Some(Cluster::over(transport, Some(device.domain().unwrap()))),
            Err(error) if std::env::var_os("KUMIKI_REQUIRE_RDMA").is_some() => panic!("{error}"),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    fn over(transport: Transport, verbs: Option<Domain>) -> Cluster {
        let addresses = NodeAddresses::free(NODES.into(), false);
        let nodes = describe(&addresses, 1);
        let text = format!("secret = \"{SECRET}\"\nread_atomic = [\"ra:\"]\n{nodes}");
        let topology = Arc::new(Topology::parse(&text, "the test's file").unwrap());
        let nodes = (1..=NODES).zip(&addresses);
        let nodes = nodes.map(|(node, addresses)| {
            let directory = tempfile::tempdir().unwrap();
            let db = Db::open(store::Options {
                workers: THREADS + 2,
                read_atomic: topology.read_atomic().clone(),
                ..store::Options::in_dir(directory.path())
            });
            let db = db.unwrap();
            let config = Config {
                listen: addresses.client,
                threads: THREADS,
                data: Some(directory.path().to_path_buf()),
                read_atomic: topology.read_atomic().clone(),
                cluster: Some(Membership {
                    topology: Arc::clone(&topology),
                    secrets: topology.link_secrets(),
                    node: NodeId(node),
                    listen: None,
                    timeouts: Timeouts {
                        doubt: Duration::from_millis(200),
                        ..Timeouts::default()
                    },
                    transport,
                    encryption: Encryption::Auto,
                    verbs: verbs.clone(),
                }),
                ..Config::default()
            };
            let running = serve(db.clone(), config).unwrap();
            (db, running, directory)
        });
        Cluster {
            nodes: nodes.collect(),
            topology: Arc::clone(&topology),
            transport,
            verbs: verbs.clone(),
        }
    }

    fn client(&self, writes: WriteCoordinator) -> Client {
        let mut options = Options {
            writes,
            transport: self.transport,
            ..Options::new(SECRET)
        };
        if self.verbs.is_some() {
            // The machine that has a device is emulated.
            options.timeout = PATIENCE * 3;
            (options.connect_within, options.answer_within) = (PATIENCE, PATIENCE);
        }
        let nodes = self.topology.nodes().iter();
        Client::connect(nodes.map(|node| node.fabric), options).unwrap()
    }

    /// Returns a key of each node.
    fn keys(&self, name: &str) -> Vec<String> {
        let key = |id: u16| {
            let mut names = (0..).map(|n: u32| format!("ra:{name}{n}"));
            let of = |key: &String| self.topology.partition_of(key.as_bytes()) == PartitionId(id);
            names.find(of).expect("each partition has slots")
        };
        (1..=NODES).map(key).collect()
    }

    fn stop(self) {
        for (db, running, _directory) in self.nodes {
            running.stopper().stop();
            running.wait().unwrap();
            db.close().unwrap();
        }
    }
}

/// A client that coordinates by hand, so that it can die after any message.
struct Mortal<'c> {
    cluster: &'c Cluster,
    key: CoordinatorKey,
    clock: HybridClock,
}

impl<'c> Mortal<'c> {
    fn new(cluster: &'c Cluster, number: u8) -> Mortal<'c> {
        Mortal {
            cluster,
            key: CoordinatorKey::new([number; CoordinatorKey::BYTES]),
            clock: HybridClock::default(),
        }
    }

    fn next_id(&mut self) -> TransactionId {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        TransactionId {
            timestamp: self.clock.next(now.unwrap().as_millis() as u64),
            unique: self.key.unique(),
        }
    }

    fn connect(&self, node: NodeId) -> Caller {
        let mut options = CallerOptions::new(Secret::new(SECRET));
        options.node = Some(node);
        options.transport = self.cluster.transport;
        options.verbs = self.cluster.verbs.clone();
        options.limits.handshake = PATIENCE;
        let mut caller = Caller::connect(self.address(node), &options).unwrap();
        self.say(&mut caller, &Message::Introduction(self.key));
        caller
    }

    fn address(&self, node: NodeId) -> std::net::SocketAddr {
        self.cluster.topology.node(node).unwrap().fabric
    }

    fn say(&self, caller: &mut Caller, message: &Message<'_>) {
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes);
        caller.send(&bytes, soon()).unwrap();
    }

    /// Writes values, and dies after this many messages, each of which is answered before the next one is
    /// sent. Returns `true` if the write has ended before.
    fn write(&mut self, pairs: &[(String, i64)], messages: usize) -> bool {
        let texts: Vec<String> = pairs.iter().map(|(_, value)| value.to_string()).collect();
        let ops: Vec<Op<'_>> = pairs
            .iter()
            .zip(&texts)
            .map(|((key, _), text)| Op::put(key.as_bytes(), text.as_bytes()))
            .collect();
        let topology = &self.cluster.topology;
        let mut left = messages;
        loop {
            let id = self.next_id();
            let mut write = ReadAtomicWrite::new(topology, id, Algorithm::Fast, &ops);
            let mut links: Vec<(PartitionId, Caller)> = write
                .participants()
                .map(|of| (of, self.connect(topology.node_of(of))))
                .collect();
            let mut step = WriteStep::NextStage;
            while step == WriteStep::NextStage {
                let stage = write.stage();
                let requests: Vec<_> = write.requests(&ops).collect();
                let requests: Vec<(PartitionId, Vec<u8>)> = requests
                    .into_iter()
                    .map(|(of, request)| {
                        let mut bytes = Vec::new();
                        codec::encode(&Message::Request { number: 1, request }, &mut bytes);
                        (of, bytes)
                    })
                    .collect();
                for (of, bytes) in requests {
                    if left == 0 {
                        return false;
                    }
                    left -= 1;
                    let (_, caller) = links.iter_mut().find(|(other, _)| *other == of).unwrap();
                    caller.send(&bytes, soon()).unwrap();
                    let Ok(Message::Reply { reply, .. }) =
                        codec::decode(caller.receive(soon()).unwrap())
                    else {
                        panic!("no reply");
                    };
                    match write.answered(stage, of, Ok(reply)) {
                        WriteStep::Wait => {}
                        next => step = next,
                    }
                }
            }
            match step {
                WriteStep::Done => return true,
                WriteStep::Failed(abort) => {
                    for of in write.prepared().collect::<Vec<_>>() {
                        let (_, caller) = links.iter_mut().find(|(other, _)| *other == of).unwrap();
                        self.say(caller, &Message::Notice(Notice::Abort { id }));
                    }
                    if let base::Abort::Overtaken { newest } = abort {
                        self.clock = HybridClock::after(newest.max(self.clock.last()));
                    }
                }
                step => panic!("{step:?} without a fault"),
            }
        }
    }
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn values(client: &Client, keys: &[String]) -> Vec<Option<String>> {
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    let values = client.get_all(&keys, Algorithm::Fast).unwrap().into_iter();
    let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
    values.map(|value| value.map(text)).collect()
}

#[test]
fn a_write_is_seen_everywhere_when_the_call_returns() {
    let cluster = Cluster::start();
    let [direct, by_node] =
        [WriteCoordinator::Client, WriteCoordinator::Node].map(|writes| cluster.client(writes));
    let keys = cluster.keys("seen");
    for round in 0..30 {
        let text = round.to_string();
        let writer = if round % 3 == 0 { &by_node } else { &direct };
        let pairs: Vec<(&[u8], Option<&[u8]>)> = keys
            .iter()
            .map(|key| (key.as_bytes(), (round % 7 < 6).then_some(text.as_bytes())))
            .collect();
        let algorithm = Algorithm::ALL[round % 3];
        writer.put_all(&pairs, algorithm).unwrap();
        for key in &keys {
            let expected = (round % 7 < 6).then(|| text.clone().into_bytes());
            assert_eq!(by_node.get(key.as_bytes()).unwrap(), expected);
        }
    }
    // One partition alone needs no coordinator.
    let alone = [(keys[0].as_bytes(), Some(&b"1"[..]))];
    direct.put_all(&alone, Algorithm::Fast).unwrap();
    // The limit of values is refused as it is by a node, and nothing is written.
    let key = vec![b'k'; 100_000];
    let key = [b"ra:", &key[..]].concat();
    let pairs: [(&[u8], Option<&[u8]>); 2] = [(&key, Some(b"2")), (keys[1].as_bytes(), Some(b"2"))];
    let said = [&direct, &by_node].map(|client| client.put_all(&pairs, Algorithm::Fast));
    let said = said.map(|outcome| outcome.map_err(|error| error.to_string()));
    assert_eq!(said[0], said[1]);
    drop((direct, by_node));
    cluster.stop();
}

#[test]
fn a_dead_clients_write_is_committed_if_all_had_prepared_and_else_aborted() {
    dead_clients(Cluster::start());
}

#[test]
fn dead_clients_by_send_and_receive() {
    dead_clients(Cluster::over(Transport::ShmSend, None));
}

#[test]
fn dead_clients_over_verbs() {
    for transport in [Transport::Verbs, Transport::VerbsSend] {
        if let Some(cluster) = Cluster::over_device(transport) {
            dead_clients(cluster);
        }
    }
}

/// Clients die after each number of messages.
fn dead_clients(cluster: Cluster) {
    let reader = cluster.client(WriteCoordinator::Node);
    for messages in 0..=6 {
        let keys = cluster.keys(&format!("dead{messages}-"));
        let pairs: Vec<(String, i64)> = keys.iter().map(|key| (key.clone(), 7)).collect();
        let has_ended = Mortal::new(&cluster, messages as u8).write(&pairs, messages);
        assert_eq!(has_ended, messages == 6);
        let expected = vec![(messages >= 3).then(|| "7".to_owned()); 3];
        // What is committed anywhere is seen at once; the home needs a while.
        let until = soon();
        while values(&reader, &keys) != expected {
            assert!(messages == 3 && Instant::now() < until, "after {messages}");
            thread::sleep(Duration::from_millis(20));
        }
        // It stays so, also for reads of one key.
        thread::sleep(Duration::from_millis(if messages < 3 { 700 } else { 0 }));
        assert_eq!(values(&reader, &keys), expected, "after {messages}");
        // Nothing is in the way of the next write.
        let client = cluster.client(WriteCoordinator::Client);
        let pairs: Vec<(&[u8], Option<&[u8]>)> = keys
            .iter()
            .map(|key| (key.as_bytes(), Some(&b"8"[..])))
            .collect();
        client.put_all(&pairs, Algorithm::Fast).unwrap();
        assert_eq!(values(&reader, &keys), vec![Some("8".to_owned()); 3]);
    }
    drop(reader);
    cluster.stop();
}

#[test]
fn a_client_cannot_touch_the_attempts_of_others() {
    let cluster = Cluster::start();
    let reader = cluster.client(WriteCoordinator::Node);
    let keys = cluster.keys("others");
    let ops: Vec<Op<'_>> = keys
        .iter()
        .map(|key| Op::put(key.as_bytes(), b"1"))
        .collect();
    let mut owner = Mortal::new(&cluster, 1);
    let thief = Mortal::new(&cluster, 2);
    let id = owner.next_id();
    let write = ReadAtomicWrite::new(&cluster.topology, id, Algorithm::Fast, &ops);
    for (of, request) in write.requests(&ops) {
        let node = cluster.topology.node_of(of);
        let mut stolen = thief.connect(node);
        let request_of_thief = request.clone();
        thief.say(
            &mut stolen,
            &Message::Request {
                number: 1,
                request: request_of_thief,
            },
        );
        assert!(stolen.receive(soon()).is_err(), "the link is closed");
        let mut own = owner.connect(node);
        owner.say(&mut own, &Message::Request { number: 1, request });
        let reply = codec::decode(own.receive(soon()).unwrap());
        let is_vote = matches!(
            reply,
            Ok(Message::Reply {
                reply: Answer::Replies(_),
                ..
            })
        );
        assert!(is_vote, "{reply:?}");
        for notice in [Notice::Abort { id }, Notice::Forget { id }] {
            let mut stolen = thief.connect(node);
            thief.say(&mut stolen, &Message::Notice(notice));
            assert!(stolen.receive(soon()).is_err(), "the link is closed");
        }
    }
    // All have prepared, so that the home commits.
    let until = soon();
    while values(&reader, &keys) != vec![Some("1".to_owned()); 3] {
        assert!(Instant::now() < until, "the attempt was aborted");
        thread::sleep(Duration::from_millis(20));
    }
    drop(reader);
    cluster.stop();
}

/// Keys that clients write and read together.
struct Shared {
    keys: Vec<String>,
    next: AtomicI64,
}

impl Shared {
    /// Draws two to four keys, and a new value for each.
    fn pairs(&self, random: &mut fastrand::Rng) -> Vec<(String, i64)> {
        let count = random.usize(2..=4);
        let keys = random.choose_multiple(&self.keys, count);
        let value = |key: &String| (key.clone(), self.next.fetch_add(1, Ordering::Relaxed));
        keys.into_iter().map(value).collect()
    }
}

/// Records a write; `write` says if it has taken effect, as far as is known.
fn record(log: &mut HistoryLog<'_>, pairs: &[(String, i64)], write: impl FnOnce() -> bool) {
    let mut entry = log.begin();
    let is_known = write();
    for (key, value) in pairs {
        entry.write(key, *value, None);
    }
    entry.end(match is_known {
        true => Outcome::Committed,
        false => Outcome::Unknown,
    });
}

#[test]
fn histories_with_clients_that_die_are_read_atomic() {
    histories(&Cluster::start());
}

#[test]
fn histories_by_send_and_receive_are_read_atomic() {
    histories(&Cluster::over(Transport::ShmSend, None));
}

#[test]
fn histories_over_verbs_are_read_atomic() {
    for transport in [Transport::Verbs, Transport::VerbsSend] {
        if let Some(cluster) = Cluster::over_device(transport) {
            histories(&cluster);
        }
    }
}

/// Records clients that write, die, and read, and judges their history.
fn histories(cluster: &Cluster) {
    let shared = &Shared {
        keys: [cluster.keys("a"), cluster.keys("b")].concat(),
        next: AtomicI64::new(1),
    };
    let recorder = Recorder::new();
    let time = Duration::from_secs(if cluster.verbs.is_some() { 20 } else { 4 });
    let until = Instant::now() + time;
    thread::scope(|scope| {
        for writes in [
            WriteCoordinator::Client,
            WriteCoordinator::Client,
            WriteCoordinator::Node,
        ] {
            let (mut log, client) = (recorder.process(), cluster.client(writes));
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(log.process().into());
                while Instant::now() < until {
                    let pairs = shared.pairs(&mut random);
                    let texts: Vec<String> =
                        pairs.iter().map(|(_, value)| value.to_string()).collect();
                    let written = pairs.iter().zip(&texts);
                    let written: Vec<(&[u8], Option<&[u8]>)> = written
                        .map(|((key, _), text)| (key.as_bytes(), Some(text.as_bytes())))
                        .collect();
                    let algorithm = Algorithm::ALL[random.usize(..3)];
                    record(&mut log, &pairs, || {
                        client.put_all(&written, algorithm).expect("it is written");
                        true
                    });
                }
            });
        }
        for _ in 0..2 {
            let recorder = &recorder;
            scope.spawn(move || {
                let mut log = recorder.process();
                let mut random = fastrand::Rng::with_seed(log.process().into());
                let mut mortal = Mortal::new(cluster, 100 + log.process() as u8);
                while Instant::now() < until {
                    let pairs = shared.pairs(&mut random);
                    let messages = random.usize(1..8);
                    record(&mut log, &pairs, || mortal.write(&pairs, messages));
                    // The client that comes after a dead one is another process.
                    log = recorder.process();
                }
            });
        }
        for _ in 0..2 {
            let (mut log, client) = (recorder.process(), cluster.client(WriteCoordinator::Node));
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(log.process().into());
                while Instant::now() < until {
                    let count = random.usize(1..=4);
                    let keys = random.choose_multiple(&shared.keys, count);
                    let keys: Vec<String> = keys.into_iter().cloned().collect();
                    let mut entry = log.begin();
                    for (key, value) in keys.iter().zip(values(&client, &keys)) {
                        entry.read(key, value.map(|text| text.parse().unwrap()), None);
                    }
                    entry.end(Outcome::Committed);
                }
            });
        }
    });
    let history = recorder.finish();
    let unknown = |one: &&history::RecordedTransaction| one.outcome == Outcome::Unknown;
    let unknown = history.transactions.iter().filter(unknown).count();
    assert!(unknown > 10, "only {unknown} clients have died");
    let verdict = check::strictly_read_atomic(&history);
    assert!(verdict.is_accepted(), "{verdict}");
}
