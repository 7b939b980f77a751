//! The types that are supported, and the types of results, as with DataFusion's physical
//! expressions.
//!
//! | operands | `+` `-` | `*` | `/` | `%` |
//! |---|---|---|---|---|
//! | integers of a type | that type, wrapping | as before | as before; an error for 0 and overflow | as before; an error for 0 |
//! | floats of a type | that type, IEEE 754 | as before | as before | as before |
//! | `Decimal128` | scale `max(s1, s2)`, precision `s + max(p1-s1, p2-s2) + 1` | `s1 + s2`, `p1 + p2 + 1` | `s1 + 4`, `p1 + 4 + s2` | `max(s1, s2)`, `s + min(p1-s1, p2-s2)` |
//!
//! Types of decimals have at most 38 digits. Values may have more, up to 128 bits; a greater value
//! is an error.

use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType};

use crate::operator::Operator;

/// The form in which values of a type are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// True and false.
    Bool,
    /// Integers, dates, timestamps and unscaled decimals.
    Int,
    /// Floating-point numbers.
    Float,
    /// Texts and bytes.
    Bytes,
}

/// Returns the class of a type; `None` if it is not computed with.
pub(crate) fn class(data_type: &DataType) -> Option<Class> {
    Some(match data_type {
        DataType::Boolean => Class::Bool,
        DataType::Float32 | DataType::Float64 => Class::Float,
        DataType::Utf8 | DataType::Binary => Class::Bytes,
        other => {
            limits(other)?;
            Class::Int
        }
    })
}

/// Returns the least and the greatest value that arrays of a type of [`Class::Int`] hold.
pub(crate) fn limits(data_type: &DataType) -> Option<(i128, i128)> {
    fn of<T: Into<i128>>(min: T, max: T) -> (i128, i128) {
        (min.into(), max.into())
    }
    Some(match data_type {
        DataType::Int8 => of(i8::MIN, i8::MAX),
        DataType::Int16 => of(i16::MIN, i16::MAX),
        DataType::Int32 | DataType::Date32 | DataType::Decimal32(..) => of(i32::MIN, i32::MAX),
        DataType::Int64 | DataType::Date64 | DataType::Timestamp(..) | DataType::Decimal64(..) => {
            of(i64::MIN, i64::MAX)
        }
        DataType::UInt8 => of(u8::MIN, u8::MAX),
        DataType::UInt16 => of(u16::MIN, u16::MAX),
        DataType::UInt32 => of(u32::MIN, u32::MAX),
        DataType::UInt64 => of(u64::MIN, u64::MAX),
        DataType::Decimal128(..) => (i128::MIN, i128::MAX),
        _ => return None,
    })
}

/// Returns ten to the power of a number that is not negative; `None` if the result exceeds 128 bits.
pub(crate) fn power_of_ten(exponent: i16) -> Option<i128> {
    10i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// Returns the type of an arithmetic operation's result; `None` if the operator does not go with the
/// operands.
pub(crate) fn arithmetic(
    operator: Operator,
    left: &DataType,
    right: &DataType,
) -> Option<DataType> {
    match (left, right) {
        (&DataType::Decimal128(p1, s1), &DataType::Decimal128(p2, s2)) => {
            let (precision, scale) = decimal(operator, (p1, s1), (p2, s2))?;
            Some(DataType::Decimal128(precision, scale))
        }
        _ if left != right => None,
        _ if left.is_integer() => Some(left.clone()),
        (DataType::Float32 | DataType::Float64, _) => Some(left.clone()),
        _ => None,
    }
}

/// Returns the precision and scale of a result, see the [module](self). It refuses scales that are
/// negative, and intermediate ones that exceed 38 digits.
fn decimal(operator: Operator, (p1, s1): (u8, i8), (p2, s2): (u8, i8)) -> Option<(u8, i8)> {
    if s1 < 0 || s2 < 0 {
        return None;
    }
    let (p1, s1, p2, s2) = (i16::from(p1), i16::from(s1), i16::from(p2), i16::from(s2));
    let (precision, scale) = match operator {
        Operator::Plus | Operator::Minus => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).max(p2 - s2) + 1, scale)
        }
        Operator::Multiply => (p1 + p2 + 1, s1 + s2),
        Operator::Divide => {
            let scale = (s1 + 4).min(DECIMAL128_MAX_SCALE.into());
            let raised = scale - s1 + s2;
            power_of_ten(raised)?;
            (raised + p1, scale)
        }
        Operator::Modulo => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).min(p2 - s2), scale)
        }
        _ => return None,
    };
    let precision = precision.min(DECIMAL128_MAX_PRECISION.into());
    if scale > DECIMAL128_MAX_SCALE.into() || precision < 1 {
        return None;
    }
    Some((u8::try_from(precision).ok()?, i8::try_from(scale).ok()?))
}

/// Returns `true` if values of one type can be cast to the other.
pub(crate) fn can_cast(from: &DataType, to: &DataType) -> bool {
    let number =
        |t: &DataType| t.is_integer() || matches!(t, DataType::Float32 | DataType::Float64);
    match (from, to) {
        _ if from == to => class(from).is_some(),
        (&DataType::Decimal128(_, s1), &DataType::Decimal128(_, s2)) => s1 >= 0 && s2 >= 0,
        (&DataType::Decimal128(_, s), to) => s >= 0 && number(to),
        (from, &DataType::Decimal128(_, s)) => s >= 0 && from.is_integer(),
        _ => number(from) && number(to),
    }
}

/// Returns the type of a sum; `None` if the type has no sum.
#[must_use]
pub fn sum_type(of: &DataType) -> Option<DataType> {
    Some(match of {
        &DataType::Decimal128(p, s) => {
            DataType::Decimal128(p.saturating_add(10).min(DECIMAL128_MAX_PRECISION), s)
        }
        DataType::Float64 => DataType::Float64,
        DataType::Int64 => DataType::Int64,
        DataType::UInt64 => DataType::UInt64,
        _ => return None,
    })
}

/// Returns the type of the sum in an average's state; `None` if the type has none.
#[must_use]
pub fn average_sum_type(of: &DataType) -> Option<DataType> {
    match of {
        // With more digits DataFusion adds up in 256 bits.
        &DataType::Decimal128(p, s) if p <= 25 => {
            Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, s))
        }
        DataType::Float64 => Some(DataType::Float64),
        _ => None,
    }
}
