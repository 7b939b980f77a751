//! Nodes that are slow or dead: only clients that ask for their keys are delayed, and get errors that
//! say what happened.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::slot;
use kumiki_proxy::{Config, NodeAddress, Nodes, UnknownOutcome};
use rustix::process::Signal;

use crate::redis::support::{Proxy, connect, machines, redis_server};
use testkit::Client;
use testkit::process::Redis;

/// Returns a key of the first and one of the second of two servers.
fn keys() -> [&'static str; 2] {
    let keys = ["bar", "foo"];
    assert!(slot::of(keys[0].as_bytes()) < 8192 && slot::of(keys[1].as_bytes()) >= 8192);
    keys
}

#[test]
fn a_node_that_stands_still_holds_up_only_its_own_keys() {
    let Some(program) = redis_server() else {
        return;
    };
    let servers = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let [near, far] = keys();
    for runtime in machines() {
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                config.timeout = Duration::from_secs(1);
                config.patience = Duration::from_secs(1);
                config.unknown_outcome = UnknownOutcome::Error;
                // Small, so that it is full at once.
                config.queue = 16;
            },
            &addresses,
        );
        let mut held: Vec<Client> = (0..8).map(|_| connect(proxy.address)).collect();
        for client in &mut held {
            assert_eq!(client.told(&format!("SET {far} 1")), "+OK");
        }
        servers[1].signal(Signal::STOP);
        for client in &mut held {
            for _ in 0..20 {
                client.send(&["SET", far, "2"]);
            }
        }
        // A request that the stopped node delayed would fail.
        let mut other = connect(proxy.address);
        for _ in 0..20 {
            assert_eq!(other.told(&format!("SET {near} 1")), "+OK");
        }
        // It is unknown if the requests that were sent took effect, and the replies say so. The
        // scheduler decides which clients they belong to.
        let mut replies = vec![held[0].reply().shown()];
        servers[1].signal(Signal::CONT);
        for (nth, client) in held.iter_mut().enumerate() {
            let left = if nth == 0 { 19 } else { 20 };
            replies.extend((0..left).map(|_| client.reply().shown()));
        }
        for told in &replies {
            let known = ["+OK", "-UNKNOWN node 127.0.0.1:", "-LOADING"];
            assert!(known.iter().any(|begin| told.starts_with(begin)), "{told}");
        }
        assert!(
            replies.iter().any(|told| told.starts_with("-UNKNOWN")),
            "{replies:?}"
        );
        testkit::eventually("it goes on", || {
            connect(proxy.address).told(&format!("GET {far}")) == "2"
        });
    }
}

#[test]
fn a_dead_node_is_told_of_and_its_successor_is_found() {
    let Some(program) = redis_server() else {
        return;
    };
    let mut servers = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let [near, far] = keys();
    let change = |config: &mut Config| {
        config.patience = Duration::from_millis(300);
        config.unknown_outcome = UnknownOutcome::Error;
    };
    let proxy = Proxy::start(change, &addresses);
    let mut client = connect(proxy.address);
    assert_eq!(client.told(&format!("MSET {near} 1 {far} 1")), "+OK");
    servers[1].kill();
    let told = client.told(&format!("SET {far} 2"));
    assert!(
        told.contains("retry it") || told.starts_with("-UNKNOWN"),
        "{told}"
    );
    let told = client.told(&format!("SET {far} 2"));
    assert!(told.starts_with("-LOADING node 127.0.0.1:"), "{told}");
    assert!(told.contains("nothing has happened"), "{told}");
    let told = client.told(&format!("MGET {near} {far}"));
    assert!(told.starts_with("-LOADING"), "{told}");
    assert_eq!(client.told(&format!("GET {near}")), "1");
    servers[1].restart();
    testkit::eventually("it is found again", || {
        client.told(&format!("SET {far} 3")) == "+OK"
    });
    assert_eq!(client.told(&format!("MGET {near} {far}")), "[1 3]");
}

/// A server that stands still is given up: the clients whose writes it may have executed lose their connections, and
/// others get their replies. When it dies, clients that wait for elements lose theirs.
#[test]
fn an_unknown_outcome_ends_the_connection() {
    let Some(program) = redis_server() else {
        return;
    };
    let mut servers = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let [near, far] = keys();
    for runtime in machines() {
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                config.timeout = Duration::from_secs(1);
                config.patience = Duration::from_secs(20);
            },
            &addresses,
        );
        let [mut writer, mut reader, mut waiting] = [(); 3].map(|()| connect(proxy.address));
        assert_eq!(writer.told(&format!("SET {far} 1")), "+OK");
        servers[1].signal(Signal::STOP);
        reader.send(&["GET", far]);
        writer.send(&["SET", near, "1"]);
        writer.send(&["SET", far, "2"]);
        writer.send(&["SET", near, "2"]);
        // The replies before the one that is lost come, and none behind it.
        assert_eq!(writer.reply().shown(), "+OK");
        assert!(writer.try_reply().is_err(), "the connection goes on");
        servers[1].signal(Signal::CONT);
        // A read has no outcome that could be unknown.
        let read = reader.reply().shown();
        assert!(["1", "2"].contains(&&*read), "{read}");
        waiting.send(&["BLPOP", &format!("{{{far}}}list"), "0"]);
        testkit::eventually("it waits", || {
            let info = connect(addresses[1]).told("INFO clients");
            info.contains("blocked_clients:1")
        });
        servers[1].kill();
        assert!(waiting.try_reply().is_err(), "the connection goes on");
        assert_eq!(reader.told(&format!("STRLEN {near}")), "1");
        servers[1].restart();
    }
}

