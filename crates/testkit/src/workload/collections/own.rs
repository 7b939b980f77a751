//! A client's own collections, which no other client changes at the same time.
//!
//! After a transaction of unknown outcome the client begins with other keys: the contents of the earlier ones are
//! those before or after the transaction. A client of a later round goes on with keys whose contents are known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fastrand::Rng;
use history::Value;

use super::super::{
    Client, CollectionModel, CollectionStep, Ended, Plan, Seen, Step, StreamModel, StreamStep,
    Times, Workload,
};
use super::keys::PREFIX;
use crate::error::TestkitError;

/// Of each type there are so many.
const KEYS: usize = 2;
/// Fields, members and elements are below.
const NUMBERS: Value = 400;

/// The most groups of keys that are kept from one round to the next.
const MOST_KEPT: usize = 32;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct OwnCollections {
    /// The contents at the end of the last round of groups that clients go on with.
    kept: BTreeMap<u64, CollectionModel>,
    /// Those of them that no client has yet.
    free: Mutex<Vec<u64>>,
    /// The first group of keys that is new in this round.
    first: u64,
    /// The next group of keys that a client begins with.
    next: Arc<AtomicU64>,
}

/// A client.
#[derive(Debug)]
pub struct OwnClient {
    random: Rng,
    next: Arc<AtomicU64>,
    group: u64,
    /// The contents of all groups that it has had, and those that they may have instead.
    groups: BTreeMap<u64, Vec<CollectionModel>>,
    /// The results that the current transaction must have, and the contents then.
    expected: (Vec<Seen>, CollectionModel),
}

#[derive(Clone, Copy)]
enum OwnKind {
    List,
    Hash,
    Set,
    SortedSet,
    Stream,
}

const KINDS: [OwnKind; 5] = [
    OwnKind::List,
    OwnKind::Hash,
    OwnKind::Set,
    OwnKind::SortedSet,
    OwnKind::Stream,
];

fn name(group: u64, kind: OwnKind, key: usize) -> String {
    let kind = match kind {
        OwnKind::List => "list",
        OwnKind::Hash => "hash",
        OwnKind::Set => "set",
        OwnKind::SortedSet => "zset",
        OwnKind::Stream => "stream",
    };
    format!("{PREFIX}own:{group}:{kind}:{key}")
}

/// The number of steps that read a group of keys.
const READS: usize = (KINDS.len() + 1) * KEYS;

/// Returns the steps that read a group of keys.
fn reads(group: u64) -> impl Iterator<Item = CollectionStep> {
    let keys = move |kind| (0..KEYS).map(move |key| (kind, name(group, kind, key)));
    let contents = KINDS.into_iter().flat_map(keys);
    let deadlines = keys(OwnKind::Hash).map(|(_, key)| CollectionStep::FieldDeadlines {
        key,
        fields: (0..NUMBERS).collect(),
    });
    contents.map(|(kind, key)| read(kind, key)).chain(deadlines)
}

fn read(kind: OwnKind, key: String) -> CollectionStep {
    match kind {
        OwnKind::List => CollectionStep::Elements { key },
        OwnKind::Hash => CollectionStep::Fields { key },
        OwnKind::Set => CollectionStep::Members { key },
        OwnKind::SortedSet => CollectionStep::Scores { key },
        OwnKind::Stream => CollectionStep::Stream(StreamStep::Entries { key }),
    }
}

/// Returns what the reads of a group show.
fn contents(group: u64, model: &CollectionModel) -> Vec<Seen> {
    let mut model = model.clone();
    reads(group).map(|step| model.apply(&step)).collect()
}

fn apply(model: &mut CollectionModel, step: &Step) -> Seen {
    match step {
        Step::Collection(step) => model.apply(step),
        Step::Delete { key } => Seen::Deleted(model.remove(key)),
        other => unreachable!("{other:?} is not drawn"),
    }
}

impl OwnCollections {
    /// Returns the groups of this round.
    fn groups(&self) -> impl Iterator<Item = u64> {
        let new = self.first..self.next.load(Ordering::Relaxed);
        self.kept.keys().copied().chain(new)
    }
}

impl Workload for OwnCollections {
    type Client = OwnClient;

    fn setup(&self) -> Plan {
        Plan::default()
    }

