//! Expressions that mean something else to DataFusion than to PostgreSQL, rewritten for DataFusion.
//!
//! | expression | becomes |
//! |---|---|
//! | a number with an exponent | the number written out, see [`numbers`](super::numbers) |
//! | `timestamp`, as a type, without a precision | `timestamp(6)`: microseconds, which reach beyond 1677 and 2262 |
//! | `x SIMILAR TO 'pattern'` | `x ~ 'regular expression'`, see [`patterns`](super::patterns) |
//! | `x AT TIME ZONE z` | `timezone(z, x)`, see [`zones`](crate::zones) |
//! | `to_char(x, 'format')` | the same with the format's other form, see [`formats`](super::formats) |
//!
//! Expressions that cannot be rewritten are refused.

use std::ops::ControlFlow;

use datafusion::common::{Result, not_impl_datafusion_err};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, Statement, Value,
    visit_expressions_mut,
};

use crate::statement::numbers::{Written, written_out};
use crate::statement::{formats, patterns};
use crate::zones;

/// The digits of a second's fraction.
const MICROSECONDS: u64 = 6;

/// Rewrites the expressions of a statement.
///
/// # Errors
/// Returns an error if an expression cannot be written for DataFusion with PostgreSQL's meaning.
pub(super) fn rewrite(statement: &mut Statement) -> Result<()> {
    let rewritten = visit_expressions_mut(statement, |expr| match rewrite_one(expr) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    });
    match rewritten {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn rewrite_one(expr: &mut Expr) -> Result<(), DataFusionError> {
    match expr {
        Expr::Value(value) => {
            let Value::Number(text, _) = &mut value.value else {
                return Ok(());
            };
            match written_out(text)? {
                Written::Same => {}
                Written::Decimal(digits) => *text = digits,
                Written::Double => {
                    value.value = Value::SingleQuotedString(std::mem::take(text));
                    let text = Expr::Value(value.clone());
                    *expr = cast(text, DataType::DoublePrecision);
                }
            }
        }
        Expr::Cast { data_type, .. } => in_microseconds(data_type),
        Expr::TypedString(typed) => in_microseconds(&mut typed.data_type),
        Expr::SimilarTo { .. } => return similar(expr),
        Expr::AtTimeZone { .. } => {
            let nothing = Expr::Value(Value::Null.with_empty_span());
            if let Expr::AtTimeZone {
                timestamp,
                time_zone,
            } = std::mem::replace(expr, nothing)
            {
                *expr = call(zones::NAME, vec![*time_zone, *timestamp]);
            }
        }
        Expr::Function(function) => return format(function),
        _ => {}
    }
    Ok(())
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter();
    let args = arguments.map(|of| FunctionArg::Unnamed(FunctionArgExpr::Expr(of)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn in_microseconds(data_type: &mut DataType) {
    if let DataType::Timestamp(precision @ None, _) = data_type {
        *precision = Some(MICROSECONDS);
    }
}

/// Returns the text of a literal.
fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn similar(expr: &mut Expr) -> Result<(), DataFusionError> {
    let nothing = Expr::Value(Value::Null.with_empty_span());
    let Expr::SimilarTo {
        negated,
        expr: of,
        pattern,
        escape_char,
    } = std::mem::replace(expr, nothing)
    else {
        return Ok(());
    };
    let refused = || {
        not_impl_datafusion_err!(
            "SIMILAR TO is supported with a constant pattern; use ~ for others"
        )
    };
    let pattern = text(&pattern).ok_or_else(refused)?;
    let escape = match &escape_char {
        None => Some('\\'),
        Some(given) => {
            let text = match &given.value {
                Value::SingleQuotedString(text) => text.as_str(),
                _ => return Err(refused()),
            };
            let mut characters = text.chars();
            let first = characters.next();
            if characters.next().is_some() {
                return Err(not_impl_datafusion_err!(
                    "invalid escape string: it must be empty or one character"
                ));
            }
            first
        }
    };
    let regular = patterns::regular(pattern, escape)?;
    let regular = Expr::Value(Value::SingleQuotedString(regular).with_empty_span());
    *expr = Expr::BinaryOp {
        left: of,
        op: match negated {
            true => BinaryOperator::PGRegexNotMatch,
            false => BinaryOperator::PGRegexMatch,
        },
        right: Box::new(regular),
    };
    // It is an operand of the expression around it.
    let whole = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
    *expr = Expr::Nested(Box::new(whole));
    Ok(())
}

fn format(function: &mut Function) -> Result<(), DataFusionError> {
    let name = function.name.0.last().and_then(|part| part.as_ident());
    let is = |wanted: &str| name.is_some_and(|name| name.value.eq_ignore_ascii_case(wanted));
    let (shows, reads) = (is("to_char"), is("to_date") || is("to_timestamp"));
    if !shows && !reads {
        return Ok(());
    }
    let FunctionArguments::List(list) = &mut function.args else {
        return Ok(());
    };
    let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(given))] = &mut list.args[..] else {
        return Ok(());
    };
    let Some(text) = text(given) else {
        return match shows {
            true => Err(not_impl_datafusion_err!(
                "to_char is supported with a constant format"
            )),
            false => Ok(()),
        };
    };
    match formats::translated(text, shows) {
        Ok(other) => {
            *given = Expr::Value(Value::SingleQuotedString(other).with_empty_span());
            Ok(())
        }
        // DataFusion's own formats are accepted for reading as well: they determine exactly what is read.
        Err(_) if reads && text.contains('%') => Ok(()),
        Err(what) => Err(not_impl_datafusion_err!("the format {text:?}: {what}")),
    }
}
