//! A redo log in memory that knows which of its epochs are durable.
//!
//! As the journal does, it keeps whole epochs: a crash loses exactly the entries of epochs above the
//! durable one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base::change::{Origin, siblings};
use base::transaction::Kind;
use base::{Change, Epoch, Tid, TransactionId};
use engine::{Changes, LogFailure, RedoLog};
use fastrand::Rng;

/// The log of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryLog {
    entries: Vec<LogEntry>,
    pub(super) durable: Epoch,
    /// The time of an entry that is logged now.
    pub(super) now: Duration,
}

#[derive(Clone, Debug)]
struct LogEntry {
    tid: Tid,
    stamp_ms: u64,
    at: Duration,
    change: LoggedChange,
}

/// A [`Change`] that owns its bytes.
#[derive(Clone, Debug)]
enum LoggedChange {
    Put {
        key: Box<[u8]>,
        value: Box<[u8]>,
        kind: Kind,
        generation: u16,
        deadline: Option<u64>,
        origin: Option<(TransactionId, Box<[u8]>)>,
    },
    Edit {
        key: Box<[u8]>,
        base: Tid,
        offset: usize,
        bytes: Box<[u8]>,
    },
    Elements {
        key: Box<[u8]>,
        base: Tid,
        deadline: Option<u64>,
        changes: Box<[u8]>,
    },
    Delete {
        key: Box<[u8]>,
        origin: Option<(TransactionId, Box<[u8]>)>,
    },
    Flush {
        generation: u16,
    },
}

impl MemoryLog {
    /// Forgets entries that were not durable. Returns how many changes were lost.
    pub(super) fn crash(&mut self) -> u64 {
        let (durable, before) = (self.durable, self.entries.len());
        self.entries.retain(|entry| entry.tid.epoch() <= durable);
        (before - self.entries.len()) as u64
    }

    /// Returns a copy with all durable entries, and a random beginning of the rest: whole transactions,
    /// in their order. Also returns how many further changes it has, and how many it lacks.
    pub(super) fn branch(&self, random: &mut Rng) -> (MemoryLog, u64, u64) {
        let open = |entry: &&LogEntry| entry.tid.epoch() > self.durable;
        let open: Vec<Tid> = self.entries.iter().filter(open).map(|e| e.tid).collect();
        let last = random
            .usize(..=open.len())
            .checked_sub(1)
            .map(|at| open[at]);
        let mut branch = self.clone();
        branch.entries.retain(|entry| {
            entry.tid.epoch() <= self.durable || last.is_some_and(|last| entry.tid <= last)
        });
        let lost = (self.entries.len() - branch.entries.len()) as u64;
        (branch, open.len() as u64 - lost, lost)
    }

    /// Finds where a value was put. Each value is put once.
    pub(super) fn find_put(&self, name: &[u8], wanted: &[u8]) -> Option<LogPosition> {
        let is_it = |entry: &&LogEntry| {
            matches!(&entry.change, LoggedChange::Put { key, value, .. }
                if **key == *name && **value == *wanted)
        };
        self.entries.iter().find(is_it).map(LogEntry::place)
    }

    /// Finds where a transaction over several partitions that also wrote `sibling` changed a key.
    pub(super) fn find_sibling(&self, name: &[u8], sibling: &[u8]) -> Option<LogPosition> {
        let is_it = |entry: &&LogEntry| {
            let mut siblings = entry
                .siblings()
                .into_iter()
                .flat_map(siblings::iter)
                .flatten();
            entry.change.key() == Some(name) && siblings.any(|key| key == sibling)
        };
        self.entries.iter().find(is_it).map(LogEntry::place)
    }

    /// Returns the value of a key before a transaction.
    pub(super) fn value_before(&self, name: &[u8], tid: Tid) -> Option<&[u8]> {
        let touches = |entry: &&LogEntry| {
            let key = entry.change.key();
            entry.tid < tid && key.is_none_or(|key| key == name)
        };
        let last = self
            .entries
            .iter()
            .filter(touches)
            .max_by_key(|entry| entry.tid)?;
        // A transaction that flushes and then puts has one TID.
        let same = self.entries.iter().filter(|entry| entry.tid == last.tid);
        same.filter(touches).find_map(|entry| match &entry.change {
            LoggedChange::Put { value, .. } => Some(&**value),
            _ => None,
        })
    }

