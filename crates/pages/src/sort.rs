//! Rows in the order of one of their columns, so that pages have narrow bounds.
//!
//! All rows are held in memory.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch};
use arrow_schema::TimeUnit;

use crate::cell::{Cell, cells};
use crate::kind::Kind;

/// Rows of each batch that comes out.
const BATCH: usize = 8192;

/// The place of a row: its batch, and its place there.
type BatchRow = (u32, u32);

/// Sorts batches of one schema, whose types are those of pages, by a column: nulls first, then from
/// the least to the greatest value; equal rows in the order in which they came. NaNs come last.
///
/// # Panics
/// Panics if there is no such column.
pub fn sorted(batches: Vec<RecordBatch>, column: usize) -> impl Iterator<Item = RecordBatch> {
    let places = order(&batches, column);
    let mut from = 0;
    std::iter::from_fn(move || {
        let some = &places[from..places.len().min(from + BATCH)];
        from += some.len();
        (!some.is_empty()).then(|| take(&batches, some))
    })
}

fn order(batches: &[RecordBatch], column: usize) -> Vec<BatchRow> {
    let kind = batches
        .first()
        .and_then(|batch| Kind::of(batch.column(column).data_type()));
    match kind {
        Some(Kind::Utf8 | Kind::Binary) => ordered(batches, column, |cell| match cell {
            Cell::Bytes(bytes) => Some(bytes),
            _ => None,
        }),
        Some(Kind::Float32 | Kind::Float64) => ordered(batches, column, |cell| match cell {
            Cell::Float(value) => {
                // As in `total_cmp`, the sign reverses the order of the other bits.
                let bits = if value.is_nan() {
                    f64::NAN.abs()
                } else {
                    value
                }
                .to_bits() as i64;
                Some(bits ^ ((bits >> 63) as u64 >> 1) as i64)
            }
            _ => None,
        }),
        _ => ordered(batches, column, |cell| match cell {
            Cell::Int(value) => Some(value),
            _ => None,
        }),
    }
}

fn ordered<'a, K: Ord>(
    batches: &'a [RecordBatch],
    column: usize,
    key: impl Fn(Cell<'a>) -> Option<K>,
) -> Vec<BatchRow> {
    let mut keyed = Vec::new();
    for (at, batch) in batches.iter().enumerate() {
        let cells = cells(batch.column(column));
        let rows = 0..batch.num_rows();
        keyed.extend(rows.map(|row| (key(cells(row)), (at as u32, row as u32))));
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, place)| place).collect()
}

fn take(batches: &[RecordBatch], places: &[BatchRow]) -> RecordBatch {
    let schema = batches[0].schema();
    let columns = (0..schema.fields().len()).map(|column| {
        let pieces: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(column)).collect();
        take_column(&pieces, places)
    });
    let columns = columns.collect();
    RecordBatch::try_new(schema, columns).expect("the same columns as before")
}

