//! Cursors of SQL: queries whose rows a client fetches in parts.
//!
//! | statement | what it does |
//! |---|---|
//! | `DECLARE name CURSOR [WITH HOLD] FOR query` | has the query begin |
//! | `FETCH [direction] [FROM] name` | gives the next rows |
//! | `MOVE [direction] [FROM] name` | passes over them |
//! | `CLOSE name`, `CLOSE ALL` | ends it |
//!
//! Rows come forward alone: `NEXT`, a number, `ALL`, `FORWARD`. A cursor ends with its transaction, unless it
//! is declared `WITH HOLD` and its transaction is committed. It keeps its query's place among those that run at once until its last row.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{Query, Statement};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use pgwire::error::PgWireResult;

use crate::serve::copy::CopyRefusal;
use crate::serve::errors::{DUPLICATE_CURSOR, FORWARD_ONLY, NO_PORTAL, SYNTAX, error};

/// A statement about cursors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CursorCommand {
    Declare(Declare),
    Fetch(Fetch),
    /// All, if there is no name.
    Close(Option<String>),
}

/// A cursor that is to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Declare {
    pub(crate) name: String,
    pub(crate) query: Box<Query>,
    /// It outlives its transaction.
    pub(crate) hold: bool,
}

/// Rows that are wanted of a cursor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fetch {
    pub(crate) name: String,
    /// How many at most; `None`: all.
    pub(crate) most: Option<usize>,
    /// They are passed over.
    pub(crate) moves: bool,
}

/// Returns the command for cursors in a statement, or the reason of its refusal; `None` if it is another statement.
pub(crate) fn command(sql: &str) -> Option<std::result::Result<CursorCommand, CopyRefusal>> {
    let mut words = sql.split(|c: char| !c.is_ascii_alphabetic());
    let first = words.find(|word| !word.is_empty())?.to_ascii_lowercase();
    match &*first {
        "declare" => declare(sql),
        "fetch" | "move" | "close" => Some(of_tokens(sql)),
        _ => None,
    }
}

fn declare(sql: &str) -> Option<std::result::Result<CursorCommand, CopyRefusal>> {
    let parsed = match Parser::parse_sql(&PostgreSqlDialect {}, sql) {
        Ok(parsed) => parsed,
        Err(failed) => return Some(Err((SYNTAX, failed.to_string()))),
    };
    let [Statement::Declare { stmts }] = &parsed[..] else {
        return None;
    };
    let [declared] = &stmts[..] else { return None };
    let (name, query) = (declared.names.first()?, declared.for_query.clone()?);
    if declared.scroll == Some(true) {
        return Some(Err(backward()));
    }
    Some(Ok(CursorCommand::Declare(Declare {
        name: folded(&name.value, name.quote_style.is_some()),
        query,
        hold: declared.hold == Some(true),
    })))
}

/// Returns an identifier as PostgreSQL takes it.
fn folded(name: &str, is_quoted: bool) -> String {
    match is_quoted {
        true => name.to_owned(),
        false => name.to_lowercase(),
    }
}

fn backward() -> CopyRefusal {
    let what = "cursor can only scan forward: declare it without SCROLL, and fetch with NEXT, FORWARD or ALL";
    (FORWARD_ONLY, what.to_owned())
}

/// Reads `FETCH`, `MOVE` and `CLOSE`.
fn of_tokens(sql: &str) -> std::result::Result<CursorCommand, CopyRefusal> {
    let syntax = || (SYNTAX, format!("syntax error in \"{}\"", sql.trim()));
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize();
    let tokens = tokens.map_err(|_| syntax())?;
    let tokens = tokens.into_iter();
    let mut tokens = tokens
        .filter(|token| !matches!(token, Token::Whitespace(_) | Token::SemiColon))
        .peekable();
    let keyword = |token: &Token| match token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        _ => String::new(),
    };
    let name = |token: Option<Token>| match token {
        Some(Token::Word(word)) => Ok(folded(&word.value, word.quote_style.is_some())),
        _ => Err(syntax()),
    };
    let verb = keyword(&tokens.next().ok_or_else(syntax)?);
    if verb == "close" {
        let is_all = tokens.peek().is_some_and(|token| keyword(token) == "all");
        let closed = name(tokens.next())?;
        return match tokens.next() {
            None => Ok(CursorCommand::Close((!is_all).then_some(closed))),
            Some(_) => Err(syntax()),
        };
    }
    // The last one is the name, and what is before it says how many.
    let mut words: Vec<Token> = tokens.collect();
    let cursor = name(words.pop())?;
    if words
        .last()
        .is_some_and(|word| matches!(&*keyword(word), "from" | "in"))
    {
        words.pop();
    }
    let direction: Vec<String> = words
        .iter()
        .map(|word| match word {
            Token::Number(number, _) => number.clone(),
            word => keyword(word),
        })
        .collect();
    let direction: Vec<&str> = direction.iter().map(|word| &**word).collect();
    let most = match direction[..] {
        [] | ["next" | "forward"] => Some(1),
        ["all"] | ["forward", "all"] => None,
        [count] | ["forward", count] if count.parse::<usize>().is_ok() => count.parse().ok(),
        [
            "prior" | "first" | "last" | "absolute" | "relative" | "backward",
            ..,
        ] => {
            return Err(backward());
        }
        _ => return Err(syntax()),
    };
    Ok(CursorCommand::Fetch(Fetch {
        name: cursor,
        most,
        moves: verb == "move",
    }))
}

/// A connection's cursors.
#[derive(Default)]
pub(crate) struct SqlCursors(Mutex<HashMap<String, Cursor>>);

