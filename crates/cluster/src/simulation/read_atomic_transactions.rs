//! Transactions of read-atomic keys.
//!
//! | kind | operations | detects |
//! |---|---|---|
//! | read several | get, two to four keys | fractured reads |
//! | write several | put or delete, two to four keys, at least one put | writes that are there in part |
//! | read one | get, one key | stale reads, lost writes |
//! | write one | put, one key | writes that are lost behind others |
//! | remove one | get and delete, one key | deletions that are forgotten too early |
//! | modify one | get and put, one key | lost updates |
//!
//! The first two are read atomic, the others ordinary transactions of one key.

use super::client_transaction::{ClientStep, ClientTransaction, TransactionGenerator};
use super::keys::Keys;

impl TransactionGenerator<'_> {
    /// Draws the steps of a transaction of read-atomic keys.
    pub(super) fn read_atomic_steps(&mut self) -> Vec<ClientStep> {
        match self.random.u8(..16) {
            0..5 => self.some(2, 4).into_iter().map(ClientStep::Get).collect(),
            5..10 => {
                let keys = self.some(2, 4).into_iter().enumerate();
                let step = |(at, key)| match at > 0 && self.random.u8(..6) == 0 {
                    true => ClientStep::Delete(key),
                    false => self.put(key),
                };
                keys.map(step).collect()
            }
            10..12 => vec![ClientStep::Get(self.one())],
            12..14 => {
                let key = self.one();
                vec![self.put(key)]
            }
            14 => {
                let key = self.one();
                vec![ClientStep::Get(key), ClientStep::Delete(key)]
            }
            _ => {
                let key = self.one();
                vec![ClientStep::Get(key), self.put(key)]
            }
        }
    }

    fn one(&mut self) -> usize {
        self.random.usize(..self.keys.read_atomic)
    }

    fn some(&mut self, least: usize, most: usize) -> Vec<usize> {
        let all = self.keys.read_atomic;
        let count = self.random.usize(least..=most).min(all);
        let mut picked = self.random.choose_multiple(0..all, count);
        self.random.shuffle(&mut picked);
        picked
    }
}

impl ClientTransaction {
    /// Returns the read-atomic keys that it names, each once.
    fn read_atomic(&self, keys: &Keys) -> Vec<usize> {
        let named = self.steps.iter().filter_map(|step| match step {
            ClientStep::Get(key) | ClientStep::Put(key, ..) | ClientStep::Delete(key) => Some(*key),
            _ => None,
        });
        let mut named: Vec<usize> = named.filter(|key| *key < keys.read_atomic).collect();
        named.sort_unstable();
        named.dedup();
        named
    }

    /// Returns `true` if its keys are read atomic.
    pub(super) fn is_read_atomic(&self, keys: &Keys) -> bool {
        !self.read_atomic(keys).is_empty()
    }

    /// Returns `true` if it has several such keys.
    pub(super) fn has_several_read_atomic_keys(&self, keys: &Keys) -> bool {
        self.read_atomic(keys).len() > 1
    }

    /// Returns `true` if it writes such keys without reading, one or several.
    pub(super) fn is_blind_and_read_atomic(&self, keys: &Keys) -> bool {
        self.writes_several_read_atomic_keys(keys) || self.is_read_atomic(keys) && self.is_blind()
    }

    /// Returns `true` if it writes several such keys.
    pub(super) fn writes_several_read_atomic_keys(&self, keys: &Keys) -> bool {
        self.has_several_read_atomic_keys(keys) && !self.is_read_only()
    }
}
