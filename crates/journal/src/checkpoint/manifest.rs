//! The manifest of a checkpoint: the list of the files that belong to it.
//!
//! A manifest is one sequence of fields. All integers are little-endian:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `KUMIKIMF` |
//! | 8 | 4 | version | of this format and that of the parts: 4; in versions 1 to 3 it is the same, and the parts are of that version |
//! | 12 | 4 | size | of the manifest in bytes |
//! | 16 | 8 | epoch | *S*: the checkpoint holds everything up to it and nothing later |
//! | 24 | 8 | stamp | the time of *S*, milliseconds since the Unix epoch |
//! | 32 | 8 | finished | when it was made, milliseconds since the Unix epoch |
//! | 40 | 8 | generation's TID | of the transaction that began the generation; 0: none did |
//! | 48 | 2 | generation | of all entries but system records, whose generation is 65535, and keys of other databases than 0, which the table of databases gives their own |
//! | 50 | 2 | – | zero |
//! | 52 | 4 | run | the run of the journal in which it was made |
//! | 56 | 8 | salt | random; enters the checksums of the parts' blocks |
//! | 64 | 4 | logs | how many logs that run had |
//! | 68 | 4 | parts | how many parts there are |
//! | 72 | 16 each | log | for each log: segment 4, zero 4, sequence 8 |
//! | … | 32 each | part | for each part: size 8, entries 8, blocks 8, chain 4, zero 4 |
//! | … | 4 | checksum | CRC-32C of everything before |
//!
//! A log's *segment* is the first that a recovery needs, and *sequence* the number of its first
//! block. A part's *chain* is the CRC-32C of its blocks' headers, one behind the other.
//!
//! Invariants:
//! 1. Each named segment is of the manifest's run, and together with the later ones holds every
//!    entry of an epoch above *S*, and in each log of the run's loggers a block that closes *S*.
//! 2. A key is in one part at most.

use base::{Epoch, Tid};

use base::codec::{put_at, u32_at, u64_at};

use super::part::CheckpointPart;
use super::view::CheckpointView;

pub(crate) const VERSION: u32 = 4;
const OLDEST_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"KUMIKIMF";
const FIXED: usize = 72;
const LOG: usize = 16;
const PART: usize = 32;
const CHECKSUM: usize = 4;
/// No manifest is larger: thousands of logs and parts.
pub(crate) const LARGEST: u64 = 1 << 20;

/// See the module's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) view: CheckpointView,
    pub(crate) finished_ms: u64,
    pub(crate) run: u32,
    pub(crate) salt: u64,
    pub(crate) logs: Vec<LogStart>,
    pub(crate) parts: Vec<CheckpointPart>,
}

/// The place from which on a log is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogStart {
    pub(crate) segment: u32,
    pub(crate) sequence: u64,
}

