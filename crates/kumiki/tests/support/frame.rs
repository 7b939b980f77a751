//! Replies of RESP2 and RESP3, kept as they came.
//!
//! | first byte | frame | rest of the frame |
//! |---|---|---|
//! | `+` `-` `:` `_` `#` `,` `(` | one line | text, `\r\n` |
//! | `$` `!` `=` | bytes | length, `\r\n`, that many bytes, `\r\n`; length -1: null |
//! | `*` `~` `>` | sequence | count, `\r\n`, that many frames; count -1: null |
//! | `%` | map | count, `\r\n`, twice as many frames |

use std::fmt;

/// One reply: its bytes, and what they mean.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The bytes as they came.
    pub(crate) raw: Vec<u8>,
    /// The first byte.
    pub(crate) tag: u8,
    /// The content.
    pub(crate) body: Body,
}

/// What stands behind a frame's first byte.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// The text of a line, or bytes of a known length.
    Bytes(Vec<u8>),
    /// The frames of a sequence, or the keys and values of a map in turn.
    Frames(Vec<Frame>),
    /// RESP2's null.
    Null,
}

/// Why there is no frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parse {
    /// More bytes are needed.
    Incomplete,
    /// These bytes are not RESP.
    Invalid(String),
}

impl Frame {
    /// The first frame in `bytes`; its length is that of [`Frame::raw`].
    pub(crate) fn parse(bytes: &[u8]) -> Result<Frame, Parse> {
        let (line, mut used) = read_line(bytes)?;
        let Some((&tag, text)) = line.split_first() else {
            return Err(Parse::Invalid("an empty line instead of a reply".into()));
        };
        let body = match tag {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Body::Bytes(text.to_vec()),
            b'$' | b'!' | b'=' => match length(text)? {
                None => Body::Null,
                Some(length) => {
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
            },
            b'*' | b'~' | b'>' | b'%' => match length(text)? {
                None => Body::Null,
                Some(count) => {
                    let mut frames = Vec::new();
                    for _ in 0..if tag == b'%' { count * 2 } else { count } {
                        let frame = Frame::parse(&bytes[used..])?;
                        used += frame.raw.len();
                        frames.push(frame);
                    }
                    Body::Frames(frames)
                }
            },
            _ => return Err(Parse::Invalid(show(line))),
        };
        Ok(Frame {
            raw: bytes[..used].to_vec(),
            tag,
            body,
        })
    }

    /// The frames of a sequence or map.
    pub(crate) fn frames(&self) -> Option<&[Frame]> {
        match &self.body {
            Body::Frames(frames) => Some(frames),
            _ => None,
        }
    }

    /// The bytes of a line or of a frame with a length.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The number of an integer reply.
    pub(crate) fn int(&self) -> Option<i64> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        (self.tag == b':').then(|| text.parse().ok())?
    }

    /// Whether this is an error.
    pub(crate) fn is_error(&self) -> bool {
        matches!(self.tag, b'-' | b'!')
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(&self.raw))
    }
}

/// Bytes as a quoted text, shortened in the middle when long.
pub(crate) fn show(bytes: &[u8]) -> String {
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

fn read_line(bytes: &[u8]) -> Result<(&[u8], usize), Parse> {
    match bytes.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => Ok((&bytes[..end], end + 2)),
        None => Err(Parse::Incomplete),
    }
}

fn length(text: &[u8]) -> Result<Option<usize>, Parse> {
    let invalid = || Parse::Invalid(format!("length {}", show(text)));
    let text = std::str::from_utf8(text).map_err(|_| invalid())?;
    match text {
        "-1" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| invalid()),
    }
}
