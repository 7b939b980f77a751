//! Statements on whole rows: the ones that a read-atomic table accepts, and no others.
//!
//! | statement | form |
//! |---|---|
//! | write | `INSERT INTO t (columns) VALUES (terms)`, `UPDATE t SET column = term, … WHERE key`, `DELETE FROM t WHERE key` |
//! | several writes | `BEGIN [UNLOGGED] BATCH write[;] … APPLY BATCH` |
//! | read | `SELECT * | columns FROM t WHERE key`, where columns of the key may have `IN (term, …)` or `IN marker` |
//!
//! A key is `column = term AND …`; a term is a marker (`?`, `:name`) or a literal. Markers are
//! counted in the order of the text, over all statements of a batch, as Cassandra counts them.

use super::lock::Equalities;
use super::name::{Name, TableName};
use super::parser::Parser;
use super::select::{Selection, selection};
use super::syntax_error::SyntaxError;
use super::term::{Marker, Term};

/// The statements that a read-atomic table accepts, in words for a client.
pub const SUPPORTED_ON_ROWS: &str = "a read-atomic table takes INSERT and UPDATE of all columns, \
     DELETE of rows, BATCH of these, and SELECT of whole keys by = or IN; without IF, USING, LIMIT \
     and functions";

/// The reason why a text is none of these statements.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{SUPPORTED_ON_ROWS}: {0}")]
pub struct RowSyntaxError(#[from] pub SyntaxError);

/// A statement on rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowStatement<'a> {
    /// It changes one row.
    Change(RowChange<'a>),
    /// It changes several rows.
    Batch(Vec<RowChange<'a>>),
    /// It reads rows.
    Select(RowSelect<'a>),
}

/// A change of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowChange<'a> {
    /// The row's table.
    pub table: TableName<'a>,
    /// The change.
    pub verb: RowVerb<'a>,
}

/// What a change does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowVerb<'a> {
    /// It sets columns, those of the key among them.
    Insert(Equalities<'a>),
    /// It sets columns of the row with a key.
    Update {
        /// The columns that it sets.
        assignments: Equalities<'a>,
        /// The key.
        key: Equalities<'a>,
    },
    /// It deletes the row with a key.
    Delete(Equalities<'a>),
}

/// A read of rows by their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowSelect<'a> {
    /// The table.
    pub table: TableName<'a>,
    /// The columns of the result.
    pub selection: Selection<'a>,
    /// The values of the key's columns.
    pub key: Vec<(Name<'a>, KeyTerms<'a>)>,
}

/// The values that a read asks for in one column of the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyTerms<'a> {
    /// `= term`
    One(Term<'a>),
    /// `IN (term, …)`
    Several(Vec<Term<'a>>),
    /// `IN marker`: the marker's value is a list.
    List(Marker<'a>),
}

impl<'a> RowStatement<'a> {
    /// Parses a text.
    ///
    /// # Errors
    /// Returns an error if the text is none of the statements of the module's table.
    pub fn parse(text: &'a str) -> Result<RowStatement<'a>, RowSyntaxError> {
        let mut parser = Parser::new(text)?;
        let starts = |word: &str| parser.peek().is_some_and(|token| token.is_word(word));
        let statement = if starts("SELECT") {
            RowStatement::Select(select(&mut parser)?)
        } else if starts("BEGIN") {
            RowStatement::Batch(batch(&mut parser)?)
        } else {
            RowStatement::Change(change(&mut parser)?)
        };
        parser.end()?;
        Ok(statement)
    }
}

fn change<'a>(parser: &mut Parser<'a>) -> Result<RowChange<'a>, SyntaxError> {
    let error = parser.error("INSERT, UPDATE, DELETE, BEGIN BATCH or SELECT");
    if parser.accept("INSERT")? {
        let (table, values) = parser.inserted()?;
        let verb = RowVerb::Insert(values);
        Ok(RowChange { table, verb })
    } else if parser.accept("UPDATE")? {
        let table = parser.table()?;
        parser.expect("SET")?;
        let assignments = parser.list(Parser::equality)?;
        let key = parser.key()?;
        let verb = RowVerb::Update { assignments, key };
        Ok(RowChange { table, verb })
    } else if parser.accept("DELETE")? {
        parser.expect("FROM")?;
        let table = parser.table()?;
        let verb = RowVerb::Delete(parser.key()?);
        Ok(RowChange { table, verb })
    } else {
        Err(error)
    }
}

fn batch<'a>(parser: &mut Parser<'a>) -> Result<Vec<RowChange<'a>>, SyntaxError> {
    parser.expect("BEGIN")?;
    parser.accept("UNLOGGED")?;
    parser.expect("BATCH")?;
    let mut changes = Vec::new();
    while !parser.accept("APPLY")? {
        changes.push(change(parser)?);
        parser.accept_symbol(';')?;
    }
    parser.expect("BATCH")?;
    Ok(changes)
}

fn select<'a>(parser: &mut Parser<'a>) -> Result<RowSelect<'a>, SyntaxError> {
    parser.expect("SELECT")?;
    let error = parser.error("* or columns");
    let selection = selection(parser)?;
    if matches!(selection, Selection::Count(_)) {
        return Err(error);
    }
    parser.expect("FROM")?;
    let table = parser.table()?;
    parser.expect("WHERE")?;
    let mut key = vec![restriction(parser)?];
    while parser.accept("AND")? {
        key.push(restriction(parser)?);
    }
    Ok(RowSelect {
        table,
        selection,
        key,
    })
}

