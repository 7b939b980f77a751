//! Engines that a log drives: entries, time, snapshots, loading, and replicas that agree.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base::epochs::EpochClock;
use base::partition::OwnedReply;
use base::transaction::{ExpireWhen, Expiry, ScanContents, When};
use base::{Abort, Change, Epoch, Op, Tid, Version};
use kumiki_engine::{SnapshotEntry, SnapshotValue};

use crate::support::replica::{Replica, driven, load};
use crate::support::{holder, put_until};
use testkit::SetOnDrop;

fn entries(replica: &Replica, snapshot: &kumiki_engine::Snapshot) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let visit = |entry: SnapshotEntry<'_>| {
        found.push((entry.key.to_vec(), entry.value.bytes().into_owned()))
    };
    let next = replica.with(|w| w.scan_snapshot(snapshot, b"", None, usize::MAX, visit));
    assert_eq!(next, None);
    found
}

#[test]
fn only_the_applier_moves_the_epoch() {
    let replica = Replica::new();
    let epochs = replica.engine.epochs();
    assert_eq!(
        (epochs.current(), replica.engine.applied()),
        (Epoch(1), Epoch(0))
    );
    replica.with(|w| w.refresh());
    epochs.advance(Epoch(1));
    drop(replica.engine.snapshot());
    replica.tidy();
    assert_eq!(epochs.current(), Epoch(1));
    assert!(replica.engine.applier().is_none(), "there is one");
    let entry = replica.run(1, &[Op::put(b"a", b"1")]);
    assert_eq!(epochs.current(), Epoch(2));
    assert_eq!(
        replica.version(b"a"),
        Version::present(Tid::new(Epoch(1), 0))
    );
    replica.tick(0);
    replica.apply(&entry);
    assert_eq!(replica.engine.applied(), Epoch(3));
    assert_eq!(
        replica.version(b"a"),
        Version::present(Tid::new(Epoch(3), 0))
    );
    let engine = driven();
    drop(engine.applier().unwrap());
    assert!(engine.applier().is_some(), "the first one has gone");
}

#[test]
#[should_panic(expected = "entry 2 cannot be applied after entry 0")]
fn an_entry_out_of_order_is_a_bug() {
    driven().applier().unwrap().skip(Epoch(2), 0);
}

#[test]
#[should_panic(expected = "a driven engine's changes come from its log")]
fn no_other_worker_commits() {
    let replica = Replica::new();
    drop(replica.execute(&[Op::put(b"a", b"")]));
}

#[test]
fn the_last_change_of_a_key_counts() {
    let replica = Replica::new();
    let put = |key, value, generation| Change::Put {
        key,
        value,
        kind: base::transaction::Kind::String,
        generation,
        deadline: None,
        origin: None,
    };
    let changes = [
        put(b"", b"lost", 0),
        put(b"b", b"1", 1),
        Change::Flush { generation: 1 },
        put(b"", b"last", 1),
        put(b"b", b"2", 1),
        Change::Delete {
            key: b"b",
            origin: None,
        },
    ];
    let memory = replica.engine.stats().memory_bytes;
    replica.applier.borrow_mut().apply(Epoch(1), 0, &changes);
    assert_eq!(replica.get(b""), Some(b"last".to_vec()));
    assert_eq!(replica.get(b"b"), None);
    assert_eq!(replica.engine.stats().keys, 1);
    replica.run(1, &[Op::Delete { key: b"" }]);
    replica.tidy();
    replica.tick(0);
    replica.tidy();
    let stats = replica.engine.stats();
    assert_eq!((stats.keys, stats.records), (0, 0));
    assert!(stats.memory_bytes <= memory + 128, "{stats:?}");
}

/// The engine's time stands still while the log does not progress; a lease must not become shorter by
/// that.
#[test]
fn relative_deadlines_count_from_the_clock() {
    let replica = Replica::new();
    replica.engine.set_time_ms(1_000);
    replica.clock.set(1_900);
    replica.run(1, &[Op::put(b"a", b"1")]);
    let in_5s = Op::Expire {
        key: b"a",
        expiry: Expiry::InMs(5_000),
        when: ExpireWhen::Always,
    };
    replica.run(2, &[in_5s]);
    replica.engine.set_time_ms(6_899);
    assert_eq!(replica.get(b"a"), Some(b"1".to_vec()));
    replica.engine.set_time_ms(6_900);
    assert_eq!(replica.get(b"a"), None);
}

