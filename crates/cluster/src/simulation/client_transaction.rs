//! Transactions of clients: their operations, and their replies as history.
//!
//! | kind | operations | detects |
//! |---|---|---|
//! | observe | get, two to four keys | read skew, stale reads |
//! | modify | get and put, one to three keys | lost updates |
//! | cross | get two keys, put one of them | write skew |
//! | overwrite | put, one to three keys | writes that are there in part |
//! | create | require to be absent, and put, one or two keys | phantoms |
//! | remove | get and delete, one or two keys | lost deletes |
//! | optimistic | get and watch; then check and put, as another transaction | lost updates over transactions |
//! | sweep | scan the node's partition; perhaps get and put a key | phantoms |
//! | flush | scan and flush the node's partition; perhaps put a key elsewhere | flushes that are there in part |
//! | transfer | add to one account what is taken from another | money made or lost |
//! | audit | get all accounts | as above |

use std::collections::BTreeMap;
use std::fmt::Write;

use base::partition::OwnedReply;
use base::transaction::ScanContents;
use base::{Op, PartitionId, Version};
use fastrand::Rng;

use super::keys::{Key, Keys};
use crate::ramp::Algorithm;

/// Part of the names of marks, and of no other keys.
pub(super) const MARK: &str = "mark";

/// One step of a transaction. Keys are indexes.
#[derive(Clone, Debug)]
pub(super) enum ClientStep {
    Get(usize),
    Watch(usize),
    Put(usize, i64, Vec<u8>),
    Delete(usize),
    /// The key must be absent.
    Absent(usize),
    /// The key must have this version, which had this value.
    Unchanged(usize, Version, Option<i64>),
    Scan,
    Flush,
    Add(usize, i64),
    Balance(usize),
    /// A key of its own, on the partition of the deleted key: it shows later if the transaction took
    /// effect, which a deletion by itself does not.
    Mark(Vec<u8>, PartitionId),
}

/// A transaction that a client wants to run.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientTransaction {
    pub(super) steps: Vec<ClientStep>,
    /// Keys that are only read are held, too, if a client asks for it.
    pub(super) holds: bool,
    /// For a write of several read-atomic keys, if a client asks for it.
    pub(super) algorithm: Algorithm,
}

/// The keys that a client has watched, with versions and values.
pub(super) type Watched = Vec<(usize, Version, Option<i64>)>;

/// What replies have shown.
#[derive(Debug, Default)]
pub(super) struct ObservedReplies {
    /// The operations as JSON, without brackets.
    pub(super) ops: String,
    pub(super) watched: Watched,
    /// The sum of all accounts, if all were read.
    pub(super) sum: Option<i64>,
}

/// Draws transactions, and values that were never used.
pub(super) struct TransactionGenerator<'a> {
    pub(super) random: &'a mut Rng,
    pub(super) keys: &'a Keys,
    pub(super) value: &'a mut i64,
    pub(super) flushes: bool,
    /// The partition of the node that will coordinate.
    pub(super) own: Option<PartitionId>,
}

/// Draws the steps of one kind of transaction.
type StepsOfKind<'a> = fn(&mut TransactionGenerator<'a>) -> Vec<ClientStep>;

impl<'a> TransactionGenerator<'a> {
    /// Draws the next transaction of a client that has watched keys, or has not.
    pub(super) fn transaction(&mut self, watched: &mut Watched) -> ClientTransaction {
        let steps = self.steps(watched);
        ClientTransaction {
            steps,
            holds: self.random.u8(..4) == 0,
            algorithm: Algorithm::ALL[self.random.usize(..3)],
        }
    }

