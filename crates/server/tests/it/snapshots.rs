//! `KUMIKI.SNAPSHOT`: a consistent copy of all keys in pieces, the client it belongs to, and when
//! it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{bulk, config, durable, ephemeral, error, nodes, ok, status};
use kumiki_server::{Config, Durability};
use testkit::{Client, Reply, eventually, eventually_some};

const BEGIN: &[&str] = &["KUMIKI.SNAPSHOT", "BEGIN"];
const NEXT: &[&str] = &["KUMIKI.SNAPSHOT", "NEXT"];
const END: &[&str] = &["KUMIKI.SNAPSHOT", "END"];
/// The entry of a key in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    value: String,
    expires_ms: i64,
    version: i64,
}

fn begin(client: &mut Client) -> BTreeMap<String, i64> {
    fields(client.call(BEGIN))
}

fn fields(reply: Reply) -> BTreeMap<String, i64> {
    let Reply::Array(list) = reply else {
        panic!("{reply:?}");
    };
    let pairs = list.chunks_exact(2).map(|pair| match pair {
        [Reply::Bulk(name), Reply::Int(value)] => {
            (String::from_utf8(name.clone()).unwrap(), *value)
        }
        other => panic!("{other:?}"),
    });
    pairs.collect()
}

/// Returns `true` if there may be more, and the entries in their order.
fn piece(reply: Reply) -> (bool, Vec<(String, Entry)>) {
    let Reply::Array(piece) = reply else {
        panic!("{reply:?}");
    };
    let [Reply::Int(more), Reply::Array(entries)] = &piece[..] else {
        panic!("{piece:?}");
    };
    let entries = entries.iter().map(|entry| {
        let Reply::Array(entry) = entry else {
            panic!("{entry:?}");
        };
        let [
            Reply::Bulk(key),
            Reply::Bulk(kind),
            Reply::Bulk(value),
            Reply::Int(expires_ms),
            Reply::Int(version),
        ] = &entry[..]
        else {
            panic!("{entry:?}");
        };
        assert_eq!(kind, b"string");
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        let entry = Entry {
            value: text(value),
            expires_ms: *expires_ms,
            version: *version,
        };
        (text(key), entry)
    });
    (*more == 1, entries.collect())
}

/// Returns the rest of a snapshot, which `ask` requests.
fn rest(client: &mut Client, ask: &[&str]) -> BTreeMap<String, Entry> {
    let mut all: Vec<(String, Entry)> = Vec::new();
    loop {
        let (more, entries) = piece(client.call(ask));
        all.extend(entries);
        if !more {
            break;
        }
    }
    assert!(
        all.is_sorted_by(|a, b| a.0 < b.0),
        "keys come in their order, each once"
    );
    all.into_iter().collect()
}

fn values(entries: &BTreeMap<String, Entry>) -> BTreeMap<&str, &str> {
    let values = entries
        .iter()
        .map(|(key, entry)| (key.as_str(), entry.value.as_str()));
    values.collect()
}

fn set_all(client: &mut Client, count: usize) {
    for number in 0..count {
        client.send(&["SET", &format!("key{number:06}"), &number.to_string()]);
    }
    for _ in 0..count {
        assert_eq!(client.reply(), ok());
    }
}

/// Waits until as many are open.
#[track_caller]
fn until_open(client: &mut Client, expected: usize) {
    let expected = format!("snapshots_open:{expected}\r\n");
    eventually(&expected, || {
        let Reply::Bulk(text) = client.call(&["INFO", "clients"]) else {
            panic!("INFO is a text");
        };
        String::from_utf8(text).unwrap().contains(&expected)
    });
}