    /// Returns the greatest time stamp in the log.
    pub(super) fn stamp_ms(&self) -> u64 {
        let stamps = self.entries.iter().map(|entry| entry.stamp_ms);
        stamps.max().unwrap_or(0)
    }

    /// Applies all changes, in the order in which they were logged.
    pub(super) fn replay(&self, mut apply: impl FnMut(Tid, &Change<'_>)) {
        for entry in &self.entries {
            apply(entry.tid, &entry.change.borrow());
        }
    }
}

/// The place of an entry in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogPosition {
    pub(super) tid: Tid,
    /// The time of the entry.
    pub(super) at: Duration,
}

impl LogEntry {
    fn place(&self) -> LogPosition {
        let (tid, at) = (self.tid, self.at);
        LogPosition { tid, at }
    }

    /// Returns the keys that its transaction wrote, if that was one over several partitions.
    fn siblings(&self) -> Option<&[u8]> {
        match &self.change {
            LoggedChange::Put { origin, .. } | LoggedChange::Delete { origin, .. } => {
                origin.as_ref().map(|(_, siblings)| &**siblings)
            }
            LoggedChange::Edit { .. }
            | LoggedChange::Elements { .. }
            | LoggedChange::Flush { .. } => None,
        }
    }
}

impl LoggedChange {
    /// Returns the key; a flush has none.
    fn key(&self) -> Option<&[u8]> {
        match self {
            LoggedChange::Put { key, .. }
            | LoggedChange::Edit { key, .. }
            | LoggedChange::Elements { key, .. }
            | LoggedChange::Delete { key, .. } => Some(key),
            LoggedChange::Flush { .. } => None,
        }
    }

    fn new(change: &Change<'_>) -> LoggedChange {
        let own = |origin: &Origin<'_>| (origin.id, origin.siblings.into());
        match *change {
            Change::Put {
                key,
                value,
                kind,
                generation,
                deadline,
                origin,
            } => LoggedChange::Put {
                key: key.into(),
                value: value.into(),
                kind,
                generation,
                deadline,
                origin: origin.as_ref().map(own),
            },
            Change::Edit {
                key,
                base,
                offset,
                bytes,
            } => LoggedChange::Edit {
                key: key.into(),
                base,
                offset,
                bytes: bytes.into(),
            },
            Change::Elements {
                key,
                base,
                deadline,
                changes,
            } => LoggedChange::Elements {
                key: key.into(),
                base,
                deadline,
                changes: changes.into(),
            },
            Change::Delete { key, origin } => LoggedChange::Delete {
                key: key.into(),
                origin: origin.as_ref().map(own),
            },
            Change::Flush { generation } => LoggedChange::Flush { generation },
        }
    }

    fn borrow(&self) -> Change<'_> {
        fn lend(origin: &Option<(TransactionId, Box<[u8]>)>) -> Option<Origin<'_>> {
            let (id, siblings) = origin.as_ref()?;
            Some(Origin { id: *id, siblings })
        }
        match self {
            LoggedChange::Put {
                key,
                value,
                kind,
                generation,
                deadline,
                origin,
            } => Change::Put {
                key,
                value,
                kind: *kind,
                generation: *generation,
                deadline: *deadline,
                origin: lend(origin),
            },
            LoggedChange::Edit {
                key,
                base,
                offset,
                bytes,
            } => Change::Edit {
                key,
                base: *base,
                offset: *offset,
                bytes,
            },
            LoggedChange::Elements {
                key,
                base,
                deadline,
                changes,
            } => Change::Elements {
                key,
                base: *base,
                deadline: *deadline,
                changes,
            },
            LoggedChange::Delete { key, origin } => Change::Delete {
                key,
                origin: lend(origin),
            },
            LoggedChange::Flush { generation } => Change::Flush {
                generation: *generation,
            },
        }
    }
}

/// An engine's access to a [`MemoryLog`].
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryLogWriter(pub(super) Rc<RefCell<MemoryLog>>);

impl RedoLog for MemoryLogWriter {
    fn ready(&mut self) -> Result<(), LogFailure> {
        Ok(())
    }

    fn append(&mut self, tid: Tid, stamp_ms: u64, changes: Changes<'_>) -> Result<(), LogFailure> {
        let mut log = self.0.borrow_mut();
        let at = log.now;
        let entries = changes.iter().map(|change| LogEntry {
            tid,
            stamp_ms,
            at,
            change: LoggedChange::new(&change),
        });
        log.entries.extend(entries);
        Ok(())
    }
}