fn restriction<'a>(parser: &mut Parser<'a>) -> Result<(Name<'a>, KeyTerms<'a>), SyntaxError> {
    let name = parser.name()?;
    if !parser.accept("IN")? {
        parser.expect_symbol('=', "= or IN")?;
        return Ok((name, KeyTerms::One(parser.term()?)));
    }
    if parser.accept_symbol('(')? {
        let terms = parser.list(Parser::term)?;
        parser.expect_symbol(')', ")")?;
        return Ok((name, KeyTerms::Several(terms)));
    }
    let error = parser.error("( or a marker");
    match parser.term()? {
        Term::Marker(marker) => Ok((name, KeyTerms::List(marker))),
        Term::Literal(_) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::term::Literal;

    fn parse(text: &str) -> RowStatement<'_> {
        RowStatement::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn marker(index: u16) -> Term<'static> {
        Term::Marker(Marker { index, name: None })
    }

    #[test]
    fn a_batch_counts_markers_over_its_statements() {
        for text in [
            "BEGIN BATCH INSERT INTO app.t (k, a) VALUES (?, ?); UPDATE u SET a = ? WHERE k = ?; \
             DELETE FROM t WHERE k = ?; APPLY BATCH;",
            "begin unlogged batch insert into app.t (k, a) values (?, ?) update u set a = ? where \
             k = ? delete from t where k = ? apply batch",
        ] {
            let RowStatement::Batch(changes) = parse(text) else {
                panic!("{text}");
            };
            let [insert, update, delete] = &changes[..] else {
                panic!("{changes:?}");
            };
            assert_eq!(insert.table.to_string(), "app.t");
            let columns = vec![("k".into(), marker(0)), ("a".into(), marker(1))];
            assert_eq!(insert.verb, RowVerb::Insert(columns));
            let verb = RowVerb::Update {
                assignments: vec![("a".into(), marker(2))],
                key: vec![("k".into(), marker(3))],
            };
            assert_eq!(update.verb, verb);
            assert_eq!(delete.verb, RowVerb::Delete(vec![("k".into(), marker(4))]));
        }
    }

    #[test]
    fn a_read_names_its_keys() {
        let select = |text| match parse(text) {
            RowStatement::Select(select) => select.key,
            other => panic!("{other:?}"),
        };
        let key = select("SELECT * FROM t WHERE p = 1 AND c IN (?, :two)");
        let one = Term::Literal(Literal::Number("1"));
        assert_eq!(key[0], ("p".into(), KeyTerms::One(one)));
        let two = Term::Marker(Marker {
            index: 1,
            name: Some("two".into()),
        });
        let several = KeyTerms::Several(vec![marker(0), two]);
        assert_eq!(key[1], ("c".into(), several));
        let list = Marker {
            index: 0,
            name: None,
        };
        let key = select("SELECT a, b AS c FROM t WHERE p IN ?;");
        assert_eq!(key, [("p".into(), KeyTerms::List(list))]);
    }

    #[test]
    fn other_statements_are_refused_in_words() {
        for text in [
            "INSERT INTO t (a) VALUES (1) IF NOT EXISTS",
            "INSERT INTO t (a) VALUES (1) USING TTL 1",
            "INSERT INTO t (a) VALUES (now())",
            "INSERT INTO t (a, a) VALUES (1, 2)",
            "INSERT INTO t JSON '{}'",
            "UPDATE t USING TIMESTAMP 1 SET a = 1 WHERE k = 1",
            "UPDATE t SET a = a + 1 WHERE k = 1",
            "UPDATE t SET a = 1 WHERE k IN (1, 2)",
            "UPDATE t SET a = 1 WHERE k = 1 IF EXISTS",
            "DELETE a FROM t WHERE k = 1",
            "DELETE FROM t",
            "DELETE FROM t USING TIMESTAMP 1 WHERE k = 1",
            "BEGIN COUNTER BATCH APPLY BATCH",
            "BEGIN BATCH USING TIMESTAMP 1 INSERT INTO t (a) VALUES (1) APPLY BATCH",
            "BEGIN BATCH INSERT INTO t (a) VALUES (1);",
            "BEGIN BATCH SELECT * FROM t WHERE k = 1 APPLY BATCH",
            "SELECT * FROM t",
            "SELECT count(*) FROM t WHERE k = 1",
            "SELECT writetime(a) FROM t WHERE k = 1",
            "SELECT * FROM t WHERE k > 1",
            "SELECT * FROM t WHERE k IN ()",
            "SELECT * FROM t WHERE k IN 'a'",
            "SELECT * FROM t WHERE k = 1 LIMIT 1",
            "SELECT * FROM t WHERE k = 1 ALLOW FILTERING",
            "TRUNCATE t",
            "",
        ] {
            let error = RowStatement::parse(text).map(drop).unwrap_err();
            let words = error.to_string();
            assert!(words.starts_with(SUPPORTED_ON_ROWS), "{text}: {words}");
        }
    }
}
