//! Blocks are one transaction; watches are their precondition.

mod support;

use resp::Value;
use support::{Served, bulk, config, ephemeral, error, int, ok, status};

fn block(served: &Served, commands: &[&[&str]]) -> Value {
    let mut client = served.client();
    assert_eq!(client.call(&["MULTI"]), ok());
    for command in commands {
        assert_eq!(client.call(command), status("QUEUED"), "{command:?}");
    }
    client.call(&["EXEC"])
}

#[test]
fn all_or_nothing_within_a_block() {
    let served = ephemeral(config());
    let done = block(
        &served,
        &[
            &["MSETNX", "a", "1", "b", "1"],
            &["MSETNX", "b", "2", "c", "2"],
            &["DEL", "b"],
            &["MSETNX", "b", "3", "c", "3"],
            &["MGET", "a", "b", "c"],
        ],
    );
    let values = Value::Array(vec![bulk("1"), bulk("3"), bulk("3")]);
    assert_eq!(
        done,
        Value::Array(vec![int(1), int(0), int(1), int(1), values])
    );
}

#[test]
fn what_fails_alone_fails_alone() {
    let served = ephemeral(config());
    let done = block(
        &served,
        &[
            &["SET", "a", "x"],
            &["INCR", "a"],
            &["SET", "b", "1", "WHAT"],
            &["PING"],
            &["KEYS", "*"],
            &["SCAN", "0"],
            &["UNWATCH"],
            &["APPEND", "a", "y"],
        ],
    );
    let Value::Array(replies) = done else {
        panic!("{done:?}")
    };
    assert_eq!(replies.len(), 8);
    assert_eq!(
        error(&replies[1]),
        "ERR value is not an integer or out of range"
    );
    assert_eq!(error(&replies[2]), "ERR syntax error");
    assert_eq!(replies[3], status("PONG"));
    assert_eq!(replies[4], Value::Array(vec![bulk("a")]));
    assert_eq!(
        replies[5],
        Value::Array(vec![bulk("0"), Value::Array(vec![bulk("a")])])
    );
    assert_eq!((&replies[6], &replies[7]), (&ok(), &int(2)));
}

#[test]
fn a_watched_key_that_changes_ends_the_block() {
    let served = ephemeral(config());
    let mut other = served.client();
    let changes: [&[&str]; 4] = [
        &["SET", "k", "2"],
        &["DEL", "k"],
        &["EXPIRE", "k", "100"],
        &["FLUSHALL"],
    ];
    for change in changes {
        let mut client = served.client();
        assert_eq!(client.call(&["SET", "k", "1"]), ok());
        assert_eq!(client.call(&["WATCH", "k", "unrelated"]), ok());
        other.call(change);
        assert_eq!(client.call(&["MULTI"]), ok());
        client.call(&["SET", "k", "3"]);
        assert_eq!(client.call(&["EXEC"]), Value::Null, "{change:?}");
        // The watch has ended with it.
        assert_eq!(client.call(&["MULTI"]), ok());
        client.call(&["SET", "k", "4"]);
        assert_eq!(client.call(&["EXEC"]), Value::Array(vec![ok()]));
    }
    let mut client = served.client();
    assert_eq!(client.call(&["WATCH", "k"]), ok());
    other.call(&["SET", "k", "5"]);
    assert_eq!(client.call(&["UNWATCH"]), ok());
    assert_eq!(client.call(&["MULTI"]), ok());
    client.call(&["GET", "k"]);
    assert_eq!(client.call(&["EXEC"]), Value::Array(vec![bulk("5")]));
}

#[test]
fn a_block_beyond_its_limits_cannot_execute() {
    let mut config = config();
    config.limits.block_bytes = 10_000;
    let served = ephemeral(config);
    let mut client = served.client();
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", "a", "1"]), status("QUEUED"));
    let refused = client.call(&["SET", "b", &"x".repeat(20_000)]);
    assert!(error(&refused).contains("exceeds its limits"));
    assert!(error(&client.call(&["EXEC"])).starts_with("EXECABORT"));
    assert_eq!(client.call(&["EXISTS", "a", "b"]), int(0));
}

/// Clients move amounts between accounts, half of them by `WATCH`, half by one block; others look
/// at all accounts at once. The sum never changes.
#[test]
fn blocks_of_many_clients_are_serializable() {
    const ACCOUNTS: usize = 8;
    const MOVES: usize = 300;
    let served = ephemeral(config());
    let names: Vec<String> = (0..ACCOUNTS)
        .map(|number| format!("account:{number}"))
        .collect();
    for name in &names {
        assert_eq!(served.client().call(&["SET", name, "100"]), ok());
    }
    let sum = |reply: &Value| -> i64 {
        let Value::Array(values) = reply else {
            panic!("{reply:?}")
        };
        values
            .iter()
            .map(|value| match value {
                Value::Bulk(text) => std::str::from_utf8(text).unwrap().parse::<i64>().unwrap(),
                other => panic!("{other:?}"),
            })
            .sum()
    };
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            let (names, served) = (&names, &served);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut client = served.client();
                for _ in 0..MOVES {
                    let (from, to) = (random.usize(..ACCOUNTS), random.usize(..ACCOUNTS));
                    if from == to {
                        continue;
                    }
                    if seed % 2 == 0 {
                        assert_eq!(client.call(&["MULTI"]), ok());
                        client.call(&["DECRBY", &names[from], "7"]);
                        client.call(&["INCRBY", &names[to], "7"]);
                        assert_ne!(client.call(&["EXEC"]), Value::Null);
                        continue;
                    }
                    assert_eq!(client.call(&["WATCH", &names[from], &names[to]]), ok());
                    let both = client.call(&["MGET", &names[from], &names[to]]);
                    let Value::Array(values) = &both else {
                        panic!("{both:?}")
                    };
                    let number = |value: &Value| sum(&Value::Array(vec![value.clone()]));
                    assert_eq!(client.call(&["MULTI"]), ok());
                    client.call(&["SET", &names[from], &(number(&values[0]) - 3).to_string()]);
                    client.call(&["SET", &names[to], &(number(&values[1]) + 3).to_string()]);
                    client.call(&["EXEC"]);
                }
            });
        }
        let (names, served) = (&names, &served);
        scope.spawn(move || {
            let mut client = served.client();
            let command: Vec<&str> = std::iter::once("MGET")
                .chain(names.iter().map(String::as_str))
                .collect();
            for _ in 0..MOVES {
                assert_eq!(sum(&client.call(&command)), 100 * ACCOUNTS as i64);
            }
        });
    });
}
