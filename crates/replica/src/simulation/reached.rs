//! What runs have met, so that nobody takes peace for correctness.

use std::fmt;

/// Something that is worth meeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Each is said in `NAMES`.
pub enum Point {
    Elected,
    Deposed,
    Crashed,
    PowerFailed,
    Paused,
    Separated,
    Isolated,
    DiskFull,
    LostDisk,
    Added,
    Removed,
    HandedOver,
    SnapshotMade,
    Redirected,
    Held,
    Unknown,
    ToldAgain,
    Forgotten,
    Full,
    Stale,
    FoundPrepared,
    CommittedAttempt,
    Refused,
    OldLeader,
    Fenced,
}

/// The points, in the order of the enumeration.
const NAMES: [(Point, &str); 25] = [
    (Point::Elected, "a node began to lead"),
    (Point::Deposed, "a leadership was lost"),
    (Point::Crashed, "a node crashed"),
    (
        Point::PowerFailed,
        "the power failed within an operation of the disk",
    ),
    (Point::Paused, "a node did nothing for a while"),
    (Point::Separated, "two nodes were separated"),
    (Point::Isolated, "a node was cut off"),
    (
        Point::DiskFull,
        "a node stepped aside because its disk was full",
    ),
    (Point::LostDisk, "a node lost its disk"),
    (Point::Added, "a node was added"),
    (Point::Removed, "a node was removed"),
    (Point::HandedOver, "leadership was handed over"),
    (Point::SnapshotMade, "a snapshot was made"),
    (Point::Redirected, "a client was sent to the leader"),
    (Point::Held, "a transaction met a hold"),
    (Point::Unknown, "a client did not learn the outcome"),
    (
        Point::ToldAgain,
        "a client learned the outcome by asking again",
    ),
    (Point::Forgotten, "a client was forgotten"),
    (
        Point::Full,
        "a client got no session, because of the others",
    ),
    (Point::Stale, "a member showed what it had"),
    (Point::FoundPrepared, "an attempt was found prepared"),
    (Point::CommittedAttempt, "a prepared attempt was committed"),
    (Point::Refused, "an attempt was refused"),
    (
        Point::OldLeader,
        "a leader was asked that did not know of the next one",
    ),
    (Point::Fenced, "a token was refused"),
];

/// How often each point was met, by one run or by many.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    times: [u64; NAMES.len()],
    /// Milliseconds until the partition served after the faults.
    served_ms: Vec<u64>,
    states: u64,
}

impl Reached {
    pub(super) fn add(&mut self, point: Point) {
        self.times[point as usize] += 1;
    }

    pub(super) fn serves(&mut self, after_ms: u64) {
        self.served_ms.push(after_ms);
    }

    pub(super) fn states(&mut self, count: u64) {
        self.states += count;
    }

    /// Adds another run: each point that it met counts once.
    pub fn count(&mut self, run: &Reached) {
        for (sum, times) in self.times.iter_mut().zip(run.times) {
            *sum += times.min(1);
        }
        self.served_ms.extend(&run.served_ms);
        self.states += run.states;
    }

    /// How often a point was met.
    #[must_use]
    pub fn times(&self, point: Point) -> u64 {
        self.times[point as usize]
    }

    /// The points that were not met.
    pub fn missed(&self) -> impl Iterator<Item = Point> + '_ {
        NAMES
            .iter()
            .map(|(point, _)| *point)
            .filter(|point| self.times(*point) == 0)
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (point, name) in NAMES {
            writeln!(f, "{:>8}  {name}", self.times(point))?;
        }
        writeln!(
            f,
            "{:>8}  states were compared by their indexes",
            self.states
        )?;
        let mut served = self.served_ms.clone();
        served.sort_unstable();
        if let (Some(median), Some(most)) = (served.get(served.len() / 2), served.last()) {
            writeln!(
                f,
                "served again after the faults within {median} ms (median), {most} ms (most)"
            )?;
        }
        Ok(())
    }
}
