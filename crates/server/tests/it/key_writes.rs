//! Commands that write very many keys: they run in slices.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::transaction::Holder;
use base::{Op, Timestamp, TransactionId};
use kumiki_server::{Config, Durability};
use store::Db;
use testkit::{Client, Reply, eventually};

use crate::support::{bulk, config, durable, ephemeral, error, int, ok, status};

const KEYS: usize = 12_000;
const A_WHILE: Duration = Duration::from_millis(50);

/// Returns a command that sets all keys to a value.
fn set_all(command: &str, value: &str) -> Vec<String> {
    let pairs = (0..KEYS).flat_map(|number| [format!("key:{number}"), value.to_owned()]);
    [command.to_owned()].into_iter().chain(pairs).collect()
}

fn on_all(command: &str) -> Vec<String> {
    let keys = (0..KEYS).map(|number| format!("key:{number}"));
    [command.to_owned()].into_iter().chain(keys).collect()
}

fn call(client: &mut Client, args: &[String]) -> Reply {
    send(client, args);
    client.reply()
}

fn send(client: &mut Client, args: &[String]) {
    client.send(&args.iter().map(String::as_str).collect::<Vec<_>>());
}

fn one_thread() -> Config {
    Config {
        threads: 1,
        ..config()
    }
}

/// A key that a transaction holds until this is dropped.
struct HeldKey {
    db: Db,
    id: TransactionId,
}

impl HeldKey {
    /// Returns `None` if another transaction holds the key.
    fn new(db: &Db, key: &str, age: Timestamp) -> Option<HeldKey> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = TransactionId {
            timestamp: age,
            unique: COUNT.fetch_add(1, Ordering::Relaxed),
        };
        let key = key.as_bytes();
        let mut worker = db.worker().expect("a spare worker");
        let held = worker.hold(&[Op::Exists { key }], Holder { id, age });
        held.ok()?;
        let db = db.clone();
        Some(HeldKey { db, id })
    }
}

impl Drop for HeldKey {
    fn drop(&mut self) {
        self.db.end_hold(self.id);
    }
}

const OLDER: Timestamp = Timestamp(1);
const YOUNGER: Timestamp = Timestamp(u64::MAX);

#[test]
fn many_keys_are_written_as_few_are() {
    let served = ephemeral(one_thread());
    let mut client = served.client();
    for database in ["0", "1"] {
        assert_eq!(client.call(&["SELECT", database]), ok());
        let mut mset = set_all("MSET", "first");
        // The last value of a key counts.
        mset.extend(["key:7", "seven", "key:7", "again"].map(str::to_owned));
        assert_eq!(call(&mut client, &mset), ok());
        assert_eq!(client.call(&["DBSIZE"]), int(KEYS as i64));
        assert_eq!(client.call(&["GET", "key:7"]), bulk("again"));
        assert_eq!(client.call(&["GET", "key:8"]), bulk("first"));
        assert_eq!(call(&mut client, &set_all("MSETNX", "second")), int(0));
        assert_eq!(client.call(&["GET", "key:8"]), bulk("first"));
        let mut del = on_all("DEL");
        del.extend(["key:0", "absent"].map(str::to_owned));
        assert_eq!(call(&mut client, &del), int(KEYS as i64));
        assert_eq!(client.call(&["DBSIZE"]), int(0));
        let mut msetnx = set_all("MSETNX", "second");
        msetnx.extend(["key:7", "third"].map(str::to_owned));
        assert_eq!(call(&mut client, &msetnx), int(1));
        assert_eq!(client.call(&["GET", "key:7"]), bulk("third"));
        assert_eq!(call(&mut client, &on_all("UNLINK")), int(KEYS as i64));
        assert_eq!(call(&mut client, &on_all("UNLINK")), int(0));
        mset.push("without a value".to_owned());
        let refused = call(&mut client, &mset);
        assert!(error(&refused).contains("wrong number of arguments"));
    }
    assert_eq!(client.call(&["SWAPDB", "0", "1"]), ok());
    assert_eq!(call(&mut client, &set_all("MSET", "x")), ok());
    assert_eq!(client.call(&["SWAPDB", "0", "1"]), ok());
    assert_eq!(client.call(&["DBSIZE"]), int(0));
    assert_eq!(client.call(&["SELECT", "0"]), ok());
    assert_eq!(client.call(&["GET", "key:8"]), bulk("x"));
}

