//! Keyspace notifications and client-side caching, where `redis_compare` of the program does not reach:
//! durability, threads, redirection, nodes, replicas.

use std::time::Duration;

use crate::support::nodes::nodes;
use crate::support::replica::alone;
use crate::support::{bulk, config, durable, ephemeral, error, int, ok};
use kumiki_server::Durability;
use testkit::{Client, Reply, eventually};

/// For how long a client must get nothing to count as waiting.
const WHILE: Duration = Duration::from_millis(200);

fn event(name: &str, key: &str) -> Reply {
    let channel = format!("__keyevent@0__:{name}");
    let parts = ["pmessage", "__keyevent*", &channel, key];
    Reply::Array(parts.map(bulk).to_vec())
}

/// Has a server announce events, and a client subscribe to all of them.
fn subscribed(mut client: Client) -> Client {
    let set = client.call(&["CONFIG", "SET", "notify-keyspace-events", "EA"]);
    assert_eq!(set, ok());
    client.call(&["PSUBSCRIBE", "__keyevent*"]);
    client
}

fn invalidation(key: &str) -> Reply {
    Reply::Push(vec![bulk("invalidate"), Reply::Array(vec![bulk(key)])])
}

/// Has a client speak the newer protocol and track what it reads.
fn tracking(mut client: Client, options: &[&str]) -> Client {
    client.call(&["HELLO", "3"]);
    let on = [&["CLIENT", "TRACKING", "ON"][..], options].concat();
    assert_eq!(client.call(&on), ok());
    client
}

#[test]
fn events_wait_until_they_are_durable() {
    let served = durable(Durability::Group);
    let mut subscriber = subscribed(served.client());
    let mut caching = tracking(served.client(), &[]);
    caching.call(&["GET", "k"]);
    served.gate.close();
    let mut writer = served.client();
    writer.send(&["SET", "k", "1"]);
    writer.send(&["INCR", "k"]);
    assert!(subscriber.is_silent(WHILE) && caching.is_silent(WHILE));
    served.gate.open();
    assert_eq!(subscriber.reply(), event("set", "k"));
    assert_eq!(subscriber.reply(), event("incrby", "k"));
    assert_eq!(caching.reply(), invalidation("k"));
}

#[test]
fn events_that_are_never_durable_are_dropped() {
    let served = durable(Durability::Group);
    let mut subscriber = subscribed(served.client());
    served.gate.close();
    let mut writer = served.client();
    writer.send(&["SET", "k", "1"]);
    served.gate.break_down();
    assert!(error(&writer.reply()).starts_with("MISCONF"));
    assert!(subscriber.is_silent(WHILE));
}

/// The values of one key are announced in the order in which they were written, from and to all threads.
#[test]
fn the_events_of_a_key_keep_their_order() {
    const ROUNDS: usize = 300;
    let served = ephemeral(config());
    let mut subscribers: Vec<Client> = (0..8).map(|_| subscribed(served.client())).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut writer = served.client();
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    // Each makes the key come, or go: SET and DEL alternate.
                    writer.push(&["EVAL", "if redis.call('exists', 'k') == 1 then return redis.call('del', 'k') else return redis.call('set', 'k', 1) end", "0"]);
                }
                writer.flush().expect("sent");
                (0..ROUNDS).for_each(|_| drop(writer.reply()));
            });
        }
    });
    for subscriber in &mut subscribers {
        for number in 0..4 * ROUNDS {
            let name = if number % 2 == 0 { "set" } else { "del" };
            assert_eq!(subscriber.reply(), event(name, "k"), "{number}");
        }
    }
}

#[test]
fn an_expiry_is_announced_at_its_time() {
    let served = durable(Durability::Group);
    let mut subscriber = subscribed(served.client());
    let mut caching = tracking(served.client(), &[]);
    let mut writer = served.client();
    writer.call(&["SET", "k", "1", "PX", "60"]);
    caching.call(&["GET", "k"]);
    for name in ["set", "expire", "expired"] {
        assert_eq!(subscriber.reply(), event(name, "k"));
    }
    assert_eq!(caching.reply(), invalidation("k"));
    assert_eq!(writer.call(&["GET", "k"]), Reply::Null);
    assert!(subscriber.is_silent(WHILE) && caching.is_silent(WHILE));
}

