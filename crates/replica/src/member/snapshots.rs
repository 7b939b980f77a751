//! Snapshots: made from the engine's view in the background, sent in pieces to members that are too
//! far behind (module `transfer`), and loaded as a whole.

mod make;
mod transfer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::SnapshotEntry;
use hashbrown::HashMap;
use raft::eraftpb::SnapshotMetadata;

use super::job::{Job, Outcome, Undone};
use super::{Failure, Member};
use crate::sessions::Sessions;
use crate::snapshot::{
    SnapshotFile, SnapshotReader, SnapshotReceiver, newest, remove_old, reserve,
};
use make::write;
use transfer::{PutOff, Sending};

/// If a snapshot could not be made for a reason other than lack of space, the next attempt comes
/// after this many election time-outs.
const PAUSE: u32 = 10;
/// Space is set aside for the next snapshot in multiples of this.
const RESERVED: u64 = 64 << 10;

/// See the module's description.
#[derive(Default)]
pub(super) struct Snapshots {
    /// The snapshot that is being made.
    job: Option<Outcome<SnapshotFile>>,
    /// A snapshot of this entry or a later one is wanted, even if the log is short, and the log is
    /// to begin behind it.
    wanted: Option<u64>,
    /// After a failure, none is made before this time.
    not_before: Duration,
    /// The bytes that had been written to the log at the last snapshot.
    written: u64,
    /// The bytes that are set aside for the next snapshot.
    pub(super) reserved: u64,
    /// After a failure, no space is set aside before this time.
    reserve_at: Duration,
    /// The number of snapshots that were not made, and the reason why the last of them was not.
    failures: u64,
    failure: Option<String>,
    pub(super) sending: HashMap<u64, Sending>,
    /// Members that did not take a snapshot, and the time at which they get the next one.
    pub(super) put_off: HashMap<u64, PutOff>,
    pub(super) receiving: Option<SnapshotReceiver>,
    /// The reason why the last snapshot from the leader was not received.
    pub(super) refused: Option<String>,
}

impl Snapshots {
    /// Returns `true` if there is space that was set aside and is not used.
    fn has_reserve(&self) -> bool {
        self.job.is_none() && self.reserved > 0
    }
}

impl Member {
    /// Requests a snapshot soon, behind which the log begins.
    pub(crate) fn want_snapshot(&mut self) {
        self.want_snapshot_of(self.applied);
    }

    /// Does the same as [`Member::want_snapshot`], for this entry or a later one.
    pub(super) fn want_snapshot_of(&mut self, index: u64) {
        self.snapshots.wanted = self.snapshots.wanted.max(Some(index));
    }

    /// Makes a snapshot in the space that is set aside for it, and cuts the log behind it, because
    /// the disk has no space for the log. The driver calls this until there is space.
    pub(super) fn make_room(&mut self) -> Result<(), Failure> {
        self.want_snapshot();
        self.keep_snapshots()
    }

    /// Returns the number of snapshots that were not made, and the reason why the last of them was
    /// not.
    pub(super) fn snapshot_failures(&self) -> (u64, Option<String>) {
        (self.snapshots.failures, self.snapshots.failure.clone())
    }

    /// Sets space aside for the next snapshot as the data grows, so that it can be made when the
    /// log has filled the disk. Data takes more bytes in memory than in a snapshot.
    fn reserve(&mut self) {
        let Some(dir) = self.place.dir.clone() else {
            return;
        };
        let data = self.shared.engine.memory_bytes();
        let sessions = self.shared.sessions.lock().bytes();
        let needed = data + sessions as u64;
        if needed <= self.snapshots.reserved || self.now.since < self.snapshots.reserve_at {
            return;
        }
        // Some more is set aside, so that this does not happen for each key.
        let bytes = (needed + needed / 8).next_multiple_of(RESERVED);
        match reserve(&*self.place.disk, &dir, bytes) {
            Ok(()) => self.snapshots.reserved = bytes,
            Err(error) => {
                tracing::debug!(%error, "no space is set aside for the next snapshot");
                self.snapshots.reserve_at = self.now.since + self.options.election;
            }
        }
    }

    /// Returns `true` if a snapshot is still to be made.
    pub(super) fn snapshot_is_wanted(&self) -> bool {
        self.snapshots.wanted.is_some()
    }

    /// Makes snapshots when the log has grown, and sends lost pieces again.
    pub(super) fn keep_snapshots(&mut self) -> Result<(), Failure> {
        self.send_again();
        if let Some(job) = &self.snapshots.job {
            let outcome = job.lock().take();
            return match outcome {
                Some(Ok(file)) => self.made(file),
                Some(Err(why)) => {
                    self.put_off(&why);
                    Ok(())
                }
                None => Ok(()),
            };
        }
        self.reserve();
        if self.now.since < self.snapshots.not_before {
            return Ok(());
        }
        let Some(dir) = self.place.dir.clone() else {
            return Ok(());
        };
        let threshold = self.options.snapshot_bytes;
        let (wanted, applied) = (self.snapshots.wanted.is_some(), self.applied);
        let before = self.snapshots.written;
        let log = self.log();
        let has_grown = log.written() - before >= threshold;
        let newest = log.snapshot_meta().map_or(0, |meta| meta.index);
        if applied > newest && (wanted || has_grown) {
            self.make(&dir);
        } else if wanted {
            // There is a snapshot of exactly this state.
            log.compact(newest)?;
            self.snapshots.wanted = None;
        }
        Ok(())
    }