/// The command takes the client's input over, and what comes before it and behind it is executed as well.
#[test]
fn commands_around_it_are_executed_in_their_order() {
    let served = ephemeral(one_thread());
    let mut client = served.client();
    for round in 0..5 {
        let value = format!("value {round}");
        client.send(&["SET", "around", &value]);
        client.send(&["APPEND", "around", "!"]);
        send(&mut client, &set_all("MSET", &value));
        client.send(&["GET", "around"]);
        client.send(&["GET", "key:8"]);
        send(&mut client, &on_all("DEL"));
        client.send(&["DBSIZE"]);
        send(&mut client, &set_all("MSETNX", "next"));
        send(&mut client, &on_all("UNLINK"));
        client.send(&["GET", "key:8"]);
        let count = int(KEYS as i64);
        for expected in [
            ok(),
            int(value.len() as i64 + 1),
            ok(),
            bulk(&format!("{value}!")),
            bulk(&value),
            count.clone(),
            int(1),
            int(1),
            count,
            Reply::Null,
        ] {
            assert_eq!(client.reply(), expected, "round {round}");
        }
    }
}

/// Another client of the same thread is served between the slices, and sees all of a command or nothing.
#[test]
fn other_clients_are_served_while_many_keys_are_written() {
    let served = ephemeral(one_thread());
    let mut client = served.client();
    assert_eq!(call(&mut client, &set_all("MSET", "0")), ok());
    assert_eq!(client.call(&["SET", "turns", "0"]), ok());
    let done = AtomicBool::new(false);
    let last = format!("key:{}", KEYS - 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = served.client();
            while !done.load(Ordering::Relaxed) {
                assert!(matches!(other.call(&["INCR", "turns"]), Reply::Int(_)));
            }
        });
        scope.spawn(|| {
            let mut reader = served.client();
            while !done.load(Ordering::Relaxed) {
                let Reply::Array(values) = reader.call(&["MGET", "key:0", "key:5000", &last])
                else {
                    panic!("no list");
                };
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
            }
        });
        let _ends = testkit::SetOnDrop(&done);
        let mut round = 0;
        eventually("the other client is served several times", || {
            round += 1;
            let before = turns(&mut client);
            let args = match round % 3 {
                0 => on_all("DEL"),
                _ => set_all("MSET", &round.to_string()),
            };
            send(&mut client, &args);
            assert!(!matches!(client.reply(), Reply::Error(_)));
            turns(&mut client) >= before + 10
        });
    });

    fn turns(client: &mut Client) -> i64 {
        let Reply::Bulk(text) = client.call(&["GET", "turns"]) else {
            panic!("no number");
        };
        String::from_utf8(text).unwrap().parse().unwrap()
    }
}

/// Commands that write the same keys, in two orders, and flushes: each of them ends.
#[test]
fn writers_of_the_same_keys_wait_for_each_other() {
    for threads in [1, 2] {
        let served = ephemeral(Config {
            threads,
            ..config()
        });
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let mut client = served.client();
                scope.spawn(move || {
                    let mut args = set_all("MSET", &writer.to_string());
                    if writer == 1 {
                        let pairs = args.split_off(1);
                        let pairs: Vec<_> = pairs.chunks(2).rev().flatten().cloned().collect();
                        args.extend(pairs);
                    }
                    for _ in 0..5 {
                        assert_eq!(call(&mut client, &args), ok());
                    }
                });
            }
            let mut client = served.client();
            scope.spawn(move || {
                for round in 0..20 {
                    let key = format!("key:{}", round * 500);
                    assert_eq!(client.call(&["SET", &key, "single"]), ok());
                    assert_eq!(client.call(&["FLUSHALL"]), ok());
                }
            });
        });
        let mut client = served.client();
        assert_eq!(call(&mut client, &set_all("MSET", "last")), ok());
        assert_eq!(client.call(&["DBSIZE"]), int(KEYS as i64));
    }
}

