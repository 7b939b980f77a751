//! Bounds on the sizes of values: functions whose results may be far larger than their arguments.
//!
//! A function that is listed here is replaced by one that first calculates how large its results may become,
//! and fails if they are too large. Other functions give results that are not much larger than their
//! arguments.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_dyn;
use datafusion::arrow::compute::{cast, concat, kernels::length::length};
use datafusion::arrow::datatypes::{
    DataType, FieldRef, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err, resources_datafusion_err};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;

/// The most bytes of a function's results for a batch of rows.
const MOST_BYTES: u64 = 256 << 20;
/// The most bytes of a constant, which an operator may copy for each row.
pub(crate) const MOST_CONSTANT: usize = 128 << 10;
/// The bytes of a number in an array.
const NUMBER: u64 = 8;
/// The most bytes of a character.
const CHARACTER: u64 = 4;

/// Returns the plan with bounds on the sizes of values.
///
/// # Errors
/// No error is known.
pub(crate) fn bounded(plan: LogicalPlan) -> Result<LogicalPlan> {
    let bound = |plan: LogicalPlan| {
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| Ok(replace(expr, &schema)))?;
            Ok(match changed.transformed {
                true => changed.update_data(|expr| name.restore(expr)),
                false => changed,
            })
        })
    };
    plan.transform_up_with_subqueries(bound).data()
}

/// Checks that no constant is so long that a batch of rows that all have it would be too large.
///
/// # Errors
/// Returns an error if there is such a constant where there may be more than one row.
pub(crate) fn check_constants(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let checked = |node: &Arc<dyn ExecutionPlan>| {
        if has_one_row(node) {
            return Ok(TreeNodeRecursion::Jump);
        }
        node.apply_expressions(&mut |expr| {
            expr.apply(|expr| match expr.downcast_ref::<Literal>() {
                Some(literal) if literal.value().size() > MOST_CONSTANT => {
                    Err(too_large("a constant"))
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })?;
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply(checked).map(|_| ())
}

/// Returns `true` if a plan certainly has at most one row, because it reads no table.
fn has_one_row(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match &plan.children()[..] {
        [] => plan.is::<PlaceholderRowExec>(),
        [input] => plan.is::<ProjectionExec>() && has_one_row(input),
        _ => false,
    }
}

fn replace(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            let is_bounded = func.inner().downcast_ref::<Bounded>().is_some();
            let Some(growth) = Growth::of(func.name()).filter(|_| !is_bounded) else {
                return Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }));
            };
            let func = Arc::new(ScalarUDF::new_from_impl(Bounded { func, growth }));
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::StringConcat,
            right,
        }) if is_text(&left, schema) && is_text(&right, schema) => {
            let func = Arc::clone(&JOIN);
            let args = vec![*left, *right];
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        other => Transformed::no(other),
    }
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    let data_type = expr.get_type(schema);
    data_type.is_ok_and(|of| {
        matches!(
            of,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    })
}

/// How the size of a function's results follows from its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Growth {
    /// The first argument, as often as the second says.
    Repeat,
    /// As many characters as the second argument says.
    Pad,
    /// The third argument for each part of the first.
    Replace,
    /// As many elements as the second argument says, of the size of the first.
    Fill,
    /// As many elements as the second argument says, of the size of the third.
    Resize,
    /// The numbers from one argument to the next.
    Series,
    /// The second argument after each element of the first.
    Delimit,
    /// All arguments together.
    Sum,
}

impl Growth {
    /// Returns the growth of a function; `None` if its results are not much larger than its arguments.
    fn of(name: &str) -> Option<Growth> {
        Some(match name {
            "repeat" => Growth::Repeat,
            "lpad" | "rpad" => Growth::Pad,
            "replace" | "regexp_replace" => Growth::Replace,
            "array_repeat" => Growth::Fill,
            "array_resize" => Growth::Resize,
            "range" | "generate_series" => Growth::Series,
            "array_to_string" => Growth::Delimit,
            "concat" | "concat_ws" | "make_array" | "array_concat" | "array_append"
            | "array_prepend" | "struct" | "named_struct" | "map" | "overlay" => Growth::Sum,
            _ => return None,
        })
    }

