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
//! 1. A snapshot belongs to its connection and ends with it; so does its place among the snapshots
//!    that may be open at once. The memory that it holds is that of versions that were replaced
//!    since it began.
//! 2. Each `NEXT` is bounded work: one slice, in a turn of its own, so that requests that a client
//!    sends in one packet do not delay other clients. A single value may be as long as values may
//!    be.
//! 3. No part of it leaves before the whole view is durable (or, of a replicated partition, before
//!    it is known to have been the leader's).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Epoch;
use resp::{Args, Protocol, Writer};
use store::{Snapshot, SnapshotEntry};

use crate::command::Command;
use crate::connection::Connection;
use crate::executor::Executor;
use crate::glob;
use crate::limits::{SLICE_BYTES, SLICE_KEYS, SLICE_STEPS};
use crate::partition::{Partition, Worker};
use crate::refusal;
use crate::render::name_of;
use crate::task::Task;

const NONE: &str = "ERR this connection has no snapshot: KUMIKI.SNAPSHOT BEGIN begins one";
const IS_OPEN: &str = "ERR this connection has a snapshot already: KUMIKI.SNAPSHOT END ends it";
const BAD_COUNT: &str = "ERR COUNT is a number from 1 on";

/// The number of open snapshots.
#[derive(Default)]
pub(crate) struct Places(Arc<AtomicU64>);

/// The place of an open snapshot, which becomes free when this is dropped.
struct Place(Arc<AtomicU64>);

