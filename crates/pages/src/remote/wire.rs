//! What a reader and a storage node say to each other, as messages on a link of the fabric. Numbers
//! are little-endian; a text goes to the message's end and is UTF-8.
//!
//! What a reader says; the first byte tells which:
//!
//! | byte | name | then |
//! |---|---|---|
//! | 1 | *window* | `window` u16; a grant for memory in which pages are to lie |
//! | 2 | *ask* | `request` u32; `question` u8; its body, see [`Question`] |
//! | 3 | *close* | `handle` u32: an opened table is not needed any more |
//! | 4 | *read* | `handle` u32; then 16 bytes for each page: `tag` u32, `segment` u16, `window` u16, `page` u32, `slot` u32 |
//! | 5 | *run* | `request` u32; `handle` u32; `credit` u32; a task, which means something to the node's worker alone |
//! | 6 | *more* | `request` u32; `credit` u32: so many batches more may be sent |
//! | 7 | *cancel* | `request` u32 |
//! | 8 | *load* | `request` u32; what is to be loaded, see [`load`](super::load). It is the load's number, too |
//! | 9 | *part* | `request` u32; `load` u32; a [block](crate::block) of rows |
//! | 10 | *commit* | `request` u32; `load` u32 |
//! | 11 | *prepare* | `request` u32; `load` u32: its rows are to be durable, and no part of the table yet |
//!
//! A segment is named by its place in the table's version. A page goes to the window's bytes from
//! `slot` × 512 on; with `window` = 65535 it comes in a message.
//!
//! What a node says:
//!
//! | byte | name | then |
//! |---|---|---|
//! | 1 | *window* | `window` u16; u8: 1 and the answer to the grant, or 0 and a text that says why not |
//! | 2 | *told* | `request` u32; the answer to a question |
//! | 3 | *failed* | `request` u32; `kind` u8, see [`Kind`]; a text: why a question has no answer, or a task no end |
//! | 4 | *there* | `tag` u32 of each page that lies in its window now |
//! | 5 | *page* | `tag` u32; the page |
//! | 6 | *unread* | `tag` u32; a text: why a page cannot be had |
//! | 7 | *batch* | `request` u32; a batch of a task's results |
//! | 8 | *finished* | `request` u32: that was all |
//! | 9 | *working* | `request` u32 of each question, step of a load and task that is not over: it is waited for with reason |
//!
//! *Working* comes every few seconds while anything is under way, so that who waits can tell a long
//! sync or a long task from a node that is gone. A batch that is longer than messages may be fails its
//! task, and any other answer its request: nothing is left out.
//!
//! Replies come in any order. A reader's numbers, `tag` and `request`, are its own; those that are
//! in use at a time differ. What makes no sense ends the link.

use base::codec::{Malformed, MalformedKind, Reader};

/// Stands for no window: pages come in messages.
pub(crate) const INLINE: u16 = u16::MAX;
/// Slots are counted in units of so many bytes.
pub(crate) const SLOT_UNIT: usize = 512;
/// Bytes of a page's entry in *read*.
pub(crate) const WANTED: usize = 16;

/// What a reader says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Say<'a> {
    Window {
        window: u16,
        grant: &'a [u8],
    },
    Ask {
        request: u32,
        question: Question<'a>,
    },
    Close {
        handle: u32,
    },
    Read {
        handle: u32,
        pages: Pages<'a>,
    },
    Run {
        request: u32,
        handle: u32,
        credit: u32,
        task: &'a [u8],
    },
    More {
        request: u32,
        credit: u32,
    },
    Cancel {
        request: u32,
    },
    Load {
        request: u32,
        definition: &'a [u8],
    },
    Part {
        request: u32,
        load: u32,
        block: &'a [u8],
    },
    Commit {
        request: u32,
        load: u32,
    },
    Prepare {
        request: u32,
        load: u32,
    },
}

/// Questions, and their bodies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Question<'a> {
    /// 0: which tables there are. Answer: see [`Listed`](super::Listed).
    Tables,
    /// 1, `version` u64 and a name: what is needed to read this version of a table, or the newest one
    /// if it is zero. Answer: `handle` u32, then the table as
    /// [`Table::encode`](crate::Table::encode) gives it.
    Open(u64, &'a str),
    /// 2, `unit` u32 and a name: a file that the node was told to show, as pages of so many bytes.
    /// Answer: `handle` u32, `pages` u64.
    File(u32, &'a str),
    /// 3: how busy the node is. Answer: see [`Condition`](super::Condition).
    Condition,
    /// 4, a name: that the table is removed. Answer: nothing.
    Remove(&'a str),
}

/// The pages that are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pages<'a>(&'a [[u8; WANTED]]);

impl Pages<'_> {
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Wanted> {
        self.0.iter().map(Wanted::decode)
    }
}

/// A page that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) tag: u32,
    pub(crate) segment: u16,
    pub(crate) window: u16,
    pub(crate) page: u32,
    pub(crate) slot: u32,
}

impl Wanted {
    #[inline]
    pub(crate) fn encode(self) -> [u8; WANTED] {
        let mut bytes = [0; WANTED];
        bytes[..4].copy_from_slice(&self.tag.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.segment.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.window.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.page.to_le_bytes());
        bytes[12..].copy_from_slice(&self.slot.to_le_bytes());
        bytes
    }

