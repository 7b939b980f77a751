//! The bytes of a log.
//!
//! Logger *n* writes the segments `log<n>/00000000.log`, `log<n>/00000001.log`, … A segment is a
//! header and blocks; zeros behind the last block are room set aside. All integers are
//! little-endian; blocks begin at multiples of 8 bytes. On a device that writes whole sectors each
//! write ends with padding, so that no sector is written twice. Beside the segments there may be a
//! file `spare`, which holds nothing: the next segment, before it is one.
//!
//! Segment header, 80 bytes:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `KUMIKILG` |
//! | 8 | 4 | version | of this format: 6; version 1 has zeros for `first` and `pad`, neither 1 nor 2 has origins, those of 3 have no number, 4 has no edits, and 5 has no databases but number 0, and strings only |
//! | 12 | 4 | log | number of the log |
//! | 16 | 4 | segment | number of the segment within the log, from 0 without gaps |
//! | 20 | 4 | run | number of the run: each start of a journal begins a new one |
//! | 24 | 4 | loggers | logs 0…loggers−1 are written in this run |
//! | 28 | 4 | logs | logs 0…logs−1 exist, and each has a segment of this run |
//! | 32 | 8 | base | entries of earlier runs are void if their epoch is above this |
//! | 40 | 8 | start | all epochs of this run are above this |
//! | 48 | 8 | salt | random; enters the checksums of this run's blocks |
//! | 56 | 8 | sequence | of the segment's first block |
//! | 64 | 4 | first | where the first block begins; 0: at 80 |
//! | 68 | 8 | – | zero |
//! | 76 | 4 | checksum | CRC-32C of bytes 0…75 |
//!
//! Block header, 64 bytes, followed by the payload, zeros up to a multiple of 8, and `pad` more:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `KBLK` |
//! | 4 | 4 | kind | 1: transactions of one epoch; 2: a mark, without payload |
//! | 8 | 8 | sequence | number of the block within the run and log, from 0 without gaps |
//! | 16 | 8 | epoch | of the transactions; of a mark: 0 |
//! | 24 | 8 | stamp | the epoch's time, milliseconds since the Unix epoch; of a mark: a time that had passed before, or 0 |
//! | 32 | 8 | closed | with this block, all epochs up to this are complete in this log |
//! | 40 | 8 | durable | all epochs up to this were durable, in all logs, before this was written |
//! | 48 | 4 | length | of the payload |
//! | 52 | 4 | pad | zeros behind the block, a multiple of 8 |
//! | 56 | 4 | payload checksum | CRC-32C of salt, log and payload |
//! | 60 | 4 | header checksum | CRC-32C of salt, log and bytes 0…59 |
//!
//! Invariants:
//! 1. `closed` and `durable` never decrease along a run of a log, and every transaction behind a
//!    block is of an epoch above its `closed`.
//! 2. A run's durable epoch is the least `closed` with which its logs end (`start` for a log
//!    without blocks). It is never below a `durable` that any of its blocks carries, nor
//!    below the next run's `base`; if it is, something durable was damaged.
//! 3. A segment was synced before the next one of its log got its name.

use base::Epoch;
use base::codec::{put_at, u32_at, u64_at};

pub(crate) const VERSION: u32 = 6;
/// The first version. Later versions differ only in fields that were always zero before, or in
/// parts that did not exist.
const OLDEST_VERSION: u32 = 1;
pub(crate) const SEGMENT_HEADER: usize = 80;
pub(crate) const BLOCK_HEADER: usize = 64;
/// Blocks begin at multiples of this.
pub(crate) const ALIGN: usize = 8;
const SEGMENT_MAGIC: [u8; 8] = *b"KUMIKILG";
pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"KBLK";

/// See the module's first table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogSegmentHeader {
    pub(crate) log: u32,
    pub(crate) segment: u32,
    pub(crate) run: u32,
    pub(crate) loggers: u32,
    pub(crate) logs: u32,
    pub(crate) base: Epoch,
    pub(crate) start: Epoch,
    pub(crate) salt: u64,
    pub(crate) sequence: u64,
    /// The offset of the first block.
    pub(crate) first: u32,
}

