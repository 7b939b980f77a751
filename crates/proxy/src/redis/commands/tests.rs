use resp::{Protocol, Span, Writer};

use super::*;

/// Returns some commands, as a node reports them.
pub(crate) fn some() -> Commands {
    let all: &[(&str, i64, &[&str], [i64; 3])] = &[
        ("get", 2, &["readonly", "fast"], [1, 1, 1]),
        ("set", -3, &["write"], [1, 1, 1]),
        ("incr", 2, &["write"], [1, 1, 1]),
        ("mget", -2, &["readonly"], [1, -1, 1]),
        ("mset", -3, &["write"], [1, -1, 2]),
        ("msetnx", -3, &["write"], [1, -1, 2]),
        ("del", -2, &["write"], [1, -1, 1]),
        ("dbsize", 1, &["readonly"], [0, 0, 0]),
        ("keys", 2, &["readonly"], [0, 0, 0]),
        ("scan", -2, &["readonly"], [0, 0, 0]),
        ("time", 1, &["fast"], [0, 0, 0]),
        ("ping", -1, &["fast"], [0, 0, 0]),
        ("eval", -3, &["movablekeys"], [0, 0, 0]),
        (
            "xread",
            -4,
            &["readonly", "blocking", "movablekeys"],
            [0, 0, 0],
        ),
        ("zunionstore", -4, &["write", "movablekeys"], [1, 1, 1]),
        ("blpop", -3, &["write", "blocking"], [1, -2, 1]),
        ("publish", 3, &["pubsub"], [0, 0, 0]),
        ("subscribe", -2, &["pubsub"], [0, 0, 0]),
        ("unsubscribe", -1, &["pubsub"], [0, 0, 0]),
        ("psubscribe", -2, &["pubsub"], [0, 0, 0]),
        ("punsubscribe", -1, &["pubsub"], [0, 0, 0]),
        ("ssubscribe", -2, &["pubsub"], [1, -1, 1]),
        ("save", 1, &["admin", "noscript"], [0, 0, 0]),
        ("bf.add", -1, &["write"], [1, 1, 1]),
        ("script", -2, &["noscript"], [0, 0, 0]),
        ("xreadgroup", -7, &["write", "movablekeys"], [0, 0, 0]),
        ("sort", -2, &["write", "movablekeys"], [1, 1, 1]),
        ("georadius", -6, &["write", "movablekeys"], [1, 1, 1]),
        ("shutdown", -1, &["admin"], [0, 0, 0]),
    ];
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, Protocol::Resp2);
    writer.array(all.len() + 1);
    for (name, arity, flags, keys) in all {
        writer.array(6);
        writer.bulk(name.as_bytes());
        writer.int(*arity);
        writer.array(flags.len());
        for flag in *flags {
            writer.status(flag);
        }
        for key in keys {
            writer.int(*key);
        }
    }
    // OBJECT and its subcommand, as Redis reports them since version 7.
    writer.array(10);
    writer.bulk(b"object");
    writer.int(-2);
    for _ in 0..7 {
        writer.array(0);
    }
    writer.array(1);
    writer.array(6);
    writer.bulk(b"object|encoding");
    writer.int(3);
    writer.array(1);
    writer.status("readonly");
    for key in [2, 2, 1] {
        writer.int(key);
    }
    Commands::read(&out).expect("it is a list")
}

