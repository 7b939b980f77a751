//! Errors as PostgreSQL's clients know them: with an SQLSTATE, by which programs tell them apart.

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use pgwire::error::{ErrorInfo, PgWireError};

use crate::shell::run::explain;

/// A class of errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SqlState(pub(crate) &'static str);

pub(crate) const SYNTAX: SqlState = SqlState("42601");
const UNDEFINED_COLUMN: SqlState = SqlState("42703");
const UNDEFINED_TABLE: SqlState = SqlState("42P01");
const UNDEFINED_FUNCTION: SqlState = SqlState("42883");
const INVALID: SqlState = SqlState("42000");
const UNSUPPORTED: SqlState = SqlState("0A000");
const READ_ONLY: SqlState = SqlState("25006");
const DIVISION_BY_ZERO: SqlState = SqlState("22012");
const DATA: SqlState = SqlState("22000");
const INVALID_SETTING: SqlState = SqlState("22023");
const OUT_OF_MEMORY: SqlState = SqlState("53200");
const IO: SqlState = SqlState("58030");
const INTERNAL: SqlState = SqlState("XX000");
/// More than the server wants to do at once.
pub(crate) const TOO_MUCH: SqlState = SqlState("53400");
/// A parameter that makes no sense.
pub(crate) const BAD_PARAMETER: SqlState = SqlState("22P02");

/// An error of a class.
pub(crate) fn error(state: SqlState, text: impl Into<String>) -> PgWireError {
    let info = ErrorInfo::new("ERROR".to_owned(), state.0.to_owned(), text.into());
    PgWireError::UserError(Box::new(info))
}

/// An error of DataFusion.
pub(crate) fn of_query(failed: &DataFusionError) -> PgWireError {
    error(state(failed), explain(failed))
}

fn state(failed: &DataFusionError) -> SqlState {
    match failed.find_root() {
        DataFusionError::SQL(..) => SYNTAX,
        DataFusionError::SchemaError(schema, _) => match **schema {
            SchemaError::FieldNotFound { .. } => UNDEFINED_COLUMN,
            _ => INVALID,
        },
        DataFusionError::Plan(what) => of_plan(what),
        DataFusionError::NotImplemented(_) => UNSUPPORTED,
        DataFusionError::Configuration(_) => INVALID_SETTING,
        DataFusionError::ResourcesExhausted(_) => OUT_OF_MEMORY,
        DataFusionError::ArrowError(arrow, _) => of_value(&arrow.to_string()),
        DataFusionError::Execution(what) if what.starts_with("table ") => IO,
        DataFusionError::Execution(what) => of_value(what),
        DataFusionError::IoError(_) => IO,
        _ => INTERNAL,
    }
}

fn of_plan(what: &str) -> SqlState {
    if what.starts_with("table ") && what.contains("not found") {
        UNDEFINED_TABLE
    } else if what.contains("Invalid function") {
        UNDEFINED_FUNCTION
    } else if what.contains("not supported: ") || what.contains("changes nothing") {
        READ_ONLY
    } else {
        INVALID
    }
}

fn of_value(what: &str) -> SqlState {
    let what = what.to_ascii_lowercase();
    if what.contains("divide by zero") || what.contains("division by zero") {
        DIVISION_BY_ZERO
    } else {
        DATA
    }
}
