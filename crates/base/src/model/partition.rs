//! A partition executes transactions. Local, replicated and remote ones implement the same trait.

use std::future::Future;

use super::transaction::{Abort, Transaction};

pub use super::reply::OwnedReply;

/// Executes one-shot transactions.
pub trait Partition: Send + Sync {
    /// Executes `transaction` atomically. The future is ready when the outcome may be seen from
    /// outside: its writes and the data that it observed are durable.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing happened; only after [`Abort::ReadOnly`], which
    /// says that the log failed, is the outcome not known.
    fn execute(
        &self,
        transaction: &Transaction<'_>,
    ) -> impl Future<Output = Result<Vec<OwnedReply>, Abort>> + Send;
}
