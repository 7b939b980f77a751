//! Commands that read very many keys by their names.

use std::sync::atomic::{AtomicBool, Ordering};

use kumiki_server::Config;
use testkit::{Client, Reply, eventually};

use crate::support::{bulk, config, ephemeral, int, ok};

const KEYS: usize = 50_000;

/// Returns the arguments of a command on many keys, of which `n` is the first and the last.
fn on_many(command: &'static str) -> Vec<String> {
    let others = (0..KEYS).map(|number| format!("key:{number}"));
    let all = [command, "n"].map(str::to_owned).into_iter().chain(others);
    all.chain(["n".to_owned()]).collect()
}

fn call(client: &mut Client, args: &[String]) -> Reply {
    send(client, args);
    client.reply()
}

fn send(client: &mut Client, args: &[String]) {
    client.send(&args.iter().map(String::as_str).collect::<Vec<_>>());
}

fn number(reply: &Reply) -> i64 {
    let Reply::Bulk(text) = reply else {
        panic!("{reply:?}");
    };
    let text = std::str::from_utf8(text).expect("text");
    text.parse().expect("a number")
}

#[test]
fn many_keys_are_found_as_few_are() {
    let server = ephemeral(config());
    let mut client = server.client();
    let (mget, exists) = (on_many("MGET"), on_many("EXISTS"));
    let absent = vec![Reply::Null; KEYS + 2];
    assert_eq!(call(&mut client, &mget), Reply::Array(absent));
    assert_eq!(call(&mut client, &exists), int(0));
    for (key, value) in [("n", "1"), ("key:7", "seven"), ("key:8", "")] {
        assert_eq!(client.call(&["SET", key, value]), ok());
    }
    assert_eq!(client.call(&["SET", "key:9", "gone", "PX", "1"]), ok());
    eventually("it expires", || {
        client.call(&["GET", "key:9"]) == Reply::Null
    });
    let Reply::Array(values) = call(&mut client, &mget) else {
        panic!("no list");
    };
    let some = [
        values[0].clone(),
        values[8].clone(),
        values[9].clone(),
        values[10].clone(),
    ];
    assert_eq!(some, [bulk("1"), bulk("seven"), bulk(""), Reply::Null]);
    assert_eq!((values.len(), &values[KEYS + 1]), (KEYS + 2, &bulk("1")));
    // A key that is named twice counts twice.
    for command in ["EXISTS", "TOUCH"] {
        assert_eq!(call(&mut client, &on_many(command)), int(4));
    }
    assert_eq!(client.call(&["FLUSHALL"]), ok());
    assert_eq!(call(&mut client, &exists), int(0));
    client.send(&["HELLO", "3"]);
    client.reply();
    let values = call(&mut client, &mget);
    assert_eq!(values, Reply::Array(vec![Reply::Null; KEYS + 2]));
}

/// Another client changes a key while many are read: it is served meanwhile, and the reader sees one
/// moment.
#[test]
fn other_clients_are_served_while_many_keys_are_read() {
    let server = ephemeral(Config {
        threads: 1,
        ..config()
    });
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "n", "0"]), ok());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = server.client();
            while !done.load(Ordering::Relaxed) {
                assert!(matches!(other.call(&["INCR", "n"]), Reply::Int(_)));
            }
        });
        let mget = on_many("MGET");
        let _ends = testkit::SetOnDrop(&done);
        eventually("the other client is served several times", || {
            send(&mut client, &mget);
            client.send(&["GET", "n"]);
            let Reply::Array(values) = client.reply() else {
                panic!("no list");
            };
            let after = number(&client.reply());
            assert_eq!(values[0], values[KEYS + 1]);
            after >= number(&values[0]) + 5
        });
    });
}

#[test]
fn keys_of_other_databases_are_found() {
    let server = ephemeral(config());
    let mut client = server.client();
    let exists = on_many("EXISTS");
    assert_eq!(client.call(&["SET", "n", "0"]), ok());
    assert_eq!(client.call(&["SELECT", "1"]), ok());
    assert_eq!(call(&mut client, &exists), int(0));
    for key in ["n", "key:7"] {
        assert_eq!(client.call(&["SET", key, "1"]), ok());
    }
    assert_eq!(call(&mut client, &exists), int(3));
    let Reply::Array(values) = call(&mut client, &on_many("MGET")) else {
        panic!("no list");
    };
    assert_eq!([&values[0], &values[8]], [&bulk("1"), &bulk("1")]);
    assert_eq!(client.call(&["SWAPDB", "0", "1"]), ok());
    assert_eq!(call(&mut client, &exists), int(2));
}
