//! A model of a log as plain vectors, and a load that drives both.

#![expect(
    clippy::field_reassign_with_default,
    reason = "the library's structures have many fields, and are made so everywhere"
)]

use std::path::Path;
use std::sync::Arc;

use disk::{Disk, FaultDisk};
use fastrand::Rng;
use kumiki_replica::log::{LogError, LogOptions, RaftLog};
use raft::Storage;
use raft::eraftpb::{ConfState, Entry, HardState, SnapshotMetadata};

pub(crate) const DIR: &str = "/member/log";

pub(crate) fn open(disk: &FaultDisk, segment_bytes: u64) -> Result<RaftLog, LogError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = LogOptions {
        segment_bytes,
        salt: 7,
    };
    RaftLog::open(disk, Path::new(DIR), options, &mut |_, _| {})
}

pub(crate) fn members(ids: &[u64]) -> ConfState {
    ConfState::from((ids.to_vec(), vec![]))
}

/// The expected state of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) floor: (u64, u64),
    pub(crate) entries: Vec<Entry>,
    pub(crate) hard: HardState,
    pub(crate) conf: (u64, ConfState),
    pub(crate) snapshot: u64,
}

impl Model {
    pub(crate) fn last(&self) -> u64 {
        self.floor.0 + self.entries.len() as u64
    }

    pub(crate) fn term(&self, index: u64) -> u64 {
        if index == self.floor.0 {
            self.floor.1
        } else {
            self.entries[(index - self.floor.0 - 1) as usize].term
        }
    }

    /// Checks that the log equals the model. It may have entries that were compacted, if a restart
    /// brought them back.
    pub(crate) fn compare(&self, log: &RaftLog) -> Result<(), String> {
        let same = |what: &str, ours: String, theirs: String| {
            let difference = format!("{what}: {theirs} instead of {ours}");
            (ours == theirs).then_some(()).ok_or(difference)
        };
        same(
            "last",
            self.last().to_string(),
            log.last_index().unwrap().to_string(),
        )?;
        same(
            "hard",
            format!("{:?}", self.hard),
            format!("{:?}", log.hard_state()),
        )?;
        let conf = log.conf_state();
        same(
            "conf",
            format!("{:?}", self.conf),
            format!("{:?}", (conf.0, conf.1.clone())),
        )?;
        let first = log.first_index().unwrap();
        if first > self.floor.0 + 1 {
            return Err(format!("first {first}, floor {:?}", self.floor));
        }
        for entry in &self.entries {
            if log.entry(entry.index) != Some(entry) {
                return Err(format!("entry {}", entry.index));
            }
        }
        same(
            "floor's term",
            format!("{:?}", Some(self.floor.1)),
            format!("{:?}", log.term(self.floor.0).ok()),
        )
    }
}

/// Does one random step on both; the caller syncs.
pub(crate) fn step(log: &mut RaftLog, model: &mut Model, rng: &mut Rng) -> Result<(), LogError> {
    match rng.u32(0..12) {
        0..6 => append(log, model, rng),
        6 if model.last() > model.hard.commit => {
            let from = rng.u64(model.hard.commit + 1..=model.last());
            model.hard.term += 1;
            append_from(log, model, from, rng);
            log.set_hard_state(&model.hard);
        }
        7 | 8 => {
            model.hard.commit = rng.u64(model.hard.commit..=model.last());
            model.hard.vote = rng.u64(0..4);
            log.set_hard_state(&model.hard);
        }
        9 if model.hard.commit > model.conf.0 => {
            model.conf = (model.hard.commit, members(&[1, 2, rng.u64(3..9)]));
            log.set_conf_state(model.conf.0, &model.conf.1);
        }
        10 if model.hard.commit > model.floor.0 => return compact(log, model, rng),
        11 if rng.u32(0..4) == 0 => return install(log, model, rng),
        _ => {}
    }
    Ok(())
}

/// Appends new entries at the end.
pub(crate) fn append(log: &mut RaftLog, model: &mut Model, rng: &mut Rng) {
    append_from(log, model, model.last() + 1, rng);
}

fn append_from(log: &mut RaftLog, model: &mut Model, from: u64, rng: &mut Rng) {
    model.hard.term = model.hard.term.max(1);
    let entries: Vec<Entry> = (from..from + rng.u64(1..4))
        .map(|index| {
            let mut entry = Entry::default();
            entry.index = index;
            entry.term = model.hard.term;
            entry.data = vec![rng.u8(..); rng.usize(0..300)].into();
            entry
        })
        .collect();
    log.append(&entries);
    log.set_hard_state(&model.hard);
    model.entries.truncate((from - model.floor.0 - 1) as usize);
    model.entries.extend(entries);
}

/// Makes a snapshot of committed entries; entries before it are dropped, except for a few.
fn compact(log: &mut RaftLog, model: &mut Model, rng: &mut Rng) -> Result<(), LogError> {
    let mut meta = SnapshotMetadata::default();
    meta.index =
        rng.u64(model.snapshot.max(model.floor.0 + 1).min(model.hard.commit)..=model.hard.commit);
    meta.term = model.term(meta.index);
    meta.set_conf_state(members(&[1, 2, 3]));
    log.set_snapshot(&meta);
    model.snapshot = meta.index;
    let to = rng.u64(model.floor.0..=meta.index);
    let floor = (to, model.term(to));
    model.entries.drain(..(to - model.floor.0) as usize);
    model.floor = floor;
    log.compact(to)
}

fn install(log: &mut RaftLog, model: &mut Model, rng: &mut Rng) -> Result<(), LogError> {
    let mut meta = SnapshotMetadata::default();
    meta.index = model.last() + rng.u64(1..9);
    meta.term = model.hard.term.max(1);
    meta.set_conf_state(members(&[2, 3]));
    model.floor = (meta.index, meta.term);
    model.entries.clear();
    model.hard.commit = meta.index;
    model.hard.term = meta.term;
    model.conf = (meta.index, members(&[2, 3]));
    model.snapshot = meta.index;
    log.install(&meta)
}
