//! Transfers between accounts, which never change the sum.

use fastrand::Rng;
use history::Value;

use super::bounds::Bounds;
use super::{Client, Ended, Plan, Seen, Step, Times, Workload};
use crate::error::TestkitError;

/// The options of the workload.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of accounts; two at least.
    pub accounts: usize,
    /// The initial balance of each account.
    pub balance: Value,
    /// The greatest amount of a transfer.
    pub amount: Value,
    /// The prefix of each account's key, before the number. No other key begins with it.
    pub prefix: String,
    /// One of this many transactions of a client is an audit.
    pub audit_every: usize,
    /// `true` if half of the audits scan instead of reading key by key.
    pub scans: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            accounts: 10,
            balance: 100,
            amount: 100,
            prefix: "account:".to_owned(),
            audit_every: 10,
            scans: true,
        }
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Transfers {
    options: Options,
    /// The bounds of each balance.
    balances: Vec<Bounds>,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Teller {
    options: Options,
    random: Rng,
    plans: usize,
    /// The changes of each account by this client's transfers.
    changes: Vec<Bounds>,
    /// The account and the amount of each step of the current transfer.
    moved: Option<[(usize, Value); 2]>,
}

/// An audit that did not find the right sum or number of accounts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the accounts hold {found} in {accounts} accounts instead of {expected} in {expected_accounts}"
)]
pub struct Lost {
    /// The sum that was found.
    pub found: Value,
    /// The accounts that were found.
    pub accounts: usize,
    /// The right sum.
    pub expected: Value,
    /// The right number of accounts.
    pub expected_accounts: usize,
}

impl Options {
    fn account(&self, number: usize) -> String {
        format!("{}{number:06}", self.prefix)
    }

    fn accounts(&self) -> impl Iterator<Item = String> {
        (0..self.accounts).map(|number| self.account(number))
    }

    /// Makes a transaction that reads all accounts: one by one, or by a scan.
    #[must_use]
    pub fn audit(&self, scan: bool) -> Plan {
        let steps = if scan {
            // The least name that is greater than all with this prefix.
            let to = Some(format!("{}~", self.prefix));
            vec![Step::Scan {
                from: self.prefix.clone(),
                to,
                limit: usize::MAX,
            }]
        } else {
            self.accounts().map(|key| Step::Get { key }).collect()
        };
        Plan { steps }
    }

    /// Checks the result of an audit.
    ///
    /// # Errors
    /// Returns an error if money or accounts appeared or disappeared.
    pub fn judge(&self, seen: &[Seen]) -> Result<(), Lost> {
        let balances = seen.iter().flat_map(|seen| match seen {
            Seen::Pairs(pairs) => pairs.iter().map(|(_, value)| Some(*value)).collect(),
            seen => vec![seen.value()],
        });
        self.judge_balances(balances)
    }

    fn judge_balances(&self, balances: impl Iterator<Item = Option<Value>>) -> Result<(), Lost> {
        let balances: Vec<Value> = balances.flatten().collect();
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

impl Transfers {
    /// Makes accounts to which nothing has happened yet.
    ///
    /// # Panics
    /// Panics if there are fewer than two accounts.
    #[must_use]
    pub fn new(options: Options) -> Transfers {
        assert!(options.accounts >= 2, "a transfer needs two accounts");
        Transfers {
            balances: vec![Bounds::exactly(options.balance); options.accounts],
            options,
        }
    }

    /// Returns the keys.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.options.accounts().collect()
    }
}

impl Workload for Transfers {
    type Client = Teller;

    fn setup(&self) -> Plan {
        let value = self.options.balance;
        let open = |key| Step::Put { key, value };
        Plan {
            steps: self.options.accounts().map(open).collect(),
        }
    }

    fn start(&self, random: Rng) -> Teller {
        Teller {
            options: self.options.clone(),
            random,
            plans: 0,
            changes: vec![Bounds::default(); self.options.accounts],
            moved: None,
        }
    }

    fn reads(&self) -> Plan {
        Plan::reading(self.keys())
    }

    fn check(&mut self, clients: Vec<Teller>, found: Option<&[Seen]>) -> Vec<String> {
        for client in clients {
            let pairs = self.balances.iter_mut().zip(client.changes);
            pairs.for_each(|(balance, changes)| balance.merge(changes));
        }
        let Some(found) = found else {
            return Vec::new();
        };
        let lost = self.options.judge_balances(found.iter().map(Seen::value));
        let mut complaints: Vec<String> = lost.err().iter().map(Lost::to_string).collect();
        let pairs = self.balances.iter().zip(found).enumerate();
        complaints.extend(pairs.filter_map(|(number, (bounds, value))| {
            bounds.judge(&self.options.account(number), value.value()?)
        }));
        complaints
    }
}

impl Teller {
    /// Makes a transaction that moves a random amount between two random accounts.
    fn transfer(&mut self) -> Plan {
        let (accounts, random) = (self.options.accounts, &mut self.random);
        let from = random.usize(..accounts);
        let to = (from + random.usize(1..accounts)) % accounts;
        let amount = random.i64(1..=self.options.amount.max(1));
        let moved = [(from, -amount), (to, amount)];
        self.moved = Some(moved);
        let add = |(number, delta)| Step::Add {
            key: self.options.account(number),
            delta,
        };
        Plan {
            steps: moved.map(add).into(),
        }
    }
}

impl Client for Teller {
    fn plan(&mut self) -> Plan {
        self.plans += 1;
        if (self.plans - 1).is_multiple_of(self.options.audit_every.max(1)) {
            self.moved = None;
            let scans = self.options.scans && self.random.bool();
            return self.options.audit(scans);
        }
        self.transfer()
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
                let judged = self.options.judge(seen);
                judged.map_err(|lost| TestkitError::deviation(lost.to_string()))
            }
            (None, Ended::Aborted | Ended::Unknown) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(client: &mut Teller, ended: &Ended) -> [(usize, Value); 2] {
        client.transfer();
        let moved = client.moved.expect("it was drawn");
        let plan = Plan::default();
        client
            .end(&plan, ended, Times::default())
            .expect("no audit");
        moved
    }

    #[test]
    fn balances_lie_between_what_acknowledged_and_unknown_transfers_make_of_them() {
        let mut transfers = Transfers::new(Options {
            accounts: 2,
            balance: 0,
            ..Options::default()
        });
        let mut client = transfers.start(Rng::with_seed(1));
        let done = ended(&mut client, &Ended::Committed(Vec::new()));
        let unknown = ended(&mut client, &Ended::Unknown);
        ended(&mut client, &Ended::Aborted);
        let balances = |moves: &[[(usize, Value); 2]]| {
            let mut all = [Some(0); 2];
            for (account, delta) in moves.concat() {
                all[account] = all[account].map(|balance| balance + delta);
            }
            all
        };
        assert!(transfers.check(vec![client], None).is_empty());
        let mut check = |found: &[Option<Value>]| {
            let found: Vec<Seen> = found.iter().copied().map(Seen::Value).collect();
            transfers.check(Vec::new(), Some(&found))
        };
        assert!(check(&balances(&[done])).is_empty());
        // A transfer of unknown outcome may take effect in a later round.
        assert!(check(&balances(&[done, unknown])).is_empty());
        assert_eq!(check(&balances(&[done, unknown, unknown])).len(), 2);
        assert_eq!(check(&balances(&[])).len(), 2);
        let torn = [Some(done[0].1), Some(done[1].1 + 1)];
        assert!(check(&torn)[0].contains("instead of 0 in 2"));
        assert!(check(&[Some(0)])[0].contains("0 in 1 accounts"));
    }
}
