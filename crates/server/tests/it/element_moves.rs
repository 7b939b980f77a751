//! Commands that move or pop elements of large collections: they log these elements, and copy no collection.

use kumiki_server::Durability;
use testkit::{Client, Reply, eventually};

use crate::support::replica::alone_in;
use crate::support::{durable, int, ok};

/// Elements of each collection, which has about 600 kB.
const ELEMENTS: usize = 20_000;
/// Executions of each command.
const TIMES: usize = 20;
/// More than the log gets of one command: a collection of few elements is logged whole. It is much less than one
/// large collection.
const MOST_LOG_BYTES: u64 = 10_000 * TIMES as u64;

/// Returns the field of `INFO` that counts the bytes of a log.
fn log_bytes(client: &mut Client, field: &str) -> u64 {
    let info = client.call(&["INFO", "everything"]).shown();
    let lines = info.split(['\r', '\n']);
    let mut values = lines.filter_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = values.next().expect("the field is there");
    value.trim().parse().expect("it is a number")
}

fn fill(client: &mut Client) {
    let number = |n: usize| format!("an element of the collection {n:06}");
    for first in (0..ELEMENTS).step_by(500) {
        let elements: Vec<String> = (first..first + 500).map(number).collect();
        let scored: Vec<String> = (first..first + 500)
            .flat_map(|n| [n.to_string(), number(n)])
            .collect();
        for (command, key, arguments) in [
            ("RPUSH", "list", &elements),
            ("SADD", "set", &elements),
            ("ZADD", "zset", &scored),
        ] {
            let words = [command, key].into_iter();
            let words: Vec<&str> = words.chain(arguments.iter().map(String::as_str)).collect();
            client.send(&words);
        }
        for _ in 0..3 {
            assert!(matches!(client.reply(), Reply::Int(_)));
        }
    }
}

/// Executes commands on collections that were filled, and calls `check` after each with its name.
fn run(client: &mut Client, mut check: impl FnMut(&mut Client, &str)) {
    let move_in_script = "return redis.call('lmove', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')";
    let commands: [&[&str]; 13] = [
        &["LMOVE", "list", "list", "LEFT", "RIGHT"],
        &["LMOVE", "list", "other", "LEFT", "RIGHT"],
        &["RPOPLPUSH", "list", "other"],
        &["BLMOVE", "list", "other", "LEFT", "RIGHT", "0"],
        &["BRPOPLPUSH", "list", "other", "0"],
        &["BLPOP", "none", "list", "0"],
        &["BRPOP", "list", "0"],
        &["LMPOP", "2", "none", "list", "LEFT", "COUNT", "3"],
        &["BLMPOP", "0", "1", "list", "RIGHT"],
        &["ZMPOP", "1", "zset", "MIN"],
        &["BZPOPMIN", "zset", "0"],
        &["BZMPOP", "0", "1", "zset", "MAX", "COUNT", "2"],
        &["EVAL", move_in_script, "2", "list", "other"],
    ];
    for command in commands {
        for _ in 0..TIMES {
            let reply = client.call(command);
            let is_element = matches!(reply, Reply::Bulk(_) | Reply::Array(_));
            assert!(is_element, "{command:?}: {reply:?}");
        }
        check(client, command[0]);
    }
    for n in 0..TIMES {
        let member = format!("an element of the collection {n:06}");
        assert_eq!(client.call(&["SMOVE", "set", "others", &member]), int(1));
    }
    check(client, "SMOVE");
    for _ in 0..TIMES {
        client.call(&["MULTI"]);
        client.call(&["LMOVE", "list", "other", "LEFT", "RIGHT"]);
        client.call(&["BLPOP", "other", "0"]);
        client.call(&["SET", "key", "value"]);
        let replies = client.call(&["EXEC"]);
        let Reply::Array(replies) = replies else {
            panic!("{replies:?}");
        };
        assert!(matches!(replies[0], Reply::Bulk(_)), "{replies:?}");
        assert_eq!(replies[2], ok());
    }
    check(client, "EXEC");
    // LMOVE from one to the other, RPOPLPUSH, BLMOVE, BRPOPLPUSH, EVAL, and what EXEC has moved; it has popped as
    // much.
    let (moved, popped) = (6 * TIMES, (1 + 1 + 3 + 1) * TIMES);
    let left = ELEMENTS - moved - popped;
    let counts = [
        (["LLEN", "list"], left),
        (["LLEN", "other"], moved - TIMES),
        (["SCARD", "set"], ELEMENTS - TIMES),
        (["SCARD", "others"], TIMES),
        (["ZCARD", "zset"], ELEMENTS - 4 * TIMES),
    ];
    for (command, count) in counts {
        assert_eq!(client.call(&command), int(count as i64), "{command:?}");
    }
}

