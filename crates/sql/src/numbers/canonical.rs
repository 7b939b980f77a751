//! The canonical form of floats: equal numbers have equal bits.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::unary;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The function's name.
pub(crate) const CANONICAL: &str = "canonical_float";

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Canonical {
        signature: Signature::any(1, Volatility::Immutable),
    }))
});

/// Returns the canonical form of an expression of floats: `-0` becomes `0`, and each NaN the same one. In the
/// total order of floats, by which they are compared, that NaN is greater than all others.
pub(crate) fn canonical(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), metadata) => {
            let value = ScalarValue::Float64(Some(double(value)));
            Expr::Literal(value, metadata)
        }
        Expr::Literal(ScalarValue::Float32(Some(value)), metadata) => {
            let value = ScalarValue::Float32(Some(single(value)));
            Expr::Literal(value, metadata)
        }
        expr if is_canonical(&expr) => expr,
        expr => Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![expr])),
    }
}

/// Returns `true` if an expression is in canonical form already.
pub(super) fn is_canonical(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(function) => function.func.name() == CANONICAL,
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => {
            value.to_bits() == double(*value).to_bits()
        }
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => {
            value.to_bits() == single(*value).to_bits()
        }
        Expr::Literal(..) => true,
        _ => false,
    }
}

fn double(value: f64) -> f64 {
    if value.is_nan() {
        f64::NAN
    } else {
        value + 0.0
    }
}

fn single(value: f32) -> f32 {
    if value.is_nan() {
        f32::NAN
    } else {
        value + 0.0
    }
}

/// The function.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Canonical {
    signature: Signature,
}

impl ScalarUDFImpl for Canonical {
    fn name(&self) -> &str {
        CANONICAL
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [of @ (DataType::Float32 | DataType::Float64)] => Ok(of.clone()),
            other => plan_err!("{CANONICAL} is of floats, not of {other:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of] = <[ColumnarValue; 1]>::try_from(arguments.args).map_err(|_| {
            datafusion::common::plan_datafusion_err!("{CANONICAL} has one argument")
        })?;
        Ok(match of {
            ColumnarValue::Scalar(ScalarValue::Float64(value)) => {
                ColumnarValue::Scalar(ScalarValue::Float64(value.map(double)))
            }
            ColumnarValue::Scalar(ScalarValue::Float32(value)) => {
                ColumnarValue::Scalar(ScalarValue::Float32(value.map(single)))
            }
            ColumnarValue::Scalar(other) => ColumnarValue::Scalar(other),
            ColumnarValue::Array(array) => {
                let array: ArrayRef = match array.data_type() {
                    DataType::Float32 => Arc::new(unary::<_, _, Float32Type>(
                        array.as_primitive::<Float32Type>(),
                        single,
                    )),
                    _ => Arc::new(unary::<_, _, Float64Type>(
                        array.as_primitive::<Float64Type>(),
                        double,
                    )),
                };
                ColumnarValue::Array(array)
            }
        })
    }
}
