//! Parameters of prepared statements, as clients send them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use pgwire::api::Type;
use pgwire::api::portal::{Format, Portal};
use pgwire::error::{PgWireError, PgWireResult};

use crate::serve::errors::{BAD_PARAMETER, error};
use crate::serve::{numeric, types};

/// Days, and microseconds, from 1970-01-01 to 2000-01-01.
const DAYS_TO_2000: i32 = 10_957;
const MICROS_TO_2000: i64 = DAYS_TO_2000 as i64 * 86_400_000_000;
/// The most parameters that a statement may have.
const MOST: usize = 65_535;

/// The types of a plan's parameters, `$1` first: those that the client has declared, or those that the plan
/// tells; text where nothing tells them.
pub(crate) fn types_of(plan: &LogicalPlan, declared: &[Option<Type>]) -> PgWireResult<Vec<Type>> {
    let found = plan.get_parameter_types();
    let found = found.map_err(|failed| crate::serve::errors::of_query(&failed))?;
    let number = |name: &str| name.strip_prefix('$')?.parse::<usize>().ok();
    let count = found
        .keys()
        .filter_map(|name| number(name))
        .max()
        .unwrap_or(0);
    if count > MOST {
        return Err(error(
            BAD_PARAMETER,
            format!("there is no parameter ${count}"),
        ));
    }
    let types = (1..=count).map(|number| {
        let declared = declared.get(number - 1).cloned().flatten();
        let declared = declared.filter(|declared| *declared != Type::UNKNOWN);
        let of = found.get(&format!("${number}")).cloned().flatten();
        let of = || of.map_or(Type::TEXT, |data_type| types::of_column(&data_type));
        declared.unwrap_or_else(of)
    });
    Ok(types.collect())
}

/// The columns of a plan whose parameters have these types: a parameter may be one of them.
pub(crate) fn columns(plan: &LogicalPlan, parameters: &[Type]) -> SchemaRef {
    let nulls: Vec<ScalarValue> = parameters.iter().map(types::null).collect();
    let typed = (!nulls.is_empty()).then(|| plan.clone().with_param_values(nulls));
    // Where they do not fit, whoever executes it is told.
    let schema = match &typed {
        Some(Ok(typed)) => typed.schema(),
        Some(Err(_)) | None => plan.schema(),
    };
    Arc::new(schema.as_arrow().clone())
}

/// The values of a portal's parameters, which have these types.
pub(crate) fn values<S: Clone>(
    portal: &Portal<S>,
    types: &[Type],
) -> PgWireResult<Vec<ScalarValue>> {
    let parameters = portal.parameters.iter().enumerate();
    let values = parameters.map(|(place, bytes)| {
        let data_type = types.get(place).cloned().unwrap_or(Type::TEXT);
        let Some(bytes) = bytes else {
            return Ok(types::null(&data_type));
        };
        let read = if is_binary(&portal.parameter_format, place) {
            binary(&data_type, bytes)
        } else {
            std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| parse(&data_type, text))
        };
        read.ok_or_else(|| wrong(place, &data_type))
    });
    values.collect()
}

fn is_binary(format: &Format, place: usize) -> bool {
    match format {
        Format::Individual(codes) => codes.get(place) == Some(&1),
        Format::UnifiedBinary => true,
        Format::UnifiedText => false,
    }
}

fn wrong(place: usize, data_type: &Type) -> PgWireError {
    error(
        BAD_PARAMETER,
        format!("parameter ${} is not of type {data_type}", place + 1),
    )
}