#[test]
fn the_log_gets_the_elements_alone() {
    let served = durable(Durability::Group);
    let client = &mut served.client();
    fill(client);
    let mut logged = log_bytes(client, "log_bytes");
    run(client, |client, what| {
        let now = log_bytes(client, "log_bytes");
        let bytes = now - logged;
        assert!(bytes > 0, "{what} is not in the log");
        assert!(bytes < MOST_LOG_BYTES, "{what}: {bytes} bytes");
        logged = now;
    });
}

#[test]
fn the_log_of_replicas_gets_the_elements_alone() {
    let dir = tempfile::tempdir().unwrap();
    let replica = alone_in(dir.path());
    let client = &mut replica.client();
    fill(client);
    // It is counted a moment later.
    let filled = 3 * 600_000;
    let bytes = |client: &mut Client| log_bytes(client, "replica_log_bytes");
    eventually("what was filled is counted", || bytes(client) > filled);
    let before = bytes(client);
    let mut commands = 0;
    run(client, |_, _| commands += 1);
    client.call(&["SET", "last", &"x".repeat(1 << 20)]);
    eventually("all is counted", || bytes(client) > before + (1 << 20));
    let logged = bytes(client) - before - (1 << 20);
    assert!(logged < commands * MOST_LOG_BYTES, "{logged} bytes");
}

#[test]
fn clients_that_wait_for_each_other_log_elements_alone() {
    let dir = tempfile::tempdir().unwrap();
    let replica = alone_in(dir.path());
    let client = &mut replica.client();
    fill(client);
    let bytes = |client: &mut Client| log_bytes(client, "replica_log_bytes");
    eventually("what was filled is counted", || bytes(client) > 3 * 600_000);
    let before = bytes(client);
    // Until one is agreed upon, its keys are held: the others wait for it.
    let clients = 8;
    std::thread::scope(|scope| {
        for _ in 0..clients {
            let mut own = replica.client();
            scope.spawn(move || {
                for _ in 0..TIMES {
                    let moved = own.call(&["LMOVE", "list", "other", "LEFT", "RIGHT"]);
                    assert!(matches!(moved, Reply::Bulk(_)), "{moved:?}");
                    let back = own.call(&["BLPOP", "other", "0"]);
                    assert!(matches!(back, Reply::Array(_)), "{back:?}");
                }
            });
        }
    });
    client.call(&["SET", "last", &"x".repeat(1 << 20)]);
    eventually("all is counted", || bytes(client) > before + (1 << 20));
    // One copy of the list has 600 kB; one in a hundred would be too many.
    let logged = bytes(client) - before - (1 << 20);
    assert!(logged < 2_000_000, "{logged} bytes");
    let left = (ELEMENTS - clients * TIMES) as i64;
    assert_eq!(client.call(&["LLEN", "list"]), int(left));
    assert_eq!(client.call(&["LLEN", "other"]), int(0));
}

#[test]
fn a_watched_block_that_moves_elements_is_not_executed_after_a_change() {
    let served = durable(Durability::Group);
    let (mut client, mut other) = (served.client(), served.client());
    client.call(&["RPUSH", "list", "a", "b"]);
    for is_changed in [false, true] {
        client.call(&["WATCH", "key"]);
        if is_changed {
            other.call(&["SET", "key", "1"]);
        }
        client.call(&["MULTI"]);
        client.call(&["LMOVE", "list", "other", "LEFT", "RIGHT"]);
        let reply = client.call(&["EXEC"]);
        assert_eq!(matches!(reply, Reply::Array(_)), !is_changed, "{reply:?}");
        assert_eq!(client.call(&["LLEN", "list"]), int(1));
    }
}