    fn start(&self, random: Rng) -> OwnClient {
        let mut client = OwnClient {
            random,
            next: Arc::clone(&self.next),
            group: 0,
            groups: BTreeMap::new(),
            expected: Default::default(),
        };
        match self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
        {
            Some(group) => {
                client.group = group;
                client.groups.insert(group, vec![self.kept[&group].clone()]);
            }
            None => client.begin_group(),
        }
        client
    }

    fn reads(&self) -> Plan {
        let steps = self.groups().flat_map(reads);
        Plan {
            steps: steps.map(Step::Collection).collect(),
        }
    }

    fn check(&mut self, clients: Vec<OwnClient>, found: Option<&[Seen]>) -> Vec<String> {
        let groups: Vec<u64> = self.groups().collect();
        self.first = self.next.load(Ordering::Relaxed);
        let mut models: BTreeMap<u64, Vec<CollectionModel>> = BTreeMap::new();
        let kept = std::mem::take(&mut self.kept).into_iter();
        models.extend(kept.map(|(group, model)| (group, vec![model])));
        clients
            .into_iter()
            .for_each(|client| models.extend(client.groups));
        let mut complaints = Vec::new();
        let found = found.unwrap_or_default().chunks(READS);
        for (group, found) in groups.into_iter().zip(found) {
            let possible = models.remove(&group).unwrap_or_default();
            let contents = possible.iter().map(|model| contents(group, model));
            let contents: Vec<Vec<Seen>> = contents.collect();
            if contents.iter().any(|one| one == found) {
                // A transaction of unknown outcome may take effect later.
                if let ([_], true) = (&possible[..], self.kept.len() < MOST_KEPT) {
                    self.kept
                        .extend(possible.into_iter().map(|one| (group, one)));
                }
                continue;
            }
            let likely = contents.into_iter().next().unwrap_or_default();
            let mut pairs = reads(group).zip(found.iter().zip(&likely));
            let differs = pairs.find(|(_, (found, likely))| found != likely);
            complaints.extend(differs.map(|(step, (found, likely))| {
                format!("{} has {found:?} instead of {likely:?}", step.key())
            }));
        }
        self.free = Mutex::new(self.kept.keys().copied().collect());
        complaints
    }
}

impl OwnClient {
    fn begin_group(&mut self) {
        self.group = self.next.fetch_add(1, Ordering::Relaxed);
        self.groups
            .insert(self.group, vec![CollectionModel::default()]);
    }

    fn model(&mut self) -> &mut Vec<CollectionModel> {
        self.groups.entry(self.group).or_default()
    }

    /// Draws a number of numbers: mostly few, at times so many that the collection is a large one.
    fn numbers(&mut self) -> Vec<Value> {
        let count = match self.random.u32(..12) {
            0 => self.random.usize(100..250),
            _ => self.random.usize(1..5),
        };
        (0..count).map(|_| self.random.i64(0..NUMBERS)).collect()
    }

    fn pairs(&mut self) -> Vec<(Value, Value)> {
        let numbers = self.numbers().into_iter();
        numbers
            .map(|number| (number, self.random.i64(0..NUMBERS)))
            .collect()
    }

    /// Draws a step on collections that are like the model.
    fn step(&mut self, model: &CollectionModel) -> Step {
        let kind = KINDS[self.random.usize(..KINDS.len())];
        let at = self.random.usize(..KEYS);
        let key = name(self.group, kind, at);
        let other = name(self.group, kind, (at + 1) % KEYS);
        let step = match self.random.u32(..100) {
            0..8 => CollectionStep::Copy {
                from: key,
                to: other,
            },
            8..12 if model.has(&key) => CollectionStep::Rename {
                from: key,
                to: other,
            },
            12..15 => return Step::Delete { key },
            15..19 => CollectionStep::Expire { key },
            19..28 => read(kind, key),
            _ if matches!(kind, OwnKind::Stream) => {
                let step = self.change_of_stream(model.stream(&key), key);
                CollectionStep::Stream(step)
            }
            _ => self.change(kind, key, other),
        };
        Step::Collection(step)
    }

