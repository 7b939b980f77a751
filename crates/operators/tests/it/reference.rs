//! A slow executor that is obviously right: it computes a row at a time, a value at a time.

pub(crate) mod generate;
pub(crate) mod storage;

use arrow_schema::DataType;
use kumiki_operators::{Expr, Operator, Scalar, Value};

pub(crate) type Row = Vec<Value>;

/// A value of a row, or an error.
pub(crate) type Found = Result<Value, ()>;

/// Returns the least and greatest value of an integer type.
pub(crate) fn limits(data_type: &DataType) -> (i128, i128) {
    match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int32 | DataType::Date32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        DataType::Decimal128(..) => (i128::MIN, i128::MAX),
        other => panic!("{other} has no limits"),
    }
}

fn scale(data_type: &DataType) -> u32 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale as u32,
        _ => 0,
    }
}

/// Returns the value of an expression for a row.
pub(crate) fn evaluate(expr: &Expr, row: &[Value], types: &[DataType]) -> Found {
    let of = |expr: &Expr| evaluate(expr, row, types);
    let data_type = |expr: &Expr| expr.data_type(types).expect("a type");
    match expr {
        Expr::Column(column) => Ok(row[*column].clone()),
        Expr::Literal(scalar) => Ok(literal(scalar)),
        Expr::Binary(left, Operator::And, right) => junction(of(left)?, || of(right), false),
        Expr::Binary(left, Operator::Or, right) => junction(of(left)?, || of(right), true),
        Expr::Binary(left, operator, right) => {
            let (l, r) = (of(left)?, of(right)?);
            if l == Value::Null || r == Value::Null {
                return Ok(Value::Null);
            }
            if data_type(expr) == DataType::Boolean {
                return Ok(Value::Bool(compare(*operator, &l, &r)));
            }
            arithmetic(
                *operator,
                l,
                r,
                &data_type(left),
                &data_type(right),
                &data_type(expr),
            )
        }
        Expr::Not(value) => Ok(match of(value)? {
            Value::Bool(value) => Value::Bool(!value),
            other => other,
        }),
        Expr::IsNull(value) => Ok(Value::Bool(of(value)? == Value::Null)),
        Expr::IsNotNull(value) => Ok(Value::Bool(of(value)? != Value::Null)),
        Expr::Negative(value) => match of(value)? {
            Value::Float(value) => Ok(Value::Float(-value)),
            Value::Int(value) => {
                let negative = value.checked_neg().ok_or(())?;
                Ok(Value::Int(wrap(negative, &data_type(expr))))
            }
            other => Ok(other),
        },
        Expr::Like {
            text,
            pattern,
            negated,
        } => Ok(match of(text)? {
            Value::Text(text) => {
                let text: Vec<char> = text.chars().collect();
                let pattern: Vec<char> = pattern.chars().collect();
                Value::Bool(like(&text, &pattern) != *negated)
            }
            other => other,
        }),
        Expr::InList {
            value,
            list,
            negated,
        } => {
            let value = of(value)?;
            if value == Value::Null {
                return Ok(Value::Null);
            }
            let mut found = Value::Bool(*negated);
            for scalar in list {
                match literal(scalar) {
                    Value::Null => found = Value::Null,
                    listed if compare(Operator::Eq, &value, &listed) => {
                        return Ok(Value::Bool(!*negated));
                    }
                    _ => {}
                }
            }
            Ok(found)
        }
        Expr::Case { when, otherwise } => {
            for (condition, value) in when {
                if of(condition)? == Value::Bool(true) {
                    return of(value);
                }
            }
            otherwise
                .as_ref()
                .map_or(Ok(Value::Null), |value| of(value))
        }
        Expr::Cast(value, to) => cast(of(value)?, &data_type(value), to),
        Expr::Year(date) => Ok(match of(date)? {
            Value::Int(day) => year(day),
            other => other,
        }),
        Expr::Substring(text, from, count) => Ok(match of(text)? {
            Value::Text(text) => {
                let places = *from..from.saturating_add(*count);
                let characters = (1i64..).zip(text.chars());
                let part = characters.filter(|(place, _)| places.contains(place));
                Value::Text(part.map(|(_, character)| character).collect())
            }
            other => other,
        }),
    }
}

fn literal(scalar: &Scalar) -> Value {
    match (&scalar.data_type, &scalar.value) {
        (DataType::Float32, Value::Float(value)) => Value::Float(f64::from(*value as f32)),
        (_, value) => value.clone(),
    }
}

fn junction(left: Value, right: impl Fn() -> Found, deciding: bool) -> Found {
    if left == Value::Bool(deciding) {
        return Ok(left);
    }
    Ok(match (left, right()?) {
        (_, right) if right == Value::Bool(deciding) => right,
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        _ => Value::Bool(!deciding),
    })
}

/// Returns a float whose total order is PostgreSQL's.
fn canonical(value: f64) -> f64 {
    if value.is_nan() {
        f64::NAN
    } else {
        value + 0.0
    }
}

/// Compares values of one type.
pub(crate) fn order(left: &Value, right: &Value) -> std::cmp::Ordering {
    match (left, right) {
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Int(l), Value::Int(r)) => l.cmp(r),
        (Value::Float(l), Value::Float(r)) => canonical(*l).total_cmp(&canonical(*r)),
        (Value::Text(l), Value::Text(r)) => l.cmp(r),
        other => panic!("not of one type: {other:?}"),
    }
}

