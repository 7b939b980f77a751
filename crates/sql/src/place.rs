//! Where a query's fragments run.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use operators::estimate::estimate;
use operators::placement::{self, Costs, Link, Side, choose};

use crate::catalogue::Place;
use crate::fetch::Candidate;
use crate::meter::PageMeter;
use crate::options::KumikiOptions;
use crate::scan::PagesScan;

pub use operators::Placement;

/// Seconds for an operation on a row, by a thread of this machine: what the executor's benchmark shows
/// for sums of products.
pub(crate) const OPERATION_S: f64 = 1e-9;

/// Where a scan runs, and why.
#[derive(Clone)]
pub struct Placed {
    /// The placement.
    pub placement: Placement,
    /// Why this one.
    pub reason: String,
    /// What each placement was estimated to cost.
    pub others: Vec<placement::Candidate>,
    candidates: Arc<[Candidate]>,
    meter: Arc<PageMeter>,
}

impl Placed {
    /// The pages that the scan has read so far.
    #[must_use]
    pub fn meter(&self) -> &Arc<PageMeter> {
        &self.meter
    }

    /// The places where a partition's task may run, the first choice first. Partitions are spread over
    /// replicas.
    pub(crate) fn candidates(&self, partition: usize) -> Vec<Candidate> {
        let mut candidates = self.candidates.to_vec();
        let first = partition % candidates.len().max(1);
        candidates.rotate_left(first);
        candidates
    }
}

impl fmt::Debug for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placed")
            .field("placement", &self.placement)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.candidates.iter().map(|c| c.name.as_str()).collect();
        let (placement, reason) = (self.placement, &self.reason);
        write!(
            f,
            "placement={placement} on [{}] ({reason}",
            nodes.join(", ")
        )?;
        let others = self
            .others
            .iter()
            .filter(|other| other.placement != placement);
        for other in others.filter(|other| other.seconds.is_some()) {
            write!(f, "; not {other}")?;
        }
        f.write_str(")")
    }
}

/// Decides where each scan runs, when all that it does has moved into it.
#[derive(Debug)]
pub struct PlaceScans;

impl PhysicalOptimizerRule for PlaceScans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let wanted = KumikiOptions::of(config).wanted();
        let wanted = wanted.map_err(DataFusionError::Configuration)?;
        plan.transform_up(|plan| match plan.downcast_ref::<PagesScan>() {
            Some(scan) if scan.placed().is_none() => {
                let placed = place(scan, wanted).map_err(DataFusionError::Plan)?;
                Ok(Transformed::yes(Arc::new(scan.placed_at(placed)) as _))
            }
            _ => Ok(Transformed::no(plan)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "PlaceScans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Decides for a scan; the error says why it cannot be as it is wanted.
fn place(scan: &PagesScan, wanted: Placement) -> Result<Placed, String> {
    let (table, fragment) = (scan.table(), scan.fragment());
    let rows: Vec<_> = scan.partitions().concat();
    let estimate = estimate(table, &fragment, &rows).map_err(|error| error.to_string())?;
    let choice = choose(wanted, &estimate, &costs(scan));
    let why = |placement| {
        let mut candidates = choice.candidates.iter();
        candidates.find(|candidate| candidate.placement == placement)
    };
    let name = &table.name;
    let Some(placement) = choice.chosen else {
        let all: Vec<_> = choice.candidates.iter().map(ToString::to_string).collect();
        return Err(format!(
            "table {name} cannot be read with placement {wanted}: {}; use placement auto",
            all.join("; ")
        ));
    };
    let meter = Arc::new(PageMeter::default());
    let replicas = scan.replicated().replicas.iter();
    let candidates: Arc<[Candidate]> = replicas
        .filter_map(|replica| {
            let name = replica.name().to_owned();
            let site = replica.store.site(&replica.table, placement, &meter)?;
            Some(Candidate { name, site })
        })
        .collect();
    if candidates.is_empty() {
        return Err(format!(
            "table {name} cannot be read with placement {placement}: nobody who has it offers that; use \
             another placement"
        ));
    }
    Ok(Placed {
        placement,
        reason: why(placement).map_or_else(String::new, |candidate| candidate.why.clone()),
        others: choice.candidates.clone(),
        candidates,
        meter,
    })
}

/// What the scan's replicas cost, of several nodes the quickest.
fn costs(scan: &PagesScan) -> Costs {
    let threads = scan.partitions().len() as f64;
    let replicas = scan.replicated().replicas.iter();
    let places: Vec<Place> = replicas
        .map(|replica| replica.store.place(&replica.table))
        .collect();
    let own = places.iter().filter_map(|place| match place {
        Place::Here { page_s } => Some(*page_s),
        Place::There(..) => None,
    });
    let own = own.min_by(f64::total_cmp);
    let nodes = places.iter().filter_map(|place| match place {
        Place::Here { .. } => None,
        Place::There(side, link) => Some((*side, *link)),
    });
    let time = |(side, link): &(Side, Link)| side.page_s.max(link.page_s) * (1.0 + side.load);
    Costs {
        here: Side {
            page_s: own.unwrap_or(0.0),
            operation_s: OPERATION_S,
            load: load(),
            threads,
        },
        there: nodes.min_by(|a, b| time(a).total_cmp(&time(b))),
        has_pages: own.is_some(),
    }
}

/// Threads that want a processor, for each processor, as the system averages them over a minute; 0 where
/// it does not say.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    first.unwrap_or(0.0) / processors as f64
}
