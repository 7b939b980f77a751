//! Nodes and replicas whose links pass a machine that alters bytes: links are encrypted, so nothing wrong is
//! served, and the cluster goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;
use testkit::client::Answer;
use testkit::relay::Passing;
use testkit::{Client, eventually};

use crate::support::cluster::{Cluster, Keeping};
use crate::support::replicas::Replicas;

/// The number of pieces of which the attacker alters one.
const EVERY: u64 = 40;
/// The number of bytes of a connection in which the handshake is: an attack on it prevents a link.
const HANDSHAKE: u64 = 300;

/// An attacker that alters a byte now and then.
#[derive(Clone, Default)]
struct Attacker {
    stopped: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
    altered: Arc<AtomicU64>,
}

impl Attacker {
    fn change(&self) -> impl FnMut(Passing<'_>) + Send + 'static {
        let own = self.clone();
        move |passing| {
            if passing.offset < HANDSHAKE || own.stopped.load(Ordering::Relaxed) {
                return;
            }
            let number = own.passed.fetch_add(1, Ordering::Relaxed);
            if number % EVERY == EVERY - 1 {
                let middle = passing.bytes.len() / 2;
                passing.bytes[middle] ^= 1;
                own.altered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn altered(&self) -> u64 {
        self.altered.load(Ordering::Relaxed)
    }
}

/// Returns the value of a key: it shows where it belongs.
fn value_of(key: &str) -> String {
    format!("<{key}>").repeat(20)
}

/// Checks the values that a node has served; errors are allowed.
fn check(keys: &[String], answer: Answer, missing: bool) {
    let Answer::Reply(frame) = answer else {
        return;
    };
    let Some(values) = frame.frames() else {
        return;
    };
    assert_eq!(values.len(), keys.len());
    for (key, value) in keys.iter().zip(values) {
        match value.bytes() {
            Some(bytes) => assert_eq!(String::from_utf8_lossy(bytes), value_of(key)),
            None => assert!(missing, "{key} is missing"),
        }
    }
}

#[test]
fn nodes_serve_nothing_that_was_altered_between_them() {
    let attacker = Attacker::default();
    let change = || attacker.change();
    let cluster =
        Cluster::start_attacked(2, &["--transport", "tcp", "--encrypt-links", "yes"], change);
    let mut clients = [0, 1].map(|node| Client::connect(cluster.address(node)));
    let mut written: Vec<Vec<String>> = Vec::new();
    eventually("enough attacks", || {
        for _ in 0..20 {
            let number = written.len();
            // Their slots are on both nodes.
            let keys: Vec<String> = (0..4).map(|part| format!("{number}:{part}")).collect();
            let values: Vec<String> = keys.iter().map(|key| value_of(key)).collect();
            let mut mset = vec!["MSET"];
            for (key, value) in keys.iter().zip(&values) {
                mset.extend([key.as_str(), value.as_str()]);
            }
            let [writer, reader] = &mut clients;
            let done = writer.answer(&mset);
            let acknowledged = matches!(&done, Answer::Reply(frame) if !frame.is_error());
            let mut mget = vec!["MGET"];
            mget.extend(keys.iter().map(String::as_str));
            check(&keys, reader.answer(&mget), !acknowledged);
            if acknowledged {
                written.push(keys);
            }
        }
        attacker.altered() >= 5 && written.len() >= 100
    });
    attacker.stopped.store(true, Ordering::Relaxed);
    for keys in &written {
        let mut mget = vec!["MGET"];
        mget.extend(keys.iter().map(String::as_str));
        eventually("acknowledged values are read", || {
            let answer = clients[1].answer(&mget);
            let whole = matches!(&answer, Answer::Reply(frame) if !frame.is_error());
            check(keys, answer, false);
            whole
        });
    }
    let mut client = Client::connect(cluster.address(0));
    eventually("INFO counts the encrypted links", || {
        let info = client.told("INFO");
        let count = info
            .lines()
            .find_map(|line| line.strip_prefix("cluster_links_encrypted:"));
        count.is_some_and(|count| count.trim() != "0")
    });
    let logs = [0, 1].map(|node| cluster.log(node)).concat();
    assert!(logs.contains("a message was altered on its way"), "{logs}");
}

#[test]
fn replicas_serve_nothing_that_was_altered_between_them() {
    let attacker = Attacker::default();
    let change = || attacker.change();
    let replicas = Replicas::start_attacked(3, &["--encrypt-links", "yes"], change);
    let mut client = replicas.client();
    let mut count = 0;
    eventually("enough attacks", || {
        for _ in 0..20 {
            let key = format!("key:{count}");
            client.insist(&["SET", &key, &value_of(&key)]);
            count += 1;
        }
        attacker.altered() >= 5 && count >= 100
    });
    attacker.stopped.store(true, Ordering::Relaxed);
    let last = format!("key:{}", count - 1);
    for node in 1..=3 {
        let mut reader = Client::connect(replicas.address(node));
        reader.frame(&["READONLY"]);
        eventually("the replica has all values", || {
            let Answer::Reply(frame) = reader.answer(&["GET", &last]) else {
                return false;
            };
            !frame.is_error() && frame.bytes().is_some()
        });
        for number in 0..count {
            let key = format!("key:{number}");
            let frame = reader.frame(&["GET", &key]);
            let value = frame.bytes().map(String::from_utf8_lossy);
            assert_eq!(
                value.as_deref(),
                Some(value_of(&key).as_str()),
                "node {node}"
            );
        }
    }
    let logs: String = (1..=3).map(|node| replicas.log(node)).collect();
    assert!(logs.contains("a message was altered on its way"), "{logs}");
}

/// A node takes the next secret while it serves, and refuses a node without it afterwards.
#[test]
fn a_secret_is_exchanged_without_a_restart() {
    const OLD: &str = "the first secret, long enough";
    const NEW: &str = "the second secret, long enough";
    let top = |texts: &[&str]| format!("secret = {texts:?}");
    let yes = &["--encrypt-links", "yes", "--transport", "tcp"];
    let mut cluster = Cluster::start_with(2, Keeping::Data, &top(&[OLD]), yes);
    let spans = |cluster: &Cluster, what: &str| {
        let mut client = Client::connect(cluster.address(0));
        eventually(what, || {
            let answer = client.answer(&["MSET", "a", "1", "b", "2", "c", "3", "d", "4"]);
            matches!(answer, Answer::Reply(frame) if !frame.is_error())
        });
    };
    spans(&cluster, "the first secret");
    let mut former = top(&[OLD]);
    for texts in [&[OLD, NEW][..], &[NEW, OLD], &[NEW]] {
        let next = top(texts);
        cluster.edit_file(|text| text.replace(&former, &next));
        former = next;
        let seen = cluster.log(0).matches(READ_AGAIN).count();
        cluster.signal_node(0, Signal::HUP);
        eventually("the secret is read", || {
            cluster.log(0).matches(READ_AGAIN).count() > seen
        });
        // The other one makes new connections.
        cluster.kill_node(1);
        cluster.start_node(1).expect("it starts again");
        spans(&cluster, "the secrets of this step");
    }
    cluster.edit_file(|text| text.replace(&former, &top(&[OLD])));
    cluster.kill_node(1);
    cluster.start_node(1).expect("it starts again");
    eventually("it is refused", || {
        cluster.log(1).contains("the secrets differ")
    });
}

const READ_AGAIN: &str = "prove the secret that was read again";
