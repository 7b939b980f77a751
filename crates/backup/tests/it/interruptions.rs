//! Backups that are interrupted go on where they were.

use std::time::Duration;

use kumiki_backup::{CreationOptions, RestorePoint, verify};

use crate::support::{Place, restored_contents};

fn small_pieces() -> CreationOptions {
    CreationOptions {
        piece: 2000,
        ..CreationOptions::default()
    }
}

#[test]
fn an_interrupted_backup_goes_on_where_it_was() {
    for full in [true, false] {
        let mut place = Place::new();
        let mut node = place.node(0);
        node.fill("a", 60);
        node.db.checkpoint().unwrap();
        if !full {
            place.back_up(&mut node);
        }
        node.fill("b", 150);
        let (mut failures, mut reads) = (0, 0);
        loop {
            node.reads = 0;
            node.fails_at = 4;
            let made = place.back_up_with(&mut [&mut node], small_pieces(), 1, |_| ());
            reads += node.reads;
            if made.is_ok() {
                break;
            }
            failures += 1;
            assert!(failures < 100, "it does not go on");
            // The log grows meanwhile.
            node.fails_at = u64::MAX;
            node.put("meanwhile", &failures.to_string());
        }
        assert!(failures > 2, "{failures}");
        let whole = 3 * failures + 40;
        assert!(reads < whole, "{reads} reads for {failures} failures");
        let contents = node.contents();
        place.restore(&RestorePoint::Newest, "restored").unwrap();
        assert_eq!(restored_contents(&place.path("restored")), contents);
        let found = verify(&place.open().unwrap(), None, &mut |_, _| false).unwrap();
        assert!(found.damages.is_empty());
        // What was begun and overtaken by the growing log is not needed.
        assert!(found.unused as u64 <= failures, "{}", found.unused);
    }
}

#[test]
fn an_unfinished_backup_of_a_checkpoint_that_has_gone_begins_anew() {
    let mut place = Place::new();
    let mut node = place.node(0);
    node.fill("a", 30);
    node.db.checkpoint().unwrap();
    node.fails_at = 3;
    let made = place.back_up_with(&mut [&mut node], small_pieces(), 1, |_| ());
    assert!(made.unwrap_err().to_string().contains("the node is gone"));
    assert!(place.restore(&RestorePoint::Newest, "none").is_err());
    node.fails_at = u64::MAX;
    node.fill("b", 30);
    node.db.checkpoint().unwrap();
    node.db.checkpoint().unwrap();
    let made = place.back_up(&mut node);
    assert_eq!(made.number, 0);
    place.restore(&RestorePoint::Newest, "restored").unwrap();
    assert_eq!(restored_contents(&place.path("restored")), node.contents());
}

/// A node whose turn comes late would have removed its files.
#[test]
fn pins_of_all_nodes_are_renewed_while_one_is_copied() {
    let mut place = Place::new();
    let (mut one, mut two) = (place.node(1), place.node(2));
    one.fill("key", 20);
    let options = CreationOptions {
        renewal: Duration::ZERO,
        ..small_pieces()
    };
    let nodes = &mut [&mut one, &mut two];
    let made = place.back_up_with(nodes, options, 1, |_| ()).unwrap();
    let pieces = made[0].nodes[0].pieces.len();
    assert!(pieces > 3, "{pieces}");
    assert!(two.pins > pieces, "{} for {pieces} pieces", two.pins);
}
