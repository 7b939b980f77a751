//! Transactions whose operations come one list after the other.

use base::partition::OwnedReply;
use base::{Abort, Op};
use kumiki_engine::TransactionError;

use crate::support::{World, holder};

fn add(delta: i64) -> Op<'static> {
    Op::Add { key: b"n", delta }
}

#[test]
fn lists_see_those_before_them_and_others_see_the_commit() {
    let world = World::new();
    let mut w = world.worker();
    let mut open = w.open().unwrap();
    for sum in 1..=3 {
        let replies = open.execute(&[add(1), Op::Exists { key: b"m" }]).unwrap();
        let replies: Vec<OwnedReply> = replies.iter().map(OwnedReply::from).collect();
        assert_eq!(replies, [OwnedReply::Int(sum), OwnedReply::Int(0)]);
    }
    assert_eq!(world.get(b"n"), None);
    let observed = open.commit().unwrap();
    assert!(observed.epoch > base::Epoch::ZERO);
    assert_eq!(world.get(b"n"), Some(b"3".to_vec()));
    let mut open = w.open().unwrap();
    open.execute(&[add(1), Op::Flush]).unwrap();
    let refused = open.execute(&[Op::Get { key: b"ra:key" }]);
    assert!(matches!(
        refused,
        Err(TransactionError::Abort(Abort::Unsupported { .. }))
    ));
    drop(open);
    assert_eq!(world.get(b"n"), Some(b"3".to_vec()), "it was dropped");
}

#[test]
fn a_precondition_that_is_not_met_ends_its_list_alone() {
    let world = World::new();
    let mut w = world.worker();
    let mut open = w.open().unwrap();
    open.execute(&[add(1)]).unwrap();
    let absent = Op::Require {
        key: b"n",
        present: false,
    };
    let refused = open.execute(&[absent, add(5)]).map(|_| ());
    let unmet = TransactionError::Abort(Abort::Precondition { op: 0 });
    assert_eq!(refused, Err(unmet));
    let replies = open.execute(&[add(1)]).unwrap();
    assert_eq!(OwnedReply::from(&replies[0]), OwnedReply::Int(2));
    open.commit().unwrap();
    assert_eq!(world.get(b"n"), Some(b"2".to_vec()));
}

#[test]
fn what_was_read_must_be_so_at_the_commit() {
    let world = World::new();
    let mut w = world.worker();
    let changes: [&[Op<'_>]; 2] = [&[Op::put(b"read", b"x")], &[Op::Delete { key: b"read" }]];
    for change in changes {
        let mut open = w.open().unwrap();
        open.execute(&[Op::Get { key: b"read" }]).unwrap();
        world.run(change);
        open.execute(&[add(1)]).unwrap();
        assert_eq!(open.commit().map(|_| ()), Err(TransactionError::Conflict));
        assert_eq!(world.get(b"n"), None);
    }
    let mut other = world.worker();
    world
        .prepare(&mut other, 1, &[Op::put(b"read", b"y")])
        .unwrap();
    let mut open = w.open().unwrap();
    open.execute(&[Op::Get { key: b"read" }, add(1)]).unwrap();
    let by = holder(1);
    let held = TransactionError::Abort(Abort::Held { by });
    assert_eq!(open.commit().map(|_| ()), Err(held));
    other.abort(by.id).unwrap();
    assert_eq!(world.get(b"n"), None);
}
