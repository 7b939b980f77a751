//! A paper's values as marks and lines of a figure.

use super::chart::{Dot, Origin, Series};
use super::labels::{Legend, exactly};
use crate::metric;
use crate::plot::{PaperCurve, PaperMark, Plot};

/// A paper's value is drawn if it is at most so many times the greatest of ours.
const NEAR: f64 = 4.0;

/// Returns the paper's values that are drawn as lines: all of them if they are near enough to ours,
/// otherwise none, because some alone would mislead.
pub(super) fn marks(plot: &Plot, most: f64) -> Vec<(f64, String)> {
    let line = |mark: &PaperMark| match *mark {
        PaperMark::Line { value, label } => {
            Some((value, format!("{label}: {}", metric::tick(value))))
        }
        PaperMark::Bar { .. } | PaperMark::Curve(_) => None,
    };
    let lines: Vec<(f64, String)> = plot.paper.iter().filter_map(line).collect();
    if lines.iter().all(|(value, _)| *value <= most * NEAR) {
        lines
    } else {
        Vec::new()
    }
}

/// Returns the lines through points that a paper's authors have published.
pub(super) fn published(plot: &Plot, legend: &mut Legend) -> Vec<Series> {
    let line = |curve: &PaperCurve| Series {
        colour: legend.colour_like(&curve.name, &curve.like, false),
        origin: Origin::Published,
        dots: curve
            .points
            .iter()
            .map(|&(x, y)| Dot {
                x: exactly(x),
                y: exactly(y),
                label: String::new(),
                is_extrapolated: false,
                tip: format!("{}\n{}", curve.name, metric::show(y)),
            })
            .collect(),
    };
    let curves = plot.paper.iter().filter_map(|mark| match mark {
        PaperMark::Curve(curve) => Some(curve),
        PaperMark::Line { .. } | PaperMark::Bar { .. } => None,
    });
    curves.map(line).collect()
}
