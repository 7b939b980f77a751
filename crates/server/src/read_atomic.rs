//! Read-atomic keys: which commands are refused, and which nodes execute the others.
//!
//! | a command or block | then |
//! |---|---|
//! | has no read-atomic key, or one key alone | as usual |
//! | reads several read-atomic keys, or writes several regardless of their values | as usual if this node has all of them: one transaction of one partition is read atomic by itself. Otherwise this node coordinates it as such, see [`cluster::ramp`] |
//! | anything else | refused, wherever its keys lie |

use base::versions::ReadAtomic;
use base::{Abort, Op};
use cluster::ramp;

/// Checks that operations may be executed as one transaction, given the keys that are read atomic.
///
/// # Errors
/// [`Abort::Unsupported`] says what to do instead.
#[inline]
pub(crate) fn check(declared: &ReadAtomic, ops: &[Op<'_>]) -> Result<(), Abort> {
    if declared.is_empty() || ops.len() < 2 {
        return Ok(());
    }
    ramp::classify(declared, ops)?;
    Ok(())
}
