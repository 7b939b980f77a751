//! Transactions of one engine, by one thread and in chosen interleavings.

use std::cell::RefCell;
use std::sync::Arc;

use base::clock::ManualClock;
use base::epochs::EpochClock;
use base::limits::Limits;
use base::transaction::{Expiry, OpError, ScanContents};
use base::{Abort, Epoch, Op, Reply, Version};
use kumiki_engine::{Engine, Janitor, NoLog, Options, TransactionError, Worker};

use crate::support::put_until;

struct World {
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    janitor: RefCell<Janitor>,
}

fn world() -> World {
    let clock = Arc::new(ManualClock::new(1_000));
    let options = Options {
        workers: 4,
        clock: Arc::clone(&clock) as _,
        limits: Limits::default(),
    };
    let engine = Engine::new(&options);
    World {
        janitor: RefCell::new(engine.janitor()),
        engine,
        clock,
    }
}

impl World {
    fn worker(&self) -> Worker<NoLog> {
        self.engine.worker(|_| NoLog).expect("few workers")
    }

    fn tidy(&self) {
        let mut janitor = self.janitor.borrow_mut();
        for _ in 0..20 {
            janitor.tidy(Epoch(u64::MAX), 1000);
        }
    }
}

fn get(worker: &mut Worker<NoLog>, key: &[u8]) -> Option<Vec<u8>> {
    worker.refresh();
    let done = worker.execute(&[Op::Get { key }]).unwrap();
    match &done.replies()[0] {
        Reply::Nil => None,
        Reply::Bytes(bytes) => Some(bytes.to_vec()),
        other => panic!("{other:?}"),
    }
}

fn run(worker: &mut Worker<NoLog>, op: Op<'_>) -> String {
    worker.refresh();
    format!("{:?}", worker.execute(&[op]).unwrap().replies()[0])
}

