//! Rows as chunks, in every form in which pages may hold them.

use std::sync::Arc;

use arrow_array::types as t;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch,
    StringArray, cast::AsArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use fastrand::Rng;
use kumiki_operators::{Chunk, ChunkColumn, Value};
use pages::Range;

/// Returns rows as batches of their own types.
pub(crate) fn plain(random: &mut Rng, rows: &[Vec<Value>], types: &[DataType]) -> Vec<RecordBatch> {
    let batch = |part: &[Vec<Value>]| {
        let array = |(place, data_type): (usize, &DataType)| {
            let values: Vec<&Value> = part.iter().map(|row| &row[place]).collect();
            match data_type {
                DataType::Utf8 => {
                    Arc::new(StringArray::from_iter(values.iter().map(|v| match v {
                        Value::Text(text) => Some(text.as_str()),
                        _ => None,
                    })))
                }
                DataType::Boolean | DataType::Float32 | DataType::Float64 => {
                    column(random, &values, data_type).array
                }
                _ => integers(false, random, &values, data_type),
            }
        };
        let arrays = types.iter().enumerate().map(array).collect();
        RecordBatch::try_new(schema(types), arrays).expect("a batch")
    };
    rows.chunks(1000).map(batch).collect()
}

/// Returns rows as chunks: cut anywhere, stored in any form.
pub(crate) fn chunks(random: &mut Rng, rows: &[Vec<Value>], types: &[DataType]) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut from = 0;
    while from < rows.len() {
        let most = if random.bool() { 7 } else { 5000 };
        let count = random.usize(1..=most).min(rows.len() - from);
        let part = &rows[from..from + count];
        let column = |(place, data_type): (usize, &DataType)| {
            let values: Vec<&Value> = part.iter().map(|row| &row[place]).collect();
            column(random, &values, data_type)
        };
        let columns = types.iter().enumerate().map(column).collect();
        chunks.push(Chunk {
            rows: count,
            columns,
        });
        from += count;
    }
    chunks
}

fn column(random: &mut Rng, values: &[&Value], data_type: &DataType) -> ChunkColumn {
    let range = range(random, values);
    // The array is a slice that begins after another value.
    let mut padded = vec![values[0]];
    padded.extend(values);
    let array = match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(padded.iter().map(
            |value| match value {
                Value::Bool(value) => Some(*value),
                _ => None,
            },
        ))),
        DataType::Float32 => floats::<t::Float32Type>(&padded, |value| value as f32),
        DataType::Float64 => floats::<t::Float64Type>(&padded, |value| value),
        DataType::Utf8 => texts(random, &padded),
        integer => integers(random.bool(), random, &padded, integer),
    };
    ChunkColumn {
        array: array.slice(1, values.len()),
        range,
    }
}

fn range(random: &mut Rng, values: &[&Value]) -> Range {
    let wider = random.i128(0..3);
    let integers = values.iter().filter_map(|value| match value {
        Value::Int(value) => Some(*value),
        _ => None,
    });
    let texts = values.iter().filter_map(|value| match value {
        Value::Text(text) => Some(text.as_bytes()),
        _ => None,
    });
    if random.u8(0..4) == 0 {
        return Range::Unknown;
    }
    if values.iter().all(|value| **value == Value::Null) {
        return Range::Empty;
    }
    match values.iter().find(|value| ***value != Value::Null) {
        Some(Value::Int(_)) => Range::Int {
            min: integers.clone().min().expect("one").saturating_sub(wider),
            max: integers.max().expect("one").saturating_add(wider),
        },
        Some(Value::Text(_)) => Range::Bytes {
            min: texts.clone().min().expect("one").to_vec(),
            max: Some(texts.max().expect("one").to_vec()),
        },
        _ => Range::Unknown,
    }
}

fn floats<T: ArrowPrimitiveType>(values: &[&Value], as_native: fn(f64) -> T::Native) -> ArrayRef {
    let value = |value: &&Value| match value {
        Value::Float(value) => Some(as_native(*value)),
        _ => None,
    };
    Arc::new(values.iter().map(value).collect::<PrimitiveArray<T>>())
}

