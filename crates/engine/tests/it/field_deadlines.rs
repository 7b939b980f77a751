//! Fields of hashes that expire: what transactions see of them, their removal, restarts and replicas.

use std::collections::BTreeMap;

use base::Op;
use base::epochs::EpochClock;
use base::nested::NestedItem;
use base::partition::OwnedReply;
use fastrand::Rng;
use values::{hash_deadlines, hashes};

use crate::support::replica::{Replica, stager};
use crate::support::{Logged, World, call, put_until};

type Fields = BTreeMap<String, (u32, Option<u64>)>;

/// Sets a field that expires at a time.
fn set_until<'a>(key: &'a [u8], name: &'a [u8], deadline: &'a [u8]) -> Op<'a> {
    let args = [b"PXAT", deadline, b"FIELDS", b"1", name, b"value"];
    call(key, hash_deadlines::HSETEX, &args)
}

fn remove_passed(key: &[u8]) -> Op<'_> {
    call(key, hash_deadlines::REMOVE_PASSED, &[])
}

/// Sets so many fields, of which every second one expires at a time.
fn fill(world: &World, key: &[u8], count: usize, deadline: u64) {
    let deadline = deadline.to_string();
    for number in 0..count {
        let name = format!("field {number}");
        world.run(&[match number % 2 {
            0 => set_until(key, name.as_bytes(), deadline.as_bytes()),
            _ => call(key, hashes::HSET, &[name.as_bytes(), b"value"]),
        }]);
    }
}

fn length(world: &World, key: &[u8]) -> OwnedReply {
    world.run(&[call(key, hashes::HLEN, &[])])[0].clone()
}

/// Removes fields that have expired, as the user of an engine does. Returns the number of transactions.
fn remove_expired(world: &World) -> usize {
    world.run(&[]);
    world.tidy();
    let mut transactions = 0;
    while let Some(key) = world.engine.take_expiring_hash() {
        while world.run(&[remove_passed(&key)]) == [OwnedReply::Int(1)] {
            transactions += 1;
        }
        transactions += 1;
    }
    transactions
}

#[test]
fn fields_are_removed_when_they_have_expired() {
    for count in [10, 2_000] {
        let world = World::new();
        fill(&world, b"h", count, 5_000);
        world.run(&[set_until(b"h", b"later", b"7000")]);
        assert!(world.engine.has_expiring_hashes());
        world.clock.advance(3_999);
        assert_eq!(remove_expired(&world), 0);
        assert_eq!(length(&world, b"h"), OwnedReply::Int(count as i64 + 1));
        world.clock.advance(1);
        world.run(&[]);
        let left = OwnedReply::Int(count as i64 / 2 + 1);
        assert_eq!(length(&world, b"h"), left, "they are hidden at once");
        let logged = world.log.entries.lock().len();
        let slices = remove_expired(&world);
        assert_eq!(world.log.entries.lock().len(), logged + slices);
        assert!(if count > 1_000 {
            slices > 1
        } else {
            slices == 1
        });
        assert_eq!(length(&world, b"h"), left);
        let restarted = world.restarted();
        assert_eq!(length(&restarted, b"h"), left);
        for world in [&world, &restarted] {
            let removed = call(b"h", hashes::HGETALL, &[]);
            let OwnedReply::Nested(all) = &world.run(&[removed])[0] else {
                panic!("it is a hash");
            };
            let first = |item| matches!(item, NestedItem::Bytes(b"field 0"));
            assert!(!all.items().any(first));
            // The last of the fields with deadlines.
            world.clock.advance(2_000);
            assert_eq!(remove_expired(world), 1);
            assert_eq!(length(world, b"h"), OwnedReply::Int(count as i64 / 2));
            world.clock.advance(1_000);
            assert_eq!(remove_expired(world), 0);
            assert!(!world.engine.has_expiring_hashes());
        }
    }
}

#[test]
fn a_key_goes_with_its_last_field() {
    for count in [2, 1_000] {
        let world = World::new();
        for number in 0..count {
            let name = number.to_string();
            world.run(&[set_until(b"h", name.as_bytes(), b"5000")]);
        }
        world.clock.advance(10_000);
        assert_eq!(remove_expired(&world), 1);
        assert_eq!(world.run(&[Op::Exists { key: b"h" }]), [OwnedReply::Int(0)]);
        assert!(matches!(
            world.log.entries.lock().last().unwrap().1[..],
            [Logged::Delete { .. }]
        ));
    }
}

