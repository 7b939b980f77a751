//! Numbers as in PostgreSQL, where DataFusion's rules for types give other results.
//!
//! | expression | becomes |
//! |---|---|
//! | a comparison or a calculation of a float with a decimal, or of a `Float32` with another number | the same of `Float64` |
//! | a comparison of floats, an order by floats | one of their [canonical forms](canonical): `-0` equals `0`; NaN equals NaN and is greater than all others |
//! | a division with a decimal | [`divide`]: at least 16 significant digits, rounded |
//! | a comparison or a product of decimals that needs more than 38 digits | the same with up to 76 digits |
//! | a comparison of timestamps with dates and texts | one of microseconds, which reach beyond 1677 and 2262 |
//! | `CASE`, `coalesce`, `greatest`, `least`, `nullif`, `UNION` of floats and decimals | the same of floats |
//!
//! The rules apply to a plan before DataFusion's own, which then find equal types. Applying them twice
//! changes nothing.

mod canonical;
mod divide;

use std::sync::Arc;

use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, TimeUnit,
};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinConstraint, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, Case, Cast, InList, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Operator, Union, cast,
};
use datafusion::optimizer::analyzer::type_coercion::coerce_union_schema;

pub(crate) use canonical::{CANONICAL, canonical};
use divide::divide;

/// The integer digits for which a product of decimals of 38 digits must have room.
const WHOLE_DIGITS: i16 = 18;

/// Returns the plan with PostgreSQL's rules for numbers.
///
/// # Errors
/// Fails when DataFusion cannot make a plan node of the changed expressions.
pub(crate) fn as_postgresql(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(node).data()
}

fn node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let source = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &source,
        )?);
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| rewrite(expr, &schema))?;
        Ok(match changed.transformed {
            true => changed.update_data(|expr| name.restore(expr)),
            false => changed,
        })
    })?
    .map_data(|plan| match plan {
        LogicalPlan::Join(join) => join_on(join).map(LogicalPlan::Join),
        LogicalPlan::Union(union) => union_of(union),
        LogicalPlan::Sort(mut sort) => {
            for key in &mut sort.expr {
                if type_of(&key.expr, &schema).is_some_and(|of| of.is_floating()) {
                    let expr = std::mem::take(&mut key.expr);
                    key.expr = canonical(expr);
                }
            }
            Ok(LogicalPlan::Sort(sort))
        }
        other => Ok(other),
    })?
    .map_data(LogicalPlan::recompute_schema)
}

