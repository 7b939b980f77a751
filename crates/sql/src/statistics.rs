//! Statistics of tables for DataFusion's optimiser.
//!
//! Counts of rows and nulls are exact. Least and greatest values are not, as bounds of pages may be
//! wider than the values: they are used for estimates, and answer no query.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use pages::{Bounds, Range, Table};

use crate::scalar::of_integer;

/// Returns the statistics of a whole table.
pub(crate) fn of_table(table: &Table) -> Statistics {
    let columns = 0..table.schema.fields().len();
    let columns: Vec<_> = columns.map(|column| of_column(table, column)).collect();
    Statistics {
        num_rows: Precision::Exact(count(table.rows())),
        // The size of all columns would mislead where a query reads few.
        total_byte_size: Precision::Absent,
        column_statistics: columns,
    }
}

/// Returns the statistics after at most `limit` rows of each partition.
pub(crate) fn limited(statistics: &Statistics, limit: Option<usize>) -> Statistics {
    let mut limited = statistics.clone().to_inexact();
    if let (Some(limit), Some(rows)) = (limit, statistics.num_rows.get_value()) {
        limited.num_rows = Precision::Inexact(limit.min(*rows));
    }
    limited
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn of_column(table: &Table, column: usize) -> ColumnStatistics {
    let data_type = table.schema.field(column).data_type();
    let (mut nulls, mut bounds) = (0u64, Some((None, None)));
    for known in bounds_of(table, column) {
        nulls += u64::from(known.nulls);
        bounds = bounds.and_then(|so_far| widen(so_far, &known.range, data_type));
    }
    let (min, max) = bounds.unwrap_or((None, None));
    let inexact = |value: Option<ScalarValue>| value.map_or(Precision::Absent, Precision::Inexact);
    ColumnStatistics {
        null_count: Precision::Exact(count(nulls)),
        min_value: inexact(min),
        max_value: inexact(max),
        ..ColumnStatistics::new_unknown()
    }
}

/// Returns the bounds of a column's values, page by page.
pub(crate) fn bounds_of(table: &Table, column: usize) -> impl Iterator<Item = &Bounds> {
    let (group, place) = table.group_of(column);
    let pages = table.segments.iter().flat_map(move |s| &s.groups[group]);
    pages.map(move |page| &page.bounds[place])
}

type Ends = (Option<ScalarValue>, Option<ScalarValue>);

/// Returns ends that include further values; `None` if they are not known.
fn widen((min, max): Ends, range: &Range, data_type: &DataType) -> Option<Ends> {
    let (low, high) = match range {
        Range::Empty => return Some((min, max)),
        Range::Int { min, max } => (of_integer(*min, data_type)?, of_integer(*max, data_type)?),
        Range::Float { min, max } => match data_type {
            DataType::Float64 => (
                ScalarValue::Float64(Some(*min)),
                ScalarValue::Float64(Some(*max)),
            ),
            _ => return None,
        },
        Range::Bytes { .. } | Range::Unknown => return None,
    };
    let least = |a: ScalarValue, b: ScalarValue| if b < a { b } else { a };
    let greatest = |a: ScalarValue, b: ScalarValue| if b > a { b } else { a };
    Some((
        Some(min.map_or(low.clone(), |min| least(min, low))),
        Some(max.map_or(high.clone(), |max| greatest(max, high))),
    ))
}
