//! Bytes of the messages of transactions, in our encoding: each has a constant part and a part for
//! each key.

use base::participant::Isolation;
use base::partition::OwnedReply;
use base::transaction::Kind;
use base::versions::{Ask, OwnedContent, OwnedFound, OwnedVersion};
use base::{Op, PartitionId, Timestamp, TransactionId};
use cluster::codec;
use cluster::message::{Answer, Message, Notice, ParticipantList, Request};
use cluster::ramp::{Algorithm, siblings};

use crate::systems::AtomicityProtocol;

/// The length that stands before each message.
const FRAME: usize = 4;

/// Bytes of a message: once, and for each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageSize {
    once: usize,
    key: usize,
}

impl MessageSize {
    /// Derives it from the lengths with few keys; numbers of keys take one byte then.
    fn from(length: impl Fn(usize) -> usize) -> MessageSize {
        let (one, two) = (length(1), length(2));
        let key = two - one;
        MessageSize {
            once: FRAME + one - key,
            key,
        }
    }

    /// Returns the bytes of a message with so many keys.
    #[must_use]
    pub fn of(&self, keys: usize) -> usize {
        self.once + keys * self.key
    }
}

/// The sizes of all messages of a way.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The names are those of the messages.
pub struct MessageSizes {
    pub ask_newest: MessageSize,
    /// With versions that have no information about others.
    pub found_newest: MessageSize,
    /// The bytes of each version about those that were written with it, in addition to that.
    pub siblings: usize,
    pub ask_id: MessageSize,
    pub found_id: MessageSize,
    /// With one id for each key.
    pub ask_one_of: MessageSize,
    pub read: MessageSize,
    pub read_reply: MessageSize,
    pub write: MessageSize,
    pub write_reply: MessageSize,
    pub prepare_read: MessageSize,
    pub prepare_write: MessageSize,
    pub commit: MessageSize,
    pub done: MessageSize,
    pub notice: MessageSize,
}

impl MessageSizes {
    /// Returns the sizes for transactions of `width` keys with values of `value` bytes.
    #[must_use]
    pub fn new(protocol: AtomicityProtocol, width: usize, value: usize) -> MessageSizes {
        let names: Vec<[u8; 11]> = (0..width.max(2) as u64)
            .map(|key| protocol.key(key))
            .collect();
        let written = names[..width].iter().map(|name| &name[..]);
        let algorithm = protocol.algorithm().unwrap_or(Algorithm::Fast);
        let told = siblings(algorithm, written);
        let bytes = vec![0; value];
        let some = |count: usize| names[..count].iter().map(|name| &name[..]);
        let gets = |n: usize| some(n).map(|key| Op::Get { key }).collect::<Vec<_>>();
        let puts = |n: usize| some(n).map(|key| Op::put(key, &bytes)).collect::<Vec<_>>();
        let asks = |ask: fn(&[u8]) -> Ask<'_>| {
            MessageSize::from(|n| {
                request(Request::Versions {
                    asks: some(n).map(ask).collect(),
                })
            })
        };
        let found = |content: Option<OwnedContent>| {
            let version = OwnedFound::Version(OwnedVersion {
                id: ID,
                siblings: Vec::new().into(),
                content,
            });
            MessageSize::from(|n| reply(Answer::Versions(vec![version.clone(); n])))
        };
        let content = OwnedContent {
            value: bytes.clone(),
            kind: Kind::String,
            deadline: None,
        };
        let prepare = |ops: Vec<Op<'_>>| {
            request(Request::Prepare {
                id: ID,
                age: ID.timestamp,
                participant_list: ParticipantList {
                    home: PartitionId(1),
                    participants: (1..=width.min(4) as u16).map(PartitionId).collect(),
                },
                siblings: &told,
                isolation: Isolation::Serializable,
                ops,
            })
        };
        let coordinate = |ops| request(Request::Coordinate { holds: true, ops });
        let values = |n| reply(Answer::Replies(vec![OwnedReply::Bytes(bytes.clone()); n]));
        MessageSizes {
            ask_newest: asks(|key| Ask::Newest { key }),
            found_newest: found(Some(content)),
            siblings: told.len(),
            ask_id: asks(|key| Ask::Id { key }),
            found_id: found(None),
            ask_one_of: asks(|key| Ask::OneOf { key, ids: vec![ID] }),
            read: MessageSize::from(|n| coordinate(gets(n))),
            read_reply: MessageSize::from(values),
            write: MessageSize::from(|n| coordinate(puts(n))),
            write_reply: MessageSize::from(|n| reply(Answer::Replies(vec![OwnedReply::Ok; n]))),
            prepare_read: MessageSize::from(|n| prepare(gets(n))),
            prepare_write: MessageSize::from(|n| prepare(puts(n))),
            commit: MessageSize::from(|_| {
                request(Request::Commit {
                    id: ID,
                    awaited: true,
                })
            }),
            done: MessageSize::from(|_| reply(Answer::Done)),
            notice: MessageSize::from(|_| length(&Message::Notice(Notice::Forget { id: ID }))),
        }
    }
}

const ID: TransactionId = TransactionId {
    timestamp: Timestamp::ZERO,
    unique: 1,
};

fn request(request: Request<'_>) -> usize {
    length(&Message::Request { number: 1, request })
}

fn reply(reply: Answer) -> usize {
    length(&Message::Reply { number: 1, reply })
}

fn length(message: &Message<'_>) -> usize {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes);
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_siblings_are_most_of_it() {
        let of = |protocol| MessageSizes::new(protocol, 8, 1000);
        for protocol in AtomicityProtocol::ALL {
            let sizes = of(protocol);
            assert!(
                sizes.read_reply.of(8) > 8000 && sizes.read.of(8) < 400,
                "{protocol:?}"
            );
            assert!(sizes.commit.of(0) < 60 && sizes.notice.of(0) < 60);
            assert!(sizes.prepare_write.of(4) > 4000 && sizes.prepare_read.of(4) < 400);
        }
        // Each version names eight keys of eleven bytes, or none, or has a filter of 32.
        let told = |protocol| of(protocol).siblings;
        assert!((8 * 11..8 * 16).contains(&told(AtomicityProtocol::RampF)));
        assert!(
            (32..40).contains(&told(AtomicityProtocol::RampH))
                && told(AtomicityProtocol::RampS) < 8
        );
        assert!(of(AtomicityProtocol::RampS).found_id.of(8) < 400);
    }
}
