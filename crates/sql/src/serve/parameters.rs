//! Parameters of prepared statements, as clients send them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, TryCast};
use pgwire::api::Type;
use pgwire::api::portal::{Format, Portal};
use pgwire::error::{PgWireError, PgWireResult};

use crate::serve::errors::{BAD_PARAMETER, error};
use crate::serve::{numeric, types};
use crate::statement::array_elements;

/// Days, and microseconds, from 1970-01-01 to 2000-01-01.
const DAYS_TO_2000: i32 = 10_957;
const MICROS_TO_2000: i64 = DAYS_TO_2000 as i64 * 86_400_000_000;
/// The form of a day.
const DAY: &str = "1996-01-02";
/// The most parameters that a statement may have.
const MOST: usize = 65_535;

/// Returns the types of a plan's parameters, `$1` first: those that the client has declared, those that are known
/// by the parameters' names, or those that are inferred from the plan; text for all others.
pub(crate) fn types_of(
    plan: &LogicalPlan,
    declared: &[Option<Type>],
    known: &HashMap<String, Type>,
) -> PgWireResult<Vec<Type>> {
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
    let inferred = inferred(plan)?;
    let types = (1..=count).map(|number| {
        let declared = declared.get(number - 1).cloned().flatten();
        let declared = declared.filter(|declared| *declared != Type::UNKNOWN);
        let name = format!("${number}");
        let of = found.get(&name).cloned().flatten();
        let other = || inferred.get(&name).cloned().unwrap_or(Type::TEXT);
        let of = || of.map_or_else(other, |data_type| types::of_column(&data_type));
        let known = || known.get(&name).cloned().unwrap_or_else(of);
        declared.unwrap_or_else(known)
    });
    Ok(types.collect())
}

/// Returns the types of parameters that DataFusion does not infer: of `$1::date` that of the cast, and of
/// `x = ANY($1)` the array's.
fn inferred(plan: &LogicalPlan) -> PgWireResult<HashMap<String, Type>> {
    let mut inferred = HashMap::new();
    let found = plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::ScalarFunction(function) if function.func.name() == "array_has" => {
                        if let [Expr::Placeholder(list), element] = &function.args[..]
                            && let Ok(element) = element.get_type(&schema)
                        {
                            inferred.insert(list.id.clone(), types::array_of(&element));
                        }
                    }
                    Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                        if let Expr::Placeholder(parameter) = expr.as_ref() {
                            let of = types::of_column(field.data_type());
                            inferred.entry(parameter.id.clone()).or_insert(of);
                        }
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    found.map_err(|failed| crate::serve::errors::of_query(&failed))?;
    Ok(inferred)
}

/// Returns the columns of a plan whose parameters have these types: a parameter may be one of them.
pub(crate) fn columns(plan: &LogicalPlan, parameters: &[Type]) -> SchemaRef {
    let nulls: Vec<ScalarValue> = parameters.iter().map(types::null).collect();
    let typed = (!nulls.is_empty()).then(|| plan.clone().with_param_values(nulls));
    // Where they do not fit, its execution fails.
    let schema = match &typed {
        Some(Ok(typed)) => typed.schema(),
        Some(Err(_)) | None => plan.schema(),
    };
    Arc::new(schema.as_arrow().clone())
}

/// Returns the values of a portal's parameters, which have these types.
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

