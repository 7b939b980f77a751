//! Counters that clients increment and read.
//!
//! These conditions must hold for each counter:
//! 1. Its value lies between the acknowledged increments, and these with those of unknown outcome.
//! 2. No two increments were answered with the same value.
//! 3. An increment, or a read, that began after another one was answered shows no less; an
//!    increment shows more.
//!
//! An increment of unknown outcome may take effect in a later round. So values are checked over all
//! rounds, and answers over one.

use std::collections::{BTreeMap, HashSet};

use fastrand::Rng;
use history::Value;

use super::bounds::Bounds;
use super::{Client, Ended, Plan, Seen, Step, Times, Workload};
use crate::error::TestkitError;

/// The options of the workload.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of counters.
    pub counters: usize,
    /// The prefix of each counter's key, before the number.
    pub prefix: String,
    /// The share of transactions that only read.
    pub reads: f64,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Counters {
    options: Options,
    /// The bounds of each counter.
    bounds: Vec<Bounds>,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Counting {
    options: Options,
    random: Rng,
    /// The counter of the current transaction.
    counter: usize,
    answers: Vec<Answer>,
    /// The changes of each counter by this client's increments.
    changes: Vec<Bounds>,
}

/// A counter's value in the result of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    counter: usize,
    times: Times,
    value: Value,
    is_increment: bool,
}

impl Options {
    fn key(&self, counter: usize) -> String {
        format!("{}{counter}", self.prefix)
    }
}

impl Counters {
    /// Makes counters to which nothing has happened yet.
    #[must_use]
    pub fn new(options: Options) -> Counters {
        Counters {
            bounds: vec![Bounds::default(); options.counters],
            options,
        }
    }

    /// Returns the keys.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        (0..self.options.counters)
            .map(|counter| self.options.key(counter))
            .collect()
    }
}

impl Workload for Counters {
    type Client = Counting;

    fn setup(&self) -> Plan {
        let begin = |key| Step::Put { key, value: 0 };
        Plan {
            steps: self.keys().into_iter().map(begin).collect(),
        }
    }

    fn start(&self, random: Rng) -> Counting {
        Counting {
            options: self.options.clone(),
            random,
            counter: 0,
            answers: Vec::new(),
            changes: vec![Bounds::default(); self.options.counters],
        }
    }

    fn reads(&self) -> Plan {
        Plan::reading(self.keys())
    }

    fn check(&mut self, clients: Vec<Counting>, found: Option<&[Seen]>) -> Vec<String> {
        let mut answers = Vec::new();
        for client in clients {
            answers.extend(client.answers);
            let pairs = self.bounds.iter_mut().zip(client.changes);
            pairs.for_each(|(bounds, changes)| bounds.merge(changes));
        }
        let mut complaints = judge(&answers);
        for (counter, value) in found.unwrap_or_default().iter().enumerate() {
            let name = self.options.key(counter);
            complaints.extend(match value.value() {
                Some(value) => self.bounds[counter].judge(&name, value),
                None => Some(format!("{name} is gone")),
            });
        }
        complaints
    }
}

impl Client for Counting {
    fn plan(&mut self) -> Plan {
        self.counter = self.random.usize(..self.options.counters);
        let key = self.options.key(self.counter);
        let step = match self.random.f64() < self.options.reads {
            true => Step::Get { key },
            false => Step::Add { key, delta: 1 },
        };
        Plan { steps: vec![step] }
    }

    fn end(&mut self, plan: &Plan, ended: &Ended, times: Times) -> Result<(), TestkitError> {
        let (counter, is_increment) = (self.counter, matches!(plan.steps[..], [Step::Add { .. }]));
        if is_increment {
            self.changes[counter].change(1, ended);
        }
        let Ended::Committed(seen) = ended else {
            return Ok(());
        };
        let value = seen.first().and_then(super::Seen::value);
        self.answers.push(Answer {
            counter,
            times,
            value: value.ok_or_else(|| {
                TestkitError::deviation(format!("{} is gone", self.options.key(counter)))
            })?,
            is_increment,
        });
        Ok(())
    }
}

