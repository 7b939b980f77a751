//! A participant list as bytes. It lies on disk with each prepared attempt, so that every release must read
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

use crate::message::ParticipantList;

const VERSION: u8 = 1;

/// Appends a participant list.
pub fn encode_participant_list(participant_list: &ParticipantList, to: &mut Vec<u8>) {
    to.push(VERSION);
    to.extend_from_slice(&participant_list.home.0.to_le_bytes());
    put_count(to, participant_list.participants.len() as u64);
    for participant in &participant_list.participants {
        to.extend_from_slice(&participant.0.to_le_bytes());
    }
}

/// Decodes a participant list, which is all of `bytes`.
///
/// # Errors
/// [`Malformed`] says what is wrong with the bytes.
pub fn decode_participant_list(bytes: &[u8]) -> Result<ParticipantList, Malformed> {
    let mut from = Reader::new(bytes);
    let participant_list = read(&mut from)?;
    from.end()?;
    Ok(participant_list)
}

pub(super) fn read(from: &mut Reader<'_>) -> Result<ParticipantList, Malformed> {
    let version = from.u8()?;
    if version != VERSION {
        return Err(from.malformed(MalformedKind::Version(version)));
    }
    let home = PartitionId(from.u16()?);
    let participants = from.list(|from| from.u16().map(PartitionId))?;
    if !participants.contains(&home) {
        return Err(from.malformed(MalformedKind::NoHome));
    }
    Ok(ParticipantList { home, participants })
}
