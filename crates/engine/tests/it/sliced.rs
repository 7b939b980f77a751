//! Transactions of very many operations, which run in slices.

use std::sync::atomic::{AtomicBool, Ordering};

use base::database::qualified;
use base::partition::OwnedReply;
use base::{Abort, Op, Reply};
use kumiki_engine::{NoLog, SlicedTransaction, Worker};
use testkit::SetOnDrop;

use crate::support::{Log, World, assert_unsupported, holder, holder_of, number, put_until};

const KEYS: u8 = 10;

/// Returns the keys of the transactions, in pairs of the key and its value.
fn keys() -> Vec<[u8; 2]> {
    (0..KEYS).map(|key| [b'k', key]).collect()
}

fn puts<'k>(keys: &'k [[u8; 2]], value: &'k [u8]) -> Vec<Op<'k>> {
    keys.iter().map(|key| Op::put(key, value)).collect()
}

/// Begins attempt `number`, and executes the operations in slices of three.
fn executed(w: &mut Worker<Log>, by: u64, ops: &[Op<'_>]) -> SlicedTransaction {
    let mut sliced = w.begin_sliced(holder(by), 0).unwrap();
    for slice in ops.chunks(3) {
        w.execute_slice(&mut sliced, slice, |replies| {
            assert_eq!(replies.len(), slice.len());
        })
        .unwrap();
    }
    sliced
}

/// Commits, without publishing anything.
fn commit(w: &mut Worker<Log>, sliced: &mut SlicedTransaction) {
    for _ in 0..100 {
        assert!(!w.commit_slice(sliced, 3).unwrap());
        if sliced.has_committed() {
            return;
        }
    }
    panic!("it does not commit");
}

fn finish(w: &mut Worker<Log>, sliced: &mut SlicedTransaction) {
    for _ in 0..100 {
        if w.commit_slice(sliced, 3).unwrap() {
            return;
        }
    }
    panic!("it does not end");
}

fn count(world: &World) -> i64 {
    match world.run(&[Op::Count { database: 0 }])[0] {
        OwnedReply::Int(count) => count,
        ref other => panic!("{other:?}"),
    }
}

/// Returns the values of the keys in a view.
fn viewed(world: &World, view: &kumiki_engine::Snapshot) -> Vec<Option<Vec<u8>>> {
    let mut w = world.worker();
    let value =
        |key: &[u8; 2]| w.read_snapshot(view, key, |entry| entry.value.bytes().into_owned());
    keys().iter().map(value).collect()
}

#[test]
fn others_see_all_of_it_or_nothing() {
    let (world, keys) = (World::new(), keys());
    world.run(&puts(&keys[..5], b"old"));
    let old: Vec<_> = (0..KEYS)
        .map(|at| (at < 5).then(|| b"old".to_vec()))
        .collect();
    let new = vec![Some(b"new".to_vec()); KEYS as usize];
    let mut w = world.worker();
    let mut sliced = executed(&mut w, 1, &puts(&keys, b"new"));
    let read = || -> Vec<_> { keys.iter().map(|key| world.read(key)).collect() };
    let unchanged: Vec<_> = old.iter().cloned().map(Ok).collect();
    assert_eq!((read(), count(&world)), (unchanged, 5), "they read on");
    let before = world.engine.snapshot();
    commit(&mut w, &mut sliced);
    let held = vec![Err(holder(1)); KEYS as usize];
    assert_eq!(read(), held);
    // The epoch goes on while its versions are published.
    for published in 0..4 {
        assert_eq!(count(&world), i64::from(KEYS));
        let after = world.engine.snapshot();
        assert_eq!(viewed(&world, &before), old, "{published} slices");
        assert_eq!(viewed(&world, &after), new, "{published} slices");
        let readable = read().iter().filter(|read| read.is_ok()).count();
        assert_eq!(readable, usize::from(KEYS).min(3 * published));
        w.commit_slice(&mut sliced, 3).unwrap();
    }
    finish(&mut w, &mut sliced);
    assert_eq!(read(), new.iter().cloned().map(Ok).collect::<Vec<_>>());
    assert_eq!(viewed(&world, &before), old);
    let entries = world.log.entries.lock().len();
    assert_eq!(entries, 2, "one entry of the log");
    assert_eq!(world.restarted().get(&keys[9]), Some(b"new".to_vec()));
}

/// A checkpoint of a view replaces the log.
#[test]
fn a_copy_of_a_view_has_versions_that_are_not_published() {
    let (world, keys) = (World::new(), keys());
    let mut w = world.worker();
    let mut sliced = executed(&mut w, 1, &puts(&keys, b"new"));
    commit(&mut w, &mut sliced);
    w.commit_slice(&mut sliced, 3).unwrap();
    let view = world.engine.snapshot();
    let copy = world.checkpointed(&view);
    assert!(copy.iter().all(|(tid, _)| *tid == sliced.observed().tid));
    let restarted = world.restarted_with(copy);
    for key in &keys {
        assert_eq!(restarted.get(key), Some(b"new".to_vec()));
    }
    finish(&mut w, &mut sliced);
}

#[test]
fn what_is_given_up_leaves_nothing() {
    let (world, keys) = (World::new(), keys());
    world.run(&puts(&keys[..5], b"old"));
    world.tidy();
    let memory = world.engine.memory_bytes();
    for excludes in [false, true] {
        let mut w = world.worker();
        let mut ops = puts(&keys, b"new");
        ops.push(Op::put(&keys[0], b"again"));
        ops.push(Op::Exists { key: b"absent" });
        let mut sliced = executed(&mut w, 1, &ops);
        assert!(world.engine.memory_bytes() > memory, "its versions count");
        if excludes {
            assert!(!w.commit_slice(&mut sliced, 4).unwrap());
            assert_eq!(world.read(&keys[0]), Err(holder(1)));
        }
        let releases = world.engine.releases();
        match excludes {
            true => drop(sliced),
            false => {
                sliced.begin_undo();
                assert!((0..100).any(|_| sliced.undo(2)));
            }
        }
        assert!(world.engine.releases() > releases);
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(world.get(key), (at < 5).then(|| b"old".to_vec()));
        }
        assert_eq!((count(&world), world.log.entries.lock().len()), (5, 1));
        world.run(&[Op::put(&keys[0], b"old")]);
        world.log.entries.lock().pop();
        world.tidy();
        assert_eq!(world.engine.memory_bytes(), memory);
    }
}

