//! Walks through a segment from block to block.

use std::io;
use std::sync::Arc;

use base::Epoch;
use disk::DiskFile;

use crate::format::{ALIGN, BLOCK_HEADER, BLOCK_MAGIC, BlockHeader, LogSegmentHeader};

/// Bytes that are read at once.
const WINDOW: usize = 64 * 1024;
/// Bytes of a tail or of a long payload that are read at once.
const PIECE: usize = 1024 * 1024;

/// The contents of the place where the next block would begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WalkStep {
    /// A block with a sound header. Its payload lies within the file.
    Block(BlockHeader),
    /// The file's end, or room that was set aside.
    End,
    /// Anything else.
    Bad(&'static str),
}

/// Stands at the beginning of a block.
pub(super) struct BlockWalker {
    pub(super) file: Arc<dyn DiskFile>,
    size: u64,
    pub(super) seed: u32,
    at: u64,
    sequence: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl BlockWalker {
    /// Returns a walker at the first block of a segment, which is read up to `size`.
    pub(super) fn new(
        file: &Arc<dyn DiskFile>,
        size: u64,
        header: &LogSegmentHeader,
    ) -> BlockWalker {
        BlockWalker {
            file: Arc::clone(file),
            size,
            seed: header.seed(),
            at: u64::from(header.first),
            sequence: header.sequence,
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// Returns the offset at which it stands.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the number of the block that is expected here.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns `n` bytes from `at` on, which lie within the file; fewer if `n` is large.
    fn bytes(&mut self, at: u64, n: usize) -> io::Result<&[u8]> {
        let n = n.min(PIECE);
        let window = self.window_at..self.window_at + self.window.len() as u64;
        if at < window.start || at + n as u64 > window.end {
            let length = n.max(WINDOW).min((self.size - at) as usize);
            self.window.resize(length, 0);
            self.window_at = at;
            self.file.read_exact_at(&mut self.window, at)?;
        }
        let from = (at - self.window_at) as usize;
        Ok(&self.window[from..from + n])
    }

    /// Returns the step at this place.
    pub(super) fn peek(&mut self) -> io::Result<WalkStep> {
        let left = self.size.saturating_sub(self.at);
        let n = left.min(BLOCK_HEADER as u64) as usize;
        let (seed, sequence) = (self.seed, self.sequence);
        let bytes = if n == 0 { &[] } else { self.bytes(self.at, n)? };
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(WalkStep::End);
        }
        let Ok(bytes) = <&[u8; BLOCK_HEADER]>::try_from(bytes) else {
            return Ok(WalkStep::Bad("a block's header is cut off"));
        };
        Ok(match BlockHeader::decode(bytes, seed) {
            None => WalkStep::Bad("a block's header is not valid"),
            Some(header) if header.sequence != sequence => {
                WalkStep::Bad("a block is not the one that follows")
            }
            Some(header) if header.size() > left => WalkStep::Bad("a block is cut off"),
            Some(header) => WalkStep::Block(header),
        })
    }

    /// Returns `true` if the payload of the block that begins here is as it was written.
    pub(super) fn payload_is_sound(&mut self, header: &BlockHeader) -> io::Result<bool> {
        let mut checksum = self.seed;
        let mut at = self.at + BLOCK_HEADER as u64;
        let end = at + u64::from(header.length);
        while at < end {
            let piece = self.bytes(at, (end - at) as usize)?;
            checksum = crc32c::crc32c_append(checksum, piece);
            at += piece.len() as u64;
        }
        Ok(checksum == header.payload_checksum)
    }

    /// Goes on to the next block.
    pub(super) fn pass(&mut self, header: &BlockHeader) {
        self.at += header.size();
        self.sequence = header.sequence + 1;
    }

    /// Searches everything from here to the end of the file for later blocks of this log and run.
    /// Returns the end of the data, and the newest epoch that such a block knows to be durable.
    pub(super) fn examine_tail(&self) -> io::Result<BlockTail> {
        let mut tail = BlockTail {
            data_end: self.at,
            durable: Epoch::ZERO,
        };
        let mut piece = Vec::new();
        let mut at = self.at;
        while at < self.size {
            // Pieces overlap, so that a header lies in one of them as a whole.
            piece.resize((PIECE + BLOCK_HEADER).min((self.size - at) as usize), 0);
            self.file.read_exact_at(&mut piece, at)?;
            if let Some(last) = piece.iter().rposition(|&byte| byte != 0) {
                tail.data_end = tail.data_end.max(at + last as u64 + 1);
                for found in piece.windows(BLOCK_HEADER).step_by(ALIGN) {
                    if found[..4] == BLOCK_MAGIC {
                        tail.note(found, self.seed, self.sequence);
                    }
                }
            }
            at += PIECE as u64;
        }
        Ok(tail)
    }
}

/// The contents of the file behind the last sound block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockTail {
    /// The offset behind the last byte that is not zero.
    pub(super) data_end: u64,
    /// The newest epoch that a block here knows to be durable.
    pub(super) durable: Epoch,
}

impl BlockTail {
    fn note(&mut self, bytes: &[u8], seed: u32, sequence: u64) {
        let bytes = bytes.try_into().expect("as long as a header");
        if let Some(header) = BlockHeader::decode(bytes, seed)
            && header.sequence >= sequence
        {
            self.durable = self.durable.max(header.durable);
        }
    }
}

/// Returns the end of a file's data, searched from `from` on: the offset behind its last byte that
/// is not zero.
pub(super) fn data_end(file: &dyn DiskFile, from: u64, size: u64) -> io::Result<u64> {
    let (mut end, mut at) = (from.min(size), from);
    let mut piece = vec![0; PIECE];
    while at < size {
        let n = file.read_at(&mut piece, at)?;
        if let Some(last) = piece[..n].iter().rposition(|&byte| byte != 0) {
            end = at + last as u64 + 1;
        }
        at += PIECE as u64;
    }
    Ok(end)
}
