//! Random transactions on lists, hashes, sets, sorted sets and streams, small and large ones, beside a model: what they
//! answer, what snapshots have, what restarts make of the log up to any transaction, with a checkpoint and
//! without, what replicas have, and that all memory is given back.
//!
//! With a planted bug of collections the test requires that the bug is found.

use std::panic::{self, UnwindSafe};

use base::Op;
use base::nested::NestedItem;
use base::partition::OwnedReply;
use base::planted::{self, Bug};
use base::transaction::{ExpireWhen, Expiry, ValueCall};
use fastrand::Rng;
use kumiki_engine::{Snapshot, SnapshotEntry};
use testkit::workload::collections::own::OwnCollections;
use testkit::workload::{
    Client, CollectionModel, CollectionStep, Ended, Plan, Seen, Step, Times, Workload,
};
use testkit::{Reply, amount};
use values::{StoredValue, hash_deadlines, hashes, lists, sets, sorted_sets, streams};

use crate::collections::memory_at_rest;
use crate::support::replica::{Replica, stager};
use crate::support::{World, holder};

/// Returns the number of a command on one key.
fn command(name: &str) -> u16 {
    match name {
        "LPUSH" => lists::LPUSH,
        "RPUSH" => lists::RPUSH,
        "LPOP" => lists::LPOP,
        "RPOP" => lists::RPOP,
        "LTRIM" => lists::LTRIM,
        "LRANGE" => lists::LRANGE,
        "HSET" => hashes::HSET,
        "HINCRBY" => hashes::HINCRBY,
        "HDEL" => hashes::HDEL,
        "HGETALL" => hashes::HGETALL,
        "HEXPIREAT" => hash_deadlines::HEXPIREAT,
        "HEXPIRETIME" => hash_deadlines::HEXPIRETIME,
        "SADD" => sets::SADD,
        "SREM" => sets::SREM,
        "SMEMBERS" => sets::SMEMBERS,
        "ZADD" => sorted_sets::ZADD,
        "ZINCRBY" => sorted_sets::ZINCRBY,
        "ZREM" => sorted_sets::ZREM,
        "ZRANGE" => sorted_sets::ZRANGE,
        "XADD" => streams::XADD,
        "XDEL" => streams::XDEL,
        "XTRIM" => streams::XTRIM,
        "XRANGE" => streams::XRANGE,
        "XGROUP" => streams::XGROUP_CREATE,
        "XREADGROUP" => streams::XREADGROUP,
        "XACK" => streams::XACK,
        "XPENDING" => streams::XPENDING,
        other => panic!("{other}"),
    }
}

/// Returns the key and the arguments of a command, as operations have them.
fn key_and_args(words: &[String]) -> (&str, Vec<&[u8]>) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (key, args) = match &words[..] {
        ["XGROUP", "CREATE", key, args @ ..] => (*key, args.to_vec()),
        [
            "XREADGROUP",
            "GROUP",
            group,
            consumer,
            "COUNT",
            count,
            "STREAMS",
            key,
            id,
        ] => (*key, vec![*id, *count, *group, *consumer]),
        [_, key, args @ ..] => (*key, args.to_vec()),
        other => panic!("{other:?}"),
    };
    (key, args.into_iter().map(str::as_bytes).collect())
}

fn call(words: &[String]) -> ValueCall<'_> {
    let (_, args) = key_and_args(words);
    ValueCall {
        command: command(&words[0]),
        seed: 0,
        args: args[..].into(),
    }
}

fn operation(words: &[String]) -> Op<'_> {
    let (key, _) = key_and_args(words);
    Op::Call {
        key: key.as_bytes(),
        call: call(words),
    }
}

/// Returns the reply as a server gives it.
fn reply_of(reply: &OwnedReply) -> Reply {
    let nested = match reply {
        OwnedReply::Ok => return Reply::Status("OK".to_owned()),
        OwnedReply::Nil => return Reply::Null,
        OwnedReply::Int(number) => return Reply::Int(*number),
        OwnedReply::Bytes(bytes) => return Reply::Bulk(bytes.clone()),
        OwnedReply::Nested(nested) => nested,
        other => panic!("{other:?}"),
    };
    let mut items: Vec<Reply> = Vec::new();
    let mut is_array = false;
    for item in nested.items() {
        items.push(match item {
            NestedItem::Nil => Reply::Null,
            NestedItem::Ok => Reply::Status("OK".to_owned()),
            NestedItem::Int(number) => Reply::Int(number),
            NestedItem::Double(number) | NestedItem::Decimal(number) => {
                Reply::Bulk(number.to_string().into_bytes())
            }
            NestedItem::Bytes(bytes) => Reply::Bulk(bytes.to_vec()),
            _ => {
                is_array = true;
                continue;
            }
        });
    }
    match is_array {
        true => Reply::Array(items),
        false => items.remove(0),
    }
}

