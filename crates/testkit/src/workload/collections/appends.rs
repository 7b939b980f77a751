//! Lists that only grow.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use history::appends::{ListOp, ListTransaction, strictly_serializable_appends};
use history::{Outcome, Value};

use super::super::{Client, CollectionStep, Ended, Plan, Seen, Step, Times, Workload};
use super::keys::PREFIX;
use crate::error::TestkitError;

const LISTS: usize = 3;
/// Once a list has so many elements, new ones are begun.
const LONGEST: usize = 1500;
/// The elements of each list at the beginning, which make it a large collection.
const FIRST: Value = 150;
/// The elements that one client may append.
const ELEMENTS: u64 = 1_000_000;

/// See the [module](self).
#[derive(Debug)]
pub struct Appends {
    /// The lists' generation, which is in their names.
    generation: u64,
    /// Their contents at the end of the last round.
    known: [Vec<Value>; LISTS],
    /// Transactions of earlier rounds that may still take effect.
    open: Vec<ListTransaction>,
    /// Clients that were started.
    clients: AtomicU64,
}

impl Default for Appends {
    fn default() -> Appends {
        Appends {
            generation: 0,
            known: std::array::from_fn(|_| (-FIRST..0).collect()),
            open: Vec::new(),
            clients: AtomicU64::new(0),
        }
    }
}

/// A client.
#[derive(Debug)]
pub struct AppendClient {
    random: Rng,
    generation: u64,
    next: u64,
    done: Vec<ListTransaction>,
}

fn name(generation: u64, list: usize) -> String {
    format!("{PREFIX}appended:{generation}:{list}")
}

fn read(key: String) -> Step {
    Step::Collection(CollectionStep::Elements { key })
}

/// Returns what is known of a transaction.
fn recorded(plan: &Plan, ended: &Ended, times: Times) -> ListTransaction {
    let (outcome, seen) = match ended {
        Ended::Committed(seen) => (Outcome::Committed, &seen[..]),
        Ended::Aborted => (Outcome::Aborted, &[][..]),
        Ended::Unknown => (Outcome::Unknown, &[][..]),
    };
    let op = |(at, step): (usize, &Step)| match (step, seen.get(at)) {
        (Step::Collection(CollectionStep::PushTail { key, values }), seen) => {
            let length = seen.and_then(Seen::value);
            let length = length.and_then(|length| u64::try_from(length).ok());
            Some(ListOp::Append {
                list: key.clone(),
                value: *values.first()?,
                length,
            })
        }
        (Step::Collection(step), Some(Seen::Numbers(elements))) => Some(ListOp::Read {
            list: step.key().to_owned(),
            elements: elements.clone(),
        }),
        _ => None,
    };
    ListTransaction {
        start: times.start,
        end: times.end,
        outcome,
        ops: plan.steps.iter().enumerate().filter_map(op).collect(),
    }
}

impl Appends {
    /// Returns the transaction that stands for all of earlier rounds.
    fn earlier(&self) -> ListTransaction {
        let lists = self.known.iter().enumerate();
        let appends = lists.flat_map(|(list, elements)| {
            let elements = elements.iter().zip(1..);
            elements.map(move |(value, length)| ListOp::Append {
                list: name(self.generation, list),
                value: *value,
                length: Some(length),
            })
        });
        ListTransaction {
            start: 0,
            end: 0,
            outcome: Outcome::Committed,
            ops: appends.collect(),
        }
    }

    /// Prepares the next round.
    fn go_on(&mut self, done: Vec<ListTransaction>, found: Option<&[Seen]>) {
        let lists = found.unwrap_or_default().iter().map(|seen| match seen {
            Seen::Numbers(elements) => elements.clone(),
            _ => Vec::new(),
        });
        let lists: Vec<Vec<Value>> = lists.collect();
        let is_long = |list: &Vec<Value>| list.len() >= LONGEST;
        match <[Vec<Value>; LISTS]>::try_from(lists) {
            Ok(lists) if !lists.iter().any(is_long) => {
                let there: HashSet<Value> = lists.iter().flatten().copied().collect();
                let is_there = |op: &ListOp| matches!(op, ListOp::Append { value, .. } if there.contains(value));
                let open = done
                    .into_iter()
                    .filter(|one| one.outcome == Outcome::Unknown && !one.ops.iter().any(is_there));
                let open = open.map(|one| ListTransaction { start: 0, ..one });
                self.open = open.collect();
                self.known = lists;
            }
            _ => {
                self.generation += 1;
                self.open.clear();
                self.known = Default::default();
            }
        }
    }
}

impl Workload for Appends {
    type Client = AppendClient;

    fn setup(&self) -> Plan {
        let fill = |list| {
            let key = name(self.generation, list);
            let values = (-FIRST..0).collect();
            let fill = CollectionStep::PushTail {
                key: key.clone(),
                values,
            };
            [Step::Delete { key }, Step::Collection(fill)]
        };
        Plan {
            steps: (0..LISTS).flat_map(fill).collect(),
        }
    }

    fn start(&self, random: Rng) -> AppendClient {
        AppendClient {
            random,
            generation: self.generation,
            next: self.clients.fetch_add(1, Ordering::Relaxed) * ELEMENTS,
            done: Vec::new(),
        }
    }

    fn reads(&self) -> Plan {
        Plan {
            steps: (0..LISTS)
                .map(|list| read(name(self.generation, list)))
                .collect(),
        }
    }

    fn check(&mut self, clients: Vec<AppendClient>, found: Option<&[Seen]>) -> Vec<String> {
        let mut done = std::mem::take(&mut self.open);
        done.extend(clients.into_iter().flat_map(|client| client.done));
        let end = done.iter().map(|one| one.end).max().unwrap_or_default() + 1;
        let mut all = done.clone();
        all.push(self.earlier());
        if let Some(found) = found {
            let ended = Ended::Committed(found.to_vec());
            all.push(recorded(&self.reads(), &ended, Times { start: end, end }));
        }
        self.go_on(done, found);
        let verdict = strictly_serializable_appends(&all);
        verdict.err().iter().map(ToString::to_string).collect()
    }
}

impl AppendClient {
    fn name(&mut self) -> String {
        name(self.generation, self.random.usize(..LISTS))
    }

    fn append(&mut self) -> Step {
        let key = self.name();
        self.next += 1;
        let values = vec![self.next as Value];
        Step::Collection(CollectionStep::PushTail { key, values })
    }
}

impl Client for AppendClient {
    fn plan(&mut self) -> Plan {
        let count = if self.random.bool() {
            1
        } else {
            self.random.usize(2..4)
        };
        let steps = (0..count).map(|_| match self.random.u32(..3) {
            0 => read(self.name()),
            _ => self.append(),
        });
        Plan {
            steps: steps.collect(),
        }
    }

    fn end(&mut self, plan: &Plan, ended: &Ended, times: Times) -> Result<(), TestkitError> {
        self.done.push(recorded(plan, ended, times));
        Ok(())
    }
}
