//! Messages as bytes.
//!
//! A message:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 1 | version | 5 |
//! | 1 | kind | see below |
//! | 8 | number | of requests and replies: ties them together |
//! | … | body | by kind |
//!
//! | kind | message | body |
//! |---|---|---|
//! | 1 | request: execute | ops |
//! | 2 | request: coordinate | flag: what is only read is held; ops |
//! | 3 | request: prepare | id, age (8 bytes), participant list, siblings (bytes), 1 byte: 0 serializable, 1 read atomic; ops |
//! | 4 | request: commit | id, flag: the sender waits for the answer |
//! | 5 | request: vote | id |
//! | 6 | request: outcome | id |
//! | 7 | request: abandon | id |
//! | 8 | request: inquire | id |
//! | 9 | request: topology | nothing |
//! | 10 | request: read | ops |
//! | 11 | request: once | session (8 bytes), sequence (8 bytes), ops |
//! | 12 | request: open session | nothing |
//! | 13 | request: each | count, then so many ops |
//! | 14 | request: versions | asks |
//! | 15 | request: ramp | 1 byte: 0 fast, 1 small, 2 hybrid; ops |
//! | 16 | request: locate | count, then so many keys (bytes) |
//! | 17 | request: region | by what the asker would reach it (bytes): nothing for memory of one machine; for that of an RDMA device the address of his queue pair |
//! | 32 | reply: replies | replies |
//! | 33 | reply: aborted | abort |
//! | 34 | reply: done | nothing |
//! | 35 | reply: state | 1 byte: 0 unknown, 1 prepared, 2 committed, 3 refused; of 1 and 2 the note (bytes) |
//! | 36 | reply: attempt outcome | 1 byte: 0 committed, 1 aborted, 2 open |
//! | 37 | reply: topology | text |
//! | 38 | reply: failed | text |
//! | 39 | reply: read | finished epoch (8 bytes), replies |
//! | 40 | reply: session | its id (8 bytes) |
//! | 41 | reply: each | count, then of each 1 byte: 0 and replies, or 1 and an abort |
//! | 42 | reply: versions | founds |
//! | 43 | reply: located | founds; then of each a flag, and the address of its slot (24 bytes) if set |
//! | 44 | reply: region | a flag; if set, a grant for the region (bytes) and the node's clock (8 bytes, ns) |
//! | 64 | notice: abort | id |
//! | 65 | notice: forget | id |
//! | 66 | introduction | the key of the client's attempts (16 bytes): the ids of its attempts have the first 8 bytes of the SHA-256 of `kumiki coordinator key`, a zero byte and the key |
//! | 67 | publication | flag: to a shard channel; channel (bytes), message (bytes) |
//!
//! Elements of bodies:
//!
//! | name | encoding |
//! |---|---|
//! | integers | little-endian, of the size that is named |
//! | count | 1 to 10 bytes: seven bits each, the lowest first, the top bit set in all but the last; as short as possible |
//! | bytes | count, then so many bytes |
//! | text | as bytes, UTF-8 |
//! | flag | 1 byte, 0 or 1 |
//! | id | 16 bytes: the attempt's timestamp and its unique number, big-endian, as in keys |
//! | ops, replies | count, then so many; see the modules `ops` and `replies` |
//! | asks, founds | count, then so many; see the module `versions` |
//! | participant list | see `participant_list` |
//!
//! Invariants:
//! 1. One message has one encoding: decoding and encoding it again gives the same bytes.
//! 2. Decoding never panics, and what it allocates is bounded by the length of its input: a count of
//!    more things than bytes follow is refused.
//! 3. Operations borrow their keys and values from the input.

mod participant_list;

use base::Abort;
use base::participant::{Isolation, Sequenced, State};
use base::partition::OwnedReply;

