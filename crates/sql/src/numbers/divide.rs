//! Division of decimals as PostgreSQL's `numeric` divides: rounded, with at least 16 significant digits.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type,
    i256,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const NAME: &str = "divide_decimals";
/// The least number of significant digits of a quotient.
const SIGNIFICANT: i16 = 16;
/// The decimal digits in one of PostgreSQL's digits.
const GROUP: i16 = 4;
/// The most digits after the point of a quotient, unless an operand has more.
const MOST_BEHIND: i16 = 30;

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Divide {
        signature: Signature::any(2, Volatility::Immutable),
    }))
});

/// Returns the quotient of two expressions of decimals.
pub(super) fn divide(left: Expr, right: Expr) -> Expr {
    let function = Arc::clone(&FUNCTION);
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![left, right]))
}

/// The function.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Divide {
    signature: Signature,
}

impl ScalarUDFImpl for Divide {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments
            .iter()
            .map(digits)
            .collect::<Option<Vec<_>>>()
            .as_deref()
        {
            Some(&[left, right]) => Ok(quotient_type(left, right)),
            _ => plan_err!("{NAME} is of two decimals, not of {arguments:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = arguments.return_type().clone();
        let scalars = arguments.args.iter();
        let is_scalar = scalars
            .clone()
            .all(|of| matches!(of, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let arrays = scalars
            .map(|of| of.to_array(rows))
            .collect::<Result<Vec<_>>>()?;
        let [left, right] = &arrays[..] else {
            return plan_err!("{NAME} has two arguments");
        };
        let array = quotients(left, right, &result)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
            false => ColumnarValue::Array(array),
        })
    }
}

fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    match *data_type {
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => Some((p.into(), s.into())),
        _ => None,
    }
}

/// Returns a type that holds the quotients of decimals with these precisions and scales: with as many digits
/// after the point as PostgreSQL gives the smallest of them, as far as there is room.
fn quotient_type((p1, s1): (i16, i16), (p2, s2): (i16, i16)) -> DataType {
    let most = i16::from(DECIMAL256_MAX_PRECISION);
    let whole = (p1 - s1 + s2).max(1);
    let groups = |digits: i16| (digits.max(0) + GROUP - 1) / GROUP;
    let wanted = SIGNIFICANT + GROUP * (groups(s1) + groups(p2 - s2));
    let given = s1.max(s2);
    let scale = wanted.min(MOST_BEHIND).max(given);
    let scale = scale.min((most - whole).max(SIGNIFICANT.max(given).min(most)));
    let precision = (whole + scale).min(most);
    let (p, s) = (
        u8::try_from(precision).unwrap_or(DECIMAL256_MAX_PRECISION),
        i8::try_from(scale).unwrap_or(i8::MAX),
    );
    match p <= DECIMAL128_MAX_PRECISION {
        true => DataType::Decimal128(p, s),
        false => DataType::Decimal256(p, s),
    }
}