fn version(worker: &mut Worker<NoLog>, key: &[u8]) -> Version {
    worker.refresh();
    match worker.execute(&[Op::Watch { key }]).unwrap().replies()[0] {
        Reply::Version(version) => version,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn operations_see_those_before_them() {
    let world = world();
    let mut w = world.worker();
    let ops = [
        Op::put(b"a", b"1"),
        Op::Add {
            key: b"a",
            delta: 41,
        },
        Op::Get { key: b"a" },
        Op::Append {
            key: b"a",
            value: b"!",
        },
        Op::Get { key: b"a" },
        Op::Delete { key: b"a" },
        Op::Get { key: b"a" },
        Op::Delete { key: b"a" },
    ];
    let done = w.execute(&ops).unwrap();
    let expected = [
        Reply::Ok,
        Reply::Int(42),
        Reply::Bytes(b"42"),
        Reply::Int(3),
        Reply::Bytes(b"42!"),
        Reply::Int(1),
        Reply::Nil,
        Reply::Int(0),
    ];
    assert_eq!(done.replies(), expected);
    drop(done);
    assert_eq!(get(&mut w, b"a"), None);
}

#[test]
fn a_failed_operation_does_not_stop_the_others() {
    let world = world();
    let mut w = world.worker();
    let ops = [
        Op::put(b"a", b"x"),
        Op::Add {
            key: b"a",
            delta: 1,
        },
        Op::put(b"b", b"y"),
    ];
    let done = w.execute(&ops).unwrap();
    assert_eq!(done.replies()[1], Reply::Error(OpError::NotInteger));
    drop(done);
    assert_eq!(get(&mut w, b"b"), Some(b"y".to_vec()));
}

#[test]
fn a_precondition_undoes_everything() {
    let world = world();
    let mut w = world.worker();
    let ops = [
        Op::put(b"a", b"1"),
        Op::Require {
            key: b"b",
            present: true,
        },
    ];
    assert_eq!(w.execute(&ops).err(), Some(Abort::Precondition { op: 1 }));
    assert_eq!(get(&mut w, b"a"), None);
    assert_eq!(world.engine.stats().keys, 0);
}

#[test]
fn many_writes_in_one_transaction_are_found_again() {
    let world = world();
    let mut w = world.worker();
    let keys: Vec<_> = (0..100u32).map(|i| i.to_be_bytes()).collect();
    let mut ops: Vec<Op<'_>> = keys.iter().map(|key| Op::put(key, b"1")).collect();
    ops.extend(keys.iter().map(|key| Op::Add { key, delta: 1 }));
    let done = w.execute(&ops).unwrap();
    assert!(
        done.replies()[100..]
            .iter()
            .all(|reply| *reply == Reply::Int(2))
    );
    drop(done);
    assert_eq!(world.engine.stats().keys, 100);
}

#[test]
fn a_version_changes_with_every_write_and_never_returns() {
    let world = world();
    let mut w = world.worker();
    let mut seen = vec![version(&mut w, b"k")];
    let mut note = |w: &mut Worker<NoLog>| {
        let now = version(w, b"k");
        assert!(!seen.contains(&now), "{now:?} again");
        assert_eq!(version(w, b"k"), now, "stable while nothing changes");
        seen.push(now);
    };
    for round in 0..3 {
        run(&mut w, Op::put(b"k", b"same"));
        note(&mut w);
        run(&mut w, Op::put(b"k", b"same"));
        note(&mut w);
        run(&mut w, Op::Delete { key: b"k" });
        note(&mut w);
        if round == 1 {
            world.tidy();
            assert_eq!(world.engine.stats().records, 0, "the tombstone is gone");
        }
    }
    run(&mut w, Op::put(b"k", b"same"));
    run(&mut w, Op::Flush);
    note(&mut w);
    run(&mut w, put_until(b"k", b"same", 2_000));
    note(&mut w);
    world.clock.set(2_000);
    note(&mut w);
    world.tidy();
    run(&mut w, Op::put(b"k", b"same"));
    note(&mut w);
}

#[test]
fn a_check_holds_until_the_key_changes() {
    let world = world();
    let mut w = world.worker();
    for (set, what) in [(false, "absent"), (true, "present")] {
        if set {
            run(&mut w, Op::put(b"k", b"1"));
        }
        let seen = version(&mut w, b"k");
        let check = Op::Check {
            key: b"k",
            version: seen,
        };
        assert!(
            w.execute(&[check.clone(), Op::put(b"other", b"1")]).is_ok(),
            "{what}"
        );
        run(&mut w, Op::put(b"k", b"2"));
        assert_eq!(
            w.execute(&[check]).err(),
            Some(Abort::Precondition { op: 0 }),
            "{what}"
        );
        run(&mut w, Op::Delete { key: b"k" });
        world.tidy();
    }
}

#[test]
fn expiry_is_exact_and_reclaimed() {
    let world = world();
    let mut w = world.worker();
    run(&mut w, put_until(b"k", b"v", 1_500));
    world.clock.set(1_499);
    assert_eq!(get(&mut w, b"k"), Some(b"v".to_vec()));
    world.clock.set(1_500);
    assert_eq!(get(&mut w, b"k"), None);
    assert_eq!(world.engine.stats().keys, 1, "not reclaimed yet");
    world.tidy();
    let stats = world.engine.stats();
    assert_eq!((stats.keys, stats.records, stats.expired), (0, 0, 1));
}

#[test]
fn keys_that_expire_are_counted_with_the_mean_of_their_deadlines() {
    let world = world();
    let mut w = world.worker();
    let counts = || {
        let stats = world.engine.stats();
        (stats.keys, stats.expiring, stats.mean_deadline_ms)
    };
    run(&mut w, Op::put(b"never", b"v"));
    assert_eq!(counts(), (1, 0, 0));
    run(&mut w, put_until(b"a", b"v", 64_000));
    run(&mut w, put_until(b"b", b"v", 192_000));
    assert_eq!(counts(), (3, 2, 128_000));
    // Replaced by one without a deadline, deleted, reclaimed, flushed.
    run(&mut w, Op::put(b"b", b"w"));
    assert_eq!(counts(), (3, 1, 64_000));
    run(&mut w, put_until(b"c", b"v", i64::MAX / 2));
    run(&mut w, Op::Delete { key: b"c" });
    assert_eq!(counts(), (3, 1, 64_000));
    world.clock.set(64_000);
    world.tidy();
    assert_eq!(counts(), (2, 0, 0));
    run(&mut w, put_until(b"d", b"v", 640_000));
    run(&mut w, Op::Flush);
    assert_eq!(counts(), (0, 0, 0));
    run(&mut w, put_until(b"e", b"v", 640_000));
    assert_eq!(counts(), (1, 1, 640_000));
}

#[test]
fn an_expiry_that_was_moved_is_looked_at_again() {
    let world = world();
    let mut w = world.worker();
    let mut janitor = world.janitor.borrow_mut();
    run(&mut w, put_until(b"k", b"v", 1_500));
    janitor.tidy(Epoch(u64::MAX), 100);
    run(&mut w, put_until(b"k", b"v", 3_000));
    world.clock.set(2_000);
    janitor.tidy(Epoch(u64::MAX), 100);
    assert_eq!(get(&mut w, b"k"), Some(b"v".to_vec()));
    world.clock.set(3_000);
    for _ in 0..3 {
        janitor.tidy(Epoch(u64::MAX), 100);
    }
    assert_eq!(world.engine.stats().records, 0);
}

#[test]
fn a_transaction_is_run_again_when_a_deadline_passes_before_its_commit() {
    let world = world();
    let mut w = world.worker();
    run(&mut w, put_until(b"k", b"v", 1_500));
    let clock = Arc::clone(&world.clock);
    let epochs = world.engine.epochs();
    let mut runs = 0;
    let (seen, observed) = w
        .transact(|txn| {
            runs += 1;
            let there = txn.get(b"k")?.is_some();
            txn.put(b"copy", if there { b"yes" } else { b"no" })?;
            if runs == 1 {
                clock.set(1_600);
                epochs.advance(epochs.current());
            }
            Ok(there)
        })
        .unwrap();
    assert_eq!((runs, seen), (2, false));
    assert_eq!(observed.time_ms, 1_600);
    assert_eq!(get(&mut w, b"copy"), Some(b"no".to_vec()));
}

#[test]
fn a_flush_hides_everything_at_once_and_memory_comes_back() {
    let world = world();
    let mut w = world.worker();
    for i in 0..1000u32 {
        run(&mut w, Op::put(&i.to_be_bytes(), &[7; 100]));
    }
    run(&mut w, put_until(b"expiring", b"v", 99_999));
    let full = world.engine.stats().memory_bytes;
    let ops = [
        Op::put(b"before", b"1"),
        Op::Flush,
        Op::put(b"after", b"2"),
        Op::Count { database: 0 },
    ];
    let done = w.execute(&ops).unwrap();
    assert_eq!(done.replies()[3], Reply::Int(1));
    drop(done);
    assert_eq!(get(&mut w, &5u32.to_be_bytes()), None);
    assert_eq!(get(&mut w, b"before"), None);
    assert_eq!(get(&mut w, b"after"), Some(b"2".to_vec()));
    assert_eq!(world.engine.stats().keys, 1);
    world.tidy();
    let stats = world.engine.stats();
    assert_eq!((stats.keys, stats.records), (1, 1));
    assert!(
        stats.memory_bytes < full - 100_000,
        "{} of {full}",
        stats.memory_bytes
    );
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let world = world();
    let mut w = world.worker();
    for key in [b"a", b"b", b"c"] {
        run(&mut w, Op::put(key, b"old"));
    }
    run(&mut w, put_until(b"d", b"old", 5_000));
    let snapshot = world.engine.snapshot();
    run(&mut w, Op::put(b"a", b"new"));
    run(&mut w, Op::Delete { key: b"b" });
    run(&mut w, Op::put(b"e", b"new"));
    world.clock.set(6_000);
    world.tidy();
    run(&mut w, Op::Flush);
    run(&mut w, Op::put(b"c", b"newest"));
    world.tidy();
    let later = world.engine.snapshot();
    let all = |w: &mut Worker<NoLog>, snapshot: &kumiki_engine::Snapshot| {
        let (mut from, mut found) = (Some(Vec::new()), Vec::new());
        while let Some(key) = from {
            from = w.scan_snapshot(snapshot, &key, None, 2, |entry| {
                found.push((entry.key.to_vec(), entry.value.bytes().into_owned()));
            });
        }
        found
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs
            .iter()
            .map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()))
            .collect()
    };
    let old = pairs(&[("a", "old"), ("b", "old"), ("c", "old"), ("d", "old")]);
    assert_eq!(all(&mut w, &snapshot), old);
    assert_eq!(all(&mut w, &later), pairs(&[("c", "newest")]));
    drop((snapshot, later));
    world.tidy();
    assert_eq!(
        world.engine.stats().records,
        1,
        "kept only for the snapshots"
    );
}

