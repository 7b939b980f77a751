//! Transactions of clients: their operations, and the meaning of their replies.
//!
//! | kind | operations | what it catches |
//! |---|---|---|
//! | observe | get, two to four keys | read skew, stale reads |
//! | modify | get and put, one to three keys | lost updates |
//! | cross | get two keys, put one of them | write skew |
//! | overwrite | put, one to three keys | partial writes |
//! | remove | get and delete a key | lost deletes |
//! | watch | get and watch; then check and put, as another transaction | lost updates over transactions |
//! | sweep | scan | phantoms |
//! | flush | scan and flush | partial flushes |
//! | count | add to a counter, or append to a text that is one | additions that are applied twice, or not at all |
//! | counts | get all counters | stale reads |
//! | transfer | add to one account what is taken from another | money made or lost |
//! | audit | get all accounts | as above |
//! | lend | put a key of its own that expires | clocks |
//! | look | get such a key | as above |
//! | fence | guard with a token, and count | tokens that are forgotten, or taken after newer ones |
//! | tell | the time, and what observe does | a time that goes back |

use std::fmt::Write;

use base::partition::OwnedReply;
use base::transaction::{Expiry, ScanContents, When};
use base::{Op, Version};
use fastrand::Rng;

/// The numbers of counters and accounts of a run.
pub(super) const COUNTERS: usize = BEATS + 8;
/// Counters from this one on have a client of their own that adds to them, and some that read them.
pub(super) const BEATS: usize = 2;
/// The counter that is a text, whose length is its value times [`UNIT`]. Once it is long, entries have the
/// operation that appends to it in place of the text.
const TEXT: usize = 0;
const UNIT: usize = 500;
/// The value from which on the text is long.
const LONG: i64 = 20;
pub(super) const ACCOUNTS: usize = 3;
/// The initial balance of each account.
pub(super) const DEPOSIT: i64 = 100;

/// One step of a transaction.
#[derive(Clone, Debug)]
pub(super) enum PlannedStep {
    /// Gives an account its deposit; doing so twice makes no difference.
    Open(usize),
    Get(String),
    Watch(String),
    Put(String, i64),
    Delete(String),
    /// Requires that the key has this version, whose value was this one.
    Same(String, Version, Option<i64>),
    Sweep,
    Flush,
    Count(usize),
    Counter(usize),
    Add(usize, i64),
    Balance(usize),
    /// Puts a key that expires after this many milliseconds.
    Lend(usize, i64),
    Look(usize),
    /// Requires that no transaction with a greater token than this has taken effect.
    Guard(i64),
    Time,
}

/// A transaction that a client wants to run.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedTransaction {
    pub(super) steps: Vec<PlannedStep>,
    keys: Vec<String>,
    values: Vec<String>,
}

/// The prefix of keys whose values are recorded, and where a scan of them ends.
const FIRST: &[u8] = b"k";
const BEHIND: &[u8] = b"l";

pub(super) fn key(index: usize) -> String {
    format!("k{index}")
}

/// The keys that a client has watched, with versions and values.
pub(super) type Watched = Vec<(String, Version, Option<i64>)>;

/// The contents of the replies, besides what is recorded as history.
#[derive(Debug, Default)]
pub(super) struct SeenValues {
    /// The operations as JSON, without brackets.
    pub(super) ops: String,
    pub(super) watched: Watched,
    /// The accounts' balances.
    pub(super) balances: Vec<Option<i64>>,
    /// Counters, `true` if they were added to, and their values then.
    pub(super) counters: Vec<(usize, bool, i64)>,
    /// Keys that expire, and `true` if they existed.
    pub(super) looks: Vec<(usize, bool)>,
    /// Tokens that were accepted.
    pub(super) tokens: Vec<i64>,
    /// Times that were returned.
    pub(super) times: Vec<i64>,
    /// Replies that do not fit the operation.
    pub(super) odd: Option<String>,
}