#[test]
fn the_older_one_keeps_what_it_holds_and_leaves_nothing_when_it_is_killed() {
    let served = ephemeral(one_thread());
    let mut other = served.client();
    assert_eq!(other.call(&["SET", "key:0", "old"]), ok());
    for disconnects in [false, true] {
        let held = HeldKey::new(&served.db, "key:7000", YOUNGER).expect("it is free");
        let mut waiting = served.client();
        let mut writer = served.client();
        let number = writer.call(&["CLIENT", "ID"]);
        send(&mut writer, &set_all("MSET", "new"));
        eventually("it has come to the held key", || {
            HeldKey::new(&served.db, "key:6999", YOUNGER).is_none()
        });
        // It holds the first keys: others read them, and wait to write them.
        assert_eq!(other.call(&["GET", "key:0"]), bulk("old"));
        waiting.send(&["SET", "key:0", "next"]);
        assert!(waiting.is_silent(A_WHILE));
        if disconnects {
            // It goes on without its client, as every command that has been received.
            drop(writer);
            drop(held);
        } else {
            let Reply::Int(number) = number else {
                panic!("{number:?}");
            };
            let killed = other.call(&["CLIENT", "KILL", "ID", &number.to_string()]);
            assert_eq!(killed, int(1));
        }
        assert_eq!(waiting.reply(), ok());
        let count = other.call(&["DBSIZE"]);
        assert!(count == int(1) || disconnects && count == int(KEYS as i64));
        assert_eq!(other.call(&["SET", "key:0", "old"]), ok());
    }
}

#[test]
fn the_younger_one_gives_everything_back_while_it_waits() {
    let served = ephemeral(one_thread());
    let held = HeldKey::new(&served.db, "key:7000", OLDER).expect("it is free");
    let (mut client, mut other) = (served.client(), served.client());
    send(&mut client, &set_all("MSET", "new"));
    assert_eq!(other.call(&["SET", "key:0", "old"]), ok());
    assert_eq!(other.call(&["DBSIZE"]), int(1));
    assert!(client.is_silent(A_WHILE));
    drop(held);
    assert_eq!(client.reply(), ok());
    assert_eq!(other.call(&["GET", "key:0"]), bulk("new"));
}

#[test]
fn a_command_that_waits_for_too_long_is_refused() {
    let served = ephemeral(Config {
        hold_timeout: Duration::from_millis(200),
        ..one_thread()
    });
    let mut client = served.client();
    for age in [OLDER, YOUNGER] {
        let held = HeldKey::new(&served.db, "key:7000", age).expect("it is free");
        let refused = call(&mut client, &set_all("MSET", "new"));
        assert!(error(&refused).starts_with("TRYAGAIN"), "{refused:?}");
        drop(held);
        assert_eq!(client.call(&["DBSIZE"]), int(0));
        assert_eq!(client.call(&["SET", "key:0", "free"]), ok());
        assert_eq!(client.call(&["DEL", "key:0"]), int(1));
    }
}

fn set_in_block(client: &mut Client, value: &str) {
    assert_eq!(client.call(&["MULTI"]), ok());
    for number in 0..KEYS {
        client.send(&["SET", &format!("key:{number}"), value]);
    }
    for _ in 0..KEYS {
        assert_eq!(client.reply(), status("QUEUED"));
    }
}

