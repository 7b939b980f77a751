//! A store reduced to what checkpoints need: a few keys that are written, deleted and flushed again
//! and again, a journal, and an oracle that knows the state after each epoch. One key is a system
//! record, which flushes leave alone; every third value has an origin.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::change::{Origin, SYSTEM_GENERATION};
use base::epochs::EpochClock;
use base::transaction::Kind;
use base::{Epoch, Tid, Timestamp, TransactionId};
use disk::{Disk, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_journal::{
    Change, CheckpointError, CheckpointKey, CheckpointView, Entry, EntryWriter, Journal, LogWriter,
    Options, PartWriter, RecoverError, Recovered,
};

use super::{DIR, TestClock, shared};

const KEYS: u8 = 12;
/// The key of the system record.
const SYSTEM: u8 = KEYS - 1;

pub(crate) fn options(loggers: usize) -> Options {
    Options {
        segment_size: 700,
        ..super::options(loggers)
    }
}

/// The change of a transaction, in the order of TIDs. A flush hides every key of another
/// generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Put(u8, u16, u16),
    Delete(u8),
    Flush(u16),
}

pub(crate) type History = Vec<(Tid, Did)>;
/// For each key its transaction, value and generation; and the generation with its transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) keys: BTreeMap<u8, (Tid, u16)>,
    pub(crate) generation: (Tid, u16),
}

/// Returns the state after all of `history` up to `epoch`.
pub(crate) fn state_at(history: &History, epoch: Epoch) -> State {
    let mut state = State::default();
    for (tid, did) in history.iter().filter(|(tid, _)| tid.epoch() <= epoch) {
        match did {
            Did::Put(key, value, _) => {
                state.keys.insert(*key, (*tid, *value));
            }
            Did::Delete(key) => {
                state.keys.remove(key);
            }
            Did::Flush(generation) => {
                state.keys.retain(|key, _| *key == SYSTEM);
                state.generation = (*tid, *generation);
            }
        }
    }
    state
}

/// Recovers a store: of each key the change with the greatest TID counts.
pub(crate) fn recover(disk: &FaultDisk) -> Result<(Recovered, State), RecoverError> {
    type Newest = BTreeMap<u8, (Tid, Option<(u16, u16)>)>;
    let newest: Mutex<(Newest, (Tid, u16))> = Mutex::default();
    let apply = |entry: Entry<'_>| {
        let mut newest = newest.lock().unwrap();
        let (key, change) = match entry.change {
            Change::Put {
                key,
                value,
                generation,
                kind,
                deadline,
                origin,
            } => {
                let value = u16::from_le_bytes(value[..2].try_into().unwrap());
                assert_eq!((kind, deadline.is_some()), (Kind::Hash, value % 2 == 1));
                assert_eq!(origin, origin_of(value));
                (key[0], Some((value, generation)))
            }
            Change::Edit { .. } | Change::Elements { .. } => unreachable!("these logs have none"),
            Change::Delete { key, .. } => (key[0], None),
            Change::Flush { generation } => {
                newest.1 = newest.1.max((entry.tid, generation));
                return;
            }
        };
        let known = newest.0.entry(key).or_insert((entry.tid, change));
        if known.0 <= entry.tid {
            *known = (entry.tid, change);
        }
    };
    let recovered = Journal::recover(&shared(disk), Path::new(DIR), 2, &apply, &|_| {})?;
    let (newest, generation) = newest.into_inner().unwrap();
    let visible = |(key, (tid, change)): (u8, (Tid, Option<(u16, u16)>))| {
        let (value, _) = change.filter(|(_, of)| [generation.1, SYSTEM_GENERATION].contains(of))?;
        Some((key, (tid, value)))
    };
    let keys = newest.into_iter().filter_map(visible).collect();
    Ok((recovered, State { keys, generation }))
}

