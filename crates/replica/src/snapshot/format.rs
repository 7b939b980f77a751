//! The bytes of a snapshot: a header, followed by blocks. Integers are little-endian.
//!
//! Header, 16 bytes:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `KUMIKISN` |
//! | 8 | 4 | version | of this format: 2; in version 1 all keys are of database 0 |
//! | 12 | 4 | checksum | CRC-32C of bytes 0…11 |
//!
//! Block, 24 bytes and its payload:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | kind | 1: head, the first; 2: keys; 3: sessions; 4: footer, the last |
//! | 4 | 4 | length | of the payload |
//! | 8 | 8 | number | of the block within the file, from 0 |
//! | 16 | 4 | payload checksum | CRC-32C of the payload |
//! | 20 | 4 | header checksum | CRC-32C of bytes 0…19 |
//!
//! | payload | holds |
//! |---|---|
//! | head | index, term, stamp, the generation's transaction (8 bytes each), generation (2 bytes), members as in messages |
//! | keys | keys, in their order: TID (8 bytes), then a put as the journal encodes it, with an origin before it if it has one |
//! | sessions | a piece of the table of clients' sessions; the pieces of all such blocks, one behind the other, are the table |
//! | footer | number of keys (8 bytes), length of the file without this block (8 bytes), CRC-32C of bytes 0…19 of all block headers before it (4 bytes) |

use base::Tid;
use base::codec::{Malformed, Reader, put_u64, u32_at};

use super::contents::SnapshotHead;
use crate::wire::{put_conf_state, read_conf_state};

pub(super) const VERSION: u32 = 2;
/// The first version, whose files are read like those of this one.
pub(super) const OLDEST_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"KUMIKISN";
pub(super) const FILE_HEADER: usize = 16;
pub(super) const BLOCK_HEADER: usize = 24;
/// The footer's payload.
pub(super) const FOOTER: usize = 20;

/// Returns the header of a file.
pub(super) fn file_header() -> [u8; FILE_HEADER] {
    let mut bytes = [0; FILE_HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..12]);
    bytes[12..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the version in a file's header; `None` if the bytes are not a header.
pub(super) fn version(bytes: &[u8; FILE_HEADER]) -> Option<u32> {
    let sound = bytes[..8] == MAGIC && u32_at(bytes, 12) == crc32c::crc32c(&bytes[..12]);
    sound.then(|| u32_at(bytes, 8))
}

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotBlockKind {
    Head = 1,
    Keys = 2,
    Sessions = 3,
    Footer = 4,
}

impl SnapshotBlockKind {
    fn from_number(number: u32) -> Option<SnapshotBlockKind> {
        [
            SnapshotBlockKind::Head,
            SnapshotBlockKind::Keys,
            SnapshotBlockKind::Sessions,
            SnapshotBlockKind::Footer,
        ]
        .into_iter()
        .find(|&kind| kind as u32 == number)
    }
}

/// See the module's second table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotBlockHeader {
    pub(super) kind: SnapshotBlockKind,
    pub(super) length: u32,
    pub(super) number: u64,
    pub(super) payload_checksum: u32,
}

impl SnapshotBlockHeader {
    pub(super) fn encode(&self) -> [u8; BLOCK_HEADER] {
        let mut bytes = [0; BLOCK_HEADER];
        bytes[..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..20]);
        bytes[20..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; BLOCK_HEADER]) -> Option<SnapshotBlockHeader> {
        if u32_at(bytes, 20) != crc32c::crc32c(&bytes[..20]) {
            return None;
        }
        Some(SnapshotBlockHeader {
            kind: SnapshotBlockKind::from_number(u32_at(bytes, 0))?,
            length: u32_at(bytes, 4),
            number: u64::from(u32_at(bytes, 8)) | u64::from(u32_at(bytes, 12)) << 32,
            payload_checksum: u32_at(bytes, 16),
        })
    }
}

/// Returns the checksum of all headers up to this one. A header's own checksum stays out: bytes
/// that are followed by their checksum change a checksum in one way, whichever bytes they are.
pub(super) fn chained(before: u32, header: &[u8; BLOCK_HEADER]) -> u32 {
    crc32c::crc32c_append(before, &header[..20])
}

/// Appends the payload of the first block.
pub(super) fn put_head(to: &mut Vec<u8>, head: &SnapshotHead) {
    put_u64(to, head.meta.index);
    put_u64(to, head.meta.term);
    put_u64(to, head.stamp_ms);
    put_u64(to, head.generation_tid.to_bits());
    to.extend_from_slice(&head.generation.to_le_bytes());
    put_conf_state(to, head.meta.get_conf_state());
}

pub(super) fn read_head(bytes: &[u8]) -> Result<SnapshotHead, Malformed> {
    let mut from = Reader::new(bytes);
    let mut head = SnapshotHead::default();
    head.meta.index = from.u64()?;
    head.meta.term = from.u64()?;
    head.stamp_ms = from.u64()?;
    head.generation_tid = Tid::from_bits(from.u64()?);
    head.generation = from.u16()?;
    head.meta.set_conf_state(read_conf_state(&mut from)?);
    from.end()?;
    Ok(head)
}

/// The payload of the last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) chain: u32,
}

impl Footer {
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        put_u64(to, self.records);
        put_u64(to, self.bytes);
        to.extend_from_slice(&self.chain.to_le_bytes());
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Footer, Malformed> {
        let mut from = Reader::new(bytes);
        let footer = Footer {
            records: from.u64()?,
            bytes: from.u64()?,
            chain: from.u32()?,
        };
        from.end()?;
        Ok(footer)
    }
}
