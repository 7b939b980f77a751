//! Where a scan runs, and why.

use std::fmt;
use std::sync::Arc;

use operators::Placement;
use operators::placement;

use crate::fetch::Candidate;
use crate::meter::PageMeter;

/// Where a scan runs, and why.
#[derive(Clone)]
pub struct ScanPlacement {
    /// The placement.
    pub placement: Placement,
    /// The reason.
    pub reason: String,
    /// The estimated costs of each placement.
    pub others: Vec<placement::PlacementCandidate>,
    /// Which of the costs were measured, and which are assumed.
    pub basis: CostBasis,
    pub(crate) candidates: Arc<[Candidate]>,
    pub(crate) meter: Arc<PageMeter>,
}

impl ScanPlacement {
    /// Returns the meter of the pages that the scan has read so far.
    #[must_use]
    pub fn meter(&self) -> &Arc<PageMeter> {
        &self.meter
    }

    /// Returns the sites that may run a partition's task, the first choice first. Partitions are
    /// spread over replicas.
    pub(crate) fn candidates(&self, partition: usize) -> Vec<Candidate> {
        let mut candidates = self.candidates.to_vec();
        let first = partition % candidates.len().max(1);
        candidates.rotate_left(first);
        candidates
    }
}

impl fmt::Debug for ScanPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placed")
            .field("placement", &self.placement)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ScanPlacement {
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

/// Which costs were measured, and which are assumed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CostBasis {
    /// The costs that were measured.
    pub measured: Vec<&'static str>,
    /// The other costs.
    pub supposed: Vec<&'static str>,
}

impl CostBasis {
    pub(crate) fn add(&mut self, what: &'static str, measured: bool) {
        match measured {
            true => self.measured.push(what),
            false => self.supposed.push(what),
        }
    }
}

impl fmt::Display for CostBasis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: &[&str]| match all {
            [] => "nothing".to_owned(),
            all => all.join(", "),
        };
        write!(f, "measured: {}; ", list(&self.measured))?;
        write!(f, "supposed: {}", list(&self.supposed))
    }
}
