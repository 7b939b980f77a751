//! The service that threads with clients ask for locks.

use std::sync::Arc;
use std::time::Duration;

use ::locks::{LockLimits, Request, Ticket};
use crossbeam_utils::CachePadded;

use super::figures::{LockCounts, LockFigures};
use super::mailboxes::Mailboxes;
use super::memory_table::MemoryTable;
use super::partition_table::PartitionTable;
use super::{LockOutcome, LockStartError, LockStorage, Options, clock};
use crate::config::Config;
use crate::runtime::thread_waker::ThreadWaker;

/// The locks of a proxy; all threads with clients share them.
pub(crate) struct LockService {
    table: Table,
    name: &'static str,
    longest_lease: Duration,
    mail: Arc<Mailboxes>,
    counts: Box<[CachePadded<LockCounts>]>,
}

enum Table {
    Memory(MemoryTable),
    Partition(PartitionTable),
}

impl LockService {
    /// Sets up the locks that a proxy's settings ask for; `None`: they ask for none.
    ///
    /// # Errors
    /// Returns a [`LockStartError`].
    pub(crate) fn configured(config: &Config) -> Result<Option<Arc<LockService>>, LockStartError> {
        let start = |options| LockService::start(options, config.network_threads).map(Arc::new);
        config.locks.as_ref().map(start).transpose()
    }

    /// Sets up the locks for `threads` threads with clients.
    ///
    /// # Errors
    /// Returns a [`LockStartError`].
    pub(crate) fn start(options: &Options, threads: usize) -> Result<LockService, LockStartError> {
        let mail = Arc::new(Mailboxes::new(threads));
        let limits = LockLimits {
            lease: options.longest_lease,
            ..LockLimits::default()
        };
        let to = Arc::clone(&mail);
        let (name, table) = match &options.keeping {
            LockStorage::Memory { disk, directory } => {
                let memory = MemoryTable::start(Arc::clone(disk), directory, limits, to)?;
                ("memory", Table::Memory(memory))
            }
            LockStorage::Partition {
                name,
                executor,
                prefix,
            } => {
                let kept = PartitionTable::start(Arc::clone(executor), prefix.clone(), limits, to)?;
                (*name, Table::Partition(kept))
            }
        };
        Ok(LockService {
            table,
            name,
            longest_lease: options.longest_lease,
            mail,
            counts: (0..threads).map(|_| CachePadded::default()).collect(),
        })
    }

    /// Sets the waker of a thread, which wakes it when it has lock replies.
    pub(crate) fn set_waker(&self, thread: usize, waker: &Arc<ThreadWaker>) {
        self.mail.set_waker(thread, waker);
    }

    /// Executes a request of a client of this thread. Returns the outcome, or a ticket if there is none
    /// yet; then the outcome comes as a lock reply.
    pub(crate) fn ask(
        &self,
        thread: u16,
        key: &[u8],
        request: &Request<'_>,
    ) -> Result<LockOutcome, Ticket> {
        let renews = matches!(request, Request::Renew { .. });
        let ticket = self.mail.ticket(thread, renews);
        let now = clock::now();
        let outcome = match &self.table {
            Table::Memory(memory) => memory.ask(ticket, key, request, now),
            Table::Partition(kept) => kept.ask(ticket, key, request, now),
        };
        let counts = self.of(thread);
        counts.asked(outcome.is_none());
        let outcome = outcome.ok_or(ticket)?;
        counts.answered(renews, &outcome);
        Ok(outcome)
    }

    /// Cancels a request whose client does not wait for it any more: it will not hold the lock. Returns
    /// `false` if the request has its answer already, which is on its way.
    pub(crate) fn cancel(&self, thread: u16, ticket: Ticket, key: &[u8]) -> bool {
        let found = match &self.table {
            Table::Memory(memory) => memory.cancel(ticket, key),
            Table::Partition(kept) => kept.cancel(ticket, key),
        };
        if found {
            self.of(thread).cancelled();
        }
        found
    }

    /// Returns `true` if a thread has lock replies.
    pub(crate) fn has_lock_replies(&self, thread: u16) -> bool {
        self.mail.has_some(usize::from(thread))
    }

    /// Takes a thread's lock replies.
    pub(crate) fn take_lock_replies(&self, thread: u16, into: &mut Vec<(Ticket, LockOutcome)>) {
        let before = into.len();
        self.mail.take(usize::from(thread), into);
        for (ticket, outcome) in &into[before..] {
            self.of(thread)
                .answered(Mailboxes::renews(*ticket), outcome);
        }
    }

    /// Stops: nothing is granted any more. A table in memory that holds no lock records that.
    pub(crate) fn stop(&self) {
        match &self.table {
            Table::Memory(memory) => memory.stop(),
            Table::Partition(kept) => kept.stop(),
        }
    }

    fn of(&self, thread: u16) -> &LockCounts {
        &self.counts[usize::from(thread)]
    }

    /// Returns the figures of the locks.
    pub(crate) fn figures(&self) -> LockFigures {
        let mut figures = LockFigures {
            keeping: self.name,
            longest_lease: self.longest_lease,
            ..LockFigures::default()
        };
        self.counts.iter().for_each(|one| one.add_to(&mut figures));
        match &self.table {
            Table::Memory(memory) => memory.add_to(&mut figures),
            Table::Partition(kept) => kept.add_to(&mut figures),
        }
        figures
    }

    /// Returns the lines of `INFO locks`.
    pub(crate) fn lines(&self) -> String {
        self.figures().lines()
    }
}

impl Drop for LockService {
    fn drop(&mut self) {
        self.stop();
    }
}
