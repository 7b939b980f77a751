//! Calls for single keys and several keys, and their failures.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::partition::OwnedReply;
use base::transaction::{Holder, OpError};
use base::{Abort, NodeId, Op, Timestamp, TransactionId};
use cluster::Topology;
use cluster::message::Answer;
use kumiki_client::{Client, Error, Options};

use crate::nodes::{Cluster, Fault, ON_1, ON_2, text};

#[test]
fn keys_of_all_partitions_are_read_and_written() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let [one, other] = [ON_1[0], ON_2[0]];
    assert_eq!(client.get(one).unwrap(), None);
    client.put(one, b"1").unwrap();
    client.put(other, b"2").unwrap();
    assert_eq!((cluster.executed(1), cluster.executed(2)), (2, 1));
    assert_eq!(client.get(other).unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(client.add(one, 41).unwrap(), 42);
    assert!(client.delete(other).unwrap() && !client.delete(other).unwrap());
    client.mset(&[(one, b"x"), (other, b"y")]).unwrap();
    let values = client.mget(&[one, b"nobody", other]).unwrap();
    assert_eq!(values, [Some(b"x".to_vec()), None, Some(b"y".to_vec())]);
    let count = client
        .execute_at(NodeId(2), &[Op::Count { database: 0 }])
        .unwrap();
    assert_eq!(count, [OwnedReply::Int(2)]);
    let error = client.add(one, 1).unwrap_err();
    let expected = OpError::NotInteger;
    assert!(matches!(error, Error::Operation { op: 0, error } if error == expected));
    assert_eq!(cluster.node(1).asked.load(Ordering::SeqCst), 1);
    assert_eq!(cluster.node(2).asked.load(Ordering::SeqCst), 0);
}

#[test]
fn clients_are_shared_by_threads_and_bound_their_connections() {
    let cluster = Cluster::new();
    let mut options = Cluster::options();
    options.connections_per_node = 2;
    options.idle_after = Duration::from_millis(300);
    let client = cluster.client_with(options);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for n in 0..50 {
                    client.add(ON_1[0], 1).unwrap();
                    let own = format!("{thread}-{n}");
                    client.put(own.as_bytes(), own.as_bytes()).unwrap();
                    let got = client.get(own.as_bytes()).unwrap();
                    assert_eq!(got.as_deref(), Some(own.as_bytes()));
                }
            });
        }
    });
    assert_eq!(cluster.data.lock().get(ON_1[0]), Some(&b"400"[..]));
    // The connection that asked for the file may not be closed yet.
    let most = cluster.node(1).most_links.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most}");
    let (free, used) = client.connections(NodeId(1));
    assert!((1..=2).contains(&free) && used == 0);
    std::thread::sleep(Duration::from_millis(350));
    client.get(ON_2[0]).unwrap();
    assert_eq!(
        client.connections(NodeId(1)),
        (0, 0),
        "idle ones are closed"
    );
    assert_eq!(client.connections(NodeId(2)), (1, 0));
}

#[test]
fn reads_are_repeated_when_the_answer_is_lost() {
    let cluster = Cluster::new();
    let client = cluster.client();
    client.put(ON_1[0], b"v").unwrap();
    let unknown = Abort::Unknown {
        what: "a partition is gone".into(),
    };
    for fault in [
        Fault::CloseBefore,
        Fault::CloseAfter,
        Fault::Silence,
        Fault::Say(Answer::Aborted(unknown)),
    ] {
        cluster.fault(1, fault.clone());
        let got = client.get(ON_1[0]).unwrap();
        assert_eq!(got.as_deref(), Some(&b"v"[..]), "after {fault:?}");
    }
}

#[test]
fn writes_are_not_repeated_when_the_answer_is_lost() {
    let cluster = Cluster::new();
    let mut options = Cluster::options();
    options.timeout = Duration::from_millis(700);
    let client = cluster.client_with(options);
    let unknown = Abort::Unknown {
        what: "a partition is gone".into(),
    };
    for (fault, executed) in [
        (Fault::CloseBefore, 0),
        (Fault::CloseAfter, 1),
        (Fault::Silence, 0),
        (Fault::Say(Answer::Aborted(unknown.clone())), 0),
        (Fault::SayAfter(Answer::Aborted(unknown)), 1),
        (Fault::SayAfter(Answer::Failed("too long".into())), 1),
        (Fault::SayAfter(Answer::Replies(Vec::new())), 1),
    ] {
        let before = cluster.executed(1);
        cluster.fault(1, fault.clone());
        let error = client.add(ON_1[0], 1).unwrap_err();
        assert!(error.is_unknown() && !error.is_retryable(), "{error}");
        assert!(
            error.to_string().contains("before you repeat it"),
            "{error}"
        );
        assert_eq!(cluster.executed(1) - before, executed, "after {fault:?}");
        // The next call is not affected.
        client.add(ON_1[1], 1).unwrap();
    }
    assert_eq!(cluster.data.lock().get(ON_1[1]), Some(&b"7"[..]));
}

