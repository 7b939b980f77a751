//! A share of a checkpoint's keys.
//!
//! A part is a header and blocks; blocks begin at multiples of 8 bytes. All integers are
//! little-endian.
//!
//! Header, 40 bytes:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `KUMIKIPT` |
//! | 8 | 4 | version | of this format: 4; version 1 has neither origins nor system records, the origins of 2 have no number, and 3 has no databases but number 0 |
//! | 12 | 4 | part | number of the part |
//! | 16 | 8 | epoch | of the checkpoint |
//! | 24 | 4 | first | where the first block begins |
//! | 28 | 8 | – | zero |
//! | 36 | 4 | checksum | CRC-32C of bytes 0…35 |
//!
//! Block header, 32 bytes, followed by the payload, zeros up to a multiple of 8, and `pad` more:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `KPRT` |
//! | 4 | 4 | entries | in the payload |
//! | 8 | 8 | number | of the block within the part, from 0 without gaps |
//! | 16 | 4 | length | of the payload |
//! | 20 | 4 | pad | zeros behind the block, a multiple of 8 |
//! | 24 | 4 | payload checksum | CRC-32C of salt, epoch, part and payload |
//! | 28 | 4 | header checksum | CRC-32C of salt, epoch, part and bytes 0…27 |
//!
//! A payload is a sequence of entries: the TID of the transaction that wrote the key, 8 bytes; the
//! key's origin, if it has one; and a put. Both are as in a log's payload (see the module `entry`).
//! An entry is of the manifest's generation, or of that of system records; one of another database than 0
//! is of that of its database.
//!
//! Invariants:
//! 1. An entry is in one block as a whole; every TID's epoch is at most the checkpoint's.
//! 2. The part ends with its last block: its size, its entries, its blocks and the checksum of
//!    their headers are in the manifest.

use std::io::IoSlice;
use std::path::PathBuf;

use base::Epoch;
use disk::DiskFile;

use base::codec::{put_at, u32_at, u64_at};

use super::key::CheckpointKey;
use crate::entry;
use crate::error::CheckpointError;
use crate::format::aligned;

const VERSION: u32 = 4;
const OLDEST_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"KUMIKIPT";
const BLOCK_MAGIC: [u8; 4] = *b"KPRT";
pub(crate) const HEADER: usize = 40;
pub(crate) const BLOCK_HEADER: usize = 32;
/// A block is written once it has this many bytes.
const BLOCK: usize = 256 << 10;
/// A part is synced each time that this many bytes were written, so that no sync takes long: the
/// logs are synced at the same time.
const SYNC_EVERY: u64 = 8 << 20;

/// A manifest's description of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointPart {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    pub(crate) blocks: u64,
    pub(crate) chain: u32,
}

/// Returns the first bytes of a part.
pub(crate) fn encode_header(epoch: Epoch, part: u32, first: u32) -> [u8; HEADER] {
    encode_version(VERSION, epoch, part, first)
}

fn encode_version(version: u32, epoch: Epoch, part: u32, first: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    put_at(&mut bytes, 0, &MAGIC);
    put_at(&mut bytes, 8, &version.to_le_bytes());
    put_at(&mut bytes, 12, &part.to_le_bytes());
    put_at(&mut bytes, 16, &epoch.0.to_le_bytes());
    put_at(&mut bytes, 24, &first.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..36]);
    put_at(&mut bytes, 36, &checksum.to_le_bytes());
    bytes
}

/// Returns the offset of the first block, if the bytes are the header of this part.
pub(crate) fn decode_header(bytes: &[u8; HEADER], epoch: Epoch, part: u32) -> Option<u32> {
    let first = u32_at(bytes, 24);
    let sound = |version| *bytes == encode_version(version, epoch, part, first);
    (first as usize >= HEADER && (OLDEST_VERSION..=VERSION).any(sound)).then_some(first)
}

