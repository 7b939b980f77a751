//! Transfers between accounts: whatever happens, their sum stays.
//!
//! Needs no history and no unique values, so that it can run long and fast, across restarts and
//! with transfers of unknown outcome.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::model::Value;

use super::{Ended, Plan, Seen, Step, Subject};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads, each with a subject of its own.
    pub processes: u32,
    /// Transactions of each process.
    pub transactions: usize,
    /// When to stop, if that comes first.
    pub at_most: Duration,
    /// How many accounts there are.
    pub accounts: usize,
    /// What each account holds in the beginning.
    pub balance: Value,
    /// What precedes the number in each account's key. No other key begins with it.
    pub prefix: String,
    /// Of every so many transactions one is an audit.
    pub audit_every: usize,
    /// Of the random choices.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            processes: 4,
            transactions: 1000,
            at_most: Duration::from_secs(60),
            accounts: 10,
            balance: 100,
            prefix: "account:".to_owned(),
            audit_every: 10,
            seed: 1,
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Transfers that took effect.
    pub transfers: u64,
    /// Audits, all of which found the sum.
    pub audits: u64,
    /// Transactions that did not take effect, or of which it is not known.
    pub failed: u64,
}

/// An audit that did not find what there must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the accounts hold {found} in {accounts} accounts instead of {expected} in {expected_accounts}"
)]
pub struct Lost {
    /// The sum that was found.
    pub found: Value,
    /// The accounts that were found.
    pub accounts: usize,
    /// The sum that there must be.
    pub expected: Value,
    /// The accounts that there must be.
    pub expected_accounts: usize,
}

impl Options {
    fn account(&self, number: usize) -> String {
        format!("{}{number:06}", self.prefix)
    }

    /// The transaction that opens the accounts.
    #[must_use]
    pub fn opening(&self) -> Plan {
        let open = |number| Step::Put {
            key: self.account(number),
            value: self.balance,
        };
        Plan {
            steps: (0..self.accounts).map(open).collect(),
        }
    }

    /// A transaction that reads all accounts: one by one, or by a scan.
    #[must_use]
    pub fn audit(&self, scan: bool) -> Plan {
        let steps = if scan {
            // The least name that is greater than all that begin so.
            let to = Some(format!("{}~", self.prefix));
            vec![Step::Scan {
                from: self.prefix.clone(),
                to,
                limit: usize::MAX,
            }]
        } else {
            (0..self.accounts)
                .map(|number| Step::Get {
                    key: self.account(number),
                })
                .collect()
        };
        Plan { steps }
    }

    /// A transaction that moves a random amount between two random accounts.
    #[must_use]
    pub fn transfer(&self, rng: &mut Rng) -> Plan {
        let from = rng.usize(..self.accounts);
        let to = (from + rng.usize(1..self.accounts)) % self.accounts;
        let amount = rng.i64(1..=self.balance.max(1));
        let add = |number, delta| Step::Add {
            key: self.account(number),
            delta,
        };
        Plan {
            steps: vec![add(from, -amount), add(to, amount)],
        }
    }

    /// Judges what an audit saw.
    ///
    /// # Errors
    /// If money or accounts appeared or disappeared.
    pub fn judge(&self, seen: &[Seen]) -> Result<(), Lost> {
        let mut balances = Vec::new();
        for seen in seen {
            match seen {
                Seen::Value(value) | Seen::Versioned(value, _) => balances.extend(*value),
                Seen::Pairs(pairs) => balances.extend(pairs.iter().map(|(_, value)| *value)),
                Seen::Done | Seen::Deleted(_) => {}
            }
        }
        let (found, accounts) = (balances.iter().sum(), balances.len());
        let expected = self.balance * self.accounts as Value;
        if found == expected && accounts == self.accounts {
            return Ok(());
        }
        Err(Lost {
            found,
            accounts,
            expected,
            expected_accounts: self.accounts,
        })
    }
}

/// Runs transfers and audits on accounts that [`Options::opening`] has opened.
///
/// # Errors
/// What an audit found, if it found the wrong sum.
///
/// # Panics
/// With fewer than two accounts.
pub fn run<S: Subject>(
    options: &Options,
    connect: impl Fn(u32) -> S + Sync,
) -> Result<Report, Lost> {
    assert!(options.accounts >= 2, "a transfer needs two accounts");
    let until = Instant::now() + options.at_most;
    let connect = &connect;
    std::thread::scope(|scope| {
        let process = |number| move || process(options, until, number, &mut connect(number));
        let threads: Vec<_> = (0..options.processes)
            .map(|number| scope.spawn(process(number)))
            .collect();
        threads
            .into_iter()
            .try_fold(Report::default(), |sum, thread| {
                let report = thread.join().expect("the subject does not panic")?;
                Ok(Report {
                    transfers: sum.transfers + report.transfers,
                    audits: sum.audits + report.audits,
                    failed: sum.failed + report.failed,
                })
            })
    })
}

fn process<S: Subject>(
    options: &Options,
    until: Instant,
    number: u32,
    subject: &mut S,
) -> Result<Report, Lost> {
    let mut rng = Rng::with_seed(options.seed ^ u64::from(number) << 32);
    let mut report = Report::default();
    for i in 0..options.transactions {
        if Instant::now() >= until {
            break;
        }
        if i % options.audit_every.max(1) == 0 {
            match subject.run(&options.audit(rng.bool())) {
                Ended::Committed(seen) => {
                    options.judge(&seen)?;
                    report.audits += 1;
                }
                Ended::Aborted | Ended::Unknown => report.failed += 1,
            }
        } else {
            match subject.run(&options.transfer(&mut rng)) {
                Ended::Committed(_) => report.transfers += 1,
                Ended::Aborted | Ended::Unknown => report.failed += 1,
            }
        }
    }
    Ok(report)
}
