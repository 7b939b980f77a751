//! A member's log: Raft's entries and its durable state, in segments on disk. The entries since the
//! last compaction are also in memory.
//!
//! What is added to the log ([`RaftLog::append`], [`RaftLog::set_hard_state`], …) is visible at once, and
//! is durable when the next [`RaftLog::sync`] has returned: one write and one sync for everything since
//! the last one.
//!
//! | module | concept |
//! |---|---|
//! | `format` | the bytes of segments and frames, as tables |
//! | `record` | the contents of a frame |
//! | `state` `entries` | the state that results from all records: entries, votes, members |
//! | `files` | the segments: writing, going on in the next one, removing old ones |
//! | `recover` | opening a log: cuts off its torn end, makes the rest durable |
//! | `replay` | reading segments back, and the conditions between them |
//! | `check` | the result of recovery, without changing anything |
//! | `storage` | the log as Raft's library sees it |
//!
//! Invariants:
//! 1. A frame is found whole or not at all, and only together with all earlier frames. All that was
//!    synced is found; of what was not synced, at most the frame that was being written.
//! 2. After a write or sync that failed, none succeeds any more. There is one exception: if the
//!    next segment cannot be made, which is where a full disk shows, nothing is lost and trying
//!    again may help. Entries that a snapshot contains can still be removed, which frees space.
//! 3. An entry is removed only when a durable snapshot contains it.
//! 4. The members follow from the newest snapshot, or else from the founding, and from the log's
//!    entries behind it, which are applied again after a restart. What [`RaftLog::set_conf_state`]
//!    keeps is for people who inspect a member that does not run.
//!
//! A last frame that was damaged after its sync looks like one that was being written, and is cut
//! off. All other damage is refused.

mod check;
mod entries;
mod error;
mod files;
mod format;
mod options;
mod record;
mod recover;
mod replay;
mod state;
mod storage;

use std::path::Path;
use std::sync::Arc;

use disk::Disk;
use raft::eraftpb::{ConfState, Entry, HardState, SnapshotMetadata};

pub use check::{LogReport, UnfinishedWrite};
pub use error::LogError;
use files::{LogLocation, SegmentFiles, SegmentSpace, WriteError};
pub use options::LogOptions;
use record::SegmentStart;
use state::LogState;

pub(crate) use check::check;
pub(crate) use replay::read_payload;

/// A member's log; see the [module](self).
pub struct RaftLog {
    /// The Raft id of the member; 0 if the log belongs to no member yet.
    raft_id: u64,
    state: LogState,
    /// The state that the files contain.
    synced: SegmentStart,
    /// The frame of the next sync, with space for its header.
    frame: Vec<u8>,
    /// The least and the greatest index in that frame.
    frame_min: u64,
    frame_max: u64,
    /// `true` if that frame replaces all earlier ones.
    replaces: bool,
    hard_dirty: bool,
    floor_dirty: bool,
    /// The newest durable snapshot.
    snapshot: Option<SnapshotMetadata>,
    location: Option<LogLocation>,
    files: Option<SegmentFiles>,
    failed: Option<LogError>,
}

impl RaftLog {
    /// Makes a log in memory alone, which is empty after a restart.
    #[must_use]
    pub fn in_memory() -> RaftLog {
        RaftLog::new(None)
    }

    fn new(location: Option<LogLocation>) -> RaftLog {
        RaftLog {
            raft_id: 0,
            state: LogState::default(),
            synced: SegmentStart::default(),
            frame: files::empty_frame(),
            frame_min: u64::MAX,
            frame_max: 0,
            replaces: false,
            hard_dirty: false,
            floor_dirty: false,
            snapshot: None,
            location,
            files: None,
            failed: None,
        }
    }

