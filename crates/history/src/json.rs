//! A history as text: one JSON object per line and transaction.
//!
//! | field | type | meaning |
//! |---|---|---|
//! | `process` | number | the client; it runs one transaction after the other |
//! | `id` | number | unique in the history |
//! | `start` | number | nanoseconds on a monotone clock, before the first operation was sent |
//! | `end` | number | nanoseconds on that clock, after the outcome was known |
//! | `outcome` | `"committed"`, `"aborted"`, `"unknown"` | as the client knows it |
//! | `ops` | list | what it did, in order |
//!
//! | operation | fields |
//! |---|---|
//! | read | `{"read": key, "value": number or null}`; null: the key was absent |
//! | write | `{"write": key, "value": number}` |
//! | delete | `{"delete": key}` |
//! | scan | `{"scan": from, "to": key or null, "found": [[key, number], …]}`; `to` is exclusive |
//!
//! Reads, writes and deletes may have a `version`, a number. Among the versions of one key, those
//! of writes and deletes are distinct and in the order in which they took effect; a read has the
//! version of what it saw; a read of nothing has any number not below the version of the delete
//! that it saw (or of nothing) and below that of the next write.
//!
//! Invariants:
//! 1. Values are unique among the writes of one key.
//! 2. A scan answers every key of its range. A limited scan that was full has `to` behind its last
//!    key (that key with `\u0000` appended).
//! 3. Lines may come in any order. Empty lines do not count.

use std::borrow::Cow;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::model::{History, HistoryOp, Key, Names, Outcome, RecordedTransaction, Value};

/// The reason why a text is not a history.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The line does not have the format. Nothing of the history was kept.
    #[error("line {line} of the history: {what}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// A description of the error.
        what: String,
    },
    /// The source cannot be read.
    #[error("cannot read the history: {0}")]
    Io(#[from] io::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransactionLine<'a> {
    process: u32,
    id: u64,
    start: u64,
    end: u64,
    outcome: OutcomeName,
    #[serde(borrow)]
    ops: Vec<OperationFields<'a>>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OutcomeName {
    Committed,
    Aborted,
    Unknown,
}

