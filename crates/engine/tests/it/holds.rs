//! The holds of transactions under two-phase locking, and their effect on transactions that
//! validate when they commit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::participant::{Prepare, State};
use base::partition::OwnedReply;
use base::transaction::{Holder, ScanContents, When};
use base::{Abort, Op, Timestamp, TransactionId};
use kumiki_engine::{TransactionError, Worker};

use crate::support::{Log, World, holder, holder_of, number, put_until};
use testkit::SetOnDrop;

fn scan<'a>(from: &'a [u8], to: &'a [u8], limit: usize) -> Op<'a> {
    Op::Scan {
        from,
        to: Some(to),
        limit,
        contents: ScanContents::Values,
    }
}

/// Returns a world in which attempt 1 has prepared `ops`, after `before` was done.
fn prepared(before: &[Op<'_>], ops: &[Op<'_>]) -> (World, Worker<Log>) {
    let world = World::new();
    world.run(before);
    let mut w = world.worker();
    world.prepare(&mut w, 1, ops).unwrap();
    (world, w)
}

#[test]
fn a_lone_read_of_what_will_be_written_waits() {
    let (world, mut w) = prepared(&[Op::put(b"a", b"1")], &[Op::put(b"a", b"2")]);
    let alone = [
        Op::Get { key: b"a" },
        Op::Len { key: b"a" },
        Op::Exists { key: b"a" },
        Op::Watch { key: b"a" },
        Op::ExpiryOf { key: b"a" },
    ];
    for op in alone {
        assert_eq!(holder_of(world.try_run(&[op])), holder(1));
    }
    let mut other = world.worker();
    let mut runs = 0;
    let closure = other.transact(|txn| {
        runs += 1;
        Ok(txn.get(b"a")?.map(<[u8]>::to_vec))
    });
    assert_eq!((holder_of(closure), runs), (holder(1), 1), "at once");
    w.commit(holder(1).id).unwrap();
    assert_eq!(world.get(b"a"), Some(b"2".to_vec()));
}

#[test]
fn a_key_that_will_be_made_or_deleted_waits() {
    let ops = [Op::put(b"new", b"x"), Op::Delete { key: b"old" }];
    let (world, mut w) = prepared(&[Op::put(b"old", b"1")], &ops);
    assert_eq!(world.read(b"new"), Err(holder(1)));
    assert_eq!(world.read(b"old"), Err(holder(1)));
    assert_eq!(world.get(b"third"), None, "it is not held");
    w.abort(holder(1).id).unwrap();
    assert_eq!(world.get(b"new"), None);
    assert_eq!(world.get(b"old"), Some(b"1".to_vec()));
}

#[test]
fn results_of_a_held_value_are_not_returned() {
    let (world, _w) = prepared(&[Op::put(b"a", b"1")], &[Op::Delete { key: b"a" }]);
    let absent = Op::Require {
        key: b"a",
        present: false,
    };
    assert_eq!(holder_of(world.try_run(&[absent])), holder(1));
    let mut other = world.worker();
    let cancelled = other.transact(|txn| match txn.get(b"a")? {
        Some(_) => Err(txn.cancel()),
        None => Ok(()),
    });
    assert_eq!(holder_of(cancelled), holder(1));
    // A value of which an operation does not know the type fails the operation only.
    let add = Op::AddDecimal {
        key: b"a",
        delta: b"x",
    };
    assert_eq!(holder_of(world.try_run(&[add])), holder(1));
}

#[test]
fn a_scan_over_what_will_be_written_waits() {
    let before = [Op::put(b"b", b"1"), Op::put(b"d", b"1")];
    let ops = [Op::put(b"b", b"2"), Op::put(b"c", b"x")];
    let (world, _w) = prepared(&before, &ops);
    for (from, to) in [(&b"a"[..], &b"c"[..]), (b"c", b"d")] {
        assert_eq!(holder_of(world.try_run(&[scan(from, to, 9)])), holder(1));
    }
    let pairs = OwnedReply::Pairs(vec![(b"d".to_vec(), b"1".to_vec())]);
    assert_eq!(world.run(&[scan(b"d", b"e", 9)])[0], pairs);
    assert_eq!(holder_of(world.try_run(&[scan(b"", b"z", 2)])), holder(1));
}