#[test]
fn it_has_what_was_there_when_it_began() {
    let served = ephemeral(config());
    let (mut client, mut other) = (served.client(), served.client());
    for (key, value) in [("b", "2"), ("a", "1"), ("c", ""), ("gone", "x")] {
        assert_eq!(other.call(&["SET", key, value]), ok());
    }
    other.call(&["SET", "later", "x", "PXAT", "99999999999999"]);
    other.call(&["SET", "soon", "x", "PX", "1"]);
    other.call(&["DEL", "gone"]);
    let version = other.call(&["WATCH.VERSION", "a"]);
    // Time is the epoch's, which a write brings on.
    std::thread::sleep(Duration::from_millis(20));
    other.call(&["INCR", "b"]);
    let about = begin(&mut client);
    other.call(&["SET", "a", "9"]);
    other.call(&["SET", "new", "x"]);
    other.call(&["DEL", "b"]);
    other.call(&["PERSIST", "later"]);
    let entries = rest(&mut client, NEXT);
    assert_eq!(
        values(&entries),
        BTreeMap::from([("a", "1"), ("b", "3"), ("c", ""), ("later", "x")])
    );
    assert_eq!(entries["later"].expires_ms, 99_999_999_999_999);
    assert_eq!(entries["a"].expires_ms, -1);
    let told = format!("{:016x}", entries["a"].version);
    assert_eq!(version, Reply::Array(vec![bulk(&told)]));
    assert!(entries["b"].version > entries["a"].version);
    assert!(about["epoch"] > 0 && about["time_ms"] > 1_600_000_000_000);
    assert!(about["keys"] >= 4);
    assert_eq!((about["partition"], about["partitions"]), (0, 1));
    // A flush takes nothing from under a reader.
    begin(&mut client);
    other.call(&["FLUSHALL"]);
    assert_eq!(
        values(&rest(&mut client, NEXT)),
        BTreeMap::from([("a", "9"), ("c", ""), ("later", "x"), ("new", "x")])
    );
    begin(&mut client);
    assert!(rest(&mut client, NEXT).is_empty());
}

#[test]
fn it_comes_in_pieces() {
    let served = ephemeral(config());
    let mut client = served.client();
    set_all(&mut client, 3000);
    begin(&mut client);
    let (more, entries) = piece(client.call(&["kumiki.snapshot", "next", "count", "7"]));
    assert!(more);
    let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys[0], "key000000");
    assert_eq!(keys.len(), 7);
    // However many are asked for, a slice is bounded.
    let (more, entries) = piece(client.call(&["KUMIKI.SNAPSHOT", "NEXT", "COUNT", "1000000"]));
    assert!(more && entries.len() < 2000 && entries[0].0 == "key000007");
    let left = rest(&mut client, NEXT);
    assert_eq!(left.len(), 3000 - 7 - entries.len());
    // Every NEXT behind the end returns nothing.
    for _ in 0..2 {
        assert_eq!(piece(client.call(NEXT)), (false, Vec::new()));
    }
    assert_eq!(client.call(END), ok());
    assert!(error(&client.call(NEXT)).contains("has no snapshot"));

    // Long values make short pieces.
    let long = "x".repeat(300_000);
    for number in 0..10 {
        client.call(&["SET", &format!("long{number}"), &long]);
    }
    let some = |client: &mut Client, pattern: &str| {
        fields(client.call(&["KUMIKI.SNAPSHOT", "BEGIN", "MATCH", pattern]));
        piece(client.call(NEXT))
    };
    let (more, entries) = some(&mut client, "long*");
    assert!(
        more && (2..=6).contains(&entries.len()),
        "{}",
        entries.len()
    );
    assert_eq!(entries.len() + rest(&mut client, NEXT).len(), 10);
    let (more, entries) = some(&mut client, "key00001?");
    assert!(!more && entries.len() == 10);
    // A piece may be empty although more follows.
    let (more, entries) = some(&mut client, "*9999");
    assert!(more && entries.is_empty());
    assert!(rest(&mut client, NEXT).is_empty());
    // Requests in one packet are answered in their order.
    begin(&mut client);
    for _ in 0..6 {
        client.send(NEXT);
    }
    let mut all = Vec::new();
    for _ in 0..6 {
        all.extend(piece(client.reply()).1.into_iter().map(|(key, _)| key));
    }
    assert_eq!(
        all[..3000],
        (0..3000).map(|n| format!("key{n:06}")).collect::<Vec<_>>()
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let served = ephemeral(config());
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
    for (args, words) in [
        (&["NEXT"][..], "has no snapshot"),
        (&["BEGIN", "MATCH"], "syntax"),
        (&["BEGIN", "a*", "b*"], "syntax"),
        (&["BEGIN", "MATCH", "a", "b"], "syntax"),
        (&["END", "now"], "wrong number of arguments"),
        (&["WHAT"], "unknown subcommand"),
        (&[], "wrong number of arguments"),
    ] {
        let reply = client.call(&[&["KUMIKI.SNAPSHOT"], args].concat());
        assert!(error(&reply).contains(words), "{args:?}: {reply:?}");
    }
    // Ending a snapshot that is not there is no error: the client wants nothing to be held.
    assert_eq!(client.call(END), ok());
    begin(&mut client);
    assert!(error(&client.call(BEGIN)).contains("has a snapshot already"));
    for count in ["0", "-1", "x", "", "1.5", "9223372036854775808", "1e3"] {
        let reply = client.call(&["KUMIKI.SNAPSHOT", "NEXT", "COUNT", count]);
        assert!(error(&reply).contains("COUNT"), "{count}: {reply:?}");
    }
    for args in [
        &["COUNT"][..],
        &["5"],
        &["COUNT", "1", "2"],
        &["LIMIT", "1"],
    ] {
        let reply = client.call(&[NEXT, args].concat());
        assert!(error(&reply).contains("syntax"), "{args:?}: {reply:?}");
    }
    let most = i64::MAX.to_string();
    let (more, entries) = piece(client.call(&[NEXT, &["COUNT", &most]].concat()));
    assert!(!more && entries.len() == 1, "the snapshot is as it was");

    assert_eq!(client.call(&["MULTI"]), ok());
    for command in [BEGIN, NEXT, END] {
        let reply = client.call(command);
        assert!(error(&reply).contains("inside a transaction"), "{reply:?}");
    }
    assert!(error(&client.call(&["EXEC"])).starts_with("EXECABORT"));
    let Reply::Array(lines) = client.call(&["KUMIKI.SNAPSHOT", "HELP"]) else {
        panic!("help is a list");
    };
    assert!(lines.contains(&status("BEGIN")) && lines.contains(&status("NEXT")));
}