#[test]
fn writers_wait_and_readers_do_not() {
    let (world, keys) = (World::new(), keys());
    world.run(&[Op::put(&keys[0], b"1")]);
    let mut w = world.worker();
    let mut sliced = executed(
        &mut w,
        1,
        &[
            Op::Add {
                key: &keys[0],
                delta: 5,
            },
            Op::Delete { key: b"absent" },
        ],
    );
    assert_eq!(world.get(&keys[0]), Some(b"1".to_vec()));
    let write = [Op::Add {
        key: &keys[0],
        delta: 1,
    }];
    assert_eq!(holder_of(world.try_run(&write)), holder(1));
    let absent = [Op::put(b"absent", b"")];
    assert_eq!(holder_of(world.try_run(&absent)), holder(1));
    assert_eq!(holder_of(world.try_run(&[Op::Flush])), holder(1));
    let mut other = world.worker();
    assert_eq!(holder_of(world.prepare(&mut other, 2, &write)), holder(1));
    let reads = [Op::Get { key: &keys[0] }];
    assert_eq!(holder_of(world.prepare(&mut other, 2, &reads)), holder(1));
    assert_eq!(holder_of(other.hold(&reads, holder(2))), holder(1));
    finish(&mut w, &mut sliced);
    assert_eq!(world.run(&write), [OwnedReply::Int(7)]);
    assert_eq!(world.run(&absent), [OwnedReply::Ok]);
    world.run(&[Op::Flush]);
}

