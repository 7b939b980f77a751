//! From vectors to arrays of the output's types.

use std::slice;
use std::sync::Arc;

use arrow_array::types as t;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch,
    StringArray, new_empty_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, SchemaRef, TimeUnit};

use crate::vector::{IndexedTexts, Vector, VectorValues};
use pages::task::TaskError;

/// Rows of each batch that comes out, except the last.
pub(crate) const BATCH: usize = 8192;

/// Bytes of texts at which a batch comes out although it has fewer rows. The bytes are read again
/// when they are sent, so they should still be in a cache.
pub(crate) const BATCH_BYTES: usize = 256 << 10;

/// The most bytes of all other values of a batch: a batch is one message.
const MESSAGE: usize = 8 << 20;

/// Returns the number of rows of a batch with these columns: fewer than [`BATCH`] if there are very
/// many columns.
pub(crate) fn most_rows(schema: &SchemaRef) -> usize {
    let width = |field: &FieldRef| field.data_type().primitive_width().unwrap_or(1);
    let width: usize = schema.fields().iter().map(width).sum();
    (MESSAGE / width.max(1)).clamp(1, BATCH)
}

/// Returns a batch of these columns.
///
/// # Errors
/// Returns an error if a column has a null that the schema does not allow.
pub(crate) fn batch(
    schema: &SchemaRef,
    rows: usize,
    columns: &[Vector],
) -> Result<RecordBatch, TaskError> {
    let arrays = columns.iter().zip(schema.fields());
    let arrays = arrays.map(|(column, field)| array(column, rows, field.data_type()));
    assembled(schema, rows, arrays.collect::<Result<_, _>>()?)
}

/// Returns a batch of these columns, each of which has as many rows.
///
/// # Errors
/// Returns the errors of [`batch`].
pub(crate) fn gathered(
    schema: &SchemaRef,
    rows: usize,
    columns: impl Iterator<Item = ColumnBuilder>,
) -> Result<RecordBatch, TaskError> {
    let arrays = columns.zip(schema.fields());
    let arrays = arrays.map(|(column, field)| column.array(field.data_type()));
    assembled(schema, rows, arrays.collect::<Result<_, _>>()?)
}

fn assembled(
    schema: &SchemaRef,
    rows: usize,
    arrays: Vec<ArrayRef>,
) -> Result<RecordBatch, TaskError> {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
        .map_err(|error| TaskError::Value(format!("a result does not fit its schema: {error}")))
}

fn primitive<T: ArrowPrimitiveType>(
    values: &VectorValues,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
    narrow: impl Fn(i64) -> T::Native,
    wide: impl Fn(i128) -> T::Native,
) -> ArrayRef {
    let values: Vec<T::Native> = match values {
        VectorValues::I64(values) => values.iter().map(|&value| narrow(value)).collect(),
        values => values.wide().iter().map(|&value| wide(value)).collect(),
    };
    let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls);
    Arc::new(array.with_data_type(data_type.clone()))
}

/// Returns an array of a type for the values of so many rows.
///
/// # Errors
/// Returns an error if texts are not UTF-8.
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
    let nulls = vector.valid.as_deref().map(nulls);
    /// Makes an array of a primitive type from its native values.
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
        DataType::Utf8 | DataType::Binary => texts(slice::from_ref(vector), data_type)?,
        other => {
            return Err(TaskError::Refused(format!(
                "no values of type {other} come out"
            )));
        }
    })
}

fn nulls(valid: &[u8]) -> NullBuffer {
    NullBuffer::new(BooleanBuffer::collect_bool(valid.len(), |row| {
        valid[row] == 1
    }))
}

/// Returns an array of the texts of vectors, one after the other. No vector is constant.
fn texts(parts: &[Vector], data_type: &DataType) -> Result<ArrayRef, TaskError> {
    let rows = || {
        parts.iter().flat_map(|part| {
            let texts = part.values.bytes();
            (0..texts.index.len()).map(move |row| match part.is_valid(row) {
                true => texts.get(row),
                false => &[],
            })
        })
    };
    let (mut offsets, mut end) = (vec![0], 0usize);
    offsets.reserve(parts.iter().map(Vector::len).sum());
    for text in rows() {
        end += text.len();
        let end = i32::try_from(end).map_err(|_| {
            TaskError::Value("a batch cannot have texts of two gigabytes".to_owned())
        })?;
        offsets.push(end);
    }
    let mut values = Vec::with_capacity(end);
    parts.iter().for_each(|part| append(part, &mut values));
    let offsets = OffsetBuffer::new(offsets.into());
    let nulls = valid(parts).as_deref().map(nulls);
    let wrong = |error| TaskError::Value(format!("a text is not UTF-8: {error}"));
    Ok(match data_type {
        DataType::Utf8 => {
            Arc::new(StringArray::try_new(offsets, values.into(), nulls).map_err(wrong)?)
        }
        _ => Arc::new(BinaryArray::new(offsets, values.into(), nulls)),
    })
}

