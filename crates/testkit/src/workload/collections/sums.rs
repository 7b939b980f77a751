//! Fields of hashes and members of sorted sets as accounts, whose sum stays zero.

use fastrand::Rng;
use history::Value;

use super::super::bounds::Bounds;
use super::super::{Client, CollectionStep, Ended, Plan, Seen, Step, Times, Workload};
use super::keys::PREFIX;
use crate::error::TestkitError;

/// Hashes, and as many sorted sets.
const HASHES: usize = 2;
/// The accounts of each: so many that it is a large collection.
const ACCOUNTS: usize = 150;
/// One of so many transactions reads all accounts.
const AUDITS: u32 = 12;

/// See the [module](self).
#[derive(Debug)]
pub struct Sums {
    balances: Vec<Bounds>,
}

/// A client.
#[derive(Debug)]
pub struct SumClient {
    random: Rng,
    /// The changes of each account by this client.
    changes: Vec<Bounds>,
    /// The current transfer; `None` while it reads.
    moved: Option<[(usize, Value); 2]>,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            balances: vec![Bounds::default(); 2 * HASHES * ACCOUNTS],
        }
    }
}

fn is_hash(collection: usize) -> bool {
    collection < HASHES
}

fn name(collection: usize) -> String {
    format!("{PREFIX}summed:{collection}")
}

fn reads() -> Plan {
    let read = |collection| {
        let key = name(collection);
        Step::Collection(match is_hash(collection) {
            true => CollectionStep::Fields { key },
            false => CollectionStep::Scores { key },
        })
    };
    Plan {
        steps: (0..2 * HASHES).map(read).collect(),
    }
}

/// Returns the balances of all accounts.
fn balances(seen: &[Seen]) -> Result<Vec<Value>, String> {
    let mut balances = Vec::with_capacity(2 * HASHES * ACCOUNTS);
    for (collection, seen) in seen.iter().enumerate() {
        let Seen::Entries(entries) = seen else {
            return Err(format!("{} was read as {seen:?}", name(collection)));
        };
        let accounts = entries.iter().map(|(account, _)| *account);
        if !accounts.eq(0..ACCOUNTS as Value) {
            return Err(format!("{} lacks accounts: {entries:?}", name(collection)));
        }
        balances.extend(entries.iter().map(|(_, balance)| balance));
    }
    match balances.iter().sum::<Value>() {
        0 => Ok(balances),
        sum => Err(format!(
            "the sum of all hashes and sorted sets is {sum} instead of 0"
        )),
    }
}

impl Workload for Sums {
    type Client = SumClient;

    fn setup(&self) -> Plan {
        let open = |collection| {
            let key = name(collection);
            let accounts = (0..ACCOUNTS as Value).map(|account| (account, 0)).collect();
            Step::Collection(match is_hash(collection) {
                true => CollectionStep::SetFields {
                    key,
                    fields: accounts,
                },
                false => CollectionStep::SetScores {
                    key,
                    scores: accounts,
                },
            })
        };
        Plan {
            steps: (0..2 * HASHES).map(open).collect(),
        }
    }

    fn start(&self, random: Rng) -> SumClient {
        SumClient {
            random,
            changes: vec![Bounds::default(); self.balances.len()],
            moved: None,
        }
    }

    fn reads(&self) -> Plan {
        reads()
    }

    fn check(&mut self, clients: Vec<SumClient>, found: Option<&[Seen]>) -> Vec<String> {
        for client in clients {
            let pairs = self.balances.iter_mut().zip(client.changes);
            pairs.for_each(|(balance, changes)| balance.merge(changes));
        }
        match found.map(balances) {
            None => Vec::new(),
            Some(Err(complaint)) => vec![complaint],
            Some(Ok(found)) => {
                let pairs = self.balances.iter().zip(found).enumerate();
                let judged = pairs.filter_map(|(number, (bounds, balance))| {
                    let account = number % ACCOUNTS;
                    bounds.judge(&format!("{} {account}", name(number / ACCOUNTS)), balance)
                });
                judged.collect()
            }
        }
    }
}

impl Client for SumClient {
    fn plan(&mut self) -> Plan {
        if self.random.u32(..AUDITS) == 0 {
            self.moved = None;
            return reads();
        }
        let (all, random) = (self.changes.len(), &mut self.random);
        let from = random.usize(..all);
        let to = (from + random.usize(1..all)) % all;
        let amount = random.i64(1..100);
        let moved = [(from, -amount), (to, amount)];
        self.moved = Some(moved);
        let add = |(number, delta): (usize, Value)| {
            let (key, account) = (name(number / ACCOUNTS), (number % ACCOUNTS) as Value);
            Step::Collection(match is_hash(number / ACCOUNTS) {
                true => CollectionStep::AddToField {
                    key,
                    field: account,
                    delta,
                },
                false => CollectionStep::AddToScore {
                    key,
                    member: account,
                    delta,
                },
            })
        };
        Plan {
            steps: moved.map(add).into(),
        }
    }

    fn end(&mut self, _: &Plan, ended: &Ended, _: Times) -> Result<(), TestkitError> {
        match (self.moved.take(), ended) {
            (Some(moved), ended) => {
                for (account, delta) in moved {
                    self.changes[account].change(delta, ended);
                }
                Ok(())
            }
            (None, Ended::Committed(seen)) => {
                balances(seen).map(drop).map_err(TestkitError::deviation)
            }
            (None, Ended::Aborted | Ended::Unknown) => Ok(()),
        }
    }
}
