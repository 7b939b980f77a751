//! Operations as bytes: a tag, then the fields in this order.
//!
//! | tag | operation | fields |
//! |---|---|---|
//! | 1 | check | key, version (8 bytes) |
//! | 2 | require | key, 1 byte: 1 if it must be present |
//! | 3 | watch | key |
//! | 4 | get | key |
//! | 5 | get if string | key |
//! | 6 | get range | key, start (8 bytes, signed), end (8 bytes, signed) |
//! | 7 | length | key |
//! | 8 | exists | key |
//! | 9 | kind of | key |
//! | 10 | expiry of | key |
//! | 11 | count | database (2 bytes) |
//! | 12 | scan | flags (1: has an end; 2: values are wanted, or 4: types), from, the end if it has one, limit (count) |
//! | 13 | put | flags (1, 2: when; 4, 8: expiry; 16: get), milliseconds if the expiry has them, key, value |
//! | 14 | delete | key |
//! | 15 | get and delete | key |
//! | 16 | get and expire | expiry, key |
//! | 17 | append | key, value |
//! | 18 | set range | key, offset (count), value |
//! | 19 | add | key, delta (8 bytes, signed) |
//! | 20 | add decimal | key, delta (bytes) |
//! | 21 | expire | expiry, 1 byte: when, key |
//! | 22 | persist | key |
//! | 23 | flush | none |
//! | 24 | now | none |
//! | 25 | guard | lock (bytes), token (8 bytes) |
//! | 26 | libraries | none |
//! | 27 | check libraries | generation (8 bytes) |
//! | 28 | set libraries | generation (8 bytes), libraries (bytes) |
//! | 29 | announce | key, 1 byte: the number of the event |
//! | 30 | flush database | database (2 bytes) |
//! | 31 | swap databases | first (2 bytes), second (2 bytes) |
//! | 32 | call | key, the number of a command on collections (2 bytes), its seed (8 bytes) if it has bit 14, its arguments behind the key: count, then so many times bytes |
//! | 33 | get any | key |
//! | 34 | put any | expiry, key, 1 byte: the type as in logs, value |
//! | 35 | inspect | key |
//! | 36 | access | key, 1 byte: which, a number (4 bytes) if that is 3 or 4 |
//!
//! | field | encoding |
//! |---|---|
//! | key, value, from, end | bytes |
//! | when of a put | 0 always, 1 if absent, 2 if present |
//! | expiry | 1 byte: 0 never, 1 keep, 2 at, 3 in; of 2 and 3 milliseconds (8 bytes, signed) |
//! | which access | 0 touch, 1 idle seconds, 2 frequency, 3 set idle seconds, 4 set frequency |
//! | when of an expire | 0 always, 1 if none, 2 if some, 3 later, 4 earlier, 5 some and later, 6 some and earlier |

use crate::model::eviction::KeyAccess;
use crate::model::key_event::KeyEvent;
use crate::model::operation::{ExpireWhen, Expiry, Kind, Op, ScanContents, When};
use crate::model::value_call::ValueCall;

use super::bytes::{Reader, put_bytes, put_count, put_i64, put_u64};
use super::malformed::{Malformed, MalformedKind};