/// A running store.
pub(crate) struct Store {
    pub(crate) disk: FaultDisk,
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) writers: Vec<LogWriter>,
    pub(crate) loggers: usize,
    pub(crate) history: History,
    pub(crate) sequence: u32,
    pub(crate) generation: u16,
    /// Checkpoints that were published, and that failed while the journal went on.
    pub(crate) made: usize,
    pub(crate) failed: usize,
}

impl Store {
    pub(crate) fn start(
        disk: &FaultDisk,
        options: Options,
        recovered: &Recovered,
        history: History,
    ) -> Option<Store> {
        let (loggers, workers) = (options.loggers, options.workers);
        let clock = TestClock::new(recovered.newest.next(), workers);
        let of = Arc::clone(&clock) as Arc<dyn EpochClock>;
        let journal = Journal::start(shared(disk), Path::new(DIR), options, of, recovered).ok()?;
        let mut flushes = history.iter().filter_map(|(_, did)| match did {
            Did::Flush(generation) => Some(*generation),
            _ => None,
        });
        Some(Store {
            disk: disk.clone(),
            writers: (0..workers).map(|worker| journal.writer(worker)).collect(),
            journal,
            clock,
            loggers,
            generation: flushes.next_back().unwrap_or(0),
            history,
            sequence: 0,
            made: 0,
            failed: 0,
        })
    }

    fn transaction(&mut self, rng: &mut Rng) {
        let worker = rng.usize(0..self.writers.len());
        self.clock.enter(worker);
        let epoch = self.clock.current();
        self.sequence += 1;
        let tid = Tid::new(epoch, self.sequence);
        let generation = self.generation;
        let did = match rng.u8(0..20) {
            0 => Did::Flush(generation + 1),
            1..7 => Did::Delete(rng.u8(0..KEYS)),
            _ => Did::Put(rng.u8(0..KEYS), rng.u16(..), generation),
        };
        let stamp = self.clock.stamp_ms(epoch);
        let result = self.writers[worker].append(tid, stamp, 300, |to| log(to, &did));
        self.clock.leave(worker);
        if result.is_ok() {
            if let Did::Flush(generation) = did {
                self.generation = generation;
            }
            self.history.push((tid, did));
        }
    }

    fn cycle(&self, rng: &mut Rng) {
        self.journal.request(self.clock.current());
        // The outcome is ignored: later steps notice a failure.
        let _ = self.journal.cycle(rng.usize(0..self.loggers));
    }

    /// Makes a checkpoint, with transactions in between.
    pub(crate) fn checkpoint(&mut self, rng: &mut Rng) {
        let made = self.try_checkpoint(rng);
        match made {
            Ok(()) => self.made += 1,
            Err(error) if self.journal.failed().is_none() => {
                self.failed += 1;
                let is_lasting =
                    matches!(&error, CheckpointError::Failed(failed) if failed.is_lasting);
                assert!(!is_lasting, "{error}");
            }
            Err(_) => {}
        }
    }

    fn try_checkpoint(&mut self, rng: &mut Rng) -> Result<(), CheckpointError> {
        let disk = shared(&self.disk);
        let mut draft = self.journal.begin_checkpoint(&disk, Path::new(DIR))?;
        self.some(rng, 3);
        let epoch = self.clock.current();
        self.clock.advance(epoch);
        let state = state_at(&self.history, epoch);
        draft.set_view(CheckpointView {
            epoch,
            stamp_ms: self.clock.stamp_ms(epoch),
            generation: state.generation.1,
            generation_tid: state.generation.0,
        });
        let mut parts = Vec::new();
        for share in 0..2 {
            let mut part = draft.part()?;
            for (key, (tid, value)) in state.keys.iter().filter(|(key, _)| *key % 2 == share) {
                let generation = generation_of(*key, state.generation.1);
                write(
                    &mut part,
                    (*key, generation),
                    (*tid, *value),
                    rng.usize(0..2),
                );
                if rng.bool() {
                    part.flush()?;
                }
            }
            self.some(rng, 2);
            parts.push(part.finish()?);
        }
        while self.journal.durable() < epoch && self.journal.failed().is_none() {
            self.cycle(rng);
        }
        self.journal.publish_checkpoint(draft, parts, 5)?;
        Ok(())
    }

