//! The database: an engine, its journal and its threads.

mod checkpoints;
mod stats;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use base::epochs::EpochClock;
use base::eviction::EvictionSettings;
use base::key_event::KeyListener;
use base::transaction::Observed;
use base::versions::Watcher;
use base::{Abort, Epoch, TransactionId};
use engine::{Engine, Snapshot, Txn};
use journal::{Journal, Recovered};
use parking_lot::Mutex;

pub use stats::Stats;

use crate::backup::BackupSource;
use crate::checkpoint::{self, CheckpointWriter};
use crate::checkpoint_scheduler::CheckpointScheduler;
use crate::data_directory::DataDirectory;
use crate::db_state::DbState;
use crate::durability_waiters::DurabilityWaiters;
use crate::error::{CloseError, OpenError};
use crate::housekeeping;
use crate::log::JournalLog;
use crate::options::{EpochTime, Options};
use crate::recovery::{RecoveryReport, recover};
use crate::stop_signal::StopSignal;
use crate::worker::Worker;
use crate::worker_pool::WorkerPool;

/// A database. Clones are handles to the same one; it closes with the last of them, or by
/// [`Db::close`], which also returns an error if that failed.
#[derive(Clone)]
pub struct Db {
    owner: Arc<Owner>,
}

/// Stops the threads when the last handle is dropped.
struct Owner {
    db: Arc<DbState>,
    pool: WorkerPool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The lock of the data directory.
    _lock: Option<Box<dyn disk::DirLock>>,
}

/// The progress of durability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durable {
    /// Everything up to this epoch is durable.
    pub epoch: Epoch,
    /// The reason why no later epoch becomes durable, for ever or until there is room for the log.
    pub failed: Option<String>,
}

/// A value computed by a committed transaction.
#[must_use = "the transaction is not durable before `wait_durable` returns"]
pub struct Commit<T> {
    /// The closure's result. Before [`Commit::wait_durable`] a crash may undo what the closure saw.
    pub value: T,
    observed: Observed,
    db: Arc<DbState>,
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
        self.db.wait_durable(self.observed.epoch)?;
        Ok(self.value)
    }
}

