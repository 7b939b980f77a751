//! The messages that members send to each other.
//!
//! | kind | message | fields |
//! |---|---|---|
//! | 1 | raft | a message of Raft |
//! | 2 | hello | raft id (8 bytes; 0: none), 1 byte: 1 if it knows nothing, 1 byte: 1 if it has heard the same of all others |
//! | 3 | invite | raft id (8 bytes) |
//! | 4 | snapshot piece | raft id (8 bytes) of the receiver, a message of Raft that announces the snapshot, bytes in all (8 bytes), offset (8 bytes), the piece (the rest) |
//! | 5 | snapshot progress | raft id (8 bytes) of the receiver, index (8 bytes), offset of the next piece (8 bytes); all bits set: the snapshot is of no use |
//! | 6 | commit index request | when the follower asks (8 bytes, by its own clock) |
//! | 7 | commit index reply | term (8 bytes), index (8 bytes) up to which the leader has committed, when it was asked (8 bytes) |
//! | 8 | state hash request | index (8 bytes) of the entry at which the leader wants the hash of the state |
//! | 9 | state hash reply | index (8 bytes), hash of the state (8 bytes) |
//!
//! Each message begins with 1 byte, the version, and 1 byte, the kind.

use base::codec::{Malformed, MalformedKind, Reader, put_u64};
use raft::eraftpb::Message;

use crate::wire::{put_message, read_message};

/// The version of the encoding.
const VERSION: u8 = 1;

/// See the module's description.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MemberMessage<'a> {
    Raft(Message),
    Hello(Hello),
    /// The leader has a place for this node's member under this number.
    Invite {
        raft_id: u64,
    },
    SnapshotPiece {
        to: u64,
        announces: Message,
        total: u64,
        offset: u64,
        piece: &'a [u8],
    },
    SnapshotProgress {
        from: u64,
        index: u64,
        /// The offset of the next piece; [`SNAPSHOT_REFUSED`] if the snapshot is of no use.
        offset: u64,
    },
    /// A follower asks for the leader's commit index.
    CommitIndexRequest {
        asked: u64,
    },
    /// The leader of this term has committed the entries up to this index.
    CommitIndexReply {
        term: u64,
        index: u64,
        asked: u64,
    },
    /// The leader wants the hash of the state at this entry.
    StateHashRequest {
        index: u64,
    },
    /// The hash of the state at this entry.
    StateHashReply {
        index: u64,
        hash: u64,
    },
}

/// The offset in [`MemberMessage::SnapshotProgress`] for a snapshot that is of no use.
pub(crate) const SNAPSHOT_REFUSED: u64 = u64::MAX;

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

impl MemberMessage<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(64);
        to.push(VERSION);
        match self {
            MemberMessage::Raft(message) => {
                to.push(1);
                put_message(&mut to, message);
            }
            MemberMessage::Hello(hello) => {
                to.push(2);
                put_u64(&mut to, hello.raft_id);
                to.push(hello.knows_nothing.into());
                to.push(hello.all_blank.into());
            }
            MemberMessage::Invite { raft_id } => {
                to.push(3);
                put_u64(&mut to, *raft_id);
            }
            MemberMessage::SnapshotPiece {
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
            MemberMessage::SnapshotProgress {
                from,
                index,
                offset,
            } => {
                to.push(5);
                put_u64(&mut to, *from);
                put_u64(&mut to, *index);
                put_u64(&mut to, *offset);
            }
            MemberMessage::CommitIndexRequest { asked } => {
                to.push(6);
                put_u64(&mut to, *asked);
            }
            MemberMessage::CommitIndexReply { term, index, asked } => {
                to.push(7);
                put_u64(&mut to, *term);
                put_u64(&mut to, *index);
                put_u64(&mut to, *asked);
            }
            MemberMessage::StateHashRequest { index } => {
                to.push(8);
                put_u64(&mut to, *index);
            }
            MemberMessage::StateHashReply { index, hash } => {
                to.push(9);
                put_u64(&mut to, *index);
                put_u64(&mut to, *hash);
            }
        }
        to
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<MemberMessage<'_>, Malformed> {
        let mut from = Reader::new(bytes);
        let version = from.u8()?;
        if version != VERSION {
            return Err(from.malformed(MalformedKind::Version(version)));
        }
        let kind = from.u8()?;
        let envelope = match kind {
            1 => MemberMessage::Raft(read_message(&mut from)?),
            2 => MemberMessage::Hello(Hello {
                raft_id: from.u64()?,
                knows_nothing: from.bool()?,
                all_blank: from.bool()?,
            }),
            3 => MemberMessage::Invite {
                raft_id: from.u64()?,
            },
            4 => MemberMessage::SnapshotPiece {
                to: from.u64()?,
                announces: read_message(&mut from)?,
                total: from.u64()?,
                offset: from.u64()?,
                piece: from.rest(),
            },
            5 => MemberMessage::SnapshotProgress {
                from: from.u64()?,
                index: from.u64()?,
                offset: from.u64()?,
            },
            6 => MemberMessage::CommitIndexRequest { asked: from.u64()? },
            7 => MemberMessage::CommitIndexReply {
                term: from.u64()?,
                index: from.u64()?,
                asked: from.u64()?,
            },
            8 => MemberMessage::StateHashRequest { index: from.u64()? },
            9 => MemberMessage::StateHashReply {
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
            MemberMessage::Raft(announces.clone()),
            MemberMessage::Hello(Hello {
                raft_id: 65_537,
                knows_nothing: true,
                all_blank: true,
            }),
            MemberMessage::Invite { raft_id: 9 },
            MemberMessage::SnapshotPiece {
                to: 7,
                announces,
                total: 10,
                offset: 4,
                piece: b"piece",
            },
            MemberMessage::SnapshotProgress {
                from: 7,
                index: 3,
                offset: SNAPSHOT_REFUSED,
            },
            MemberMessage::CommitIndexRequest { asked: 4 },
            MemberMessage::CommitIndexReply {
                term: 2,
                index: 3,
                asked: 4,
            },
            MemberMessage::StateHashRequest { index: 3 },
            MemberMessage::StateHashReply { index: 3, hash: 4 },
        ];
        for envelope in all {
            let bytes = envelope.encode();
            assert_eq!(MemberMessage::decode(&bytes).as_ref(), Ok(&envelope));
            let piece = matches!(envelope, MemberMessage::SnapshotPiece { .. });
            for len in 0..bytes.len() - if piece { 5 } else { 0 } {
                assert!(MemberMessage::decode(&bytes[..len]).is_err(), "{len} bytes");
            }
        }
        assert!(
            MemberMessage::decode(&[2, 1]).is_err() && MemberMessage::decode(&[1, 99]).is_err()
        );
    }
}
