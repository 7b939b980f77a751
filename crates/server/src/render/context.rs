//! What all replies are rendered with.

use base::Reply;
use values::StoredBlock;

use crate::cursors::Cursors;

/// The values that rendering needs besides the replies.
pub(crate) struct RenderContext<'a> {
    /// The name of the command.
    pub(crate) command: &'static str,
    /// The positions of scans.
    pub(crate) cursors: &'a Cursors,
    /// The transaction's own time.
    pub(crate) time_ms: u64,
}

/// Keys with their values.
pub(super) type Pairs<'a, 'e> = &'a [(&'e [u8], &'e [u8])];

/// Returns the keys in a reply, with their values.
pub(super) fn pairs<'a, 'e>(reply: &'a Reply<'e>) -> Pairs<'a, 'e> {
    if let Reply::Pairs(pairs) = reply {
        pairs
    } else {
        &[]
    }
}

/// Returns the values in replies, of any type.
pub(super) fn stored_values<'a>(replies: &'a [Reply<'_>]) -> Vec<Option<StoredBlock<'a>>> {
    replies.iter().map(stored_value).collect()
}

/// Returns the value in a reply, of any type.
pub(super) fn stored_value<'a>(reply: &'a Reply<'_>) -> Option<StoredBlock<'a>> {
    match *reply {
        Reply::Value(kind, ref bytes) => Some(StoredBlock { kind, bytes }),
        _ => None,
    }
}
