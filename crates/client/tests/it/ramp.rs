//! Read-atomic keys.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::transaction::Kind;
use base::versions::{OwnedContent, OwnedVersion};
use base::{Abort, Op, Timestamp, TransactionId};
use cluster::message::Answer;
use cluster::ramp::siblings;
use kumiki_client::{Algorithm, Client, Error, Options, Reads};

use crate::nodes::{Cluster, Coordinated, Fault, ON_1, ON_2, RA_ON_1, RA_ON_2};

/// A key of each node.
const BOTH: [&[u8]; 2] = [RA_ON_1[0], RA_ON_2[0]];

fn id(number: u64) -> TransactionId {
    TransactionId {
        timestamp: Timestamp(number),
        unique: 1,
    }
}

/// Returns the version of a key that transaction `number` has written to both.
fn version(number: u64, algorithm: Algorithm) -> OwnedVersion {
    OwnedVersion {
        id: id(number),
        siblings: siblings(algorithm, BOTH).into(),
        content: Some(OwnedContent {
            value: number.to_string().into_bytes(),
            kind: Kind::String,
            deadline: None,
        }),
    }
}

/// Commits transaction 1 at both nodes, and transaction 2 at node 2; at node 1 that is only prepared.
fn half_committed(cluster: &Cluster, algorithm: Algorithm) {
    let [first, second] = [1, 2].map(|number| version(number, algorithm));
    let mut data = cluster.data.lock();
    let lags = vec![first, second.clone()];
    data.versions_of.insert(BOTH[0].to_vec(), lags);
    data.versions_of.insert(BOTH[1].to_vec(), vec![second]);
}

fn get(client: &Client, algorithm: Algorithm) -> Vec<Option<String>> {
    let values = client.get_all(&BOTH, algorithm).unwrap().into_iter();
    let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
    values.map(|value| value.map(text)).collect()
}

fn both(value: &str) -> Vec<Option<String>> {
    vec![Some(value.to_owned()); 2]
}

#[test]
fn a_partition_that_lags_is_asked_again() {
    let cluster = Cluster::new();
    let client = cluster.client();
    for (nth, algorithm) in (1..).zip(Algorithm::ALL) {
        half_committed(&cluster, algorithm);
        let before = [1, 2].map(|node| cluster.executed(node));
        assert_eq!(get(&client, algorithm), both("2"), "{algorithm}");
        let counts = client.read_counts();
        assert_eq!((counts.reads, counts.several_rounds), (nth, nth));
        // Only [`Algorithm::Small`] asks again where nothing was missing.
        let again = 1 + usize::from(algorithm == Algorithm::Small);
        let after = [1, 2].map(|node| cluster.executed(node));
        assert_eq!(after, [before[0] + 2, before[1] + again], "{algorithm}");
    }
}

#[test]
fn a_node_runs_reads_if_it_is_to() {
    let cluster = Cluster::new();
    let options = Options {
        reads: Reads::ByNode,
        ..Cluster::options()
    };
    let client = cluster.client_with(options);
    client
        .put_all(&BOTH.map(|key| (key, Some(&b"v"[..]))), Algorithm::Fast)
        .unwrap();
    cluster.data.lock().coordinated.clear();
    for algorithm in Algorithm::ALL {
        // A lost request is sent again, since it only reads.
        for node in [1, 2] {
            cluster.fault(node, Fault::CloseAfter);
        }
        assert_eq!(get(&client, algorithm), both("v"));
        let how = std::mem::take(&mut cluster.data.lock().coordinated);
        assert!(how.len() > 1, "one was lost");
        assert!(how.iter().all(|how| *how == Coordinated::By(algorithm)));
        let faults = [1, 2].map(|node| cluster.node(node).faults.lock().drain(..).count());
        assert!(faults.iter().sum::<usize>() < 2);
    }
    assert_eq!(client.read_counts().reads, 0, "it has run none itself");
    assert_eq!(client.get_all(&[], Algorithm::Fast).unwrap(), []);
    let alone = client.get_all(&BOTH[..1], Algorithm::Fast).unwrap();
    assert_eq!(alone, [Some(b"v".to_vec())]);
}

#[test]
fn one_round_is_enough_without_a_writer() {
    let cluster = Cluster::new();
    let client = cluster.client();
    assert_eq!(get(&client, Algorithm::Fast), [None, None]);
    let mut data = cluster.data.lock();
    for key in BOTH {
        let versions = vec![version(1, Algorithm::Fast)];
        data.versions_of.insert(key.to_vec(), versions);
    }
    drop(data);
    // Values come in the caller's order, also for keys that occur twice.
    let keys = [BOTH[1], RA_ON_2[1], BOTH[0], BOTH[1]];
    let one = Some(b"1".to_vec());
    let values = client.get_all(&keys, Algorithm::Fast).unwrap();
    assert_eq!(values, [one.clone(), None, one.clone(), one]);
    let counts = client.read_counts();
    assert_eq!((counts.reads, counts.rounds, counts.restarts), (2, 2, 0));
    assert_eq!((cluster.executed(1), cluster.executed(2)), (2, 2));
    assert!(client.get_all(&[], Algorithm::Small).unwrap().is_empty());
}

