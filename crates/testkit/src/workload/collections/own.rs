//! A client's own collections, which no other client changes.
//!
//! After a transaction of unknown outcome the client begins with other keys: the contents of the earlier ones are
//! those before or after the transaction.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use history::Value;

use super::super::{
    Client, CollectionModel, CollectionStep, Ended, Plan, Seen, Step, Times, Workload,
};
use super::keys::PREFIX;
use crate::error::TestkitError;

/// Of each type there are so many.
const KEYS: usize = 2;
/// Fields, members and elements are below.
const NUMBERS: Value = 400;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct OwnCollections {
    /// The first group of keys of this round.
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
}

const KINDS: [OwnKind; 4] = [
    OwnKind::List,
    OwnKind::Hash,
    OwnKind::Set,
    OwnKind::SortedSet,
];

fn name(group: u64, kind: OwnKind, key: usize) -> String {
    let kind = match kind {
        OwnKind::List => "list",
        OwnKind::Hash => "hash",
        OwnKind::Set => "set",
        OwnKind::SortedSet => "zset",
    };
    format!("{PREFIX}own:{group}:{kind}:{key}")
}

/// Returns the steps that read a group of keys.
fn reads(group: u64) -> impl Iterator<Item = CollectionStep> {
    let keys = move |kind| (0..KEYS).map(move |key| (kind, name(group, kind, key)));
    KINDS
        .into_iter()
        .flat_map(keys)
        .map(|(kind, key)| read(kind, key))
}

fn read(kind: OwnKind, key: String) -> CollectionStep {
    match kind {
        OwnKind::List => CollectionStep::Elements { key },
        OwnKind::Hash => CollectionStep::Fields { key },
        OwnKind::Set => CollectionStep::Members { key },
        OwnKind::SortedSet => CollectionStep::Scores { key },
    }
}

fn apply(model: &mut CollectionModel, step: &Step) -> Seen {
    match step {
        Step::Collection(step) => model.apply(step),
        Step::Delete { key } => Seen::Deleted(model.remove(key)),
        other => unreachable!("{other:?} is not drawn"),
    }
}

impl OwnCollections {
    fn groups(&self) -> Range<u64> {
        self.first..self.next.load(Ordering::Relaxed)
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
        client.begin_group();
        client
    }

    fn reads(&self) -> Plan {
        let steps = self.groups().flat_map(reads);
        Plan {
            steps: steps.map(Step::Collection).collect(),
        }
    }

    fn check(&mut self, clients: Vec<OwnClient>, found: Option<&[Seen]>) -> Vec<String> {
        let groups = self.groups();
        self.first = groups.end;
        let mut models = BTreeMap::new();
        clients
            .into_iter()
            .for_each(|client| models.extend(client.groups));
        let Some(found) = found else {
            return Vec::new();
        };
        let mut complaints = Vec::new();
        for (group, found) in groups.zip(found.chunks(KINDS.len() * KEYS)) {
            let possible = models.remove(&group).unwrap_or_default();
            let mut contents = possible.into_iter().map(|mut model| {
                let seen = reads(group).map(|step| model.apply(&step));
                seen.collect::<Vec<Seen>>()
            });
            let likely = contents.next().unwrap_or_default();
            if likely == found || contents.any(|other| other == found) {
                continue;
            }
            let mut pairs = reads(group).zip(found.iter().zip(&likely));
            let differs = pairs.find(|(_, (found, likely))| found != likely);
            complaints.extend(differs.map(|(step, (found, likely))| {
                format!("{} has {found:?} instead of {likely:?}", step.key())
            }));
        }
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
            _ => self.change(kind, key, other),
        };
        Step::Collection(step)
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
            (OwnKind::Hash, 0) => CollectionStep::RemoveFields {
                key,
                fields: self.numbers(),
            },
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
