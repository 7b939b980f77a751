//! Publish/subscribe through the proxy: before one Redis server, before several, before a cluster, and
//! before nodes that fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster::slot;
use testkit::process::Redis;
use testkit::{Client, Reply, eventually};

use crate::redis::clusters::{cluster, move_slot};
use crate::redis::scripted::{NO_CLUSTER, commands_with};
use crate::redis::support::{Proxy, connect, machines, redis_server, scripted};

/// The channels of these names are at the first and at the second of two separate servers.
const ON: [&str; 2] = ["bar", "foo"];

/// Sends a command, and returns so many replies.
fn replies(client: &mut Client, command: &str, count: usize) -> Vec<String> {
    let words: Vec<&str> = command.split(' ').collect();
    client.send(&words);
    (0..count).map(|_| client.reply().shown()).collect()
}

#[track_caller]
fn subscribe(client: &mut Client, command: &str) {
    let told = client.told(command);
    let word = command.split(' ').next().unwrap_or_default();
    assert!(
        told.starts_with(&format!("[{} ", word.to_lowercase())),
        "{told}"
    );
}

/// The replies are those of the server, in both versions of the protocol.
#[test]
fn replies_are_those_of_a_server() {
    let Some(program) = redis_server() else {
        return;
    };
    // Subscriptions of the proxy would show at a server that both use.
    let (alone, server) = (Redis::start(&program, &[]), Redis::start(&program, &[]));
    let script = [
        ("PUBLISH news nothing", 1),
        ("UNSUBSCRIBE", 1),
        ("PUNSUBSCRIBE x", 1),
        ("SUNSUBSCRIBE", 1),
        ("SUBSCRIBE news other news", 3),
        ("PING", 1),
        ("PING text", 1),
        ("PING a b", 1),
        ("PSUBSCRIBE n* *", 2),
        ("GET news", 1),
        ("CLIENT GETNAME", 1),
        ("SSUBSCRIBE shard", 1),
        ("UNSUBSCRIBE absent other", 2),
        ("PUNSUBSCRIBE n*", 1),
        ("PUNSUBSCRIBE", 1),
        ("SUNSUBSCRIBE", 1),
        ("UNSUBSCRIBE news", 1),
        ("GET news", 1),
        ("SUBSCRIBE", 1),
        ("PUBLISH news", 1),
        ("PUBSUB", 1),
        ("PUBSUB CHANNELS", 1),
        ("PUBSUB NUMSUB a b", 1),
        ("PUBSUB NUMPAT", 1),
        ("PUBSUB NUMPAT x", 1),
        ("PUBSUB SHARDCHANNELS", 1),
        ("PUBSUB SHARDNUMSUB a", 1),
        ("PUBSUB CHANNELS a b", 1),
        ("SUBSCRIBE last", 1),
        ("RESET", 1),
        ("GET news", 1),
    ];
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &[server.address]);
        for hello in ["HELLO 2", "HELLO 3"] {
            let mut clients = [alone.address, proxy.address].map(connect);
            clients
                .iter_mut()
                .for_each(|client| drop(client.told(hello)));
            for (command, count) in script {
                let [expected, told] = &mut clients;
                let expected = replies(expected, command, count);
                assert_eq!(
                    replies(told, command, count),
                    expected,
                    "{command} after {hello}"
                );
            }
        }
    }
}

