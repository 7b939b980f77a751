//! A real Redis Cluster: slots are found, and followed when they move.

use std::time::Duration;

use cluster::slot;

use crate::support::{Client, Proxy, Redis, eventually, redis_server, shown};

/// Three nodes that share the slots, made without other tools.
fn cluster(program: &std::path::Path) -> Vec<Redis> {
    let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
    let nodes: Vec<Redis> = (0..3).map(|_| Redis::start(program, &options)).collect();
    for (index, node) in nodes.iter().enumerate() {
        let mut client = Client::connect(node.address);
        let share = |index: usize| index * 16_384 / 3;
        let (first, last) = (share(index), share(index + 1) - 1);
        let told = client.told(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        assert_eq!(told, "+OK");
        let port = nodes[0].address.port();
        client.told(&format!("CLUSTER MEET 127.0.0.1 {port}"));
    }
    for node in &nodes {
        eventually("the cluster is made", || {
            let info = Client::connect(node.address).told("CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        });
    }
    nodes
}

fn id(node: &Redis) -> String {
    Client::connect(node.address).told("CLUSTER MYID")
}

#[test]
fn a_cluster_answers_as_one_server_and_its_slots_may_move() {
    let Some(program) = redis_server() else {
        return;
    };
    let nodes = cluster(&program);
    let proxy = Proxy::start(|config| config.network_threads = 2, &[nodes[1].address]);
    assert_eq!(proxy.running().kind(), kumiki_proxy::Kind::RedisCluster);
    let mut client = Client::connect(proxy.address);
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
        !Client::connect(node.address)
            .told(&format!("GET {key}"))
            .starts_with("-MOVED")
    });
    let from = from.expect("a node has it");
    let to = (from + 1) % 3;
    let (from_id, to_id) = (id(&nodes[from]), id(&nodes[to]));
    let ask = |node: &Redis, command: &str| Client::connect(node.address).told(command);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = Client::connect(proxy.address);
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
    let mut client = Client::connect(proxy.address);
    client.told("SET n 0");
    let moved = slot::of(b"n");
    let holder = |nodes: &[Redis]| {
        nodes
            .iter()
            .position(|node| {
                Client::connect(node.address).told("GET n") != "nil"
                    && !Client::connect(node.address)
                        .told("GET n")
                        .starts_with("-MOVED")
            })
            .expect("a node has it")
    };
    for _ in 0..3 {
        let from = holder(&nodes);
        let to = (from + 1) % 3;
        let (from_id, to_id) = (id(&nodes[from]), id(&nodes[to]));
        let ask = |node: &Redis, command: &str| Client::connect(node.address).told(command);
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
            assert_eq!(shown(&client.receive()), "+OK");
            assert_eq!(shown(&client.receive()), number.to_string());
        }
    }
}
