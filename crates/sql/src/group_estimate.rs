//! Estimates whether an aggregate makes few groups of many rows.
//!
//! Where nearly each row is a group of its own, a partial aggregate is useless work, and its output is no
//! shorter than the rows. The number of groups is guessed from the distance of the least and the greatest
//! value of the columns, which pages know for numbers and short texts. There are no more numbers than
//! that; there may be more texts, as longer ones lie between short ones. A wrong guess costs only time.

use operators::Expr;
use pages::{Range, Table};

use crate::fragment::children;
use crate::statistics::bounds_of;

/// Returns `true` if there are at least so many rows for each group, as far as is known. If nothing is
/// known of the groups, they are assumed to be few.
pub(crate) fn are_few(table: &Table, by: &[Expr], rows_for_each: u64) -> bool {
    let rows = u128::from(table.rows());
    let groups = by.iter().map(|expr| values(table, expr));
    let groups = groups.fold(1u128, |all, of| all.saturating_mul(of.unwrap_or(1).max(1)));
    // A table of a few thousand rows is cheap either way.
    rows < 10_000 || groups.saturating_mul(rows_for_each.into()) <= rows
}

/// Returns about the most different values of an expression, if that can be told.
fn values(table: &Table, expr: &Expr) -> Option<u128> {
    match expr {
        Expr::Column(column) => values_of(table, *column),
        Expr::Literal(_) => Some(1),
        Expr::Year(_) => Some(200),
        Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::Not(_) => Some(2),
        other => {
            let mut below = children(other).into_iter();
            below.try_fold(1u128, |all, child| {
                Some(all.saturating_mul(values(table, child)?))
            })
        }
    }
}

fn values_of(table: &Table, column: usize) -> Option<u128> {
    let mut span: Option<(i128, i128)> = None;
    for bounds in bounds_of(table, column) {
        let (min, max) = match &bounds.range {
            Range::Empty => continue,
            Range::Int { min, max } => (*min, *max),
            Range::Bytes { min, max } => (short(min)?, short(max.as_deref()?)?),
            Range::Float { .. } | Range::Unknown => return None,
        };
        span = Some(span.map_or((min, max), |(low, high)| (low.min(min), high.max(max))));
    }
    let (min, max) = span.unwrap_or((0, 0));
    Some(max.abs_diff(min).saturating_add(1))
}

/// Returns a text of at most one character as a number. If both ends of a range are such texts, it is
/// assumed that there are no longer ones between them.
fn short(text: &[u8]) -> Option<i128> {
    match text {
        [] => Some(0),
        [byte] => Some(i128::from(*byte)),
        _ => None,
    }
}
