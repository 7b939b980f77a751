//! The lock recipe: the statements that a table of locks accepts, and no others.
//!
//! | step | statement |
//! |---|---|
//! | take | `INSERT INTO t (columns) VALUES (terms) IF NOT EXISTS [USING TTL term]` |
//! | renew, pass on | `UPDATE t [USING TTL term] SET column = term, … WHERE key IF column = term AND …` or `IF EXISTS` |
//! | give back | `DELETE FROM t WHERE key [IF column = term AND … | IF EXISTS]` |
//! | look | `SELECT * | columns FROM t WHERE key [LIMIT n]` |
//!
//! A key is `column = term AND …`; a term is a marker (`?`, `:name`) or a literal. Markers are
//! counted in the order of the text, as Cassandra counts them.

use super::name::{Name, TableName};
use super::parser::Parser;
use super::select::{Select, Selection};
use super::syntax_error::SyntaxError;
use super::term::{Literal, Term};

/// The text about the accepted statements in errors.
pub const SUPPORTED: &str = "a table of locks takes INSERT … IF NOT EXISTS [USING TTL …], \
     UPDATE [USING TTL …] … IF column = … | IF EXISTS, DELETE [… IF column = … | IF EXISTS] and \
     SELECT, each with the whole key and = alone";

/// The reason why a statement about a table of locks cannot be executed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{SUPPORTED}: {0}")]
pub struct LockSyntaxError(#[from] pub SyntaxError);

/// Columns and the values that they get or must have.
pub type Equalities<'a> = Vec<(Name<'a>, Term<'a>)>;

/// A step of the lock recipe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockStatement<'a> {
    /// The table of locks.
    pub table: TableName<'a>,
    /// The operation.
    pub verb: LockVerb<'a>,
}

/// The operation on a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockVerb<'a> {
    /// Take it if it has no holder.
    Insert {
        /// All columns that are given, those of the key among them.
        values: Equalities<'a>,
        /// The time to live in seconds.
        ttl: Option<Term<'a>>,
    },
    /// Change it if the condition holds.
    Update {
        /// The time to live in seconds.
        ttl: Option<Term<'a>>,
        /// The columns to set.
        assignments: Equalities<'a>,
        /// The lock.
        key: Equalities<'a>,
        /// The condition.
        condition: Condition<'a>,
    },
    /// Give it back if the condition holds.
    Delete {
        /// The lock.
        key: Equalities<'a>,
        /// The condition; `None`: give it back in any case.
        condition: Option<Condition<'a>>,
    },
    /// Read its holder.
    Select {
        /// The columns to read.
        selection: Selection<'a>,
        /// The lock.
        key: Equalities<'a>,
    },
}

/// The condition on the row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition<'a> {
    /// The row exists.
    Exists,
    /// The row exists and has these values.
    Equal(Equalities<'a>),
}

impl<'a> LockStatement<'a> {
    /// Parses a statement about a table of locks.
    ///
    /// # Errors
    /// The statement is not of the recipe.
    pub fn parse(text: &'a str) -> Result<LockStatement<'a>, LockSyntaxError> {
        let mut parser = Parser::new(text)?;
        let starts = |word: &str| parser.peek().is_some_and(|token| token.is_word(word));
        let statement = if starts("INSERT") {
            insert(&mut parser)?
        } else if starts("UPDATE") {
            update(&mut parser)?
        } else if starts("DELETE") {
            delete(&mut parser)?
        } else if starts("SELECT") {
            select(&mut parser)?
        } else {
            return Err(parser.error("INSERT, UPDATE, DELETE or SELECT").into());
        };
        parser.end()?;
        Ok(statement)
    }
}

fn insert<'a>(parser: &mut Parser<'a>) -> Result<LockStatement<'a>, SyntaxError> {
    parser.expect("INSERT")?;
    let (table, values) = parser.inserted()?;
    parser.expect("IF")?;
    parser.expect("NOT")?;
    parser.expect("EXISTS")?;
    Ok(LockStatement {
        table,
        verb: LockVerb::Insert {
            values,
            ttl: using_ttl(parser)?,
        },
    })
}

fn update<'a>(parser: &mut Parser<'a>) -> Result<LockStatement<'a>, SyntaxError> {
    parser.expect("UPDATE")?;
    let table = parser.table()?;
    let ttl = using_ttl(parser)?;
    parser.expect("SET")?;
    let assignments = parser.list(Parser::equality)?;
    let key = parser.key()?;
    let missing = parser.error("IF");
    let condition = condition(parser)?.ok_or(missing)?;
    Ok(LockStatement {
        table,
        verb: LockVerb::Update {
            ttl,
            assignments,
            key,
            condition,
        },
    })
}

fn delete<'a>(parser: &mut Parser<'a>) -> Result<LockStatement<'a>, SyntaxError> {
    parser.expect("DELETE")?;
    parser.expect("FROM")?;
    let table = parser.table()?;
    let key = parser.key()?;
    let condition = condition(parser)?;
    Ok(LockStatement {
        table,
        verb: LockVerb::Delete { key, condition },
    })
}

fn select<'a>(parser: &mut Parser<'a>) -> Result<LockStatement<'a>, SyntaxError> {
    let select = Select::read(parser)?;
    // A limit has no effect on one row, unless it is not positive.
    let is_number = |text: &str| text.parse::<i32>().is_ok_and(|most| most > 0);
    let limited = match &select.limit {
        None | Some(Term::Marker(_)) => true,
        Some(Term::Literal(Literal::Number(text))) => is_number(text),
        Some(Term::Literal(_)) => false,
    };
    let counts = matches!(select.selection, Selection::Count(_));
    if !limited || select.restrictions.is_empty() || counts {
        return Err(parser.error("columns, WHERE with a key, and nothing else"));
    }
    Ok(LockStatement {
        table: select.table,
        verb: LockVerb::Select {
            selection: select.selection,
            key: select.restrictions,
        },
    })
}

