//! A query that the planner has placed, and the same query in every placement that it could have
//! chosen, by turns: so a machine whose speed drifts does it to all of them.

use std::time::{Duration, Instant};

use super::answer::Answer;
use super::run::{self, Ran};
use super::stage::Stage;
use super::{QueryJob, Way};

/// So many turns there are at least, however long they take, and at most.
const TURNS: (usize, usize) = (3, 15);

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Contest {
    /// The planner's placement.
    pub(super) chosen: Way,
    /// Of each turn, the seconds of the planner's query.
    pub(super) planned: Vec<f64>,
    /// Of each placement, the seconds in each turn.
    pub(super) placed: Vec<(Way, Vec<f64>)>,
}

/// The placements among which the planner may choose.
pub(super) fn candidates(way: Way) -> &'static [Way] {
    match way {
        Way::Auto => &[Way::Local, Way::RemoteLocal, Way::RemoteRemote],
        Way::AutoAway => &[Way::RemoteLocal, Way::RemoteRemote],
        Way::Local | Way::RemoteLocal | Way::RemoteRemote => &[],
    }
}

/// Runs turns for about so long. Tells of the planner's query the run in the middle, too.
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
        // Nobody is always the first, or always after the same one.
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
