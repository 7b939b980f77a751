//! Unmodified drivers of others with a real Cassandra; their programs are in `clients/cassandra/`.
//! Also YCSB, with our bindings, which checks what it reads.
//!
//! `cargo xtask peers` installs Cassandra and the drivers. Without them a test says so and passes;
//! with `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::net::SocketAddr;

use crate::support::cassandra::{SharedNode, alone};
use crate::support::drivers::{Drivers, Language, lines};
use ::cassandra::ycsb::{Binding, Phase, Ycsb};
use ::cassandra::{CassandraNodes, Options};
use testkit::peers::{self, Group};
use testkit::process::Redis;

/// Lines about the version itself, or about features of the newer one alone.
const OF_VERSION: [&str; 2] = ["protocol", "schema after"];
/// Steps that all drivers make, whose lines must be there.
const STEPS: [&str; 9] = [
    "prepared unset",
    "batch of counters",
    "pages prepared",
    "lock, held",
    "lock, its lease has ended",
    "release, not the holder",
    "schema, table dropped",
    "trace",
    "truncated",
];

/// Returns what a driver program prints.
fn run(drivers: &Drivers, language: Language, protocol: &str, node: SocketAddr) -> Vec<String> {
    let lines = lines(&mut drivers.program(language, protocol, node));
    let done = lines.last().is_some_and(|line| line == "done");
    assert!(done, "{language:?}, version {protocol}: {lines:#?}");
    lines
}

/// Returns the name of the step that a line is about.
fn step(line: &str) -> &str {
    line.split(": ").next().unwrap_or_default()
}

/// Returns the lines that do not depend on the protocol's version.
fn without_version(lines: &[String]) -> Vec<&String> {
    let kept = |line: &&String| !OF_VERSION.contains(&step(line));
    lines.iter().filter(kept).collect()
}

/// Runs a program with each version of the protocol, and with the last one twice.
fn versions_agree(language: Language) {
    let Some(drivers) = Drivers::find() else {
        return;
    };
    let node = SharedNode::get(&drivers.installed);
    let run = |protocol: &str| run(&drivers, language, protocol, node.address());
    let protocols = language.protocols();
    let all: Vec<_> = protocols.iter().map(|protocol| run(protocol)).collect();
    let last = all.last().expect("there is a version");
    for (lines, protocol) in all.iter().zip(protocols) {
        assert_eq!(without_version(lines), without_version(last));
        // The Rust driver has one version, and does not print it.
        let told = format!("protocol: {protocol}");
        let is_told = lines.contains(&told);
        assert_eq!(is_told, language != Language::Rust, "{lines:#?}");
    }
    for name in STEPS {
        let told = last.iter().filter(|line| step(line) == name).count();
        assert_eq!(told, 1, "{name} in {last:#?}");
    }
    // The data of one run must not change the next one.
    assert_eq!(run(protocols[protocols.len() - 1]), *last);
}

#[test]
fn the_python_driver_does_the_same_in_both_versions() {
    versions_agree(Language::Python);
}

#[test]
fn the_java_driver_does_the_same_in_both_versions() {
    versions_agree(Language::Java);
}

#[test]
fn the_rust_driver_does_the_same_again() {
    versions_agree(Language::Rust);
}

#[test]
fn nodes_are_killed_and_paused_and_come_back() {
    let Some(drivers) = Drivers::find() else {
        return;
    };
    let _alone = alone();
    let options = Options::new(drivers.installed.clone(), 2).anywhere();
    let mut nodes = CassandraNodes::start(&options).expect("they start");
    let second = nodes.pid(1).expect("it runs");
    nodes.pause(1).expect("it stands still");
    nodes.resume(1).expect("it goes on");
    nodes.kill(0).expect("it dies");
    assert_eq!(nodes.pid(0), None);
    assert!(nodes.pause(0).is_err());
    // It comes back although it is alone.
    nodes.terminate(1).expect("it ends");
    nodes.restart(1).expect("it comes back");
    assert_ne!(nodes.pid(1), Some(second));
    nodes.restart(0).expect("so does the other one");
    run(&drivers, Language::Python, "4", nodes.addresses()[0]);
    assert!(nodes.ended().expect("the system says").is_empty());
    nodes.stop().expect("they end in good order");
}

/// Runs YCSB's workload A, which checks what it reads; all of it must be right.
fn ycsb(binding: Binding, properties: &[(&str, &str)]) {
    let ycsb = Ycsb::find(&peers::root()).expect("its jars are there");
    let workload = [
        ("recordcount", "1000"),
        ("operationcount", "1000"),
        ("readproportion", "0.5"),
        ("updateproportion", "0.5"),
        ("dataintegrity", "true"),
        ("fieldlengthdistribution", "constant"),
    ];
    let properties = [&workload, properties].concat();
    let said = |phase| {
        let output = ycsb.command(phase, binding, 8, &properties).output();
        String::from_utf8(output.expect("java").stdout).expect("text")
    };
    let loaded = said(Phase::Load);
    assert!(loaded.contains("[INSERT], Return=OK, 1000\n"), "{loaded}");
    let done = said(Phase::Transactions);
    let count = |what: &str| {
        let lines = done.lines().filter_map(|line| line.strip_prefix(what));
        lines
            .filter_map(|count| count.parse::<u64>().ok())
            .sum::<u64>()
    };
    let read = count("[READ], Return=OK, ");
    assert_eq!(count("[VERIFY], Return=OK, "), read, "{done}");
    assert_eq!(read + count("[UPDATE], Return=OK, "), 1000, "{done}");
    assert!(
        !done.contains("ERROR") && !done.contains("UNEXPECTED"),
        "{done}"
    );
}

#[test]
fn ycsb_finds_in_cassandra_what_it_has_written() {
    if peers::installed(Group::Cassandra, "ycsb/lib").is_none() {
        return;
    }
    let Some(drivers) = Drivers::find() else {
        return;
    };
    let node = SharedNode::get(&drivers.installed);
    let address = node.address().to_string();
    for protocol in ["V4", "V5"] {
        let properties = [
            ("cassandra.hosts", address.as_str()),
            ("cassandra.connections", "8"),
            ("cassandra.protocol", protocol),
            ("cassandra.keyspace", protocol),
        ];
        ycsb(Binding::Cassandra, &properties);
    }
}

#[test]
fn ycsb_finds_in_redis_what_it_has_written() {
    let (Some(program), Some(_)) = (
        peers::program(Group::Redis, "redis-server"),
        peers::installed(Group::Cassandra, "ycsb/lib"),
    ) else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let port = server.address.port().to_string();
    for form in ["hashes", "strings"] {
        ycsb(
            Binding::Redis,
            &[("redis.port", port.as_str()), ("redis.form", form)],
        );
    }
}
