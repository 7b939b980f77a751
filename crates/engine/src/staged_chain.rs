//! The staged versions of a record: what transactions of this leadership have written whose entries are in the
//! log, or on their way to it, and are not applied.
//!
//! The entries of these versions are in the log in the order of the chain, because a version joins the chain at
//! the moment at which its entry is submitted. So the next transaction may use the newest one as if it were
//! current: its own entry comes behind, and has no effect unless all entries before it have theirs. When the
//! leadership ends, no entry that is not applied will be applied by it, and the chains are dropped.
//!
//! Thread safety and invariants:
//! 1. A record has a chain, which is not empty, if and only if its word has `STAGED`; both change under the
//!    mutex of its shard in the table of holds.
//! 2. The applier takes the first version, when it has locked the record, and publishes it. A reader that was
//!    pinned before keeps it: a version is freed like any other one.

use std::collections::VecDeque;

use base::transaction::Holder;

use crate::record::VersionRef;

/// The greatest number of versions of a chain.
pub(crate) const MOST_VERSIONS: usize = 1 << 10;
/// The greatest number of bytes of all chains of an engine.
pub(crate) const MOST_BYTES: usize = 64 << 20;

/// A version whose entry was submitted.
#[derive(Clone, Copy)]
pub(crate) struct StagedVersion {
    /// The transaction that wrote it.
    pub(crate) holder: Holder,
    pub(crate) version: VersionRef,
    /// The ticket that resolves when its entry is applied.
    pub(crate) ticket: u64,
}

/// The versions of a record, the oldest first.
pub(crate) type StagedChain = VecDeque<StagedVersion>;

impl StagedVersion {
    /// Returns the bytes of memory that the version has by itself.
    pub(crate) fn bytes(&self) -> usize {
        let tree = self.version.tree();
        self.version.bytes() + tree.map_or(0, |tree| tree.own_bytes())
    }
}
