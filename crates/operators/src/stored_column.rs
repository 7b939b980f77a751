//! A chunk's columns as they are stored, ready to be read: slices of any width, dictionaries with
//! their keys.

use std::cell::OnceCell;

use arrow_array::cast::AsArray;
use arrow_array::types as t;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, DictionaryArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

use crate::types;
use crate::vector::{IndexedTexts, Vector, VectorValues};
use pages::task::TaskError;

/// A column's values as they are stored.
#[derive(Clone, Debug)]
pub(crate) enum StoredValues<'a> {
    Bool(&'a BooleanArray),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    I128(&'a [i128]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Bytes(BinaryArray),
    Dictionary8(&'a [u8], BinaryArray),
    Dictionary16(&'a [u16], BinaryArray),
}

/// Integers of a width.
pub(crate) trait Integer: Copy + PartialOrd {
    /// The least and the greatest value.
    const LIMITS: (i128, i128);
    /// Converts a number within the limits.
    fn exactly(value: i128) -> Self;
    /// Converts to 64 bits; what does not fit is cut off.
    fn narrow(self) -> i64;
    /// Converts to 128 bits.
    fn wide(self) -> i128;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        #[allow(clippy::unnecessary_cast)] // One of them is of the type that it is cast to.
        impl Integer for $t {
            const LIMITS: (i128, i128) = (<$t>::MIN as i128, <$t>::MAX as i128);
            #[inline]
            fn exactly(value: i128) -> Self {
                value as $t
            }
            #[inline]
            fn narrow(self) -> i64 {
                self as i64
            }
            #[inline]
            fn wide(self) -> i128 {
                self as i128
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

/// Evaluates the same expression for a slice of integers of any width, and another one otherwise.
macro_rules! with_integers {
    ($stored:expr, $slice:ident => $body:expr, _ => $other:expr) => {
        match $stored {
            StoredValues::I8($slice) => $body,
            StoredValues::I16($slice) => $body,
            StoredValues::I32($slice) => $body,
            StoredValues::I64($slice) => $body,
            StoredValues::I128($slice) => $body,
            StoredValues::U8($slice) => $body,
            StoredValues::U16($slice) => $body,
            StoredValues::U32($slice) => $body,
            StoredValues::U64($slice) => $body,
            _ => $other,
        }
    };
}
pub(crate) use with_integers;

/// A column of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct StoredColumn<'a> {
    /// Its values.
    pub(crate) stored: StoredValues<'a>,
    /// Marks the values that are null.
    pub(crate) nulls: Option<NullBuffer>,
}

/// A chunk's columns, each of which is loaded when it is needed.
pub(crate) struct ChunkColumns<'a> {
    rows: usize,
    types: &'a [DataType],
    load: ColumnLoader<'a>,
    arrays: &'a [OnceCell<ArrayRef>],
    loaded: Vec<OnceCell<StoredColumn<'a>>>,
}

/// Loads a column.
pub(crate) type ColumnLoader<'a> = &'a dyn Fn(usize) -> Result<ArrayRef, TaskError>;

impl<'a> ChunkColumns<'a> {
    /// Makes columns of these types and of so many rows, with room for their arrays.
    pub(crate) fn new(
        rows: usize,
        types: &'a [DataType],
        load: ColumnLoader<'a>,
        arrays: &'a [OnceCell<ArrayRef>],
    ) -> ChunkColumns<'a> {
        let loaded = types.iter().map(|_| OnceCell::new()).collect();
        ChunkColumns {
            rows,
            types,
            load,
            arrays,
            loaded,
        }
    }

    /// Returns a column.
    ///
    /// # Errors
    /// Returns an error if it cannot be loaded, or is not stored as one of its type.
    pub(crate) fn get(&self, column: usize) -> Result<&StoredColumn<'a>, TaskError> {
        if let Some(loaded) = self.loaded[column].get() {
            return Ok(loaded);
        }
        let array = match self.arrays[column].get() {
            Some(array) => array,
            None => {
                let array = (self.load)(column)?;
                self.arrays[column].get_or_init(|| array)
            }
        };
        if array.len() != self.rows {
            let what = format!("a column has {} rows, and not {}", array.len(), self.rows);
            return Err(TaskError::Refused(what));
        }
        let loaded = StoredColumn::new(array, &self.types[column])?;
        Ok(self.loaded[column].get_or_init(|| loaded))
    }
}

/// Which rows of a chunk are worked on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowSelection<'a> {
    /// The first row, and the number of rows.
    Slice(usize, usize),
    /// The numbers of the rows.
    Picked(&'a [u32]),
}

impl RowSelection<'_> {
    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            RowSelection::Slice(_, len) => *len,
            RowSelection::Picked(rows) => rows.len(),
        }
    }

    /// Returns the numbers in the chunk of the rows at these places.
    pub(crate) fn at(&self, places: &[u32]) -> Vec<u32> {
        match self {
            RowSelection::Slice(from, _) => places.iter().map(|at| *from as u32 + at).collect(),
            RowSelection::Picked(rows) => places.iter().map(|&at| rows[at as usize]).collect(),
        }
    }
}

