//! `SUBSCRIBE`, `PUBLISH` and their kin, where `redis_compare` of the program does not reach:
//! durability, threads, slow subscribers, clusters.

use std::time::Duration;

use crate::support::nodes::{Nodes, NodesOptions, nodes};
use crate::support::{bulk, config, durable, ephemeral, error, int, ok};
use kumiki_server::{Config, Durability, Limits};
use testkit::{Client, Reply, eventually};

/// For how long a client must get nothing to count as waiting.
const WHILE: Duration = Duration::from_millis(200);

fn message(channel: &str, payload: &str) -> Reply {
    Reply::Array(vec![bulk("message"), bulk(channel), bulk(payload)])
}

fn subscribe(client: &mut Client, command: &str, channel: &str) {
    let reply = client.call(&[command, channel]);
    let word = command.to_ascii_lowercase();
    assert_eq!(
        reply,
        Reply::Array(vec![bulk(&word), bulk(channel), int(1)])
    );
}

/// Subscribers on all threads of the server.
fn subscribers(connect: impl Fn() -> Client, count: usize) -> Vec<Client> {
    let subscribed = |_| {
        let mut client = connect();
        subscribe(&mut client, "SUBSCRIBE", "news");
        client
    };
    (0..count).map(subscribed).collect()
}

#[test]
fn messages_of_a_publisher_come_to_all_threads_in_its_order() {
    const EACH: usize = 500;
    let served = ephemeral(config());
    let mut subscribers = subscribers(|| served.client(), 16);
    std::thread::scope(|scope| {
        for publisher in 0..3 {
            let mut client = served.client();
            scope.spawn(move || {
                for number in 0..EACH {
                    client.push(&["PUBLISH", "news", &format!("{publisher} {number}")]);
                }
                client.flush().expect("sent");
                for _ in 0..EACH {
                    assert_eq!(client.reply(), int(16));
                }
            });
        }
    });
    for subscriber in &mut subscribers {
        let mut next = [0; 3];
        for _ in 0..3 * EACH {
            let Reply::Array(parts) = subscriber.reply() else {
                panic!("no message")
            };
            let Reply::Bulk(payload) = &parts[2] else {
                panic!("no payload")
            };
            let text = std::str::from_utf8(payload).expect("text");
            let (publisher, number) = text.split_once(' ').expect("two numbers");
            let publisher: usize = publisher.parse().expect("a number");
            assert_eq!(number, next[publisher].to_string());
            next[publisher] += 1;
        }
    }
    drop(subscribers);
    let mut client = served.client();
    eventually("no client subscribes", || {
        client.call(&["PUBLISH", "news", "last"]) == int(0)
    });
}

#[test]
fn a_message_of_a_block_waits_until_the_block_is_durable() {
    let served = durable(Durability::Group);
    let mut subscribers = subscribers(|| served.client(), 8);
    let mut publisher = served.client();
    served.gate.close();
    for command in [
        &["MULTI"][..],
        &["SET", "k", "1"],
        &["PUBLISH", "news", "block"],
        &["EXEC"],
    ] {
        publisher.send(command);
    }
    // Behind the block it must not overtake the block's own message.
    publisher.send(&["PUBLISH", "news", "alone"]);
    let mut other = served.client();
    assert_eq!(other.call(&["PUBLISH", "news", "other"]), int(8));
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.reply(), message("news", "other"));
    }
    assert!(subscribers[0].is_silent(WHILE));
    // The message does not depend on its publisher.
    drop(publisher);
    served.gate.open();
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.reply(), message("news", "block"));
        assert_eq!(subscriber.reply(), message("news", "alone"));
    }
}

#[test]
fn a_message_of_a_block_that_is_never_durable_is_dropped() {
    let served = durable(Durability::Group);
    let mut subscribers = subscribers(|| served.client(), 4);
    let mut publisher = served.client();
    served.gate.close();
    for command in [
        &["MULTI"][..],
        &["SET", "k", "1"],
        &["PUBLISH", "news", "block"],
        &["EXEC"],
    ] {
        publisher.send(command);
    }
    for queued in 0..3 {
        assert!(!matches!(publisher.reply(), Reply::Error(_)), "{queued}");
    }
    served.gate.break_down();
    assert!(error(&publisher.reply()).starts_with("MISCONF"));
    // Nor is one of a block that shows what will never be durable.
    for command in [&["MULTI"][..], &["GET", "k"], &["PUBLISH", "news", "shown"]] {
        assert!(!matches!(publisher.call(command), Reply::Error(_)));
    }
    assert!(error(&publisher.call(&["EXEC"])).starts_with("MISCONF"));
    let mut other = served.client();
    assert_eq!(other.call(&["PUBLISH", "news", "other"]), int(4));
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.reply(), message("news", "other"));
    }
}

