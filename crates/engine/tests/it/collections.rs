//! Collections: their versions in snapshots and after restarts, what the log gets of them, replicas, and the
//! memory that they give back.

use std::collections::BTreeMap;

use base::nested::NestedItem;
use base::partition::OwnedReply;
use base::transaction::{CallError, ExpireWhen, Expiry, Kind, ValueCall};
use base::{Op, OpError};
use fastrand::Rng;
use kumiki_engine::{Snapshot, SnapshotEntry};
use values::hashes;

use crate::support::replica::Replica;
use crate::support::{Logged, World, call};

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

fn hset<'a>(key: &'a [u8], field: &'a [u8], value: &'a [u8]) -> Op<'a> {
    call(key, hashes::HSET, &[field, value])
}

/// Returns the fields in the reply to `HGETALL`.
fn fields(reply: &OwnedReply) -> Fields {
    let OwnedReply::Nested(nested) = reply else {
        panic!("{reply:?}");
    };
    let mut strings = nested.items().filter_map(|item| match item {
        NestedItem::Bytes(bytes) => Some(bytes.to_vec()),
        _ => None,
    });
    std::iter::from_fn(|| Some((strings.next()?, strings.next()?))).collect()
}

/// Fills a hash with so many fields.
fn fill(world: &World, key: &[u8], count: usize) {
    let names: Vec<Vec<u8>> = (0..count).map(|n| format!("field {n}").into()).collect();
    let args: Vec<&[u8]> = names
        .iter()
        .flat_map(|name| [&name[..], b"value"])
        .collect();
    world.run(&[call(key, hashes::HSET, &args)]);
}

fn seen(world: &World, snapshot: &Snapshot, key: &[u8]) -> Option<Fields> {
    let block = |entry: SnapshotEntry<'_>| {
        assert_eq!(entry.kind, Kind::Hash);
        entry.value.bytes().into_owned()
    };
    let block = world.worker().read_snapshot(snapshot, key, block)?;
    // A block is read as a value of another key.
    let stored = values::StoredValue::new(Kind::Hash, &block);
    let all = ValueCall {
        command: hashes::HGETALL,
        seed: 0,
        args: [].into(),
    };
    let outcome = values::execute(&all, Some(stored), 0).unwrap();
    Some(fields(&OwnedReply::from(&outcome.reply)))
}

