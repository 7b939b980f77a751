//! The reason why a transaction cannot go on.

use base::Abort;

/// The reason why a transaction cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// Another transaction is in the way; this one is tried again from its beginning.
    #[error("another transaction is in the way")]
    Conflict,
    /// The transaction ends without effect.
    #[error(transparent)]
    Abort(#[from] Abort),
}
