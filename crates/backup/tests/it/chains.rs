//! Full and incremental backups, and what is restored of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::clock::ManualClock;
use kumiki_backup::{CreationOptions, RestorationError, RestorePoint, restore, verify};
use store::Db;

use crate::support::{KEY, NOW_MS, Notes, Place, options, restored_contents};

type Contents = BTreeMap<String, String>;

/// Restores each backup, and compares what it has.
fn assert_restored(place: &Place, expected: &[(String, Contents)]) {
    for (number, (name, contents)) in expected.iter().enumerate() {
        let to = format!("restored{number}");
        let point = RestorePoint::Backup(name.clone());
        let restored = place.restore(&point, &to).unwrap();
        assert_eq!(restored.backup, *name);
        assert_eq!(&restored_contents(&place.path(&to)), contents, "{name}");
        // What was restored goes on as any database does.
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let db = Db::open(options(&place.path(&to), &clock)).unwrap();
        let commit = db.transact(|txn| txn.put(b"later", b"1")).unwrap();
        commit.wait_durable().unwrap();
        db.checkpoint().unwrap();
        db.close().unwrap();
        drop(db);
        assert_eq!(
            restored_contents(&place.path(&to)).len(),
            contents.len() + 1
        );
        std::fs::remove_dir_all(place.path(&to)).unwrap();
    }
}

fn verified(place: &Place) -> kumiki_backup::Verification {
    verify(&place.open().unwrap(), None, &mut |_, _| false).unwrap()
}

#[test]
fn each_backup_of_a_chain_is_restored_as_it_was() {
    for key in [None, Some(KEY)] {
        let mut place = Place::new();
        place.key = key;
        let mut node = place.node(0);
        let mut expected = Vec::new();
        // The first one is of a node without a checkpoint.
        for step in 0..4 {
            node.fill(&format!("step{step}-"), 20);
            if step == 1 {
                // The chain goes on from before it: the last segments are still there.
                node.put("x", "1");
            }
            let made = place.back_up(&mut node);
            assert_eq!(made.number, step, "{:?}", place.notes);
            expected.push((made.name(), node.contents()));
        }
        assert!(place.notes.is_empty(), "{:?}", place.notes);
        node.db.checkpoint().unwrap();
        node.db.checkpoint().unwrap();
        let made = place.back_up(&mut node);
        assert_eq!(made.number, 0, "its segments have gone");
        assert!(place.notes[0].contains("full one"), "{:?}", place.notes);
        expected.push((made.name(), node.contents()));
        node.fill("more", 3);
        let made = place.back_up(&mut node);
        assert_eq!(made.number, 1);
        expected.push((made.name(), node.contents()));
        let found = verified(&place);
        assert!(found.damages.is_empty() && found.backups == 6);
        assert_eq!(found.unused, 0);
        assert_restored(&place, &expected);
        let newest = place.restore(&RestorePoint::Newest, "newest").unwrap();
        assert_eq!(newest.backup, expected.last().unwrap().0);
    }
}

#[test]
fn a_chain_goes_on_over_restarts_and_other_numbers_of_logs() {
    let mut place = Place::new();
    let mut expected = Vec::new();
    for run in 0..4 {
        let mut node = place.node(0);
        node.fill(&format!("run{run}-"), 10);
        let made = place.back_up(&mut node);
        assert_eq!(made.number, run, "{:?}", place.notes);
        expected.push((made.name(), node.contents()));
        node.db.close().unwrap();
    }
    assert_restored(&place, &expected);
}