use crate::coordinator_key::CoordinatorKey;
use crate::message::{Answer, AttemptOutcome, Message, Notice, Publication, RegionInfo, Request};
use crate::ramp::Algorithm;
use crate::ramp::slots::Address;
use base::codec::{
    Reader, put_bytes, put_count, put_u64, read_abort, read_asks, read_founds, read_ops,
    read_replies, write_abort, write_asks, write_founds, write_replies,
};

pub use base::codec::{Malformed, MalformedKind, VERSION, decode_ops, encode_ops};
pub use participant_list::{decode_participant_list, encode_participant_list};

mod kind {
    pub(super) const EXECUTE: u8 = 1;
    pub(super) const COORDINATE: u8 = 2;
    pub(super) const PREPARE: u8 = 3;
    pub(super) const COMMIT: u8 = 4;
    pub(super) const VOTE: u8 = 5;
    pub(super) const OUTCOME: u8 = 6;
    pub(super) const ABANDON: u8 = 7;
    pub(super) const INQUIRE: u8 = 8;
    pub(super) const TOPOLOGY: u8 = 9;
    pub(super) const READ: u8 = 10;
    pub(super) const ONCE: u8 = 11;
    pub(super) const OPEN_SESSION: u8 = 12;
    pub(super) const EACH: u8 = 13;
    pub(super) const VERSIONS: u8 = 14;
    pub(super) const RAMP: u8 = 15;
    pub(super) const LOCATE: u8 = 16;
    pub(super) const REGION: u8 = 17;
    pub(super) const REPLIES: u8 = 32;
    pub(super) const ABORTED: u8 = 33;
    pub(super) const DONE: u8 = 34;
    pub(super) const STATE: u8 = 35;
    pub(super) const ATTEMPT_OUTCOME: u8 = 36;
    pub(super) const FILE: u8 = 37;
    pub(super) const FAILED: u8 = 38;
    pub(super) const WAS_READ: u8 = 39;
    pub(super) const SESSION: u8 = 40;
    pub(super) const WAS_EACH: u8 = 41;
    pub(super) const WERE_VERSIONS: u8 = 42;
    pub(super) const WERE_LOCATED: u8 = 43;
    pub(super) const WAS_REGION: u8 = 44;
    pub(super) const ABORT: u8 = 64;
    pub(super) const FORGET: u8 = 65;
    pub(super) const INTRODUCTION: u8 = 66;
    pub(super) const PUBLICATION: u8 = 67;
}

/// Appends a message.
pub fn encode(message: &Message<'_>, to: &mut Vec<u8>) {
    match message {
        Message::Request { number, request } => {
            head(to, request_kind(request));
            put_u64(to, *number);
            encode_request(request, to);
        }
        Message::Reply { number, reply } => {
            head(to, answer_kind(reply));
            put_u64(to, *number);
            encode_answer(reply, to);
        }
        Message::Notice(Notice::Abort { id }) => {
            head(to, kind::ABORT);
            to.extend_from_slice(&id.to_bytes());
        }
        Message::Notice(Notice::Forget { id }) => {
            head(to, kind::FORGET);
            to.extend_from_slice(&id.to_bytes());
        }
        Message::Introduction(key) => {
            head(to, kind::INTRODUCTION);
            to.extend_from_slice(key.as_bytes());
        }
        Message::Publication(publication) => {
            head(to, kind::PUBLICATION);
            to.push(publication.sharded.into());
            put_bytes(to, publication.channel);
            put_bytes(to, publication.payload);
        }
    }
}

/// Decodes a message, which is all of `bytes`.
///
/// # Errors
/// [`Malformed`] says what is wrong with the bytes.
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let mut from = Reader::new(bytes);
    let version = from.u8()?;
    if version != VERSION {
        return Err(from.malformed(MalformedKind::Version(version)));
    }
    let kind = from.u8()?;
    let message = match kind {
        kind::EXECUTE..=kind::REGION => Message::Request {
            number: from.u64()?,
            request: decode_request(kind, &mut from)?,
        },
        kind::REPLIES..=kind::WAS_REGION => Message::Reply {
            number: from.u64()?,
            reply: decode_answer(kind, &mut from)?,
        },
        kind::ABORT => Message::Notice(Notice::Abort { id: from.id()? }),
        kind::FORGET => Message::Notice(Notice::Forget { id: from.id()? }),
        kind::INTRODUCTION => Message::Introduction(CoordinatorKey::new(from.array()?)),
        kind::PUBLICATION => Message::Publication(Publication {
            sharded: from.bool()?,
            channel: from.bytes()?,
            payload: from.bytes()?,
        }),
        _ => return Err(from.malformed(MalformedKind::Kind(kind, "message"))),
    };
    from.end()?;
    Ok(message)
}