    pub(crate) fn some(&mut self, rng: &mut Rng, most: usize) {
        for _ in 0..rng.usize(0..=most) {
            self.transaction(rng);
            if rng.bool() {
                self.cycle(rng);
            }
        }
    }

    pub(crate) fn play(&mut self, rng: &mut Rng) {
        for _ in 0..4 {
            for _ in 0..6 {
                self.some(rng, 3);
                if rng.u8(0..4) == 0 {
                    self.clock.advance(self.clock.current());
                }
            }
            self.checkpoint(rng);
        }
        self.some(rng, 5);
    }
}

/// Writes the change of a transaction.
fn log(to: &mut EntryWriter<'_>, did: &Did) {
    match *did {
        Did::Put(key, value, generation) => to.change(&Change::Put {
            key: &[key],
            value: &long(value),
            kind: Kind::Hash,
            generation: generation_of(key, generation),
            deadline: (value % 2 == 1).then_some(9),
            origin: origin_of(value),
        }),
        Did::Delete(key) => to.delete(&[key]),
        Did::Flush(generation) => to.flush(generation),
    }
}

fn generation_of(key: u8, visible: u16) -> u16 {
    if key == SYSTEM {
        SYSTEM_GENERATION
    } else {
        visible
    }
}

fn origin_of(value: u16) -> Option<Origin<'static>> {
    value.is_multiple_of(3).then_some(Origin {
        id: TransactionId {
            timestamp: Timestamp(1 + u64::from(value)),
            unique: u64::from(value),
        },
        siblings: &[1, 0, 0, 0, 7, 0, 0, 0, 0],
    })
}

/// Writes a key, its value in two pieces.
fn write(
    part: &mut PartWriter,
    (key, generation): (u8, u16),
    (tid, value): (Tid, u16),
    split: usize,
) {
    let bytes = long(value);
    part.entry(&CheckpointKey {
        tid,
        key: &[key],
        value_len: bytes.len(),
        kind: Kind::Hash,
        generation,
        deadline: (value % 2 == 1).then_some(9),
        origin: origin_of(value),
    });
    let (one, other) = bytes.split_at(split);
    part.value(one);
    part.value(other);
}

/// Returns a value. Some values are long, so that segments and parts end in different places.
fn long(value: u16) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(2 + usize::from(value % 7) * 30, 3);
    bytes
}

/// The remains of a store.
pub(crate) struct Left {
    pub(crate) history: History,
    pub(crate) acknowledged: Epoch,
    pub(crate) made: usize,
    pub(crate) failed: usize,
}

/// Starts on `disk`, plays, and dies.
pub(crate) fn play(
    disk: &FaultDisk,
    options: &Options,
    recovered: &Recovered,
    history: History,
    seed: u64,
) -> Left {
    let mut left = Left {
        history: history.clone(),
        acknowledged: recovered.durable,
        made: 0,
        failed: 0,
    };
    if let Some(mut store) = Store::start(disk, options.clone(), recovered, history) {
        store.play(&mut Rng::with_seed(seed));
        left.acknowledged = store.journal.durable();
        (left.made, left.failed) = (store.made, store.failed);
        left.history.clone_from(&store.history);
        // The process is gone: dropping the journal must not tidy up after the crash.
        disk.plan(Fault {
            on: OpKind::Change,
            nth: disk.count(OpKind::Change),
            kind: FaultKind::PowerOff,
        });
    }
    left
}