fn take_column(pieces: &[&ArrayRef], places: &[BatchRow]) -> ArrayRef {
    let rows = places
        .iter()
        .map(|&(piece, row)| (piece as usize, row as usize));
    match Kind::of(pieces[0].data_type()).expect("a type that pages have") {
        Kind::Boolean => {
            let pieces: Vec<_> = pieces.iter().map(|piece| piece.as_boolean()).collect();
            let value = |(piece, row): (usize, usize)| {
                let array: &BooleanArray = pieces[piece];
                array.is_valid(row).then(|| array.value(row))
            };
            Arc::new(rows.map(value).collect::<BooleanArray>())
        }
        Kind::Utf8 => {
            let pieces: Vec<_> = pieces
                .iter()
                .map(|piece| piece.as_string::<i32>())
                .collect();
            let mut texts = StringBuilder::with_capacity(places.len(), 16 * places.len());
            for (piece, row) in rows {
                let valid = pieces[piece].is_valid(row);
                texts.append_option(valid.then(|| pieces[piece].value(row)));
            }
            Arc::new(texts.finish())
        }
        Kind::Binary => {
            let pieces: Vec<_> = pieces
                .iter()
                .map(|piece| piece.as_binary::<i32>())
                .collect();
            let mut values = BinaryBuilder::with_capacity(places.len(), 16 * places.len());
            for (piece, row) in rows {
                let valid = pieces[piece].is_valid(row);
                values.append_option(valid.then(|| pieces[piece].value(row)));
            }
            Arc::new(values.finish())
        }
        Kind::Int8 => primitive::<Int8Type>(pieces, rows),
        Kind::Int16 => primitive::<Int16Type>(pieces, rows),
        Kind::Int32 => primitive::<Int32Type>(pieces, rows),
        Kind::Int64 => primitive::<Int64Type>(pieces, rows),
        Kind::UInt8 => primitive::<UInt8Type>(pieces, rows),
        Kind::UInt16 => primitive::<UInt16Type>(pieces, rows),
        Kind::UInt32 => primitive::<UInt32Type>(pieces, rows),
        Kind::UInt64 => primitive::<UInt64Type>(pieces, rows),
        Kind::Float32 => primitive::<Float32Type>(pieces, rows),
        Kind::Float64 => primitive::<Float64Type>(pieces, rows),
        Kind::Date32 => primitive::<Date32Type>(pieces, rows),
        Kind::Timestamp(TimeUnit::Second) => primitive::<TimestampSecondType>(pieces, rows),
        Kind::Timestamp(TimeUnit::Millisecond) => {
            primitive::<TimestampMillisecondType>(pieces, rows)
        }
        Kind::Timestamp(TimeUnit::Microsecond) => {
            primitive::<TimestampMicrosecondType>(pieces, rows)
        }
        Kind::Timestamp(TimeUnit::Nanosecond) => primitive::<TimestampNanosecondType>(pieces, rows),
        Kind::Decimal32(..) => primitive::<Decimal32Type>(pieces, rows),
        Kind::Decimal64(..) => primitive::<Decimal64Type>(pieces, rows),
        Kind::Decimal128(..) => primitive::<Decimal128Type>(pieces, rows),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    pieces: &[&ArrayRef],
    rows: impl Iterator<Item = (usize, usize)>,
) -> ArrayRef {
    let arrays: Vec<_> = pieces
        .iter()
        .map(|piece| piece.as_primitive::<T>())
        .collect();
    let array: PrimitiveArray<T> = if arrays.iter().all(|array| array.null_count() == 0) {
        PrimitiveArray::from_iter_values(rows.map(|(piece, row)| arrays[piece].value(row)))
    } else {
        let value = |(piece, row): (usize, usize)| {
            let array: &PrimitiveArray<T> = arrays[piece];
            array.is_valid(row).then(|| array.value(row))
        };
        rows.map(value).collect()
    };
    Arc::new(array.with_data_type(pieces[0].data_type().clone()))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn rows_are_sorted_and_kept_together() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("text", DataType::Utf8, true),
            Field::new("f", DataType::Float64, false),
        ]));
        let batch = |n: Vec<Option<i64>>, texts: Vec<Option<&str>>, f: Vec<f64>| {
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from(n)),
                Arc::new(StringArray::from(texts)),
                Arc::new(Float64Array::from(f)),
            ];
            RecordBatch::try_new(schema.clone(), columns).unwrap()
        };
        let batches = vec![
            batch(
                vec![Some(3), None, Some(-1)],
                vec![Some("c"), Some("a"), None],
                vec![f64::NAN, -0.5, -f64::INFINITY],
            ),
            batch(vec![Some(3)], vec![Some("b")], vec![-0.0]),
        ];
        let by = |column| sorted(batches.clone(), column).collect::<Vec<_>>();
        let texts = |batches: &[RecordBatch]| {
            let texts = batches[0].column(1).as_string::<i32>();
            let texts: Vec<&str> = texts.iter().map(Option::unwrap_or_default).collect();
            texts.join(",")
        };
        assert_eq!(texts(&by(0)), "a,,c,b");
        assert_eq!(texts(&by(1)), ",a,b,c");
        assert_eq!(texts(&by(2)), ",a,b,c");
        let found = by(0);
        let numbers = found[0].column(0).as_primitive::<Int64Type>();
        assert_eq!(
            numbers.iter().collect::<Vec<_>>(),
            [None, Some(-1), Some(3), Some(3)]
        );
    }
}