    /// Returns the most bytes that results may have, including rows whose results are null.
    fn bytes(self, arguments: &[ColumnarValue], rows: usize) -> Result<u64> {
        let of = |place: usize| arguments.get(place);
        let product =
            |a: Numbers, b: Numbers| total(rows, |row| a.get(row).saturating_mul(b.get(row)));
        Ok(match (self, of(0), of(1)) {
            (Growth::Repeat, Some(text), Some(count)) => product(lengths(text)?, counts(count)?),
            (Growth::Pad, Some(_), Some(count)) => product(Numbers::One(CHARACTER), counts(count)?),
            (Growth::Replace, Some(text), Some(_)) => {
                let text = lengths(text)?;
                let by = of(2).map_or(Ok(Numbers::One(0)), lengths)?;
                total(rows, |row| {
                    let parts = text.get(row).saturating_add(1);
                    parts
                        .saturating_mul(by.get(row))
                        .saturating_add(text.get(row))
                })
            }
            (Growth::Fill, Some(element), Some(count)) => product(sizes(element)?, counts(count)?),
            (Growth::Resize, Some(list), Some(count)) => {
                let fill = of(2).map_or(Ok(Numbers::One(NUMBER)), sizes)?;
                let list = bytes_of(list, rows);
                product(fill, counts(count)?).saturating_add(list)
            }
            (Growth::Series, Some(first), last) => {
                let zero = ColumnarValue::Scalar(ScalarValue::Int64(Some(0)));
                let (first, last) = match last {
                    Some(last) => (first, last),
                    None => (&zero, first),
                };
                let (first, last) = (Integers::of(first)?, Integers::of(last)?);
                let step = of(2).map(|step| step_of(step, arguments)).transpose()?;
                total(rows, |row| {
                    let (Some(first), Some(last)) = (first.get(row), last.get(row)) else {
                        return 0;
                    };
                    let step = step.as_ref().and_then(|step| step.get(row)).unwrap_or(1);
                    let count = first.abs_diff(last) / step.unsigned_abs().max(1);
                    count.saturating_add(1).saturating_mul(NUMBER)
                })
            }
            (Growth::Delimit, Some(list), Some(delimiter)) => {
                let delimiter = lengths(delimiter)?;
                let count = lengths(list)?;
                product(count, delimiter)
                    .saturating_add(bytes_of(list, rows).saturating_mul(CHARACTER))
            }
            _ => {
                let all = arguments.iter().map(|of| bytes_of(of, rows));
                all.fold(0, u64::saturating_add)
            }
        })
    }
}

fn total(rows: usize, one: impl Fn(usize) -> u64) -> u64 {
    (0..rows).map(one).fold(0, u64::saturating_add)
}

/// A number for each row that is not negative.
enum Numbers {
    One(u64),
    Each(Int64Array),
}

impl Numbers {
    fn get(&self, row: usize) -> u64 {
        match self {
            Numbers::One(number) => *number,
            Numbers::Each(numbers) if numbers.is_valid(row) => {
                u64::try_from(numbers.value(row)).unwrap_or(0)
            }
            Numbers::Each(_) => 0,
        }
    }
}

/// An integer for each row.
enum Integers {
    One(Option<i64>),
    Each(Int64Array),
}

impl Integers {
    fn of(value: &ColumnarValue) -> Result<Integers> {
        let integers = |array: &ArrayRef| -> Result<Int64Array> {
            // Dates become days, and timestamps become numbers of their unit.
            let array = match array.data_type() {
                DataType::Date32 => cast(array, &DataType::Int32)?,
                _ => Arc::clone(array),
            };
            Ok(cast(&array, &DataType::Int64)?
                .as_primitive::<Int64Type>()
                .clone())
        };
        Ok(match value {
            ColumnarValue::Scalar(scalar) => {
                let array = integers(&scalar.to_array()?)?;
                Integers::One(array.is_valid(0).then(|| array.value(0)))
            }
            ColumnarValue::Array(array) => Integers::Each(integers(array)?),
        })
    }

    fn get(&self, row: usize) -> Option<i64> {
        match self {
            Integers::One(integer) => *integer,
            Integers::Each(all) => all.is_valid(row).then(|| all.value(row)),
        }
    }
}

fn counts(value: &ColumnarValue) -> Result<Numbers> {
    Ok(match Integers::of(value)? {
        Integers::One(count) => {
            Numbers::One(count.and_then(|of| u64::try_from(of).ok()).unwrap_or(0))
        }
        Integers::Each(counts) => Numbers::Each(counts),
    })
}

/// Returns the step of a series, in the unit of its numbers.
fn step_of(step: &ColumnarValue, arguments: &[ColumnarValue]) -> Result<Integers> {
    if !matches!(
        step.data_type(),
        DataType::Interval(IntervalUnit::MonthDayNano)
    ) {
        return Integers::of(step);
    }
    const DAY: i64 = 86_400_000_000_000;
    let unit = match arguments.first().map(ColumnarValue::data_type) {
        Some(DataType::Date32) => DAY,
        _ => 1,
    };
    let array = step.to_array(1)?;
    let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
    let length = |row: usize| {
        let interval = intervals.value(row);
        let days = i64::from(interval.months) * 28 + i64::from(interval.days);
        days.saturating_mul(DAY)
            .saturating_add(interval.nanoseconds)
            / unit
    };
    Ok(match step {
        ColumnarValue::Scalar(_) => Integers::One(intervals.is_valid(0).then(|| length(0))),
        ColumnarValue::Array(_) => Integers::Each((0..intervals.len()).map(length).collect()),
    })
}

