//! Replies in the form that a server writes, into a growing buffer, for both protocols.
//!
//! | reply | RESP2 | RESP3 |
//! |---|---|---|
//! | no value | `$-1` | `_` |
//! | no list (an aborted `EXEC`) | `*-1` | `_` |
//! | map of *n* pairs | `*2n` | `%n` |
//! | set | `*n` | `~n` |
//! | pushed message | `*n` | `>n` |
//! | double | bulk string | `,` |
//! | boolean | `:0` `:1` | `#f` `#t` |
//! | big number | bulk string | `(` |
//! | text with a format | bulk string | `=` |
//!
//! All other replies are the same in both.

use base::double::{format_decimal, format_double};

/// A version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// The protocol with which every client begins.
    #[default]
    Resp2,
    /// The protocol after `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// Returns 2 or 3.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Writes replies to the end of a buffer.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Writer<'a> {
    /// Creates a writer of `protocol` to the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Writer<'a> {
        Writer { out, protocol }
    }

    /// Returns the protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn is_3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// Writes a status such as `OK`, which must not contain line ends.
    pub fn status(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']), "a line end in a status");
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// Writes `OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Writes an error: its code, a blank, a text. Line ends become blanks.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// As [`Writer::error`], for a text that contains a client's bytes. Line ends at its end are
    /// dropped.
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.out.push(b'-');
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
        let text = &text[..end.map_or(0, |last| last + 1)];
        let clean = |&byte: &u8| {
            if matches!(byte, b'\r' | b'\n') {
                b' '
            } else {
                byte
            }
        };
        self.out.extend(text.iter().map(clean));
        self.end();
    }

    /// Writes an integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        match value {
            0 => self.out.extend_from_slice(b":0\r\n"),
            1 => self.out.extend_from_slice(b":1\r\n"),
            _ => {
                self.out.push(b':');
                self.out
                    .extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
                self.end();
            }
        }
    }

    /// Writes a byte string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        push_header(self.out, b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// Writes an integer as a byte string.
    pub fn bulk_int(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Writes the absence of a value.
    #[inline]
    pub fn null(&mut self) {
        self.out
            .extend_from_slice(if self.is_3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Writes the absence of a list.
    pub fn null_array(&mut self) {
        self.out
            .extend_from_slice(if self.is_3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Writes the head of a list of `len` replies, which follow.
    pub fn array(&mut self, len: usize) {
        push_header(self.out, b'*', len);
    }

    /// Writes the head of a map of `pairs` pairs; twice as many replies follow.
    pub fn map(&mut self, pairs: usize) {
        if self.is_3() {
            push_header(self.out, b'%', pairs);
        } else {
            push_header(self.out, b'*', 2 * pairs);
        }
    }

    /// Writes the head of a set of `len` replies, which follow.
    pub fn set(&mut self, len: usize) {
        push_header(self.out, if self.is_3() { b'~' } else { b'*' }, len);
    }

    /// Writes the head of a message that no request asked for, of `len` replies, which follow.
    pub fn push(&mut self, len: usize) {
        push_header(self.out, if self.is_3() { b'>' } else { b'*' }, len);
    }

    /// Writes a double, with at most 17 digits.
    pub fn double(&mut self, value: f64) {
        self.text_or_bulk(b',', format_double(value).as_bytes());
    }

    /// Writes a double without an exponent, with at most 17 digits behind the point.
    pub fn decimal(&mut self, value: f64) {
        self.text_or_bulk(b',', format_decimal(value).as_bytes());
    }

    /// Writes a boolean.
    pub fn boolean(&mut self, value: bool) {
        match (self.is_3(), value) {
            (true, true) => self.out.extend_from_slice(b"#t\r\n"),
            (true, false) => self.out.extend_from_slice(b"#f\r\n"),
            (false, _) => self.int(i64::from(value)),
        }
    }

    /// Writes a number of any size, as decimal digits.
    pub fn big_number(&mut self, digits: &str) {
        self.text_or_bulk(b'(', digits.as_bytes());
    }

    /// Writes a text whose format has a name of three letters, such as `txt`.
    pub fn verbatim(&mut self, format: &[u8; 3], text: &[u8]) {
        if !self.is_3() {
            return self.bulk(text);
        }
        push_header(self.out, b'=', text.len() + 4);
        self.out.extend_from_slice(format);
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.end();
    }

    /// Writes replies that were encoded elsewhere.
    pub fn raw(&mut self, encoded: &[u8]) {
        self.out.extend_from_slice(encoded);
    }

    fn text_or_bulk(&mut self, mark: u8, text: &[u8]) {
        if !self.is_3() {
            return self.bulk(text);
        }
        self.out.push(mark);
        self.out.extend_from_slice(text);
        self.end();
    }

    #[inline]
    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Writes a line of a mark and a length.
#[inline]
pub(crate) fn push_header(out: &mut Vec<u8>, mark: u8, len: usize) {
    if len < 10 {
        out.extend_from_slice(&[mark, b'0' + len as u8, b'\r', b'\n']);
        return;
    }
    out.push(mark);
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Writer<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_reply_in_both_protocols() {
        type Write = fn(&mut Writer<'_>);
        let table: [(Write, &str, &str); 18] = [
            (|w| w.ok(), "+OK\r\n", "+OK\r\n"),
            (|w| w.status("QUEUED"), "+QUEUED\r\n", "+QUEUED\r\n"),
            (
                |w| w.error("ERR a\r\nb\r\n"),
                "-ERR a  b\r\n",
                "-ERR a  b\r\n",
            ),
            (|w| w.int(-12), ":-12\r\n", ":-12\r\n"),
            (|w| w.int(1), ":1\r\n", ":1\r\n"),
            (|w| w.bulk(b"abc"), "$3\r\nabc\r\n", "$3\r\nabc\r\n"),
            (
                |w| w.bulk(&[b'x'; 10]),
                "$10\r\nxxxxxxxxxx\r\n",
                "$10\r\nxxxxxxxxxx\r\n",
            ),
            (|w| w.null(), "$-1\r\n", "_\r\n"),
            (|w| w.null_array(), "*-1\r\n", "_\r\n"),
            (|w| w.array(12), "*12\r\n", "*12\r\n"),
            (|w| w.map(2), "*4\r\n", "%2\r\n"),
            (|w| w.set(2), "*2\r\n", "~2\r\n"),
            (|w| w.push(2), "*2\r\n", ">2\r\n"),
            (|w| w.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (
                |w| w.double(f64::NEG_INFINITY),
                "$4\r\n-inf\r\n",
                ",-inf\r\n",
            ),
            (|w| w.boolean(true), ":1\r\n", "#t\r\n"),
            (|w| w.big_number("123"), "$3\r\n123\r\n", "(123\r\n"),
            (
                |w| w.verbatim(b"txt", b"hi"),
                "$2\r\nhi\r\n",
                "=6\r\ntxt:hi\r\n",
            ),
        ];
        for (write, two, three) in table {
            assert_eq!(written(Protocol::Resp2, write), two);
            assert_eq!(written(Protocol::Resp3, write), three);
        }
    }
}