impl<'a> StoredColumn<'a> {
    /// Returns an array as a column of a type.
    ///
    /// # Errors
    /// Returns an error if the array is neither of that type nor of a narrower one for it.
    pub(crate) fn new(
        array: &'a ArrayRef,
        data_type: &DataType,
    ) -> Result<StoredColumn<'a>, TaskError> {
        let array = array.as_ref();
        let stored = stored(array, data_type).ok_or_else(|| {
            let found = array.data_type();
            TaskError::Refused(format!("a column of type {data_type} is stored as {found}"))
        })?;
        let nulls = array.logical_nulls();
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        Ok(StoredColumn { stored, nulls })
    }

    /// Returns the rows' values. Integers come in 64 bits if `narrow` is set.
    pub(crate) fn vector(&self, rows: RowSelection<'_>, narrow: bool) -> Vector {
        Vector::new(self.values(rows, narrow), self.validity(rows))
    }

    /// Returns which of the rows' values are not null; `None` if all are not.
    pub(crate) fn validity(&self, rows: RowSelection<'_>) -> Option<Vec<u8>> {
        let nulls = self.nulls.as_ref()?;
        let valid: Vec<u8> = match rows {
            RowSelection::Slice(from, len) => nulls
                .inner()
                .slice(from, len)
                .iter()
                .map(u8::from)
                .collect(),
            RowSelection::Picked(rows) => rows
                .iter()
                .map(|&row| u8::from(nulls.is_valid(row as usize)))
                .collect(),
        };
        valid.contains(&0).then_some(valid)
    }

    fn values(&self, rows: RowSelection<'_>, narrow: bool) -> VectorValues {
        fn get<T: Copy, U>(
            slice: &[T],
            rows: RowSelection<'_>,
            convert: impl Fn(T) -> U,
        ) -> Vec<U> {
            match rows {
                RowSelection::Slice(from, len) => slice[from..from + len]
                    .iter()
                    .map(|&value| convert(value))
                    .collect(),
                RowSelection::Picked(rows) => rows
                    .iter()
                    .map(|&row| convert(slice[row as usize]))
                    .collect(),
            }
        }
        let texts = |data: &BinaryArray, index| {
            VectorValues::Bytes(IndexedTexts {
                data: data.clone(),
                index,
            })
        };
        match &self.stored {
            StoredValues::Bool(array) => VectorValues::Bool(match rows {
                RowSelection::Slice(from, len) => array
                    .values()
                    .slice(from, len)
                    .iter()
                    .map(u8::from)
                    .collect(),
                RowSelection::Picked(rows) => rows
                    .iter()
                    .map(|&row| u8::from(array.value(row as usize)))
                    .collect(),
            }),
            StoredValues::F32(slice) => VectorValues::F64(get(slice, rows, f64::from)),
            StoredValues::F64(slice) => VectorValues::F64(get(slice, rows, |value| value)),
            StoredValues::Bytes(data) => texts(
                data,
                match rows {
                    RowSelection::Slice(from, len) => (from as u32..(from + len) as u32).collect(),
                    RowSelection::Picked(rows) => rows.to_vec(),
                },
            ),
            StoredValues::Dictionary8(keys, data) => texts(data, get(keys, rows, u32::from)),
            StoredValues::Dictionary16(keys, data) => texts(data, get(keys, rows, u32::from)),
            integers if narrow => VectorValues::I64(
                with_integers!(integers, slice => get(slice, rows, Integer::narrow), _ => vec![]),
            ),
            integers => VectorValues::I128(
                with_integers!(integers, slice => get(slice, rows, Integer::wide), _ => vec![]),
            ),
        }
    }
}

