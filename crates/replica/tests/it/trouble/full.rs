//! Members whose disk is full wait until there is space again.

use std::ops::Range;
use std::time::Instant;

use base::Op;
use base::partition::OwnedReply;
use kumiki_replica::Role;

use crate::trouble::group::Group;
use testkit::eventually_some;

/// Writes keys, each once, until `enough` returns `true`. Returns the keys that were acknowledged.
fn acknowledged(
    group: &Group,
    keys: Range<u32>,
    mut enough: impl FnMut(&Group) -> bool,
) -> Vec<u32> {
    let mut acknowledged = Vec::new();
    for key in keys {
        if group
            .once(&[Op::put(&key.to_be_bytes(), &[7; 1000])])
            .is_some()
        {
            acknowledged.push(key);
        } else {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if enough(group) {
            return acknowledged;
        }
    }
    panic!("that was not enough");
}

#[track_caller]
fn all_are_there(group: &Group, keys: &[u32]) {
    for key in keys {
        let found = group.execute(&[Op::Get {
            key: &key.to_be_bytes(),
        }]);
        assert_ne!(found[0], OwnedReply::Nil, "{key} was acknowledged");
    }
}

#[test]
fn a_leader_steps_down_and_follows_when_there_is_room() {
    let group = Group::start(3);
    group.fill(0..20);
    let first = group.leader();
    group.disks[first].fill(true);
    let mut written = acknowledged(&group, 20..5000, |group| {
        let (_, member) = group.alive().find(|(at, _)| *at == first).unwrap();
        !member.is_leader()
    });
    let second = eventually_some("another leads", || {
        let mut all = group.alive();
        all.find(|(_, member)| member.is_leader())
            .map(|(at, _)| at)
            .filter(|at| *at != first)
    });
    let full = group.member(first);
    eventually_some("it says so", || {
        let status = full.status();
        let note = status.note.unwrap_or_default();
        let says = note.contains("make room") && note.contains("goes on as soon as");
        let says = says
            && status
                .log_trouble
                .is_some_and(|trouble| note.contains(&trouble));
        (says && status.role != Role::Leader).then_some(())
    });
    assert_eq!(full.failed(), None, "it has not given up");
    let mut count = 0;
    written.extend(acknowledged(&group, 5000..6000, |_| {
        count += 1;
        count == 100
    }));
    let has = full.status().last;
    assert!(has < group.member(second).status().last, "it falls behind");
    group.disks[first].fill(false);
    group.agree();
    eventually_some("it follows, and says no more", || {
        let status = full.status();
        let is_well = status.note.is_none() && status.log_trouble.is_none();
        (status.role == Role::Follower && is_well).then_some(())
    });
    all_are_there(&group, &(0..20).collect::<Vec<u32>>());
    all_are_there(&group, &written);
}

#[test]
fn a_member_that_is_started_without_room_waits_for_some() {
    let mut group = Group::start(3);
    group.fill(0..20);
    let follower = (group.leader() + 1) % 3;
    group.stop(follower);
    group.disks[follower].fill(true);
    // It wants to set more space aside than its log has.
    group.segment = 64 << 10;
    group.restart(follower).unwrap();
    group.fill(20..100);
    let waiting = group.member(follower);
    eventually_some("it says so", || {
        let note = waiting.status().note.unwrap_or_default();
        note.contains("make room").then_some(())
    });
    assert_eq!(waiting.failed(), None);
    group.disks[follower].fill(false);
    group.agree();
    assert_eq!(waiting.status().role, Role::Follower);
    assert_eq!(waiting.engine().stats().keys, 100);
}

/// A snapshot that is sent again and again would keep the network and both disks busy.
#[test]
fn a_snapshot_that_does_not_fit_is_offered_again_after_growing_pauses() {
    let mut group = Group::start(3);
    group.fill(0..20);
    let follower = (group.leader() + 1) % 3;
    group.stop(follower);
    // There are so many entries that the others have cut their logs.
    group.fill(20..600);
    group.disks[follower].refuse_received(true);
    let begun = Instant::now();
    group.restart(follower).unwrap();
    let waiting = group.member(follower);
    eventually_some("it says so", || {
        let note = waiting.status().note.unwrap_or_default();
        note.contains("cannot be received").then_some(())
    });
    eventually_some("it was offered several times", || {
        (group.disks[follower].refused().0 >= 5).then_some(())
    });
    let (refused, written) = group.disks[follower].refused();
    let first = group.member_options(follower).election / 10;
    // Pauses double: for n offers there are 2^(n - 1) - 1 times the first pause between them.
    let most = (begun.elapsed().as_secs_f64() / first.as_secs_f64() + 1.0).log2() + 1.0;
    assert!(refused as f64 <= most.ceil(), "{refused} of {most}");
    assert_eq!(written, 0, "no piece was taken");
    assert_eq!(waiting.failed(), None);
    group.disks[follower].refuse_received(false);
    group.agree();
    eventually_some("it says no more", || {
        waiting.status().note.is_none().then_some(())
    });
}