/// Random commands on hashes of all sizes, alone and several in a transaction, copies, deadlines, deletions,
/// snapshots that begin and end, and restarts, beside maps. At the end all memory is given back.
#[test]
fn hashes_are_what_was_done_to_them() {
    let mut random = Rng::with_seed(7);
    let mut world = World::without_read_atomic();
    let empty = memory_at_rest(&World::without_read_atomic());
    const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut model: BTreeMap<&[u8], Fields> = BTreeMap::new();
    let mut snapshots: Vec<(Snapshot, BTreeMap<&[u8], Fields>)> = Vec::new();
    for step in 0..6_000 {
        let key = KEYS[random.usize(..3)];
        match random.u32(..100) {
            0..70 => {
                let names: Vec<String> = (0..random.usize(1..6))
                    .map(|_| format!("{}", random.u32(..400)))
                    .collect();
                let value = vec![random.u8(..); random.usize(..60)];
                let removes = random.u32(..3) == 0;
                let ops: Vec<Op<'_>> = names
                    .iter()
                    .map(|name| match removes {
                        true => call(key, hashes::HDEL, &[name.as_bytes()]),
                        false => hset(key, name.as_bytes(), &value),
                    })
                    .collect();
                world.run(&ops);
                let own = model.entry(key).or_default();
                for name in &names {
                    match removes {
                        true => drop(own.remove(name.as_bytes())),
                        false => drop(own.insert(name.clone().into_bytes(), value.clone())),
                    }
                }
                if own.is_empty() {
                    model.remove(key);
                }
            }
            70..74 => {
                let expiry = Expiry::AtMs(1 << 40);
                let when = ExpireWhen::Always;
                let name = random.u32(..400).to_string();
                let ops = [
                    hset(key, name.as_bytes(), b"before"),
                    Op::Expire { key, expiry, when },
                    hset(key, b"behind", b""),
                    Op::Persist { key },
                ];
                world.run(&ops[..random.usize(1..=4)]);
                let own = model.entry(key).or_default();
                own.insert(name.into_bytes(), b"before".to_vec());
                if world.run(&[call(key, hashes::HGET, &[b"behind"])]) != [OwnedReply::Nil] {
                    own.insert(b"behind".to_vec(), Vec::new());
                }
            }
            74..76 => {
                world.run(&[Op::Delete { key }]);
                model.remove(key);
            }
            76..80 => {
                let to = KEYS[random.usize(..3)];
                if random.bool() {
                    let copied = world.worker().transact(|txn| txn.copy(key, to));
                    assert_eq!(copied.unwrap().0, model.contains_key(key));
                    if let Some(own) = model.get(key).cloned() {
                        model.insert(to, own);
                    }
                } else if let [OwnedReply::Value(kind, value)] =
                    &world.run(&[Op::GetAny { key }])[..]
                {
                    let expiry = Expiry::Never;
                    world.run(&[Op::PutAny {
                        key: to,
                        kind: *kind,
                        value,
                        expiry,
                    }]);
                    let own = model[key].clone();
                    model.insert(to, own);
                }
            }
            80..87 => snapshots.push((world.engine.snapshot(), model.clone())),
            87..94 if !snapshots.is_empty() => {
                let (snapshot, then) = snapshots.swap_remove(random.usize(..snapshots.len()));
                for key in KEYS {
                    assert_eq!(seen(&world, &snapshot, key).as_ref(), then.get(key));
                }
            }
            94 if step % 5 == 0 => {
                snapshots.clear();
                world = world.restarted();
            }
            _ => world.tidy(),
        }
        let [all, len] = &world.run(&[
            call(key, hashes::HGETALL, &[]),
            call(key, hashes::HLEN, &[]),
        ])[..] else {
            panic!("there are two replies");
        };
        let own = model.get(key).cloned().unwrap_or_default();
        assert_eq!(*len, OwnedReply::Int(own.len() as i64));
        assert_eq!(fields(all), own, "step {step}");
    }
    snapshots.clear();
    world.run(&KEYS.map(|key| Op::Delete { key }));
    assert_eq!(memory_at_rest(&world), empty);
}

/// Returns the memory that is used once workers have gone on, and have given back what they could.
pub(crate) fn memory_at_rest(world: &World) -> u64 {
    // Records that had a deadline are looked at again within half a minute.
    world.clock.advance(60_000);
    for _ in 0..400 {
        world.run(&[Op::put(b"other", b"")]);
        // The next epoch begins.
        drop(world.engine.snapshot());
        world.tidy();
    }
    world.engine.stats().memory_bytes
}

#[test]
fn replaced_nodes_are_freed_as_fast_as_they_are_made() {
    let mut random = Rng::with_seed(11);
    let world = World::new();
    fill(&world, b"h", 200_000);
    let filled = world.engine.stats().memory_bytes;
    let mut most = 0;
    for _ in 0..60 {
        let names = [(); 2000].map(|()| format!("field {}", random.u32(..200_000)));
        let args: Vec<&[u8]> = names
            .iter()
            .flat_map(|name| [name.as_bytes(), b"other"])
            .collect();
        // Each replaces most of the leaves.
        world.run(&[call(b"h", hashes::HSET, &args)]);
        most = most.max(world.engine.stats().memory_bytes);
    }
    assert!(
        most < 6 * filled,
        "{most} bytes, {filled} without replaced nodes"
    );
}

#[test]
fn the_log_gets_elements_of_a_large_collection() {
    let world = World::new();
    let last = || {
        let entries = world.log.entries.lock();
        let (_, changes) = entries.last().expect("something was logged");
        changes[0].clone()
    };
    fill(&world, b"h", 10_000);
    assert!(
        matches!(
            last(),
            Logged::Put {
                kind: Kind::Hash,
                ..
            }
        ),
        "it is new"
    );
    world.run(&[hset(b"h", b"field 7", b"other")]);
    let Logged::Elements { changes, .. } = last() else {
        panic!("the whole collection is logged");
    };
    assert!(changes.len() < 32, "{changes:?}");
    let (expiry, when) = (Expiry::AtMs(1 << 40), ExpireWhen::Always);
    world.run(&[Op::Expire {
        key: b"h",
        expiry,
        when,
    }]);
    assert!(
        matches!(last(), Logged::Elements { deadline: Some(_), changes, .. } if changes.is_empty())
    );
    let restarted = world.restarted();
    let replies = restarted.run(&[
        call(b"h", hashes::HGET, &[b"field 7"]),
        call(b"h", hashes::HLEN, &[]),
        Op::ExpiryOf { key: b"h" },
    ]);
    assert_eq!(
        replies[1..],
        [OwnedReply::Int(10_000), OwnedReply::Deadline(Some(1 << 40))]
    );
    assert_eq!(replies[0], OwnedReply::Bytes(b"other".to_vec()));
}

