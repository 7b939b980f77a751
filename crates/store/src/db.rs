//! The database: an engine, its journal and its threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base::clock::Clock;
use base::epochs::EpochClock;
use base::transaction::Observed;
use base::versions::Watcher;
use base::{Abort, Epoch};
use engine::{Engine, Snapshot, Txn};
use journal::{Journal, Recovered};
use parking_lot::{Condvar, Mutex};

use crate::checkpoint::{self, Board};
use crate::error::{CloseError, OpenError};
use crate::holds::Waiting;
use crate::housekeeping::{self, Stop};
use crate::log::Log;
use crate::options::{EpochTime, Options, RecoveryReport};
use crate::partition::Waiters;
use crate::worker::Worker;

/// A database. Clones are handles to the same one; it closes with the last of them, or by
/// [`Db::close`], which also returns an error if that failed.
#[derive(Clone)]
pub struct Db {
    owner: Arc<Owner>,
}

/// The state that handles, workers and threads share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) journal: Option<Journal>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop: Stop,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) hold_timeout: Duration,
    /// Transactions over several partitions that are prepared now.
    pub(crate) prepared: AtomicU64,
    pub(crate) checkpoints: Board,
    /// The workers of checkpoints, once none are made any more. The journal has no lanes for their
    /// places, which no other thread may get.
    pub(crate) retired: Mutex<Vec<engine::Worker<engine::NoLog>>>,
    closed: AtomicBool,
    report: RecoveryReport,
}

/// Stops the threads when the last handle is dropped.
struct Owner {
    shared: Arc<Shared>,
    pool: Pool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The lock of the data directory.
    _lock: Option<Box<dyn disk::DirLock>>,
}

/// Workers of the embedded interface, lent for one transaction at a time.
#[derive(Default)]
struct Pool {
    idle: Mutex<Vec<Worker>>,
    returned: Condvar,
}

/// The progress of durability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durable {
    /// Everything up to this epoch is durable.
    pub epoch: Epoch,
    /// The reason why no later epoch becomes durable, for ever or until there is room for the log.
    pub failed: Option<String>,
}

/// Figures of a database.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Keys; those that have expired and were not yet reclaimed count.
    pub keys: u64,
    /// Those of them that have a deadline.
    pub expiring: u64,
    /// The mean of their deadlines, in milliseconds since the Unix epoch, to within 64 ms; 0 without one.
    pub mean_deadline_ms: u64,
    /// Bytes of records, versions, keys, values and index.
    pub memory_bytes: u64,
    /// The current epoch.
    pub epoch: Epoch,
    /// Everything up to this epoch is durable.
    pub durable_epoch: Epoch,
    /// Transactions that wrote and committed.
    pub commits: u64,
    /// Attempts that met a conflict.
    pub conflicts: u64,
    /// Keys removed because they had expired.
    pub expired: u64,
    /// The number of times that the machine's clock was seen to have been set.
    pub clock_steps: u64,
    /// Bytes written to the logs.
    pub log_bytes: u64,
    /// Syncs of log files.
    pub log_syncs: u64,
    /// The mean time of a sync in microseconds.
    pub log_sync_mean_us: u64,
    /// The time that all syncs took together.
    pub log_sync_time: Duration,
    /// The number of syncs that took from 2^*i* to 2^(*i*+1) µs, for each *i*; the last class is
    /// open.
    pub log_sync_histogram: [u64; 24],
    /// Times that a logger wrote and synced.
    pub log_cycles: u64,
    /// Those of them that ran on the thread of a worker.
    pub log_inline_cycles: u64,
    /// Full buffers that wait for their logger at this moment.
    pub log_buffers_waiting: u64,
    /// The parts of the time for which transactions waited for durability; partly estimated unless
    /// [`Options::measure_latency`] is set.
    pub log_latency: journal::DurabilityLatency,
    /// Transactions over several partitions that are prepared and not decided.
    pub prepared: u64,
    /// Versions of read-atomic keys that are kept behind newer ones.
    pub kept_versions: u64,
    /// The number of times that a transaction of the embedded interface waited for a hold.
    pub hold_waits: u64,
    /// The reason why nothing can be logged, for ever or until there is room for the log.
    pub journal_failure: Option<String>,
}

