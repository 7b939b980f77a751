//! The data of an item of the index, and how it is written.

use std::fmt;

use crate::experiment::Experiment;
use crate::experiments;

/// A paper, and what it shows.
pub struct Paper {
    /// Its number in ARCHITECTURE.md.
    pub number: u8,
    /// Its subject.
    pub subject: &'static str,
    /// Its figures and tables that show measurements.
    pub items: &'static [PaperItem],
}

/// A figure or table of a paper that shows a measurement.
pub struct PaperItem {
    /// Its kind.
    pub kind: PaperItemKind,
    /// Its number in the paper.
    pub number: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The paper's values that are known, from its text or from points that its authors published;
    /// empty if its curves are only drawn.
    pub known: &'static str,
    /// What follows it.
    pub state: PaperItemState,
}

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PaperItemKind {
    /// A figure.
    Figure,
    /// A table.
    Table,
}

/// What follows an item.
pub enum PaperItemState {
    /// Something follows it: what, and what is different.
    Followed(&'static [IndexedPlots], &'static str),
    /// Something follows it in part: what, and what is different or missing.
    InPart(&'static [IndexedPlots], &'static str),
    /// Nothing does, for this reason.
    NotReproduced(&'static str),
}

/// Plots of an experiment that follow an item.
pub struct IndexedPlots {
    /// The experiment.
    pub experiment: &'static str,
    /// The titles of its plots; none: its tables.
    pub titles: &'static [&'static str],
}

impl PaperItem {
    /// Returns what follows it.
    #[must_use]
    pub fn sources(&self) -> &'static [IndexedPlots] {
        match self.state {
            PaperItemState::Followed(sources, _) | PaperItemState::InPart(sources, _) => sources,
            PaperItemState::NotReproduced(_) => &[],
        }
    }
}

impl fmt::Display for PaperItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PaperItemKind::Figure => "figure",
            PaperItemKind::Table => "table",
        };
        write!(f, "{kind} {}", self.number)
    }
}

impl Paper {
    /// Returns the experiments that follow its figures and tables, in the order of all experiments.
    #[must_use]
    pub fn experiments(&self) -> Vec<&'static Experiment> {
        let follows = |experiment: &&Experiment| {
            let sources = self.items.iter().flat_map(PaperItem::sources);
            let mut names = sources.map(|source| source.experiment);
            names.any(|name| name == experiment.name)
        };
        experiments::ALL.iter().filter(follows).collect()
    }
}

pub(super) const fn figure(
    number: &'static str,
    title: &'static str,
    known: &'static str,
    state: PaperItemState,
) -> PaperItem {
    PaperItem {
        kind: PaperItemKind::Figure,
        number,
        title,
        known,
        state,
    }
}

pub(super) const fn table(
    number: &'static str,
    title: &'static str,
    known: &'static str,
    state: PaperItemState,
) -> PaperItem {
    PaperItem {
        kind: PaperItemKind::Table,
        number,
        title,
        known,
        state,
    }
}

pub(super) const fn plots(
    experiment: &'static str,
    titles: &'static [&'static str],
) -> IndexedPlots {
    IndexedPlots { experiment, titles }
}
