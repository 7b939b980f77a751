//! The state that the handles, workers and threads of a database share.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::Poll;
use std::time::{Duration, Instant};

use base::clock::Clock;
use base::{Abort, Epoch};
use engine::Engine;
use journal::Journal;
use parking_lot::Mutex;

use crate::checkpoint_scheduler::CheckpointScheduler;
use crate::data_directory::DataDirectory;
use crate::durability_waiters::DurabilityWaiters;
use crate::hold_waiters::HoldWaiters;
use crate::recovery::RecoveryReport;
use crate::stop_signal::StopSignal;

/// The state that handles, workers and threads share.
pub(crate) struct DbState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) journal: Option<Journal>,
    /// The place of the files, if there are any.
    pub(crate) directory: Option<DataDirectory>,
    /// Held while the file of the data's id is read or written.
    pub(crate) data_id: Mutex<()>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop: StopSignal,
    pub(crate) durability_waiters: DurabilityWaiters,
    pub(crate) hold_waiters: Arc<HoldWaiters>,
    pub(crate) hold_timeout: Duration,
    /// Transactions over several partitions that are prepared now.
    pub(crate) prepared: AtomicU64,
    pub(crate) checkpoints: CheckpointScheduler,
    /// The workers of checkpoints, once none are made any more. The journal has no lanes for their
    /// places, which no other thread may get.
    pub(crate) retired: Mutex<Vec<engine::Worker<engine::NoLog>>>,
    pub(crate) closed: AtomicBool,
    pub(crate) report: RecoveryReport,
}

impl DbState {
    /// Subscribes to the journal, so that tasks that wait for an epoch are woken when it is durable.
    pub(crate) fn subscribe_waiters(self: &Arc<Self>) {
        let Some(journal) = &self.journal else { return };
        // The journal must not own its owner.
        let db = Arc::downgrade(self);
        journal.subscribe(Box::new(move || {
            let Some(db) = db.upgrade() else {
                return;
            };
            let Some(journal) = &db.journal else {
                return;
            };
            db.durability_waiters
                .wake(journal.durable(), journal.over().is_some());
        }));
    }

    /// Returns the bytes written to the logs since the database was opened.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.journal
            .as_ref()
            .map_or(0, |journal| journal.stats().bytes)
    }

    pub(crate) fn durable_epoch(&self) -> Epoch {
        self.journal
            .as_ref()
            .map_or(Epoch(u64::MAX), Journal::durable)
    }

    pub(crate) fn wait_durable(&self, epoch: Epoch) -> Result<(), Abort> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        journal.wait(epoch).map_err(|failed| Abort::ReadOnly {
            reason: failed.to_string(),
        })
    }

    /// Waits as [`DbState::wait_durable`], for a task.
    pub(crate) async fn wait_durable_async(&self, epoch: Epoch) -> Result<(), Abort> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let check = || {
            if journal.durable() >= epoch {
                return Some(Ok(()));
            }
            journal.over().map(|failed| {
                Err(Abort::ReadOnly {
                    reason: failed.to_string(),
                })
            })
        };
        poll_fn(|context| {
            if let Some(ready) = check() {
                return Poll::Ready(ready);
            }
            self.durability_waiters.add(epoch, context.waker().clone());
            journal.request(epoch);
            // The epoch may have become durable before the waker was there to be woken.
            check().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Returns how often holds have been given back.
    pub(crate) fn releases(&self) -> u64 {
        self.engine.releases()
    }

    /// Returns the moment at which a caller that begins to wait for a hold now gives up.
    pub(crate) fn hold_limit(&self) -> Instant {
        Instant::now() + self.hold_timeout
    }

    /// Runs `attempt`, and runs it again whenever a prepared transaction that was in the way has
    /// ended.
    ///
    /// # Errors
    /// Those of `attempt`; [`Abort::Held`] if the wait takes longer than it may.
    pub(crate) fn retry_held<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        let mut until = None;
        loop {
            let seen = self.releases();
            let outcome = attempt();
            if !matches!(outcome, Err(Abort::Held { .. })) {
                return outcome;
            }
            let until = *until.get_or_insert_with(|| self.hold_limit());
            if !self.hold_waiters.wait(|| self.releases(), seen, until) {
                return outcome;
            }
        }
    }

    /// Waits, as a task, until holds have been given back more often than `seen` times. Returns `true`
    /// if that was before `until`.
    pub(crate) async fn wait_released_async(&self, seen: u64, until: Instant) -> bool {
        let waiters = &self.hold_waiters;
        waiters.wait_async(|| self.releases(), seen, until).await
    }
}