#[test]
fn a_scan_is_in_order_and_sees_own_writes() {
    let world = world();
    let mut w = world.worker();
    for key in ["b", "d", "f"] {
        run(&mut w, Op::put(key.as_bytes(), b"1"));
    }
    let ops = [
        Op::put(b"c", b"2"),
        Op::Delete { key: b"d" },
        Op::Scan {
            from: b"b",
            to: Some(b"f"),
            limit: 10,
            contents: ScanContents::Values,
        },
        Op::Scan {
            from: b"",
            to: None,
            limit: 2,
            contents: ScanContents::Keys,
        },
    ];
    let done = w.execute(&ops).unwrap();
    assert_eq!(
        done.replies()[2],
        Reply::Pairs(vec![(b"b", b"1"), (b"c", b"2")])
    );
    assert_eq!(
        done.replies()[3],
        Reply::Pairs(vec![(b"b", b""), (b"c", b"")])
    );
}

/// Runs `second` as a whole after the first attempt of `first` has done its reads, and returns how
/// often `first` ran.
fn interleave(
    world: &World,
    mut first: impl for<'t> FnMut(&mut kumiki_engine::Txn<'t>) -> Result<(), TransactionError>,
    second: &[Op<'_>],
) -> u32 {
    let (mut one, mut two) = (world.worker(), world.worker());
    let mut runs = 0;
    one.transact(|txn| {
        runs += 1;
        first(txn)?;
        if runs == 1 {
            two.execute(second)
                .map(drop)
                .map_err(TransactionError::Abort)?;
        }
        Ok(())
    })
    .unwrap();
    runs
}

