//! Where a query's fragments run.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::catalogue::Replica;
use crate::fetch::Candidate;
use crate::meter::PageMeter;
use crate::options::KumikiOptions;
use crate::scan::PagesScan;

/// Where pages are and where the operator runs (paper 4, section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// Pages of this machine, operators of this machine.
    Local,
    /// Pages come over the network, operators run here.
    RemoteLocal,
    /// Operators run where the pages are, and only results come.
    RemoteRemote,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Local => "local",
            Placement::RemoteLocal => "remote-local",
            Placement::RemoteRemote => "remote-remote",
        })
    }
}

/// What somebody wants of the placement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Wish {
    /// Whichever is estimated to be the fastest, for each scan.
    #[default]
    Auto,
    /// This one; a query over tables that it cannot reach is an error.
    Always(Placement),
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::Auto => f.write_str("auto"),
            Wish::Always(placement) => placement.fmt(f),
        }
    }
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Wish, String> {
        Ok(match text {
            "auto" => Wish::Auto,
            "local" => Wish::Always(Placement::Local),
            "remote-local" => Wish::Always(Placement::RemoteLocal),
            "remote-remote" => Wish::Always(Placement::RemoteRemote),
            other => {
                return Err(format!(
                    "'{other}' is no placement: auto, local, remote-local and remote-remote are"
                ));
            }
        })
    }
}

/// Where a scan runs, and why.
#[derive(Clone)]
pub struct Placed {
    /// The placement.
    pub placement: Placement,
    /// Why this one.
    pub reason: String,
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
            "placement={placement} on [{}] ({reason})",
            nodes.join(", ")
        )
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
        let wish = KumikiOptions::of(config).wish();
        let wish = wish.map_err(DataFusionError::Configuration)?;
        plan.transform_up(|plan| match plan.downcast_ref::<PagesScan>() {
            Some(scan) if scan.placed().is_none() => {
                let placed = place(scan, wish).map_err(DataFusionError::Plan)?;
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

/// Decides for a scan; the error says why a wish cannot be granted.
fn place(scan: &PagesScan, wish: Wish) -> Result<Placed, String> {
    let (placement, reason) = match wish {
        Wish::Always(placement) => (placement, "as asked for".to_owned()),
        Wish::Auto => automatic(scan),
    };
    let replicas = &scan.replicated().replicas;
    let meter = Arc::new(PageMeter::default());
    let candidates: Arc<[Candidate]> = replicas
        .iter()
        .filter_map(|replica| {
            let name = replica.name().to_owned();
            let site = replica.store.site(&replica.table, placement, &meter)?;
            Some(Candidate { name, site })
        })
        .collect();
    if candidates.is_empty() {
        let names: Vec<_> = replicas.iter().map(Replica::name).collect();
        return Err(format!(
            "table {} cannot be read with placement {placement}: it is on {}; use placement auto",
            scan.table().name,
            names.join(", ")
        ));
    }
    Ok(Placed {
        placement,
        reason,
        candidates,
        meter,
    })
}

fn automatic(scan: &PagesScan) -> (Placement, String) {
    let replicas = &scan.replicated().replicas;
    if replicas.iter().any(|replica| !replica.store.is_remote()) {
        return (Placement::Local, "its pages are on this machine".to_owned());
    }
    (
        Placement::RemoteRemote,
        "its pages are on other machines alone".to_owned(),
    )
}
