//! What is known of a column's values without reading them.
//!
//! Invariant: bounds may be wider than the values, never narrower. So a reader that skips values
//! outside of its bounds misses none that it wants.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};

/// The most bytes that are kept of a text.
pub const PREFIX: usize = 16;

/// What is known of a column's values in a page.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounds {
    /// The number of nulls.
    pub nulls: u32,
    /// The range of the other values.
    pub range: Range,
}

/// The range of values; both ends may be among them.
#[derive(Clone, PartialEq, Debug)]
pub enum Range {
    /// Nothing is known: values of a kind that has no order, or with a NaN among them.
    Unknown,
    /// There is no value: all are null.
    Empty,
    /// Integers, dates, timestamps and decimals, the latter unscaled; false and true as 0 and 1.
    Int {
        /// The least value.
        min: i128,
        /// The greatest value.
        max: i128,
    },
    /// Floating-point numbers.
    Float {
        /// The least value.
        min: f64,
        /// The greatest value.
        max: f64,
    },
    /// Texts and bytes, which are ordered by their bytes.
    Bytes {
        /// No value is less; at most [`PREFIX`] bytes.
        min: Vec<u8>,
        /// No value is greater; at most [`PREFIX`] bytes. `None` if no text is so short.
        max: Option<Vec<u8>>,
    },
}

impl Bounds {
    /// Returns the bounds of arrays of one type, one after the other.
    pub(crate) fn of(pieces: &[ArrayRef]) -> Bounds {
        let nulls = pieces.iter().map(|piece| piece.null_count()).sum::<usize>();
        let rows = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let ranges = pieces.iter().map(range);
        Bounds {
            nulls: nulls as u32,
            range: if nulls == rows {
                Range::Empty
            } else {
                ranges.fold(Range::Empty, Range::join)
            },
        }
    }
}

impl Range {
    /// Returns the least range that includes both.
    #[must_use]
    pub fn join(self, other: Range) -> Range {
        match (self, other) {
            (Range::Empty, range) | (range, Range::Empty) => range,
            (Range::Int { min: a, max: b }, Range::Int { min, max }) => Range::Int {
                min: a.min(min),
                max: b.max(max),
            },
            (Range::Float { min: a, max: b }, Range::Float { min, max }) => Range::Float {
                min: if a.total_cmp(&min).is_lt() { a } else { min },
                max: if b.total_cmp(&max).is_gt() { b } else { max },
            },
            (Range::Bytes { min: a, max: b }, Range::Bytes { min, max }) => Range::Bytes {
                min: a.min(min),
                max: b.zip(max).map(|(b, max)| b.max(max)),
            },
            _ => Range::Unknown,
        }
    }

    /// Returns `true` if it includes the other range, as far as that can be told.
    pub(crate) fn covers(&self, other: &Range) -> bool {
        *self == Range::Unknown || self.clone().join(other.clone()) == *self
    }

    /// Returns the range of a text, or of bytes.
    #[must_use]
    pub fn of_bytes(value: &[u8]) -> Range {
        Range::Bytes {
            min: value[..value.len().min(PREFIX)].to_vec(),
            max: upper(value),
        }
    }
}

/// Returns the least text of at most [`PREFIX`] bytes that is not less than `value`.
fn upper(value: &[u8]) -> Option<Vec<u8>> {
    if value.len() <= PREFIX {
        return Some(value.to_vec());
    }
    let last = value[..PREFIX].iter().rposition(|&byte| byte < u8::MAX)?;
    let mut bound = value[..=last].to_vec();
    bound[last] += 1;
    Some(bound)
}

fn range(array: &ArrayRef) -> Range {
    match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            ints(array.iter().flatten().map(i128::from))
        }
        DataType::Int8 => numbers::<Int8Type>(array),
        DataType::Int16 => numbers::<Int16Type>(array),
        DataType::Int32 => numbers::<Int32Type>(array),
        DataType::Int64 => numbers::<Int64Type>(array),
        DataType::UInt8 => numbers::<UInt8Type>(array),
        DataType::UInt16 => numbers::<UInt16Type>(array),
        DataType::UInt32 => numbers::<UInt32Type>(array),
        DataType::UInt64 => numbers::<UInt64Type>(array),
        DataType::Date32 => numbers::<Date32Type>(array),
        DataType::Timestamp(TimeUnit::Second, _) => numbers::<TimestampSecondType>(array),
        DataType::Timestamp(TimeUnit::Millisecond, _) => numbers::<TimestampMillisecondType>(array),
        DataType::Timestamp(TimeUnit::Microsecond, _) => numbers::<TimestampMicrosecondType>(array),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => numbers::<TimestampNanosecondType>(array),
        DataType::Decimal32(..) => numbers::<Decimal32Type>(array),
        DataType::Decimal64(..) => numbers::<Decimal64Type>(array),
        DataType::Decimal128(..) => numbers::<Decimal128Type>(array),
        DataType::Float32 => floats(
            array
                .as_primitive::<Float32Type>()
                .iter()
                .flatten()
                .map(f64::from),
        ),
        DataType::Float64 => floats(array.as_primitive::<Float64Type>().iter().flatten()),
        DataType::Utf8 => texts(array.as_string::<i32>().iter().flatten().map(str::as_bytes)),
        DataType::Binary => texts(array.as_binary::<i32>().iter().flatten()),
        _ => Range::Unknown,
    }
}

