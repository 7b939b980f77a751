//! Transactions of a replicated partition, which are numbered and sent again.

use std::time::Duration;

use base::transaction::OpError;
use base::{Abort, NodeId, Op};
use cluster::message::Answer;
use kumiki_client::Error;

use crate::nodes::{Cluster, Fault};

const KEY: &[u8] = b"n";

fn unknown() -> Answer {
    Answer::Aborted(Abort::Unknown {
        what: "the leadership was lost".into(),
    })
}

fn value(cluster: &Cluster) -> String {
    let data = cluster.data.lock();
    String::from_utf8_lossy(data.get(KEY).unwrap_or_default()).into_owned()
}

#[test]
fn what_was_sent_is_sent_again_until_it_is_answered_and_takes_effect_once() {
    let cluster = Cluster::replicated();
    let client = cluster.client();
    let faults = [
        Fault::CloseBefore,
        Fault::CloseAfter,
        Fault::Silence,
        Fault::Say(unknown()),
        Fault::SayAfter(unknown()),
        Fault::SayAfter(Answer::Failed("its disk is broken".into())),
        Fault::SayAfter(Answer::Replies(Vec::new())),
    ];
    for (number, fault) in (1..).zip(faults) {
        cluster.fault(1, fault.clone());
        assert_eq!(client.add(KEY, 1).unwrap(), number, "after {fault:?}");
    }
    assert_eq!(cluster.data.lock().opened, 1, "one session is enough");
}

#[test]
fn it_is_sent_to_the_current_leader() {
    let mut cluster = Cluster::replicated();
    let client = cluster.client();
    assert_eq!(client.add(KEY, 1).unwrap(), 1);
    cluster.fault(1, Fault::LeadAfter(3));
    assert_eq!(client.add(KEY, 1).unwrap(), 2);
    assert_eq!((cluster.executed(1), cluster.executed(3)), (2, 0));
    assert_eq!(client.get(KEY).unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(cluster.executed(3), 1, "reads go there, too");
    // A node that is away is not missed, either.
    cluster.data.lock().leader = Some(2);
    cluster.stop(3);
    assert_eq!(client.add(KEY, 1).unwrap(), 3);
    assert_eq!(value(&cluster), "3");
}

#[test]
fn a_session_that_is_forgotten_is_replaced_and_nothing_is_executed_twice() {
    let cluster = Cluster::replicated();
    let client = cluster.client();
    assert_eq!(client.add(KEY, 1).unwrap(), 1);
    cluster.data.lock().forget_sessions();
    assert_eq!(client.add(KEY, 1).unwrap(), 2, "it was not sent before");
    cluster.fault(1, Fault::ForgetAfter);
    let error = client.add(KEY, 1).unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(value(&cluster), "3");
    assert_eq!(client.add(KEY, 1).unwrap(), 4);
    assert_eq!(cluster.data.lock().opened, 3);
}

#[test]
fn an_abort_says_nothing_of_what_was_sent_before() {
    let cluster = Cluster::replicated();
    let client = cluster.client();
    let abort = || Answer::Aborted(Abort::Precondition { op: 0 });
    cluster.fault(1, Fault::Say(abort()));
    let error = client.add(KEY, 1).unwrap_err();
    assert!(
        matches!(error, Error::Aborted(Abort::Precondition { op: 0 })),
        "{error}"
    );
    cluster.fault(1, Fault::Silence);
    cluster.fault(1, Fault::Say(abort()));
    let error = client.add(KEY, 1).unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert_eq!(client.add(KEY, 1).unwrap(), 1);
    // An operation that fails is not an abort: its reply is remembered.
    cluster.data.lock().put(KEY, b"text");
    cluster.fault(1, Fault::CloseAfter);
    let error = client.add(KEY, 1).unwrap_err();
    let expected = OpError::NotInteger;
    assert!(matches!(error, Error::Operation { op: 0, error } if error == expected));
}

#[test]
fn what_is_in_doubt_when_the_time_is_up_is_unknown() {
    let mut cluster = Cluster::replicated();
    let mut options = Cluster::options();
    options.timeout = Duration::from_millis(700);
    let client = cluster.client_with(options);
    client.add(KEY, 1).unwrap();
    cluster.fault(1, Fault::CloseAfter);
    for _ in 0..200 {
        cluster.fault(1, Fault::Say(unknown()));
    }
    let error = client.add(KEY, 1).unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    cluster.node(1).faults.lock().clear();
    assert_eq!(value(&cluster), "2");
    // A transaction that was never sent is not in doubt.
    for id in [1, 2, 3] {
        cluster.stop(id);
    }
    let error = client.add(KEY, 1).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

#[test]
fn threads_have_sessions_of_their_own_meanwhile() {
    let cluster = Cluster::replicated();
    let client = cluster.client();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    client.add(KEY, 1).unwrap();
                }
            });
        }
    });
    assert_eq!(value(&cluster), "200");
    let opened = cluster.data.lock().opened;
    assert!((1..=4).contains(&opened), "{opened}");
    // A transaction that the caller sends to a node of its choice has no number.
    client.execute_at(NodeId(2), &[Op::put(KEY, b"v")]).unwrap();
    assert_eq!(cluster.data.lock().opened, opened);
}

/// A stale token stays stale: a caller that is in doubt when it gets this answer knows that nothing has
/// happened.
#[test]
fn a_stale_token_ends_all_doubt() {
    let cluster = Cluster::replicated();
    let client = cluster.client();
    let guarded = |token| {
        let guard = Op::Guard {
            lock: b"lock",
            token,
        };
        client.execute(&[guard, Op::Add { key: KEY, delta: 1 }])
    };
    guarded(5).unwrap();
    for fault in [Fault::CloseBefore, Fault::Silence, Fault::Say(unknown())] {
        cluster.fault(1, fault.clone());
        let error = guarded(4).unwrap_err();
        assert!(error.is_fenced(), "after {fault:?}: {error}");
    }
    // A transaction that was executed is answered, although the lock's token has grown since.
    cluster.fault(1, Fault::CloseAfter);
    guarded(6).unwrap();
    assert_eq!(value(&cluster), "2");
}
