//! Nodes that are slow or dead: only who asks for their keys is held up, and is told what happened.

use std::time::{Duration, Instant};

use cluster::slot;
use rustix::process::Signal;

use crate::support::{Client, Proxy, Redis, machines, redis_server, shown};

/// Keys of the first and of the second of two servers.
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
    for machine in machines() {
        let proxy = Proxy::start(
            |config| {
                machine(config);
                config.timeout = Duration::from_secs(1);
                config.patience = Duration::from_secs(1);
                // Little, so that it is full at once.
                config.queue = 16;
            },
            &addresses,
        );
        let mut held: Vec<Client> = (0..8).map(|_| Client::connect(proxy.address)).collect();
        for client in &mut held {
            assert_eq!(client.told(&format!("SET {far} 1")), "+OK");
        }
        servers[1].signal(Signal::STOP);
        let begun = Instant::now();
        for client in &mut held {
            for _ in 0..20 {
                client.send(&["SET", far, "2"]);
            }
        }
        let mut other = Client::connect(proxy.address);
        let mut count = 0;
        while begun.elapsed() < Duration::from_millis(500) {
            assert_eq!(other.told(&format!("SET {near} 1")), "+OK");
            count += 1;
        }
        assert!(count > 20, "only {count} requests in half a second");
        // Whether those that were sent took effect is not known, and that is what is said.
        let told = shown(&held[0].receive());
        assert!(told.starts_with("-UNKNOWN node 127.0.0.1:"), "{told}");
        servers[1].signal(Signal::CONT);
        for client in &mut held[1..] {
            for _ in 0..20 {
                let told = shown(&client.receive());
                let known = ["+OK", "-UNKNOWN", "-CLUSTERDOWN"];
                assert!(known.iter().any(|begin| told.starts_with(begin)), "{told}");
            }
        }
        crate::support::eventually("it goes on", || {
            Client::connect(proxy.address).told(&format!("GET {far}")) == "2"
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
    let proxy = Proxy::start(
        |config| config.patience = Duration::from_millis(300),
        &addresses,
    );
    let mut client = Client::connect(proxy.address);
    assert_eq!(client.told(&format!("MSET {near} 1 {far} 1")), "+OK");
    servers[1].kill();
    let told = client.told(&format!("SET {far} 2"));
    assert!(
        told.contains("retry it") || told.starts_with("-UNKNOWN"),
        "{told}"
    );
    let told = client.told(&format!("SET {far} 2"));
    assert!(told.starts_with("-CLUSTERDOWN node 127.0.0.1:"), "{told}");
    assert!(told.contains("nothing has happened"), "{told}");
    let told = client.told(&format!("MGET {near} {far}"));
    assert!(told.starts_with("-CLUSTERDOWN"), "{told}");
    assert_eq!(client.told(&format!("GET {near}")), "1");
    servers[1].restart();
    crate::support::eventually("it is found again", || {
        client.told(&format!("SET {far} 3")) == "+OK"
    });
    assert_eq!(client.told(&format!("MGET {near} {far}")), "[1 3]");
}

/// A short absence is not noticed: what was not sent is sent later.
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
    let mut client = Client::connect(proxy.address);
    assert_eq!(client.told("SET a 1"), "+OK");
    server.kill();
    client.send(&["GET", "a"]);
    std::thread::sleep(Duration::from_millis(100));
    server.restart();
    assert_eq!(shown(&client.receive()), "nil");
}

#[test]
fn a_stopping_proxy_answers_what_it_has_received() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for machine in machines() {
        let proxy = Proxy::start(machine, &[server.address]);
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.told("SET a 1"), "+OK");
        client.send(&["EVAL", "for i=1,3000000 do end return 7", "1", "a"]);
        std::thread::sleep(Duration::from_millis(30));
        let begun = Instant::now();
        drop(proxy);
        assert!(begun.elapsed() < Duration::from_secs(8));
        assert_eq!(shown(&client.receive()), "7");
        assert!(client.try_receive().is_err());
    }
}

#[test]
fn clients_that_send_by_halves_or_take_nothing_do_not_hold_up_others() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let proxy = Proxy::start(
        |config| config.limits.output_soft = 64 * 1024,
        &[server.address],
    );
    let value = "v".repeat(100_000);
    let mut other = Client::connect(proxy.address);
    assert_eq!(shown(&other.call(&["SET", "a", &value])), "+OK");
    let mut halves: Vec<Client> = (0..200).map(|_| Client::connect(proxy.address)).collect();
    for (index, client) in halves.iter_mut().enumerate() {
        let request = b"*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$5\r\nhello\r\n";
        client.send_raw(&request[..1 + index % (request.len() - 1)]);
    }
    let mut greedy = Client::connect(proxy.address);
    for _ in 0..500 {
        greedy.send(&["GET", "a"]);
    }
    for _ in 0..200 {
        assert_eq!(other.told("SET b 1"), "+OK");
    }
    for _ in 0..500 {
        assert_eq!(shown(&greedy.receive()), value);
    }
    for (index, client) in halves.iter_mut().enumerate() {
        let request = b"*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$5\r\nhello\r\n";
        client.send_raw(&request[1 + index % (request.len() - 1)..]);
        assert_eq!(shown(&client.receive()), "+OK");
    }
}