#[test]
fn a_block_of_very_many_commands_is_one_transaction() {
    let served = ephemeral(one_thread());
    let (mut client, mut other) = (served.client(), served.client());
    for database in ["0", "1"] {
        assert_eq!(client.call(&["SELECT", database]), ok());
        assert_eq!(other.call(&["SELECT", database]), ok());
        assert_eq!(client.call(&["SET", "text", "abc"]), ok());
        set_in_block(&mut client, "1");
        let commands: [(&[&str], Reply); 7] = [
            (&["INCR", "key:0"], int(2)),
            (&["APPEND", "key:1", "x"], int(2)),
            (
                &["MGET", "key:0", "key:1"],
                Reply::Array(vec![bulk("2"), bulk("1x")]),
            ),
            (&["RPUSH", "list", "a", "b"], int(2)),
            (
                &["LRANGE", "list", "0", "-1"],
                Reply::Array(vec![bulk("a"), bulk("b")]),
            ),
            (&["GET", "absent"], Reply::Null),
            (&["DEL", "key:2", "absent"], int(1)),
        ];
        for (command, _) in &commands {
            assert_eq!(client.call(command), status("QUEUED"));
        }
        // Errors of single commands do not end it.
        assert_eq!(client.call(&["INCR", "text"]), status("QUEUED"));
        assert_eq!(client.call(&["EXPIRE", "text", "x"]), status("QUEUED"));
        client.send(&["EXEC"]);
        let count = other.call(&["DBSIZE"]);
        assert!(
            count == int(1) || count == int(KEYS as i64 + 1),
            "{count:?}"
        );
        let Reply::Array(replies) = client.reply() else {
            panic!("no list");
        };
        assert_eq!(replies.len(), KEYS + 9);
        assert!(replies[..KEYS].iter().all(|reply| *reply == ok()));
        for (reply, (command, expected)) in replies[KEYS..].iter().zip(&commands) {
            assert_eq!(reply, expected, "{command:?}");
        }
        assert!(error(&replies[KEYS + 7]).contains("not an integer"));
        assert!(error(&replies[KEYS + 8]).contains("not an integer"));
        assert_eq!(other.call(&["DBSIZE"]), int(KEYS as i64 + 1));
        assert_eq!(other.call(&["GET", "key:0"]), bulk("2"));
    }
}

#[test]
fn a_block_whose_watched_key_has_changed_does_nothing() {
    let served = ephemeral(one_thread());
    let (mut client, mut other) = (served.client(), served.client());
    for changed in ["key:0", "key:9999", "other"] {
        assert_eq!(call(&mut client, &on_all("WATCH")), ok());
        set_in_block(&mut client, "block");
        assert_eq!(other.call(&["SET", changed, "changed"]), ok());
        let outcome = client.call(&["EXEC"]);
        match changed {
            "other" => assert!(matches!(outcome, Reply::Array(_))),
            _ => assert_eq!(outcome, Reply::NullArray),
        }
    }
    assert_eq!(other.call(&["GET", "key:0"]), bulk("block"));
    let held = HeldKey::new(&served.db, "key:7000", OLDER).expect("it is free");
    set_in_block(&mut client, "later");
    client.send(&["EXEC"]);
    assert!(client.is_silent(A_WHILE));
    assert_eq!(other.call(&["GET", "key:0"]), bulk("block"));
    drop(held);
    assert!(matches!(client.reply(), Reply::Array(_)));
    assert_eq!(other.call(&["GET", "key:0"]), bulk("later"));
}

#[test]
fn what_has_been_acknowledged_is_found_again() {
    let served = durable(Durability::Group);
    let mut client = served.client();
    assert_eq!(call(&mut client, &set_all("MSET", "kept")), ok());
    served.gate.close();
    send(&mut client, &on_all("DEL"));
    // It is committed, and not durable.
    let mut other = served.client();
    eventually("it is committed", || {
        other.call(&["PING"]) == status("PONG") && served.db.stats().keys == 0
    });
    assert!(client.is_silent(A_WHILE));
    served.gate.open();
    assert_eq!(client.reply(), int(KEYS as i64));
}

#[test]
fn memory_is_refused_before_anything_is_kept() {
    let served = ephemeral(one_thread());
    let mut client = served.client();
    assert_eq!(call(&mut client, &set_all("MSET", "small")), ok());
    let used = served.db.memory_bytes();
    let limit = (used + 1_000_000).to_string();
    assert_eq!(client.call(&["CONFIG", "SET", "maxmemory", &limit]), ok());
    let large = set_all("MSET", &"x".repeat(1_000));
    let refused = call(&mut client, &large);
    assert!(error(&refused).starts_with("OOM"), "{refused:?}");
    assert_eq!(client.call(&["GET", "key:0"]), bulk("small"));
    assert_eq!(call(&mut client, &on_all("DEL")), int(KEYS as i64));
}