fn slice<T: ArrowPrimitiveType>(array: &dyn Array) -> &[T::Native] {
    array.as_primitive::<T>().values()
}

/// Returns the values of an array, if it can store a type.
fn stored<'a>(array: &'a dyn Array, data_type: &DataType) -> Option<StoredValues<'a>> {
    let found = array.data_type();
    match (found, data_type) {
        (
            &DataType::Decimal32(_, s1),
            &DataType::Decimal64(_, s2) | &DataType::Decimal128(_, s2),
        )
        | (&DataType::Decimal64(_, s1), &DataType::Decimal128(_, s2))
            if s1 == s2 => {}
        (DataType::Dictionary(..), DataType::Utf8 | DataType::Binary) => {}
        // Time zones belong to the column, and change no value.
        (DataType::Timestamp(found, _), DataType::Timestamp(wanted, _)) if found == wanted => {}
        // Integers, dates and timestamps may be stored as narrower integers.
        (narrow, wide)
            if narrow.is_integer()
                && matches!((types::limits(narrow), types::limits(wide)), (Some(n), Some(w)) if w.0 <= n.0 && n.1 <= w.1)
                && !matches!(
                    wide,
                    DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..)
                ) => {}
        (found, wanted) if found == wanted => {}
        _ => return None,
    }
    Some(match found {
        DataType::Boolean => StoredValues::Bool(array.as_boolean()),
        DataType::Int8 => StoredValues::I8(slice::<t::Int8Type>(array)),
        DataType::Int16 => StoredValues::I16(slice::<t::Int16Type>(array)),
        DataType::Int32 => StoredValues::I32(slice::<t::Int32Type>(array)),
        DataType::Date32 => StoredValues::I32(slice::<t::Date32Type>(array)),
        DataType::Decimal32(..) => StoredValues::I32(slice::<t::Decimal32Type>(array)),
        DataType::Int64 => StoredValues::I64(slice::<t::Int64Type>(array)),
        DataType::Date64 => StoredValues::I64(slice::<t::Date64Type>(array)),
        DataType::Decimal64(..) => StoredValues::I64(slice::<t::Decimal64Type>(array)),
        DataType::Timestamp(unit, _) => StoredValues::I64(match unit {
            TimeUnit::Second => slice::<t::TimestampSecondType>(array),
            TimeUnit::Millisecond => slice::<t::TimestampMillisecondType>(array),
            TimeUnit::Microsecond => slice::<t::TimestampMicrosecondType>(array),
            TimeUnit::Nanosecond => slice::<t::TimestampNanosecondType>(array),
        }),
        DataType::Decimal128(..) => StoredValues::I128(slice::<t::Decimal128Type>(array)),
        DataType::UInt8 => StoredValues::U8(slice::<t::UInt8Type>(array)),
        DataType::UInt16 => StoredValues::U16(slice::<t::UInt16Type>(array)),
        DataType::UInt32 => StoredValues::U32(slice::<t::UInt32Type>(array)),
        DataType::UInt64 => StoredValues::U64(slice::<t::UInt64Type>(array)),
        DataType::Float32 => StoredValues::F32(slice::<t::Float32Type>(array)),
        DataType::Float64 => StoredValues::F64(slice::<t::Float64Type>(array)),
        DataType::Utf8 | DataType::Binary => StoredValues::Bytes(binary(array)?),
        DataType::Dictionary(key, _) => match key.as_ref() {
            DataType::UInt8 => {
                let dictionary: &DictionaryArray<t::UInt8Type> = array.as_dictionary();
                StoredValues::Dictionary8(dictionary.keys().values(), binary(dictionary.values())?)
            }
            DataType::UInt16 => {
                let dictionary: &DictionaryArray<t::UInt16Type> = array.as_dictionary();
                StoredValues::Dictionary16(dictionary.keys().values(), binary(dictionary.values())?)
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns texts as bytes, by which they are compared.
fn binary(array: &dyn Array) -> Option<BinaryArray> {
    match array.data_type() {
        DataType::Utf8 => Some(BinaryArray::from(array.as_string::<i32>().clone())),
        DataType::Binary => Some(array.as_binary::<i32>().clone()),
        _ => None,
    }
}
