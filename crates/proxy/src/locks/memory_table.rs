//! A table in memory: requests are carried out on the thread that asks, without waiting for
//! anybody.
//!
//! One thread more, the *refresher*, ends leases and waits when they are due, and writes the ledger.
//!
//! Invariant: nobody waits in the table, and no ledger is asked for, without the refresher being
//! woken. Locks that nobody waits for end when somebody asks for them; the refresher only takes them
//! away, some time later.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::locks::authority::{self, Authority, Command, Ledger};
use ::locks::{Limits, Moment, Request, Ticket};
use disk::Disk;
use parking_lot::{Condvar, Mutex};

use super::clock;
use super::figures::{Figures, Times};
use super::ledger_file::LedgerFile;
use super::mailboxes::Mailboxes;
use super::{LockStartError, Outcome};

/// How often locks are taken away that have ended and that nobody asks for.
const TIDY: Duration = Duration::from_millis(250);
/// The same while there are none.
const IDLE: Duration = Duration::from_secs(2);

/// See the module's page.
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
    /// How long ledgers took.
    times: Times,
}

/// What the refresher is to do.
#[derive(Default)]
struct Duty {
    /// Keep this.
    ledger: Option<Ledger>,
    /// Look again when something is due.
    look: bool,
    /// Stop.
    stop: bool,
}

impl MemoryTable {
    /// A table whose ledger lies in `directory`.
    ///
    /// # Errors
    /// [`LockStartError`].
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        directory: &Path,
        limits: Limits,
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
            times: Times::default(),
        });
        // The first ledger is kept before anybody asks.
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

    /// Carries out a request. `None`: its answer comes as a lock reply.
    pub(crate) fn ask(
        &self,
        ticket: Ticket,
        key: &[u8],
        request: &Request<'_>,
        now: Moment,
    ) -> Option<Outcome> {
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

    /// Forgets a request that waits. Says whether it did.
    pub(crate) fn cancel(&self, ticket: Ticket, key: &[u8]) -> bool {
        self.inner.table.cancel(key, ticket)
    }

    /// What is known besides what clients were told.
    pub(crate) fn add_to(&self, figures: &mut Figures) {
        let table = &self.inner.table;
        figures.held = table.locks() as u64;
        figures.waiting = table.waiting() as u64;
        figures.expired = table.expired();
        figures.kept = self.inner.times.read();
    }

    /// Stops the table. If nothing is held, the ledger says so.
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
    /// Posts answers, and gives ledgers to `keep`, which may have more to be done.
    fn carry_out(&self, out: &mut Vec<Command>, keep: &mut dyn FnMut(Ledger, &mut Vec<Command>)) {
        let mut more = Vec::new();
        loop {
            for command in out.drain(..) {
                match command {
                    Command::Answer { ticket, outcome } => self.mail.post(ticket, outcome),
                    Command::KeepLedger(ledger) => keep(ledger, &mut more),
                }
            }
            if more.is_empty() {
                return;
            }
            std::mem::swap(out, &mut more);
        }
    }

    /// Posts answers; ledgers are for the refresher.
    fn pass_on(&self, out: &mut Vec<Command>) {
        self.carry_out(out, &mut |ledger, _| {
            self.duty.lock().ledger = Some(ledger);
            self.woken.notify_one();
        });
    }

    /// Something may be due earlier than the refresher thinks.
    fn have_a_look(&self) {
        self.duty.lock().look = true;
        self.woken.notify_one();
    }

    /// Writes a ledger, and tells the table.
    fn keep(&self, ledger: Ledger, out: &mut Vec<Command>) {
        let begin = Instant::now();
        let kept = self.file.keep(ledger);
        self.times.record(begin.elapsed());
        let kept = kept.map_err(|error| {
            tracing::error!(%error, "the ledger of locks cannot be kept");
            error.to_string()
        });
        self.table.ledger_kept(kept, clock::now(), out);
    }

    /// The refresher.
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