/// Returns the type of an expression; `None` where it is not known yet, as that of a parameter.
fn type_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    expr.get_type(schema).ok()
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(of) => Ok(binary(of, schema)),
        Expr::Between(of) => Ok(between(of, schema)),
        Expr::InList(of) => Ok(in_list(of, schema)),
        Expr::InSubquery(of) => in_subquery(of, schema),
        Expr::Case(of) => Ok(case(of, schema)),
        Expr::ScalarFunction(mut function) => {
            let name = function.func.name();
            let chooses = ["coalesce", "greatest", "least", "nvl"].contains(&name);
            if name == "nullif"
                && let [value, other] = &function.args[..]
                && type_of(value, schema).is_some_and(|of| of.is_floating())
            {
                let equal = binary(
                    BinaryExpr::new(
                        Box::new(value.clone()),
                        Operator::Eq,
                        Box::new(other.clone()),
                    ),
                    schema,
                );
                let null = ScalarValue::try_from(value.get_type(schema)?)?;
                let null = Expr::Literal(null, None);
                let when = vec![(Box::new(equal.data), Box::new(null))];
                let otherwise = Some(Box::new(value.clone()));
                return Ok(Transformed::yes(Expr::Case(Case::new(
                    None, when, otherwise,
                ))));
            }
            if name == "round"
                && let [_, Expr::Literal(ScalarValue::Int64(Some(digits)), _)] = &function.args[..]
                && let Ok(digits) = i32::try_from(*digits)
            {
                // DataFusion casts the digits, and the type of a decimal's result depends on whether they are
                // a literal: before they are cast, and after the cast is gone, but not in between.
                function.args[1] = Expr::Literal(ScalarValue::Int32(Some(digits)), None);
                return Ok(Transformed::yes(Expr::ScalarFunction(function)));
            }
            if !chooses {
                return Ok(Transformed::no(Expr::ScalarFunction(function)));
            }
            let changed = chosen(&mut function.args.iter_mut().collect::<Vec<_>>(), schema);
            let function = Expr::ScalarFunction(function);
            Ok(Transformed::new_transformed(function, changed))
        }
        Expr::Cast(Cast { expr, field }) => {
            if *field.data_type() == DataType::Float64
                && let Expr::Literal(value, _) = expr.as_ref()
                && let Some(double) = double_of(value)
            {
                return Ok(Transformed::yes(double));
            }
            Ok(Transformed::no(Expr::Cast(Cast { expr, field })))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        operator,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

fn binary(of: BinaryExpr, schema: &DFSchema) -> Transformed<Expr> {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    let BinaryExpr {
        mut left,
        op,
        mut right,
    } = of;
    let compares = is_comparison(op);
    let calculates = matches!(op, Plus | Minus | Multiply | Divide | Modulo);
    let types = (type_of(&left, schema), type_of(&right, schema));
    let mut changed = false;
    if let (Some(l), Some(r)) = types
        && (compares || calculates)
    {
        if compares {
            changed = compared(&mut [(left.as_mut(), l), (right.as_mut(), r)]);
        } else if is_float(&l) || is_float(&r) {
            changed = as_doubles(&mut [(left.as_mut(), l), (right.as_mut(), r)]);
        } else if let (Some(of_left), Some(of_right)) =
            (Digits::of(&left, &l), Digits::of(&right, &r))
            && (l.is_decimal() || r.is_decimal())
        {
            if op == Divide {
                of_left.cast(&mut left, &l);
                of_right.cast(&mut right, &r);
                return Transformed::yes(divide(*left, *right));
            }
            let product = op == Multiply
                && WHOLE_DIGITS.min(of_left.whole() + of_right.whole())
                    > i16::from(DECIMAL128_MAX_PRECISION) - of_left.scale - of_right.scale;
            if product || of_left.wide != of_right.wide {
                changed |= of_left.widened().cast(&mut left, &l);
                changed |= of_right.widened().cast(&mut right, &r);
            }
        }
    }
    let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
    Transformed::new_transformed(expr, changed)
}

fn between(mut of: Between, schema: &DFSchema) -> Transformed<Expr> {
    let mut all = [of.expr.as_mut(), of.low.as_mut(), of.high.as_mut()];
    let changed = compared_all(&mut all, schema);
    Transformed::new_transformed(Expr::Between(of), changed)
}

fn in_list(mut of: InList, schema: &DFSchema) -> Transformed<Expr> {
    let mut all: Vec<&mut Expr> = vec![of.expr.as_mut()];
    all.extend(of.list.iter_mut());
    let changed = compared_all(&mut all, schema);
    Transformed::new_transformed(Expr::InList(of), changed)
}

/// Casts the column of a subquery to `Float64` where the value is a float and the column a decimal, and the
/// other way around.
fn in_subquery(mut of: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let plan = &of.subquery.subquery;
    let (Some(value), [field]) = (type_of(&of.expr, schema), &plan.schema().fields()[..]) else {
        return Ok(Transformed::no(Expr::InSubquery(of)));
    };
    if is_float(&value) && field.data_type().is_decimal() {
        let column = Column::from(plan.schema().qualified_field(0));
        let cast = cast(Expr::Column(column), DataType::Float64).alias(field.name());
        let plan = LogicalPlanBuilder::from(Arc::clone(plan)).project([cast])?;
        of.subquery.subquery = Arc::new(plan.build()?);
        return Ok(Transformed::yes(Expr::InSubquery(of)));
    }
    let changed = value.is_decimal() && is_float(field.data_type());
    if changed {
        as_double(&mut of.expr, &value);
    }
    Ok(Transformed::new_transformed(Expr::InSubquery(of), changed))
}

fn case(mut of: Case, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = false;
    if let Some(base) = &mut of.expr {
        let mut all: Vec<&mut Expr> = vec![base.as_mut()];
        all.extend(of.when_then_expr.iter_mut().map(|(when, _)| when.as_mut()));
        changed |= compared_all(&mut all, schema);
    }
    let results = of.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
    let mut results: Vec<&mut Expr> = results.collect();
    results.extend(of.else_expr.iter_mut().map(AsMut::as_mut));
    changed |= chosen(&mut results, schema);
    Transformed::new_transformed(Expr::Case(of), changed)
}

/// Makes expressions that are compared with each other follow PostgreSQL's rules, if all their types are
/// known.
fn compared_all(exprs: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let typed = exprs.iter_mut().map(|expr| {
        let data_type = type_of(expr, schema)?;
        Some((&mut **expr, data_type))
    });
    match typed.collect::<Option<Vec<_>>>() {
        Some(mut typed) => compared(&mut typed),
        None => false,
    }
}

fn compared(exprs: &mut [(&mut Expr, DataType)]) -> bool {
    if exprs.iter().any(|(_, of)| is_float(of)) {
        let mut changed = as_doubles(exprs);
        for (expr, _) in exprs.iter_mut().filter(|(_, of)| is_float(of)) {
            if !canonical::is_canonical(expr) {
                **expr = canonical(std::mem::take(*expr));
                changed = true;
            }
        }
        return changed;
    }
    if exprs
        .iter()
        .any(|(_, of)| matches!(of, DataType::Timestamp(..)))
    {
        return in_microseconds(exprs);
    }
    if !exprs.iter().any(|(_, of)| of.is_decimal()) {
        return false;
    }
    let digits = exprs.iter().map(|(expr, of)| match of {
        DataType::Null => Some(None),
        of => Digits::of(expr, of).map(Some),
    });
    let Some(digits) = digits.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let known = digits.iter().flatten();
    let scale = known.clone().map(|digits| digits.scale).max().unwrap_or(0);
    let whole = known.map(|digits| digits.whole()).max().unwrap_or(0);
    if whole + scale <= i16::from(DECIMAL128_MAX_PRECISION) {
        return false;
    }
    let precision = (whole + scale).min(DECIMAL256_MAX_PRECISION.into());
    let common = Digits {
        precision,
        scale,
        wide: true,
    };
    let mut changed = false;
    for ((expr, of), known) in exprs.iter_mut().zip(&digits) {
        changed |= known.is_some() && common.cast(expr, of);
    }
    changed
}

/// Casts values that are compared with timestamps to microseconds; DataFusion would use nanoseconds.
fn in_microseconds(exprs: &mut [(&mut Expr, DataType)]) -> bool {
    let zone = exprs.iter().find_map(|(_, of)| match of {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    });
    let mut changed = false;
    for (expr, of) in exprs.iter_mut() {
        let to = match of {
            DataType::Timestamp(TimeUnit::Microsecond, _) => continue,
            DataType::Timestamp(_, zone) => zone.clone(),
            DataType::Date32 | DataType::Date64 => zone.clone(),
            of if of.is_string() => zone.clone(),
            _ => continue,
        };
        let to = DataType::Timestamp(TimeUnit::Microsecond, to);
        **expr = cast(std::mem::take(*expr), to);
        changed = true;
    }
    changed
}

/// Casts values of which one is chosen to one type, if floats and decimals are among them: floats of the
/// widest of their types.
fn chosen(exprs: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let types: Vec<Option<DataType>> = exprs.iter().map(|expr| type_of(expr, schema)).collect();
    let Some(common) = common_float(types.iter().flatten()) else {
        return false;
    };
    for (expr, of) in exprs.iter_mut().zip(&types) {
        if of.as_ref().is_some_and(DataType::is_decimal) {
            match (&common, &**expr) {
                (DataType::Float64, _) => {
                    as_double(expr, of.as_ref().unwrap_or(&DataType::Null));
                }
                _ => **expr = cast(std::mem::take(*expr), common.clone()),
            }
        }
    }
    true
}

/// Returns the type of floats that floats and decimals have in common; `None` if there are not both.
fn common_float<'t>(types: impl Iterator<Item = &'t DataType> + Clone) -> Option<DataType> {
    let decimals = types.clone().any(DataType::is_decimal);
    let mut floats = types.filter(|of| is_float(of)).peekable();
    floats.peek()?;
    let double = floats.any(|of| *of == DataType::Float64);
    decimals.then_some(match double {
        true => DataType::Float64,
        false => DataType::Float32,
    })
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Casts numbers to `Float64`, where they are not floats of one type.
fn as_doubles(exprs: &mut [(&mut Expr, DataType)]) -> bool {
    let numbers = exprs.iter().filter(|(_, of)| of.is_numeric());
    let mut types = numbers.map(|(_, of)| of);
    let first = types.next().cloned();
    if types.all(|of| Some(of) == first.as_ref()) {
        return false;
    }
    let mut changed = false;
    for (expr, of) in exprs.iter_mut() {
        if of.is_numeric() && *of != DataType::Float64 {
            as_double(expr, of);
            *of = DataType::Float64;
            changed = true;
        }
    }
    changed
}

fn as_double(expr: &mut Expr, of: &DataType) {
    if *of == DataType::Float64 {
        return;
    }
    *expr = match std::mem::take(expr) {
        Expr::Literal(value, metadata) => {
            let double = double_of(&value);
            double.unwrap_or_else(|| cast(Expr::Literal(value, metadata), DataType::Float64))
        }
        other => cast(other, DataType::Float64),
    };
}

/// Returns the `Float64` that is nearest to a decimal.
fn double_of(value: &ScalarValue) -> Option<Expr> {
    let text = match value {
        ScalarValue::Decimal128(Some(value), _, scale) => format!("{value}e{}", -i16::from(*scale)),
        ScalarValue::Decimal256(Some(value), _, scale) => format!("{value}e{}", -i16::from(*scale)),
        _ => return None,
    };
    let value = text.parse().ok()?;
    Some(Expr::Literal(ScalarValue::Float64(Some(value)), None))
}

fn join_on(mut join: Join) -> Result<Join> {
    let mut changed = false;
    for (left, right) in &mut join.on {
        let types = (
            type_of(left, join.left.schema()),
            type_of(right, join.right.schema()),
        );
        if let (Some(l), Some(r)) = types {
            changed |= compared(&mut [(left, l), (right, r)]);
        }
    }
    if changed {
        // A join by names has columns on both sides, and nothing else.
        join.join_constraint = JoinConstraint::On;
    }
    Ok(join)
}

/// Makes the inputs of a union yield floats where some yield floats and others decimals.
fn union_of(union: Union) -> Result<LogicalPlan> {
    let columns = union.schema.fields().len();
    let wanted = (0..columns).map(|column| {
        let types = union.inputs.iter().filter_map(|input| {
            let fields = input.schema().fields();
            fields.get(column).map(|field| field.data_type())
        });
        common_float(types)
    });
    let wanted: Vec<Option<DataType>> = wanted.collect();
    let same = union.inputs.iter().all(|input| {
        let fields = input.schema().fields().iter().zip(union.schema.fields());
        fields
            .into_iter()
            .all(|(a, b)| a.data_type() == b.data_type())
    });
    if same {
        return Ok(LogicalPlan::Union(union));
    }
    let inputs = union.inputs.into_iter().map(|input| {
        let schema = Arc::clone(input.schema());
        let mut casts = false;
        let columns = schema
            .iter()
            .zip(&wanted)
            .map(|((qualifier, field), wanted)| {
                let column = Expr::Column(Column::from((qualifier, field)));
                match wanted {
                    Some(to) if field.data_type() != to => {
                        casts = true;
                        cast(column, to.clone()).alias(field.name())
                    }
                    _ => column,
                }
            });
        let columns: Vec<Expr> = columns.collect();
        if !casts {
            return Ok(input);
        }
        let plan = LogicalPlanBuilder::from(input).project(columns)?;
        plan.build().map(Arc::new)
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(coerce_union_schema(&inputs)?);
    Ok(LogicalPlan::Union(Union { inputs, schema }))
}

/// The digits of a decimal, or of an integer as a decimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Digits {
    precision: i16,
    /// The scale, which is not negative.
    scale: i16,
    /// `true` if the values take 256 bits.
    wide: bool,
}

impl Digits {
    /// Returns the digits of an expression of a type; `None` if it is neither a decimal nor an integer.
    fn of(expr: &Expr, data_type: &DataType) -> Option<Digits> {
        let (precision, scale, wide) = match *data_type {
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
                (p, s, false)
            }
            DataType::Decimal256(p, s) => (p, s, true),
            DataType::Int8 | DataType::UInt8 => (3, 0, false),
            DataType::Int16 | DataType::UInt16 => (5, 0, false),
            DataType::Int32 | DataType::UInt32 => (10, 0, false),
            DataType::Int64 => (19, 0, false),
            DataType::UInt64 => (20, 0, false),
            _ => return None,
        };
        let precision = match expr {
            Expr::Literal(value, _) if data_type.is_integer() => {
                let text = value.to_string();
                u8::try_from(text.trim_start_matches('-').len()).ok()?
            }
            _ => precision,
        };
        let (precision, scale) = (i16::from(precision), i16::from(scale));
        let precision = precision - scale.min(0);
        Some(Digits {
            precision,
            scale: scale.max(0),
            wide: wide || precision > DECIMAL128_MAX_PRECISION.into(),
        })
    }

    /// Returns the digits before the point.
    fn whole(self) -> i16 {
        self.precision - self.scale
    }

    fn widened(self) -> Digits {
        Digits { wide: true, ..self }
    }

    fn data_type(self) -> DataType {
        let precision = u8::try_from(self.precision).unwrap_or(DECIMAL256_MAX_PRECISION);
        let scale = i8::try_from(self.scale).unwrap_or(i8::MAX);
        match self.wide {
            true => DataType::Decimal256(precision.min(DECIMAL256_MAX_PRECISION), scale),
            false => DataType::Decimal128(precision, scale),
        }
    }

    /// Casts an expression to this type. Returns `true` if it had another one.
    fn cast(self, expr: &mut Expr, from: &DataType) -> bool {
        let to = self.data_type();
        if to == *from {
            return false;
        }
        *expr = cast(std::mem::take(expr), to);
        true
    }
}
