//! Messages of a reader.

use base::codec::{Malformed, MalformedKind, Reader, u16_at, u32_at};

use super::words::{text, words};

/// Bytes of a page's entry in *read*.
pub(crate) const PAGE_REQUEST: usize = 16;

/// A message of a reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NodeRequest<'a> {
    Window {
        window: u16,
        grant: &'a [u8],
    },
    Query {
        request: u32,
        query: NodeQuery<'a>,
    },
    Close {
        handle: u32,
    },
    Read {
        handle: u32,
        pages: PageRequests<'a>,
    },
    Run {
        request: u32,
        handle: u32,
        credit: u32,
        task: &'a [u8],
    },
    Credit {
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
    LoadBlock {
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

/// Queries, and their bodies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeQuery<'a> {
    /// 0: which tables there are. Answer: see [`ListedTable`](super::ListedTable).
    Tables,
    /// 1, `version` u64 and a name: what is needed to read this version of a table, or the newest one
    /// if it is zero. Answer: `handle` u32, then the table as
    /// [`Table::encode`](crate::Table::encode) gives it.
    Open(u64, &'a str),
    /// 2, `unit` u32 and a name: a file that the node was told to show, as pages of so many bytes.
    /// Answer: `handle` u32, `pages` u64.
    File(u32, &'a str),
    /// 3: how busy the node is. Answer: see [`NodeStatus`](super::NodeStatus).
    Status,
    /// 4, a name: that the table is removed. Answer: nothing.
    Remove(&'a str),
}

/// Requested pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageRequests<'a>(pub(super) &'a [[u8; PAGE_REQUEST]]);

impl PageRequests<'_> {
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = PageRequest> {
        self.0.iter().map(PageRequest::decode)
    }
}

/// A page that is requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageRequest {
    pub(crate) tag: u32,
    pub(crate) segment: u16,
    pub(crate) window: u16,
    pub(crate) page: u32,
    pub(crate) slot: u32,
}

impl PageRequest {
    #[inline]
    pub(crate) fn encode(self) -> [u8; PAGE_REQUEST] {
        let mut bytes = [0; PAGE_REQUEST];
        bytes[..4].copy_from_slice(&self.tag.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.segment.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.window.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.page.to_le_bytes());
        bytes[12..].copy_from_slice(&self.slot.to_le_bytes());
        bytes
    }

    #[inline]
    fn decode(bytes: &[u8; PAGE_REQUEST]) -> PageRequest {
        PageRequest {
            tag: u32_at(bytes, 0),
            segment: u16_at(bytes, 4),
            window: u16_at(bytes, 6),
            page: u32_at(bytes, 8),
            slot: u32_at(bytes, 12),
        }
    }
}

impl NodeRequest<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            NodeRequest::Window { window, grant } => {
                out.push(1);
                out.extend(window.to_le_bytes());
                out.extend(grant);
            }
            NodeRequest::Query { request, query } => {
                out.push(2);
                out.extend(request.to_le_bytes());
                query.encode(out);
            }
            NodeRequest::Close { handle } => words(out, 3, [handle]),
            NodeRequest::Read { handle, pages } => {
                words(out, 4, [handle]);
                out.extend(pages.0.as_flattened());
            }
            NodeRequest::Run {
                request,
                handle,
                credit,
                task,
            } => {
                words(out, 5, [request, handle, credit]);
                out.extend(task);
            }
            NodeRequest::Credit { request, credit } => words(out, 6, [request, credit]),
            NodeRequest::Cancel { request } => words(out, 7, [request]),
            NodeRequest::Load {
                request,
                definition,
            } => {
                words(out, 8, [request]);
                out.extend(definition);
            }
            NodeRequest::LoadBlock {
                request,
                load,
                block,
            } => {
                words(out, 9, [request, load]);
                out.extend(block);
            }
            NodeRequest::Commit { request, load } => words(out, 10, [request, load]),
            NodeRequest::Prepare { request, load } => words(out, 11, [request, load]),
        }
    }
}

impl<'a> NodeRequest<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<NodeRequest<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let request = match reader.u8()? {
            1 => NodeRequest::Window {
                window: reader.u16()?,
                grant: reader.rest(),
            },
            2 => NodeRequest::Query {
                request: reader.u32()?,
                query: NodeQuery::decode(&mut reader)?,
            },
            3 => NodeRequest::Close {
                handle: reader.u32()?,
            },
            4 => {
                let handle = reader.u32()?;
                let (pages, rest) = reader.unread().as_chunks();
                if !rest.is_empty() {
                    return Err(reader.malformed(MalformedKind::Cut));
                }
                reader.rest();
                NodeRequest::Read {
                    handle,
                    pages: PageRequests(pages),
                }
            }
            5 => NodeRequest::Run {
                request: reader.u32()?,
                handle: reader.u32()?,
                credit: reader.u32()?,
                task: reader.rest(),
            },
            6 => NodeRequest::Credit {
                request: reader.u32()?,
                credit: reader.u32()?,
            },
            7 => NodeRequest::Cancel {
                request: reader.u32()?,
            },
            8 => NodeRequest::Load {
                request: reader.u32()?,
                definition: reader.rest(),
            },
            9 => NodeRequest::LoadBlock {
                request: reader.u32()?,
                load: reader.u32()?,
                block: reader.rest(),
            },
            10 => NodeRequest::Commit {
                request: reader.u32()?,
                load: reader.u32()?,
            },
            11 => NodeRequest::Prepare {
                request: reader.u32()?,
                load: reader.u32()?,
            },
            other => return Err(reader.malformed(MalformedKind::Kind(other, "message"))),
        };
        reader.end()?;
        Ok(request)
    }
}

impl NodeQuery<'_> {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            NodeQuery::Tables => out.push(0),
            NodeQuery::Open(version, name) => {
                out.push(1);
                out.extend(version.to_le_bytes());
                out.extend(name.as_bytes());
            }
            NodeQuery::File(unit, name) => {
                words(out, 2, [unit]);
                out.extend(name.as_bytes());
            }
            NodeQuery::Status => out.push(3),
            NodeQuery::Remove(name) => {
                out.push(4);
                out.extend(name.as_bytes());
            }
        }
    }
}

impl<'a> NodeQuery<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<NodeQuery<'a>, Malformed> {
        Ok(match reader.u8()? {
            0 => NodeQuery::Tables,
            1 => NodeQuery::Open(reader.u64()?, text(reader)?),
            2 => NodeQuery::File(reader.u32()?, text(reader)?),
            3 => NodeQuery::Status,
            4 => NodeQuery::Remove(text(reader)?),
            other => return Err(reader.malformed(MalformedKind::Kind(other, "question"))),
        })
    }
}

/// Begins a message that requests pages, whose entries follow.
pub(crate) fn begin_read(out: &mut Vec<u8>, handle: u32) {
    words(out, 4, [handle]);
}
