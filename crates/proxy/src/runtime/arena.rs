//! Memory that threads receive into: what arrives is never copied to be kept.
//!
//! A thread reads from all of its sockets into one block of memory after the other. What a read
//! brought is split off and shared by counting; the block goes when the last piece of it does. So a
//! connection that waits costs no buffer (what it keeps of an unfinished request is copied if it is
//! small), and a request travels from the socket that it came from to
//! the socket that it leaves by without having been copied, if it is not small (see
//! [`OutBatch`](super::batch::Pack)).

use bytes::BytesMut;

/// The length of a block in bytes.
const BLOCK: usize = 256 * 1024;
/// The least room that a read is given in a block.
const LEAST: usize = 16 * 1024;
/// The most room that a read is given in a block: one busy connection does not keep the others
/// waiting for long.
const MOST: usize = 64 * 1024;

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// What is left of the block; all of it has a value, as reading needs it.
    block: BytesMut,
}

impl Arena {
    /// Has `read` fill memory, and returns what it brought.
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

/// What a read brought.
pub(crate) struct Received {
    pub(crate) bytes: BytesMut,
    /// There was no room for more: there may be more to read.
    pub(crate) filled: bool,
}
