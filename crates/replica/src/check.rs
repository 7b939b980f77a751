//! Verifies a member's directory without opening it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::NodeId;
use disk::Disk;

use crate::entry_validation::count_changes;
use crate::failure::MemberFailure;
use crate::log::{self, LogError, LogReport};
use crate::sessions::ClientSessions;
use crate::snapshot::{self, SnapshotFile, SnapshotReader};
use crate::status::node_of;

/// The contents of a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    /// The member's data; `None` if the directory is as good as empty.
    pub data: Option<MemberData>,
    /// Bytes that were read.
    pub bytes: u64,
}

/// The data of a member, with which it would start.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberData {
    /// Its log, as it would be after recovery.
    pub log: LogReport,
    /// The snapshot from which the state would be loaded.
    pub snapshot: Option<SnapshotFile>,
    /// Changes of keys in the entries of the log.
    pub changes: u64,
    /// `true` if the snapshot would take the place of the log.
    pub replaces_log: bool,
    /// Snapshots that a newer one has replaced; the next start removes them.
    pub old: Vec<PathBuf>,
}

impl MemberData {
    /// Returns the node, and the incarnation of its member: 1 for the first one, and one more each
    /// time that the node was added again.
    #[must_use]
    pub fn member(&self) -> (NodeId, u64) {
        (node_of(self.log.raft_id), self.log.raft_id >> 16)
    }

    /// Returns the nodes with a vote, and those without, as of the last change that was applied.
    #[must_use]
    pub fn members(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        let members = &self.log.members.1;
        let nodes = |ids: &[u64]| {
            let mut nodes: Vec<NodeId> = ids.iter().map(|id| node_of(*id)).collect();
            nodes.sort_unstable();
            nodes
        };
        (nodes(&members.voters), nodes(&members.learners))
    }

    /// Returns the entries up to which the state would be applied: with the snapshot alone, with
    /// what the log knows to be committed, and with all of the log.
    #[must_use]
    pub fn applied(&self) -> (u64, u64, u64) {
        let snapshot = self
            .snapshot
            .as_ref()
            .map_or(0, |file| file.head.meta.index);
        (snapshot, self.log.hard.commit, self.log.last.0)
    }
}

/// Reads and verifies what a member that is started in `dir` would read, and changes nothing. The
/// caller ensures that no member runs there. `progress` is called with the number of bytes of the
/// current file that have been read, and with the size of the file.
///
/// # Errors
/// Returns the [`MemberFailure`] with which a start would end: it names the file and the place, and says
/// what to do.
pub fn check(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport, MemberFailure> {
    let log = log::check(disk, dir, progress)?;
    let (snapshot, old) = snapshot::newest_and_old(disk, dir)?;
    let Some(mut log) = log else {
        return match snapshot {
            None => Ok(CheckReport::default()),
            // The member would start as a node that has lost its disk.
            Some(_) => Err(MemberFailure::Log(LogError::Missing {
                path: dir.to_owned(),
                what: "its log, and has a snapshot".to_owned(),
            })),
        };
    };
    let replaces = log.join(dir, snapshot.as_ref().map(|file| &file.head.meta))?;
    if let Some(file) = &snapshot {
        verify(disk, file, progress)?;
    }
    let mut changes = 0;
    for entry in log.entries() {
        let count = count_changes(entry);
        changes += count.map_err(|error| MemberFailure::unreadable(entry.index, error))?;
    }
    let bytes = log.report.bytes + snapshot.as_ref().map_or(0, |file| file.bytes);
    let data = MemberData {
        log: log.report,
        snapshot,
        changes,
        replaces_log: replaces,
        old,
    };
    Ok(CheckReport {
        data: Some(data),
        bytes,
    })
}

/// Reads a snapshot to its end.
fn verify(
    disk: &Arc<dyn Disk>,
    file: &SnapshotFile,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), MemberFailure> {
    let mut reader = SnapshotReader::open(disk, &file.path)?;
    while reader.next()?.is_some() {
        let (done, total) = reader.progress();
        progress(done, total);
    }
    match ClientSessions::decode(&reader.sessions()?) {
        Ok(_) => Ok(()),
        Err(error) => {
            let what = format!("the table of sessions in the snapshot: {error}");
            Err(MemberFailure::unreadable(file.head.meta.index, what))
        }
    }
}