    /// Puts the snapshot off after a failure: the log still has everything.
    fn put_off(&mut self, why: &Undone) {
        let failure = format!("no snapshot was made: {why}");
        tracing::error!("{failure}; it is tried again later");
        self.snapshots.failures += 1;
        self.snapshots.failure = Some(failure);
        self.changed = true;
        let pause = if why.is_full() { 1 } else { PAUSE };
        let snapshots = &mut self.snapshots;
        snapshots.job = None;
        snapshots.not_before = self.now.since + self.options.election * pause;
        // The next snapshot is due as before.
        let threshold = self.options.snapshot_bytes;
        snapshots.written = snapshots.written.saturating_sub(threshold);
    }

    fn make(&mut self, dir: &Path) {
        let snapshot = self.shared.engine.snapshot();
        debug_assert_eq!(snapshot.epoch().0, self.applied);
        let raft = self.raft.as_ref().expect("it takes part");
        let mut meta = SnapshotMetadata {
            index: self.applied,
            term: self.applied_term,
            ..SnapshotMetadata::default()
        };
        meta.set_conf_state(raft.raft.prs().conf().to_conf_state());
        self.snapshots.written = raft.store().written();
        let stamp_ms = self.stamp_ms;
        let sessions = self.shared.sessions.lock().encode();
        let engine = Arc::clone(&self.shared.engine);
        let (disk, dir) = (Arc::clone(&self.place.disk), dir.to_owned());
        let outcome = Outcome::default();
        self.snapshots.job = Some(Arc::clone(&outcome));
        let shared = Arc::clone(&self.shared);
        let job = Job::new(outcome, shared);
        (self.spawn)(Box::new(move || {
            job.run(|| write(&engine, &snapshot, &disk, &dir, (meta, stamp_ms), &sessions));
        }));
    }

    /// Takes over a new snapshot: the log may lose the entries before it.
    fn made(&mut self, file: SnapshotFile) -> Result<(), Failure> {
        self.snapshots.job = None;
        // The space that was set aside is used by the snapshot now.
        self.snapshots.reserved = 0;
        let meta = file.head.meta;
        let newest = self.log().snapshot_meta().map_or(0, |newest| newest.index);
        if meta.index <= newest {
            // A later one has been received meanwhile.
            self.remove_old();
            return Ok(());
        }
        let kept = if self
            .snapshots
            .wanted
            .is_some_and(|index| meta.index >= index)
        {
            self.snapshots.wanted = None;
            0
        } else {
            self.options.kept_entries
        };
        tracing::info!(
            index = meta.index,
            keys = file.records,
            bytes = file.bytes,
            "snapshot made"
        );
        let sent = self.snapshots.sending.values();
        let needed = sent.map(|one| one.announces.get_snapshot().get_metadata().index);
        // A member that gets an earlier snapshot needs the entries behind that one, or a second
        // snapshot.
        let needed = needed.min().filter(|_| self.unsynced.is_none());
        let needed = needed.unwrap_or(u64::MAX);
        let most = self.options.kept_bytes;
        let log = self.log();
        log.set_snapshot(&meta);
        let kept = meta.index.saturating_sub(kept);
        let floor = kept.max(log.last_beyond(most, meta.index));
        log.compact(needed.min(floor))?;
        self.changed = true;
        self.remove_old();
        self.reserve();
        Ok(())
    }

    /// Removes older snapshots. Those that cannot be removed go with the next ones, or at the next
    /// start.
    fn remove_old(&self) {
        let removed = self.dir().map(|dir| remove_old(&*self.place.disk, dir));
        if let Some(Err(error)) = removed {
            tracing::warn!(%error, "an older snapshot stays for now");
        }
    }

    /// Lets Raft take over a snapshot that has been received.
    pub(super) fn install(&mut self, meta: &SnapshotMetadata) -> Result<(), Failure> {
        let dir = self.place.dir.clone();
        let file = match &dir {
            Some(dir) => newest(&self.place.disk, dir)?,
            None => None,
        };
        let Some(file) = file.filter(|file| file.head.meta.index == meta.index) else {
            return Err(Failure::Raft(format!(
                "the snapshot of entry {} is not there",
                meta.index
            )));
        };
        self.load(&file.path)?;
        self.log().install(meta)?;
        self.changed = true;
        self.remove_old();
        Ok(())
    }

    /// Replaces the state by that of a snapshot.
    pub(super) fn load(&mut self, path: &Path) -> Result<(), Failure> {
        self.shared.loads.fetch_add(1, Ordering::SeqCst);
        let mut reader = SnapshotReader::open(&self.place.disk, path)?;
        let head = reader.head().clone();
        let mut loader = self
            .applier
            .load(base::Epoch(head.meta.index), head.stamp_ms);
        self.deadlines.clear();
        while let Some(record) = reader.next()? {
            let ahead = record.deadline.filter(|at| *at > engine::ABSENT_MS);
            self.deadlines.extend(ahead);
            loader.put(&SnapshotEntry {
                key: record.key,
                value: record.value,
                kind: record.kind,
                deadline: record.deadline,
                tid: record.tid,
                generation: record.generation,
                origin: record.origin,
            });
        }
        loader.finish(head.generation, head.generation_tid);
        let sessions = Sessions::decode(&reader.sessions()?).map_err(|error| Failure::Entry {
            index: head.meta.index,
            what: format!("the table of sessions in the snapshot: {error}"),
        })?;
        *self.shared.sessions.lock() = sessions;
        self.applied = head.meta.index;
        self.applied_term = head.meta.term;
        self.stamp_ms = head.stamp_ms;
        self.tell_limit();
        self.shared.loads.fetch_add(1, Ordering::SeqCst);
        tracing::info!(index = head.meta.index, "snapshot loaded");
        Ok(())
    }
}
