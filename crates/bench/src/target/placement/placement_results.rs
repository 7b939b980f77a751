//! The results of all points of a run, and how far the planner's choices were from the best.

use std::collections::BTreeMap;

use super::placement_trial::{PlacementTrial, candidates};
use super::query_job::{OperatorPlacement, QueryJob, QueryTable, ResultTransport};
use super::tpch_query::TpchQuery;
use crate::error::RunError;
use crate::sample::{Check, RunSample};
use crate::statistics::median;

/// The page size at which placements should hardly differ.
const LARGE_KIB: usize = 128;
/// How far from the best is close to it.
const CLOSE: f64 = 1.1;

/// Queries that differ in their placement alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ComparedQuery {
    data: QueryTable,
    query: TpchQuery,
    transport: ResultTransport,
    threads: usize,
    connections: usize,
    io_threads: Option<usize>,
    pinned: bool,
}

impl ComparedQuery {
    pub(super) fn of(job: &QueryJob) -> ComparedQuery {
        ComparedQuery {
            data: job.data,
            query: job.query,
            transport: job.transport,
            threads: job.threads,
            connections: job.connections,
            io_threads: job.io_threads,
            pinned: job.pinned,
        }
    }
}

/// Seconds that queries took.
#[derive(Debug, Default)]
pub(super) struct PlacementResults(BTreeMap<(ComparedQuery, OperatorPlacement), PlacementTimes>);

/// The times of a query that the planner places, and of the same one in each placement, turn by
/// turn.
#[derive(Debug, Default)]
struct PlacementTimes {
    planned: Vec<f64>,
    placed: BTreeMap<OperatorPlacement, Vec<f64>>,
    /// The planner's last choice.
    chosen: Option<OperatorPlacement>,
}

impl PlacementResults {
    /// Adds the turns of a query that runs in a way.
    pub(super) fn note(
        &mut self,
        placement: OperatorPlacement,
        query: ComparedQuery,
        trial: &PlacementTrial,
    ) {
        let times = self.0.entry((query, placement)).or_default();
        times.planned.extend_from_slice(&trial.planned);
        for (placed, seconds) in &trial.placed {
            let all = times.placed.entry(*placed).or_default();
            all.extend_from_slice(seconds);
        }
        times.chosen = Some(trial.chosen);
    }

    /// Returns the time of the planner's queries in relation to that of the best placement.
    pub(super) fn of_best(
        &self,
        placement: OperatorPlacement,
        query: ComparedQuery,
    ) -> Option<f64> {
        self.0.get(&(query, placement))?.of_best()
    }

