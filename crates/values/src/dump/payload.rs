//! What becomes of a payload: a value, or the reason why it is refused.

use base::transaction::Kind;

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadError {
    /// Its version is a later one, or its checksum is wrong.
    Footer,
    /// Its value is malformed, or of a type that does not exist.
    Malformed,
    /// Its value is longer than values may be.
    TooLong,
    /// Its value is a stream.
    Unsupported,
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