#[derive(Clone)]
struct Cursor {
    schema: SchemaRef,
    hold: bool,
    /// Its transaction has not ended.
    is_new: bool,
    rows: Arc<tokio::sync::Mutex<Rows>>,
}

/// The rows of a cursor that were not fetched.
struct Rows {
    batches: SendableRecordBatchStream,
    /// What is left of the last batch.
    left: Option<RecordBatch>,
}

impl Rows {
    /// Takes some of the next rows, `most` at most and at least one, if there are any.
    async fn next(&mut self, most: Option<usize>) -> Result<Option<RecordBatch>> {
        let batch = match self.left.take() {
            Some(batch) => batch,
            None => loop {
                match self.batches.next().await.transpose()? {
                    None => return Ok(None),
                    Some(batch) if batch.num_rows() == 0 => {}
                    Some(batch) => break batch,
                }
            },
        };
        let taken = most.map_or(batch.num_rows(), |most| most.min(batch.num_rows()));
        if taken < batch.num_rows() {
            self.left = Some(batch.slice(taken, batch.num_rows() - taken));
        }
        Ok(Some(batch.slice(0, taken)))
    }
}

impl SqlCursors {
    /// Checks that no cursor has this name.
    ///
    /// # Errors
    /// Returns an error if there is one.
    pub(crate) fn is_new(&self, name: &str) -> PgWireResult<()> {
        match self.0.lock().contains_key(name) {
            true => Err(error(
                DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            )),
            false => Ok(()),
        }
    }

    /// Adds a cursor whose query has begun, within a transaction or not.
    pub(crate) fn open(&self, declare: &Declare, batches: SendableRecordBatchStream, within: bool) {
        let cursor = Cursor {
            schema: batches.schema(),
            hold: declare.hold,
            is_new: within,
            rows: Arc::new(tokio::sync::Mutex::new(Rows {
                batches,
                left: None,
            })),
        };
        self.0.lock().insert(declare.name.clone(), cursor);
    }

    fn get(&self, name: &str) -> PgWireResult<Cursor> {
        let cursor = self.0.lock().get(name).cloned();
        cursor.ok_or_else(|| error(NO_PORTAL, format!("cursor \"{name}\" does not exist")))
    }

    /// Returns the columns of a cursor.
    ///
    /// # Errors
    /// There is no such cursor.
    pub(crate) fn columns(&self, name: &str) -> PgWireResult<SchemaRef> {
        Ok(self.get(name)?.schema)
    }

    /// Returns the rows that are wanted, which leave the cursor as they are taken.
    ///
    /// # Errors
    /// There is no such cursor.
    pub(crate) fn fetch(&self, fetch: &Fetch) -> PgWireResult<SendableRecordBatchStream> {
        let Cursor { schema, rows, .. } = self.get(&fetch.name)?;
        let batches = stream::try_unfold((rows, fetch.most), |(rows, most)| async move {
            if most == Some(0) {
                return Ok(None);
            }
            let batch = rows.lock().await.next(most).await?;
            Ok(batch.map(|batch| {
                let most = most.map(|most| most - batch.num_rows());
                (batch, (rows, most))
            }))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    /// Ends a cursor, or all.
    ///
    /// # Errors
    /// There is no such cursor.
    pub(crate) fn close(&self, name: Option<&str>) -> PgWireResult<()> {
        match name {
            None => self.0.lock().clear(),
            Some(name) => {
                self.get(name)?;
                self.0.lock().remove(name);
            }
        }
        Ok(())
    }

    /// Ends the cursors that end with their transaction, which was committed or not.
    pub(crate) fn end_transaction(&self, is_committed: bool) {
        self.0.lock().retain(|_, cursor| {
            let is_new = std::mem::replace(&mut cursor.is_new, false);
            cursor.hold && (is_committed || !is_new)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(name: &str, most: Option<usize>, moves: bool) -> CursorCommand {
        let name = name.to_owned();
        CursorCommand::Fetch(Fetch { name, most, moves })
    }

    #[test]
    fn statements_about_cursors_are_read() {
        for (sql, expected) in [
            ("FETCH c", fetch("c", Some(1), false)),
            ("fetch next from C;", fetch("c", Some(1), false)),
            ("fetch forward from c", fetch("c", Some(1), false)),
            (
                "fetch 10 in \"My Cursor\"",
                fetch("My Cursor", Some(10), false),
            ),
            (
                "FETCH FORWARD 2000 FROM \"c\"",
                fetch("c", Some(2000), false),
            ),
            ("fetch all c", fetch("c", None, false)),
            ("move forward all in c", fetch("c", None, true)),
            ("close c", CursorCommand::Close(Some("c".to_owned()))),
            ("close all", CursorCommand::Close(None)),
        ] {
            assert_eq!(command(sql), Some(Ok(expected)), "{sql}");
        }
        let declared = "declare \"C\" no scroll cursor with hold for select 1";
        let Some(Ok(CursorCommand::Declare(declared))) = command(declared) else {
            panic!("it is declared");
        };
        assert_eq!((&*declared.name, declared.hold), ("C", true));
        for (sql, state) in [
            ("fetch prior from c", FORWARD_ONLY),
            ("fetch backward 3 from c", FORWARD_ONLY),
            ("declare c scroll cursor for select 1", FORWARD_ONLY),
            ("fetch -1 from c", SYNTAX),
            ("fetch", SYNTAX),
            ("close", SYNTAX),
            ("declare c cursor for", SYNTAX),
        ] {
            let refused = command(sql).map(|command| command.unwrap_err().0);
            assert_eq!(refused, Some(state), "{sql}");
        }
        assert_eq!(command("select 1"), None);
    }
}
