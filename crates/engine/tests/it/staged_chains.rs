//! Transactions that are staged one after another on the same keys, before their entries are applied.

use base::nested::NestedItem;
use base::partition::OwnedReply;
use base::transaction::{ExpireWhen, Expiry, ScanContents};
use base::{Abort, Op, Tid, Version};
use values::{hash_deadlines, hashes, lists};

use crate::support::replica::{Entry, Replica, stager};
use crate::support::{Logged, call, holder, holder_of, prepared, put_until};

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
        leader
            .log
            .passes
            .store(true, std::sync::atomic::Ordering::SeqCst);
        Members {
            leader,
            follower: Replica::new(),
        }
    }

    /// Stages operations and submits their entry with the ticket `number`.
    fn submit(&self, number: u64, ops: &[Op<'_>]) -> (Vec<OwnedReply>, Entry) {
        let staged = self.leader.stage(number, ops).unwrap();
        let entry = self.leader.entry();
        self.leader.engine.pass_holds(stager(number).id, number);
        (staged.value, entry)
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
    let (mut waiting, mut next) = (std::collections::VecDeque::new(), 1);
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
fn a_version_expires_between_two_that_are_staged() {
    let members = Members::new();
    members.leader.engine.set_time_ms(1_000);
    members.run(1, &[put_until(b"n", b"5", 2_000)]);
    let second = members.submit(2, &[ADD]);
    let third = members.submit(3, &[ADD]);
    members.leader.engine.set_time_ms(3_000);
    assert_eq!(members.leader.get(b"n"), None, "it has expired");
    let fourth = members.submit(4, &[ADD]);
    let sums = [&second, &third, &fourth].map(|(replies, _)| replies[0].clone());
    assert_eq!(sums, [6, 7, 1].map(OwnedReply::Int));
    // The log says that the time has passed before it has what was executed earlier.
    members.tick(3_000);
    members.apply(2, &second.1);
    members.check_equal();
    members.follower.tidy();
    members.apply(3, &third.1);
    members.check_equal();
    members.apply(4, &fourth.1);
    members.check_equal();
    assert_eq!(members.follower.get(b"n"), Some(b"1".to_vec()));
    // A deadline that is removed in time keeps the key for those that come later.
    let keep = Op::Persist { key: b"e" };
    members.run(5, &[put_until(b"e", b"5", 4_000)]);
    let sixth = members.submit(6, &[keep]);
    members.leader.engine.set_time_ms(5_000);
    assert_eq!(members.leader.get(b"e"), Some(b"5".to_vec()));
    members.tick(5_000);
    members.apply(6, &sixth.1);
    members.check_equal();
    assert_eq!(members.leader.get(b"e"), Some(b"5".to_vec()));
}

#[test]
fn a_version_is_known_once_it_is_applied() {
    let members = Members::new();
    let leader = &members.leader;
    members.run(1, &[Op::put(b"n", b"1")]);
    let version = leader.version(b"n");
    let check = |version| Op::Check { key: b"n", version };
    let second = members.submit(2, &[ADD]);
    let watched = leader.execute(&[Op::Watch { key: b"n" }]);
    assert_eq!(holder_of(watched), stager(2));
    let checked = leader.stage(3, &[check(version), Op::put(b"m", b"")]);
    assert_eq!(holder_of(checked), stager(2), "an old version, too");
    // Those that want to be staged give way until it is applied.
    assert_eq!(holder_of(leader.stage(4, &[ADD])), stager(2));
    members.apply(2, &second.1);
    let now = leader.version(b"n");
    assert_eq!(now, Version::present(Tid::new(leader.engine.applied(), 0)));
    let late = leader.stage(3, &[check(version), Op::put(b"m", b"")]);
    assert_eq!(late, Err(Abort::Precondition { op: 0 }));
    members.run(5, &[check(now), ADD]);
    members.run(6, &[ADD]);
    members.check_equal();
}

#[test]
fn a_prepared_part_waits_for_the_applied_version_and_gets_in() {
    let members = Members::new();
    let leader = &members.leader;
    members.run(1, &[Op::put(b"n", b"1")]);
    let (second, third) = (members.submit(2, &[ADD]), members.submit(3, &[ADD]));
    for ops in [&[ADD][..], &[Op::Get { key: b"n" }, Op::put(b"m", b"")]] {
        assert_eq!(holder_of(leader.stage_prepare(1, ops)), stager(2));
    }
    assert_eq!(
        holder_of(leader.stage(4, &[ADD])),
        stager(2),
        "it gives way"
    );
    members.apply(2, &second.1);
    assert_eq!(holder_of(leader.stage(4, &[ADD])), stager(3), "still");
    members.apply(3, &third.1);
    assert_eq!(
        leader.stage_prepare(1, &[ADD]).unwrap(),
        [OwnedReply::Int(4)]
    );
    let entry = leader.entry();
    leader.apply(&entry);
    members.follower.apply(&entry);
    assert_eq!(leader.state(1), prepared());
    assert_eq!(holder_of(leader.stage(4, &[ADD])), holder(1));
    assert_eq!(holder_of(leader.read(b"n")), holder(1));
    leader.with(|w| w.stage_commit(holder(1).id)).unwrap();
    let entry = leader.entry();
    leader.apply(&entry);
    members.follower.apply(&entry);
    leader.engine.release(holder(1).id);
    assert_eq!(members.run(4, &[ADD]), [OwnedReply::Int(5)]);
    members.check_equal();
}

#[test]
fn read_atomic_keys_and_flushes_are_held_until_they_are_applied() {
    let members = Members::new();
    let leader = &members.leader;
    for (number, op) in [(1, Op::put(b"ra:k", b"1")), (2, Op::Flush)] {
        let staged = members.submit(number, &[op.clone(), ADD]);
        assert_eq!(holder_of(leader.stage(9, &[op])), stager(number));
        assert_eq!(holder_of(leader.stage(9, &[ADD])), stager(number));
        members.apply(number, &staged.1);
        members.check_equal();
    }
    // A flush waits for all that is staged.
    let third = members.submit(3, &[ADD]);
    assert_eq!(holder_of(leader.stage(4, &[Op::Flush])), stager(3));
    members.apply(3, &third.1);
    members.run(4, &[Op::Flush]);
    members.check_equal();
    assert_eq!(leader.get(b"n"), None);
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
    // The second one holds the range that it has scanned until it is applied.
    assert_eq!(
        holder_of(members.leader.stage(3, &[Op::put(b"s2", b"")])),
        stager(2)
    );
    let missing = Op::Require {
        key: b"s1",
        present: false,
    };
    let refused = members.leader.stage(3, &[missing, ADD]);
    assert_eq!(refused, Err(Abort::Precondition { op: 0 }));
    assert_eq!(members.leader.with(|worker| worker.staged_ticket()), 1);
    members.apply(1, &first.1);
    members.apply(2, &second.1);
    members.run(3, &[Op::put(b"s2", b"")]);
    members.check_equal();
}

#[test]
fn a_chain_has_a_bounded_length() {
    let members = Members::new();
    let mut staged = Vec::new();
    let holder = loop {
        let number = staged.len() as u64 + 1;
        match members.leader.stage(number, &[ADD]) {
            Ok(_) => {
                let entry = members.leader.entry();
                members.leader.engine.pass_holds(stager(number).id, number);
                staged.push((number, entry));
            }
            Err(Abort::Held { by }) => break by,
            Err(other) => panic!("{other}"),
        }
        assert!(staged.len() < 5_000);
    };
    // The last one keeps its hold.
    assert_eq!(holder, stager(staged.len() as u64));
    staged
        .iter()
        .for_each(|(number, entry)| members.apply(*number, entry));
    members.check_equal();
    let last = members.run(5_000, &[ADD]);
    assert_eq!(last, [OwnedReply::Int(staged.len() as i64 + 1)]);
}

/// The time passes a deadline only if an entry with it is applied.
#[test]
fn a_new_deadline_is_applied_before_others_see_it() {
    let members = Members::new();
    let leader = &members.leader;
    leader.engine.set_time_ms(1_000);
    fill(&members, 1, 500);
    let field = || {
        let args = [b"PXAT", &b"9000"[..], b"FIELDS", b"1", b"field", b"value"];
        call(b"hash", hash_deadlines::HSETEX, &args)
    };
    let expire = |key| Op::Expire {
        key,
        expiry: Expiry::AtMs(9_000),
        when: ExpireWhen::Always,
    };
    let length = || call(b"list", lists::LLEN, &[]);
    for (number, op, read) in [
        (2, put_until(b"n", b"1", 9_000), Op::Get { key: b"n" }),
        (3, expire(b"list"), length()),
        (4, push(b"list", b"x"), length()),
        (5, field(), call(b"hash", hashes::HLEN, &[])),
    ] {
        let staged = members.submit(number, &[op]);
        assert_eq!(holder_of(leader.execute(&[read])), stager(number));
        members.apply(number, &staged.1);
        members.check_equal();
    }
    let sixth = members.submit(6, &[ADD]);
    assert_eq!(members.ticket(b"n"), 6);
    members.apply(6, &sixth.1);
    members.check_equal();
    let deadline = members.follower.execute(&[Op::ExpiryOf { key: b"n" }]);
    assert_eq!(deadline.unwrap(), [OwnedReply::Deadline(Some(9_000))]);
}
