//! The bytes of a log.
//!
//! The segments are `log-0000000001`, `log-0000000002`, …; the next one is made under the name
//! `log.new`. A segment consists of a header and frames. The zeros behind the last frame are space
//! set aside. Integers are little-endian.
//!
//! Segment header, 64 bytes:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `KUMIKIRL` |
//! | 8 | 4 | version | of this format: 2; in version 1 all keys are of database 0 |
//! | 12 | 4 | align | frames begin at multiples of this, a power of two, at least 8 |
//! | 16 | 8 | segment | its number, from 1 |
//! | 24 | 8 | member | whose log it is: Raft's id |
//! | 32 | 8 | salt | random; enters the checksums of the frames |
//! | 40 | 8 | sequence | number of the first frame |
//! | 48 | 12 | – | zero |
//! | 60 | 4 | checksum | CRC-32C of bytes 0…59 |
//!
//! Frame, 24 bytes and its payload, which are the records of one sync:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `KRLF` |
//! | 4 | 4 | length | of the payload |
//! | 8 | 8 | sequence | number of the frame within the log, without gaps; an end has that of the next segment's first |
//! | 16 | 4 | payload checksum | CRC-32C of salt, segment and payload |
//! | 20 | 4 | header checksum | CRC-32C of salt, segment and bytes 0…19 |
//!
//! Invariants:
//! 1. A segment's header and first frame are durable before it has its name.
//! 2. A segment that is followed by a segment with a second frame has an end, which is durable: if
//!    the last segment of a log has an end, a segment is missing.
//! 3. Behind the last frame of the last segment there are zeros, or the rest of a write that a
//!    crash has torn. Opening the log removes that.

use base::codec::{u32_at, u64_at};
pub(super) const VERSION: u32 = 2;
/// The first version, whose segments are read like those of this one.
const OLDEST_VERSION: u32 = 1;
pub(super) const SEGMENT_HEADER: usize = 64;
pub(super) const FRAME_HEADER: usize = 24;
/// The minimum alignment.
pub(super) const ALIGN: usize = 8;
const SEGMENT_MAGIC: [u8; 8] = *b"KUMIKIRL";
const FRAME_MAGIC: [u8; 4] = *b"KRLF";

/// The name of a segment that is being made.
pub(super) const DRAFT: &str = "log.new";

/// Returns the name of a segment.
pub(super) fn name(segment: u64) -> String {
    format!("log-{segment:010}")
}

/// Returns the number in a segment's name.
pub(super) fn parse(file: &str) -> Option<u64> {
    let number = file.strip_prefix("log-")?.parse().ok()?;
    (name(number) == file).then_some(number)
}

/// See the module's first table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplicaSegmentHeader {
    pub(super) align: u32,
    pub(super) segment: u64,
    pub(super) raft_id: u64,
    pub(super) salt: u64,
    pub(super) sequence: u64,
}

/// The reason why bytes are not a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidSegmentHeader {
    Damaged,
    Newer(u32),
}

impl ReplicaSegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.align.to_le_bytes());
        let longs = [self.segment, self.raft_id, self.salt, self.sequence];
        for (i, long) in longs.iter().enumerate() {
            bytes[16 + 8 * i..24 + 8 * i].copy_from_slice(&long.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<ReplicaSegmentHeader, InvalidSegmentHeader> {
        let bytes = bytes.first_chunk::<SEGMENT_HEADER>();
        let bytes = bytes.filter(|bytes| bytes[..8] == SEGMENT_MAGIC);
        let bytes = bytes.ok_or(InvalidSegmentHeader::Damaged)?;
        if u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return Err(InvalidSegmentHeader::Damaged);
        }
        if !(OLDEST_VERSION..=VERSION).contains(&u32_at(bytes, 8)) {
            return Err(InvalidSegmentHeader::Newer(u32_at(bytes, 8)));
        }
        let header = ReplicaSegmentHeader {
            align: u32_at(bytes, 12),
            segment: u64_at(bytes, 16),
            raft_id: u64_at(bytes, 24),
            salt: u64_at(bytes, 32),
            sequence: u64_at(bytes, 40),
        };
        let aligned =
            header.align.is_power_of_two() && (ALIGN..=1 << 20).contains(&(header.align as usize));
        let sound = aligned && header.raft_id != 0 && header.sequence < u64::MAX / 2;
        if sound {
            Ok(header)
        } else {
            Err(InvalidSegmentHeader::Damaged)
        }
    }

    /// Returns the offset of the first frame.
    pub(super) fn first(&self) -> usize {
        SEGMENT_HEADER.next_multiple_of(self.align as usize)
    }

    /// Returns the seed of the checksums of frames.
    pub(super) fn seed(&self) -> u32 {
        let seed = crc32c::crc32c(&self.salt.to_le_bytes());
        crc32c::crc32c_append(seed, &self.segment.to_le_bytes())
    }
}

/// Writes the header of a frame, whose payload lies behind space for it, and fills the frame with
/// zeros up to a multiple of `align`.
pub(super) fn seal(frame: &mut Vec<u8>, sequence: u64, seed: u32, align: usize) {
    let length = frame.len() - FRAME_HEADER;
    let length = u32::try_from(length).expect("one sync writes less than 4 GiB");
    let checksum = crc32c::crc32c_append(seed, &frame[FRAME_HEADER..]);
    frame[..4].copy_from_slice(&FRAME_MAGIC);
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    frame[8..16].copy_from_slice(&sequence.to_le_bytes());
    frame[16..20].copy_from_slice(&checksum.to_le_bytes());
    let checksum = crc32c::crc32c_append(seed, &frame[..20]);
    frame[20..FRAME_HEADER].copy_from_slice(&checksum.to_le_bytes());
    frame.resize(frame.len().next_multiple_of(align), 0);
}

/// Returns the sequence number and the payload of the frame at the beginning of `bytes`. Returns
/// `None` if there is no whole frame.
pub(super) fn frame(bytes: &[u8], seed: u32) -> Option<(u64, &[u8])> {
    let header = bytes.first_chunk::<FRAME_HEADER>()?;
    let sound = header[..4] == FRAME_MAGIC
        && u32_at(header, 20) == crc32c::crc32c_append(seed, &header[..20]);
    if !sound {
        return None;
    }
    let payload = bytes[FRAME_HEADER..].get(..u32_at(header, 4) as usize)?;
    let whole = u32_at(header, 16) == crc32c::crc32c_append(seed, payload);
    whole.then(|| (u64_at(header, 8), payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_in_no_other_way() {
        assert_eq!(parse(&name(7)), Some(7));
        for other in ["log-7", "log.new", "log-00000000007", "log-000000000x"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn headers_come_back_and_damage_is_seen() {
        let header = ReplicaSegmentHeader {
            align: 4096,
            segment: 2,
            raft_id: 3,
            salt: 4,
            sequence: 5,
        };
        let bytes = header.encode();
        assert_eq!(ReplicaSegmentHeader::decode(&bytes), Ok(header));
        for at in 0..SEGMENT_HEADER {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(
                ReplicaSegmentHeader::decode(&bytes),
                Err(InvalidSegmentHeader::Damaged),
                "{at}"
            );
        }
    }
}