/// A value that came as text.
fn parse(data_type: &Type, text: &str) -> Option<ScalarValue> {
    Some(match *data_type {
        Type::BOOL => ScalarValue::Boolean(Some(match text {
            "t" | "true" | "on" | "1" => true,
            "f" | "false" | "off" | "0" => false,
            _ => return None,
        })),
        Type::INT2 => ScalarValue::Int16(Some(text.parse().ok()?)),
        Type::INT4 => ScalarValue::Int32(Some(text.parse().ok()?)),
        Type::INT8 => ScalarValue::Int64(Some(text.parse().ok()?)),
        Type::FLOAT4 => ScalarValue::Float32(Some(text.parse().ok()?)),
        Type::FLOAT8 => ScalarValue::Float64(Some(text.parse().ok()?)),
        Type::NUMERIC => decimal(text)?,
        Type::DATE => cast(text, &DataType::Date32)?,
        Type::TIMESTAMP => cast(text, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
        Type::TIMESTAMPTZ => {
            let zone = Some("UTC".into());
            cast(text, &DataType::Timestamp(TimeUnit::Microsecond, zone))?
        }
        Type::BYTEA => ScalarValue::Binary(Some(bytea(text)?)),
        _ => ScalarValue::Utf8(Some(text.to_owned())),
    })
}

/// A value that came in its binary form.
fn binary(data_type: &Type, bytes: &[u8]) -> Option<ScalarValue> {
    Some(match *data_type {
        Type::BOOL => ScalarValue::Boolean(Some(*bytes.first()? != 0)),
        Type::INT2 => ScalarValue::Int16(Some(i16::from_be_bytes(bytes.try_into().ok()?))),
        Type::INT4 => ScalarValue::Int32(Some(i32::from_be_bytes(bytes.try_into().ok()?))),
        Type::INT8 => ScalarValue::Int64(Some(i64::from_be_bytes(bytes.try_into().ok()?))),
        Type::FLOAT4 => ScalarValue::Float32(Some(f32::from_be_bytes(bytes.try_into().ok()?))),
        Type::FLOAT8 => ScalarValue::Float64(Some(f64::from_be_bytes(bytes.try_into().ok()?))),
        Type::NUMERIC => decimal(&numeric::read(bytes)?)?,
        Type::DATE => {
            let days = i32::from_be_bytes(bytes.try_into().ok()?);
            ScalarValue::Date32(Some(days.checked_add(DAYS_TO_2000)?))
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let micros = i64::from_be_bytes(bytes.try_into().ok()?);
            let micros = Some(micros.checked_add(MICROS_TO_2000)?);
            let zone = (*data_type == Type::TIMESTAMPTZ).then(|| "UTC".into());
            ScalarValue::TimestampMicrosecond(micros, zone)
        }
        Type::BYTEA => ScalarValue::Binary(Some(bytes.to_vec())),
        _ => ScalarValue::Utf8(Some(std::str::from_utf8(bytes).ok()?.to_owned())),
    })
}

/// A decimal with the digits that its text has.
fn decimal(text: &str) -> Option<ScalarValue> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i8::try_from(fraction.len())
        .ok()
        .filter(|scale| *scale <= 38)?;
    Some(ScalarValue::Decimal128(Some(unscaled), 38, scale))
}

fn cast(text: &str, to: &DataType) -> Option<ScalarValue> {
    ScalarValue::Utf8(Some(text.to_owned())).cast_to(to).ok()
}

/// Bytes as PostgreSQL's clients write them: two digits for each.
fn bytea(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok();
    let bytes = pairs.iter().map(byte);
    rest.is_empty().then(|| bytes.collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_bytes_give_the_same() {
        for (data_type, text, bytes) in [
            (Type::BOOL, "t", vec![1]),
            (Type::INT2, "-3", (-3i16).to_be_bytes().to_vec()),
            (Type::INT8, "77", 77i64.to_be_bytes().to_vec()),
            (Type::FLOAT8, "0.5", 0.5f64.to_be_bytes().to_vec()),
            (Type::TEXT, "ä", "ä".as_bytes().to_vec()),
            (Type::DATE, "2000-01-02", 1i32.to_be_bytes().to_vec()),
            (
                Type::TIMESTAMP,
                "2000-01-01 00:00:01.5",
                1_500_000i64.to_be_bytes().to_vec(),
            ),
            (
                Type::TIMESTAMPTZ,
                "2000-01-01 00:00:00Z",
                0i64.to_be_bytes().to_vec(),
            ),
            (Type::BYTEA, "\\x00fF", vec![0, 255]),
            (
                Type::NUMERIC,
                "-12.05",
                vec![0, 2, 0, 0, 0x40, 0, 0, 2, 0, 12, 1, 0xf4],
            ),
        ] {
            let parsed = parse(&data_type, text).unwrap();
            assert_eq!(Some(parsed), binary(&data_type, &bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (data_type, text) in [
            (Type::INT4, "x"),
            (Type::INT2, "70000"),
            (Type::BOOL, "maybe"),
            (Type::NUMERIC, "1.2.3"),
            (Type::NUMERIC, ""),
            (Type::DATE, "tomorrow"),
            (Type::BYTEA, "\\x0"),
            (Type::BYTEA, "00"),
        ] {
            assert_eq!(parse(&data_type, text), None, "{text}");
        }
        assert_eq!(binary(&Type::INT4, &[1, 2]), None);
        assert_eq!(binary(&Type::TEXT, &[0xff]), None);
        assert_eq!(binary(&Type::DATE, &i32::MAX.to_be_bytes()), None);
    }
}
