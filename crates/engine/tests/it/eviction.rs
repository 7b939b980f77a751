//! Eviction: which keys are deleted, and how many.

use std::collections::BTreeSet;
use std::time::Duration;

use base::database::qualified;
use base::eviction::{EvictionPolicy, EvictionSettings, KeyAccess};
use base::partition::OwnedReply;
use base::{Abort, Op};
use kumiki_engine::{Evicted, EvictionRun};
use values::lists;

use crate::support::replica::{Replica, stager};
use crate::support::{World, call, holder, put_until};

const KEYS: usize = 400;
const LONG: Duration = Duration::from_secs(60);
/// An expiry that no test lives to see.
const LATE: i64 = 1 << 40;
const POLICIES: [EvictionPolicy; 7] = [
    EvictionPolicy::AllKeysLru,
    EvictionPolicy::AllKeysLfu,
    EvictionPolicy::AllKeysRandom,
    EvictionPolicy::VolatileLru,
    EvictionPolicy::VolatileLfu,
    EvictionPolicy::VolatileRandom,
    EvictionPolicy::VolatileTtl,
];

fn set_policy(world: &World, policy: EvictionPolicy) {
    world.engine.set_eviction(&EvictionSettings {
        policy,
        samples: 16,
        ..EvictionSettings::default()
    });
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number:04}").into_bytes()
}

/// Puts as many keys with a deadline; that of a key with a greater number is later.
fn fill(world: &World, value: &[u8]) {
    for number in 0..KEYS {
        world.run(&[put_until(&key(number), value, LATE + number as i64)]);
    }
    world.tidy();
}

/// Returns the numbers of the keys that are there.
fn present(world: &World) -> BTreeSet<usize> {
    let is_there = |number: &usize| {
        let exists = [Op::Exists { key: &key(*number) }];
        world.run(&exists) == [OwnedReply::Int(1)]
    };
    (0..KEYS).filter(is_there).collect()
}

/// Limits the memory so that about `share` of the keys must go, and evicts. Returns what the keys needed before.
fn evict_share(world: &World, share: f64) -> (u64, Evicted) {
    let before = world.engine.live_bytes();
    let hints = 64 * 1024;
    let limit = hints + ((before - hints) as f64 * (1.0 - share)) as u64;
    world.engine.limit_memory(limit);
    let evicted = world.worker().evict(0, LONG).unwrap();
    (before, evicted)
}

fn idle_seconds(world: &World, key: &[u8]) -> OwnedReply {
    let access = KeyAccess::IdleSeconds;
    world.run(&[Op::Access { key, access }]).remove(0)
}

fn frequency(world: &World, key: &[u8]) -> OwnedReply {
    let access = KeyAccess::Frequency;
    world.run(&[Op::Access { key, access }]).remove(0)
}

#[test]
fn no_more_is_evicted_than_necessary_and_the_log_has_the_deletions() {
    for policy in POLICIES {
        let world = World::new();
        set_policy(&world, policy);
        fill(&world, &[b'x'; 1000]);
        let (_, evicted) = evict_share(&world, 0.25);
        assert_eq!(evicted, Evicted::Enough);
        let left = present(&world);
        let gone = KEYS - left.len();
        assert!(
            (95..=106).contains(&gone),
            "{policy}: {gone} of {KEYS} are gone"
        );
        assert_eq!(world.engine.stats().evicted, gone as u64);
        let live = world.engine.live_bytes();
        assert_eq!(world.worker().evict(0, LONG), Ok(Evicted::Enough));
        assert_eq!(world.engine.live_bytes(), live, "{policy}: nothing more");
        assert_eq!(
            present(&world.restarted()),
            left,
            "{policy}: after a restart"
        );
        world.tidy();
        assert!(
            world.engine.memory_bytes() < 450_000,
            "{policy}: it is freed"
        );
    }
}

#[test]
fn nothing_is_evicted_without_a_policy_or_a_limit() {
    let world = World::new();
    fill(&world, b"1");
    world.engine.limit_memory(1);
    assert_eq!(world.worker().evict(1 << 30, LONG), Ok(Evicted::Enough));
    set_policy(&world, EvictionPolicy::AllKeysRandom);
    world.engine.limit_memory(0);
    assert_eq!(world.worker().evict(1 << 30, LONG), Ok(Evicted::Enough));
    assert_eq!(present(&world).len(), KEYS);
}