/// The reason why bytes are no manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadManifest {
    /// They are of another kind, or damaged; holds the offset and the error.
    Damaged(u64, &'static str),
    /// They are of a later version.
    Newer(u32),
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let size = FIXED + LOG * self.logs.len() + PART * self.parts.len() + CHECKSUM;
        let mut bytes = vec![0; FIXED];
        put_at(&mut bytes, 0, &MAGIC);
        let words = [
            (8, VERSION),
            (12, size as u32),
            (52, self.run),
            (64, self.logs.len() as u32),
            (68, self.parts.len() as u32),
        ];
        for (at, word) in words {
            put_at(&mut bytes, at, &word.to_le_bytes());
        }
        let longs = [
            (16, self.view.epoch.0),
            (24, self.view.stamp_ms),
            (32, self.finished_ms),
            (40, self.view.generation_tid.to_bits()),
            (56, self.salt),
        ];
        for (at, long) in longs {
            put_at(&mut bytes, at, &long.to_le_bytes());
        }
        put_at(&mut bytes, 48, &self.view.generation.to_le_bytes());
        for log in &self.logs {
            bytes.extend(log.segment.to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(log.sequence.to_le_bytes());
        }
        for part in &self.parts {
            bytes.extend(part.bytes.to_le_bytes());
            bytes.extend(part.entries.to_le_bytes());
            bytes.extend(part.blocks.to_le_bytes());
            bytes.extend(part.chain.to_le_bytes());
            bytes.extend([0; 4]);
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        debug_assert_eq!(bytes.len(), size);
        bytes
    }

    /// Decodes a manifest. The version is checked before everything that a later one may have
    /// changed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, BadManifest> {
        let damaged = |at: usize, what| Err(BadManifest::Damaged(at as u64, what));
        if bytes.len() < FIXED + CHECKSUM || bytes[..8] != MAGIC {
            return damaged(0, "it is no manifest");
        }
        let version = u32_at(bytes, 8);
        // A flipped bit in the version would read as a later one just as well; a version in the
        // near future is the better guess.
        if version > VERSION && version < VERSION + 1000 {
            return Err(BadManifest::Newer(version));
        }
        let end = bytes.len() - CHECKSUM;
        if u32_at(bytes, end) != crc32c::crc32c(&bytes[..end]) {
            return damaged(end, "its checksum does not match its content");
        }
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return damaged(8, "it has a format version that there never was");
        }
        let (logs, parts) = (u32_at(bytes, 64) as usize, u32_at(bytes, 68) as usize);
        let size = FIXED as u64 + (LOG as u64 * logs as u64) + (PART as u64 * parts as u64);
        if u32_at(bytes, 12) as usize != bytes.len() || size != end as u64 {
            return damaged(12, "its size is not what its content takes");
        }
        let (log_bytes, part_bytes) = bytes[FIXED..end].split_at(LOG * logs);
        Ok(Manifest {
            view: CheckpointView {
                epoch: Epoch(u64_at(bytes, 16)),
                stamp_ms: u64_at(bytes, 24),
                generation: u16::from_le_bytes([bytes[48], bytes[49]]),
                generation_tid: Tid::from_bits(u64_at(bytes, 40)),
            },
            finished_ms: u64_at(bytes, 32),
            run: u32_at(bytes, 52),
            salt: u64_at(bytes, 56),
            logs: log_bytes.chunks_exact(LOG).map(LogStart::decode).collect(),
            parts: part_bytes.chunks_exact(PART).map(part).collect(),
        })
    }

    /// Returns the bytes of all parts.
    pub(crate) fn part_bytes(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| part.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the number of entries of all parts.
    pub(crate) fn entries(&self) -> u64 {
        let entries = self.parts.iter().map(|part| part.entries);
        entries.fold(0, u64::saturating_add)
    }
}

impl LogStart {
    fn decode(bytes: &[u8]) -> LogStart {
        LogStart {
            segment: u32_at(bytes, 0),
            sequence: u64_at(bytes, 8),
        }
    }
}

fn part(bytes: &[u8]) -> CheckpointPart {
    CheckpointPart {
        bytes: u64_at(bytes, 0),
        entries: u64_at(bytes, 8),
        blocks: u64_at(bytes, 16),
        chain: u32_at(bytes, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        Manifest {
            view: CheckpointView {
                epoch: Epoch(77),
                stamp_ms: 123_456,
                generation: 3,
                generation_tid: Tid::new(Epoch(70), 2),
            },
            finished_ms: 99,
            run: 4,
            salt: 5,
            logs: vec![
                LogStart {
                    segment: 6,
                    sequence: 700,
                },
                LogStart {
                    segment: 8,
                    sequence: 0,
                },
            ],
            parts: vec![CheckpointPart {
                bytes: 10,
                entries: 11,
                blocks: 12,
                chain: 13,
            }],
        }
    }

    #[test]
    fn a_manifest_comes_back_and_every_flipped_bit_is_noticed() {
        let bytes = sample().encode();
        assert_eq!(Manifest::decode(&bytes), Ok(sample()));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&bad).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn the_first_version_is_read() {
        let mut bytes = sample().encode();
        put_at(&mut bytes, 8, &OLDEST_VERSION.to_le_bytes());
        let end = bytes.len() - CHECKSUM;
        let checksum = crc32c::crc32c(&bytes[..end]);
        put_at(&mut bytes, end, &checksum.to_le_bytes());
        assert_eq!(Manifest::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn a_newer_version_is_distinguished_from_damage() {
        let mut bytes = sample().encode();
        put_at(&mut bytes, 8, &(VERSION + 1).to_le_bytes());
        let newer = Err(BadManifest::Newer(VERSION + 1));
        assert_eq!(Manifest::decode(&bytes), newer);
    }
}
