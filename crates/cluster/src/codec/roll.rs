//! A roll as bytes. It lies on disk with each prepared attempt, so that every release must read
//! what earlier ones wrote.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 1 | version | 1 |
//! | 2 | home | the partition whose state decides |
//! | … | participants | count, then 2 bytes each |
//!
//! Invariant: home is one of the participants.

use base::PartitionId;
use base::codec::{Malformed, MalformedKind, Reader, put_count};

use crate::message::Roll;

const VERSION: u8 = 1;

/// Appends a roll.
pub fn encode_roll(roll: &Roll, to: &mut Vec<u8>) {
    to.push(VERSION);
    to.extend_from_slice(&roll.home.0.to_le_bytes());
    put_count(to, roll.participants.len() as u64);
    for participant in &roll.participants {
        to.extend_from_slice(&participant.0.to_le_bytes());
    }
}

/// Decodes a roll, which is all of `bytes`.
///
/// # Errors
/// [`Malformed`] says what is wrong with the bytes.
pub fn decode_roll(bytes: &[u8]) -> Result<Roll, Malformed> {
    let mut from = Reader::new(bytes);
    let roll = read(&mut from)?;
    from.end()?;
    Ok(roll)
}

pub(super) fn read(from: &mut Reader<'_>) -> Result<Roll, Malformed> {
    let version = from.u8()?;
    if version != VERSION {
        return Err(from.malformed(MalformedKind::Version(version)));
    }
    let home = PartitionId(from.u16()?);
    let participants = from.list(|from| from.u16().map(PartitionId))?;
    if !participants.contains(&home) {
        return Err(from.malformed(MalformedKind::NoHome));
    }
    Ok(Roll { home, participants })
}