/// Every subscriber gets the messages of each publisher in its order, whether they were published through
/// the proxy or not, and a publisher learns how many get them.
#[test]
fn messages_come_to_all_subscribers_in_order() {
    const EACH: usize = 300;
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &[server.address]);
        let mut subscribers: Vec<Client> = (0..9).map(|_| connect(proxy.address)).collect();
        for (number, client) in subscribers.iter_mut().enumerate() {
            if number % 3 == 2 {
                client.call(&["HELLO", "3"]);
            }
            match number % 3 {
                0 => subscribe(client, "SUBSCRIBE news"),
                1 => subscribe(client, "PSUBSCRIBE n?ws"),
                _ => drop(client.call(&["SUBSCRIBE", "news"])),
            }
        }
        let mut direct = connect(server.address);
        subscribe(&mut direct, "SUBSCRIBE news");
        std::thread::scope(|scope| {
            for (publisher, address) in [proxy.address, proxy.address, server.address]
                .into_iter()
                .enumerate()
            {
                scope.spawn(move || {
                    let mut client = connect(address);
                    for number in 0..EACH {
                        client.push(&["PUBLISH", "news", &format!("{publisher} {number}")]);
                    }
                    client.flush().expect("sent");
                    // The server counts each of the proxy's subscriptions once.
                    let expected = if publisher < 2 { "10" } else { "3" };
                    for _ in 0..EACH {
                        assert_eq!(client.reply().shown(), expected);
                    }
                });
            }
        });
        for client in subscribers.iter_mut().chain([&mut direct]) {
            let mut next = [0; 3];
            for _ in 0..3 * EACH {
                let (Reply::Array(parts) | Reply::Push(parts)) = client.reply() else {
                    panic!("no message")
                };
                let payload = parts.last().expect("a payload").shown();
                let (publisher, number) = payload.split_once(' ').expect("two numbers");
                let publisher: usize = publisher.parse().expect("a number");
                assert_eq!(number, next[publisher].to_string());
                next[publisher] += 1;
            }
        }
        let mut client = connect(proxy.address);
        assert_eq!(client.told("PUBSUB NUMSUB news"), "[news 6]");
        assert_eq!(client.told("PUBSUB NUMPAT"), "1");
        assert_eq!(client.told("PUBSUB CHANNELS n*"), "[news]");
        drop(subscribers);
        eventually("the proxy has no subscriptions", || {
            let at_server = connect(server.address).told("PUBSUB NUMSUB news");
            at_server == "[news 1]" && connect(server.address).told("PUBSUB NUMPAT") == "0"
        });
        assert_eq!(client.told("PUBLISH news last"), "1");
    }
}

#[test]
fn a_lost_connection_is_made_again_and_clients_stay() {
    let Some(program) = redis_server() else {
        return;
    };
    let mut server = Redis::start(&program, &["--requirepass", "inner"]);
    let proxy = Proxy::start(
        |config| config.node_password = Some("inner".to_owned()),
        &[server.address],
    );
    let mut subscriber = connect(proxy.address);
    subscribe(&mut subscriber, "SUBSCRIBE news");
    subscribe(&mut subscriber, "PSUBSCRIBE n*");
    for round in 0..2 {
        match round {
            0 => server.restart(),
            _ => {
                let mut client = connect(server.address);
                assert_eq!(client.told("AUTH inner"), "+OK");
                client.told("CLIENT KILL TYPE pubsub");
            }
        }
        let mut publisher = connect(proxy.address);
        let mut number = 0;
        eventually("the subscriptions are made again", || {
            number += 1;
            publisher.told(&format!("PUBLISH news {number}")) == "2"
        });
        // Until then, one of the two may have been made before the other.
        let last = format!("[message news {number}]");
        while subscriber.reply().shown() != last {}
        assert_eq!(
            subscriber.reply().shown(),
            format!("[pmessage n* news {number}]")
        );
    }
    // What cannot be subscribed to is refused after a while, and the client goes on.
    server.kill();
    let mut late = connect(proxy.address);
    let told = late.told("SUBSCRIBE other");
    assert!(told.starts_with("-LOADING node 127.0.0.1"), "{told}");
    assert!(late.told("PING") == "+PONG");
    assert_eq!(subscriber.told("PING"), "[pong ]");
}

