//! Random transactions on streams, small and large ones, beside the same commands on packed blocks: what they
//! answer, what snapshots have, what restarts make of the log up to any transaction, with a checkpoint and without,
//! what replicas have, and that all memory is given back. And what the log gets of them.

use std::collections::BTreeMap;

use base::Op;
use base::partition::OwnedReply;
use base::transaction::{Expiry, Kind, ValueCall};
use fastrand::Rng;
use kumiki_engine::{Snapshot, SnapshotEntry};
use testkit::amount;
use values::{StoredValue, ValueChange, streams};

use crate::collections::memory_at_rest;
use crate::support::replica::{Replica, stager};
use crate::support::{Logged, World, holder};

const KEYS: [&str; 3] = ["a", "b", "c"];

/// A command on a stream, and its arguments.
#[derive(Clone, Debug)]
enum Step {
    Call(&'static str, u16, Vec<String>),
    Delete(&'static str),
    Copy(&'static str, &'static str),
}

fn call(command: u16, args: &[String]) -> ValueCall<'_> {
    let args: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
    ValueCall {
        command,
        seed: 0,
        args: args[..].into(),
    }
}

/// The streams as packed blocks, whose commands are executed at a time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Blocks {
    time_ms: u64,
    of: BTreeMap<&'static str, Vec<u8>>,
}

impl Blocks {
    fn call(&mut self, key: &'static str, call: &ValueCall<'_>) -> OwnedReply {
        let block = self.of.remove(key);
        let stored = block.as_deref();
        let stored = stored.map(|block| StoredValue::new(Kind::Stream, block));
        let (reply, changed) = match values::execute(call, stored, self.time_ms) {
            Err(error) => (OwnedReply::Error(error), None),
            Ok(outcome) => {
                let changed = match outcome.change {
                    ValueChange::Set(Kind::Stream, block) => Some(block),
                    ValueChange::None => None,
                    other => panic!("{other:?}"),
                };
                (OwnedReply::from(&outcome.reply), changed)
            }
        };
        self.of.extend(changed.or(block).map(|block| (key, block)));
        reply
    }

