//! The words of a text of CQL.
//!
//! | kind | what |
//! |---|---|
//! | word | a letter, then letters, digits and `_`: keywords and names, in any case |
//! | quoted name | `"…"`; `""` in it is one quote |
//! | string | `'…'`; `''` in it is one quote; or `$$…$$` |
//! | number | digits with sign, point and exponent |
//! | uuid | 8-4-4-4-12 hexadecimal digits |
//! | blob | `0x` and hexadecimal digits |
//! | symbol | any other character, by itself; a marker `?` among them |
//!
//! Blanks and comments (`-- …`, `// …`, `/* … */`) separate words and have no other meaning.
//!
//! Invariants:
//! 1. Words are slices of the text, in its order, and never empty.
//! 2. The number of steps is proportional to the bytes of the text, for any text.

use super::syntax_error::SyntaxError;

/// The kind of a word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // The table above says it.
pub enum TokenKind {
    Word,
    QuotedName,
    String,
    DollarString,
    Number,
    Uuid,
    Blob,
    Symbol,
}

/// A word of a text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LexerToken<'a> {
    /// Its kind.
    pub kind: TokenKind,
    /// Its text, quotes included.
    pub text: &'a str,
    /// Its place, in bytes.
    pub at: usize,
}

impl LexerToken<'_> {
    /// Returns `true` if it is this word, in any case. A quoted name is not.
    #[must_use]
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// Returns `true` if it is this character by itself.
    #[must_use]
    pub fn is_symbol(&self, symbol: char) -> bool {
        self.kind == TokenKind::Symbol && self.text.chars().eq([symbol])
    }
}

