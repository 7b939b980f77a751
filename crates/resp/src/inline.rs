//! Inline requests: a line of words, split as Redis splits them.
//!
//! Words are separated by blanks. `"…"` knows the escapes `\n \r \t \b \a \xHH` and takes any
//! other character behind a backslash as it is; `'…'` knows only `\'`. A closing quote ends the
//! word: a blank or the end of the line must follow.
//!
//! Invariant: a word never takes more bytes than its source, so words are unescaped in place,
//! within the line, and never written past the bytes that have been read.

use crate::args::Span;

/// The line has a quote without its partner, or a letter right behind a closing quote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unbalanced;

/// Splits `line` into words, and pushes their places within `line` on `spans`. The line's bytes are
/// overwritten with the unescaped words.
pub(crate) fn split(line: &mut [u8], spans: &mut Vec<Span>) -> Result<(), Unbalanced> {
    let mut cursor = Cursor {
        line,
        read: 0,
        write: 0,
    };
    loop {
        while cursor.peek().is_some_and(is_space) {
            cursor.read += 1;
        }
        if cursor.peek().is_none() {
            return Ok(());
        }
        let start = cursor.write;
        cursor.word()?;
        spans.push(Span::new(start, cursor.write - start));
    }
}

/// Returns the words of a line, as those of an inline request. `None`: a quote lacks its partner, or a letter
/// follows a closing quote.
#[must_use]
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut line, mut spans) = (line.to_vec(), Vec::new());
    split(&mut line, &mut spans).ok()?;
    let words = spans.iter().map(|span| line[span.range()].to_vec());
    Some(words.collect())
}

struct Cursor<'a> {
    line: &'a mut [u8],
    read: usize,
    write: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.read).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.read += 1;
        Some(byte)
    }

    fn put(&mut self, byte: u8) {
        debug_assert!(self.write < self.read, "a word outgrew its source");
        self.line[self.write] = byte;
        self.write += 1;
    }

    fn word(&mut self) -> Result<(), Unbalanced> {
        while let Some(byte) = self.take() {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' | 0 => return Ok(()),
                b'"' => return self.double_quoted(),
                b'\'' => return self.single_quoted(),
                _ => self.put(byte),
            }
        }
        Ok(())
    }

    fn double_quoted(&mut self) -> Result<(), Unbalanced> {
        loop {
            match self.take().ok_or(Unbalanced)? {
                b'"' => return self.closed(),
                b'\\' if self.peek().is_some() => {
                    let byte = self.escape();
                    self.put(byte);
                }
                byte => self.put(byte),
            }
        }
    }

    /// Returns the character behind a backslash.
    fn escape(&mut self) -> u8 {
        if let [b'x', high, low, ..] = self.line[self.read..]
            && let (Some(high), Some(low)) = (hex(high), hex(low))
        {
            self.read += 3;
            return high << 4 | low;
        }
        match self.take() {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'b') => 8,
            Some(b'a') => 7,
            Some(other) => other,
            None => b'\\',
        }
    }

    fn single_quoted(&mut self) -> Result<(), Unbalanced> {
        loop {
            match self.take().ok_or(Unbalanced)? {
                b'\\' if self.peek() == Some(b'\'') => {
                    self.read += 1;
                    self.put(b'\'');
                }
                b'\'' => return self.closed(),
                byte => self.put(byte),
            }
        }
    }

    fn closed(&self) -> Result<(), Unbalanced> {
        if self.peek().is_none_or(is_space) {
            Ok(())
        } else {
            Err(Unbalanced)
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<Vec<u8>>> {
        split_words(line.as_bytes())
    }

    #[test]
    fn words_and_quotes() {
        for (line, expected) in [
            ("", vec![]),
            ("  \t ", vec![]),
            ("get a", vec!["get", "a"]),
            ("  set  a\tb ", vec!["set", "a", "b"]),
            (r#"set "a b" 'c d'"#, vec!["set", "a b", "c d"]),
            (r#""" '' x"#, vec!["", "", "x"]),
            (r#"pre"fix" b"#, vec!["prefix", "b"]),
            (r#""\n\r\t\b\a\\\"\q""#, vec!["\n\r\t\u{8}\u{7}\\\"q"]),
            (r#""\x41\x4a\xzz""#, vec!["AJxzz"]),
            (r"'it\'s \n'", vec![r"it's \n"]),
        ] {
            let expected: Vec<Vec<u8>> = expected.iter().map(|w| w.as_bytes().to_vec()).collect();
            assert_eq!(words(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn quotes_must_balance() {
        for line in [
            r#"get "a"#,
            r#"get 'a"#,
            r#"get "a"b"#,
            r#"get 'a'b"#,
            r#""\"#,
            r#""abc\""#,
        ] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
