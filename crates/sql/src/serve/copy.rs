//! `COPY … TO STDOUT`: a table's or a query's rows as lines of text, as PostgreSQL writes them; what
//! psql's `\copy` asks for.
//!
//! | format | columns are parted by | null is | what would be mistaken |
//! |---|---|---|---|
//! | `text` | tabulators | `\N` | has a backslash before it |
//! | `csv` | commas | nothing | is in quotes |
//! | `binary` | lengths | a length of -1 | – |

use bytes::{Bytes, BytesMut};
use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Expr, Ident,
    ObjectName, Query, SelectItem, SetExpr, Statement, TableFactor,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pgwire::messages::data::DataRow;

use crate::serve::errors::{INVALID_SETTING, READ_ONLY, SqlState, UNSUPPORTED};

/// What is to be copied, and how it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Copy {
    /// The query whose rows are wanted, as it was read: written out as a text and read again it might be
    /// another one.
    pub(crate) query: Box<Query>,
    form: Form,
    has_header: bool,
    /// Values are written as the protocol's binary ones, and not as lines of text.
    pub(crate) is_binary: bool,
}

/// What binary copies begin with: a signature, flags, and the length of an extension.
const BINARY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What they end with: a row of -1 columns.
const BINARY_TRAILER: &[u8] = b"\xff\xff";

#[derive(Clone, PartialEq, Eq, Debug)]
struct Form {
    csv: bool,
    delimiter: u8,
    null: String,
    quote: u8,
    escape: u8,
}

/// Why nothing is copied, and the class of that error.
pub(crate) type CopyRefusal = (SqlState, String);

/// Returns the copy that a statement asks for, or the reason of its refusal; `None` if it is another statement.
pub(crate) fn copy(sql: &str) -> Option<Result<Copy, CopyRefusal>> {
    let first = sql.trim_start().split(|c: char| !c.is_alphanumeric());
    if !first.into_iter().next()?.eq_ignore_ascii_case("copy") {
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
        ] => Some(of(source, options, legacy_options)),
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
) -> Result<Copy, CopyRefusal> {
    let query = match source {
        CopySource::Query(query) => query.clone(),
        CopySource::Table {
            table_name,
            columns,
        } => Box::new(all_of(table_name, columns)),
    };
    let mut settings = CopySettings::default();
    for option in options {
        settings.option(option)?;
    }
    for option in legacy {
        settings.legacy(option)?;
    }
    Ok(Copy {
        query,
        has_header: settings.header,
        is_binary: settings.binary,
        form: settings.form()?,
    })
}

/// Returns the query for columns of a table; for all, if none is named.
fn all_of(table: &ObjectName, columns: &[Ident]) -> Query {
    let shape = "SELECT * FROM t";
    let read = Parser::new(&PostgreSqlDialect {}).try_with_sql(shape);
    let read = read.and_then(|mut parser| parser.parse_query());
    let mut query = *read.expect("it is a query");
    if let SetExpr::Select(select) = query.body.as_mut() {
        if let TableFactor::Table { name, .. } = &mut select.from[0].relation {
            *name = table.clone();
        }
        if !columns.is_empty() {
            let columns = columns.iter().cloned();
            let columns = columns.map(|name| SelectItem::UnnamedExpr(Expr::Identifier(name)));
            select.projection = columns.collect();
        }
    }
    query
}

/// Options, as far as they were given.
#[derive(Default)]
struct CopySettings {
    csv: bool,
    binary: bool,
    header: bool,
    delimiter: Option<char>,
    null: Option<String>,
    quote: Option<char>,
    escape: Option<char>,
}

