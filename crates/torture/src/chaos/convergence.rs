//! The end of a round: the partition serves again, and all nodes have the same state.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use history::recorder::HistoryLog;
use history::{History, HistoryOp, Outcome, Value};

use super::load::{Books, FoundBooks, REGISTERS, register};
use super::nodes::{PartitionNodes, client_address};
use super::session::{ChaosAnswer, ChaosSession, World};
use testkit::workload::resp::number;
use testkit::workload::{self, Ended, Plan, Seen, Step, Subject, Workload};
use testkit::{Client, Reply};
use xtask::interrupt;

/// How long nodes may take to have the same state after the load has ended.
const EQUAL: Duration = Duration::from_secs(20);
/// How long to wait between looks.
const LOOK: Duration = Duration::from_millis(20);
/// How long the partition may take to serve before the round is given up.
const SERVING: Duration = Duration::from_secs(30);

/// Returns how long it takes from now on until a write is acknowledged.
///
/// # Errors
/// Returns an error if it takes half a minute, or the user asked to stop.
pub fn first_write(world: &World, patience: Duration, rng: fastrand::Rng) -> Result<Duration> {
    let begun = Instant::now();
    let mut session = ChaosSession::new(world, patience, rng);
    while !matches!(session.ask(&[&["SET", "probe", "1"]]), ChaosAnswer::Done(_)) {
        interrupt::check()?;
        if begun.elapsed() > SERVING {
            bail!("the partition has served no client for {SERVING:?} after all faults had ended");
        }
    }
    Ok(begun.elapsed())
}

/// Executes a workload's setup, which may happen more than once.
///
/// # Errors
/// Returns an error if it takes half a minute, or the user asked to stop.
pub fn set_up(world: &World, patience: Duration, plan: &Plan) -> Result<()> {
    let begun = Instant::now();
    let mut session = ChaosSession::new(world, patience, fastrand::Rng::new());
    while !matches!(session.run(plan), Ended::Committed(_)) {
        interrupt::check()?;
        if begun.elapsed() > SERVING {
            bail!("a workload could not be set up within {SERVING:?}");
        }
    }
    Ok(())
}

/// The keys that are compared, by kind.
#[derive(Clone, Debug)]
pub struct ComparedKeys {
    names: Vec<String>,
    counters: usize,
    accounts: usize,
    collections: Plan,
}

/// The values of [`ComparedKeys`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeValues {
    values: Vec<Option<Value>>,
    counters: usize,
    accounts: usize,
    collections: Vec<Seen>,
}

impl ComparedKeys {
    /// Returns the registers of this round, counters, accounts, collections, and the registers of
    /// earlier rounds.
    #[must_use]
    pub fn of(round: u64, books: &Books, earlier: impl Iterator<Item = String>) -> ComparedKeys {
        let (counters, accounts) = (books.counters.keys(), books.transfers.keys());
        let registers = (0..REGISTERS).map(|index| register(round, index));
        ComparedKeys {
            counters: counters.len(),
            accounts: accounts.len(),
            collections: books.collections.reads(),
            names: registers
                .chain(counters)
                .chain(accounts)
                .chain(earlier)
                .collect(),
        }
    }

    fn request(&self) -> Vec<&str> {
        let names = self.names.iter().map(String::as_str);
        ["MGET"].into_iter().chain(names).collect()
    }

    fn found(&self, reply: &Reply, collections: Vec<Seen>) -> Option<NodeValues> {
        match reply {
            Reply::Array(items) if items.len() == self.names.len() => Some(NodeValues {
                values: items.iter().map(number).collect(),
                counters: self.counters,
                accounts: self.accounts,
                collections,
            }),
            _ => None,
        }
    }
}

impl NodeValues {
    /// Returns the values of this round's registers.
    #[must_use]
    pub fn registers(&self) -> &[Option<Value>] {
        &self.values[..REGISTERS]
    }

