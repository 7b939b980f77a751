//! What clients say to PostgreSQL that DataFusion does not understand, or would understand otherwise.
//!
//! | statement | answer |
//! |---|---|
//! | `BEGIN`, `COMMIT`, `ROLLBACK` and their kin | done: each statement sees one version of each table, and nothing is written |
//! | `SAVEPOINT`, `RELEASE`, `ROLLBACK TO` in a transaction | done, for the same reason; after an error `ROLLBACK TO` has the transaction go on |
//! | `SET` of what concerns PostgreSQL alone | done; refused if it asks for what is not there, as another encoding |
//! | `SHOW` of the same | what drivers expect |
//! | `SET`, `SHOW`, `RESET` of `statement_timeout`, `SET LOCAL`, too | as PostgreSQL: longer statements end |
//! | `RESET ALL`, `DISCARD ALL` | settings are as when the connection began; portals are closed |
//! | `DEALLOCATE` | the prepared statement is forgotten |
//! | `DISCARD`, `LISTEN`, `UNLISTEN` | done |

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{Schema, SchemaRef};

use crate::serve::timeout::{self, InvalidSetting};
use crate::session::POSTGRESQL_VERSION;

/// An answer that needs no query.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum SettingReply {
    /// A transaction began.
    Begin(&'static str),
    /// A transaction ended.
    End(&'static str),
    /// Something was done with a savepoint.
    Savepoint(&'static str),
    /// Something was done that has no rows.
    Done(&'static str),
    /// The value of a setting.
    Shown(RecordBatch),
    /// How long statements may take from now on, in milliseconds.
    Limit(u64, SettingSpan),
    /// How long statements may take is wanted.
    ShownLimit,
    /// Settings are to be as they were when the connection began.
    Reset(&'static str),
    /// A prepared statement is to be forgotten.
    Deallocate(String),
    /// A setting has no such value.
    Refused(String),
}

/// For how long a setting is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SettingSpan {
    /// Until it is set again.
    Session,
    /// Until the transaction ends.
    Transaction,
    /// Until it is set again, as it was at the beginning: by `RESET`.
    Reset,
}

impl SettingReply {
    /// Returns the columns of its rows.
    pub(crate) fn columns(&self) -> SchemaRef {
        match self {
            SettingReply::Shown(batch) => batch.schema(),
            SettingReply::ShownLimit => shown(timeout::NAME, "").schema(),
            _ => Arc::new(Schema::empty()),
        }
    }
}

/// Returns one row, of a setting.
pub(crate) fn shown(name: &str, value: &str) -> RecordBatch {
    let value: ArrayRef = Arc::new(StringArray::from(vec![value]));
    RecordBatch::try_from_iter([(name, value)]).expect("a row of one text")
}

/// A setting that concerns PostgreSQL alone.
struct Setting {
    name: &'static str,
    value: &'static str,
    /// With what a value has to begin, in lower case, so that what clients get is what they asked for;
    /// nothing: it may be anything.
    given: &'static [&'static str],
}

const fn any(name: &'static str, value: &'static str) -> Setting {
    Setting {
        name,
        value,
        given: &[],
    }
}

const fn fixed(name: &'static str, value: &'static str, given: &'static [&'static str]) -> Setting {
    Setting { name, value, given }
}

const ENCODINGS: &[&str] = &["utf8", "utf-8", "unicode"];

const SETTINGS: [Setting; 19] = [
    any("application_name", ""),
    fixed("bytea_output", "hex", &["hex"]),
    fixed("client_encoding", "UTF8", ENCODINGS),
    any("client_min_messages", "notice"),
    fixed("datestyle", "ISO, MDY", &["iso"]),
    any("default_table_access_method", "heap"),
    any("default_transaction_read_only", "on"),
    any("extra_float_digits", "1"),
    fixed("intervalstyle", "postgres", &["postgres"]),
    any("jit", "off"),
    any("lock_timeout", "0"),
    fixed("max_function_args", "100", &["100"]),
    fixed("max_identifier_length", "63", &["63"]),
    fixed("max_index_keys", "32", &["32"]),
    any("search_path", "public"),
    any("server_encoding", "UTF8"),
    any("server_version", POSTGRESQL_VERSION),
    fixed("standard_conforming_strings", "on", &["on", "true", "1"]),
    any("transaction_isolation", "repeatable read"),
];

impl Setting {
    /// Returns the answer to a client that sets it.
    fn set(&self, value: &str) -> SettingReply {
        let value = value.trim_matches(|c| matches!(c, '\'' | '"'));
        let known = self.given.is_empty() || value == "default";
        if known || self.given.iter().any(|given| value.starts_with(given)) {
            return SettingReply::Done("SET");
        }
        let (name, only) = (self.name, self.value);
        SettingReply::Refused(format!(
            "invalid value for parameter \"{name}\": \"{value}\": it is {only} here, and cannot be changed"
        ))
    }
}

/// Returns the answer to a statement; `None` if it is DataFusion's to answer.
pub(crate) fn answer(statement: &str) -> Option<SettingReply> {
    let sql = statement.to_ascii_lowercase();
    let mut words = sql.split(|c: char| c.is_whitespace() || matches!(c, '=' | ';'));
    let mut next = || words.find(|word| !word.is_empty());
    match next()? {
        "begin" => Some(SettingReply::Begin("BEGIN")),
        "start" if next() == Some("transaction") => Some(SettingReply::Begin("START TRANSACTION")),
        "commit" | "end" => Some(SettingReply::End("COMMIT")),
        "savepoint" => Some(SettingReply::Savepoint("SAVEPOINT")),
        "release" => Some(SettingReply::Savepoint("RELEASE")),
        "rollback" | "abort" => {
            let rest = next().filter(|word| !matches!(*word, "work" | "transaction"));
            Some(match rest.or_else(next) {
                Some("to") => SettingReply::Savepoint("ROLLBACK"),
                Some("prepared") => {
                    SettingReply::Refused("there are no prepared transactions".into())
                }
                _ => SettingReply::End("ROLLBACK"),
            })
        }
        "discard" if next() == Some("all") => Some(SettingReply::Reset("DISCARD ALL")),
        "discard" => Some(SettingReply::Done("DISCARD")),
        "deallocate" => {
            let name = next().filter(|name| *name != "prepare").or_else(next)?;
            Some(match name {
                "all" => SettingReply::Done("DEALLOCATE ALL"),
                // In quotes its letters are as they were written.
                name => SettingReply::Deallocate(match name.strip_prefix('"') {
                    Some(_) => statement.split('"').nth(1)?.to_owned(),
                    None => name.to_owned(),
                }),
            })
        }
        "listen" => Some(SettingReply::Done("LISTEN")),
        "unlisten" => Some(SettingReply::Done("UNLISTEN")),
        "reset" => match next()? {
            name if is_ours(name) => None,
            timeout::NAME => Some(SettingReply::Limit(0, SettingSpan::Reset)),
            "all" => Some(SettingReply::Reset("RESET")),
            _ => Some(SettingReply::Done("RESET")),
        },
        "set" => {
            let mut name = next()?;
            let mut span = SettingSpan::Session;
            if matches!(name, "session" | "local") {
                if name == "local" {
                    span = SettingSpan::Transaction;
                }
                name = next()?;
            }
            let value: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            let value = value.join(" ");
            let value = value.strip_prefix("to ").unwrap_or(&value);
            if name == timeout::NAME {
                return Some(match timeout::parse(value) {
                    Ok(milliseconds) => SettingReply::Limit(milliseconds, span),
                    Err(InvalidSetting(what)) => SettingReply::Refused(what),
                });
            }
            if matches!(name, "transaction" | "characteristics" | "role") {
                return Some(SettingReply::Done("SET"));
            }
            let name = match name {
                "names" => "client_encoding",
                name => name,
            };
            setting(name).map(|setting| setting.set(value))
        }
        "show" => {
            let name = next()?;
            let name = match (name, next()) {
                ("transaction", Some("isolation")) => "transaction_isolation",
                (name, _) => name,
            };
            if name == timeout::NAME {
                return Some(SettingReply::ShownLimit);
            }
            let setting = setting(name)?;
            Some(SettingReply::Shown(shown(setting.name, setting.value)))
        }
        _ => None,
    }
}

/// Returns the settings that concern PostgreSQL alone, and their values.
pub(crate) fn settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.iter().map(|setting| (setting.name, setting.value))
}