/// A value computed by a committed transaction.
#[must_use = "the transaction is not durable before `wait_durable` returns"]
pub struct Commit<T> {
    /// The closure's result. Before [`Commit::wait_durable`] a crash may undo what the closure saw.
    pub value: T,
    observed: Observed,
    shared: Arc<Shared>,
}

impl<T> Commit<T> {
    /// Returns the epoch that must be durable before the value may be shown outside, and the
    /// transaction's time.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.observed
    }

    /// Waits until everything that the transaction wrote and observed is durable.
    ///
    /// # Errors
    /// Returns [`Abort::ReadOnly`] if the log has failed: the transaction's writes may be lost.
    pub fn wait_durable(self) -> Result<T, Abort> {
        self.shared.wait_durable(self.observed.epoch)?;
        Ok(self.value)
    }
}

impl Db {
    /// Opens the database, and recovers it from its directory.
    ///
    /// # Errors
    /// Returns an [`OpenError`] that says what to do.
    pub fn open(options: Options) -> Result<Db, OpenError> {
        check(&options)?;
        let engine = Engine::new(&engine::Options {
            workers: options.workers + checkpoint::Maker::workers(&options),
            clock: Arc::clone(&options.clock),
            limits: options.limits,
        });
        engine.declare_read_atomic(options.read_atomic.clone());
        let maker = checkpoint::Maker::new(&options, &engine);
        let (lock, journal, report) = match &options.dir {
            None => (None, None, RecoveryReport::default()),
            Some(dir) => {
                let lock = lock(&options, dir)?;
                let (recovered, report) = crate::recovery::recover(&options, dir, &engine)?;
                let journal = start_journal(&options, dir, &engine, &recovered)?;
                (Some(lock), Some(journal), report)
            }
        };
        if let (Some(_), EpochTime::Fixed(interval)) = (&journal, options.epoch_time) {
            // The loggers advance the epochs.
            engine
                .epochs()
                .set_slack_ms(interval.as_millis() as u64 + 1);
        }
        let janitor = engine.janitor();
        let log_size = options.checkpoint.log_size;
        let shared = Arc::new(Shared {
            engine,
            journal,
            clock: options.clock,
            stop: Stop::default(),
            waiters: Arc::default(),
            waiting: Arc::default(),
            hold_timeout: options.hold_timeout,
            prepared: AtomicU64::new(report.prepared),
            checkpoints: Board::default(),
            retired: Mutex::default(),
            closed: AtomicBool::new(false),
            report,
        });
        shared.wake_waiters();
        let waiting = Arc::clone(&shared.waiting);
        shared.engine.on_release(Box::new(move || waiting.tell()));
        // From here on an error closes everything that was opened.
        let owner = Owner {
            shared: Arc::clone(&shared),
            pool: Pool::default(),
            threads: Mutex::default(),
            _lock: lock,
        };
        let no_thread = |error| OpenError::Option(format!("cannot start a thread: {error}"));
        let thread = housekeeping::start(&shared, janitor, log_size).map_err(no_thread)?;
        owner.threads.lock().push(thread);
        if let Some(maker) = maker {
            let last = shared.report.checkpoint.clone();
            shared.checkpoints.recovered(last, shared.report.bytes);
            let thread = checkpoint::start(&shared, maker).map_err(no_thread)?;
            owner.threads.lock().push(thread);
        }
        Ok(Db {
            owner: Arc::new(owner),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Returns the report of the recovery when this database was opened.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.shared().report
    }

    /// Returns a worker for this thread, or `None` when there are as many as [`Options::workers`].
    #[must_use]
    pub fn worker(&self) -> Option<Worker> {
        let shared = self.shared();
        let log = |i| Log(shared.journal.as_ref().map(|journal| journal.writer(i)));
        let inner = shared.engine.worker(log)?;
        Some(Worker {
            inner,
            shared: Arc::clone(shared),
        })
    }

    /// Returns the worker with number `index`, from 0 on, or `None` when another thread has it.
    /// With [`Options::affinity`] its number determines which logger serves it and on which
    /// processor its thread should run.
    #[must_use]
    pub fn worker_at(&self, index: usize) -> Option<Worker> {
        let shared = self.shared();
        let log = |i| Log(shared.journal.as_ref().map(|journal| journal.writer(i)));
        let inner = shared.engine.worker_at(index, log)?;
        Some(Worker {
            inner,
            shared: Arc::clone(shared),
        })
    }

    /// Runs `body` as one serializable transaction, and runs it again whenever it meets a conflict:
    /// it should have no other effects than those on `txn`.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened.
    pub fn transact<T>(
        &self,
        mut body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, engine::Stop>,
    ) -> Result<Commit<T>, Abort> {
        let shared = self.shared();
        // The thread that is to end the transaction in the way may need the worker.
        let (value, observed) = shared.until_free(|| {
            let mut worker = self.lend();
            let outcome = worker.inner.transact(&mut body);
            self.give_back(worker);
            outcome
        })?;
        Ok(Commit {
            value,
            observed,
            shared: Arc::clone(shared),
        })
    }

    /// Calls `notify` whenever a prepared transaction has given its holds back. The call comes from
    /// the thread on which that happened, so it must be quick.
    pub fn on_release(&self, notify: Box<dyn Fn() + Send + Sync>) {
        self.shared().engine.on_release(notify);
    }

    /// Sets the watcher of the writes of read-atomic keys. To be called once, before any
    /// transaction runs.
    ///
    /// # Panics
    /// Panics if a watcher was set before.
    pub fn watch_read_atomic(&self, watcher: Arc<dyn Watcher>) {
        self.shared().engine.watch_read_atomic(watcher);
    }

    /// Returns how often holds have been given back. A caller that has read this number before it
    /// was refused with [`Abort::Held`] tries again when the number changes.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.shared().releases()
    }

    /// Returns a worker of the pool; waits for one when all are lent.
    pub(crate) fn lend(&self) -> Worker {
        let pool = &self.owner.pool;
        let mut idle = pool.idle.lock();
        loop {
            if let Some(worker) = idle.pop().or_else(|| self.worker()) {
                return worker;
            }
            // Workers that threads keep for themselves come back without notice.
            pool.returned
                .wait_for(&mut idle, std::time::Duration::from_millis(1));
        }
    }

    pub(crate) fn give_back(&self, worker: Worker) {
        self.owner.pool.idle.lock().push(worker);
        self.owner.pool.returned.notify_one();
    }

    /// Returns the progress of durability. An ephemeral database has nothing to wait for: its epoch
    /// is the greatest number.
    #[must_use]
    pub fn durable(&self) -> Durable {
        let failed = self.shared().journal.as_ref().and_then(Journal::trouble);
        Durable {
            epoch: self.durable_epoch(),
            failed: failed.map(|failed| failed.to_string()),
        }
    }

    /// Returns the epoch of [`Db::durable`]; one atomic load.
    #[must_use]
    pub fn durable_epoch(&self) -> Epoch {
        self.shared().durable_epoch()
    }

    /// Requests that `epoch` becomes durable; returns at once. Call it once after a batch.
    pub fn request_durable(&self, epoch: Epoch) {
        if let Some(journal) = &self.shared().journal {
            journal.request(epoch);
        }
    }

    /// Makes `epoch` durable on this thread if that can be done at once, which saves two thread
    /// switches when no other thread has anything to do. Returns `true` if it is durable now; if
    /// not, call [`Db::request_durable`].
    #[must_use]
    pub fn sync_inline(&self, epoch: Epoch) -> bool {
        match &self.shared().journal {
            Some(journal) => journal.durable() >= epoch || journal.try_cycle_inline(epoch),
            None => true,
        }
    }

    /// Calls `notify` whenever the durable epoch has advanced, and when the journal has failed. The
    /// call comes from a log thread, so it must be quick.
    pub fn on_durable(&self, notify: Box<dyn Fn() + Send + Sync>) {
        if let Some(journal) = &self.shared().journal {
            journal.subscribe(notify);
        }
    }

    /// Waits until `epoch` is durable.
    ///
    /// # Errors
    /// Returns [`Abort::ReadOnly`] if the log has failed before that.
    pub fn wait_durable(&self, epoch: Epoch) -> Result<(), Abort> {
        self.shared().wait_durable(epoch)
    }

    /// Returns a consistent read-only view at an epoch boundary. It waits for the transactions that
    /// run now, microseconds as a rule; not to be called from within one.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared().engine.snapshot()
    }