/// A transaction was about to commit when the hold was taken.
#[test]
fn a_hold_that_comes_before_the_commit_is_met() {
    for lone in [false, true] {
        let world = World::new();
        world.run(&[Op::put(b"a", b"1"), Op::put(b"b", b"1")]);
        let (mut w, mut other) = (world.worker(), world.worker());
        let mut runs = 0;
        let outcome = other.transact(|txn| {
            runs += 1;
            let value = txn.get(b"a")?;
            if runs == 1 {
                world.prepare(&mut w, 1, &[Op::put(b"a", b"2")]).unwrap();
            }
            if !lone {
                txn.put(b"b", b"2")?;
            }
            Ok(value.map(<[u8]>::to_vec))
        });
        if lone {
            // It has read before the other one was prepared, and nothing else.
            assert_eq!(outcome.unwrap().0, Some(b"1".to_vec()));
        } else {
            assert_eq!(holder_of(outcome), holder(1));
            assert_eq!(world.get(b"b"), Some(b"1".to_vec()));
        }
        assert_eq!(runs, 1);
    }
}

#[test]
fn an_absence_that_was_read_before_a_hold_does_not_commit() {
    let world = World::new();
    let (mut w, mut other) = (world.worker(), world.worker());
    let outcome = other.transact(|txn| {
        let absent = txn.get(b"a")?.is_none() && txn.scan(b"s", Some(b"t"), 9)?.is_empty();
        let ops = [Op::put(b"a", b"1"), Op::put(b"so", b"1")];
        world.prepare(&mut w, 1, &ops).unwrap();
        txn.put(b"b", b"2")?;
        Ok(absent)
    });
    assert_eq!(holder_of(outcome), holder(1));
    assert_eq!(world.get(b"b"), None);
}

#[test]
fn a_scan_of_a_range_meets_new_keys_there() {
    let before = [Op::put(b"m", b"1"), Op::put(b"p", b"1")];
    let (world, mut w) = prepared(&before, &[scan(b"k", b"q", 9)]);
    let mut other = world.worker();
    for key in [&b"k"[..], b"n", b"p0"] {
        assert_eq!(holder_of(other.execute(&[Op::put(key, b"")])), holder(1));
        let closure = other.transact(|txn| txn.put(key, b""));
        assert_eq!(holder_of(closure), holder(1));
        let outcome = world.prepare(&mut w, 2, &[Op::put(key, b"")]);
        assert_eq!(holder_of(outcome), holder(1));
    }
    world.run(&[Op::put(b"j", b""), Op::put(b"q", b"")]);
    // The keys that were present are held individually.
    assert_eq!(holder_of(other.execute(&[Op::put(b"m", b"")])), holder(1));
    assert_eq!(
        holder_of(other.execute(&[Op::Delete { key: b"p" }])),
        holder(1)
    );
    w.commit(holder(1).id).unwrap();
    world.run(&[Op::put(b"n", b""), Op::Delete { key: b"p" }]);
}

#[test]
fn a_deadline_that_passes_changes_nothing_of_what_was_read() {
    let before = [put_until(b"a", b"1", 2_000)];
    let (world, mut w) = prepared(&before, &[Op::Get { key: b"a" }, Op::put(b"b", b"1")]);
    world.clock.set(2_000);
    assert_eq!(world.get(b"a"), None, "readers have their own time");
    world.tidy();
    assert_eq!(holder_of(world.try_run(&[Op::put(b"a", b"2")])), holder(1));
    w.commit(holder(1).id).unwrap();
    world.tidy();
    assert_eq!(world.engine.stats().keys, 1, "reclaimed after the hold");
    world.run(&[Op::put(b"a", b"2")]);
}

#[test]
fn a_deleted_key_that_is_held_stays_until_the_hold_ends() {
    let before = [Op::put(b"a", b"1"), Op::Delete { key: b"a" }];
    let (world, mut w) = prepared(&before, &[Op::Get { key: b"a" }]);
    world.tidy();
    let records = world.engine.stats().records;
    assert_eq!(holder_of(world.try_run(&[Op::put(b"a", b"2")])), holder(1));
    w.abort(holder(1).id).unwrap();
    world.tidy();
    assert_eq!(world.engine.stats().records, records - 2);
}
#[test]
fn readers_share() {
    let (world, mut w) = prepared(&[Op::put(b"a", b"1")], &[Op::Get { key: b"a" }]);
    world.prepare(&mut w, 2, &[Op::Get { key: b"a" }]).unwrap();
    assert_eq!(world.get(b"a"), Some(b"1".to_vec()));
    let mut other = world.worker();
    let outcome = world.prepare(&mut other, 3, &[Op::put(b"a", b"2")]);
    assert_eq!(holder_of(outcome), holder(1), "the oldest one");
    w.commit(holder(1).id).unwrap();
    let outcome = world.prepare(&mut other, 3, &[Op::put(b"a", b"2")]);
    assert_eq!(holder_of(outcome), holder(2));
    w.commit(holder(2).id).unwrap();
    world
        .prepare(&mut other, 3, &[Op::put(b"a", b"2")])
        .unwrap();
    assert_eq!(
        holder_of(world.prepare(&mut w, 4, &[Op::Get { key: b"a" }])),
        holder(3)
    );
}