/// An earlier deadline that comes later is noticed, and so is the next one after a removal.
#[test]
fn deadlines_are_noticed_in_any_order() {
    let world = World::new();
    world.run(&[set_until(b"h", b"a", b"9000000")]);
    world.tidy();
    world.run(&[set_until(b"h", b"b", b"2000")]);
    world.run(&[set_until(b"h", b"c", b"2100")]);
    for left in [3, 2, 1] {
        assert_eq!(length(&world, b"h"), OwnedReply::Int(left));
        world.clock.advance(if left == 3 { 1_000 } else { 100 });
        assert_eq!(remove_expired(&world), usize::from(left > 1));
    }
    // While they are kept they are not reported, and the log learns that time has passed.
    world.engine.remove_expired(false);
    world.run(&[set_until(b"h", b"d", b"3000")]);
    world.clock.advance(2_000);
    assert_eq!(remove_expired(&world), 0);
    world.engine.remove_expired(true);
    world.clock.advance(1_000);
    assert_eq!(remove_expired(&world), 1);
}

#[test]
fn a_transaction_that_commits_after_a_deadline_of_what_it_has_read_is_run_again() {
    for count in [10, 1_000] {
        let world = World::new();
        fill(&world, b"h", count, 5_000);
        world.clock.advance(3_990);
        let present = OwnedReply::Bytes(b"value".to_vec());
        for (passes, expected) in [(1, (1, present)), (20, (2, OwnedReply::Nil))] {
            let (mut runs, mut seen) = (0, OwnedReply::Ok);
            let read = [call(b"h", hashes::HGET, &[b"field 0"]), Op::put(b"x", b"")];
            let done = world.worker().transact(|txn| {
                seen = OwnedReply::from(&txn.execute(&read)?[0]);
                runs += 1;
                if runs == 1 {
                    world.clock.advance(passes);
                    let epochs = world.engine.epochs();
                    epochs.advance(epochs.current());
                }
                Ok(())
            });
            done.unwrap();
            assert_eq!((runs, seen), expected);
        }
    }
}

/// Random changes of deadlines and time, with removals and restarts, beside maps.
#[test]
fn hashes_are_what_was_done_to_them() {
    let mut random = Rng::with_seed(11);
    let mut world = World::without_read_atomic();
    const KEYS: [&[u8]; 2] = [b"a", b"b"];
    let mut model: BTreeMap<&[u8], Fields> = BTreeMap::new();
    let (mut now, mut removals) = (1_000, 0);
    for step in 0..8_000 {
        // One of them becomes large, and the other one is small.
        let at = random.usize(..2);
        let (key, number) = (KEYS[at], random.u32(..[12, 900][at]));
        let name = number.to_string();
        let own = model.entry(key).or_default();
        let deadline = now + random.u64(1..3_000);
        let until = deadline.to_string();
        match random.u32(..100) {
            0..40 => {
                let args = [name.as_bytes(), b"1"];
                world.run(&[call(key, hashes::HSET, &args)]);
                own.insert(name, (1, None));
            }
            40..70 => {
                let args = [until.as_bytes(), b"FIELDS", b"1", name.as_bytes()];
                world.run(&[call(key, hash_deadlines::HPEXPIREAT, &args)]);
                own.entry(name).and_modify(|field| field.1 = Some(deadline));
            }
            70..75 => {
                let args = [&b"FIELDS"[..], b"1", name.as_bytes()];
                world.run(&[call(key, hash_deadlines::HPERSIST, &args)]);
                own.entry(name).and_modify(|field| field.1 = None);
            }
            75..82 => {
                let args = [name.as_bytes(), b"3"];
                world.run(&[call(key, hashes::HINCRBY, &args)]);
                own.entry(name).or_insert((0, None)).0 += 3;
            }
            82..85 => {
                world.run(&[call(key, hashes::HDEL, &[name.as_bytes()])]);
                own.remove(&name);
            }
            85..90 => {
                let passes = random.u64(1..200);
                world.clock.advance(passes);
                now += passes;
            }
            90..94 => removals += remove_expired(&world),
            94 if random.u32(..10) == 0 => world = world.restarted(),
            _ => {
                world.run(&[]);
                assert_fields(&world, key, own, now, step);
            }
        }
        world.run(&[]);
        model
            .values_mut()
            .for_each(|own| own.retain(|_, field| field.1.is_none_or(|at| at > now)));
    }
    assert!(removals > 50, "{removals}");
}

fn assert_fields(world: &World, key: &[u8], own: &Fields, now: u64, step: usize) {
    let replies = world.run(&[
        call(key, hashes::HLEN, &[]),
        call(key, hashes::HGETALL, &[]),
    ]);
    let alive: Vec<(&String, &(u32, Option<u64>))> = own
        .iter()
        .filter(|(_, field)| field.1.is_none_or(|at| at > now))
        .collect();
    assert_eq!(replies[0], OwnedReply::Int(alive.len() as i64), "{step}");
    let OwnedReply::Nested(all) = &replies[1] else {
        panic!("{replies:?}");
    };
    let mut strings = all.items().filter_map(|item| match item {
        NestedItem::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    });
    let pairs = std::iter::from_fn(|| Some((strings.next()?, strings.next()?)));
    let shown: BTreeMap<String, String> = pairs.collect();
    for (name, (value, deadline)) in &alive {
        assert_eq!(shown.get(*name), Some(&value.to_string()), "{step}");
        let args = [&b"FIELDS"[..], b"1", name.as_bytes()];
        let times = world.run(&[call(key, hash_deadlines::HPEXPIRETIME, &args)]);
        let OwnedReply::Nested(times) = &times[0] else {
            panic!("{times:?}");
        };
        let shown = times.items().find_map(|item| match item {
            NestedItem::Int(time) => Some(time),
            _ => None,
        });
        assert_eq!(shown, Some(deadline.map_or(-1, |at| at as i64)), "{step}");
    }
}