    fn steps(&mut self, watched: &mut Watched) -> Vec<ClientStep> {
        if !watched.is_empty() && self.random.u8(..4) > 0 {
            return self.optimistic(&std::mem::take(watched));
        }
        watched.clear();
        if self.keys.read_atomic > 0 && self.random.u8(..10) < 7 {
            return self.read_atomic_steps();
        }
        let has_accounts = self.keys.accounts.len() > 1;
        let kinds: [(u32, StepsOfKind<'a>); 10] = [
            (4, Self::observe),
            (5, Self::modify),
            (3, Self::cross),
            (2, Self::overwrite),
            (2, Self::create),
            (2, Self::remove),
            (2, Self::watch),
            (if self.flushes { 2 } else { 1 }, Self::scan_partition),
            (if has_accounts { 5 } else { 0 }, Self::transfer),
            (if has_accounts { 2 } else { 0 }, Self::audit),
        ];
        let all: u32 = kinds.iter().map(|(weight, _)| weight).sum();
        let mut ticket = self.random.u32(..all);
        for (weight, kind) in kinds {
            if ticket < weight {
                return kind(self);
            }
            ticket -= weight;
        }
        unreachable!("the ticket is below the sum of the weights")
    }

    fn pick(&mut self, least: usize, most: usize) -> Vec<usize> {
        let ordinary = self.keys.read_atomic..self.keys.recorded.len();
        let count = self.random.usize(least..=most).min(ordinary.len());
        let mut picked = self.random.choose_multiple(ordinary, count);
        self.random.shuffle(&mut picked);
        picked
    }

    pub(super) fn put(&mut self, key: usize) -> ClientStep {
        *self.value += 1;
        ClientStep::Put(key, *self.value, self.value.to_string().into_bytes())
    }

    fn observe(&mut self) -> Vec<ClientStep> {
        self.pick(2, 4).into_iter().map(ClientStep::Get).collect()
    }

    fn modify(&mut self) -> Vec<ClientStep> {
        let keys = self.pick(1, 3).into_iter();
        keys.flat_map(|key| [ClientStep::Get(key), self.put(key)])
            .collect()
    }

    fn cross(&mut self) -> Vec<ClientStep> {
        let keys = self.pick(2, 2);
        let target = keys[0];
        let gets = keys.into_iter().map(ClientStep::Get);
        gets.chain([self.put(target)]).collect()
    }

    fn overwrite(&mut self) -> Vec<ClientStep> {
        self.pick(1, 3)
            .into_iter()
            .map(|key| self.put(key))
            .collect()
    }

    fn create(&mut self) -> Vec<ClientStep> {
        let keys = self.pick(1, 2);
        let required = keys
            .iter()
            .map(|key| ClientStep::Absent(*key))
            .collect::<Vec<_>>();
        let puts = keys.into_iter().map(|key| self.put(key));
        required.into_iter().chain(puts).collect()
    }

    fn remove(&mut self) -> Vec<ClientStep> {
        let keys = self.pick(1, 2);
        let mark = self.mark(keys[0]);
        let deletes = keys.into_iter();
        let deletes = deletes.flat_map(|key| [ClientStep::Get(key), ClientStep::Delete(key)]);
        deletes.chain([mark]).collect()
    }

    /// Returns a mark beside a key: the tag gives both one slot.
    fn mark(&mut self, beside: usize) -> ClientStep {
        *self.value += 1;
        let Key { name, partition } = &self.keys.recorded[beside];
        ClientStep::Mark(
            format!("{{{name}}}{MARK}{}", self.value).into_bytes(),
            *partition,
        )
    }

    fn watch(&mut self) -> Vec<ClientStep> {
        let keys = self.pick(1, 2).into_iter();
        keys.flat_map(|key| [ClientStep::Get(key), ClientStep::Watch(key)])
            .collect()
    }

    fn optimistic(&mut self, watched: &Watched) -> Vec<ClientStep> {
        let mut steps: Vec<ClientStep> = watched
            .iter()
            .map(|(key, version, value)| ClientStep::Unchanged(*key, *version, *value))
            .collect();
        steps.extend(watched.iter().map(|(key, ..)| self.put(*key)));
        steps
    }

    fn scan_partition(&mut self) -> Vec<ClientStep> {
        let mut steps = vec![ClientStep::Scan];
        let there = |key: &Key| Some(key.partition) == self.own;
        let beside = self.keys.recorded.iter().position(there);
        if let (true, Some(beside)) = (self.flushes && self.random.bool(), beside) {
            steps.extend([ClientStep::Flush, self.mark(beside)]);
        }
        if self.random.bool() {
            let key = self.pick(1, 1)[0];
            steps.extend([ClientStep::Get(key), self.put(key)]);
        }
        steps
    }

    fn transfer(&mut self) -> Vec<ClientStep> {
        let accounts = self.keys.accounts.len();
        let from = self.random.usize(..accounts);
        let to = (from + self.random.usize(1..accounts)) % accounts;
        let amount = self.random.i64(1..=DEPOSIT_SHARE);
        vec![ClientStep::Add(from, -amount), ClientStep::Add(to, amount)]
    }

    fn audit(&mut self) -> Vec<ClientStep> {
        (0..self.keys.accounts.len())
            .map(ClientStep::Balance)
            .collect()
    }
}

/// The largest amount that is transferred at once.
const DEPOSIT_SHARE: i64 = 30;

impl ClientTransaction {
    /// Returns the partitions that it needs, if the node that coordinates holds `own`.
    pub(super) fn partitions(
        &self,
        keys: &Keys,
        own: Option<PartitionId>,
    ) -> Vec<Option<PartitionId>> {
        let place = |step: &ClientStep| match step {
            ClientStep::Get(key)
            | ClientStep::Watch(key)
            | ClientStep::Put(key, ..)
            | ClientStep::Delete(key)
            | ClientStep::Absent(key)
            | ClientStep::Unchanged(key, ..) => Some(keys.recorded[*key].partition),
            ClientStep::Add(account, _) | ClientStep::Balance(account) => {
                Some(keys.accounts[*account].partition)
            }
            ClientStep::Mark(_, partition) => Some(*partition),
            ClientStep::Scan | ClientStep::Flush => own,
        };
        let mut places: Vec<_> = self.steps.iter().map(place).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Returns `true` if it changes nothing.
    pub(super) fn is_read_only(&self) -> bool {
        self.steps.iter().all(|step| {
            matches!(
                step,
                ClientStep::Get(_)
                    | ClientStep::Watch(_)
                    | ClientStep::Scan
                    | ClientStep::Balance(_)
            )
        })
    }

    /// Returns `true` if it writes without reading, so that its replies do not tell what it replaced.
    pub(super) fn is_blind(&self) -> bool {
        self.steps
            .iter()
            .all(|step| matches!(step, ClientStep::Put(..)))
    }

    pub(super) fn flushes(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, ClientStep::Flush))
    }

