//! `timezone(zone, x)`, which is `x AT TIME ZONE zone`, as in PostgreSQL: the local time of a zone as a point in
//! time, and a point in time as the local time of a zone.

use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The function's name.
pub(crate) const NAME: &str = "timezone";

/// Returns the function.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(Timezone {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// The function.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Timezone {
    signature: Signature,
}

fn timestamp(zone: Option<&str>) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into))
}

impl ScalarUDFImpl for Timezone {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let of = match arguments {
            [_, DataType::Timestamp(_, Some(_))] => timestamp(Some("UTC")),
            // A text, or a date, is a local time.
            [_, _] => timestamp(None),
            _ => return plan_err!("{NAME} is of a zone and a timestamp"),
        };
        Ok(vec![DataType::Utf8, of])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(match arguments {
            [_, DataType::Timestamp(_, Some(_))] => timestamp(None),
            _ => timestamp(Some("UTC")),
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(zone), of] = &arguments.args[..] else {
            return exec_err!("a time zone is a constant");
        };
        let Some(zone) = zone.try_as_str().flatten() else {
            let null = ScalarValue::try_from(arguments.return_type())?;
            return Ok(ColumnarValue::Scalar(null));
        };
        // In PostgreSQL the signs of offsets have the opposite meaning.
        let is_offset =
            zone.starts_with(['+', '-']) || zone.bytes().any(|byte| byte.is_ascii_digit());
        let (Ok(known), false) = (Tz::from_str(zone), is_offset) else {
            return exec_err!("time zone \"{zone}\" not recognized: give a name, as Europe/Rome");
        };
        let is_scalar = matches!(of, ColumnarValue::Scalar(_));
        let array = of.to_array(1)?;
        let array: ArrayRef = match array.data_type() {
            DataType::Timestamp(_, Some(_)) => Arc::new(local(&array, known)),
            _ => cast(
                &cast(&array, &timestamp(Some(zone)))?,
                &timestamp(Some("UTC")),
            )?,
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
            false => ColumnarValue::Array(array),
        })
    }
}

/// Returns the local times of points in time.
fn local(array: &ArrayRef, zone: Tz) -> TimestampMicrosecondArray {
    let points = array.as_primitive::<TimestampMicrosecondType>();
    let local = |row: usize| {
        let point = points
            .is_valid(row)
            .then(|| points.value_as_datetime_with_tz(row, zone));
        point
            .flatten()
            .map(|point| point.naive_local().and_utc().timestamp_micros())
    };
    (0..points.len()).map(local).collect()
}
