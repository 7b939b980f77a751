//! Random tables.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::types::*;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use fastrand::Rng;

/// Returns the types that columns of pages may have.
pub(crate) fn types() -> Vec<DataType> {
    vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Second, None),
        DataType::Timestamp(TimeUnit::Millisecond, Some("+02:00".into())),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Decimal128(15, 2),
        DataType::Decimal128(38, 0),
        DataType::Decimal128(38, 30),
        DataType::Decimal128(4, -3),
        DataType::Utf8,
        DataType::Binary,
    ]
}

pub(crate) fn schema(rng: &mut Rng, columns: usize) -> SchemaRef {
    let fields = (0..columns).map(|i| {
        let types = types();
        let data_type = types[rng.usize(..types.len())].clone();
        Field::new(format!("c{i}"), data_type, rng.bool())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

pub(crate) fn batch(rng: &mut Rng, schema: &SchemaRef, rows: usize) -> RecordBatch {
    let columns = schema.fields().iter().map(|field| column(rng, field, rows));
    let columns = columns.collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).unwrap()
}

/// Returns mostly small values, and sometimes the greatest and least.
fn int(rng: &mut Rng, spread: u32) -> i128 {
    match rng.u8(..64) {
        0 => i128::MAX,
        1 => i128::MIN,
        _ => rng.i128(-(1 << spread)..1 << spread),
    }
}

/// Returns a column of values that are equal or not, with nulls or not.
pub(crate) fn column(rng: &mut Rng, field: &Field, rows: usize) -> ArrayRef {
    let nulls = match rng.u8(..4) {
        _ if !field.is_nullable() => 0.0,
        0 => 0.0,
        1 => 1.0,
        _ => 0.2,
    };
    let spread = [1, 8, 20, 30, 60, 100][rng.usize(..6)];
    macro_rules! ints {
        ($type:ty, $native:ty) => {
            primitive::<$type>(rng, rows, nulls, field, |rng| int(rng, spread) as $native)
        };
    }
    match field.data_type() {
        DataType::Boolean => {
            let bits = (0..rows).map(|_| (rng.f64() >= nulls).then(|| rng.bool()));
            Arc::new(bits.collect::<BooleanArray>())
        }
        DataType::Int8 => ints!(Int8Type, i8),
        DataType::Int16 => ints!(Int16Type, i16),
        DataType::Int32 => ints!(Int32Type, i32),
        DataType::Int64 => ints!(Int64Type, i64),
        DataType::UInt8 => ints!(UInt8Type, u8),
        DataType::UInt16 => ints!(UInt16Type, u16),
        DataType::UInt32 => ints!(UInt32Type, u32),
        DataType::UInt64 => ints!(UInt64Type, u64),
        DataType::Date32 => ints!(Date32Type, i32),
        DataType::Timestamp(TimeUnit::Second, _) => ints!(TimestampSecondType, i64),
        DataType::Timestamp(TimeUnit::Millisecond, _) => ints!(TimestampMillisecondType, i64),
        DataType::Timestamp(TimeUnit::Microsecond, _) => ints!(TimestampMicrosecondType, i64),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => ints!(TimestampNanosecondType, i64),
        DataType::Decimal128(precision, _) => {
            let most = 10_i128.pow((*precision).into()) - 1;
            primitive::<Decimal128Type>(rng, rows, nulls, field, |rng| {
                int(rng, spread).clamp(-most, most)
            })
        }
        DataType::Float32 => primitive::<Float32Type>(rng, rows, nulls, field, |rng| {
            [0.0, -0.0, 1.5, f32::MAX, f32::NEG_INFINITY, rng.f32()][rng.usize(..6)]
        }),
        DataType::Float64 => {
            primitive::<Float64Type>(rng, rows, nulls, field, |rng| match rng.u16(..) {
                0 => f64::NAN,
                n => [0.0, -0.0, f64::MIN, f64::INFINITY, rng.f64()][usize::from(n) % 5],
            })
        }
        DataType::Utf8 => {
            let mut texts = StringBuilder::new();
            let (kinds, longest) = ([1, 5, 300, 100_000][rng.usize(..4)], rng.usize(..60));
            for _ in 0..rows {
                let kind = rng.u32(..kinds);
                let text = || "aäλ𝄞".repeat(longest / 10) + &format!("{kind:0>longest$}");
                let text = if kind % 7 == 3 { String::new() } else { text() };
                texts.append_option((rng.f64() >= nulls).then_some(text));
            }
            Arc::new(texts.finish())
        }
        DataType::Binary => {
            let mut values = BinaryBuilder::new();
            for _ in 0..rows {
                let value: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(250..)).collect();
                values.append_option((rng.f64() >= nulls).then_some(value));
            }
            Arc::new(values.finish())
        }
        other => panic!("no values of {other}"),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    rng: &mut Rng,
    rows: usize,
    nulls: f64,
    field: &Field,
    value: impl Fn(&mut Rng) -> T::Native,
) -> ArrayRef {
    let values = (0..rows).map(|_| (rng.f64() >= nulls).then(|| value(rng)));
    let array: PrimitiveArray<T> = values.collect();
    Arc::new(array.with_data_type(field.data_type().clone()))
}