    pub(super) fn ops<'a>(&'a self, keys: &'a Keys) -> Vec<Op<'a>> {
        let recorded = |key: usize| keys.recorded[key].name.as_bytes();
        let account = |key: usize| keys.accounts[key].name.as_bytes();
        let op = |step: &'a ClientStep| match step {
            ClientStep::Get(key) => Op::Get {
                key: recorded(*key),
            },
            ClientStep::Watch(key) => Op::Watch {
                key: recorded(*key),
            },
            ClientStep::Put(key, _, value) => Op::put(recorded(*key), value),
            ClientStep::Delete(key) => Op::Delete {
                key: recorded(*key),
            },
            ClientStep::Absent(key) => Op::Require {
                key: recorded(*key),
                present: false,
            },
            ClientStep::Unchanged(key, version, _) => Op::Check {
                key: recorded(*key),
                version: *version,
            },
            ClientStep::Scan => Op::Scan {
                from: b"",
                to: None,
                limit: usize::MAX,
                contents: ScanContents::Values,
            },
            ClientStep::Flush => Op::Flush,
            ClientStep::Add(key, delta) => Op::Add {
                key: account(*key),
                delta: *delta,
            },
            ClientStep::Balance(key) => Op::Get { key: account(*key) },
            ClientStep::Mark(name, _) => Op::put(name, b"1"),
        };
        self.steps.iter().map(op).collect()
    }

    /// Returns the history's operations of a transaction that did not take effect, or whose outcome is
    /// unknown: other transactions may see its writes.
    pub(super) fn attempted(&self, keys: &Keys, own: Option<PartitionId>) -> String {
        let mut lines = HistoryOps::new(keys);
        for step in &self.steps {
            match step {
                ClientStep::Put(key, value, _) => lines.write(*key, *value),
                ClientStep::Delete(key) => lines.delete(*key),
                ClientStep::Flush => (0..keys.recorded.len())
                    .filter(|key| Some(keys.recorded[*key].partition) == own)
                    .for_each(|key| lines.delete(key)),
                _ => {}
            }
        }
        lines.text
    }

    /// Returns what the replies of a transaction that took effect show; the node that coordinated it
    /// holds `own`.
    ///
    /// # Errors
    /// Says which reply no store may give.
    pub(super) fn observed_by(
        &self,
        keys: &Keys,
        own: Option<PartitionId>,
        replies: &[OwnedReply],
    ) -> Result<ObservedReplies, String> {
        if replies.len() != self.steps.len() {
            return Err(format!("{} replies to {:?}", replies.len(), self.steps));
        }
        let mut observed_by = ObservedReplies::default();
        let mut lines = HistoryOps::new(keys);
        let mut read = BTreeMap::new();
        let mut found = BTreeMap::new();
        let mut balances = Vec::new();
        for (step, reply) in self.steps.iter().zip(replies) {
            match (step, reply) {
                (ClientStep::Get(key), reply) => {
                    let value = number(reply)?;
                    read.insert(*key, value);
                    lines.read(*key, value);
                }
                (ClientStep::Watch(key), OwnedReply::Version(version)) => {
                    let value = read.get(key).copied().flatten();
                    observed_by.watched.push((*key, *version, value));
                }
                (ClientStep::Put(key, value, _), OwnedReply::Ok) => lines.write(*key, *value),
                (ClientStep::Delete(key), OwnedReply::Int(1)) => lines.delete(*key),
                (ClientStep::Delete(key), OwnedReply::Int(0)) => lines.read(*key, None),
                (ClientStep::Absent(key), OwnedReply::Ok) => lines.read(*key, None),
                (ClientStep::Unchanged(key, _, value), OwnedReply::Ok) => lines.read(*key, *value),
                (ClientStep::Scan, OwnedReply::Pairs(pairs)) => {
                    found = lines.scan_partition(own, pairs)?;
                }
                (ClientStep::Flush, OwnedReply::Ok) => {
                    found.keys().for_each(|key| lines.delete(*key));
                }
                (ClientStep::Add(..), OwnedReply::Int(_))
                | (ClientStep::Mark(..), OwnedReply::Ok) => {}
                (ClientStep::Balance(_), reply) => balances.push(number(reply)?.unwrap_or(0)),
                _ => return Err(format!("{reply:?} is no answer to {step:?}")),
            }
        }
        observed_by.ops = lines.text;
        let is_audit = !balances.is_empty() && balances.len() == keys.accounts.len();
        observed_by.sum = is_audit.then(|| balances.iter().sum());
        Ok(observed_by)
    }
}

