//! `INFO` as clients of Redis read it.

use std::collections::BTreeMap;

use crate::support::{THREADS, config, connect, ephemeral, error, ok};
use kumiki_server::{Config, serve};
use store::{Db, Options};
use testkit::{Client, Reply, eventually};

fn text(client: &mut Client, args: &[&str]) -> String {
    let Reply::Bulk(text) = client.call(&[&["INFO"], args].concat()) else {
        panic!("no bulk")
    };
    String::from_utf8(text).expect("text")
}

/// Returns the names of the sections, in order.
fn sections(client: &mut Client, args: &[&str]) -> Vec<String> {
    let text = text(client, args);
    let lines = text.lines().filter_map(|line| line.strip_prefix("# "));
    lines.map(str::to_owned).collect()
}

/// Returns the fields of a section.
fn fields(client: &mut Client, section: &str) -> BTreeMap<String, String> {
    let text = text(client, &[section]);
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns a number in a list such as `calls=3,usec=1`.
#[track_caller]
fn part(list: &str, name: &str) -> f64 {
    let parts = list.split(',').filter_map(|part| part.split_once('='));
    let mut value = parts
        .filter(|(own, _)| *own == name)
        .map(|(_, value)| value);
    let value = value.next().unwrap_or_else(|| panic!("{name} in {list}"));
    value.parse().expect("a number")
}

/// Waits until a section has the wanted values: counters are updated at the end of a turn.
#[track_caller]
fn wait_for(client: &mut Client, section: &str, wanted: &[(&str, &str)]) {
    eventually(&format!("{section}: {wanted:?}"), || {
        let fields = fields(client, section);
        let has = |name: &str, value: &str| fields.get(name).is_some_and(|own| own == value);
        wanted.iter().all(|(name, value)| has(name, value))
    });
}

#[test]
fn sections_are_chosen_as_in_redis() {
    let served = ephemeral(config());
    let mut client = served.client();
    let usual = sections(&mut client, &[]);
    for name in [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Errorstats",
        "Cluster",
        "Keyspace",
    ] {
        assert!(usual.iter().any(|own| own == name), "{name}");
    }
    assert!(!usual.iter().any(|own| own == "Commandstats"));
    assert_eq!(sections(&mut client, &["default"]), usual);
    let all = sections(&mut client, &["ALL"]);
    for name in ["Commandstats", "Latencystats"] {
        assert!(all.iter().any(|own| own == name), "{name}");
    }
    assert!(!all.iter().any(|own| own == "Modules"));
    let everything = sections(&mut client, &["everything"]);
    assert!(everything.iter().any(|own| own == "Modules"));
    let several = sections(
        &mut client,
        &["keyspace", "nosuch", "server", "commandstats"],
    );
    assert_eq!(several, ["Server", "Commandstats", "Keyspace"]);
    let with = sections(&mut client, &["default", "latencystats"]);
    assert_eq!(with.len(), usual.len() + 1);
    assert_eq!(text(&mut client, &["nosuch"]), "");
}

#[test]
fn the_keyspace_says_how_many_keys_expire_and_when() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = || {
        let options = Options {
            workers: THREADS + 1,
            ..Options::in_dir(dir.path())
        };
        let data = Some(dir.path().to_path_buf());
        let db = Db::open(options).expect("a store");
        serve(db, Config { data, ..config() }).expect("a server")
    };
    let server = start();
    let mut client = connect(server.address());
    assert_eq!(fields(&mut client, "keyspace").get("db0"), None);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(client.call(&["SET", key, "1"]), ok());
    }
    let db0 = |client: &mut Client| fields(client, "keyspace")["db0"].clone();
    assert_eq!(db0(&mut client), "keys=4,expires=0,avg_ttl=0");
    client.call(&["SET", "a", "1", "EX", "1000"]);
    client.call(&["EXPIRE", "b", "3000"]);
    client.call(&["SET", "e", "1", "EX", "9000"]);
    client.call(&["DEL", "e"]);
    let line = db0(&mut client);
    assert_eq!((part(&line, "keys"), part(&line, "expires")), (4.0, 2.0));
    let ttl = part(&line, "avg_ttl");
    assert!(ttl <= 2_000_000.0 && ttl > 1_000_000.0, "{ttl}");
    client.call(&["PERSIST", "b"]);
    client.call(&["SET", "a", "2"]);
    assert_eq!(db0(&mut client), "keys=4,expires=0,avg_ttl=0");
    client.call(&["EXPIRE", "c", "5000"]);
    server.stopper().stop();
    server.wait().expect("an end in good order");
    let server = start();
    let mut client = connect(server.address());
    let line = db0(&mut client);
    assert_eq!((part(&line, "keys"), part(&line, "expires")), (4.0, 1.0));
    assert!(part(&line, "avg_ttl") > 1_000_000.0, "{line}");
    client.call(&["SET", "f", "1", "PX", "1"]);
    eventually("the key is reclaimed", || {
        let line = db0(&mut client);
        (part(&line, "keys"), part(&line, "expires")) == (4.0, 1.0)
    });
    assert_eq!(client.call(&["FLUSHALL"]), ok());
    assert_eq!(fields(&mut client, "keyspace").get("db0"), None);
}

