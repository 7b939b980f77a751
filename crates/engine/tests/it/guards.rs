//! Guards and the time: their answers, the tokens that are stored, and their serializability with all
//! other operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use base::limits::Limits;
use base::partition::OwnedReply;
use base::transaction::{Expiry, ScanContents};
use base::{Abort, Op};

use crate::support::replica::{Replica, stager};
use crate::support::{World, holder, holder_of, prepared};

const LOCK: &[u8] = b"lock";

fn guard(token: u64) -> Op<'static> {
    Op::Guard { lock: LOCK, token }
}

fn stale(token: u64, highest: u64) -> Abort {
    let lock = LOCK.to_vec();
    Abort::Stale {
        lock,
        token,
        highest,
    }
}

fn count(world: &World) -> (OwnedReply, OwnedReply) {
    let scan = Op::Scan {
        from: b"",
        to: None,
        limit: 100,
        contents: ScanContents::Keys,
    };
    let mut replies = world.run(&[Op::Count { database: 0 }, scan]);
    let pairs = replies.remove(1);
    (replies.remove(0), pairs)
}

#[test]
fn a_token_below_the_greatest_aborts() {
    let world = World::new();
    let done = world.run(&[guard(5), Op::put(b"a", b"1")]);
    assert_eq!(done, [OwnedReply::Ok, OwnedReply::Ok]);
    let refused = world.try_run(&[guard(4), Op::put(b"a", b"2")]);
    assert_eq!(refused, Err(stale(4, 5)));
    // Wherever the guard stands, nothing of the transaction has happened.
    let refused = world.try_run(&[Op::put(b"a", b"2"), Op::Flush, guard(4)]);
    assert_eq!(refused, Err(stale(4, 5)));
    assert_eq!(world.get(b"a"), Some(b"1".to_vec()));
    world.run(&[guard(5), Op::put(b"a", b"2")]);
    world.run(&[guard(u64::MAX), Op::put(b"a", b"3")]);
    assert_eq!(world.try_run(&[guard(6)]), Err(stale(6, u64::MAX)));
    // Another lock has tokens of its own, also one whose name looks like this one's record.
    let locks: [&[u8]; 4] = [b"", b"lock2", &[0xff; 40], &[0; 8]];
    for lock in locks {
        world.run(&[Op::Guard { lock, token: 0 }, Op::put(b"a", b"4")]);
    }
    assert_eq!(world.try_run(&[guard(6)]), Err(stale(6, u64::MAX)));
    // Tokens of one transaction follow each other.
    let of = |token| Op::Guard {
        lock: b"other",
        token,
    };
    world.run(&[of(1), of(3), of(3)]);
    assert!(world.try_run(&[of(5), of(4)]).is_err());
    world.run(&[of(4)]);
}

#[test]
fn no_flush_forgets_a_token_and_no_client_sees_it() {
    let world = World::new();
    world.run(&[Op::put(b"a", b"1")]);
    let before = count(&world);
    world.run(&[guard(5), Op::Get { key: b"a" }]);
    assert_eq!(count(&world), before);
    assert_eq!(world.engine.stats().keys, 1);
    world.run(&[guard(6), Op::Flush, Op::put(b"b", b"1")]);
    world.run(&[Op::Flush]);
    world.tidy();
    assert_eq!(world.try_run(&[guard(5)]), Err(stale(5, 6)));
    assert_eq!(world.engine.stats().keys, 0);
    assert_eq!(world.undecided(), []);
    // The record's key is reserved, as all of these are.
    let key = [&[0xff; 33][..], LOCK].concat();
    let reserved = OwnedReply::Error(base::OpError::Reserved);
    assert_eq!(world.run(&[Op::put(&key, b"x")]), [reserved]);
    assert_eq!(world.get(&key), None);
}

