//! What runs have met, so that nobody takes peace for correctness.

use std::fmt;

use super::Scenario;

/// Something that is worth meeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Each is said in `NAMES`.
pub enum Point {
    CoordinatorCrash,
    ParticipantCrash,
    RestoredPrepared,
    RestoredCommitted,
    HomeCommitted,
    HomeAborted,
    Abandoned,
    Died,
    Waited,
    Refused,
    HeldOcc,
    Overtaken,
    UnknownOutcome,
    LostEpochs,
    Separated,
    Flushed,
    Elected,
    TookOver,
    Kept,
    Lost,
    LostAnswer,
    Redirected,
    Stale,
    RampWrite,
    SecondRound,
    RampOvertaken,
    CommitWaited,
}

/// The points, in the order of the enumeration.
const NAMES: [(Point, &str); 27] = [
    (
        Point::CoordinatorCrash,
        "a coordinator crashed after it had asked for votes",
    ),
    (
        Point::ParticipantCrash,
        "a participant crashed while it was prepared",
    ),
    (
        Point::RestoredPrepared,
        "a restart brought prepared attempts back",
    ),
    (
        Point::RestoredCommitted,
        "a restart brought committed attempts back",
    ),
    (
        Point::HomeCommitted,
        "a home committed in a coordinator's stead",
    ),
    (
        Point::HomeAborted,
        "a home aborted in a coordinator's stead",
    ),
    (Point::Abandoned, "a coordinator gave up by way of the home"),
    (Point::Died, "a younger transaction gave way"),
    (Point::Waited, "somebody waited for holds"),
    (Point::Refused, "an attempt was refused before it came"),
    (Point::HeldOcc, "a transaction of one partition met a hold"),
    (Point::Overtaken, "a commit timestamp was overtaken"),
    (Point::UnknownOutcome, "a client was not told the outcome"),
    (
        Point::LostEpochs,
        "a crash lost epochs that were not durable",
    ),
    (Point::Separated, "nodes were separated"),
    (Point::Flushed, "a partition was flushed"),
    (Point::Elected, "a replicated partition got another leader"),
    (Point::TookOver, "a new leader found prepared attempts"),
    (
        Point::Kept,
        "a new leader had what its predecessor could not tell",
    ),
    (
        Point::Lost,
        "a new leader lacked what its predecessor had begun",
    ),
    (Point::LostAnswer, "an answer was lost with the leadership"),
    (Point::Redirected, "a node was asked that did not lead"),
    (
        Point::Stale,
        "a node was asked that did not know that it led no more",
    ),
    (Point::RampWrite, "a read-atomic write was begun"),
    (
        Point::SecondRound,
        "a read-atomic read needed a second round",
    ),
    (Point::RampOvertaken, "a read-atomic write was overtaken"),
    (
        Point::CommitWaited,
        "a read-atomic write waited for its commit",
    ),
];

/// Those that only read-atomic keys have.
const RAMP: [Point; 4] = [
    Point::RampWrite,
    Point::SecondRound,
    Point::RampOvertaken,
    Point::CommitWaited,
];

/// How often each point was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached([u64; NAMES.len()]);

impl Reached {
    pub(super) fn add(&mut self, point: Point, times: u64) {
        self.0[point as usize] += times;
    }

    /// How often a point was met.
    #[must_use]
    pub fn times(&self, point: Point) -> u64 {
        self.0[point as usize]
    }

    /// Counts each point that another run met as met once.
    pub fn count(&mut self, run: &Reached) {
        for (sum, times) in self.0.iter_mut().zip(run.0) {
            *sum += u64::from(times > 0);
        }
    }

    /// The points that were never met, of those that a scenario has.
    pub fn missed(&self, scenario: Scenario) -> impl Iterator<Item = Point> + '_ {
        let others: &[Point] = match scenario {
            Scenario::TwoPhaseCommit => &RAMP,
            Scenario::Ramp => &[Point::Flushed],
        };
        let all = NAMES.iter().map(|(point, _)| *point);
        all.filter(move |point| self.times(*point) == 0 && !others.contains(point))
    }
}

impl fmt::Display for Reached {
    /// A line for each point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (point, name) in NAMES {
            writeln!(f, "{:>8}  {name}", self.times(point))?;
        }
        Ok(())
    }
}
