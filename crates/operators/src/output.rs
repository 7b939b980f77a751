//! From vectors to arrays of the output's types.

use std::sync::Arc;

use arrow_array::types as t;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch,
    StringArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, SchemaRef, TimeUnit};

use crate::site::TaskError;
use crate::vector::{Values, Vector};

/// Rows of batches that come out, but for the last one.
pub(crate) const BATCH: usize = 8192;

/// A batch of these columns.
///
/// # Errors
/// If a column has null where the schema has none.
pub(crate) fn batch(
    schema: &SchemaRef,
    rows: usize,
    columns: &[Vector],
) -> Result<RecordBatch, TaskError> {
    let arrays = columns.iter().zip(schema.fields());
    let arrays: Vec<ArrayRef> = arrays
        .map(|(column, field)| array(column, rows, field.data_type()))
        .collect::<Result<_, _>>()?;
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
        .map_err(|error| TaskError::Value(format!("a result does not fit its schema: {error}")))
}

fn primitive<T: ArrowPrimitiveType>(
    values: &Values,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
    narrow: impl Fn(i64) -> T::Native,
    wide: impl Fn(i128) -> T::Native,
) -> ArrayRef {
    let values: Vec<T::Native> = match values {
        Values::I64(values) => values.iter().map(|&value| narrow(value)).collect(),
        values => values.wide().iter().map(|&value| wide(value)).collect(),
    };
    let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls);
    Arc::new(array.with_data_type(data_type.clone()))
}

/// An array of a type for the values of so many rows.
///
/// # Errors
/// If texts are not UTF-8.
pub(crate) fn array(
    vector: &Vector,
    rows: usize,
    data_type: &DataType,
) -> Result<ArrayRef, TaskError> {
    let vector = if vector.constant {
        &vector.expanded(rows)
    } else {
        vector
    };
    let nulls = vector.valid.as_ref().map(|valid| {
        NullBuffer::new(BooleanBuffer::collect_bool(valid.len(), |row| {
            valid[row] == 1
        }))
    });
    /// Of a primitive type, and its native one.
    macro_rules! integers {
        ($t:ty) => {
            primitive::<$t>(&vector.values, nulls, data_type, |v| v as _, |v| v as _)
        };
    }
    Ok(match data_type {
        DataType::Boolean => {
            let values = vector.bools();
            let values = BooleanBuffer::collect_bool(values.len(), |row| values[row] == 1);
            Arc::new(BooleanArray::new(values, nulls))
        }
        DataType::Int8 => integers!(t::Int8Type),
        DataType::Int16 => integers!(t::Int16Type),
        DataType::Int32 => integers!(t::Int32Type),
        DataType::Int64 => integers!(t::Int64Type),
        DataType::UInt8 => integers!(t::UInt8Type),
        DataType::UInt16 => integers!(t::UInt16Type),
        DataType::UInt32 => integers!(t::UInt32Type),
        DataType::UInt64 => integers!(t::UInt64Type),
        DataType::Date32 => integers!(t::Date32Type),
        DataType::Date64 => integers!(t::Date64Type),
        DataType::Timestamp(TimeUnit::Second, _) => integers!(t::TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => integers!(t::TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => integers!(t::TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => integers!(t::TimestampNanosecondType),
        DataType::Decimal32(..) => integers!(t::Decimal32Type),
        DataType::Decimal64(..) => integers!(t::Decimal64Type),
        DataType::Decimal128(..) => integers!(t::Decimal128Type),
        DataType::Float32 => {
            let values = vector
                .values
                .floats()
                .iter()
                .map(|&value| value as f32)
                .collect();
            let values: ScalarBuffer<f32> = Vec::into(values);
            Arc::new(PrimitiveArray::<t::Float32Type>::new(values, nulls))
        }
        DataType::Float64 => {
            let values = ScalarBuffer::from(vector.values.floats().to_vec());
            Arc::new(PrimitiveArray::<t::Float64Type>::new(values, nulls))
        }
        DataType::Utf8 | DataType::Binary => texts(vector, nulls, data_type)?,
        other => {
            return Err(TaskError::Refused(format!(
                "no values of type {other} come out"
            )));
        }
    })
}

fn texts(
    vector: &Vector,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, TaskError> {
    let texts = vector.values.bytes();
    let rows = 0..texts.index.len();
    let bytes: usize = rows.clone().map(|row| texts.get(row).len()).sum();
    if i32::try_from(bytes).is_err() {
        return Err(TaskError::Value(format!(
            "a batch cannot have texts of {bytes} bytes"
        )));
    }
    let text = |row| {
        if vector.is_valid(row) {
            texts.get(row)
        } else {
            &[]
        }
    };
    let array = BinaryArray::from_iter_values(rows.map(text));
    let (offsets, values, _) = array.into_parts();
    Ok(match data_type {
        DataType::Utf8 => Arc::new(
            StringArray::try_new(offsets, values, nulls)
                .map_err(|error| TaskError::Value(format!("a text is not UTF-8: {error}")))?,
        ),
        _ => Arc::new(BinaryArray::new(offsets, values, nulls)),
    })
}

/// Vectors of a column, one behind the other.
#[derive(Debug)]
pub(crate) struct Gathered {
    parts: Vec<Vector>,
    rows: usize,
}

impl Gathered {
    /// None yet.
    pub(crate) fn new() -> Gathered {
        Gathered {
            parts: Vec::new(),
            rows: 0,
        }
    }

    /// Adds the values of so many rows.
    pub(crate) fn push(&mut self, vector: &Vector, rows: usize) {
        self.parts.push(vector.expanded(rows));
        self.rows += rows;
    }

    /// All of them as one vector; `None` if there is none.
    pub(crate) fn join(self) -> Option<Vector> {
        let Gathered { mut parts, rows } = self;
        if parts.len() <= 1 {
            return parts.pop();
        }
        let valid = parts.iter().any(|part| part.valid.is_some()).then(|| {
            let row = |part: &Vector, row| u8::from(part.is_valid(row));
            let rows = parts
                .iter()
                .flat_map(|part| (0..part.len()).map(move |at| row(part, at)));
            rows.collect()
        });
        let values = match parts[0].values {
            Values::Bool(_) => {
                Values::Bool(parts.iter().flat_map(|p| p.bools()).copied().collect())
            }
            Values::F64(_) => Values::F64(
                parts
                    .iter()
                    .flat_map(|p| p.values.floats())
                    .copied()
                    .collect(),
            ),
            Values::Bytes(_) => {
                let mut texts = Vec::with_capacity(rows);
                for part in &parts {
                    let bytes = part.values.bytes();
                    texts.extend((0..bytes.index.len()).map(|row| bytes.get(row)));
                }
                Values::texts(&texts)
            }
            _ => integers(&parts),
        };
        Some(Vector::new(values, valid))
    }
}

/// Integers of all parts, in 64 bits if all are.
fn integers(parts: &[Vector]) -> Values {
    let mut narrow = Vec::new();
    for part in parts {
        match &part.values {
            Values::I64(values) => narrow.extend_from_slice(values),
            _ => {
                return Values::I128(
                    parts
                        .iter()
                        .flat_map(|part| part.values.wide().into_owned())
                        .collect(),
                );
            }
        }
    }
    Values::I64(narrow)
}
