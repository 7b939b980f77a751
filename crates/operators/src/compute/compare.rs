//! Comparisons, and lists of values. Floats are ordered as in PostgreSQL: `-0` equals `0`, each NaN equals
//! every other one and is greater than all numbers. Texts are ordered by their bytes.

use crate::compute::arithmetic::pairs;
use crate::scalar::{Scalar, Value};
use crate::vector::{IndexedTexts, Vector, VectorValues, both_valid};

/// How two values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    Eq,
    NotEq,
    Lt,
    LtEq,
}

/// Returns a number whose order is the total order of floats.
#[inline]
pub(crate) fn total(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Returns a number whose order is PostgreSQL's order of floats.
#[inline]
pub(crate) fn order(value: f64) -> i64 {
    // Adding zero turns -0 into 0.
    total(if value.is_nan() {
        f64::NAN
    } else {
        value + 0.0
    })
}

/// Compares two vectors row by row.
pub(crate) fn compare(
    comparison: Comparison,
    left: &Vector,
    right: &Vector,
    rows: usize,
) -> Vector {
    let constant = left.constant && right.constant;
    let valid = both_valid(left, right, if constant { 1 } else { rows });
    let (lc, rc) = (left.constant, right.constant);
    let values = match (&left.values, &right.values) {
        (VectorValues::I64(l), VectorValues::I64(r)) => ordered(comparison, (l, lc), (r, rc)),
        (VectorValues::F64(l), VectorValues::F64(r)) => {
            let l: Vec<i64> = l.iter().map(|&value| order(value)).collect();
            let r: Vec<i64> = r.iter().map(|&value| order(value)).collect();
            ordered(comparison, (&l, lc), (&r, rc))
        }
        (VectorValues::Bool(l), VectorValues::Bool(r)) => ordered(comparison, (l, lc), (r, rc)),
        (VectorValues::Bytes(l), VectorValues::Bytes(r)) => texts(comparison, (l, lc), (r, rc)),
        (l, r) => ordered(comparison, (&l.wide(), lc), (&r.wide(), rc)),
    };
    Vector {
        values: VectorValues::Bool(values),
        valid,
        constant,
    }
}

fn ordered<T: Copy + Ord>(
    comparison: Comparison,
    left: (&[T], bool),
    right: (&[T], bool),
) -> Vec<u8> {
    match comparison {
        Comparison::Eq => pairs(left, right, |l, r| u8::from(l == r)),
        Comparison::NotEq => pairs(left, right, |l, r| u8::from(l != r)),
        Comparison::Lt => pairs(left, right, |l, r| u8::from(l < r)),
        Comparison::LtEq => pairs(left, right, |l, r| u8::from(l <= r)),
    }
}

fn texts(
    comparison: Comparison,
    left: (&IndexedTexts, bool),
    right: (&IndexedTexts, bool),
) -> Vec<u8> {
    let one = |l: &[u8], r: &[u8]| {
        u8::from(match comparison {
            Comparison::Eq => l == r,
            Comparison::NotEq => l != r,
            Comparison::Lt => l < r,
            Comparison::LtEq => l <= r,
        })
    };
    match (left, right) {
        ((l, false), (r, true)) => l.map(|l| one(l, r.get(0))),
        ((l, true), (r, false)) => r.map(|r| one(l.get(0), r)),
        ((l, _), (r, _)) => (0..l.index.len())
            .map(|row| one(l.get(row), r.get(row)))
            .collect(),
    }
}

/// Finds for each value whether it is in a list; null if it is not and the list has a null.
pub(crate) fn in_list(of: &Vector, list: &[Scalar], negated: bool) -> Vector {
    let null_listed = list.iter().any(|scalar| scalar.value == Value::Null);
    let found = match &of.values {
        VectorValues::Bool(values) => {
            let listed = |value: bool| list.iter().any(|s| s.value == Value::Bool(value));
            let (no, yes) = (listed(false), listed(true));
            values
                .iter()
                .map(|&value| u8::from(if value == 1 { yes } else { no }))
                .collect()
        }
        VectorValues::I64(values) => {
            let listed = integers(list).filter_map(|value| i64::try_from(value).ok());
            among(values.iter().copied(), listed.collect())
        }
        VectorValues::I128(values) => among(values.iter().copied(), integers(list).collect()),
        VectorValues::F64(values) => {
            let listed = list.iter().filter_map(|scalar| match scalar.value {
                Value::Float(value) => Some(order(value)),
                _ => None,
            });
            among(values.iter().map(|&value| order(value)), listed.collect())
        }
        VectorValues::Bytes(texts) => {
            let mut listed: Vec<&[u8]> = list.iter().filter_map(bytes).collect();
            listed.sort_unstable();
            texts.map(|text| u8::from(listed.binary_search(&text).is_ok()))
        }
    };
    let valid = if null_listed {
        Some(
            (0..found.len())
                .map(|row| found[row] & u8::from(of.is_valid(row)))
                .collect(),
        )
    } else {
        of.valid.clone()
    };
    let values = found
        .iter()
        .map(|found| found ^ u8::from(negated))
        .collect();
    Vector {
        values: VectorValues::Bool(values),
        valid,
        constant: of.constant,
    }
}

fn integers(list: &[Scalar]) -> impl Iterator<Item = i128> + '_ {
    list.iter().filter_map(|scalar| match scalar.value {
        Value::Int(value) => Some(value),
        _ => None,
    })
}

fn bytes(scalar: &Scalar) -> Option<&[u8]> {
    match &scalar.value {
        Value::Text(text) => Some(text.as_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn among<T: Copy + Ord>(values: impl Iterator<Item = T>, mut list: Vec<T>) -> Vec<u8> {
    /// Up to this many values it is faster to compare with all of them.
    const FEW: usize = 8;
    list.sort_unstable();
    list.dedup();
    if list.len() <= FEW {
        values
            .map(|value| {
                list.iter()
                    .fold(0, |found, l| found | u8::from(*l == value))
            })
            .collect()
    } else {
        values
            .map(|value| u8::from(list.binary_search(&value).is_ok()))
            .collect()
    }
}
