//! The planner's input: costs that are measured over the same table, by other fragments than the
//! queries.
//!
//! | probe | where | tells |
//! |---|---|---|
//! | rows are counted, of one column's pages | everywhere | a page's time, and its time of the processors |
//! | a condition that half of the rows fulfil, and work on these | here | an operation's time |
//! | all rows come out | here and on the node | a byte's time on the link |
//! | the node is asked how busy it is | | a round trip |

use std::collections::HashMap;
use std::time::Instant;

use operators::placement::{LinkCosts, PageWork, PlacementCosts, SideCosts, choose_with};
use operators::{Fragment, Placement, RowRange, estimate};

use super::execution::{self, ProbeCosts};
use super::query_job::{OperatorPlacement, QueryJob, QueryTable, ResultTransport};
use super::testbed::Testbed;
use super::tpch_query;
use crate::error::RunError;

/// The most bytes of pages that probes read.
const PROBED: u64 = 64 << 20;
/// How often each probe runs.
const PROBES: usize = 3;
/// How often a round trip is timed.
const ROUND_TRIPS: usize = 16;

/// What was measured before.
pub(super) type PlannerCosts = HashMap<CostKey, MeasuredCosts>;

/// The configuration for which costs were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CostKey {
    data: QueryTable,
    transport: ResultTransport,
    threads: usize,
    pinned: bool,
}

/// The measured costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredCosts {
    costs: PlacementCosts,
    page: PageWork,
}

/// Returns the placement that the planner chooses for a job, and why.
pub(super) fn choose(
    job: &QueryJob,
    known: &mut PlannerCosts,
    testbed: &mut Testbed,
) -> Result<(OperatorPlacement, String), RunError> {
    let key = CostKey {
        data: job.data,
        transport: job.transport,
        threads: job.threads,
        pinned: job.pinned,
    };
    let measured = match known.get(&key) {
        Some(measured) => *measured,
        None => {
            let measured = measure(job, testbed)?;
            known.insert(key, measured);
            measured
        }
    };
    let costs = PlacementCosts {
        has_pages: job.placement == OperatorPlacement::Auto,
        ..measured.costs
    };
    let table = testbed.table();
    let fragment = tpch_query::fragment(job.query, job.data.variant);
    let estimate = estimate::estimate(table, &fragment, &operators::scan::all(table));
    let estimate = estimate.map_err(RunError::of)?;
    let choice = choose_with(Placement::Auto, &estimate, &costs, &measured.page);
    let all: Vec<String> = choice.candidates.iter().map(ToString::to_string).collect();
    let placement = match choice.chosen {
        Some(Placement::Local) => OperatorPlacement::Local,
        Some(Placement::RemoteLocal) => OperatorPlacement::RemoteLocal,
        Some(Placement::RemoteRemote) => OperatorPlacement::RemoteRemote,
        _ => {
            return Err(RunError::Failed(format!(
                "no placement is possible: {}",
                all.join("; ")
            )));
        }
    };
    Ok((
        placement,
        format!("chosen: {}; {}", placement.name(), all.join("; ")),
    ))
}