fn compare(operator: Operator, left: &Value, right: &Value) -> bool {
    let order = order(left, right);
    match operator {
        Operator::Eq => order.is_eq(),
        Operator::NotEq => order.is_ne(),
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        _ => order.is_ge(),
    }
}

fn wrap(value: i128, data_type: &DataType) -> i128 {
    let (min, max) = limits(data_type);
    match max.checked_sub(min).and_then(|size| size.checked_add(1)) {
        Some(size) => (value - min).rem_euclid(size) + min,
        None => value,
    }
}

fn arithmetic(
    operator: Operator,
    left: Value,
    right: Value,
    left_type: &DataType,
    right_type: &DataType,
    result: &DataType,
) -> Found {
    let (l, r) = match (left, right) {
        (Value::Float(l), Value::Float(r)) => {
            let value = match operator {
                Operator::Plus => l + r,
                Operator::Minus => l - r,
                Operator::Multiply => l * r,
                Operator::Divide => l / r,
                _ => l % r,
            };
            let single = *result == DataType::Float32;
            return Ok(Value::Float(if single {
                f64::from(value as f32)
            } else {
                value
            }));
        }
        (Value::Int(l), Value::Int(r)) => (l, r),
        other => panic!("no numbers: {other:?}"),
    };
    let decimal = matches!(result, DataType::Decimal128(..));
    let (ls, rs, s) = (scale(left_type), scale(right_type), scale(result));
    let (up_left, up_right) = match operator {
        _ if !decimal => (0, 0),
        Operator::Multiply => (0, 0),
        Operator::Divide => (s - ls + rs, 0),
        _ => (s - ls, s - rs),
    };
    let l = l.checked_mul(10i128.pow(up_left)).ok_or(())?;
    let r = r.checked_mul(10i128.pow(up_right)).ok_or(())?;
    let value = match operator {
        Operator::Plus => l.checked_add(r),
        Operator::Minus => l.checked_sub(r),
        // The product of two unsigned 64-bit numbers may leave 128 bits with a sign.
        Operator::Multiply if *result == DataType::UInt64 => {
            Some((l as u128).wrapping_mul(r as u128) as u64 as i128)
        }
        Operator::Multiply => l.checked_mul(r),
        Operator::Divide => {
            let (min, max) = limits(result);
            l.checked_div(r)
                .filter(|quotient| (min..=max).contains(quotient))
        }
        _ => l.checked_rem(r),
    };
    Ok(Value::Int(wrap(value.ok_or(())?, result)))
}

fn like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skip| like(&text[skip..], rest)),
        ['_', rest @ ..] => !text.is_empty() && like(&text[1..], rest),
        ['\\', wanted, rest @ ..] | [wanted, rest @ ..] => {
            text.first() == Some(wanted) && like(&text[1..], rest)
        }
    }
}

fn cast(value: Value, from: &DataType, to: &DataType) -> Found {
    if from == to {
        return Ok(value);
    }
    let single = |value: f64| {
        Value::Float(if *to == DataType::Float32 {
            f64::from(value as f32)
        } else {
            value
        })
    };
    match (value, to) {
        (Value::Int(value), DataType::Float32 | DataType::Float64) => Ok(match from {
            DataType::Decimal128(_, scale) => single(value as f64 / 10f64.powi(i32::from(*scale))),
            _ if *to == DataType::Float32 => Value::Float(f64::from(value as f32)),
            _ => Value::Float(value as f64),
        }),
        (Value::Float(value), DataType::Float32 | DataType::Float64) => Ok(single(value)),
        (Value::Float(value), to) => {
            let (min, max) = limits(to);
            // `as` cuts off and saturates; far beyond every type's limits that changes nothing.
            let cut = value as i128;
            let fits = !value.is_nan() && (min..=max).contains(&cut);
            if fits { Ok(Value::Int(cut)) } else { Err(()) }
        }
        (Value::Int(value), DataType::Decimal128(precision, _)) => {
            let (source, target) = (scale(from), scale(to));
            let cast = if target >= source {
                value.checked_mul(10i128.pow(target - source)).ok_or(())?
            } else {
                let by = 10i128.pow(source - target);
                let nearest = value.abs() / by + i128::from(value.abs() % by >= by / 2);
                nearest * value.signum()
            };
            let digits = match from {
                DataType::Decimal128(digits, _) => i64::from(*digits),
                _ => i64::MAX / 2,
            };
            let grown = digits + i64::from(target) - i64::from(source);
            let looked_at = grown > i64::from(*precision) - i64::from(target < source);
            let fits = cast.unsigned_abs() < 10u128.pow(u32::from(*precision));
            if looked_at && !fits {
                Err(())
            } else {
                Ok(Value::Int(cast))
            }
        }
        (Value::Int(value), to) => {
            let value = value / 10i128.pow(scale(from));
            let (min, max) = limits(to);
            if (min..=max).contains(&value) {
                Ok(Value::Int(value))
            } else {
                Err(())
            }
        }
        (other, _) => Ok(other),
    }
}

/// Counts days year by year.
fn year(day: i128) -> Value {
    let leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // 400 years always have the same number of days.
    let (mut year, mut left) = (
        1970 + day.div_euclid(146_097) * 400,
        day.rem_euclid(146_097),
    );
    loop {
        let days = if leap(year) { 366 } else { 365 };
        if left < days {
            break;
        }
        left -= days;
        year += 1;
    }
    if (-262_143..=262_142).contains(&year) {
        Value::Int(year)
    } else {
        Value::Null
    }
}