#[test]
fn it_meets_the_holds_of_others() {
    let (world, keys) = (World::new(), keys());
    let mut other = world.worker();
    let ops = puts(&keys[4..5], b"x");
    world.prepare(&mut other, 1, &ops).unwrap();
    let mut w = world.worker();
    let mut sliced = w.begin_sliced(holder(2), 0).unwrap();
    let ops = puts(&keys, b"new");
    let met = w.execute_slice(&mut sliced, &ops, |_| panic!("not executed"));
    assert_eq!(holder_of(met), holder(1));
    other.commit(holder(1).id).unwrap();
    // The keys before are held already.
    w.execute_slice(&mut sliced, &ops, |_| {}).unwrap();
    finish(&mut w, &mut sliced);
    assert_eq!(world.get(&keys[4]), Some(b"new".to_vec()));
    world.prepare(&mut other, 3, &[Op::Flush]).unwrap();
    let begun = w.begin_sliced(holder(4), 0);
    assert_eq!(holder_of(begun), holder(3));
    other.abort(holder(3).id).unwrap();
}

/// A prepared transaction has scanned a range; new keys in it are phantoms.
#[test]
fn new_keys_enter_no_range_that_is_held() {
    let (world, keys) = (World::new(), keys());
    let mut other = world.worker();
    // The first keys are outside of the range.
    let scan = [Op::Scan {
        from: b"k\x05",
        to: Some(b"l"),
        limit: 100,
        contents: base::transaction::ScanContents::Keys,
    }];
    world.prepare(&mut other, 1, &scan).unwrap();
    let mut w = world.worker();
    let mut sliced = executed(&mut w, 2, &puts(&keys, b"new"));
    let committed = (0..100).find_map(|_| w.commit_slice(&mut sliced, 3).err());
    assert_eq!(committed, Some(Abort::Held { by: holder(1) }));
    sliced.begin_undo();
    assert!(sliced.undo(usize::MAX));
    other.abort(holder(1).id).unwrap();
    let mut sliced = executed(&mut w, 2, &puts(&keys, b"new"));
    assert_eq!(holder_of(world.prepare(&mut other, 1, &scan)), holder(2));
    finish(&mut w, &mut sliced);
}

#[test]
fn it_reads_its_own_writes() {
    let (world, keys) = (World::new(), keys());
    let (first, second) = (&keys[0][..], &keys[1][..]);
    world.run(&[Op::put(second, b"5")]);
    let mut w = world.worker();
    let mut sliced = w.begin_sliced(holder(1), 0).unwrap();
    let slices = [
        (
            vec![Op::put(first, b"1"), Op::put(first, b"2")],
            vec![Reply::Ok, Reply::Ok],
        ),
        (
            vec![Op::Add {
                key: first,
                delta: 3,
            }],
            vec![Reply::Int(5)],
        ),
        (
            vec![Op::Delete { key: second }, Op::Exists { key: second }],
            vec![Reply::Int(1), Reply::Int(0)],
        ),
        (vec![Op::Get { key: first }], vec![Reply::Bytes(b"5")]),
        (
            vec![Op::Append {
                key: second,
                value: b"x",
            }],
            vec![Reply::Int(1)],
        ),
    ];
    for (ops, expected) in &slices {
        w.execute_slice(&mut sliced, ops, |replies| assert_eq!(replies, expected))
            .unwrap();
    }
    finish(&mut w, &mut sliced);
    let expected = [Some(b"5".to_vec()), Some(b"x".to_vec())];
    for world in [&world, &world.restarted()] {
        assert_eq!([world.get(first), world.get(second)], expected);
    }
    assert_eq!(count(&world), 2);
}

#[test]
fn a_condition_that_is_not_met_ends_it() {
    let (world, keys) = (World::new(), keys());
    world.run(&[Op::put(&keys[5], b"there")]);
    let mut w = world.worker();
    let mut sliced = w.begin_sliced(holder(1), 0).unwrap();
    let require = |key| Op::Require {
        key,
        present: false,
    };
    let ops: Vec<_> = keys.iter().map(|key| require(&key[..])).collect();
    w.execute_slice(&mut sliced, &ops[..5], |_| {}).unwrap();
    let refused = w.execute_slice(&mut sliced, &ops[5..], |_| panic!("refused"));
    assert_eq!(refused, Err(Abort::Precondition { op: 0 }));
    drop(sliced);
    world.run(&puts(&keys, b"free"));
}

