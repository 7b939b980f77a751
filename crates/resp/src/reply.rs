//! Replies in the form that a client reads, in both protocols.
//!
//! Reading has two steps, so that a reply that arrives in many pieces is looked at once:
//! [`ReplyParser`] finds the end of a reply, keeping its place; [`Value::decode`] then builds the
//! value from the whole reply.
//!
//! Invariants:
//! 1. As for requests: after "not yet" the same input is given again with more behind it.
//! 2. Nesting is bounded by [`MAX_DEPTH`], and nothing is allocated for a length that has only
//!    been announced.

use base::number::parse_int;

/// The deepest nesting of replies.
pub const MAX_DEPTH: usize = 128;
/// The longest byte string in a reply, and the most elements of one collection.
const MAX_LEN: i64 = 1 << 32;

/// A reply.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // The names are those of the protocol.
pub enum Value {
    Status(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Double(f64),
    Boolean(bool),
    BigNumber(Vec<u8>),
    Verbatim { format: [u8; 3], text: Vec<u8> },
}

/// The bytes are not a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadReply {
    /// The place in the reply.
    pub at: usize,
    /// The fault at that place.
    pub what: &'static str,
}

impl std::fmt::Display for BadReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not a RESP reply: {} at byte {}", self.what, self.at)
    }
}

impl std::error::Error for BadReply {}

/// Finds where replies end.
#[derive(Debug, Default)]
pub struct ReplyParser {
    /// The number of bytes of the reply that are scanned.
    at: usize,
    /// The number of bytes that were searched in vain for the end of the current line.
    searched: usize,
    /// For each open collection the number of missing elements, the outermost first.
    open: Vec<u64>,
}

/// The contents of the line at the start of an element.
enum Head {
    /// The element is this line.
    Line,
    /// A byte string of this length follows.
    Bytes(usize),
    /// So many elements follow.
    Elements(u64),
    /// Elements follow that belong to the next one, which is not counted.
    Attributes(u64),
}

impl ReplyParser {
    /// Creates a parser at the start of a reply.
    #[must_use]
    pub fn new() -> ReplyParser {
        ReplyParser::default()
    }

    /// Returns the end of the reply at the start of `input`, or `None` when more input is needed.
    ///
    /// # Errors
    /// The input is not RESP.
    pub fn parse(&mut self, input: &[u8]) -> Result<Option<usize>, BadReply> {
        loop {
            let Some(end) = self.line(input) else {
                return Ok(None);
            };
            match head(input, self.at, end)? {
                Head::Line => self.at = end,
                Head::Bytes(len) => {
                    if input.len() < end + len + 2 {
                        // The line is short: it is read again, the bytes behind it are not.
                        return Ok(None);
                    }
                    self.at = end + len + 2;
                }
                Head::Elements(0) => self.at = end,
                Head::Elements(count) => {
                    self.enter(count)?;
                    self.at = end;
                    self.searched = 0;
                    continue;
                }
                Head::Attributes(count) => {
                    self.enter(count + 1)?;
                    self.at = end;
                    self.searched = 0;
                    continue;
                }
            }
            self.searched = 0;
            if self.leave() {
                return Ok(Some(std::mem::take(&mut self.at)));
            }
        }
    }