/// Followers and replicas that begin with a snapshot come to the same state, in which the leader's removals
/// have removed the fields.
#[test]
fn replicas_change_deadlines_alike() {
    let (leader, follower, late) = (Replica::new(), Replica::new(), Replica::new());
    let mut random = Rng::with_seed(5);
    let mut number = 0;
    let mut run = |random: &mut Rng, ops: &[Op<'_>], loads: bool| {
        number += 1;
        if leader.stage(number, ops).unwrap().writes == 0 {
            return;
        }
        let entry = leader.entry();
        leader.apply(&entry);
        leader.engine.release(stager(number).id);
        follower.apply(&entry);
        match loads {
            true => late.load(&leader),
            false if late.engine.applied() > base::Epoch::ZERO => late.apply(&entry),
            false => {}
        }
        let _ = random;
    };
    for step in 0..900 {
        let name = random.u32(..400).to_string();
        let at = (1_000 + random.u32(..3_000)).to_string();
        let key: &[u8] = [b"a", b"b"][random.usize(..2)];
        let op = match random.u32(..4) {
            0 => call(key, hashes::HSET, &[name.as_bytes(), &[7; 50]]),
            _ => set_until(key, name.as_bytes(), at.as_bytes()),
        };
        run(&mut random, &[op], step == 500);
    }
    let all = [&leader, &follower, &late];
    assert!(all.iter().all(|replica| replica.hash() == leader.hash()));
    for replica in all {
        replica.tick(2_500);
        replica.tidy();
    }
    let mut removed = 0;
    while let Some(key) = leader.engine.take_expiring_hash() {
        removed += 1;
        for _ in 0..20 {
            run(&mut random, &[remove_passed(&key)], false);
        }
    }
    assert_eq!(removed, 2);
    assert!(
        follower.engine.take_expiring_hash().is_some(),
        "it has not looked again"
    );
    assert!(all.iter().all(|replica| replica.hash() == leader.hash()));
    for replica in all {
        replica.tick(3_000);
        replica.tidy();
        let passed = replica.execute(&[call(b"a", hashes::HLEN, &[])]).unwrap();
        assert_eq!(
            passed,
            leader.execute(&[call(b"a", hashes::HLEN, &[])]).unwrap()
        );
        assert!(!matches!(passed[0], OwnedReply::Int(0)));
    }
}

/// The leader's time must not pass a deadline that is not known.
#[test]
fn entries_of_operations_tell_all_deadlines_before_they_are_published() {
    let replica = Replica::new();
    let execute = |ops: &[Op<'_>]| -> Vec<u64> {
        let mut told = Vec::new();
        let index = replica.engine.applied().next();
        let mut applier = replica.applier.borrow_mut();
        let done = applier.execute(index, 900, ops, &mut |deadline| {
            assert_eq!(
                replica.engine.applied().next(),
                index,
                "it is not published"
            );
            told.push(deadline);
        });
        done.expect("nothing is refused");
        told
    };
    assert_eq!(execute(&[put_until(b"k", b"1", 1_000)]), [1_000]);
    let keep = Op::Append {
        key: b"k",
        value: b"more",
    };
    assert_eq!(execute(&[keep]), [1_000]);
    assert!(execute(&[Op::put(b"k", b"2")]).is_empty());
    assert_eq!(execute(&[put_until(b"h", b"1", 1_100)]), [1_100]);
    assert!(execute(&[Op::Delete { key: b"h" }]).is_empty());
    for count in [10, 2_000] {
        let texts: Vec<(String, String)> = (0..count)
            .map(|number| (format!("field {number}"), (3_000 + number).to_string()))
            .collect();
        let fields = texts.iter();
        let ops: Vec<Op<'_>> = fields
            .map(|(name, deadline)| set_until(b"h", name.as_bytes(), deadline.as_bytes()))
            .collect();
        let all: Vec<u64> = (3_000..3_000 + count).collect();
        assert_eq!(execute(&ops), all);
    }
    let change = call(b"h", hashes::HSET, &[b"another", b"value"]);
    assert_eq!(execute(&[change]).len(), 2_000);
}