fn numbers<T: ArrowPrimitiveType>(array: &ArrayRef) -> Range
where
    T::Native: Ord + Into<i128>,
{
    let array = array.as_primitive::<T>();
    let ends = |values: &mut dyn Iterator<Item = T::Native>| {
        let first = values.next()?;
        Some(values.fold((first, first), |(min, max), value| {
            (min.min(value), max.max(value))
        }))
    };
    let found = if array.null_count() == 0 {
        // The loop over a slice is compiled to vector instructions.
        let min = array.values().iter().copied().min();
        min.zip(array.values().iter().copied().max())
    } else {
        ends(&mut array.iter().flatten())
    };
    found.map_or(Range::Empty, |(min, max)| Range::Int {
        min: min.into(),
        max: max.into(),
    })
}

fn ints(values: impl Iterator<Item = i128>) -> Range {
    values
        .map(|value| Range::Int {
            min: value,
            max: value,
        })
        .fold(Range::Empty, Range::join)
}

/// Returns the range of floats; unknown if a NaN is among them, as programs order NaNs differently.
fn floats(values: impl Iterator<Item = f64>) -> Range {
    let of = |value: f64| match value.is_nan() {
        true => Range::Unknown,
        false => Range::Float {
            min: value,
            max: value,
        },
    };
    values.map(of).fold(Range::Empty, Range::join)
}

fn texts<'a>(values: impl Iterator<Item = &'a [u8]>) -> Range {
    let mut ends: Option<(&[u8], &[u8])> = None;
    for value in values {
        let (min, max) = ends.get_or_insert((value, value));
        *min = value.min(*min);
        *max = value.max(*max);
    }
    ends.map_or(Range::Empty, |(min, max)| {
        Range::of_bytes(min).join(Range::of_bytes(max))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn texts_are_cut_to_the_safe_side() {
        let long = |byte: u8| vec![byte; PREFIX + 1];
        assert_eq!(
            upper(&long(b'a')),
            Some([&[b'a'; PREFIX - 1][..], b"b"].concat())
        );
        assert_eq!(upper(&long(255)), None);
        let mut mixed = long(255);
        mixed[3] = 7;
        assert_eq!(upper(&mixed), Some(vec![255, 255, 255, 8]));
        for value in [long(b'a'), long(255), mixed, b"short".to_vec(), Vec::new()] {
            let Range::Bytes { min, max } = Range::of_bytes(&value) else {
                unreachable!("bytes have such a range")
            };
            assert!(min <= value && max.is_none_or(|max| max >= value));
        }
    }

    #[test]
    fn bounds_are_those_of_all_pieces() {
        let of = |pieces: &[ArrayRef]| Bounds::of(pieces);
        let ints = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let found = of(&[
            ints(vec![Some(5), None]),
            ints(vec![None]),
            ints(vec![Some(-3)]),
        ]);
        assert_eq!(
            found,
            Bounds {
                nulls: 2,
                range: Range::Int { min: -3, max: 5 }
            }
        );
        assert_eq!(of(&[ints(vec![None])]).range, Range::Empty);
        let floats = |values: Vec<f64>| Arc::new(Float64Array::from(values)) as ArrayRef;
        let found = of(&[floats(vec![0.0, -0.0]), floats(vec![2.0])]).range;
        assert!(matches!(found, Range::Float { min, max } if min.is_sign_negative() && max == 2.0));
        assert_eq!(
            of(&[floats(vec![1.0, f64::NAN]), floats(vec![2.0])]).range,
            Range::Unknown
        );
        let texts = Arc::new(StringArray::from(vec![Some("b"), None, Some("")])) as ArrayRef;
        let range = Range::of_bytes(b"").join(Range::of_bytes(b"b"));
        assert_eq!(of(&[texts]), Bounds { nulls: 1, range });
    }
}