    /// Returns what was found of the books.
    #[must_use]
    pub fn books(&self) -> FoundBooks {
        let (counters, rest) = self.values[REGISTERS..].split_at(self.counters);
        let seen = |values: &[Option<Value>]| values.iter().copied().map(Seen::Value).collect();
        FoundBooks {
            counters: seen(counters),
            accounts: seen(&rest[..self.accounts]),
            collections: self.collections.clone(),
        }
    }

    /// Returns the values of registers of earlier rounds.
    #[must_use]
    pub fn earlier(&self) -> &[Option<Value>] {
        &self.values[REGISTERS + self.counters + self.accounts..]
    }
}

/// The states of the nodes when they had had time to become equal.
pub enum Convergence {
    /// All nodes have the leader's state.
    Equal(NodeValues),
    /// They differ, which is a complaint about them; the text says how.
    Different(String),
}

/// Waits until all nodes have the same state as the leader. The leader's state also goes to the
/// history.
///
/// # Errors
/// Returns an error if the user asked to stop.
pub fn equal(
    nodes: &PartitionNodes,
    world: &World,
    keys: &ComparedKeys,
    round: u64,
    log: &mut HistoryLog<'_>,
) -> Result<Convergence> {
    let deadline = Instant::now() + EQUAL;
    let mut session = ChaosSession::new(world, Duration::from_secs(2), fastrand::Rng::new());
    loop {
        interrupt::check()?;
        let led = read_leader(&mut session, keys, round, log);
        let others: Vec<_> = nodes.ids().map(|id| (id, read_node(id, keys))).collect();
        match difference(keys, led.as_ref(), &others) {
            None => return Ok(Convergence::Equal(led.expect("it was compared"))),
            Some(text) if Instant::now() > deadline => {
                let text = format!("{EQUAL:?} after the load had ended, {text}");
                return Ok(Convergence::Different(text));
            }
            Some(_) => thread::sleep(LOOK),
        }
    }
}

fn read_leader(
    session: &mut ChaosSession<'_>,
    keys: &ComparedKeys,
    round: u64,
    log: &mut HistoryLog<'_>,
) -> Option<NodeValues> {
    let collections = workload::read(session, &keys.collections)?;
    let mut entry = log.begin();
    let answer = session.ask(&[&keys.request()]);
    let found = match &answer {
        ChaosAnswer::Done(replies) => keys.found(&replies[0], collections),
        _ => None,
    };
    let seen = found.iter().flat_map(NodeValues::registers).enumerate();
    seen.for_each(|(index, value)| entry.read(&register(round, index), *value, None));
    entry.end(match found {
        Some(_) => Outcome::Committed,
        None => Outcome::Aborted,
    });
    found
}

/// Returns the state of a node, whether it leads or not.
fn read_node(id: u16, keys: &ComparedKeys) -> Result<NodeValues> {
    let patience = Duration::from_secs(2);
    let mut client = Client::connect_within(client_address(id), patience)?;
    client.expect(&["READONLY"])?;
    let reply = client.expect(&keys.request())?;
    let mut collections = Vec::with_capacity(keys.collections.steps.len());
    for step in &keys.collections.steps {
        let Step::Collection(step) = step else {
            bail!("{step:?} is none on collections");
        };
        let reply = client.expect(&step.request())?;
        let seen = step.seen(&reply);
        collections.push(seen.with_context(|| format!("{step:?} was answered with {reply:?}"))?);
    }
    keys.found(&reply, collections)
        .with_context(|| format!("its answer is malformed: {reply:?}"))
}