impl CopySettings {
    fn option(&mut self, option: &CopyOption) -> Result<(), CopyRefusal> {
        match option {
            CopyOption::Format(name) => match name.value.to_ascii_lowercase().as_str() {
                "csv" => self.csv = true,
                "text" => self.csv = false,
                "binary" => self.binary = true,
                other => {
                    let what = format!(
                        "COPY writes text, csv or binary here, not {other}: use FORMAT csv"
                    );
                    return Err((UNSUPPORTED, what));
                }
            },
            CopyOption::Header(header) => self.header = *header,
            CopyOption::Delimiter(delimiter) => self.delimiter = Some(*delimiter),
            CopyOption::Null(null) => self.null = Some(null.clone()),
            CopyOption::Quote(quote) => self.quote = Some(*quote),
            CopyOption::Escape(escape) => self.escape = Some(*escape),
            CopyOption::Encoding(name) if is_utf8(name) => {}
            other => return Err((UNSUPPORTED, unknown(other))),
        }
        Ok(())
    }

    fn legacy(&mut self, option: &CopyLegacyOption) -> Result<(), CopyRefusal> {
        match option {
            CopyLegacyOption::Csv(options) => {
                self.csv = true;
                for option in options {
                    match option {
                        CopyLegacyCsvOption::Header => self.header = true,
                        CopyLegacyCsvOption::Quote(quote) => self.quote = Some(*quote),
                        CopyLegacyCsvOption::Escape(escape) => self.escape = Some(*escape),
                        other => return Err((UNSUPPORTED, unknown(other))),
                    }
                }
            }
            CopyLegacyOption::Binary => self.binary = true,
            CopyLegacyOption::Header => self.header = true,
            CopyLegacyOption::Delimiter(delimiter) => self.delimiter = Some(*delimiter),
            CopyLegacyOption::Null(null) => self.null = Some(null.clone()),
            other => return Err((UNSUPPORTED, unknown(other))),
        }
        Ok(())
    }

    /// Returns the form, if what is written in it can be read again.
    fn form(self) -> Result<Form, CopyRefusal> {
        let invalid = |what: &str| (INVALID_SETTING, what.to_owned());
        let csv = self.csv;
        let is_text = self.delimiter.is_some() || self.null.is_some() || self.header;
        if self.binary && is_text {
            return Err(invalid(
                "COPY DELIMITER, NULL and HEADER are not for BINARY mode",
            ));
        }
        let byte = |name: &str, given: Option<char>, otherwise: u8| match given.map(u8::try_from) {
            None => Ok(otherwise),
            Some(Ok(byte)) if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(byte),
            Some(_) => Err(invalid(&format!(
                "COPY {name} must be a single one-byte character, and no end of a line"
            ))),
        };
        if !csv && (self.quote.is_some() || self.escape.is_some()) {
            return Err(invalid(
                "COPY QUOTE and ESCAPE require CSV mode: add FORMAT csv",
            ));
        }
        let quote = byte("quote", self.quote, b'"')?;
        let form = Form {
            csv,
            delimiter: byte("delimiter", self.delimiter, if csv { b',' } else { b'\t' })?,
            null: self
                .null
                .unwrap_or_else(|| if csv { "" } else { "\\N" }.to_owned()),
            quote,
            escape: byte("escape", self.escape, quote)?,
        };
        let delimiter = form.delimiter;
        let in_null = |byte: u8| form.null.as_bytes().contains(&byte);
        if !csv && matches!(delimiter, b'a'..=b'z' | b'0'..=b'9' | b'\\' | b'.') {
            let delimiter = char::from(delimiter);
            return Err(invalid(&format!(
                "COPY delimiter cannot be \"{delimiter}\" in text format"
            )));
        }
        if csv && delimiter == form.quote {
            return Err(invalid("COPY delimiter and quote must be different"));
        }
        if in_null(b'\n') || in_null(b'\r') {
            return Err(invalid("COPY null must not have an end of a line"));
        }
        if in_null(delimiter) || csv && in_null(form.quote) {
            return Err(invalid(
                "COPY null must have neither the delimiter nor the quote",
            ));
        }
        Ok(form)
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
    /// Returns the bytes before the rows: the line of the columns' names, if it is wanted.
    pub(crate) fn header<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<Bytes> {
        if self.is_binary {
            return Some(Bytes::from_static(BINARY_HEADER));
        }
        let names = names.map(|name| Some(name.as_bytes()));
        self.has_header.then(|| self.form.line(names))
    }

    /// Returns a row, whose values are texts or, for a binary copy, binary.
    pub(crate) fn line(&self, row: &DataRow) -> Bytes {
        if self.is_binary {
            return [&row.field_count.to_be_bytes()[..], &row.data]
                .concat()
                .into();
        }
        self.form.line(values(row))
    }

    /// Returns the bytes behind the rows.
    pub(crate) fn trailer(&self) -> Option<Bytes> {
        self.is_binary.then(|| Bytes::from_static(BINARY_TRAILER))
    }
}

impl Form {
    fn line<'a>(&self, values: impl Iterator<Item = Option<&'a [u8]>>) -> Bytes {
        let mut line = BytesMut::new();
        for (n, value) in values.enumerate() {
            if n > 0 {
                line.extend_from_slice(&[self.delimiter]);
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
                byte if byte == self.delimiter => byte,
                byte => {
                    line.extend_from_slice(&[byte]);
                    continue;
                }
            };
            line.extend_from_slice(&[b'\\', escaped]);
        }
    }

