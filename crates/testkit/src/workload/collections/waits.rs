//! Queues: lists to whose tails clients push elements, and for whose heads they wait. More clients wait than push, so
//! that queues are often empty.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use history::Value;

use super::super::{Client, CollectionStep, Ended, Plan, Seen, Step, Times, Workload};
use super::keys::PREFIX;
use crate::error::TestkitError;

const QUEUES: usize = 2;
/// The elements that one client may push.
const ELEMENTS: u64 = 1_000_000;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Waits {
    /// Clients that were started.
    clients: AtomicU64,
    /// Elements of all rounds.
    elements: QueuedElements,
}

/// What became of elements.
#[derive(Debug, Default)]
struct QueuedElements {
    /// Whose push was acknowledged.
    pushed: HashSet<Value>,
    /// Whose push has an unknown outcome.
    unknown: HashSet<Value>,
    /// That a client got.
    taken: HashSet<Value>,
    /// Clients whose answer was lost, each of which may have taken an element.
    lost_answers: usize,
    complaints: Vec<String>,
}

/// A client.
#[derive(Debug)]
pub struct WaitClient {
    random: Rng,
    next: u64,
    elements: QueuedElements,
}

impl QueuedElements {
    fn take(&mut self, value: Value) {
        if !self.taken.insert(value) {
            self.complaints
                .push(format!("element {value} of a queue went to two clients"));
        }
    }

    fn merge(&mut self, other: QueuedElements) {
        self.pushed.extend(other.pushed);
        self.unknown.extend(other.unknown);
        self.lost_answers += other.lost_answers;
        self.complaints.extend(other.complaints);
        other.taken.into_iter().for_each(|value| self.take(value));
    }

    /// Checks all elements against those that are left.
    fn judge(&mut self, left: &[Value]) {
        let mut there: HashSet<Value> = HashSet::new();
        for value in left {
            if !there.insert(*value) || self.taken.contains(value) {
                let text =
                    format!("element {value} of a queue is left, and was taken or is there twice");
                self.complaints.push(text);
            }
        }
        let is_known = |value: &&Value| self.pushed.contains(value) || self.unknown.contains(value);
        let invented = there.union(&self.taken).find(|value| !is_known(value));
        let lost = self.pushed.iter();
        let lost = lost.filter(|value| !there.contains(value) && !self.taken.contains(value));
        let mut lost: Vec<Value> = lost.copied().collect();
        if let Some(value) = invented {
            let text = format!("element {value} of a queue was pushed by no client");
            self.complaints.push(text);
        }
        if lost.len() > self.lost_answers {
            lost.sort_unstable();
            let most = self.lost_answers;
            let text = format!("elements of queues are lost, and only {most} answers: {lost:?}");
            self.complaints.push(text);
        }
    }
}

fn name(queue: usize) -> String {
    format!("{PREFIX}queue:{queue}")
}

impl Workload for Waits {
    type Client = WaitClient;

    fn setup(&self) -> Plan {
        Plan::default()
    }

    fn start(&self, random: Rng) -> WaitClient {
        WaitClient {
            random,
            next: self.clients.fetch_add(1, Ordering::Relaxed) * ELEMENTS,
            elements: QueuedElements::default(),
        }
    }

    fn reads(&self) -> Plan {
        let keys = (0..QUEUES).map(name);
        let reads = keys.map(|key| Step::Collection(CollectionStep::Elements { key }));
        Plan {
            steps: reads.collect(),
        }
    }

    fn check(&mut self, clients: Vec<WaitClient>, found: Option<&[Seen]>) -> Vec<String> {
        let elements = &mut self.elements;
        clients
            .into_iter()
            .for_each(|client| elements.merge(client.elements));
        if let Some(found) = found {
            let left = found.iter().flat_map(|seen| match seen {
                Seen::Numbers(numbers) => numbers.as_slice(),
                _ => &[],
            });
            let left: Vec<Value> = left.copied().collect();
            elements.judge(&left);
        }
        std::mem::take(&mut elements.complaints)
    }
}

impl WaitClient {
    fn push(&mut self) -> Step {
        self.next += 1;
        Step::Collection(CollectionStep::PushTail {
            key: name(self.random.usize(..QUEUES)),
            values: vec![self.next as Value],
        })
    }
}

impl Client for WaitClient {
    fn plan(&mut self) -> Plan {
        let key = name(self.random.usize(..QUEUES));
        let steps = match self.random.u32(..10) {
            0..2 => vec![self.push()],
            2 => vec![self.push(), self.push()],
            3 => vec![Step::Collection(CollectionStep::PopHead { key })],
            wait => {
                let is_move = wait == 4;
                let wait = Duration::from_millis(self.random.u64(1..60));
                vec![Step::Collection(match is_move {
                    true => CollectionStep::AwaitMove {
                        from: key,
                        to: name(self.random.usize(..QUEUES)),
                        wait,
                    },
                    false => CollectionStep::AwaitHead { key, wait },
                })]
            }
        };
        Plan { steps }
    }

    fn end(&mut self, plan: &Plan, ended: &Ended, _: Times) -> Result<(), TestkitError> {
        for (at, step) in plan.steps.iter().enumerate() {
            let pushed = match step {
                Step::Collection(CollectionStep::PushTail { values, .. }) => values.first(),
                // The element stays in a queue.
                Step::Collection(CollectionStep::AwaitMove { .. }) => continue,
                _ => None,
            };
            match (ended, pushed) {
                (Ended::Committed(_), Some(value)) => drop(self.elements.pushed.insert(*value)),
                (Ended::Unknown, Some(value)) => drop(self.elements.unknown.insert(*value)),
                (Ended::Committed(seen), None) => {
                    seen[at]
                        .value()
                        .into_iter()
                        .for_each(|value| self.elements.take(value));
                }
                (Ended::Unknown, None) => self.elements.lost_answers += 1,
                (Ended::Aborted, _) => {}
            }
        }
        Ok(())
    }
}
