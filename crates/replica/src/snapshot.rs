//! Snapshots: the whole state of a partition as of one entry of its log, in one file. The entries
//! before it can then be removed, and members that need them get the snapshot instead.
//!
//! A snapshot as of entry *index*, which is of *term*, lies in a directory with others:
//!
//! | name | what |
//! |---|---|
//! | `snapshot-<term>-<index>` | a whole snapshot; both numbers have twenty digits |
//! | `snapshot.new` | one that is being made here |
//! | `snapshot.part` | one that is being received |
//!
//! Invariants:
//! 1. A file that has its name is whole and durable: it was synced before it was renamed. A
//!    snapshot that was received has been verified before that, too.
//! 2. Files with the two other names hold nothing that is needed; [`tidy`] removes them.
//! 3. Writing and reading take memory for one block, independent of the size of the state.
//!
//! | module | concept |
//! |---|---|
//! | `format` | the bytes of a snapshot, as tables |
//! | `write` | making one |
//! | `read` | reading it in order, or in pieces for another member |
//! | `receive` | putting such pieces together |

mod error;
mod format;
mod read;
mod receive;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Tid;
use base::change::Origin;
use base::transaction::Kind;
use disk::Disk;
use raft::eraftpb::SnapshotMetadata;

pub use error::SnapshotError;
pub use read::{SnapshotReader, SnapshotSource};
pub use receive::SnapshotReceiver;
pub use write::{SnapshotWriter, reserve};

/// The name of a snapshot that is being made, and of the space that is set aside for the next one.
const DRAFT: &str = "snapshot.new";
/// The name of a snapshot that is being received.
const PART: &str = "snapshot.part";

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

/// Returns the name of a whole snapshot.
fn name(meta: &SnapshotMetadata) -> String {
    format!("snapshot-{:020}-{:020}", meta.term, meta.index)
}

/// Returns the index and the term in a name; the later snapshot has the greater pair.
fn parse(name: &str) -> Option<(u64, u64)> {
    let (term, index) = name.strip_prefix("snapshot-")?.split_once('-')?;
    let (term, index) = (term.parse().ok()?, index.parse().ok()?);
    let again = format!("snapshot-{term:020}-{index:020}");
    (again == name).then_some((index, term))
}

/// Returns the whole snapshots in `dir`, the newest last.
fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    let entries = disk.list(dir).map_err(SnapshotError::io("list", dir))?;
    let mut found: Vec<_> = entries
        .iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| Some((parse(entry.name.to_str()?)?, dir.join(&entry.name))))
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Returns the newest snapshot in `dir`, which exists. Verifies its beginning and its end, but not
/// the blocks between.
///
/// # Errors
/// Returns the errors of the operating system, or an error if the snapshot is damaged. An older one
/// is no substitute, because the log's entries before this one may be gone.
pub fn newest(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Option<SnapshotFile>, SnapshotError> {
    match list(&**disk, dir)?.last() {
        Some(path) => Ok(Some(SnapshotReader::open(disk, path)?.file().clone())),
        None => Ok(None),
    }
}

/// Returns the same as [`newest`], and the paths of the older ones.
pub(crate) fn newest_and_old(
    disk: &Arc<dyn Disk>,
    dir: &Path,
) -> Result<(Option<SnapshotFile>, Vec<PathBuf>), SnapshotError> {
    let mut old = list(&**disk, dir)?;
    old.pop();
    Ok((newest(disk, dir)?, old))
}

/// Removes a snapshot that was received in part, and all snapshots but the newest. It makes no
/// difference if a crash undoes the removal. Call it when none is being received. The space of a
/// snapshot that was being made stays, for the next one.
///
/// # Errors
/// Returns the errors of the operating system.
pub fn tidy(disk: &dyn Disk, dir: &Path) -> Result<(), SnapshotError> {
    remove_old(disk, dir)?;
    remove_leftover(disk, &dir.join(PART))
}

/// Removes all snapshots but the newest, even if another one is being made or received.
///
/// # Errors
/// Returns the errors of the operating system.
pub fn remove_old(disk: &dyn Disk, dir: &Path) -> Result<(), SnapshotError> {
    let mut old = list(disk, dir)?;
    old.pop();
    old.iter()
        .try_for_each(|path| disk.remove(path).map_err(SnapshotError::io("remove", path)))
}

fn remove_leftover(disk: &dyn Disk, path: &Path) -> Result<(), SnapshotError> {
    match disk.remove(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(SnapshotError::io("remove", path)),
    }
}

/// Gives a synced file its name, durably.
fn publish(
    disk: &dyn Disk,
    from: &Path,
    meta: &SnapshotMetadata,
) -> Result<PathBuf, SnapshotError> {
    let dir = from.parent().unwrap_or(Path::new("."));
    let path = dir.join(name(meta));
    disk.rename(from, &path)
        .map_err(SnapshotError::io("rename", from))?;
    disk.sync_dir(dir).map_err(SnapshotError::io("sync", dir))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_in_no_other_way() {
        let meta = SnapshotMetadata {
            index: 7,
            term: u64::MAX,
            ..SnapshotMetadata::default()
        };
        assert_eq!(parse(&name(&meta)), Some((7, u64::MAX)));
        for other in [
            "",
            "snapshot.new",
            "snapshot-1-2",
            "snapshot-00000000000000000001-00000000000000000002.old",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
