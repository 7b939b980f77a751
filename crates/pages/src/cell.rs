//! Single values on their way between arrays and records.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::TimeUnit;

use crate::form::Form;
use crate::format_error::FormatError;
use crate::kind::Kind;

/// A value.
pub(crate) enum Cell<'a> {
    Null,
    Int(i128),
    Float(f64),
    Bytes(&'a [u8]),
}

/// Returns the values of an array of a type that has a [`Kind`].
///
/// # Panics
/// Panics if the type has none.
pub(crate) fn cells<'a>(array: &'a ArrayRef) -> Box<dyn Fn(usize) -> Cell<'a> + 'a> {
    match Kind::of(array.data_type()).expect("a type that pages have") {
        Kind::Boolean => {
            let array = array.as_boolean();
            nullable(array, |row| Cell::Int(array.value(row).into()))
        }
        Kind::Int8 => ints::<Int8Type>(array),
        Kind::Int16 => ints::<Int16Type>(array),
        Kind::Int32 => ints::<Int32Type>(array),
        Kind::Int64 => ints::<Int64Type>(array),
        Kind::UInt8 => ints::<UInt8Type>(array),
        Kind::UInt16 => ints::<UInt16Type>(array),
        Kind::UInt32 => ints::<UInt32Type>(array),
        Kind::UInt64 => ints::<UInt64Type>(array),
        Kind::Date32 => ints::<Date32Type>(array),
        Kind::Timestamp(TimeUnit::Second) => ints::<TimestampSecondType>(array),
        Kind::Timestamp(TimeUnit::Millisecond) => ints::<TimestampMillisecondType>(array),
        Kind::Timestamp(TimeUnit::Microsecond) => ints::<TimestampMicrosecondType>(array),
        Kind::Timestamp(TimeUnit::Nanosecond) => ints::<TimestampNanosecondType>(array),
        Kind::Decimal32(..) => ints::<Decimal32Type>(array),
        Kind::Decimal64(..) => ints::<Decimal64Type>(array),
        Kind::Decimal128(..) => ints::<Decimal128Type>(array),
        Kind::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            nullable(array, |row| Cell::Float(array.value(row).into()))
        }
        Kind::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            nullable(array, |row| Cell::Float(array.value(row)))
        }
        Kind::Utf8 => {
            let array = array.as_string::<i32>();
            nullable(array, |row| Cell::Bytes(array.value(row).as_bytes()))
        }
        Kind::Binary => {
            let array = array.as_binary::<i32>();
            nullable(array, |row| Cell::Bytes(array.value(row)))
        }
    }
}

fn nullable<'a>(
    array: &'a dyn Array,
    value: impl Fn(usize) -> Cell<'a> + 'a,
) -> Box<dyn Fn(usize) -> Cell<'a> + 'a> {
    Box::new(move |row| {
        if array.is_null(row) {
            Cell::Null
        } else {
            value(row)
        }
    })
}

fn ints<'a, T: ArrowPrimitiveType>(array: &'a ArrayRef) -> Box<dyn Fn(usize) -> Cell<'a> + 'a>
where
    T::Native: Into<i128>,
{
    let array = array.as_primitive::<T>();
    nullable(array, |row| Cell::Int(array.value(row).into()))
}

/// Why a value does not fit into its form, and what to do.
#[derive(Debug)]
pub(crate) struct ValueMisfit(pub(crate) String);

