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
}