#[test]
fn writers_exclude_each_other_and_readers() {
    let (world, mut w) = prepared(&[Op::put(b"a", b"1")], &[Op::put(b"a", b"2")]);
    let others = [
        Op::put(b"a", b"3"),
        Op::Get { key: b"a" },
        Op::Require {
            key: b"a",
            present: false,
        },
        scan(b"", b"z", 9),
    ];
    for op in others {
        let ops = [Op::put(b"other", b"x"), op];
        assert_eq!(holder_of(world.prepare(&mut w, 2, &ops)), holder(1));
        assert_eq!(world.state(2), State::Unknown);
    }
    assert_eq!(holder_of(world.try_run(&[Op::put(b"a", b"3")])), holder(1));
    assert_eq!(
        holder_of(world.try_run(&[Op::Delete { key: b"a" }])),
        holder(1)
    );
    assert_eq!(world.get(b"other"), None);
}

/// A transaction that needs a key twice holds it once.
#[test]
fn one_may_read_and_write_the_same_key() {
    let world = World::new();
    let mut w = world.worker();
    let ops = [
        Op::Get { key: b"a" },
        Op::put(b"a", b"1"),
        Op::Get { key: b"a" },
        scan(b"", b"z", 9),
        Op::Get { key: b"b" },
        Op::Get { key: b"b" },
        Op::put(b"c", b"1"),
        Op::put(b"c", b"2"),
    ];
    let replies = world.prepare(&mut w, 1, &ops).unwrap();
    let pairs = OwnedReply::Pairs(vec![(b"a".to_vec(), b"1".to_vec())]);
    assert_eq!(replies[3], pairs);
    w.commit(holder(1).id).unwrap();
    assert_eq!(world.get(b"a"), Some(b"1".to_vec()));
    assert_eq!(world.get(b"c"), Some(b"2".to_vec()));
    world.run(&[Op::put(b"a", b""), Op::put(b"b", b""), Op::put(b"c", b"")]);
}

#[test]
fn an_absence_is_held() {
    let absent = Op::Require {
        key: b"a",
        present: false,
    };
    let (world, mut w) = prepared(&[], &[absent]);
    assert_eq!(holder_of(world.try_run(&[Op::put(b"a", b"1")])), holder(1));
    assert_eq!(world.get(b"a"), None);
    world.tidy();
    assert_eq!(holder_of(world.try_run(&[Op::put(b"a", b"1")])), holder(1));
    w.commit(holder(1).id).unwrap();
    world.run(&[Op::put(b"a", b"1")]);
}

#[test]
fn a_flush_waits_for_all_prepared_transactions() {
    let (world, mut w) = prepared(&[Op::put(b"a", b"1")], &[Op::put(b"b", b"1")]);
    assert_eq!(holder_of(world.try_run(&[Op::Flush])), holder(1));
    let mut other = world.worker();
    assert_eq!(
        holder_of(world.prepare(&mut other, 2, &[Op::Flush])),
        holder(1)
    );
    world.run(&[Op::put(b"a", b"2")]);
    w.commit(holder(1).id).unwrap();
    world.run(&[Op::Flush]);
    assert_eq!(world.get(b"b"), None);
}

#[test]
fn a_limited_scan_holds_only_what_it_has_read() {
    let before = [Op::put(b"b", b""), Op::put(b"d", b""), Op::put(b"f", b"")];
    let (world, _w) = prepared(&before, &[scan(b"a", b"z", 2)]);
    world.run(&[Op::put(b"e", b""), Op::put(b"f", b"1")]);
    assert_eq!(holder_of(world.try_run(&[Op::put(b"c", b"")])), holder(1));
}