    /// Returns the current epoch: what a transaction reads now is durable once this epoch is.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.shared().engine.epochs().current()
    }

    /// Returns the bytes of records, versions, keys, values and index.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.shared().engine.memory_bytes()
    }

    /// Limits the memory: from now on transactions that need memory are refused with
    /// [`Abort::OutOfMemory`] while more than `bytes` are used, or would be; 0 means no limit.
    pub fn limit_memory(&self, bytes: u64) {
        self.shared().engine.limit_memory(bytes);
    }

    /// Returns figures. Each is exact by itself; they are read one after another.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let engine = self.shared().engine.stats();
        let log = self
            .shared()
            .journal
            .as_ref()
            .map(Journal::stats)
            .unwrap_or_default();
        Stats {
            keys: engine.keys,
            expiring: engine.expiring,
            mean_deadline_ms: engine.mean_deadline_ms,
            memory_bytes: engine.memory_bytes,
            epoch: self.epoch(),
            durable_epoch: self.durable_epoch(),
            commits: engine.commits,
            conflicts: engine.conflicts,
            expired: engine.expired,
            clock_steps: engine.clock_steps,
            log_bytes: log.bytes,
            log_syncs: log.syncs,
            log_sync_mean_us: log.sync_time_mean.as_micros() as u64,
            log_sync_time: log.sync_time,
            log_sync_histogram: log.sync_time_histogram,
            log_cycles: log.cycles,
            log_inline_cycles: log.inline_cycles,
            log_buffers_waiting: log.buffers_waiting,
            log_latency: log.latency,
            prepared: self.shared().prepared.load(Ordering::Relaxed),
            kept_versions: engine.kept_versions,
            hold_waits: self.shared().waiting.count(),
            journal_failure: self.durable().failed,
        }
    }

    /// Makes everything durable and stops the threads. Later transactions that write are refused.
    ///
    /// # Errors
    /// Returns an error if the log could not be written to its end: writes that were not
    /// acknowledged may be lost.
    pub fn close(&self) -> Result<(), CloseError> {
        self.owner.close()
    }
}

