//! Changed parts of long values: the entries that the log gets, and the values after a restart.

use base::{Op, Tid};

use crate::support::{Log, Logged, World, apply};

/// Returns the last log entry of a transaction of one write.
fn last(log: &Log) -> Logged {
    let entries = log.entries.lock();
    let (_, changes) = entries.last().expect("something was logged");
    assert_eq!(changes.len(), 1);
    changes[0].clone()
}

fn append<'a>(key: &'a [u8], value: &'a [u8]) -> Op<'a> {
    Op::Append { key, value }
}

fn set_range<'a>(key: &'a [u8], offset: usize, value: &'a [u8]) -> Op<'a> {
    Op::SetRange { key, offset, value }
}

#[test]
fn the_log_gets_the_part_that_changes() {
    let world = World::new();
    world.run(&[Op::put(b"long", &[7; 1 << 20])]);
    let put = world.log.entries.lock().last().unwrap().0;
    for (op, at, new) in [
        (append(b"long", b"x"), 1 << 20, &b"x"[..]),
        (set_range(b"long", 5, b"yz"), 5, b"yz"),
        (set_range(b"long", (1 << 20) + 9, b"w"), (1 << 20) + 9, b"w"),
    ] {
        world.run(&[op]);
        let Logged::Edit {
            key,
            base,
            offset,
            bytes,
        } = last(&world.log)
        else {
            panic!("the whole value is logged");
        };
        assert_eq!((&key[..], offset, &bytes[..]), (&b"long"[..], at, new));
        assert!(base >= put);
    }
    let value = world.get(b"long").unwrap();
    assert_eq!(value.len(), (1 << 20) + 10);
    assert_eq!(world.restarted().get(b"long"), Some(value));
}

/// The log gets the whole value if it would not become much shorter, or if the previous version is
/// in no log.
#[test]
fn the_log_gets_the_whole_value_otherwise() {
    let world = World::new();
    let long = vec![1; 10_000];
    world.run(&[append(b"new", &long)]);
    assert!(matches!(last(&world.log), Logged::Put { .. }), "it is new");
    world.run(&[set_range(b"new", 0, &long[..9_000])]);
    assert!(
        matches!(last(&world.log), Logged::Put { .. }),
        "most of it changes"
    );
    world.run(&[append(b"new", b"a"), append(b"new", b"b")]);
    assert!(
        matches!(last(&world.log), Logged::Put { .. }),
        "the transaction itself wrote what it appends to"
    );
    world.run(&[Op::Flush, append(b"new", b"a"), Op::put(b"other", b"")]);
    assert_eq!(world.get(b"new"), Some(b"a".to_vec()));
    // Versions of read-atomic keys have origins.
    world.run(&[Op::put(b"ra:key", &long)]);
    world.run(&[append(b"ra:key", b"a")]);
    assert!(matches!(last(&world.log), Logged::Put { .. }));
    let restarted = world.restarted();
    assert_eq!(restarted.get(b"new"), Some(b"a".to_vec()));
    assert_eq!(restarted.get(b"ra:key"), world.get(b"ra:key"));
}

/// Transactions edit some keys and write others.
#[test]
fn transactions_of_many_keys_restart() {
    let world = World::new();
    let keys: Vec<Vec<u8>> = (0..40).map(|n| format!("key:{n}").into_bytes()).collect();
    for key in &keys {
        world.run(&[Op::put(key, &[0; 6_000])]);
    }
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..300_usize {
        let mut ops = Vec::new();
        let bytes = [round as u8; 50];
        for key in &keys {
            match random.u8(..12) {
                0 => ops.push(append(key, &bytes[..random.usize(..50)])),
                1 | 2 => ops.push(set_range(key, random.usize(..9_000), &bytes[..7])),
                3 if round % 20 == 0 => ops.push(Op::put(key, &[9; 5_000])),
                4 if round % 30 == 0 => ops.push(Op::Delete { key }),
                5 if round % 10 == 0 => ops.push(Op::Persist { key }),
                _ => {}
            }
        }
        if round == 150 {
            ops.insert(0, Op::Flush);
        }
        random.shuffle(&mut ops[usize::from(round == 150)..]);
        world.run(&ops);
        if round % 60 == 59 {
            world.tidy();
        }
    }
    let edits = |log: &Log| {
        let entries = log.entries.lock();
        let changes = entries.iter().flat_map(|(_, changes)| changes);
        changes
            .filter(|change| matches!(change, Logged::Edit { .. }))
            .count()
    };
    assert!(edits(&world.log) > 500, "{}", edits(&world.log));
    let restarted = world.restarted();
    for key in &keys {
        assert_eq!(restarted.get(key), world.get(key), "{}", key.escape_ascii());
    }
}

/// The entries of a log come from several threads in any order.
#[test]
fn edits_are_found_by_several_restorers() {
    let world = World::new();
    world.run(&[Op::put(b"long", &[0; 50_000])]);
    for n in 0..200 {
        world.run(&[set_range(b"long", 100 * n, &[n as u8 + 1; 150])]);
    }
    let mut entries = world.log.entries.lock().clone();
    fastrand::Rng::with_seed(3).shuffle(&mut entries);
    let again = World::new();
    let mut restorers: Vec<_> = (0..3).map(|_| again.engine.restorer().unwrap()).collect();
    for (at, (tid, changes)) in entries.iter().enumerate() {
        apply(&mut restorers[at % 3], *tid, changes);
    }
    let newest = entries.iter().map(|(tid, _)| *tid).max().unwrap().epoch();
    again
        .engine
        .finish_restore(restorers, newest, 1_000)
        .unwrap();
    assert_eq!(again.get(b"long"), world.get(b"long"));
    assert_eq!(again.engine.stats().keys, 1);
}

#[test]
fn an_edit_without_its_version_is_damage() {
    let world = World::new();
    world.run(&[Op::put(b"long", &[0; 5_000])]);
    for n in 0..3 {
        world.run(&[append(b"long", &[n])]);
    }
    let entries = world.log.entries.lock().clone();
    for lacking in 0..3 {
        let again = World::new();
        let mut restorer = again.engine.restorer().unwrap();
        for (at, (tid, changes)) in entries.iter().enumerate() {
            if at != lacking {
                apply(&mut restorer, *tid, changes);
            }
        }
        let newest = entries[3].0.epoch();
        let restored = again.engine.finish_restore(vec![restorer], newest, 1_000);
        assert_eq!(
            restored.unwrap_err().to_string(),
            "an edit of the key \"long\" changes a version that is missing"
        );
    }
    assert_ne!(entries[0].0, Tid::ZERO);
}
