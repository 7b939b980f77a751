//! The options of a log.

/// Options of a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The size of a segment. The space is set aside when the segment is made.
    pub segment_bytes: u64,
    /// A random number. It prevents bytes that a client chose from being taken for a frame.
    pub salt: u64,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 64 << 20,
            salt: fastrand::u64(..),
        }
    }
}
