//! The thread that makes checkpoints, and its helpers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use disk::Disk;
use engine::{Engine, NoLog, Snapshot, Worker};
use journal::{CheckpointDraft, CheckpointPart, CheckpointView, Journal};

use super::copy::{KeyRanges, copy};
use super::throttle::CheckpointThrottle;
use crate::checkpoint_report::{CheckpointError, CheckpointReport};
use crate::checkpoint_scheduler::CheckpointScheduler;
use crate::db_state::DbState;
use crate::options::{CheckpointOptions, Options};

/// The resources of the thread.
pub(crate) struct CheckpointWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: CheckpointOptions,
    /// The number of workers besides those of checkpoints.
    others: usize,
    /// One worker for each thread; they look at the engine and never write.
    workers: Vec<Worker<NoLog>>,
}

impl CheckpointWriter {
    /// Returns the number of workers that an engine has for checkpoints, besides those of
    /// [`Options::workers`].
    pub(crate) fn workers(options: &Options) -> usize {
        match &options.dir {
            Some(_) => options.checkpoint.threads.max(1),
            None => 0,
        }
    }

    /// Returns the writer for the database in `options.dir`, if it has a directory. Takes the
    /// engine's last workers.
    pub(crate) fn new(options: &Options, engine: &Arc<Engine>) -> Option<CheckpointWriter> {
        let dir = options.dir.clone()?;
        let first = options.workers;
        let workers = first..first + CheckpointWriter::workers(options);
        Some(CheckpointWriter {
            disk: Arc::clone(&options.disk),
            dir,
            options: options.checkpoint.clone(),
            others: first,
            workers: workers
                .map(|index| engine.worker_at(index, |_| NoLog).expect("no other has it"))
                .collect(),
        })
    }
}

/// Starts the thread. It ends when the scheduler closes.
pub(crate) fn start(
    db: &Arc<DbState>,
    mut writer: CheckpointWriter,
) -> std::io::Result<JoinHandle<()>> {
    let db = Arc::clone(db);
    let work = move || {
        while db.checkpoints.wait_for_work() {
            let log_bytes = db.log_bytes();
            db.checkpoints.begin(db.clock.now_ms());
            tracing::debug!("checkpoint begun");
            // A caller that waits for the outcome must not wait for ever.
            let made = catch_unwind(AssertUnwindSafe(|| writer.make(&db)));
            let outcome = made.unwrap_or(Err(CheckpointError::Panicked));
            report(&db.checkpoints, &outcome);
            db.checkpoints.end(outcome, log_bytes);
        }
        db.retired.lock().append(&mut writer.workers);
    };
    std::thread::Builder::new()
        .name("checkpoint".to_owned())
        .spawn(work)
}

fn report(scheduler: &CheckpointScheduler, outcome: &Result<CheckpointReport, CheckpointError>) {
    match outcome {
        Ok(report) => tracing::info!(
            epoch = report.epoch.0,
            entries = report.entries,
            bytes = report.bytes,
            seconds = report.elapsed.as_secs_f64(),
            segments_removed = report.segments_removed,
            "checkpoint made"
        ),
        Err(_) if scheduler.is_closing() => {}
        Err(error) => tracing::warn!("{error}; the logs stay"),
    }
}

impl CheckpointWriter {
    fn make(&mut self, db: &DbState) -> Result<CheckpointReport, CheckpointError> {
        let start = Instant::now();
        let journal = db.journal.as_ref().expect("only a journal is cut short");
        let mut draft = journal.begin_checkpoint(&self.disk, &self.dir)?;
        let snapshot = db.engine.snapshot();
        draft.set_view(self.view(&snapshot));
        let parts = self.write_parts(db, &snapshot, &mut draft)?;
        // Versions that only the view needs can be freed.
        drop(snapshot);
        let finished_ms = db.clock.now_ms();
        let epoch = draft.view().epoch;
        let published = publish(journal, draft, parts, finished_ms)?;
        Ok(CheckpointReport {
            epoch,
            entries: published.entries,
            bytes: published.bytes,
            elapsed: start.elapsed(),
            finished_ms,
            segments_removed: published.segments_removed,
        })
    }

    fn view(&mut self, snapshot: &Snapshot) -> CheckpointView {
        let (generation, generation_tid) = self.workers[0].snapshot_generation(snapshot);
        CheckpointView {
            epoch: snapshot.epoch(),
            stamp_ms: snapshot.time_ms(),
            generation,
            generation_tid,
        }
    }

    /// Writes the keys of the view; each thread writes its part.
    fn write_parts(
        &mut self,
        db: &DbState,
        snapshot: &Snapshot,
        draft: &mut CheckpointDraft,
    ) -> Result<Vec<CheckpointPart>, CheckpointError> {
        let writers: Result<Vec<_>, _> = self.workers.iter().map(|_| draft.part()).collect();
        let writers = writers?;
        let ranges = KeyRanges::new(self.workers.len());
        let (options, others) = (&self.options, self.others);
        std::thread::scope(|scope| {
            let work = |(worker, writer)| {
                let ranges = &ranges;
                scope.spawn(move || {
                    let throttle = CheckpointThrottle::new(db, options, others);
                    copy(worker, snapshot, ranges, writer, throttle)
                })
            };
            let threads: Vec<_> = self.workers.iter_mut().zip(writers).map(work).collect();
            let parts = threads.into_iter().map(|thread| match thread.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            parts.collect()
        })
    }
}

fn publish(
    journal: &Journal,
    draft: CheckpointDraft,
    parts: Vec<CheckpointPart>,
    finished_ms: u64,
) -> Result<journal::PublishedCheckpoint, CheckpointError> {
    let published = journal.publish_checkpoint(draft, parts, finished_ms)?;
    if let Some(error) = &published.left_over {
        tracing::warn!("{error}; the next checkpoint tries to remove it again");
    }
    Ok(published)
}
