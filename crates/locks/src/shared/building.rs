//! Transactions: how they are built of waiting requests.

use std::sync::Arc;

use base::planted::{self, Bug};
use base::transaction::When;

use super::Shared;
use super::command::{SharedCommand, TransactionNumber};
use super::entry::{Over, Phase, Plan, What, Write};
use super::era::{LENGTH_MS, TOMBSTONE_MS};
use super::in_flight::{InFlightTransaction, KeyInTransaction, RecordWrite, TransactionContent};
use super::operation::Operation;
use crate::lock::FencingToken;
use crate::record::{LockRecord, RecordState, RecordWriteId, era_key, record_key, whole_ms};

impl Shared {
    /// Returns `true` if another transaction may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.flights.len() < self.options.transactions && self.pause_until <= self.now
    }

    /// Sends a transaction.
    pub(super) fn transact(&mut self, freight: TransactionContent, operations: Vec<Operation>) {
        self.transactions += 1;
        self.counters.transactions += 1;
        let number = TransactionNumber(self.transactions);
        let sent = self.now;
        self.flights
            .insert(number, InFlightTransaction { sent, freight });
        self.out
            .push(SharedCommand::Transact { number, operations });
    }

    /// Sends keys that wait, as many as the limit on transactions allows.
    pub(super) fn send(&mut self) {
        self.send_scans();
        let mut late = Vec::new();
        while self.has_room() && !self.ready.is_empty() {
            self.send_keys(&mut late);
        }
        if late.is_empty() {
            return;
        }
        for key in late.into_iter().rev() {
            self.ready.push_front(key);
        }
        if !self.era.is_asked && self.has_room() {
            self.ask_for_era();
        }
    }

    fn ask_for_era(&mut self) {
        self.era.number += 1;
        self.era.is_asked = true;
        let number = self.era.number;
        let key = era_key(&self.options.prefix, self.incarnation, number);
        let put = Operation::Put {
            key: key.clone(),
            value: Vec::new(),
            when: When::Always,
            expires_in_ms: Some(LENGTH_MS),
        };
        self.transact(
            TransactionContent::Era(number),
            vec![put, Operation::ExpiryOf { key }],
        );
    }

    /// Sends one transaction of keys. Those that need a newer era are added to `late`.
    fn send_keys(&mut self, late: &mut Vec<Arc<[u8]>>) {
        let (mut items, mut operations) = (Vec::new(), Vec::new());
        let era = self.era.usable(self.now);
        let mut needs_era = false;
        while items.len() < self.options.batch
            && let Some(key) = self.ready.pop_front()
        {
            match self.load_item(&key, &mut operations) {
                Loaded::Key(item) => {
                    let over = item.writes.as_ref().map(|written| written.over);
                    needs_era |= over == Some(Over::Absent);
                    items.push(item);
                }
                Loaded::NeedsEra => late.push(key),
                Loaded::Nothing => {}
            }
        }
        if items.is_empty() {
            return;
        }
        if needs_era {
            let number = era.expect("a token was drawn from it");
            let key = era_key(&self.options.prefix, self.incarnation, number);
            operations.insert(0, Operation::Require { key });
        }
        self.counters.keys += items.len() as u64;
        self.transact(TransactionContent::Keys { needs_era, items }, operations);
    }

    /// Adds the operations of a key to the transaction.
    fn load_item(&mut self, key: &Arc<[u8]>, operations: &mut Vec<Operation>) -> Loaded {
        let before = self.arrivals;
        let Some(entry) = self.entries.get_mut(key) else {
            return Loaded::Nothing;
        };
        let Phase::Ready(plan) = std::mem::replace(&mut entry.phase, Phase::Idle) else {
            unreachable!("a key waits to be sent once, and nothing else takes it out")
        };
        let record = record_key(&self.options.prefix, key);
        let read = [
            Operation::Get {
                key: record.clone(),
            },
            Operation::Watch {
                key: record.clone(),
            },
        ];
        let item = |writes| {
            let key = Arc::clone(key);
            Loaded::Key(KeyInTransaction {
                key,
                before,
                writes,
            })
        };
        let write = match plan {
            Plan::Read => {
                entry.phase = Phase::Flying(None);
                operations.extend(read);
                return item(None);
            }
            Plan::Write(write) => write,
        };
        if entry.position(write.arrival).is_none() {
            // Its request has gone meanwhile. The others begin anew.
            self.advance(key);
            return Loaded::Nothing;
        }
        let Some(token) = self.draw(&write) else {
            self.entries.get_mut(key).expect("as above").phase = Phase::Ready(Plan::Write(write));
            return Loaded::NeedsEra;
        };
        let (written, bytes) = self.write(&write, token);
        match write.over {
            Over::Absent => {
                operations.push(put(record, bytes, When::Absent, &written));
                operations.extend(read);
            }
            Over::Version(version, _) => {
                let key = record.clone();
                operations.push(Operation::Check { key, version });
                operations.push(put(record, bytes, When::Always, &written));
            }
        }
        let entry = self.entries.get_mut(key).expect("as above");
        entry.phase = Phase::Flying(Some(write.arrival));
        item(Some(written))
    }

    /// Draws the token of a write. Returns `None` if that takes a newer era.
    fn draw(&mut self, write: &Write) -> Option<FencingToken> {
        let last = match write.over {
            Over::Absent => None,
            Over::Version(_, last) => Some(last),
        };
        match &write.what {
            What::Release(_) => last,
            What::Set(setting) if setting.token.is_some() => setting.token,
            What::Set(_) => {
                self.era.usable(self.now)?;
                let token = if planted::is(Bug::ForgottenToken) {
                    let first = self.era.token(None);
                    first.map(|first| FencingToken(first.0 + self.writes))
                } else {
                    self.era.token(last)
                };
                if token.is_none() {
                    self.era.close();
                }
                token
            }
        }
    }

    fn write(&mut self, write: &Write, token: FencingToken) -> (RecordWrite, Vec<u8>) {
        self.writes += 1;
        let id = RecordWriteId {
            incarnation: self.incarnation,
            sequence: self.writes,
        };
        let (state, lease, answer) = match &write.what {
            What::Set(setting) => {
                let lease = whole_ms(setting.lease);
                let value = Arc::clone(&setting.value);
                let answer = setting.answer(token, setting.lease);
                (
                    RecordState::Held { value, lease },
                    Some(lease),
                    Some(answer),
                )
            }
            What::Release(answer) => (RecordState::Released, None, answer.clone()),
        };
        let bytes = LockRecord { token, id, state }.encode();
        let written = RecordWrite {
            arrival: write.arrival,
            over: write.over,
            id,
            is_new: matches!(&write.what, What::Set(setting) if setting.token.is_none()),
            lease,
            answer,
        };
        (written, bytes)
    }
}

/// Result of loading a key into a transaction.
enum Loaded {
    Key(KeyInTransaction),
    NeedsEra,
    Nothing,
}

fn put(key: Vec<u8>, value: Vec<u8>, when: When, written: &RecordWrite) -> Operation {
    Operation::Put {
        key,
        value,
        when,
        expires_in_ms: written.lease.is_none().then_some(TOMBSTONE_MS),
    }
}
