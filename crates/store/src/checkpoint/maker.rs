//! The thread that makes checkpoints, and its helpers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use disk::Disk;
use engine::{Engine, NoLog, Snapshot, Worker};
use journal::{CheckpointDraft, CheckpointPart, CheckpointView, Journal};

use super::pace::Pace;
use super::walk::{Shares, walk};
use super::{Board, CheckpointReport};
use crate::db::Shared;
use crate::options::{CheckpointOptions, Options};

/// The resources of the thread.
pub(crate) struct Maker {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: CheckpointOptions,
    /// The number of workers besides those of checkpoints.
    others: usize,
    /// One worker for each thread; they look at the engine and never write.
    workers: Vec<Worker<NoLog>>,
}

impl Maker {
    /// Returns the number of workers that an engine has for checkpoints, besides those of
    /// [`Options::workers`].
    pub(crate) fn workers(options: &Options) -> usize {
        match &options.dir {
            Some(_) => options.checkpoint.threads.max(1),
            None => 0,
        }
    }

    /// Returns the maker for the database in `options.dir`, if it has a directory. Takes the
    /// engine's last workers.
    pub(crate) fn new(options: &Options, engine: &Arc<Engine>) -> Option<Maker> {
        let dir = options.dir.clone()?;
        let first = options.workers;
        let workers = first..first + Maker::workers(options);
        Some(Maker {
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

/// Starts the thread. It ends when the board closes.
pub(crate) fn start(shared: &Arc<Shared>, mut maker: Maker) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let work = move || {
        while shared.checkpoints.wait_for_work() {
            let log_bytes = shared.log_bytes();
            shared.checkpoints.begin(shared.clock.now_ms());
            tracing::debug!("checkpoint begun");
            // A caller that waits for the outcome must not wait for ever.
            let made = catch_unwind(AssertUnwindSafe(|| maker.make(&shared)));
            let outcome = made.unwrap_or_else(|_| Err("it panicked".to_owned()));
            tell(&shared.checkpoints, &outcome);
            shared.checkpoints.end(outcome, log_bytes);
        }
        shared.retired.lock().append(&mut maker.workers);
    };
    std::thread::Builder::new()
        .name("checkpoint".to_owned())
        .spawn(work)
}

fn tell(board: &Board, outcome: &Result<CheckpointReport, String>) {
    match outcome {
        Ok(report) => tracing::info!(
            epoch = report.epoch.0,
            entries = report.entries,
            bytes = report.bytes,
            seconds = report.elapsed.as_secs_f64(),
            segments_removed = report.segments_removed,
            "checkpoint made"
        ),
        Err(_) if board.is_closing() => {}
        Err(error) => tracing::warn!("no checkpoint was made: {error}; the logs stay"),
    }
}

impl Maker {
    fn make(&mut self, shared: &Shared) -> Result<CheckpointReport, String> {
        let start = Instant::now();
        let journal = shared
            .journal
            .as_ref()
            .expect("only a journal is cut short");
        let said = |error: journal::CheckpointError| error.to_string();
        let mut draft = journal
            .begin_checkpoint(&self.disk, &self.dir)
            .map_err(said)?;
        let snapshot = shared.engine.snapshot();
        draft.set_view(self.view(&snapshot));
        let parts = self.write_parts(shared, &snapshot, &mut draft)?;
        // Versions that only the view needs can be freed.
        drop(snapshot);
        let finished_ms = shared.clock.now_ms();
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
        shared: &Shared,
        snapshot: &Snapshot,
        draft: &mut CheckpointDraft,
    ) -> Result<Vec<CheckpointPart>, String> {
        let writers: Result<Vec<_>, _> = self.workers.iter().map(|_| draft.part()).collect();
        let writers = writers.map_err(|error| error.to_string())?;
        let shares = Shares::new(self.workers.len());
        let (options, others) = (&self.options, self.others);
        std::thread::scope(|scope| {
            let work = |(worker, writer)| {
                let shares = &shares;
                scope.spawn(move || {
                    let pace = Pace::new(shared, options, others);
                    walk(worker, snapshot, shares, writer, pace)
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
) -> Result<journal::PublishedCheckpoint, String> {
    let published = journal
        .publish_checkpoint(draft, parts, finished_ms)
        .map_err(|error| error.to_string())?;
    if let Some(error) = &published.left_over {
        tracing::warn!("{error}; the next checkpoint tries to remove it again");
    }
    Ok(published)
}
