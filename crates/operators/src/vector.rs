//! Values of up to [`VECTOR`] rows, which stay in the processor's first caches while expressions are
//! evaluated over them.
//!
//! Invariants:
//!
//! 1. Where a value is null, the value in its place has no meaning, but exists.
//! 2. A *constant* vector has one value, which stands for any number of rows.
//! 3. Truth values are 0 and 1, as are marks of validity.

use std::iter;

use arrow_array::{Array, BinaryArray};
use arrow_buffer::OffsetBuffer;

use crate::expr::ExprError;
use crate::scalar::{Scalar, Value};
use crate::types::{self, Class};
use pages::task::TaskError;

/// The most rows that are worked on at once.
pub(crate) const VECTOR: usize = 2048;

/// Values of rows.
#[derive(Clone, Debug)]
pub(crate) struct Vector {
    /// The values.
    pub(crate) values: VectorValues,
    /// Marks the values that are not null; `None` if all are not.
    pub(crate) valid: Option<Vec<u8>>,
    /// `true` if there is a single value, for all rows.
    pub(crate) constant: bool,
}

/// Values, in one of the forms in which they are computed.
#[derive(Clone, Debug)]
pub(crate) enum VectorValues {
    /// Of [`Class::Bool`].
    Bool(Vec<u8>),
    /// Of [`Class::Int`].
    I64(Vec<i64>),
    /// Of [`Class::Int`], if they may not fit into 64 bits.
    I128(Vec<i128>),
    /// Of [`Class::Float`]. 32-bit floats are kept as 64-bit ones of the same value.
    F64(Vec<f64>),
    /// Of [`Class::Bytes`].
    Bytes(IndexedTexts),
}

/// Texts, as places in an array of texts: the column's own, or its dictionary.
#[derive(Clone, Debug)]
pub(crate) struct IndexedTexts {
    /// The texts.
    pub(crate) data: BinaryArray,
    /// For each row the place of its text.
    pub(crate) index: Vec<u32>,
}

impl IndexedTexts {
    /// Makes a text for each row.
    ///
    /// # Errors
    /// Returns an error if together they have two gigabytes: arrays count bytes in 31 bits.
    pub(crate) fn new<'t>(
        texts: impl Iterator<Item = &'t [u8]> + Clone,
    ) -> Result<IndexedTexts, TaskError> {
        let (mut offsets, mut end) = (vec![0], 0usize);
        for text in texts.clone() {
            end += text.len();
            offsets.push(i32::try_from(end).map_err(|_| too_long())?);
        }
        let mut values = Vec::with_capacity(end);
        texts.for_each(|text| values.extend_from_slice(text));
        let offsets = OffsetBuffer::new(offsets.into());
        let rows = offsets.len() as u32 - 1;
        Ok(IndexedTexts {
            data: BinaryArray::new(offsets, values.into(), None),
            index: (0..rows).collect(),
        })
    }

    /// Returns the text of a row.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> &[u8] {
        text(&self.data, self.index[row] as usize)
    }

    /// Returns the result of a function for each row's text. The function is called once for each
    /// text of the array where that is less work.
    pub(crate) fn map<T: Copy + Default>(&self, mut function: impl FnMut(&[u8]) -> T) -> Vec<T> {
        if self.data.len() > self.index.len() {
            return (0..self.index.len())
                .map(|row| function(self.get(row)))
                .collect();
        }
        let of_all: Vec<T> = (0..self.data.len())
            .map(|at| function(text(&self.data, at)))
            .collect();
        let of = |&at: &u32| of_all.get(at as usize).copied().unwrap_or_default();
        self.index.iter().map(of).collect()
    }
}

fn too_long() -> TaskError {
    let text = "texts that are worked on together have two gigabytes; ask for shorter ones";
    TaskError::Value(text.to_owned())
}

/// Returns a text of an array, or an empty one if it does not exist: keys of null rows may point
/// anywhere.
#[inline]
pub(crate) fn text(data: &BinaryArray, at: usize) -> &[u8] {
    match data.value_offsets().get(at..at + 2) {
        Some(&[from, to]) => data
            .value_data()
            .get(from as usize..to as usize)
            .unwrap_or(&[]),
        _ => &[],
    }
}

impl Vector {
    /// Makes a vector of values of which none is null.
    pub(crate) fn all_valid(values: VectorValues) -> Vector {
        Vector {
            values,
            valid: None,
            constant: false,
        }
    }

    /// Makes a vector of values of which some may be null.
    pub(crate) fn new(values: VectorValues, valid: Option<Vec<u8>>) -> Vector {
        Vector {
            values,
            valid,
            constant: false,
        }
    }

    /// Makes a constant vector.
    ///
    /// # Errors
    /// Returns an error if the value is a text of two gigabytes.
    pub(crate) fn literal(scalar: &Scalar) -> Result<Vector, ExprError> {
        let text = |text: &[u8]| {
            let texts = IndexedTexts::new(iter::once(text));
            let texts = texts.map_err(|_| ExprError::Argument("a literal has two gigabytes"));
            texts.map(VectorValues::Bytes)
        };
        let values = match (&scalar.value, types::class(&scalar.data_type)) {
            (Value::Bool(value), _) => VectorValues::Bool(vec![u8::from(*value)]),
            (Value::Int(value), _) => match i64::try_from(*value) {
                Ok(value) => VectorValues::I64(vec![value]),
                Err(_) => VectorValues::I128(vec![*value]),
            },
            (Value::Float(value), _) => VectorValues::F64(vec![*value]),
            (Value::Text(value), _) => text(value.as_bytes())?,
            (Value::Bytes(value), _) => text(value)?,
            (Value::Null, class) => VectorValues::nothing(class.unwrap_or(Class::Int), 1),
        };
        let valid = (scalar.value == Value::Null).then(|| vec![0]);
        Ok(Vector {
            values,
            valid,
            constant: true,
        })
    }