#[test]
fn separate_servers_have_channels_of_their_own() {
    let Some(program) = redis_server() else {
        return;
    };
    let servers = [(); 2].map(|()| Redis::start(&program, &[]));
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let proxy = Proxy::start(|_| {}, &addresses);
    let mut subscriber = connect(proxy.address);
    let told = replies(&mut subscriber, "SUBSCRIBE bar foo", 2);
    assert_eq!(told, ["[subscribe bar 1]", "[subscribe foo 2]"]);
    subscribe(&mut subscriber, "PSUBSCRIBE *o*");
    let mut publisher = connect(proxy.address);
    for (channel, server) in ON.into_iter().zip(&servers) {
        let there = connect(server.address).told(&format!("PUBSUB NUMSUB {channel}"));
        assert_eq!(there, format!("[{channel} 1]"));
        assert_eq!(connect(server.address).told("PUBSUB NUMPAT"), "1");
        let receivers = if channel == "foo" { "2" } else { "1" };
        assert_eq!(publisher.told(&format!("PUBLISH {channel} x")), receivers);
        // Keys and channels of a block are at one server.
        assert_eq!(publisher.told("MULTI"), "+OK");
        assert_eq!(publisher.told(&format!("SET {channel} 1")), "+QUEUED");
        assert_eq!(publisher.told(&format!("PUBLISH {channel} y")), "+QUEUED");
        let done = publisher.told("EXEC");
        assert!(done.starts_with("[+OK "), "{done}");
    }
    let messages: Vec<String> = (0..6).map(|_| subscriber.reply().shown()).collect();
    for expected in [
        "[message bar x]",
        "[message bar y]",
        "[message foo x]",
        "[message foo y]",
        "[pmessage *o* foo x]",
        "[pmessage *o* foo y]",
    ] {
        assert!(
            messages.iter().any(|message| message == expected),
            "{messages:?}"
        );
    }
    for command in ["MULTI", "SET bar 1", "PUBLISH foo y"] {
        publisher.told(command);
    }
    assert!(publisher.told("EXEC").starts_with("-CROSSSLOT"));
    assert_eq!(publisher.told("MULTI"), "+OK");
    let refused = publisher.told("SUBSCRIBE x");
    assert!(refused.contains("not allowed in a block"), "{refused}");
    assert!(publisher.told("EXEC").starts_with("-EXECABORT"));
}

#[test]
fn shard_channels_of_a_cluster_follow_their_slots() {
    let Some(program) = redis_server() else {
        return;
    };
    let nodes = cluster(&program);
    let proxy = Proxy::start(|config| config.network_threads = 2, &[nodes[1].address]);
    let mut subscriber = connect(proxy.address);
    let mut publisher = connect(proxy.address);
    // Messages come from every node.
    subscribe(&mut subscriber, "SUBSCRIBE news");
    for (number, node) in nodes.iter().enumerate() {
        connect(node.address).told(&format!("PUBLISH news {number}"));
        assert_eq!(
            subscriber.reply().shown(),
            format!("[message news {number}]")
        );
    }
    assert_eq!(publisher.told("PUBLISH news x"), "1");
    assert_eq!(subscriber.reply().shown(), "[message news x]");
    let told = subscriber.told("SSUBSCRIBE a b");
    assert!(told.starts_with("-CROSSSLOT"), "{told}");
    subscribe(&mut subscriber, "SSUBSCRIBE shard");
    assert_eq!(publisher.told("SPUBLISH shard 1"), "1");
    assert_eq!(subscriber.reply().shown(), "[smessage shard 1]");
    move_slot(&nodes, slot::of(b"shard"));
    let mut number = 1;
    eventually("the subscription has followed its slot", || {
        number += 1;
        publisher.told(&format!("SPUBLISH shard {number}")) == "1"
    });
    assert_eq!(
        subscriber.reply().shown(),
        format!("[smessage shard {number}]")
    );
    assert_eq!(
        subscriber.told("SUNSUBSCRIBE shard"),
        "[sunsubscribe shard 0]"
    );
    assert_eq!(publisher.told("SPUBLISH shard last"), "0");
}