#[test]
fn names_of_locks_are_limited() {
    let limits = Limits {
        key: 100,
        ..Limits::default()
    };
    let world = World::with(limits);
    let guard = |lock| Op::Guard { lock, token: 1 };
    world.run(&[guard(&[7; 67])]);
    let what = "the length of a lock's name";
    assert_eq!(
        world.try_run(&[guard(&[7; 68])]),
        Err(Abort::TooLarge { what })
    );
}

#[test]
fn tokens_survive_restarts() {
    let world = World::new();
    world.run(&[guard(5), Op::put(b"a", b"1")]);
    world.run(&[guard(7), Op::Flush]);
    let again = world.restarted().restarted();
    again.tidy();
    assert_eq!(again.try_run(&[guard(6)]), Err(stale(6, 7)));
    again.run(&[guard(7), Op::put(b"a", b"2")]);
}

#[test]
fn what_is_prepared_with_a_token_holds_it() {
    let world = World::new();
    let mut w = world.worker();
    world.run(&[guard(3)]);
    world
        .prepare(&mut w, 1, &[guard(5), Op::put(b"a", b"1")])
        .unwrap();
    let mut world = world;
    for _ in 0..2 {
        // It is not known yet if 5 will have been seen.
        for token in [3, 4, 5, 6] {
            assert_eq!(holder_of(world.try_run(&[guard(token)])), holder(1));
        }
        assert_eq!(world.state(1), prepared());
        drop(w);
        world = world.restarted();
        w = world.worker();
    }
    w.abort(holder(1).id).unwrap();
    world.run(&[guard(4)]);
    world
        .prepare(&mut w, 2, &[guard(5), Op::put(b"a", b"1")])
        .unwrap();
    w.commit(holder(2).id).unwrap();
    assert_eq!(world.try_run(&[guard(4)]), Err(stale(4, 5)));
    let refused = world.prepare(&mut w, 3, &[guard(4), Op::put(b"a", b"2")]);
    assert_eq!(refused, Err(stale(4, 5)));
    // Transactions with the greatest token share it, and one with a greater token waits for them.
    world
        .prepare(&mut w, 4, &[guard(5), Op::put(b"b", b"1")])
        .unwrap();
    world
        .prepare(&mut w, 5, &[guard(5), Op::put(b"c", b"1")])
        .unwrap();
    world.run(&[guard(5), Op::put(b"d", b"1")]);
    assert!(holder_of(world.try_run(&[guard(6)])) == holder(4));
    assert_eq!(world.try_run(&[guard(4)]), Err(stale(4, 5)), "is final");
    w.commit(holder(4).id).unwrap();
    w.abort(holder(5).id).unwrap();
    world.run(&[guard(6)]);
    let again = world.restarted();
    assert_eq!(again.try_run(&[guard(5)]), Err(stale(5, 6)));
}