impl Db {
    /// Opens the database, and recovers it from its directory.
    ///
    /// # Errors
    /// Returns an [`OpenError`] that says what to do.
    pub fn open(options: Options) -> Result<Db, OpenError> {
        options.check()?;
        let engine = Engine::new(&engine::Options {
            workers: options.workers + CheckpointWriter::workers(&options),
            clock: Arc::clone(&options.clock),
            limits: options.limits,
        });
        engine.declare_read_atomic(options.read_atomic.clone());
        let checkpoint_writer = CheckpointWriter::new(&options, &engine);
        let (lock, journal, report) = match &options.dir {
            None => (None, None, RecoveryReport::default()),
            Some(dir) => {
                let lock = lock(&options, dir)?;
                let (recovered, report) = recover(&options, dir, &engine)?;
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
        let db = Arc::new(DbState {
            engine,
            journal,
            directory: DataDirectory::of(&options),
            data_id: Mutex::new(()),
            clock: options.clock,
            stop: StopSignal::default(),
            durability_waiters: DurabilityWaiters::default(),
            hold_waiters: Arc::default(),
            hold_timeout: options.hold_timeout,
            prepared: AtomicU64::new(report.prepared),
            checkpoints: CheckpointScheduler::default(),
            retired: Mutex::default(),
            closed: AtomicBool::new(false),
            report,
        });
        db.subscribe_waiters();
        let waiters = Arc::clone(&db.hold_waiters);
        db.engine.on_release(Box::new(move || waiters.wake_all()));
        // From here on an error closes everything that was opened.
        let owner = Owner {
            db: Arc::clone(&db),
            pool: WorkerPool::default(),
            threads: Mutex::default(),
            _lock: lock,
        };
        owner.start_threads(janitor, log_size, checkpoint_writer)?;
        Ok(Db {
            owner: Arc::new(owner),
        })
    }

    pub(crate) fn state(&self) -> &Arc<DbState> {
        &self.owner.db
    }

    /// Returns the database as a source of backups.
    #[must_use]
    pub fn backup_source(&self) -> BackupSource {
        BackupSource::new(self.state())
    }

    /// Returns the report of the recovery when this database was opened.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.state().report
    }

    /// Returns a worker for this thread, or `None` when there are as many as [`Options::workers`].
    #[must_use]
    pub fn worker(&self) -> Option<Worker> {
        let db = self.state();
        let log = |i| JournalLog(db.journal.as_ref().map(|journal| journal.writer(i)));
        let inner = db.engine.worker(log)?;
        Some(Worker {
            inner,
            db: Arc::clone(db),
        })
    }

    /// Returns the worker with number `index`, from 0 on, or `None` when another thread has it.
    /// With [`Options::affinity`] its number determines which logger serves it and on which
    /// processor its thread should run.
    #[must_use]
    pub fn worker_at(&self, index: usize) -> Option<Worker> {
        let db = self.state();
        let log = |i| JournalLog(db.journal.as_ref().map(|journal| journal.writer(i)));
        let inner = db.engine.worker_at(index, log)?;
        Some(Worker {
            inner,
            db: Arc::clone(db),
        })
    }

    /// Runs `body` as one serializable transaction, and runs it again whenever it meets a conflict:
    /// it should have no other effects than those on `txn`.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened.
    pub fn transact<T>(
        &self,
        mut body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, engine::TransactionError>,
    ) -> Result<Commit<T>, Abort> {
        let db = self.state();
        // The thread that is to end the transaction in the way may need the worker.
        let (value, observed) = db.retry_held(|| {
            let mut worker = self.lend();
            let outcome = worker.inner.transact(&mut body);
            self.give_back(worker);
            outcome
        })?;
        Ok(Commit {
            value,
            observed,
            db: Arc::clone(db),
        })
    }

    /// Calls `notify` whenever a prepared transaction has given its holds back. The call comes from
    /// the thread on which that happened, so it must be quick.
    pub fn on_release(&self, notify: Box<dyn Fn() + Send + Sync>) {
        self.state().engine.on_release(notify);
    }

    /// Sets the watcher of the writes of read-atomic keys. To be called once, before any
    /// transaction runs.
    ///
    /// # Panics
    /// Panics if a watcher was set before.
    pub fn watch_read_atomic(&self, watcher: Arc<dyn Watcher>) {
        self.state().engine.watch_read_atomic(watcher);
    }

    /// Sets the listener for changes of keys, in place of another. It is not called before [`Db::listen`].
    pub fn set_key_listener(&self, listener: Arc<dyn KeyListener>) {
        self.state().engine.set_key_listener(listener);
    }

    /// Begins to call the listener for changes of keys, or ends it.
    pub fn listen(&self, listens: bool) {
        self.state().engine.listen(listens);
    }

    /// Returns `true` if every transaction that commits from now on calls the listener for changes of keys:
    /// those that were on their way when listening began have ended.
    #[must_use]
    pub fn announces_all(&self) -> bool {
        self.state().engine.announces_all()
    }

    /// Returns how often holds have been given back. A caller that has read this number before it
    /// was refused with [`Abort::Held`] tries again when the number changes.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.state().releases()
    }

    /// Gives back what [`Worker::hold`] holds under this id. Wakes the transactions that wait.
    pub fn end_hold(&self, id: TransactionId) {
        self.state().engine.end_hold(id);
    }

    /// Returns a worker of the pool; waits for one when all are lent.
    pub(crate) fn lend(&self) -> Worker {
        self.owner.pool.take(|| self.worker())
    }

    pub(crate) fn give_back(&self, worker: Worker) {
        self.owner.pool.put(worker);
    }

    /// Returns the progress of durability. An ephemeral database has nothing to wait for: its epoch
    /// is the greatest number.
    #[must_use]
    pub fn durable(&self) -> Durable {
        let failed = self.state().journal.as_ref().and_then(Journal::trouble);
        Durable {
            epoch: self.durable_epoch(),
            failed: failed.map(|failed| failed.to_string()),
        }
    }

    /// Returns the epoch of [`Db::durable`]; one atomic load.
    #[must_use]
    pub fn durable_epoch(&self) -> Epoch {
        self.state().durable_epoch()
    }

    /// Ends the current epoch, unless epochs have a length of their own or a transaction of an earlier one is
    /// still on its way.
    pub fn end_epoch(&self) {
        self.state().engine.end_epoch();
    }

    /// Returns the newest epoch in which no transaction can commit any more.
    #[must_use]
    pub fn finished_epoch(&self) -> Epoch {
        self.state().engine.epochs().finished()
    }

    /// Requests that `epoch` becomes durable; returns at once. Call it once after a batch.
    pub fn request_durable(&self, epoch: Epoch) {
        if let Some(journal) = &self.state().journal {
            journal.request(epoch);
        }
    }