impl PlannedTransaction {
    pub(super) fn new(steps: Vec<PlannedStep>) -> PlannedTransaction {
        let key = |step: &PlannedStep| match step {
            PlannedStep::Get(key)
            | PlannedStep::Watch(key)
            | PlannedStep::Put(key, _)
            | PlannedStep::Delete(key) => key.clone(),
            PlannedStep::Same(key, ..) => key.clone(),
            PlannedStep::Count(index) | PlannedStep::Counter(index) => format!("c{index}"),
            PlannedStep::Open(index) | PlannedStep::Add(index, _) | PlannedStep::Balance(index) => {
                format!("a{index}")
            }
            PlannedStep::Lend(index, _) | PlannedStep::Look(index) => format!("e{index}"),
            PlannedStep::Guard(_) => "lock".to_owned(),
            PlannedStep::Sweep | PlannedStep::Flush | PlannedStep::Time => String::new(),
        };
        let value = |step: &PlannedStep| match step {
            PlannedStep::Put(_, value) => value.to_string(),
            PlannedStep::Open(_) => DEPOSIT.to_string(),
            PlannedStep::Lend(..) => "lent".to_owned(),
            PlannedStep::Count(TEXT) => "x".repeat(UNIT),
            _ => String::new(),
        };
        PlannedTransaction {
            keys: steps.iter().map(key).collect(),
            values: steps.iter().map(value).collect(),
            steps,
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.ops().iter().all(Op::is_read_only)
    }

    pub(super) fn ops(&self) -> Vec<Op<'_>> {
        let texts = self.keys.iter().zip(&self.values);
        let all = self.steps.iter().zip(texts);
        all.map(|(step, (key, value))| op(step, key.as_bytes(), value.as_bytes()))
            .collect()
    }

    /// Returns `true` if it has appended to the text, and to nothing else, when that was long.
    pub(super) fn has_extended(&self, seen: &SeenValues) -> bool {
        let is_long = |counter: &(usize, bool, i64)| counter.2 >= LONG;
        matches!(self.steps[..], [PlannedStep::Count(TEXT)]) && seen.counters.iter().any(is_long)
    }

    /// Returns the operations that are recorded if the replies are not known.
    pub(super) fn blind(&self) -> String {
        let mut ops = String::new();
        for step in &self.steps {
            if let PlannedStep::Put(key, value) = step {
                write(&mut ops, key, *value);
            }
        }
        ops
    }

    /// Reads the replies.
    pub(super) fn see(&self, replies: &[OwnedReply]) -> SeenValues {
        let mut seen = SeenValues::default();
        if replies.len() != self.steps.len() {
            seen.odd = Some(format!("{} replies to {:?}", replies.len(), self.steps));
            return seen;
        }
        for (at, (step, reply)) in self.steps.iter().zip(replies).enumerate() {
            if see(&mut seen, step, reply).is_none()
                && !self.deletes(step, reply, at, replies, &mut seen)
            {
                seen.odd = Some(format!("{step:?} was answered {reply:?}"));
            }
        }
        seen
    }

    /// Records a step whose history depends on other replies. Returns `true` if it is such a step.
    fn deletes(
        &self,
        step: &PlannedStep,
        reply: &OwnedReply,
        at: usize,
        replies: &[OwnedReply],
        seen: &mut SeenValues,
    ) -> bool {
        match (step, reply) {
            (PlannedStep::Delete(key), OwnedReply::Int(gone)) => {
                if *gone == 1 {
                    separate(&mut seen.ops);
                    write!(seen.ops, "{{\"delete\":\"{key}\"}}").expect("a string grows");
                } else {
                    read(&mut seen.ops, key, None);
                }
                true
            }
            // A sweep comes before it.
            (PlannedStep::Flush, OwnedReply::Ok) => {
                let Some(OwnedReply::Pairs(found)) = at.checked_sub(1).map(|at| &replies[at])
                else {
                    return false;
                };
                for (key, _) in found {
                    let key = String::from_utf8_lossy(key);
                    separate(&mut seen.ops);
                    write!(seen.ops, "{{\"delete\":\"{key}\"}}").expect("a string grows");
                }
                true
            }
            _ => false,
        }
    }
}

fn op<'a>(step: &PlannedStep, key: &'a [u8], value: &'a [u8]) -> Op<'a> {
    match *step {
        PlannedStep::Counter(TEXT) => Op::Len { key },
        PlannedStep::Count(TEXT) => Op::Append { key, value },
        PlannedStep::Get(_)
        | PlannedStep::Counter(_)
        | PlannedStep::Balance(_)
        | PlannedStep::Look(_) => Op::Get { key },
        PlannedStep::Watch(_) => Op::Watch { key },
        PlannedStep::Open(_) | PlannedStep::Put(..) => Op::put(key, value),
        PlannedStep::Delete(_) => Op::Delete { key },
        PlannedStep::Same(_, version, _) => Op::Check { key, version },
        PlannedStep::Sweep => Op::Scan {
            from: FIRST,
            to: Some(BEHIND),
            limit: 1000,
            contents: ScanContents::Values,
        },
        PlannedStep::Flush => Op::Flush,
        PlannedStep::Guard(token) => Op::Guard {
            lock: key,
            token: token as u64,
        },
        PlannedStep::Time => Op::Now,
        PlannedStep::Count(_) => Op::Add { key, delta: 1 },
        PlannedStep::Add(_, delta) => Op::Add { key, delta },
        PlannedStep::Lend(_, ms) => Op::Put {
            key,
            value,
            when: When::Always,
            expiry: Expiry::InMs(ms),
            get: false,
        },
    }
}

