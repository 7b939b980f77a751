//! Queries over a table's pages, with their operators here or on the storage node (paper 4, section
//! 4.5).
//!
//! | module | concept |
//! |---|---|
//! | `tpch_query` | the queries as fragments |
//! | `query_answer` | the result, and the expected one |
//! | `query_job` | a query that is measured |
//! | `measured_node` | the storage node: a process of its own, if there is a program for it |
//! | `striped_source` | one reader's pages over several connections |
//! | `testbed` | tables, and the storage node, which the points of a run share |
//! | `execution` | one query, executed |
//! | `planner_costs` | the planner's input: measured before it chooses |
//! | `placement_trial` | a query that the planner places, and the same one in each placement, by turns |
//! | `placement_results` | the results of all points, and how far the planner's choices were from the best |
//!
//! If there is no program for the storage node, it runs in this process; then its processor time
//! cannot be distinguished from the reader's.

mod execution;
mod measured_node;
mod placement_results;
mod placement_trial;
mod planner_costs;
mod query_answer;
mod query_job;
mod striped_source;
mod testbed;
mod tpch_query;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use query_job::{OperatorPlacement, QueryJob, QueryTable, ResultTransport};
pub use tpch_query::{QueryVariant, TpchQuery};

use crate::error::RunError;
use crate::run_context::RunContext;
use crate::sample::{Check, RunSample};
use execution::Execution;
use placement_results::{ComparedQuery, PlacementResults};
use planner_costs::PlannerCosts;
use testbed::Testbed;

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

/// What the points of an experiment share.
#[derive(Default)]
struct PlacementState {
    testbed: Testbed,
    costs: PlannerCosts,
    results: PlacementResults,
}

pub(super) fn run(job: &PlacementJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let state = context.experiment_state.get::<Mutex<PlacementState>>();
    let mut state = state.lock();
    match job {
        PlacementJob::Tally => state.results.tally(),
        PlacementJob::Query(job) => query(job, &mut state, context),
    }
}

fn query(
    job: &QueryJob,
    state: &mut PlacementState,
    context: &RunContext<'_>,
) -> Result<RunSample, RunError> {
    let testbed = &mut state.testbed;
    testbed.prepare(job, context)?;
    let expected = testbed.reference(context).of(job.query, job.data.variant);
    let (execution, note, trial) = match job.placement {
        OperatorPlacement::Auto | OperatorPlacement::AutoAway => {
            let (chosen, why) = planner_costs::choose(job, &mut state.costs, testbed)?;
            let time = context.scale.time;
            let (execution, trial) = placement_trial::run(job, chosen, &expected, time, testbed)?;
            (execution, Some(why), Some(trial))
        }
        _ => {
            execution::warm(job, testbed)?;
            let execution = execution::measured(job, testbed)?;
            (execution, testbed.note(), None)
        }
    };
    let mut sample = RunSample {
        note,
        ..RunSample::default()
    };
    let mut found = execution.answer.clone();
    if context.plant {
        found.spoil();
    }
    let check = Check::new("the answer is that of a plain loop", found.same(&expected));
    let is_right = check.failure.is_none();
    sample.checks.push(check);
    add_figures(job, &execution, testbed, context, &mut sample);
    if let Some(trial) = trial.filter(|_| is_right) {
        let query = ComparedQuery::of(job);
        state.results.note(job.placement, query, &trial);
        if let Some(of_best) = state.results.of_best(job.placement, query) {
            sample.values.set("of-best", of_best);
        }
    }
    Ok(sample)
}

/// Adds the figures of a run.
fn add_figures(
    job: &QueryJob,
    execution: &Execution,
    testbed: &mut Testbed,
    context: &RunContext<'_>,
    sample: &mut RunSample,
) {
    let values = &mut sample.values;
    values.set("query-time", execution.seconds);
    values.set("query-cpu-here", execution.cpu_here);
    values.set("busy-here", execution.cpu_here / execution.seconds);
    if let Some(cpu) = execution.cpu_there {
        values.set("query-cpu-there", cpu);
        values.set("busy-there", cpu / execution.seconds);
    }
    let pages = testbed.pages_of(job);
    values.set("page-rate", pages as f64 / execution.seconds);
    let bytes = pages as f64 * (job.data.page_kib * 1024) as f64;
    values.set("scan-rate", bytes / execution.seconds / 1e6);
    if job.data.variant == QueryVariant::Where {
        let rows = testbed.reference(context).rows;
        values.set(
            "selectivity",
            execution.answer.records() as f64 / rows as f64,
        );
    }
}
