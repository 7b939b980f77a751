//! The error of bytes that are not in the expected format.

/// What is wrong with bytes that were read or received: they are not those that were written, or of another
/// version of the format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(pub String);

impl From<String> for FormatError {
    fn from(what: String) -> FormatError {
        FormatError(what)
    }
}

impl From<&str> for FormatError {
    fn from(what: &str) -> FormatError {
        FormatError(what.to_owned())
    }
}