/// The fields of all operations; the fields that are present determine the operation.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationFields<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    read: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    write: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    delete: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    scan: Option<Cow<'a, str>>,
    /// `Some(None)` is a null, `None` no such field.
    #[serde(default, with = "nullable", skip_serializing_if = "Option::is_none")]
    value: Option<Option<Value>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    to: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    found: Option<Vec<(Cow<'a, str>, Value)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

/// A field that distinguishes null from absence.
mod nullable {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::model::Value;

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Option<Value>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.unwrap_or_default().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<Value>>, D::Error> {
        Option::<Value>::deserialize(deserializer).map(Some)
    }
}

/// Reads a history.
///
/// # Errors
/// Returns an error that names the first line that does not have the format, or the source's error.
pub fn read(mut source: impl BufRead) -> Result<History, ReadError> {
    let mut names = Names::default();
    let mut transactions = Vec::new();
    let mut text = String::new();
    let mut line = 0;
    while source.read_line(&mut text)? > 0 {
        line += 1;
        if !text.trim().is_empty() {
            let transaction = parse(&text, &mut names);
            transactions
                .push(transaction.map_err(|InvalidLine(what)| ReadError::Line { line, what })?);
        }
        text.clear();
    }
    Ok(History::assemble(vec![(names, transactions)]))
}

/// The reason why a line is not a transaction.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct InvalidLine(String);

impl InvalidLine {
    fn new(reason: impl ToString) -> InvalidLine {
        InvalidLine(reason.to_string())
    }
}

fn parse(text: &str, names: &mut Names) -> Result<RecordedTransaction, InvalidLine> {
    let line: TransactionLine<'_> = serde_json::from_str(text).map_err(InvalidLine::new)?;
    if line.end < line.start {
        let what = format!("transaction {} ends before it starts", line.id);
        return Err(InvalidLine(what));
    }
    let ops = line.ops.into_iter().enumerate();
    let ops = ops.map(|(i, fields)| {
        let read = operation(fields, names);
        read.map_err(|error| InvalidLine(format!("operation {i}: {error}")))
    });
    Ok(RecordedTransaction {
        process: line.process,
        id: line.id,
        start: line.start,
        end: line.end,
        outcome: match line.outcome {
            OutcomeName::Committed => Outcome::Committed,
            OutcomeName::Aborted => Outcome::Aborted,
            OutcomeName::Unknown => Outcome::Unknown,
        },
        ops: ops.collect::<Result<Vec<HistoryOp>, InvalidLine>>()?,
    })
}

fn operation(fields: OperationFields<'_>, names: &mut Names) -> Result<HistoryOp, InvalidLine> {
    let OperationFields {
        read,
        write,
        delete,
        scan,
        value,
        to,
        found,
        version,
    } = fields;
    match (read, write, delete, scan) {
        (Some(key), None, None, None) if to.is_none() && found.is_none() => {
            let value = value.ok_or_else(|| {
                InvalidLine::new("a read needs a value, null if the key was absent")
            })?;
            Ok(HistoryOp::Read {
                key: names.key(&key),
                value,
                version,
            })
        }
        (None, Some(key), None, None) if to.is_none() && found.is_none() => {
            let value = value
                .flatten()
                .ok_or_else(|| InvalidLine::new("a write needs a value"))?;
            Ok(HistoryOp::Write {
                key: names.key(&key),
                value,
                version,
            })
        }
        (None, None, Some(key), None) if to.is_none() && found.is_none() && value.is_none() => {
            Ok(HistoryOp::Delete {
                key: names.key(&key),
                version,
            })
        }
        (None, None, None, Some(from)) if value.is_none() && version.is_none() => {
            let found = found.ok_or_else(|| InvalidLine::new("a scan needs what it found"))?;
            let found = found
                .iter()
                .map(|(key, value)| (names.key(key), *value))
                .collect();
            let to = to.map(|to| names.key(&to));
            Ok(HistoryOp::Scan {
                from: names.key(&from),
                to,
                found,
            })
        }
        _ => Err(InvalidLine::new(
            "it is one of read, write, delete and scan, with that one's fields",
        )),
    }
}

/// Writes a history, in the order of its transactions.
///
/// # Errors
/// Returns the target's error.
pub fn write(history: &History, mut target: impl Write) -> io::Result<()> {
    for transaction in &history.transactions {
        let line = TransactionLine {
            process: transaction.process,
            id: transaction.id,
            start: transaction.start,
            end: transaction.end,
            outcome: match transaction.outcome {
                Outcome::Committed => OutcomeName::Committed,
                Outcome::Aborted => OutcomeName::Aborted,
                Outcome::Unknown => OutcomeName::Unknown,
            },
            ops: transaction
                .ops
                .iter()
                .map(|op| fields(history, op))
                .collect(),
        };
        serde_json::to_writer(&mut target, &line)?;
        target.write_all(b"\n")?;
    }
    target.flush()
}

fn fields<'h>(history: &'h History, op: &HistoryOp) -> OperationFields<'h> {
    let name = |key: &Key| Cow::Borrowed(history.name(*key));
    match op {
        HistoryOp::Read {
            key,
            value,
            version,
        } => OperationFields {
            read: Some(name(key)),
            value: Some(*value),
            version: *version,
            ..OperationFields::default()
        },
        HistoryOp::Write {
            key,
            value,
            version,
        } => OperationFields {
            write: Some(name(key)),
            value: Some(Some(*value)),
            version: *version,
            ..OperationFields::default()
        },
        HistoryOp::Delete { key, version } => OperationFields {
            delete: Some(name(key)),
            version: *version,
            ..OperationFields::default()
        },
        HistoryOp::Scan { from, to, found } => OperationFields {
            scan: Some(name(from)),
            to: to.as_ref().map(name),
            found: Some(
                found
                    .iter()
                    .map(|(key, value)| (name(key), *value))
                    .collect(),
            ),
            ..OperationFields::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"process":0,"id":1,"start":5,"end":9,"outcome":"committed","ops":[{"read":"x","value":null},{"write":"x","value":7,"version":3},{"delete":"y"},{"scan":"a","to":"c","found":[["b",4]]}]}
{"process":1,"id":2,"start":6,"end":6,"outcome":"unknown","ops":[{"scan":"","found":[]},{"read":"x","value":7,"version":3}]}
"#;

    #[test]
    fn what_was_read_is_written_again() {
        let history = read(TEXT.as_bytes()).unwrap();
        assert_eq!(history.transactions.len(), 2);
        let mut written = Vec::new();
        write(&history, &mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), TEXT);
    }

    #[test]
    fn transactions_are_sorted_and_empty_lines_skipped() {
        let (first, second) = TEXT.trim().split_once('\n').unwrap();
        let shuffled = format!("\n{second}\n\n{first}\n");
        assert_eq!(
            read(shuffled.as_bytes()).unwrap(),
            read(TEXT.as_bytes()).unwrap()
        );
    }

    #[test]
    fn an_error_names_the_line() {
        let good = TEXT.lines().next().unwrap();
        let with_op = |op: &str| {
            format!(r#"{{"process":0,"id":3,"start":0,"end":0,"outcome":"aborted","ops":[{op}]}}"#)
        };
        for (bad, says) in [
            ("{".to_owned(), "EOF"),
            (good.replace("committed", "done"), "unknown variant `done`"),
            (
                good.replace(r#""end":9"#, r#""end":4"#),
                "ends before it starts",
            ),
            (
                good.replace(r#""end""#, r#""finish""#),
                "unknown field `finish`",
            ),
            (
                with_op(r#"{"read":"x"}"#),
                "operation 0: a read needs a value",
            ),
            (
                with_op(r#"{"write":"x","value":null}"#),
                "operation 0: a write needs a value",
            ),
            (with_op(r#"{"scan":"x"}"#), "a scan needs what it found"),
            (
                with_op(r#"{"read":"x","delete":"x","value":1}"#),
                "it is one of",
            ),
            (with_op(r#"{"delete":"x","value":1}"#), "it is one of"),
            (with_op("{}"), "it is one of"),
        ] {
            let error = read(format!("{good}\n\n{bad}\n").as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("line 3 of the history: "), "{error}");
            assert!(error.contains(says), "{error}");
        }
    }
}
