//! Elements that move between lists, and members that move between sets.

use fastrand::Rng;
use history::Value;

use super::super::{Client, CollectionStep, Ended, Plan, Seen, Step, Times, Workload};
use super::keys::PREFIX;
use crate::error::TestkitError;

/// Lists, and as many sets.
const LISTS: usize = 3;
/// The elements of all lists, and the members of all sets: so many that each is a large collection at times.
const ELEMENTS: Value = 400;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Moves {}

/// A client.
#[derive(Debug)]
pub struct MoveClient {
    random: Rng,
}

fn list(number: usize) -> String {
    format!("{PREFIX}moved:list:{number}")
}

fn set(number: usize) -> String {
    format!("{PREFIX}moved:set:{number}")
}

fn reads_of_lists() -> impl Iterator<Item = Step> {
    let keys = (0..LISTS).map(list);
    keys.map(|key| Step::Collection(CollectionStep::Elements { key }))
}

fn reads_of_sets() -> impl Iterator<Item = Step> {
    let keys = (0..LISTS).map(set);
    keys.map(|key| Step::Collection(CollectionStep::Members { key }))
}

/// Checks that each element, or member, is in one of these.
fn judge(seen: &[Seen]) -> Result<(), String> {
    let numbers = seen.iter().flat_map(|seen| match seen {
        Seen::Numbers(numbers) => numbers.as_slice(),
        _ => &[],
    });
    let mut numbers: Vec<Value> = numbers.copied().collect();
    numbers.sort_unstable();
    if numbers.iter().copied().eq(0..ELEMENTS) {
        return Ok(());
    }
    let twice = numbers.windows(2).filter(|pair| pair[0] == pair[1]);
    let twice: Vec<Value> = twice.map(|pair| pair[0]).collect();
    let is_missing = |number: &Value| numbers.binary_search(number).is_err();
    let missing: Vec<Value> = (0..ELEMENTS).filter(is_missing).collect();
    Err(format!(
        "elements that move are missing: {missing:?}, there twice: {twice:?}"
    ))
}

impl Workload for Moves {
    type Client = MoveClient;

    fn setup(&self) -> Plan {
        let all = || (0..ELEMENTS).collect::<Vec<Value>>();
        let keys = (0..LISTS).flat_map(|number| [list(number), set(number)]);
        let mut steps: Vec<Step> = keys.map(|key| Step::Delete { key }).collect();
        let (list, set) = (list(0), set(0));
        steps.push(Step::Collection(CollectionStep::PushTail {
            key: list,
            values: all(),
        }));
        steps.push(Step::Collection(CollectionStep::AddMembers {
            key: set,
            members: all(),
        }));
        Plan { steps }
    }

    fn start(&self, random: Rng) -> MoveClient {
        MoveClient { random }
    }

    fn reads(&self) -> Plan {
        Plan {
            steps: reads_of_lists().chain(reads_of_sets()).collect(),
        }
    }

    fn check(&mut self, _: Vec<MoveClient>, found: Option<&[Seen]>) -> Vec<String> {
        let halves = found.map(|found| found.split_at(LISTS));
        let halves = halves.into_iter().flat_map(|(lists, sets)| [lists, sets]);
        halves.filter_map(|half| judge(half).err()).collect()
    }
}

impl MoveClient {
    fn step(&mut self) -> Step {
        let random = &mut self.random;
        let (from, to) = (random.usize(..LISTS), random.usize(..LISTS));
        Step::Collection(match random.bool() {
            true => CollectionStep::MoveElement {
                from: list(from),
                to: list(to),
            },
            false => CollectionStep::MoveMember {
                from: set(from),
                to: set(to),
                member: random.i64(0..ELEMENTS),
            },
        })
    }
}

impl Client for MoveClient {
    fn plan(&mut self) -> Plan {
        let steps = match self.random.u32(..10) {
            0 => reads_of_lists().collect(),
            1 => reads_of_sets().collect(),
            2..5 => vec![self.step(), self.step()],
            _ => vec![self.step()],
        };
        Plan { steps }
    }

    fn end(&mut self, _: &Plan, ended: &Ended, _: Times) -> Result<(), TestkitError> {
        match ended {
            Ended::Committed(seen) if matches!(seen[0], Seen::Numbers(_)) => {
                judge(seen).map_err(TestkitError::deviation)
            }
            _ => Ok(()),
        }
    }
}
