//! Messages of a node.

use base::codec::{Malformed, MalformedKind, Reader};

use super::{numbers, text, words};

/// A message of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply<'a> {
    Window {
        window: u16,
        answer: Result<&'a [u8], &'a str>,
    },
    Told {
        request: u32,
        answer: &'a [u8],
    },
    Failed {
        request: u32,
        kind: Kind,
        text: &'a str,
    },
    There {
        tags: &'a [[u8; 4]],
    },
    Page {
        tag: u32,
        bytes: &'a [u8],
    },
    Unread {
        tag: u32,
        text: &'a str,
    },
    Batch {
        request: u32,
        bytes: &'a [u8],
    },
    Finished {
        request: u32,
    },
    Working {
        requests: &'a [[u8; 4]],
    },
}

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The node does not support the request, or does not have the table.
    Refused = 0,
    /// A page is corrupt, or cannot be read.
    Page = 1,
    /// A value cannot be computed.
    Value = 2,
    /// The node ends, or has too much to do.
    Busy = 3,
    /// A task's results were not taken for long.
    Untaken = 4,
    /// It is unknown whether a requested change was made. All other kinds say that it was not.
    Doubtful = 5,
}

impl Reply<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Reply::Window { window, answer } => {
                out.push(1);
                out.extend(window.to_le_bytes());
                out.push(u8::from(answer.is_ok()));
                out.extend(answer.unwrap_or_else(str::as_bytes));
            }
            Reply::Told { request, answer } => {
                words(out, 2, [request]);
                out.extend(answer);
            }
            Reply::Failed {
                request,
                kind,
                text,
            } => {
                words(out, 3, [request]);
                out.push(kind as u8);
                out.extend(text.as_bytes());
            }
            Reply::There { tags } => {
                out.push(4);
                out.extend(tags.as_flattened());
            }
            Reply::Page { tag, bytes } => {
                words(out, 5, [tag]);
                out.extend(bytes);
            }
            Reply::Unread { tag, text } => {
                words(out, 6, [tag]);
                out.extend(text.as_bytes());
            }
            Reply::Batch { request, bytes } => {
                words(out, 7, [request]);
                out.extend(bytes);
            }
            Reply::Finished { request } => words(out, 8, [request]),
            Reply::Working { requests } => {
                out.push(9);
                out.extend(requests.as_flattened());
            }
        }
    }
}

impl<'a> Reply<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Reply<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let reply = match reader.u8()? {
            1 => {
                let window = reader.u16()?;
                let answer = match reader.u8()? {
                    0 => Err(text(&mut reader)?),
                    1 => Ok(reader.rest()),
                    other => return Err(reader.malformed(MalformedKind::Kind(other, "answer"))),
                };
                Reply::Window { window, answer }
            }
            2 => Reply::Told {
                request: reader.u32()?,
                answer: reader.rest(),
            },
            3 => Reply::Failed {
                request: reader.u32()?,
                kind: Kind::decode(&mut reader)?,
                text: text(&mut reader)?,
            },
            4 => Reply::There {
                tags: numbers(&mut reader)?,
            },
            5 => Reply::Page {
                tag: reader.u32()?,
                bytes: reader.rest(),
            },
            6 => Reply::Unread {
                tag: reader.u32()?,
                text: text(&mut reader)?,
            },
            7 => Reply::Batch {
                request: reader.u32()?,
                bytes: reader.rest(),
            },
            8 => Reply::Finished {
                request: reader.u32()?,
            },
            9 => Reply::Working {
                requests: numbers(&mut reader)?,
            },
            other => return Err(reader.malformed(MalformedKind::Kind(other, "reply"))),
        };
        reader.end()?;
        Ok(reply)
    }
}

impl Kind {
    fn decode(reader: &mut Reader<'_>) -> Result<Kind, Malformed> {
        Ok(match reader.u8()? {
            0 => Kind::Refused,
            1 => Kind::Page,
            2 => Kind::Value,
            3 => Kind::Busy,
            4 => Kind::Untaken,
            5 => Kind::Doubtful,
            other => return Err(reader.malformed(MalformedKind::Kind(other, "failure"))),
        })
    }
}

/// Begins a message that lists the pages that are there, whose tags follow.
pub(crate) fn begin_there(out: &mut Vec<u8>) {
    out.push(4);
}
