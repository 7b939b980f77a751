//! Report lines: two are equal if the results are equal.

use std::error::Error;
use std::fmt::{Debug, Display};

use scylla::errors::{ExecutionError, PrepareError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlValue, Row};

/// A line for a step.
pub(crate) fn say(step: &str, found: impl Debug) {
    println!("{step}: {found:?}");
}

/// A line for a step, of text that is one already.
pub(crate) fn tell(step: &str, found: impl Display) {
    println!("{step}: {found}");
}

/// Rows as text that does not depend on the order of maps and sets.
pub(crate) fn rows(result: QueryResult) -> Result<Vec<Vec<String>>, Box<dyn Error>> {
    let rows = result.into_rows_result()?;
    let rows = rows.rows::<Row>()?;
    rows.map(|row| Ok(columns(&row?))).collect()
}

/// A table: names and types of the columns, and the rows.
pub(crate) type Table = (Vec<(String, String)>, Vec<Vec<String>>);

/// What a statement was answered, with the columns' names and types.
pub(crate) fn table(result: QueryResult) -> Result<Table, Box<dyn Error>> {
    let result = result.into_rows_result()?;
    let specs = result.column_specs().iter();
    let named = specs.map(|column| (column.name().to_owned(), format!("{:?}", column.typ())));
    let rows = result.rows::<Row>()?;
    let rows = rows.map(|row| row.map(|row| columns(&row)));
    Ok((named.collect(), rows.collect::<Result<_, _>>()?))
}

/// A row's values.
pub(crate) fn columns(row: &Row) -> Vec<String> {
    row.columns.iter().map(of_option).collect()
}

fn of_option(value: &Option<CqlValue>) -> String {
    value.as_ref().map_or_else(|| "null".to_owned(), plain)
}

/// A value as text.
pub(crate) fn plain(value: &CqlValue) -> String {
    match value {
        CqlValue::Blob(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}")
        }
        CqlValue::List(all) => format!("{:?}", all.iter().map(plain).collect::<Vec<_>>()),
        CqlValue::Set(all) => {
            let mut all: Vec<String> = all.iter().map(plain).collect();
            all.sort();
            format!("set {all:?}")
        }
        CqlValue::Map(all) => {
            let of = |(key, value): &(CqlValue, CqlValue)| (plain(key), plain(value));
            let mut all: Vec<(String, String)> = all.iter().map(of).collect();
            all.sort();
            format!("map {all:?}")
        }
        CqlValue::Tuple(all) => format!("{:?}", all.iter().map(of_option).collect::<Vec<_>>()),
        CqlValue::UserDefinedType { name, fields, .. } => {
            let of = |(name, value): &(String, Option<CqlValue>)| (name.clone(), of_option(value));
            format!("{name} {:?}", fields.iter().map(of).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}

/// A line for an action that fails: the error's kind, and the node's words without the driver's.
pub(crate) fn refused<T>(step: &str, keyspace: &str, result: Result<T, ExecutionError>) {
    match result {
        Ok(_) => tell(step, "not refused"),
        Err(error) => tell(step, words(&error).replace(keyspace, "KEYSPACE")),
    }
}

fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::LastAttemptError(attempt) => of_attempt(attempt),
        ExecutionError::PrepareError(error) => of_prepare(error),
        other => format!("{other:?}"),
    }
}

/// The same for a statement that is prepared.
pub(crate) fn of_prepare(error: &PrepareError) -> String {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => of_attempt(first_attempt),
        other => format!("{other:?}"),
    }
}

fn of_attempt(attempt: &RequestAttemptError) -> String {
    match attempt {
        RequestAttemptError::DbError(kind, words) => format!("{kind:?} {words}"),
        other => format!("{other:?}"),
    }
}
