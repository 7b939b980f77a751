//! The versions of a model's read-atomic keys.

use std::collections::BTreeMap;

use base::change::siblings;
use base::transaction::Kind;
use base::versions::{Ask, Content, Found, Versioned};
use base::{Abort, Timestamp, TransactionId};

/// Prefix of read-atomic keys.
pub(crate) const PREFIX: &str = "ra:";

#[derive(Clone)]
struct Stored {
    id: TransactionId,
    siblings: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// Versions of read-atomic keys. No version that was written is ever dropped.
#[derive(Clone, Default)]
pub(crate) struct Versions {
    /// In the order of their ids.
    committed: BTreeMap<Vec<u8>, Vec<Stored>>,
    prepared: BTreeMap<TransactionId, Vec<(Vec<u8>, Stored)>>,
    /// Number of second rounds that get the answer that a version is gone.
    pub(crate) gone: usize,
}

type Effects = [(Vec<u8>, Option<Vec<u8>>)];

pub(crate) fn covers(key: &[u8]) -> bool {
    key.starts_with(PREFIX.as_bytes())
}

impl Versions {
    fn newest(&self, key: &[u8]) -> Option<&Stored> {
        self.committed.get(key)?.last()
    }

    fn newest_id(&self, key: &[u8]) -> TransactionId {
        self.newest(key).map_or(TransactionId::ZERO, |one| one.id)
    }

    /// Returns what the newest version of a key tells of the others.
    pub(crate) fn siblings(&self, key: &str) -> Vec<u8> {
        let newest = self.newest(key.as_bytes());
        newest.expect("there is one").siblings.clone()
    }

    /// Writes a transaction of this partition alone.
    pub(crate) fn write(&mut self, effects: &Effects, time_ms: u64) {
        let mut told = Vec::new();
        let mut id = TransactionId {
            timestamp: Timestamp::at_ms(time_ms),
            unique: 0,
        };
        for (key, _) in effects.iter().filter(|(key, _)| covers(key)) {
            siblings::push(&mut told, key);
            id.timestamp = id.timestamp.max(self.newest_id(key).timestamp.next());
        }
        for (key, value) in effects.iter().filter(|(key, _)| covers(key)) {
            let stored = Stored {
                id,
                siblings: told.clone(),
                value: value.clone(),
            };
            self.committed.entry(key.clone()).or_default().push(stored);
        }
    }

    pub(crate) fn prepare(
        &mut self,
        id: TransactionId,
        effects: &Effects,
        siblings: &[u8],
    ) -> Result<(), Abort> {
        let newest = effects.iter().map(|(key, _)| self.newest_id(key)).max();
        if let Some(newest) = newest.filter(|newest| *newest >= id) {
            let newest = newest.timestamp;
            return Err(Abort::Overtaken { newest });
        }
        let stored = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
            let (siblings, value) = (siblings.to_vec(), value.clone());
            let stored = Stored {
                id,
                siblings,
                value,
            };
            (key.clone(), stored)
        };
        let parts = effects.iter().map(stored).collect();
        self.prepared.insert(id, parts);
        Ok(())
    }

    /// Removes from the effects those that a newer version hides.
    pub(crate) fn commit(
        &mut self,
        id: TransactionId,
        effects: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) {
        for (key, stored) in self.prepared.remove(&id).unwrap_or_default() {
            if self.newest_id(&key) > id {
                effects.retain(|(other, _)| *other != key);
            }
            let versions = self.committed.entry(key).or_default();
            versions.push(stored);
            versions.sort_by_key(|one| one.id);
        }
    }

    pub(crate) fn abort(&mut self, id: TransactionId) {
        self.prepared.remove(&id);
    }

    pub(crate) fn find(&mut self, ask: &Ask<'_>) -> Found<'_> {
        let key = ask.key();
        let Ask::OneOf { ids, .. } = ask else {
            let whole = matches!(ask, Ask::Newest { .. });
            let newest = self.newest(key);
            return newest.map_or(Found::Nothing, |one| found(one, whole));
        };
        if self.gone > 0 {
            self.gone -= 1;
            return Found::Gone;
        }
        let prepared = self.prepared.values().flatten();
        let prepared = prepared.filter(|(of, _)| of == key).map(|(_, one)| one);
        let committed = self.committed.get(key).map_or(&[][..], |all| all);
        let all = committed.iter().chain(prepared);
        let asked = all.filter(|one| ids.contains(&one.id));
        match asked.max_by_key(|one| one.id) {
            Some(one) => found(one, true),
            None if committed.is_empty() => Found::Nothing,
            None => Found::NotThere,
        }
    }
}

fn found(one: &Stored, whole: bool) -> Found<'_> {
    let content = one.value.as_deref().map(|value| Content {
        value,
        kind: Kind::String,
        deadline: None,
    });
    Found::Version(Versioned {
        id: one.id,
        siblings: if whole { &one.siblings } else { &[] },
        content: content.filter(|_| whole),
    })
}