/// Appends the texts of a vector. Adjacent texts are copied together.
fn append(part: &Vector, values: &mut Vec<u8>) {
    let texts = part.values.bytes();
    let (offsets, data) = (texts.data.value_offsets(), texts.data.value_data());
    let mut run = 0..0;
    for (row, &at) in texts.index.iter().enumerate() {
        let at = at as usize;
        // Keys of null rows may point anywhere.
        let Some([from, to]) = offsets.get(at..at + 2).filter(|_| part.is_valid(row)) else {
            continue;
        };
        let text = *from as usize..*to as usize;
        if text.start == run.end {
            run.end = text.end;
        } else {
            values.extend_from_slice(&data[run]);
            run = text;
        }
    }
    values.extend_from_slice(&data[run]);
}

/// Returns which rows of vectors, one after the other, are not null; `None` if all are not.
fn valid(parts: &[Vector]) -> Option<Vec<u8>> {
    parts.iter().any(|part| part.valid.is_some()).then(|| {
        let of = |part: &Vector, row| u8::from(part.is_valid(row));
        let rows = parts
            .iter()
            .flat_map(|part| (0..part.len()).map(move |at| of(part, at)));
        rows.collect()
    })
}

/// Vectors of a column, one after the other.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    parts: Vec<Vector>,
    rows: usize,
}

impl ColumnBuilder {
    /// Makes an empty list.
    pub(crate) fn new() -> ColumnBuilder {
        ColumnBuilder {
            parts: Vec::new(),
            rows: 0,
        }
    }

    /// Adds the values of so many rows. Returns the number of bytes of their texts.
    pub(crate) fn push(&mut self, vector: &Vector, rows: usize) -> usize {
        let part = vector.expanded(rows);
        let bytes = match &part.values {
            VectorValues::Bytes(texts) => (0..rows).map(|row| texts.get(row).len()).sum(),
            _ => 0,
        };
        self.parts.push(part);
        self.rows += rows;
        bytes
    }

    /// Returns all of them as an array of a type.
    fn array(self, data_type: &DataType) -> Result<ArrayRef, TaskError> {
        if let Some(first) = self.parts.first()
            && matches!(first.values, VectorValues::Bytes(_))
            && matches!(data_type, DataType::Utf8 | DataType::Binary)
        {
            return texts(&self.parts, data_type);
        }
        let rows = self.rows;
        match self.join()? {
            Some(vector) => array(&vector, rows, data_type),
            None => Ok(new_empty_array(data_type)),
        }
    }

    /// Returns all of them as one vector; `None` if there is none.
    fn join(self) -> Result<Option<Vector>, TaskError> {
        let ColumnBuilder { mut parts, .. } = self;
        if parts.len() <= 1 {
            return Ok(parts.pop());
        }
        let valid = valid(&parts);
        let values = match parts[0].values {
            VectorValues::Bool(_) => {
                VectorValues::Bool(parts.iter().flat_map(|p| p.bools()).copied().collect())
            }
            VectorValues::F64(_) => VectorValues::F64(
                parts
                    .iter()
                    .flat_map(|p| p.values.floats())
                    .copied()
                    .collect(),
            ),
            VectorValues::Bytes(_) => {
                let texts = parts.iter().map(|part| part.values.bytes());
                let texts = texts.flat_map(|t| (0..t.index.len()).map(|row| t.get(row)));
                VectorValues::Bytes(IndexedTexts::new(texts)?)
            }
            _ => integers(&parts),
        };
        Ok(Some(Vector::new(values, valid)))
    }
}

/// Returns the integers of all parts, in 64 bits if all parts are.
fn integers(parts: &[Vector]) -> VectorValues {
    let mut narrow = Vec::new();
    for part in parts {
        match &part.values {
            VectorValues::I64(values) => narrow.extend_from_slice(values),
            _ => {
                return VectorValues::I128(
                    parts
                        .iter()
                        .flat_map(|part| part.values.wide().into_owned())
                        .collect(),
                );
            }
        }
    }
    VectorValues::I64(narrow)
}