    fn quoted(&self, line: &mut BytesMut, value: &[u8]) {
        let mistaken = |byte: &u8| [self.delimiter, self.quote, b'\n', b'\r'].contains(byte);
        // An empty text is told from null by its quotes.
        if value != self.null.as_bytes() && value != b"\\." && !value.iter().any(mistaken) {
            return line.extend_from_slice(value);
        }
        line.extend_from_slice(&[self.quote]);
        for &byte in value {
            if byte == self.quote || byte == self.escape {
                line.extend_from_slice(&[self.escape]);
            }
            line.extend_from_slice(&[byte]);
        }
        line.extend_from_slice(&[self.quote]);
    }
}

/// Returns the values of a row: each is a length, negative for null, and so many bytes.
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

    fn settings(sql: &str) -> Copy {
        copy(sql).expect("it is a copy").expect("it is understood")
    }

    #[test]
    fn tables_and_queries_are_copied() {
        let text = |copy: &Copy| copy.query.to_string();
        assert_eq!(text(&settings("COPY t TO STDOUT")), "SELECT * FROM t");
        let named = settings("copy pages.t (a, \"B\") to stdout csv header");
        assert_eq!(text(&named), "SELECT a, \"B\" FROM pages.t");
        assert!(named.has_header && named.form.csv);
        let query = settings("copy(select 1 as one) to stdout with (format csv, header false)");
        assert_eq!(text(&query), "SELECT 1 AS one");
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
            "copy t to stdout (encoding 'latin1')",
            "copy t to stdout csv force quote a",
        ] {
            assert!(matches!(copy(refused), Some(Err(_))), "{refused}");
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_refused() {
        for refused in [
            "copy t to stdout (delimiter 'n')",
            "copy t to stdout (delimiter '\\')",
            "copy t to stdout (format csv, quote ',')",
            "copy t to stdout (format csv, null 'a,b')",
            "copy t to stdout (format csv, null '\"')",
            "copy t to stdout (null '\t')",
            "copy t to stdout (quote '|')",
        ] {
            let answered = copy(refused);
            let told = matches!(answered, Some(Err((INVALID_SETTING, _))));
            assert!(told, "{refused}: {answered:?}");
        }
        for taken in [
            "copy t to stdout (delimiter '|', null '')",
            "copy t to stdout (format csv, delimiter 'x', quote '|', escape '\\')",
        ] {
            assert!(matches!(copy(taken), Some(Ok(_))), "{taken}");
        }
    }

    #[test]
    fn lines_are_as_postgresql_writes_them() {
        let values = row(&[Some("a\tb\\c\nd"), None, Some(""), Some("x, \"y\"")]);
        let line = |sql: &str| {
            let line = settings(sql).line(&values);
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
        let header = settings("copy t to stdout csv header").header(["a", "b c"].into_iter());
        assert_eq!(header.as_deref(), Some(&b"a,b c\n"[..]));
    }
}
