//! Snapshots that clients take in pieces (`KUMIKI.SNAPSHOT`): consistent copies of all keys.
//!
//! | a connection has | `BEGIN` | `NEXT` | `END` |
//! |---|---|---|---|
//! | none | begins one | refused | `OK` |
//! | one that is open | refused | the next entries | gives it back |
//! | one that was read to its end | begins one | no entries, and none follow | `OK` |
//! | one that was given up, because the client did not ask for more in time | begins one | refused, and says so | `OK` |
//!
//! Invariants:
//! 1. A snapshot belongs to its connection and ends with it; so does its permit, one of those for snapshots
//!    that may be open at once. The memory that it holds is that of versions that were replaced
//!    since it began.
//! 2. Each `NEXT` is bounded work: one slice, in a turn of its own, so that requests that a client
//!    sends in one packet do not delay other clients. A single value may be as long as values may
//!    be.
//! 3. No part of it leaves before the whole view is durable (or, of a replicated partition, before
//!    it is known to have been the leader's).

use std::time::Duration;

use base::transaction::Kind;
use base::{Epoch, Version, database};
use resp::{Protocol, Writer};
use store::{Snapshot, SnapshotEntry};
use values::StoredBlock;

use crate::limits::{SLICE_BYTES, SLICE_KEYS, SLICE_STEPS};
use crate::partition::{Partition, Worker};
use crate::render::kind_name;
use crate::snapshot_permits::SnapshotPermit;
use base::glob;

/// A connection's snapshot.
pub(crate) enum ClientSnapshot {
    /// It can be read further.
    Open(Box<OpenSnapshot>),
    /// It was read to its end, and closed.
    Exhausted,
    /// No client asked for more within this time.
    Expired(Duration),
}

/// An open snapshot, and the position up to which it was read.
pub(crate) struct OpenSnapshot {
    pub(crate) view: Snapshot,
    /// The namespace of its database, if that is another one's.
    exchanged: Option<u16>,
    /// The key at which the next slice begins.
    from: Vec<u8>,
    /// The upper bound of keys that match.
    to: Option<Vec<u8>>,
    pattern: Option<Vec<u8>>,
    /// The epoch that replies with data of the snapshot wait for.
    pub(crate) shown: Epoch,
    /// The time of its last use, since the server's start.
    pub(crate) last_used: Duration,
    _permit: SnapshotPermit,
}

/// The entries of one reply.
pub(crate) struct SnapshotPage {
    /// The entries as RESP.
    pub(crate) body: Vec<u8>,
    pub(crate) entries: usize,
    /// `true` if there may be more.
    pub(crate) more: bool,
}

impl OpenSnapshot {
    pub(crate) fn new(
        partition: &Partition,
        database: u16,
        pattern: Option<&[u8]>,
        now: Duration,
        permit: SnapshotPermit,
    ) -> OpenSnapshot {
        let (view, namespace) = partition.snapshot_of(database);
        let (from, to) = glob::range(namespace, pattern.unwrap_or(b"*"));
        OpenSnapshot {
            exchanged: (namespace != database).then_some(namespace),
            from,
            to,
            pattern: pattern.map(<[u8]>::to_vec),
            shown: Epoch::ZERO,
            last_used: now,
            view,
            _permit: permit,
        }
    }

    /// Reads at most `most` further entries.
    pub(crate) fn next(&mut self, worker: &mut Worker, most: usize) -> SnapshotPage {
        let mut page = SnapshotPage {
            body: Vec::new(),
            entries: 0,
            more: false,
        };
        let (pattern, mut seen, mut steps) = (self.pattern.as_deref(), 0, SLICE_STEPS);
        let to = self.to.as_deref();
        let next = worker.walk_snapshot(&self.view, &self.from, to, &mut |entry| {
            let mut matches = |key: &[u8]| {
                pattern.is_none_or(|pattern| glob::matches_counted(pattern, key, &mut steps))
            };
            let is_shown = |one: &SnapshotEntry<'_>| {
                !one.is_system() && matches(database::client_key(one.key))
            };
            if let Some(entry) = entry.filter(is_shown) {
                write_entry(&entry, self.exchanged, &mut page.body);
                page.entries += 1;
            }
            seen += 1;
            seen < SLICE_KEYS && steps > 0 && page.entries < most && page.body.len() < SLICE_BYTES
        });
        page.more = next.is_some();
        self.from = next.unwrap_or_default();
        page
    }
}

/// Writes key, type, value, deadline (milliseconds since the Unix epoch; -1: never) and version
/// (the number that `WATCH.VERSION` returns) of an entry. A value that is no string is its payload, as `DUMP` answers
/// it.
fn write_entry(entry: &SnapshotEntry<'_>, exchanged: Option<u16>, out: &mut Vec<u8>) {
    // All of this is the same in both protocols.
    let mut writer = Writer::new(out, Protocol::Resp2);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    writer.array(5);
    writer.bulk(database::client_key(entry.key));
    writer.bulk(kind_name(entry.kind).as_bytes());
    let bytes = entry.value.bytes();
    let stored = StoredBlock {
        kind: entry.kind,
        bytes: &bytes,
    };
    match entry.kind {
        Kind::String => writer.bulk(&bytes),
        _ => writer.bulk(&values::dump::encode(stored)),
    }
    writer.int(entry.deadline.map_or(-1, number));
    let version = Version::present(entry.tid);
    let version = exchanged.map_or(version, |namespace| version.exchanged(namespace));
    writer.int(number(version.to_bits()));
}
