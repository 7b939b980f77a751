//! Libraries of functions, where `redis_compare` of the program does not reach: nodes of a cluster, restarts,
//! changes while functions run, and kills.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumiki_server::{Config, Durability};
use testkit::{Client, Reply, SetOnDrop, eventually};

use crate::support::nodes::{Nodes, NodesOptions, nodes};
use crate::support::{bulk, config, durable, ephemeral, error, int, ok, replica, status};

/// Returns a library `lib` with a function `f` of this body.
fn library(body: &str) -> String {
    format!("#!lua name=lib\nredis.register_function('f', function(keys, args) {body} end)")
}

fn load(client: &mut Client, body: &str) -> Reply {
    client.call(&["FUNCTION", "LOAD", "REPLACE", &library(body)])
}

fn call(client: &mut Client, keys: &[&str]) -> Reply {
    let count = keys.len().to_string();
    client.call(&[&["FCALL", "f", &count], keys].concat())
}

/// Returns the number of libraries that a node shows.
fn libraries(client: &mut Client) -> usize {
    match client.call(&["FUNCTION", "LIST"]) {
        Reply::Array(libraries) => libraries.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_nodes_of_a_cluster_have_their_libraries_in_common() {
    let nodes = nodes(3);
    let keys = [1, 2, 3].map(|node| nodes.key_of(node, "key"));
    let keys = [0, 1, 2].map(|at| keys[at].as_str());
    for node in 1..=3 {
        let body =
            format!("for _, key in ipairs(keys) do redis.call('incr', key) end return {node}");
        assert_eq!(load(&mut nodes.client(node), &body), bulk("lib"));
        for other in 1..=3 {
            let mut client = nodes.client(other);
            assert_eq!(call(&mut client, &[]), int(node.into()), "node {other}");
            assert_eq!(call(&mut client, &keys), int(node.into()));
            assert_eq!(libraries(&mut client), 1);
        }
    }
    for key in keys {
        assert_eq!(nodes.get(key), bulk("9"));
    }
    assert_eq!(nodes.client(1).call(&["FLUSHALL"]), ok());
    assert_eq!(call(&mut nodes.client(1), &[]), int(3));
    assert_eq!(nodes.client(2).call(&["DBSIZE"]), int(1));
    assert_eq!(nodes.client(2).call(&["FUNCTION", "DELETE", "lib"]), ok());
    let missing = call(&mut nodes.client(3), &[]);
    assert_eq!(error(&missing), "ERR Function not found");
}

/// Clients send commands to all nodes, as Redis's nodes need it.
#[test]
fn clients_may_send_commands_to_every_node() {
    let nodes = nodes(2);
    let source = library("return 1");
    let each = |args: &[&str]| [1, 2].map(|node| nodes.client(node).call(args));
    let load = ["FUNCTION", "LOAD", &source];
    assert_eq!(each(&load), [bulk("lib"), bulk("lib")]);
    let other = library("return 2");
    let refused = nodes.client(1).call(&["FUNCTION", "LOAD", &other]);
    assert_eq!(error(&refused), "ERR Library 'lib' already exists");
    assert_eq!(each(&["FUNCTION", "FLUSH"]), [ok(), ok()]);
    assert_eq!(each(&load), [bulk("lib"), bulk("lib")]);
    assert_eq!(each(&["FUNCTION", "DELETE", "lib"]), [ok(), ok()]);
    assert_eq!(
        each(&["FUNCTION", "LIST"]),
        [(); 2].map(|()| Reply::Array(Vec::new()))
    );
    let blocks = || {
        let mut client = nodes.client(1);
        assert_eq!(client.call(&["MULTI"]), ok());
        assert_eq!(client.call(&load), status("QUEUED"));
        assert_eq!(client.call(&["FCALL", "f", "0"]), status("QUEUED"));
        client.call(&["EXEC"])
    };
    assert_eq!(blocks(), Reply::Array(vec![bulk("lib"), int(1)]));
}

#[test]
fn libraries_are_there_after_a_restart() {
    let mut nodes = Nodes::start(NodesOptions {
        count: 2,
        durable: true,
        ..NodesOptions::default()
    });
    assert_eq!(load(&mut nodes.client(1), "return 1"), bulk("lib"));
    for node in 1..=2 {
        nodes.stop_node(node);
    }
    for node in 1..=2 {
        nodes.start_node(node);
    }
    for node in 1..=2 {
        assert_eq!(nodes.until_served(node, &["FCALL", "f", "0"]), int(1));
    }
}

/// A node that keeps nothing has lost the libraries. The other one has them still.
#[test]
fn a_node_that_has_lost_its_libraries_gets_the_next_ones() {
    let mut nodes = nodes(2);
    for number in 1..=3 {
        assert_eq!(
            load(&mut nodes.client(1), &format!("return {number}")),
            bulk("lib")
        );
    }
    nodes.stop_node(2);
    nodes.start_node(2);
    let source = library("return 4");
    let loaded = nodes.until_served(2, &["FUNCTION", "LOAD", "REPLACE", &source]);
    assert_eq!(loaded, bulk("lib"));
    for node in 1..=2 {
        assert_eq!(nodes.until_served(node, &["FCALL", "f", "0"]), int(4));
    }
}

/// Each version of a function writes its number to keys of both nodes and counts up. If a call took effect with
/// a version after a later one was acknowledged, or with two versions, the numbers would show it.
#[test]
fn functions_change_while_they_are_called() {
    const VERSIONS: i64 = 20;
    let nodes = nodes(2);
    let (a, b) = (nodes.key_of(1, "key"), nodes.key_of(2, "key"));
    let body = |version: i64| {
        format!(
            "local seen = redis.call('getset', keys[1], {version}) or '0' \
             redis.call('set', keys[2], {version}) \
             if tonumber(seen) > {version} then return redis.error_reply('OLD ' .. seen) end \
             return {version}"
        )
    };
    assert_eq!(load(&mut nodes.client(1), &body(1)), bulk("lib"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let callers = [(1, [&a, &b]), (2, [&b, &a])].map(|(node, keys)| {
            let (nodes, stop) = (&nodes, &stop);
            scope.spawn(move || {
                let mut client = nodes.client(node);
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let reply = call(&mut client, &keys.map(String::as_str));
                    let Reply::Int(version) = reply else {
                        panic!("{reply:?}")
                    };
                    assert!(version >= last, "{version} after {last}");
                    last = version;
                }
            })
        });
        let mut client = nodes.client(2);
        for version in 2..=VERSIONS {
            assert_eq!(load(&mut client, &body(version)), bulk("lib"));
            let reply = call(&mut client, &[&a, &b]);
            assert_eq!(reply, int(version));
            assert!(callers.iter().all(|caller| !caller.is_finished()));
        }
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.join().expect("it sees versions in their order");
        }
    });
    let last = bulk(&VERSIONS.to_string());
    assert_eq!((nodes.get(&a), nodes.get(&b)), (last.clone(), last));
}