/// Each list has its values in the order of their numbers.
const ISOLATIONS: [Isolation; 2] = [Isolation::Serializable, Isolation::ReadAtomic];
const ALGORITHMS: [Algorithm; 3] = [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid];

fn number_of<T: PartialEq>(all: &[T], one: T) -> u8 {
    let at = all.iter().position(|other| *other == one);
    at.expect("every variant is in its list") as u8
}

fn one_of<T: Copy>(all: &[T], what: &'static str, from: &mut Reader<'_>) -> Result<T, Malformed> {
    let number = from.u8()?;
    let unknown = from.malformed(MalformedKind::Kind(number, what));
    all.get(usize::from(number)).copied().ok_or(unknown)
}

fn head(to: &mut Vec<u8>, kind: u8) {
    to.extend_from_slice(&[VERSION, kind]);
}

fn request_kind(request: &Request<'_>) -> u8 {
    match request {
        Request::Execute { .. } => kind::EXECUTE,
        Request::Coordinate { .. } => kind::COORDINATE,
        Request::Prepare { .. } => kind::PREPARE,
        Request::Commit { .. } => kind::COMMIT,
        Request::Vote { .. } => kind::VOTE,
        Request::Outcome { .. } => kind::OUTCOME,
        Request::Abandon { .. } => kind::ABANDON,
        Request::Inquire { .. } => kind::INQUIRE,
        Request::Topology => kind::TOPOLOGY,
        Request::Read { .. } => kind::READ,
        Request::Once { .. } => kind::ONCE,
        Request::OpenSession => kind::OPEN_SESSION,
        Request::Each { .. } => kind::EACH,
        Request::Versions { .. } => kind::VERSIONS,
        Request::Ramp { .. } => kind::RAMP,
        Request::Locate { .. } => kind::LOCATE,
        Request::Region { .. } => kind::REGION,
    }
}

fn encode_request(request: &Request<'_>, to: &mut Vec<u8>) {
    match request {
        Request::Execute { ops } | Request::Read { ops } => encode_ops(ops, to),
        Request::Coordinate { holds, ops } => {
            to.push((*holds).into());
            encode_ops(ops, to);
        }
        Request::Ramp { algorithm, ops } => {
            to.push(number_of(&ALGORITHMS, *algorithm));
            encode_ops(ops, to);
        }
        Request::Versions { asks } => write_asks(asks, to),
        Request::Locate { keys } => {
            put_count(to, keys.len() as u64);
            keys.iter().for_each(|key| put_bytes(to, key));
        }
        Request::Prepare {
            id,
            age,
            participant_list,
            siblings,
            isolation,
            ops,
        } => {
            to.extend_from_slice(&id.to_bytes());
            put_u64(to, age.0);
            encode_participant_list(participant_list, to);
            put_bytes(to, siblings);
            to.push(number_of(&ISOLATIONS, *isolation));
            encode_ops(ops, to);
        }
        Request::Commit { id, awaited } => {
            to.extend_from_slice(&id.to_bytes());
            to.push((*awaited).into());
        }
        Request::Vote { id }
        | Request::Outcome { id }
        | Request::Abandon { id }
        | Request::Inquire { id } => to.extend_from_slice(&id.to_bytes()),
        Request::Once { of, ops } => {
            put_u64(to, of.session);
            put_u64(to, of.sequence);
            encode_ops(ops, to);
        }
        Request::Each { transactions } => {
            put_count(to, transactions.len() as u64);
            transactions.iter().for_each(|ops| encode_ops(ops, to));
        }
        Request::Region { offer } => put_bytes(to, offer),
        Request::Topology | Request::OpenSession => {}
    }
}

