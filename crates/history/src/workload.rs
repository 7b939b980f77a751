//! Workloads that carry their own verification, for anything that runs transactions.
//!
//! A [`Subject`] runs a [`Plan`] as one transaction and tells what it saw. Plans are plain data,
//! so that a subject can run them as it likes: as a closure, as a one-shot transaction, as a
//! `MULTI` block.
//!
//! | module | what | verified by |
//! |---|---|---|
//! | [`mixed`] | few hot keys: read-modify-write, inserts, deletes, scans | [`crate::check`] |
//! | [`conservation`] | transfers between accounts | their sum, in every audit |
//! | [`Serial`] | a reference subject: one lock around a map | – |

pub mod conservation;
pub mod mixed;
mod serial;

pub use serial::Serial;

use crate::model::{Outcome, Value};
use crate::recorder::Entry;

/// One operation to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the key. Seen: [`Seen::Value`].
    Get {
        /// The key.
        key: String,
    },
    /// Set the key. Seen: [`Seen::Done`].
    Put {
        /// The key.
        key: String,
        /// Its value, which the store keeps as a decimal number or as it likes.
        value: Value,
    },
    /// Add to the value of the key, where absent counts as 0. Seen: [`Seen::Value`], the sum.
    Add {
        /// The key.
        key: String,
        /// What to add.
        delta: Value,
    },
    /// Delete the key. Seen: [`Seen::Deleted`].
    Delete {
        /// The key.
        key: String,
    },
    /// Read the first `limit` keys from `from` to `to`. Seen: [`Seen::Pairs`].
    Scan {
        /// Where to begin, inclusive.
        from: String,
        /// Where to end, exclusive; `None`: with the last key.
        to: Option<String>,
        /// At most so many keys.
        limit: usize,
    },
}

/// What to do in one transaction, in this order. Later steps see the effects of earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The operations.
    pub steps: Vec<Step>,
}

/// What a step saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A write was done.
    Done,
    /// The key's value, or that it was absent.
    Value(Option<Value>),
    /// As [`Seen::Value`], with the store's version of the key; see [`crate::json`] for what is
    /// asked of versions.
    Versioned(Option<Value>, u64),
    /// Whether there was something to delete.
    Deleted(bool),
    /// Keys and values, in the store's order.
    Pairs(Vec<(String, Value)>),
}

/// How a plan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It took effect; one [`Seen`] for each step. Say this only when the store says it.
    Committed(Vec<Seen>),
    /// It did not take effect.
    Aborted,
    /// It is not known whether it did.
    Unknown,
}

/// Something that runs transactions: a client of a store, for one thread.
pub trait Subject {
    /// Runs the plan as one transaction. Retries, if it retries, are its own affair, but it must
    /// know that an attempt did not take effect before it makes another.
    fn run(&mut self, plan: &Plan) -> Ended;
}

/// Records how a plan ended.
///
/// # Panics
/// If what was seen does not fit the plan: then the subject is wrong.
pub fn record(mut entry: Entry<'_>, plan: &Plan, ended: &Ended) {
    let outcome = match ended {
        Ended::Committed(seen) => {
            assert_eq!(
                seen.len(),
                plan.steps.len(),
                "one answer for each step of {plan:?}"
            );
            for (step, seen) in plan.steps.iter().zip(seen) {
                record_step(&mut entry, step, seen);
            }
            Outcome::Committed
        }
        // What an attempt wrote matters also when it failed: somebody may see it.
        Ended::Aborted | Ended::Unknown => {
            for step in &plan.steps {
                match step {
                    Step::Put { key, value } => entry.write(key, *value, None),
                    Step::Delete { key } => entry.delete(key, None),
                    Step::Get { .. } | Step::Add { .. } | Step::Scan { .. } => {}
                }
            }
            if *ended == Ended::Aborted {
                Outcome::Aborted
            } else {
                Outcome::Unknown
            }
        }
    };
    entry.end(outcome);
}

fn record_step(entry: &mut Entry<'_>, step: &Step, seen: &Seen) {
    match (step, seen) {
        (Step::Get { key }, Seen::Value(value)) => entry.read(key, *value, None),
        (Step::Get { key }, Seen::Versioned(value, version)) => {
            entry.read(key, *value, Some(*version));
        }
        (Step::Put { key, value }, Seen::Done) => entry.write(key, *value, None),
        (Step::Delete { key }, Seen::Deleted(true)) => entry.delete(key, None),
        (Step::Delete { key }, Seen::Deleted(false)) => entry.read(key, None, None),
        (Step::Scan { from, to, limit }, Seen::Pairs(pairs)) => {
            let pairs = pairs.iter().map(|(key, value)| (key.as_str(), *value));
            entry.scan(from, to.as_deref(), *limit, pairs);
        }
        // The values of sums are not unique, so that a history could not tell them apart.
        (Step::Add { .. }, _) => panic!("a plan that adds cannot be recorded"),
        _ => panic!("{seen:?} is no answer to {step:?}"),
    }
}
