//! Messages of all kinds, drawn at random.

use base::eviction::KeyAccess;
use base::key_event::KeyEvent;
use base::participant::{Isolation, Sequenced, State};
use base::partition::OwnedReply;
use base::transaction::{ExpireWhen, Expiry, Holder, Kind, OpError, ScanContents, When};
use base::versions::{Ask, OwnedContent, OwnedFound, OwnedVersion};
use base::{Abort, NodeId, Op, PartitionId, Timestamp, TransactionId, Version};
use fastrand::Rng;
use kumiki_cluster::CoordinatorKey;
use kumiki_cluster::message::{
    Answer, AttemptOutcome, Message, Notice, ParticipantList, Publication, RegionInfo, Request,
};
use kumiki_cluster::ramp::Algorithm;
use kumiki_cluster::ramp::slots::Address;

/// The bytes that messages borrow.
pub(crate) type Bytes = Vec<Vec<u8>>;

/// Draws this many byte strings, most of them short.
pub(crate) fn bytes(random: &mut Rng, count: usize) -> Bytes {
    let one = |random: &mut Rng| {
        let len = match random.u8(..10) {
            0 => 0,
            1 => random.usize(..400),
            _ => random.usize(..12),
        };
        (0..len).map(|_| random.u8(..)).collect()
    };
    (0..count).map(|_| one(random)).collect()
}

/// Draws a number of any size.
fn number(random: &mut Rng) -> u64 {
    random.u64(..) >> random.u32(..64)
}

fn signed(random: &mut Rng) -> i64 {
    (number(random) as i64).wrapping_mul(if random.bool() { 1 } else { -1 })
}

fn id(random: &mut Rng) -> TransactionId {
    TransactionId {
        timestamp: Timestamp(number(random)),
        unique: number(random),
    }
}

pub(crate) fn participant_list(random: &mut Rng) -> ParticipantList {
    let participants = (0..random.usize(1..6)).map(|_| PartitionId(random.u16(..)));
    let participants: Vec<_> = participants.collect();
    let home = participants[random.usize(..participants.len())];
    ParticipantList { home, participants }
}

/// Number of kinds of operations.
pub(crate) const OPS: usize = 33;

/// Draws an operation of the kind with this number.
pub(crate) fn op<'a>(random: &mut Rng, which: usize, pool: &'a Bytes) -> Op<'a> {
    let mut draw = || &pool[random.usize(..pool.len())][..];
    let (key, value) = (draw(), draw());
    let expiry = match random.u8(..4) {
        0 => Expiry::Never,
        1 => Expiry::Keep,
        2 => Expiry::AtMs(signed(random)),
        _ => Expiry::InMs(signed(random)),
    };
    match which {
        0 => Op::Check {
            key,
            version: Version::from_bits(number(random)),
        },
        1 => Op::Require {
            key,
            present: random.bool(),
        },
        2 => Op::Watch { key },
        3 => Op::Get { key },
        4 => Op::GetIfString { key },
        5 => Op::GetRange {
            key,
            start: signed(random),
            end: signed(random),
        },
        6 => Op::Len { key },
        7 => Op::Exists { key },
        8 => Op::KindOf { key },
        9 => Op::ExpiryOf { key },
        10 => Op::Count {
            database: random.u16(..),
        },
        11 => Op::Scan {
            from: key,
            to: random.bool().then_some(value),
            limit: if random.bool() {
                usize::MAX
            } else {
                number(random) as usize
            },
            contents: [
                ScanContents::Keys,
                ScanContents::Values,
                ScanContents::Kinds,
            ][random.usize(..3)],
        },
        12 => Op::Put {
            key,
            value,
            when: [When::Always, When::Absent, When::Present][random.usize(..3)],
            expiry,
            get: random.bool(),
        },
        13 => Op::Delete { key },
        14 => Op::GetDelete { key },
        15 => Op::GetExpire { key, expiry },
        16 => Op::Append { key, value },
        17 => Op::SetRange {
            key,
            offset: number(random) as usize,
            value,
        },
        18 => Op::Add {
            key,
            delta: signed(random),
        },
        19 => Op::AddDecimal { key, delta: value },
        20 => Op::Expire {
            key,
            expiry,
            when: [
                ExpireWhen::Always,
                ExpireWhen::None,
                ExpireWhen::Some,
                ExpireWhen::Later,
                ExpireWhen::Earlier,
                ExpireWhen::SomeAndLater,
                ExpireWhen::SomeAndEarlier,
            ][random.usize(..7)],
        },
        21 => Op::Persist { key },
        22 => Op::Now,
        23 => Op::Guard {
            lock: key,
            token: number(random),
        },
        24 => Op::Libraries,
        25 => Op::CheckLibraries {
            generation: number(random),
        },
        26 => Op::SetLibraries {
            generation: number(random),
            libraries: value,
        },
        27 => Op::FlushDatabase {
            database: random.u16(..),
        },
        28 => Op::SwapDatabases {
            first: random.u16(..),
            second: random.u16(..),
        },
        29 => Op::Announce {
            key,
            event: KeyEvent::ALL[random.usize(..KeyEvent::ALL.len())],
        },
        30 => Op::Inspect { key },
        31 => Op::Access {
            key,
            access: [
                KeyAccess::Touch,
                KeyAccess::IdleSeconds,
                KeyAccess::Frequency,
                KeyAccess::SetIdleSeconds(random.u32(..)),
                KeyAccess::SetFrequency(random.u8(..)),
            ][random.usize(..5)],
        },
        _ => Op::Flush,
    }
}

