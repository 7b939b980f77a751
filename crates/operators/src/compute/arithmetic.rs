//! `+ - * / %` and the sign, see [`types`] for what they mean.

use arrow_schema::DataType;

use crate::compute::value_interval::{ValueInterval, scaling};
use crate::operator::Operator;
use crate::types;
use crate::vector::{Vector, VectorValues, both_valid};
use pages::task::TaskError;

/// Why a result does not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArithmeticError {
    Overflow,
    DividedByZero,
}

impl ArithmeticError {
    fn error(self, operator: Operator, data_type: &DataType) -> TaskError {
        TaskError::Value(match self {
            ArithmeticError::Overflow => format!("{operator:?} overflows {data_type}"),
            ArithmeticError::DividedByZero => format!("{operator:?}: divided by zero"),
        })
    }
}

/// Calculates for rows of two operands, of which either may be a constant.
pub(crate) fn pairs<T: Copy, U>(
    (left, left_constant): (&[T], bool),
    (right, right_constant): (&[T], bool),
    function: impl Fn(T, T) -> U,
) -> Vec<U> {
    match (left_constant, right_constant) {
        (false, true) => {
            let r = right[0];
            left.iter().map(|&l| function(l, r)).collect()
        }
        (true, false) => {
            let l = left[0];
            right.iter().map(|&r| function(l, r)).collect()
        }
        _ => left
            .iter()
            .zip(right)
            .map(|(&l, &r)| function(l, r))
            .collect(),
    }
}

/// Returns the results for rows of two operands of these types.
///
/// # Errors
/// Returns an error if a row that is not null has no result.
pub(crate) fn arithmetic(
    operator: Operator,
    left: &Vector,
    right: &Vector,
    operands: (&DataType, &DataType),
    result: &DataType,
    interval: &ValueInterval,
    rows: usize,
) -> Result<Vector, TaskError> {
    let constant = left.constant && right.constant;
    let valid = both_valid(left, right, if constant { 1 } else { rows });
    let values = match (&left.values, &right.values) {
        (VectorValues::F64(l), VectorValues::F64(r)) => {
            let sides = (
                (l.as_slice(), left.constant),
                (r.as_slice(), right.constant),
            );
            VectorValues::F64(floats(operator, sides, *result == DataType::Float32))
        }
        (VectorValues::I64(l), VectorValues::I64(r)) if interval.narrow => {
            let sides = (
                (l.as_slice(), left.constant),
                (r.as_slice(), right.constant),
            );
            let by = scaling(operator, operands, result);
            let by = (by.0 as i64, by.1 as i64);
            VectorValues::I64(narrow(operator, sides, by, result, valid.as_deref())?)
        }
        (l, r) => {
            let (l, r) = (l.wide(), r.wide());
            let sides = ((&*l, left.constant), (&*r, right.constant));
            let by = scaling(operator, operands, result);
            let values = wide(operator, sides, by, result, valid.as_deref())?;
            if interval.narrow {
                VectorValues::I64(values.iter().map(|&value| value as i64).collect())
            } else {
                VectorValues::I128(values)
            }
        }
    };
    Ok(Vector {
        values,
        valid,
        constant,
    })
}

