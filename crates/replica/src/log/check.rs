//! Finds what recovery would find in a log, without changing anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Access, Disk};
use raft::eraftpb::{ConfState, Entry, HardState, SnapshotMetadata};

use super::error::{LogError, require_snapshot};
use super::files::LogLocation;
use super::options::LogOptions;
use super::recover::{LastSegment, read_all, segments};
use super::replay::LogReplay;
use super::state::LogState;

/// An unfinished write, which recovery would cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedWrite {
    /// The file.
    pub path: PathBuf,
    /// The offset in the file.
    pub offset: u64,
    /// The length of the unfinished write.
    pub bytes: u64,
}

/// The contents of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogReport {
    /// The Raft id of the member whose log it is.
    pub raft_id: u64,
    /// The number of segments.
    pub segments: u64,
    /// The size of the segments in bytes, without the space set aside.
    pub bytes: u64,
    /// The last entry that was removed, and its term. The next entry is the first one in the log.
    pub floor: (u64, u64),
    /// The last entry, and its term.
    pub last: (u64, u64),
    /// Raft's term, vote and commit.
    pub hard: HardState,
    /// The members, and the entry since which they are the members.
    pub members: (u64, ConfState),
    /// The write that recovery would cut off.
    pub cut: Option<UnfinishedWrite>,
    /// Segments whose removal a crash has undone; recovery removes them.
    pub stray: Vec<PathBuf>,
}

/// A log that was read.
pub(crate) struct CheckedLog {
    pub(crate) report: LogReport,
    state: LogState,
}

impl CheckedLog {
    /// Returns the entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let all = self.state.floor.0 + 1..=self.state.last();
        all.filter_map(|index| self.state.entry(index))
    }

    /// Joins the log and a snapshot, as [`super::RaftLog::recover_snapshot`] does. Returns `true` if
    /// the snapshot would replace the log.
    ///
    /// # Errors
    /// Returns an error if the snapshot is older than the entries that were removed from the log,
    /// or if there is none.
    pub(crate) fn join(
        &mut self,
        dir: &Path,
        meta: Option<&SnapshotMetadata>,
    ) -> Result<bool, LogError> {
        require_snapshot(dir, self.state.floor.0, meta.map_or(0, |meta| meta.index))?;
        let Some(meta) = meta else { return Ok(false) };
        let replaces = self.state.term(meta.index) != Some(meta.term);
        if replaces {
            self.state.replace(meta);
        }
        let commit = self.state.hard.commit.max(meta.index);
        self.state.hard.commit = commit;
        self.report.floor = self.state.floor;
        self.report.last = self.state.tail();
        self.report.hard = self.state.hard.clone();
        self.report.members = self.state.conf.clone();
        Ok(replaces)
    }
}

/// Reads the log in `dir`, if there is one. `progress` is called with the number of bytes that have
/// been read and with their total.
pub(crate) fn check(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<CheckedLog>, LogError> {
    let location = LogLocation::new(Arc::clone(disk), dir, LogOptions::default());
    let (before, run) = segments(&location)?;
    let mut replay = LogReplay::default();
    let Some(last) = read_all(&location, (&run, Access::Read), &mut replay, progress)? else {
        return Ok(None);
    };
    replay.finish(dir, &last.path)?;
    let older: u64 = replay.older.iter().map(|older| older.bytes).sum();
    let state = replay.state;
    let report = LogReport {
        raft_id: replay.raft_id,
        segments: run.len() as u64,
        bytes: older + last.tail.end as u64,
        floor: state.floor,
        last: state.tail(),
        hard: state.hard.clone(),
        members: state.conf.clone(),
        cut: cut(&last)?,
        stray: before
            .iter()
            .map(|&segment| location.path(segment))
            .collect(),
    };
    Ok(Some(CheckedLog { report, state }))
}

fn cut(last: &LastSegment) -> Result<Option<UnfinishedWrite>, LogError> {
    if !last.tail.torn {
        return Ok(None);
    }
    let path = &last.path;
    let offset = last.tail.end as u64;
    let size = last.file.size().map_err(LogError::io("read", path))?;
    let mut rest = vec![0; (size - offset) as usize];
    let read = last.file.read_exact_at(&mut rest, offset);
    read.map_err(LogError::io("read", path))?;
    // The rest is space set aside.
    let bytes = rest
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |at| at + 1);
    Ok(Some(UnfinishedWrite {
        path: path.clone(),
        offset,
        bytes: bytes as u64,
    }))
}
