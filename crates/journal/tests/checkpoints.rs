//! A small store with a journal and checkpoints, stopped at every one of its disk operations in
//! every way, and recovered; gone on with, stopped and recovered again. The recovered state is that
//! of an oracle: exactly the transactions up to the recovered epoch.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::epochs::EpochClock;
use base::transaction::Kind;
use base::{Epoch, Tid};
use disk::{Crash, Disk, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_journal::{
    Change, CheckpointError, Entry, Head, Journal, LogWriter, Options, RecoverError, Recovered,
    View,
};
use support::{DIR, TestClock};

const CRASHES: [Crash; 4] = [
    Crash::DropAll,
    Crash::KeepPrefix,
    Crash::KeepSectors,
    Crash::KillProcess,
];
const FAULTS: [FaultKind; 4] = [
    FaultKind::PowerOff,
    FaultKind::Io,
    FaultKind::NoSpace,
    FaultKind::ShortWrite,
];
const KEYS: u8 = 12;

fn shared(disk: &FaultDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn options(loggers: usize) -> Options {
    Options {
        segment_size: 700,
        ..support::options(loggers)
    }
}

/// What a transaction did, in the order of TIDs. A flush hides every key of another generation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Did {
    Put(u8, u16, u16),
    Delete(u8),
    Flush(u16),
}

type History = Vec<(Tid, Did)>;
/// For each key its transaction, value and generation; and the generation with its transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    keys: BTreeMap<u8, (Tid, u16)>,
    generation: (Tid, u16),
}

/// The state after all of `history` up to `epoch`.
fn state_at(history: &History, epoch: Epoch) -> State {
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
                state.keys.clear();
                state.generation = (*tid, *generation);
            }
        }
    }
    state
}

/// Recovers: of each key the change with the greatest TID counts.
fn recover(disk: &FaultDisk) -> Result<(Recovered, State), RecoverError> {
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
            } => {
                let value = u16::from_le_bytes(value[..2].try_into().unwrap());
                assert_eq!((kind, deadline.is_some()), (Kind::Hash, value % 2 == 1));
                (key[0], Some((value, generation)))
            }
            Change::Delete { key } => (key[0], None),
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
        let (value, _) = change.filter(|(_, of)| *of == generation.1)?;
        Some((key, (tid, value)))
    };
    let keys = newest.into_iter().filter_map(visible).collect();
    Ok((recovered, State { keys, generation }))
}

/// A running store.
struct Store {
    disk: FaultDisk,
    journal: Journal,
    clock: Arc<TestClock>,
    writers: Vec<LogWriter>,
    loggers: usize,
    history: History,
    sequence: u32,
    generation: u16,
    /// Checkpoints that were published, and that failed while the journal went on.
    made: usize,
    failed: usize,
}