fn see(seen: &mut SeenValues, step: &PlannedStep, reply: &OwnedReply) -> Option<()> {
    match (step, reply) {
        (PlannedStep::Get(key), reply) => {
            let value = number(reply)?;
            read(&mut seen.ops, key, value);
            seen.watched
                .push((key.clone(), Version::from_bits(0), value));
        }
        (PlannedStep::Watch(key), OwnedReply::Version(version)) => {
            let of = seen.watched.iter_mut().find(|(watched, ..)| watched == key);
            of?.1 = *version;
        }
        (PlannedStep::Put(key, value), OwnedReply::Ok) => write(&mut seen.ops, key, *value),
        (PlannedStep::Same(key, _, value), OwnedReply::Ok) => read(&mut seen.ops, key, *value),
        (PlannedStep::Sweep, OwnedReply::Pairs(found)) => scan(&mut seen.ops, found),
        (PlannedStep::Count(TEXT), reply) => seen.counters.push((TEXT, true, units(reply)?)),
        (PlannedStep::Counter(TEXT), reply) => seen.counters.push((TEXT, false, units(reply)?)),
        (PlannedStep::Count(index), OwnedReply::Int(sum)) => {
            seen.counters.push((*index, true, *sum))
        }
        (PlannedStep::Counter(index), reply) => {
            let value = number(reply)?;
            seen.counters.push((*index, false, value.unwrap_or(0)));
        }
        (PlannedStep::Add(..), OwnedReply::Int(_))
        | (PlannedStep::Open(_) | PlannedStep::Lend(..), OwnedReply::Ok) => {}
        (PlannedStep::Balance(_), reply) => seen.balances.push(number(reply)?),
        (PlannedStep::Guard(token), OwnedReply::Ok) => seen.tokens.push(*token),
        (PlannedStep::Time, OwnedReply::Int(now)) => seen.times.push(*now),
        (PlannedStep::Look(index), reply @ (OwnedReply::Nil | OwnedReply::Bytes(_))) => {
            seen.looks.push((*index, *reply != OwnedReply::Nil));
        }
        _ => return None,
    }
    Some(())
}

/// Returns the value of the counter that is a text, from its length.
fn units(reply: &OwnedReply) -> Option<i64> {
    match reply {
        OwnedReply::Int(length) if length % UNIT as i64 == 0 => Some(length / UNIT as i64),
        _ => None,
    }
}

fn number(reply: &OwnedReply) -> Option<Option<i64>> {
    match reply {
        OwnedReply::Nil => Some(None),
        OwnedReply::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok().map(Some),
        _ => None,
    }
}

fn separate(ops: &mut String) {
    if !ops.is_empty() {
        ops.push(',');
    }
}

fn read(ops: &mut String, key: &str, value: Option<i64>) {
    separate(ops);
    match value {
        Some(value) => write!(ops, "{{\"read\":\"{key}\",\"value\":{value}}}"),
        None => write!(ops, "{{\"read\":\"{key}\",\"value\":null}}"),
    }
    .expect("a string grows");
}

fn write(ops: &mut String, key: &str, value: i64) {
    separate(ops);
    write!(ops, "{{\"write\":\"{key}\",\"value\":{value}}}").expect("a string grows");
}

fn scan(ops: &mut String, found: &[(Vec<u8>, Vec<u8>)]) {
    separate(ops);
    ops.push_str("{\"scan\":\"k\",\"to\":\"l\",\"found\":[");
    for (at, (key, value)) in found.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        write!(ops, "{comma}[\"{key}\",{value}]").expect("a string grows");
    }
    ops.push_str("]}");
}

/// Draws jobs, and values that were never used.
pub(super) struct TransactionDraw<'a> {
    pub(super) random: &'a mut Rng,
    pub(super) keys: usize,
    pub(super) value: &'a mut i64,
    /// The number of keys that expire, so far.
    pub(super) lent: &'a mut usize,
    /// `true` if the client always learns the outcome of its transaction.
    pub(super) certain: bool,
    pub(super) flushes: bool,
}