    #[inline]
    fn decode(bytes: &[u8; WANTED]) -> Wanted {
        let four =
            |at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Wanted {
            tag: four(0),
            segment: four(4) as u16,
            window: (four(4) >> 16) as u16,
            page: four(8),
            slot: four(12),
        }
    }
}

/// What a node says.
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

/// What is to be thought of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The node does not do this, or does not have it.
    Refused = 0,
    /// A page is corrupt, or cannot be read.
    Page = 1,
    /// A value cannot be computed.
    Value = 2,
    /// The node ends, or has too much to do.
    Busy = 3,
}

impl Say<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Say::Window { window, grant } => {
                out.push(1);
                out.extend(window.to_le_bytes());
                out.extend(grant);
            }
            Say::Ask { request, question } => {
                out.push(2);
                out.extend(request.to_le_bytes());
                question.encode(out);
            }
            Say::Close { handle } => words(out, 3, [handle]),
            Say::Read { handle, pages } => {
                words(out, 4, [handle]);
                out.extend(pages.0.as_flattened());
            }
            Say::Run {
                request,
                handle,
                credit,
                task,
            } => {
                words(out, 5, [request, handle, credit]);
                out.extend(task);
            }
            Say::More { request, credit } => words(out, 6, [request, credit]),
            Say::Cancel { request } => words(out, 7, [request]),
            Say::Load {
                request,
                definition,
            } => {
                words(out, 8, [request]);
                out.extend(definition);
            }
            Say::Part {
                request,
                load,
                block,
            } => {
                words(out, 9, [request, load]);
                out.extend(block);
            }
            Say::Commit { request, load } => words(out, 10, [request, load]),
            Say::Prepare { request, load } => words(out, 11, [request, load]),
        }
    }
}

impl<'a> Say<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Say<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let said = match reader.u8()? {
            1 => Say::Window {
                window: reader.u16()?,
                grant: reader.rest(),
            },
            2 => Say::Ask {
                request: reader.u32()?,
                question: Question::decode(&mut reader)?,
            },
            3 => Say::Close {
                handle: reader.u32()?,
            },
            4 => {
                let handle = reader.u32()?;
                let (pages, rest) = reader.unread().as_chunks();
                if !rest.is_empty() {
                    return Err(reader.malformed(MalformedKind::Cut));
                }
                reader.rest();
                Say::Read {
                    handle,
                    pages: Pages(pages),
                }
            }
            5 => Say::Run {
                request: reader.u32()?,
                handle: reader.u32()?,
                credit: reader.u32()?,
                task: reader.rest(),
            },
            6 => Say::More {
                request: reader.u32()?,
                credit: reader.u32()?,
            },
            7 => Say::Cancel {
                request: reader.u32()?,
            },
            8 => Say::Load {
                request: reader.u32()?,
                definition: reader.rest(),
            },
            9 => Say::Part {
                request: reader.u32()?,
                load: reader.u32()?,
                block: reader.rest(),
            },
            10 => Say::Commit {
                request: reader.u32()?,
                load: reader.u32()?,
            },
            11 => Say::Prepare {
                request: reader.u32()?,
                load: reader.u32()?,
            },
            other => return Err(reader.malformed(MalformedKind::Kind(other, "message"))),
        };
        reader.end()?;
        Ok(said)
    }
}

impl Question<'_> {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Question::Tables => out.push(0),
            Question::Open(version, name) => {
                out.push(1);
                out.extend(version.to_le_bytes());
                out.extend(name.as_bytes());
            }
            Question::File(unit, name) => {
                words(out, 2, [unit]);
                out.extend(name.as_bytes());
            }
            Question::Condition => out.push(3),
            Question::Remove(name) => {
                out.push(4);
                out.extend(name.as_bytes());
            }
        }
    }
}

impl<'a> Question<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Question<'a>, Malformed> {
        Ok(match reader.u8()? {
            0 => Question::Tables,
            1 => Question::Open(reader.u64()?, text(reader)?),
            2 => Question::File(reader.u32()?, text(reader)?),
            3 => Question::Condition,
            4 => Question::Remove(text(reader)?),
            other => return Err(reader.malformed(MalformedKind::Kind(other, "question"))),
        })
    }
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
            other => return Err(reader.malformed(MalformedKind::Kind(other, "failure"))),
        })
    }
}

fn words<const N: usize>(out: &mut Vec<u8>, first: u8, words: [u32; N]) {
    out.push(first);
    for word in words {
        out.extend(word.to_le_bytes());
    }
}

/// The rest, as numbers of four bytes.
fn numbers<'a>(reader: &mut Reader<'a>) -> Result<&'a [[u8; 4]], Malformed> {
    let (numbers, rest) = reader.rest().as_chunks();
    match rest.is_empty() {
        true => Ok(numbers),
        false => Err(reader.malformed(MalformedKind::Cut)),
    }
}

/// The rest, as a text.
fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let malformed = reader.malformed(MalformedKind::NotText);
    std::str::from_utf8(reader.rest()).map_err(|_| malformed)
}

/// Begins a message that asks for pages, whose entries follow.
pub(crate) fn begin_read(out: &mut Vec<u8>, handle: u32) {
    words(out, 4, [handle]);
}

/// Begins a message that tells which pages are there, whose tags follow.
pub(crate) fn begin_there(out: &mut Vec<u8>) {
    out.push(4);
}

#[cfg(test)]
pub(crate) mod tests;