fn ops<'a>(random: &mut Rng, pool: &'a Bytes) -> Vec<Op<'a>> {
    let count = random.usize(..8);
    let draw = |_| {
        let which = random.usize(..OPS);
        op(random, which, pool)
    };
    (0..count).map(draw).collect()
}

const ERRORS: [OpError; 7] = [
    OpError::WrongType,
    OpError::NotInteger,
    OpError::Overflow,
    OpError::NotNumber,
    OpError::NotFinite,
    OpError::TooLong,
    OpError::BadExpiry,
];

fn reply(random: &mut Rng, pool: &Bytes) -> OwnedReply {
    let draw = |random: &mut Rng| pool[random.usize(..pool.len())].clone();
    match random.u8(..10) {
        0 => OwnedReply::Ok,
        1 => OwnedReply::Nil,
        2 => OwnedReply::Int(signed(random)),
        3 => OwnedReply::Bytes(draw(random)),
        4 => OwnedReply::Kind(Kind::from_u8(random.u8(..5)).expect("five kinds")),
        5 => OwnedReply::Deadline(None),
        6 => OwnedReply::Deadline(Some(number(random))),
        7 => OwnedReply::Version(Version::from_bits(number(random))),
        8 => {
            let count = random.usize(..5);
            OwnedReply::Pairs((0..count).map(|_| (draw(random), draw(random))).collect())
        }
        _ => OwnedReply::Error(ERRORS[random.usize(..7)]),
    }
}

fn text(random: &mut Rng) -> String {
    (0..random.usize(..20)).map(|_| random.char(..)).collect()
}

fn abort(random: &mut Rng) -> Abort {
    match random.u8(..15) {
        14 => Abort::Stale {
            lock: text(random).into_bytes(),
            token: number(random),
            highest: number(random),
        },
        13 => Abort::Unsupported { what: text(random) },
        0 => Abort::Precondition {
            op: number(random) as usize,
        },
        1 => Abort::Conflict {
            attempts: random.u32(..),
        },
        2 => Abort::Held {
            by: Holder {
                id: id(random),
                age: Timestamp(number(random)),
            },
        },
        3 => Abort::Overtaken {
            newest: Timestamp(number(random)),
        },
        4 => Abort::Refused,
        5 => Abort::Unavailable { what: text(random) },
        6 => Abort::Unknown { what: text(random) },
        7 => Abort::TooLarge {
            what: [
                "operations",
                "bytes written",
                "what a partition takes",
                "the length of a lock's name",
            ][random.usize(..4)],
        },
        8 => Abort::ReadOnly {
            reason: text(random),
        },
        9 => Abort::Failed(ERRORS[random.usize(..7)]),
        10 => Abort::Elsewhere {
            leader: random.bool().then(|| NodeId(random.u16(..))),
        },
        11 => Abort::Forgotten,
        12 => Abort::Unacknowledged {
            partitions: vec![random.u16(..); random.usize(..3)],
        },
        _ => Abort::Cancelled,
    }
}

fn found(random: &mut Rng, pool: &Bytes) -> OwnedFound {
    let mut draw = || pool[random.usize(..pool.len())].clone();
    let (siblings, value) = (draw(), draw());
    match random.u8(..5) {
        0 => OwnedFound::Nothing,
        1 => OwnedFound::NotThere,
        2 => OwnedFound::Gone,
        which => OwnedFound::Version(OwnedVersion {
            id: id(random),
            siblings: siblings.into(),
            content: (which == 3).then(|| OwnedContent {
                value,
                kind: Kind::from_u8(random.u8(..5)).expect("five kinds"),
                deadline: random.bool().then(|| number(random)),
            }),
        }),
    }
}

fn ask<'a>(random: &mut Rng, pool: &'a Bytes) -> Ask<'a> {
    let key = &pool[random.usize(..pool.len())];
    match random.u8(..3) {
        0 => Ask::Newest { key },
        1 => Ask::Id { key },
        _ => Ask::OneOf {
            key,
            ids: (0..random.usize(..4)).map(|_| id(random)).collect(),
        },
    }
}

