//! Messages of a reader.

use base::codec::{Malformed, MalformedKind, Reader};

use super::{text, words};

/// Bytes of a page's entry in *read*.
pub(crate) const WANTED: usize = 16;

/// A message of a reader.
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
    /// 0: which tables there are. Answer: see [`Listed`](crate::remote::Listed).
    Tables,
    /// 1, `version` u64 and a name: what is needed to read this version of a table, or the newest one
    /// if it is zero. Answer: `handle` u32, then the table as
    /// [`Table::encode`](crate::Table::encode) gives it.
    Open(u64, &'a str),
    /// 2, `unit` u32 and a name: a file that the node was told to show, as pages of so many bytes.
    /// Answer: `handle` u32, `pages` u64.
    File(u32, &'a str),
    /// 3: how busy the node is. Answer: see [`Condition`](crate::remote::Condition).
    Condition,
    /// 4, a name: that the table is removed. Answer: nothing.
    Remove(&'a str),
}

/// Requested pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pages<'a>(pub(super) &'a [[u8; WANTED]]);

impl Pages<'_> {
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Wanted> {
        self.0.iter().map(Wanted::decode)
    }
}

/// A requested page.
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

/// Begins a message that requests pages, whose entries follow.
pub(crate) fn begin_read(out: &mut Vec<u8>, handle: u32) {
    words(out, 4, [handle]);
}
