//! Verifies a member's directory without opening it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::NodeId;
use disk::Disk;
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType};

use crate::log::{self, LogError, LogReport};
use crate::member::Failure;
use crate::sessions::Sessions;
use crate::snapshot::{self, SnapshotFile, SnapshotReader};
use crate::status::node_of;
use crate::wire::{Payload, changes};

/// The contents of a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    /// The member's data; `None` if the directory is as good as empty.
    pub held: Option<Held>,
    /// Bytes that were read.
    pub bytes: u64,
}

/// The data of a member, with which it would start.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its log, as it would be after recovery.
    pub log: LogReport,
    /// The snapshot from which the state would be loaded.
    pub snapshot: Option<SnapshotFile>,
    /// Changes of keys in the entries of the log.
    pub changes: u64,
    /// `true` if the snapshot would take the place of the log.
    pub replaces: bool,
    /// Snapshots that a newer one has replaced; the next start removes them.
    pub old: Vec<PathBuf>,
}

impl Held {
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
/// Returns the [`Failure`] with which a start would end: it names the file and the place, and says
/// what to do.
pub fn check(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport, Failure> {
    let log = log::check(disk, dir, progress)?;
    let (snapshot, old) = snapshot::newest_and_old(disk, dir)?;
    let Some(mut log) = log else {
        return match snapshot {
            None => Ok(CheckReport::default()),
            // The member would start as a node that has lost its disk.
            Some(_) => Err(Failure::Log(LogError::Missing {
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
        changes += read_entry(entry).map_err(|what| Failure::Entry {
            index: entry.index,
            what,
        })?;
    }
    let bytes = log.report.bytes + snapshot.as_ref().map_or(0, |file| file.bytes);
    let held = Held {
        log: log.report,
        snapshot,
        changes,
        replaces,
        old,
    };
    Ok(CheckReport {
        held: Some(held),
        bytes,
    })
}

/// Reads a snapshot to its end.
fn verify(
    disk: &Arc<dyn Disk>,
    file: &SnapshotFile,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Failure> {
    let mut reader = SnapshotReader::open(disk, &file.path)?;
    while reader.next()?.is_some() {
        let (done, total) = reader.progress();
        progress(done, total);
    }
    match Sessions::decode(&reader.sessions()?) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::Entry {
            index: file.head.meta.index,
            what: format!("the table of sessions in the snapshot: {error}"),
        }),
    }
}

/// Reads an entry as if to apply it, and returns the number of keys that it changes.
pub(crate) fn read_entry(entry: &Entry) -> Result<u64, String> {
    if entry.get_entry_type() != EntryType::EntryNormal {
        let read = ConfChangeV2::default().merge_from_bytes(&entry.data);
        return read.map(|()| 0).map_err(|error| error.to_string());
    }
    if entry.data.is_empty() {
        return Ok(0);
    }
    match Payload::decode(&entry.data).map_err(|error| error.to_string())? {
        Payload::Transaction { changes: bytes, .. } => {
            changes(bytes).try_fold(0, |count, change| match change {
                Ok(_) => Ok(count + 1),
                Err((at, what)) => Err(format!("{what} (at byte {at})")),
            })
        }
        Payload::Execute { ops, .. } => {
            let ops = base::codec::decode_ops(ops);
            ops.map(|ops| ops.len() as u64)
                .map_err(|error| error.to_string())
        }
        Payload::Tick { .. } | Payload::Sessions { .. } | Payload::Open { .. } => Ok(0),
    }
}
