//! `COPY … TO STDOUT`: a table's or a query's rows as lines of text, as PostgreSQL writes them; what
//! psql's `\copy` asks for.
//!
//! | format | columns are parted by | null is | what would be mistaken |
//! |---|---|---|---|
//! | `text` | tabulators | `\N` | has a backslash before it |
//! | `csv` | commas | nothing | is in quotes |

use bytes::{Bytes, BytesMut};
use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, Statement,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pgwire::messages::data::DataRow;

use crate::serve::errors::{READ_ONLY, SqlState, UNSUPPORTED};

/// What is to be copied, and how it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Copy {
    /// The query whose rows are wanted.
    pub(crate) sql: String,
    form: Form,
    has_header: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Form {
    csv: bool,
    delimiter: char,
    null: String,
    quote: char,
    escape: char,
}

/// Why nothing is copied, and the class of that error.
pub(crate) type Refused = (SqlState, String);

/// What a statement wants copied to its client, or why that is not done; `None` if it is another statement.
pub(crate) fn copy(sql: &str) -> Option<Result<Copy, Refused>> {
    let first = sql.split_whitespace().next()?;
    if !first.eq_ignore_ascii_case("copy") {
        return None;
    }
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).ok()?;
    match &statements[..] {
        [
            Statement::Copy {
                source,
                to: true,
                target: CopyTarget::Stdout,
                options,
                legacy_options,
                ..
            },
        ] => {
            let copy = of(source, options, legacy_options);
            Some(copy.map_err(|what| (UNSUPPORTED, what)))
        }
        [Statement::Copy { to: true, .. }] => {
            let what = "files of the server's machine are not written: use COPY … TO STDOUT, or \\copy of psql";
            Some(Err((READ_ONLY, what.to_owned())))
        }
        [Statement::Copy { to: false, .. }] => {
            let what = "tables are not written by SQL: load them with `kumiki pages load`";
            Some(Err((READ_ONLY, what.to_owned())))
        }
        _ => None,
    }
}

fn of(
    source: &CopySource,
    options: &[CopyOption],
    legacy: &[CopyLegacyOption],
) -> Result<Copy, String> {
    let sql = match source {
        CopySource::Query(query) => query.to_string(),
        CopySource::Table {
            table_name,
            columns,
        } => {
            let names: Vec<String> = columns.iter().map(Ident::to_string).collect();
            let columns = match &names[..] {
                [] => "*".to_owned(),
                names => names.join(", "),
            };
            format!("SELECT {columns} FROM {table_name}")
        }
    };
    let mut wanted = Wanted::default();
    for option in options {
        wanted.option(option)?;
    }
    for option in legacy {
        wanted.legacy(option)?;
    }
    let quote = wanted.quote.unwrap_or('"');
    let form = Form {
        csv: wanted.csv,
        delimiter: wanted
            .delimiter
            .unwrap_or(if wanted.csv { ',' } else { '\t' }),
        null: wanted
            .null
            .unwrap_or_else(|| if wanted.csv { "" } else { "\\N" }.to_owned()),
        quote,
        escape: wanted.escape.unwrap_or(quote),
    };
    Ok(Copy {
        sql,
        form,
        has_header: wanted.header,
    })
}

/// Options, as far as they were given.
#[derive(Default)]
struct Wanted {
    csv: bool,
    header: bool,
    delimiter: Option<char>,
    null: Option<String>,
    quote: Option<char>,
    escape: Option<char>,
}

