//! `KEYS`, which may visit every key: on a snapshot, in slices between which other connections
//! get their turns. The connection that asked waits meanwhile.

use resp::{Protocol, Writer};
use store::{Db, Snapshot, Worker};

use crate::glob;
use crate::limits::SLICE_KEYS;

/// A `KEYS` that is under way.
pub(crate) struct KeysTask {
    snapshot: Snapshot,
    pattern: Vec<u8>,
    /// Where the next slice begins.
    from: Vec<u8>,
    /// Where matches end.
    to: Option<Vec<u8>>,
    found: usize,
    /// The keys found, as RESP.
    body: Vec<u8>,
}

impl KeysTask {
    pub(crate) fn new(db: &Db, pattern: &[u8]) -> KeysTask {
        let prefix = glob::prefix(pattern);
        KeysTask {
            snapshot: db.snapshot(),
            pattern: pattern.to_vec(),
            from: prefix.to_vec(),
            to: glob::behind_prefix(prefix),
            found: 0,
            body: Vec::new(),
        }
    }

    /// The newest epoch in the view.
    pub(crate) fn epoch(&self) -> base::Epoch {
        self.snapshot.epoch()
    }

    /// Bytes of the reply so far.
    pub(crate) fn size(&self) -> usize {
        self.body.len()
    }

    /// Visits the next slice. Returns whether it was the last.
    pub(crate) fn step(&mut self, worker: &mut Worker) -> bool {
        let KeysTask {
            snapshot,
            pattern,
            from,
            to,
            found,
            body,
        } = self;
        let next = worker.scan_snapshot(snapshot, from, to.as_deref(), SLICE_KEYS, &mut |entry| {
            if glob::matches(pattern, entry.key, false) {
                *found += 1;
                Writer::new(body, Protocol::Resp2).bulk(entry.key);
            }
        });
        match next {
            Some(next) => {
                *from = next;
                false
            }
            None => true,
        }
    }

    /// Writes the reply.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.array(self.found);
        writer.raw(&self.body);
    }
}