type Sides<'a, T> = ((&'a [T], bool), (&'a [T], bool));

fn floats(operator: Operator, (left, right): Sides<'_, f64>, single: bool) -> Vec<f64> {
    let mut values = match operator {
        Operator::Plus => pairs(left, right, |l, r| l + r),
        Operator::Minus => pairs(left, right, |l, r| l - r),
        Operator::Multiply => pairs(left, right, |l, r| l * r),
        Operator::Divide => pairs(left, right, |l, r| l / r),
        _ => pairs(left, right, |l, r| l % r),
    };
    if single {
        // Rounding twice does no harm: 64-bit floats have more than twice the digits of 32-bit
        // ones.
        values
            .iter_mut()
            .for_each(|value| *value = f64::from(*value as f32));
    }
    values
}

/// Calculates in 64 bits what cannot overflow, by the nodes' intervals, or wraps.
fn narrow(
    operator: Operator,
    (left, right): Sides<'_, i64>,
    (by_left, by_right): (i64, i64),
    result: &DataType,
    valid: Option<&[u8]>,
) -> Result<Vec<i64>, TaskError> {
    let mut values = match (operator, by_left, by_right) {
        (Operator::Plus, 1, 1) => pairs(left, right, i64::wrapping_add),
        (Operator::Minus, 1, 1) => pairs(left, right, i64::wrapping_sub),
        (Operator::Multiply, ..) => pairs(left, right, i64::wrapping_mul),
        (Operator::Plus, ..) => pairs(left, right, |l, r| {
            l.wrapping_mul(by_left)
                .wrapping_add(r.wrapping_mul(by_right))
        }),
        (Operator::Minus, ..) => pairs(left, right, |l, r| {
            l.wrapping_mul(by_left)
                .wrapping_sub(r.wrapping_mul(by_right))
        }),
        (Operator::Divide, ..) => {
            let (least, greatest) = types::limits(result).expect("of class Int");
            let results = pairs(left, right, |l, r| {
                let r = r.wrapping_mul(by_right);
                if r == 0 {
                    return Err(ArithmeticError::DividedByZero);
                }
                let quotient = l
                    .wrapping_mul(by_left)
                    .checked_div(r)
                    .ok_or(ArithmeticError::Overflow)?;
                let fits = (least..=greatest).contains(&i128::from(quotient));
                if fits {
                    Ok(quotient)
                } else {
                    Err(ArithmeticError::Overflow)
                }
            });
            checked(results, valid, operator, result)?
        }
        _ => {
            let results = pairs(left, right, |l, r| {
                let r = r.wrapping_mul(by_right);
                if r == 0 {
                    return Err(ArithmeticError::DividedByZero);
                }
                Ok(l.wrapping_mul(by_left).wrapping_rem(r))
            });
            checked(results, valid, operator, result)?
        }
    };
    wrap(&mut values, result);
    Ok(values)
}

/// Keeps the bits that fit into the type.
fn wrap(values: &mut [i64], data_type: &DataType) {
    match data_type {
        DataType::Int8 => values
            .iter_mut()
            .for_each(|value| *value = i64::from(*value as i8)),
        DataType::Int16 => values
            .iter_mut()
            .for_each(|value| *value = i64::from(*value as i16)),
        DataType::Int32 => values
            .iter_mut()
            .for_each(|value| *value = i64::from(*value as i32)),
        DataType::UInt8 => values
            .iter_mut()
            .for_each(|value| *value = i64::from(*value as u8)),
        DataType::UInt16 => values
            .iter_mut()
            .for_each(|value| *value = i64::from(*value as u16)),
        DataType::UInt32 => values
            .iter_mut()
            .for_each(|value| *value = i64::from(*value as u32)),
        _ => {}
    }
}

/// Calculates in 128 bits: decimals are checked, and the 64 bits of unsigned integers wrap.
fn wide(
    operator: Operator,
    (left, right): Sides<'_, i128>,
    (by_left, by_right): (i128, i128),
    result: &DataType,
    valid: Option<&[u8]>,
) -> Result<Vec<i128>, TaskError> {
    let wraps = *result == DataType::UInt64;
    let finish = |value: Option<i128>| value.ok_or(ArithmeticError::Overflow);
    let one = |l: i128, r: i128| {
        if wraps {
            let (l, r) = (l as u64, r as u64);
            return match operator {
                Operator::Plus => Ok(l.wrapping_add(r)),
                Operator::Minus => Ok(l.wrapping_sub(r)),
                Operator::Multiply => Ok(l.wrapping_mul(r)),
                Operator::Divide => l.checked_div(r).ok_or(ArithmeticError::DividedByZero),
                _ => l.checked_rem(r).ok_or(ArithmeticError::DividedByZero),
            }
            .map(i128::from);
        }
        let l = finish(l.checked_mul(by_left))?;
        let r = finish(r.checked_mul(by_right))?;
        match operator {
            Operator::Plus => finish(l.checked_add(r)),
            Operator::Minus => finish(l.checked_sub(r)),
            Operator::Multiply => finish(l.checked_mul(r)),
            _ if r == 0 => Err(ArithmeticError::DividedByZero),
            Operator::Divide => finish(l.checked_div(r)),
            _ => finish(l.checked_rem(r)),
        }
    };
    checked(pairs(left, right, one), valid, operator, result)
}

/// Returns the results, or an error if a row that is not null has none.
fn checked<T: Default>(
    results: Vec<Result<T, ArithmeticError>>,
    valid: Option<&[u8]>,
    operator: Operator,
    data_type: &DataType,
) -> Result<Vec<T>, TaskError> {
    let mut values = Vec::with_capacity(results.len());
    for (row, result) in results.into_iter().enumerate() {
        values.push(match result {
            Ok(value) => value,
            Err(_) if valid.is_some_and(|valid| valid[row] == 0) => T::default(),
            Err(wrong) => return Err(wrong.error(operator, data_type)),
        });
    }
    Ok(values)
}

/// Returns the numbers with the other sign. Integers wrap.
///
/// # Errors
/// Returns an error if a decimal cannot be negated.
pub(crate) fn negative(
    of: &Vector,
    data_type: &DataType,
    interval: &ValueInterval,
) -> Result<Vector, TaskError> {
    let values = match &of.values {
        VectorValues::F64(values) => VectorValues::F64(values.iter().map(|value| -value).collect()),
        VectorValues::I64(values) if interval.narrow => {
            let mut values: Vec<i64> = values.iter().map(|value| value.wrapping_neg()).collect();
            wrap(&mut values, data_type);
            VectorValues::I64(values)
        }
        values => {
            let results = values
                .wide()
                .iter()
                .map(|v| v.checked_neg().ok_or(ArithmeticError::Overflow))
                .collect();
            let valid = of.valid.as_deref();
            VectorValues::I128(checked(results, valid, Operator::Minus, data_type)?)
        }
    };
    Ok(Vector {
        values,
        valid: of.valid.clone(),
        constant: of.constant,
    })
}
