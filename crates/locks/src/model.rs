//! A model of a replicated partition: it keeps what the partition promises, and no more.
//!
//! Versions are never reused, and an absence has another version after every write, as in the real
//! partition. The time is that of a wall clock that is set now and then, but never goes back.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::ids::{Epoch, Tid, Version};
use base::partition::OwnedReply;
use base::transaction::{Abort, When};

use crate::record::{LockRecord, RecordState};
use crate::shared::Operation;

#[derive(Default)]
pub(crate) struct Partition {
    values: BTreeMap<Vec<u8>, Value>,
    writes: u64,
    stamp_ms: u64,
}

#[derive(Clone)]
struct Value {
    bytes: Vec<u8>,
    written: u64,
    expires_ms: Option<u64>,
}

fn tid(number: u64) -> Tid {
    Tid::new(Epoch(number), 0)
}

impl Partition {
    /// Executes a transaction when the wall clock shows `wall_ms`.
    pub(crate) fn execute(
        &mut self,
        operations: &[Operation],
        wall_ms: u64,
    ) -> Result<Vec<OwnedReply>, Abort> {
        self.stamp_ms = self.stamp_ms.max(wall_ms);
        let stamp = self.stamp_ms;
        self.values
            .retain(|_, value| value.expires_ms.is_none_or(|at| at > stamp));
        let before = self.values.clone();
        self.writes += 1;
        let mut replies = Vec::new();
        for (op, operation) in operations.iter().enumerate() {
            match self.operate(operation) {
                Some(reply) => replies.push(reply),
                None => {
                    self.values = before;
                    return Err(Abort::Precondition { op });
                }
            }
        }
        Ok(replies)
    }

    fn operate(&mut self, operation: &Operation) -> Option<OwnedReply> {
        let reply = match operation {
            Operation::Check { key, version } => {
                (self.version(key) == *version).then_some(OwnedReply::Ok)?
            }
            Operation::Require { key } => self.values.get(key).map(|_| OwnedReply::Ok)?,
            Operation::Watch { key } => OwnedReply::Version(self.version(key)),
            Operation::Get { key } => {
                let value = self.values.get(key);
                value.map_or(OwnedReply::Nil, |value| {
                    OwnedReply::Bytes(value.bytes.clone())
                })
            }
            Operation::ExpiryOf { key } => {
                let value = self.values.get(key);
                value.map_or(OwnedReply::Nil, |value| {
                    OwnedReply::Deadline(value.expires_ms)
                })
            }
            Operation::Put {
                key,
                value,
                when,
                expires_in_ms,
            } => {
                if *when == When::Absent && self.values.contains_key(key) {
                    return Some(OwnedReply::Nil);
                }
                let value = Value {
                    bytes: value.clone(),
                    written: self.writes,
                    expires_ms: expires_in_ms.map(|ms| self.stamp_ms + ms.unsigned_abs()),
                };
                self.values.insert(key.clone(), value);
                OwnedReply::Ok
            }
            Operation::Scan { from, to, limit } => {
                let to = to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let range = self.values.range::<Vec<u8>, _>((Bound::Included(from), to));
                let pairs = range.map(|(key, value)| (key.clone(), value.bytes.clone()));
                OwnedReply::Pairs(pairs.take(*limit).collect())
            }
        };
        Some(reply)
    }

    fn version(&self, key: &[u8]) -> Version {
        match self.values.get(key) {
            Some(value) => Version::present(tid(value.written)),
            None => Version::absent(tid(self.writes)),
        }
    }

    /// Returns how many records say that a lock is held.
    pub(crate) fn held(&self) -> usize {
        let records = self.values.values();
        let records = records.filter_map(|value| LockRecord::decode(&value.bytes));
        records
            .filter(|record| record.state != RecordState::Released)
            .count()
    }
}