/// Returns the value of a setting that concerns PostgreSQL alone; `None` if there is no such setting.
pub(crate) fn value(name: &str) -> Option<&'static str> {
    setting(&name.to_ascii_lowercase()).map(|setting| setting.value)
}

/// Sets a setting that concerns PostgreSQL alone.
///
/// # Errors
/// Fails when there is no such setting, or when it cannot have this value; the error says why.
pub(crate) fn set(name: &str, value: &str) -> Result<(), InvalidSetting> {
    let Some(setting) = setting(&name.to_ascii_lowercase()) else {
        return Err(InvalidSetting(unknown(name)));
    };
    match setting.set(&value.to_ascii_lowercase()) {
        SettingReply::Refused(what) => Err(InvalidSetting(what)),
        _ => Ok(()),
    }
}

/// Returns the text of the error about a setting that does not exist.
pub(crate) fn unknown(name: &str) -> String {
    format!("unrecognized configuration parameter \"{name}\"")
}

fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// Returns `true` if a setting is DataFusion's or Kumiki's.
fn is_ours(name: &str) -> bool {
    let zones = ["timezone", "time.zone"];
    name.starts_with("datafusion.") || name.starts_with("kumiki.") || zones.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_postgresql_is_answered() {
        assert_eq!(answer("BEGIN;"), Some(SettingReply::Begin("BEGIN")));
        assert_eq!(answer("commit"), Some(SettingReply::End("COMMIT")));
        for sql in [
            "rollback",
            "ROLLBACK WORK;",
            "abort transaction",
            "rollback and chain",
        ] {
            assert_eq!(answer(sql), Some(SettingReply::End("ROLLBACK")), "{sql}");
        }
        for (sql, tag) in [
            ("savepoint a", "SAVEPOINT"),
            ("release a", "RELEASE"),
            ("RELEASE SAVEPOINT a;", "RELEASE"),
            ("rollback to a", "ROLLBACK"),
            ("rollback work to savepoint a", "ROLLBACK"),
        ] {
            assert_eq!(answer(sql), Some(SettingReply::Savepoint(tag)), "{sql}");
        }
        for (sql, name) in [
            ("DEALLOCATE One", "one"),
            ("deallocate prepare \"One two\";", "One two"),
        ] {
            let named = SettingReply::Deallocate(name.to_owned());
            assert_eq!(answer(sql), Some(named), "{sql}");
        }
        assert_eq!(
            answer("deallocate all"),
            Some(SettingReply::Done("DEALLOCATE ALL"))
        );
        for set in [
            "SET client_encoding = 'UTF8'",
            "set extra_float_digits=3",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "set search_path to public",
            "set names 'utf8'",
            "SET client_encoding TO DEFAULT",
            "SET datestyle = 'ISO, DMY'",
        ] {
            assert_eq!(answer(set), Some(SettingReply::Done("SET")), "{set}");
        }
        // Who asked for another encoding would read nonsense.
        for refused in [
            "set client_encoding to latin1",
            "set names 'SQL_ASCII'",
            "set bytea_output = escape",
            "set standard_conforming_strings = off",
        ] {
            let answered = answer(refused);
            assert!(
                matches!(answered, Some(SettingReply::Refused(_))),
                "{refused}"
            );
        }
        let Some(SettingReply::Shown(batch)) = answer("SHOW TRANSACTION ISOLATION LEVEL") else {
            panic!("it is shown");
        };
        assert_eq!(batch.schema().field(0).name(), "transaction_isolation");
    }

    #[test]
    fn statements_can_be_limited_in_time() {
        for (sql, milliseconds, span) in [
            ("SET statement_timeout = '5 s';", 5000, SettingSpan::Session),
            (
                "set session statement_timeout to 7",
                7,
                SettingSpan::Session,
            ),
            (
                "set local statement_timeout to 7",
                7,
                SettingSpan::Transaction,
            ),
            ("set statement_timeout=default", 0, SettingSpan::Session),
            ("reset statement_timeout", 0, SettingSpan::Reset),
        ] {
            assert_eq!(
                answer(sql),
                Some(SettingReply::Limit(milliseconds, span)),
                "{sql}"
            );
        }
        assert_eq!(
            answer("DISCARD ALL"),
            Some(SettingReply::Reset("DISCARD ALL"))
        );
        assert_eq!(answer("reset all;"), Some(SettingReply::Reset("RESET")));
        let refused = answer("set statement_timeout = soon");
        assert!(
            matches!(refused, Some(SettingReply::Refused(_))),
            "{refused:?}"
        );
        let shown = answer("show statement_timeout").expect("it is ours");
        assert_eq!(shown, SettingReply::ShownLimit);
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
            "reset timezone",
            "",
        ] {
            assert_eq!(answer(sql), None, "{sql}");
        }
    }
}