fn decode_request<'a>(kind: u8, from: &mut Reader<'a>) -> Result<Request<'a>, Malformed> {
    Ok(match kind {
        kind::EXECUTE => Request::Execute {
            ops: read_ops(from)?,
        },
        kind::COORDINATE => Request::Coordinate {
            holds: from.bool()?,
            ops: read_ops(from)?,
        },
        kind::PREPARE => Request::Prepare {
            id: from.id()?,
            age: base::Timestamp(from.u64()?),
            participant_list: participant_list::read(from)?,
            siblings: from.bytes()?,
            isolation: one_of(&ISOLATIONS, "isolation", from)?,
            ops: read_ops(from)?,
        },
        kind::COMMIT => Request::Commit {
            id: from.id()?,
            awaited: from.bool()?,
        },
        kind::VERSIONS => Request::Versions {
            asks: read_asks(from)?,
        },
        kind::LOCATE => Request::Locate {
            keys: from.list(Reader::bytes)?,
        },
        kind::REGION => Request::Region {
            offer: from.bytes()?,
        },
        kind::RAMP => Request::Ramp {
            algorithm: one_of(&ALGORITHMS, "algorithm", from)?,
            ops: read_ops(from)?,
        },
        kind::VOTE => Request::Vote { id: from.id()? },
        kind::OUTCOME => Request::Outcome { id: from.id()? },
        kind::ABANDON => Request::Abandon { id: from.id()? },
        kind::INQUIRE => Request::Inquire { id: from.id()? },
        kind::TOPOLOGY => Request::Topology,
        kind::READ => Request::Read {
            ops: read_ops(from)?,
        },
        kind::ONCE => Request::Once {
            of: Sequenced {
                session: from.u64()?,
                sequence: from.u64()?,
            },
            ops: read_ops(from)?,
        },
        kind::OPEN_SESSION => Request::OpenSession,
        kind::EACH => Request::Each {
            transactions: from.list(read_ops)?,
        },
        _ => return Err(from.malformed(MalformedKind::Kind(kind, "request"))),
    })
}

fn answer_kind(answer: &Answer) -> u8 {
    match answer {
        Answer::Replies(_) => kind::REPLIES,
        Answer::Aborted(_) => kind::ABORTED,
        Answer::Done => kind::DONE,
        Answer::State(_) => kind::STATE,
        Answer::AttemptOutcome(_) => kind::ATTEMPT_OUTCOME,
        Answer::Topology(_) => kind::FILE,
        Answer::Failed(_) => kind::FAILED,
        Answer::Read { .. } => kind::WAS_READ,
        Answer::Session(_) => kind::SESSION,
        Answer::Each(_) => kind::WAS_EACH,
        Answer::Versions(_) => kind::WERE_VERSIONS,
        Answer::Located { .. } => kind::WERE_LOCATED,
        Answer::Region(_) => kind::WAS_REGION,
    }
}