    /// Returns the end of the line at the current place, its line end included.
    fn line(&mut self, input: &[u8]) -> Option<usize> {
        let from = self.searched.max(self.at);
        match input.get(from..)?.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                self.searched = from + end;
                Some(from + end + 1)
            }
            None => {
                self.searched = input.len();
                None
            }
        }
    }

    fn enter(&mut self, count: u64) -> Result<(), BadReply> {
        if self.open.len() >= MAX_DEPTH {
            return Err(BadReply {
                at: self.at,
                what: "nested too deep",
            });
        }
        self.open.push(count);
        Ok(())
    }

    /// Counts an element. Returns `true` if it was the last one of the reply.
    fn leave(&mut self) -> bool {
        while let Some(last) = self.open.last_mut() {
            *last -= 1;
            if *last > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

/// Parses the line `input[at..end]`.
fn head(input: &[u8], at: usize, end: usize) -> Result<Head, BadReply> {
    let bad = |what| Err(BadReply { at, what });
    let [mark, text @ .., b'\r', b'\n'] = &input[at..end] else {
        return bad("a line without its end");
    };
    if matches!(mark, b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(') {
        return Ok(Head::Line);
    }
    let Some(len) = parse_int(text).filter(|len| (-1..=MAX_LEN).contains(len)) else {
        return bad("a length that is none");
    };
    match (mark, u64::try_from(len)) {
        (b'$' | b'*', Err(_)) => Ok(Head::Line),
        (b'$' | b'=', Ok(len)) => Ok(Head::Bytes(len as usize)),
        (b'*' | b'~' | b'>', Ok(len)) => Ok(Head::Elements(len)),
        (b'%', Ok(len)) => Ok(Head::Elements(2 * len)),
        (b'|', Ok(len)) => Ok(Head::Attributes(2 * len)),
        _ => bad("an unknown type"),
    }
}

impl Value {
    /// Decodes a whole reply, as [`ReplyParser::parse`] finds it. Attributes are dropped.
    ///
    /// # Errors
    /// The bytes are not exactly one reply.
    pub fn decode(reply: &[u8]) -> Result<Value, BadReply> {
        let mut decoder = Decoder {
            input: reply,
            at: 0,
        };
        let value = decoder.value(0)?;
        if decoder.at < reply.len() {
            decoder.bad("bytes behind the reply")
        } else {
            Ok(value)
        }
    }
}

struct Decoder<'a> {
    input: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn bad<T>(&self, what: &'static str) -> Result<T, BadReply> {
        Err(BadReply { at: self.at, what })
    }

    fn value(&mut self, depth: usize) -> Result<Value, BadReply> {
        if depth > MAX_DEPTH {
            return self.bad("nested too deep");
        }
        let start = self.at;
        let Some(line) = self.input[start..].iter().position(|&byte| byte == b'\n') else {
            return self.bad("a line without its end");
        };
        let end = start + line + 1;
        let head = head(self.input, start, end)?;
        let mark = self.input[start];
        let text = &self.input[start + 1..end - 2];
        self.at = end;
        match head {
            Head::Line => self.line(mark, text),
            Head::Bytes(len) => self.bytes(mark, len),
            Head::Elements(count) => self.elements(mark, count, depth),
            Head::Attributes(count) => {
                for _ in 0..count {
                    self.value(depth + 1)?;
                }
                self.value(depth + 1)
            }
        }
    }

    fn line(&self, mark: u8, text: &[u8]) -> Result<Value, BadReply> {
        Ok(match mark {
            b'+' => Value::Status(text.to_vec()),
            b'-' => Value::Error(text.to_vec()),
            b':' => match parse_int(text) {
                Some(number) => Value::Int(number),
                None => return self.bad("an integer that is none"),
            },
            b',' => match std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse().ok())
            {
                Some(number) => Value::Double(number),
                None => return self.bad("a double that is none"),
            },
            b'#' => match text {
                b"t" => Value::Boolean(true),
                b"f" => Value::Boolean(false),
                _ => return self.bad("a boolean that is none"),
            },
            b'(' => Value::BigNumber(text.to_vec()),
            _ => Value::Null,
        })
    }

    fn bytes(&mut self, mark: u8, len: usize) -> Result<Value, BadReply> {
        let Some(bytes) = self.input.get(self.at..self.at + len) else {
            return self.bad("a byte string cut short");
        };
        let value = match (mark, bytes) {
            (b'$', _) => Value::Bulk(bytes.to_vec()),
            (_, &[a, b, c, b':', ref text @ ..]) => Value::Verbatim {
                format: [a, b, c],
                text: text.to_vec(),
            },
            _ => return self.bad("a text without its format"),
        };
        self.at += len;
        if self.input.get(self.at..self.at + 2) != Some(b"\r\n") {
            return self.bad("a byte string without its end");
        }
        self.at += 2;
        Ok(value)
    }

    fn elements(&mut self, mark: u8, count: u64, depth: usize) -> Result<Value, BadReply> {
        if mark == b'%' {
            let mut pairs = Vec::new();
            for _ in 0..count / 2 {
                pairs.push((self.value(depth + 1)?, self.value(depth + 1)?));
            }
            return Ok(Value::Map(pairs));
        }
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.value(depth + 1)?);
        }
        Ok(match mark {
            b'~' => Value::Set(values),
            b'>' => Value::Push(values),
            _ => Value::Array(values),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::{Protocol, Writer};

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn what_is_written_is_read_in_any_pieces() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, Protocol::Resp3);
        writer.array(10);
        writer.map(1);
        writer.bulk(b"a\r\nb");
        writer.int(-7);
        writer.set(1);
        writer.boolean(true);
        writer.null();
        writer.double(0.25);
        writer.verbatim(b"txt", b"hi");
        writer.big_number("12345678901234567890");
        writer.error("ERR no");
        writer.status("OK");
        writer.array(0);
        writer.push(1);
        writer.bulk(b"");
        let expected = Value::Array(vec![
            Value::Map(vec![(bulk("a\r\nb"), Value::Int(-7))]),
            Value::Set(vec![Value::Boolean(true)]),
            Value::Null,
            Value::Double(0.25),
            Value::Verbatim {
                format: *b"txt",
                text: b"hi".to_vec(),
            },
            Value::BigNumber(b"12345678901234567890".to_vec()),
            Value::Error(b"ERR no".to_vec()),
            Value::Status(b"OK".to_vec()),
            Value::Array(vec![]),
            Value::Push(vec![bulk("")]),
        ]);
        let mut parser = ReplyParser::new();
        for len in 0..out.len() {
            assert_eq!(parser.parse(&out[..len]), Ok(None), "{len}");
        }
        assert_eq!(parser.parse(&out), Ok(Some(out.len())));
        assert_eq!(Value::decode(&out), Ok(expected));
    }

    #[test]
    fn nulls_and_attributes() {
        assert_eq!(Value::decode(b"$-1\r\n"), Ok(Value::Null));
        assert_eq!(Value::decode(b"*-1\r\n"), Ok(Value::Null));
        let attributed = b"|1\r\n+ttl\r\n:5\r\n:1\r\n";
        assert_eq!(
            ReplyParser::new().parse(attributed),
            Ok(Some(attributed.len()))
        );
        assert_eq!(Value::decode(attributed), Ok(Value::Int(1)));
    }

    #[test]
    fn nonsense_is_refused() {
        for input in [
            &b"!1\r\n"[..],
            b"$x\r\n",
            b"*99999999999\r\n",
            b"+a\n",
            b"$-2\r\n",
            b"%-1\r\n",
        ] {
            let scanned = ReplyParser::new().parse(input);
            let decoded = Value::decode(input);
            assert!(
                scanned.is_err() && decoded.is_err(),
                "{input:?}: {scanned:?} {decoded:?}"
            );
        }
        let deep = b"*1\r\n".repeat(MAX_DEPTH + 1);
        assert!(ReplyParser::new().parse(&deep).is_err());
    }
}
