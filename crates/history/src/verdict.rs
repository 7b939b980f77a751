//! The verdicts of checkers, and the names of anomalies.

use std::fmt;

/// A checker's judgement of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The guarantee held: there is an order of the transactions that explains every answer.
    Accepted,
    /// The guarantee was broken.
    Violated(Violation),
    /// The history breaks the rules of [`crate::model`], so that nothing can be said of it.
    Unjudgeable(String),
}

impl Verdict {
    /// Returns `true` if the guarantee held.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        *self == Verdict::Accepted
    }

    /// Returns the anomaly, if one was found.
    #[must_use]
    pub fn anomaly(&self) -> Option<Anomaly> {
        match self {
            Verdict::Violated(violation) => Some(violation.anomaly),
            Verdict::Accepted | Verdict::Unjudgeable(_) => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Accepted => f.write_str("accepted"),
            Verdict::Violated(violation) => violation.fmt(f),
            Verdict::Unjudgeable(why) => write!(f, "the history cannot be judged: {why}"),
        }
    }
}

/// A broken guarantee, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name.
    pub anomaly: Anomaly,
    /// The ids of the transactions involved; in a cycle, in its order.
    pub transactions: Vec<u64>,
    /// One sentence for each step of the evidence.
    pub evidence: Vec<String>,
    /// `true` if the evidence holds regardless of anything that was not recorded. It is `false`
    /// when the order of some versions, or which absence a read saw, had to be inferred and no
    /// inference that was tried explained the history.
    pub certain: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.anomaly)?;
        if !self.certain {
            f.write_str(" (by an inferred order of versions)")?;
        }
        self.evidence
            .iter()
            .try_for_each(|step| write!(f, "\n  {step}"))
    }
}

/// The anomalies. Names in parentheses are those of Adya's thesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Anomaly {
    /// A value was read that no transaction wrote.
    GarbageRead,
    /// A committed transaction read a write of an aborted one (G1a).
    AbortedRead,
    /// A transaction read a value that its writer overwrote before it committed (G1b).
    IntermediateRead,
    /// A transaction did not see its own write.
    OwnWriteMissed,
    /// A transaction saw two states of one key.
    NonRepeatableRead,
    /// A scan answered keys out of order, twice, or beyond its range.
    MalformedScan,
    /// Transactions overwrote each other's writes in a circle (G0).
    DirtyWrite,
    /// Transactions saw each other's writes in a circle: at least one of them saw an uncommitted
    /// write (G1c).
    DirtyRead,
    /// Two transactions saw the same version of a key and both overwrote it.
    LostUpdate,
    /// A transaction saw a part of another's writes, directly or through others: one
    /// anti-dependency in the cycle (G-single).
    ReadSkew,
    /// Two transactions each overwrote a version that the other had read (G2-item).
    WriteSkew,
    /// A scan missed a key, or saw one that was gone, and no order explains it (G2).
    Phantom,
    /// Two readers saw two independent writes in opposite orders.
    LongFork,
    /// A longer circle with several anti-dependencies (G2-item).
    AntiDependencyCycle,
    /// Some order explains the answers, but in it a transaction comes before another that had
    /// ended before it began.
    RealTimeViolation,
    /// A transaction saw one of another's writes, and for a key that this one also wrote an older
    /// version.
    FracturedRead,
    /// A transaction saw the state of a key before a version that had been acknowledged when the
    /// transaction began.
    StaleRead,
    /// As [`Anomaly::StaleRead`], and no transaction that began later saw that version or any that
    /// may be newer: the write is gone.
    LostWrite,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Anomaly::GarbageRead => "garbage read",
            Anomaly::AbortedRead => "read of an aborted write (G1a)",
            Anomaly::IntermediateRead => "intermediate read (G1b)",
            Anomaly::OwnWriteMissed => "own write missed",
            Anomaly::NonRepeatableRead => "non-repeatable read",
            Anomaly::MalformedScan => "malformed scan",
            Anomaly::DirtyWrite => "dirty write (G0)",
            Anomaly::DirtyRead => "dirty read (G1c)",
            Anomaly::LostUpdate => "lost update",
            Anomaly::ReadSkew => "read skew (G-single)",
            Anomaly::WriteSkew => "write skew (G2-item)",
            Anomaly::Phantom => "phantom (G2)",
            Anomaly::LongFork => "long fork",
            Anomaly::AntiDependencyCycle => "anti-dependency cycle (G2-item)",
            Anomaly::RealTimeViolation => "real-time violation",
            Anomaly::FracturedRead => "fractured read",
            Anomaly::StaleRead => "stale read",
            Anomaly::LostWrite => "lost acknowledged write",
        })
    }
}
