//! Estimates of a fragment's work and of its result, as far as bounds tell.
//!
//! Values are assumed to be spread evenly between a page's bounds, and conditions to be independent.
//! That is often wrong, and good enough to tell a byte from a megabyte.

use arrow_schema::DataType;
use pages::{Range, Table};

use crate::expr::{Expr, ExprError};
use crate::filter::Filter;
use crate::fragment::{Fragment, FragmentWork};
use crate::program::{ExprId, ExprProgram};
use crate::prune::ColumnBounds;
use crate::scan::{self, NeededGroups, PageChanges, RowPieces};
use crate::task::{RowRange, refused};
use pages::task::TaskError;

/// The number of groups of a key of which nothing is known.
const GROUPS: f64 = 1000.0;
/// Bytes that are copied in the time of an operation.
const COPIED: u64 = 16;
/// The number of operations in the time in which a key's group is found.
const LOOK_UP: u64 = 4;
/// Bytes of a text of which nothing is known.
const TEXT: u64 = 16;

/// What a fragment is expected to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Pages that it reads.
    pub pages: u64,
    /// Bytes of these.
    pub page_bytes: u64,
    /// Rows in them.
    pub rows: u64,
    /// Of these rows, the part that passes the filter; from 0 to 1.
    pub selectivity: f64,
    /// Operations for a row in the pages, and for a row that passes: comparisons, calculations, look-ups
    /// and additions.
    pub operations: (u64, u64),
    /// Rows that come out.
    pub result_rows: u64,
    /// Bytes of these.
    pub result_bytes: u64,
}

impl Estimate {
    /// Returns the number of operations on all rows. A row costs something even if nothing is done with
    /// it.
    #[must_use]
    pub fn all_operations(&self) -> f64 {
        let (filtering, rest) = self.operations;
        let rows = self.rows as f64;
        rows * (filtering as f64 + 1.0) + rows * self.selectivity * rest as f64
    }
}

/// Estimates the work of a fragment over some rows by a table's bounds.
///
/// # Errors
/// Returns [`TaskError::Refused`] if the fragment does not fit the table, or the table has no such rows.
pub fn estimate(
    table: &Table,
    fragment: &Fragment,
    rows: &[RowRange],
) -> Result<Estimate, TaskError> {
    let rows_left = scan::prune(table, fragment, rows)?;
    let types = fragment.column_types(&table.schema);
    let types = types.map_err(refused)?;
    let mut program = ExprProgram::new(types);
    let condition = fragment.filter.as_ref();
    let filter = condition
        .map(|condition| Filter::new(condition, &mut program))
        .transpose();
    let filter = filter.map_err(refused)?;
    let filtering = filter
        .as_ref()
        .map_or(0, |filter| filter.operations(&program));
    let computed = computed_expressions(fragment, &mut program).map_err(refused)?;
    let needed = NeededGroups::of(table, fragment, |_| true);
    let mut changes = PageChanges::new(needed.groups.len());
    let (mut pages, mut rows, mut passing) = (0, 0, 0.0);
    let mut ranges: Vec<Range> = fragment.columns.iter().map(|_| Range::Empty).collect();
    for piece in RowPieces::new(table, &needed, &rows_left)? {
        let piece = piece?;
        pages += changes.of(&piece).len() as u64;
        let count = piece.rows.to - piece.rows.from;
        let of_column = |column| needed.bounds(table, &piece, column);
        let bounds: Vec<ColumnBounds<'_>> = (0..ranges.len())
            .map(|column| of_column(column).map_or(ColumnBounds::NOTHING, ColumnBounds::of))
            .collect();
        rows += count;
        let part = filter
            .as_ref()
            .map_or(1.0, |filter| filter.selectivity(&program, &bounds));
        passing += part * count as f64;
        for (range, bounds) in ranges.iter_mut().zip(&bounds) {
            *range = std::mem::replace(range, Range::Empty).join(bounds.range.clone());
        }
    }
    let result_rows = result_rows(fragment, &ranges, passing);
    let page_bytes = pages * table.page_size.bytes() as u64;
    let types = fragment
        .output
        .fields()
        .iter()
        .map(|field| field.data_type());
    let mut width: u64 = types.map(width).sum();
    if fragment.columns.contains(&table.schema.fields().len()) {
        // Records come out, and pages consist of records.
        width = page_bytes / rows.max(1);
    }
    Ok(Estimate {
        pages,
        page_bytes,
        rows,
        selectivity: if rows == 0 {
            0.0
        } else {
            passing / rows as f64
        },
        operations: (filtering, operations(fragment, computed, width)),
        result_rows,
        result_bytes: result_rows * width,
    })
}