impl TransactionDraw<'_> {
    pub(super) fn job(&mut self, watched: &mut Watched) -> PlannedTransaction {
        if !watched.is_empty() && self.random.u8(..4) > 0 {
            return self.optimistic(&std::mem::take(watched));
        }
        watched.clear();
        let steps = match self.random.u8(..30) {
            0..4 => self.observe(),
            4..9 => self.modify(),
            9..11 => self.cross(),
            11..13 => self.overwrite(),
            13..15 if self.certain => self.remove(),
            15..17 if !self.certain => self.watch(),
            17 if self.flushes && self.certain => vec![PlannedStep::Sweep, PlannedStep::Flush],
            18 => vec![PlannedStep::Sweep],
            19..21 if !self.flushes => (0..BEATS).map(PlannedStep::Counter).collect(),
            21..24 if !self.flushes => self.transfer(),
            24 if !self.flushes => (0..ACCOUNTS).map(PlannedStep::Balance).collect(),
            25 if !self.flushes => {
                *self.lent += 1;
                vec![PlannedStep::Lend(*self.lent - 1, self.random.i64(1..300))]
            }
            26 | 27 if *self.lent > 0 => {
                let recent = self.lent.saturating_sub(4);
                vec![PlannedStep::Look(self.random.usize(recent..*self.lent))]
            }
            28 => self.fence(),
            29 => [PlannedStep::Time]
                .into_iter()
                .chain(self.observe())
                .collect(),
            _ if self.flushes => self.modify(),
            _ => vec![PlannedStep::Count(self.random.usize(..BEATS))],
        };
        PlannedTransaction::new(steps)
    }

    fn pick(&mut self, least: usize, most: usize) -> Vec<String> {
        let count = self.random.usize(least..=most).min(self.keys);
        let mut picked = self.random.choose_multiple(0..self.keys, count);
        self.random.shuffle(&mut picked);
        picked.into_iter().map(key).collect()
    }

    fn put(&mut self, key: String) -> PlannedStep {
        *self.value += 1;
        PlannedStep::Put(key, *self.value)
    }

    fn observe(&mut self) -> Vec<PlannedStep> {
        self.pick(2, 4).into_iter().map(PlannedStep::Get).collect()
    }

    fn modify(&mut self) -> Vec<PlannedStep> {
        let keys = self.pick(1, 3).into_iter();
        keys.flat_map(|key| [PlannedStep::Get(key.clone()), self.put(key)])
            .collect()
    }

    fn cross(&mut self) -> Vec<PlannedStep> {
        let keys = self.pick(2, 2);
        let put = self.put(keys[0].clone());
        keys.into_iter()
            .map(PlannedStep::Get)
            .chain([put])
            .collect()
    }

    fn overwrite(&mut self) -> Vec<PlannedStep> {
        let keys = self.pick(1, 3).into_iter();
        keys.map(|key| self.put(key)).collect()
    }

    fn remove(&mut self) -> Vec<PlannedStep> {
        let key = self.pick(1, 1).remove(0);
        vec![PlannedStep::Get(key.clone()), PlannedStep::Delete(key)]
    }

    fn watch(&mut self) -> Vec<PlannedStep> {
        let keys = self.pick(1, 2).into_iter();
        keys.flat_map(|key| [PlannedStep::Get(key.clone()), PlannedStep::Watch(key)])
            .collect()
    }

    fn optimistic(&mut self, watched: &Watched) -> PlannedTransaction {
        let same = watched.iter().cloned();
        let mut steps: Vec<PlannedStep> = same
            .map(|(key, version, value)| PlannedStep::Same(key, version, value))
            .collect();
        steps.extend(watched.iter().map(|(key, ..)| self.put(key.clone())));
        PlannedTransaction::new(steps)
    }

    /// Makes a fenced transaction. Its token is a current one, or a little older.
    fn fence(&mut self) -> Vec<PlannedStep> {
        *self.value += 1;
        let guard = PlannedStep::Guard((*self.value - self.random.i64(..20)).max(0));
        let guarded = match self.flushes {
            true => self.modify(),
            false => vec![PlannedStep::Count(self.random.usize(..BEATS))],
        };
        [guard].into_iter().chain(guarded).collect()
    }

    fn transfer(&mut self) -> Vec<PlannedStep> {
        let from = self.random.usize(..ACCOUNTS);
        let to = (from + self.random.usize(1..ACCOUNTS)) % ACCOUNTS;
        let amount = self.random.i64(1..50);
        vec![
            PlannedStep::Add(from, -amount),
            PlannedStep::Add(to, amount),
        ]
    }
}
