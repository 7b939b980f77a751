//! A node that is being added when the leader is lost.

use base::NodeId;
use kumiki_replica::{MembershipChange, Role};

use crate::support::members::PATIENCE;
use crate::trouble::disk::Snapshots;
use crate::trouble::group::Group;
use testkit::eventually_some;

/// Returns three members whose leader has died while it added the third one again, whose disk had
/// been lost. Also returns the current leader, and the node whose place has no vote.
fn orphan() -> (Group, usize, usize) {
    let mut group = Group::start(3);
    group.fill(0..50);
    let first = group.leader();
    let lost = (first + 1) % 3;
    group.stop(lost);
    std::fs::remove_dir_all(group.data(lost)).unwrap();
    group.restart(lost).unwrap();
    let node = group.nodes[lost];
    // The command gets as far as the learner's place, and no further.
    group.disks[first].snapshots(Snapshots::Fail);
    let leader = group.member(first);
    let pending = eventually_some("the leader has heard of it", || {
        let pending = leader.begin_change(MembershipChange::Add(node));
        eventually_some("it is refused or begins", || {
            let begun = learners(&group, first) == [node];
            (begun || pending.outcome().is_some()).then_some(())
        });
        pending.outcome().is_none().then_some(pending)
    });
    drop(leader);
    group.stop(first);
    assert!(pending.outcome().is_some_and(|outcome| outcome.is_err()));
    group.disks[first].snapshots(Snapshots::Work);
    group.restart(first).unwrap();
    let leader = group.leader();
    // It serves for a moment before its status says so.
    eventually_some("the place is still there", || {
        (learners(&group, leader) == [node]).then_some(())
    });
    assert_eq!(group.member(lost).status().role, Role::Blank);
    (group, leader, lost)
}

/// Returns the nodes that have a place without a vote.
fn learners(group: &Group, leader: usize) -> Vec<NodeId> {
    let members = group.member(leader).status().members;
    let learners = members.iter().filter(|member| !member.voter);
    learners.map(|member| member.node).collect()
}

fn change(group: &Group, leader: usize, change: MembershipChange) {
    eventually_some("the leader takes it", || {
        let outcome = group.member(leader).change(change, PATIENCE);
        outcome.ok()
    });
}

#[test]
fn the_same_command_goes_on_with_it() {
    let (group, leader, lost) = orphan();
    change(&group, leader, MembershipChange::Add(group.nodes[lost]));
    let status = group.member(leader).status();
    assert_eq!(learners(&group, leader), []);
    let ids = status.members.iter().map(|member| member.raft_id >> 16);
    let mut ids: Vec<u64> = ids.collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 1, 2], "the same place, and the old one is gone");
    group.agree();
}

#[test]
fn it_can_be_removed_and_added_again() {
    let (group, leader, lost) = orphan();
    let node = group.nodes[lost];
    change(&group, leader, MembershipChange::Remove(node));
    let members = group.member(leader).status().members;
    assert!(
        members.iter().all(|member| member.node != node),
        "{members:?}"
    );
    change(&group, leader, MembershipChange::Add(node));
    assert_eq!(learners(&group, leader), []);
    group.agree();
}