/// Describes how a node's state differs from the leader's.
fn difference(
    keys: &ComparedKeys,
    led: Option<&NodeValues>,
    others: &[(u16, Result<NodeValues>)],
) -> Option<String> {
    let Some(led) = led else {
        return Some("no member leads".to_owned());
    };
    others.iter().find_map(|(id, read)| match read {
        Err(error) => Some(format!("node {id} cannot be read: {error:#}")),
        Ok(found) => {
            let mut pairs = led.values.iter().zip(&found.values).zip(&keys.names);
            if let Some(((led, found), name)) = pairs.find(|((led, found), _)| led != found) {
                return Some(format!(
                    "node {id} has {found:?} under {name}, the leader {led:?}"
                ));
            }
            let steps = keys.collections.steps.iter();
            let mut pairs = led.collections.iter().zip(&found.collections).zip(steps);
            let ((led, found), step) = pairs.find(|((led, found), _)| led != found)?;
            let name = step.key();
            Some(format!(
                "node {id} has {found:?} under {name}, the leader {led:?}"
            ))
        }
    })
}

/// Returns the values that transactions with unknown outcomes may have written, or may still write.
pub fn unknown_values(history: &History) -> HashSet<Value> {
    let unknown = history.transactions.iter();
    let unknown = unknown.filter(|transaction| transaction.outcome == Outcome::Unknown);
    let written = unknown.flat_map(|transaction| &transaction.ops);
    let written = written.filter_map(|op| match op {
        HistoryOp::Write { value, .. } => Some(*value),
        _ => None,
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use history::Recorder;

    use super::*;

    fn bulk(value: i64) -> Reply {
        Reply::Bulk(value.to_string().into_bytes())
    }

    #[test]
    fn what_was_found_is_told_apart_and_differences_are_named() {
        let books = Books::new();
        let keys = ComparedKeys::of(7, &books, ["r6:0".to_owned()].into_iter());
        let counters = books.counters.keys().len();
        let all = REGISTERS + counters + books.transfers.keys().len() + 1;
        let items: Vec<Reply> = (0..all as i64).map(bulk).collect();
        let seen = vec![Seen::Numbers(vec![1]); keys.collections.steps.len()];
        let found = keys.found(&Reply::Array(items), seen).unwrap();
        assert_eq!(found.registers()[1], Some(1));
        let FoundBooks {
            counters: first,
            accounts,
            collections,
        } = found.books();
        assert_eq!(first[0], Seen::Value(Some(REGISTERS as i64)));
        assert_eq!(
            accounts[0],
            Seen::Value(Some((REGISTERS + counters) as i64))
        );
        assert_eq!(collections[0], Seen::Numbers(vec![1]));
        assert_eq!(found.earlier(), [Some(all as i64 - 1)]);
        assert_eq!(keys.found(&Reply::Array(vec![bulk(1)]), Vec::new()), None);

        let mut other = found.clone();
        let same = [(1, Ok(found.clone())), (2, Ok(other.clone()))];
        assert_eq!(difference(&keys, Some(&found), &same), None);
        other.collections[2] = Seen::Numbers(Vec::new());
        let said = difference(&keys, Some(&found), &[(2, Ok(other.clone()))]).unwrap();
        assert!(said.contains(keys.collections.steps[2].key()), "{said}");
        other.values[all - 1] = None;
        let said = difference(&keys, Some(&found), &[(2, Ok(other))]).unwrap();
        assert!(said.contains("node 2") && said.contains("r6:0"), "{said}");
        assert!(difference(&keys, None, &same).is_some());
        let silent = [(3, Err(anyhow::anyhow!("closed")))];
        assert!(difference(&keys, Some(&found), &silent).is_some());
    }

    #[test]
    fn values_of_unknown_outcome_are_those_that_may_appear_later() {
        let recorder = Recorder::new();
        let mut log = recorder.process();
        for (value, outcome) in [
            (1, Outcome::Committed),
            (2, Outcome::Unknown),
            (3, Outcome::Aborted),
        ] {
            let mut entry = log.begin();
            entry.write("x", value, None);
            entry.end(outcome);
        }
        drop(log);
        assert_eq!(unknown_values(&recorder.finish()), HashSet::from([2]));
    }
}