#[test]
fn what_has_not_happened_is_tried_again() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let holder = Holder {
        id: TransactionId {
            timestamp: Timestamp(1),
            unique: 2,
        },
        age: Timestamp(1),
    };
    let aborts = [
        Abort::Conflict { attempts: 3 },
        Abort::Held { by: holder },
        Abort::Overtaken {
            newest: Timestamp(9),
        },
        Abort::Refused,
        Abort::Unavailable {
            what: "a partition is away".into(),
        },
    ];
    for abort in &aborts {
        cluster.fault(1, Fault::Say(Answer::Aborted(abort.clone())));
    }
    assert_eq!(client.add(ON_1[0], 1).unwrap(), 1);
    assert_eq!(cluster.executed(1), 1);
    // Either fault may mean that the file is old.
    let asked = [1, 2].map(|id| cluster.node(id).asked.load(Ordering::SeqCst));
    assert_eq!(asked.iter().sum::<usize>(), 2, "{asked:?}");
}

#[test]
fn what_does_not_help_is_not_tried_again() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let aborts = [
        Abort::Precondition { op: 0 },
        Abort::TooLarge { what: "operations" },
        Abort::ReadOnly {
            reason: "the disk is full".into(),
        },
    ];
    for abort in aborts {
        cluster.fault(1, Fault::Say(Answer::Aborted(abort.clone())));
        let error = client.put(ON_1[0], b"v").unwrap_err();
        let is_unknown = matches!(abort, Abort::ReadOnly { .. });
        assert_eq!(
            (error.is_retryable(), error.is_unknown()),
            (false, is_unknown)
        );
        assert!(matches!(error, Error::Aborted(got) if got == abort));
    }
    cluster.fault(1, Fault::Say(Answer::Done));
    let error = client.get(ON_1[0]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Answer {
                node: NodeId(1),
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_node_that_is_away_is_waited_for() {
    let mut cluster = Cluster::new();
    let mut options = Cluster::options();
    options.timeout = Duration::from_millis(400);
    let impatient = cluster.client_with(options);
    let client = cluster.client();
    client.put(ON_1[0], b"before").unwrap();
    impatient.put(ON_1[0], b"before").unwrap();
    cluster.stop(1);
    let mut most = 0;
    // A busy machine may not manage many attempts in the time.
    for _ in 0..20 {
        let begun = Instant::now();
        let error = impatient.put(ON_1[0], b"never").unwrap_err();
        assert!(error.is_retryable() && !error.is_unknown());
        assert!(begun.elapsed() < Duration::from_secs(4));
        match error {
            Error::TimedOut { attempts, .. } => most = attempts.max(most),
            other => panic!("{other}"),
        }
        if most > 3 {
            break;
        }
    }
    assert!(most > 3, "{most} attempts");
    // The other nodes are there.
    impatient.put(ON_2[0], b"v").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.put(ON_1[0], b"after"));
        std::thread::sleep(Duration::from_millis(300));
        cluster.start(1);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(cluster.data.lock().get(ON_1[0]), Some(&b"after"[..]));
}

/// A connection that a restart has closed is noticed before a request is written to it.
#[test]
fn a_restart_between_calls_leaves_nothing_unknown() {
    let mut cluster = Cluster::new();
    let client = cluster.client();
    for _ in 0..5 {
        client.add(ON_1[0], 1).unwrap();
        cluster.stop(1);
        cluster.start(1);
    }
    assert_eq!(client.add(ON_1[0], 1).unwrap(), 6);
}

#[test]
fn another_file_is_asked_for_when_keys_have_moved() {
    let mut cluster = Cluster::new();
    let client = cluster.client();
    client.put(ON_1[0], b"v").unwrap();
    client.put(ON_2[0], b"v").unwrap();
    let before = client.topology().fingerprint();
    // Node 2 has everything but one slot from now on.
    for id in [1, 2] {
        cluster.stop(id);
    }
    let file = text(cluster.addresses(), 0);
    cluster.topology = Topology::parse(&file, "test").unwrap();
    for id in [1, 2] {
        cluster.start(id);
    }
    assert_eq!(client.get(ON_1[0]).unwrap().as_deref(), Some(&b"v"[..]));
    client.put(ON_1[0], b"w").unwrap();
    assert_eq!((cluster.executed(1), cluster.executed(2)), (0, 2));
    assert_ne!(client.topology().fingerprint(), before);
}

#[test]
fn no_node_and_a_refusal_are_different_errors() {
    let mut cluster = Cluster::new();
    let addresses = cluster.addresses();
    let wrong = Options::new("another secret altogether");
    let error = Client::connect(addresses, wrong).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("secret") && !error.is_retryable());
    cluster.stop(1);
    // One address is enough.
    Client::connect(addresses, Cluster::options()).unwrap();
    cluster.stop(2);
    let error = Client::connect(addresses, Cluster::options()).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.is_retryable());
    for address in addresses {
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
    let error = Client::connect([], Cluster::options()).unwrap_err();
    assert!(error.to_string().contains("no address"), "{error}");
}

#[test]
fn a_transaction_longer_than_messages_is_refused() {
    let cluster = Cluster::new();
    let mut options = Cluster::options();
    options.message = 10_000;
    let client = cluster.client_with(options);
    let error = client.put(ON_1[0], &[1; 10_001]).unwrap_err();
    assert!(matches!(error, Error::TooLong { .. }), "{error}");
    client.put(ON_1[0], &[1; 9_000]).unwrap();
    assert_eq!(cluster.executed(1), 1);
}
