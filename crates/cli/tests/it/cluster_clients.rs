//! Unmodified clients of others with a cluster of three nodes: `redis-cli -c`, redis-py and
//! ioredis. The programs for the latter two are in `clients/`.
//!
//! `cargo xtask peers` installs them. Without them a test says so and passes; with
//! `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::process::Command;

use crate::support::clients::{run, script};
use crate::support::cluster::{Cluster, Keeping};
use testkit::peers::{self, Group};

const NODES: usize = 3;

#[test]
fn redis_cli_follows_redirects() {
    let Some(program) = peers::program(Group::Redis, "redis-cli") else {
        return;
    };
    let cluster = Cluster::start(NODES, Keeping::Nothing);
    let port = cluster.address(0).port().to_string();
    // foo is of the last node, bar of the first.
    let said = run(
        Command::new(&program).args(["-c", "-p", &port]),
        "SET foo 1\nSET bar 2\nMGET foo bar\nMSET foo 3 bar 4 other 5\nMULTI\nINCR foo\nINCR bar\n\
         EXEC\nMGET foo bar other\nDEL foo bar other\n",
    );
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    let redirected = |at: usize, slot: u16, node: usize| {
        let to = format!("[{slot}] located at {}", cluster.address(node));
        assert!(lines[at].contains(&to), "{to} in {said}");
    };
    redirected(0, 12182, 2);
    redirected(2, 5061, 0);
    let rest = [
        "OK", "1", "2", "OK", "OK", "QUEUED", "QUEUED", "4", "5", "4", "5", "5", "3",
    ];
    assert_eq!((lines[1], &lines[3..]), ("OK", &rest[..]), "{said}");
    let check = ["--cluster", "check", &cluster.address(1).to_string()];
    let said = run(Command::new(&program).args(check), "");
    assert!(
        said.contains("All nodes agree about slots configuration"),
        "{said}"
    );
    assert!(said.contains("All 16384 slots covered"), "{said}");
}

#[test]
fn redis_py_works_unmodified() {
    let (Some(python), Some(library)) = (
        peers::program(Group::Python, "python3"),
        peers::installed(Group::Python, "python/redis"),
    ) else {
        return;
    };
    let cluster = Cluster::start(NODES, Keeping::Nothing);
    for (node, protocol) in [(0, "2"), (1, "3")] {
        let port = cluster.address(node).port().to_string();
        let mut command = Command::new(&python);
        command.arg(script("cluster.py")).args([&port, protocol]);
        let folder = library.parent().expect("it lies in a folder");
        let said = run(command.env("PYTHONPATH", folder), "");
        assert_eq!(said.trim(), "done");
    }
}

#[test]
fn ioredis_works_unmodified() {
    let (Some(node), Some(library)) = (
        peers::program(Group::Node, "node"),
        peers::installed(Group::Node, "node/node_modules/ioredis"),
    ) else {
        return;
    };
    let cluster = Cluster::start(NODES, Keeping::Nothing);
    let port = cluster.address(2).port().to_string();
    let mut command = Command::new(&node);
    command.arg(script("cluster.js")).arg(&port);
    let folder = library.parent().expect("it lies in a folder");
    let said = run(command.env("NODE_PATH", folder), "");
    assert_eq!(said.trim(), "done");
}
