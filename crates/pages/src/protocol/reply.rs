//! Messages of a node.

use base::codec::{Malformed, MalformedKind, Reader};

use super::words::{numbers, text, words};
use crate::error::Error;

/// A message of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NodeReply<'a> {
    Window {
        window: u16,
        answer: Result<&'a [u8], &'a str>,
    },
    Answer {
        request: u32,
        answer: &'a [u8],
    },
    Failed {
        request: u32,
        kind: NodeFailureKind,
        text: &'a str,
    },
    Written {
        tags: &'a [[u8; 4]],
    },
    Page {
        tag: u32,
        bytes: &'a [u8],
    },
    PageFailed {
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
pub(crate) enum NodeFailureKind {
    /// The node does not support the request, or does not have the table.
    Refused = 0,
    /// A page is corrupt, or cannot be read.
    Page = 1,
    /// A value cannot be computed.
    Value = 2,
    /// The node ends, or has too much to do.
    Busy = 3,
    /// A task's results were not taken for long.
    ResultsNotTaken = 4,
    /// It is unknown whether a requested change was made. All other kinds say that it was not.
    Doubtful = 5,
}

impl NodeReply<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            NodeReply::Window { window, answer } => {
                out.push(1);
                out.extend(window.to_le_bytes());
                out.push(u8::from(answer.is_ok()));
                out.extend(answer.unwrap_or_else(str::as_bytes));
            }
            NodeReply::Answer { request, answer } => {
                words(out, 2, [request]);
                out.extend(answer);
            }
            NodeReply::Failed {
                request,
                kind,
                text,
            } => {
                words(out, 3, [request]);
                out.push(kind as u8);
                out.extend(text.as_bytes());
            }
            NodeReply::Written { tags } => {
                out.push(4);
                out.extend(tags.as_flattened());
            }
            NodeReply::Page { tag, bytes } => {
                words(out, 5, [tag]);
                out.extend(bytes);
            }
            NodeReply::PageFailed { tag, text } => {
                words(out, 6, [tag]);
                out.extend(text.as_bytes());
            }
            NodeReply::Batch { request, bytes } => {
                words(out, 7, [request]);
                out.extend(bytes);
            }
            NodeReply::Finished { request } => words(out, 8, [request]),
            NodeReply::Working { requests } => {
                out.push(9);
                out.extend(requests.as_flattened());
            }
        }
    }
}

impl<'a> NodeReply<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<NodeReply<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let reply = match reader.u8()? {
            1 => {
                let window = reader.u16()?;
                let answer = match reader.u8()? {
                    0 => Err(text(&mut reader)?),
                    1 => Ok(reader.rest()),
                    other => {
                        return Err(reader.malformed(MalformedKind::Kind(other, "answer")));
                    }
                };
                NodeReply::Window { window, answer }
            }
            2 => NodeReply::Answer {
                request: reader.u32()?,
                answer: reader.rest(),
            },
            3 => NodeReply::Failed {
                request: reader.u32()?,
                kind: NodeFailureKind::decode(&mut reader)?,
                text: text(&mut reader)?,
            },
            4 => NodeReply::Written {
                tags: numbers(&mut reader)?,
            },
            5 => NodeReply::Page {
                tag: reader.u32()?,
                bytes: reader.rest(),
            },
            6 => NodeReply::PageFailed {
                tag: reader.u32()?,
                text: text(&mut reader)?,
            },
            7 => NodeReply::Batch {
                request: reader.u32()?,
                bytes: reader.rest(),
            },
            8 => NodeReply::Finished {
                request: reader.u32()?,
            },
            9 => NodeReply::Working {
                requests: numbers(&mut reader)?,
            },
            other => return Err(reader.malformed(MalformedKind::Kind(other, "reply"))),
        };
        reader.end()?;
        Ok(reply)
    }
}

impl NodeFailureKind {
    /// Returns the kind and the text by which an error travels.
    pub(crate) fn of(error: &Error) -> (NodeFailureKind, String) {
        let kind = match error {
            Error::Page(_) => NodeFailureKind::Page,
            Error::Value(_) => NodeFailureKind::Value,
            Error::Busy(_) | Error::Lost(_) => NodeFailureKind::Busy,
            Error::ResultsNotTaken(_) => NodeFailureKind::ResultsNotTaken,
            // The reader adds what follows from the doubt.
            Error::Doubtful(what) => return (NodeFailureKind::Doubtful, what.clone()),
            _ => NodeFailureKind::Refused,
        };
        (kind, error.to_string())
    }

    /// Returns the error of a node that has failed so.
    pub(crate) fn error(self, text: String) -> Error {
        match self {
            NodeFailureKind::Refused => Error::Refused(text),
            NodeFailureKind::Page => Error::Page(text),
            NodeFailureKind::Value => Error::Value(text),
            NodeFailureKind::Busy => Error::Busy(text),
            NodeFailureKind::ResultsNotTaken => Error::ResultsNotTaken(text),
            NodeFailureKind::Doubtful => Error::Doubtful(text),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<NodeFailureKind, Malformed> {
        Ok(match reader.u8()? {
            0 => NodeFailureKind::Refused,
            1 => NodeFailureKind::Page,
            2 => NodeFailureKind::Value,
            3 => NodeFailureKind::Busy,
            4 => NodeFailureKind::ResultsNotTaken,
            5 => NodeFailureKind::Doubtful,
            other => return Err(reader.malformed(MalformedKind::Kind(other, "failure"))),
        })
    }
}

/// Begins a message that lists the pages that are there, whose tags follow.
pub(crate) fn begin_written(out: &mut Vec<u8>) {
    out.push(4);
}
