//! Transactions whose operations come one list after the other.

use base::partition::OwnedReply;
use base::{Abort, Op};
use kumiki_engine::TransactionError;

use crate::support::{World, assert_unsupported, holder};

fn add(delta: i64) -> Op<'static> {
    Op::Add { key: b"n", delta }
}

#[test]
fn lists_see_those_before_them_and_others_see_the_commit() {
    let world = World::new();
    let mut w = world.worker();
    let ((), observed) = w
        .transact(|txn| {
            for sum in 1..=3 {
                let replies = txn.execute(&[add(1), Op::Exists { key: b"m" }])?;
                let replies: Vec<OwnedReply> = replies.iter().map(OwnedReply::from).collect();
                assert_eq!(replies, [OwnedReply::Int(sum), OwnedReply::Int(0)]);
            }
            assert_eq!(world.get(b"n"), None);
            Ok(())
        })
        .unwrap();
    assert!(observed.epoch > base::Epoch::ZERO);
    assert_eq!(world.get(b"n"), Some(b"3".to_vec()));
    let refused = w.transact(|txn| {
        txn.execute(&[add(1), Op::Flush])?;
        txn.execute(&[Op::Get { key: b"ra:key" }]).map(|_| ())
    });
    assert_unsupported(refused, &["'ra:key'", "several steps", "one list"]);
    assert_eq!(world.get(b"n"), Some(b"3".to_vec()), "it was given up");
    let refused = w.transact(|txn| txn.copy(b"n", b"ra:copy").map(drop));
    assert_unsupported(refused, &["'ra:copy'"]);
}

#[test]
fn a_precondition_that_is_not_met_ends_its_list_alone() {
    let world = World::new();
    let absent = Op::Require {
        key: b"n",
        present: false,
    };
    let done = world.worker().transact(|txn| {
        txn.execute(&[add(1)])?;
        let refused = txn.execute(&[absent.clone(), add(5)]).map(|_| ());
        let unmet = TransactionError::Abort(Abort::Precondition { op: 0 });
        assert_eq!(refused, Err(unmet));
        let replies = txn.execute(&[add(1)])?;
        assert_eq!(OwnedReply::from(&replies[0]), OwnedReply::Int(2));
        Ok(())
    });
    done.unwrap();
    assert_eq!(world.get(b"n"), Some(b"2".to_vec()));
}

#[test]
fn what_was_read_must_be_so_at_the_commit() {
    let world = World::new();
    let mut w = world.worker();
    let changes: [&[Op<'_>]; 2] = [&[Op::put(b"read", b"x")], &[Op::Delete { key: b"read" }]];
    for (at, change) in changes.into_iter().enumerate() {
        let mut runs = 0;
        let done = w.transact(|txn| {
            txn.execute(&[Op::Get { key: b"read" }])?;
            runs += 1;
            if runs == 1 {
                world.run(change);
            }
            txn.execute(&[add(1)]).map(|_| ())
        });
        done.unwrap();
        let sum = (at + 1).to_string().into_bytes();
        assert_eq!((runs, world.get(b"n")), (2, Some(sum)));
    }
    let mut other = world.worker();
    world
        .prepare(&mut other, 1, &[Op::put(b"read", b"y")])
        .unwrap();
    let refused = w.transact(|txn| txn.execute(&[Op::Get { key: b"read" }, add(1)]).map(|_| ()));
    let by = holder(1);
    assert_eq!(refused.map(|_| ()), Err(Abort::Held { by }));
    other.abort(by.id).unwrap();
    assert_eq!(world.get(b"n"), Some(b"2".to_vec()));
}
