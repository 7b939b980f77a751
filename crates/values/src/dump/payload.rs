//! What becomes of a payload: a value, or the reason why it is refused.

use base::transaction::Kind;

/// The most bytes of a block besides its elements, and more.
const BLOCK_MARGIN: usize = 64;

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadError {
    /// Its version is a later one, or its checksum is wrong.
    Footer,
    /// Its value is malformed, or of a type that does not exist.
    Malformed,
    /// Its value is longer than values may be.
    TooLong,
}

/// What decoding depends on besides the payload.
#[derive(Debug, Clone, Copy)]
pub struct DecodeContext {
    /// The length of the longest value in bytes.
    pub longest: usize,
    /// The time, milliseconds since the Unix epoch.
    pub time_ms: u64,
}

/// A value that was decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpedValue {
    /// Its type.
    pub kind: Kind,
    /// Its bytes, as they are stored.
    pub bytes: Vec<u8>,
}

/// Returns the length of the longest string, in bytes, that can be a block of elements of values of at most `longest`
/// bytes: an element takes at most twice as many bytes there.
pub(super) fn longest_block(longest: usize) -> usize {
    longest.saturating_mul(2).saturating_add(BLOCK_MARGIN)
}