#[test]
fn who_has_not_said_the_password_gets_none() {
    let served = ephemeral(Config {
        password: Some("tell nobody".to_owned()),
        ..config()
    });
    let mut client = served.client();
    for command in [BEGIN, NEXT, END] {
        assert!(error(&client.call(command)).starts_with("NOAUTH"));
    }
    assert_eq!(client.call(&["AUTH", "tell nobody"]), ok());
    begin(&mut client);
    // The user may then be another one.
    assert_eq!(client.call(&["RESET"]), status("RESET"));
    assert_eq!(client.call(&["AUTH", "tell nobody"]), ok());
    assert!(error(&client.call(NEXT)).contains("has no snapshot"));
}

#[test]
fn so_many_are_open_at_once_and_each_goes_with_its_connection() {
    let mut config = config();
    config.limits.snapshots = 2;
    let served = ephemeral(config);
    let mut watcher = served.client();
    set_all(&mut watcher, 10);
    let mut clients: Vec<Client> = (0..3).map(|_| served.client()).collect();
    begin(&mut clients[0]);
    begin(&mut clients[1]);
    let reply = clients[2].call(BEGIN);
    assert!(error(&reply).contains("2 snapshots are open"), "{reply:?}");
    until_open(&mut watcher, 2);
    // Read to its end, ended, forgotten with the connection's state, closed.
    assert_eq!(rest(&mut clients[0], NEXT).len(), 10);
    until_open(&mut watcher, 1);
    begin(&mut clients[2]);
    assert_eq!(clients[1].call(END), ok());
    until_open(&mut watcher, 1);
    begin(&mut clients[1]);
    assert_eq!(clients[1].call(&["RESET"]), status("RESET"));
    until_open(&mut watcher, 1);
    drop(clients);
    until_open(&mut watcher, 0);
    begin(&mut watcher);
    until_open(&mut watcher, 1);
}

#[test]
fn one_that_is_not_used_is_given_up() {
    let idle = Duration::from_millis(300);
    let served = ephemeral(Config {
        snapshot_idle: idle,
        ..config()
    });
    let (mut forgotten, mut used, mut watcher) =
        (served.client(), served.client(), served.client());
    set_all(&mut watcher, 100);
    begin(&mut forgotten);
    begin(&mut used);
    // A client that keeps asking keeps it, far longer.
    let mut seen = 0;
    for _ in 0..12 {
        std::thread::sleep(idle / 4);
        let (more, entries) = piece(used.call(&[NEXT, &["COUNT", "1"]].concat()));
        assert!(more);
        seen += entries.len();
    }
    assert_eq!(seen, 12);
    until_open(&mut watcher, 1);
    for _ in 0..2 {
        let reply = forgotten.call(NEXT);
        assert!(error(&reply).contains("was given up"), "{reply:?}");
        assert!(error(&reply).contains("300ms"), "{reply:?}");
    }
    begin(&mut forgotten);
    assert_eq!(rest(&mut forgotten, NEXT).len(), 100);
    assert_eq!(rest(&mut used, NEXT).len(), 88);
    until_open(&mut watcher, 0);
}

