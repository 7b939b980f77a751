//! A snapshot that cannot be made stops neither the member nor later snapshots.

use crate::trouble::disk::Snapshots;
use crate::trouble::group::Group;
use testkit::eventually_some;

/// Makes snapshots fail on a member that makes some, and then work again.
#[track_caller]
fn the_next_one_works(trouble: Snapshots) {
    let group = Group::start(1);
    let member = group.member(0);
    group.disks[0].snapshots(trouble);
    group.fill(0..200);
    eventually_some("one has not worked", || {
        (group.disks[0].failures() > 0).then_some(())
    });
    assert_eq!(member.status().snapshot, 0);
    group.fill(200..400);
    assert_eq!(member.failed(), None, "it goes on");
    group.disks[0].snapshots(Snapshots::Work);
    group.fill(400..600);
    eventually_some("a snapshot", || {
        (member.status().snapshot > 0).then_some(())
    });
    let before = member.engine().stats().keys;
    let mut group = group;
    group.stop(0);
    group.restart(0).unwrap();
    group.leader();
    assert_eq!((before, group.member(0).engine().stats().keys), (600, 600));
}

#[test]
fn one_that_fails_is_made_later() {
    the_next_one_works(Snapshots::Fail);
}

#[test]
fn one_whose_thread_panics_is_made_later() {
    the_next_one_works(Snapshots::Panic);
}