#[test]
fn the_keys_that_were_not_used_for_longest_go_first() {
    for policy in [EvictionPolicy::AllKeysLru, EvictionPolicy::VolatileLru] {
        let world = World::new();
        set_policy(&world, policy);
        fill(&world, &[b'x'; 100]);
        world.clock.advance(60_000);
        for number in KEYS / 2..KEYS {
            world.get(&key(number));
        }
        // Not these uses: they need no value.
        for number in 0..KEYS / 2 {
            let key = &key(number);
            world.run(&[Op::Exists { key }, Op::KindOf { key }, Op::Inspect { key }]);
        }
        world.clock.advance(5_000);
        assert_eq!(idle_seconds(&world, &key(0)), OwnedReply::Int(65));
        assert_eq!(idle_seconds(&world, &key(KEYS - 1)), OwnedReply::Int(5));
        evict_share(&world, 0.4);
        let left = present(&world);
        let young = left.iter().filter(|number| **number >= KEYS / 2).count();
        assert!(young >= KEYS / 2 - 5, "{policy}: {young} of {}", left.len());
    }
}

#[test]
fn the_keys_that_are_used_least_go_first() {
    for policy in [EvictionPolicy::AllKeysLfu, EvictionPolicy::VolatileLfu] {
        let world = World::new();
        set_policy(&world, policy);
        fill(&world, &[b'x'; 100]);
        for number in KEYS / 2..KEYS {
            for _ in 0..60 {
                world.get(&key(number));
            }
        }
        assert_eq!(frequency(&world, &key(0)), OwnedReply::Int(5));
        let OwnedReply::Int(used) = frequency(&world, &key(KEYS - 1)) else {
            panic!("no frequency");
        };
        assert!((7..=16).contains(&used), "{used}");
        evict_share(&world, 0.4);
        let left = present(&world);
        let used = left.iter().filter(|number| **number >= KEYS / 2).count();
        assert!(used >= KEYS / 2 - 5, "{policy}: {used} of {}", left.len());
        world.clock.advance(4 * 60_000);
        world.worker().refresh();
        let unused = *left.first().unwrap();
        assert_eq!(frequency(&world, &key(unused)), OwnedReply::Int(1));
    }
}

#[test]
fn the_keys_whose_deadlines_come_first_go_first() {
    let world = World::new();
    set_policy(&world, EvictionPolicy::VolatileTtl);
    fill(&world, &[b'x'; 100]);
    evict_share(&world, 0.25);
    let left = present(&world);
    let soon = left.iter().filter(|number| **number < KEYS / 8).count();
    let late = left.iter().filter(|number| **number >= KEYS / 2).count();
    assert!(
        soon <= 2 && late >= KEYS / 2 - 2,
        "{soon} soon, {late} late"
    );
}

#[test]
fn volatile_policies_leave_keys_without_a_deadline_alone() {
    for policy in POLICIES.into_iter().filter(|policy| policy.is_volatile()) {
        let world = World::new();
        set_policy(&world, policy);
        for number in 0..KEYS {
            world.run(&[Op::put(&key(number), b"1")]);
        }
        let deadline = [put_until(b"a", b"1", LATE), put_until(b"b", b"1", LATE)];
        world.run(&deadline);
        world.tidy();
        world.run(&[Op::Persist { key: b"b" }]);
        let (_, evicted) = evict_share(&world, 0.5);
        assert_eq!(evicted, Evicted::NothingLeft, "{policy}");
        assert_eq!(present(&world).len(), KEYS);
        assert_eq!(
            (world.get(b"a"), world.get(b"b")),
            (None, Some(b"1".to_vec()))
        );
        let refused = world.try_run(&[Op::put(b"c", &[b'x'; 1 << 17])]);
        assert_eq!(refused, Err(Abort::OutOfMemory), "{policy}");
    }
}

#[test]
fn held_keys_and_read_atomic_keys_and_what_the_engine_stores_stay() {
    let world = World::new();
    let mut w = world.worker();
    set_policy(&world, EvictionPolicy::AllKeysRandom);
    world.run(&[Op::put(b"ra:1", b"1")]);
    world.run(&[Op::put(&qualified(3, b"other"), b"1")]);
    let libraries = Op::SetLibraries {
        generation: 1,
        libraries: b"code",
    };
    world.run(&[libraries]);
    world.run(&[Op::put(b"held", b"1")]);
    world
        .prepare(
            &mut w,
            1,
            &[Op::Get { key: b"held" }, Op::put(b"written", b"1")],
        )
        .unwrap();
    for number in 0..KEYS {
        world.run(&[Op::put(&key(number), b"1")]);
    }
    world.engine.limit_memory(1);
    assert_eq!(w.evict(0, LONG), Ok(Evicted::NothingLeft));
    assert_eq!(present(&world).len(), 0);
    let exists = |key: &[u8]| world.run(&[Op::Exists { key }]) == [OwnedReply::Int(1)];
    assert!(exists(b"ra:1") && exists(b"held"));
    assert!(!exists(&qualified(3, b"other")));
    assert_ne!(world.run(&[Op::Libraries]), [OwnedReply::Nil]);
    w.commit(holder(1).id).unwrap();
    assert!(exists(b"written"));
    assert_eq!(w.evict(0, LONG), Ok(Evicted::NothingLeft));
    assert!(!exists(b"written") && !exists(b"held"));
}

