//! What a snapshot contains.

use std::path::PathBuf;

use base::Tid;
use base::change::Origin;
use base::transaction::Kind;
use raft::eraftpb::SnapshotMetadata;

/// The description of a snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotHead {
    /// The last entry that it contains, the term of that entry, and the members at that entry.
    pub meta: SnapshotMetadata,
    /// The partition's time at that entry, in milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    /// The generation that is visible.
    pub generation: u16,
    /// The transaction that began the generation; zero if nothing was ever flushed.
    pub generation_tid: Tid,
}

/// A key with all its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRecord<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// The value's type.
    pub kind: Kind,
    /// The generation of the key.
    pub generation: u16,
    /// The deadline of the key, in milliseconds since the Unix epoch.
    pub deadline: Option<u64>,
    /// The transaction that wrote the key.
    pub tid: Tid,
    /// The origin of the key, if a transaction over several partitions wrote it.
    pub origin: Option<Origin<'a>>,
}

/// A whole snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The description of the snapshot.
    pub head: SnapshotHead,
    /// The length in bytes.
    pub bytes: u64,
    /// The number of keys.
    pub records: u64,
}
