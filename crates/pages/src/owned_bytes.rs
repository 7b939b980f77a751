//! Copies of received bytes, which free shared memory for other readers.

use bytes::Bytes;
use disk::reads::AllocatedBuffer;

/// Returns a copy of the bytes, in memory in which arrays may lie.
pub(crate) fn to_owned_bytes(bytes: &[u8]) -> Bytes {
    let mut memory = AllocatedBuffer::new(bytes.len());
    memory.as_mut()[..bytes.len()].copy_from_slice(bytes);
    let mut copied = Bytes::from_owner(memory);
    copied.truncate(bytes.len());
    copied
}
