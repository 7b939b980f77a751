//! The interval in which values lie, and those of the results of operations on them (interval arithmetic).
//!
//! Values that provably fit into 64 bits are computed in 64 bits, and operations that provably
//! cannot overflow are not checked. Everything else is computed in 128 bits, with checks where
//! there may be errors.

use arrow_schema::DataType;

use crate::operator::Operator;
use crate::types::{self, Class};

/// The interval in which the values of an expression lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueInterval {
    /// The least possible value.
    pub(crate) min: i128,
    /// The greatest possible value.
    pub(crate) max: i128,
    /// `true` if its values, and all intermediate results, fit into 64 bits.
    pub(crate) narrow: bool,
}

impl ValueInterval {
    /// Returns the interval from `min` to `max`.
    pub(crate) fn between(min: i128, max: i128) -> ValueInterval {
        let narrow = fits(min, max);
        ValueInterval { min, max, narrow }
    }

    /// Returns the greatest absolute value.
    pub(crate) fn magnitude(&self) -> u128 {
        self.min.unsigned_abs().max(self.max.unsigned_abs())
    }

    /// Returns the least interval that has the values of both.
    pub(crate) fn union(self, other: ValueInterval) -> ValueInterval {
        ValueInterval {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            narrow: self.narrow && other.narrow,
        }
    }

    /// Returns the interval of the values with the other sign; `None` if one of them leaves the type, whose
    /// least and greatest values are `limits`.
    pub(crate) fn negated(self, (least, greatest): (i128, i128)) -> Option<ValueInterval> {
        let (min, max) = (self.max.checked_neg()?, self.min.checked_neg()?);
        (least <= min && max <= greatest).then_some(ValueInterval {
            narrow: self.narrow && fits(min, max),
            min,
            max,
        })
    }
}

fn fits(min: i128, max: i128) -> bool {
    i128::from(i64::MIN) <= min && max <= i128::from(i64::MAX)
}

/// Returns the factors by which the operands are multiplied before they are added, subtracted, or
/// divided.
pub(crate) fn scaling(
    operator: Operator,
    (left, right): (&DataType, &DataType),
    result: &DataType,
) -> (i128, i128) {
    let ten = |power: i16| types::power_of_ten(power).expect("checked with the types");
    match (left, right, result) {
        (
            &DataType::Decimal128(_, s1),
            &DataType::Decimal128(_, s2),
            &DataType::Decimal128(_, scale),
        ) => {
            let (s1, s2, scale) = (i16::from(s1), i16::from(s2), i16::from(scale));
            match operator {
                Operator::Multiply => (1, 1),
                Operator::Divide => (ten(scale - s1 + s2), 1),
                _ => (ten(scale - s1), ten(scale - s2)),
            }
        }
        _ => (1, 1),
    }
}

/// Returns the interval of a result; `None` if it may leave the type, or an intermediate result 128
/// bits.
pub(crate) fn of_arithmetic(
    operator: Operator,
    left: ValueInterval,
    right: ValueInterval,
    types: (&DataType, &DataType),
    result: &DataType,
) -> Option<ValueInterval> {
    let (l, r) = scaling(operator, types, result);
    let (a, b) = (times(left, l)?, times(right, r)?);
    let (min, max) = match operator {
        Operator::Plus => (a.0.checked_add(b.0)?, a.1.checked_add(b.1)?),
        Operator::Minus => (a.0.checked_sub(b.1)?, a.1.checked_sub(b.0)?),
        Operator::Multiply => {
            let corners = [
                a.0.checked_mul(b.0)?,
                a.0.checked_mul(b.1)?,
                a.1.checked_mul(b.0)?,
                a.1.checked_mul(b.1)?,
            ];
            (*corners.iter().min()?, *corners.iter().max()?)
        }
        // The divisor is 1 or more in magnitude; zero is an error of its own. The sign may change.
        Operator::Divide => {
            let most = a.0.checked_abs()?.max(a.1.checked_abs()?);
            (-most, most)
        }
        Operator::Modulo => {
            let most = b.0.checked_abs()?.max(b.1.checked_abs()?);
            let most = most.min(a.0.checked_abs()?.max(a.1.checked_abs()?));
            (-most, most)
        }
        _ => return None,
    };
    let (least, greatest) = types::limits(result)?;
    // A division's interval, in the type of the dividend, is wider than its values.
    let divides = matches!(operator, Operator::Divide | Operator::Modulo);
    if !divides && (min < least || greatest < max) {
        return None;
    }
    if divides && !matches!(result, DataType::Decimal128(..)) {
        // The least value divided by -1 leaves the type, which is found during the division.
        let (min, max) = (min.max(least), max.min(greatest));
        return Some(ValueInterval {
            min,
            max,
            narrow: left.narrow && right.narrow && fits(min, max),
        });
    }
    let narrow = left.narrow
        && right.narrow
        && fits(a.0, a.1)
        && fits(b.0, b.1)
        && fits(l, r)
        && fits(r, l)
        && fits(min, max);
    Some(ValueInterval { min, max, narrow })
}

fn times(interval: ValueInterval, by: i128) -> Option<(i128, i128)> {
    Some((interval.min.checked_mul(by)?, interval.max.checked_mul(by)?))
}

/// Returns the interval of values that are cast; `None` if nothing is known of them.
pub(crate) fn of_cast(
    from: &DataType,
    to: &DataType,
    interval: ValueInterval,
) -> Option<ValueInterval> {
    if types::class(from) != Some(Class::Int) {
        return None;
    }
    let scale = |data_type: &DataType| match data_type {
        DataType::Decimal128(_, scale) => i16::from(*scale),
        _ => 0,
    };
    let by = scale(to) - scale(from);
    let (min, max) = if by >= 0 {
        times(interval, types::power_of_ten(by)?)?
    } else {
        let by = types::power_of_ten(-by)?;
        // Rounding may add one.
        (interval.min / by - 1, interval.max / by + 1)
    };
    let (least, greatest) = types::limits(to)?;
    let (min, max) = (min.max(least), max.min(greatest));
    if min > max {
        return None;
    }
    Some(ValueInterval {
        narrow: interval.narrow && fits(min, max),
        min,
        max,
    })
}