#[test]
fn conflicts_are_seen() {
    let world = world();
    let mut w = world.worker();
    run(&mut w, Op::put(b"k", b"1"));
    let add = [Op::Add {
        key: b"k",
        delta: 1,
    }];
    let other = [Op::put(b"m", b"1")];

    let lost_update = |txn: &mut kumiki_engine::Txn<'_>| {
        let n: u32 = std::str::from_utf8(txn.get(b"k")?.unwrap())
            .unwrap()
            .parse()
            .unwrap();
        txn.put(b"k", (n + 1).to_string().as_bytes())
    };
    assert_eq!(interleave(&world, lost_update, &add), 2);
    assert_eq!(get(&mut w, b"k"), Some(b"3".to_vec()));
    assert_eq!(interleave(&world, lost_update, &other), 1);

    let read_skew = |txn: &mut kumiki_engine::Txn<'_>| {
        txn.get(b"k")?;
        txn.get(b"l").map(drop)
    };
    assert_eq!(
        interleave(
            &world,
            read_skew,
            &[Op::put(b"k", b"2"), Op::put(b"l", b"2")]
        ),
        2
    );
    let absent = |txn: &mut kumiki_engine::Txn<'_>| {
        txn.get(b"none")?;
        txn.put(b"x", b"1")
    };
    assert_eq!(interleave(&world, absent, &[Op::put(b"none", b"1")]), 2);
    let flushed = |txn: &mut kumiki_engine::Txn<'_>| txn.put(b"y", b"1");
    assert_eq!(interleave(&world, flushed, &[Op::Flush]), 2);
}

