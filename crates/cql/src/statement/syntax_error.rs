//! Errors of texts that are not understood.

use std::fmt;

/// The longest piece of a text that an error shows, in characters.
pub(super) const SHOWN: usize = 40;

/// The text differs from the expected one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// The place, in bytes.
    pub at: usize,
    /// The text at that place; empty at the end.
    pub found: String,
    /// The expected text.
    pub expected: &'static str,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SyntaxError { at, expected, .. } = self;
        match self.found.as_str() {
            "" => write!(
                f,
                "expected {expected} before the end, behind character {at}"
            ),
            found => write!(f, "expected {expected} at character {at}, not {found}"),
        }
    }
}

impl std::error::Error for SyntaxError {}