impl Wanted {
    fn option(&mut self, option: &CopyOption) -> Result<(), String> {
        match option {
            CopyOption::Format(name) => match name.value.to_ascii_lowercase().as_str() {
                "csv" => self.csv = true,
                "text" => self.csv = false,
                other => {
                    return Err(format!(
                        "COPY writes text or csv here, not {other}: use FORMAT csv"
                    ));
                }
            },
            CopyOption::Header(header) => self.header = *header,
            CopyOption::Delimiter(delimiter) => self.delimiter = Some(*delimiter),
            CopyOption::Null(null) => self.null = Some(null.clone()),
            CopyOption::Quote(quote) => self.quote = Some(*quote),
            CopyOption::Escape(escape) => self.escape = Some(*escape),
            CopyOption::Encoding(name) if is_utf8(name) => {}
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    fn legacy(&mut self, option: &CopyLegacyOption) -> Result<(), String> {
        match option {
            CopyLegacyOption::Csv(options) => {
                self.csv = true;
                for option in options {
                    match option {
                        CopyLegacyCsvOption::Header => self.header = true,
                        CopyLegacyCsvOption::Quote(quote) => self.quote = Some(*quote),
                        CopyLegacyCsvOption::Escape(escape) => self.escape = Some(*escape),
                        other => return Err(unknown(other)),
                    }
                }
            }
            CopyLegacyOption::Header => self.header = true,
            CopyLegacyOption::Delimiter(delimiter) => self.delimiter = Some(*delimiter),
            CopyLegacyOption::Null(null) => self.null = Some(null.clone()),
            other => return Err(unknown(other)),
        }
        Ok(())
    }
}

fn is_utf8(name: &str) -> bool {
    ["utf8", "utf-8"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

fn unknown(option: &impl std::fmt::Display) -> String {
    format!(
        "COPY does not know the option {option} here: FORMAT, HEADER, DELIMITER, NULL, QUOTE and ESCAPE \
         there are"
    )
}

impl Copy {
    /// The line of the columns' names, if it is wanted.
    pub(crate) fn header<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<Bytes> {
        let names = names.map(|name| Some(name.as_bytes()));
        self.has_header.then(|| self.form.line(names))
    }

    /// The line of a row whose values are texts.
    pub(crate) fn line(&self, row: &DataRow) -> Bytes {
        self.form.line(values(row))
    }
}

impl Form {
    fn line<'a>(&self, values: impl Iterator<Item = Option<&'a [u8]>>) -> Bytes {
        let mut line = BytesMut::new();
        for (n, value) in values.enumerate() {
            if n > 0 {
                push(&mut line, self.delimiter);
            }
            match value {
                None => line.extend_from_slice(self.null.as_bytes()),
                Some(value) if self.csv => self.quoted(&mut line, value),
                Some(value) => self.escaped(&mut line, value),
            }
        }
        line.extend_from_slice(b"\n");
        line.freeze()
    }

    fn escaped(&self, line: &mut BytesMut, value: &[u8]) {
        for &byte in value {
            let escaped = match byte {
                b'\\' => b'\\',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                8 => b'b',
                11 => b'v',
                12 => b'f',
                byte if self.delimiter == char::from(byte) && byte.is_ascii() => byte,
                byte => {
                    line.extend_from_slice(&[byte]);
                    continue;
                }
            };
            line.extend_from_slice(&[b'\\', escaped]);
        }
    }

    fn quoted(&self, line: &mut BytesMut, value: &[u8]) {
        let is = |c: char, byte: u8| c == char::from(byte) && byte.is_ascii();
        let mistaken = |&byte: &u8| {
            is(self.delimiter, byte) || is(self.quote, byte) || matches!(byte, b'\n' | b'\r')
        };
        // An empty text is told from null by its quotes.
        if value != self.null.as_bytes() && value != b"\\." && !value.iter().any(mistaken) {
            return line.extend_from_slice(value);
        }
        push(line, self.quote);
        for &byte in value {
            if is(self.quote, byte) || is(self.escape, byte) {
                push(line, self.escape);
            }
            line.extend_from_slice(&[byte]);
        }
        push(line, self.quote);
    }
}

fn push(line: &mut BytesMut, c: char) {
    line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The values of a row: each is a length, negative for null, and so many bytes.
fn values(row: &DataRow) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = &row.data[..];
    (0..row.field_count).map(move |_| {
        let (length, after) = rest.split_first_chunk::<4>().expect("a length");
        let length = usize::try_from(i32::from_be_bytes(*length));
        let (value, after) = match length {
            Ok(length) => {
                let (value, after) = after.split_at(length);
                (Some(value), after)
            }
            Err(_) => (None, after),
        };
        rest = after;
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[Option<&str>]) -> DataRow {
        let mut data = BytesMut::new();
        for value in values {
            let length = value.map_or(-1, |value| value.len() as i32);
            data.extend_from_slice(&length.to_be_bytes());
            data.extend_from_slice(value.unwrap_or_default().as_bytes());
        }
        DataRow::new(data, values.len() as i16)
    }

    fn wanted(sql: &str) -> Copy {
        copy(sql).expect("it is a copy").expect("it is understood")
    }

    #[test]
    fn tables_and_queries_are_copied() {
        assert_eq!(wanted("COPY t TO STDOUT").sql, "SELECT * FROM t");
        let named = wanted("copy pages.t (a, \"B\") to stdout csv header");
        assert_eq!(named.sql, "SELECT a, \"B\" FROM pages.t");
        assert!(named.has_header && named.form.csv);
        let query = wanted("copy (select 1 as one) to stdout with (format csv, header false)");
        assert_eq!(query.sql, "SELECT 1 AS one");
        assert!(!query.has_header);
        for other in ["select 1", "copy", ""] {
            assert_eq!(copy(other), None, "{other}");
        }
        for written in ["copy t from stdin", "copy t to '/tmp/file'"] {
            let refused = copy(written);
            assert!(
                matches!(refused, Some(Err((READ_ONLY, _)))),
                "{written}: {refused:?}"
            );
        }
        for refused in [
            "copy t to stdout (format binary)",
            "copy t to stdout (encoding 'latin1')",
            "copy t to stdout csv force quote a",
        ] {
            assert!(matches!(copy(refused), Some(Err(_))), "{refused}");
        }
    }

    #[test]
    fn lines_are_as_postgresql_writes_them() {
        let values = row(&[Some("a\tb\\c\nd"), None, Some(""), Some("x, \"y\"")]);
        let line = |sql: &str| {
            let line = wanted(sql).line(&values);
            String::from_utf8(line.to_vec()).expect("text")
        };
        assert_eq!(
            line("copy t to stdout"),
            "a\\tb\\\\c\\nd\t\\N\t\tx, \"y\"\n"
        );
        assert_eq!(
            line("copy t to stdout csv"),
            "\"a\tb\\c\nd\",,\"\",\"x, \"\"y\"\"\"\n"
        );
        assert_eq!(
            line("copy t to stdout (format csv, delimiter ';', null 'NULL')"),
            "\"a\tb\\c\nd\";NULL;;\"x, \"\"y\"\"\"\n"
        );
        let header = wanted("copy t to stdout csv header").header(["a", "b c"].into_iter());
        assert_eq!(header.as_deref(), Some(&b"a,b c\n"[..]));
    }
}
