//! Many transactions in one message, each by itself.

use base::ids::{Tid, Version};
use base::partition::OwnedReply;
use base::transaction::Holder;
use base::{Abort, Epoch, NodeId, Op, Timestamp, TransactionId};
use cluster::message::Answer;
use kumiki_client::Error;

use crate::nodes::{Cluster, Fault, ON_1, ON_2};

fn add(key: &[u8]) -> Vec<Op<'_>> {
    vec![Op::Add { key, delta: 1 }]
}

fn value(cluster: &Cluster, key: &[u8]) -> Option<String> {
    let data = cluster.data.lock();
    let value = data.get(key)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

#[test]
fn each_succeeds_or_fails_by_itself_and_outcomes_have_their_order() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let never = Version::present(Tid::new(Epoch(77), 0));
    let check = Op::Check {
        key: ON_1[0],
        version: never,
    };
    let failing = vec![check, Op::put(ON_1[1], b"never")];
    let both = vec![Op::put(ON_1[1], b"1"), Op::put(ON_2[1], b"2")];
    let all = [
        add(ON_1[0]),
        add(ON_2[0]),
        failing,
        both,
        add(ON_1[0]),
        add(ON_2[0]),
    ];
    let outcomes = client.execute_each(&all);
    let sums = |at: usize| outcomes[at].as_ref().unwrap().clone();
    assert_eq!(
        [sums(0), sums(4)],
        [[OwnedReply::Int(1)], [OwnedReply::Int(2)]]
    );
    assert_eq!(
        [sums(1), sums(5)],
        [[OwnedReply::Int(1)], [OwnedReply::Int(2)]]
    );
    let failed = outcomes[2].as_ref().unwrap_err();
    assert!(
        matches!(failed, Error::Aborted(Abort::Precondition { op: 0 })),
        "{failed}"
    );
    assert_eq!(sums(3), [OwnedReply::Ok, OwnedReply::Ok]);
    assert_eq!(value(&cluster, ON_1[1]).as_deref(), Some("1"));
    assert!(client.execute_each(&[]).is_empty());
}

#[test]
fn writes_of_a_lost_answer_are_unknown_and_not_repeated_and_reads_are() {
    for fault in [
        Fault::CloseAfter,
        Fault::SayAfter(Answer::Failed("a broken disk".into())),
    ] {
        let cluster = Cluster::new();
        let client = cluster.client();
        cluster.fault(1, fault.clone());
        let outcomes = client.execute_each(&[add(ON_1[0]), vec![Op::Get { key: ON_1[0] }]]);
        let unknown = outcomes[0].as_ref().unwrap_err();
        assert!(unknown.is_unknown(), "{unknown} after {fault:?}");
        assert_eq!(
            outcomes[1].as_ref().unwrap(),
            &[OwnedReply::Bytes(b"1".to_vec())]
        );
        assert_eq!(
            value(&cluster, ON_1[0]).as_deref(),
            Some("1"),
            "after {fault:?}"
        );
    }
}

#[test]
fn what_has_not_happened_is_sent_again_by_itself() {
    let cluster = Cluster::replicated();
    let client = cluster.client();
    let id = TransactionId {
        timestamp: Timestamp(1),
        unique: 1,
    };
    let age = id.timestamp;
    let held = Abort::Held {
        by: Holder { id, age },
    };
    let elsewhere = Abort::Elsewhere {
        leader: Some(NodeId(1)),
    };
    let done = Ok(vec![OwnedReply::Int(7)]);
    let unknown = Abort::Unknown {
        what: "the leadership was lost".into(),
    };
    let outcomes = vec![Err(held), done, Err(elsewhere.clone()), Err(unknown)];
    cluster.fault(1, Fault::Say(Answer::Each(outcomes)));
    let keys: [&[u8]; 4] = [b"k", b"l", b"m", b"n"];
    let outcomes = client.execute_each(&keys.map(add));
    assert_eq!(outcomes[0].as_ref().unwrap(), &[OwnedReply::Int(1)]);
    assert_eq!(outcomes[1].as_ref().unwrap(), &[OwnedReply::Int(7)]);
    assert_eq!(outcomes[2].as_ref().unwrap(), &[OwnedReply::Int(1)]);
    assert!(outcomes[3].as_ref().unwrap_err().is_unknown());
    // An answer that refuses the whole message is handled alike.
    cluster.fault(1, Fault::Say(Answer::Aborted(elsewhere)));
    let outcomes = client.execute_each(&keys.map(add));
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(value(&cluster, b"k").as_deref(), Some("2"));
    assert_eq!(value(&cluster, b"n").as_deref(), Some("1"));
}