/// Reads a value that came as text.
fn parse(data_type: &Type, text: &str) -> Option<ScalarValue> {
    // Spaces around values mean nothing, but in texts.
    let text = match types::null(data_type) {
        ScalarValue::Utf8(_) => text,
        _ => text.trim(),
    };
    Some(match *data_type {
        Type::BOOL => ScalarValue::Boolean(Some(boolean(text)?)),
        Type::INT2 => ScalarValue::Int16(Some(text.parse().ok()?)),
        Type::INT4 => ScalarValue::Int32(Some(text.parse().ok()?)),
        Type::INT8 => ScalarValue::Int64(Some(text.parse().ok()?)),
        Type::OID => ScalarValue::Int32(Some(text.parse().ok()?)),
        Type::FLOAT4 => ScalarValue::Float32(Some(text.parse().ok()?)),
        Type::FLOAT8 => ScalarValue::Float64(Some(text.parse().ok()?)),
        Type::NUMERIC => decimal(text)?,
        Type::DATE => cast(date(text), &DataType::Date32)?,
        Type::TIMESTAMP => cast(
            without_zone(text),
            &DataType::Timestamp(TimeUnit::Microsecond, None),
        )?,
        Type::TIMESTAMPTZ => {
            let zone = Some("UTC".into());
            cast(text, &DataType::Timestamp(TimeUnit::Microsecond, zone))?
        }
        Type::BYTEA => ScalarValue::Binary(Some(bytea(text)?)),
        _ => match types::element_of(data_type) {
            Some(element) => {
                let elements = array_elements(text)?.into_iter();
                let elements = elements.map(|text| match text {
                    Some(text) => parse(element, &text),
                    None => Some(types::null(element)),
                });
                list(elements.collect::<Option<_>>()?, element)?
            }
            None => ScalarValue::Utf8(Some(text.to_owned())),
        },
    })
}

/// Reads a truth value: `true`, `yes`, `on` and `1`, their opposites, and what these begin with, as far as it says
/// which is meant.
fn boolean(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" {
        return Some(true);
    }
    let is_false = begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0";
    is_false.then_some(false)
}

/// Returns a date without the time or the zone that may stand behind it, as in `1996-01-02 +00`: PostgreSQL
/// ignores them.
fn date(text: &str) -> &str {
    let day = without_zone(text);
    day.split([' ', 'T']).next().unwrap_or(day)
}

/// Returns a date, or a date and a time, without the zone that may stand behind it: PostgreSQL ignores it.
fn without_zone(text: &str) -> &str {
    let is_zone = |byte: u8| matches!(byte, b'+' | b'-' | b'Z');
    match text.bytes().skip(DAY.len()).position(is_zone) {
        Some(zone) => text[..DAY.len() + zone].trim_end(),
        None => text,
    }
}

/// Reads a value that came in its binary form.
fn binary(data_type: &Type, bytes: &[u8]) -> Option<ScalarValue> {
    Some(match *data_type {
        Type::BOOL => ScalarValue::Boolean(Some(*bytes.first()? != 0)),
        Type::INT2 => ScalarValue::Int16(Some(i16::from_be_bytes(bytes.try_into().ok()?))),
        // Numbers of objects are small here.
        Type::INT4 | Type::OID => {
            ScalarValue::Int32(Some(i32::from_be_bytes(bytes.try_into().ok()?)))
        }
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
        _ => match types::element_of(data_type) {
            Some(element) => list(binary_elements(element, bytes)?, element)?,
            None => ScalarValue::Utf8(Some(std::str::from_utf8(bytes).ok()?.to_owned())),
        },
    })
}

/// Reads the elements of an array in its binary form, if it has one dimension: their number, whether there are nulls,
/// their type, how many there are, the number of the first; then each with its length before it.
fn binary_elements(element: &Type, bytes: &[u8]) -> Option<Vec<ScalarValue>> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(i32::from_be_bytes(word))
    };
    match word(0)? {
        0 => return (bytes.len() == 12).then(Vec::new),
        1 => {}
        _ => return None,
    }
    if u32::try_from(word(8)?).ok()? != element.oid() {
        return None;
    }
    let count = usize::try_from(word(12)?).ok()?;
    let mut rest = bytes.get(20..)?;
    let mut elements = Vec::new();
    for _ in 0..count {
        let (length, behind) = rest.split_at_checked(4)?;
        let length = i32::from_be_bytes(length.try_into().ok()?);
        rest = behind;
        elements.push(match length {
            -1 => types::null(element),
            length => {
                let (value, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = behind;
                binary(element, value)?
            }
        });
    }
    rest.is_empty().then_some(elements)
}

/// Returns a list of values, of decimals with as many digits behind the point as any of them has.
fn list(elements: Vec<ScalarValue>, element: &Type) -> Option<ScalarValue> {
    let scales = elements.iter().map(|value| match value.data_type() {
        DataType::Decimal128(_, scale) if !value.is_null() => scale,
        _ => 0,
    });
    let to = match types::null(element).data_type() {
        DataType::Decimal128(p, _) => DataType::Decimal128(p, scales.max().unwrap_or(0)),
        other => other,
    };
    let elements = elements.iter().map(|value| value.cast_to(&to).ok());
    let elements = elements.collect::<Option<Vec<_>>>()?;
    Some(ScalarValue::List(ScalarValue::new_list_nullable(
        &elements, &to,
    )))
}

