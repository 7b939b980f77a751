//! The one-shot transaction: the layers above build it, the layers below execute it.
//!
//! A [`Transaction`] is a list of [`Op`]s, executed atomically in their order; later operations
//! see the effects of earlier ones. The result is one [`Reply`] for each operation, or an
//! [`Abort`], after which nothing has happened. An operation that fails by itself (a value of the
//! wrong type, an overflow) answers [`Reply::Error`] in its place and the others still take
//! effect, as in a Redis `MULTI` block; [`Op::Check`], [`Op::Require`] and [`Op::Guard`] are the
//! operations that abort.

use super::ids::{Epoch, Tid};

pub use super::abort::{Abort, Holder};
pub use super::call_error::CallError;
pub use super::op_error::OpError;
pub use super::operation::{ExpireWhen, Expiry, Kind, Op, ScanContents, When, byte_range};
pub use super::reply::Reply;
pub use super::value_call::ValueCall;

/// A one-shot transaction.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Transaction<'a> {
    /// The operations, in order.
    pub ops: Vec<Op<'a>>,
}

impl<'a> Transaction<'a> {
    /// Returns a transaction of these operations.
    #[must_use]
    pub fn new(ops: Vec<Op<'a>>) -> Transaction<'a> {
        Transaction { ops }
    }

    /// Returns `true` if no operation can write.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.ops.iter().all(Op::is_read_only)
    }
}

/// Refuses a transaction that consists of guards alone: there is nothing to be guarded, and no
/// partition to which it belongs.
///
/// # Errors
/// Returns [`Abort::Unsupported`].
pub fn check_guards(ops: &[Op<'_>]) -> Result<(), Abort> {
    let has_guard = ops.iter().any(|op| matches!(op, Op::Guard { .. }));
    if has_guard && ops.iter().all(Op::goes_along) {
        let what = "a guard alone guards nothing: put what it is to guard into its transaction";
        let what = what.to_owned();
        return Err(Abort::Unsupported { what });
    }
    Ok(())
}

/// The data on which a reply depends: the reply may be sent once `epoch` is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Observed {
    /// The newest epoch that the transaction wrote or observed; [`Epoch::ZERO`] if nothing.
    pub epoch: Epoch,
    /// The transaction's id if it wrote, else [`Tid::ZERO`]. Keys that it wrote have it as their
    /// version.
    pub tid: Tid,
    /// The transaction's own time, milliseconds since the Unix epoch.
    pub time_ms: u64,
}