/// Returns the number of expressions that have to be computed for a row that passes.
fn computed_expressions(fragment: &Fragment, program: &mut ExprProgram) -> Result<u64, ExprError> {
    let expressions: Vec<&Expr> = match &fragment.work {
        FragmentWork::Rows { project, order, .. } => {
            let keys = order.iter().map(|key| &key.expr);
            project.iter().chain(keys).collect()
        }
        FragmentWork::Aggregate { by, aggregates } => {
            let of = aggregates.iter().flat_map(|a| a.of.iter().chain(&a.filter));
            by.iter().chain(of).collect()
        }
    };
    let nodes: Result<Vec<ExprId>, _> = expressions.iter().map(|of| program.add(of)).collect();
    Ok(program.computing(&nodes?) as u64)
}

/// Returns the number of operations for a row that passes, for which `computed` expressions are computed and
/// `width` bytes come out.
fn operations(fragment: &Fragment, computed: u64, width: u64) -> u64 {
    let rest = match &fragment.work {
        FragmentWork::Rows { project, order, .. } => {
            let copied = width / COPIED;
            copied.max(project.len() as u64) + order.len() as u64
        }
        FragmentWork::Aggregate { by, aggregates } => {
            LOOK_UP * by.len() as u64 + aggregates.len() as u64
        }
    };
    computed + rest
}

fn result_rows(fragment: &Fragment, ranges: &[Range], passing: f64) -> u64 {
    let most = match &fragment.work {
        FragmentWork::Rows { limit, .. } => limit.map_or(f64::INFINITY, |limit| limit as f64),
        FragmentWork::Aggregate { by, .. } => {
            let groups = |key: &Expr| match key {
                Expr::Column(column) => values(&ranges[*column]).unwrap_or(GROUPS),
                _ => GROUPS,
            };
            // Without keys there is one group, even if there are no rows.
            if by.is_empty() {
                return 1;
            }
            by.iter().map(groups).product()
        }
    };
    passing.min(most).ceil() as u64
}

/// Returns the number of values between bounds, if it can be told: for integers, and for texts that
/// differ in their last byte alone, as those of one letter.
fn values(bounds: &Range) -> Option<f64> {
    match bounds {
        Range::Int { min, max } => Some(max.saturating_sub(*min) as f64 + 1.0),
        Range::Bytes {
            min,
            max: Some(max),
        } => {
            let alike = min.iter().zip(max).take_while(|(a, b)| a == b).count();
            match (&min[alike..], &max[alike..]) {
                ([], []) => Some(1.0),
                // The text without that byte, and those with it.
                ([], [last]) => Some(f64::from(*last) + 2.0),
                ([first], [last]) => Some(f64::from(last - first) + 1.0),
                _ => None,
            }
        }
        _ => None,
    }
}

fn width(data_type: &DataType) -> u64 {
    data_type
        .primitive_width()
        .map_or(TEXT, |width| width as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_one_letter_are_few() {
        let between = |min: &str, max: &str| {
            values(&Range::Bytes {
                min: min.into(),
                max: Some(max.into()),
            })
        };
        assert_eq!(between("A", "R"), Some(18.0));
        assert_eq!(between("x-1", "x-9"), Some(9.0));
        assert_eq!(between("x", "x"), Some(1.0));
        assert_eq!(between("", "\u{1}"), Some(3.0));
        assert_eq!(between("AIR", "TRUCK"), None);
        assert_eq!(between("A", "AB"), Some(68.0));
        assert_eq!(values(&Range::Int { min: -1, max: 1 }), Some(3.0));
        assert_eq!(values(&Range::Unknown), None);
    }
}
