//! Databases on disk: after restarts, from logs and from checkpoints, and on the members of a replicated
//! partition.

use crate::support::process::{run, start_server};
use crate::support::replicas::{Replicas, STEADY};
use testkit::{Client, eventually};

/// Sends commands, each of which must have this reply.
#[track_caller]
fn assert_told(client: &mut Client, commands: &[(&str, &str)]) {
    for (command, reply) in commands {
        assert_eq!(client.told(command), *reply, "{command}");
    }
}

/// The contents of the databases after all commands.
const EXPECTED: [(&str, &str); 12] = [
    ("SELECT 0", "+OK"),
    ("MGET a b", "[zero nil]"),
    ("SELECT 1", "+OK"),
    ("DBSIZE", "2"),
    ("MGET a b", "[two 2]"),
    ("SELECT 2", "+OK"),
    ("KEYS *", "[new]"),
    ("SELECT 3", "+OK"),
    ("GET a", "three"),
    ("DBSIZE", "1"),
    ("SELECT 4", "+OK"),
    ("DBSIZE", "0"),
];

#[test]
fn databases_survive_restarts_and_checkpoints() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    let path = data.to_str().expect("a path");
    let server = start_server(&["--data", path]);
    let mut client = Client::connect(server.address);
    assert_told(
        &mut client,
        &[
            ("MSET a zero", "+OK"),
            ("SELECT 1", "+OK"),
            ("MSET a one b 1", "+OK"),
            ("SELECT 2", "+OK"),
            ("MSET a two b 2", "+OK"),
            ("SELECT 4", "+OK"),
            ("SET a four", "+OK"),
            ("FLUSHDB", "+OK"),
            ("SELECT 1", "+OK"),
            ("FLUSHDB", "+OK"),
            ("SET new 1", "+OK"),
            ("SWAPDB 1 2", "+OK"),
            ("SET a two", "+OK"),
            ("SELECT 3", "+OK"),
            ("SET a three", "+OK"),
        ],
    );
    assert_told(&mut client, &EXPECTED);
    assert!(server.terminate().success());
    for round in 0..3 {
        let (code, report, said) = run(&["check", path]);
        assert_eq!(code, Some(0), "round {round}: {report}{said}");
        let server = start_server(&["--data", path]);
        let mut client = Client::connect(server.address);
        assert_told(&mut client, &EXPECTED);
        // From now on there is a checkpoint.
        if round == 1 {
            assert_eq!(client.told("SAVE"), "+OK");
        }
        // A flush after the restart, and a key that goes on in the log behind the checkpoint.
        let more = [("SET a x", "+OK"), ("FLUSHDB", "+OK")];
        assert_told(&mut client, &more);
        assert_told(&mut client, &EXPECTED);
        assert!(server.terminate().success());
    }
}

#[test]
fn databases_are_on_all_members() {
    let replicas = Replicas::start_with(1, 3, &STEADY);
    let mut leader = Client::connect(replicas.address(replicas.leader(1)));
    assert_told(
        &mut leader,
        &[
            ("SET a zero", "+OK"),
            ("SELECT 1", "+OK"),
            ("MSET a one b 1", "+OK"),
            ("FLUSHDB", "+OK"),
            ("SET b 2", "+OK"),
            ("SELECT 2", "+OK"),
            ("SET c 3", "+OK"),
        ],
    );
    let refused = leader.told("SWAPDB 0 1");
    assert_eq!(refused, "-ERR SWAPDB is not allowed in cluster mode");
    for node in 1..=replicas.count() {
        let mut member = Client::connect(replicas.address(node));
        assert_eq!(member.told("READONLY"), "+OK");
        eventually("it has all entries", || {
            member.told("SELECT 2");
            member.told("DBSIZE") == "1"
        });
        let expected = [
            ("KEYS *", "[c]"),
            ("SELECT 1", "+OK"),
            ("KEYS *", "[b]"),
            ("SELECT 0", "+OK"),
            ("KEYS *", "[a]"),
        ];
        assert_told(&mut member, &expected);
    }
}
