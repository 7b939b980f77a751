//! The reason why an engine cannot be filled from its log.

/// The reason why an engine cannot be filled from its log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// An edit changes a version that the log does not have: the log is damaged.
    #[error("an edit of the key \"{}\" changes a version that is missing", key.escape_ascii())]
    MissingVersion {
        /// The key.
        key: Vec<u8>,
    },
    /// A system record is malformed, or contradicts another one: the log is damaged, or was written by
    /// another version of the program.
    #[error("the system record \"{}\" cannot be understood: {reason}", key.escape_ascii())]
    SystemRecord {
        /// The record's key.
        key: Vec<u8>,
        /// The reason.
        reason: &'static str,
    },
    /// Keys are declared read atomic, which are of database 0, and databases were exchanged.
    #[error(
        "databases were exchanged (SWAPDB), so that no keys can be read atomic: start without read-atomic \
         prefixes, or exchange the databases back first"
    )]
    Exchanged,
    /// The engine has workers in use, but must have none: the caller's mistake.
    #[error("all workers are in use, so that nothing can be restored")]
    NoWorker,
}