/// Returns the result of a step that was answered so.
fn seen(step: &CollectionStep, reply: &OwnedReply) -> Seen {
    let reply = match (reply_of(reply), &step.request()[0][..]) {
        (Reply::Null, "LRANGE" | "HGETALL" | "SMEMBERS" | "ZRANGE") => Reply::Array(Vec::new()),
        (reply, _) => reply,
    };
    let seen = step.seen(&reply);
    seen.unwrap_or_else(|| panic!("{step:?} was answered with {reply:?}"))
}

/// Executes a step on a model, and the operations that a server makes of it, of which `run` executes those of one
/// transaction.
fn execute(
    model: &mut CollectionModel,
    step: &Step,
    mut run: impl FnMut(&CollectionModel, &[Op<'_>]) -> Vec<OwnedReply>,
) -> Seen {
    let step = match step {
        Step::Collection(step) => step,
        Step::Delete { key } => {
            model.remove(key);
            let key = key.as_bytes();
            let [OwnedReply::Int(count)] = run(model, &[Op::Delete { key }])[..] else {
                panic!("a delete returns a count");
            };
            return Seen::Deleted(count == 1);
        }
        other => panic!("{other:?}"),
    };
    let before = model.clone();
    let expected = model.apply(step);
    let key = step.key().as_bytes();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let (first, second): (Vec<String>, Vec<String>) = match step {
        CollectionStep::Copy { from, to } | CollectionStep::Rename { from, to } => {
            let replies = run(&before, &[Op::GetAny { key }]);
            let [OwnedReply::Value(kind, value)] = &replies[..] else {
                return Seen::Value(Some(0));
            };
            let put = Op::PutAny {
                key: to.as_bytes(),
                kind: *kind,
                value,
                expiry: Expiry::Never,
            };
            if matches!(step, CollectionStep::Copy { .. }) {
                run(model, &[put]);
                return Seen::Value(Some(1));
            }
            let key = from.as_bytes();
            run(model, &[put, Op::Delete { key }]);
            return Seen::Done;
        }
        CollectionStep::Expire { .. } => {
            let (expiry, when) = (Expiry::AtMs(1 << 40), ExpireWhen::Always);
            return seen(step, &run(model, &[Op::Expire { key, expiry, when }])[0]);
        }
        CollectionStep::MoveElement { from, to } => {
            let push = expected.value().map(|value| value.to_string());
            let push = push.map(|value| words(&["LPUSH", to, &value]));
            (words(&["RPOP", from]), push.unwrap_or_default())
        }
        CollectionStep::MoveMember { from, to, member } => {
            let members = vec![*member];
            let (key, to) = (from.clone(), to.clone());
            let (remove, add) = (
                CollectionStep::RemoveMembers {
                    key,
                    members: members.clone(),
                },
                CollectionStep::AddMembers { key: to, members },
            );
            let is_there = expected == Seen::Value(Some(1));
            let add = is_there.then(|| add.request());
            (remove.request(), add.unwrap_or_default())
        }
        step => (step.request(), Vec::new()),
    };
    let both = [&first, &second].into_iter();
    let ops = both
        .filter(|words| !words.is_empty())
        .map(|words| operation(words));
    seen(step, &run(model, &ops.collect::<Vec<Op<'_>>>())[0])
}

/// Checks all contents, which `run` reads, against a model.
fn check(reads: &Plan, model: &CollectionModel, mut run: impl FnMut(&[Op<'_>]) -> Vec<OwnedReply>) {
    let mut model = model.clone();
    for step in steps(reads) {
        let found = seen(step, &run(&[operation(&step.request())])[0]);
        assert_eq!(found, model.apply(step), "{step:?}");
    }
}

fn steps(plan: &Plan) -> impl Iterator<Item = &CollectionStep> {
    plan.steps.iter().map(|step| match step {
        Step::Collection(step) => step,
        other => panic!("{other:?}"),
    })
}

/// A world, the model of its collections, and earlier states of both.
struct Modelled {
    world: World,
    model: CollectionModel,
    /// The length of the log after each plan, and the model then.
    states: Vec<(usize, CollectionModel)>,
    snapshots: Vec<(Snapshot, usize)>,
    reads: Plan,
    rng: Rng,
    /// The number of the last prepared attempt; `None`: there are none. What becomes of them stays in memory.
    attempts: Option<u64>,
}

impl Modelled {
    fn run(&mut self, plan: &Plan) -> Ended {
        let mut model = self.model.clone();
        let steps = plan.steps.iter();
        let seen = steps.map(|step| match self.copy_in_place(&mut model, step) {
            Some(seen) => seen,
            None => execute(&mut model, step, |after, ops| self.transact(after, ops)),
        });
        let seen = seen.collect();
        self.model = model;
        let logged = self.world.log.entries.lock().len();
        self.states.push((logged, self.model.clone()));
        Ended::Committed(seen)
    }

    /// Executes half of the copies and renames within one transaction, where the value is.
    fn copy_in_place(&mut self, model: &mut CollectionModel, step: &Step) -> Option<Seen> {
        let Step::Collection(step) = step else {
            return None;
        };
        let (from, to, moves) = match step {
            CollectionStep::Copy { from, to } => (from.as_bytes(), to.as_bytes(), false),
            CollectionStep::Rename { from, to } => (from.as_bytes(), to.as_bytes(), true),
            _ => return None,
        };
        if self.rng.bool() {
            return None;
        }
        model.apply(step);
        let copied = self.world.worker().transact(|txn| {
            let is_present = txn.copy(from, to)?;
            if is_present && moves {
                txn.delete(from)?;
            }
            Ok(is_present)
        });
        Some(match (copied.unwrap().0, moves) {
            (true, true) => Seen::Done,
            (is_present, _) => Seen::Value(Some(is_present.into())),
        })
    }

    /// Executes a transaction, after which the contents are those of a model: at once, or in two phases, beside
    /// attempts that are aborted and restarts in between.
    fn transact(&mut self, after: &CollectionModel, ops: &[Op<'_>]) -> Vec<OwnedReply> {
        let only_reads = ops.iter().all(Op::is_read_only);
        let attempts = self.attempts.as_mut();
        let Some(number) = attempts.filter(|_| !only_reads && self.rng.u32(..4) == 0) else {
            return self.world.run(ops);
        };
        let mut worker = self.world.worker();
        if self.rng.bool() {
            *number += 1;
            self.world.prepare(&mut worker, *number, ops).unwrap();
            worker.abort(holder(*number).id).unwrap();
        }
        *number += 1;
        let id = holder(*number).id;
        let replies = self.world.prepare(&mut worker, *number, ops).unwrap();
        if self.rng.u32(..24) == 0 {
            let restarted = self.world.restarted();
            restarted.worker().commit(id).unwrap();
            self.check(&restarted, after);
        }
        worker.commit(id).unwrap();
        replies
    }

    fn state(&self, rng: &mut Rng) -> usize {
        rng.usize(..self.states.len())
    }

    /// Checks all contents of a world.
    fn check(&self, world: &World, model: &CollectionModel) {
        check(&self.reads, model, |ops| world.run(ops));
    }

    /// Checks all contents of a snapshot.
    fn check_snapshot(&self, snapshot: &Snapshot, state: usize) {
        let mut model = self.states[state].1.clone();
        let mut worker = self.world.worker();
        for step in steps(&self.reads) {
            let words = step.request();
            let read = |entry: SnapshotEntry<'_>| {
                let bytes = entry.value.bytes();
                let stored = StoredValue::new(entry.kind, &bytes);
                let outcome = values::execute(&call(&words), Some(stored), 0).expect("it suits");
                seen(step, &OwnedReply::from(&outcome.reply))
            };
            let found = worker.read_snapshot(snapshot, words[1].as_bytes(), read);
            let expected = model.apply(step);
            let Some(found) = found else {
                let is_nothing = match &expected {
                    // Of fields that are absent.
                    Seen::Numbers(all) => all.iter().all(|number| *number == -2),
                    other => *other == Seen::Entries(Vec::new()),
                };
                assert!(is_nothing, "{step:?} misses {expected:?}");
                continue;
            };
            assert_eq!(found, expected);
        }
    }

    /// Restores the log up to a transaction.
    fn restart(&self, rng: &mut Rng) {
        let (length, model) = &self.states[self.state(rng)];
        let log = self.world.log.entries.lock()[..*length].to_vec();
        self.check(&self.world.restarted_with(log), model);
    }

    /// Restores a snapshot, as a checkpoint has it, and the log from somewhere before it up to somewhere behind.
    fn restart_from(&self, snapshot: &Snapshot, state: usize, rng: &mut Rng) {
        let (end, model) = &self.states[rng.usize(state..self.states.len())];
        let start = rng.usize(..=self.states[state].0);
        let mut entries = self.world.checkpointed(snapshot);
        entries.extend_from_slice(&self.world.log.entries.lock()[start..*end]);
        self.check(&self.world.restarted_with(entries), model);
    }
}

fn run(seed: u64) {
    let rng = &mut Rng::with_seed(seed);
    let has_attempts = seed.is_multiple_of(2);
    let empty = memory_at_rest(&World::without_read_atomic());
    let workload = OwnCollections::default();
    let mut client = workload.start(rng.fork());
    let mut modelled = Modelled {
        world: World::without_read_atomic(),
        model: CollectionModel::default(),
        states: vec![(0, CollectionModel::default())],
        snapshots: Vec::new(),
        reads: workload.reads(),
        rng: rng.fork(),
        attempts: has_attempts.then_some(0),
    };
    for _ in 0..600 {
        let plan = client.plan();
        let ended = modelled.run(&plan);
        client.end(&plan, &ended, Times::default()).unwrap();
        match rng.u32(..12) {
            0..2 => {
                let snapshot = modelled.world.engine.snapshot();
                let state = modelled.states.len() - 1;
                modelled.snapshots.push((snapshot, state));
            }
            2..4 if !modelled.snapshots.is_empty() => {
                let at = rng.usize(..modelled.snapshots.len());
                let (snapshot, state) = modelled.snapshots.swap_remove(at);
                modelled.check_snapshot(&snapshot, state);
                modelled.restart_from(&snapshot, state, rng);
            }
            4 => modelled.restart(rng),
            5..8 => modelled.world.tidy(),
            _ => {}
        }
    }
    modelled.check(&modelled.world, &modelled.model);
    modelled.snapshots.clear();
    if !has_attempts {
        for step in steps(&modelled.reads) {
            let key = step.key().as_bytes();
            modelled.world.run(&[Op::Delete { key }]);
        }
        assert_eq!(memory_at_rest(&modelled.world), empty);
    }
}

/// Demands that `run` panics if one of these bugs was chosen, and that it does not otherwise.
fn judge(bugs: &[Bug], run: impl FnOnce() + UnwindSafe) {
    if bugs.iter().copied().any(planted::is) {
        panic::catch_unwind(run).expect_err("there is a bug to find");
    } else {
        run();
    }
}

#[test]
fn collections_are_as_their_models_in_all_states() {
    let bugs = [
        Bug::ForgottenElements,
        Bug::RepeatedElements,
        Bug::OldElements,
        Bug::SharedNode,
    ];
    judge(&bugs, || (0..amount(4, 40)).for_each(run));
}

/// A leader, a follower from the beginning on, and one that loads a snapshot now and then.
fn replicate(seed: u64) {
    let rng = &mut Rng::with_seed(seed);
    let workload = OwnCollections::default();
    let mut client = workload.start(rng.fork());
    let (leader, follower, mut late) = (Replica::new(), Replica::new(), None::<Replica>);
    let mut model = CollectionModel::default();
    let (mut number, reads) = (0, workload.reads());
    for _ in 0..400 {
        let plan = client.plan();
        let mut seen = Vec::new();
        for step in &plan.steps {
            seen.push(execute(&mut model, step, |_, ops| {
                if ops.iter().all(Op::is_read_only) {
                    return leader.execute(ops).unwrap();
                }
                number += 1;
                let staged = leader.stage(number, ops).unwrap();
                if staged.writes > 0 {
                    let entry = leader.entry();
                    let others = [Some(&follower), late.as_ref()].into_iter().flatten();
                    [&leader]
                        .into_iter()
                        .chain(others)
                        .for_each(|one| one.apply(&entry));
                }
                leader.engine.release(stager(number).id);
                staged.value
            }));
        }
        client
            .end(&plan, &Ended::Committed(seen), Times::default())
            .unwrap();
        match rng.u32(..40) {
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
        check(&reads, &model, |ops| replica.execute(ops).unwrap());
        assert_eq!(replica.hash(), leader.hash());
    }
}

#[test]
fn replicas_have_the_collections_of_their_leader() {
    let bugs = [Bug::ForgottenElements, Bug::SharedNode];
    judge(&bugs, || (0..amount(4, 40)).for_each(replicate));
}