/// A column of decimals.
enum Decimals<'a> {
    Narrow(&'a Decimal128Array),
    Wide(&'a Decimal256Array),
}

impl<'a> Decimals<'a> {
    fn of(array: &'a ArrayRef) -> Decimals<'a> {
        match array.data_type() {
            DataType::Decimal256(..) => Decimals::Wide(array.as_primitive::<Decimal256Type>()),
            _ => Decimals::Narrow(array.as_primitive::<Decimal128Type>()),
        }
    }

    fn get(&self, row: usize) -> Option<i256> {
        match self {
            Decimals::Narrow(array) => array
                .is_valid(row)
                .then(|| i256::from_i128(array.value(row))),
            Decimals::Wide(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }
}

fn quotients(left: &ArrayRef, right: &ArrayRef, result: &DataType) -> Result<ArrayRef> {
    let (Some((_, s1)), Some((_, s2)), Some((precision, scale))) = (
        digits(left.data_type()),
        digits(right.data_type()),
        digits(result),
    ) else {
        return plan_err!("{NAME} is of decimals");
    };
    let (lefts, rights) = (Decimals::of(left), Decimals::of(right));
    let values = (0..left.len()).map(|row| {
        let (Some(left), Some(right)) = (lefts.get(row), rights.get(row)) else {
            return Ok(None);
        };
        if right == i256::ZERO {
            return Err(ArrowError::DivideByZero.into());
        }
        match quotient((left, s1), (right, s2), scale) {
            Some(value) if decimal_digits(value) <= precision => Ok(Some(value)),
            _ => exec_err!("a quotient of decimals has more than {precision} digits"),
        }
    });
    let values = values.collect::<Result<Vec<Option<i256>>>>()?;
    Ok(match *result {
        DataType::Decimal128(p, s) => {
            let values = values
                .into_iter()
                .map(|value| value.and_then(i256::to_i128));
            let array: Decimal128Array = values.collect();
            Arc::new(array.with_precision_and_scale(p, s)?)
        }
        DataType::Decimal256(p, s) => {
            let array: Decimal256Array = values.into_iter().collect();
            Arc::new(array.with_precision_and_scale(p, s)?)
        }
        _ => return plan_err!("{NAME} gives decimals"),
    })
}

/// Returns a quotient, unscaled, with so many digits after the point; `None` if 256 bits are too few. It is
/// rounded to as many digits as PostgreSQL's has.
fn quotient((left, s1): (i256, i16), (right, s2): (i256, i16), scale: i16) -> Option<i256> {
    if left == i256::ZERO {
        return Some(i256::ZERO);
    }
    let rounded = selected_scale((left, s1), (right, s2)).min(scale);
    let numerator = left.checked_mul(power(rounded + s2 - s1)?)?;
    let whole = numerator.checked_div(right)?;
    let rest = numerator.checked_rem(right)?;
    // The rest has the sign of the numerator, and is less than the divisor.
    let (rest, divisor) = (magnitude(rest)?, magnitude(right)?);
    let away = divisor.checked_sub(rest)? <= rest;
    let is_negative = left.is_negative() != right.is_negative();
    let whole = match (away, is_negative) {
        (false, _) => whole,
        (true, false) => whole.checked_add(i256::ONE)?,
        (true, true) => whole.checked_sub(i256::ONE)?,
    };
    whole.checked_mul(power(scale - rounded)?)
}

/// Returns how many digits after the point PostgreSQL gives a quotient (`select_div_scale` in its
/// `numeric.c`).
fn selected_scale((left, s1): (i256, i16), (right, s2): (i256, i16)) -> i16 {
    let ((weight1, first1), (weight2, first2)) = (leading(left, s1), leading(right, s2));
    let mut weight = weight1 - weight2;
    if first1 <= first2 {
        weight -= 1;
    }
    (SIGNIFICANT - weight * GROUP).max(s1).max(s2).max(0)
}

/// Returns the power of 10,000 of a number's first digit to that base, and that digit.
fn leading(value: i256, scale: i16) -> (i16, i256) {
    let count = decimal_digits(value);
    let exponent = count - 1 - scale;
    let weight = exponent.div_euclid(GROUP);
    let taken = exponent - weight * GROUP + 1;
    let value = magnitude(value).unwrap_or(i256::MAX);
    let first = match power((count - taken).abs()) {
        Some(power) if taken <= count => value.checked_div(power),
        Some(power) => value.checked_mul(power),
        None => None,
    };
    (weight, first.unwrap_or(i256::ZERO))
}

fn magnitude(value: i256) -> Option<i256> {
    match value.is_negative() {
        true => value.checked_neg(),
        false => Some(value),
    }
}

/// Returns how many decimal digits a number has.
fn decimal_digits(value: i256) -> i16 {
    let digits = match value.to_i128() {
        Some(value) => value
            .unsigned_abs()
            .checked_ilog10()
            .map_or(1, |log| log + 1),
        None => {
            let text = value.to_string();
            u32::try_from(text.trim_start_matches('-').len()).unwrap_or(u32::MAX)
        }
    };
    i16::try_from(digits).unwrap_or(i16::MAX)
}

fn power(exponent: i16) -> Option<i256> {
    i256::from_i128(10).checked_pow(u32::try_from(exponent).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(left: (i128, i16), right: (i128, i16), scale: i16, expected: &str) {
        let found = quotient(
            (i256::from_i128(left.0), left.1),
            (i256::from_i128(right.0), right.1),
            scale,
        );
        assert_eq!(found.unwrap().to_string(), expected);
    }

    #[test]
    fn quotients_are_rounded_as_postgresql_rounds_them() {
        // select 2/3.0, 3/1000000.0, 1/3.0, 10/4.0, -2/3.0, 1.00/7, 0.0001/30000
        check((2, 0), (30, 1), 20, "66666666666666666667");
        check((3, 0), (10_000_000, 1), 24, "3000000000000000000");
        check((1, 0), (30, 1), 20, "33333333333333333333");
        check((10, 0), (40, 1), 20, "250000000000000000000");
        check((-2, 0), (30, 1), 20, "-66666666666666666667");
        check((100, 2), (7, 0), 20, "14285714285714285714");
        check((1, 4), (30_000, 0), 28, "33333333333333333333");
        // A digit beyond PostgreSQL's is zero.
        check((2, 0), (30, 1), 21, "666666666666666666670");
        // Halves are rounded away from zero.
        check((5, 0), (100, 1), 0, "1");
        check((-5, 0), (100, 1), 0, "-1");
    }

    #[test]
    fn a_quotients_type_has_room_for_sixteen_significant_digits() {
        assert_eq!(quotient_type((1, 0), (2, 1)), DataType::Decimal128(22, 20));
        assert_eq!(quotient_type((1, 0), (8, 1)), DataType::Decimal128(26, 24));
        assert_eq!(quotient_type((15, 2), (2, 1)), DataType::Decimal128(38, 24));
        assert_eq!(
            quotient_type((15, 2), (15, 2)),
            DataType::Decimal256(45, 30)
        );
        assert_eq!(
            quotient_type((38, 4), (38, 4)),
            DataType::Decimal256(68, 30)
        );
        assert_eq!(
            quotient_type((76, 0), (76, 0)),
            DataType::Decimal256(76, 16)
        );
    }
}