#[test]
fn commands_and_errors_are_counted_by_name() {
    let served = ephemeral(config());
    let mut client = served.client();
    for _ in 0..3 {
        client.call(&["GET", "a"]);
    }
    client.call(&["SET", "a", "x"]);
    client.call(&["CLIENT", "GETNAME"]);
    assert!(error(&client.call(&["INCR", "a"])).starts_with("ERR value"));
    assert!(error(&client.call(&["GET"])).starts_with("ERR wrong"));
    assert!(error(&client.call(&["HELLO", "9"])).starts_with("NOPROTO"));
    assert!(error(&client.call(&["NOSUCH"])).starts_with("ERR unknown"));
    client.call(&["MULTI"]);
    client.call(&["GET", "a"]);
    client.call(&["EXEC"]);
    wait_for(
        &mut client,
        "errorstats",
        &[
            ("errorstat_ERR", "count=3"),
            ("errorstat_NOPROTO", "count=1"),
        ],
    );
    let commands = fields(&mut client, "commandstats");
    let counts = |name: &str| {
        let line = &commands[&format!("cmdstat_{name}")];
        ["calls", "rejected_calls", "failed_calls"].map(|field| part(line, field))
    };
    assert_eq!(counts("get"), [4.0, 1.0, 0.0]);
    assert_eq!(counts("incr"), [1.0, 0.0, 1.0]);
    assert_eq!(counts("client|getname"), [1.0, 0.0, 0.0]);
    assert_eq!(counts("exec"), [1.0, 0.0, 0.0]);
    let get = &commands["cmdstat_get"];
    let each = part(get, "usec") / part(get, "calls");
    assert!((part(get, "usec_per_call") - each).abs() <= 0.5, "{get}");
    assert!(!commands.contains_key("cmdstat_mget"));
    let latencies = fields(&mut client, "latencystats");
    let get = &latencies["latency_percentiles_usec_get"];
    let times = ["p50", "p99", "p99.9"].map(|name| part(get, name));
    assert!(times[0] > 0.0 && times.is_sorted(), "{get}");
    assert_eq!(client.call(&["CONFIG", "RESETSTAT"]), ok());
    let commands = fields(&mut client, "commandstats");
    assert!(!commands.contains_key("cmdstat_get"), "{commands:?}");
    assert!(fields(&mut client, "errorstats").is_empty());
}

#[test]
fn lookups_are_hits_or_misses() {
    let served = ephemeral(config());
    let mut client = served.client();
    client.call(&["MSET", "a", "1", "b", "2"]);
    for line in [
        "GET a",
        "GET no",
        "MGET a b no",
        "EXISTS a no",
        "TTL a",
        "TYPE no",
        "STRLEN a",
        "GETSET a 3",
        "GETDEL b",
        "GETEX no",
        "GETRANGE no 0 1",
    ] {
        client.call(&line.split(' ').collect::<Vec<_>>());
    }
    // These look up nothing to read it.
    for line in ["SET a 1 NX", "INCR a", "DEL no", "DBSIZE", "SCAN 0"] {
        client.call(&line.split(' ').collect::<Vec<_>>());
    }
    wait_for(
        &mut client,
        "stats",
        &[("keyspace_hits", "8"), ("keyspace_misses", "6")],
    );
}