/// Checks conditions 2 and 3.
fn judge(answers: &[Answer]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut by_counter: BTreeMap<usize, Vec<&Answer>> = BTreeMap::new();
    for answer in answers {
        by_counter.entry(answer.counter).or_default().push(answer);
    }
    for (counter, mut answers) in by_counter {
        let mut taken = HashSet::new();
        let increments = answers.iter().filter(|answer| answer.is_increment);
        let twice = increments.filter(|answer| !taken.insert(answer.value));
        let twice = twice.map(|answer| answer.value);
        complaints.extend(
            twice.map(|value| format!("counter {counter} was incremented to {value} twice")),
        );
        answers.sort_by_key(|answer| answer.times.start);
        complaints.extend(backwards(counter, &answers));
    }
    complaints
}

/// Finds the first answer that shows less than an earlier one did. `answers` are sorted by start.
fn backwards(counter: usize, answers: &[&Answer]) -> Option<String> {
    let of = |answer: &&Answer| (answer.times.end, answer.value);
    let mut ended: Vec<(u64, Value)> = answers.iter().map(of).collect();
    ended.sort_unstable();
    let mut ended = ended.into_iter().peekable();
    let mut most = None;
    for answer in answers {
        while let Some((_, value)) = ended.next_if(|(end, _)| *end < answer.times.start) {
            most = most.max(Some(value));
        }
        let least = most.map(|most: Value| most + Value::from(answer.is_increment));
        if least.is_some_and(|least| answer.value < least) {
            return Some(format!(
                "counter {counter} had been {} before {} was shown by {}, which began at {} ns",
                most.unwrap_or_default(),
                answer.value,
                if answer.is_increment {
                    "an increment"
                } else {
                    "a read"
                },
                answer.times.start
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(start: u64, end: u64, value: Value, is_increment: bool) -> Answer {
        Answer {
            counter: 0,
            times: Times { start, end },
            value,
            is_increment,
        }
    }

    fn incremented(start: u64, end: u64, value: Value) -> Answer {
        answer(start, end, value, true)
    }

    fn read(start: u64, end: u64, value: Value) -> Answer {
        answer(start, end, value, false)
    }

    fn complaints(answers: &[Answer]) -> String {
        judge(answers).join("; ")
    }

    #[test]
    fn counters_that_never_go_back_are_right() {
        let fine = [
            incremented(0, 10, 1),
            incremented(5, 20, 3),
            incremented(6, 12, 2),
            read(11, 13, 2),
            read(21, 30, 3),
            incremented(31, 40, 5),
        ];
        assert_eq!(complaints(&fine), "");
    }

    #[test]
    fn a_stale_read_a_lost_increment_and_one_that_was_made_twice_are_found() {
        let stale = complaints(&[incremented(0, 10, 7), read(11, 12, 6)]);
        assert!(stale.contains("had been 7"), "{stale}");
        let lost = complaints(&[incremented(0, 10, 7), incremented(11, 12, 7)]);
        assert!(lost.contains("to 7 twice"), "{lost}");
        let after_read = complaints(&[read(0, 10, 7), incremented(11, 12, 7)]);
        assert!(after_read.contains("had been 7"), "{after_read}");
        let together = [incremented(0, 11, 7), read(11, 12, 6)];
        assert_eq!(
            complaints(&together),
            "",
            "neither ended before the other one began"
        );
    }

    #[test]
    fn increments_of_unknown_outcome_may_take_effect_in_a_later_round() {
        let mut counters = Counters::new(Options {
            counters: 1,
            prefix: "c".to_owned(),
            reads: 0.0,
        });
        let mut client = counters.start(Rng::with_seed(1));
        for ended in [
            Ended::Committed(vec![Seen::Value(Some(1))]),
            Ended::Unknown,
            Ended::Aborted,
        ] {
            let plan = client.plan();
            client.end(&plan, &ended, Times::default()).unwrap();
        }
        assert!(
            counters
                .check(vec![client], Some(&[Seen::Value(Some(1))]))
                .is_empty()
        );
        assert!(
            counters
                .check(Vec::new(), Some(&[Seen::Value(Some(2))]))
                .is_empty()
        );
        for wrong in [Some(0), Some(3), None] {
            assert_eq!(
                counters
                    .check(Vec::new(), Some(&[Seen::Value(wrong)]))
                    .len(),
                1
            );
        }
    }
}