#[test]
fn a_running_function_is_shown_and_can_be_ended() {
    let server = ephemeral(Config {
        threads: 1,
        ..config()
    });
    let (mut client, mut other) = (server.client(), server.client());
    load(
        &mut client,
        "redis.call('set', keys[1], '1') while true do end",
    );
    client.send(&["FCALL", "F", "1", "key", "x"]);
    eventually("it is shown", || {
        other
            .call(&["FUNCTION", "STATS"])
            .shown()
            .contains("running_script [name f command [FCALL F 1 key x] duration_ms ")
    });
    let refused = other.call(&["SCRIPT", "KILL"]);
    assert!(error(&refused).starts_with("BUSY "), "{refused:?}");
    assert_eq!(other.call(&["FUNCTION", "KILL"]), ok());
    let killed = client.reply();
    assert!(
        error(&killed).starts_with("ERR Script killed by user"),
        "{killed:?}"
    );
    assert_eq!(other.call(&["GET", "key"]), Reply::Null);
    let idle = other.call(&["FUNCTION", "KILL"]);
    assert!(error(&idle).starts_with("NOTBUSY "), "{idle:?}");
    client.send(&["EVAL", "while true do end", "0"]);
    eventually("a script runs", || {
        error(&other.call(&["FUNCTION", "KILL"])).starts_with("BUSY ")
    });
    assert_eq!(other.call(&["SCRIPT", "KILL"]), ok());
    assert!(matches!(client.reply(), Reply::Error(_)));
}

#[test]
fn functions_run_on_a_replicated_partition_and_not_where_they_must_not() {
    let replica = replica::alone();
    let mut client = replica.client();
    assert_eq!(
        load(&mut client, "return redis.call('incr', keys[1])"),
        bulk("lib")
    );
    for sum in 1..10 {
        assert_eq!(call(&mut client, &["n"]), int(sum));
    }
    let source = "#!lua name=lib2\nredis.register_function{function_name='g', \
        callback=function() end, flags={'no-cluster'}}";
    assert_eq!(client.call(&["FUNCTION", "LOAD", source]), bulk("lib2"));
    let refused = client.call(&["FCALL", "g", "0"]);
    let text = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
    assert_eq!(error(&refused), text);
}

#[test]
fn a_library_is_durable_when_it_is_acknowledged() {
    let served = durable(Durability::Group);
    let mut client = served.client();
    served.gate.close();
    client.send(&["FUNCTION", "LOAD", &library("return 1")]);
    client.send(&["FCALL", "f", "0"]);
    assert!(client.is_silent(Duration::from_millis(50)));
    served.gate.open();
    assert_eq!((client.reply(), client.reply()), (bulk("lib"), int(1)));
}
