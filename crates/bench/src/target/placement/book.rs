//! What all points of a run have told, and how far the planner's choices were from the best.

use std::collections::BTreeMap;

use super::{Data, Query, QueryJob, Road, Way};
use crate::sample::{Check, RunError, Sample};

/// The page size at which placements should hardly differ.
const LARGE_KIB: usize = 128;
/// How far from the best is close to it.
const CLOSE: f64 = 1.1;

/// Queries that differ in their placement alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    data: Data,
    query: Query,
    road: Road,
    threads: usize,
    connections: usize,
    io_threads: Option<usize>,
    pinned: bool,
}

impl Cell {
    pub(super) fn of(job: &QueryJob) -> Cell {
        Cell {
            data: job.data,
            query: job.query,
            road: job.road,
            threads: job.threads,
            connections: job.connections,
            io_threads: job.io_threads,
            pinned: job.pinned,
        }
    }

    /// The one of queries that do not leave this machine.
    fn near(self) -> Cell {
        Cell {
            road: Road::None,
            ..self
        }
    }
}

/// Seconds that queries took.
#[derive(Debug, Default)]
pub(super) struct Book {
    times: BTreeMap<(Cell, Way), Vec<f64>>,
    /// What the planner has chosen last.
    chosen: BTreeMap<(Cell, Way), Way>,
}

impl Book {
    /// Takes note of a query that was to run in a way, and ran in this one.
    pub(super) fn note(&mut self, way: Way, cell: Cell, seconds: f64, ran: Way) {
        self.times.entry((cell, way)).or_default().push(seconds);
        if way != ran {
            self.chosen.insert((cell, way), ran);
        }
    }

    fn median(&self, cell: Cell, way: Way) -> Option<f64> {
        let cell = match way {
            Way::Local => cell.near(),
            _ => cell,
        };
        let mut times = self.times.get(&(cell, way))?.clone();
        times.sort_by(f64::total_cmp);
        let (low, high) = (times[(times.len() - 1) / 2], times[times.len() / 2]);
        Some(f64::midpoint(low, high))
    }

    /// The times of the placements among which the planner has chosen; none if one is not known.
    fn candidates(&self, cell: Cell, way: Way) -> Option<Vec<f64>> {
        let ways: &[Way] = match way {
            Way::Auto => &[Way::Local, Way::RemoteLocal, Way::RemoteRemote],
            Way::AutoAway => &[Way::RemoteLocal, Way::RemoteRemote],
            _ => return None,
        };
        ways.iter().map(|&way| self.median(cell, way)).collect()
    }

    /// How long the planner's queries take, by those of the best placement.
    pub(super) fn of_best(&self, way: Way, cell: Cell) -> Option<f64> {
        let candidates = self.candidates(cell, way)?;
        let best = candidates.into_iter().min_by(f64::total_cmp)?;
        Some(self.median(cell, way)? / best)
    }

    /// How long queries take in the way that was chosen, by those of the best placement.
    fn choice_of_best(&self, way: Way, cell: Cell) -> Option<f64> {
        let candidates = self.candidates(cell, way)?;
        let best = candidates.into_iter().min_by(f64::total_cmp)?;
        Some(self.median(cell, *self.chosen.get(&(cell, way))?)? / best)
    }

    /// Sums up.
    pub(super) fn tally(&self) -> Result<Sample, RunError> {
        let planned: Vec<(Cell, Way)> = self.chosen.keys().copied().collect();
        let of = |ratio: &dyn Fn(Way, Cell) -> Option<f64>| -> Vec<f64> {
            let ratios = planned.iter().map(|&(cell, way)| ratio(way, cell));
            ratios.flatten().collect()
        };
        let ran = of(&|way, cell| self.of_best(way, cell));
        let chosen = of(&|way, cell| self.choice_of_best(way, cell));
        let mut spreads: Vec<f64> = planned
            .iter()
            .filter(|(cell, way)| *way == Way::Auto && cell.data.page_kib == LARGE_KIB)
            .filter_map(|&(cell, way)| self.candidates(cell, way))
            .map(|times| {
                let greatest = times.iter().copied().fold(0.0, f64::max);
                greatest / times.into_iter().fold(f64::INFINITY, f64::min)
            })
            .collect();
        if ran.is_empty() {
            let what = "no query was run in all placements before".to_owned();
            return Err(RunError::Skipped(what));
        }
        let share = |ratios: &[f64]| {
            let close = ratios.iter().filter(|&&ratio| ratio <= CLOSE).count();
            close as f64 / ratios.len() as f64
        };
        // Points whose answer was wrong are not in the book: a share of the rest would tell nothing.
        let all = match planned.len() - ran.len() {
            0 => Ok(()),
            missing => Err(format!(
                "{missing} of {} choices have no times of all placements beside them",
                planned.len()
            )),
        };
        let mut sample = Sample::default();
        let check = Check::new("all choices stand beside all placements", all);
        sample.checks.push(check);
        sample.values.set("near-best", share(&ran));
        sample.values.set("well-chosen", share(&chosen));
        spreads.sort_by(f64::total_cmp);
        if let (Some(&most), Some(&median)) = (spreads.last(), spreads.get(spreads.len() / 2)) {
            sample.values.set("spread", median);
            sample.values.set("spread-most", most);
        }
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Place;
    use crate::target::placement::Variant;

    fn cell(page_kib: usize) -> Cell {
        Cell {
            data: Data {
                place: Place::Disk,
                variant: Variant::Full,
                page_kib,
            },
            query: Query::Q6,
            road: Road::Shm,
            threads: 1,
            connections: 1,
            io_threads: None,
            pinned: false,
        }
    }

    #[test]
    fn choices_are_compared_with_the_best() {
        let mut book = Book::default();
        assert!(book.tally().is_err());
        let (cell, other) = (cell(LARGE_KIB), cell(4));
        for cell in [cell, other] {
            for (way, seconds) in [(Way::RemoteLocal, 1.2), (Way::RemoteRemote, 1.0)] {
                for seconds in [0.5 * seconds, seconds, 9.0] {
                    book.note(way, cell, seconds, way);
                }
            }
            book.note(Way::Local, cell.near(), 2.0, Way::Local);
        }
        book.note(Way::Auto, cell, 1.05, Way::RemoteRemote);
        book.note(Way::Auto, other, 1.3, Way::RemoteLocal);
        book.note(Way::AutoAway, cell, 1.5, Way::RemoteRemote);
        assert_eq!(book.of_best(Way::Auto, other), Some(1.3));
        let told = book.tally().expect("a tally").values;
        assert_eq!(told.get("near-best"), Some(1.0 / 3.0));
        assert_eq!(told.get("well-chosen"), Some(2.0 / 3.0));
        assert_eq!(told.get("spread"), Some(2.0));
    }
}
