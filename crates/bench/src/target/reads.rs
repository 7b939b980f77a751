//! Reads of a file: on this machine, or of a storage node, which is a process of its own (paper 4,
//! sections 4.4.1 to 4.4.5).
//!
//! Its kinds of readers and of access are the tables of `job`.
//!
//! The file's content follows from its offsets, and every page is [checked](crate::content) on
//! arrival, from this machine and from a node alike.

mod job;
mod local_readers;
mod offset_source;
mod processors;
mod remote_readers;
mod timeline;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::content_file::ContentFiles;
use crate::error::RunError;
use crate::parameters::Effort;
use crate::replay::RecordedTrace;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{Check, RunSample};
use offset_source::ReadRun;
use timeline::{ReadTimeline, ReaderThreads};

pub use job::{AccessPattern, FileReader, ReadsJob, RemoteReaders};

pub(super) fn run(job: &ReadsJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let trace = match job.order {
        AccessPattern::Random => None,
        AccessPattern::Counted | AccessPattern::Replay { .. } => Some(
            context
                .experiment_state
                .get::<RecordedTrace>()
                .get(context)?,
        ),
    };
    let len = match &trace {
        None => file_len(context, job.place),
        Some(trace) => trace.bytes(),
    };
    let cache = match (job.order, &trace) {
        (AccessPattern::Replay { cache }, Some(trace)) if cache > 0.0 => {
            let units = trace.touched(job.unit) as f64 * cache;
            Some(offset_source::cache(job.unit, units as u64))
        }
        _ => None,
    };
    let threads = match job.reader {
        FileReader::Plain { threads } => threads,
        FileReader::Own { .. } => 1,
        FileReader::Node(readers) => readers.threads(),
    };
    let work = ReadRun {
        job,
        context,
        file: context
            .experiment_state
            .get::<ContentFiles>()
            .get(context, job.place, len)?,
        trace,
        taken: AtomicUsize::new(0),
        cache,
        spared: AtomicU64::new(0),
        tally: ReaderThreads::new(threads),
    };
    let timeline = match job.reader {
        FileReader::Node(readers) => remote_readers::run(&work, &readers)?,
        FileReader::Plain { .. } | FileReader::Own { .. } => local_readers::run(&work)?,
    };
    if context.stop.load(Ordering::Relaxed) {
        return Err(RunError::Interrupted);
    }
    Ok(add_figures(&work, &timeline))
}

/// Returns the bytes of the file that random reads go to: so many that no cache of a processor has
/// them.
fn file_len(context: &RunContext<'_>, place: StorageMedium) -> u64 {
    match (context.scale.effort, place) {
        (Effort::Tiny, _) => 4 << 20,
        (Effort::Full, StorageMedium::Disk) => 4 << 30,
        (Effort::Quick, _) | (Effort::Full, StorageMedium::Memory) => 1 << 30,
    }
}

fn add_figures(work: &ReadRun<'_>, timeline: &ReadTimeline) -> RunSample {
    let mut sample = RunSample::default();
    let values = &mut sample.values;
    let reads = timeline.reads() as f64;
    let seconds = timeline.seconds();
    values.set("iops", reads / seconds);
    values.set("read-rate", reads / seconds * work.job.unit as f64 / 1e6);
    let [client, node] = timeline.cpu();
    values.set("read-cpu", (client + node) / reads * 1e6);
    values.set("reader-cores", client / seconds);
    if matches!(work.job.reader, FileReader::Node(_)) {
        values.set("node-cores", node / seconds);
    }
    if work.trace.is_some() {
        values.set("replay-time", seconds);
    }
    if work.cache.is_some() {
        let spared = work.spared.load(Ordering::Relaxed) as f64;
        values.set("hit-rate", spared / reads);
    }
    sample.timeline = timeline.cores();
    let outcome = work.tally.outcome(timeline.reads());
    sample.checks.push(Check::new(
        "every page is the one that was asked for",
        outcome,
    ));
    if let Some(trace) = &work.trace {
        let name = "the query that was recorded has the right answer";
        sample.checks.push(Check::new(name, trace.answer.clone()));
    }
    sample
}
