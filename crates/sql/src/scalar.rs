//! DataFusion's values as ours, and back.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use operators::{Scalar, Value};

/// Returns the same value in our form; `None` for types that pages do not support.
#[must_use]
pub fn scalar(value: &ScalarValue) -> Option<Scalar> {
    let data_type = value.data_type();
    let typed = |value| Some(Scalar { data_type, value });
    if value.is_null() {
        return typed(Value::Null);
    }
    match value {
        ScalarValue::Boolean(Some(of)) => typed(Value::Bool(*of)),
        ScalarValue::Float32(Some(of)) => typed(Value::Float(f64::from(*of))),
        ScalarValue::Float64(Some(of)) => typed(Value::Float(*of)),
        ScalarValue::Binary(Some(of))
        | ScalarValue::LargeBinary(Some(of))
        | ScalarValue::BinaryView(Some(of)) => typed(Value::Bytes(of.clone())),
        other => match other.try_as_str().flatten() {
            Some(text) => typed(Value::Text(text.to_owned())),
            None => typed(Value::Int(integer(other)?)),
        },
    }
}

/// Returns the number of an integer, a date, a timestamp or a decimal.
fn integer(value: &ScalarValue) -> Option<i128> {
    Some(match value {
        ScalarValue::Int8(Some(of)) => i128::from(*of),
        ScalarValue::Int16(Some(of)) => i128::from(*of),
        ScalarValue::Int32(Some(of)) | ScalarValue::Date32(Some(of)) => i128::from(*of),
        ScalarValue::Int64(Some(of))
        | ScalarValue::Date64(Some(of))
        | ScalarValue::TimestampSecond(Some(of), _)
        | ScalarValue::TimestampMillisecond(Some(of), _)
        | ScalarValue::TimestampMicrosecond(Some(of), _)
        | ScalarValue::TimestampNanosecond(Some(of), _) => i128::from(*of),
        ScalarValue::UInt8(Some(of)) => i128::from(*of),
        ScalarValue::UInt16(Some(of)) => i128::from(*of),
        ScalarValue::UInt32(Some(of)) => i128::from(*of),
        ScalarValue::UInt64(Some(of)) => i128::from(*of),
        ScalarValue::Decimal128(Some(of), _, _) => *of,
        _ => return None,
    })
}

/// Returns a number of a type, for statistics; `None` where it does not fit or the type has no
/// numbers.
#[must_use]
pub fn of_integer(value: i128, data_type: &DataType) -> Option<ScalarValue> {
    let long = || i64::try_from(value).ok();
    Some(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(value != 0)),
        DataType::Int8 => ScalarValue::Int8(Some(i8::try_from(value).ok()?)),
        DataType::Int16 => ScalarValue::Int16(Some(i16::try_from(value).ok()?)),
        DataType::Int32 => ScalarValue::Int32(Some(i32::try_from(value).ok()?)),
        DataType::Date32 => ScalarValue::Date32(Some(i32::try_from(value).ok()?)),
        DataType::Int64 => ScalarValue::Int64(Some(long()?)),
        DataType::Date64 => ScalarValue::Date64(Some(long()?)),
        DataType::UInt8 => ScalarValue::UInt8(Some(u8::try_from(value).ok()?)),
        DataType::UInt16 => ScalarValue::UInt16(Some(u16::try_from(value).ok()?)),
        DataType::UInt32 => ScalarValue::UInt32(Some(u32::try_from(value).ok()?)),
        DataType::UInt64 => ScalarValue::UInt64(Some(u64::try_from(value).ok()?)),
        DataType::Decimal128(precision, scale) => {
            ScalarValue::Decimal128(Some(value), *precision, *scale)
        }
        DataType::Timestamp(unit, zone) => {
            let (value, zone) = (Some(long()?), zone.clone());
            match unit {
                TimeUnit::Second => ScalarValue::TimestampSecond(value, zone),
                TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(value, zone),
                TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(value, zone),
                TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(value, zone),
            }
        }
        _ => return None,
    })
}