fn measure(job: &QueryJob, testbed: &mut Testbed) -> Result<MeasuredCosts, RunError> {
    let placement = |placement| QueryJob { placement, ..*job };
    let (local, far, there) = (
        placement(OperatorPlacement::Local),
        placement(OperatorPlacement::RemoteLocal),
        placement(OperatorPlacement::RemoteRemote),
    );
    let counting = tpch_query::counting();
    let [own, taken, counted] = probes([&local, &far, &there], testbed, &counting)?;
    let [work] = probes([&local], testbed, &tpch_query::working(job.data.variant))?;
    let everything = tpch_query::everything(job.data.variant);
    let all = probes([&local, &there], testbed, &everything)?;
    let threads = job.threads as f64;
    let side = |page_s: f64, operation_s: f64| SideCosts {
        page_s,
        operation_s,
        load: 0.0,
        threads,
    };
    let own_s = own.page(own.took.1);
    // Of the processor alone: a thread that waits for pages does no operations.
    let busy = work.took.1 - work.estimate.pages as f64 * own_s;
    let operation_s = (busy / work.estimate.all_operations()).max(1e-11);
    let byte_s = (all[1].took.0 - all[0].took.0) / all[0].estimate.result_bytes as f64;
    let link = LinkCosts {
        round_trip_s: round_trip(job, testbed)?,
        page_s: taken.page(taken.took.0),
        byte_s: byte_s.max(0.0),
    };
    let shared = std::thread::available_parallelism().map_or(1.0, |all| all.get() as f64);
    Ok(MeasuredCosts {
        costs: PlacementCosts {
            server: side(own.page(own.took.0), operation_s),
            node: Some((side(counted.page(counted.took.0), operation_s), link)),
            has_pages: true,
        },
        page: PageWork {
            local_page_s: own_s,
            node_page_s: None,
            cached: 0.0,
            fetched_page_s: taken.page(taken.took.1),
            served_page_s: taken.page(taken.took.2.unwrap_or(0.0)),
            shared: Some(shared),
        },
    })
}

/// A probe, its estimate, and its results.
struct MeasuredProbe {
    estimate: operators::Estimate,
    took: ProbeCosts,
}

impl MeasuredProbe {
    /// Returns the seconds of a page, given those of the probe.
    fn page(&self, seconds: f64) -> f64 {
        seconds / self.estimate.pages.max(1) as f64
    }
}

/// Runs a fragment in several placements, by turns, so that the drift of a disk's speed affects all
/// of them; the median run of each counts.
fn probes<const N: usize>(
    jobs: [&QueryJob; N],
    testbed: &mut Testbed,
    fragment: &Fragment,
) -> Result<[MeasuredProbe; N], RunError> {
    let parts = jobs.map(|job| job.connections.max(job.threads)).into_iter();
    let rows = probed(testbed, parts.max().unwrap_or(1));
    let estimate = estimate::estimate(testbed.table(), fragment, &rows.concat());
    let estimate = estimate.map_err(RunError::of)?;
    let mut took: [Vec<ProbeCosts>; N] = std::array::from_fn(|_| Vec::new());
    // The first turn is for caches and connections.
    for turn in 0..=PROBES {
        for (job, took) in jobs.iter().zip(&mut took) {
            let ran = execution::probe(job, testbed, fragment, &rows)?;
            if turn > 0 {
                took.push(ran);
            }
        }
    }
    Ok(took.map(|mut took| {
        took.sort_by(|a, b| a.0.total_cmp(&b.0));
        MeasuredProbe {
            estimate,
            took: took[PROBES / 2],
        }
    }))
}

/// Returns the rows of the table's beginning, in so many parts.
fn probed(testbed: &Testbed, parts: usize) -> Vec<Vec<RowRange>> {
    let table = testbed.table();
    let segment = &table.segments[0];
    let bytes = u64::from(segment.pages) * table.page_size.bytes() as u64;
    let rows = (segment.rows as f64 * (PROBED as f64 / bytes as f64).min(1.0)) as u64;
    let part = rows.div_ceil(parts as u64).max(1);
    let range = |from: u64| {
        vec![RowRange {
            segment: segment.id,
            from,
            to: (from + part).min(rows),
        }]
    };
    (0..rows).step_by(part as usize).map(range).collect()
}

/// Returns the quickest of some round trips, in seconds.
fn round_trip(job: &QueryJob, testbed: &mut Testbed) -> Result<f64, RunError> {
    let node = testbed.node(job.transport);
    let mut best = f64::INFINITY;
    for _ in 0..ROUND_TRIPS {
        let begun = Instant::now();
        node.status().map_err(RunError::of)?;
        best = best.min(begun.elapsed().as_secs_f64());
    }
    Ok(best)
}
