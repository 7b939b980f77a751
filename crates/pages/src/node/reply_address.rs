//! The address of a reply.

/// The reader and the request to which a message of another thread belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReplyAddress {
    pub(super) reader: usize,
    /// Distinguishes the reader from earlier ones in the same place.
    pub(super) generation: u64,
    pub(super) request: u32,
}
