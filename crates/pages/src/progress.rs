//! The progress of long operations.

/// A receiver of the progress of a load or a check.
pub trait Progress {
    /// Reports how much is done, and of how much as far as that is known: rows of a load, pages of
    /// a check.
    fn done(&mut self, done: u64, of: Option<u64>);
}

/// Ignores progress.
impl Progress for () {
    fn done(&mut self, _: u64, _: Option<u64>) {}
}
