//! Data directories that the first release wrote are opened with all of their keys. The README of
//! `tests/data/first-release` says how they were made; `expected.txt` of each has commands and replies.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::cluster::Cluster;
use crate::support::files::copy;
use crate::support::process::{run, start_server};
use crate::support::replicas::Replicas;
use testkit::{Client, eventually};

fn place(name: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    data.join("first-release").join(name)
}

/// Returns the commands, each with its reply, that a directory is expected to answer.
fn expected(name: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(place(name).join("expected.txt")).expect("the file");
    let pairs = text.lines().map(|line| {
        let (command, reply) = line.split_once(" -> ").expect("a command and its reply");
        (command.to_owned(), reply.to_owned())
    });
    pairs.collect()
}

/// Copies the data of a node, which has the name of its directory.
fn copy_of(name: &str) -> impl FnMut(&Path) {
    move |to| copy(&place(name).join(to.file_name().expect("a name")), to)
}

/// Asks the first of the nodes that does not send clients to another one.
#[track_caller]
fn assert_answers(nodes: &mut [Client], expected: &[(String, String)]) {
    for (command, reply) in expected {
        let mut replies = nodes.iter_mut().map(|node| node.told(command));
        let found = replies.find(|said| !said.starts_with("-MOVED "));
        assert_eq!(found.as_ref(), Some(reply), "{command}");
    }
}

/// Sets a key under a guard, as one block. Returns the reply of `EXEC`.
fn guarded(client: &mut Client, token: &str) -> String {
    let guard = format!("LOCK.GUARD lock {token}");
    for command in ["MULTI", &guard, "SET guarded 9"] {
        assert!(!client.told(command).starts_with('-'), "{command}");
    }
    client.told("EXEC")
}

/// A checkpoint, and a log of two segments behind it.
#[test]
fn a_directory_of_one_node_is_checked_and_opened() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    copy(&place("one-node/data"), &data);
    let path = data.to_str().expect("a path");
    let expected = expected("one-node");
    for round in 0..3 {
        let (code, report, said) = run(&["check", path]);
        assert_eq!(code, Some(0), "round {round}: {report}{said}");
        assert!(report.contains("sound"), "round {round}: {report}{said}");
        let server = start_server(&["--data", path]);
        let mut client = Client::connect(server.address);
        assert!(guarded(&mut client, "8").starts_with("-FENCED "));
        assert_eq!(guarded(&mut client, "9"), "[+OK +OK]");
        // Files of this release, beside those of the first and then without them.
        assert_eq!(client.told("SET new value"), "+OK");
        assert_eq!(client.told("DEL new"), "1");
        assert_answers(&mut [client], &expected);
        let mut client = Client::connect(server.address);
        if round == 1 {
            assert_eq!(client.told("SAVE"), "+OK");
        }
        assert!(server.terminate().success());
    }
}

/// Transactions over both nodes, and read-atomic keys.
#[test]
fn directories_of_two_nodes_are_opened() {
    let top = "read_atomic = [\"feed:\"]";
    let mut cluster = Cluster::start_prepared(2, top, copy_of("two-nodes"));
    let expected = expected("two-nodes");
    for _ in 0..2 {
        let mut nodes = [0, 1].map(|node| Client::connect(cluster.address(node)));
        for client in &mut nodes {
            eventually("the nodes are together", || {
                !client.told("MGET foo bar").starts_with('-')
            });
        }
        assert_eq!(nodes[0].told("MSET new1 1 new2 2 new3 3"), "+OK");
        assert_eq!(nodes[1].told("DEL new1 new2 new3"), "3");
        assert_answers(&mut nodes, &expected);
        nodes.reverse();
        assert_answers(&mut nodes, &expected);
        let keys = nodes.map(|mut node| node.told("DBSIZE").parse::<u32>().expect("a number"));
        assert_eq!(keys.iter().sum::<u32>(), 23);
        for node in 0..2 {
            assert!(cluster.terminate_node(node).success());
        }
        for node in 0..2 {
            cluster.start_node(node).expect("it starts again");
        }
    }
}

/// Each member has a snapshot, and entries behind it.
#[test]
fn directories_of_three_members_are_opened() {
    let replicas = Replicas::start_prepared(1, 3, &[], copy_of("three-members"));
    let expected = expected("three-members");
    replicas.client().insist(&["SET", "new", "value"]);
    for node in 1..=3 {
        let mut client = Client::connect(replicas.address(node));
        client.told("READONLY");
        eventually("it has applied everything", || {
            client.told("GET new") == "value"
        });
        assert_answers(&mut [client], &expected);
    }
    eventually("all is well", || replicas.command(&["status"]).0 == Some(0));
}