#[test]
fn replicas_have_the_same_tokens() {
    let (leader, follower) = (Replica::new(), Replica::new());
    let run = |number, ops: &[Op<'_>]| follower.apply(&leader.run(number, ops));
    run(1, &[guard(5), Op::put(b"a", b"1")]);
    run(2, &[guard(5), Op::put(b"a", b"2")]);
    // It is held from its staging until it is applied.
    leader.stage(3, &[guard(6), Op::put(b"b", b"1")]).unwrap();
    assert_eq!(
        holder_of(leader.stage(4, &[guard(6), Op::put(b"c", b"1")])),
        stager(3)
    );
    let entry = leader.entry();
    leader.apply(&entry);
    leader.engine.release(stager(3).id);
    follower.apply(&entry);
    run(5, &[Op::Flush]);
    for replica in [&leader, &follower] {
        assert_eq!(
            replica.stage(6, &[guard(5), Op::put(b"c", b"1")]),
            Err(stale(5, 6))
        );
    }
    // Entries of operations give the same results on all replicas.
    for replica in [&leader, &follower] {
        let index = replica.engine.applied().next();
        let mut applier = replica.applier.borrow_mut();
        let done = applier.execute(index, 900, &[guard(8), Op::Now], &mut |_| ());
        assert_eq!(done, Ok(vec![OwnedReply::Ok, OwnedReply::Int(900)]));
        let refused = applier.execute(index.next(), 800, &[guard(7), Op::Now], &mut |_| ());
        assert_eq!(refused, Err(stale(7, 8)));
        let done = applier.execute(index.next().next(), 800, &[Op::Now], &mut |_| ());
        assert_eq!(done, Ok(vec![OwnedReply::Int(900)]), "it does not go back");
    }
    let hash = |replica: &Replica| {
        let snapshot = replica.engine.snapshot();
        replica.with(|worker| worker.state_hash(&snapshot))
    };
    assert_eq!(hash(&leader), hash(&follower));
}

/// Guards behave like any other operation: operations of all kinds are compared with a map.
#[test]
fn random_guards_do_as_a_map_says() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let mut tokens: BTreeMap<u8, u64> = BTreeMap::new();
        let mut sum = 0;
        for _ in 0..60 {
            if random.u8(..20) == 0 {
                world = world.restarted();
            }
            // Flushes need it.
            world.tidy();
            let names: Vec<[u8; 1]> = (0..4).map(|_| [random.u8(..3)]).collect();
            let mut ops = Vec::new();
            let (mut after, mut stale, mut added) = (tokens.clone(), false, 0);
            for name in names.iter().take(random.usize(1..4)) {
                let token = random.u64(..30);
                ops.push(Op::Guard { lock: name, token });
                let seen = after.entry(name[0]).or_default();
                stale |= token < *seen;
                *seen = token.max(*seen);
            }
            match random.u8(..3) {
                0 => ops.push(Op::Get { key: b"n" }),
                1 => {
                    let delta = random.i64(1..5);
                    ops.insert(random.usize(..=ops.len()), Op::Add { key: b"n", delta });
                    added = delta;
                }
                _ => {
                    ops.push(Op::Flush);
                    added = -sum;
                }
            }
            let prepares = random.bool();
            let outcome = if prepares {
                let (mut w, number) = (world.worker(), random.u64(..) >> 8);
                let outcome = world.prepare(&mut w, number, &ops);
                let commits = random.bool();
                if outcome.is_ok() && !commits {
                    w.abort(holder(number).id).unwrap();
                    continue;
                }
                w.commit(holder(number).id).unwrap();
                w.forget(holder(number).id).unwrap();
                outcome
            } else {
                world.try_run(&ops)
            };
            if let (true, Err(Abort::Overtaken { .. })) = (prepares, &outcome) {
                continue;
            }
            assert_eq!(outcome.is_err(), stale, "seed {seed}: {ops:?} {outcome:?}");
            if !stale {
                (tokens, sum) = (after, sum + added);
            }
            let value = world.get(b"n").map_or(0, |value| {
                std::str::from_utf8(&value).unwrap().parse::<i64>().unwrap()
            });
            assert_eq!(value, sum, "seed {seed}");
        }
    }
}

/// Threads draw tokens and write them under a guard, in no particular order: a token that is stored
/// is never replaced by an earlier one.
#[test]
fn tokens_never_go_back_in_the_order_of_transactions() {
    let world = World::new();
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (mut w, next) = (world.worker(), &next);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let (mut passed, mut refused) = (0, 0);
                for _ in 0..3_000 {
                    let token = next.fetch_add(1, Ordering::SeqCst);
                    for _ in 0..random.u32(..200) {
                        std::hint::spin_loop();
                    }
                    let text = token.to_string();
                    let (key, value) = (b"newest", text.as_bytes());
                    let put = Op::Put {
                        key,
                        value,
                        when: base::transaction::When::Always,
                        expiry: Expiry::Never,
                        get: true,
                    };
                    match w.execute(&[guard(token), put]) {
                        Ok(done) => {
                            passed += 1;
                            if let base::Reply::Bytes(old) = done.replies()[1] {
                                let old: u64 = std::str::from_utf8(old).unwrap().parse().unwrap();
                                assert!(old < token, "{token} after {old}");
                            }
                        }
                        Err(Abort::Stale { highest, .. }) => {
                            refused += 1;
                            assert!(highest > token);
                        }
                        // The thread that had the key locked was not scheduled for long.
                        Err(Abort::Conflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                assert!(passed > 0, "{passed} passed, {refused} were refused");
            });
        }
    });
    let newest = world.get(b"newest").unwrap();
    let newest: u64 = std::str::from_utf8(&newest).unwrap().parse().unwrap();
    assert_eq!(world.try_run(&[guard(0)]), Err(stale(0, newest)));
}

