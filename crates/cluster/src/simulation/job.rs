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
use base::{Op, PartitionId, Version};
use fastrand::Rng;

use super::keys::{Key, Keys};
use crate::ramp::Algorithm;

/// Part of the names of marks, and of no other keys.
pub(super) const MARK: &str = "mark";

/// One step of a transaction. Keys are indexes.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Get(usize),
    Watch(usize),
    Put(usize, i64, Vec<u8>),
    Delete(usize),
    /// The key must be absent.
    Absent(usize),
    /// The key must have this version, which had this value.
    Same(usize, Version, Option<i64>),
    Sweep,
    Flush,
    Add(usize, i64),
    Balance(usize),
    /// A key of its own, on the partition of the deleted key: it shows later if the transaction took
    /// effect, which a deletion by itself does not.
    Mark(Vec<u8>, PartitionId),
}

/// A transaction that a client wants to run.
#[derive(Clone, Debug, Default)]
pub(super) struct Job {
    pub(super) steps: Vec<Step>,
    /// Keys that are only read are held, too, if a client asks for it.
    pub(super) holds: bool,
    /// For a write of several read-atomic keys, if a client asks for it.
    pub(super) algorithm: Algorithm,
}

/// The keys that a client has watched, with versions and values.
pub(super) type Watched = Vec<(usize, Version, Option<i64>)>;

/// What replies have shown.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The operations as JSON, without brackets.
    pub(super) ops: String,
    pub(super) watched: Watched,
    /// The sum of all accounts, if all were read.
    pub(super) sum: Option<i64>,
}

/// Draws jobs, and values that were never used.
pub(super) struct Draw<'a> {
    pub(super) random: &'a mut Rng,
    pub(super) keys: &'a Keys,
    pub(super) value: &'a mut i64,
    pub(super) flushes: bool,
    /// The partition of the node that will coordinate.
    pub(super) own: Option<PartitionId>,
}

/// Draws the steps of one kind of job.
type Kind<'a> = fn(&mut Draw<'a>) -> Vec<Step>;

impl<'a> Draw<'a> {
    /// Draws the next job of a client that has watched keys, or has not.
    pub(super) fn job(&mut self, watched: &mut Watched) -> Job {
        let steps = self.steps(watched);
        Job {
            steps,
            holds: self.random.u8(..4) == 0,
            algorithm: Algorithm::ALL[self.random.usize(..3)],
        }
    }