#[test]
fn time_can_be_set_and_the_log_has_the_last_word() {
    let replica = Replica::new();
    replica.clock.set(500);
    assert_eq!(replica.engine.time_ms(), 0, "it does not follow the clock");
    replica.engine.set_time_ms(1_000);
    replica.engine.set_time_ms(900);
    assert_eq!(replica.engine.time_ms(), 1_000);
    let in_5s = Op::Put {
        key: b"a",
        value: b"1",
        when: When::Always,
        expiry: Expiry::InMs(5_000),
        get: false,
    };
    let entry = replica.run(1, &[in_5s]);
    assert_eq!(entry.stamp_ms, 1_000);
    replica.tick(500);
    assert_eq!(replica.engine.time_ms(), 1_000, "it never goes back");
    // Running time hides expired keys; they are removed for good by the log's time.
    replica.engine.set_time_ms(6_000);
    assert_eq!(replica.get(b"a"), None);
    replica.tidy();
    assert_eq!(replica.engine.snapshot().time_ms(), 1_000);
    assert_eq!(entries(&replica, &replica.engine.snapshot()).len(), 1);
    assert_eq!(replica.engine.stats().expired, 0);
    replica.tick(6_000);
    replica.tidy();
    assert_eq!(replica.engine.snapshot().time_ms(), 6_000);
    assert_eq!(entries(&replica, &replica.engine.snapshot()), []);
    assert_eq!(replica.engine.stats().expired, 1);
}

#[test]
fn snapshots_are_of_what_was_applied_and_last() {
    let replica = Replica::new();
    let mut views = vec![(replica.engine.snapshot(), Vec::new(), replica.hash())];
    for round in 1..6u8 {
        let value = [b'0' + round];
        replica.run(1, &[Op::put(b"a", &value), Op::put(&value, b"")]);
        let snapshot = replica.engine.snapshot();
        assert_eq!(snapshot.epoch(), replica.engine.applied());
        let expected = entries(&replica, &snapshot);
        assert_eq!(expected.len(), 1 + usize::from(round));
        views.push((snapshot, expected, replica.hash()));
        if round == 3 {
            replica.run(1, &[Op::Flush, Op::put(b"a", b"3"), Op::put(b"1", b"")]);
            replica.run(1, &[Op::put(b"2", b""), Op::put(b"3", b"")]);
        }
        replica.tidy();
        for (snapshot, expected, hash) in &views {
            assert_eq!(&entries(&replica, snapshot), expected);
            assert_eq!(replica.with(|w| w.state_hash(snapshot)), *hash);
        }
    }
    let hashes: Vec<u64> = views.iter().map(|(_, _, hash)| *hash).collect();
    assert!((1..hashes.len()).all(|i| !hashes[..i].contains(&hashes[i])));
}

/// Replicas that have the same log up to an entry have different hashes after different entries.
#[test]
fn the_hash_sees_every_field() {
    let base = |replica: &Replica| replica.run(1, &[Op::put(b"a", b"1"), Op::put(b"b", b"2")]);
    let reference = Replica::new();
    let entry = base(&reference);
    reference.tick(1);
    let variants: [&dyn Fn(&Replica); 6] = [
        &|r| drop(r.run(1, &[Op::put(b"a", b"1")])),
        &|r| drop(r.run(1, &[Op::put(b"c", b"")])),
        &|r| drop(r.run(1, &[Op::Delete { key: b"b" }])),
        &|r| drop(r.run(1, &[put_until(b"a", b"1", 99)])),
        &|r| drop(r.run(1, &[Op::Flush])),
        &|r| {
            r.with(|w| w.stage_refuse(holder(1).id, 99)).unwrap();
            r.apply(&r.entry());
        },
    ];
    let mut hashes = vec![reference.hash()];
    for variant in variants {
        let replica = Replica::new();
        replica.apply(&entry);
        variant(&replica);
        assert_eq!(replica.engine.applied(), Epoch(2));
        hashes.push(replica.hash());
    }
    let same = Replica::new();
    same.apply(&entry);
    same.tick(7);
    assert_eq!(same.hash(), hashes[0]);
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 7);
}

/// Returns a source with flushes, expiries, tombstones, system records, and a long log.
fn source() -> Replica {
    let source = Replica::new();
    source.engine.set_time_ms(1_000);
    source.run(1, &[Op::put(b"old", b"1"), Op::put(b"a", b"0")]);
    source.run(1, &[Op::Flush, Op::put(b"", b"1"), Op::put(b"a", b"1")]);
    for i in 0..3_000u32 {
        source.run(1, &[Op::put(&i.to_be_bytes(), b"x")]);
    }
    source.run(
        1,
        &[
            put_until(b"dead", b"x", 2_000),
            put_until(b"late", b"x", 9_000),
        ],
    );
    source.run(1, &[Op::put(b"gone", b"x")]);
    source.run(1, &[Op::Delete { key: b"gone" }]);
    source
        .stage_prepare(1, &[Op::put(b"p", b"1"), Op::Get { key: b"a" }])
        .unwrap();
    source.apply(&source.entry());
    source.stage_prepare(2, &[Op::put(b"c", b"1")]).unwrap();
    source.apply(&source.entry());
    source.with(|w| w.stage_commit(holder(2).id)).unwrap();
    source.apply(&source.entry());
    source.engine.release(holder(2).id);
    source.tick(3_000);
    source
}

