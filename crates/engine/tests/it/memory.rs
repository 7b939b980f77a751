//! The bound on memory.

use base::epochs::EpochClock;
use base::participant::{Isolation, State};
use base::{Abort, Op};

use crate::support::{World, holder};

/// Operations are refused in every way of execution: alone, prepared (with holds or read atomic),
/// or step by step.
#[test]
fn what_needs_memory_that_is_not_there_is_refused() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[Op::put(b"a", b"1")]);
    world.prepare(&mut w, 1, &[Op::put(b"b", b"1")]).unwrap();
    let used = world.engine.memory_bytes();
    world.engine.limit_memory(used + (1 << 20));
    let (half, long) = (vec![b'x'; 700_000], vec![b'x'; 1 << 20]);
    let far = Op::SetRange {
        key: b"far",
        offset: 500 << 20,
        value: b"x",
    };
    let append = Op::Append {
        key: b"a",
        value: &long,
    };
    let pieces = [Op::put(b"c", &half), Op::put(b"d", &half)];
    // The versions that a transaction makes of one key, again and again, are kept until it ends.
    let again = [Op::put(b"c", &half), Op::put(b"c", &half)];
    for ops in [
        &[far][..],
        &[append],
        &[Op::put(b"c", &long)],
        &pieces,
        &again,
    ] {
        assert_eq!(world.try_run(ops), Err(Abort::OutOfMemory));
        assert_eq!(world.prepare(&mut w, 2, ops), Err(Abort::OutOfMemory));
    }
    let read_atomic = world.prepare_as(&mut w, 3, &pieces, Isolation::ReadAtomic);
    assert_eq!(read_atomic, Err(Abort::OutOfMemory));
    let stepwise = w.transact(|txn| {
        txn.put(b"c", &half)?;
        txn.put(b"d", &half)
    });
    assert_eq!(stepwise.err(), Some(Abort::OutOfMemory));
    assert_eq!(world.state(2), State::Unknown);
    assert_eq!(world.get(b"c"), None);
    world.run(&[Op::put(b"c", &half)]);

    // A full store can be read and made smaller, and attempts that were prepared before are
    // decided.
    world.engine.limit_memory(1);
    let refused = world.try_run(&[Op::put(b"d", &half)]);
    assert_eq!(refused, Err(Abort::OutOfMemory));
    w.commit(holder(1).id).unwrap();
    assert_eq!(world.get(b"b"), Some(b"1".to_vec()));
    world.run(&[Op::Delete { key: b"c" }]);
    assert_eq!(world.get(b"c"), None);
    world.engine.limit_memory(0);
    world.run(&[Op::put(b"d", &long)]);
}

/// Replaced versions are freed within the epoch in which they were replaced, unless a snapshot or a
/// transaction can read them.
#[test]
fn replaced_versions_do_not_wait_for_the_end_of_a_long_epoch() {
    let world = World::new();
    // The world's clock stands still.
    world.engine.epochs().set_slack_ms(u64::from(u32::MAX));
    let epoch = world.engine.epochs().current();
    let value = [b'x'; 1000];
    world.run(&[Op::put(b"a", &value)]);
    let before = world.engine.memory_bytes();
    for _ in 0..10_000 {
        world.run(&[Op::put(b"a", &value)]);
    }
    assert_eq!(world.engine.epochs().current(), epoch);
    let waiting = world.engine.memory_bytes() - before;
    assert!(waiting < 1_000_000, "{waiting} bytes of 10,000,000 wait");
}