/// Writes a value, which is not null.
///
/// # Errors
/// Returns an error if the value does not fit.
pub(crate) fn write(
    cell: &Cell<'_>,
    kind: Kind,
    form: Form,
    to: &mut [u8],
) -> Result<(), ValueMisfit> {
    let number = |value: i128, to: &mut [u8]| {
        let whole = number(value, form, to);
        let wrong = || format!("is {value}, which {form:?} does not hold: choose a wider form");
        whole.then_some(()).ok_or_else(|| ValueMisfit(wrong()))
    };
    match (cell, form) {
        (Cell::Bytes(bytes), Form::Chars(width)) => {
            if bytes.len() > to.len() || bytes.last() == Some(&0) {
                return Err(ValueMisfit(format!(
                    "has {} bytes, of which {width} are kept without zeros at the end: declare \
                     more, or choose the layout of columns",
                    bytes.len()
                )));
            }
            to[..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        (Cell::Int(days), Form::Chars(_)) => {
            let text = date(*days).ok_or_else(|| {
                ValueMisfit("is a date beyond the year 9999: choose the form I32".to_owned())
            })?;
            to[..text.len()].copy_from_slice(text.as_bytes());
            Ok(())
        }
        (Cell::Int(value), Form::F32 | Form::F64) => float_of_decimal(*value, kind, form, to),
        (Cell::Float(value), _) => {
            let same = write_float(*value, form, to);
            let wrong = || format!("is {value}, which {form:?} does not hold: choose F64");
            same.then_some(()).ok_or_else(|| ValueMisfit(wrong()))
        }
        (Cell::Int(value), Form::U8 | Form::U16 | Form::U32 | Form::U64) => {
            let one = 10_i128.pow(scale(kind).max(0) as u32);
            if value % one != 0 {
                return Err(ValueMisfit(format!(
                    "has a fraction, which {form:?} has not: choose I64 or F64"
                )));
            }
            let more = 10_i128.pow((-scale(kind)).max(0) as u32);
            let whole = (value / one).checked_mul(more);
            number(whole.unwrap_or(i128::MAX), to)
        }
        (Cell::Int(value), _) => number(*value, to),
        (Cell::Null | Cell::Bytes(_), _) => unreachable!("forms suit their columns"),
    }
}

/// Returns a scale from −38 to 38: ten to its power is an `i128`.
fn scale(kind: Kind) -> i32 {
    match kind {
        Kind::Decimal32(_, scale) | Kind::Decimal64(_, scale) | Kind::Decimal128(_, scale) => {
            scale.into()
        }
        _ => 0,
    }
}

/// Writes an integer if the form holds it.
fn number(value: i128, form: Form, to: &mut [u8]) -> bool {
    let bits = 8 * to.len() as u32;
    let fits = match form {
        Form::U8 | Form::U16 | Form::U32 | Form::U64 => (0..1_i128 << bits).contains(&value),
        Form::I128 => true,
        _ => (-(1_i128 << (bits - 1))..1 << (bits - 1)).contains(&value),
    };
    if fits {
        to.copy_from_slice(&value.to_le_bytes()[..to.len()]);
    }
    fits
}

/// Writes a floating-point number. Returns `true` if its value is unchanged.
fn write_float(value: f64, form: Form, to: &mut [u8]) -> bool {
    if form == Form::F64 {
        to.copy_from_slice(&value.to_le_bytes());
        return true;
    }
    let narrow = value as f32;
    to.copy_from_slice(&narrow.to_le_bytes());
    f64::from(narrow) == value || value.is_nan()
}

fn float_of_decimal(value: i128, kind: Kind, form: Form, to: &mut [u8]) -> Result<(), ValueMisfit> {
    let scaled = value as f64 / 10_f64.powi(scale(kind));
    write_float(scaled, form, to);
    if unscaled(read_float(to, form), kind) == value {
        return Ok(());
    }
    let known = format!("is about {scaled}, which {form:?} does not hold exactly");
    Err(ValueMisfit(known + ": choose I64 or I128"))
}

/// Returns the nearest decimal.
fn unscaled(value: f64, kind: Kind) -> i128 {
    nearest(value * 10_f64.powi(scale(kind)))
}

/// Returns the nearest integer; of two, the one farther from zero.
fn nearest(value: f64) -> i128 {
    /// From this value on all floats are integers.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    if value.abs() < WHOLE {
        // This avoids calls, which rounding and wide integers need on some processors.
        let whole = value as i64;
        let rest = value - whole as f64;
        (whole + i64::from(rest >= 0.5) - i64::from(rest <= -0.5)).into()
    } else {
        value.round() as i128
    }
}

fn read_float(bytes: &[u8], form: Form) -> f64 {
    if form == Form::F64 {
        f64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    } else {
        f32::from_le_bytes(bytes.try_into().expect("four bytes")).into()
    }
}

/// Returns the integer in an attribute, in the column's kind.
fn read_int(bytes: &[u8], kind: Kind, form: Form) -> Result<i128, FormatError> {
    if let Form::Chars(_) = form {
        return days(bytes).ok_or_else(|| "there is no such date".into());
    }
    let unsigned = matches!(form, Form::U8 | Form::U16 | Form::U32 | Form::U64);
    let negative = !unsigned && bytes[bytes.len() - 1] >> 7 == 1;
    let mut all = [if negative { u8::MAX } else { 0 }; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    let value = i128::from_le_bytes(all);
    if !unsigned {
        return Ok(value);
    }
    let value = value.checked_mul(10_i128.pow(scale(kind).max(0) as u32));
    let value = value.ok_or_else(|| FormatError::from("a decimal is too large"))?;
    Ok(value / 10_i128.pow((-scale(kind)).max(0) as u32))
}

/// Returns an array of values that lie in this form; null where there is none.
///
/// # Errors
/// Returns what is wrong with a value.
pub(crate) fn array<'a>(
    values: impl Iterator<Item = Option<&'a [u8]>>,
    kind: Kind,
    form: Form,
) -> Result<ArrayRef, FormatError> {
    let typed = Typed { kind, form };
    match kind {
        Kind::Boolean => {
            let bits = values.map(|value| value.map(|bytes| bytes[0] != 0));
            Ok(Arc::new(bits.collect::<BooleanArray>()))
        }
        Kind::Int8 => typed.ints::<Int8Type>(values),
        Kind::Int16 => typed.ints::<Int16Type>(values),
        Kind::Int32 => typed.ints::<Int32Type>(values),
        Kind::Int64 => typed.ints::<Int64Type>(values),
        Kind::UInt8 => typed.ints::<UInt8Type>(values),
        Kind::UInt16 => typed.ints::<UInt16Type>(values),
        Kind::UInt32 => typed.ints::<UInt32Type>(values),
        Kind::UInt64 => typed.ints::<UInt64Type>(values),
        Kind::Date32 => typed.ints::<Date32Type>(values),
        Kind::Timestamp(TimeUnit::Second) => typed.ints::<TimestampSecondType>(values),
        Kind::Timestamp(TimeUnit::Millisecond) => typed.ints::<TimestampMillisecondType>(values),
        Kind::Timestamp(TimeUnit::Microsecond) => typed.ints::<TimestampMicrosecondType>(values),
        Kind::Timestamp(TimeUnit::Nanosecond) => typed.ints::<TimestampNanosecondType>(values),
        Kind::Decimal32(..) => typed.ints::<Decimal32Type>(values),
        Kind::Decimal64(..) => typed.ints::<Decimal64Type>(values),
        Kind::Decimal128(..) => typed.ints::<Decimal128Type>(values),
        Kind::Float32 => {
            let floats = values.map(|value| Some(read_float(value?, form) as f32));
            Ok(Arc::new(floats.collect::<PrimitiveArray<Float32Type>>()))
        }
        Kind::Float64 => {
            let floats = values.map(|value| Some(read_float(value?, form)));
            Ok(Arc::new(floats.collect::<PrimitiveArray<Float64Type>>()))
        }
        Kind::Utf8 => {
            let text = |bytes| {
                let text = str::from_utf8(used(bytes));
                text.map_err(|error| FormatError(error.to_string()))
            };
            let texts = values.map(|value| value.map(text).transpose());
            Ok(Arc::new(
                texts.collect::<Result<StringArray, FormatError>>()?,
            ))
        }
        Kind::Binary => {
            let bytes = values.map(|value| value.map(used));
            Ok(Arc::new(bytes.collect::<BinaryArray>()))
        }
    }
}

#[derive(Clone, Copy)]
struct Typed {
    kind: Kind,
    form: Form,
}

impl Typed {
    fn ints<'a, T: ArrowPrimitiveType>(
        self,
        values: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Result<ArrayRef, FormatError>
    where
        T::Native: TryFrom<i128>,
    {
        let (kind, form) = (self.kind, self.form);
        match form {
            Form::F32 | Form::F64 => {
                let unit = 10_f64.powi(scale(kind));
                self.collect::<T>(values, |bytes| Ok(nearest(read_float(bytes, form) * unit)))
            }
            _ => self.collect::<T>(values, |bytes| read_int(bytes, kind, form)),
        }
    }

    fn collect<'a, T: ArrowPrimitiveType>(
        self,
        values: impl Iterator<Item = Option<&'a [u8]>>,
        read: impl Fn(&[u8]) -> Result<i128, FormatError>,
    ) -> Result<ArrayRef, FormatError>
    where
        T::Native: TryFrom<i128>,
    {
        let expected = values.size_hint().0;
        let mut natives = Vec::with_capacity(expected);
        let mut nulls = NullBufferBuilder::new(expected);
        for value in values {
            let Some(bytes) = value else {
                natives.push(T::Native::default());
                nulls.append_null();
                continue;
            };
            let value = read(bytes)?;
            let native = T::Native::try_from(value);
            natives.push(native.map_err(|_| format!("{value} is no {:?}", self.kind))?);
            nulls.append_non_null();
        }
        let array = PrimitiveArray::<T>::new(natives.into(), nulls.finish());
        Ok(Arc::new(array.with_data_type(self.kind.data_type())))
    }
}