fn same(one: &Replica, other: &Replica) {
    assert_eq!(one.hash(), other.hash());
    let of = |r: &Replica| entries(r, &r.engine.snapshot());
    assert_eq!(of(one), of(other));
    one.tidy();
    other.tidy();
    assert_eq!(one.engine.stats().keys, other.engine.stats().keys);
    assert_eq!(one.engine.time_ms(), other.engine.time_ms());
}

#[test]
fn a_snapshot_is_loaded_into_an_empty_engine() {
    let source = source();
    source.tidy();
    let loaded = Replica::new();
    let before = loaded.version(b"gone");
    loaded.load(&source);
    same(&loaded, &source);
    assert_eq!(loaded.version(b"a"), source.version(b"a"));
    // An absence that was seen before is another one now; one that is seen now stays.
    let gone = Op::Check {
        key: b"gone",
        version: before,
    };
    assert_eq!(loaded.execute(&[gone]), Err(Abort::Precondition { op: 0 }));
    let now = Op::Check {
        key: b"gone",
        version: loaded.version(b"gone"),
    };
    assert_eq!(loaded.execute(&[now]), Ok(vec![OwnedReply::Ok]));
    assert_eq!(loaded.engine.restore_prepared(), Ok(1));
    assert!(matches!(loaded.read(b"p"), Err(Abort::Held { .. })));
    loaded.engine.drop_holds();
    let entry = source.run(1, &[Op::put(b"f", b""), Op::Delete { key: b"late" }]);
    loaded.apply(&entry);
    same(&loaded, &source);
}