/// Calls `look` with the words as arguments.
pub(crate) fn with_args<T>(words: &str, look: impl FnOnce(Args<'_>) -> T) -> T {
    let mut spans = Vec::new();
    let mut at = 0;
    for word in words.split(' ') {
        spans.push(Span::new(at, word.len()));
        at += word.len() + 1;
    }
    look(Args::new(words.as_bytes(), &spans))
}

#[test]
fn keys_are_found() {
    let commands = some();
    for (words, keys) in [
        ("GET a", &[1][..]),
        ("mget a b c", &[1, 2, 3]),
        ("MSET a 1 b 2", &[1, 3]),
        ("object encoding a", &[2]),
        ("eval return 2 a b c", &[3, 4]),
        ("eval return x a", &[]),
        ("eval return 99 a", &[3]),
        ("zunionstore to 2 a b WEIGHTS 1 2", &[1, 3, 4]),
        ("xread COUNT 2 streams a b 0 0", &[4, 5]),
        ("blpop a b 0", &[1, 2]),
        ("dbsize", &[]),
        // Words of options may be anything.
        ("xread count streams streams a 0", &[4]),
        (
            "xreadgroup group streams streams block 5 streams a b > >",
            &[7, 8],
        ),
        ("sort a", &[1]),
        ("sort a by store get store limit 0 1 store b", &[1, 10]),
        ("sort a get store", &[1]),
        ("georadius a 1 2 3 km storedist b", &[1, 7]),
        // Fewer arguments than the positions of its keys require.
        ("bf.add", &[]),
        ("object encoding", &[]),
    ] {
        let found = with_args(words, |args| commands.find(args).map(|it| it.keys(args)));
        assert_eq!(found.as_deref(), Some(keys), "{words}");
    }
    assert!(with_args("nosuch a", |args| commands.find(args).is_none()));
    let long = "x".repeat(LONGEST + 1);
    assert!(with_args(&long, |args| commands.find(args).is_none()));
}

#[test]
fn what_the_proxy_does_itself() {
    let commands = some();
    let special = |words| with_args(words, |args| commands.find(args).map(|it| it.special));
    assert_eq!(special("PING"), Some(Special::Local));
    assert_eq!(special("HELLO"), Some(Special::Local));
    assert_eq!(special("WATCH"), Some(Special::Block));
    assert_eq!(special("BLPOP"), Some(Special::Waits));
    assert_eq!(special("GET"), Some(Special::None));
    assert_eq!(special("PUBLISH"), Some(Special::Publish));
    assert!(matches!(
        special("PSUBSCRIBE"),
        Some(Special::Subscription(..))
    ));
    assert_eq!(special("PUBSUB CHANNELS"), Some(Special::Local));
    assert!(matches!(special("SAVE"), Some(Special::Refused(_))));
    assert!(matches!(
        special("script Debug yes"),
        Some(Special::Refused(_))
    ));
    let first = Some(Special::ReplyReduction(ReplyReduction::First));
    assert_eq!(special("SCRIPT LOAD x"), first);
    assert_eq!(special("XREADGROUP"), Some(Special::Waits));
    assert!(matches!(special("SHUTDOWN"), Some(Special::Refused(_))));
    let takes = |words, count| with_args(words, |args| commands.find(args).unwrap().takes(count));
    assert!(takes("get", 2) && !takes("get", 3));
    assert!(takes("mget", 5) && !takes("mget", 1));
}

/// A connection that clients share must be like new for each of them.
#[test]
fn nothing_that_changes_a_connection_goes_onto_a_shared_one() {
    for name in [
        "asking",
        "auth",
        "client|caching",
        "client|reply",
        "client|tracking",
        "discard",
        "exec",
        "hello",
        "monitor",
        "multi",
        "psubscribe",
        "psync",
        "punsubscribe",
        "quit",
        "readonly",
        "readwrite",
        "replconf",
        "reset",
        "script|debug",
        "select",
        "ssubscribe",
        "subscribe",
        "sunsubscribe",
        "sync",
        "unsubscribe",
        "unwatch",
        "watch",
    ] {
        let special = special(name);
        assert!(
            matches!(
                special,
                Special::Local | Special::Block | Special::Subscription(..) | Special::Refused(_)
            ),
            "{name}: {special:?}"
        );
    }
}

#[test]
fn what_is_no_list_is_refused() {
    for reply in [&b"-NOAUTH x\r\n"[..], b":1\r\n", b"*1"] {
        assert!(Commands::read(reply).is_err());
    }
}
