//! The messages that members send to each other.
//!
//! | kind | message | fields |
//! |---|---|---|
//! | 1 | raft | a message of Raft |
//! | 2 | hello | raft id (8 bytes; 0: none), 1 byte: 1 if it knows nothing, 1 byte: 1 if it has heard the same of all others |
//! | 3 | invite | raft id (8 bytes) |
//! | 4 | piece | raft id (8 bytes) of the receiver, a message of Raft that announces the snapshot, bytes in all (8 bytes), offset (8 bytes), the piece (the rest) |
//! | 5 | taken | raft id (8 bytes) of the receiver, index (8 bytes), offset of the next piece (8 bytes); all bits set: the snapshot is of no use |
//! | 6 | how far | when the follower asks (8 bytes, by its own clock) |
//! | 7 | committed | term (8 bytes), index (8 bytes) up to which the leader has committed, when it was asked (8 bytes) |
//! | 8 | compare | index (8 bytes) of the entry at which the leader wants the hash of the state |
//! | 9 | state | index (8 bytes), hash of the state (8 bytes) |
//!
//! Each message begins with 1 byte, the version, and 1 byte, the kind.

use base::codec::{Malformed, MalformedKind, Reader, put_u64};
use raft::eraftpb::Message;

use crate::wire::{put_message, read_message};

/// The version of the encoding.
const VERSION: u8 = 1;

/// See the module's description.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Envelope<'a> {
    Raft(Message),
    Hello(Hello),
    /// The leader has a place for this node's member under this number.
    Invite {
        raft_id: u64,
    },
    Piece {
        to: u64,
        announces: Message,
        total: u64,
        offset: u64,
        piece: &'a [u8],
    },
    Taken {
        from: u64,
        index: u64,
        /// The offset of the next piece; [`REFUSED`] if the snapshot is of no use.
        offset: u64,
    },
    /// A follower asks for the leader's commit index.
    HowFar {
        asked: u64,
    },
    /// The leader of this term has committed the entries up to this index.
    Committed {
        term: u64,
        index: u64,
        asked: u64,
    },
    /// The leader wants the hash of the state at this entry.
    Compare {
        index: u64,
    },
    /// The hash of the state at this entry.
    State {
        index: u64,
        hash: u64,
    },
}

/// The offset in [`Envelope::Taken`] for a snapshot that is of no use.
pub(crate) const REFUSED: u64 = u64::MAX;

/// The state of a member, or of a node that is not a member yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Its number in the group; 0 if its disk is empty.
    pub(crate) raft_id: u64,
    /// Its disk is empty, or it has begun and knows of no election. A member that was invited knows
    /// of one.
    pub(crate) knows_nothing: bool,
    /// It has heard from each of the others, since it was started, that they know nothing.
    pub(crate) all_blank: bool,
}

impl Envelope<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(64);
        to.push(VERSION);
        match self {
            Envelope::Raft(message) => {
                to.push(1);
                put_message(&mut to, message);
            }
            Envelope::Hello(hello) => {
                to.push(2);
                put_u64(&mut to, hello.raft_id);
                to.push(hello.knows_nothing.into());
                to.push(hello.all_blank.into());
            }
            Envelope::Invite { raft_id } => {
                to.push(3);
                put_u64(&mut to, *raft_id);
            }
            Envelope::Piece {
                to: receiver,
                announces,
                total,
                offset,
                piece,
            } => {
                to.push(4);
                put_u64(&mut to, *receiver);
                put_message(&mut to, announces);
                put_u64(&mut to, *total);
                put_u64(&mut to, *offset);
                to.extend_from_slice(piece);
            }
            Envelope::Taken {
                from,
                index,
                offset,
            } => {
                to.push(5);
                put_u64(&mut to, *from);
                put_u64(&mut to, *index);
                put_u64(&mut to, *offset);
            }
            Envelope::HowFar { asked } => {
                to.push(6);
                put_u64(&mut to, *asked);
            }
            Envelope::Committed { term, index, asked } => {
                to.push(7);
                put_u64(&mut to, *term);
                put_u64(&mut to, *index);
                put_u64(&mut to, *asked);
            }
            Envelope::Compare { index } => {
                to.push(8);
                put_u64(&mut to, *index);
            }
            Envelope::State { index, hash } => {
                to.push(9);
                put_u64(&mut to, *index);
                put_u64(&mut to, *hash);
            }
        }
        to
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Envelope<'_>, Malformed> {
        let mut from = Reader::new(bytes);
        let version = from.u8()?;
        if version != VERSION {
            return Err(from.malformed(MalformedKind::Version(version)));
        }
        let kind = from.u8()?;
        let envelope = match kind {
            1 => Envelope::Raft(read_message(&mut from)?),
            2 => Envelope::Hello(Hello {
                raft_id: from.u64()?,
                knows_nothing: from.bool()?,
                all_blank: from.bool()?,
            }),
            3 => Envelope::Invite {
                raft_id: from.u64()?,
            },
            4 => Envelope::Piece {
                to: from.u64()?,
                announces: read_message(&mut from)?,
                total: from.u64()?,
                offset: from.u64()?,
                piece: from.rest(),
            },
            5 => Envelope::Taken {
                from: from.u64()?,
                index: from.u64()?,
                offset: from.u64()?,
            },
            6 => Envelope::HowFar { asked: from.u64()? },
            7 => Envelope::Committed {
                term: from.u64()?,
                index: from.u64()?,
                asked: from.u64()?,
            },
            8 => Envelope::Compare { index: from.u64()? },
            9 => Envelope::State {
                index: from.u64()?,
                hash: from.u64()?,
            },
            other => return Err(from.malformed(MalformedKind::Kind(other, "message"))),
        };
        from.end()?;
        Ok(envelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_cut_ones_are_refused() {
        let announces = Message {
            to: 7,
            index: 3,
            ..Message::default()
        };
        let all = [
            Envelope::Raft(announces.clone()),
            Envelope::Hello(Hello {
                raft_id: 65_537,
                knows_nothing: true,
                all_blank: true,
            }),
            Envelope::Invite { raft_id: 9 },
            Envelope::Piece {
                to: 7,
                announces,
                total: 10,
                offset: 4,
                piece: b"piece",
            },
            Envelope::Taken {
                from: 7,
                index: 3,
                offset: REFUSED,
            },
            Envelope::HowFar { asked: 4 },
            Envelope::Committed {
                term: 2,
                index: 3,
                asked: 4,
            },
            Envelope::Compare { index: 3 },
            Envelope::State { index: 3, hash: 4 },
        ];
        for envelope in all {
            let bytes = envelope.encode();
            assert_eq!(Envelope::decode(&bytes).as_ref(), Ok(&envelope));
            let piece = matches!(envelope, Envelope::Piece { .. });
            for len in 0..bytes.len() - if piece { 5 } else { 0 } {
                assert!(Envelope::decode(&bytes[..len]).is_err(), "{len} bytes");
            }
        }
        assert!(Envelope::decode(&[2, 1]).is_err() && Envelope::decode(&[1, 99]).is_err());
    }
}
