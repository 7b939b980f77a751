//! Errors as PostgreSQL's clients know them: with an SQLSTATE, by which programs tell them apart.

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use pgwire::error::{ErrorInfo, PgWireError};

use crate::explain::explain;
use crate::session::{NOT_OWN, TOO_COMPLEX};
use crate::statement::TOO_MANY_RELATIONS;

/// A class of errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SqlState(pub(crate) &'static str);

pub(crate) const SYNTAX: SqlState = SqlState("42601");
const UNDEFINED_COLUMN: SqlState = SqlState("42703");
const UNDEFINED_TABLE: SqlState = SqlState("42P01");
const UNDEFINED_FUNCTION: SqlState = SqlState("42883");
const INVALID: SqlState = SqlState("42000");
pub(crate) const UNSUPPORTED: SqlState = SqlState("0A000");
pub(crate) const READ_ONLY: SqlState = SqlState("25006");
const DIVISION_BY_ZERO: SqlState = SqlState("22012");
const DATA: SqlState = SqlState("22000");
pub(crate) const INVALID_SETTING: SqlState = SqlState("22023");
const NOT_PERMITTED: SqlState = SqlState("42501");
const OUT_OF_MEMORY: SqlState = SqlState("53200");
const IO: SqlState = SqlState("58030");
pub(crate) const INTERNAL: SqlState = SqlState("XX000");
/// A message has another form than it should have.
pub(crate) const PROTOCOL_VIOLATION: SqlState = SqlState("08P01");
pub(crate) const COMPLEX: SqlState = SqlState("54001");
/// More than the server wants to do at once.
const TOO_MUCH: SqlState = SqlState("53400");
/// Who does not speak TLS is not let in.
pub(crate) const NOT_ENCRYPTED: SqlState = SqlState("28000");
/// There are as many clients as there may be.
pub(crate) const TOO_MANY_CLIENTS: SqlState = SqlState("53300");
/// Another client has the connection closed.
pub(crate) const TERMINATED: SqlState = SqlState("57P01");
/// A statement was ended before it was over.
pub(crate) const CANCELLED: SqlState = SqlState("57014");
/// The statement is part of transactions, and there is none.
pub(crate) const NO_TRANSACTION: SqlState = SqlState("25P01");
/// Nothing of that name was bound, or it has ended with its transaction.
pub(crate) const NO_PORTAL: SqlState = SqlState("34000");
/// There is a cursor of that name.
pub(crate) const DUPLICATE_CURSOR: SqlState = SqlState("42P03");
/// Rows that have passed are wanted.
pub(crate) const FORWARD_ONLY: SqlState = SqlState("55000");
/// A parameter is malformed.
pub(crate) const BAD_PARAMETER: SqlState = SqlState("22P02");

/// What is said to a query for which there is no place.
pub(crate) const TOO_MANY: &str = "too many queries run at once: ask again later, or start the server with a \
                                   greater --queries-at-once";

/// What is said to a client for which there is no place.
pub(crate) const FULL: &str = "too many clients are connected: try again later, or start the server with a \
                               greater --connections";

/// Returns an error of a class.
pub(crate) fn error(state: SqlState, text: impl Into<String>) -> PgWireError {
    let info = ErrorInfo::new("ERROR".to_owned(), state.0.to_owned(), text.into());
    PgWireError::UserError(Box::new(info))
}

/// Returns an error that ends its connection.
pub(crate) fn fatal(state: SqlState, text: &str) -> PgWireError {
    let info = ErrorInfo::new("FATAL".to_owned(), state.0.to_owned(), text.to_owned());
    PgWireError::UserError(Box::new(info))
}

/// Returns an error of DataFusion.
pub(crate) fn of_query(failed: &DataFusionError) -> PgWireError {
    error(state(failed), explain(failed))
}

fn state(failed: &DataFusionError) -> SqlState {
    match failed.find_root() {
        DataFusionError::Plan(what) if what == TOO_COMPLEX || what == TOO_MANY_RELATIONS => COMPLEX,
        DataFusionError::Plan(what) if what.ends_with(NOT_OWN) => NOT_PERMITTED,
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
        DataFusionError::Execution(what) if what == TOO_MANY => TOO_MUCH,
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
    let zero = ["divide by zero", "divided by zero", "division by zero"];
    if zero.iter().any(|text| what.contains(text)) {
        DIVISION_BY_ZERO
    } else {
        DATA
    }
}