fn is_mark(name: &[u8]) -> bool {
    String::from_utf8_lossy(name).contains(MARK)
}

/// Returns the number whose text is this value.
pub(super) fn text_of(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn number(reply: &OwnedReply) -> Result<Option<i64>, String> {
    match reply {
        OwnedReply::Nil => Ok(None),
        OwnedReply::Bytes(bytes) => {
            let number = text_of(bytes).map(Some);
            number.ok_or_else(|| format!("{bytes:?} was never written"))
        }
        other => Err(format!("{other:?} is no answer to a read")),
    }
}

/// Operations in the form of [`history::json`].
pub(super) struct HistoryOps<'k> {
    keys: &'k Keys,
    pub(super) text: String,
}

impl<'k> HistoryOps<'k> {
    pub(super) fn new(keys: &'k Keys) -> HistoryOps<'k> {
        let text = String::new();
        HistoryOps { keys, text }
    }

    fn push(&mut self, what: &str, key: usize, value: Option<&str>) {
        let comma = if self.text.is_empty() { "" } else { "," };
        let name = &self.keys.recorded[key].name;
        write!(self.text, "{comma}{{\"{what}\":\"{name}\"").expect("a string grows");
        if let Some(value) = value {
            write!(self.text, ",\"value\":{value}").expect("a string grows");
        }
        self.text.push('}');
    }

    pub(super) fn read(&mut self, key: usize, value: Option<i64>) {
        let value = value.map_or("null".to_owned(), |value| value.to_string());
        self.push("read", key, Some(&value));
    }

    pub(super) fn write(&mut self, key: usize, value: i64) {
        self.push("write", key, Some(&value.to_string()));
    }

    pub(super) fn delete(&mut self, key: usize) {
        self.push("delete", key, None);
    }

    /// Adds a scan of a whole partition, which is a read of each of its keys: all names are known.
    fn scan_partition(
        &mut self,
        own: Option<PartitionId>,
        pairs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<BTreeMap<usize, i64>, String> {
        let keys = self.keys;
        let mut found = BTreeMap::new();
        for (name, value) in pairs {
            let is_it = |key: &Key| key.name.as_bytes() == name && Some(key.partition) == own;
            if let Some(key) = keys.recorded.iter().position(is_it) {
                let value = number(&OwnedReply::Bytes(value.clone()))?;
                if found.insert(key, value.unwrap_or(0)).is_some() {
                    return Err(format!("a scan answered {} twice", keys.recorded[key].name));
                }
            } else if !keys.accounts.iter().any(is_it) && !is_mark(name) {
                return Err(format!(
                    "a scan answered {name:?}, which no client wrote there"
                ));
            }
        }
        for (index, key) in keys.recorded.iter().enumerate() {
            if Some(key.partition) == own {
                self.read(index, found.get(&index).copied());
            }
        }
        Ok(found)
    }
}