    /// Reads the log in `dir`, and makes the directory if it is missing. Other files there are left
    /// alone. `progress` is called with the number of bytes that have been read and with their
    /// total. A write that a crash interrupted is cut off; what is found is durable. If there is a
    /// snapshot, the caller calls [`RaftLog::recover_snapshot`] next.
    ///
    /// # Errors
    /// Returns an error if the operating system reports one, or if the log is damaged. Nothing was
    /// changed then.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RaftLog, LogError> {
        let location = LogLocation::new(disk, dir, options);
        let recovered = recover::recover(&location, progress)?;
        let mut log = RaftLog::new(Some(location));
        if let Some(found) = recovered {
            log.raft_id = found.raft_id;
            log.synced = found.state.start();
            log.state = found.state;
            log.files = Some(found.files);
        }
        Ok(log)
    }

    /// Returns `true` if the log belongs to no member yet.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.raft_id == 0
    }

    /// Makes a blank log the log of a member, durably. A member that joins others does not know the
    /// members yet: `members` is empty.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    ///
    /// # Panics
    /// Panics if the log is not blank, or if the id is 0.
    pub fn found(&mut self, raft_id: u64, members: &ConfState) -> Result<(), LogError> {
        assert!(self.is_blank() && raft_id != 0, "a log is founded once");
        self.check()?;
        self.state.base = (0, members.clone());
        self.state.conf = (0, members.clone());
        self.synced = self.state.start();
        if let Some(location) = &self.location {
            match SegmentFiles::found(location, raft_id, &self.synced) {
                Ok(files) => self.files = Some(files),
                Err(error) => return Err(self.fail(error)),
            }
        }
        self.raft_id = raft_id;
        Ok(())
    }

    /// Returns the Raft id of the member; 0 if the log is blank.
    #[must_use]
    pub fn raft_id(&self) -> u64 {
        self.raft_id
    }

    /// Appends entries, the first of which follows an entry of the log. Entries with the same
    /// index, and those behind them, are replaced.
    ///
    /// # Panics
    /// Panics if there is a gap, or if an entry has been compacted: then the order of the calls is
    /// wrong.
    pub fn append(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.state.append(entry.clone());
            if self.location.is_some() {
                record::put_entry(&mut self.frame, entry);
            }
            self.frame_min = self.frame_min.min(entry.index);
            self.frame_max = self.frame_max.max(entry.index);
        }
    }

    /// Sets Raft's term, vote and commit.
    pub fn set_hard_state(&mut self, hard: &HardState) {
        self.hard_dirty |= self.state.hard != *hard;
        self.state.hard = hard.clone();
    }

    /// Sets the members since the entry `index` was applied.
    pub fn set_conf_state(&mut self, index: u64, members: &ConfState) {
        self.state.conf = (index, members.clone());
        if self.location.is_some() {
            record::put_members(&mut self.frame, &self.state.conf);
        }
    }

    /// Makes everything durable that was added: with one write and one sync, or none if there is
    /// nothing.
    ///
    /// # Errors
    /// Returns the errors of the operating system. Every later call fails as well, unless
    /// [`LogError::may_retry`] returns `true`.
    ///
    /// # Panics
    /// Panics if the log is blank.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.check()?;
        assert!(!self.is_blank(), "a log is founded before it is written");
        if self.frame.len() == files::empty_frame().len() && !self.hard_dirty {
            return Ok(());
        }
        self.write(SegmentSpace::Ordinary)
    }

    /// Writes the frame, even if it is empty.
    fn write(&mut self, space: SegmentSpace) -> Result<(), LogError> {
        let Some(files) = &mut self.files else {
            self.hard_dirty = false;
            return Ok(());
        };
        if std::mem::take(&mut self.hard_dirty) {
            record::put_hard_state(&mut self.frame, &self.state.hard);
        }
        if std::mem::take(&mut self.floor_dirty) {
            record::put_floor(&mut self.frame, self.state.floor);
        }
        if let Err(error) = files.write(&mut self.frame, self.frame_max, &self.synced, space) {
            return Err(self.fail(error));
        }
        if std::mem::take(&mut self.replaces) {
            files.forget_older();
        }
        self.frame = files::empty_frame_in(std::mem::take(&mut self.frame));
        (self.frame_min, self.frame_max) = (u64::MAX, 0);
        self.state.update(&mut self.synced);
        Ok(())
    }

    /// Replaces the log by a snapshot that was received and is durable. The replacement is durable.
    ///
    /// # Errors
    /// Returns the errors of [`RaftLog::sync`].
    pub fn install(&mut self, meta: &SnapshotMetadata) -> Result<(), LogError> {
        self.check()?;
        self.state.replace(meta);
        (self.frame_min, self.frame_max) = (u64::MAX, 0);
        self.replaces = true;
        if self.location.is_some() {
            // Records that were added and are not written yet are replaced as well.
            self.frame.truncate(files::empty_frame().len());
            record::put_replaced(&mut self.frame, meta);
        }
        self.hard_dirty = true;
        self.snapshot = Some(meta.clone());
        self.write(SegmentSpace::Reserved)?;
        self.remove_segments()
    }

    /// Takes the newest snapshot, from which the state is rebuilt, after [`RaftLog::open`]. If the
    /// snapshot is ahead of the log, because the process ended between the two, the log is replaced
    /// durably. Raft starts with the members of this snapshot, and applies the entries behind it.
    ///
    /// # Errors
    /// Returns the errors of [`RaftLog::sync`], or an error if the snapshot is older than the entries
    /// that were removed from the log.
    pub fn recover_snapshot(&mut self, meta: &SnapshotMetadata) -> Result<(), LogError> {
        self.has_snapshot(meta.index)?;
        if self.state.term(meta.index) != Some(meta.term) {
            return self.install(meta);
        }
        self.set_snapshot(meta);
        if self.state.hard.commit < meta.index {
            let mut hard = self.state.hard.clone();
            hard.commit = meta.index;
            hard.term = hard.term.max(meta.term);
            self.set_hard_state(&hard);
            self.sync()?;
        }
        Ok(())
    }

    /// Checks, after [`RaftLog::open`], that the log is complete without a snapshot.
    ///
    /// # Errors
    /// Returns an error if entries have been removed, which a snapshot must contain.
    pub fn recover_without_snapshot(&self) -> Result<(), LogError> {
        self.has_snapshot(0)
    }

    fn has_snapshot(&self, index: u64) -> Result<(), LogError> {
        let dir = self.location.as_ref().map(|location| &*location.dir);
        error::require_snapshot(dir.unwrap_or(Path::new("")), self.state.floor.0, index)
    }

    /// Notes a new durable snapshot: entries up to it may be removed.
    pub fn set_snapshot(&mut self, meta: &SnapshotMetadata) {
        self.state.base = (meta.index, meta.get_conf_state().clone());
        self.snapshot = Some(meta.clone());
    }

    /// Returns the newest durable snapshot.
    #[must_use]
    pub fn snapshot_meta(&self) -> Option<&SnapshotMetadata> {
        self.snapshot.as_ref()
    }

    /// Drops entries up to `index`, or up to the newest snapshot if that is less, and removes the
    /// segments that are not needed then. It needs no space on the disk, and so works when
    /// [`RaftLog::sync`] fails for lack of space.
    ///
    /// # Errors
    /// Returns the errors of [`RaftLog::sync`].
    pub fn compact(&mut self, index: u64) -> Result<(), LogError> {
        let snapshot = self.snapshot.as_ref().map_or(0, |meta| meta.index);
        let index = index.min(snapshot).min(self.state.last());
        let Some(term) = self
            .state
            .term(index)
            .filter(|_| index > self.state.floor.0)
        else {
            return Ok(());
        };
        self.check()?;
        self.state.compact((index, term));
        self.floor_dirty = true;
        let floor = self.state.floor.0;
        if self
            .files
            .as_ref()
            .is_some_and(|files| files.has_below(floor))
        {
            self.write_floor()?;
        }
        self.remove_segments()
    }

    /// Writes the floor: in a frame of its own, because the next frame may be waiting for space,
    /// unless that frame has entries up to the floor.
    fn write_floor(&mut self) -> Result<(), LogError> {
        let floor = self.state.floor;
        let by_itself = floor.0 < self.frame_min && !self.replaces;
        let Some(files) = self.files.as_mut().filter(|_| by_itself) else {
            return self.write(SegmentSpace::Ordinary);
        };
        let mut frame = files::empty_frame();
        record::put_floor(&mut frame, floor);
        if let Err(error) = files.write(&mut frame, 0, &self.synced, SegmentSpace::Reserved) {
            return Err(self.fail(error));
        }
        self.floor_dirty = false;
        self.synced.floor = floor;
        Ok(())
    }

    /// Drops entries up to `index` from a log in memory alone, which has no snapshots, if there are
    /// more than `bytes`; keeps half of that.
    pub(crate) fn forget(&mut self, index: u64, bytes: u64) {
        if self.location.is_some() || self.state.bytes() <= bytes {
            return;
        }
        let index = self.state.last_beyond(bytes / 2, index);
        let newer = index > self.state.floor.0;
        if let Some(term) = self.state.term(index).filter(|_| newer) {
            self.state.compact((index, term));
        }
    }

    fn remove_segments(&mut self) -> Result<(), LogError> {
        let floor = self.synced.floor.0;
        match self.files.as_mut().map(|files| files.remove_below(floor)) {
            Some(Err(error)) => Err(self.fail(error)),
            _ => Ok(()),
        }
    }

    /// Returns the last entry that was removed, and its term.
    #[must_use]
    pub fn floor(&self) -> (u64, u64) {
        self.state.floor
    }

    /// Returns the index of the last entry.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.state.last()
    }

    /// Returns the last entry that must be dropped so that at most `bytes` are left; none behind
    /// `most`.
    pub(crate) fn last_beyond(&self, bytes: u64, most: u64) -> u64 {
        self.state.last_beyond(bytes, most)
    }

    /// Frees a part of the memory of dropped entries: to free it all at once would be a pause.
    pub(crate) fn give_back(&mut self) {
        self.state.give_back();
    }

    /// Returns an entry, if it is in memory.
    #[must_use]
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        self.state.entry(index)
    }

    /// Returns Raft's term, vote and commit.
    #[must_use]
    pub fn hard_state(&self) -> &HardState {
        &self.state.hard
    }

    /// Returns the members, and the entry since which they are the members, as set by
    /// [`RaftLog::set_conf_state`].
    #[must_use]
    pub fn conf_state(&self) -> (u64, &ConfState) {
        (self.state.conf.0, &self.state.conf.1)
    }

    /// Returns the bytes of all segments, without the space set aside.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.as_ref().map_or(0, SegmentFiles::bytes)
    }

    /// Returns the number of syncs of frames.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.files.as_ref().map_or(0, |files| files.syncs)
    }

    /// Returns the bytes of the frames that were written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.files.as_ref().map_or(0, |files| files.written)
    }

    fn check(&self) -> Result<(), LogError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: WriteError) -> LogError {
        match error {
            WriteError::Again(error) => error,
            WriteError::Final(error) => {
                let failed = error.into_failed();
                self.failed = Some(failed.clone());
                failed
            }
        }
    }
}
