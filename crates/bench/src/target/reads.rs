//! Reads of a file: on this machine, or of a storage node, which is a process of its own (paper 4,
//! sections 4.4.1 to 4.4.5).
//!
//! | reader | reads the file |
//! |---|---|
//! | [`Reader::Plain`] | threads, each in a loop: the paper's local I/O |
//! | [`Reader::Own`] | one thread, in one of the node's ways |
//! | [`Reader::Node`] | a storage node, for connections that have a thread each: the paper's remote I/O |
//!
//! A node that shows memory instead of a file answers at once: this is the limit of the fabric
//! alone.
//!
//! | order | offsets |
//! |---|---|
//! | [`Order::Random`] | random ones, for a time |
//! | [`Order::Counted`] | random ones, as many as a trace has |
//! | [`Order::Replay`] | those of a [trace](crate::replay), perhaps through a cache |
//!
//! The file's content follows from its offsets, and every page is [checked](crate::content) on
//! arrival, from this machine and from a node alike.

mod course;
mod feed;
mod local;
mod remote;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pages::Cache;
use serde::{Deserialize, Serialize};

use crate::experiment::Effort;
use crate::fixture::ContentFile;
use crate::replay::Trace;
use crate::sample::{Check, RunError, Sample};
use crate::storage::{Carrier, Reading};
use crate::target::{Context, Place};
use course::{Course, Tally};
use feed::Feed;

/// Reads of a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadsJob {
    /// The place of the file.
    pub place: Place,
    /// Bytes of a read.
    pub unit: usize,
    /// The reader.
    pub reader: Reader,
    /// The parts that are read.
    pub order: Order,
    /// `true` if the threads of each process share one processor: those of the node, or of local
    /// readers, have the first one, readers of a node the last.
    pub pinned: bool,
}

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reader {
    /// Threads here that do nothing but read.
    Plain {
        /// How many.
        threads: usize,
    },
    /// One of the node's ways, here.
    Own {
        /// Which.
        reading: Reading,
        /// Reads under way.
        depth: usize,
    },
    /// A node.
    Node(Far),
}

/// A node, and its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Far {
    /// How pages travel.
    pub carrier: Carrier,
    /// How the node reads; `None`: it does not read, but shows memory.
    pub reading: Option<Reading>,
    /// Threads of the node that serve connections.
    pub desks: usize,
    /// Connections, each with a thread here.
    pub connections: usize,
    /// Reads under way, of each connection.
    pub depth: usize,
}

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Random, for the scale's time.
    Random,
    /// Random, as many as the trace has.
    Counted,
    /// Those of the trace.
    Replay {
        /// Bytes of the cache, as a part of those that the trace touches; 0: there is none.
        cache: f64,
    },
}

/// The state that the reading threads of a run share.
struct Work<'w> {
    job: &'w ReadsJob,
    context: &'w Context<'w>,
    file: Arc<ContentFile>,
    trace: Option<Arc<Trace>>,
    /// The number of accesses of the trace that were taken.
    taken: AtomicUsize,
    cache: Option<Cache<Box<[u8]>>>,
    /// Reads that the cache had, or that waited for another read of the same unit.
    spared: AtomicU64,
    tally: Tally,
}

pub(super) fn run(job: &ReadsJob, context: &Context<'_>) -> Result<Sample, RunError> {
    let trace = match job.order {
        Order::Random => None,
        Order::Counted | Order::Replay { .. } => Some(context.fixtures.trace(context)?),
    };
    let len = match &trace {
        None => file_len(context, job.place),
        Some(trace) => trace.bytes(),
    };
    let cache = match (job.order, &trace) {
        (Order::Replay { cache }, Some(trace)) if cache > 0.0 => {
            let units = trace.touched(job.unit) as f64 * cache;
            Some(feed::cache(job.unit, units as u64))
        }
        _ => None,
    };
    let threads = match job.reader {
        Reader::Plain { threads } => threads,
        Reader::Own { .. } => 1,
        Reader::Node(far) => far.connections,
    };
    let work = Work {
        job,
        context,
        file: context.fixtures.file(context, job.place, len)?,
        trace,
        taken: AtomicUsize::new(0),
        cache,
        spared: AtomicU64::new(0),
        tally: Tally::new(threads),
    };
    let course = match job.reader {
        Reader::Node(far) => remote::run(&work, &far)?,
        Reader::Plain { .. } | Reader::Own { .. } => local::run(&work)?,
    };
    if context.stop.load(Ordering::Relaxed) {
        return Err(RunError::Interrupted);
    }
    Ok(tell(&work, &course))
}

/// Returns the bytes of the file that random reads go to: so many that no cache of a processor has
/// them.
fn file_len(context: &Context<'_>, place: Place) -> u64 {
    match (context.scale.effort, place) {
        (Effort::Tiny, _) => 4 << 20,
        (Effort::Full, Place::Disk) => 4 << 30,
        (Effort::Quick, _) | (Effort::Full, Place::Memory) => 1 << 30,
    }
}

fn tell(work: &Work<'_>, course: &Course) -> Sample {
    let mut sample = Sample::default();
    let values = &mut sample.values;
    let reads = course.reads() as f64;
    let seconds = course.seconds();
    values.set("iops", reads / seconds);
    values.set("read-rate", reads / seconds * work.job.unit as f64 / 1e6);
    let [client, node] = course.cpu();
    values.set("read-cpu", (client + node) / reads * 1e6);
    values.set("reader-cores", client / seconds);
    if matches!(work.job.reader, Reader::Node(_)) {
        values.set("node-cores", node / seconds);
    }
    if work.trace.is_some() {
        values.set("replay-time", seconds);
    }
    if work.cache.is_some() {
        let spared = work.spared.load(Ordering::Relaxed) as f64;
        values.set("hit-rate", spared / reads);
    }
    sample.course = course.cores();
    let outcome = work.tally.outcome(course.reads());
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

impl Work<'_> {
    /// Returns the offsets of one of the threads.
    fn feed(&self, thread: usize, readable: u64) -> Feed<'_> {
        let seed =
            self.context.seed.wrapping_add(thread as u64) ^ (self.context.number as u64) << 32;
        Feed::new(self, seed, readable.min(self.file.len()))
    }
}
