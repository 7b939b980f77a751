//! Memory of its own for what has come in memory that others wait for.

use bytes::Bytes;
use disk::reads::OwnBuf;

/// Returns the same bytes, in memory that arrays may lie in.
pub(crate) fn copied(bytes: &[u8]) -> Bytes {
    let mut memory = OwnBuf::new(bytes.len());
    memory.as_mut()[..bytes.len()].copy_from_slice(bytes);
    let mut copied = Bytes::from_owner(memory);
    copied.truncate(bytes.len());
    copied
}
