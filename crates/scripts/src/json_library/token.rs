//! The tokens of JSON.

use crate::number::read_number;

/// A token.
#[derive(Debug)]
pub(super) enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// The scanner has the text.
    String,
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    /// There is no token, for this reason.
    Wrong(&'static str),
}

impl Token {
    /// Returns the name that messages use.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Wrong(reason) => reason,
        }
    }
}

/// Divides a text into tokens.
pub(super) struct Scanner {
    text: Vec<u8>,
    /// The place behind the last token.
    pub(super) at: usize,
    /// The place of the last token, or of its fault.
    pub(super) start: usize,
    /// The text of the last string.
    pub(super) string: Vec<u8>,
    /// Numbers that JSON does not have are accepted.
    accepts_invalid: bool,
}

impl Scanner {
    pub(super) fn new(text: Vec<u8>, accepts_invalid: bool) -> Scanner {
        Scanner {
            text,
            at: 0,
            start: 0,
            string: Vec::new(),
            accepts_invalid,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    /// Returns the next token.
    pub(super) fn next(&mut self) -> Token {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.start = self.at;
        let byte = self.byte(self.at);
        let token = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.next_string(),
            0 if self.at >= self.text.len() => return Token::End,
            b'-' | b'0'..=b'9' => return self.next_number(),
            _ => return self.next_word(),
        };
        self.at += 1;
        token
    }

    fn next_number(&mut self) -> Token {
        if !self.accepts_invalid && self.is_invalid_number() {
            return Token::Wrong("invalid number");
        }
        match read_number(&self.text[self.at..]) {
            Some((number, len)) => {
                self.at += len;
                Token::Number(number)
            }
            None => Token::Wrong("invalid number"),
        }
    }

    fn next_word(&mut self) -> Token {
        for (word, token) in [
            ("true", Token::Boolean(true)),
            ("false", Token::Boolean(false)),
            ("null", Token::Null),
        ] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        if self.accepts_invalid && self.is_invalid_number() {
            return self.next_number();
        }
        Token::Wrong("invalid token")
    }

    /// Returns `true` if a number begins here that JSON does not have.
    fn is_invalid_number(&self) -> bool {
        if self.byte(self.at) == b'+' {
            return true;
        }
        let at = self.at + usize::from(self.byte(self.at) == b'-');
        if self.byte(at) == b'0' {
            return matches!(self.byte(at + 1), b'x' | b'X' | b'0'..=b'9');
        }
        let word = self.text.get(at..at + 3).unwrap_or_default();
        word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
    }

    fn next_string(&mut self) -> Token {
        self.at += 1;
        self.string.clear();
        loop {
            let place = self.at;
            let byte = self.byte(place);
            self.at += 1;
            let result = match byte {
                b'"' => return Token::String,
                0 => Err("unexpected end of string"),
                b'\\' => self.escape(),
                _ => {
                    self.string.push(byte);
                    Ok(())
                }
            };
            if let Err(reason) = result {
                self.start = place;
                return Token::Wrong(reason);
            }
        }
    }

    /// Reads what stands behind a backslash.
    fn escape(&mut self) -> Result<(), &'static str> {
        let byte = match self.byte(self.at) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b't' => 9,
            b'n' => 10,
            b'f' => 12,
            b'r' => 13,
            b'u' => return self.unicode().ok_or("invalid unicode escape code"),
            _ => return Err("invalid escape code"),
        };
        self.at += 1;
        self.string.push(byte);
        Ok(())
    }

    /// Reads `u` and four hexadecimal digits, and the second half of a pair.
    fn unicode(&mut self) -> Option<()> {
        let mut code = self.code_unit(self.at + 1)?;
        self.at += 5;
        if (0xd800..0xdc00).contains(&code) {
            let is_escape = self.text.get(self.at..self.at + 2) == Some(b"\\u");
            let low = is_escape.then(|| self.code_unit(self.at + 2)).flatten()?;
            let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            code = 0x10000 + ((code - 0xd800) << 10) + low;
            self.at += 6;
        }
        let character = char::from_u32(code)?;
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        self.string.extend_from_slice(bytes);
        Some(())
    }

    fn code_unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        let mut code = 0;
        for &digit in digits {
            code = code << 4 | char::from(digit).to_digit(16)?;
        }
        Some(code)
    }
}