    /// Makes `epoch` durable on this thread if that can be done at once, which saves two thread
    /// switches when no other thread has anything to do. Returns `true` if it is durable now; if
    /// not, call [`Db::request_durable`].
    #[must_use]
    pub fn sync_inline(&self, epoch: Epoch) -> bool {
        match &self.state().journal {
            Some(journal) => journal.durable() >= epoch || journal.try_cycle_inline(epoch),
            None => true,
        }
    }

    /// Calls `notify` whenever the durable epoch has advanced, and when the journal has failed. The
    /// call comes from a log thread, so it must be quick.
    pub fn on_durable(&self, notify: Box<dyn Fn() + Send + Sync>) {
        if let Some(journal) = &self.state().journal {
            journal.subscribe(notify);
        }
    }

    /// Waits until `epoch` is durable.
    ///
    /// # Errors
    /// Returns [`Abort::ReadOnly`] if the log has failed before that.
    pub fn wait_durable(&self, epoch: Epoch) -> Result<(), Abort> {
        self.state().wait_durable(epoch)
    }

    /// Returns a consistent read-only view at an epoch boundary. It waits for the transactions that
    /// run now, microseconds as a rule; not to be called from within one.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state().engine.snapshot()
    }

    /// Returns a view as [`Db::snapshot`], and the number with which the keys of a database are qualified in
    /// it (`base::database`): another one than its own after an exchange of databases.
    #[must_use]
    pub fn snapshot_of(&self, database: u16) -> (Snapshot, u16) {
        self.state().engine.snapshot_of(database)
    }

    /// Returns the current epoch: what a transaction reads now is durable once this epoch is.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.state().engine.epochs().current()
    }

    /// Returns the bytes of records, versions, keys, values and index.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.state().engine.memory_bytes()
    }

    /// Limits the memory: from now on transactions that need memory are refused with
    /// [`Abort::OutOfMemory`] while more than `bytes` are used, or would be; 0 means no limit.
    pub fn limit_memory(&self, bytes: u64) {
        self.state().engine.limit_memory(bytes);
    }

    /// Sets how keys are evicted when memory is full, by [`Worker::evict`]. Under a policy that evicts,
    /// transactions are refused only while half as much memory again is used as the limit, or no key can be
    /// evicted: the memory of keys that were evicted is freed when that is durable.
    pub fn set_eviction(&self, settings: &EvictionSettings) {
        self.state().engine.set_eviction(settings);
    }

    /// Returns how keys are evicted.
    #[must_use]
    pub fn eviction(&self) -> EvictionSettings {
        self.state().engine.eviction()
    }

    /// Returns `true` if keys must be evicted before `bytes` more are used.
    #[must_use]
    pub fn must_evict(&self, bytes: u64) -> bool {
        self.state().engine.must_evict(bytes)
    }

    /// Returns `true` if so much memory is used that transactions that need more are refused.
    #[must_use]
    pub fn exceeds_memory(&self) -> bool {
        self.state().engine.exceeds_memory()
    }

    /// Has keys that have expired removed in the background, which is the default, or kept in memory. No
    /// transaction sees them in either case.
    pub fn remove_expired(&self, removes: bool) {
        self.state().engine.remove_expired(removes);
    }

    /// Returns `true` if there are hashes with fields that will expire, or have expired.
    #[must_use]
    pub fn has_expiring_hashes(&self) -> bool {
        self.state().engine.has_expiring_hashes()
    }

    /// Takes a hash with fields that have expired, by its key as operations name it. No transaction sees such
    /// fields; the caller removes them, by [`base::Op::Call`] of the command `REMOVE_PASSED` of crate `values`.
    #[must_use]
    pub fn take_expiring_hash(&self) -> Option<Vec<u8>> {
        self.state().engine.take_expiring_hash()
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
    fn start_threads(
        &self,
        janitor: engine::Janitor,
        log_size: u64,
        checkpoint_writer: Option<CheckpointWriter>,
    ) -> Result<(), OpenError> {
        let no_thread = |error| OpenError::Option(format!("cannot start a thread: {error}"));
        let thread = housekeeping::start(&self.db, janitor, log_size).map_err(no_thread)?;
        self.threads.lock().push(thread);
        if let Some(writer) = checkpoint_writer {
            let last = self.db.report.checkpoint.clone();
            self.db.checkpoints.recovered(last, self.db.report.bytes);
            let thread = checkpoint::start(&self.db, writer).map_err(no_thread)?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    fn close(&self) -> Result<(), CloseError> {
        if self.db.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.db.stop.stop();
        self.db.checkpoints.close();
        for thread in self.threads.lock().drain(..) {
            // A panic was reported by its thread; the log is closed nevertheless.
            let _ = thread.join();
        }
        match &self.db.journal {
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
