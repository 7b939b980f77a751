//! The shell's commands, which begin with a backslash.

use std::fmt::Write as _;

use crate::catalogue::{Catalogue, Replica};
use crate::error::Error;
use crate::shell::format::OutputFormat;

/// The list of commands, for `\?`.
pub const HELP: &str = "\
\\d            the tables
\\d TABLE      a table's columns, and where it is
\\timing       tell how long statements take, or no more
\\format HOW   write results as table, csv or json
\\q            leave (also quit, exit, Ctrl-D)
\\?            this (also help)
Statements end with a semicolon. Ctrl-C cancels a query, and drops a statement that is being typed.
SET kumiki.placement = 'auto' | 'local' | 'remote-local' | 'remote-remote' says where parts of
queries run; EXPLAIN shows it, EXPLAIN ANALYZE measures it.";

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MetaCommand {
    /// `\d`
    Tables,
    /// `\d TABLE`
    Table(String),
    /// `\timing`
    Timing,
    /// `\format HOW`
    Format(OutputFormat),
    /// `\q`
    Quit,
    /// `\?`
    Help,
}

/// Parses a command.
///
/// # Errors
/// Returns an error if there is none of that name, or its arguments are invalid; the text says what
/// is valid.
pub fn parse(line: &str) -> Result<MetaCommand, Error> {
    let mut words = line.trim_end_matches(';').split_whitespace();
    let name = words.next().unwrap_or_default();
    let command = match (name, words.next()) {
        ("\\d" | "\\dt", None) => MetaCommand::Tables,
        ("\\d", Some(table)) => MetaCommand::Table(table.to_owned()),
        ("\\timing", None) => MetaCommand::Timing,
        ("\\format", Some(format)) => MetaCommand::Format(format.parse()?),
        ("\\q", None) => MetaCommand::Quit,
        ("\\?" | "\\h" | "\\help", None) => MetaCommand::Help,
        _ => return Err(format!("there is no command '{line}'; \\? lists them").into()),
    };
    match words.next() {
        None => Ok(command),
        Some(word) => Err(format!("'{word}' is too much for {name}; \\? explains it").into()),
    }
}

/// Returns the list of tables, one on each line.
///
/// # Errors
/// Returns an error if no store can be asked.
pub fn tables(catalogue: &Catalogue) -> Result<String, Error> {
    let mut text = String::new();
    for name in catalogue.names()? {
        let line = match catalogue.find(&name) {
            Ok(Some(found)) => {
                let (rows, pages) = (found.table.rows(), found.table.pages());
                let size = found.table.page_size.bytes() >> 10;
                format!("{name}: {rows} rows in {pages} pages of {size} KiB")
            }
            Ok(None) => continue,
            Err(error) => format!("{name}: {error}"),
        };
        let _ = writeln!(text, "{line}");
    }
    if text.is_empty() {
        text.push_str("There are no tables; 'kumiki pages load' makes some.\n");
    }
    Ok(text)
}

/// Returns a table's columns, and the stores that have it.
///
/// # Errors
/// Returns an error if there is no such table, or it is not available; the text says what to do.
pub fn table(catalogue: &Catalogue, name: &str) -> Result<String, Error> {
    let found = catalogue.find(name)?;
    let found = found.ok_or_else(|| format!("there is no table {name}; \\d lists them"))?;
    let table = &found.table;
    let mut text = String::new();
    let fields = table.schema.fields();
    let width = fields
        .iter()
        .map(|field| field.name().chars().count())
        .max();
    let width = width.unwrap_or(0);
    for field in fields {
        let null = if field.is_nullable() { "" } else { " not null" };
        let (name, data_type) = (field.name(), field.data_type());
        let _ = writeln!(text, "{name:width$}  {data_type}{null}");
    }
    let (rows, pages) = (table.rows(), table.pages());
    let size = table.page_size.bytes() >> 10;
    let _ = writeln!(
        text,
        "{rows} rows in {pages} pages of {size} KiB, version {}, {} segments",
        table.version.0,
        table.segments.len()
    );
    let places: Vec<_> = found.replicas.iter().map(Replica::name).collect();
    let _ = writeln!(text, "on {}", places.join(", "));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_understood_or_explained() {
        assert_eq!(parse("\\d").unwrap(), MetaCommand::Tables);
        let table = MetaCommand::Table("lineitem".into());
        assert_eq!(parse("\\d lineitem;").unwrap(), table);
        let csv = MetaCommand::Format(OutputFormat::Csv);
        assert_eq!(parse("\\format csv").unwrap(), csv);
        for wrong in ["\\x", "\\format", "\\format xml", "\\q now", "\\d a b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