/// A scan that reaches its limit with a key of its own has read up to that key.
#[test]
fn a_scan_that_ends_with_an_own_key_is_validated_up_to_it() {
    let world = World::new();
    world.run(&[Op::put(b"a", b""), Op::put(b"z", b"")]);
    let mut w = world.worker();
    let mut runs = 0;
    let outcome = w.transact(|txn| {
        runs += 1;
        txn.put(b"k", b"")?;
        let pairs = txn.scan(b"a", None, 2)?;
        let keys: Vec<Vec<u8>> = pairs.iter().map(|(key, _)| key.to_vec()).collect();
        if runs == 1 {
            world.run(&[Op::put(b"b", b"")]);
        }
        Ok(keys)
    });
    assert_eq!(outcome.unwrap().0, [b"a".to_vec(), b"b".to_vec()]);
    assert_eq!(runs, 2);
}

/// Flushed keys are removed in the end, also those that were held as absent when the others were
/// removed.
#[test]
fn a_flushed_key_that_was_held_is_swept_later() {
    let world = World::new();
    let keys: Vec<[u8; 1]> = (0..50).map(|key| [key]).collect();
    keys.iter()
        .for_each(|key| drop(world.run(&[Op::put(key, b"x")])));
    world.run(&[Op::Flush]);
    let mut w = world.worker();
    world.prepare(&mut w, 1, &[Op::Get { key: &[20] }]).unwrap();
    world.tidy();
    assert_eq!(world.get(&[20]), None);
    w.commit(holder(1).id).unwrap();
    w.forget(holder(1).id).unwrap();
    world.tidy();
    assert_eq!(world.engine.stats().records, 0);
}

/// Keys that are held while the table of hints is replaced are found afterwards.
#[test]
fn held_keys_are_found_in_a_new_table_of_hints() {
    let world = World::new();
    let mut w = world.worker();
    let keys: Vec<[u8; 4]> = (0..50_u32).map(u32::to_be_bytes).collect();
    let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::put(key, b"x")).collect();
    world.prepare(&mut w, 1, &ops).unwrap();
    for key in 1_000..20_000_u32 {
        world.run(&[Op::put(&key.to_be_bytes(), b"y")]);
    }
    (0..5).for_each(|_| world.tidy());
    w.commit(holder(1).id).unwrap();
    for key in &keys {
        assert_eq!(world.get(key), Some(b"x".to_vec()));
    }
}