#[test]
fn a_snapshot_is_loaded_over_an_older_state() {
    for flushed in [false, true] {
        let source = Replica::new();
        let older = Replica::new();
        let both = |ops: &[Op<'_>]| older.apply(&source.run(1, ops));
        both(&[Op::put(b"same", b"1"), Op::put(b"changed", b"1")]);
        both(&[Op::put(b"gone", b"1"), put_until(b"z", b"1", 5_000)]);
        for i in 0..2_500u32 {
            both(&[Op::put(&i.to_be_bytes(), b"x"), Op::put(b"", b"x")]);
        }
        let before = older.engine.snapshot();
        let was = entries(&older, &before);
        if flushed {
            source.run(1, &[Op::Flush, Op::put(b"same", b"1")]);
            source.run(1, &[Op::put(b"gone", b"1"), Op::put(b"", b"x")]);
        }
        source.run(1, &[Op::put(b"changed", b"2"), Op::put(b"new", b"2")]);
        let gone = Op::Delete { key: b"gone" };
        source.run(1, &[gone, Op::Delete { key: b"" }]);
        older.load(&source);
        assert_eq!(
            entries(&older, &before),
            was,
            "a view that was taken before"
        );
        drop(before);
        same(&older, &source);
        assert_eq!(older.get(b"changed"), Some(b"2".to_vec()));
        assert_eq!((older.get(b"gone"), older.get(b"")), (None, None));
        older.apply(&source.run(1, &[Op::put(b"gone", b"3"), Op::Delete { key: b"same" }]));
        same(&older, &source);
        older.tidy();
        older.tick(9_000);
        older.tidy();
        let live = older.engine.stats().keys;
        assert_eq!(older.engine.stats().records, live);
    }
}

#[test]
fn a_load_that_broke_off_is_begun_again() {
    let (source, loaded) = (source(), Replica::new());
    {
        let mut applier = loaded.applier.borrow_mut();
        let mut loader = applier.load(Epoch(77), 0);
        for key in [&b"a"[..], b"b"] {
            loader.put(&SnapshotEntry {
                key,
                value: SnapshotValue::Bytes(b"half"),
                kind: base::transaction::Kind::String,
                deadline: None,
                tid: Tid::new(Epoch(70), 0),
                generation: 0,
                origin: None,
            });
        }
    }
    assert_eq!(loaded.engine.applied(), Epoch(0));
    loaded.load(&source);
    same(&loaded, &source);
}

#[test]
#[should_panic(expected = "is older than entry 2, which is applied")]
fn an_older_snapshot_is_not_loaded() {
    let replica = Replica::new();
    (0..2).for_each(|_| replica.tick(0));
    drop(replica.applier.borrow_mut().load(Epoch(1), 0));
}

/// Readers of a replica that is being loaded see nonsense, and nothing worse.
#[test]
fn readers_survive_a_load() {
    let (source, loaded) = (source(), Replica::new());
    for i in 0..3_000u32 {
        loaded.run(
            1,
            &[Op::put(&i.to_be_bytes(), b"old"), Op::put(b"gone too", b"")],
        );
    }
    let (stop, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    let snapshot = source.engine.snapshot();
    let engine = loaded.engine.clone();
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let reader = scope.spawn(|| {
            let mut w = engine.worker(|_| kumiki_engine::NoLog).unwrap();
            while !stop.load(Ordering::SeqCst) {
                let scan = Op::Scan {
                    from: b"",
                    to: None,
                    limit: 100,
                    contents: ScanContents::Values,
                };
                let done = w.execute(&[scan, Op::Get { key: b"a" }]).is_ok();
                reads.fetch_add(done.into(), Ordering::SeqCst);
            }
        });
        while !engine.is_busy(6) && !reader.is_finished() {
            std::thread::yield_now();
        }
        load(
            &mut loaded.applier.borrow_mut(),
            &mut source.worker.borrow_mut(),
            &snapshot,
        );
        // All its reads may have met the load.
        let until = Instant::now() + Duration::from_secs(60);
        while reads.load(Ordering::SeqCst) == 0 && Instant::now() < until && !reader.is_finished() {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        reader.join().unwrap();
    });
    assert!(reads.into_inner() > 0);
    same(&loaded, &source);
}

/// Plain Raft: the entry has the operations, and every replica gets the same results.
#[test]
fn entries_of_operations_come_to_the_same_everywhere() {
    let (one, other) = (Replica::new(), Replica::new());
    let mut random = fastrand::Rng::with_seed(5);
    let mut stamp_ms = 1_000;
    let (mut aborted, mut seen) = (0, Vec::<([u8; 1], Version)>::new());
    for index in 1..2_000u64 {
        let keys: Vec<[u8; 1]> = (0..3).map(|_| [random.u8(b'a'..b'k')]).collect();
        let [a, b, c] = [&keys[0][..], &keys[1], &keys[2]];
        let number = index.to_string();
        let in_ms = Expiry::InMs(random.i64(1..60));
        let expire = Op::Put {
            key: b,
            value: b"5",
            when: When::Always,
            expiry: in_ms,
            get: true,
        };
        let mut ops = match random.u8(..100) {
            0 => vec![Op::Flush, Op::put(a, b"1")],
            1..30 => vec![Op::put(a, number.as_bytes()), expire],
            30..50 => vec![Op::Delete { key: a }, Op::Get { key: b }],
            50..70 => vec![Op::Add { key: a, delta: 3 }, Op::Watch { key: b }],
            70..90 => vec![
                Op::put(c, b"x"),
                Op::Require {
                    key: a,
                    present: true,
                },
            ],
            _ => vec![Op::Get { key: a }, Op::Watch { key: b }],
        };
        let watched = seen.pop();
        if let Some((key, version)) = &watched {
            let (key, version) = (&key[..], *version);
            ops.insert(0, Op::Check { key, version });
        }
        ops.push(Op::Count { database: 0 });
        // Now and then the leader's clock is behind.
        stamp_ms = stamp_ms + random.u64(..20) - random.u64(..5);
        let run = |replica: &Replica| {
            let mut applier = replica.applier.borrow_mut();
            applier.execute(Epoch(index), stamp_ms, &ops, &mut |_| ())
        };
        let (outcome, same) = (run(&one), run(&other));
        assert_eq!(outcome, same, "entry {index}");
        aborted += u32::from(outcome.is_err());
        if let Ok([_, OwnedReply::Version(version), _]) = outcome.as_deref() {
            seen.push((keys[1], *version));
        }
        if random.u8(..4) == 0 {
            one.tidy();
        }
        if random.u8(..50) == 0 {
            other.tidy();
        }
        assert_eq!(one.hash(), other.hash(), "entry {index}");
        assert_eq!(one.engine.applied(), Epoch(index));
        if let Ok(replies) = &outcome
            && let [.., OwnedReply::Int(count)] = replies[..]
        {
            let keys = entries(&one, &one.engine.snapshot()).len();
            assert_eq!(count, keys as i64);
        }
    }
    assert!(aborted > 50);
}