fn using_ttl<'a>(parser: &mut Parser<'a>) -> Result<Option<Term<'a>>, SyntaxError> {
    if !parser.accept("USING")? {
        return Ok(None);
    }
    parser.expect("TTL")?;
    parser.term().map(Some)
}

fn condition<'a>(parser: &mut Parser<'a>) -> Result<Option<Condition<'a>>, SyntaxError> {
    if !parser.accept("IF")? {
        Ok(None)
    } else if parser.accept("EXISTS")? {
        Ok(Some(Condition::Exists))
    } else {
        parser.equalities().map(Condition::Equal).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::term::Marker;

    fn parse(text: &str) -> LockStatement<'_> {
        LockStatement::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn marker(index: u16) -> Term<'static> {
        Term::Marker(Marker { index, name: None })
    }

    fn text(text: &'static str) -> Term<'static> {
        Term::Literal(Literal::Text(text.into()))
    }

    #[test]
    fn a_lock_is_taken() {
        let statement =
            parse("INSERT INTO app.locks (name, Owner) VALUES (?, 'me') IF NOT EXISTS USING TTL ?");
        assert_eq!(statement.table.to_string(), "app.locks");
        let LockVerb::Insert { values, ttl } = statement.verb else {
            panic!("{statement:?}");
        };
        assert_eq!(
            values,
            [("name".into(), marker(0)), ("owner".into(), text("me"))]
        );
        assert_eq!(ttl, Some(marker(1)));
        let plain = parse("insert into locks(name)values('a')if not exists;");
        assert!(matches!(plain.verb, LockVerb::Insert { ttl: None, .. }));
    }

    #[test]
    fn a_lock_is_renewed() {
        let statement = parse(
            "UPDATE locks USING TTL 30 SET owner = ?, note = :n WHERE name = ? IF owner = ? AND a = 1",
        );
        let LockVerb::Update {
            ttl,
            assignments,
            key,
            condition,
        } = statement.verb
        else {
            panic!("{statement:?}");
        };
        assert_eq!(ttl, Some(Term::Literal(Literal::Number("30"))));
        let named = Term::Marker(Marker {
            index: 1,
            name: Some("n".into()),
        });
        assert_eq!(
            assignments,
            [("owner".into(), marker(0)), ("note".into(), named)]
        );
        assert_eq!(key, [("name".into(), marker(2))]);
        let Condition::Equal(equal) = condition else {
            panic!("{condition:?}");
        };
        assert_eq!(equal.len(), 2);
        assert_eq!(equal[0], ("owner".into(), marker(3)));
        let exists = parse("UPDATE t SET a = 1 WHERE k = 1 IF EXISTS").verb;
        assert!(matches!(
            exists,
            LockVerb::Update {
                condition: Condition::Exists,
                ..
            }
        ));
    }

    #[test]
    fn a_lock_is_given_back_and_looked_at() {
        let delete = parse("DELETE FROM locks WHERE name = 'a' IF owner = ?").verb;
        let expected = LockVerb::Delete {
            key: vec![("name".into(), text("a"))],
            condition: Some(Condition::Equal(vec![("owner".into(), marker(0))])),
        };
        assert_eq!(delete, expected);
        let plain = parse("DELETE FROM locks WHERE name = ?").verb;
        assert!(matches!(
            plain,
            LockVerb::Delete {
                condition: None,
                ..
            }
        ));
        let select = parse("SELECT owner, name FROM locks WHERE name = ?").verb;
        let LockVerb::Select { selection, key } = select else {
            panic!("{select:?}");
        };
        assert!(matches!(selection, Selection::Columns(columns) if columns.len() == 2));
        assert_eq!(key.len(), 1);
    }

    #[test]
    fn all_else_is_refused_and_what_is_taken_is_said() {
        for text in [
            "INSERT INTO t (a) VALUES (1)",
            "INSERT INTO t (a, b) VALUES (1) IF NOT EXISTS",
            "INSERT INTO t (a, A) VALUES (1, 2) IF NOT EXISTS",
            "INSERT INTO t (a) VALUES (now()) IF NOT EXISTS",
            "INSERT INTO t JSON '{}' IF NOT EXISTS",
            "INSERT INTO t (a) VALUES (1) IF NOT EXISTS USING TIMESTAMP 1",
            "INSERT INTO t (a) VALUES (1) IF NOT EXISTS USING TTL 1 AND TIMESTAMP 1",
            "UPDATE t SET a = 1 WHERE k = 1",
            "UPDATE t SET a = a + 1 WHERE k = 1 IF EXISTS",
            "UPDATE t SET a = 1 WHERE k = 1 IF a > 1",
            "UPDATE t SET a = 1 WHERE k IN (1) IF EXISTS",
            "UPDATE t SET a = 1 WHERE k = 1 IF NOT EXISTS",
            "DELETE a FROM t WHERE k = 1",
            "DELETE FROM t",
            "SELECT * FROM t",
            "SELECT count(*) FROM t WHERE k = 1",
            "SELECT * FROM t WHERE k = 1 LIMIT 0",
            "TRUNCATE t",
            "BEGIN BATCH APPLY BATCH",
            "",
        ] {
            let error = LockStatement::parse(text).map(drop).unwrap_err();
            assert!(error.to_string().starts_with(SUPPORTED), "{text}: {error}");
        }
        let error = LockStatement::parse("UPDATE t SET a = 1 WHERE k = 1").unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("expected IF before the end, behind character 30"),
            "{error}"
        );
    }
}