/// The reason why bytes are no segment header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InvalidLogHeader {
    /// They are of another kind, or damaged.
    Damaged,
    /// They are of a later version.
    Newer(u32),
}

impl LogSegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        let words = [
            VERSION,
            self.log,
            self.segment,
            self.run,
            self.loggers,
            self.logs,
        ];
        for (i, word) in words.iter().enumerate() {
            put_at(&mut bytes, 8 + 4 * i, &word.to_le_bytes());
        }
        let longs = [self.base.0, self.start.0, self.salt, self.sequence];
        for (i, long) in longs.iter().enumerate() {
            put_at(&mut bytes, 32 + 8 * i, &long.to_le_bytes());
        }
        put_at(&mut bytes, 64, &self.first.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..76]);
        put_at(&mut bytes, 76, &checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header. The version is checked before the checksum, whose place a later version
    /// may move.
    pub(crate) fn decode(
        bytes: &[u8; SEGMENT_HEADER],
    ) -> Result<LogSegmentHeader, InvalidLogHeader> {
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(InvalidLogHeader::Damaged);
        }
        if u32_at(bytes, 76) != crc32c::crc32c(&bytes[..76]) {
            let version = u32_at(bytes, 8);
            // A flipped bit in the version would read as a later one just as well; a version in
            // the near future is the better guess.
            let newer = version > VERSION && version < VERSION + 1000;
            return Err(if newer {
                InvalidLogHeader::Newer(version)
            } else {
                InvalidLogHeader::Damaged
            });
        }
        match u32_at(bytes, 8) {
            0 => return Err(InvalidLogHeader::Damaged),
            OLDEST_VERSION..=VERSION => {}
            newer => return Err(InvalidLogHeader::Newer(newer)),
        }
        Ok(LogSegmentHeader {
            log: u32_at(bytes, 12),
            segment: u32_at(bytes, 16),
            run: u32_at(bytes, 20),
            loggers: u32_at(bytes, 24),
            logs: u32_at(bytes, 28),
            base: Epoch(u64_at(bytes, 32)),
            start: Epoch(u64_at(bytes, 40)),
            salt: u64_at(bytes, 48),
            sequence: u64_at(bytes, 56),
            first: match u32_at(bytes, 64) {
                0 => SEGMENT_HEADER as u32,
                first => first,
            },
        })
    }

    /// Returns the value with which the checksums of blocks in this log and run begin.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c_append(
            crc32c::crc32c(&self.salt.to_le_bytes()),
            &self.log.to_le_bytes(),
        )
    }
}

/// The contents of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockKind {
    Data = 1,
    Mark = 2,
}

/// See the module's second table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHeader {
    pub(crate) kind: BlockKind,
    pub(crate) sequence: u64,
    pub(crate) epoch: Epoch,
    pub(crate) stamp_ms: u64,
    pub(crate) closed: Epoch,
    pub(crate) durable: Epoch,
    pub(crate) length: u32,
    pub(crate) pad: u32,
    pub(crate) payload_checksum: u32,
}

impl BlockHeader {
    pub(crate) fn encode(&self, seed: u32) -> [u8; BLOCK_HEADER] {
        let mut bytes = [0; BLOCK_HEADER];
        put_at(&mut bytes, 0, &BLOCK_MAGIC);
        put_at(&mut bytes, 4, &(self.kind as u32).to_le_bytes());
        let longs = [
            self.sequence,
            self.epoch.0,
            self.stamp_ms,
            self.closed.0,
            self.durable.0,
        ];
        for (i, long) in longs.iter().enumerate() {
            put_at(&mut bytes, 8 + 8 * i, &long.to_le_bytes());
        }
        put_at(&mut bytes, 48, &self.length.to_le_bytes());
        put_at(&mut bytes, 52, &self.pad.to_le_bytes());
        put_at(&mut bytes, 56, &self.payload_checksum.to_le_bytes());
        let checksum = crc32c::crc32c_append(seed, &bytes[..60]);
        put_at(&mut bytes, 60, &checksum.to_le_bytes());
        bytes
    }