/// What an earlier operation of a transaction has answered stays as it was.
#[test]
fn answers_outlast_later_changes_of_the_transaction() {
    let world = World::new();
    fill(&world, b"h", 1_000);
    let get = || call(b"h", hashes::HGET, &[b"field 1"]);
    let replies = world.run(&[
        get(),
        hset(b"h", b"field 1", b"second"),
        get(),
        hset(b"h", b"field 1", b"third!"),
        get(),
    ]);
    let shown: Vec<Vec<u8>> = [0, 2, 4]
        .map(|at| match &replies[at] {
            OwnedReply::Bytes(bytes) => bytes.clone(),
            OwnedReply::Nested(nested) => match nested.items().next() {
                Some(NestedItem::Bytes(bytes)) => bytes.to_vec(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .into();
    assert_eq!(shown, [&b"value"[..], b"second", b"third!"]);
}

#[test]
fn a_prepared_transaction_changes_a_large_collection_when_it_commits() {
    let world = World::new();
    fill(&world, b"h", 1_000);
    let get = || world.run(&[call(b"h", hashes::HGET, &[b"new"])]);
    for (number, commits) in [(1, false), (2, true)] {
        let mut worker = world.worker();
        let ops = [hset(b"h", b"new", b"x")];
        world.prepare(&mut worker, number, &ops).unwrap();
        let restarted = world.restarted();
        for world in [&world, &restarted] {
            let mut worker = world.worker();
            let id = crate::support::holder(number).id;
            match commits {
                true => drop(worker.commit(id).unwrap()),
                false => drop(worker.abort(id).unwrap()),
            }
            let expected = match commits {
                true => OwnedReply::Bytes(b"x".to_vec()),
                false => OwnedReply::Nil,
            };
            assert_eq!(
                world.run(&[call(b"h", hashes::HGET, &[b"new"])]),
                [expected]
            );
        }
        drop(restarted);
    }
    assert_eq!(get(), [OwnedReply::Bytes(b"x".to_vec())]);
}

#[test]
fn replicas_change_elements_alike() {
    let (leader, follower, late) = (Replica::new(), Replica::new(), Replica::new());
    let mut random = Rng::with_seed(3);
    for number in 1..400 {
        let name = random.u32(..300).to_string();
        let key: &[u8] = [b"a", b"b"][random.usize(..2)];
        let ops = match random.u32(..5) {
            0 => [call(key, hashes::HDEL, &[name.as_bytes()])],
            _ => [hset(key, name.as_bytes(), &[7; 50])],
        };
        if leader.stage(number, &ops).unwrap().writes == 0 {
            continue;
        }
        let entry = leader.entry();
        let is_small = |change: &Logged| match change {
            Logged::Elements { changes, .. } => changes.len() < 80,
            _ => true,
        };
        assert!(entry.changes.iter().all(is_small));
        leader.apply(&entry);
        leader
            .engine
            .release(crate::support::replica::stager(number).id);
        follower.apply(&entry);
        if number == 200 {
            late.load(&leader);
        } else if number > 200 {
            late.apply(&entry);
        }
    }
    assert_eq!(leader.hash(), follower.hash());
    assert_eq!(leader.hash(), late.hash());
}

#[test]
fn read_atomic_keys_have_no_collections() {
    let world = World::new();
    let put = Op::PutAny {
        key: b"ra:x",
        kind: Kind::Hash,
        value: b"",
        expiry: Expiry::Never,
    };
    for op in [hset(b"ra:x", b"f", b"v"), put] {
        let refused = OwnedReply::Error(OpError::Call(CallError::ReadAtomic));
        assert_eq!(world.run(&[op]), [refused]);
    }
}
