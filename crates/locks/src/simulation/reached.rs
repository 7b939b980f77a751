//! What runs have met, so that nobody takes peace for correctness.

use std::fmt;

/// Something that is worth meeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Each is said in `NAMES`.
pub enum Point {
    Granted,
    Waited,
    Takeover,
    Expired,
    Tombstone,
    Found,
    Repeated,
    Uncertain,
    Unavailable,
    Overtaken,
    EraLost,
    Undone,
    Swept,
    Late,
    Killed,
    Rebooted,
    Paused,
    CutOff,
    Elected,
    ClockSet,
    Settling,
    LedgerFailed,
    CleanStop,
    Cancelled,
    Batched,
}

/// The points, in the order of the enumeration.
const NAMES: [(Point, &str); 25] = [
    (Point::Granted, "a lock was granted"),
    (Point::Waited, "a lock was granted to somebody who waited"),
    (Point::Takeover, "a lock was taken over from another proxy"),
    (Point::Expired, "a lock whose lease had ended was released"),
    (
        Point::Tombstone,
        "the record of a released lock was replaced",
    ),
    (Point::Found, "a write of unknown outcome was found"),
    (Point::Repeated, "a write of unknown outcome was repeated"),
    (Point::Uncertain, "a client was not told the outcome"),
    (
        Point::Unavailable,
        "a client was told that nothing happened",
    ),
    (Point::Overtaken, "a proxy was overtaken by another one"),
    (Point::EraLost, "a transaction came after its era"),
    (
        Point::Undone,
        "a lock was released because its client had gone",
    ),
    (
        Point::Swept,
        "a sweep found a record that nobody had asked for",
    ),
    (Point::Late, "a write took effect after it was given up"),
    (
        Point::Killed,
        "a proxy was killed while a client held a lock",
    ),
    (
        Point::Rebooted,
        "the same, and the clock that leases are measured by began anew",
    ),
    (Point::Paused, "a proxy was paused"),
    (Point::CutOff, "a proxy was cut off"),
    (Point::Elected, "the partition changed its leader"),
    (Point::ClockSet, "a wall clock was set"),
    (Point::Settling, "a table without memory refused to grant"),
    (Point::LedgerFailed, "a ledger was not kept"),
    (Point::CleanStop, "a table was stopped and had no locks"),
    (Point::Cancelled, "a client went away while it waited"),
    (Point::Batched, "several keys travelled in one transaction"),
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

    /// The points that were met less often than this.
    pub fn rarer_than(&self, times: u64) -> impl Iterator<Item = Point> + '_ {
        let all = NAMES.iter().map(|(point, _)| *point);
        all.filter(move |point| self.times(*point) < times)
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