/// Its time is that of its first slice; a key that has expired at its commit must not have been seen.
#[test]
fn it_does_not_commit_when_a_key_has_expired_since_it_was_read() {
    let (world, keys) = (World::new(), keys());
    world.run(&[put_until(&keys[0], b"x", 2_000)]);
    let mut w = world.worker();
    for (time_ms, deleted) in [(1_500, true), (2_500, false)] {
        let mut sliced = w.begin_sliced(holder(1), 0).unwrap();
        let ops = [Op::Delete { key: &keys[0] }, Op::put(&keys[1], b"y")];
        w.execute_slice(&mut sliced, &ops, |replies| {
            assert_eq!(replies[0], Reply::Int(i64::from(deleted)));
        })
        .unwrap();
        assert!(!w.commit_slice(&mut sliced, 3).unwrap());
        world.clock.set(2_500);
        match deleted {
            true => {
                let refused = w.commit_slice(&mut sliced, 3);
                assert_eq!(refused, Err(Abort::Conflict { attempts: 1 }), "{time_ms}");
            }
            false => finish(&mut w, &mut sliced),
        }
    }
    assert_eq!(world.get(&keys[1]), Some(b"y".to_vec()));
}

#[test]
fn a_log_that_has_failed_refuses_all_of_it() {
    let (world, keys) = (World::new(), keys());
    let mut w = world.worker();
    let mut sliced = executed(&mut w, 1, &puts(&keys, b"new"));
    *world.log.broken.lock() = Some("full");
    let refused = (0..100).find_map(|_| w.commit_slice(&mut sliced, 3).err());
    let reason = "full".to_owned();
    assert_eq!(refused, Some(Abort::ReadOnly { reason }));
    drop(sliced);
    assert!(keys.iter().all(|key| world.get(key).is_none()));
    assert_eq!(count(&world), 0);
}

#[test]
fn its_limits_are_those_of_any_transaction() {
    let limits = base::limits::Limits {
        transaction_ops: 15,
        transaction_bytes: 4_000,
        ..base::limits::Limits::default()
    };
    let (world, keys) = (World::with(limits), keys());
    let mut w = world.worker();
    let mut sliced = executed(&mut w, 1, &puts(&keys, b"x"));
    let refused = w.execute_slice(&mut sliced, &puts(&keys, b"x"), |_| {});
    assert_eq!(refused, Err(Abort::TooLarge { what: "operations" }));
    drop(sliced);
    let mut sliced = w.begin_sliced(holder(1), 0).unwrap();
    let refused = w.execute_slice(&mut sliced, &puts(&keys, &[b'x'; 1_000]), |_| {});
    assert_eq!(
        refused,
        Err(Abort::TooLarge {
            what: "bytes written"
        })
    );
    drop(sliced);
    world
        .engine
        .limit_memory(world.engine.memory_bytes() + 100_000);
    let refused = w.begin_sliced(holder(1), 200_000).map(drop);
    assert_eq!(refused, Err(Abort::OutOfMemory));
    assert!(w.begin_sliced(holder(1), 90_000).is_ok());
    for (op, why) in [
        (Op::Flush, "no key"),
        (Op::Now, "no key"),
        (Op::put(b"ra:x", b""), "'ra:x' is declared read atomic"),
    ] {
        let mut sliced = w.begin_sliced(holder(1), 0).unwrap();
        let refused = w.execute_slice(&mut sliced, &[op], |_| {});
        assert_unsupported(refused, &[why, "execute"]);
    }
}

