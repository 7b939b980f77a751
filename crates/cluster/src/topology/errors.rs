//! The mistakes of a cluster's file, reported all at once.

use std::fmt;

/// A mistake in a cluster's file that its author has to correct.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong there, and what to do.
    pub what: String,
}

/// Why a cluster's file cannot be used: at least one mistake, in the order of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    file: String,
    all: Vec<Mistake>,
}

impl Mistakes {
    pub(super) fn new(file: &str, mut all: Vec<Mistake>) -> Mistakes {
        all.sort();
        all.dedup();
        Mistakes {
            file: file.to_owned(),
            all,
        }
    }

    /// Returns the mistakes.
    #[must_use]
    pub fn all(&self) -> &[Mistake] {
        &self.all
    }
}

impl fmt::Display for Mistakes {
    /// Writes a line for each, as compilers do: file, line, mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.all.iter().enumerate() {
            let break_line = if index == 0 { "" } else { "\n" };
            let Mistake { line, what } = mistake;
            write!(f, "{break_line}{}:{line}: {what}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