/// The memory that a snapshot holds is that of versions that were replaced since, and it holds them
/// no longer than it lives.
#[test]
fn what_it_holds_goes_with_it() {
    const KEYS: u64 = 200;
    let served = ephemeral(config());
    let (mut client, mut writer) = (served.client(), served.client());
    let write = |writer: &mut Client, letter: &str| {
        for number in 0..KEYS {
            let value = letter.repeat(20_000);
            assert_eq!(writer.call(&["SET", &number.to_string(), &value]), ok());
        }
    };
    write(&mut writer, "a");
    begin(&mut client);
    let twice = KEYS * 2 * 20_000;
    for letter in ["b", "c", "d", "e"] {
        write(&mut writer, letter);
    }
    let falls_below = |bytes: u64| {
        let what = format!("at most {bytes} bytes are used");
        eventually(&what, || served.db.memory_bytes() <= bytes);
    };
    // One older version of each key, not all.
    falls_below(twice + twice / 4);
    assert!(served.db.memory_bytes() >= twice);
    let entries = rest(&mut client, NEXT);
    assert!(entries.values().all(|entry| entry.value.starts_with('a')));
    falls_below(twice * 3 / 4);
}

/// Nothing of it leaves before everything in it is durable.
#[test]
fn what_it_shows_is_durable() {
    let served = durable(Durability::Group);
    let (mut client, mut writer) = (served.client(), served.client());
    assert_eq!(writer.call(&["SET", "a", "1"]), ok());
    served.gate.close();
    writer.send(&["SET", "a", "2"]);
    assert!(writer.is_silent(Duration::from_millis(50)));
    client.send(BEGIN);
    client.send(NEXT);
    assert!(client.is_silent(Duration::from_millis(200)));
    served.gate.open();
    fields(client.reply());
    let (more, entries) = piece(client.reply());
    assert!(!more);
    assert_eq!(entries[0].1.value, "2");
    assert_eq!(writer.reply(), ok());

    // When the log fails it never is.
    served.gate.close();
    writer.send(&["SET", "a", "3"]);
    assert!(writer.is_silent(Duration::from_millis(50)));
    client.send(BEGIN);
    client.send(NEXT);
    assert!(client.is_silent(Duration::from_millis(100)));
    served.gate.break_down();
    for _ in 0..2 {
        assert!(error(&client.reply()).starts_with("MISCONF"));
    }
    assert!(error(&client.call(NEXT)).contains("has no snapshot"));
}

#[test]
fn a_node_of_a_cluster_gives_what_is_its_own() {
    let nodes = nodes::nodes(2);
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    let mut args = vec!["MSET"];
    for key in &keys {
        args.extend([key.as_str(), "v"]);
    }
    assert_eq!(nodes.until_served(1, &args), ok());
    for node in [1, 2] {
        let mut client = nodes.client(node);
        let about = begin(&mut client);
        assert_eq!(
            (about["partition"], about["partitions"]),
            (i64::from(node), 2)
        );
        let entries = rest(&mut client, NEXT);
        let own: Vec<&String> = keys.iter().filter(|key| nodes.owner(key) == node).collect();
        assert!(own.iter().all(|key| entries.contains_key(*key)));
        assert_eq!(
            entries.len(),
            own.len(),
            "nothing that the engine keeps about itself"
        );
    }
}

#[test]
fn a_leader_gives_what_is_agreed_upon() {
    let replica = crate::support::replica::alone();
    let mut client = replica.client();
    set_all(&mut client, 50);
    let about = begin(&mut client);
    assert!(about["epoch"] >= 50);
    assert_eq!(client.call(&["SET", "key000000", "changed"]), ok());
    let entries = rest(&mut client, NEXT);
    assert_eq!(entries.len(), 50);
    assert_eq!(entries["key000000"].value, "0");
    // A node that does not lead gives none.
    replica.end_member();
    let refused = eventually_some("a snapshot is refused", || match client.call(BEGIN) {
        Reply::Error(text) => Some(text),
        _ => {
            assert_eq!(client.call(END), ok());
            None
        }
    });
    assert!(refused.starts_with("CLUSTERDOWN"), "{refused}");
    assert_eq!(client.call(&["ECHO", "x"]), bulk("x"));
}
