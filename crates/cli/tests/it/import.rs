//! `kumiki import`: files that a real redis-server has written come to one node, and to a cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::Client;
use testkit::peers::{self, Group};
use testkit::process::Redis;

use crate::support::cluster::{Cluster, Keeping};
use crate::support::keys::{contents, fill, items};
use crate::support::process::{run, start_server};

/// Starts a redis-server, fills it, and returns it with the file that it has saved.
fn source() -> Option<(Redis, PathBuf)> {
    let program = peers::program(Group::Redis, "redis-server")?;
    let server = Redis::start(&program, &[]);
    let mut client = Client::connect(server.address);
    fill(&mut client);
    assert_eq!(client.told("SAVE"), "+OK");
    let dir = items(client.call(&["CONFIG", "GET", "dir"]));
    let file = Path::new(&dir[1]).join("dump.rdb");
    assert!(file.exists());
    Some((server, file))
}

fn import(file: &Path, to: std::net::SocketAddr, more: &[&str]) -> (Option<i32>, String, String) {
    let (file, to) = (file.to_str().expect("a path"), to.to_string());
    let args = [&["import", file, "--to", &to], more].concat();
    run(&args)
}

#[test]
fn everything_in_a_file_of_a_real_server_comes_to_a_node() {
    let Some((redis, file)) = source() else {
        return;
    };
    let node = start_server(&["--ephemeral"]);
    let (code, out, errors) = import(&file, node.address, &[]);
    assert_eq!(code, Some(0), "{out}{errors}");
    assert!(
        out.contains("imported") && out.contains("1 libraries"),
        "{out}"
    );
    let (mut from, mut to) = (
        Client::connect(redis.address),
        Client::connect(node.address),
    );
    for database in [0, 3, 15, 1] {
        let (expected, found) = (contents(&mut from, database), contents(&mut to, database));
        for (key, value) in &expected {
            assert_eq!(found.get(key), Some(value), "{key} of database {database}");
        }
        assert_eq!(found.len(), expected.len(), "database {database}");
    }
    assert_eq!(to.told("FCALL hello 0"), "hi");
    // A second time only on request.
    let (code, _, errors) = import(&file, node.address, &[]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--replace"), "{errors}");
    to.told("SELECT 0");
    to.told("SET text other");
    to.told("SET mine 1");
    let (code, out, errors) = import(&file, node.address, &["--replace"]);
    assert_eq!(code, Some(0), "{out}{errors}");
    assert_eq!(to.told("MGET text mine"), "[hello 1]");
}

#[test]
fn the_keys_of_a_file_come_to_the_nodes_of_a_cluster() {
    let Some((redis, file)) = source() else {
        return;
    };
    let cluster = Cluster::start(3, Keeping::Nothing);
    let (code, out, errors) = import(&file, cluster.address(0), &["--connections", "2"]);
    assert_eq!(code, Some(0), "{out}{errors}");
    let mut from = Client::connect(redis.address);
    let expected = contents(&mut from, 0);
    let mut found = BTreeMap::new();
    for node in 0..3 {
        let mut client = Client::connect(cluster.address(node));
        let own = contents(&mut client, 0);
        assert!(own.len() > 100, "node {node} has {}", own.len());
        found.extend(own);
    }
    assert_eq!(found, expected);
}

#[test]
fn a_damaged_file_changes_nothing_and_an_import_goes_on_where_it_ended() {
    let Some((_redis, file)) = source() else {
        return;
    };
    let node = start_server(&["--ephemeral"]);
    let mut client = Client::connect(node.address);
    let whole = fs::read(&file).expect("the file");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let damaged = dir.path().join("damaged.rdb");
    for (cut, at) in [
        (whole.len() - 20, None),
        (whole.len(), Some(whole.len() / 2)),
    ] {
        let mut bytes = whole[..cut].to_vec();
        if let Some(at) = at {
            bytes[at] ^= 1;
        }
        fs::write(&damaged, bytes).expect("a file");
        let (code, out, errors) = import(&damaged, node.address, &[]);
        assert_eq!(code, Some(1), "{out}{errors}");
        assert!(errors.contains("damaged.rdb: "), "{errors}");
        assert_eq!(client.told("DBSIZE"), "0");
    }
    // A key that the server refuses, in the middle: it must not be longer than this.
    let small = start_server(&["--ephemeral", "--max-value", "64kb"]);
    let (code, _, errors) = import(&file, small.address, &[]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("refuses 'many:list'"), "{errors}");
    let position = errors.split("--continue-at ").nth(1).expect("a position");
    let position = position.trim();
    let (code, out, errors) = import(&file, node.address, &["--continue-at", position]);
    assert_eq!(code, Some(0), "{out}{errors}");
    let mut refused = Client::connect(small.address);
    let size = |client: &mut Client| -> u64 {
        client.told("SELECT 0");
        client.told("DBSIZE").parse().expect("a number")
    };
    let (before, behind) = (size(&mut refused), size(&mut client));
    assert!(behind > 0 && before + behind >= 700, "{before}, {behind}");
    let (code, _, errors) = import(&file, node.address, &["--continue-at", "77"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("nothing begins at byte 77"), "{errors}");
}

/// The target would close the connection.
#[test]
fn a_value_that_is_too_long_for_the_target_is_named_at_once() {
    let Some((redis, file)) = source() else {
        return;
    };
    let mut client = Client::connect(redis.address);
    assert_eq!(client.told("FLUSHALL"), "+OK");
    client.call(&["SET", "long", &"x".repeat(1 << 20)]);
    assert_eq!(client.told("SAVE"), "+OK");
    let node = start_server(&["--ephemeral", "--max-value", "64kb"]);
    let (code, _, errors) = import(&file, node.address, &[]);
    assert_eq!(code, Some(1));
    let why = "refuses 'long': an argument of 1048576 bytes";
    assert!(
        errors.contains(why) && errors.contains("--max-value"),
        "{errors}"
    );
    // With more room it goes on there.
    let (_, position) = errors.split_once("--continue-at ").expect("a position");
    let node = start_server(&["--ephemeral"]);
    let (code, out, errors) = import(&file, node.address, &["--continue-at", position.trim()]);
    assert_eq!(code, Some(0), "{out}{errors}");
    assert_eq!(Client::connect(node.address).told("STRLEN long"), "1048576");
}

#[test]
fn mistakes_are_explained() {
    let node = start_server(&["--ephemeral"]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let other = dir.path().join("appendonly.aof");
    fs::write(&other, "*2\r\n$6\r\nSELECT\r\n").expect("a file");
    let told = |path: &Path| {
        let (code, _, errors) = import(path, node.address, &[]);
        assert_eq!(code, Some(1), "{errors}");
        errors
    };
    assert!(told(&other).contains("no file of Redis"));
    assert!(told(&dir.path().join("nowhere.rdb")).contains("cannot open"));
    let (code, _, errors) = import(&other, node.address, &["--cut-over"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("are for a running server"), "{errors}");
}
