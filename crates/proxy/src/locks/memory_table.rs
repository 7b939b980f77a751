//! A table in memory: the thread that asks executes its request, without waiting for another thread.
//!
//! One more thread, the *refresher*, ends leases and waits when they are due, and writes the ledger.
//!
//! Invariant: the refresher is woken whenever a request begins to wait in the table or a ledger is to
//! be written. A lock for which no request waits ends when a request asks for it; the refresher only
//! removes it, some time later.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::locks::authority::{self, Authority, AuthorityCommand, Ledger};
use ::locks::{LockError, LockLimits, MonotonicTime, Request, Ticket};
use disk::Disk;
use parking_lot::{Condvar, Mutex};

use super::clock;
use super::figures::{LockFigures, LockTimes};
use super::ledger_file::LedgerFile;
use super::mailboxes::Mailboxes;
use super::{LockOutcome, LockStartError};

/// Interval at which ended locks are removed for which no client asks.
const TIDY: Duration = Duration::from_millis(250);
/// The same interval while there are none.
const IDLE: Duration = Duration::from_secs(2);

/// See the module documentation.
pub(crate) struct MemoryTable {
    inner: Arc<Inner>,
    refresher: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    table: Authority,
    file: LedgerFile,
    mail: Arc<Mailboxes>,
    duty: Mutex<Duty>,
    woken: Condvar,
    /// How long writing the ledgers took.
    times: LockTimes,
}

/// The tasks of the refresher.
#[derive(Default)]
struct Duty {
    /// Write this ledger.
    ledger: Option<Ledger>,
    /// Check again when something is due.
    look: bool,
    /// Stop.
    stop: bool,
}

impl MemoryTable {
    /// Creates a table whose ledger is in `directory`.
    ///
    /// # Errors
    /// Returns a [`LockStartError`].
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        directory: &Path,
        limits: LockLimits,
        mail: Arc<Mailboxes>,
    ) -> Result<MemoryTable, LockStartError> {
        let (file, last) = LedgerFile::open(disk, directory)?;
        let defaults = authority::Options::default();
        let options = authority::Options {
            first_bound: defaults.first_bound.min(limits.lease),
            limits,
            ..defaults
        };
        let mut out = Vec::new();
        let table = Authority::new(&options, last, clock::wall_ms(), clock::now(), &mut out);
        if let Err(::locks::LockError::Settling { left }) =
            table.scan(b"", 0, clock::now()).map(drop)
        {
            tracing::info!(
                "the proxy did not stop without locks: none is granted for {} ms",
                left.as_millis()
            );
        }
        let inner = Arc::new(Inner {
            table,
            file,
            mail,
            duty: Mutex::default(),
            woken: Condvar::new(),
            times: LockTimes::default(),
        });
        // The first ledger is written before the first request.
        inner.carry_out(&mut out, &mut |ledger, out| inner.keep(ledger, out));
        let refresher = {
            let inner = Arc::clone(&inner);
            let builder = std::thread::Builder::new().name("locks".to_owned());
            let spawned = builder.spawn(move || inner.run());
            spawned.map_err(|error| LockStartError::Thread { error })?
        };
        Ok(MemoryTable {
            inner,
            refresher: Mutex::new(Some(refresher)),
        })
    }

    /// Executes a request. `None`: its answer comes as a lock reply.
    pub(crate) fn ask(
        &self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        now: MonotonicTime,
    ) -> Option<LockOutcome> {
        let mut out = Vec::new();
        let outcome = self
            .inner
            .table
            .request(ticket, key, request, now, &mut out);
        if outcome.is_none() || !out.is_empty() {
            self.inner.pass_on(&mut out);
            self.inner.have_a_look();
        }
        outcome
    }

    /// Cancels a request that waits. Returns `true` if it was waiting.
    pub(crate) fn cancel(&self, ticket: Ticket, key: &[u8]) -> bool {
        self.inner.table.cancel(key, ticket)
    }

    /// Adds the figures of the table itself.
    pub(crate) fn add_to(&self, figures: &mut LockFigures) {
        let table = &self.inner.table;
        figures.held = table.locks() as u64;
        figures.waiting = table.waiting() as u64;
        figures.expired = table.expired();
        figures.kept = self.inner.times.read();
    }

    /// Stops the table. If no lock is held, the ledger records that.
    pub(crate) fn stop(&self) {
        let Some(refresher) = self.refresher.lock().take() else {
            return;
        };
        self.inner.duty.lock().stop = true;
        self.inner.woken.notify_one();
        let _ = refresher.join();
        let mut out = Vec::new();
        self.inner.table.stop(clock::now(), &mut out);
        let inner = &self.inner;
        inner.carry_out(&mut out, &mut |ledger, out| inner.keep(ledger, out));
    }
}

impl Inner {
    /// Posts answers, and gives ledgers to `keep`, which may add further commands.
    fn carry_out(
        &self,
        out: &mut Vec<AuthorityCommand>,
        keep: &mut dyn FnMut(Ledger, &mut Vec<AuthorityCommand>),
    ) {
        let mut more = Vec::new();
        loop {
            for command in out.drain(..) {
                match command {
                    AuthorityCommand::Answer { ticket, outcome } => self.mail.post(ticket, outcome),
                    AuthorityCommand::KeepLedger(ledger) => keep(ledger, &mut more),
                }
            }
            if more.is_empty() {
                return;
            }
            std::mem::swap(out, &mut more);
        }
    }

    /// Posts answers, and leaves ledgers to the refresher.
    fn pass_on(&self, out: &mut Vec<AuthorityCommand>) {
        self.carry_out(out, &mut |ledger, _| {
            self.duty.lock().ledger = Some(ledger);
            self.woken.notify_one();
        });
    }

    /// Makes the refresher check again: something may be due earlier than it assumes.
    fn have_a_look(&self) {
        self.duty.lock().look = true;
        self.woken.notify_one();
    }

    /// Writes a ledger, and reports the result to the table.
    fn keep(&self, ledger: Ledger, out: &mut Vec<AuthorityCommand>) {
        let begin = Instant::now();
        let kept = self.file.keep(ledger);
        self.times.record(begin.elapsed());
        let kept = kept.map_err(|error| {
            tracing::error!(%error, "the ledger of locks cannot be kept");
            LockError::Unavailable {
                what: error.to_string(),
            }
        });
        self.table.ledger_kept(kept, clock::now(), out);
    }

    /// Runs the refresher.
    fn run(&self) {
        let mut out = Vec::new();
        loop {
            let due = self.table.next_due();
            let ledger = {
                let mut duty = self.duty.lock();
                if duty.ledger.is_none() && !duty.look && !duty.stop {
                    let wait = due.map_or(IDLE, |due| due.since(clock::now()).min(TIDY));
                    self.woken.wait_for(&mut duty, wait);
                }
                duty.look = false;
                if duty.stop && duty.ledger.is_none() {
                    return;
                }
                duty.ledger.take()
            };
            if let Some(ledger) = ledger {
                self.keep(ledger, &mut out);
            }
            self.table.expire(clock::now(), &mut out);
            self.pass_on(&mut out);
        }
    }
}