impl Owner {
    fn close(&self) -> Result<(), CloseError> {
        if self.shared.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.shared.stop.stop();
        self.shared.checkpoints.close();
        for thread in self.threads.lock().drain(..) {
            // A panic was reported by its thread; the log is closed nevertheless.
            let _ = thread.join();
        }
        match &self.shared.journal {
            Some(journal) => Ok(journal.close()?),
            None => Ok(()),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!("{error}");
        }
    }
}

impl Shared {
    /// Subscribes to the journal, so that tasks that wait for an epoch are woken when it is durable.
    fn wake_waiters(self: &Arc<Self>) {
        let Some(journal) = &self.journal else { return };
        // The journal must not own its owner.
        let shared = Arc::downgrade(self);
        journal.subscribe(Box::new(move || {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let Some(journal) = &shared.journal else {
                return;
            };
            shared
                .waiters
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
}

fn check(options: &Options) -> Result<(), OpenError> {
    let refuse = |what: &str| Err(OpenError::Option(what.to_owned()));
    if options.workers == 0 {
        return refuse("a database needs at least one worker");
    }
    if options.loggers == 0 || options.log_buffers == 0 {
        return refuse("a database needs at least one logger and one log buffer for each worker");
    }
    if !(4096..=1 << 30).contains(&options.log_buffer_size) {
        return refuse("a log buffer has between 4 KiB and 1 GiB");
    }
    let limits = &options.limits;
    if limits.key > base::limits::Limits::MAX_KEY || limits.value > base::limits::Limits::MAX_VALUE
    {
        return refuse("keys are limited to 64 KiB and values to 512 MiB");
    }
    Ok(())
}

fn lock(options: &Options, dir: &Path) -> Result<Box<dyn disk::DirLock>, OpenError> {
    let made = options.disk.create_dir_all(dir);
    made.map_err(|source| OpenError::Create {
        dir: dir.to_owned(),
        source,
    })?;
    Ok(options.disk.lock_dir(dir)?)
}

fn start_journal(
    options: &Options,
    dir: &Path,
    engine: &Arc<Engine>,
    recovered: &Recovered,
) -> Result<Journal, OpenError> {
    let disk = Arc::clone(&options.disk);
    Ok(Journal::start(
        disk,
        dir,
        options.journal(),
        engine.epochs(),
        recovered,
    )?)
}