/// See the module's second table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartBlockHeader {
    pub(crate) entries: u32,
    pub(crate) number: u64,
    pub(crate) length: u32,
    pub(crate) pad: u32,
    pub(crate) payload_checksum: u32,
}

impl PartBlockHeader {
    fn encode(&self, seed: u32) -> [u8; BLOCK_HEADER] {
        let mut bytes = [0; BLOCK_HEADER];
        put_at(&mut bytes, 0, &BLOCK_MAGIC);
        put_at(&mut bytes, 4, &self.entries.to_le_bytes());
        put_at(&mut bytes, 8, &self.number.to_le_bytes());
        put_at(&mut bytes, 16, &self.length.to_le_bytes());
        put_at(&mut bytes, 20, &self.pad.to_le_bytes());
        put_at(&mut bytes, 24, &self.payload_checksum.to_le_bytes());
        let checksum = crc32c::crc32c_append(seed, &bytes[..28]);
        put_at(&mut bytes, 28, &checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER], seed: u32) -> Option<PartBlockHeader> {
        let sound = bytes[..4] == BLOCK_MAGIC
            && u32_at(bytes, 28) == crc32c::crc32c_append(seed, &bytes[..28]);
        sound.then(|| PartBlockHeader {
            entries: u32_at(bytes, 4),
            number: u64_at(bytes, 8),
            length: u32_at(bytes, 16),
            pad: u32_at(bytes, 20),
            payload_checksum: u32_at(bytes, 24),
        })
    }

    /// Returns the bytes of the whole block, its padding included.
    pub(crate) fn size(&self) -> u64 {
        aligned(BLOCK_HEADER as u64 + u64::from(self.length)) + u64::from(self.pad)
    }
}

/// Returns the value with which the checksums of a part's blocks begin.
pub(crate) fn seed(salt: u64, epoch: Epoch, part: u32) -> u32 {
    let seed = crc32c::crc32c(&salt.to_le_bytes());
    let seed = crc32c::crc32c_append(seed, &epoch.0.to_le_bytes());
    crc32c::crc32c_append(seed, &part.to_le_bytes())
}

/// Writes one part. Entries gather in memory; [`PartWriter::flush`] writes them.
pub struct PartWriter {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    seed: u32,
    /// The block that is being filled: room for its header, and its payload.
    block: Vec<u8>,
    /// Entries in it, and the bytes of the last one's value that are missing.
    entries: u32,
    missing: usize,
    synced: u64,
    done: CheckpointPart,
}

impl PartWriter {
    /// Writes the header to `file`, which is empty.
    pub(crate) fn new(
        file: Box<dyn DiskFile>,
        path: PathBuf,
        (salt, epoch, part): (u64, Epoch, u32),
    ) -> Result<PartWriter, CheckpointError> {
        let first = HEADER.next_multiple_of(file.alignment());
        let mut header = encode_header(epoch, part, first as u32).to_vec();
        header.resize(first, 0);
        file.write_all_at(&[IoSlice::new(&header)], 0)
            .map_err(CheckpointError::io("write", &path))?;
        let mut block = Vec::with_capacity(BLOCK + BLOCK / 8);
        block.resize(BLOCK_HEADER, 0);
        Ok(PartWriter {
            file,
            path,
            seed: seed(salt, epoch, part),
            block,
            entries: 0,
            missing: 0,
            synced: 0,
            done: CheckpointPart {
                bytes: first as u64,
                ..CheckpointPart::default()
            },
        })
    }

    /// Begins an entry: as many bytes of value follow, in one or several calls of
    /// [`PartWriter::value`].
    ///
    /// # Panics
    /// Panics if the value before is not complete.
    pub fn entry(&mut self, head: &CheckpointKey<'_>) {
        assert_eq!(self.missing, 0, "the value before is not complete");
        entry::encode_head(&mut self.block, head);
        self.entries += 1;
        self.missing = head.value_len;
    }

