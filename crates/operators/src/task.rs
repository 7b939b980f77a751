//! A fragment, and the rows over which it runs.

use std::sync::Arc;

use pages::task::TaskError;
use pages::{Cancellation, SegmentId, Table};

use crate::fragment::Fragment;

/// Consecutive rows of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowRange {
    /// The segment.
    pub segment: SegmentId,
    /// The first row.
    pub from: u64,
    /// The row after the last.
    pub to: u64,
}

/// A fragment, and the rows over which it runs.
#[derive(Clone, Debug)]
pub struct FragmentTask {
    /// The table.
    pub table: Arc<Table>,
    /// The work.
    pub fragment: Arc<Fragment>,
    /// The rows.
    pub rows: Vec<RowRange>,
    /// Answers whether the result is still wanted. It is asked for every vector of rows, so that a task that
    /// yields nothing for long ends early, too: with [`TaskError::Unwanted`].
    pub wanted: Cancellation,
}

/// Checks that a task is still wanted.
///
/// # Errors
/// Returns [`TaskError::Unwanted`] if it is not.
#[inline]
pub(crate) fn check_wanted(wanted: &Cancellation) -> Result<(), TaskError> {
    match wanted.is_cancelled() {
        true => Err(TaskError::Unwanted),
        false => Ok(()),
    }
}

/// Returns the error of a task that cannot run.
pub(crate) fn refused(why: impl ToString) -> TaskError {
    TaskError::Refused(why.to_string())
}