/// Finds the words of a text one after the other.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    /// Creates a lexer at the start of `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    /// Returns the next word, or `None` at the end.
    ///
    /// # Errors
    /// A comment, a string or a name has no end.
    #[allow(clippy::should_implement_trait)] // An iterator that can fail reads worse.
    pub fn next(&mut self) -> Result<Option<LexerToken<'a>>, SyntaxError> {
        self.skip_blanks()?;
        let at = self.at;
        let rest = &self.text.as_bytes()[at..];
        let Some(&first) = rest.first() else {
            return Ok(None);
        };
        let (kind, len) = match first {
            b'\'' => (TokenKind::String, self.quoted(b'\'', "a string")?),
            b'"' => (TokenKind::QuotedName, self.quoted(b'"', "a quoted name")?),
            b'$' if rest.starts_with(b"$$") => (TokenKind::DollarString, self.dollar_string()?),
            _ => match uuid_len(rest) {
                Some(len) => (TokenKind::Uuid, len),
                None => other(rest, self.text, at),
            },
        };
        self.at += len;
        let text = &self.text[at..self.at];
        Ok(Some(LexerToken { kind, text, at }))
    }

    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let len = match rest {
                [b' ' | b'\t' | b'\n' | b'\r', ..] => 1,
                [b'-', b'-', ..] | [b'/', b'/', ..] => {
                    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    end.unwrap_or(rest.len())
                }
                [b'/', b'*', ..] => match find(&rest[2..], b"*/") {
                    Some(end) => 2 + end + 2,
                    None => return Err(self.unended("a comment")),
                },
                _ => return Ok(()),
            };
            self.at += len;
        }
    }

    /// Returns the length of a quoted text, with its quotes.
    fn quoted(&self, quote: u8, what: &'static str) -> Result<usize, SyntaxError> {
        let rest = &self.text.as_bytes()[self.at..];
        let mut len = 1;
        while let Some(end) = rest[len..].iter().position(|&byte| byte == quote) {
            len += end + 1;
            if rest.get(len) != Some(&quote) {
                return Ok(len);
            }
            len += 1;
        }
        Err(self.unended(what))
    }

    fn dollar_string(&self) -> Result<usize, SyntaxError> {
        let rest = &self.text.as_bytes()[self.at..];
        let end = find(&rest[2..], b"$$").ok_or_else(|| self.unended("a string"))?;
        Ok(2 + end + 2)
    }

    fn unended(&self, what: &'static str) -> SyntaxError {
        SyntaxError {
            at: self.at,
            found: String::new(),
            expected: match what {
                "a string" => "the end of a string",
                "a comment" => "the end of a comment",
                _ => "the end of a quoted name",
            },
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Returns the length of the uuid that `rest` starts with.
fn uuid_len(rest: &[u8]) -> Option<usize> {
    const LEN: usize = 36;
    let uuid = rest.get(..LEN)?;
    let right = uuid.iter().enumerate().all(|(i, byte)| match i {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    let ends = !rest.get(LEN).is_some_and(|&byte| is_word_byte(byte));
    (right && ends).then_some(LEN)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the kind and the length of a word, a number, a blob or a symbol.
fn other(rest: &[u8], text: &str, at: usize) -> (TokenKind, usize) {
    let count =
        |from: usize, is: fn(&u8) -> bool| rest[from..].iter().take_while(|b| is(b)).count();
    match rest {
        [b'0', b'x' | b'X', ..] => (TokenKind::Blob, 2 + count(2, u8::is_ascii_hexdigit)),
        [b'0'..=b'9', ..] => (TokenKind::Number, number_len(rest)),
        [b'-', b'0'..=b'9', ..] => (TokenKind::Number, 1 + number_len(&rest[1..])),
        [first, ..] if first.is_ascii_alphabetic() || *first == b'_' => {
            (TokenKind::Word, count(0, |&byte| is_word_byte(byte)))
        }
        _ => {
            let first = text[at..].chars().next();
            (TokenKind::Symbol, first.map_or(1, char::len_utf8))
        }
    }
}

/// Returns the length of digits, of a fraction, of an exponent.
fn number_len(rest: &[u8]) -> usize {
    let digits = |from: usize| {
        let rest = rest.get(from..).unwrap_or(&[]);
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let mut len = digits(0);
    if rest.get(len) == Some(&b'.') {
        len += 1 + digits(len + 1);
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(TokenKind, &str)> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        while let Some(token) = lexer.next().unwrap() {
            assert_eq!(&text[token.at..token.at + token.text.len()], token.text);
            tokens.push((token.kind, token.text));
        }
        tokens
    }

    #[test]
    fn words_are_told_apart() {
        use TokenKind as K;
        let text = "INSERT\tinto Ks.\"T\"\"a\" VALUES('it''s', $$a'b$$, -1.5e-3, 0xCAFE, ?, :n);";
        assert_eq!(
            tokens(text),
            [
                (K::Word, "INSERT"),
                (K::Word, "into"),
                (K::Word, "Ks"),
                (K::Symbol, "."),
                (K::QuotedName, "\"T\"\"a\""),
                (K::Word, "VALUES"),
                (K::Symbol, "("),
                (K::String, "'it''s'"),
                (K::Symbol, ","),
                (K::DollarString, "$$a'b$$"),
                (K::Symbol, ","),
                (K::Number, "-1.5e-3"),
                (K::Symbol, ","),
                (K::Blob, "0xCAFE"),
                (K::Symbol, ","),
                (K::Symbol, "?"),
                (K::Symbol, ","),
                (K::Symbol, ":"),
                (K::Word, "n"),
                (K::Symbol, ")"),
                (K::Symbol, ";"),
            ]
        );
    }

    #[test]
    fn comments_are_no_words() {
        let text = "a -- b ' \n/* c */ d // e\n/**/f--";
        let words: Vec<_> = tokens(text).into_iter().map(|(_, text)| text).collect();
        assert_eq!(words, ["a", "d", "f"]);
    }

    #[test]
    fn a_uuid_is_one_word_even_if_it_looks_like_others() {
        let number = "12345678-1234-1234-1234-123456789012";
        let word = "abcdefab-1234-1234-1234-123456789012";
        assert_eq!(tokens(number), [(TokenKind::Uuid, number)]);
        assert_eq!(tokens(word), [(TokenKind::Uuid, word)]);
        assert_eq!(tokens("12345678-1234").len(), 2);
    }

    #[test]
    fn what_is_not_ended_is_refused() {
        for (text, expected) in [
            ("a 'b", "the end of a string"),
            ("a 'b''", "the end of a string"),
            ("$$ $", "the end of a string"),
            ("\"b", "the end of a quoted name"),
            ("/* *", "the end of a comment"),
            ("/*/", "the end of a comment"),
        ] {
            let mut lexer = Lexer::new(text);
            let error = loop {
                match lexer.next() {
                    Ok(token) => assert!(token.is_some(), "{text} ends"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.expected, expected, "{text}");
        }
    }

    #[test]
    fn any_character_is_a_symbol() {
        let kinds: Vec<_> = tokens("é€\u{0}%$")
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        assert_eq!(kinds, [TokenKind::Symbol; 5]);
    }
}
