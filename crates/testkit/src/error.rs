//! The errors of the helpers.

/// An error of a helper: the text says what happened, and the kind, whose fault it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestkitError {
    /// The judged program has broken a promise. The test fails.
    #[error("{0}")]
    Deviation(String),
    /// Bytes of the judged program are not what their format says. The test fails.
    #[error("{0}")]
    Malformed(String),
    /// The machine lacks something, a variable of the environment is wrong, or a program does not
    /// start. The test says nothing about the judged program.
    #[error("{0}")]
    Environment(String),
}

impl TestkitError {
    pub(crate) fn deviation(text: impl Into<String>) -> TestkitError {
        TestkitError::Deviation(text.into())
    }

    pub(crate) fn malformed(text: impl Into<String>) -> TestkitError {
        TestkitError::Malformed(text.into())
    }

    pub(crate) fn environment(text: impl Into<String>) -> TestkitError {
        TestkitError::Environment(text.into())
    }
}

/// For callers whose own errors are texts.
impl From<TestkitError> for String {
    fn from(error: TestkitError) -> String {
        error.to_string()
    }
}
