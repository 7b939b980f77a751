//! Makes snapshots from the engine's view in the background, when the log has grown, and cuts the
//! log behind them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::SnapshotMetadata;

use super::background_job::{BackgroundJob, JobError, JobResult};
use super::context::{MemberContext, RaftNode};
use super::snapshot_contents::write_snapshot;
use super::snapshot_reserve::SnapshotReserve;
use super::state_machine::StateMachine;
use crate::failure::MemberFailure;
use crate::snapshot::{SnapshotFile, remove_old};

/// If a snapshot could not be made for a reason other than lack of space, the next attempt comes
/// after this many election time-outs.
const PAUSE: u32 = 10;

/// See the module's description.
#[derive(Default)]
pub(super) struct SnapshotMaker {
    /// The snapshot that is being made.
    job: Option<JobResult<SnapshotFile>>,
    /// A snapshot of this entry or a later one is requested, even if the log is short, and the log
    /// is to begin behind it.
    requested: Option<u64>,
    /// After a failure, none is made before this time.
    not_before: Duration,
    /// The bytes that had been written to the log at the last snapshot.
    written: u64,
    reserve: SnapshotReserve,
    /// The number of snapshots that were not made, and the reason why the last of them was not.
    failures: (u64, Option<String>),
}

impl SnapshotMaker {
    /// Requests a snapshot of the entry `index` or a later one soon, behind which the log begins.
    pub(super) fn request(&mut self, index: u64) {
        self.requested = self.requested.max(Some(index));
    }

    /// Returns `true` if a requested snapshot is still to be made.
    pub(super) fn is_requested(&self) -> bool {
        self.requested.is_some()
    }

    /// Returns the number of snapshots that were not made, and the reason why the last of them was
    /// not.
    pub(super) fn failures(&self) -> &(u64, Option<String>) {
        &self.failures
    }

    /// Returns the space that is set aside for the next snapshot, if there is any and no snapshot
    /// is being made in it.
    pub(super) fn unused_reserve(&mut self) -> Option<&mut SnapshotReserve> {
        let is_unused = self.job.is_none() && !self.reserve.is_empty();
        is_unused.then_some(&mut self.reserve)
    }

    /// Begins a snapshot if one is due, and takes over one that is finished. The log keeps the
    /// entries from `needed` on.
    ///
    /// # Errors
    /// Returns an error if the log cannot be cut.
    pub(super) fn advance(
        &mut self,
        context: &mut MemberContext,
        raft: &mut RaftNode,
        state: &StateMachine,
        needed: Option<u64>,
    ) -> Result<(), MemberFailure> {
        if let Some(job) = &self.job {
            let result = job.lock().take();
            return match result {
                Some(Ok(file)) => self.finish(context, raft, file, needed),
                Some(Err(error)) => {
                    self.postpone(context, &error);
                    Ok(())
                }
                None => Ok(()),
            };
        }
        self.reserve.grow(context);
        if context.now.since < self.not_before {
            return Ok(());
        }
        let Some(dir) = context.storage.dir.clone() else {
            return Ok(());
        };
        let is_requested = self.requested.is_some();
        let log = raft.mut_store();
        let has_grown = log.written() - self.written >= context.options.snapshot_bytes;
        let newest = log.snapshot_meta().map_or(0, |meta| meta.index);
        if state.applied() > newest && (is_requested || has_grown) {
            self.begin(context, raft, state, dir);
        } else if is_requested {
            // There is a snapshot of exactly this state.
            log.compact(newest)?;
            self.requested = None;
        }
        Ok(())
    }

    /// Puts the snapshot off after a failure: the log still has everything.
    fn postpone(&mut self, context: &mut MemberContext, error: &JobError) {
        let failure = format!("no snapshot was made: {error}");
        tracing::error!("{failure}; it is tried again later");
        self.failures.0 += 1;
        self.failures.1 = Some(failure);
        context.changed = true;
        let pause = if error.is_full() { 1 } else { PAUSE };
        self.job = None;
        self.not_before = context.now.since + context.options.election * pause;
        // The next snapshot is due as before.
        let threshold = context.options.snapshot_bytes;
        self.written = self.written.saturating_sub(threshold);
    }

    fn begin(
        &mut self,
        context: &mut MemberContext,
        raft: &RaftNode,
        state: &StateMachine,
        dir: PathBuf,
    ) {
        let shared = &context.shared;
        let snapshot = shared.engine.snapshot();
        debug_assert_eq!(snapshot.epoch().0, state.applied());
        let mut meta = SnapshotMetadata {
            index: state.applied(),
            term: state.applied_term(),
            ..SnapshotMetadata::default()
        };
        meta.set_conf_state(raft.raft.prs().conf().to_conf_state());
        self.written = raft.store().written();
        let stamp_ms = state.stamp_ms();
        let sessions = shared.sessions.lock().encode();
        let job_shared = Arc::clone(shared);
        let disk = Arc::clone(&context.storage.disk);
        let result = JobResult::default();
        self.job = Some(Arc::clone(&result));
        let job = BackgroundJob::new(result, Arc::clone(shared));
        (context.spawn)(Box::new(move || {
            job.run(|| {
                write_snapshot(
                    &job_shared,
                    &snapshot,
                    &disk,
                    &dir,
                    (meta, stamp_ms),
                    &sessions,
                )
            });
        }));
    }

    /// Takes over a new snapshot: the log may lose the entries before it.
    fn finish(
        &mut self,
        context: &mut MemberContext,
        raft: &mut RaftNode,
        file: SnapshotFile,
        needed: Option<u64>,
    ) -> Result<(), MemberFailure> {
        self.job = None;
        // The space that was set aside is used by the snapshot now.
        self.reserve.note_used();
        let meta = file.head.meta;
        let log = raft.mut_store();
        let newest = log.snapshot_meta().map_or(0, |newest| newest.index);
        if meta.index <= newest {
            // A later one has been received meanwhile.
            remove_old_snapshots(context);
            return Ok(());
        }
        let requested = self.requested.take_if(|index| meta.index >= *index);
        let kept = match requested {
            Some(_) => 0,
            None => context.options.kept_entries,
        };
        tracing::info!(
            index = meta.index,
            keys = file.records,
            bytes = file.bytes,
            "snapshot made"
        );
        log.set_snapshot(&meta);
        let kept = meta.index.saturating_sub(kept);
        let floor = kept.max(log.last_beyond(context.options.kept_bytes, meta.index));
        log.compact(needed.unwrap_or(u64::MAX).min(floor))?;
        context.changed = true;
        remove_old_snapshots(context);
        self.reserve.grow(context);
        Ok(())
    }
}

/// Removes older snapshots. Those that cannot be removed go with the next ones, or at the next
/// start.
pub(super) fn remove_old_snapshots(context: &MemberContext) {
    let disk = &*context.storage.disk;
    let removed = context.dir().map(|dir| remove_old(disk, dir));
    if let Some(Err(error)) = removed {
        tracing::warn!(%error, "an older snapshot stays for now");
    }
}