    /// Sums up all results.
    pub(super) fn tally(&self) -> Result<RunSample, RunError> {
        let of = |ratio: fn(&PlacementTimes) -> Option<f64>| -> Vec<f64> {
            self.0.values().filter_map(ratio).collect()
        };
        let (ran, chosen) = (
            of(PlacementTimes::of_best),
            of(PlacementTimes::choice_of_best),
        );
        let large = self.0.iter().filter(|((query, placement), _)| {
            *placement == OperatorPlacement::Auto && query.data.page_kib == LARGE_KIB
        });
        let mut spreads: Vec<f64> = large.filter_map(|(_, times)| times.spread()).collect();
        if ran.is_empty() {
            let what = "the planner has placed no query before".to_owned();
            return Err(RunError::Skipped(what));
        }
        let share = |ratios: &[f64]| {
            let close = ratios.iter().filter(|&&ratio| ratio <= CLOSE).count();
            close as f64 / ratios.len() as f64
        };
        let alone = self
            .0
            .iter()
            .filter(|((_, placement), times)| !times.are_whole(*placement));
        let all = match alone.count() {
            0 => Ok(()),
            alone => Err(RunError::Failed(format!(
                "{alone} of {} choices do not stand beside all placements, turn by turn",
                self.0.len()
            ))),
        };
        let mut sample = RunSample::default();
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

impl PlacementTimes {
    /// Returns `true` if there are as many times of every placement as of the planner's queries.
    fn are_whole(&self, placement: OperatorPlacement) -> bool {
        let of = |placement: &OperatorPlacement| self.placed.get(placement).map_or(0, Vec::len);
        let mut all = candidates(placement).iter().map(of);
        !self.planned.is_empty() && all.all(|turns| turns == self.planned.len())
    }

    /// Returns the possible placements, quickest first, with the medians of their seconds.
    fn ranking(&self) -> Vec<(OperatorPlacement, f64)> {
        let placed = self.placed.iter();
        let medians =
            placed.filter_map(|(&placement, all)| Some((placement, median(all.clone())?)));
        let mut medians: Vec<(OperatorPlacement, f64)> = medians.collect();
        medians.sort_by(|a, b| a.1.total_cmp(&b.1));
        medians
    }

    /// Returns the median of some seconds in relation to those of the best placement, turn by turn.
    fn beside_best(&self, seconds: &[f64]) -> Option<f64> {
        let (best, _) = *self.ranking().first()?;
        let turns = seconds.iter().zip(&self.placed[&best]);
        median(turns.map(|(own, best)| own / best).collect())
    }

    fn of_best(&self) -> Option<f64> {
        self.beside_best(&self.planned)
    }

    fn choice_of_best(&self) -> Option<f64> {
        self.beside_best(self.placed.get(&self.chosen?)?)
    }

    /// Returns the time of the slowest placement in relation to the quickest.
    fn spread(&self) -> Option<f64> {
        let ranking = self.ranking();
        Some(ranking.last()?.1 / ranking.first()?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_context::StorageMedium;
    use crate::target::placement::tpch_query::QueryVariant;

    fn query(page_kib: usize) -> ComparedQuery {
        ComparedQuery {
            data: QueryTable {
                place: StorageMedium::Disk,
                variant: QueryVariant::Full,
                page_kib,
            },
            query: TpchQuery::Q6,
            transport: ResultTransport::Shm,
            threads: 1,
            connections: 1,
            io_threads: None,
            pinned: false,
        }
    }

    /// Returns three turns of a machine that becomes twice as slow, and is disturbed in the last
    /// one.
    fn trial(
        planned: f64,
        chosen: OperatorPlacement,
        placed: &[(OperatorPlacement, f64)],
    ) -> PlacementTrial {
        let turns = |seconds: f64| vec![seconds, 2.0 * seconds, 9.0 * seconds];
        PlacementTrial {
            chosen,
            planned: turns(planned),
            placed: placed
                .iter()
                .map(|&(placement, s)| (placement, turns(s)))
                .collect(),
        }
    }

    #[test]
    fn choices_are_compared_with_the_best() {
        let mut results = PlacementResults::default();
        assert!(results.tally().is_err());
        let (query, other) = (query(LARGE_KIB), query(4));
        let away = [
            (OperatorPlacement::RemoteLocal, 1.2),
            (OperatorPlacement::RemoteRemote, 1.0),
        ];
        let all = [away[0], away[1], (OperatorPlacement::Local, 2.0)];
        results.note(
            OperatorPlacement::Auto,
            query,
            &trial(1.05, OperatorPlacement::RemoteRemote, &all),
        );
        results.note(
            OperatorPlacement::Auto,
            other,
            &trial(1.3, OperatorPlacement::RemoteLocal, &all),
        );
        results.note(
            OperatorPlacement::AutoAway,
            query,
            &trial(1.5, OperatorPlacement::RemoteRemote, &away),
        );
        assert_eq!(results.of_best(OperatorPlacement::Auto, other), Some(1.3));
        assert_eq!(results.of_best(OperatorPlacement::AutoAway, other), None);
        let tally = results.tally().expect("a tally");
        assert!(tally.failure().is_none());
        let values = tally.values;
        assert_eq!(values.get("near-best"), Some(1.0 / 3.0));
        assert_eq!(values.get("well-chosen"), Some(2.0 / 3.0));
        assert_eq!(values.get("spread"), Some(2.0));
        // A placement that was left out is noticed.
        results.note(
            OperatorPlacement::Auto,
            other,
            &trial(1.0, OperatorPlacement::Local, &away),
        );
        assert!(results.tally().expect("a tally").failure().is_some());
    }
}
