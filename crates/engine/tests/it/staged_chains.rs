//! Transactions that are staged one after another on the same keys, before their entries are applied.

mod random_commands;
mod waiting;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use base::nested::NestedItem;
use base::partition::OwnedReply;
use base::transaction::ScanContents;
use base::{Abort, Op, Tid};
use values::lists;

use crate::support::replica::{Entry, Replica, stager};
use crate::support::{Logged, call};

const ADD: Op<'static> = Op::Add {
    key: b"n",
    delta: 1,
};

/// A leader whose transactions pass their holds on, and a follower.
struct Members {
    leader: Replica,
    follower: Replica,
}

impl Members {
    fn new() -> Members {
        let leader = Replica::new();
        leader.log.passes.store(true, Ordering::SeqCst);
        Members {
            leader,
            follower: Replica::new(),
        }
    }

    /// Stages operations and submits their entry with the ticket `number`.
    fn submit(&self, number: u64, ops: &[Op<'_>]) -> (Vec<OwnedReply>, Entry) {
        self.submit_any(number, ops).expect("it writes")
    }

    /// As [`Members::submit`]; `None` if nothing was written.
    fn submit_any(&self, number: u64, ops: &[Op<'_>]) -> Option<(Vec<OwnedReply>, Entry)> {
        let staged = self.leader.stage(number, ops).expect("nothing excludes it");
        (staged.writes > 0).then(|| {
            let entry = self.leader.entry();
            self.leader.engine.pass_holds(stager(number).id, number);
            (staged.value, entry)
        })
    }

    /// Applies the entry of the transaction `number` everywhere.
    fn apply(&self, number: u64, entry: &Entry) {
        let engine = &self.leader.engine;
        let (index, id) = (engine.applied().next(), stager(number).id);
        let mut applier = self.leader.applier.borrow_mut();
        if !applier.apply_staged(index, entry.stamp_ms, id) {
            applier.apply(index, entry.stamp_ms, &entry.changes());
        }
        drop(applier);
        engine.release(id);
        self.follower.apply(entry);
    }

    fn run(&self, number: u64, ops: &[Op<'_>]) -> Vec<OwnedReply> {
        let (replies, entry) = self.submit(number, ops);
        self.apply(number, &entry);
        replies
    }

    fn tick(&self, stamp_ms: u64) {
        self.leader.tick(stamp_ms);
        self.follower.tick(stamp_ms);
    }

    fn check_equal(&self) {
        assert_eq!(self.leader.hash(), self.follower.hash());
    }

    /// Returns the ticket for which a read of a key waits.
    fn ticket(&self, key: &[u8]) -> u64 {
        self.leader.read(key).unwrap();
        self.leader.with(|worker| worker.staged_ticket())
    }
}

fn list(reply: &OwnedReply) -> Vec<Vec<u8>> {
    let OwnedReply::Nested(nested) = reply else {
        panic!("{reply:?}");
    };
    let strings = nested.items().filter_map(|item| match item {
        NestedItem::Bytes(bytes) => Some(bytes.to_vec()),
        _ => None,
    });
    strings.collect()
}

fn push<'a>(key: &'a [u8], element: &'a [u8]) -> Op<'a> {
    call(key, lists::RPUSH, &[element])
}

/// Returns an operation that pushes so many elements, which make a list large.
fn fill(members: &Members, number: u64, count: usize) {
    let elements: Vec<Vec<u8>> = (0..count).map(|n| format!("first {n}").into()).collect();
    let args: Vec<&[u8]> = elements.iter().map(|element| &element[..]).collect();
    members.run(number, &[call(b"list", lists::RPUSH, &args)]);
}

#[test]
fn a_transaction_uses_what_was_staged_before_it() {
    let members = Members::new();
    let staged: Vec<_> = (1..4).map(|n| members.submit(n, &[ADD])).collect();
    let replies: Vec<_> = staged
        .iter()
        .map(|(replies, _)| replies[0].clone())
        .collect();
    assert_eq!(replies, [1, 2, 3].map(OwnedReply::Int));
    assert_eq!(members.leader.get(b"n"), Some(b"3".to_vec()));
    assert_eq!(members.ticket(b"n"), 3, "a reader waits for the last one");
    assert_eq!(members.ticket(b"other"), 0);
    assert_eq!(members.leader.engine.staged_counts(), (2, 0));
    for (at, (_, entry)) in (1..).zip(&staged) {
        members.apply(at, entry);
        members.check_equal();
        let ticket = if at < 3 { 3 } else { 0 };
        assert_eq!(members.ticket(b"n"), ticket);
    }
    assert_eq!(members.follower.get(b"n"), Some(b"3".to_vec()));
    members.run(4, &[ADD]);
    assert_eq!(members.follower.get(b"n"), Some(b"4".to_vec()));
}

#[test]
fn entries_are_applied_while_others_are_staged_after_them() {
    let members = Members::new();
    let (mut waiting, mut next) = (VecDeque::new(), 1);
    for round in 0..200 {
        if round % 3 < 2 {
            let ops = [ADD, push(b"list", b"x"), Op::put(b"p", b"v")];
            let (replies, entry) = members.submit(next, &ops);
            assert_eq!(replies[..2], [next as i64; 2].map(OwnedReply::Int));
            waiting.push_back((next, entry));
            next += 1;
        } else if let Some((number, entry)) = waiting.pop_front() {
            members.apply(number, &entry);
        }
    }
    waiting
        .iter()
        .for_each(|(number, entry)| members.apply(*number, entry));
    members.check_equal();
    let count = members.follower.execute(&[call(b"list", lists::LLEN, &[])]);
    assert_eq!(count.unwrap(), [OwnedReply::Int(next as i64 - 1)]);
}

#[test]
fn elements_of_a_large_list_are_changed_one_entry_after_another() {
    let members = Members::new();
    fill(&members, 1, 1_000);
    let mut staged = vec![members.submit(2, &[push(b"list", b"a")])];
    let pop = call(b"list", lists::LPOP, &[]);
    staged.push(members.submit(3, &[push(b"list", b"b"), pop]));
    staged.push(members.submit(4, &[push(b"list", b"c")]));
    let bases: Vec<bool> = staged
        .iter()
        .map(|(_, entry)| match &entry.changes[..] {
            [Logged::Elements { base, .. }] => *base == Tid::ZERO,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        bases,
        [false, true, true],
        "the index of a staged entry is not known"
    );
    assert_eq!(staged[2].0, [OwnedReply::Int(1_002)]);
    let end = || call(b"list", lists::LRANGE, &[b"-3", b"-1"]);
    let expected = [b"a", b"b", b"c"].map(|element| element.to_vec());
    let read = members.leader.execute(&[end()]).unwrap();
    assert_eq!(list(&read[0]), expected);
    for (number, (_, entry)) in (2..).zip(&staged) {
        members.apply(number, entry);
        members.check_equal();
    }
    for member in [&members.leader, &members.follower] {
        let read = member.execute(&[end()]).unwrap();
        assert_eq!(list(&read[0]), expected);
        member.tidy();
    }
    // The next one names the version that it changes again.
    let (_, entry) = members.submit(5, &[push(b"list", b"d")]);
    assert!(matches!(&entry.changes[..], [Logged::Elements { base, .. }] if *base != Tid::ZERO));
    members.apply(5, &entry);
    members.check_equal();
}

#[test]
fn a_list_becomes_large_is_deleted_and_made_again_before_anything_is_applied() {
    let members = Members::new();
    let elements: Vec<Vec<u8>> = (0..200).map(|n| vec![b'e'; 40 + n % 7]).collect();
    let args: Vec<&[u8]> = elements.iter().map(|element| &element[..]).collect();
    let many = call(b"list", lists::RPUSH, &args);
    let steps = [
        many.clone(),
        push(b"list", b"one more"),
        Op::Delete { key: b"list" },
        push(b"list", b"new"),
        many,
        push(b"list", b"last"),
    ];
    let staged: Vec<_> = (1..)
        .zip(&steps)
        .map(|(number, op)| (number, members.submit(number, std::slice::from_ref(op))))
        .collect();
    let replies: Vec<_> = staged
        .iter()
        .map(|(_, (replies, _))| replies[0].clone())
        .collect();
    assert_eq!(replies, [200, 201, 1, 1, 201, 202].map(OwnedReply::Int));
    for (number, (_, entry)) in &staged {
        members.apply(*number, entry);
        members.check_equal();
    }
}

#[test]
fn a_lost_leadership_drops_the_chain() {
    let members = Members::new();
    let leader = &members.leader;
    fill(&members, 1, 1_000);
    members.run(2, &[ADD]);
    let length = || leader.execute(&[call(b"list", lists::LLEN, &[])]).unwrap()[0].clone();
    let ops = |element| [ADD, push(b"list", element), Op::put(b"new", b"x")];
    leader.tidy();
    let before = leader.engine.stats();
    let mut number = 3;
    for round in 0..60 {
        let staged: Vec<_> = (0..5)
            .map(|_| {
                number += 1;
                (number, members.submit(number, &ops(b"lost")))
            })
            .collect();
        assert_eq!(length(), OwnedReply::Int(1_005));
        // The last one was executed, and is not submitted any more.
        leader.stage(number + 1, &ops(b"late")).unwrap();
        leader.engine.drop_holds();
        leader.engine.release(stager(number + 1).id);
        number += 1;
        assert_eq!(leader.engine.staged_counts().1, 15 * (round + 1));
        for (number, _) in &staged {
            leader.engine.release(stager(*number).id);
        }
        assert_eq!(length(), OwnedReply::Int(1_000));
        assert_eq!(leader.get(b"n"), Some(b"1".to_vec()));
        assert_eq!(leader.get(b"new"), None);
    }
    for _ in 0..200 {
        leader.tidy();
    }
    let after = leader.engine.stats();
    assert_eq!((after.keys, after.records), (before.keys, before.records));
    let more = after.memory_bytes.saturating_sub(before.memory_bytes);
    assert!(more < 100_000, "{more} bytes of dropped versions are left");
    // Another leader's entry, and a leadership of this member again.
    let other = Replica::new();
    let theirs = other.run(1, &[Op::put(b"new", b"theirs")]);
    leader.apply(&theirs);
    members.follower.apply(&theirs);
    let (replies, entry) = members.submit(number + 1, &ops(b"kept"));
    assert_eq!(replies[..2], [OwnedReply::Int(2), OwnedReply::Int(1_001)]);
    members.apply(number + 1, &entry);
    members.check_equal();
}

#[test]
fn entries_before_the_end_of_a_leadership_count_and_those_behind_do_not() {
    let members = Members::new();
    fill(&members, 1, 500);
    let staged: Vec<_> = (2..8)
        .map(|number| (number, members.submit(number, &[push(b"list", b"x"), ADD])))
        .collect();
    for (number, (_, entry)) in &staged[..2] {
        members.apply(*number, entry);
    }
    members.leader.engine.drop_holds();
    // The next leader has two more of them in its log.
    for (_, (_, entry)) in &staged[2..4] {
        members.leader.apply(entry);
        members.follower.apply(entry);
    }
    members.check_equal();
    assert_eq!(members.leader.get(b"n"), Some(b"4".to_vec()));
    let (replies, entry) = members.submit(20, &[push(b"list", b"y"), ADD]);
    assert_eq!(replies, [OwnedReply::Int(505), OwnedReply::Int(5)]);
    members.apply(20, &entry);
    members.check_equal();
}

/// A member that does not lead applies entries in spite of chains, if one was left.
#[test]
fn an_entry_of_another_leader_ends_a_chain() {
    let members = Members::new();
    let staged: Vec<_> = (1..4).map(|n| members.submit(n, &[ADD])).collect();
    let other = Replica::new();
    members.leader.apply(&other.run(1, &[Op::put(b"n", b"7")]));
    assert_eq!(members.leader.get(b"n"), Some(b"7".to_vec()));
    assert_eq!(members.ticket(b"n"), 0);
    drop(staged);
    members.leader.engine.drop_holds();
    let (replies, _) = members.submit(9, &[ADD]);
    assert_eq!(replies, [OwnedReply::Int(8)]);
}

#[test]
fn what_is_not_submitted_has_no_followers() {
    let members = Members::new();
    let leader = &members.leader;
    let first = members.submit(1, &[ADD]);
    leader.stage(2, &[ADD, Op::put(b"other", b"x")]).unwrap();
    // Another transaction meets it only for a moment: it tries again, and gives up at last.
    assert!(matches!(
        leader.stage(3, &[ADD]),
        Err(Abort::Conflict { .. })
    ));
    assert!(matches!(
        leader.read(b"other"),
        Ok(None) | Err(Abort::Conflict { .. })
    ));
    leader.engine.release(stager(2).id);
    let third = members.submit(3, &[ADD]);
    assert_eq!(third.0, [OwnedReply::Int(2)]);
    members.apply(1, &first.1);
    members.apply(3, &third.1);
    members.check_equal();
    assert_eq!(leader.get(b"other"), None);
}

#[test]
fn scans_and_absences_see_what_is_staged() {
    let members = Members::new();
    let scan = |op| {
        let scan = Op::Scan {
            from: b"s",
            to: Some(b"t"),
            limit: 10,
            contents: ScanContents::Keys,
        };
        [scan, op]
    };
    let first = members.submit(1, &[Op::put(b"s1", b"")]);
    let count = |reply: &OwnedReply| match reply {
        OwnedReply::Pairs(pairs) => pairs.len(),
        other => panic!("{other:?}"),
    };
    let second = members.submit(2, &scan(Op::put(b"w", b"")));
    assert_eq!(count(&second.0[0]), 1);
    // What the second one has only read and scanned is free once it is submitted: others come behind it.
    let third = members.submit(3, &[Op::put(b"s2", b"")]);
    let missing = Op::Require {
        key: b"s1",
        present: false,
    };
    let refused = members.leader.stage(4, &[missing, ADD]);
    assert_eq!(refused, Err(Abort::Precondition { op: 0 }));
    assert_eq!(members.leader.with(|worker| worker.staged_ticket()), 1);
    members.apply(1, &first.1);
    members.apply(2, &second.1);
    members.apply(3, &third.1);
    members.check_equal();
}
