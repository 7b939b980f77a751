//! Guards and the time: the partitions that get them, and what is refused.

use std::collections::BTreeMap;

use base::partition::OwnedReply;
use base::{Abort, Op};

use crate::protocol::bottle::Bottle;
use crate::protocol::{assert_clean, bytes, get, is_decision, put, three};

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

fn tokens(bottle: &Bottle) -> Vec<u64> {
    let models = bottle.models.iter();
    models.map(|model| model.token(LOCK)).collect()
}

fn run(
    bottle: &mut Bottle,
    at: usize,
    caller: u32,
    ops: &[Op<'_>],
) -> Result<Vec<OwnedReply>, Abort> {
    bottle.begin(at, caller, ops);
    bottle.pass_all();
    bottle.outcome(caller).expect("it has ended").clone()
}

#[test]
fn every_partition_that_takes_part_gets_the_guard() {
    let (mut bottle, [a, b, c]) = three();
    let done = run(&mut bottle, 0, 1, &[guard(5), put(&a, "1"), put(&b, "2")]);
    assert_eq!(done, Ok(vec![OwnedReply::Ok; 3]));
    assert_eq!(tokens(&bottle), [5, 5, 0]);
    // A partition that does not know of a newer token is asked together with one that does.
    let done = run(&mut bottle, 2, 2, &[guard(4), put(&c, "x"), put(&b, "x")]);
    assert_eq!(done, Err(stale(4, 5)));
    assert_eq!(tokens(&bottle), [5, 5, 0]);
    assert_eq!(bottle.models[2].value(&c), None);
    // Each of several guards is answered in its place.
    let other = Op::Guard {
        lock: b"other",
        token: 9,
    };
    let ops = [get(&b), guard(6), put(&c, "3"), other];
    let done = run(&mut bottle, 1, 3, &ops);
    let expected = [bytes("2"), OwnedReply::Ok, OwnedReply::Ok, OwnedReply::Ok];
    assert_eq!(done, Ok(expected.to_vec()));
    assert_eq!(tokens(&bottle), [5, 6, 6]);
    assert_clean(&mut bottle);
}

#[test]
fn a_guarded_transaction_of_one_partition_goes_there_whole() {
    let (mut bottle, [a, b, _]) = three();
    let done = run(
        &mut bottle,
        0,
        1,
        &[guard(3), put(&b, "1"), Op::Now, get(&b)],
    );
    let done = done.unwrap();
    assert_eq!(done[2], OwnedReply::Int(1_000_000));
    assert_eq!(
        (done.len(), bottle.passed.join(", ")),
        (4, "2 execute, 1 reply".into())
    );
    assert_eq!(tokens(&bottle), [0, 3, 0]);
    let done = run(&mut bottle, 0, 2, &[guard(2), put(&b, "2")]);
    assert_eq!(done, Err(stale(2, 3)));
    assert_eq!(
        run(&mut bottle, 0, 3, &[guard(1), get(&a)]),
        Ok(vec![OwnedReply::Ok, OwnedReply::Nil])
    );
}

/// A guarded read is not a read that needs no votes.
#[test]
fn reads_of_several_partitions_are_guarded() {
    let (mut bottle, [a, b, _]) = three();
    assert!(run(&mut bottle, 0, 1, &[guard(7), get(&a), get(&b)]).is_ok());
    assert_eq!(tokens(&bottle), [7, 7, 0]);
    let done = run(&mut bottle, 1, 2, &[get(&a), guard(6), get(&b)]);
    assert_eq!(done, Err(stale(6, 7)));
    assert_clean(&mut bottle);
}

#[test]
fn guards_alone_and_the_time_of_several_partitions_are_refused() {
    let (mut bottle, [a, b, _]) = three();
    for (caller, (ops, word)) in (1..).zip([
        (vec![guard(1)], "guards nothing"),
        (vec![guard(1), Op::Now], "guards nothing"),
        (vec![Op::Now, get(&a), get(&b)], "a time of its own"),
        (
            vec![put(&a, "1"), put(&b, "1"), Op::Now],
            "a time of its own",
        ),
    ]) {
        let done = run(&mut bottle, 0, caller, &ops);
        let Err(Abort::Unsupported { what }) = &done else {
            panic!("{ops:?}: {done:?}")
        };
        assert!(what.contains(word), "{what}");
    }
    assert_eq!(tokens(&bottle), [0, 0, 0]);
    // The time alone is that of the node's own partition.
    assert_eq!(
        run(&mut bottle, 1, 9, &[Op::Now]),
        Ok(vec![OwnedReply::Int(1_000_000)])
    );
}

#[test]
fn what_is_prepared_with_a_token_holds_others_up() {
    let (mut bottle, [a, b, _]) = three();
    bottle.begin(0, 1, &[guard(5), put(&a, "1"), put(&b, "1")]);
    bottle.pass(is_decision);
    // It has committed, and node 2 does not know yet: a request there waits.
    assert!(bottle.outcome(1).is_some_and(Result::is_ok));
    bottle.begin(1, 2, &[guard(4), get(&b)]);
    assert!(bottle.outcome(2).is_none());
    bottle.pass_all();
    assert_eq!(bottle.outcome(2), Some(&Err(stale(4, 5))));
    assert_clean(&mut bottle);
}

/// Guarded transactions over random partitions, one after the other, beside a map.
#[test]
fn tokens_are_what_a_map_says() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut bottle, keys) = three();
        let locks: [&[u8]; 2] = [b"one", b"two"];
        let mut highest: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for caller in 1..40 {
            let parts: Vec<usize> = (0..3).filter(|_| random.bool()).collect();
            let guards: Vec<(usize, u64)> = (0..random.usize(..3))
                .map(|_| (random.usize(..2), random.u64(..12)))
                .collect();
            let mut ops: Vec<Op<'_>> = parts.iter().map(|part| put(&keys[*part], "v")).collect();
            for (lock, token) in &guards {
                let op = Op::Guard {
                    lock: locks[*lock],
                    token: *token,
                };
                ops.insert(random.usize(..=ops.len()), op);
            }
            let outcome = run(&mut bottle, random.usize(..3), caller, &ops);
            if parts.is_empty() {
                assert_eq!(outcome.is_err(), !guards.is_empty(), "seed {seed}: {ops:?}");
                continue;
            }
            // The model of a partition sees its guards as they were before the transaction.
            let seen = |part: &usize, lock| highest.get(&(*part, lock)).copied().unwrap_or(0);
            let mut all = guards
                .iter()
                .flat_map(|guard| parts.iter().map(move |part| (part, guard)));
            let passes = all.all(|(part, (lock, token))| seen(part, *lock) <= *token);
            assert_eq!(outcome.is_ok(), passes, "seed {seed}: {ops:?} {outcome:?}");
            if passes {
                let in_order = ops.iter().filter_map(|op| match op {
                    Op::Guard { lock, token } => Some((usize::from(*lock == locks[1]), *token)),
                    _ => None,
                });
                for (lock, token) in in_order {
                    parts.iter().for_each(|part| {
                        highest.insert((*part, lock), token);
                    });
                }
            }
            for (part, model) in bottle.models.iter().enumerate() {
                for (at, lock) in locks.iter().enumerate() {
                    let expected = highest.get(&(part, at)).copied().unwrap_or(0);
                    assert_eq!(model.token(lock), expected, "seed {seed}: {ops:?}");
                }
            }
        }
        assert_clean(&mut bottle);
    }
}
