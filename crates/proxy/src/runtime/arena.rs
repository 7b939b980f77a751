//! Memory that threads receive into: what arrives is never copied to be kept.
//!
//! A thread reads from all of its sockets into one block of memory after the other. The bytes that a
//! read returned are split off and shared by reference counting; the block is freed with its last
//! piece. So an idle connection costs no buffer (a small unfinished request is copied out of the
//! block), and a request that is not small travels from the socket that it came from to the socket that
//! it leaves by without having been copied (see [`OutBatch`](super::out_batch::OutBatch)).

use bytes::BytesMut;

/// The length of a block in bytes.
const BLOCK: usize = 256 * 1024;
/// The least room in a block that a read gets.
const LEAST: usize = 16 * 1024;
/// The most room in a block that a read gets: one busy connection does not keep the others waiting for
/// long.
const MOST: usize = 64 * 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ReadArena {
    /// The rest of the block; all of it is initialized, because reading needs that.
    block: BytesMut,
}

impl ReadArena {
    /// Lets `read` fill memory, and returns the bytes that it read.
    pub(crate) fn receive(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>,
    ) -> std::io::Result<Received> {
        if self.block.len() < LEAST {
            self.block = BytesMut::zeroed(BLOCK);
        }
        let room = self.block.len().min(MOST);
        let count = read(&mut self.block[..room])?;
        Ok(Received {
            bytes: self.block.split_to(count),
            filled: count == room,
        })
    }
}

/// The result of a read.
pub(crate) struct Received {
    pub(crate) bytes: BytesMut,
    /// The read filled all of its room: there may be more to read.
    pub(crate) filled: bool,
}
