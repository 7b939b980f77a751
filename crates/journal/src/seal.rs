//! Fills in the headers that turn the contents of buffers into blocks of a log.

use base::Epoch;

use crate::buffer::LogBuffer;
use crate::format::{ALIGN, BLOCK_HEADER, BlockHeader, BlockKind, aligned, payload_checksum};

const _: () = assert!(
    BLOCK_HEADER.is_multiple_of(ALIGN),
    "a mark needs no padding"
);

/// Numbers the blocks of one write and fills in their headers.
pub(crate) struct Sealer {
    pub(crate) seed: u32,
    /// The number of the next block.
    pub(crate) sequence: u64,
    /// The offset of the next block.
    pub(crate) at: u64,
    /// The epoch that was closed before this write.
    pub(crate) closed: Epoch,
    pub(crate) durable: Epoch,
    /// The time that a mark says has passed, or 0.
    pub(crate) passed_ms: u64,
}

impl Sealer {
    /// Seals a buffer's blocks. The `last` buffer of a write closes epochs with its last block
    /// (the logger's invariant 2), and ends so that the next write begins in a sector of its own.
    pub(crate) fn seal(&mut self, buffer: &mut LogBuffer, last: Option<(Epoch, usize)>) {
        let size = aligned(buffer.bytes.len() as u64);
        buffer.bytes.resize(size as usize, 0);
        let count = buffer.blocks.len();
        let mut pad = 0;
        for (i, block) in buffer.blocks.iter().enumerate() {
            let mut closed = self.closed;
            if let Some((newly, alignment)) = last.filter(|_| i + 1 == count) {
                closed = newly;
                let end = self.at + size;
                pad = end.next_multiple_of(alignment as u64) - end;
            }
            let payload = block.start + BLOCK_HEADER..block.end;
            let header = BlockHeader {
                kind: BlockKind::Data,
                sequence: self.sequence,
                epoch: block.epoch,
                stamp_ms: block.stamp_ms,
                closed,
                durable: self.durable,
                length: u32::try_from(payload.len()).expect("transactions are below 4 GiB"),
                pad: pad as u32,
                payload_checksum: payload_checksum(self.seed, &buffer.bytes[payload]),
            };
            let bytes = header.encode(self.seed);
            buffer.bytes[block.start..][..BLOCK_HEADER].copy_from_slice(&bytes);
            self.sequence += 1;
        }
        buffer.bytes.resize((size + pad) as usize, 0);
        self.at += size + pad;
    }

    /// Returns a block without transactions that closes epochs.
    pub(crate) fn mark(&mut self, closed: Epoch, alignment: usize) -> Vec<u8> {
        let size = BLOCK_HEADER.next_multiple_of(alignment);
        let header = BlockHeader {
            kind: BlockKind::Mark,
            sequence: self.sequence,
            epoch: Epoch::ZERO,
            stamp_ms: self.passed_ms,
            closed,
            durable: self.durable,
            length: 0,
            pad: (size - BLOCK_HEADER) as u32,
            payload_checksum: payload_checksum(self.seed, &[]),
        };
        self.sequence += 1;
        self.at += size as u64;
        let mut bytes = header.encode(self.seed).to_vec();
        bytes.resize(size, 0);
        bytes
    }
}