mod tag {
    pub(super) const CHECK: u8 = 1;
    pub(super) const REQUIRE: u8 = 2;
    pub(super) const WATCH: u8 = 3;
    pub(super) const GET: u8 = 4;
    pub(super) const GET_IF_STRING: u8 = 5;
    pub(super) const GET_RANGE: u8 = 6;
    pub(super) const LEN: u8 = 7;
    pub(super) const EXISTS: u8 = 8;
    pub(super) const KIND_OF: u8 = 9;
    pub(super) const EXPIRY_OF: u8 = 10;
    pub(super) const COUNT: u8 = 11;
    pub(super) const SCAN: u8 = 12;
    pub(super) const PUT: u8 = 13;
    pub(super) const DELETE: u8 = 14;
    pub(super) const GET_DELETE: u8 = 15;
    pub(super) const GET_EXPIRE: u8 = 16;
    pub(super) const APPEND: u8 = 17;
    pub(super) const SET_RANGE: u8 = 18;
    pub(super) const ADD: u8 = 19;
    pub(super) const ADD_DECIMAL: u8 = 20;
    pub(super) const EXPIRE: u8 = 21;
    pub(super) const PERSIST: u8 = 22;
    pub(super) const FLUSH: u8 = 23;
    pub(super) const NOW: u8 = 24;
    pub(super) const GUARD: u8 = 25;
    pub(super) const LIBRARIES: u8 = 26;
    pub(super) const CHECK_LIBRARIES: u8 = 27;
    pub(super) const SET_LIBRARIES: u8 = 28;
    pub(super) const ANNOUNCE: u8 = 29;
    pub(super) const FLUSH_DATABASE: u8 = 30;
    pub(super) const SWAP_DATABASES: u8 = 31;
    pub(super) const CALL: u8 = 32;
    pub(super) const GET_ANY: u8 = 33;
    pub(super) const PUT_ANY: u8 = 34;
    pub(super) const INSPECT: u8 = 35;
    pub(super) const ACCESS: u8 = 36;
}

/// The flags of a scan.
const HAS_END: u8 = 1;
const CONTENTS_SHIFT: u8 = 1;
/// The flags of a put.
const EXPIRY_SHIFT: u8 = 2;
const GET: u8 = 16;

const CONTENTS: [ScanContents; 3] = [
    ScanContents::Keys,
    ScanContents::Values,
    ScanContents::Kinds,
];
const WHENS: [When; 3] = [When::Always, When::Absent, When::Present];
const EXPIRE_WHENS: [ExpireWhen; 7] = [
    ExpireWhen::Always,
    ExpireWhen::None,
    ExpireWhen::Some,
    ExpireWhen::Later,
    ExpireWhen::Earlier,
    ExpireWhen::SomeAndLater,
    ExpireWhen::SomeAndEarlier,
];

/// Appends operations, with their count before them.
pub fn encode_ops(ops: &[Op<'_>], to: &mut Vec<u8>) {
    put_count(to, ops.len() as u64);
    ops.iter().for_each(|op| write(op, to));
}

/// Reads operations, which are all of `bytes`.
///
/// # Errors
/// Returns an error if they are malformed.
pub fn decode_ops(bytes: &[u8]) -> Result<Vec<Op<'_>>, Malformed> {
    let mut from = Reader::new(bytes);
    let ops = read_ops(&mut from)?;
    from.end()?;
    Ok(ops)
}

/// Reads operations; bytes may follow.
///
/// # Errors
/// As [`decode_ops`].
pub fn read_ops<'a>(from: &mut Reader<'a>) -> Result<Vec<Op<'a>>, Malformed> {
    from.list(read)
}

fn write(op: &Op<'_>, to: &mut Vec<u8>) {
    to.push(tag_of(op));
    match *op {
        Op::Scan {
            from,
            to: end,
            limit,
            contents,
        } => {
            let of_end = if end.is_some() { HAS_END } else { 0 };
            to.push(of_end | place(&CONTENTS, &contents) << CONTENTS_SHIFT);
            put_bytes(to, from);
            end.iter().for_each(|end| put_bytes(to, end));
            return put_count(to, limit as u64);
        }
        Op::Count { database } | Op::FlushDatabase { database } => {
            return to.extend_from_slice(&database.to_le_bytes());
        }
        Op::SwapDatabases { first, second } => {
            to.extend_from_slice(&first.to_le_bytes());
            return to.extend_from_slice(&second.to_le_bytes());
        }
        Op::Guard { lock, token } => {
            put_bytes(to, lock);
            return put_u64(to, token);
        }
        Op::CheckLibraries { generation } => return put_u64(to, generation),
        Op::SetLibraries {
            generation,
            libraries,
        } => {
            put_u64(to, generation);
            return put_bytes(to, libraries);
        }
        Op::Put {
            when, expiry, get, ..
        } => {
            let (expiry, ms) = expiry_code(expiry);
            to.push(place(&WHENS, &when) | expiry << EXPIRY_SHIFT | if get { GET } else { 0 });
            ms.iter().for_each(|&ms| put_i64(to, ms));
        }
        Op::GetExpire { expiry, .. } | Op::PutAny { expiry, .. } => write_expiry(expiry, to),
        Op::Expire { expiry, when, .. } => {
            write_expiry(expiry, to);
            to.push(place(&EXPIRE_WHENS, &when));
        }
        _ => {}
    }
    op.key().iter().for_each(|key| put_bytes(to, key));
    match *op {
        Op::Check { version, .. } => put_u64(to, version.to_bits()),
        Op::Require { present, .. } => to.push(u8::from(present)),
        Op::Announce { event, .. } => to.push(event as u8),
        Op::Access { access, .. } => write_access(access, to),
        Op::GetRange { start, end, .. } => {
            put_i64(to, start);
            put_i64(to, end);
        }
        Op::SetRange { offset, value, .. } => {
            put_count(to, offset as u64);
            put_bytes(to, value);
        }
        Op::Put { value, .. } | Op::Append { value, .. } => put_bytes(to, value),
        Op::Add { delta, .. } => put_i64(to, delta),
        Op::AddDecimal { delta, .. } => put_bytes(to, delta),
        Op::PutAny { kind, value, .. } => {
            to.push(kind as u8);
            put_bytes(to, value);
        }
        Op::Call { ref call, .. } => {
            to.extend_from_slice(&call.command.to_le_bytes());
            if call.is_random() {
                put_u64(to, call.seed);
            }
            put_count(to, call.args.len() as u64);
            call.args.iter().for_each(|arg| put_bytes(to, arg));
        }
        _ => {}
    }
}