#[test]
fn news_can_be_sent_to_another_client() {
    let served = ephemeral(config());
    // As many as there are threads, so that it is another one's for some.
    for _ in 0..4 {
        let mut target = served.client();
        let Reply::Int(id) = target.call(&["CLIENT", "ID"]) else {
            panic!("no number")
        };
        target.call(&["SUBSCRIBE", "__redis__:invalidate"]);
        let mut reader = served.client();
        let id = id.to_string();
        let on = ["CLIENT", "TRACKING", "ON", "REDIRECT", &id];
        assert_eq!(reader.call(&on), ok());
        assert_eq!(reader.told("CLIENT GETREDIR"), id);
        let list = reader.told("CLIENT INFO");
        assert!(
            list.contains(" flags=t ") && list.contains(&format!(" redir={id} ")),
            "{list}"
        );
        reader.call(&["GET", "k"]);
        let mut writer = served.client();
        writer.call(&["SET", "k", "1"]);
        let message =
            |keys| Reply::Array(vec![bulk("message"), bulk("__redis__:invalidate"), keys]);
        assert_eq!(target.reply(), message(Reply::Array(vec![bulk("k")])));
        writer.call(&["FLUSHALL"]);
        assert_eq!(target.reply(), message(Reply::NullArray));
        drop(target);
        eventually("it is noticed that the target has gone", || {
            reader.call(&["GET", "k"]);
            writer.call(&["SET", "k", "1"]);
            reader
                .told("CLIENT TRACKINGINFO")
                .contains("broken_redirect")
        });
    }
    let mut client = served.client();
    eventually("all have left", || {
        let info = client.told("INFO clients");
        info.contains("tracking_clients:0\r\n")
    });
}

/// A block executes within a transaction: nothing in it waits for transactions to end.
#[test]
fn tracking_begins_within_a_block() {
    let served = ephemeral(config());
    let mut caching = served.client();
    caching.call(&["HELLO", "3"]);
    for command in [
        &["MULTI"][..],
        &["GET", "k"],
        &["CLIENT", "TRACKING", "ON"],
        &["CONFIG", "SET", "notify-keyspace-events", "KEA"],
    ] {
        caching.call(command);
    }
    let replies = Reply::Array(vec![Reply::Null, ok(), ok()]);
    assert_eq!(caching.call(&["EXEC"]), replies);
    let mut writer = served.client();
    for number in 0..10 {
        caching.send(&["GET", "k"]);
        while let Reply::Push(_) = caching.reply() {}
        writer.call(&["SET", "k", &number.to_string()]);
        assert_eq!(caching.reply(), invalidation("k"));
    }
}