fn texts(random: &mut Rng, values: &[&Value]) -> ArrayRef {
    let texts = values.iter().map(|value| match value {
        Value::Text(text) => Some(text.as_str()),
        _ => None,
    });
    match random.u8(0..3) {
        0 => Arc::new(texts.collect::<StringArray>()),
        1 => Arc::new(texts.collect::<DictionaryArray<t::UInt16Type>>()),
        _ => {
            // As many texts as eight bits can number.
            let mut different: Vec<Option<&str>> = texts.clone().collect();
            different.sort_unstable();
            different.dedup();
            if different.len() < 200 {
                Arc::new(texts.collect::<DictionaryArray<t::UInt8Type>>())
            } else {
                Arc::new(texts.collect::<StringArray>())
            }
        }
    }
}

fn integers(narrow: bool, random: &mut Rng, values: &[&Value], data_type: &DataType) -> ArrayRef {
    fn array<T: ArrowPrimitiveType>(values: &[&Value], data_type: &DataType) -> Option<ArrayRef>
    where
        T::Native: TryFrom<i128>,
    {
        let value = |value: &&Value| match value {
            Value::Int(value) => T::Native::try_from(*value).ok().map(Some),
            _ => Some(None),
        };
        let values: Option<Vec<Option<T::Native>>> = values.iter().map(value).collect();
        let array = PrimitiveArray::<T>::from_iter(values?);
        Some(Arc::new(array.with_data_type(data_type.clone())))
    }
    let narrower = match data_type {
        _ if !narrow => None,
        DataType::Int32 | DataType::Int64 if random.bool() => {
            array::<t::Int16Type>(values, &DataType::Int16)
        }
        DataType::Int64 | DataType::Date32 => array::<t::UInt16Type>(values, &DataType::UInt16),
        DataType::UInt64 => array::<t::UInt32Type>(values, &DataType::UInt32),
        DataType::Decimal128(_, scale) => {
            array::<t::Decimal32Type>(values, &DataType::Decimal32(9, *scale))
                .or_else(|| array::<t::Decimal64Type>(values, &DataType::Decimal64(18, *scale)))
        }
        _ => None,
    };
    let own = match data_type {
        DataType::Int8 => array::<t::Int8Type>(values, data_type),
        DataType::Int32 => array::<t::Int32Type>(values, data_type),
        DataType::Date32 => array::<t::Date32Type>(values, data_type),
        DataType::Int64 => array::<t::Int64Type>(values, data_type),
        DataType::UInt16 => array::<t::UInt16Type>(values, data_type),
        DataType::UInt64 => array::<t::UInt64Type>(values, data_type),
        _ => array::<t::Decimal128Type>(values, data_type),
    };
    narrower.or(own).expect("values of their type")
}

/// Returns a schema of these types.
pub(crate) fn schema(types: &[DataType]) -> SchemaRef {
    let field =
        |(at, data_type): (usize, &DataType)| Field::new(format!("c{at}"), data_type.clone(), true);
    Arc::new(Schema::new(
        types.iter().enumerate().map(field).collect::<Vec<_>>(),
    ))
}

/// Returns the rows of a batch.
pub(crate) fn rows(batch: &RecordBatch) -> Vec<Vec<Value>> {
    (0..batch.num_rows())
        .map(|row| {
            batch
                .columns()
                .iter()
                .map(|array| value(array, row))
                .collect()
        })
        .collect()
}

fn value(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    fn of<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> T::Native {
        array.as_primitive::<T>().value(row)
    }
    Value::Int(match array.data_type() {
        DataType::Boolean => return Value::Bool(array.as_boolean().value(row)),
        DataType::Float32 => return Value::Float(of::<t::Float32Type>(array, row).into()),
        DataType::Float64 => return Value::Float(of::<t::Float64Type>(array, row)),
        DataType::Utf8 => return Value::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::Binary => return Value::Bytes(array.as_binary::<i32>().value(row).to_vec()),
        DataType::Int8 => of::<t::Int8Type>(array, row).into(),
        DataType::Int32 => of::<t::Int32Type>(array, row).into(),
        DataType::Date32 => of::<t::Date32Type>(array, row).into(),
        DataType::Int64 => of::<t::Int64Type>(array, row).into(),
        DataType::UInt16 => of::<t::UInt16Type>(array, row).into(),
        DataType::UInt64 => of::<t::UInt64Type>(array, row).into(),
        DataType::Decimal128(..) => of::<t::Decimal128Type>(array, row),
        other => panic!("{other} does not come out"),
    })
}