    /// Returns the number of values: one, if the vector is constant.
    pub(crate) fn len(&self) -> usize {
        match &self.values {
            VectorValues::Bool(values) => values.len(),
            VectorValues::I64(values) => values.len(),
            VectorValues::I128(values) => values.len(),
            VectorValues::F64(values) => values.len(),
            VectorValues::Bytes(bytes) => bytes.index.len(),
        }
    }

    /// Returns `true` if a row's value is not null.
    #[inline]
    pub(crate) fn is_valid(&self, row: usize) -> bool {
        match &self.valid {
            None => true,
            Some(valid) => valid[if self.constant { 0 } else { row }] == 1,
        }
    }

    /// Returns the vector with one value for each row.
    pub(crate) fn expanded(&self, rows: usize) -> Vector {
        if !self.constant {
            return self.clone();
        }
        let places = vec![0u32; rows];
        Vector {
            constant: false,
            ..self.at_places(&places)
        }
    }

    /// Returns the values at these places.
    pub(crate) fn taken(&self, places: &[u32]) -> Vector {
        if self.constant {
            self.clone()
        } else {
            self.at_places(places)
        }
    }

    fn at_places(&self, places: &[u32]) -> Vector {
        fn take<T: Copy>(values: &[T], places: &[u32]) -> Vec<T> {
            places.iter().map(|&at| values[at as usize]).collect()
        }
        let values = match &self.values {
            VectorValues::Bool(values) => VectorValues::Bool(take(values, places)),
            VectorValues::I64(values) => VectorValues::I64(take(values, places)),
            VectorValues::I128(values) => VectorValues::I128(take(values, places)),
            VectorValues::F64(values) => VectorValues::F64(take(values, places)),
            VectorValues::Bytes(bytes) => VectorValues::Bytes(IndexedTexts {
                data: bytes.data.clone(),
                index: take(&bytes.index, places),
            }),
        };
        let valid = self.valid.as_ref().map(|valid| take(valid, places));
        Vector {
            values,
            valid,
            constant: self.constant,
        }
    }

    /// Returns the truth values, which the expression's type promises.
    pub(crate) fn bools(&self) -> &[u8] {
        match &self.values {
            VectorValues::Bool(values) => values,
            other => unreachable!("truth values expected, not {other:?}"),
        }
    }

    /// Returns for each row 1 if its value is true, and 0 if it is false or null.
    pub(crate) fn is_true(&self, rows: usize) -> Vec<u8> {
        let values = self.bools();
        if self.constant {
            return vec![values[0] & u8::from(self.is_valid(0)); rows];
        }
        match &self.valid {
            None => values.to_vec(),
            Some(valid) => values
                .iter()
                .zip(valid)
                .map(|(value, valid)| value & valid)
                .collect(),
        }
    }
}

impl VectorValues {
    /// Returns values without a meaning, for rows that are all null.
    pub(crate) fn nothing(class: Class, rows: usize) -> VectorValues {
        match class {
            Class::Bool => VectorValues::Bool(vec![0; rows]),
            Class::Int => VectorValues::I64(vec![0; rows]),
            Class::Float => VectorValues::F64(vec![0.0; rows]),
            Class::Bytes => VectorValues::Bytes(IndexedTexts {
                data: BinaryArray::from_iter_values([b""]),
                index: vec![0; rows],
            }),
        }
    }

    /// Returns integers in 128 bits.
    pub(crate) fn wide(&self) -> std::borrow::Cow<'_, [i128]> {
        match self {
            VectorValues::I128(values) => values.into(),
            VectorValues::I64(values) => values.iter().map(|&value| i128::from(value)).collect(),
            other => unreachable!("integers expected, not {other:?}"),
        }
    }

    /// Returns floating-point numbers.
    pub(crate) fn floats(&self) -> &[f64] {
        match self {
            VectorValues::F64(values) => values,
            other => unreachable!("floats expected, not {other:?}"),
        }
    }

    /// Returns texts.
    pub(crate) fn bytes(&self) -> &IndexedTexts {
        match self {
            VectorValues::Bytes(bytes) => bytes,
            other => unreachable!("texts expected, not {other:?}"),
        }
    }
}

/// Returns the marks of rows in which neither vector is null. Constants stand for all rows.
pub(crate) fn both_valid(a: &Vector, b: &Vector, rows: usize) -> Option<Vec<u8>> {
    let of = |vector: &Vector| {
        let valid = vector.valid.as_ref()?;
        Some(if vector.constant {
            vec![valid[0]; rows]
        } else {
            valid.clone()
        })
    };
    match (of(a), of(b)) {
        (None, other) | (other, None) => other,
        (Some(mut a), Some(b)) => {
            a.iter_mut().zip(&b).for_each(|(a, b)| *a &= b);
            Some(a)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_two_gigabytes_are_an_error() {
        let text = vec![b'a'; 1 << 20];
        let texts = |count| iter::repeat_n(text.as_slice(), count);
        let error = IndexedTexts::new(texts(2048)).unwrap_err();
        assert!(matches!(error, TaskError::Value(_)), "{error}");
        let few = IndexedTexts::new(texts(2)).unwrap();
        assert_eq!((few.get(0), few.get(1)), (&text[..], &text[..]));
        assert_eq!(few.index.len(), 2);
    }
}
