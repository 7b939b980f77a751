//! The error of a run, of a client in it, and of a check.

/// Why a run has no sample.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The point cannot be measured here; the text says why, and nothing is wrong.
    #[error("{0}")]
    Skipped(String),
    /// Something is wrong.
    #[error("{0}")]
    Failed(String),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Returns a function that makes a failure: `what` was tried, and `error` was the result.
    pub fn failed(what: &str) -> impl Fn(&dyn std::fmt::Display) -> RunError + '_ {
        move |error| RunError::Failed(format!("{what}: {error}"))
    }

    /// Returns a failure with the text of an error.
    pub fn of(error: impl std::fmt::Display) -> RunError {
        RunError::Failed(error.to_string())
    }

    /// Returns the point that cannot be measured here, for the reason of an error.
    pub fn skipped(why: impl std::fmt::Display) -> RunError {
        RunError::Skipped(why.to_string())
    }
}

impl From<cassandra::ConnectionError> for RunError {
    fn from(error: cassandra::ConnectionError) -> RunError {
        RunError::of(error)
    }
}

impl From<String> for RunError {
    fn from(what: String) -> RunError {
        RunError::Failed(what)
    }
}

impl From<&str> for RunError {
    fn from(what: &str) -> RunError {
        RunError::Failed(what.to_owned())
    }
}
