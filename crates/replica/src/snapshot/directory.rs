//! The names of snapshots in a member's directory, and the removal of those that are not needed.

use std::path::{Path, PathBuf};

use disk::Disk;
use raft::eraftpb::SnapshotMetadata;

use super::error::SnapshotError;

/// The name of a snapshot that is being made, and of the space that is set aside for the next one.
pub(super) const DRAFT: &str = "snapshot.new";
/// The name of a snapshot that is being received.
pub(super) const PART: &str = "snapshot.part";

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
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    let entries = disk.list(dir).map_err(SnapshotError::io("list", dir))?;
    let mut found: Vec<_> = entries
        .iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| Some((parse(entry.name.to_str()?)?, dir.join(&entry.name))))
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
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

pub(super) fn remove_leftover(disk: &dyn Disk, path: &Path) -> Result<(), SnapshotError> {
    match disk.remove(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(SnapshotError::io("remove", path)),
    }
}

/// Gives a synced file its name, durably.
pub(super) fn publish(
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