fn tag_of(op: &Op<'_>) -> u8 {
    match op {
        Op::Check { .. } => tag::CHECK,
        Op::Require { .. } => tag::REQUIRE,
        Op::Watch { .. } => tag::WATCH,
        Op::Get { .. } => tag::GET,
        Op::GetIfString { .. } => tag::GET_IF_STRING,
        Op::GetRange { .. } => tag::GET_RANGE,
        Op::Len { .. } => tag::LEN,
        Op::Exists { .. } => tag::EXISTS,
        Op::KindOf { .. } => tag::KIND_OF,
        Op::ExpiryOf { .. } => tag::EXPIRY_OF,
        Op::Count { .. } => tag::COUNT,
        Op::Scan { .. } => tag::SCAN,
        Op::Put { .. } => tag::PUT,
        Op::Delete { .. } => tag::DELETE,
        Op::GetDelete { .. } => tag::GET_DELETE,
        Op::GetExpire { .. } => tag::GET_EXPIRE,
        Op::Append { .. } => tag::APPEND,
        Op::SetRange { .. } => tag::SET_RANGE,
        Op::Add { .. } => tag::ADD,
        Op::AddDecimal { .. } => tag::ADD_DECIMAL,
        Op::Expire { .. } => tag::EXPIRE,
        Op::Persist { .. } => tag::PERSIST,
        Op::Flush => tag::FLUSH,
        Op::FlushDatabase { .. } => tag::FLUSH_DATABASE,
        Op::SwapDatabases { .. } => tag::SWAP_DATABASES,
        Op::Now => tag::NOW,
        Op::Guard { .. } => tag::GUARD,
        Op::Libraries => tag::LIBRARIES,
        Op::CheckLibraries { .. } => tag::CHECK_LIBRARIES,
        Op::SetLibraries { .. } => tag::SET_LIBRARIES,
        Op::Announce { .. } => tag::ANNOUNCE,
        Op::Call { .. } => tag::CALL,
        Op::GetAny { .. } => tag::GET_ANY,
        Op::PutAny { .. } => tag::PUT_ANY,
        Op::Inspect { .. } => tag::INSPECT,
        Op::Access { .. } => tag::ACCESS,
    }
}