#[test]
fn a_subscriber_who_takes_nothing_is_closed_and_the_others_are_served() {
    let served = ephemeral(Config {
        limits: Limits {
            subscriber_output: 1 << 20,
            ..Limits::default()
        },
        ..config()
    });
    let mut slow = served.client();
    subscribe(&mut slow, "SUBSCRIBE", "news");
    let mut subscribers = subscribers(|| served.client(), 2);
    let mut publisher = served.client();
    let payload = "x".repeat(64 << 10);
    let mut sent = 0;
    // What the sockets take is the system's choice.
    while publisher.call(&["PUBLISH", "news", &payload]) == int(3) {
        sent += 1;
        assert!(sent < 10_000, "the slow one is never closed");
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.reply(), message("news", &payload));
        }
    }
    assert!(sent >= 16, "{sent} messages are fewer than the limit");
    let list = publisher.told("CLIENT LIST TYPE pubsub");
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(
        list.lines()
            .all(|line| line.contains(" flags=P ") && line.contains(" sub=1 "))
    );
    assert_eq!(
        publisher.call(&["CLIENT", "KILL", "TYPE", "pubsub"]),
        int(2)
    );
    eventually("no client subscribes", || {
        publisher.call(&["PUBLISH", "news", "last"]) == int(0)
    });
}

#[test]
fn subscriptions_count_as_memory_of_clients() {
    let served = ephemeral(Config {
        limits: Limits {
            in_flight: 4 << 20,
            ..Limits::default()
        },
        ..config()
    });
    let mut client = served.client();
    let name = "x".repeat(60 << 10);
    let mut number = 0;
    while client
        .try_call(&["SUBSCRIBE", &format!("{name}{number}")])
        .is_ok()
    {
        number += 1;
        assert!(number < 1000, "it is never closed");
    }
    assert!(number > 16, "{number}");
    let mut other = served.client();
    eventually("its subscriptions end", || {
        other.call(&["PUBSUB", "CHANNELS"]) == Reply::Array(Vec::new())
    });
}

#[test]
fn messages_reach_subscribers_of_all_nodes() {
    let nodes = nodes(3);
    let mut subscribers: Vec<Client> = (1..=3).map(|node| nodes.client(node)).collect();
    for subscriber in &mut subscribers {
        subscribe(subscriber, "SUBSCRIBE", "news");
    }
    let mut publisher = nodes.client(2);
    // A message is lost while a link cannot be made.
    for subscriber in &mut subscribers {
        eventually("its node is linked", || {
            assert_eq!(publisher.call(&["PUBLISH", "news", "early"]), int(1));
            !subscriber.is_silent(Duration::from_millis(20))
        });
    }
    assert_eq!(publisher.call(&["PUBLISH", "news", "0"]), int(1));
    let key = nodes.key_of(1, "k");
    for command in [
        &["MULTI"][..],
        &["SET", &key, "1"],
        &["PUBLISH", "news", "1"],
    ] {
        publisher.call(command);
    }
    assert_eq!(publisher.call(&["EXEC"]), Reply::Array(vec![ok(), int(1)]));
    for subscriber in &mut subscribers {
        let early = message("news", "early");
        let mut replies = std::iter::repeat_with(|| subscriber.reply());
        let first = replies.find(|reply| *reply != early);
        assert_eq!(first, Some(message("news", "0")));
        assert_eq!(subscriber.reply(), message("news", "1"));
    }
    // Patterns, from a node where no client has subscribed.
    let mut patterns = nodes.client(3);
    subscribe(&mut patterns, "PSUBSCRIBE", "n*");
    let mut elsewhere = nodes.client(1);
    eventually("its node is linked", || {
        assert_eq!(elsewhere.call(&["PUBLISH", "no", "2"]), int(0));
        !patterns.is_silent(Duration::from_millis(20))
    });
    let expected = ["pmessage", "n*", "no", "2"].map(bulk).to_vec();
    assert_eq!(patterns.reply(), Reply::Array(expected));
}

#[test]
fn shard_channels_belong_to_the_node_of_their_slot() {
    let nodes = nodes(2);
    let channel = nodes.key_of(1, "channel");
    let mut subscriber = nodes.client(1);
    subscribe(&mut subscriber, "SSUBSCRIBE", &channel);
    for command in [&["SSUBSCRIBE", &channel][..], &["SPUBLISH", &channel, "x"]] {
        let moved = nodes.client(2).call(command);
        assert!(error(&moved).starts_with("MOVED "), "{moved:?}");
        assert!(error(&moved).ends_with(&nodes.address(1).to_string()));
    }
    let mut other = nodes.client(1);
    let crossed = other.call(&["SSUBSCRIBE", &channel, &nodes.key_of(2, "channel")]);
    assert!(error(&crossed).starts_with("CROSSSLOT "), "{crossed:?}");
    assert_eq!(other.call(&["SPUBLISH", &channel, "x"]), int(1));
    let expected = ["smessage", &channel, "x"].map(bulk).to_vec();
    assert_eq!(subscriber.reply(), Reply::Array(expected));
}

#[test]
fn a_node_that_is_gone_takes_no_messages_and_one_that_comes_back_does() {
    let mut nodes = Nodes::start(NodesOptions {
        count: 2,
        ..NodesOptions::default()
    });
    let mut publisher = nodes.client(1);
    nodes.stop_node(2);
    for number in 0..3000 {
        publisher.send(&["PUBLISH", "news", &number.to_string()]);
    }
    for _ in 0..3000 {
        assert_eq!(publisher.reply(), int(0));
    }
    nodes.start_node(2);
    let mut subscriber = nodes.client(2);
    subscribe(&mut subscriber, "SUBSCRIBE", "news");
    eventually("messages come again", || {
        publisher.call(&["PUBLISH", "news", "again"]);
        !subscriber.is_silent(Duration::from_millis(20))
    });
}
