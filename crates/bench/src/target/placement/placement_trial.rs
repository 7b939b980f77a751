//! A query that the planner has placed, and the same query in every placement that it could have
//! chosen, by turns: so the drift of a machine's speed affects all of them.

use std::time::{Duration, Instant};

use super::execution::{self, Execution};
use super::query_answer::QueryAnswer;
use super::query_job::{OperatorPlacement, QueryJob};
use super::testbed::Testbed;
use crate::error::RunError;

/// The least number of turns, however long they take, and the most.
const TURNS: (usize, usize) = (3, 15);

/// The results.
#[derive(Clone, Debug)]
pub(super) struct PlacementTrial {
    /// The planner's placement.
    pub(super) chosen: OperatorPlacement,
    /// The seconds of the planner's query in each turn.
    pub(super) planned: Vec<f64>,
    /// The seconds of each placement in each turn.
    pub(super) placed: Vec<(OperatorPlacement, Vec<f64>)>,
}

/// Returns the placements among which the planner may choose.
pub(super) fn candidates(placement: OperatorPlacement) -> &'static [OperatorPlacement] {
    match placement {
        OperatorPlacement::Auto => &[
            OperatorPlacement::Local,
            OperatorPlacement::RemoteLocal,
            OperatorPlacement::RemoteRemote,
        ],
        OperatorPlacement::AutoAway => &[
            OperatorPlacement::RemoteLocal,
            OperatorPlacement::RemoteRemote,
        ],
        OperatorPlacement::Local
        | OperatorPlacement::RemoteLocal
        | OperatorPlacement::RemoteRemote => &[],
    }
}

/// Runs turns for about so long. Also returns the median run of the planner's query.
pub(super) fn run(
    job: &QueryJob,
    chosen: OperatorPlacement,
    expected: &QueryAnswer,
    time: Duration,
    testbed: &mut Testbed,
) -> Result<(Execution, PlacementTrial), RunError> {
    let candidates = candidates(job.placement);
    let placed = |placement| QueryJob { placement, ..*job };
    for &placement in candidates {
        execution::warm(&placed(placement), testbed)?;
    }
    let mut planned: Vec<Execution> = Vec::new();
    let mut times = vec![Vec::new(); candidates.len()];
    let begun = Instant::now();
    let (least, most) = TURNS;
    while planned.len() < least || (begun.elapsed() < time && planned.len() < most) {
        // No placement is always the first, or always after the same one.
        let turn = planned.len();
        for place in (0..=candidates.len()).map(|i| (i + turn) % (candidates.len() + 1)) {
            let placement = candidates.get(place).copied();
            let ran = execution::measured(&placed(placement.unwrap_or(chosen)), testbed)?;
            let same = ran.answer.same(expected);
            same.map_err(|what| format!("{}: {what}", placement.unwrap_or(job.placement).name()))?;
            match placement {
                Some(_) => times[place].push(ran.seconds),
                None => planned.push(ran),
            }
        }
    }
    let trial = PlacementTrial {
        chosen,
        planned: planned.iter().map(|ran| ran.seconds).collect(),
        placed: candidates.iter().copied().zip(times).collect(),
    };
    planned.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = planned.swap_remove(planned.len() / 2);
    Ok((middle, trial))
}
