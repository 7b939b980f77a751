//! A real Redis Cluster: the proxy finds slots, and follows them when they move.

use std::time::Duration;

use cluster::slot;
use kumiki_proxy::UnknownOutcome;

use crate::redis::support::{Proxy, connect, redis_server};
use testkit::eventually;
use testkit::process::Redis;

/// A node that is not taken for dead because the host is busy: the cluster would be down for a moment,
/// and retried commands would not be executed in the order of the pipeline.
const NODE: [&str; 4] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "60000",
];

/// Starts three nodes that share the slots, without other tools.
pub(crate) fn cluster(program: &std::path::Path) -> Vec<Redis> {
    let nodes: Vec<Redis> = (0..3).map(|_| Redis::start(program, &NODE)).collect();
    for (index, node) in nodes.iter().enumerate() {
        let mut client = connect(node.address);
        let share = |index: usize| index * 16_384 / 3;
        let (first, last) = (share(index), share(index + 1) - 1);
        let told = client.told(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        assert_eq!(told, "+OK");
        let port = nodes[0].address.port();
        client.told(&format!("CLUSTER MEET 127.0.0.1 {port}"));
    }
    for node in &nodes {
        eventually("the cluster is made", || {
            let info = connect(node.address).told("CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        });
    }
    nodes
}

fn id(node: &Redis) -> String {
    connect(node.address).told("CLUSTER MYID")
}

/// Moves a slot without keys from the node that has had it from the start to the next one.
pub(crate) fn move_slot(nodes: &[Redis], slot: u16) {
    let share = |index: usize| index * 16_384 / 3;
    let to = (1..=3).find(|&next| usize::from(slot) < share(next));
    let to = to.expect("a slot") % 3;
    let to_id = id(&nodes[to]);
    // The node that gets it learns that first.
    for node in [to, (to + 1) % 3, (to + 2) % 3] {
        let moves = format!("CLUSTER SETSLOT {slot} NODE {to_id}");
        assert_eq!(connect(nodes[node].address).told(&moves), "+OK");
    }
}

#[test]
fn a_cluster_answers_as_one_server_and_its_slots_may_move() {
    let Some(program) = redis_server() else {
        return;
    };
    let nodes = cluster(&program);
    let proxy = Proxy::start(|config| config.network_threads = 2, &[nodes[1].address]);
    assert_eq!(proxy.running().kind(), kumiki_proxy::NodeKind::RedisCluster);
    let mut client = connect(proxy.address);
    for number in 0..300 {
        assert_eq!(client.told(&format!("SET key{number} {number}")), "+OK");
    }
    assert_eq!(client.told("MGET key1 key2 none key3"), "[1 2 nil 3]");
    assert_eq!(client.told("MSET key1 a key2 b key3 c"), "+OK");
    assert_eq!(client.told("DEL key1 key2 key3 none"), "3");
    assert_eq!(client.told("DBSIZE"), "297");
    assert!(
        client
            .told("MSETNX key1 a key2 b")
            .starts_with("-CROSSSLOT")
    );
    assert_eq!(client.told("MULTI"), "+OK");
    assert_eq!(client.told("SET {t}a 1"), "+QUEUED");
    assert_eq!(client.told("SET {t}b 2"), "+QUEUED");
    assert_eq!(client.told("EXEC"), "[+OK +OK]");
    assert_eq!(client.told("MULTI"), "+OK");
    assert_eq!(client.told("SET key1 1"), "+QUEUED");
    assert_eq!(client.told("SET key2 2"), "+QUEUED");
    assert!(client.told("EXEC").starts_with("-CROSSSLOT"));

    // A slot moves while a client writes to a key in it, one value after the other.
    let key = "key7";
    let moved = slot::of(key.as_bytes());
    let from = nodes.iter().position(|node| {
        !connect(node.address)
            .told(&format!("GET {key}"))
            .starts_with("-MOVED")
    });
    let from = from.expect("a node has it");
    let to = (from + 1) % 3;
    let (from_id, to_id) = (id(&nodes[from]), id(&nodes[to]));
    let ask = |node: &Redis, command: &str| connect(node.address).told(command);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = connect(proxy.address);
            let mut last = 0;
            for number in 1..=3000 {
                let told = client.told(&format!("SET {key} {number}"));
                assert_eq!(told, "+OK");
                let seen: i32 = client
                    .told(&format!("GET {key}"))
                    .parse()
                    .expect("a number");
                assert_eq!(seen, number, "after {last}");
                last = number;
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        ask(
            &nodes[to],
            &format!("CLUSTER SETSLOT {moved} IMPORTING {from_id}"),
        );
        ask(
            &nodes[from],
            &format!("CLUSTER SETSLOT {moved} MIGRATING {to_id}"),
        );
        std::thread::sleep(Duration::from_millis(20));
        let port = nodes[to].address.port();
        let told = ask(
            &nodes[from],
            &format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"),
        );
        assert_eq!(told, "+OK");
        std::thread::sleep(Duration::from_millis(20));
        for node in [to, from, (from + 2) % 3] {
            let told = ask(
                &nodes[node],
                &format!("CLUSTER SETSLOT {moved} NODE {to_id}"),
            );
            assert_eq!(told, "+OK");
        }
        writer.join().expect("every write was seen");
    });
    assert_eq!(ask(&nodes[to], &format!("GET {key}")), "3000");
    assert_eq!(client.told(&format!("GET {key}")), "3000");
}

#[test]
fn pipelined_commands_keep_their_order_while_a_slot_moves() {
    let Some(program) = redis_server() else {
        return;
    };
    let nodes = cluster(&program);
    let proxy = Proxy::start(|_| {}, &[nodes[0].address]);
    let mut client = connect(proxy.address);
    client.told("SET n 0");
    let moved = slot::of(b"n");
    let holder = |nodes: &[Redis]| {
        nodes
            .iter()
            .position(|node| {
                connect(node.address).told("GET n") != "nil"
                    && !connect(node.address).told("GET n").starts_with("-MOVED")
            })
            .expect("a node has it")
    };
    for _ in 0..3 {
        let from = holder(&nodes);
        let to = (from + 1) % 3;
        let (from_id, to_id) = (id(&nodes[from]), id(&nodes[to]));
        let ask = |node: &Redis, command: &str| connect(node.address).told(command);
        ask(
            &nodes[to],
            &format!("CLUSTER SETSLOT {moved} IMPORTING {from_id}"),
        );
        ask(
            &nodes[from],
            &format!("CLUSTER SETSLOT {moved} MIGRATING {to_id}"),
        );
        let port = nodes[to].address.port();
        assert_eq!(
            ask(&nodes[from], &format!("MIGRATE 127.0.0.1 {port} n 0 5000")),
            "+OK"
        );
        for node in [to, from, (from + 2) % 3] {
            ask(
                &nodes[node],
                &format!("CLUSTER SETSLOT {moved} NODE {to_id}"),
            );
        }
        // The proxy does not know yet; every command is redirected.
        for number in 0..200 {
            client.send(&["SET", "n", &number.to_string()]);
            client.send(&["GET", "n"]);
        }
        for number in 0..200 {
            assert_eq!(client.reply().shown(), "+OK");
            assert_eq!(client.reply().shown(), number.to_string());
        }
    }
}

/// Returns all keys that `SCAN` shows, at most `count` in a step. `between` is called after each step.
fn scan(client: &mut testkit::Client, mut between: impl FnMut(usize)) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    for step in 0.. {
        let testkit::Reply::Array(reply) = client.call(&["SCAN", &cursor, "COUNT", "20"]) else {
            panic!("no reply to SCAN {cursor}");
        };
        let testkit::Reply::Array(shown) = &reply[1] else {
            panic!("{reply:?}");
        };
        keys.extend(shown.iter().map(testkit::Reply::shown));
        cursor = reply[0].shown();
        if cursor == "0" {
            break;
        }
        between(step);
    }
    keys.sort();
    keys.dedup();
    keys
}

/// Starts a node that has the data of this master.
fn replica_of(program: &std::path::Path, master: &Redis) -> Redis {
    let replica = Redis::start(program, &NODE);
    let port = master.address.port();
    connect(replica.address).told(&format!("CLUSTER MEET 127.0.0.1 {port}"));
    let master_id = id(master);
    eventually("it is a replica", || {
        connect(replica.address).told(&format!("CLUSTER REPLICATE {master_id}")) == "+OK"
    });
    eventually("it has the data", || {
        let info = connect(replica.address).told("INFO replication");
        info.contains("master_link_status:up")
    });
    replica
}

/// Lets the replica take over from its master, until `witness`, a node of the cluster, knows of it.
fn take_over(replica: &Redis, witness: &Redis) {
    eventually("the replica takes over", || {
        connect(replica.address).told("CLUSTER FAILOVER TAKEOVER") == "+OK"
    });
    let replica_id = id(replica);
    eventually("others know", || {
        let told = connect(witness.address).told("CLUSTER NODES");
        let line = told.lines().find(|line| line.starts_with(&replica_id));
        line.is_some_and(|line| line.contains("master") && line.contains('-'))
    });
}

/// A node is silent, and another node has its slots: queries to the silent node are given up then, long
/// before the timeout. Commands that change nothing are answered by the other node.
#[test]
fn what_is_under_way_to_a_silent_node_goes_to_the_one_that_replaces_it() {
    let Some(program) = redis_server() else {
        return;
    };
    let nodes = cluster(&program);
    let replica = replica_of(&program, &nodes[0]);
    let proxy = Proxy::start(
        |config| {
            config.timeout = Duration::from_secs(3600);
            config.patience = Duration::from_secs(3600);
            config.unknown_outcome = UnknownOutcome::Error;
        },
        &[nodes[0].address],
    );
    // Its slot belongs to the first node.
    let key = "bar";
    let [mut reader, mut writer] = [(); 2].map(|()| connect(proxy.address));
    assert_eq!(writer.told(&format!("SET {key} 1")), "+OK");
    eventually("the replica has it", || {
        connect(replica.address).told("DBSIZE") == "1"
    });
    nodes[0].signal(rustix::process::Signal::STOP);
    reader.send(&["GET", key]);
    writer.send(&["SET", key, "2"]);
    take_over(&replica, &nodes[1]);
    assert_eq!(reader.reply().shown(), "1");
    let told = writer.reply().shown();
    assert!(told.starts_with("-UNKNOWN node 127.0.0.1:"), "{told}");
    assert_eq!(writer.told(&format!("SET {key} 3")), "+OK");
    assert_eq!(reader.told(&format!("GET {key}")), "3");
    nodes[0].signal(rustix::process::Signal::CONT);
    for number in 0..300 {
        assert_eq!(writer.told(&format!("SET {key} {number}")), "+OK");
    }
}

/// A replica takes over from a master while a client scans: no key is left out.
#[test]
fn a_scan_shows_every_key_although_a_replica_takes_over() {
    let Some(program) = redis_server() else {
        return;
    };
    let nodes = cluster(&program);
    let proxy = Proxy::start(|_| {}, &[nodes[1].address]);
    let mut client = connect(proxy.address);
    for number in 0..600 {
        assert_eq!(client.told(&format!("SET key{number} {number}")), "+OK");
    }
    // The replica belongs to the node that a scan visits first.
    let first: Vec<String> = {
        let testkit::Reply::Array(reply) = client.call(&["SCAN", "0"]) else {
            panic!("no reply to SCAN");
        };
        let testkit::Reply::Array(shown) = &reply[1] else {
            panic!("{reply:?}");
        };
        shown.iter().map(testkit::Reply::shown).collect()
    };
    let has = |node: &&Redis| connect(node.address).told(&format!("EXISTS {}", first[0])) == "1";
    let master = nodes.iter().find(has).expect("a node has the key");
    let replica = replica_of(&program, master);
    let keys = scan(&mut client, |step| {
        if step != 2 {
            return;
        }
        take_over(&replica, &nodes[1]);
        // The proxy learns of it.
        let mut other = connect(proxy.address);
        eventually("the proxy asks it", || {
            other.told(&format!("SET {} 1", first[0]));
            connect(replica.address).told(&format!("GET {}", first[0])) == "1"
        });
    });
    assert_eq!(keys.len(), 600);
}