fn answer(random: &mut Rng, pool: &Bytes) -> Answer {
    let note = pool[random.usize(..pool.len())].clone();
    match random.u8(..13) {
        12 => Answer::Region(random.bool().then(|| RegionInfo {
            grant: note,
            clock: number(random),
        })),
        11 => {
            let count = random.usize(..5);
            Answer::Located {
                founds: (0..count).map(|_| found(random, pool)).collect(),
                addresses: (0..count).map(|_| address(random)).collect(),
            }
        }
        10 => {
            let count = random.usize(..5);
            Answer::Versions((0..count).map(|_| found(random, pool)).collect())
        }
        9 => {
            let outcomes = (0..random.usize(..4)).map(|_| match random.bool() {
                true => Ok((0..random.usize(..4))
                    .map(|_| reply(random, pool))
                    .collect()),
                false => Err(abort(random)),
            });
            Answer::Each(outcomes.collect())
        }
        8 => Answer::Session(number(random)),
        7 => {
            let count = random.usize(..8);
            Answer::Read {
                finished: base::Epoch(number(random)),
                replies: (0..count).map(|_| reply(random, pool)).collect(),
            }
        }
        0 => {
            let count = random.usize(..8);
            Answer::Replies((0..count).map(|_| reply(random, pool)).collect())
        }
        1 => Answer::Aborted(abort(random)),
        2 => Answer::Done,
        3 => Answer::State(match random.u8(..4) {
            0 => State::Unknown,
            1 => State::Prepared(note),
            2 => State::Committed(note),
            _ => State::Refused,
        }),
        4 => Answer::AttemptOutcome(
            [
                AttemptOutcome::Committed,
                AttemptOutcome::Aborted,
                AttemptOutcome::Open,
            ][random.usize(..3)],
        ),
        5 => Answer::Topology(text(random)),
        _ => Answer::Failed(text(random)),
    }
}

fn address(random: &mut Rng) -> Option<Address> {
    let mut bytes = [0; Address::BYTES];
    bytes.fill_with(|| random.u8(..));
    random.bool().then(|| Address::from_bytes(bytes))
}

fn request<'a>(random: &mut Rng, pool: &'a Bytes) -> Request<'a> {
    let id = id(random);
    match random.u8(..17) {
        16 => Request::Region {
            offer: &pool[random.usize(..pool.len())],
        },
        15 => Request::Locate {
            keys: (0..random.usize(..5))
                .map(|_| &pool[random.usize(..pool.len())][..])
                .collect(),
        },
        14 => Request::Versions {
            asks: (0..random.usize(..5)).map(|_| ask(random, pool)).collect(),
        },
        13 => Request::Ramp {
            algorithm: Algorithm::ALL[random.usize(..3)],
            ops: ops(random, pool),
        },
        12 => Request::Each {
            transactions: (0..random.usize(..4)).map(|_| ops(random, pool)).collect(),
        },
        11 => Request::OpenSession,
        10 => Request::Once {
            of: Sequenced {
                session: number(random),
                sequence: number(random),
            },
            ops: ops(random, pool),
        },
        9 => Request::Read {
            ops: ops(random, pool),
        },
        0 => Request::Execute {
            ops: ops(random, pool),
        },
        1 => Request::Coordinate {
            holds: random.bool(),
            ops: ops(random, pool),
        },
        2 => Request::Prepare {
            id,
            age: Timestamp(number(random)),
            participant_list: participant_list(random),
            siblings: &pool[0],
            isolation: [Isolation::Serializable, Isolation::ReadAtomic][random.usize(..2)],
            ops: ops(random, pool),
        },
        3 => Request::Commit {
            id,
            awaited: random.bool(),
        },
        4 => Request::Vote { id },
        5 => Request::Outcome { id },
        6 => Request::Abandon { id },
        7 => Request::Inquire { id },
        _ => Request::Topology,
    }
}

/// Draws a message of any kind.
pub(crate) fn message<'a>(random: &mut Rng, pool: &'a Bytes) -> Message<'a> {
    let number = number(random);
    match random.u8(..9) {
        0..4 => Message::Request {
            number,
            request: request(random, pool),
        },
        4..8 => Message::Reply {
            number,
            reply: answer(random, pool),
        },
        _ => {
            let id = id(random);
            match (random.bool(), random.u8(..4)) {
                (_, 0) => Message::Introduction(CoordinatorKey::new(id.to_bytes())),
                (sharded, 1) => Message::Publication(Publication {
                    sharded,
                    channel: &pool[random.usize(..pool.len())],
                    payload: &pool[random.usize(..pool.len())],
                }),
                (true, _) => Message::Notice(Notice::Abort { id }),
                (false, _) => Message::Notice(Notice::Forget { id }),
            }
        }
    }
}