/// Returns the bytes without the zeros at the end.
fn used(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0);
    &bytes[..end.map_or(0, |last| last + 1)]
}

/// Days of 400 years.
const CYCLE: i128 = 146_097;

/// Formats a day since 1970-01-01 as `YYYY-MM-DD`. Years begin with March here, so that the leap
/// day is their last.
fn date(days: i128) -> Option<String> {
    let day = days + 719_468;
    let (cycle, day) = (day.div_euclid(CYCLE), day.rem_euclid(CYCLE));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (cycle * 400 + year, month + 3),
        _ => (cycle * 400 + year + 1, month - 9),
    };
    (0..=9999)
        .contains(&year)
        .then(|| format!("{year:04}-{month:02}-{day_of_month:02}"))
}

/// Reads a date that [`date`] has written, with any bytes after it. Only days that exist, and that
/// are written in this form, are accepted.
fn days(text: &[u8]) -> Option<i128> {
    let text: &[u8; 10] = text.first_chunk()?;
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0_i32, |number, byte| {
            let digit = byte.wrapping_sub(b'0');
            (digit < 10).then_some(10 * number + i32::from(digit))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_day = (1..=12).contains(&month) && (1..=last).contains(&day);
    if !is_day || text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    // Years begin with March, so that the leap day is their last.
    let (year, month) = match month {
        3.. => (year, month - 3),
        _ => (year - 1, month + 9),
    };
    let (cycle, of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    let of_cycle = 365 * of_cycle + of_cycle / 4 - of_cycle / 100 + of_year;
    Some(i128::from(cycle) * CYCLE + i128::from(of_cycle) - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_rounded_as_the_library_does() {
        let near = [
            0.0,
            0.25,
            0.5,
            0.75,
            1.0,
            1.5,
            2.5,
            1e6 + 0.5,
            90_071_992_547_409.5,
        ];
        let far = [
            4_503_599_627_370_495.5,
            4_503_599_627_370_496.0,
            1e18,
            1e30,
            f64::NAN,
        ];
        for value in near.into_iter().chain(far) {
            for value in [value, -value, value.next_down(), value.next_up()] {
                assert_eq!(nearest(value), value.round() as i128, "{value}");
            }
        }
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..100_000 {
            let value = (rng.f64() - 0.5) * 10_f64.powi(rng.i32(0..20));
            assert_eq!(nearest(value), value.round() as i128, "{value}");
        }
    }

    #[test]
    fn dates_are_written_and_read() {
        for (day, text) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (8035, "1992-01-01"),
            (11_016, "2000-02-29"),
            (-719_528, "0000-01-01"),
            (2_932_896, "9999-12-31"),
        ] {
            assert_eq!(date(day).as_deref(), Some(text));
            assert_eq!(days(text.as_bytes()), Some(day));
        }
        assert_eq!((date(2_932_897), date(-719_529)), (None, None));
        for wrong in [
            "1999-02-29",
            "1999-13-01",
            "1999-00-01",
            "1999-04-31",
            "1999-04-00",
            "1900-02-29",
            "1999/04/01",
            "1999-1-011",
            "+999-01-01",
            "",
            "\0",
        ] {
            assert_eq!(days(wrong.as_bytes()), None, "{wrong}");
        }
        for day in (-719_528..2_932_896).step_by(997) {
            assert_eq!(days(date(day).unwrap().as_bytes()), Some(day));
        }
    }
}