fn read<'a>(from: &mut Reader<'a>) -> Result<Op<'a>, Malformed> {
    let tag = from.u8()?;
    match tag {
        tag::COUNT => {
            let database = from.u16()?;
            return Ok(Op::Count { database });
        }
        tag::SWAP_DATABASES => {
            let (first, second) = (from.u16()?, from.u16()?);
            return Ok(Op::SwapDatabases { first, second });
        }
        tag::FLUSH_DATABASE => {
            let database = from.u16()?;
            return Ok(Op::FlushDatabase { database });
        }
        tag::FLUSH => return Ok(Op::Flush),
        tag::NOW => return Ok(Op::Now),
        tag::GUARD => {
            let lock = from.bytes()?;
            let token = from.u64()?;
            return Ok(Op::Guard { lock, token });
        }
        tag::LIBRARIES => return Ok(Op::Libraries),
        tag::CHECK_LIBRARIES => {
            let generation = from.u64()?;
            return Ok(Op::CheckLibraries { generation });
        }
        tag::SET_LIBRARIES => {
            let generation = from.u64()?;
            let libraries = from.bytes()?;
            return Ok(Op::SetLibraries {
                generation,
                libraries,
            });
        }
        tag::SCAN => return read_scan(from),
        tag::PUT => return read_put(from),
        tag::EXPIRE => {
            let expiry = read_expiry(from)?;
            let when = from.u8()?;
            let when = *EXPIRE_WHENS
                .get(usize::from(when))
                .ok_or(from.malformed(MalformedKind::Kind(when, "condition")))?;
            let key = from.bytes()?;
            return Ok(Op::Expire { key, expiry, when });
        }
        tag::GET_EXPIRE => {
            let expiry = read_expiry(from)?;
            let key = from.bytes()?;
            return Ok(Op::GetExpire { key, expiry });
        }
        tag::PUT_ANY => {
            let expiry = read_expiry(from)?;
            let key = from.bytes()?;
            let number = from.u8()?;
            let unknown = from.malformed(MalformedKind::Kind(number, "value"));
            return Ok(Op::PutAny {
                key,
                kind: Kind::from_u8(number).ok_or(unknown)?,
                value: from.bytes()?,
                expiry,
            });
        }
        tag::CHECK..=tag::FLUSH
        | tag::ANNOUNCE
        | tag::CALL
        | tag::GET_ANY
        | tag::INSPECT
        | tag::ACCESS => {}
        _ => return Err(from.malformed(MalformedKind::Kind(tag, "operation"))),
    }
    let key = from.bytes()?;
    read_keyed(tag, key, from)
}

/// Reads an operation that begins with its key.
fn read_keyed<'a>(tag: u8, key: &'a [u8], from: &mut Reader<'a>) -> Result<Op<'a>, Malformed> {
    Ok(match tag {
        tag::CHECK => {
            let version = crate::Version::from_bits(from.u64()?);
            Op::Check { key, version }
        }
        tag::REQUIRE => {
            let present = from.bool()?;
            Op::Require { key, present }
        }
        tag::WATCH => Op::Watch { key },
        tag::ANNOUNCE => {
            let number = from.u8()?;
            let event = KeyEvent::ALL.get(usize::from(number));
            let event = *event.ok_or(from.malformed(MalformedKind::Kind(number, "event")))?;
            Op::Announce { key, event }
        }
        tag::GET => Op::Get { key },
        tag::GET_IF_STRING => Op::GetIfString { key },
        tag::GET_RANGE => {
            let (start, end) = (from.i64()?, from.i64()?);
            Op::GetRange { key, start, end }
        }
        tag::LEN => Op::Len { key },
        tag::EXISTS => Op::Exists { key },
        tag::KIND_OF => Op::KindOf { key },
        tag::EXPIRY_OF => Op::ExpiryOf { key },
        tag::DELETE => Op::Delete { key },
        tag::GET_DELETE => Op::GetDelete { key },
        tag::APPEND => {
            let value = from.bytes()?;
            Op::Append { key, value }
        }
        tag::SET_RANGE => {
            let offset = from.size()?;
            let value = from.bytes()?;
            Op::SetRange { key, offset, value }
        }
        tag::ADD => {
            let delta = from.i64()?;
            Op::Add { key, delta }
        }
        tag::ADD_DECIMAL => {
            let delta = from.bytes()?;
            Op::AddDecimal { key, delta }
        }
        tag::PERSIST => Op::Persist { key },
        tag::GET_ANY => Op::GetAny { key },
        tag::INSPECT => Op::Inspect { key },
        tag::ACCESS => {
            let access = read_access(from)?;
            Op::Access { key, access }
        }
        tag::CALL => {
            let mut call = ValueCall {
                command: from.u16()?,
                seed: 0,
                args: [].into(),
            };
            if call.is_random() {
                call.seed = from.u64()?;
            }
            call.args = from.list(Reader::bytes)?.into_boxed_slice();
            Op::Call { key, call }
        }
        _ => return Err(from.malformed(MalformedKind::Kind(tag, "operation"))),
    })
}

