//! A redo log in memory that knows which of its epochs are durable.
//!
//! As the journal does, it keeps whole epochs: a crash loses exactly what is of an epoch above the
//! durable one.

use std::cell::RefCell;
use std::rc::Rc;

use base::change::Origin;
use base::transaction::Kind;
use base::{Change, Epoch, Tid, Timestamp};
use engine::{Changes, RedoLog};

/// What one partition has logged.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: Vec<Entry>,
    pub(super) durable: Epoch,
}

#[derive(Debug)]
struct Entry {
    tid: Tid,
    stamp_ms: u64,
    change: OwnedChange,
}

/// A [`Change`] that owns its bytes.
#[derive(Debug)]
enum OwnedChange {
    Put {
        key: Box<[u8]>,
        value: Box<[u8]>,
        kind: Kind,
        generation: u16,
        deadline: Option<u64>,
        origin: Option<(Timestamp, Box<[u8]>)>,
    },
    Delete {
        key: Box<[u8]>,
        origin: Option<(Timestamp, Box<[u8]>)>,
    },
    Flush {
        generation: u16,
    },
}

impl Book {
    /// Forgets what was not durable. Returns how many changes that were.
    pub(super) fn crash(&mut self) -> u64 {
        let (durable, before) = (self.durable, self.entries.len());
        self.entries.retain(|entry| entry.tid.epoch() <= durable);
        (before - self.entries.len()) as u64
    }

    /// Whether a key was ever written, as far as is known.
    pub(super) fn has_put(&self, name: &[u8]) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(&entry.change, OwnedChange::Put { key, .. } if **key == *name))
    }

    /// The greatest time stamp that it has.
    pub(super) fn stamp_ms(&self) -> u64 {
        let stamps = self.entries.iter().map(|entry| entry.stamp_ms);
        stamps.max().unwrap_or(0)
    }

    /// All changes, in the order in which they were logged.
    pub(super) fn replay(&self, mut apply: impl FnMut(Tid, &Change<'_>)) {
        for entry in &self.entries {
            apply(entry.tid, &entry.change.borrow());
        }
    }
}

impl OwnedChange {
    fn new(change: &Change<'_>) -> OwnedChange {
        let own = |origin: &Origin<'_>| (origin.timestamp, origin.siblings.into());
        match *change {
            Change::Put {
                key,
                value,
                kind,
                generation,
                deadline,
                origin,
            } => OwnedChange::Put {
                key: key.into(),
                value: value.into(),
                kind,
                generation,
                deadline,
                origin: origin.as_ref().map(own),
            },
            Change::Delete { key, origin } => OwnedChange::Delete {
                key: key.into(),
                origin: origin.as_ref().map(own),
            },
            Change::Flush { generation } => OwnedChange::Flush { generation },
        }
    }

    fn borrow(&self) -> Change<'_> {
        fn lend(origin: &Option<(Timestamp, Box<[u8]>)>) -> Option<Origin<'_>> {
            let (timestamp, siblings) = origin.as_ref()?;
            Some(Origin {
                timestamp: *timestamp,
                siblings,
            })
        }
        match self {
            OwnedChange::Put {
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
            OwnedChange::Delete { key, origin } => Change::Delete {
                key,
                origin: lend(origin),
            },
            OwnedChange::Flush { generation } => Change::Flush {
                generation: *generation,
            },
        }
    }
}

/// The way into a [`Book`] for an engine's worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Pen(pub(super) Rc<RefCell<Book>>);

impl RedoLog for Pen {
    fn ready(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn append(&mut self, tid: Tid, stamp_ms: u64, changes: Changes<'_>) -> Result<(), String> {
        let entries = changes.iter().map(|change| Entry {
            tid,
            stamp_ms,
            change: OwnedChange::new(&change),
        });
        self.0.borrow_mut().entries.extend(entries);
        Ok(())
    }
}