#[test]
fn backups_of_one_command_go_on_over_checkpoints() {
    let mut place = Place::new();
    let mut node = place.node(0);
    let db = node.db.clone();
    node.fill("before", 30);
    node.db.checkpoint().unwrap();
    let mut expected = vec![node.contents()];
    let options_of_creation = CreationOptions {
        piece: 1000,
        ..CreationOptions::default()
    };
    let between = |number: usize| {
        for key in 0..40 {
            let key = format!("between{number}-{key}");
            let value = key.repeat(100);
            let commit = db.transact(|txn| txn.put(key.as_bytes(), value.as_bytes()));
            commit.unwrap().wait_durable().unwrap();
        }
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        expected.push(crate::support::contents(&db));
    };
    let made = place
        .back_up_with(&mut [&mut node], options_of_creation, 4, between)
        .unwrap();
    let numbers: Vec<u64> = made.iter().map(|backup| backup.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    let names = made.iter().map(|backup| backup.name());
    let expected: Vec<_> = names.zip(expected).collect();
    assert_restored(&place, &expected);
    // The pins have ended with the command: the next checkpoint removes the segments.
    node.db.checkpoint().unwrap();
    node.db.checkpoint().unwrap();
    assert_eq!(place.back_up(&mut node).number, 0);
}

#[test]
fn a_single_node_is_restored_as_of_any_time_of_its_logs() {
    let mut place = Place::new();
    let mut node = place.node(0);
    let mut at = BTreeMap::new();
    let mut time = NOW_MS;
    let tick =
        |node: &crate::support::LocalNode, at: &mut BTreeMap<u64, Contents>, time: &mut u64| {
            *time += 1000;
            node.clock.set(*time);
            // The time of the epochs follows the clock.
            node.put("tick", &time.to_string());
            node.put(&format!("at{time}"), "1");
            at.insert(*time, node.contents());
        };
    for _ in 0..3 {
        tick(&node, &mut at, &mut time);
    }
    place.back_up(&mut node);
    for _ in 0..3 {
        tick(&node, &mut at, &mut time);
    }
    place.back_up(&mut node);
    node.db.checkpoint().unwrap();
    node.db.checkpoint().unwrap();
    let begin_of_second = time;
    for _ in 0..3 {
        tick(&node, &mut at, &mut time);
    }
    let made = place.back_up(&mut node);
    assert_eq!(made.number, 0);
    for (number, (time, contents)) in at.iter().enumerate() {
        for later in [0, 999] {
            let to = format!("at{number}-{later}");
            let wanted = time + later;
            let restored = place.restore(&RestorePoint::Time(wanted), &to);
            if wanted > made.moment_ms || (wanted > begin_of_second && *time <= begin_of_second) {
                continue;
            }
            let restored = restored.unwrap_or_else(|error| panic!("{wanted}: {error}"));
            assert_eq!(restored.moment_ms, wanted);
            assert_eq!(&restored_contents(&place.path(&to)), contents, "{wanted}");
        }
    }
    for wanted in [time + 5000, u64::MAX / 2] {
        let refused = place.restore(&RestorePoint::Time(wanted), "refused");
        assert!(matches!(refused, Err(RestorationError::NoSuchTime { .. })));
        assert!(!place.path("refused").exists());
    }
}

#[test]
fn nodes_are_restored_together_or_alone() {
    let mut place = Place::new();
    let (mut one, mut two) = (place.node(1), place.node(2));
    one.put("a", "1");
    two.put("b", "2");
    let nodes = &mut [&mut one, &mut two];
    let made = place.back_up_with(nodes, CreationOptions::default(), 1, |_| ());
    let made = made.unwrap();
    assert_eq!(made[0].nodes.len(), 2);
    let restored = place.restore(&RestorePoint::Newest, "all").unwrap();
    assert_eq!(restored.nodes.len(), 2);
    let found = |dir: &str| restored_contents(&place.path(dir));
    assert_eq!(
        found("all/node1"),
        [("a".to_owned(), "1".to_owned())].into()
    );
    assert_eq!(
        found("all/node2"),
        [("b".to_owned(), "2".to_owned())].into()
    );
    let repository = place.open().unwrap();
    let alone = |node| {
        let to = place.path(&format!("alone{node}"));
        restore(
            &repository,
            &RestorePoint::Newest,
            &to,
            Some(node),
            &Notes::default(),
        )
    };
    alone(2).unwrap();
    assert_eq!(found("alone2"), [("b".to_owned(), "2".to_owned())].into());
    let refused = alone(3).unwrap_err().to_string();
    assert!(refused.contains("no node 3; it has 1, 2"), "{refused}");
    // As of a time, a cluster is as its newest backup before that.
    let time = made[0].moment_ms;
    let at = |ms| place.restore(&RestorePoint::Time(ms), &format!("at{ms}"));
    assert_eq!(at(time).unwrap().backup, made[0].name());
    let early = at(time - 1).unwrap_err().to_string();
    assert!(
        early.contains("the moments of the backups are from"),
        "{early}"
    );
    assert!(at(time + 1).is_err());
}
