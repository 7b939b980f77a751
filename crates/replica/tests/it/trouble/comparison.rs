//! Members compare their states, and a member that differs is named.

use std::path::Path;
use std::sync::Arc;

use disk::{Disk, RealDisk};
use kumiki_replica::snapshot::{SnapshotReader, SnapshotRecord, SnapshotWriter, newest};

use crate::trouble::group::Group;
use testkit::eventually_some;

/// Returns the leader's verdict after one more comparison.
fn verdict(group: &Group) -> Option<String> {
    let leader = group.leader();
    let before = group.member(leader).status().compared;
    eventually_some("one more comparison", || {
        let status = group.member(leader).status();
        (status.compared > before).then_some(status.difference)
    })
}

/// Alters a value in the newest snapshot of a member that does not run. Its checksums are right.
fn alter(dir: &Path) {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let file = newest(&disk, dir).unwrap().expect("there is a snapshot");
    let elsewhere = tempfile::tempdir().unwrap();
    let mut reader = SnapshotReader::open(&disk, &file.path).unwrap();
    let mut writer = SnapshotWriter::create(&disk, elsewhere.path(), reader.head()).unwrap();
    let mut altered = false;
    while let Some(record) = reader.next().unwrap() {
        let mut value = record.value.to_vec();
        if !altered && value.len() == 1000 {
            value[500] ^= 1;
            altered = true;
        }
        let value = &value;
        writer.put(&SnapshotRecord { value, ..record }).unwrap();
    }
    assert!(altered);
    let written = writer.finish(&reader.sessions().unwrap()).unwrap();
    std::fs::copy(written.path, file.path).unwrap();
}

#[test]
fn a_member_whose_state_differs_is_named() {
    let mut group = Group::start(3);
    group.fill(0..300);
    assert_eq!(verdict(&group), None);
    let follower = (group.leader() + 1) % 3;
    group.member(follower).snapshot();
    eventually_some("a snapshot", || {
        (group.member(follower).status().snapshot > 0).then_some(())
    });
    group.stop(follower);
    alter(&group.data(follower));
    group.restart(follower).unwrap();
    let number = follower + 1;
    let found = eventually_some("a difference", || verdict(&group));
    assert!(
        found.contains(&format!("the state of node {number} differs from")),
        "{found}"
    );
    let note = group.member(group.leader()).status().note;
    assert_eq!(note.as_ref(), Some(&found));
    // Writes of other keys do not repair it.
    group.fill(300..310);
    assert!(verdict(&group).is_some());
    // A key that is written anew is equal again everywhere.
    group.fill(0..300);
    eventually_some("no difference any more", || {
        verdict(&group).is_none().then_some(())
    });
}