/// Returns the lengths of texts in bytes, and those of lists in elements.
fn lengths(value: &ColumnarValue) -> Result<Numbers> {
    let of = |array: &ArrayRef| -> Result<Int64Array> {
        if *array.data_type() == DataType::Null {
            return Ok(Int64Array::from_iter_values(std::iter::repeat_n(
                0,
                array.len(),
            )));
        }
        let lengths = cast(&length(array)?, &DataType::Int64)?;
        Ok(lengths.as_primitive::<Int64Type>().clone())
    };
    Ok(match value {
        ColumnarValue::Scalar(scalar) => {
            let lengths = of(&scalar.to_array()?)?;
            Numbers::One(Numbers::Each(lengths).get(0))
        }
        ColumnarValue::Array(array) => Numbers::Each(of(array)?),
    })
}

/// Returns the bytes of values as elements of a list.
fn sizes(value: &ColumnarValue) -> Result<Numbers> {
    let data_type = value.data_type();
    if data_type.is_string() || data_type.is_binary() {
        return Ok(match lengths(value)? {
            Numbers::One(length) => Numbers::One(length + NUMBER),
            Numbers::Each(lengths) => {
                let longer = lengths
                    .iter()
                    .map(|length| Some(length.unwrap_or(0) + NUMBER as i64));
                Numbers::Each(longer.collect())
            }
        });
    }
    Ok(Numbers::One(match value {
        ColumnarValue::Scalar(scalar) => scalar.size() as u64,
        ColumnarValue::Array(array) => {
            let rows = array.len().max(1) as u64;
            (array.get_array_memory_size() as u64)
                .div_ceil(rows)
                .max(NUMBER)
        }
    }))
}

/// Returns the bytes of an argument. A scalar counts for each row.
fn bytes_of(value: &ColumnarValue, rows: usize) -> u64 {
    match value {
        ColumnarValue::Scalar(scalar) => (scalar.size() as u64).saturating_mul(rows as u64),
        ColumnarValue::Array(array) => {
            // Memory that it shares with other arrays does not count.
            let size = array.to_data().get_slice_memory_size();
            size.unwrap_or_else(|_| array.get_array_memory_size()) as u64
        }
    }
}

fn too_large(name: &str) -> datafusion::error::DataFusionError {
    resources_datafusion_err!(
        "{name} would make more than {} MiB of values for a batch of rows: ask for shorter values",
        MOST_BYTES >> 20
    )
}

/// A function whose results are bounded.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Bounded {
    func: Arc<ScalarUDF>,
    growth: Growth,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.func.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.func.schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        self.func.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.func.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.func.return_field_from_args(arguments)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.func.coerce_types(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalars = arguments.args.iter();
        let all_scalars = scalars
            .into_iter()
            .all(|of| matches!(of, ColumnarValue::Scalar(_)));
        let rows = if all_scalars {
            1
        } else {
            arguments.number_rows
        };
        if self.growth.bytes(&arguments.args, rows)? <= MOST_BYTES {
            return self.func.invoke_with_args(arguments);
        }
        if rows <= 1 || self.growth != Growth::Replace {
            return Err(too_large(self.name()));
        }
        self.in_parts(&arguments)
    }
}

impl Bounded {
    /// Computes results for some rows at a time, because there may be far less to replace than the bound
    /// says.
    fn in_parts(&self, arguments: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut parts: Vec<ArrayRef> = Vec::new();
        let mut bytes = 0;
        for row in 0..arguments.number_rows {
            let part = |value: &ColumnarValue| match value {
                ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(row, 1)),
                scalar @ ColumnarValue::Scalar(_) => scalar.clone(),
            };
            let args: Vec<ColumnarValue> = arguments.args.iter().map(part).collect();
            if self.growth.bytes(&args, 1)? > MOST_BYTES {
                return Err(too_large(self.name()));
            }
            let part = self.func.invoke_with_args(ScalarFunctionArgs {
                args,
                arg_fields: arguments.arg_fields.clone(),
                number_rows: 1,
                return_field: Arc::clone(&arguments.return_field),
                config_options: Arc::clone(&arguments.config_options),
            })?;
            let part = part.to_array(1)?;
            bytes += bytes_of(&ColumnarValue::Array(Arc::clone(&part)), 1);
            if bytes > MOST_BYTES {
                return Err(too_large(self.name()));
            }
            parts.push(part);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&parts)?))
    }
}

static JOIN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Join {
        signature: Signature::any(2, Volatility::Immutable),
    }))
});

/// The operator `||` of texts.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Join {
    signature: Signature,
}

impl ScalarUDFImpl for Join {
    fn name(&self) -> &str {
        "||"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let args = &arguments.args;
        let all_scalars = args.iter().all(|of| matches!(of, ColumnarValue::Scalar(_)));
        let rows = if all_scalars {
            1
        } else {
            arguments.number_rows
        };
        if Growth::Sum.bytes(args, rows)? > MOST_BYTES {
            return Err(too_large(self.name()));
        }
        let texts = args
            .iter()
            .map(|of| Ok(cast(&of.to_array(rows)?, &DataType::Utf8)?));
        let texts = texts.collect::<Result<Vec<ArrayRef>>>()?;
        let [left, right] = &texts[..] else {
            return plan_err!("|| has two operands");
        };
        let joined = concat_elements_dyn(left, right)?;
        Ok(match all_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?),
            false => ColumnarValue::Array(joined),
        })
    }
}