#[test]
fn only_who_has_not_answered_is_asked_once_more() {
    let cluster = Cluster::new();
    let client = cluster.client();
    half_committed(&cluster, Algorithm::Fast);
    let elsewhere = Answer::Aborted(Abort::Elsewhere { leader: None });
    for fault in [
        Fault::CloseBefore,
        Fault::Silence,
        Fault::Say(elsewhere),
        Fault::Say(Answer::Failed("its disk is full".to_owned())),
    ] {
        let before = cluster.executed(2);
        cluster.fault(1, fault.clone());
        assert_eq!(get(&client, Algorithm::Fast), both("2"), "after {fault:?}");
        assert_eq!(cluster.executed(2), before + 1, "after {fault:?}");
    }
}

#[test]
fn reads_that_are_not_answered_end_with_their_time() {
    let cluster = Cluster::new();
    let mut options = Cluster::options();
    options.timeout = Duration::from_millis(300);
    let client = cluster.client_with(options);
    let elsewhere = Answer::Aborted(Abort::Elsewhere { leader: None });
    for _ in 0..100 {
        cluster.fault(1, Fault::Say(elsewhere.clone()));
    }
    let error = client.get_all(&BOTH, Algorithm::Fast).unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn writes_are_coordinated_by_a_node_that_has_one_of_the_keys() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let value = Some(&b"v"[..]);
    for algorithm in Algorithm::ALL {
        let [one, other] = RA_ON_2;
        let pairs = [(one, None), (BOTH[0], value), (one, value), (other, None)];
        client.put_all(&pairs, algorithm).unwrap();
        assert_eq!(cluster.data.lock().get(BOTH[0]), Some(&b"v"[..]));
        assert_eq!(cluster.data.lock().get(one), Some(&b"v"[..]), "the last");
        let how = cluster.data.lock().coordinated.pop();
        assert_eq!(how, Some(Coordinated::By(algorithm)));
    }
    assert_eq!((cluster.executed(1), cluster.executed(2)), (0, 3));
    // A single partition needs no coordinator.
    let pairs = RA_ON_1.map(|key| (key, value));
    client.put_all(&pairs, Algorithm::Fast).unwrap();
    assert_eq!(cluster.executed(1), 1);
    assert!(cluster.data.lock().coordinated.is_empty());
    client.put_all(&[], Algorithm::Fast).unwrap();
    assert_eq!((cluster.executed(1), cluster.executed(2)), (1, 3));
}

#[test]
fn writes_are_not_repeated_when_the_answer_is_lost() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let pairs = BOTH.map(|key| (key, Some(&b"v"[..])));
    for node in [1, 2] {
        cluster.fault(node, Fault::CloseAfter);
    }
    let error = client.put_all(&pairs, Algorithm::Fast).unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(cluster.executed(1) + cluster.executed(2), 1);
}

#[test]
fn keys_that_are_not_declared_are_refused() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let asked = || {
        let asked = [1, 2].map(|node| cluster.node(node).asked.load(Ordering::SeqCst));
        asked.iter().sum::<usize>()
    };
    let before = asked();
    let keys = [BOTH[0], ON_1[0]];
    let said = [
        client.get_all(&keys, Algorithm::Fast).map(drop),
        client.put_all(&keys.map(|key| (key, None)), Algorithm::Fast),
    ];
    for error in said.map(Result::unwrap_err) {
        let unsupported = matches!(&error, Error::Aborted(Abort::Unsupported { .. }));
        let text = error.to_string();
        assert!(unsupported && text.contains("\"b\"") && text.contains("read_atomic"));
    }
    assert_eq!(asked(), before + 2, "another file may declare it");
    assert_eq!((cluster.executed(1), cluster.executed(2)), (0, 0));
}

#[test]
fn transactions_hold_what_they_read_if_that_is_wanted() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let ops = [Op::Get { key: ON_1[0] }, Op::put(ON_2[0], b"v")];
    client.execute(&ops).unwrap();
    client.execute_holding(&ops).unwrap();
    let expected = [false, true].map(|holds| Coordinated::Serializably { holds });
    assert_eq!(cluster.data.lock().coordinated, expected);
}
