//! How far something is.

/// Is told how far a load or a check is.
pub trait Progress {
    /// So much is done, of so much as far as that is known: rows of a load, pages of a check.
    fn done(&mut self, done: u64, of: Option<u64>);
}

/// Nobody wants to know.
impl Progress for () {
    fn done(&mut self, _: u64, _: Option<u64>) {}
}
