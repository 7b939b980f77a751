//! Blocks and watches, over connections that clients share.

use crate::redis::support::{Proxy, connect, machines, redis_server};
use testkit::Client;
use testkit::process::Redis;

#[test]
fn what_was_watched_and_changed_is_not_executed() {
    let Some(program) = redis_server() else {
        return;
    };
    let servers = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &addresses);
        let mut one = connect(proxy.address);
        let mut two = connect(proxy.address);
        one.told("SET a 1");
        assert_eq!(one.told("WATCH a"), "+OK");
        assert_eq!(one.told("GET a"), "1");
        assert_eq!(two.told("SET a 2"), "+OK");
        assert_eq!(one.told("MULTI"), "+OK");
        assert_eq!(one.told("SET a 3"), "+QUEUED");
        assert_eq!(one.told("EXEC"), "nil");
        assert_eq!(one.told("GET a"), "2");
        // The same once more, with no other client in between.
        assert_eq!(one.told("WATCH a"), "+OK");
        assert_eq!(one.told("MULTI"), "+OK");
        assert_eq!(one.told("SET a 3"), "+QUEUED");
        assert_eq!(one.told("EXEC"), "[+OK]");
        // Keys that are not watched any more do not matter.
        assert_eq!(one.told("WATCH a"), "+OK");
        assert_eq!(one.told("UNWATCH"), "+OK");
        assert_eq!(two.told("SET a 4"), "+OK");
        assert_eq!(one.told("MULTI"), "+OK");
        assert_eq!(one.told("GET a"), "+QUEUED");
        assert_eq!(one.told("EXEC"), "[4]");
    }
}

#[test]
fn a_watch_that_was_lost_is_not_executed() {
    let Some(program) = redis_server() else {
        return;
    };
    let mut server = Redis::start(&program, &[]);
    let proxy = Proxy::start(|_| {}, &[server.address]);
    let mut client = connect(proxy.address);
    assert_eq!(client.told("WATCH a"), "+OK");
    server.restart();
    testkit::eventually("the server is back", || client.told("GET a") == "nil");
    assert_eq!(client.told("MULTI"), "+OK");
    assert_eq!(client.told("SET a 1"), "+QUEUED");
    assert_eq!(client.told("EXEC"), "nil");
    assert_eq!(client.told("GET a"), "nil");
}

/// Many clients each add to a counter with a watched block, and no addition is lost.
#[test]
fn watched_blocks_of_many_clients_do_not_lose_updates() {
    const CLIENTS: usize = 8;
    const ADDED: usize = 50;
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &[server.address]);
        connect(proxy.address).told("SET sum 0");
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut client = connect(proxy.address);
                    for _ in 0..ADDED {
                        loop {
                            assert_eq!(client.told("WATCH sum"), "+OK");
                            let sum: i64 = client.told("GET sum").parse().expect("a number");
                            client.send(&["MULTI"]);
                            client.send(&["SET", "sum", &(sum + 1).to_string()]);
                            client.send(&["EXEC"]);
                            client.reply();
                            client.reply();
                            if client.reply().shown() != "nil" {
                                break;
                            }
                        }
                    }
                });
            }
        });
        let sum = connect(proxy.address).told("GET sum");
        assert_eq!(sum, (CLIENTS * ADDED).to_string());
    }
}

#[test]
fn commands_that_wait_do_not_hold_up_others() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let proxy = Proxy::start(|_| {}, &[server.address]);
    let mut waits = connect(proxy.address);
    let mut other = connect(proxy.address);
    waits.send(&["BLPOP", "list", "0"]);
    for _ in 0..100 {
        assert_eq!(other.told("PING"), "+PONG");
        assert_eq!(other.told("SET a 1"), "+OK");
    }
    assert_eq!(other.told("RPUSH list x"), "1");
    assert_eq!(waits.reply().shown(), "[list x]");
    assert_eq!(waits.told("GET a"), "1");
}

/// An element that comes for a client that has gone is not taken from the clients that are there.
#[test]
fn a_client_that_goes_waits_no_more() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &[server.address]);
        let mut direct = connect(server.address);
        let mut waits = connect(proxy.address);
        waits.send(&["BLPOP", "list", "0"]);
        let blocked = |direct: &mut Client, count: usize| {
            let wanted = format!("blocked_clients:{count}\r");
            testkit::eventually("it is so", || direct.told("INFO clients").contains(&wanted));
        };
        blocked(&mut direct, 1);
        drop(waits);
        blocked(&mut direct, 0);
        let mut other = connect(proxy.address);
        assert_eq!(other.told("RPUSH list x"), "1");
        assert_eq!(other.told("LPOP list"), "x");
    }
}

/// Clients' own connections, as the node counts them, are closed when they have done their work, but
/// not while they watch.
#[test]
fn a_connection_of_a_clients_own_does_not_stay() {
    const CLIENTS: usize = 30;
    let Some(program) = redis_server() else {
        return;
    };
    for runtime in machines() {
        let server = Redis::start(&program, &[]);
        let proxy = Proxy::start(runtime, &[server.address]);
        let mut direct = connect(server.address);
        let mut figure = |section: &str, name: &str| -> usize {
            let told = direct.told(&format!("INFO {section}"));
            let value = told
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.expect("a figure").trim().parse().expect("a number")
        };
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| connect(proxy.address)).collect();
        for client in &mut clients {
            assert_eq!(client.told("SET a 0"), "+OK");
        }
        // The refresher asks at intervals, on a connection that it closes.
        let shared = figure("clients", "connected_clients") + 1;
        let mut watches = connect(proxy.address);
        assert_eq!(watches.told("WATCH w"), "+OK");
        for client in &mut clients {
            assert_eq!(client.told("WATCH a"), "+OK");
        }
        assert!(figure("clients", "connected_clients") > CLIENTS);
        for (number, client) in clients.iter_mut().enumerate() {
            match number % 3 {
                0 => {
                    assert_eq!(client.told("MULTI"), "+OK");
                    assert_eq!(client.told("GET b"), "+QUEUED");
                    assert_eq!(client.told("EXEC"), "[nil]");
                }
                1 => {
                    assert_eq!(client.told("MULTI"), "+OK");
                    assert_eq!(client.told("DISCARD"), "+OK");
                }
                _ => assert_eq!(client.told("UNWATCH"), "+OK"),
            }
            // A command that waits goes over a connection that does not watch any more.
            client.send(&["BLPOP", "list", "0"]);
        }
        testkit::eventually("they wait", || {
            figure("clients", "blocked_clients") == CLIENTS
        });
        for _ in 0..CLIENTS {
            assert_ne!(watches.told("RPUSH list x"), "0");
        }
        for client in &mut clients {
            assert_eq!(client.reply().shown(), "[list x]");
        }
        testkit::eventually("they are closed", || {
            figure("clients", "connected_clients") <= shared + 1
        });
        // The connection that watches has stayed.
        assert_eq!(watches.told("MULTI"), "+OK");
        assert_eq!(watches.told("SET w 1"), "+QUEUED");
        assert_eq!(watches.told("EXEC"), "[+OK]");
        // A loop does not open a connection each time.
        let made = figure("stats", "total_connections_received");
        for _ in 0..50 {
            assert_eq!(clients[0].told("WATCH a"), "+OK");
            clients[0].told("MULTI");
            clients[0].told("INCR a");
            assert!(clients[0].told("EXEC").starts_with('['));
        }
        let more = figure("stats", "total_connections_received") - made;
        assert!(more < 10, "{more} connections for 50 blocks");
        for client in &mut clients {
            assert_eq!(client.told("PING"), "+PONG");
        }
    }
}
