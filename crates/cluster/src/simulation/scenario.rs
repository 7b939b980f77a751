//! The scenarios: which transactions the clients of a run send.

/// The transactions of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Transactions of ordinary keys.
    TwoPhaseCommit,
    /// Transactions of read-atomic keys, too.
    Ramp,
}

impl Scenario {
    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::TwoPhaseCommit => "2pc",
            Scenario::Ramp => "ramp",
        }
    }
}
