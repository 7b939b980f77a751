//! Guarded blocks against processes of the real binary: while nodes and leaders fail, no older
//! token is accepted after a newer one.

use std::time::Duration;

use crate::support::cluster::{Cluster, Keeping};
use crate::support::replicas::Replicas;
use crate::support::words::text;
use client::{Client as RustClient, Op, Options};
use testkit::{Client, Frame, eventually};

/// Keys of one slot of each of three nodes with equal shares.
const KEYS: [&str; 3] = ["bar", "hello2", "foo"];

/// Sets keys under a guard, as one block. Returns the reply of `EXEC`.
fn guarded(client: &mut Client, token: u64, keys: &[&str]) -> Frame {
    let token = token.to_string();
    assert_eq!(client.frame(&["MULTI"]).raw, b"+OK\r\n");
    let queued = client.frame(&["LOCK.GUARD", "orders", &token]);
    assert_eq!(queued.raw, b"+QUEUED\r\n", "{}", text(&queued));
    for key in keys {
        client.frame(&["SET", key, &token]);
    }
    client.frame(&["EXEC"])
}

fn is_fenced(frame: &Frame) -> bool {
    frame.raw.starts_with(b"-FENCED ")
}

fn has_run(frame: &Frame) -> bool {
    frame.raw.starts_with(b"*")
}

/// Sets keys under a guard at some node, until the outcome is known.
fn decided(connect: &mut dyn FnMut() -> Option<Client>, token: u64, keys: &[&str]) -> Frame {
    let mut last = None;
    eventually("a decision", || {
        let Some(mut client) = connect() else {
            return false;
        };
        let frame = guarded(&mut client, token, keys);
        let is_decided = has_run(&frame) || is_fenced(&frame);
        last = Some(frame);
        is_decided
    });
    last.expect("it was tried")
}

#[test]
fn killed_nodes_remember_tokens() {
    let mut cluster = Cluster::start(3, Keeping::Data);
    let mut token = 1;
    for round in 0..3 {
        let victim = round % 3;
        let by = |node: usize| Client::try_connect(cluster.address(node)).ok();
        // Over all nodes, then over two of them.
        let done = decided(&mut || by(round), token, &KEYS);
        assert!(has_run(&done), "{}", text(&done));
        token += 1;
        let two = [KEYS[victim], KEYS[(victim + 1) % 3]];
        let done = decided(&mut || by((round + 1) % 3), token, &two);
        assert!(has_run(&done), "{}", text(&done));
        cluster.kill_node(victim);
        cluster.start_node(victim).expect("it starts again");
        let by = |node: usize| Client::try_connect(cluster.address(node)).ok();
        for node in 0..3 {
            let late = decided(&mut || by(node), token - 1, &[KEYS[victim]]);
            assert!(is_fenced(&late), "{}", text(&late));
            let late = decided(&mut || by(node), token - 1, &KEYS);
            assert!(is_fenced(&late), "{}", text(&late));
        }
        assert_eq!(
            Client::connect(cluster.address(victim))
                .frame(&["GET", KEYS[victim]])
                .bytes(),
            Some(token.to_string().as_bytes())
        );
        token += 1;
    }
    let late = guarded(&mut Client::connect(cluster.address(0)), 1, &KEYS[..1]);
    let expected = "-FENCED the lock 'orders' has been granted with a newer token (";
    assert!(text(&late).starts_with(expected), "{}", text(&late));
    assert!(
        text(&late).ends_with("acquire it again\r\n"),
        "{}",
        text(&late)
    );
}

#[test]
fn leaders_that_follow_a_killed_one_remember_tokens_and_the_time() {
    let mut replicas = Replicas::start(1, 3);
    let mut options = Options::new("");
    options.timeout = Duration::from_secs(30);
    options.answer_within = Duration::from_secs(1);
    let client = RustClient::connect(replicas.fabrics(), options).expect("the nodes run");
    let now = || match client.execute(&[Op::Now]).expect("it is told")[..] {
        [client::OwnedReply::Int(now)] => now,
        ref other => panic!("{other:?}"),
    };
    let mut told = 0;
    for token in 2..5 {
        let leader = replicas.leader(1);
        let mut at_any = || {
            let running: Vec<usize> = replicas.running().collect();
            running
                .into_iter()
                .find_map(|node| Client::try_connect(replicas.address(node)).ok())
        };
        let done = decided(&mut at_any, token, &["key"]);
        assert!(has_run(&done), "{}", text(&done));
        assert!(now() >= told);
        told = now();
        replicas.kill_node(leader);
        let mut at_any = || {
            let running: Vec<usize> = replicas.running().collect();
            running
                .into_iter()
                .find_map(|node| Client::try_connect(replicas.address(node)).ok())
        };
        let late = decided(&mut at_any, token - 1, &["key"]);
        assert!(is_fenced(&late), "{}", text(&late));
        assert!(now() >= told);
        let late = client.transact(|txn| {
            txn.guard(b"orders", token - 1);
            txn.put(b"key", b"late")
        });
        assert!(late.expect_err("it is stale").is_fenced());
        let value = client.get(b"key").expect("it is read");
        assert_eq!(value, Some(token.to_string().into_bytes()));
        replicas.start_node(leader);
    }
}
