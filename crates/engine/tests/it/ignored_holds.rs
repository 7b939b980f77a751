//! The anomalies that arise when transactions that validate when they commit ignore holds: they
//! must be found with the planted bug that ignores holds, and never without.

use base::Op;
use base::planted::{self, Bug};
use base::transaction::ScanContents;

use crate::support::{World, holder};

/// Checks atomicity with two worlds as two partitions: a transaction has been decided everywhere as
/// soon as it is prepared everywhere. A reader that has seen it in one of them must not miss it in
/// the other.
fn see_both_or_none() -> Result<(), String> {
    let worlds = [World::new(), World::new()];
    let mut workers = [worlds[0].worker(), worlds[1].worker()];
    for (world, w) in worlds.iter().zip(&mut workers) {
        world.run(&[Op::put(b"a", b"old")]);
        world.prepare(w, 1, &[Op::put(b"a", b"new")]).unwrap();
    }
    workers[0].commit(holder(1).id).unwrap();
    assert_eq!(worlds[0].get(b"a"), Some(b"new".to_vec()));
    match worlds[1].read(b"a") {
        Ok(value) if value.as_deref() != Some(b"new") => Err(format!("{value:?} was seen")),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Checks two transactions of which each has read a key that the other will write, each under its own
/// rule.
fn write_skew() -> Result<(), String> {
    let world = World::new();
    let mut w = world.worker();
    let absent = |key| Op::Require {
        key,
        present: false,
    };
    let one = [absent(b"b"), Op::put(b"a", b"")];
    world.prepare(&mut w, 1, &one).unwrap();
    let other = world.try_run(&[absent(b"a"), Op::put(b"b", b"")]);
    w.commit(holder(1).id).unwrap();
    match other {
        Ok(_) => Err("both have found the other one's key absent".to_owned()),
        Err(_) => Ok(()),
    }
}

fn phantom() -> Result<(), String> {
    let world = World::new();
    let mut w = world.worker();
    let one = [
        Op::Scan {
            from: b"a",
            to: Some(b"z"),
            limit: 9,
            contents: ScanContents::Values,
        },
        Op::put(b"~", b""),
    ];
    world.prepare(&mut w, 1, &one).unwrap();
    match world.try_run(&[Op::put(b"k", b"")]) {
        Ok(_) => Err("a key has come into a range that is held".to_owned()),
        Err(_) => Ok(()),
    }
}

#[test]
fn holds_keep_the_order_and_the_planted_bug_breaks_it() {
    for seen in [see_both_or_none(), write_skew(), phantom()] {
        if planted::is(Bug::IgnoredHolds) {
            seen.unwrap_err();
        } else {
            seen.unwrap();
        }
    }
}
