//! The index of the papers: every figure and table of the five papers that shows a measurement, and
//! what follows it here.
//!
//! It is the only place that says which experiment follows which figure. The report begins with it,
//! `kumiki-bench paper N` runs what it names, and tests hold the experiments' own texts and
//! docs/benchmarks.md against it. Titles are in our words.
//!
//! | word | meaning |
//! |---|---|
//! | followed | the same axes, the same compared systems and the same load, on this machine |
//! | in part | fewer values on an axis, another axis, or a compared system that is not the paper's |
//! | not reproduced | nothing here shows it |
//!
//! Invariants:
//! 1. A named plot is one of its experiment, by its title.
//! 2. Items stand in the order of the papers.

mod item;
mod paper_1;
mod paper_2;
mod paper_3;
mod paper_4;
mod paper_5;

pub use item::{IndexedPlots, Paper, PaperItem, PaperItemKind, PaperItemState};

/// All papers.
pub const PAPERS: [Paper; 5] = [
    paper_1::PAPER,
    paper_2::PAPER,
    paper_3::PAPER,
    paper_4::PAPER,
    paper_5::PAPER,
];

#[cfg(test)]
mod tests;