    /// Executes a step, and the operations of it, of which `run` executes those of one transaction.
    fn execute(
        &mut self,
        steps: &[Step],
        mut run: impl FnMut(&Blocks, &[Op<'_>]) -> Vec<OwnedReply>,
    ) {
        let (mut ops, mut expected) = (Vec::new(), Vec::new());
        let blocks = self.of.clone();
        for step in steps {
            match step {
                Step::Call(key, command, args) => {
                    let call = call(*command, args);
                    expected.push(self.call(key, &call));
                    let key = key.as_bytes();
                    ops.push(Op::Call { key, call });
                }
                Step::Delete(key) => {
                    let count = i64::from(self.of.remove(key).is_some());
                    expected.push(OwnedReply::Int(count));
                    let key = key.as_bytes();
                    ops.push(Op::Delete { key });
                }
                Step::Copy(from, to) => {
                    let Some(value) = blocks.get(from) else {
                        continue;
                    };
                    self.of.insert(to, value.clone());
                    expected.push(OwnedReply::Ok);
                    ops.push(Op::PutAny {
                        key: to.as_bytes(),
                        kind: Kind::Stream,
                        value,
                        expiry: Expiry::Never,
                    });
                }
            }
        }
        let after = self.clone();
        assert_eq!(run(&after, &ops), expected, "{steps:?}");
    }

    /// Checks all streams, which `run` reads.
    fn check(&self, mut run: impl FnMut(&[Op<'_>]) -> Vec<OwnedReply>) {
        for name in KEYS {
            let key = name.as_bytes();
            let expected = match self.of.get(name) {
                Some(block) => OwnedReply::Value(Kind::Stream, block.clone()),
                None => OwnedReply::Nil,
            };
            assert!(run(&[Op::GetAny { key }]) == [expected], "{name}");
        }
    }
}

/// Draws the steps of a transaction. The ids of entries are of one time, and have numbers below `last`.
fn draw(random: &mut Rng, last: &mut u32) -> Vec<Step> {
    let key = KEYS[random.usize(..KEYS.len())];
    match random.u32(..40) {
        0 => return vec![Step::Delete(key)],
        1 => return vec![Step::Copy(key, KEYS[random.usize(..KEYS.len())])],
        _ => {}
    }
    let count = match random.u32(..12) {
        0 => random.usize(60..250),
        _ => random.usize(1..5),
    };
    let adds = count > 10 && random.bool();
    let mut steps = Vec::new();
    for _ in 0..count {
        let mut id = || format!("1000-{}", random.u32(..(*last).max(1)));
        let (one, other) = (id(), id());
        let group = ["g", "h"][random.usize(..2)];
        let consumer = ["alice", "bob", "c"][random.usize(..3)];
        let (command, args) = match random.u32(..16) {
            _ if adds => (streams::XADD, "* field value".to_owned()),
            0..4 => {
                let length = random.usize(..40);
                (streams::XADD, format!("* f {}", "v".repeat(length)))
            }
            4 => (
                streams::XADD,
                format!("MAXLEN ~ {} * f v", random.u32(..300)),
            ),
            5 => (streams::XDEL, format!("{one} {other}")),
            6 if random.bool() => {
                let sign = ["=", "~"][random.usize(..2)];
                (streams::XTRIM, format!("MINID {sign} {one}"))
            }
            7 => (streams::XGROUP_CREATE, format!("{group} {one} MKSTREAM")),
            8 => match random.u32(..12) {
                0 => (streams::XGROUP_DESTROY, group.to_owned()),
                1 => (streams::XGROUP_DELCONSUMER, format!("{group} {consumer}")),
                _ => (streams::XGROUP_SETID, format!("{group} {one}")),
            },
            9..12 => {
                let most = random.u32(1..20);
                (streams::XREADGROUP, format!("> {most} {group} {consumer}"))
            }
            12 => (streams::XACK, format!("{group} {one} {other}")),
            13 => (
                streams::XCLAIM,
                format!("{group} {consumer} 0 {one} {other}"),
            ),
            14 => (streams::XAUTOCLAIM, format!("{group} {consumer} 0 {one}")),
            _ => (streams::XRANGE, format!("{one} {other} COUNT 10")),
        };
        *last += u32::from(command == streams::XADD);
        let args = args.split_whitespace().map(str::to_owned).collect();
        steps.push(Step::Call(key, command, args));
    }
    steps
}

/// A world, its streams, and earlier states of both.
struct Modelled {
    world: World,
    blocks: Blocks,
    /// The length of the log after each transaction, and the streams then.
    states: Vec<(usize, Blocks)>,
    /// The number of the last prepared attempt; `None`: there are none. What becomes of them stays in memory.
    attempts: Option<u64>,
}

impl Modelled {
    fn execute(&mut self, steps: &[Step], random: &mut Rng) {
        let (world, attempts) = (&self.world, &mut self.attempts);
        self.blocks.execute(steps, |after, ops| {
            let Some(number) = attempts.as_mut().filter(|_| random.u32(..4) == 0) else {
                return world.run(ops);
            };
            if ops.iter().all(Op::is_read_only) {
                return world.run(ops);
            }
            let mut worker = world.worker();
            if random.bool() {
                *number += 1;
                world.prepare(&mut worker, *number, ops).unwrap();
                worker.abort(holder(*number).id).unwrap();
            }
            *number += 1;
            let id = holder(*number).id;
            let replies = world.prepare(&mut worker, *number, ops).unwrap();
            if random.u32(..24) == 0 {
                let restarted = world.restarted();
                restarted.worker().commit(id).unwrap();
                after.check(|ops| restarted.run(ops));
            }
            worker.commit(id).unwrap();
            replies
        });
        let logged = self.world.log.entries.lock().len();
        self.states.push((logged, self.blocks.clone()));
    }

    fn check_snapshot(&self, snapshot: &Snapshot, state: usize) {
        let mut worker = self.world.worker();
        for key in KEYS {
            let block = |entry: SnapshotEntry<'_>| entry.value.bytes().into_owned();
            let block = worker.read_snapshot(snapshot, key.as_bytes(), block);
            assert!(block.as_ref() == self.states[state].1.of.get(key));
        }
    }

    /// Restores the log up to a transaction.
    fn restart(&self, random: &mut Rng) {
        let (length, blocks) = &self.states[random.usize(..self.states.len())];
        let log = self.world.log.entries.lock()[..*length].to_vec();
        let restarted = self.world.restarted_with(log);
        blocks.check(|ops| restarted.run(ops));
    }

    /// Restores a snapshot, as a checkpoint has it, and the log from somewhere before it up to somewhere behind.
    fn restart_from(&self, snapshot: &Snapshot, state: usize, random: &mut Rng) {
        let (end, blocks) = &self.states[random.usize(state..self.states.len())];
        let start = random.usize(..=self.states[state].0);
        let mut entries = self.world.checkpointed(snapshot);
        entries.extend_from_slice(&self.world.log.entries.lock()[start..*end]);
        let restarted = self.world.restarted_with(entries);
        blocks.check(|ops| restarted.run(ops));
    }
}

fn run(seed: u64) {
    let random = &mut Rng::with_seed(seed);
    let has_attempts = seed.is_multiple_of(2);
    let empty = memory_at_rest(&World::without_read_atomic());
    let blocks = Blocks {
        time_ms: 1_000,
        ..Blocks::default()
    };
    let mut modelled = Modelled {
        world: World::without_read_atomic(),
        blocks: blocks.clone(),
        states: vec![(0, blocks)],
        attempts: has_attempts.then_some(0),
    };
    let (mut snapshots, mut last, mut longest) = (Vec::new(), 0, 0);
    for _ in 0..500 {
        modelled.execute(&draw(random, &mut last), random);
        let lengths = modelled.blocks.of.values().map(Vec::len);
        longest = longest.max(lengths.max().unwrap_or(0));
        match random.u32(..12) {
            0..2 => snapshots.push((modelled.world.engine.snapshot(), modelled.states.len() - 1)),
            2..4 if !snapshots.is_empty() => {
                let (snapshot, state) = snapshots.swap_remove(random.usize(..snapshots.len()));
                modelled.check_snapshot(&snapshot, state);
                modelled.restart_from(&snapshot, state, random);
            }
            4 => modelled.restart(random),
            5..8 => modelled.world.tidy(),
            _ => {}
        }
    }
    modelled.blocks.check(|ops| modelled.world.run(ops));
    assert!(longest > 8_000, "they had at most {longest} bytes");
    snapshots.clear();
    if !has_attempts {
        let deletions = KEYS.map(|key| Op::Delete {
            key: key.as_bytes(),
        });
        modelled.world.run(&deletions);
        assert_eq!(memory_at_rest(&modelled.world), empty);
    }
}

#[test]
fn streams_are_as_their_blocks_in_all_states() {
    (0..amount(4, 40)).for_each(run);
}

/// A leader, a follower from the beginning on, and one that loads a snapshot now and then.
fn replicate(seed: u64) {
    let random = &mut Rng::with_seed(seed);
    let (leader, follower, mut late) = (Replica::new(), Replica::new(), None::<Replica>);
    [&leader, &follower].iter().for_each(|one| one.tick(1_000));
    let mut blocks = Blocks {
        time_ms: 1_000,
        ..Blocks::default()
    };
    let (mut number, mut last) = (0, 0);
    for _ in 0..400 {
        let steps = draw(random, &mut last);
        blocks.execute(&steps, |_, ops| {
            number += 1;
            let staged = leader.stage(number, ops).unwrap();
            if staged.writes > 0 {
                let entry = leader.entry();
                leader.apply(&entry);
                follower.apply(&entry);
                late.iter().for_each(|late| late.apply(&entry));
            }
            leader.engine.release(stager(number).id);
            staged.value
        });
        match random.u32(..40) {
            0 => {
                let replica = Replica::new();
                replica.load(&leader);
                late = Some(replica);
            }
            1..4 => leader.tidy(),
            4..7 => follower.tidy(),
            _ => {}
        }
    }
    for replica in [Some(&leader), Some(&follower), late.as_ref()] {
        let Some(replica) = replica else { continue };
        blocks.check(|ops| replica.execute(ops).unwrap());
        assert_eq!(replica.hash(), leader.hash());
    }
}

#[test]
fn replicas_have_the_streams_of_their_leader() {
    (0..amount(4, 40)).for_each(replicate);
}

/// Each change of a large stream is logged in a few bytes, also a trim of most of it.
#[test]
fn the_log_gets_changes_of_a_large_stream() {
    let world = World::new();
    let run = |command: u16, args: &str| {
        let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
        let call = call(command, &args);
        let replies = world.run(&[Op::Call { key: b"s", call }]);
        let entries = world.log.entries.lock();
        let (_, changes) = entries.last().expect("something was logged");
        let changes = match &changes[..] {
            [Logged::Elements { changes, .. }] => changes.len(),
            _ => usize::MAX,
        };
        (replies, changes)
    };
    let adds: Vec<Vec<String>> = (1..=20_000)
        .map(|number| vec![format!("1-{number}"), "field".into(), "value".into()])
        .collect();
    let adds: Vec<Op<'_>> = adds
        .iter()
        .map(|args| Op::Call {
            key: b"s",
            call: call(streams::XADD, args),
        })
        .collect();
    adds.chunks(1_000).for_each(|adds| drop(world.run(adds)));
    for (command, args, most) in [
        (streams::XADD, "* field value", 30),
        (streams::XADD, "MAXLEN 20000 * field value", 30),
        (streams::XDEL, "1-7000", 10),
        (streams::XGROUP_CREATE, "group 0", 20),
        (streams::XREADGROUP, "> 1 group consumer", 100),
        (streams::XREADGROUP, "> 100 group consumer", 4_000),
        (streams::XCLAIM, "group other 0 1-5", 80),
        (streams::XACK, "group 1-5", 20),
        (streams::XSETID, "9000-1", 30),
        (streams::XGROUP_DELCONSUMER, "group consumer", 20),
        (streams::XTRIM, "MAXLEN 100", 10),
        (streams::XTRIM, "MINID 1-19990", 10),
    ] {
        let (replies, changes) = run(command, args);
        assert!(
            !matches!(replies[..], [OwnedReply::Error(_)]),
            "{replies:?}"
        );
        assert!(changes <= most, "{args} is logged in {changes} bytes");
    }
    let restarted = world.restarted();
    let read = || Op::GetAny { key: b"s" };
    assert!(restarted.run(&[read()]) == world.run(&[read()]));
}