#[test]
fn other_databases_have_keys_too() {
    let (world, keys) = (World::without_read_atomic(), keys());
    let own: Vec<Vec<u8>> = keys.iter().map(|key| qualified(3, key)).collect();
    let ops: Vec<_> = own.iter().map(|key| Op::put(key, b"3")).collect();
    let mut w = world.worker();
    let mut sliced = executed(&mut w, 1, &ops);
    let flush = [Op::FlushDatabase { database: 3 }];
    assert_eq!(holder_of(world.try_run(&flush)), holder(1));
    let exchange = [Op::SwapDatabases {
        first: 0,
        second: 3,
    }];
    assert_eq!(holder_of(world.try_run(&exchange)), holder(1));
    commit(&mut w, &mut sliced);
    let of_3 = |world: &World| match world.run(&[Op::Count { database: 3 }])[0] {
        OwnedReply::Int(count) => count,
        ref other => panic!("{other:?}"),
    };
    assert_eq!((of_3(&world), count(&world)), (10, 0));
    finish(&mut w, &mut sliced);
    world.run(&exchange);
    assert_eq!((of_3(&world), count(&world)), (0, 10));
    let mut sliced = executed(&mut w, 1, &puts(&keys, b"0"));
    finish(&mut w, &mut sliced);
    assert_eq!((of_3(&world), count(&world)), (0, 10), "the same keys");
    world.run(&exchange);
    assert_eq!(world.get(&own[0]), Some(b"0".to_vec()));
}

/// Threads set all keys to one value, in slices or at once, while others read them, at once or from views.
#[test]
fn threads_see_all_of_it_or_nothing() {
    let world = World::new();
    let engine = &world.engine;
    let keys = keys();
    let zero = puts(&keys, b"0");
    world.run(&zero);
    let (rounds, done) = (150, AtomicBool::new(false));
    let one_value = |replies: &[Reply<'_>]| {
        let first = number(&replies[0]);
        assert!(replies.iter().all(|reply| number(reply) == first));
    };
    let gets: Vec<_> = keys.iter().map(|key| Op::Get { key }).collect();
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&done);
        let reader = |views: bool| {
            let mut w = engine.worker(|_| NoLog).unwrap();
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                if views {
                    let view = engine.snapshot();
                    let value = |w: &mut Worker<NoLog>, key: &[u8]| {
                        w.read_snapshot(&view, key, |entry| entry.value.bytes().into_owned())
                    };
                    let first = value(&mut w, &keys[0]);
                    assert!(keys.iter().all(|key| value(&mut w, key) == first));
                    seen += 1;
                } else if let Ok(read) = w.execute(&gets) {
                    one_value(read.replies());
                    seen += 1;
                }
            }
            seen
        };
        let readers = [false, true].map(|views| scope.spawn(move || reader(views)));
        let writers = [0, 1].map(|writer| {
            let keys = &keys;
            scope.spawn(move || {
                let mut w = engine.worker(|_| NoLog).unwrap();
                for round in 0..rounds {
                    let value = format!("{writer}{round:03}");
                    let mut ops = puts(keys, value.as_bytes());
                    if writer == 1 {
                        ops.reverse();
                    }
                    let by = holder(2 * round + writer);
                    while !in_slices(&mut w, by, &ops) {
                        std::thread::yield_now();
                    }
                }
            })
        });
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        assert!(readers.map(|reader| reader.join().unwrap())[1] > 0);
    });
    assert_eq!(count(&world), i64::from(KEYS));

    /// Returns `false` if it has met another one, and was undone.
    fn in_slices(w: &mut Worker<NoLog>, by: base::transaction::Holder, ops: &[Op<'_>]) -> bool {
        let Ok(mut sliced) = w.begin_sliced(by, 0) else {
            return false;
        };
        for slice in ops.chunks(2) {
            if w.execute_slice(&mut sliced, slice, |_| {}).is_err() {
                return false;
            }
            std::thread::yield_now();
        }
        while !w
            .commit_slice(&mut sliced, 2)
            .expect("nothing is in its way")
        {
            std::thread::yield_now();
        }
        true
    }
}