/// Returns a decimal with the digits that its text has.
fn decimal(text: &str) -> Option<ScalarValue> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i64::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    // Zeros before the point are digits, too.
    let zeros = u32::try_from(scale.min(0).checked_neg()?).ok()?;
    let unscaled = unscaled.checked_mul(10i128.checked_pow(zeros)?)?;
    let scale = i8::try_from(scale.max(0))
        .ok()
        .filter(|scale| *scale <= 38)?;
    Some(ScalarValue::Decimal128(Some(unscaled), 38, scale))
}

fn cast(text: &str, to: &DataType) -> Option<ScalarValue> {
    ScalarValue::Utf8(Some(text.to_owned())).cast_to(to).ok()
}

/// Reads bytes as PostgreSQL's clients write them: two digits for each.
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
    fn arrays_are_read_in_both_forms() {
        let list = |text: &str| parse(&Type::INT4_ARRAY, text).map(|list| list.to_string());
        assert_eq!(list("{1, 2,NULL}").as_deref(), Some("[1, 2, ]"));
        assert_eq!(list("{}").as_deref(), Some("[]"));
        for wrong in [
            "",
            "{",
            "1,2",
            "{1,}",
            "{{1},{2}}",
            "{\"a}",
            "{\"a\"b}",
            "{x}",
            "{1}}",
        ] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
        let words = |words: &[i32]| {
            words
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect::<Vec<u8>>()
        };
        let bytes = words(&[1, 1, 23, 2, 1, 4, 7, -1]);
        assert_eq!(
            binary(&Type::INT4_ARRAY, &bytes),
            parse(&Type::INT4_ARRAY, "{7,null}")
        );
        assert_eq!(
            binary(&Type::INT4_ARRAY, &words(&[0, 0, 23])),
            parse(&Type::INT4_ARRAY, "{}")
        );
        for end in 0..bytes.len() {
            assert_eq!(binary(&Type::INT4_ARRAY, &bytes[..end]), None, "{end}");
        }
        assert_eq!(binary(&Type::INT8_ARRAY, &bytes), None);
        let decimals = parse(&Type::NUMERIC_ARRAY, "{1,2.50}").unwrap();
        assert_eq!(decimals.to_string(), "[1.00, 2.50]");
    }

    #[test]
    fn values_are_read_as_drivers_write_them() {
        for (data_type, text, same) in [
            (Type::BOOL, "TRUE", "t"),
            (Type::BOOL, "no", "f"),
            (Type::BOOL, " of ", "f"),
            (Type::INT4, " 7 ", "7"),
            (Type::DATE, "1996-01-02 +00", "1996-01-02"),
            (Type::DATE, "1996-01-02+00", "1996-01-02"),
            (Type::DATE, "1996-01-02 03:04:05", "1996-01-02"),
            (Type::NUMERIC, "1.5E+3", "1500"),
            (Type::NUMERIC, "-15e-1", "-1.5"),
            (
                Type::TIMESTAMP,
                "1996-01-02 03:04:05.6+02",
                "1996-01-02 03:04:05.6",
            ),
            (Type::TIMESTAMP, "1996-01-02 +00", "1996-01-02"),
            (
                Type::TIMESTAMPTZ,
                "1996-01-02 03:04:05.6+02",
                "1996-01-02 01:04:05.6+00",
            ),
        ] {
            let read = parse(&data_type, text);
            assert!(read.is_some(), "{text}");
            assert_eq!(read, parse(&data_type, same), "{text}");
        }
        let spaces = parse(&Type::TEXT, " a ").unwrap();
        assert_eq!(spaces, ScalarValue::Utf8(Some(" a ".to_owned())));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (data_type, text) in [
            (Type::INT4, "x"),
            (Type::INT2, "70000"),
            (Type::BOOL, "maybe"),
            (Type::BOOL, "o"),
            (Type::BOOL, ""),
            (Type::NUMERIC, "1e99"),
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