#[test]
fn nothing_is_evicted_for_memory_that_only_a_snapshot_needs() {
    let world = World::new();
    set_policy(&world, EvictionPolicy::AllKeysLru);
    fill(&world, &[b'x'; 1000]);
    let live = world.engine.live_bytes();
    world.engine.limit_memory(live + 10_000);
    let snapshot = world.engine.snapshot();
    for round in 0..3 {
        let value = [b'a' + round; 1000];
        for number in 0..KEYS {
            world.run(&[put_until(&key(number), &value, LATE)]);
        }
        assert_eq!(world.worker().evict(0, LONG), Ok(Evicted::Enough));
    }
    assert!(
        world.engine.memory_bytes() > live + 300_000,
        "the snapshot's"
    );
    assert_eq!(
        (present(&world).len(), world.engine.stats().evicted),
        (KEYS, 0)
    );
    // Half as much again and 16 MiB may be used, and no more.
    let value = vec![b'z'; 1 << 20];
    let mut snapshots = vec![snapshot];
    let refused = loop {
        if let Err(refused) = world.try_run(&[Op::put(b"large", &value)]) {
            break refused;
        }
        snapshots.push(world.engine.snapshot());
        assert!(snapshots.len() < 40, "it is not bounded");
    };
    assert_eq!(refused, Abort::OutOfMemory);
    assert!(snapshots.len() > 10, "{} versions fit", snapshots.len());
    drop(snapshots);
    world.tidy();
    world.run(&[Op::put(b"large", b"1")]);
}

/// Of a key that was overwritten and of large collections, what counts is what the present version needs.
#[test]
fn the_memory_of_keys_is_that_of_their_current_versions() {
    let world = World::new();
    let before = world.engine.live_bytes();
    world.run(&[Op::put(b"k", &[b'x'; 10_000])]);
    let with = world.engine.live_bytes();
    assert!(
        (10_000..10_300).contains(&(with - before)),
        "{}",
        with - before
    );
    world.run(&[Op::put(b"k", b"1")]);
    assert!(world.engine.live_bytes() - before < 300);
    let element = [b'e'; 100];
    let elements: Vec<&[u8]> = vec![&element; 100];
    for round in 1..=200_u64 {
        world.run(&[call(b"list", lists::RPUSH, &elements)]);
        if round % 50 == 0 {
            let bytes = world.engine.live_bytes() - before;
            let exact = round * 100 * 100;
            assert!(
                (exact..exact * 2).contains(&bytes),
                "{bytes} for elements of {exact}"
            );
        }
    }
    world.run(&[Op::Delete { key: b"list" }, Op::Delete { key: b"k" }]);
    assert_eq!(world.engine.live_bytes(), before);
    fill(&world, b"1");
    world.run(&[Op::put(&qualified(2, b"other"), b"1")]);
    world.run(&[Op::Flush]);
    assert!(
        world.engine.live_bytes() <= before,
        "before the keys are swept"
    );
    let restarted = world.restarted();
    assert!(restarted.engine.live_bytes() <= before);
}

