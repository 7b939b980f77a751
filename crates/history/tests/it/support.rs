//! Sources of histories: a short notation, and simulated stores with faults that can be chosen.

pub(crate) mod notation;
pub(crate) mod ramp;
pub(crate) mod simulation;

use kumiki_history::{Verdict, Violation};

/// Returns the violation that a verdict reports.
pub(crate) fn violation(verdict: Verdict) -> Violation {
    match verdict {
        Verdict::Violated(violation) => violation,
        other => panic!("{other}"),
    }
}