#[test]
fn phantoms_are_seen() {
    let world = world();
    let mut w = world.worker();
    for key in ["b", "d", "f", "h"] {
        run(&mut w, Op::put(key.as_bytes(), b"1"));
    }
    let scan = |limit| {
        move |txn: &mut kumiki_engine::Txn<'_>| {
            txn.scan(b"b", Some(b"g"), limit)?;
            txn.put(b"z", b"1")
        }
    };
    let cases: [(&[Op<'_>], usize, u32); 7] = [
        (&[Op::put(b"c", b"1")], 10, 2),
        (&[Op::Delete { key: b"c" }], 10, 2),
        (&[Op::put(b"d", b"2")], 10, 2),
        (&[Op::put(b"h", b"2")], 10, 1),
        (&[Op::put(b"a", b"1")], 10, 1),
        (&[Op::put(b"e", b"1")], 2, 1),
        (&[Op::put(b"c", b"1")], 2, 2),
    ];
    for (i, (second, limit, runs)) in cases.into_iter().enumerate() {
        assert_eq!(interleave(&world, scan(limit), second), runs, "case {i}");
    }
}

#[test]
fn a_worker_is_had_by_its_number() {
    let world = world();
    let w = world.engine.worker_at(2, |index| {
        assert_eq!(index, 2);
        NoLog
    });
    let mut w = w.expect("it is free");
    assert_eq!(run(&mut w, Op::put(b"a", b"1")), "Ok");
    assert!(world.engine.worker_at(2, |_| NoLog).is_none());
    // The others are handed out as before, and never this one.
    let others: Vec<_> = std::iter::from_fn(|| {
        world.engine.worker(|index| {
            assert_ne!(index, 2);
            NoLog
        })
    })
    .collect();
    assert!(
        world
            .engine
            .worker_at(others.len() + 1, |_| NoLog)
            .is_none()
    );
    drop(w);
    assert!(world.engine.worker_at(2, |_| NoLog).is_some());
}

#[test]
fn limits_are_kept() {
    let clock = Arc::new(ManualClock::new(1));
    let limits = Limits {
        key: 4,
        value: 8,
        transaction_ops: 2,
        ..Limits::default()
    };
    let engine = Engine::new(&Options {
        workers: 1,
        clock,
        limits,
    });
    let mut w = engine.worker(|_| NoLog).unwrap();
    assert!(
        engine.worker(|_| NoLog).is_none(),
        "as many workers as it was made for"
    );
    let error = "Error(TooLong)";
    assert_eq!(run(&mut w, Op::put(b"12345", b"")), error);
    assert_eq!(run(&mut w, Op::put(b"k", b"123456789")), error);
    assert_eq!(run(&mut w, Op::put(b"k", b"12345678")), "Ok");
    assert_eq!(
        run(
            &mut w,
            Op::Append {
                key: b"k",
                value: b"9"
            }
        ),
        error
    );
    assert_eq!(
        run(
            &mut w,
            Op::SetRange {
                key: b"k",
                offset: 8,
                value: b"9"
            }
        ),
        error
    );
    assert_eq!(
        run(
            &mut w,
            Op::SetRange {
                key: b"k",
                offset: usize::MAX,
                value: b"9"
            }
        ),
        error
    );
    let three = [Op::put(b"a", b""), Op::put(b"b", b""), Op::put(b"c", b"")];
    assert!(matches!(
        w.execute(&three).err(),
        Some(Abort::TooLarge { .. })
    ));
}

#[test]
fn a_panic_in_a_closure_leaves_the_worker_usable() {
    let world = world();
    let mut w = world.worker();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = w.transact(|txn| -> Result<(), TransactionError> {
            txn.put(b"k", b"1")?;
            panic!("the program's own fault")
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(get(&mut w, b"k"), None);
    run(&mut w, Op::put(b"k", b"2"));
    let epochs = world.engine.epochs();
    let before = epochs.advance(epochs.current());
    assert!(epochs.advance(before) > before, "no epoch is held");
}

#[test]
fn a_cancelled_closure_has_no_effect() {
    let world = world();
    let mut w = world.worker();
    let outcome = w.transact(|txn| -> Result<(), TransactionError> {
        txn.put(b"k", b"1")?;
        Err(txn.cancel())
    });
    assert_eq!(outcome.err(), Some(Abort::Cancelled));
    assert_eq!(get(&mut w, b"k"), None);
}

#[test]
fn two_engines_do_not_know_each_other() {
    let (one, two) = (world(), world());
    let (mut a, mut b) = (one.worker(), two.worker());
    run(&mut a, Op::put(b"k", b"1"));
    assert_eq!(get(&mut b, b"k"), None);
    assert_eq!(get(&mut a, b"k"), Some(b"1".to_vec()));
}

#[test]
fn the_empty_key_is_a_key_like_any_other() {
    let world = world();
    let mut w = world.worker();
    assert_eq!(get(&mut w, b""), None);
    let mut versions = vec![version(&mut w, b"")];
    for op in [
        Op::put(b"", b"1"),
        Op::Delete { key: b"" },
        put_until(b"", b"2", 1_500),
        Op::put(b"a", b"1"),
    ] {
        run(&mut w, op);
        world.tidy();
        versions.push(version(&mut w, b""));
    }
    versions.pop();
    world.clock.set(2_000);
    assert_eq!(get(&mut w, b""), None);
    world.tidy();
    versions.push(version(&mut w, b""));
    for (i, a) in versions.iter().enumerate() {
        assert!(!versions[..i].contains(a), "{a:?} again");
    }
    assert_eq!(world.engine.stats().keys, 1);
    let done = w
        .execute(&[Op::Scan {
            from: b"",
            to: None,
            limit: 9,
            contents: ScanContents::Keys,
        }])
        .unwrap();
    assert_eq!(done.replies()[0], Reply::Pairs(vec![(b"a", b"")]));
}

#[test]
fn flushes_may_follow_each_other_without_end() {
    let world = world();
    let mut w = world.worker();
    for i in 0..70_000u32 {
        run(&mut w, Op::Flush);
        run(&mut w, Op::put(&(i % 100).to_be_bytes(), b"v"));
        if i % 1_000 == 0 {
            world.tidy();
        }
    }
    world.tidy();
    let stats = world.engine.stats();
    assert_eq!((stats.keys, stats.records), (1, 1));
}

#[test]
fn a_change_that_changes_nothing_leaves_the_version() {
    let world = world();
    let mut w = world.worker();
    run(&mut w, Op::put(b"k", b"v"));
    let before = version(&mut w, b"k");
    run(
        &mut w,
        Op::GetExpire {
            key: b"k",
            expiry: Expiry::Never,
        },
    );
    run(&mut w, Op::Persist { key: b"k" });
    run(
        &mut w,
        Op::SetRange {
            key: b"k",
            offset: 3,
            value: b"",
        },
    );
    assert_eq!(version(&mut w, b"k"), before);
}

#[test]
fn a_key_that_was_missing_is_found_again_among_the_own_locks() {
    let world = world();
    let mut w = world.worker();
    // So many that the look-aside table grows meanwhile and must ask the map.
    for i in 0..20_000u32 {
        let key = i.to_be_bytes();
        let ops = [Op::Exists { key: &key }, Op::put(&key, b"v")];
        drop(w.execute(&ops).unwrap());
    }
    assert_eq!(world.engine.stats().keys, 20_000);
}

#[test]
fn keys_are_found_while_the_table_of_hints_is_completed() {
    let world = world();
    let mut w = world.worker();
    let mut janitor = world.janitor.borrow_mut();
    for i in 0..30_000u32 {
        run(&mut w, Op::put(&i.to_be_bytes(), b"v"));
        if i % 100 == 0 {
            janitor.tidy(Epoch(u64::MAX), 50);
        }
        if i % 10 == 0 {
            run(
                &mut w,
                Op::Delete {
                    key: &(i / 2).to_be_bytes(),
                },
            );
        }
    }
    for _ in 0..1_000 {
        janitor.tidy(Epoch(u64::MAX), 1_000);
    }
    let deleted = |i: u32| i < 15_000 && i.is_multiple_of(5);
    for i in 0..31_000u32 {
        let there = i < 30_000 && !deleted(i);
        assert_eq!(get(&mut w, &i.to_be_bytes()).is_some(), there, "{i}");
    }
}
