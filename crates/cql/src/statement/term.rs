//! Terms: the places of values in a text.

use std::borrow::Cow;

use super::lexer::{LexerToken, TokenKind};
use super::name::{Name, unquoted};
use crate::bound::{Bound, BoundValues};
use crate::notation::Uuid;
use crate::types::DataType;
use crate::value::CqlValue;

/// A place for a value that comes with the request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Marker<'a> {
    /// The index of the marker in the statement, counted from zero, with or without names.
    pub index: u16,
    /// Its name, if it has one.
    pub name: Option<Name<'a>>,
}

impl Marker<'_> {
    /// Returns its value among those of a request: by name if the request has names, otherwise by
    /// index.
    #[must_use]
    pub fn value<'v>(&self, values: &BoundValues<'v>) -> Option<Bound<'v>> {
        match &self.name {
            Some(name) if values.are_named() => values.by_name(name),
            None if values.are_named() => None,
            _ => values.get(self.index.into()),
        }
    }
}

/// A value in the text.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Literal<'a> {
    /// A string without its quotes.
    Text(Cow<'a, str>),
    /// A number in its original spelling.
    Number(&'a str),
    /// A uuid.
    Uuid(Uuid),
    /// Bytes.
    Blob(Vec<u8>),
    /// `true` or `false`.
    Boolean(bool),
    /// `null`.
    Null,
}

/// The place of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Term<'a> {
    /// A marker, whose value comes with the request.
    Marker(Marker<'a>),
    /// A literal in the text.
    Literal(Literal<'a>),
}

impl<'a> Term<'a> {
    /// Returns the literal in a word.
    pub(crate) fn literal(token: &LexerToken<'a>) -> Option<Term<'a>> {
        let text = token.text;
        let literal = match token.kind {
            TokenKind::String => Literal::Text(unquoted(text, "'")),
            TokenKind::DollarString => Literal::Text(text[2..text.len() - 2].into()),
            TokenKind::Number => Literal::Number(text),
            TokenKind::Uuid => Literal::Uuid(parse_uuid(text)?),
            TokenKind::Blob => Literal::Blob(hex_bytes(&text.as_bytes()[2..])?),
            TokenKind::Word if token.is_word("true") => Literal::Boolean(true),
            TokenKind::Word if token.is_word("false") => Literal::Boolean(false),
            TokenKind::Word if token.is_word("null") => Literal::Null,
            _ => return None,
        };
        Some(Term::Literal(literal))
    }
}

impl Literal<'_> {
    /// Returns its value in a column of `data_type`; `None` if it is not a value of that type.
    #[must_use]
    pub fn to_value(&self, data_type: &DataType) -> Option<CqlValue> {
        Some(match (self, data_type) {
            (Literal::Null, _) => CqlValue::Null,
            (Literal::Text(text), DataType::Text) => CqlValue::text(text.as_ref()),
            (Literal::Text(text), DataType::Ascii) if text.is_ascii() => {
                CqlValue::text(text.as_ref())
            }
            (Literal::Text(text), DataType::Inet) => CqlValue::Inet(text.parse().ok()?),
            (Literal::Number(text), DataType::Tinyint) => CqlValue::Tinyint(text.parse().ok()?),
            (Literal::Number(text), DataType::Smallint) => CqlValue::Smallint(text.parse().ok()?),
            (Literal::Number(text), DataType::Int) => CqlValue::Int(text.parse().ok()?),
            (Literal::Number(text), DataType::Bigint | DataType::Counter) => {
                CqlValue::Bigint(text.parse().ok()?)
            }
            (Literal::Number(text), DataType::Timestamp) => CqlValue::Timestamp(text.parse().ok()?),
            (Literal::Number(text), DataType::Double) => CqlValue::Double(text.parse().ok()?),
            (Literal::Uuid(uuid), DataType::Uuid) => CqlValue::Uuid(*uuid),
            // A timeuuid is a uuid of version 1.
            (Literal::Uuid(uuid), DataType::Timeuuid) if uuid[6] >> 4 == 1 => CqlValue::Uuid(*uuid),
            (Literal::Blob(bytes), DataType::Blob) => CqlValue::Blob(bytes.clone()),
            (Literal::Boolean(truth), DataType::Boolean) => CqlValue::Boolean(*truth),
            _ => return None,
        })
    }
}

/// Parses the usual text form of a uuid.
fn parse_uuid(text: &str) -> Option<Uuid> {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    hex_bytes(&digits)?.try_into().ok()
}

fn hex_bytes(digits: &[u8]) -> Option<Vec<u8>> {
    let pairs = digits.chunks(2).map(|pair| match pair {
        &[high, low] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            Some((digit(high)? << 4 | digit(low)?) as u8)
        }
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::ValueList;
    use crate::envelope::Version;
    use crate::statement::lexer::Lexer;

    fn literal(text: &str) -> Literal<'_> {
        let token = Lexer::new(text).next().unwrap().unwrap();
        assert_eq!(token.text, text);
        match Term::literal(&token) {
            Some(Term::Literal(literal)) => literal,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn literals_become_values_of_their_columns() {
        let value = |text: &'static str, data_type| literal(text).to_value(&data_type);
        assert_eq!(
            value("'it''s'", DataType::Text),
            Some(CqlValue::text("it's"))
        );
        assert_eq!(
            value("$$it's$$", DataType::Text),
            Some(CqlValue::text("it's"))
        );
        assert_eq!(value("-7", DataType::Int), Some(CqlValue::Int(-7)));
        assert_eq!(value("-7", DataType::Bigint), Some(CqlValue::Bigint(-7)));
        assert_eq!(
            value("7", DataType::Timestamp),
            Some(CqlValue::Timestamp(7))
        );
        assert_eq!(
            value("TRUE", DataType::Boolean),
            Some(CqlValue::Boolean(true))
        );
        assert_eq!(value("null", DataType::Int), Some(CqlValue::Null));
        assert_eq!(
            value("0xCaFe", DataType::Blob),
            Some(CqlValue::Blob(vec![0xca, 0xfe]))
        );
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        let bytes: Uuid = std::array::from_fn(|i| 0x11 * i as u8);
        assert_eq!(value(uuid, DataType::Uuid), Some(CqlValue::Uuid(bytes)));
        assert_eq!(value(uuid, DataType::Timeuuid), None);
        let address = "::1".parse().unwrap();
        assert_eq!(
            value("'::1'", DataType::Inet),
            Some(CqlValue::Inet(address))
        );
    }

    #[test]
    fn what_does_not_fit_is_none() {
        let value = |text: &'static str, data_type| literal(text).to_value(&data_type);
        assert_eq!(value("'a'", DataType::Int), None);
        assert_eq!(value("7", DataType::Text), None);
        assert_eq!(value("3000000000", DataType::Int), None);
        assert_eq!(value("1.5", DataType::Int), None);
        assert_eq!(value("'é'", DataType::Ascii), None);
        let odd = Lexer::new("0xabc").next().unwrap().unwrap();
        assert_eq!(Term::literal(&odd), None);
    }

    #[test]
    fn markers_find_their_values() {
        let marker = |index, name: Option<&'static str>| Marker {
            index,
            name: name.map(Cow::from),
        };
        let mut plain = ValueList::new();
        plain.push(Bound::Bytes(b"a"));
        plain.push(Bound::Bytes(b"b"));
        let plain = plain.values(Version::V4);
        assert_eq!(marker(1, None).value(&plain), Some(Bound::Bytes(b"b")));
        assert_eq!(marker(1, Some("x")).value(&plain), Some(Bound::Bytes(b"b")));
        assert_eq!(marker(2, None).value(&plain), None);
        let mut named = ValueList::new();
        named.push_named("x", Bound::Null);
        let named = named.values(Version::V4);
        assert_eq!(marker(5, Some("x")).value(&named), Some(Bound::Null));
        assert_eq!(marker(0, None).value(&named), None);
    }
}