    /// Returns the header, if the bytes are one of the run and log of which `seed` is.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER], seed: u32) -> Option<BlockHeader> {
        if bytes[..4] != BLOCK_MAGIC
            || u32_at(bytes, 60) != crc32c::crc32c_append(seed, &bytes[..60])
        {
            return None;
        }
        let kind = match u32_at(bytes, 4) {
            1 => BlockKind::Data,
            2 => BlockKind::Mark,
            _ => return None,
        };
        Some(BlockHeader {
            kind,
            sequence: u64_at(bytes, 8),
            epoch: Epoch(u64_at(bytes, 16)),
            stamp_ms: u64_at(bytes, 24),
            closed: Epoch(u64_at(bytes, 32)),
            durable: Epoch(u64_at(bytes, 40)),
            length: u32_at(bytes, 48),
            pad: u32_at(bytes, 52),
            payload_checksum: u32_at(bytes, 56),
        })
    }

    /// Returns the bytes of the whole block, its padding included.
    pub(crate) fn size(&self) -> u64 {
        aligned(BLOCK_HEADER as u64 + u64::from(self.length)) + u64::from(self.pad)
    }
}

/// Returns the next offset at which a block may begin.
pub(crate) fn aligned(at: u64) -> u64 {
    at.next_multiple_of(ALIGN as u64)
}

pub(crate) fn payload_checksum(seed: u32, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, payload)
}

/// Returns the name of a log's directory.
pub(crate) fn log_name(log: usize) -> String {
    format!("log{log}")
}

/// Returns the name of a segment's file.
pub(crate) fn segment_name(segment: u32) -> String {
    format!("{segment:08}.log")
}

/// The name of the file in which a log will continue.
pub(crate) const SPARE_NAME: &str = "spare";

/// Returns the number of the segment whose file has this name.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".log")?.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SEGMENT: LogSegmentHeader = LogSegmentHeader {
        log: 1,
        segment: 2,
        run: 3,
        loggers: 4,
        logs: 5,
        base: Epoch(6),
        start: Epoch(7),
        salt: 8,
        sequence: 9,
        first: 80,
    };
    const BLOCK: BlockHeader = BlockHeader {
        kind: BlockKind::Data,
        sequence: 1,
        epoch: Epoch(2),
        stamp_ms: 3,
        closed: Epoch(4),
        durable: Epoch(5),
        length: 6,
        pad: 8,
        payload_checksum: 7,
    };

    #[test]
    fn headers_come_back_and_every_flipped_bit_is_noticed() {
        let bytes = SEGMENT.encode();
        assert_eq!(LogSegmentHeader::decode(&bytes), Ok(SEGMENT));
        for bit in 0..SEGMENT_HEADER * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(LogSegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
        let seed = SEGMENT.seed();
        let bytes = BLOCK.encode(seed);
        assert_eq!(BlockHeader::decode(&bytes, seed), Some(BLOCK));
        for bit in 0..BLOCK_HEADER * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::decode(&bad, seed), None, "bit {bit}");
        }
    }

    #[test]
    fn a_block_of_another_run_or_log_is_none() {
        let bytes = BLOCK.encode(SEGMENT.seed());
        for other in [
            LogSegmentHeader { salt: 9, ..SEGMENT },
            LogSegmentHeader { log: 2, ..SEGMENT },
        ] {
            assert_eq!(BlockHeader::decode(&bytes, other.seed()), None);
        }
    }

    #[test]
    fn older_versions_are_read() {
        for version in OLDEST_VERSION..VERSION {
            let mut bytes = SEGMENT.encode();
            put_at(&mut bytes, 8, &version.to_le_bytes());
            let checksum = crc32c::crc32c(&bytes[..76]);
            put_at(&mut bytes, 76, &checksum.to_le_bytes());
            assert_eq!(LogSegmentHeader::decode(&bytes), Ok(SEGMENT));
        }
    }

    #[test]
    fn a_newer_version_is_distinguished_from_damage() {
        let mut bytes = SEGMENT.encode();
        put_at(&mut bytes, 8, &(VERSION + 1).to_le_bytes());
        assert_eq!(
            LogSegmentHeader::decode(&bytes),
            Err(InvalidLogHeader::Newer(VERSION + 1))
        );
    }
}
