//! redis-benchmark with all of its tests.
//!
//! `cargo xtask peers redis` installs it. Without it a test says so and passes; with `KUMIKI_REQUIRE_PEERS=1` it
//! fails.

use std::net::SocketAddr;
use std::process::Command;

use testkit::Client;
use testkit::peers::{self, Group};

use crate::support::clients::run;
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::{proxy, start_server};
use crate::support::replicas::{Replicas, STEADY};

/// The tests of redis-benchmark when it is not asked for certain ones.
const TESTS: [&str; 20] = [
    "PING_INLINE",
    "PING_MBULK",
    "SET",
    "GET",
    "INCR",
    "LPUSH",
    "RPUSH",
    "LPOP",
    "RPOP",
    "SADD",
    "HSET",
    "SPOP",
    "ZADD",
    "ZPOPMIN",
    "LPUSH (needed to benchmark LRANGE)",
    "LRANGE_100 (first 100 elements)",
    "LRANGE_300 (first 300 elements)",
    "LRANGE_500 (first 500 elements)",
    "LRANGE_600 (first 600 elements)",
    "MSET (10 keys)",
];

/// Runs all tests of redis-benchmark with the server at `address`.
fn benchmark(address: SocketAddr, further: &[&str]) {
    let Some(program) = peers::program(Group::Redis, "redis-benchmark") else {
        return;
    };
    let mut command = Command::new(&program);
    command.args(["-h", &address.ip().to_string()]);
    command.args(["-p", &address.port().to_string()]);
    command.args(["--csv", "-n", "300", "-c", "8", "-r", "100"]);
    command.args(further);
    let table = run(&command, "");
    let name = |line: &str| {
        line.strip_prefix('"')?
            .split_once('"')
            .map(|(name, _)| name.to_owned())
    };
    let mut names: Vec<String> = table.lines().filter_map(name).collect();
    assert_eq!(names.remove(0), "test", "{table}");
    assert_eq!(names, TESTS, "{table}");
    let mut client = Client::connect(address);
    // It takes from the list as often as it appends, and then appends once more for each request.
    assert_eq!(client.told("LLEN mylist"), "300");
    assert_eq!(client.told("LRANGE mylist 298 -1"), "[VXK VXK]");
}

#[test]
fn all_its_tests_run_with_one_node() {
    let server = start_server(&["--ephemeral"]);
    benchmark(server.address, &[]);
}

#[test]
fn all_its_tests_run_with_requests_in_flight() {
    let server = start_server(&["--ephemeral"]);
    benchmark(server.address, &["-P", "20", "-3"]);
}

#[test]
fn all_its_tests_run_through_the_proxy() {
    let cluster = Cluster::start(2, Keeping::Nothing);
    let proxy = proxy(&["--cluster", &cluster.file()]);
    benchmark(proxy.address, &[]);
}

#[test]
fn all_its_tests_run_with_three_replicas() {
    let replicas = Replicas::start_with(1, 3, &STEADY);
    benchmark(replicas.address(replicas.leader(1)), &[]);
}
