//! Packages of others that keep locks, counters and limits on a server, by scripts and by strings. Each does its
//! documented job. The programs that use them are in `clients/`; docs/frameworks.md lists the packages.
//!
//! `cargo xtask peers python node go` installs them. Without them a test says so and passes; with
//! `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::process::Command;

use testkit::peers::{self, Group};

use crate::support::clients::{run, script};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::start_server;

const NODES: usize = 2;

/// Runs a test of `frameworks.py` with a server.
fn python(name: &str) {
    let (Some(python), Some(library)) = (
        peers::program(Group::Python, "python3"),
        peers::installed(Group::Python, "python-frameworks/django_redis"),
    ) else {
        return;
    };
    let server = start_server(&["--ephemeral"]);
    let mut command = Command::new(&python);
    command.arg(script("frameworks.py")).arg(name);
    command.arg(server.address.port().to_string());
    let folder = library.parent().expect("it lies in a folder");
    assert_eq!(run(command.env("PYTHONPATH", folder), ""), "done\n");
}

/// Returns the command that runs a test of `frameworks.js`, but for the port, if its packages are installed.
fn node(name: &str) -> Option<Command> {
    let node = peers::program(Group::Node, "node")?;
    let library = peers::installed(Group::Node, "node-frameworks/node_modules/redlock")?;
    let mut command = Command::new(&node);
    command.arg(script("frameworks.js")).arg(name);
    command.env("NODE_PATH", library.parent().expect("it lies in a folder"));
    Some(command)
}

/// Runs a test of `frameworks.js` with a server.
fn node_with_server(name: &str) {
    if let Some(mut command) = node(name) {
        let server = start_server(&["--ephemeral"]);
        command.arg(server.address.port().to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn locks_of_redis_py_exclude_each_other() {
    python("locks_of_redis_py");
}

#[test]
fn scripts_of_redis_py_are_loaded_and_run() {
    python("scripts_of_redis_py");
}

#[test]
fn django_redis_counts_and_locks() {
    python("cache_of_django_redis");
}

#[test]
fn limits_allows_as_many_hits_as_it_says() {
    python("limits_of_limits");
}

#[test]
fn redlock_excludes_others() {
    node_with_server("redlock");
}

#[test]
fn express_rate_limit_serves_as_many_requests_as_it_says() {
    node_with_server("expressRateLimit");
}

#[test]
fn commands_that_ioredis_defines_are_scripts() {
    node_with_server("defineCommand");
}

#[test]
fn scripts_of_node_redis_are_loaded_and_run() {
    node_with_server("scriptsOfNodeRedis");
}

#[test]
fn redis_py_gets_each_expiry_once() {
    python("expiries_with_redis_py");
}

#[test]
fn node_redis_keeps_values_that_do_not_change() {
    node_with_server("cacheOfNodeRedis");
}

#[test]
fn ioredis_and_redlock_run_scripts_on_a_cluster() {
    if let Some(mut command) = node("ofCluster") {
        let cluster = Cluster::start(NODES, Keeping::Nothing);
        command.arg(cluster.address(1).port().to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn redsync_go_redis_and_rueidis_work() {
    if let Some(program) = peers::installed(Group::Go, "go-frameworks/client") {
        let server = start_server(&["--ephemeral"]);
        let mut command = Command::new(&program);
        command.arg(server.address.to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn redsync_go_redis_and_rueidis_work_with_a_cluster() {
    if let Some(program) = peers::installed(Group::Go, "go-frameworks/client") {
        let cluster = Cluster::start(NODES, Keeping::Nothing);
        let mut command = Command::new(&program);
        command.arg("cluster").arg(cluster.address(0).to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}
