//! Casts: the same value as one of another type. A value that has no equal there is an error.
//!
//! Decimals that lose digits are rounded, half away from zero. Values that become integers are cut
//! off.

use arrow_schema::DataType;

use crate::compute::value_interval::ValueInterval;
use crate::types::{self, Class};
use crate::vector::{Vector, VectorValues};
use pages::task::TaskError;

/// Casts values of one type to another one.
///
/// # Errors
/// Returns an error if a value that is not null has no equal in that type.
pub(crate) fn cast(
    of: &Vector,
    from: &DataType,
    to: &DataType,
    interval: &ValueInterval,
) -> Result<Vector, TaskError> {
    if from == to {
        return Ok(of.clone());
    }
    let class = |data_type| types::class(data_type).expect("types were checked");
    let values = match (class(from), class(to)) {
        (Class::Int, Class::Int) => integers(of, from, to, interval)?,
        (Class::Int, _) => VectorValues::F64(to_floats(of, from, to)),
        (_, Class::Int) => from_floats(of, to, interval)?,
        _ => {
            let values = of.values.floats();
            let single = *to == DataType::Float32;
            let one = |&value: &f64| {
                if single {
                    f64::from(value as f32)
                } else {
                    value
                }
            };
            VectorValues::F64(values.iter().map(one).collect())
        }
    };
    Ok(Vector {
        values,
        valid: of.valid.clone(),
        constant: of.constant,
    })
}

fn impossible(value: impl std::fmt::Display, to: &DataType) -> TaskError {
    TaskError::Value(format!("{value} cannot be cast to {to}"))
}

fn scale_of(data_type: &DataType) -> Option<(u8, i8)> {
    match data_type {
        &DataType::Decimal128(precision, scale) => Some((precision, scale)),
        _ => None,
    }
}

/// How integers and decimals are converted.
#[derive(Clone, Copy)]
struct Rescale {
    up: i128,
    down: i128,
    rounds: bool,
    min: i128,
    max: i128,
}

impl Rescale {
    fn new(from: &DataType, to: &DataType) -> Rescale {
        let ten = |power: i16| types::power_of_ten(power);
        let source = scale_of(from).map_or(0, |(_, scale)| i16::from(scale));
        let target = scale_of(to).map_or(0, |(_, scale)| i16::from(scale));
        let by = target - source;
        let (mut min, mut max) = types::limits(to).expect("of class Int");
        if let Some((precision, _)) = scale_of(to) {
            // Values are not checked where the type's digits suffice for every value.
            let suffices = scale_of(from).is_some_and(|(digits, _)| match by {
                0.. => i16::from(digits) + by <= i16::from(precision),
                _ => i16::from(digits) + by < i16::from(precision),
            });
            if !suffices {
                max = ten(i16::from(precision)).map_or(i128::MAX, |power| power - 1);
                min = -max;
            }
        }
        Rescale {
            up: ten(by.max(0)).unwrap_or(i128::MAX),
            down: ten((-by).max(0)).unwrap_or(i128::MAX),
            rounds: scale_of(to).is_some(),
            min,
            max,
        }
    }

    fn one(&self, value: i128) -> Option<i128> {
        let mut result = value.checked_mul(self.up)?;
        if self.down > 1 {
            let rest = result % self.down;
            result /= self.down;
            if self.rounds && rest.abs() >= self.down / 2 {
                result += value.signum();
            }
        }
        (self.min..=self.max).contains(&result).then_some(result)
    }

    /// Returns the factor if all values between these bounds can be multiplied in 64 bits without a
    /// check.
    fn plain(&self, interval: &ValueInterval) -> Option<i64> {
        let within = self.min <= interval.min && interval.max <= self.max;
        if interval.narrow && self.down == 1 && within {
            i64::try_from(self.up).ok()
        } else {
            None
        }
    }
}

fn integers(
    of: &Vector,
    from: &DataType,
    to: &DataType,
    interval: &ValueInterval,
) -> Result<VectorValues, TaskError> {
    let rescale = Rescale::new(from, to);
    // The interval is that of the result, which are clamped to the type: only where decimals are wide
    // enough are no checks needed.
    if let (VectorValues::I64(values), Some(up)) = (&of.values, rescale.plain(interval))
        && scale_of(to).is_some()
    {
        return Ok(VectorValues::I64(
            values.iter().map(|value| value.wrapping_mul(up)).collect(),
        ));
    }
    let wide = of.values.wide();
    let mut results = Vec::with_capacity(wide.len());
    for (row, &value) in wide.iter().enumerate() {
        results.push(match rescale.one(value) {
            Some(result) => result,
            None if !of.is_valid(row) => 0,
            None => return Err(impossible(value, to)),
        });
    }
    Ok(in_form(results, interval))
}

fn in_form(values: Vec<i128>, interval: &ValueInterval) -> VectorValues {
    if interval.narrow {
        VectorValues::I64(values.iter().map(|&value| value as i64).collect())
    } else {
        VectorValues::I128(values)
    }
}

fn to_floats(of: &Vector, from: &DataType, to: &DataType) -> Vec<f64> {
    let single = *to == DataType::Float32;
    let decimal = scale_of(from).map(|(_, scale)| 10f64.powi(scale.into()));
    let one = |value: i128| match decimal {
        Some(power) => {
            let value = value as f64 / power;
            if single {
                f64::from(value as f32)
            } else {
                value
            }
        }
        None if single => f64::from(value as f32),
        None => value as f64,
    };
    of.values.wide().iter().map(|&value| one(value)).collect()
}

/// Cuts floats off, as `as` does, but returns an error for those that are out of range.
fn from_floats(
    of: &Vector,
    to: &DataType,
    interval: &ValueInterval,
) -> Result<VectorValues, TaskError> {
    let (min, max) = types::limits(to).expect("of class Int");
    let mut results = Vec::with_capacity(of.values.floats().len());
    for (row, &value) in of.values.floats().iter().enumerate() {
        let cut = value.trunc();
        // All limits except the upper ones of 64 bits are exact as floats, and those are one below
        // an exact one.
        let fits = cut >= min as f64 && cut < (max + 1) as f64;
        results.push(match fits {
            true => cut as i128,
            false if !of.is_valid(row) => 0,
            false => return Err(impossible(value, to)),
        });
    }
    Ok(in_form(results, interval))
}
