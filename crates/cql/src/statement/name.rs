//! Names of tables, columns and keyspaces.

use std::borrow::Cow;
use std::fmt;

use super::lexer::{LexerToken, TokenKind};

/// A name as CQL interprets it: in lower case, unless it was quoted.
pub type Name<'a> = Cow<'a, str>;

/// A table, with its keyspace if the text has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TableName<'a> {
    /// The keyspace; `None` is that of the connection or the request.
    pub keyspace: Option<Name<'a>>,
    /// The table.
    pub table: Name<'a>,
}

impl TableName<'_> {
    /// Returns `true` if it is this table, when names without a keyspace are of `current`.
    #[must_use]
    pub fn is(&self, keyspace: &str, table: &str, current: Option<&str>) -> bool {
        self.keyspace.as_deref().or(current) == Some(keyspace) && self.table == table
    }
}

impl fmt::Display for TableName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keyspace {
            Some(keyspace) => write!(f, "{keyspace}.{}", self.table),
            None => self.table.fmt(f),
        }
    }
}

/// The keywords that the parsers here look for and that CQL reserves: without quotes they are never
/// names.
const RESERVED: [&str; 18] = [
    "ALLOW",
    "AND",
    "APPLY",
    "BATCH",
    "BEGIN",
    "COLUMNFAMILY",
    "DELETE",
    "FROM",
    "IF",
    "INSERT",
    "INTO",
    "LIMIT",
    "SELECT",
    "SET",
    "TABLE",
    "UPDATE",
    "USING",
    "WHERE",
];

/// Returns the name in a word or a quoted name. `None`: it is a reserved keyword, or no word.
pub(crate) fn name<'a>(token: &LexerToken<'a>) -> Option<Name<'a>> {
    match token.kind {
        TokenKind::Word if RESERVED.iter().any(|word| token.is_word(word)) => None,
        TokenKind::Word if token.text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            Some(token.text.to_ascii_lowercase().into())
        }
        TokenKind::Word => Some(token.text.into()),
        TokenKind::QuotedName => Some(unquoted(token.text, "\"")),
        _ => None,
    }
}

/// Returns the text between quotes, with doubled quotes replaced by single ones.
pub(crate) fn unquoted<'a>(text: &'a str, quote: &str) -> Cow<'a, str> {
    let inner = &text[1..text.len() - 1];
    if inner.contains(quote) {
        inner.replace(&quote.repeat(2), quote).into()
    } else {
        inner.into()
    }
}
