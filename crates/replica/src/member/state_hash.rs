//! The hash of a member's state at an entry, which is computed in the background when the leader
//! wants to compare the members.

use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use engine::NoLog;

use super::background_job::{BackgroundJob, JobError, JobResult};
use super::context::MemberContext;

/// See the module's description.
#[derive(Default)]
pub(super) struct StateHasher {
    /// The entry at which the state is to be hashed, and the node that asked for it.
    requested: Option<(u64, NodeId)>,
    running: Option<RunningHash>,
}

struct RunningHash {
    index: u64,
    asked_by: NodeId,
    begun: Duration,
    result: JobResult<u64>,
}

/// A hash that was computed, or could not be.
pub(super) struct FinishedHash {
    /// The entry at which the state has it.
    pub(super) index: u64,
    pub(super) asked_by: NodeId,
    /// The time that it took.
    pub(super) took: Duration,
    pub(super) result: Result<u64, JobError>,
}

impl StateHasher {
    /// Returns `true` if a hash is being computed.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Requests the hash of the state at the entry `index`, unless one is being computed. `applied`
    /// is the last applied entry.
    pub(super) fn request(
        &mut self,
        context: &mut MemberContext,
        index: u64,
        asked_by: NodeId,
        applied: u64,
    ) {
        if self.running.is_none() {
            self.requested = Some((index, asked_by));
            self.begin_if_requested(context, applied);
        }
    }

    /// Begins to hash the state if it is the one at the entry for which a hash is requested.
    pub(super) fn begin_if_requested(&mut self, context: &mut MemberContext, applied: u64) {
        let Some((index, asked_by)) = self.requested.take_if(|(index, _)| *index == applied) else {
            return;
        };
        let shared = &context.shared;
        let snapshot = shared.engine.snapshot();
        debug_assert_eq!(snapshot.epoch().0, index);
        let sessions = shared.sessions.lock().encode();
        let result = JobResult::default();
        self.running = Some(RunningHash {
            index,
            asked_by,
            begun: context.now.since,
            result: Arc::clone(&result),
        });
        let engine = Arc::clone(&shared.engine);
        let job = BackgroundJob::new(result, Arc::clone(shared));
        (context.spawn)(Box::new(move || {
            job.run(|| {
                let mut worker = engine.worker(|_| NoLog).expect("a place is kept for this");
                let state = worker.state_hash(&snapshot);
                Ok(state ^ u64::from(crc32c::crc32c(&sessions)))
            });
        }));
    }

    /// Forgets a request for an entry that was passed over, because a snapshot was loaded.
    pub(super) fn forget_outdated(&mut self, applied: u64) {
        self.requested.take_if(|(index, _)| *index < applied);
    }

    /// Returns the hash that has been computed, if one has.
    pub(super) fn take(&mut self, now: Duration) -> Option<FinishedHash> {
        let result = self.running.as_ref()?.result.lock().take()?;
        let running = self.running.take()?;
        Some(FinishedHash {
            index: running.index,
            asked_by: running.asked_by,
            took: now.saturating_sub(running.begun),
            result,
        })
    }
}