    fn steps(&mut self, watched: &mut Watched) -> Vec<Step> {
        if !watched.is_empty() && self.random.u8(..4) > 0 {
            return self.optimistic(&std::mem::take(watched));
        }
        watched.clear();
        if self.keys.read_atomic > 0 && self.random.u8(..10) < 7 {
            return self.scatter();
        }
        let has_accounts = self.keys.accounts.len() > 1;
        let kinds: [(u32, Kind<'a>); 10] = [
            (4, Self::observe),
            (5, Self::modify),
            (3, Self::cross),
            (2, Self::overwrite),
            (2, Self::create),
            (2, Self::remove),
            (2, Self::watch),
            (if self.flushes { 2 } else { 1 }, Self::sweep),
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

    pub(super) fn put(&mut self, key: usize) -> Step {
        *self.value += 1;
        Step::Put(key, *self.value, self.value.to_string().into_bytes())
    }

    fn observe(&mut self) -> Vec<Step> {
        self.pick(2, 4).into_iter().map(Step::Get).collect()
    }

    fn modify(&mut self) -> Vec<Step> {
        let keys = self.pick(1, 3).into_iter();
        keys.flat_map(|key| [Step::Get(key), self.put(key)])
            .collect()
    }

    fn cross(&mut self) -> Vec<Step> {
        let keys = self.pick(2, 2);
        let target = keys[0];
        let gets = keys.into_iter().map(Step::Get);
        gets.chain([self.put(target)]).collect()
    }

    fn overwrite(&mut self) -> Vec<Step> {
        self.pick(1, 3)
            .into_iter()
            .map(|key| self.put(key))
            .collect()
    }

    fn create(&mut self) -> Vec<Step> {
        let keys = self.pick(1, 2);
        let required = keys
            .iter()
            .map(|key| Step::Absent(*key))
            .collect::<Vec<_>>();
        let puts = keys.into_iter().map(|key| self.put(key));
        required.into_iter().chain(puts).collect()
    }

    fn remove(&mut self) -> Vec<Step> {
        let keys = self.pick(1, 2);
        let mark = self.mark(keys[0]);
        let deletes = keys.into_iter();
        let deletes = deletes.flat_map(|key| [Step::Get(key), Step::Delete(key)]);
        deletes.chain([mark]).collect()
    }

    /// Returns a mark beside a key: the tag gives both one slot.
    fn mark(&mut self, beside: usize) -> Step {
        *self.value += 1;
        let Key { name, partition } = &self.keys.recorded[beside];
        Step::Mark(
            format!("{{{name}}}{MARK}{}", self.value).into_bytes(),
            *partition,
        )
    }

    fn watch(&mut self) -> Vec<Step> {
        let keys = self.pick(1, 2).into_iter();
        keys.flat_map(|key| [Step::Get(key), Step::Watch(key)])
            .collect()
    }

    fn optimistic(&mut self, watched: &Watched) -> Vec<Step> {
        let mut steps: Vec<Step> = watched
            .iter()
            .map(|(key, version, value)| Step::Same(*key, *version, *value))
            .collect();
        steps.extend(watched.iter().map(|(key, ..)| self.put(*key)));
        steps
    }

    fn sweep(&mut self) -> Vec<Step> {
        let mut steps = vec![Step::Sweep];
        let there = |key: &Key| Some(key.partition) == self.own;
        let beside = self.keys.recorded.iter().position(there);
        if let (true, Some(beside)) = (self.flushes && self.random.bool(), beside) {
            steps.extend([Step::Flush, self.mark(beside)]);
        }
        if self.random.bool() {
            let key = self.pick(1, 1)[0];
            steps.extend([Step::Get(key), self.put(key)]);
        }
        steps
    }

    fn transfer(&mut self) -> Vec<Step> {
        let accounts = self.keys.accounts.len();
        let from = self.random.usize(..accounts);
        let to = (from + self.random.usize(1..accounts)) % accounts;
        let amount = self.random.i64(1..=DEPOSIT_SHARE);
        vec![Step::Add(from, -amount), Step::Add(to, amount)]
    }

    fn audit(&mut self) -> Vec<Step> {
        (0..self.keys.accounts.len()).map(Step::Balance).collect()
    }
}

/// The largest amount that is transferred at once.
const DEPOSIT_SHARE: i64 = 30;

impl Job {
    /// Returns the partitions that it needs, if the node that coordinates holds `own`.
    pub(super) fn partitions(
        &self,
        keys: &Keys,
        own: Option<PartitionId>,
    ) -> Vec<Option<PartitionId>> {
        let place = |step: &Step| match step {
            Step::Get(key)
            | Step::Watch(key)
            | Step::Put(key, ..)
            | Step::Delete(key)
            | Step::Absent(key)
            | Step::Same(key, ..) => Some(keys.recorded[*key].partition),
            Step::Add(account, _) | Step::Balance(account) => {
                Some(keys.accounts[*account].partition)
            }
            Step::Mark(_, partition) => Some(*partition),
            Step::Sweep | Step::Flush => own,
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
                Step::Get(_) | Step::Watch(_) | Step::Sweep | Step::Balance(_)
            )
        })
    }

    /// Returns `true` if it writes without reading, so that its replies do not tell what it replaced.
    pub(super) fn is_blind(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Put(..)))
    }

    pub(super) fn flushes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Flush))
    }

    pub(super) fn ops<'a>(&'a self, keys: &'a Keys) -> Vec<Op<'a>> {
        let recorded = |key: usize| keys.recorded[key].name.as_bytes();
        let account = |key: usize| keys.accounts[key].name.as_bytes();
        let op = |step: &'a Step| match step {
            Step::Get(key) => Op::Get {
                key: recorded(*key),
            },
            Step::Watch(key) => Op::Watch {
                key: recorded(*key),
            },
            Step::Put(key, _, value) => Op::put(recorded(*key), value),
            Step::Delete(key) => Op::Delete {
                key: recorded(*key),
            },
            Step::Absent(key) => Op::Require {
                key: recorded(*key),
                present: false,
            },
            Step::Same(key, version, _) => Op::Check {
                key: recorded(*key),
                version: *version,
            },
            Step::Sweep => Op::Scan {
                from: b"",
                to: None,
                limit: usize::MAX,
                values: true,
            },
            Step::Flush => Op::Flush,
            Step::Add(key, delta) => Op::Add {
                key: account(*key),
                delta: *delta,
            },
            Step::Balance(key) => Op::Get { key: account(*key) },
            Step::Mark(name, _) => Op::put(name, b"1"),
        };
        self.steps.iter().map(op).collect()
    }

    /// Returns the history's operations of a transaction that did not take effect, or whose outcome is
    /// unknown: other transactions may see its writes.
    pub(super) fn attempted(&self, keys: &Keys, own: Option<PartitionId>) -> String {
        let mut lines = Lines::new(keys);
        for step in &self.steps {
            match step {
                Step::Put(key, value, _) => lines.write(*key, *value),
                Step::Delete(key) => lines.delete(*key),
                Step::Flush => (0..keys.recorded.len())
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
    pub(super) fn seen(
        &self,
        keys: &Keys,
        own: Option<PartitionId>,
        replies: &[OwnedReply],
    ) -> Result<Seen, String> {
        if replies.len() != self.steps.len() {
            return Err(format!("{} replies to {:?}", replies.len(), self.steps));
        }
        let mut seen = Seen::default();
        let mut lines = Lines::new(keys);
        let mut read = BTreeMap::new();
        let mut found = BTreeMap::new();
        let mut balances = Vec::new();
        for (step, reply) in self.steps.iter().zip(replies) {
            match (step, reply) {
                (Step::Get(key), reply) => {
                    let value = number(reply)?;
                    read.insert(*key, value);
                    lines.read(*key, value);
                }
                (Step::Watch(key), OwnedReply::Version(version)) => {
                    let value = read.get(key).copied().flatten();
                    seen.watched.push((*key, *version, value));
                }
                (Step::Put(key, value, _), OwnedReply::Ok) => lines.write(*key, *value),
                (Step::Delete(key), OwnedReply::Int(1)) => lines.delete(*key),
                (Step::Delete(key), OwnedReply::Int(0)) => lines.read(*key, None),
                (Step::Absent(key), OwnedReply::Ok) => lines.read(*key, None),
                (Step::Same(key, _, value), OwnedReply::Ok) => lines.read(*key, *value),
                (Step::Sweep, OwnedReply::Pairs(pairs)) => {
                    found = lines.sweep(own, pairs)?;
                }
                (Step::Flush, OwnedReply::Ok) => {
                    found.keys().for_each(|key| lines.delete(*key));
                }
                (Step::Add(..), OwnedReply::Int(_)) | (Step::Mark(..), OwnedReply::Ok) => {}
                (Step::Balance(_), reply) => balances.push(number(reply)?.unwrap_or(0)),
                _ => return Err(format!("{reply:?} is no answer to {step:?}")),
            }
        }
        seen.ops = lines.text;
        let is_audit = !balances.is_empty() && balances.len() == keys.accounts.len();
        seen.sum = is_audit.then(|| balances.iter().sum());
        Ok(seen)
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
pub(super) struct Lines<'k> {
    keys: &'k Keys,
    pub(super) text: String,
}

impl<'k> Lines<'k> {
    pub(super) fn new(keys: &'k Keys) -> Lines<'k> {
        let text = String::new();
        Lines { keys, text }
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
    fn sweep(
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