impl Places {
    /// Returns the number of taken places.
    pub(crate) fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns one of `most` places, if there is one.
    fn take(&self, most: usize) -> Option<Place> {
        let more = |taken| (taken < most as u64).then_some(taken + 1);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Place(Arc::clone(&self.0)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection's snapshot.
pub(crate) enum Taken {
    /// It can be read further.
    Open(Box<View>),
    /// It was read to its end, and closed.
    Read,
    /// No client asked for more within this time.
    GivenUp(Duration),
}

/// An open snapshot, and the position up to which it was read.
pub(crate) struct View {
    snapshot: Snapshot,
    /// The key at which the next slice begins.
    from: Vec<u8>,
    /// The upper bound of keys that match.
    to: Option<Vec<u8>>,
    pattern: Option<Vec<u8>>,
    /// The epoch that replies with data of the snapshot wait for.
    shown: Epoch,
    /// The time of its last use, since the server's start.
    asked: Duration,
    _place: Place,
}

/// The entries of one reply.
struct Slice {
    /// The entries as RESP.
    body: Vec<u8>,
    entries: usize,
    /// `true` if there may be more.
    more: bool,
}

impl View {
    fn new(partition: &Partition, pattern: Option<&[u8]>, asked: Duration, place: Place) -> View {
        let prefix = glob::prefix(pattern.unwrap_or_default());
        View {
            from: prefix.to_vec(),
            to: glob::behind_prefix(prefix),
            pattern: pattern.map(<[u8]>::to_vec),
            shown: Epoch::ZERO,
            asked,
            snapshot: partition.snapshot(),
            _place: place,
        }
    }

    /// Reads at most `most` further entries.
    fn next(&mut self, worker: &mut Worker, most: usize) -> Slice {
        let mut slice = Slice {
            body: Vec::new(),
            entries: 0,
            more: false,
        };
        let (pattern, mut seen, mut steps) = (self.pattern.as_deref(), 0, SLICE_STEPS);
        let to = self.to.as_deref();
        let next = worker.walk_snapshot(&self.snapshot, &self.from, to, &mut |entry| {
            let mut matches =
                |key| pattern.is_none_or(|pattern| glob::matches_counted(pattern, key, &mut steps));
            if let Some(entry) = entry.filter(|one| !one.is_system() && matches(one.key)) {
                write_entry(&entry, &mut slice.body);
                slice.entries += 1;
            }
            seen += 1;
            seen < SLICE_KEYS && steps > 0 && slice.entries < most && slice.body.len() < SLICE_BYTES
        });
        slice.more = next.is_some();
        self.from = next.unwrap_or_default();
        slice
    }
}

/// Writes key, type, value, deadline (milliseconds since the Unix epoch; -1: never) and version
/// (the number that `WATCH.VERSION` returns) of an entry.
fn write_entry(entry: &SnapshotEntry<'_>, out: &mut Vec<u8>) {
    // All of this is the same in both protocols.
    let mut writer = Writer::new(out, Protocol::Resp2);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    writer.array(5);
    writer.bulk(entry.key);
    writer.bulk(name_of(entry.kind).as_bytes());
    writer.bulk(entry.value);
    writer.int(entry.deadline.map_or(-1, number));
    writer.int(number(entry.tid.to_bits()));
}

impl Connection {
    /// Returns the time at which its snapshot is given up, if it is not used before; `idle` is the
    /// time that it may be unused.
    pub(crate) fn snapshot_due(&self, idle: Duration) -> Option<Duration> {
        match &self.snapshot {
            Some(Taken::Open(view)) => Some(view.asked + idle),
            _ => None,
        }
    }
}

impl Executor {
    /// Executes `KUMIKI.SNAPSHOT BEGIN [MATCH pattern]`.
    pub(crate) fn begin_snapshot(
        &mut self,
        connection: &mut Connection,
        command: &Command,
        args: Args<'_>,
    ) {
        let pattern = match (args.len(), args.get(2), args.get(3)) {
            (2, ..) => None,
            (4, Some(word), Some(pattern)) if word.eq_ignore_ascii_case(b"match") => Some(pattern),
            _ => return connection.writer().error("ERR syntax error"),
        };
        if let Some(Taken::Open(_)) = connection.snapshot {
            return connection.writer().error(IS_OPEN);
        }
        let stale = self.stale(connection, command);
        if let Err(abort) = self.worker.check_view(stale) {
            return self.tell_elsewhere(connection, &[], &abort);
        }
        let shared = &self.context.shared;
        let most = shared.config.limits.snapshots;
        let Some(place) = shared.snapshots.take(most) else {
            return connection.writer().error(&format!(
                "ERR {most} snapshots are open, and no more may be: try again when one has ended"
            ));
        };
        let mut view = Box::new(View::new(
            &shared.partition,
            pattern,
            self.context.now,
            place,
        ));
        let taken = view.snapshot.epoch();
        view.shown = match self.worker.epoch_of(taken, stale) {
            Ok(epoch) => epoch,
            Err(abort) => return self.tell_elsewhere(connection, &[], &abort),
        };
        let (from, shown) = (connection.output.position(), view.shown);
        self.describe(&view, connection);
        self.finish(connection, from, shown);
        if !connection.output.is_error_at(from) {
            connection.snapshot = Some(Taken::Open(view));
        }
    }

    /// Writes the answer to `BEGIN`.
    fn describe(&self, view: &View, connection: &mut Connection) {
        let shared = &self.context.shared;
        let (partition, partitions) = match &shared.routes {
            None => (0, 1),
            Some(routes) => (
                routes.own.map_or(0, |own| i64::from(own.0)),
                routes.topology.partitions().len() as i64,
            ),
        };
        let fields = [
            ("epoch", view.snapshot.epoch().0 as i64),
            ("time_ms", view.snapshot.time_ms() as i64),
            ("keys", shared.partition.stats().keys as i64),
            ("partition", partition),
            ("partitions", partitions),
        ];
        let mut writer = connection.writer();
        writer.map(fields.len());
        for (name, value) in fields {
            writer.bulk(name.as_bytes());
            writer.int(value);
        }
    }

    /// Executes `KUMIKI.SNAPSHOT NEXT [COUNT n]`, which answers in a turn of its own.
    pub(crate) fn next_of_snapshot(&mut self, connection: &mut Connection, args: Args<'_>) {
        let most = match (args.len(), args.get(2), args.get(3)) {
            (2, ..) => SLICE_KEYS,
            (4, Some(word), Some(number)) if word.eq_ignore_ascii_case(b"count") => {
                match base::number::parse_int(number).map(usize::try_from) {
                    Some(Ok(number)) if number > 0 => number,
                    _ => return connection.writer().error(BAD_COUNT),
                }
            }
            _ => return connection.writer().error("ERR syntax error"),
        };
        match &mut connection.snapshot {
            Some(Taken::Open(view)) => {
                view.asked = self.context.now;
                connection.task = Some(Task::Snapshot { most });
            }
            Some(Taken::Read) => {
                let mut writer = connection.writer();
                writer.array(2);
                writer.int(0);
                writer.array(0);
            }
            Some(Taken::GivenUp(after)) => {
                let text = format!(
                    "ERR the snapshot was given up, because the client did not ask for more of it within \
                     {after:?}: begin another"
                );
                connection.writer().error(&text);
            }
            None => connection.writer().error(NONE),
        }
    }

    /// Answers a `NEXT` when its turn has come.
    pub(crate) fn step_snapshot(&mut self, connection: &mut Connection, most: usize) {
        let Some(Taken::Open(view)) = &mut connection.snapshot else {
            return connection.writer().error(NONE);
        };
        view.asked = self.context.now;
        let shown = view.shown;
        if self.context.shared.partition.is_lost(shown) {
            // Its beginning was never confirmed: it may be that of a member that did not lead any
            // more.
            connection.snapshot = None;
            return connection.writer().raw(refusal::LEADERSHIP_LOST);
        }
        let slice = view.next(&mut self.worker, most);
        if !slice.more {
            connection.snapshot = Some(Taken::Read);
        }
        let from = connection.output.position();
        let mut writer = connection.writer();
        writer.array(2);
        writer.int(i64::from(slice.more));
        writer.array(slice.entries);
        writer.raw(&slice.body);
        self.finish(connection, from, shown);
    }

    /// Executes `KUMIKI.SNAPSHOT END`.
    pub(crate) fn end_snapshot(connection: &mut Connection) {
        connection.snapshot = None;
        connection.writer().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let places = Places::default();
        let (first, second) = (places.take(2), places.take(2));
        assert!(first.is_some() && second.is_some() && places.take(2).is_none());
        assert_eq!(places.taken(), 2);
        drop(first);
        assert_eq!(places.taken(), 1);
        let third = places.take(2);
        assert!(third.is_some() && places.take(2).is_none());
        drop((second, third));
        assert_eq!(places.taken(), 0);
        assert!(places.take(0).is_none());
    }
}
