//! What clients say to PostgreSQL that DataFusion does not understand, or would understand otherwise.
//!
//! | statement | answer |
//! |---|---|
//! | `BEGIN`, `COMMIT`, `ROLLBACK` and their kin | done: each statement sees one version of each table, and nothing is written |
//! | `SET` of what concerns PostgreSQL alone | done |
//! | `SHOW` of the same | what drivers expect |
//! | `SET`, `SHOW`, `RESET` of `statement_timeout` | as PostgreSQL: longer statements end |
//! | `DISCARD`, `RESET`, `DEALLOCATE`, `LISTEN`, `UNLISTEN` | done |

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{Schema, SchemaRef};

use crate::serve::timeout;

/// An answer that needs no query.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    /// A transaction began.
    Begin(&'static str),
    /// A transaction ended.
    End(&'static str),
    /// Something was done that has no rows.
    Done(&'static str),
    /// The value of a setting.
    Shown(RecordBatch),
    /// How long statements may take from now on, in milliseconds, and what was done by that.
    Limit(u64, &'static str),
    /// How long statements may take is wanted.
    ShownLimit,
    /// A setting has no such value.
    Refused(String),
}

impl Answer {
    /// The columns of its rows.
    pub(crate) fn columns(&self) -> SchemaRef {
        match self {
            Answer::Shown(batch) => batch.schema(),
            Answer::ShownLimit => shown(timeout::NAME, "").schema(),
            _ => Arc::new(Schema::empty()),
        }
    }
}

/// One row, of a setting.
pub(crate) fn shown(name: &str, value: &str) -> RecordBatch {
    let value: ArrayRef = Arc::new(StringArray::from(vec![value]));
    RecordBatch::try_from_iter([(name, value)]).expect("a row of one text")
}

/// Settings that concern PostgreSQL alone, and their values.
const SETTINGS: [(&str, &str); 14] = [
    ("application_name", ""),
    ("bytea_output", "hex"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_read_only", "on"),
    ("extra_float_digits", "1"),
    ("intervalstyle", "postgres"),
    ("lock_timeout", "0"),
    ("search_path", "public"),
    ("server_encoding", "UTF8"),
    ("server_version", "16.6"),
    ("standard_conforming_strings", "on"),
    ("transaction_isolation", "repeatable read"),
];

/// The answer to a statement; `None` if it is DataFusion's to answer.
pub(crate) fn answer(sql: &str) -> Option<Answer> {
    let sql = sql.to_ascii_lowercase();
    let mut words = sql.split(|c: char| c.is_whitespace() || matches!(c, '=' | ';'));
    let mut next = || words.find(|word| !word.is_empty());
    match next()? {
        "begin" => Some(Answer::Begin("BEGIN")),
        "start" if next() == Some("transaction") => Some(Answer::Begin("START TRANSACTION")),
        "commit" | "end" => Some(Answer::End("COMMIT")),
        "rollback" | "abort" => Some(Answer::End("ROLLBACK")),
        "discard" if next() == Some("all") => Some(Answer::Limit(0, "DISCARD")),
        "discard" => Some(Answer::Done("DISCARD")),
        "deallocate" => Some(Answer::Done("DEALLOCATE")),
        "listen" => Some(Answer::Done("LISTEN")),
        "unlisten" => Some(Answer::Done("UNLISTEN")),
        "reset" => match next()? {
            name if is_ours(name) => None,
            timeout::NAME | "all" => Some(Answer::Limit(0, "RESET")),
            _ => Some(Answer::Done("RESET")),
        },
        "set" => {
            let mut name = next()?;
            if matches!(name, "session" | "local") {
                name = next()?;
            }
            if name == timeout::NAME {
                let value: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
                let value = value.join(" ");
                let value = timeout::parse(value.strip_prefix("to ").unwrap_or(&value));
                return Some(match value {
                    Ok(milliseconds) => Answer::Limit(milliseconds, "SET"),
                    Err(what) => Answer::Refused(what),
                });
            }
            let known = matches!(name, "transaction" | "characteristics" | "names" | "role");
            (known || setting(name).is_some()).then_some(Answer::Done("SET"))
        }
        "show" => {
            let name = next()?;
            let name = match (name, next()) {
                ("transaction", Some("isolation")) => "transaction_isolation",
                (name, _) => name,
            };
            if name == timeout::NAME {
                return Some(Answer::ShownLimit);
            }
            let (name, value) = setting(name)?;
            Some(Answer::Shown(shown(name, value)))
        }
        _ => None,
    }
}

fn setting(name: &str) -> Option<(&'static str, &'static str)> {
    SETTINGS.iter().copied().find(|(known, _)| *known == name)
}

/// Whether a setting is DataFusion's or ours.
fn is_ours(name: &str) -> bool {
    name.starts_with("datafusion.") || name.starts_with("kumiki.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_postgresql_is_answered() {
        assert_eq!(answer("BEGIN;"), Some(Answer::Begin("BEGIN")));
        assert_eq!(answer("commit"), Some(Answer::End("COMMIT")));
        for set in [
            "SET client_encoding = 'UTF8'",
            "set extra_float_digits=3",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "set search_path to public",
        ] {
            assert_eq!(answer(set), Some(Answer::Done("SET")), "{set}");
        }
        let Some(Answer::Shown(batch)) = answer("SHOW TRANSACTION ISOLATION LEVEL") else {
            panic!("it is shown");
        };
        assert_eq!(batch.schema().field(0).name(), "transaction_isolation");
    }

    #[test]
    fn statements_can_be_limited_in_time() {
        for (sql, milliseconds, done) in [
            ("SET statement_timeout = '5 s';", 5000, "SET"),
            ("set session statement_timeout to 7", 7, "SET"),
            ("set statement_timeout=default", 0, "SET"),
            ("reset statement_timeout", 0, "RESET"),
            ("DISCARD ALL", 0, "DISCARD"),
        ] {
            assert_eq!(
                answer(sql),
                Some(Answer::Limit(milliseconds, done)),
                "{sql}"
            );
        }
        let refused = answer("set statement_timeout = soon");
        assert!(matches!(refused, Some(Answer::Refused(_))), "{refused:?}");
        let shown = answer("show statement_timeout").expect("it is ours");
        assert_eq!(shown, Answer::ShownLimit);
        assert_eq!(shown.columns().field(0).name(), timeout::NAME);
    }

    #[test]
    fn everything_else_is_datafusions() {
        for sql in [
            "select 1",
            "set kumiki.placement = 'auto'",
            "set datafusion.execution.batch_size = 1",
            "show tables",
            "show datafusion.execution.batch_size",
            "reset kumiki.placement",
            "",
        ] {
            assert_eq!(answer(sql), None, "{sql}");
        }
    }
}