#[test]
fn a_client_that_tracks_never_keeps_an_old_value() {
    const KEYS: usize = 8;
    let served = ephemeral(config());
    let mut caching = tracking(served.client(), &[]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = testkit::SetOnDrop(&stop);
        for writer in 0..2 {
            let (mut client, stop) = (served.client(), &stop);
            scope.spawn(move || {
                let mut number = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    number += 1;
                    let key = format!("k{}", number % KEYS as u64);
                    client.call(&["SET", &key, &format!("{writer} {number}")]);
                    if number.is_multiple_of(64) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        let mut kept = vec![None; KEYS];
        let take = |kept: &mut Vec<Option<Reply>>, push: &Reply| {
            for (key, value) in kept.iter_mut().enumerate() {
                if *push == invalidation(&format!("k{key}")) {
                    *value = None;
                }
            }
        };
        for round in 0..2000 {
            let key = round % KEYS;
            if kept[key].is_some() {
                continue;
            }
            caching.send(&["GET", &format!("k{key}")]);
            loop {
                match caching.reply() {
                    push @ Reply::Push(_) => take(&mut kept, &push),
                    value => {
                        kept[key] = Some(value);
                        break;
                    }
                }
            }
        }
        drop(_stop);
        // Once no client writes and all news have come, the client has the present values.
        let mut reader = served.client();
        eventually("the client has the present values", || {
            caching.send(&["PING"]);
            while let push @ Reply::Push(_) = caching.reply() {
                take(&mut kept, &push);
            }
            let mut kept = kept.iter().enumerate();
            kept.all(|(key, value)| {
                let now = reader.call(&["GET", &format!("k{key}")]);
                value.as_ref().is_none_or(|value| *value == now)
            })
        });
    });
}

#[test]
fn a_full_table_lets_keys_go_with_news() {
    let served = ephemeral(config());
    let mut caching = tracking(served.client(), &[]);
    caching.call(&["CONFIG", "SET", "tracking-table-max-keys", "10"]);
    let mut pushes = 0;
    for number in 0..2000 {
        caching.send(&["GET", &format!("k{number}")]);
        while let Reply::Push(_) = caching.reply() {
            pushes += 1;
        }
    }
    let info = served.client().told("INFO stats");
    let keys = info
        .lines()
        .find_map(|line| line.strip_prefix("tracking_total_keys:"));
    let keys: usize = keys.expect("the count").trim().parse().expect("a number");
    // A key stays in its part of the table if that has no other.
    assert!(keys <= 10 + 64, "{keys}");
    caching.send(&["CONFIG", "SET", "tracking-table-max-keys", "5"]);
    let keys = 5;
    eventually("the news of all others have come", || {
        caching.send(&["PING"]);
        while let Reply::Push(_) = caching.reply() {
            pushes += 1;
        }
        assert!(pushes + keys <= 2000, "{pushes}");
        pushes + keys == 2000
    });
}

#[test]
fn keys_of_other_nodes_are_not_kept() {
    let nodes = nodes(2);
    let (own, other) = (nodes.key_of(1, "own"), nodes.key_of(2, "other"));
    let mut subscribers = [1, 2].map(|node| subscribed(nodes.client(node)));
    let mut caching = tracking(nodes.client(1), &[]);
    let read = caching.call(&["MGET", &own, &other]);
    assert_eq!(read, Reply::Array(vec![Reply::Null, Reply::Null]));
    assert_eq!(caching.reply(), invalidation(&other));
    // A transaction over both nodes is announced on each, as far as it has its keys.
    let mut writer = nodes.client(2);
    assert_eq!(writer.call(&["MSET", &own, "1", &other, "1"]), ok());
    assert_eq!(caching.reply(), invalidation(&own));
    assert_eq!(subscribers[0].reply(), event("set", &own));
    assert_eq!(subscribers[1].reply(), event("set", &other));
    assert_eq!(writer.call(&["RENAME", &own, &other]), ok());
    assert_eq!(subscribers[0].reply(), event("rename_from", &own));
    assert_eq!(subscribers[1].reply(), event("rename_to", &other));
    assert!(subscribers[0].is_silent(WHILE) && subscribers[1].is_silent(WHILE));
}

#[test]
fn replicated_partitions_announce_effects() {
    let replica = alone();
    let mut subscriber = subscribed(replica.client());
    let mut caching = tracking(replica.client(), &[]);
    let mut writer = replica.client();
    assert_eq!(writer.call(&["SET", "k", "1"]), ok());
    assert_eq!(caching.call(&["GET", "k"]), bulk("1"));
    assert_eq!(writer.call(&["INCR", "k"]), int(2));
    assert_eq!(writer.call(&["DEL", "k"]), int(1));
    for name in ["set", "set", "del"] {
        assert_eq!(subscriber.reply(), event(name, "k"));
    }
    assert_eq!(caching.reply(), invalidation("k"));
}
