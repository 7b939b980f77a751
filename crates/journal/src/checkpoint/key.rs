//! A key of a checkpoint.

use base::Tid;
use base::change::Origin;
use base::transaction::Kind;

/// A key of a checkpoint, without its value.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointKey<'a> {
    /// The transaction that wrote it.
    pub tid: Tid,
    /// The key.
    pub key: &'a [u8],
    /// The length of its value.
    pub value_len: usize,
    /// The value's type.
    pub kind: Kind,
    /// The generation that it belongs to: the view's, that of its database if that is another one than 0, or
    /// that of system records.
    pub generation: u16,
    /// The time at which it expires, in milliseconds since the Unix epoch.
    pub deadline: Option<u64>,
    /// The origin, if a transaction over several partitions wrote it.
    pub origin: Option<Origin<'a>>,
}
