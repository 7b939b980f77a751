//! `current_setting(name [, missing_ok])` and `set_config(name, value, is_local)`: settings that concern PostgreSQL
//! alone, and the time zone, by functions.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use crate::serve::compatible;
use crate::serve::timeout::InvalidSetting;

/// Returns the functions.
pub(super) fn functions() -> [ScalarUDF; 2] {
    use DataType::{Boolean, Utf8};
    let signature = |signatures: Vec<Vec<DataType>>| {
        let signatures = signatures.into_iter().map(TypeSignature::Exact);
        Signature::one_of(signatures.collect(), Volatility::Stable)
    };
    [
        ScalarUDF::new_from_impl(SettingFunction {
            name: "current_setting",
            signature: signature(vec![vec![Utf8], vec![Utf8, Boolean]]),
        }),
        ScalarUDF::new_from_impl(SettingFunction {
            name: SET,
            signature: signature(vec![vec![Utf8, Utf8, Boolean]]),
        }),
    ]
}

const SET: &str = "set_config";

/// One of the functions.
#[derive(PartialEq, Eq, Hash, Debug)]
struct SettingFunction {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for SettingFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let zone = args.config_options.execution.time_zone.as_deref();
        let names = arrays[0].as_string::<i32>();
        let mut values = Vec::with_capacity(names.len());
        for (row, name) in names.iter().enumerate() {
            let Some(name) = name else {
                values.push(None);
                continue;
            };
            if self.name == SET {
                let given = arrays[1].as_string::<i32>();
                let given = given.is_valid(row).then(|| given.value(row));
                if let Err(InvalidSetting(what)) = compatible::set(name, given.unwrap_or("default"))
                {
                    return exec_err!("{what}");
                }
                values.push(given);
                continue;
            }
            let value = match name.eq_ignore_ascii_case("timezone") {
                true => zone,
                false => compatible::value(name),
            };
            let may_miss = arrays.get(1).is_some_and(|array| {
                let array = array.as_boolean();
                array.is_valid(row) && array.value(row)
            });
            if value.is_none() && !may_miss {
                return exec_err!("{}", compatible::unknown(name));
            }
            values.push(value);
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(values))))
    }
}