#[test]
fn the_time_is_that_of_the_transaction() {
    let world = World::new();
    assert_eq!(world.run(&[Op::Now]), [OwnedReply::Int(1_000)]);
    world.clock.set(2_500);
    let put = Op::Put {
        key: b"k",
        value: b"v",
        when: base::transaction::When::Always,
        expiry: Expiry::InMs(10),
        get: false,
    };
    let done = world.run(&[Op::Now, put, Op::ExpiryOf { key: b"k" }, Op::Now]);
    let expected = [
        OwnedReply::Int(2_500),
        OwnedReply::Ok,
        OwnedReply::Deadline(Some(2_510)),
        OwnedReply::Int(2_500),
    ];
    assert_eq!(done, expected);
    // It does not follow a clock that steps back.
    world.clock.set(1_000);
    assert_eq!(world.run(&[Op::Now]), [OwnedReply::Int(2_500)]);
    assert_eq!(world.engine.stats().keys, 1, "nothing of it is a key");
}

/// A time that was answered is in the log, also if nothing else was to be written.
#[test]
fn an_answered_time_is_logged() {
    let world = World::new();
    world.clock.set(7_000);
    world.run(&[Op::Now, Op::Get { key: b"k" }]);
    assert_eq!(world.log.stamp_ms.load(Ordering::SeqCst), 7_000);
    assert_eq!(world.log.entries.lock().len(), 1);
    world.clock.set(8_000);
    world.run(&[Op::Get { key: b"k" }]);
    assert_eq!(world.log.entries.lock().len(), 1, "no client was answered");
    *world.log.broken.lock() = Some("the disk is full");
    assert!(world.try_run(&[Op::Now]).is_err());
}

/// Time that passed between execution and commit makes a transaction that has answered its time
/// execute again: in the order of transactions the answered times do not go back.
#[test]
fn answered_times_never_go_back_in_the_order_of_transactions() {
    let world = World::new();
    let stop = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (clock, stop) = (&world.clock, &stop);
        scope.spawn(move || {
            for now in 1_001..4_000 {
                clock.set(now);
                std::thread::yield_now();
            }
            stop.store(1, Ordering::SeqCst);
        });
        for _ in 0..3 {
            let mut w = world.worker();
            scope.spawn(move || {
                let mut told = 0;
                while stop.load(Ordering::SeqCst) == 0 {
                    w.refresh();
                    // The value is the time at which the last one was executed.
                    let ops = [Op::Now, Op::Get { key: b"told" }];
                    let (now, before) = {
                        let done = w.execute(&ops).unwrap();
                        let base::Reply::Int(now) = done.replies()[0] else {
                            panic!("{:?}", done.replies())
                        };
                        let before = match done.replies()[1] {
                            base::Reply::Bytes(text) => {
                                std::str::from_utf8(text).unwrap().parse().unwrap()
                            }
                            _ => 0,
                        };
                        (now, before)
                    };
                    assert!(now >= before, "{now} after {before}");
                    told = now.max(told);
                    let text = told.to_string();
                    // Other threads may have written a later time since.
                    let check = [Op::Now, Op::put(b"told", text.as_bytes())];
                    let done = w.execute(&check).unwrap();
                    let base::Reply::Int(later) = done.replies()[0] else {
                        panic!("{:?}", done.replies())
                    };
                    assert!(later >= told);
                }
            });
        }
    });
}
