//! Fragments as `EXPLAIN` shows them.

use std::fmt;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use operators::{Aggregate, Expr, FragmentWork, Function, Operator, Scalar, SortKey, Value};

use crate::scalar::of_integer;

/// The columns to which expressions refer.
pub(crate) struct ColumnNames<'a>(pub(crate) &'a Schema);

/// A value, and the names of its columns.
pub(crate) struct Named<'a, T>(&'a Schema, &'a T);

impl<'a> ColumnNames<'a> {
    pub(crate) fn expr(&self, expr: &'a Expr) -> Named<'a, Expr> {
        Named(self.0, expr)
    }

    pub(crate) fn work(&self, work: &'a FragmentWork) -> Named<'a, FragmentWork> {
        Named(self.0, work)
    }
}

impl<'a, T> Named<'a, T> {
    fn of<U>(&self, other: &'a U) -> Named<'a, U> {
        Named(self.0, other)
    }
}

/// Several values, separated by commas.
struct List<'a, T>(&'a Schema, &'a [T]);

impl<'a, T> fmt::Display for List<'a, T>
where
    Named<'a, T>: fmt::Display,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (place, one) in self.1.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{}", Named(self.0, one))?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for Named<'_, FragmentWork> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            FragmentWork::Rows {
                project,
                order,
                limit,
            } => {
                write!(f, "rows={}", List(self.0, project))?;
                if !order.is_empty() {
                    write!(f, ", order={}", List(self.0, order))?;
                }
                limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
            }
            FragmentWork::Aggregate { by, aggregates } => {
                let (by, of) = (List(self.0, by), List(self.0, aggregates));
                write!(f, "partial aggregate={of}, by={by}")
            }
        }
    }
}

impl fmt::Display for Named<'_, SortKey> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.1;
        let way = if key.descending { "DESC" } else { "ASC" };
        let nulls = if key.nulls_first { "FIRST" } else { "LAST" };
        write!(f, "{} {way} NULLS {nulls}", self.of(&key.expr))
    }
}

impl fmt::Display for Named<'_, Aggregate> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.1.function {
            Function::Count => "count",
            Function::Sum => "sum",
            Function::Min => "min",
            Function::Max => "max",
            Function::Avg => "avg",
        };
        match &self.1.of {
            Some(of) => write!(f, "{name}({})", self.of(of))?,
            None => write!(f, "{name}(*)")?,
        }
        match &self.1.filter {
            Some(filter) => write!(f, " FILTER ({})", self.of(filter)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Named<'_, Scalar> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.1.value {
            Value::Null => f.write_str("NULL"),
            Value::Bool(value) => value.fmt(f),
            Value::Float(value) => value.fmt(f),
            Value::Text(value) => write!(f, "'{value}'"),
            Value::Bytes(value) => write!(f, "{} bytes", value.len()),
            Value::Int(value) => number(*value, &self.1.data_type, f),
        }
    }
}

fn number(value: i128, data_type: &DataType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match of_integer(value, data_type) {
        Some(ScalarValue::Decimal128(..)) | None => {
            let scale = match data_type {
                DataType::Decimal128(_, scale) => usize::try_from(*scale).unwrap_or(0),
                _ => 0,
            };
            decimal(value, scale, f)
        }
        Some(known) => fmt::Display::fmt(&known, f),
    }
}

fn decimal(value: i128, scale: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let sign = if value < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    match fraction {
        "" => write!(f, "{sign}{whole}"),
        fraction => write!(f, "{sign}{whole}.{fraction}"),
    }
}

impl fmt::Display for Named<'_, Expr> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Expr::Column(column) => f.write_str(self.0.field(*column).name()),
            Expr::Literal(value) => self.of(value).fmt(f),
            Expr::Binary(_, Operator::And, _) => {
                for (place, one) in conditions(self.1).into_iter().enumerate() {
                    let before = if place == 0 { "(" } else { " AND " };
                    write!(f, "{before}{}", self.of(one))?;
                }
                f.write_str(")")
            }
            Expr::Binary(left, operator, right) => {
                let (left, right) = (self.of(&**left), self.of(&**right));
                write!(f, "({left} {} {right})", symbol(*operator))
            }
            Expr::Not(of) => write!(f, "NOT {}", self.of(&**of)),
            Expr::IsNull(of) => write!(f, "{} IS NULL", self.of(&**of)),
            Expr::IsNotNull(of) => write!(f, "{} IS NOT NULL", self.of(&**of)),
            Expr::Negative(of) => write!(f, "-{}", self.of(&**of)),
            Expr::Like {
                text,
                pattern,
                negated,
            } => {
                let not = if *negated { "NOT " } else { "" };
                write!(f, "{} {not}LIKE '{pattern}'", self.of(&**text))
            }
            Expr::InList {
                value,
                list,
                negated,
            } => {
                let not = if *negated { "NOT " } else { "" };
                write!(f, "{} {not}IN {}", self.of(&**value), List(self.0, list))
            }
            Expr::Case { when, otherwise } => self.case(when, otherwise.as_deref(), f),
            Expr::Cast(of, to) => write!(f, "CAST({} AS {to})", self.of(&**of)),
            Expr::Year(of) => write!(f, "year({})", self.of(&**of)),
            Expr::Substring(of, from, length) => {
                write!(f, "substr({}, {from}, {length})", self.of(&**of))
            }
        }
    }
}

impl<'a> Named<'a, Expr> {
    fn case(
        &self,
        when: &'a [(Expr, Expr)],
        otherwise: Option<&'a Expr>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        f.write_str("CASE")?;
        for (when, then) in when {
            write!(f, " WHEN {} THEN {}", self.of(when), self.of(then))?;
        }
        if let Some(otherwise) = otherwise {
            write!(f, " ELSE {}", self.of(otherwise))?;
        }
        f.write_str(" END")
    }
}

/// Returns the conditions that an expression joins by AND, in their order.
pub(crate) fn conditions(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Binary(left, Operator::And, right) => {
            let mut all = conditions(left);
            all.extend(conditions(right));
            all
        }
        one => vec![one],
    }
}

fn symbol(operator: Operator) -> &'static str {
    match operator {
        Operator::Eq => "=",
        Operator::NotEq => "<>",
        Operator::Lt => "<",
        Operator::LtEq => "<=",
        Operator::Gt => ">",
        Operator::GtEq => ">=",
        Operator::And => "AND",
        Operator::Or => "OR",
        Operator::Plus => "+",
        Operator::Minus => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::Modulo => "%",
    }
}
