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
//! | `contents` | what a snapshot contains |
//! | `format` | the bytes of a snapshot, as tables |
//! | `directory` | names, and the removal of old ones |
//! | `write` | making one |
//! | `read` | reading it in order, or in pieces for another member |
//! | `receive` | putting such pieces together |

mod contents;
mod directory;
mod error;
mod format;
mod read;
mod receive;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::Disk;

pub use contents::{SnapshotFile, SnapshotHead, SnapshotRecord};
use directory::list;
pub use directory::{remove_old, tidy};
pub use error::SnapshotError;
pub use read::{SnapshotReader, SnapshotSource};
pub use receive::SnapshotReceiver;
pub use write::{SnapshotWriter, reserve};

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