#[test]
fn uses_are_noted_unless_a_client_wants_them_not_to_be() {
    let world = World::new();
    world.run(&[Op::put(b"k", b"1")]);
    assert_eq!(
        idle_seconds(&world, b"k"),
        OwnedReply::Int(KeyAccess::NO_LRU[1])
    );
    assert_eq!(frequency(&world, b"k"), OwnedReply::Int(KeyAccess::NO_LFU));
    assert_eq!(idle_seconds(&world, b"absent"), OwnedReply::Nil);
    set_policy(&world, EvictionPolicy::AllKeysLru);
    world.clock.advance(30_000);
    assert_eq!(
        idle_seconds(&world, b"k"),
        OwnedReply::Int(30),
        "since it is tracked"
    );
    assert_eq!(frequency(&world, b"k"), OwnedReply::Int(KeyAccess::NO_LFU));
    let mut w = world.worker();
    w.note_use(false);
    w.refresh();
    drop(w.execute(&[Op::Get { key: b"k" }]).unwrap());
    assert_eq!(idle_seconds(&world, b"k"), OwnedReply::Int(30));
    let access = KeyAccess::Touch;
    let touch = [b"k".as_slice(), b"absent"].map(|key| Op::Access { key, access });
    drop(w.execute(&touch).unwrap());
    assert_eq!(idle_seconds(&world, b"k"), OwnedReply::Int(0));
    let restored = [
        Op::put(b"restored", b"1"),
        Op::Access {
            key: b"restored",
            access: KeyAccess::SetIdleSeconds(100),
        },
    ];
    world.run(&restored);
    assert_eq!(idle_seconds(&world, b"restored"), OwnedReply::Int(100));
    set_policy(&world, EvictionPolicy::VolatileLfu);
    assert_eq!(
        idle_seconds(&world, b"k"),
        OwnedReply::Int(KeyAccess::NO_LRU[0])
    );
    let restored = [
        Op::put(b"restored", b"1"),
        Op::Access {
            key: b"restored",
            access: KeyAccess::SetFrequency(77),
        },
    ];
    world.run(&restored);
    assert_eq!(frequency(&world, b"restored"), OwnedReply::Int(77));
    // A key that comes again begins anew.
    world.run(&[Op::Delete { key: b"restored" }]);
    world.run(&[Op::put(b"restored", b"1")]);
    assert_eq!(frequency(&world, b"restored"), OwnedReply::Int(5));
}

/// The table of hints is nearly empty after many keys were deleted: what is left is found nevertheless.
#[test]
fn keys_are_found_in_a_sparse_table() {
    let world = World::new();
    set_policy(&world, EvictionPolicy::AllKeysLru);
    for number in 0..50_000 {
        world.run(&[Op::put(&key(number), b"1")]);
    }
    world.run(&[Op::Flush]);
    for _ in 0..10 {
        world.tidy();
    }
    world.run(&[Op::put(b"last", b"1")]);
    world.engine.limit_memory(1);
    assert_eq!(world.worker().evict(0, LONG), Ok(Evicted::NothingLeft));
    assert_eq!(world.get(b"last"), None);
}

/// What the leader evicts is staged like a transaction of a client, and every replica applies it.
#[test]
fn replicas_delete_what_their_leader_evicts() {
    let (leader, follower) = (Replica::new(), Replica::new());
    leader.engine.set_eviction(&EvictionSettings {
        policy: EvictionPolicy::AllKeysLru,
        ..EvictionSettings::default()
    });
    for number in 0..KEYS {
        let entry = leader.run(number as u64 + 1, &[Op::put(&key(number), &[b'x'; 1000])]);
        follower.apply(&entry);
    }
    let live = leader.engine.live_bytes();
    leader.engine.limit_memory(live - 100_000);
    let (mut run, mut evicted) = (EvictionRun::new(0, LONG), 0);
    let mut submitted = Vec::new();
    while run.outcome(&leader.engine).is_none() {
        let key = leader
            .worker
            .borrow_mut()
            .choose_victim()
            .expect("there are keys");
        let number = (KEYS + evicted) as u64 + 1;
        let staged = leader.stage_transaction(number, |txn| txn.evict(&key));
        let freed = staged.unwrap().value.expect("it may be evicted");
        leader.engine.note_submitted(freed);
        submitted.push((number, freed, leader.entry()));
        run.note(true);
        evicted += 1;
    }
    assert!((85..=95).contains(&evicted), "{evicted}");
    assert_eq!(
        leader.engine.stats().keys,
        KEYS as u64,
        "nothing is applied yet"
    );
    for (number, freed, entry) in submitted {
        leader.apply(&entry);
        follower.apply(&entry);
        leader.engine.release(stager(number).id);
        leader.engine.note_settled(freed);
    }
    assert!(!leader.engine.must_evict(0) && leader.engine.must_evict(5_000));
    let hash = |replica: &Replica| {
        let snapshot = replica.engine.snapshot();
        replica.worker.borrow_mut().state_hash(&snapshot)
    };
    assert_eq!(hash(&leader), hash(&follower));
    assert_eq!(follower.engine.stats().keys, (KEYS - evicted) as u64);
}
