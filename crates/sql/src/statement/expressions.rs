//! Expressions that mean something else to DataFusion than to PostgreSQL, rewritten for DataFusion.
//!
//! | expression | becomes |
//! |---|---|
//! | a number with an exponent | the number written out, see [`numbers`](super::numbers) |
//! | `timestamp`, as a type, without a precision | `timestamp(6)`: microseconds, which reach beyond 1677 and 2262 |
//! | `'\x00ff'::bytea` | `X'00ff'::bytea`, see [`bytes`](super::bytes) |
//! | `'{1,2}'::bigint[]` | `ARRAY['1', '2']::bigint[]`, see [`arrays`](super::arrays) |
//! | `x = ANY('{1,2}')`, `x <> ALL('{1,2}')` | `x IN ('1', '2')`, `x NOT IN ('1', '2')` |
//! | `x LIKE 'pattern' ESCAPE '/'` | the same with a backslash as escape, see [`patterns`](super::patterns) |
//! | `x SIMILAR TO 'pattern'` | `x ~ 'regular expression'`, see [`patterns`](super::patterns) |
//! | `x AT TIME ZONE z` | `timezone(z, x)`, see [`zones`](crate::zones) |
//! | `to_char(x, 'format')` | the same with the format's other form, see [`formats`](super::formats) |
//!
//! Expressions that cannot be rewritten are refused.

use std::ops::ControlFlow;

use datafusion::common::{Result, not_impl_datafusion_err};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, Statement, Value, ValueWithSpan,
    visit_expressions_mut,
};

use crate::statement::formats::UnsupportedFormat;
use crate::statement::numbers::{Written, written_out};
use crate::statement::{arrays, bytes, formats, patterns};
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
        Expr::Cast {
            expr: of,
            data_type: DataType::Bytea,
            ..
        } => {
            if let Some(written) = inner_text(of) {
                let digits = bytes::hexadecimal(written)?;
                let value = Value::HexStringLiteral(digits).with_empty_span();
                **of = Expr::Value(value);
            }
        }
        Expr::Cast {
            expr: of,
            data_type: DataType::Array(_),
            ..
        } => {
            if let Some(written) = inner_text(of) {
                **of = Expr::Array(Array {
                    elem: elements(written)?,
                    named: true,
                });
            }
        }
        Expr::Cast { data_type, .. } => in_microseconds(data_type),
        Expr::AnyOp {
            left,
            compare_op: BinaryOperator::Eq,
            right,
            ..
        } => {
            if let Some(written) = inner_text(right) {
                *expr = one_of(left, elements(written)?, false);
            }
        }
        Expr::AllOp {
            left,
            compare_op: BinaryOperator::NotEq,
            right,
        } => {
            if let Some(written) = inner_text(right) {
                *expr = one_of(left, elements(written)?, true);
            }
        }
        Expr::TypedString(typed) => in_microseconds(&mut typed.data_type),
        Expr::Like {
            pattern,
            escape_char,
            ..
        }
        | Expr::ILike {
            pattern,
            escape_char,
            ..
        } => return with_backslash(pattern, escape_char),
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

/// Returns the text that an expression is, also within parentheses.
fn inner_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(expr) => inner_text(expr),
        _ => text(expr),
    }
}

/// Returns the elements of an array that is written as a text.
fn elements(text: &str) -> Result<Vec<Expr>, DataFusionError> {
    let Some(elements) = arrays::elements(text) else {
        return Err(not_impl_datafusion_err!(
            "malformed array literal {text:?}: an array has one dimension here, as in '{{1,2}}'"
        ));
    };
    let elements = elements.into_iter().map(|element| {
        let value = element.map_or(Value::Null, Value::SingleQuotedString);
        Expr::Value(value.with_empty_span())
    });
    Ok(elements.collect())
}

/// Returns the expression that says whether a value is one of these, or none of them.
fn one_of(value: &Expr, list: Vec<Expr>, negated: bool) -> Expr {
    match list.is_empty() {
        true => Expr::Value(Value::Boolean(negated).with_empty_span()),
        false => Expr::Nested(Box::new(Expr::InList {
            expr: Box::new(value.clone()),
            list,
            negated,
        })),
    }
}

/// Returns the text that an expression is, or that texts are when they are put together.
fn joined(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(expr) => joined(expr),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::StringConcat,
            right,
        } => Some(joined(left)? + &joined(right)?),
        _ => text(expr).map(str::to_owned),
    }
}

/// Writes a pattern of `LIKE` that has another escape with a backslash.
fn with_backslash(
    pattern: &mut Expr,
    escape_char: &mut Option<ValueWithSpan>,
) -> Result<(), DataFusionError> {
    let Some(Value::SingleQuotedString(escape)) = escape_char.as_ref().map(|given| &given.value)
    else {
        return Ok(());
    };
    let escape = one_character(escape)?;
    if escape == Some('\\') {
        return Ok(());
    }
    let written = match joined(pattern) {
        Some(written) => {
            let written = patterns::with_backslash(&written, escape)?;
            Expr::Value(Value::SingleQuotedString(written).with_empty_span())
        }
        None => {
            let escape = escape.map(String::from).unwrap_or_default();
            let escape = Expr::Value(Value::SingleQuotedString(escape).with_empty_span());
            call(patterns::FUNCTION, vec![pattern.clone(), escape])
        }
    };
    *pattern = written;
    *escape_char = None;
    Ok(())
}

/// Returns the character that an escape is; none if it is empty.
///
/// # Errors
/// Fails when it has more than one.
fn one_character(escape: &str) -> Result<Option<char>, DataFusionError> {
    let mut characters = escape.chars();
    let first = characters.next();
    match characters.next() {
        None => Ok(first),
        Some(_) => Err(not_impl_datafusion_err!(
            "invalid escape string: it must be empty or one character"
        )),
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
            let Value::SingleQuotedString(text) = &given.value else {
                return Err(refused());
            };
            one_character(text)?
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
        Err(UnsupportedFormat(what)) => {
            Err(not_impl_datafusion_err!("the format {text:?}: {what}"))
        }
    }
}
