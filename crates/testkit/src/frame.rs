//! Replies of RESP2 and RESP3, kept as they came.
//!
//! | first byte | frame | rest of the frame |
//! |---|---|---|
//! | `+` `-` `:` `_` `#` `,` `(` | one line | text, `\r\n` |
//! | `$` `!` `=` | bytes | length, `\r\n`, that many bytes, `\r\n`; length -1: null |
//! | `*` `~` `>` | sequence | count, `\r\n`, that many frames; count -1: null |
//! | `%` | map | count, `\r\n`, twice as many frames |

use std::fmt;

use crate::error::TestkitError;

/// A reply as a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// `+`
    Status(String),
    /// `-`, `!`
    Error(String),
    /// `:`
    Int(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// The null of a bulk string, and that of RESP3.
    Null,
    /// RESP2's null of an array.
    NullArray,
    /// `*`
    Array(Vec<Reply>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `%`: keys and values.
    Map(Vec<(Reply, Reply)>),
    /// `#`
    Boolean(bool),
    /// `,`: the text of the number.
    Double(String),
    /// `(`: the text of the number.
    BigNumber(String),
    /// `=`
    Verbatim {
        /// Three letters.
        format: String,
        /// The text behind them and a colon.
        text: Vec<u8>,
    },
}

impl Reply {
    /// Makes a status.
    #[must_use]
    pub fn status(text: &str) -> Reply {
        Reply::Status(text.to_owned())
    }

    /// Makes a bulk string.
    #[must_use]
    pub fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.as_bytes().to_vec())
    }

    /// Returns a short text: `+status`, `-error`, numbers and strings as they are, `nil`, and lists
    /// in brackets.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Reply::Status(text) => format!("+{text}"),
            Reply::Error(text) => format!("-{text}"),
            Reply::Int(number) => number.to_string(),
            Reply::Bulk(bytes) | Reply::Verbatim { text: bytes, .. } => lossy(bytes),
            Reply::Null | Reply::NullArray => "nil".to_owned(),
            Reply::Array(items) | Reply::Set(items) => {
                let items: Vec<String> = items.iter().map(Reply::shown).collect();
                format!("[{}]", items.join(" "))
            }
            other => format!("{other:?}"),
        }
    }
}

/// One reply: its bytes, and their meaning.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// The bytes as they came.
    pub raw: Vec<u8>,
    /// The first byte.
    pub tag: u8,
    /// The content.
    pub body: Body,
}

/// The content behind a frame's first byte.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// The text of a line, or bytes of a known length.
    Bytes(Vec<u8>),
    /// The frames of a sequence, or the keys and values of a map in turn.
    Frames(Vec<Frame>),
    /// RESP2's null.
    Null,
}

/// The reason why there is no frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Parse {
    /// More bytes are needed.
    Incomplete,
    /// These bytes are not RESP.
    Invalid(String),
}

/// The line at the start of a frame.
enum Head {
    /// The frame is this line.
    Line,
    /// This many bytes and a line's end follow; `None` if the frame is a null.
    Bytes(Option<usize>),
    /// This many frames follow; `None` if the frame is a null.
    Frames(Option<usize>),
}

impl Head {
    fn of(line: &[u8]) -> Result<Head, TestkitError> {
        let Some((&tag, text)) = line.split_first() else {
            return Err(TestkitError::malformed("an empty line instead of a reply"));
        };
        match tag {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Ok(Head::Line),
            b'$' | b'!' | b'=' => Ok(Head::Bytes(length(text)?)),
            b'*' | b'~' | b'>' => Ok(Head::Frames(length(text)?)),
            b'%' => Ok(Head::Frames(length(text)?.map(|count| 2 * count))),
            _ => Err(TestkitError::Malformed(show(line))),
        }
    }
}

/// Finds the end of the first frame of a stream whose bytes come in parts.
#[derive(Default, Debug)]
pub(crate) struct Scanner {
    /// The position up to which the bytes were scanned.
    at: usize,
    /// The number of missing frames of each sequence that has begun; the outermost first.
    open: Vec<usize>,
}

