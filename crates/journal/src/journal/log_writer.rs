//! The way of a worker's transactions into the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Epoch, Tid};

use crate::entry::{self, EntryWriter};
use crate::error::JournalFailure;
use crate::threads::JournalShared;

/// Passes a worker's transactions to the journal.
pub struct LogWriter {
    pub(super) shared: Arc<JournalShared>,
    pub(super) logger: usize,
    pub(super) lane: usize,
    /// The epoch of the last transaction.
    pub(super) last: AtomicU64,
}

impl LogWriter {
    /// Waits while the worker's buffers are all with the logger (backpressure), and while the
    /// worker is too far ahead of it ([`crate::Options::max_epoch_diff`], paper 2, algorithm 1). To be
    /// called outside any epoch before each transaction that may write.
    ///
    /// # Errors
    /// Returns an error if the journal has failed or was closed, and while there is no room for a
    /// log.
    pub fn wait_ready(&self) -> Result<(), JournalFailure> {
        // A worker that got the failure is refused, also before every lane has it.
        if let Some(failed) = self.shared.horizon.trouble() {
            return Err(failed);
        }
        if let Some(most) = self.shared.max_epoch_diff {
            self.wait_for_logger(most.get())?;
        }
        let logger = &self.shared.loggers[self.logger];
        logger.handover.wait_ready(self.lane, || logger.wake())
    }

    /// Waits until the worker's last epoch is less than `most` ahead of its logger's, which is the
    /// one after the epoch that it closed last. That epoch was over before the worker's began, so
    /// that the logger needs nothing of this worker to close it.
    fn wait_for_logger(&self, most: u64) -> Result<(), JournalFailure> {
        let needed = Epoch(self.last.load(Ordering::Relaxed).saturating_sub(most));
        let ask = || self.shared.request(needed);
        self.shared.horizon.wait_closed(self.logger, needed, ask)
    }

    /// Appends a committed transaction: `fill` writes its entries, about `bytes_hint` bytes in
    /// all. To be called inside the epoch of `tid`, whose time is `stamp_ms`; never waits for a
    /// device.
    ///
    /// # Errors
    /// Returns an error if the journal has failed or was closed; `fill` was not called, and the
    /// transaction will never be durable.
    pub fn append(
        &self,
        tid: Tid,
        stamp_ms: u64,
        bytes_hint: usize,
        fill: impl FnOnce(&mut EntryWriter<'_>),
    ) -> Result<(), JournalFailure> {
        let logger = &self.shared.loggers[self.logger];
        if let Some(failed) = self.shared.horizon.failed() {
            return Err(failed.clone());
        }
        let hint = bytes_hint + entry::FRAME;
        let appended = logger
            .handover
            .append(self.lane, tid.epoch(), stamp_ms, hint, |buf| {
                entry::encode(buf, tid, fill);
            })?;
        self.last.store(tid.epoch().0, Ordering::Relaxed);
        if appended.queued {
            logger.wake();
        } else {
            logger.wake_if_sleeping();
        }
        Ok(())
    }
}