fn encode_answer(answer: &Answer, to: &mut Vec<u8>) {
    match answer {
        Answer::Replies(replies) => write_replies(replies, to),
        Answer::Aborted(abort) => write_abort(abort, to),
        Answer::Session(id) => put_u64(to, *id),
        Answer::Versions(founds) => write_founds(founds, to),
        Answer::Located { founds, addresses } => {
            write_founds(founds, to);
            for address in addresses {
                to.push(address.is_some().into());
                if let Some(address) = address {
                    to.extend_from_slice(&address.to_bytes());
                }
            }
        }
        Answer::Region(region) => {
            to.push(region.is_some().into());
            if let Some(RegionInfo { grant, clock }) = region {
                put_bytes(to, grant);
                put_u64(to, *clock);
            }
        }
        Answer::Each(outcomes) => {
            put_count(to, outcomes.len() as u64);
            outcomes.iter().for_each(|one| encode_outcome(one, to));
        }
        Answer::Done => {}
        Answer::State(State::Unknown) => to.push(0),
        Answer::State(State::Prepared(note)) => {
            to.push(1);
            put_bytes(to, note);
        }
        Answer::State(State::Committed(note)) => {
            to.push(2);
            put_bytes(to, note);
        }
        Answer::State(State::Refused) => to.push(3),
        Answer::AttemptOutcome(fate) => to.push(match fate {
            AttemptOutcome::Committed => 0,
            AttemptOutcome::Aborted => 1,
            AttemptOutcome::Open => 2,
        }),
        Answer::Topology(text) | Answer::Failed(text) => put_bytes(to, text.as_bytes()),
        Answer::Read { finished, replies } => {
            put_u64(to, finished.0);
            write_replies(replies, to);
        }
    }
}

fn encode_outcome(outcome: &Result<Vec<OwnedReply>, Abort>, to: &mut Vec<u8>) {
    match outcome {
        Ok(replies) => {
            to.push(0);
            write_replies(replies, to);
        }
        Err(abort) => {
            to.push(1);
            write_abort(abort, to);
        }
    }
}

fn read_address(from: &mut Reader<'_>) -> Result<Option<Address>, Malformed> {
    Ok(match from.bool()? {
        false => None,
        true => Some(Address::from_bytes(from.array()?)),
    })
}

fn decode_outcome(from: &mut Reader<'_>) -> Result<Result<Vec<OwnedReply>, Abort>, Malformed> {
    Ok(match from.u8()? {
        0 => Ok(read_replies(from)?),
        1 => Err(read_abort(from)?),
        other => return Err(from.malformed(MalformedKind::Kind(other, "outcome"))),
    })
}

fn decode_answer(kind: u8, from: &mut Reader<'_>) -> Result<Answer, Malformed> {
    Ok(match kind {
        kind::REPLIES => Answer::Replies(read_replies(from)?),
        kind::ABORTED => Answer::Aborted(read_abort(from)?),
        kind::DONE => Answer::Done,
        kind::STATE => Answer::State(match from.u8()? {
            0 => State::Unknown,
            1 => State::Prepared(from.bytes()?.to_vec()),
            2 => State::Committed(from.bytes()?.to_vec()),
            3 => State::Refused,
            other => return Err(from.malformed(MalformedKind::Kind(other, "state"))),
        }),
        kind::ATTEMPT_OUTCOME => Answer::AttemptOutcome(match from.u8()? {
            0 => AttemptOutcome::Committed,
            1 => AttemptOutcome::Aborted,
            2 => AttemptOutcome::Open,
            other => return Err(from.malformed(MalformedKind::Kind(other, "fate"))),
        }),
        kind::FILE => Answer::Topology(from.text()?.to_owned()),
        kind::FAILED => Answer::Failed(from.text()?.to_owned()),
        kind::WAS_READ => Answer::Read {
            finished: base::Epoch(from.u64()?),
            replies: read_replies(from)?,
        },
        kind::SESSION => Answer::Session(from.u64()?),
        kind::WAS_EACH => Answer::Each(from.list(decode_outcome)?),
        kind::WERE_VERSIONS => Answer::Versions(read_founds(from)?),
        kind::WERE_LOCATED => {
            let founds = read_founds(from)?;
            let addresses = founds.iter().map(|_| read_address(from));
            let addresses = addresses.collect::<Result<_, Malformed>>()?;
            Answer::Located { founds, addresses }
        }
        kind::WAS_REGION => Answer::Region(match from.bool()? {
            false => None,
            true => Some(RegionInfo {
                grant: from.bytes()?.to_vec(),
                clock: from.u64()?,
            }),
        }),
        _ => return Err(from.malformed(MalformedKind::Kind(kind, "reply"))),
    })
}