impl Scanner {
    /// Returns the length of the first frame of `bytes`, which begin with those of the last call.
    /// Returns `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error that says why these bytes are not RESP.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, TestkitError> {
        loop {
            let Some((line, length)) = read_line(&bytes[self.at..]) else {
                return Ok(None);
            };
            let end = self.at + length;
            match Head::of(line)? {
                Head::Bytes(Some(count)) => match bytes.get(end + count..end + count + 2) {
                    None => return Ok(None),
                    Some(b"\r\n") => self.at = end + count + 2,
                    Some(other) => return Err(TestkitError::Malformed(show(other))),
                },
                Head::Frames(Some(count @ 1..)) => {
                    self.at = end;
                    self.open.push(count);
                    continue;
                }
                Head::Line | Head::Bytes(None) | Head::Frames(_) => self.at = end,
            }
            // A frame has ended, and with it possibly the sequences whose last frame it is.
            while let Some(missing) = self.open.last_mut() {
                *missing -= 1;
                if *missing > 0 {
                    break;
                }
                self.open.pop();
            }
            if self.open.is_empty() {
                return Ok(Some(self.at));
            }
        }
    }
}

impl Frame {
    /// Returns the first frame in `bytes`; its length is that of [`Frame::raw`].
    ///
    /// # Errors
    /// Returns an error if there is no frame.
    pub fn parse(bytes: &[u8]) -> Result<Frame, Parse> {
        let (line, mut used) = read_line(bytes).ok_or(Parse::Incomplete)?;
        let body = match Head::of(line).map_err(|error| Parse::Invalid(error.to_string()))? {
            Head::Line => Body::Bytes(line[1..].to_vec()),
            Head::Bytes(None) | Head::Frames(None) => Body::Null,
            Head::Bytes(Some(length)) => {
                let end = used + length;
                match bytes.get(end..end + 2) {
                    None => return Err(Parse::Incomplete),
                    Some(b"\r\n") => {}
                    Some(other) => return Err(Parse::Invalid(show(other))),
                }
                let content = bytes[used..end].to_vec();
                used = end + 2;
                Body::Bytes(content)
            }
            Head::Frames(Some(count)) => {
                let mut frames = Vec::new();
                for _ in 0..count {
                    let frame = Frame::parse(&bytes[used..])?;
                    used += frame.raw.len();
                    frames.push(frame);
                }
                Body::Frames(frames)
            }
        };
        Ok(Frame {
            raw: bytes[..used].to_vec(),
            tag: line[0],
            body,
        })
    }

    /// Returns the frame as a value.
    ///
    /// # Errors
    /// Returns an error if the content does not fit the kind of frame.
    pub fn into_reply(self) -> Result<Reply, TestkitError> {
        let all = |frames: Vec<Frame>| -> Result<Vec<Reply>, TestkitError> {
            frames.into_iter().map(Frame::into_reply).collect()
        };
        let wrong = || Err(TestkitError::Malformed(show(&self.raw)));
        Ok(match (self.tag, self.body) {
            (b'*', Body::Null) => Reply::NullArray,
            (_, Body::Null) | (b'_', _) => Reply::Null,
            (b'+', Body::Bytes(text)) => Reply::Status(lossy(&text)),
            (b'-' | b'!', Body::Bytes(text)) => Reply::Error(lossy(&text)),
            (b':', Body::Bytes(text)) => match lossy(&text).parse() {
                Ok(number) => Reply::Int(number),
                Err(_) => return wrong(),
            },
            (b'$', Body::Bytes(bytes)) => Reply::Bulk(bytes),
            (b'#', Body::Bytes(text)) => match &*text {
                b"t" => Reply::Boolean(true),
                b"f" => Reply::Boolean(false),
                _ => return wrong(),
            },
            (b',', Body::Bytes(text)) => Reply::Double(lossy(&text)),
            (b'(', Body::Bytes(text)) => Reply::BigNumber(lossy(&text)),
            (b'=', Body::Bytes(bytes)) => match bytes.split_at_checked(4) {
                Some((format, text)) if format.ends_with(b":") => Reply::Verbatim {
                    format: lossy(&format[..3]),
                    text: text.to_vec(),
                },
                _ => return wrong(),
            },
            (b'~', Body::Frames(frames)) => Reply::Set(all(frames)?),
            (b'>', Body::Frames(frames)) => Reply::Push(all(frames)?),
            (b'%', Body::Frames(frames)) => {
                let mut items = all(frames)?.into_iter();
                let mut pairs = Vec::new();
                while let (Some(key), Some(value)) = (items.next(), items.next()) {
                    pairs.push((key, value));
                }
                Reply::Map(pairs)
            }
            (_, Body::Frames(frames)) => Reply::Array(all(frames)?),
            (_, Body::Bytes(_)) => return wrong(),
        })
    }

    /// Returns the frames of a sequence or map.
    #[must_use]
    pub fn frames(&self) -> Option<&[Frame]> {
        match &self.body {
            Body::Frames(frames) => Some(frames),
            _ => None,
        }
    }