/// Some transactions insert and delete keys and count them; a transaction that scans and is
/// prepared finds as many keys as are counted.
#[test]
fn a_prepared_scan_agrees_with_what_was_counted() {
    let world = World::new();
    world.run(&[Op::put(b"count", b"0")]);
    let stop = AtomicBool::new(false);
    let workers = [(); 2].map(|()| world.worker());
    let (mut w, mut wrong) = (world.worker(), None);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        for (mut w, thread) in workers.into_iter().zip(0_u8..) {
            let stop = &stop;
            scope.spawn(move || {
                // The keys are always new, without a record; old ones are removed.
                for round in 0_u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = |number: u32| [&b"k"[..], &[thread], &number.to_be_bytes()].concat();
                    let (new, old) = (key(round), key(round.wrapping_sub(100)));
                    let (count, delta) = (b"count", 1);
                    let insert = [Op::put(&new, b""), Op::Add { key: count, delta }];
                    patiently(stop, || w.execute(&insert).map(|_| ()));
                    let delete = [
                        Op::Require {
                            key: &old,
                            present: true,
                        },
                        Op::Delete { key: &old },
                        Op::Add {
                            key: count,
                            delta: -1,
                        },
                    ];
                    if round >= 100 {
                        patiently(stop, || w.execute(&delete).map(|_| ()));
                    }
                    // Otherwise no scan would ever be valid.
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
        }
        let ops = [scan(b"k", b"l", 10_000), Op::Get { key: b"count" }];
        let start = Instant::now();
        for attempt in 1..500 {
            let Some(replies) = patiently(&stop, || world.prepare(&mut w, attempt, &ops)) else {
                break;
            };
            let OwnedReply::Pairs(pairs) = &replies[0] else {
                unreachable!("what a scan answers");
            };
            let found = (pairs.len() as i64, number(&replies[1].as_reply()));
            w.commit(holder(attempt).id).unwrap();
            w.forget(holder(attempt).id).unwrap();
            world.tidy();
            wrong = (found.0 != found.1).then_some(found);
            if wrong.is_some() || start.elapsed() > PATIENCE {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong, None, "keys that were scanned, and that were counted");
}

/// The time for which a test continues on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const ACCOUNTS: u64 = 12;
const START: i64 = 100;

fn account(number: u64) -> Vec<u8> {
    format!("account {number}").into_bytes()
}

/// Draws two accounts and an amount.
fn transfer(random: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>, i64) {
    let from = random.u64(0..ACCOUNTS);
    let to = (from + random.u64(1..ACCOUNTS)) % ACCOUNTS;
    (account(from), account(to), random.i64(1..5))
}

/// Tries again until no transaction holds the needed records, or the test is over.
fn patiently<T>(stop: &AtomicBool, mut attempt: impl FnMut() -> Result<T, Abort>) -> Option<T> {
    loop {
        match attempt() {
            Ok(done) => return Some(done),
            Err(Abort::Held { .. } | Abort::Overtaken { .. } | Abort::Conflict { .. }) => {
                if stop.load(Ordering::Relaxed) {
                    return None;
                }
                std::thread::yield_now();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Moves amounts by transactions of one partition, and in two phases of which a third never
/// happens. A reader of all accounts at once finds them with the same sum.
fn move_amounts() -> Result<(), String> {
    let world = World::new();
    for number in 0..ACCOUNTS {
        world.run(&[Op::put(&account(number), START.to_string().as_bytes())]);
    }
    let (stop, clock) = (AtomicBool::new(false), AtomicU64::new(0));
    let (moved, looked) = (AtomicU64::new(0), AtomicU64::new(0));
    let wrong = std::sync::Mutex::new(None);
    let one_partition = |mut w: Worker<Log>, seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        while !stop.load(Ordering::Relaxed) {
            let (from, to, amount) = transfer(&mut random);
            let done = patiently(&stop, || {
                w.transact(|txn| {
                    for (key, by) in [(&from, -amount), (&to, amount)] {
                        let old = txn.get(key)?.expect("accounts stay");
                        let new = number(&base::Reply::Bytes(old)) + by;
                        txn.put(key, new.to_string().as_bytes())?;
                    }
                    Ok(())
                })
            });
            moved.fetch_add(u64::from(done.is_some()), Ordering::Relaxed);
        }
    };
    let two_phases = |mut w: Worker<Log>, seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        while !stop.load(Ordering::Relaxed) {
            let (from, to, amount) = transfer(&mut random);
            let ops = [(&from, -amount), (&to, amount)].map(|(key, delta)| Op::Add { key, delta });
            let id = patiently(&stop, || {
                let timestamp = Timestamp(clock.fetch_add(1, Ordering::SeqCst) + 1);
                let unique = seed;
                let holder = Holder {
                    id: TransactionId { timestamp, unique },
                    age: timestamp,
                };
                let prepare = Prepare {
                    holder,
                    ops: &ops,
                    siblings: b"",
                    note: b"",
                    isolation: base::participant::Isolation::Serializable,
                };
                w.prepare(&prepare).map(|_| holder.id)
            });
            let Some(id) = id else { return };
            for _ in 0..random.u32(0..3) {
                std::thread::yield_now();
            }
            if random.u8(..3) == 0 {
                assert_eq!(w.abort(id).unwrap().0, State::Prepared(Vec::new()));
            } else {
                assert_eq!(w.commit(id).unwrap().0, State::Prepared(Vec::new()));
                w.forget(id).unwrap();
                moved.fetch_add(1, Ordering::Relaxed);
            }
            // Otherwise some account is always held, and no reader can read them all.
            std::thread::sleep(Duration::from_micros(300));
        }
    };
    let looks = |mut w: Worker<Log>| {
        let all: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
        let ops: Vec<Op<'_>> = all.iter().map(|key| Op::Get { key }).collect();
        while !stop.load(Ordering::Relaxed) {
            let sum = patiently(&stop, || {
                w.refresh();
                let done = w.execute(&ops)?;
                Ok(done.replies().iter().map(number).sum::<i64>())
            });
            let Some(sum) = sum else { return };
            looked.fetch_add(1, Ordering::Relaxed);
            if sum != START * ACCOUNTS as i64 {
                *wrong.lock().unwrap() = Some(format!("a sum of {sum} was seen"));
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    let workers = [(); 5].map(|()| world.worker());
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let [a, b, c, d, e] = workers;
        let threads = [
            scope.spawn(|| one_partition(a, 1)),
            scope.spawn(|| one_partition(b, 2)),
            scope.spawn(|| two_phases(c, 3)),
            scope.spawn(|| two_phases(d, 4)),
            scope.spawn(|| looks(e)),
        ];
        let start = Instant::now();
        let enough = || {
            let (moved, looked) = (
                moved.load(Ordering::Relaxed),
                looked.load(Ordering::Relaxed),
            );
            moved > 20_000 && looked > 1_000
        };
        while !enough() && start.elapsed() < PATIENCE && !stop.load(Ordering::Relaxed) {
            world.tidy();
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        drop(threads);
    });
    if let Some(wrong) = wrong.into_inner().unwrap() {
        return Err(wrong);
    }
    let sum = |world: &World| -> i64 {
        let all = (0..ACCOUNTS).map(account);
        all.map(|key| number(&base::Reply::Bytes(&world.get(&key).unwrap())))
            .sum()
    };
    // The transactions that gave up had left nothing behind.
    assert_eq!(world.undecided(), []);
    for world in [&world, &world.restarted()] {
        if sum(world) != START * ACCOUNTS as i64 {
            return Err(format!("a sum of {} is left", sum(world)));
        }
    }
    assert!(looked.into_inner() > 0 && moved.into_inner() > 0);
    Ok(())
}

#[test]
fn amounts_that_are_moved_both_ways_keep_their_sum() {
    move_amounts().unwrap();
}

#[test]
fn a_closure_gets_the_reason() {
    let (world, _w) = prepared(&[], &[Op::put(b"a", b"1")]);
    let mut other = world.worker();
    let outcome = other.transact(|txn| {
        txn.put(b"a", b"2")?;
        Ok::<_, TransactionError>(())
    });
    assert_eq!(outcome.err(), Some(Abort::Held { by: holder(1) }));
    let put = Op::Put {
        key: b"a",
        value: b"",
        when: When::Absent,
        expiry: base::transaction::Expiry::Never,
        get: false,
    };
    assert_eq!(holder_of(other.execute(&[put])), holder(1));
}

#[test]
fn keys_can_be_held_without_a_trace() {
    let world = World::new();
    let (mut w, mut other) = (world.worker(), world.worker());
    world.run(&[Op::put(b"a", b"1")]);
    world.tidy();
    let (clean, log) = (world.engine.stats(), world.log.entries.lock().len());
    let reads = [Op::Watch { key: b"a" }, Op::Watch { key: b"absent" }];
    w.hold(&reads, holder(1)).unwrap();
    other.hold(&reads[..1], holder(3)).unwrap();
    for write in [Op::put(b"a", b"2"), Op::put(b"absent", b"2"), Op::Flush] {
        let held = other.execute(std::slice::from_ref(&write)).map(drop);
        assert_eq!(held, Err(Abort::Held { by: holder(1) }), "{write:?}");
    }
    let held = world.prepare(&mut other, 2, &[Op::put(b"a", b"2")]);
    assert_eq!(held, Err(Abort::Held { by: holder(1) }));
    assert_eq!(world.get(b"a"), Some(b"1".to_vec()), "others may read");
    let releases = world.engine.releases();
    world.engine.end_hold(holder(1).id);
    assert_eq!(world.engine.releases(), releases + 1);
    let held = other.execute(&[Op::put(b"a", b"2")]).map(drop);
    assert_eq!(held, Err(Abort::Held { by: holder(3) }));
    for id in [3, 3, 1] {
        world.engine.end_hold(holder(id).id);
    }
    world.tidy();
    assert_eq!(world.engine.stats().records, clean.records);
    assert_eq!(world.log.entries.lock().len(), log, "nothing is logged");
    world.run(&[Op::put(b"a", b"2"), Op::put(b"absent", b"2")]);
    // Keys that others will write are not to be had.
    world
        .prepare(&mut other, 4, &[Op::put(b"a", b"3")])
        .unwrap();
    let held = w.hold(&reads, holder(5));
    assert_eq!(held, Err(Abort::Held { by: holder(4) }));
    other.commit(holder(4).id).unwrap();
    w.hold(&reads, holder(5)).unwrap();
}