/// Checks that everything acknowledged is there, and that the state is that of the recovered epoch.
/// Returns the history that counts from now on.
pub(crate) fn judge(
    found: &Result<(Recovered, State), RecoverError>,
    history: &History,
    acknowledged: Epoch,
) -> Result<(Recovered, History), String> {
    let (recovered, state) = found.as_ref().map_err(ToString::to_string)?;
    let durable = recovered.durable;
    let lost = |(tid, _): &&(Tid, Did)| tid.epoch() > durable && tid.epoch() <= acknowledged;
    if let Some(lost) = history.iter().find(lost) {
        return Err(format!("{lost:?} is lost; recovered up to {durable}"));
    }
    let expected = state_at(history, durable);
    if *state != expected {
        return Err(format!(
            "recovered up to {durable}: {state:?} instead of {expected:?}"
        ));
    }
    let counts = history.iter().filter(|(tid, _)| tid.epoch() <= durable);
    Ok((recovered.clone(), counts.cloned().collect()))
}

impl Store {
    pub(crate) fn new(disk: &FaultDisk, options: Options) -> Store {
        Store::start(disk, options, &Recovered::default(), Vec::new()).unwrap()
    }

    pub(crate) fn log(&mut self, worker: usize, did: Did) {
        self.clock.enter(worker);
        let epoch = self.clock.current();
        self.sequence += 1;
        let tid = Tid::new(epoch, self.sequence);
        let append = self.writers[worker].append(tid, 7, 100, |to| log(to, &did));
        append.unwrap();
        self.clock.leave(worker);
        self.history.push((tid, did));
    }

    pub(crate) fn segments(&self, log: usize) -> Vec<String> {
        let log = Path::new(DIR).join(format!("log{log}"));
        let files = self.disk.files();
        let names = files.iter().filter(|path| path.starts_with(&log));
        names
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect()
    }
}

impl Store {
    /// Makes a checkpoint without transactions in between, on a disk without faults.
    pub(crate) fn quiet_checkpoint(&mut self, rng: &mut Rng) {
        let disk = shared(&self.disk);
        let mut draft = self
            .journal
            .begin_checkpoint(&disk, Path::new(DIR))
            .unwrap();
        let epoch = self.clock.current();
        self.clock.advance(epoch);
        let state = state_at(&self.history, epoch);
        draft.set_view(CheckpointView {
            epoch,
            stamp_ms: 1,
            generation: state.generation.1,
            generation_tid: state.generation.0,
        });
        let mut part = draft.part().unwrap();
        for (key, (tid, value)) in &state.keys {
            let generation = generation_of(*key, state.generation.1);
            write(&mut part, (*key, generation), (*tid, *value), 0);
        }
        let parts = vec![part.finish().unwrap()];
        while self.journal.durable() < epoch {
            self.cycle(rng);
        }
        let published = self.journal.publish_checkpoint(draft, parts, 5).unwrap();
        assert_eq!(published.left_over, None);
    }
}

impl Store {
    /// Makes everything durable.
    pub(crate) fn settle(&mut self, rng: &mut Rng) {
        let epoch = self.clock.current();
        while self.journal.durable() < epoch {
            self.cycle(rng);
        }
    }

    /// Executes some transactions, and perhaps makes a checkpoint.
    pub(crate) fn play_some(&mut self, rng: &mut Rng) {
        for _ in 0..3 {
            self.some(rng, 5);
        }
        self.settle(rng);
        if rng.u8(0..3) == 0 {
            self.quiet_checkpoint(rng);
        }
    }

    /// Makes a checkpoint that dies before anything is removed.
    pub(crate) fn keep_segments(&mut self, rng: &mut Rng) {
        let mut files = Vec::new();
        for log in 0..self.loggers {
            let dir = Path::new(DIR).join(format!("log{log}"));
            for name in self.segments(log) {
                let path = dir.join(name);
                let mut content = Vec::new();
                self.disk
                    .damage(&path, |bytes| content.clone_from(bytes))
                    .unwrap();
                files.push((path, content));
            }
        }
        self.quiet_checkpoint(rng);
        // The files are as they were before, cut where the log continued elsewhere.
        for (path, content) in files {
            if !self.disk.files().contains(&path) {
                drop(self.disk.create_new(&path).unwrap());
                self.disk.damage(&path, |bytes| *bytes = content).unwrap();
            }
        }
    }
}