    /// Draws a change of a stream that is like the model, or a read of its pending entries.
    fn change_of_stream(&mut self, stream: Option<&StreamModel>, key: String) -> StreamStep {
        let last_id = stream.map_or(0, StreamModel::last_id);
        let has_group = stream.is_some_and(StreamModel::has_group);
        let ids = |random: &mut Rng| {
            let count = random.usize(1..8);
            let ids = (0..count).map(|_| random.i64((last_id - 40).max(0)..=last_id + 1));
            ids.collect()
        };
        match self.random.u32(..16) {
            0..3 if !has_group => StreamStep::MakeGroup { key },
            0 => StreamStep::Pending { key },
            1..4 if has_group => StreamStep::Deliver {
                key,
                count: self.random.usize(1..20),
            },
            4..6 => StreamStep::Acknowledge {
                key,
                ids: ids(&mut self.random),
            },
            6 => StreamStep::Remove {
                key,
                ids: ids(&mut self.random),
            },
            7 if self.random.bool() => StreamStep::Trim {
                key,
                length: self.random.usize(..60),
            },
            _ => StreamStep::Add {
                key,
                id: last_id + self.random.i64(1..3),
                value: self.random.i64(0..NUMBERS),
            },
        }
    }

    fn change(&mut self, kind: OwnKind, key: String, other: String) -> CollectionStep {
        let number = self.random.i64(0..NUMBERS);
        match (kind, self.random.u32(..4)) {
            (OwnKind::List, 0) => CollectionStep::PushHead {
                key,
                values: self.numbers(),
            },
            (OwnKind::List, 1) => match self.random.u32(..4) {
                0 => {
                    let first = self.random.usize(..20);
                    let last = first + self.random.usize(..NUMBERS as usize);
                    CollectionStep::Trim { key, first, last }
                }
                1 => CollectionStep::PopHead { key },
                _ => CollectionStep::MoveElement {
                    from: key,
                    to: other,
                },
            },
            (OwnKind::List, _) => CollectionStep::PushTail {
                key,
                values: self.numbers(),
            },
            (OwnKind::Hash, 0) => {
                let mut fields = self.numbers();
                match self.random.u32(..4) {
                    0 => CollectionStep::FieldDeadlines { key, fields },
                    1 => CollectionStep::RemoveFields { key, fields },
                    _ => {
                        fields.sort_unstable();
                        fields.dedup();
                        CollectionStep::ExpireFields { key, fields }
                    }
                }
            }
            (OwnKind::Hash, 1) => CollectionStep::AddToField {
                key,
                field: number,
                delta: number - NUMBERS / 2,
            },
            (OwnKind::Hash, _) => CollectionStep::SetFields {
                key,
                fields: self.pairs(),
            },
            (OwnKind::Set, 0) => CollectionStep::RemoveMembers {
                key,
                members: self.numbers(),
            },
            (OwnKind::Set, 1) => CollectionStep::MoveMember {
                from: key,
                to: other,
                member: number,
            },
            (OwnKind::Set, _) => CollectionStep::AddMembers {
                key,
                members: self.numbers(),
            },
            (OwnKind::SortedSet, 0) => CollectionStep::RemoveScores {
                key,
                members: self.numbers(),
            },
            (OwnKind::SortedSet, 1) => CollectionStep::AddToScore {
                key,
                member: number,
                delta: number - NUMBERS / 2,
            },
            (OwnKind::SortedSet, _) => CollectionStep::SetScores {
                key,
                scores: self.pairs(),
            },
            (OwnKind::Stream, _) => unreachable!("their changes depend on the model"),
        }
    }
}

impl Client for OwnClient {
    fn plan(&mut self) -> Plan {
        let mut model = self.model()[0].clone();
        let (mut steps, mut seen) = (Vec::new(), Vec::new());
        for _ in 0..self.random.usize(1..4) {
            let step = self.step(&model);
            seen.push(apply(&mut model, &step));
            steps.push(step);
        }
        self.expected = (seen, model);
        Plan { steps }
    }

    fn end(&mut self, plan: &Plan, ended: &Ended, _: Times) -> Result<(), TestkitError> {
        let (expected, after) = std::mem::take(&mut self.expected);
        match ended {
            Ended::Committed(seen) => {
                *self.model() = vec![after];
                let mut all = plan.steps.iter().zip(seen).zip(&expected);
                match all.find(|((_, seen), expected)| seen != expected) {
                    None => Ok(()),
                    Some(((step, seen), expected)) => Err(TestkitError::deviation(format!(
                        "{step:?} of {plan:?} was answered with {seen:?} instead of {expected:?}"
                    ))),
                }
            }
            Ended::Unknown => {
                self.model().push(after);
                self.begin_group();
                Ok(())
            }
            Ended::Aborted => Ok(()),
        }
    }
}
