//! What a transaction did, as redo logs keep it.

use crate::transaction::Kind;

/// What a transaction did to one key, or to all of them. Applying the change of the greatest TID
/// for each key, in any order, gives the state after all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key has this value now.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Its type.
        kind: Kind,
        /// The generation that it belongs to.
        generation: u16,
        /// When it expires, in milliseconds since the Unix epoch.
        deadline: Option<u64>,
    },
    /// The key is gone.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Every key of another generation is gone.
    Flush {
        /// The generation that is visible from now on.
        generation: u16,
    },
}
