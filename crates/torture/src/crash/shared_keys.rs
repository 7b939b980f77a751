//! The books of the keys that all connections write: counters, accounts and groups.

use std::collections::HashMap;

use crate::crash::load::Record;
use crate::crash::op::{
    ACCOUNTS, COUNTERS, CrashOp, GROUPS, ObservedState, account_key, counter_key, group_keys,
};
use crate::crash::value::CrashValue;
use crate::crash::verdict::{CrashVerdict, FoundKeys};

/// Counters: no more than was sent, no less than was acknowledged or shown.
#[derive(Debug, Default)]
pub struct KeyCounters {
    settled: [i64; COUNTERS],
}

impl KeyCounters {
    /// Compares the state that was found with what `records` allow, and takes it over for the next
    /// round.
    pub fn judge(&mut self, records: &[Record], found: &FoundKeys, verdict: &mut CrashVerdict) {
        let (mut least, mut most) = (self.settled, self.settled);
        let mut shown = self.settled;
        for record in records {
            if let CrashOp::Add { counter, by } = record.op {
                most[counter] += by;
                least[counter] += if record.acked.is_some() { by } else { 0 };
            }
            if let (
                CrashOp::Add { counter, .. } | CrashOp::ReadCounter(counter),
                Some((_, ObservedState::Counter(n))),
            ) = (&record.op, &record.acked)
            {
                shown[*counter] = shown[*counter].max(*n);
            }
        }
        for counter in 0..COUNTERS {
            let key = counter_key(counter);
            let Ok(value) = found
                .number(&key)
                .map_err(|e| verdict.wrong.push(format!("{e:#}")))
            else {
                continue;
            };
            let (least, most, shown) = (least[counter], most[counter], shown[counter]);
            if value < least.max(shown) {
                verdict.lost.push(format!(
                    "{key} is {value}; acknowledged were {least}, shown was {shown}"
                ));
            } else if value > most {
                verdict
                    .wrong
                    .push(format!("{key} is {value}, but only {most} was sent"));
            }
            self.settled[counter] = value;
        }
    }
}

/// Accounts: amounts move, so the sum stays zero; each value lies within the bounds of the open
/// transfers.
#[derive(Debug, Default)]
pub struct Accounts {
    settled: [i64; ACCOUNTS],
}

impl Accounts {
    /// Compares the state that was found with what `records` allow, and takes it over for the next
    /// round.
    pub fn judge(&mut self, records: &[Record], found: &FoundKeys, verdict: &mut CrashVerdict) {
        let (mut least, mut most) = (self.settled, self.settled);
        for record in records {
            let CrashOp::Transfer { from, to, amount } = record.op else {
                continue;
            };
            least[from] -= amount;
            most[to] += amount;
            if record.acked.is_some() {
                most[from] -= amount;
                least[to] += amount;
            }
        }
        for account in 0..ACCOUNTS {
            let key = account_key(account);
            let Ok(value) = found
                .number(&key)
                .map_err(|e| verdict.wrong.push(format!("{e:#}")))
            else {
                continue;
            };
            let (least, most) = (least[account], most[account]);
            if !(least..=most).contains(&value) {
                verdict
                    .lost
                    .push(format!("{key} is {value}, outside of {least}…{most}"));
            }
            self.settled[account] = value;
        }
        let sum: i64 = self.settled.iter().sum();
        if sum != 0 {
            verdict.partial.push(format!(
                "the accounts' sum is {sum}: a transfer is there in part"
            ));
        }
    }
}

/// Groups: all keys of a group have one value, and it is not older than one that was known.
#[derive(Debug, Default)]
pub struct KeyGroups {
    settled: [Option<CrashValue>; GROUPS],
}

/// The life of a stamp: before it was sent, and when it was first known to be there.
struct Life {
    sent: u64,
    known: Option<u64>,
}

impl KeyGroups {
    /// Compares the state that was found with what `records` allow, and takes it over for the next
    /// round.
    pub fn judge(&mut self, records: &[Record], found: &FoundKeys, verdict: &mut CrashVerdict) {
        for group in 0..GROUPS {
            let keys = group_keys(group);
            let values: Vec<Option<&[u8]>> = keys.iter().map(|key| found.bytes(key)).collect();
            if values.iter().any(|value| *value != values[0]) {
                let ids: Vec<_> = values
                    .iter()
                    .map(|v| v.and_then(CrashValue::decode))
                    .collect();
                verdict
                    .partial
                    .push(format!("group {group} is there in part: {ids:?}"));
                continue;
            }
            let value = values[0].map(CrashValue::decode);
            match value {
                Some(None) => verdict
                    .wrong
                    .push(format!("group {group} holds what no client sent")),
                Some(value) => self.judge_one(group, value, records, verdict),
                None => self.judge_one(group, None, records, verdict),
            }
        }
    }

    fn judge_one(
        &mut self,
        group: usize,
        value: Option<CrashValue>,
        records: &[Record],
        verdict: &mut CrashVerdict,
    ) {
        let lives = self.lives(group, records);
        // Stamps that were known before this one was sent have been overwritten by it.
        let newest = lives
            .values()
            .filter(|l| l.known.is_some())
            .map(|l| l.sent)
            .max();
        match lives.get(&value) {
            None => verdict
                .wrong
                .push(format!("group {group} holds {value:?}, sent by no client")),
            Some(Life {
                known: Some(known), ..
            }) if newest.is_some_and(|sent| *known < sent) => {
                verdict.lost.push(format!(
                    "group {group} went back to {value:?}, known at {known}; a stamp sent at \
                     {newest:?} was known, too"
                ));
            }
            Some(_) => {}
        }
        self.settled[group] = value;
    }

    fn lives(&self, group: usize, records: &[Record]) -> HashMap<Option<CrashValue>, Life> {
        let mut lives = HashMap::new();
        lives.insert(
            self.settled[group],
            Life {
                sent: 0,
                known: Some(0),
            },
        );
        for record in records {
            if let CrashOp::Stamp {
                group: g, stamp, ..
            } = record.op
                && g == group
            {
                let known = record.acked.as_ref().map(|(tick, _)| *tick);
                lives.insert(
                    Some(stamp),
                    Life {
                        sent: record.sent,
                        known,
                    },
                );
            }
        }
        for record in records {
            if let (CrashOp::ReadGroup(g), Some((tick, ObservedState::Group(value)))) =
                (&record.op, &record.acked)
                && *g == group
                && let Some(life) = lives.get_mut(value)
                && life.known.is_none()
            {
                life.known = Some(*tick);
            }
        }
        lives
    }
}