impl Store {
    fn start(
        disk: &FaultDisk,
        options: Options,
        recovered: &Recovered,
        history: History,
    ) -> Option<Store> {
        let (loggers, workers) = (options.loggers, options.workers);
        let clock = TestClock::new(recovered.newest.next(), workers);
        let of = Arc::clone(&clock) as Arc<dyn EpochClock>;
        let journal = Journal::start(shared(disk), Path::new(DIR), options, of, recovered).ok()?;
        let flushes = history.iter().filter_map(|(_, did)| match did {
            Did::Flush(generation) => Some(*generation),
            _ => None,
        });
        Some(Store {
            disk: disk.clone(),
            writers: (0..workers).map(|worker| journal.writer(worker)).collect(),
            journal,
            clock,
            loggers,
            generation: flushes.last().unwrap_or(0),
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
        let result = self.writers[worker].append(tid, stamp, 300, |to| match did {
            Did::Put(key, value, generation) => {
                let deadline = (value % 2 == 1).then_some(9);
                to.put(&[key], &long(value), Kind::Hash, generation, deadline);
            }
            Did::Delete(key) => to.delete(&[key]),
            Did::Flush(generation) => to.flush(generation),
        });
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
        // What it says is seen by what it does later.
        let _ = self.journal.cycle(rng.usize(0..self.loggers));
    }

    /// A checkpoint, with transactions in between.
    fn checkpoint(&mut self, rng: &mut Rng) {
        let made = self.try_checkpoint(rng);
        match made {
            Ok(()) => self.made += 1,
            Err(error) if self.journal.failed().is_none() => {
                self.failed += 1;
                assert!(!matches!(error, CheckpointError::Failed(_)), "{error}");
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
        draft.set_view(View {
            epoch,
            stamp_ms: self.clock.stamp_ms(epoch),
            generation: state.generation.1,
            generation_tid: state.generation.0,
        });
        let mut parts = Vec::new();
        for share in 0..2 {
            let mut part = draft.part()?;
            for (key, (tid, value)) in state.keys.iter().filter(|(key, _)| *key % 2 == share) {
                let bytes = long(*value);
                part.entry(&Head {
                    tid: *tid,
                    key: &[*key],
                    value_len: bytes.len(),
                    kind: Kind::Hash,
                    deadline: (value % 2 == 1).then_some(9),
                });
                let (one, other) = bytes.split_at(rng.usize(0..bytes.len()));
                part.value(one);
                part.value(other);
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

    fn some(&mut self, rng: &mut Rng, most: usize) {
        for _ in 0..rng.usize(0..=most) {
            self.transaction(rng);
            if rng.bool() {
                self.cycle(rng);
            }
        }
    }

    fn play(&mut self, rng: &mut Rng) {
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

/// Some values are long, so that segments and parts end in different places.
fn long(value: u16) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(2 + usize::from(value % 7) * 30, 3);
    bytes
}

/// What a store left behind.
struct Left {
    history: History,
    acknowledged: Epoch,
    made: usize,
    failed: usize,
}

/// Starts on `disk`, plays, and dies.
fn play(
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

/// Everything acknowledged is there, and the state is that of the recovered epoch. Returns what
/// counts from now on.
fn judge(
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

/// One case: a load that meets `fault`, a crash, a recovery; and once more with other options.
fn case(
    (first, second): (&Options, &Options),
    fault: Fault,
    crash: Crash,
    seed: u64,
) -> Result<Left, String> {
    let at = |when: &'static str| move |error: String| format!("{when}: {error}");
    let disk = FaultDisk::new();
    disk.plan(fault);
    let one = play(&disk, first, &Recovered::default(), Vec::new(), seed);
    let disk = disk.crash(crash, seed);
    let found = recover(&disk);
    let (recovered, history) =
        judge(&found, &one.history, one.acknowledged).map_err(at("first"))?;
    // What was recovered is durable: it survives another crash at once.
    let again = recover(&disk.crash(Crash::DropAll, seed));
    judge(&again, &history, recovered.durable).map_err(at("again"))?;
    let two = play(&disk, second, &recovered, history, seed + 1);
    let found = recover(&disk.crash(crash, seed + 1));
    judge(&found, &two.history, two.acknowledged).map_err(at("second"))?;
    if two.made == 0 {
        return Err("second: no checkpoint was made".to_owned());
    }
    Ok(one)
}

fn assert_sweep(first: &Options, second: &Options) {
    let disk = FaultDisk::new();
    let whole = play(&disk, first, &Recovered::default(), Vec::new(), 1);
    let operations = disk.count(OpKind::Change);
    assert!(operations > 80 && whole.made == 4, "{operations} operations");
    let (mut wrong, mut survived) = (Vec::new(), 0);
    for nth in 0..=operations {
        for kind in FAULTS {
            for crash in CRASHES {
                let seed = if nth % 2 == 0 { 1 } else { nth };
                let on = OpKind::Change;
                match case((first, second), Fault { on, nth, kind }, crash, seed) {
                    Ok(left) => survived += left.failed,
                    Err(error) => wrong.push(format!(
                        "{kind:?} at {nth}, then {crash:?}, seed {seed}: {error}"
                    )),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases went wrong, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(5)]
    );
    assert!(survived > 100, "{survived} failures were the checkpoint's alone");
}

#[cfg(not(feature = "planted-early-reply"))]
#[test]
fn one_logger() {
    assert_sweep(&options(1), &options(1));
}

#[cfg(not(feature = "planted-early-reply"))]
#[test]
fn two_loggers_then_one() {
    assert_sweep(&options(2), &options(1));
}

#[cfg(not(feature = "planted-early-reply"))]
#[test]
fn one_logger_then_three_with_more_space() {
    let second = Options {
        preallocate: 4096,
        ..options(3)
    };
    assert_sweep(&options(1), &second);
}
