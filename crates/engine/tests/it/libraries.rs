//! The libraries of functions: their generations, who sees them, and where they come back.

use base::partition::OwnedReply;
use base::transaction::ScanContents;
use base::{Abort, Op};

use crate::support::replica::Replica;
use crate::support::{World, holder, holder_of};

fn set(generation: u64, libraries: &[u8]) -> Op<'_> {
    Op::SetLibraries {
        generation,
        libraries,
    }
}

fn check(generation: u64) -> Op<'static> {
    Op::CheckLibraries { generation }
}

fn stored(generation: u8, libraries: &[u8]) -> OwnedReply {
    OwnedReply::Bytes([&[generation, 0, 0, 0, 0, 0, 0, 0], libraries].concat())
}

fn unmet(op: usize) -> Result<Vec<OwnedReply>, Abort> {
    Err(Abort::Precondition { op })
}

#[test]
fn generations_grow() {
    let world = World::new();
    assert_eq!(
        world.run(&[Op::Libraries, check(0)]),
        [OwnedReply::Nil, OwnedReply::Ok]
    );
    world.run(&[set(1, b"a")]);
    assert_eq!(world.run(&[Op::Libraries]), [stored(1, b"a")]);
    assert_eq!(
        world.try_run(&[Op::put(b"k", b"1"), set(1, b"b")]),
        unmet(1)
    );
    assert_eq!(world.try_run(&[Op::put(b"k", b"1"), check(0)]), unmet(1));
    assert_eq!(world.get(b"k"), None);
    // A partition that lacks a generation gets a later one.
    world.run(&[check(1), check(9), set(5, b"c"), Op::put(b"k", b"1")]);
    assert_eq!(world.run(&[Op::Libraries]), [stored(5, b"c")]);
    assert_eq!(world.try_run(&[set(4, b"d")]), unmet(0));
}

#[test]
fn no_flush_removes_them_and_no_client_sees_them() {
    let world = World::new();
    world.run(&[set(1, b"a"), Op::put(b"k", b"1")]);
    world.run(&[Op::Flush]);
    world.tidy();
    let scan = Op::Scan {
        from: b"",
        to: None,
        limit: 100,
        contents: ScanContents::Keys,
    };
    assert_eq!(
        world.run(&[Op::Count { database: 0 }, scan]),
        [OwnedReply::Int(0), OwnedReply::Pairs(Vec::new())]
    );
    assert_eq!(world.run(&[Op::Libraries]), [stored(1, b"a")]);
    let world = world.restarted();
    assert_eq!(world.run(&[Op::Libraries]), [stored(1, b"a")]);
}

#[test]
fn what_is_prepared_holds_them() {
    let mut world = World::new();
    let mut w = world.worker();
    world
        .prepare(&mut w, 1, &[check(0), Op::put(b"k", b"1")])
        .unwrap();
    assert_eq!(holder_of(world.try_run(&[set(1, b"a")])), holder(1));
    world.run(&[check(0), Op::put(b"l", b"1")]);
    w.commit(holder(1).id).unwrap();
    world
        .prepare(&mut w, 2, &[set(1, b"a"), Op::Exists { key: b"k" }])
        .unwrap();
    for _ in 0..2 {
        assert_eq!(holder_of(world.try_run(&[check(0)])), holder(2));
        assert_eq!(holder_of(world.try_run(&[Op::Libraries])), holder(2));
        drop(w);
        world = world.restarted();
        w = world.worker();
    }
    w.commit(holder(2).id).unwrap();
    assert_eq!(world.run(&[Op::Libraries]), [stored(1, b"a")]);
    assert_eq!(world.restarted().try_run(&[check(0)]), unmet(0));
}

#[test]
fn replicas_have_the_same_libraries() {
    let (leader, follower) = (Replica::new(), Replica::new());
    follower.apply(&leader.run(1, &[set(1, b"a"), Op::put(b"k", b"1")]));
    follower.apply(&leader.run(2, &[Op::Flush]));
    for replica in [&leader, &follower] {
        let refused = replica.stage(3, &[check(0), Op::put(b"k", b"1")]);
        assert_eq!(refused.err(), unmet(0).err());
    }
}
