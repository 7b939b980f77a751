//! Databases besides number 0: their keys, flushes of one of them, and what restarts and replicas keep.

use std::collections::BTreeMap;

use base::database::{client_key, qualified};
use base::partition::OwnedReply;
use base::transaction::ScanContents;
use base::{Epoch, Op};
use kumiki_engine::RestoreError;

use crate::support::replica::Replica;
use crate::support::{Logged, World, apply, holder, holder_of};

fn put(world: &World, database: u16, key: &[u8], value: &[u8]) {
    world.run(&[Op::put(&qualified(database, key), value)]);
}

fn get(world: &World, database: u16, key: &[u8]) -> Option<Vec<u8>> {
    world.get(&qualified(database, key))
}

fn flush(world: &World, database: u16) {
    world.run(&[Op::FlushDatabase { database }]);
}

fn count(world: &World, database: u16) -> i64 {
    match world.run(&[Op::Count { database }])[..] {
        [OwnedReply::Int(count)] => count,
        ref other => panic!("{other:?}"),
    }
}

/// Returns the keys of a database by a scan.
fn keys(world: &World, database: u16) -> Vec<Vec<u8>> {
    let from = qualified(database, b"");
    let scan = Op::Scan {
        from: &from,
        to: None,
        limit: usize::MAX,
        contents: ScanContents::Keys,
    };
    match &world.run(&[scan])[..] {
        [OwnedReply::Pairs(pairs)] => {
            let keys = pairs.iter().map(|(key, _)| client_key(key).to_vec());
            keys.collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn databases_have_their_own_keys() {
    let world = World::new();
    put(&world, 0, b"k", b"zero");
    put(&world, 1, b"k", b"one");
    put(&world, 9, b"other", b"nine");
    let seen = [0, 1, 9].map(|of| get(&world, of, b"k"));
    let expected = [Some(b"zero".to_vec()), Some(b"one".to_vec()), None];
    assert_eq!(seen, expected);
    assert_eq!([0, 1, 9, 2].map(|of| count(&world, of)), [1, 1, 1, 0]);
    assert_eq!(keys(&world, 0), [b"k"]);
    assert_eq!(keys(&world, 9), [b"other"]);
    assert_eq!(keys(&world, 8), [b""; 0]);
    let stats = world.engine.key_stats();
    let numbers: Vec<_> = stats.iter().map(|(of, stats)| (*of, stats.keys)).collect();
    assert_eq!(numbers, [(0, 1), (1, 1), (9, 1)]);
    assert_eq!(world.engine.stats().keys, 3);
}

#[test]
fn the_limit_of_keys_is_that_of_the_clients_key() {
    let world = World::new();
    let longest = vec![b'k'; base::limits::Limits::MAX_KEY];
    put(&world, 3, &longest, b"v");
    assert_eq!(get(&world, 3, &longest), Some(b"v".to_vec()));
    let longer = [&longest[..], b"k"].concat();
    let replies = world.run(&[
        Op::put(&qualified(3, &longer), b"v"),
        Op::put(&base::database::prefix(0), b"v"),
    ]);
    let refused = |reply: &OwnedReply| matches!(reply, OwnedReply::Error(_));
    assert!(replies.iter().all(refused), "{replies:?}");
}

#[test]
fn a_flush_of_one_database_leaves_the_others_alone() {
    let world = World::new();
    for database in 0..4 {
        put(&world, database, b"k", b"old");
    }
    flush(&world, 1);
    flush(&world, 0);
    let there = || [0, 1, 2, 3].map(|of| (count(&world, of), keys(&world, of).len()));
    assert_eq!(there(), [(0, 0), (0, 0), (1, 1), (1, 1)]);
    put(&world, 1, b"k", b"new");
    world.tidy();
    assert_eq!(there(), [(0, 0), (1, 1), (1, 1), (1, 1)]);
    assert_eq!(world.engine.stats().records, 4, "three keys and the table");
    world.run(&[Op::Flush]);
    assert_eq!(there(), [(0, 0); 4]);
    put(&world, 2, b"k", b"new");
    world.tidy();
    assert_eq!(there(), [(0, 0), (0, 0), (1, 1), (0, 0)]);
    assert_eq!(world.engine.stats().records, 2);
}

#[test]
fn a_directory_without_other_databases_has_the_log_that_it_always_had() {
    let world = World::new();
    put(&world, 0, b"k", b"v");
    flush(&world, 3);
    flush(&world, 0);
    let entries = world.log.entries.lock();
    let changes: Vec<_> = entries.iter().flat_map(|(_, changes)| changes).collect();
    let [Logged::Put { key, .. }, Logged::Flush(1)] = changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(key, b"k");
}

#[test]
fn a_block_sees_its_own_flushes() {
    let world = World::new();
    put(&world, 1, b"k", b"old");
    put(&world, 0, b"k", b"old");
    let (one, zero) = (qualified(1, b"k"), qualified(0, b"k"));
    let get = |key| Op::Get { key };
    let replies = world.run(&[
        Op::put(&one, b"gone"),
        Op::FlushDatabase { database: 1 },
        get(&one),
        get(&zero),
        Op::Count { database: 1 },
        Op::put(&one, b"new"),
        Op::Count { database: 1 },
        Op::Flush,
        get(&zero),
        get(&one),
        Op::put(&one, b"last"),
    ]);
    let bytes = |bytes: &[u8]| OwnedReply::Bytes(bytes.to_vec());
    let expected = [OwnedReply::Nil, bytes(b"old"), OwnedReply::Int(0)];
    assert_eq!(replies[2..5], expected);
    assert_eq!(replies[6], OwnedReply::Int(1));
    assert_eq!(replies[8..10], [OwnedReply::Nil, OwnedReply::Nil]);
    assert_eq!([0, 1].map(|of| count(&world, of)), [0, 1]);
    let again = world.restarted();
    assert_eq!([0, 1].map(|of| count(&again, of)), [0, 1]);
}

/// The contents of several databases.
type Model = BTreeMap<(u16, Vec<u8>), Vec<u8>>;

fn assert_is(world: &World, model: &Model) {
    for database in 0..4 {
        let expected = model.keys().filter(|(of, _)| *of == database);
        let expected: Vec<_> = expected.map(|(_, key)| key.clone()).collect();
        assert_eq!(keys(world, database), expected, "of database {database}");
        assert_eq!(count(world, database), expected.len() as i64);
    }
    for ((database, key), value) in model {
        assert_eq!(get(world, *database, key).as_ref(), Some(value));
    }
}

#[test]
fn random_changes_are_those_of_a_model_after_restarts_too() {
    let mut random = fastrand::Rng::with_seed(87);
    let (mut world, mut model) = (World::without_read_atomic(), Model::new());
    for step in 0..600 {
        let (database, key) = (random.u16(..4), vec![b'a' + random.u8(..6)]);
        let place = (database, key.clone());
        match random.u8(..24) {
            0 => {
                world.run(&[Op::Flush]);
                model.clear();
            }
            1 | 2 => {
                flush(&world, database);
                model.retain(|(of, _), _| *of != database);
            }
            3..8 => {
                let stored = qualified(database, &key);
                world.run(&[Op::Delete { key: &stored }]);
                model.remove(&place);
            }
            8 | 9 => world.tidy(),
            11 => {
                let (first, second) = (database, random.u16(..4));
                world.run(&[Op::SwapDatabases { first, second }]);
                let swapped = |of: u16| match of {
                    of if of == first => second,
                    of if of == second => first,
                    of => of,
                };
                let all = std::mem::take(&mut model).into_iter();
                model = all
                    .map(|((of, key), value)| ((swapped(of), key), value))
                    .collect();
            }
            10 if step % 3 == 0 => {
                world = world.restarted();
                // Few flushes are possible before the sweep.
                world.tidy();
            }
            _ => {
                let value = random.u64(..).to_string().into_bytes();
                put(&world, database, &key, &value);
                model.insert(place, value);
            }
        }
        if step % 7 == 0 {
            assert_is(&world, &model);
        }
    }
    world.tidy();
    assert_is(&world.restarted(), &model);
}

/// The transaction has named its databases before they are exchanged.
#[test]
fn an_exchange_of_databases_conflicts_with_all_transactions() {
    let world = World::without_read_atomic();
    put(&world, 0, b"k", b"zero");
    put(&world, 1, b"k", b"one");
    let mut w = world.worker();
    let mut runs = 0;
    let (seen, _) = w
        .transact(|txn| {
            runs += 1;
            let seen = txn.get(b"k")?.map(<[u8]>::to_vec);
            if runs == 1 {
                let swap = Op::SwapDatabases {
                    first: 0,
                    second: 1,
                };
                world.run(&[swap]);
            }
            txn.put(b"new", b"1")?;
            Ok(seen)
        })
        .unwrap();
    assert_eq!((runs, seen), (2, Some(b"one".to_vec())));
    assert_eq!(keys(&world, 0), [&b"k"[..], b"new"]);
    assert_eq!(keys(&world, 1), [b"k"]);
    let swap = [Op::SwapDatabases {
        first: 0,
        second: 1,
    }];
    assert!(
        World::new().try_run(&swap).is_err(),
        "it has read-atomic keys"
    );
    let again = world.restarted();
    assert_eq!(get(&again, 0, b"k"), Some(b"one".to_vec()));
    assert_eq!(get(&again, 0, b"new"), Some(b"1".to_vec()));
    let stats = again.engine.key_stats();
    let counts: Vec<_> = stats.iter().map(|(of, stats)| (*of, stats.keys)).collect();
    assert_eq!(counts, [(0, 2), (1, 1)]);
    let with_read_atomic = World::new();
    let mut restorer = with_read_atomic.engine.restorer().unwrap();
    for (tid, changes) in &*world.log.entries.lock() {
        apply(&mut restorer, *tid, changes);
    }
    let refused = with_read_atomic
        .engine
        .finish_restore(vec![restorer], Epoch(99), 1_000);
    assert_eq!(refused, Err(RestoreError::Exchanged));
    let (_, namespace) = again.engine.snapshot_of(1);
    assert_eq!(namespace, 0);
}

/// One transaction has written both keys, so that they have one TID.
#[test]
fn a_version_is_of_the_key_that_the_database_has() {
    let world = World::without_read_atomic();
    let one = qualified(1, b"k");
    world.run(&[Op::put(b"k", b"zero"), Op::put(&one, b"one")]);
    let swap = |first, second| world.run(&[Op::SwapDatabases { first, second }]);
    let version = |key: &[u8]| match world.run(&[Op::Watch { key }])[..] {
        [OwnedReply::Version(version)] => version,
        ref other => panic!("{other:?}"),
    };
    let seen = [version(b"k"), version(&one)];
    assert_eq!(seen[0], seen[1]);
    let check = |key, version| world.try_run(&[Op::Check { key, version }]).is_ok();
    swap(0, 1);
    let exchanged = [version(b"k"), version(&one)];
    assert!(!check(b"k", seen[0]) && !check(&one, seen[1]));
    assert!(check(b"k", exchanged[0]) && check(&one, exchanged[1]));
    swap(1, 2);
    assert!(check(b"k", exchanged[0]) && !check(&one, exchanged[1]));
    swap(2, 1);
    swap(1, 0);
    assert!(check(b"k", seen[0]) && check(&one, seen[1]) && !check(b"k", exchanged[0]));
}

#[test]
fn a_prepared_transaction_and_a_flush_of_its_database_exclude_each_other() {
    let world = World::new();
    for database in 0..3 {
        put(&world, database, b"k", b"old");
    }
    let mut w = world.worker();
    let one = qualified(1, b"k");
    world.prepare(&mut w, 1, &[Op::put(&one, b"new")]).unwrap();
    let again = world.restarted();
    for world in [&world, &again] {
        for database in [1, 2] {
            let flush = [Op::FlushDatabase { database }];
            assert_eq!(holder_of(world.try_run(&flush)), holder(1));
        }
        let mut w = world.worker();
        w.commit(holder(1).id).unwrap();
        flush(world, 2);
        assert_eq!(get(world, 1, b"k"), Some(b"new".to_vec()));
        assert_eq!([0, 1, 2].map(|of| count(world, of)), [1, 1, 0]);
    }
}

#[test]
fn a_prepared_flush_of_a_database_survives_a_restart() {
    let world = World::new();
    for database in 0..3 {
        put(&world, database, b"k", b"old");
    }
    let mut w = world.worker();
    let (one, new) = (qualified(1, b"k"), qualified(1, b"new"));
    let ops = [Op::FlushDatabase { database: 1 }, Op::put(&new, b"1")];
    world.prepare(&mut w, 1, &ops).unwrap();
    let again = world.restarted();
    let read = [Op::Get { key: &one }];
    assert_eq!(holder_of(again.try_run(&read)), holder(1));
    let mut w = again.worker();
    w.commit(holder(1).id).unwrap();
    let third = again.restarted();
    for world in [&again, &third] {
        assert_eq!(keys(world, 1), [b"new"]);
        assert_eq!([0, 1, 2].map(|of| count(world, of)), [1, 1, 1]);
    }
}

#[test]
fn a_snapshot_keeps_the_databases_that_were_flushed_since() {
    let world = World::new();
    for database in 0..3 {
        put(&world, database, b"k", b"old");
    }
    let view = world.engine.snapshot();
    flush(&world, 1);
    put(&world, 1, b"new", b"1");
    world.tidy();
    let mut w = world.worker();
    for database in 0..3 {
        let (mut seen, from) = (Vec::new(), qualified(database, b""));
        let next = w.scan_snapshot(&view, &from, None, usize::MAX, |entry| {
            seen.push(client_key(entry.key).to_vec());
        });
        assert_eq!((next, seen), (None, vec![b"k".to_vec()]));
    }
    drop(view);
    world.tidy();
    assert_eq!(keys(&world, 1), [b"new"]);
    assert_eq!(world.engine.stats().records, 4);
}

#[test]
fn replicas_apply_flushes_of_databases_and_load_snapshots_of_them() {
    let (leader, follower) = (Replica::new(), Replica::new());
    let keys = [0, 1, 2].map(|of| qualified(of, b"k"));
    let puts: Vec<Op<'_>> = keys.iter().map(|key| Op::put(key, b"1")).collect();
    let late = qualified(1, b"late");
    let batches = [
        puts,
        vec![Op::FlushDatabase { database: 1 }],
        vec![Op::put(&late, b"2")],
        vec![Op::FlushDatabase { database: 0 }],
    ];
    for ops in &batches {
        let entry = leader.run(1, ops);
        follower.apply(&entry);
    }
    let loaded = Replica::new();
    loaded.load(&leader);
    for replica in [&leader, &follower, &loaded] {
        let counts = replica.engine.key_stats().into_iter();
        let counts: Vec<_> = counts.map(|(of, stats)| (of, stats.keys)).collect();
        assert_eq!(counts, [(0, 0), (1, 1), (2, 1)]);
        replica.tidy();
        assert_eq!(replica.engine.stats().keys, 2);
    }
}

/// Flushes of one database come while another thread uses both: no key of database 0 is lost.
#[test]
fn flushes_of_a_database_under_load_leave_database_0_alone() {
    let world = World::new();
    let one = &qualified(1, b"counter");
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let mut w = world.worker();
            scope.spawn(move || {
                let own = [b'n', thread];
                for expected in 1..=2_000 {
                    let add = |key| Op::Add { key, delta: 1 };
                    let done = w.execute(&[add(&own), add(one)]).unwrap();
                    assert_eq!(done.replies()[0], base::Reply::Int(expected));
                }
            })
        });
        let mut w = world.worker();
        while !threads.iter().all(|thread| thread.is_finished()) {
            drop(w.execute(&[Op::FlushDatabase { database: 1 }]).unwrap());
            world.tidy();
        }
    });
    assert_eq!(count(&world, 0), 2);
    flush(&world, 1);
    world.tidy();
    assert_eq!(count(&world, 1), 0);
    assert_eq!(world.engine.stats().records, 3);
}

#[test]
fn a_database_whose_generation_comes_around_is_not_flushed_by_it() {
    let world = World::new();
    put(&world, 0, b"k", b"v");
    put(&world, 1, b"k", b"v");
    flush(&world, 2);
    let mut w = world.worker();
    for number in 0..u32::from(u16::MAX) + 10 {
        drop(w.execute(&[Op::FlushDatabase { database: 2 }]).unwrap());
        if number % 1_000 == 0 {
            world.tidy();
        }
    }
    assert_eq!([0, 1, 2].map(|of| count(&world, of)), [1, 1, 0]);
}
