//! The journal as the store uses it.

mod backups;
mod log_writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::Epoch;
use base::affinity::Affinity;
use base::epochs::EpochClock;
use disk::Disk;
use parking_lot::Mutex;

use crate::checkpoint::{self, CheckpointDraft, CheckpointPart, PublishedCheckpoint, RunOrigin};
use crate::entry::Entry;
use crate::error::{CheckpointError, JournalFailure, RecoverError, StartError};
use crate::format::{LogSegmentHeader, log_name};
use crate::handover::{BufferSizes, Handover};
use crate::horizon::Horizon;
use crate::logger::{CycleOutcome, Logger};
use crate::options::{Drive, EpochTime, Options};
use crate::recovery::{self, Progress, Recovered};
use crate::segment::{LogFile, SegmentRoom};
use crate::spare::{Spare, Spares};
use crate::stats::{JournalCounters, JournalStats};
use crate::threads::{JournalShared, spawn};

pub use log_writer::LogWriter;

/// A running journal. See the [crate] for how to use it.
pub struct Journal {
    shared: Arc<JournalShared>,
    origin: RunOrigin,
    threads: Mutex<Vec<JoinHandle<()>>>,
    spares: Spares,
}

impl Journal {
    /// Reads the logs in `dir`, which need not exist, with `threads` threads. Passes every entry of
    /// the epochs that are complete to `apply`, from several threads at once and in any order: of
    /// two changes of a key the one with the greater TID is the newer. Then cuts unfinished writes
    /// off the logs' ends. Another recovery, also one after a crash in the middle of this one,
    /// gives the same.
    ///
    /// # Errors
    /// Returns an error if the logs cannot be read, or durable data is missing or damaged; nothing
    /// was changed on disk then, but `apply` may have been called.
    pub fn recover(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        threads: usize,
        apply: &(dyn Fn(Entry<'_>) + Sync),
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Recovered, RecoverError> {
        recovery::recover(disk.as_ref(), dir, threads, apply, progress)
    }

    /// Reads and verifies the logs in `dir` as [`Journal::recover`] does, and changes nothing:
    /// the cuts are those that a recovery would make.
    ///
    /// # Errors
    /// As [`Journal::recover`].
    pub fn check(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        threads: usize,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Recovered, RecoverError> {
        recovery::check(disk.as_ref(), dir, threads, &|_| {}, progress)
    }

    /// Begins a new run behind the data `recovered` from `dir`: opens a new segment in each log and
    /// starts the loggers. The clock's current epoch is above `recovered.newest`.
    ///
    /// # Errors
    /// Returns an error if a segment cannot be created. Recover again before another start.
    ///
    /// # Panics
    /// Panics if the options have no logger or no buffer, or if the clock is behind.
    pub fn start(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
        clock: Arc<dyn EpochClock>,
        recovered: &Recovered,
    ) -> Result<Journal, StartError> {
        assert!(
            options.loggers > 0 && options.workers > 0,
            "a journal has loggers and workers"
        );
        if let Some(affinity) = &options.affinity {
            assert_eq!(
                affinity.loggers.len(),
                options.loggers,
                "a place for each logger"
            );
        }
        assert!(
            clock.current() > recovered.newest,
            "epochs of the past must not come again"
        );
        let rooms = rooms(&disk, dir, &options);
        let spares = rooms.iter().filter_map(|room| room.spare.clone());
        let spares = Spares::new(spares.collect());
        let files = create_segments(&disk, dir, &options, recovered, rooms)?;
        let sizes = BufferSizes {
            buffers: options.log_buffers,
            buffer_size: options.log_buffer_size,
            exact_times: options.measure_latency,
        };
        let placement = placement(&options);
        let lanes = |logger| placement.iter().filter(|place| place.0 == logger).count();
        let start = recovered.newest;
        let logger = |(index, file)| {
            Logger::new(
                index,
                Handover::new(lanes(index), sizes),
                file,
                start,
                options.segment_size,
                options.durability_target,
            )
        };
        let loggers = files.into_iter().enumerate().map(logger).collect();
        let shared = Arc::new(JournalShared {
            loggers,
            horizon: Horizon::new(options.loggers, start),
            counters: JournalCounters::default(),
            clock,
            epoch_time: options.epoch_time,
            idle_flush: options.idle_flush,
            max_epoch_diff: options.max_epoch_diff,
            placement,
            stopping: AtomicBool::new(false),
            next_tick: Mutex::new(Instant::now()),
            paused: Mutex::new(None),
        });
        let journal = Journal {
            shared,
            origin: RunOrigin::new(&options, recovered),
            threads: Mutex::default(),
            spares,
        };
        let threads = if options.drive == Drive::Threads {
            options.loggers
        } else {
            0
        };
        for index in 0..threads {
            let cpu = options.affinity.as_ref().map(|a| a.loggers[index].cpu);
            let thread = spawn(&journal.shared, index, cpu)
                .map_err(StartError::io("start a log thread for", dir))?;
            journal.threads.lock().push(thread);
        }
        if options.drive == Drive::Threads {
            let started = journal.spares.start();
            started.map_err(StartError::io("start a thread for", dir))?;
        }
        Ok(journal)
    }

    /// Returns the log writer of worker `worker`. Writers of one worker share its buffers.
    ///
    /// # Panics
    /// Panics if there is no such worker.
    #[must_use]
    pub fn writer(&self, worker: usize) -> LogWriter {
        let (logger, lane) = self.shared.placement[worker];
        self.shared.loggers[logger]
            .lanes_used
            .fetch_max(lane + 1, Ordering::AcqRel);
        // The logger may just have looked for the last time at the lanes it knew.
        self.shared.loggers[logger].wake();
        LogWriter {
            shared: Arc::clone(&self.shared),
            logger,
            lane,
            last: AtomicU64::new(0),
        }
    }

    /// Returns the newest epoch up to which everything is durable.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.shared.horizon.durable()
    }

    /// Returns the reason why no later epoch will become durable, if that is so.
    #[must_use]
    pub fn failed(&self) -> Option<JournalFailure> {
        self.shared.horizon.failed().cloned()
    }

    /// Returns the reason why no later epoch becomes durable, for ever or until there is room for
    /// the log ([`JournalFailure::is_lasting`]).
    #[must_use]
    pub fn trouble(&self) -> Option<JournalFailure> {
        self.shared.horizon.trouble()
    }

    /// Returns the reason why no later epoch becomes durable: the trouble, or that the journal was
    /// closed.
    #[must_use]
    pub fn over(&self) -> Option<JournalFailure> {
        self.shared.horizon.over()
    }

    /// Requests that `epoch` becomes durable, and returns at once.
    pub fn request(&self, epoch: Epoch) {
        self.shared.request(epoch);
    }

    /// Waits until `epoch` is durable.
    ///
    /// # Errors
    /// Returns an error if the journal failed or was closed before.
    pub fn wait(&self, epoch: Epoch) -> Result<(), JournalFailure> {
        self.shared
            .horizon
            .wait(epoch, || self.shared.request(epoch))
    }

    /// Makes `epoch` durable on this thread if the only logger has nothing else to do: this saves
    /// two thread switches for a client that is alone. The calling thread must be outside any
    /// epoch. Returns `true` if the epoch is durable; if not, [`Journal::request`] it.
    pub fn try_cycle_inline(&self, epoch: Epoch) -> bool {
        let shared = &self.shared;
        if shared.horizon.durable() >= epoch {
            return true;
        }
        if shared.loggers.len() > 1 || shared.epoch_time != EpochTime::Adaptive {
            return false;
        }
        let epoch = epoch.min(shared.clock.current());
        match shared.loggers[0].try_cycle(&shared.context(), epoch) {
            Some(Ok(CycleOutcome::Progress)) => {
                shared
                    .counters
                    .inline_cycles
                    .fetch_add(1, Ordering::Relaxed);
            }
            Some(Err(failed)) => shared.refuse(&failed),
            Some(Ok(CycleOutcome::Held | CycleOutcome::Idle | CycleOutcome::Stalled)) | None => {}
        }
        shared.pause_or_resume();
        shared.horizon.durable() >= epoch
    }

    /// Calls `notify` whenever the durable epoch has advanced and when the journal has failed or
    /// was closed; mostly from a logger's thread, which it must not hold up.
    pub fn subscribe(&self, notify: Box<dyn Fn() + Send + Sync>) {
        self.shared.horizon.subscribe(notify);
    }

    /// Runs one cycle of a logger on this thread. For [`Drive::Manual`].
    ///
    /// # Errors
    /// Returns an error if the journal has failed.
    pub fn cycle(&self, logger: usize) -> Result<(), JournalFailure> {
        if let EpochTime::Fixed(_) = self.shared.epoch_time {
            self.shared.clock.advance(self.shared.clock.current());
        }
        self.shared.cycle(&self.shared.loggers[logger])?;
        self.spares.make_now();
        Ok(())
    }

    /// Records the durable epoch in the log of `logger`, as a logger's thread does after some time
    /// without work. For [`Drive::Manual`].
    ///
    /// # Errors
    /// Returns an error if the journal has failed.
    pub fn record(&self, logger: usize) -> Result<(), JournalFailure> {
        let logger = &self.shared.loggers[logger];
        let result = logger.record(&self.shared.context(), Duration::ZERO);
        result
            .map(|_| ())
            .inspect_err(|failed| self.shared.refuse(failed))
    }

    /// Records that the time `passed_ms` has passed, unless the log says so already: the time of the
    /// next start will not be before it, also if the clock is. Waits for a sync.
    ///
    /// # Errors
    /// Returns an error if the journal has failed, or there is no room for the record.
    pub fn note_time(&self, passed_ms: u64) -> Result<(), JournalFailure> {
        let noted = self.shared.loggers[0].note_time(&self.shared.context(), passed_ms);
        noted.inspect_err(|failed| self.shared.refuse(failed))?
    }

    /// Begins a checkpoint of the store in `dir`, the journal's directory on `disk`: every log
    /// continues in a new segment. The caller then draws the epoch that the checkpoint holds, so
    /// that it is not below any epoch that was logged before this call, and writes the parts.
    ///
    /// # Errors
    /// Returns an error if a log cannot continue in a new segment: it continues in its present one,
    /// unless the journal has failed.
    pub fn begin_checkpoint(
        &self,
        disk: &Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<CheckpointDraft, CheckpointError> {
        checkpoint::run::begin(&self.shared, &self.origin, disk, dir)
    }

    /// Publishes a checkpoint whose `parts` are finished: all that were begun, in their order.
    /// Waits until its epoch is durable. Log segments and checkpoints that are not needed any more
    /// are removed.
    ///
    /// # Errors
    /// Returns an error if the disk or the journal fails. The files of the checkpoint are removed
    /// then.
    pub fn publish_checkpoint(
        &self,
        draft: CheckpointDraft,
        parts: Vec<CheckpointPart>,
        finished_ms: u64,
    ) -> Result<PublishedCheckpoint, CheckpointError> {
        checkpoint::run::publish(&self.shared, draft, parts, finished_ms)
    }

    /// Returns figures since the start.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        let waiting = self
            .shared
            .loggers
            .iter()
            .map(|logger| logger.handover.queued() as u64);
        let latency = self.shared.horizon.notifications().latency();
        self.shared.counters.stats(waiting.sum(), latency)
    }

    /// Makes everything durable that was appended, and ends the loggers. Writers get errors from
    /// now on. Closing again changes nothing.
    ///
    /// # Errors
    /// Returns an error if the journal failed, or if a transaction did not end within two seconds.
    pub fn close(&self) -> Result<(), JournalFailure> {
        self.shared.horizon.end_holds();
        let mut threads = self.threads.lock();
        let first = !self.shared.stopping.swap(true, Ordering::AcqRel);
        for logger in &self.shared.loggers {
            logger.handover.refuse(&JournalFailure::new("it is closed"));
            logger.wake();
        }
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                self.shared
                    .horizon
                    .fail(JournalFailure::new("a log thread panicked"));
            }
        }
        let result = if first { self.shared.finish() } else { Ok(()) };
        self.shared.horizon.end();
        self.spares.close();
        if first && result.is_ok() {
            self.shared.loggers.iter().for_each(Logger::trim);
        }
        match self.failed() {
            Some(failed) => Err(failed),
            None => result,
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(failed) = self.close() {
            tracing::debug!(%failed, "the journal was dropped");
        }
    }
}

/// Returns, for each worker, its logger and the number that it has among the logger's workers.
fn placement(options: &Options) -> Vec<(usize, usize)> {
    let placed = options.affinity.iter().flat_map(Affinity::workers);
    let mut used = vec![0; options.loggers];
    let mut workers = Vec::new();
    for (logger, _) in placed.take(options.workers) {
        workers.push((logger, used[logger]));
        used[logger] += 1;
    }
    // Workers that the affinity does not name are assigned in turn.
    for turn in 0..options.workers - workers.len() {
        let logger = turn % options.loggers;
        workers.push((logger, used[logger]));
        used[logger] += 1;
    }
    workers
}

/// Returns, for each logger, the room that its segments have.
fn rooms(disk: &Arc<dyn Disk>, dir: &Path, options: &Options) -> Vec<SegmentRoom> {
    let room = |log| {
        let spare = || {
            let (dir, preallocate) = (dir.join(log_name(log)), options.preallocate);
            Arc::new(Spare::new(disk, dir, options.segment_size, preallocate))
        };
        SegmentRoom {
            preallocate: options.preallocate,
            spare: options.warm_up.then(spare),
        }
    };
    (0..options.loggers).map(room).collect()
}

/// Creates the first segment of a new run in every log. Logs that earlier runs used and this one
/// does not also get one: it proves that they are all there.
fn create_segments(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: &Options,
    recovered: &Recovered,
    rooms: Vec<SegmentRoom>,
) -> Result<Vec<LogFile>, StartError> {
    let mut rooms = rooms.into_iter();
    let logs = options.loggers.max(recovered.next_segments.len());
    for log in 0..logs {
        let path = dir.join(log_name(log));
        disk.create_dir_all(&path)
            .map_err(StartError::io("create", &path))?;
    }
    let mut files = Vec::new();
    for log in 0..logs {
        let header = LogSegmentHeader {
            log: log as u32,
            segment: recovered.next_segments.get(log).copied().unwrap_or(0),
            run: recovered.run + 1,
            loggers: options.loggers as u32,
            logs: logs as u32,
            base: recovered.durable,
            start: recovered.newest,
            salt: options.salt,
            sequence: 0,
            first: 0,
        };
        let active = log < options.loggers;
        let room = rooms.next().unwrap_or_default();
        let file = LogFile::first(disk, dir, header, room)?;
        files.extend(active.then_some(file));
    }
    Ok(files)
}
