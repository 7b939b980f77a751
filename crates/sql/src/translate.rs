//! DataFusion's physical expressions as those of the executor beside the data.
//!
//! | DataFusion | ours |
//! |---|---|
//! | `Column` | the expression that stands for that column of the scan's output |
//! | `Literal` | [`Expr::Literal`], where [`Scalar`] has such a value |
//! | `BinaryExpr` | [`Expr::Binary`]: comparisons, `AND`, `OR`, arithmetic |
//! | `NotExpr`, `IsNullExpr`, `IsNotNullExpr`, `NegativeExpr` | the same |
//! | `LikeExpr` with a literal pattern, case-sensitive | [`Expr::Like`] |
//! | `InListExpr` of literals | [`Expr::InList`] |
//! | `CaseExpr` | [`Expr::Case`]; `CASE x WHEN y` becomes `CASE WHEN x = y` |
//! | `CastExpr` | [`Expr::Cast`], where both agree on the meaning, see `casts_alike` |
//! | `date_part('year', x)` | [`Expr::Year`] |
//! | `substr(x, n, m)` of literals | [`Expr::Substring`] |
//! | the canonical form of a float | where it is compared, the float itself, since the executor compares canonical forms; elsewhere [`Expr::Case`] |
//!
//! All other expressions have no translation, and stay with DataFusion.
//!
//! Invariants:
//!
//! 1. A translation has the type that DataFusion gives to the original, by
//!    [`Expr::data_type`]; otherwise there is none.
//! 2. It is no larger than [`MOST_NODES`]: columns are replaced by the expressions that
//!    stand for them, which could grow without bounds.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::logical_expr::Operator as DfOperator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NegativeExpr, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use operators::{Expr, Operator, Scalar, Value};

use crate::fragment::children;
use crate::numbers::CANONICAL;
use crate::scalar::scalar;
use crate::sizes::MOST_CONSTANT;

/// The most nodes that a translation may have.
pub const MOST_NODES: usize = 1024;

/// Translates expressions over one plan's output.
#[derive(Debug)]
pub struct Translator {
    /// The table's columns, to which translations refer.
    table: Vec<DataType>,
    /// The output to which the originals refer.
    output: SchemaRef,
    /// The expression for each of the output's columns.
    columns: Vec<Expr>,
}

impl Translator {
    /// Makes a translator of expressions over an output whose columns are these expressions over a table's
    /// columns.
    ///
    /// # Panics
    /// Panics if there are not as many expressions as columns of the output.
    #[must_use]
    pub fn new(table: &Schema, output: SchemaRef, columns: Vec<Expr>) -> Translator {
        assert_eq!(output.fields().len(), columns.len(), "one for each column");
        let types = table.fields().iter().map(|f| f.data_type().clone());
        Translator {
            table: types.collect(),
            output,
            columns,
        }
    }

    /// Returns the expression over the table's columns; `None` if there is no translation.
    #[must_use]
    pub fn translate(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        let translated = self.node(expr)?;
        (nodes(&translated) <= MOST_NODES).then_some(translated)
    }

