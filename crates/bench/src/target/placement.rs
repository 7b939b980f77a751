//! Queries over a table's pages, with their operators here or on the storage node (paper 4, section
//! 4.5).
//!
//! | part | concept |
//! |---|---|
//! | `query` | the queries as fragments |
//! | `answer` | the result, and the expected one |
//! | `stage` | tables, and the storage node, which the points of a run share |
//! | `host` | the storage node: a process of its own, if there is a program for it |
//! | `spread` | one reader's pages over several connections |
//! | `run` | one query, executed |
//! | `costs` | the planner's input: measured before it chooses |
//! | `contest` | a query that the planner places, and the same one in each placement, by turns |
//! | `book` | the results of all points, and how far the planner's choices were from the best |
//!
//! If there is no program for the storage node, it runs in this process; then its processor time
//! cannot be distinguished from the reader's.

mod answer;
mod book;
mod contest;
mod costs;
mod host;
mod query;
mod run;
mod spread;
mod stage;

use serde::{Deserialize, Serialize};

pub use query::{Query, Variant};
pub use stage::Stages;

use super::{Context, Place};
use crate::sample::{Check, RunError, Sample};
use book::Cell;
use run::Ran;

/// Where operators run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Here, over pages of this machine's own.
    Local,
    /// Here, over the storage node's pages.
    RemoteLocal,
    /// On the storage node.
    RemoteRemote,
    /// Where the planner chooses, among all placements.
    Auto,
    /// Where the planner chooses, if this machine has no pages of its own.
    AutoAway,
}

impl Way {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Local => "local",
            Way::RemoteLocal => "remote-local",
            Way::RemoteRemote => "remote-remote",
            Way::Auto => "auto",
            Way::AutoAway => "auto-away",
        }
    }
}

/// How pages and results travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Road {
    /// They do not.
    None,
    /// Memory that processes share.
    Shm,
    /// TCP on loopback.
    Tcp,
}

impl Road {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Road::None => "none",
            Road::Shm => "shm",
            Road::Tcp => "tcp",
        }
    }
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Data {
    /// The place of the table.
    pub place: Place,
    /// The variant of queries on it, which determines its layout.
    pub variant: Variant,
    /// KiB of a page.
    pub page_kib: usize,
}

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueryJob {
    /// The query.
    pub query: Query,
    /// Its table.
    pub data: Data,
    /// Where operators run.
    pub way: Way,
    /// How pages and results travel.
    pub road: Road,
    /// Threads that work: here, or with [`Way::RemoteRemote`] on the node.
    pub threads: usize,
    /// Connections to the node, at least one for each thread. With [`Way::RemoteRemote`] each has a
    /// part of the query.
    pub connections: usize,
    /// Threads that read pages, wherever that is done; none: pages are read in the way that suits the
    /// device.
    pub io_threads: Option<usize>,
    /// `true` if the node runs on the first processor, and the threads of this process on the last
    /// one.
    pub pinned: bool,
}

/// Queries over pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementJob {
    /// A query.
    Query(QueryJob),
    /// How far the planner's choices were from the best placements, and placements from each other,
    /// in all measured points.
    Tally,
}

pub(super) fn run(job: &PlacementJob, context: &Context<'_>) -> Result<Sample, RunError> {
    let mut stage = context.stages.lock();
    match job {
        PlacementJob::Tally => stage.book.tally(),
        PlacementJob::Query(job) => query(job, &mut stage, context),
    }
}

fn query(
    job: &QueryJob,
    stage: &mut stage::Stage,
    context: &Context<'_>,
) -> Result<Sample, RunError> {
    let failed = |what: String| RunError::Failed(what);
    stage.prepare(job, context)?;
    let expected = stage.reference(context).of(job.query, job.data.variant);
    let (ran, note, contest) = match job.way {
        Way::Auto | Way::AutoAway => {
            let (chosen, why) = costs::choose(job, stage).map_err(failed)?;
            let time = context.scale.time;
            let ran = contest::run(job, chosen, &expected, time, stage);
            let (ran, contest) = ran.map_err(failed)?;
            (ran, Some(why), Some(contest))
        }
        _ => {
            stage.warm(job).map_err(failed)?;
            let ran = run::measured(job, stage).map_err(failed)?;
            (ran, stage.note(), None)
        }
    };
    let mut sample = Sample {
        note,
        ..Sample::default()
    };
    let mut found = ran.answer.clone();
    if context.plant {
        found.spoil();
    }
    let check = Check::new("the answer is that of a plain loop", found.same(&expected));
    let is_right = check.failure.is_none();
    sample.checks.push(check);
    tell(job, &ran, stage, context, &mut sample);
    if let Some(contest) = contest.filter(|_| is_right) {
        let cell = Cell::of(job);
        stage.book.note(job.way, cell, &contest);
        if let Some(of_best) = stage.book.of_best(job.way, cell) {
            sample.values.set("of-best", of_best);
        }
    }
    Ok(sample)
}

/// Adds the figures of a run.
fn tell(
    job: &QueryJob,
    ran: &Ran,
    stage: &mut stage::Stage,
    context: &Context<'_>,
    sample: &mut Sample,
) {
    let values = &mut sample.values;
    values.set("query-time", ran.seconds);
    values.set("query-cpu-here", ran.cpu_here);
    values.set("busy-here", ran.cpu_here / ran.seconds);
    if let Some(cpu) = ran.cpu_there {
        values.set("query-cpu-there", cpu);
        values.set("busy-there", cpu / ran.seconds);
    }
    let pages = stage.pages_of(job);
    values.set("page-rate", pages as f64 / ran.seconds);
    let bytes = pages as f64 * (job.data.page_kib * 1024) as f64;
    values.set("scan-rate", bytes / ran.seconds / 1e6);
    if job.data.variant == Variant::Where {
        let rows = stage.reference(context).rows;
        values.set("selectivity", ran.answer.records() as f64 / rows as f64);
    }
}