    /// Returns the bytes of a line or of a frame with a length.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the number of an integer reply.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        (self.tag == b':').then(|| text.parse().ok())?
    }

    /// Returns `true` if this is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self.tag, b'-' | b'!')
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(&self.raw))
    }
}

/// Returns bytes as a quoted text, shortened in the middle when long.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    const ENDS: usize = 200;
    if bytes.len() <= 3 * ENDS {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    let (head, tail) = (&bytes[..ENDS], &bytes[bytes.len() - ENDS..]);
    let hidden = bytes.len() - 2 * ENDS;
    format!(
        "\"{}\" ({hidden} bytes) \"{}\"",
        head.escape_ascii(),
        tail.escape_ascii()
    )
}

/// Returns the first line, and its length with its end.
fn read_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

fn length(text: &[u8]) -> Result<Option<usize>, TestkitError> {
    let invalid = || TestkitError::malformed(format!("length {}", show(text)));
    let text = std::str::from_utf8(text).map_err(|_| invalid())?;
    match text {
        "-1" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| invalid()),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        let frame = Frame::parse(text.as_bytes()).unwrap();
        assert_eq!(frame.raw, text.as_bytes());
        frame.into_reply().unwrap()
    }

    #[test]
    fn each_kind_of_reply_is_told_from_the_others() {
        let one = || vec![Reply::Int(1)];
        for (text, wanted) in [
            ("+OK\r\n", Reply::status("OK")),
            ("-ERR no\r\n", Reply::Error("ERR no".to_owned())),
            ("!6\r\nERR no\r\n", Reply::Error("ERR no".to_owned())),
            (":-7\r\n", Reply::Int(-7)),
            ("$2\r\nab\r\n", Reply::bulk("ab")),
            ("$-1\r\n", Reply::Null),
            ("_\r\n", Reply::Null),
            ("*-1\r\n", Reply::NullArray),
            ("*1\r\n:1\r\n", Reply::Array(one())),
            ("~1\r\n:1\r\n", Reply::Set(one())),
            (">1\r\n:1\r\n", Reply::Push(one())),
            (
                "%1\r\n$1\r\na\r\n:1\r\n",
                Reply::Map(vec![(Reply::bulk("a"), Reply::Int(1))]),
            ),
            ("#t\r\n", Reply::Boolean(true)),
            (",1.5\r\n", Reply::Double("1.5".to_owned())),
            ("(123\r\n", Reply::BigNumber("123".to_owned())),
            (
                "=5\r\ntxt:a\r\n",
                Reply::Verbatim {
                    format: "txt".to_owned(),
                    text: b"a".to_vec(),
                },
            ),
        ] {
            assert_eq!(reply(text), wanted, "{text:?}");
        }
        for wrong in [":x\r\n", "#x\r\n", "=1\r\na\r\n"] {
            assert!(
                Frame::parse(wrong.as_bytes())
                    .unwrap()
                    .into_reply()
                    .is_err()
            );
        }
    }

    #[test]
    fn a_reply_is_shown_as_a_short_text() {
        let text = "*4\r\n+OK\r\n$1\r\na\r\n$-1\r\n*1\r\n:3\r\n";
        assert_eq!(reply(text).shown(), "[+OK a nil [3]]");
        assert_eq!(reply("-ERR no\r\n").shown(), "-ERR no");
    }

    #[test]
    fn the_scanner_agrees_with_the_parser() {
        let whole = b"*3\r\n%1\r\n+a\r\n*0\r\n$-1\r\n=5\r\ntxt:a\r\n";
        let mut scanner = Scanner::default();
        for end in 0..whole.len() {
            assert_eq!(scanner.scan(&whole[..end]), Ok(None));
            assert_eq!(Frame::parse(&whole[..end]), Err(Parse::Incomplete));
        }
        assert_eq!(scanner.scan(whole), Ok(Some(whole.len())));
        let more = [whole, &b"+next\r\n"[..]].concat();
        assert_eq!(Scanner::default().scan(&more), Ok(Some(whole.len())));
        for wrong in [
            "\r\n",
            "x\r\n",
            "$a\r\n",
            "$1\r\nabc\r\n",
            "*1\r\n$1\r\nabc",
        ] {
            assert!(
                Scanner::default().scan(wrong.as_bytes()).is_err(),
                "{wrong:?}"
            );
            assert!(matches!(
                Frame::parse(wrong.as_bytes()),
                Err(Parse::Invalid(_))
            ));
        }
    }
}
