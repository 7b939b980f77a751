//! Chooses where a query's fragments run.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use operators::estimate::estimate;
use operators::placement::{self, LinkCosts, PageWork, PlacementCosts, SideCosts, choose_with};
use operators::{Fragment, RowRange, TaskError};
use pages::{Address, Table};

use crate::catalogue::{Measured, Place};
use crate::fetch::Candidate;
use crate::meter::PageMeter;
use crate::options::KumikiOptions;
use crate::scan::PagesScan;

pub use operators::Placement;

/// The assumed seconds of a thread for an operation on a row before enough were measured: the result of
/// the executor's benchmark for sums of products.
pub(crate) const OPERATION_S: f64 = 1e-9;

/// The number of a scan's pages that are looked up in caches to estimate the cached part.
const SAMPLED: usize = 256;

/// Where a scan runs, and why.
#[derive(Clone)]
pub struct Placed {
    /// The placement.
    pub placement: Placement,
    /// The reason.
    pub reason: String,
    /// The estimated costs of each placement.
    pub others: Vec<placement::PlacementCandidate>,
    /// Which of the costs were measured, and which are assumed.
    pub basis: Basis,
    candidates: Arc<[Candidate]>,
    meter: Arc<PageMeter>,
}

impl Placed {
    /// Returns the meter of the pages that the scan has read so far.
    #[must_use]
    pub fn meter(&self) -> &Arc<PageMeter> {
        &self.meter
    }

    /// Returns the places where a partition's task may run, the first choice first. Partitions are
    /// spread over replicas.
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
        write!(f, "; {})", self.basis)
    }
}

/// Decides where each scan runs, after all operators have moved into it.
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

/// Decides for a scan. The error says why the requested placement is not possible.
fn place(scan: &PagesScan, wanted: Placement) -> Result<Placed, String> {
    let (table, fragment) = (scan.table(), scan.fragment());
    let rows: Vec<_> = scan.partitions().concat();
    let estimate = estimate(table, &fragment, &rows).map_err(|error| error.to_string())?;
    let known = known(scan, &fragment, &rows).map_err(|error| error.to_string())?;
    let choice = choose_with(wanted, &estimate, &known.costs, &known.page);
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
            "table {name} cannot be read with placement {placement}: no node that has it offers that; use \
             another placement"
        ));
    }
    Ok(Placed {
        placement,
        reason: why(placement).map_or_else(String::new, |candidate| candidate.why.clone()),
        others: choice.candidates.clone(),
        basis: known.basis,
        candidates,
        meter,
    })
}

/// Which costs were measured, and which are assumed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Basis {
    /// The costs that were measured.
    pub measured: Vec<&'static str>,
    /// The other costs.
    pub supposed: Vec<&'static str>,
}

impl Basis {
    fn add(&mut self, what: &'static str, measured: bool) {
        match measured {
            true => self.measured.push(what),
            false => self.supposed.push(what),
        }
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: &[&str]| match all {
            [] => "nothing".to_owned(),
            all => all.join(", "),
        };
        write!(f, "measured: {}; ", list(&self.measured))?;
        write!(f, "supposed: {}", list(&self.supposed))
    }
}

/// What is known of a scan's replicas.
struct Known {
    costs: PlacementCosts,
    page: PageWork,
    basis: Basis,
}

/// Returns the costs of the scan's replicas; of several nodes, those of the fastest.
fn known(scan: &PagesScan, fragment: &Fragment, rows: &[RowRange]) -> Result<Known, TaskError> {
    let threads = scan.partitions().len() as f64;
    let (mut own, mut there) = (
        None::<(f64, Measured)>,
        None::<(SideCosts, LinkCosts, Measured, f64)>,
    );
    let time =
        |side: &SideCosts, link: &LinkCosts| side.page_s.max(link.page_s) * (1.0 + side.load);
    let mut sample = None;
    let mut operation_s = None;
    for replica in &scan.replicated().replicas {
        let store = &replica.store;
        let measured = store.measured();
        operation_s = operation_s.or(measured.operation_s);
        match store.place(&replica.table) {
            Place::Here { page_s } => {
                if own.is_none_or(|(known, _)| page_s < known) {
                    own = Some((page_s, measured));
                }
            }
            Place::There(side, link) => {
                if there.is_some_and(|(s, l, ..)| time(&s, &l) <= time(&side, &link)) {
                    continue;
                }
                let pages = match &sample {
                    Some(pages) => pages,
                    None => sample.insert(sampled(scan.table(), fragment, rows)?),
                };
                there = Some((side, link, measured, store.cached(pages)));
            }
        }
    }
    let mut basis = Basis::default();
    basis.add("work here", operation_s.is_some());
    if let Some((_, measured)) = &own {
        basis.add("pages here", measured.pages);
    }
    if let Some((_, _, measured, _)) = &there {
        basis.add("work there", measured.operation_there_s.is_some());
        basis.add("pages there", measured.pages);
        basis.add("link", measured.link);
    }
    let taken = there.and_then(|(_, _, measured, _)| measured.page_s);
    let own_page = own.and_then(|(_, measured)| measured.page_s);
    let page_there = there.and_then(|(_, _, measured, _)| measured.page_there_s);
    // A page is verified in the same way on each side.
    let any = own_page.or(taken).or(page_there);
    Ok(Known {
        costs: PlacementCosts {
            server: SideCosts {
                page_s: own.map_or(0.0, |(page_s, _)| page_s),
                operation_s: operation_s.unwrap_or(OPERATION_S),
                load: load(),
                threads,
            },
            node: there.map(|(side, link, ..)| (side, link)),
            has_pages: own.is_some(),
        },
        page: PageWork {
            local_page_s: own_page.or(any).unwrap_or(0.0),
            node_page_s: page_there,
            fetched_page_s: taken.or(any).unwrap_or(0.0),
            cached: there.map_or(0.0, |(.., cached)| cached),
            ..PageWork::default()
        },
        basis,
    })
}

/// Returns some of a scan's pages, spread evenly over it.
fn sampled(
    table: &Table,
    fragment: &Fragment,
    rows: &[RowRange],
) -> Result<Vec<Address>, TaskError> {
    let rows = operators::scan::prune(table, fragment, rows)?;
    let pages = operators::scan::pages(table, fragment, &rows)?;
    let step = pages.len().div_ceil(SAMPLED).max(1);
    Ok(pages.into_iter().step_by(step).collect())
}

/// Returns the number of threads that want a processor, for each processor, as the system averages it
/// over a minute; 0 if the system does not report it.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    first.unwrap_or(0.0) / processors as f64
}