    /// Appends to the value of the entry that was begun.
    ///
    /// # Panics
    /// Panics if it is longer than the entry says.
    pub fn value(&mut self, piece: &[u8]) {
        assert!(piece.len() <= self.missing, "the value is longer than said");
        self.block.extend_from_slice(piece);
        self.missing -= piece.len();
    }

    /// Takes `payload`, which may be malformed, for a block of this many entries. For fuzzing.
    pub(crate) fn raw(&mut self, payload: &[u8], entries: u32) {
        self.block.extend_from_slice(payload);
        self.entries += entries;
    }

    /// Returns `true` if enough entries have gathered to be written.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.block.len() >= BLOCK
    }

    /// Returns the number of entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.done.entries + u64::from(self.entries)
    }

    /// Writes the entries that have gathered.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    ///
    /// # Panics
    /// Panics if the last value is not complete.
    pub fn flush(&mut self) -> Result<(), CheckpointError> {
        assert_eq!(self.missing, 0, "the last value is not complete");
        if self.entries == 0 {
            return Ok(());
        }
        let at = self.done.bytes;
        let length = self.block.len() - BLOCK_HEADER;
        let end = aligned(at + self.block.len() as u64);
        let padded = end.next_multiple_of(self.file.alignment() as u64);
        let header = PartBlockHeader {
            entries: self.entries,
            number: self.done.blocks,
            length: u32::try_from(length).expect("limits keep entries below 4 GiB"),
            pad: (padded - end) as u32,
            payload_checksum: crc32c::crc32c_append(self.seed, &self.block[BLOCK_HEADER..]),
        };
        let header = header.encode(self.seed);
        self.block[..BLOCK_HEADER].copy_from_slice(&header);
        self.block.resize((padded - at) as usize, 0);
        self.file
            .write_all_at(&[IoSlice::new(&self.block)], at)
            .map_err(CheckpointError::io("write", &self.path))?;
        self.done.bytes = padded;
        self.done.blocks += 1;
        self.done.entries += u64::from(self.entries);
        self.done.chain = crc32c::crc32c_append(self.done.chain, &header);
        self.entries = 0;
        self.block.truncate(BLOCK_HEADER);
        // One huge value must not keep its memory.
        self.block.shrink_to(2 * BLOCK);
        if self.done.bytes - self.synced >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), CheckpointError> {
        self.synced = self.done.bytes;
        self.file
            .sync_data()
            .map_err(CheckpointError::io("sync", &self.path))
    }

    /// Writes the remaining entries, and makes the part durable.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn finish(mut self) -> Result<CheckpointPart, CheckpointError> {
        self.flush()?;
        self.sync()?;
        Ok(self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_every_flipped_bit_is_noticed() {
        let header = encode_header(Epoch(9), 3, 4096);
        assert_eq!(decode_header(&header, Epoch(9), 3), Some(4096));
        assert_eq!(decode_header(&header, Epoch(9), 2), None);
        assert_eq!(decode_header(&header, Epoch(8), 3), None);
        for bit in 0..HEADER * 8 {
            let mut bad = header;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_header(&bad, Epoch(9), 3), None, "bit {bit}");
        }
        let older = encode_version(OLDEST_VERSION, Epoch(9), 3, 40);
        assert_eq!(decode_header(&older, Epoch(9), 3), Some(40));
        let block = PartBlockHeader {
            entries: 1,
            number: 2,
            length: 3,
            pad: 8,
            payload_checksum: 4,
        };
        let one = seed(5, Epoch(6), 7);
        let bytes = block.encode(one);
        assert_eq!(PartBlockHeader::decode(&bytes, one), Some(block));
        for bit in 0..BLOCK_HEADER * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PartBlockHeader::decode(&bad, one), None, "bit {bit}");
        }
        for other in [
            seed(4, Epoch(6), 7),
            seed(5, Epoch(7), 7),
            seed(5, Epoch(6), 8),
        ] {
            assert_eq!(PartBlockHeader::decode(&bytes, other), None);
        }
    }
}
