//! Transactions that cannot use staged versions, or whose versions others cannot use: they wait until entries are
//! applied.

use base::partition::OwnedReply;
use base::transaction::{ExpireWhen, Expiry};
use base::{Abort, Op, Tid, Version};
use values::{hash_deadlines, hashes, lists};

use super::{ADD, Members, fill, push};
use crate::support::replica::stager;
use crate::support::{call, holder, holder_of, prepared, put_until};

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
    members.apply(2, &second.1);
    members.apply(3, &third.1);
    members.check_equal();
    // The log says that the time has passed before it has what was executed later.
    members.tick(3_000);
    members.follower.tidy();
    members.apply(4, &fourth.1);
    members.check_equal();
    assert_eq!(members.follower.get(b"n"), Some(b"1".to_vec()));
    // A deadline that is removed in time keeps the key for those that come later.
    let keep = Op::Persist { key: b"e" };
    members.run(5, &[put_until(b"e", b"5", 4_000)]);
    let sixth = members.submit(6, &[keep]);
    members.leader.engine.set_time_ms(5_000);
    assert_eq!(members.leader.get(b"e"), Some(b"5".to_vec()));
    members.apply(6, &sixth.1);
    members.tick(5_000);
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
    // A flush comes behind what is submitted, and others wait for the flush.
    let third = members.submit(3, &[ADD]);
    let fourth = members.submit(4, &[Op::Flush]);
    assert_eq!(holder_of(leader.stage(5, &[ADD])), stager(4));
    members.apply(3, &third.1);
    members.apply(4, &fourth.1);
    members.check_equal();
    assert_eq!(leader.get(b"n"), None);
    assert_eq!(members.run(5, &[ADD]), [OwnedReply::Int(1)]);
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
        (4, field(), call(b"hash", hashes::HLEN, &[])),
    ] {
        let staged = members.submit(number, &[op]);
        assert_eq!(holder_of(leader.execute(&[read])), stager(number));
        members.apply(number, &staged.1);
        members.check_equal();
    }
    // A deadline that is applied passes from one version to the next.
    let staged = [5, 6].map(|n| members.submit(n, &[ADD, push(b"list", b"x")]));
    assert_eq!(members.ticket(b"n"), 6);
    assert_eq!(staged[1].0, [OwnedReply::Int(3), OwnedReply::Int(502)]);
    members.apply(5, &staged[0].1);
    members.apply(6, &staged[1].1);
    members.check_equal();
    for key in [&b"n"[..], b"list"] {
        let deadline = members.follower.execute(&[Op::ExpiryOf { key }]);
        assert_eq!(deadline.unwrap(), [OwnedReply::Deadline(Some(9_000))]);
    }
}