/// A command on two servers, one of which is gone: the error does not claim that nothing has happened.
#[test]
fn what_was_done_in_part_is_said_so() {
    let Some(program) = redis_server() else {
        return;
    };
    let mut servers = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let brief = |config: &mut Config| {
        config.patience = Duration::from_millis(200);
        config.unknown_outcome = UnknownOutcome::Error;
    };
    let proxy = Proxy::start(brief, &addresses);
    let [near, far] = keys();
    let mut client = connect(proxy.address);
    assert_eq!(client.told(&format!("MSET {near} 1 {far} 1")), "+OK");
    servers[1].kill();
    for command in [
        format!("MSET {near} 2 {far} 2"),
        format!("DEL {near} {far}"),
    ] {
        let told = client.told(&command);
        let begin = "-PARTIAL 1 of 2 parts of the command were executed, but: ";
        assert!(told.starts_with(begin), "{told}");
        assert!(!told.contains("nothing has happened"), "{told}");
    }
    // For reads partial execution does not matter, and a command on one key has had no effect.
    for command in [format!("MGET {near} {far}"), format!("SET {far} 3")] {
        let told = client.told(&command);
        assert!(told.starts_with("-LOADING"), "{told}");
    }
    assert_eq!(client.told(&format!("GET {near}")), "nil");
}

/// A name leads to another server, as it does when a container is replaced: the proxy follows it.
#[test]
fn a_name_is_followed_to_another_server() {
    let Some(program) = redis_server() else {
        return;
    };
    let mut servers = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    let leads_to = Arc::new(Mutex::new(servers[0].address));
    let now = Arc::clone(&leads_to);
    let look_up = move |_: &str| Ok(vec![*now.lock().expect("no test panics with it")]);
    let named = NodeAddress::with("redis.example:6379", Arc::new(look_up));
    let change = |config: &mut Config| config.nodes = Nodes::Redis(vec![named]);
    let proxy = Proxy::start(change, &[]);
    let mut client = connect(proxy.address);
    assert_eq!(client.told("SET k 1"), "+OK");
    servers[0].kill();
    *leads_to.lock().expect("no test panics with it") = servers[1].address;
    testkit::eventually("the other server is asked", || {
        client.told("SET k 2") == "+OK"
    });
    assert_eq!(connect(servers[1].address).told("GET k"), "2");
}

/// A short absence is not noticed: unsent queries are sent later.
#[test]
fn a_node_that_is_restarted_is_waited_for() {
    let Some(program) = redis_server() else {
        return;
    };
    let mut server = Redis::start(&program, &[]);
    let proxy = Proxy::start(
        |config| config.patience = Duration::from_secs(20),
        &[server.address],
    );
    let mut client = connect(proxy.address);
    assert_eq!(client.told("SET a 1"), "+OK");
    server.kill();
    client.send(&["GET", "a"]);
    std::thread::sleep(Duration::from_millis(100));
    server.restart();
    assert_eq!(client.reply().shown(), "nil");
}

#[test]
fn a_stopping_proxy_answers_what_it_has_received() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &[server.address]);
        let mut client = connect(proxy.address);
        assert_eq!(client.told("SET a 1"), "+OK");
        client.send(&["EVAL", "for i=1,3000000 do end return 7", "1", "a"]);
        std::thread::sleep(Duration::from_millis(30));
        let begun = Instant::now();
        drop(proxy);
        assert!(begun.elapsed() < Duration::from_secs(8));
        assert_eq!(client.reply().shown(), "7");
        assert!(client.try_reply().is_err());
    }
}

/// Untaken replies are bounded for all clients together; a client that takes everything later loses
/// nothing.
#[test]
fn clients_that_take_no_replies_are_closed_before_they_take_all_memory() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for runtime in machines() {
        let bounded = |config: &mut kumiki_proxy::Config| {
            runtime(config);
            config.limits.in_flight = 64 << 20;
        };
        let proxy = Proxy::start(bounded, &[server.address]);
        let mut other = connect(proxy.address);
        let value = "x".repeat(1 << 20);
        assert_eq!(other.call(&["SET", "a", &value]).shown(), "+OK");
        let mut greedy = connect(proxy.address);
        for _ in 0..400 {
            greedy.send(&["GET", "a"]);
        }
        testkit::eventually("it is closed", || {
            let info = connect(proxy.address).told("INFO clients");
            info.contains("connected_clients:2\r") || info.contains("connected_clients:2\n")
        });
        assert_eq!(other.told("STRLEN a"), value.len().to_string());
        let mut patient = connect(proxy.address);
        for _ in 0..40 {
            patient.send(&["GET", "a"]);
        }
        for _ in 0..40 {
            assert_eq!(patient.reply().shown(), value);
        }
    }
}

#[test]
fn clients_that_send_by_halves_or_take_nothing_do_not_hold_up_others() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let proxy = Proxy::start(|_| {}, &[server.address]);
    let value = "v".repeat(100_000);
    let mut other = connect(proxy.address);
    assert_eq!(other.call(&["SET", "a", &value]).shown(), "+OK");
    let mut halves: Vec<Client> = (0..200).map(|_| connect(proxy.address)).collect();
    for (index, client) in halves.iter_mut().enumerate() {
        let request = b"*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$5\r\nhello\r\n";
        client.send_raw(&request[..1 + index % (request.len() - 1)]);
    }
    let mut greedy = connect(proxy.address);
    for _ in 0..500 {
        greedy.send(&["GET", "a"]);
    }
    for _ in 0..200 {
        assert_eq!(other.told("SET b 1"), "+OK");
    }
    for _ in 0..500 {
        assert_eq!(greedy.reply().shown(), value);
    }
    for (index, client) in halves.iter_mut().enumerate() {
        let request = b"*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$5\r\nhello\r\n";
        client.send_raw(&request[1 + index % (request.len() - 1)..]);
        assert_eq!(client.reply().shown(), "+OK");
    }
}