    /// Returns the translations of all expressions; `None` if one of them has none.
    #[must_use]
    pub fn translate_all<'a>(
        &self,
        exprs: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
    ) -> Option<Vec<Expr>> {
        exprs.into_iter().map(|expr| self.translate(expr)).collect()
    }

    /// Translates a node and those below it. The types are checked at each node, so that no operand is
    /// mistaken for another.
    fn node(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        let translated = self.untyped(expr)?;
        let wanted = expr.data_type(&self.output).ok()?;
        let given = translated.data_type(&self.table).ok()?;
        (given == wanted).then_some(translated)
    }

    fn boxed(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Box<Expr>> {
        self.node(expr).map(Box::new)
    }

    /// Translates an expression that is compared, or by which rows are sorted.
    pub(crate) fn compared(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        self.translate(canonical_of(expr).unwrap_or(expr))
    }

    fn untyped(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            return self.columns.get(column.index()).cloned();
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            // A literal that is too long for a batch of rows stays with DataFusion, which checks that.
            let is_short = literal.value().size() <= MOST_CONSTANT;
            return is_short
                .then(|| scalar(literal.value()))
                .flatten()
                .map(Expr::Literal);
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return self.binary(binary);
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return Some(Expr::Not(self.boxed(not.arg())?));
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            return Some(Expr::IsNull(self.boxed(is_null.arg())?));
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            return Some(Expr::IsNotNull(self.boxed(is_not_null.arg())?));
        }
        if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            return Some(Expr::Negative(self.boxed(negative.arg())?));
        }
        if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            return self.like(like);
        }
        if let Some(list) = expr.downcast_ref::<InListExpr>() {
            return self.in_list(list);
        }
        if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            return self.case(case);
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            return self.cast(cast);
        }
        let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
        self.function(function)
    }

    fn binary(&self, binary: &BinaryExpr) -> Option<Expr> {
        let operator = operator(*binary.op())?;
        let operand = |expr| match operator {
            Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq => self.boxed(canonical_of(expr).unwrap_or(expr)),
            _ => self.boxed(expr),
        };
        let left = operand(binary.left())?;
        let right = operand(binary.right())?;
        Some(Expr::Binary(left, operator, right))
    }

    fn like(&self, like: &LikeExpr) -> Option<Expr> {
        if like.case_insensitive() {
            return None;
        }
        let pattern = text(like.pattern())?;
        Some(Expr::Like {
            text: self.boxed(like.expr())?,
            pattern,
            negated: like.negated(),
        })
    }

    fn in_list(&self, list: &InListExpr) -> Option<Expr> {
        let value = canonical_of(list.expr()).unwrap_or(list.expr());
        let value = self.boxed(value)?;
        let of = value.data_type(&self.table).ok()?;
        let literals = list.list().iter().map(|one| {
            let literal = one.downcast_ref::<Literal>()?;
            let mut one = scalar(literal.value())?;
            // An untyped null is a null of any type.
            if one.value == Value::Null {
                one.data_type = of.clone();
            }
            (one.data_type == of).then_some(one)
        });
        let literals = literals.collect::<Option<Vec<Scalar>>>()?;
        Some(Expr::InList {
            value,
            list: literals,
            negated: list.negated(),
        })
    }

    fn case(&self, case: &CaseExpr) -> Option<Expr> {
        let base = match case.expr() {
            Some(base) => Some(self.boxed(canonical_of(base).unwrap_or(base))?),
            None => None,
        };
        let when = case.when_then_expr().iter().map(|(when, then)| {
            let when = self.node(when)?;
            let when = match &base {
                Some(base) => Expr::Binary(base.clone(), Operator::Eq, Box::new(when)),
                None => when,
            };
            Some((when, self.node(then)?))
        });
        let when = when.collect::<Option<Vec<_>>>()?;
        let otherwise = match case.else_expr() {
            Some(otherwise) => Some(self.boxed(otherwise)?),
            None => None,
        };
        Some(Expr::Case { when, otherwise })
    }

    fn cast(&self, cast: &CastExpr) -> Option<Expr> {
        let value = self.boxed(cast.expr())?;
        let from = value.data_type(&self.table).ok()?;
        let to = cast.cast_type();
        if from == *to {
            return Some(*value);
        }
        casts_alike(&from, to).then(|| Expr::Cast(value, to.clone()))
    }

    /// Returns the canonical form of a float: the one NaN for all values greater than infinity, and zero is
    /// added, by which `-0` becomes `0`.
    fn canonical(&self, of: Expr) -> Option<Expr> {
        let data_type = of.data_type(&self.table).ok()?;
        let literal = |value| {
            Expr::Literal(Scalar {
                data_type: data_type.clone(),
                value: Value::Float(value),
            })
        };
        let infinity = Box::new(literal(f64::INFINITY));
        let is_nan = Expr::Binary(Box::new(of.clone()), Operator::Gt, infinity);
        let number = Expr::Binary(Box::new(of), Operator::Plus, Box::new(literal(0.0)));
        Some(Expr::Case {
            when: vec![(is_nan, literal(f64::NAN))],
            otherwise: Some(Box::new(number)),
        })
    }

    fn function(&self, function: &ScalarFunctionExpr) -> Option<Expr> {
        match (function.name(), function.args()) {
            (CANONICAL, [of]) => self.node(of).and_then(|of| self.canonical(of)),
            ("date_part", [part, date]) => {
                let part = text(part)?;
                let date = self.boxed(date)?;
                part.eq_ignore_ascii_case("year")
                    .then_some(Expr::Year(date))
            }
            ("substr", [text, from, length]) => {
                let (from, length) = (integer(from)?, integer(length)?);
                // For a negative length, DataFusion returns the error.
                let text = self.boxed(text)?;
                (length >= 0).then_some(Expr::Substring(text, from, length))
            }
            _ => None,
        }
    }
}

/// Returns the float of which an expression is the canonical form.
fn canonical_of(expr: &Arc<dyn PhysicalExpr>) -> Option<&Arc<dyn PhysicalExpr>> {
    let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
    match (function.name(), function.args()) {
        (CANONICAL, [of]) => Some(of),
        _ => None,
    }
}

/// Returns `true` if a cast means the same on both sides: numbers that are made wider, or narrower with an
/// error if they do not fit. Casts from and to texts, times and booleans stay with DataFusion.
fn casts_alike(from: &DataType, to: &DataType) -> bool {
    use DataType::{Decimal128, Float32, Float64};
    let integer = DataType::is_integer;
    match (from, to) {
        (Float32, Float64) | (DataType::Date32, DataType::Date32) => true,
        (Decimal128(..), Decimal128(..) | Float64) => true,
        (from, Decimal128(..) | Float64) => integer(from),
        (from, to) => integer(from) && integer(to),
    }
}

fn operator(operator: DfOperator) -> Option<Operator> {
    Some(match operator {
        DfOperator::Eq => Operator::Eq,
        DfOperator::NotEq => Operator::NotEq,
        DfOperator::Lt => Operator::Lt,
        DfOperator::LtEq => Operator::LtEq,
        DfOperator::Gt => Operator::Gt,
        DfOperator::GtEq => Operator::GtEq,
        DfOperator::And => Operator::And,
        DfOperator::Or => Operator::Or,
        DfOperator::Plus => Operator::Plus,
        DfOperator::Minus => Operator::Minus,
        DfOperator::Multiply => Operator::Multiply,
        DfOperator::Divide => Operator::Divide,
        DfOperator::Modulo => Operator::Modulo,
        _ => return None,
    })
}

/// Returns a literal's text.
fn text(expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
    let literal = expr.downcast_ref::<Literal>()?;
    literal.value().try_as_str()?.map(str::to_owned)
}

/// Returns a literal's number.
fn integer(expr: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    match scalar(expr.downcast_ref::<Literal>()?.value())?.value {
        Value::Int(number) => i64::try_from(number).ok(),
        _ => None,
    }
}

/// Returns how many nodes an expression has.
fn nodes(expr: &Expr) -> usize {
    let list = match expr {
        Expr::InList { list, .. } => list.len(),
        _ => 0,
    };
    1 + list + children(expr).into_iter().map(nodes).sum::<usize>()
}
