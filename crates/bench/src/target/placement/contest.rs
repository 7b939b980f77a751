//! A query that the planner has placed, and the same query in every placement that it could have
//! chosen, by turns: so the drift of a machine's speed affects all of them.

use std::time::{Duration, Instant};

use super::answer::Answer;
use super::run::{self, Ran};
use super::stage::Stage;
use super::{QueryJob, Way};

/// The least number of turns, however long they take, and the most.
const TURNS: (usize, usize) = (3, 15);

/// The results.
#[derive(Clone, Debug)]
pub(super) struct Contest {
    /// The planner's placement.
    pub(super) chosen: Way,
    /// The seconds of the planner's query in each turn.
    pub(super) planned: Vec<f64>,
    /// The seconds of each placement in each turn.
    pub(super) placed: Vec<(Way, Vec<f64>)>,
}

/// Returns the placements among which the planner may choose.
pub(super) fn candidates(way: Way) -> &'static [Way] {
    match way {
        Way::Auto => &[Way::Local, Way::RemoteLocal, Way::RemoteRemote],
        Way::AutoAway => &[Way::RemoteLocal, Way::RemoteRemote],
        Way::Local | Way::RemoteLocal | Way::RemoteRemote => &[],
    }
}

/// Runs turns for about so long. Also returns the median run of the planner's query.
pub(super) fn run(
    job: &QueryJob,
    chosen: Way,
    expected: &Answer,
    time: Duration,
    stage: &mut Stage,
) -> Result<(Ran, Contest), String> {
    let candidates = candidates(job.way);
    let placed = |way| QueryJob { way, ..*job };
    for &way in candidates {
        stage.warm(&placed(way))?;
    }
    let mut planned: Vec<Ran> = Vec::new();
    let mut times = vec![Vec::new(); candidates.len()];
    let begun = Instant::now();
    let (least, most) = TURNS;
    while planned.len() < least || (begun.elapsed() < time && planned.len() < most) {
        // No placement is always the first, or always after the same one.
        let turn = planned.len();
        for place in (0..=candidates.len()).map(|i| (i + turn) % (candidates.len() + 1)) {
            let way = candidates.get(place).copied();
            let ran = run::measured(&placed(way.unwrap_or(chosen)), stage)?;
            let same = ran.answer.same(expected);
            same.map_err(|what| format!("{}: {what}", way.unwrap_or(job.way).name()))?;
            match way {
                Some(_) => times[place].push(ran.seconds),
                None => planned.push(ran),
            }
        }
    }
    let contest = Contest {
        chosen,
        planned: planned.iter().map(|ran| ran.seconds).collect(),
        placed: candidates.iter().copied().zip(times).collect(),
    };
    planned.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = planned.swap_remove(planned.len() / 2);
    Ok((middle, contest))
}