fn write_access(access: KeyAccess, to: &mut Vec<u8>) {
    let (number, value) = match access {
        KeyAccess::Touch => (0, None),
        KeyAccess::IdleSeconds => (1, None),
        KeyAccess::Frequency => (2, None),
        KeyAccess::SetIdleSeconds(seconds) => (3, Some(seconds)),
        KeyAccess::SetFrequency(frequency) => (4, Some(u32::from(frequency))),
    };
    to.push(number);
    value
        .iter()
        .for_each(|value| to.extend_from_slice(&value.to_le_bytes()));
}

fn read_access(from: &mut Reader<'_>) -> Result<KeyAccess, Malformed> {
    let number = from.u8()?;
    Ok(match number {
        0 => KeyAccess::Touch,
        1 => KeyAccess::IdleSeconds,
        2 => KeyAccess::Frequency,
        3 => KeyAccess::SetIdleSeconds(from.u32()?),
        4 => {
            let frequency = from.u32()?;
            let unknown = from.malformed(MalformedKind::BadFlag);
            KeyAccess::SetFrequency(u8::try_from(frequency).map_err(|_| unknown)?)
        }
        _ => return Err(from.malformed(MalformedKind::Kind(number, "access"))),
    })
}

fn read_scan<'a>(from: &mut Reader<'a>) -> Result<Op<'a>, Malformed> {
    let flags = from.u8()?;
    let contents = CONTENTS.get(usize::from(flags >> CONTENTS_SHIFT));
    let contents = *contents.ok_or(from.malformed(MalformedKind::BadFlag))?;
    let begin = from.bytes()?;
    let end = match flags & HAS_END {
        0 => None,
        _ => Some(from.bytes()?),
    };
    Ok(Op::Scan {
        from: begin,
        to: end,
        limit: from.size()?,
        contents,
    })
}

fn read_put<'a>(from: &mut Reader<'a>) -> Result<Op<'a>, Malformed> {
    let flags = from.u8()?;
    let when = WHENS.get(usize::from(flags & 3));
    let (Some(&when), true) = (when, flags < GET << 1) else {
        return Err(from.malformed(MalformedKind::BadFlag));
    };
    let expiry = expiry_from((flags >> EXPIRY_SHIFT) & 3, from)?;
    Ok(Op::Put {
        key: from.bytes()?,
        value: from.bytes()?,
        when,
        expiry,
        get: flags & GET != 0,
    })
}

/// Returns the number of an expiry, and its milliseconds if it has some.
fn expiry_code(expiry: Expiry) -> (u8, Option<i64>) {
    match expiry {
        Expiry::Never => (0, None),
        Expiry::Keep => (1, None),
        Expiry::AtMs(ms) => (2, Some(ms)),
        Expiry::InMs(ms) => (3, Some(ms)),
    }
}

fn write_expiry(expiry: Expiry, to: &mut Vec<u8>) {
    let (code, ms) = expiry_code(expiry);
    to.push(code);
    ms.iter().for_each(|&ms| put_i64(to, ms));
}

fn read_expiry(from: &mut Reader<'_>) -> Result<Expiry, Malformed> {
    let code = from.u8()?;
    expiry_from(code, from)
}

fn expiry_from(code: u8, from: &mut Reader<'_>) -> Result<Expiry, Malformed> {
    Ok(match code {
        0 => Expiry::Never,
        1 => Expiry::Keep,
        2 => Expiry::AtMs(from.i64()?),
        3 => Expiry::InMs(from.i64()?),
        _ => return Err(from.malformed(MalformedKind::Kind(code, "expiry"))),
    })
}

fn place<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let at = all.iter().position(|other| other == one);
    at.expect("every variant is in its list") as u8
}