/// A subscriber that takes nothing is closed at the limit; the others get everything.
#[test]
fn a_slow_subscriber_is_closed_and_the_others_are_served() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for runtime in machines() {
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                config.limits.subscriber_output = 1 << 20;
            },
            &[server.address],
        );
        let mut clients: Vec<Client> = (0..4).map(|_| connect(proxy.address)).collect();
        clients
            .iter_mut()
            .for_each(|client| subscribe(client, "SUBSCRIBE news"));
        let mut slow = clients.pop().expect("four");
        let mut publisher = connect(proxy.address);
        let payload = "x".repeat(100_000);
        let mut number = 0;
        eventually("the slow one is closed", || {
            number += 1;
            let receivers = publisher.call(&["PUBLISH", "news", &format!("{number} {payload}")]);
            for client in &mut clients {
                let Reply::Array(parts) = client.reply() else {
                    panic!("no message")
                };
                assert!(parts[2].shown().starts_with(&format!("{number} ")));
            }
            receivers.shown() == "3"
        });
        // It has got some, and then the end.
        while let Ok(reply) = slow.try_reply() {
            assert!(matches!(reply, Reply::Array(_)));
        }
        assert_eq!(publisher.told("PUBSUB NUMSUB news"), "[news 3]");
    }
}

/// Subscriptions count as memory of their client.
#[test]
fn too_many_subscriptions_close_their_client() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let proxy = Proxy::start(
        |config| config.limits.in_flight = 1 << 20,
        &[server.address],
    );
    let mut client = connect(proxy.address);
    let mut other = connect(proxy.address);
    subscribe(&mut other, "SUBSCRIBE news");
    for number in 0.. {
        let names: Vec<String> = (0..100)
            .map(|one| format!("channel:{number}:{one}"))
            .collect();
        let mut words = vec!["SUBSCRIBE"];
        words.extend(names.iter().map(String::as_str));
        if client.try_call(&words).is_err() || (0..99).any(|_| client.try_reply().is_err()) {
            break;
        }
        assert!(number < 1000, "100,000 subscriptions in one MiB");
    }
    assert_eq!(other.told("PING"), "[pong ]");
    eventually("its subscriptions have ended", || {
        connect(server.address).told("PUBSUB CHANNELS") == "[news]"
    });
}

/// A node that answers a subscription by an error, or by the end of its connection.
#[test]
fn a_node_that_refuses_or_hangs_up_is_reported_and_asked_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let node = scripted(
        move |words| {
            Some(match (&words[0].to_ascii_uppercase()[..], words.get(1)) {
                (b"COMMAND", _) => commands_with(&[("subscribe", -2, "pubsub", [0, 0, 0])]),
                (b"CLUSTER", _) => NO_CLUSTER.to_owned(),
                (b"SUBSCRIBE", Some(name)) if name == b"secret" => "-NOPERM no\r\n".to_owned(),
                (b"SUBSCRIBE", Some(name)) => {
                    // The first answers are no RESP: the proxy ends the connection.
                    if counted.fetch_add(1, Ordering::SeqCst) < 3 {
                        return Some("nonsense\r\n".to_owned());
                    }
                    let name = String::from_utf8_lossy(name);
                    let message = format!(
                        "*3\r\n$7\r\nmessage\r\n${}\r\n{name}\r\n$1\r\nx\r\n",
                        name.len()
                    );
                    format!(
                        "*3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:1\r\n{message}",
                        name.len()
                    )
                }
                _ => "+PONG\r\n".to_owned(),
            })
        },
        || {},
    );
    let proxy = Proxy::start(|_| {}, &[node]);
    let mut client = connect(proxy.address);
    assert_eq!(client.told("SUBSCRIBE secret"), "-NOPERM no");
    assert_eq!(client.told("SUBSCRIBE open secret"), "-NOPERM no");
    assert_eq!(client.told("SUBSCRIBE open"), "[subscribe open 1]");
    assert!(asked.load(Ordering::SeqCst) >= 4);
    // The node sends a message with each answer.
    client.send(&["PING"]);
    let mut replies = std::iter::repeat_with(|| client.reply().shown());
    let next = replies.find(|reply| reply != "[message open x]");
    assert_eq!(next.as_deref(), Some("[pong ]"));
}
