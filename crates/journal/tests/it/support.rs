//! A store reduced to the part that the journal sees: an epoch clock, and transactions of which a
//! whole one can be distinguished from a half.

pub(crate) mod small;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use base::epochs::EpochClock;
use base::transaction::Kind;
use base::{Epoch, Tid};
use disk::{Crash, Disk, FaultDisk, FaultKind};
use fastrand::Rng;
use kumiki_journal::{
    Change, Drive, Entry, EpochTime, Journal, JournalFailure, LogWriter, Options, RecoverError,
    Recovered,
};

pub(crate) const DIR: &str = "/data/log";

/// The amounts of unsynced data that a crash may keep.
pub(crate) const CRASHES: [Crash; 4] = [
    Crash::DropAll,
    Crash::KeepPrefix,
    Crash::KeepSectors,
    Crash::KillProcess,
];
/// The ways in which a disk may fail.
pub(crate) const FAULTS: [FaultKind; 4] = [
    FaultKind::PowerOff,
    FaultKind::Io,
    FaultKind::NoSpace,
    FaultKind::ShortWrite,
];

/// Returns a shared handle of a disk.
pub(crate) fn shared(disk: &FaultDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// Returns a copy of a disk on which one file was changed.
pub(crate) fn damaged(
    disk: &FaultDisk,
    path: &Path,
    damage: impl FnOnce(&mut Vec<u8>),
) -> FaultDisk {
    let copy = disk.crash(Crash::KillProcess, 0);
    copy.damage(path, damage).unwrap();
    copy
}

/// Epochs as a store keeps them: a worker is active in the epoch in which it entered.
pub(crate) struct TestClock {
    current: AtomicU64,
    /// For each worker: the epoch that it is active in, 0 when idle.
    active: Vec<AtomicU64>,
}

impl TestClock {
    pub(crate) fn new(current: Epoch, workers: usize) -> Arc<TestClock> {
        let active = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Arc::new(TestClock {
            current: AtomicU64::new(current.0),
            active,
        })
    }

    pub(crate) fn enter(&self, worker: usize) {
        loop {
            let epoch = self.current.load(SeqCst);
            self.active[worker].store(epoch, SeqCst);
            if self.current.load(SeqCst) == epoch {
                return;
            }
        }
    }

    pub(crate) fn leave(&self, worker: usize) {
        self.active[worker].store(0, SeqCst);
    }

    fn oldest(&self) -> Option<u64> {
        self.active
            .iter()
            .map(|epoch| epoch.load(SeqCst))
            .filter(|&epoch| epoch > 0)
            .min()
    }
}

impl EpochClock for TestClock {
    fn current(&self) -> Epoch {
        Epoch(self.current.load(SeqCst))
    }

    fn advance(&self, from: Epoch) -> Epoch {
        if self.oldest().is_none_or(|oldest| oldest >= from.0) {
            let _ = self
                .current
                .compare_exchange(from.0, from.0 + 1, SeqCst, SeqCst);
        }
        self.current()
    }

    fn finished(&self) -> Epoch {
        let current = self.current.load(SeqCst);
        let oldest = self.oldest().unwrap_or(current);
        Epoch(oldest.min(current) - 1)
    }

    fn stamp_ms(&self, epoch: Epoch) -> u64 {
        1_000_000 + epoch.0
    }
}

/// A transaction that was appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Logged {
    pub(crate) id: u64,
    pub(crate) tid: Tid,
    pub(crate) writes: u8,
}

/// Appends transaction `id`: several keys, each of which names all.
pub(crate) fn commit(
    clock: &TestClock,
    writer: &LogWriter,
    worker: usize,
    id: u64,
    rng: &mut Rng,
) -> Result<Logged, JournalFailure> {
    clock.enter(worker);
    let epoch = clock.current();
    let tid = Tid::new(epoch, rng.u32(0..1 << 19));
    let writes = rng.u8(1..5);
    let length = if rng.u8(0..20) == 0 {
        rng.usize(0..3000)
    } else {
        rng.usize(0..60)
    };
    let value = vec![id as u8; length];
    let result = writer.append(tid, clock.stamp_ms(epoch), length * 3, |to| {
        for i in 0..writes {
            let mut key = id.to_le_bytes().to_vec();
            key.extend([i, writes]);
            match i % 3 {
                0 => to.put(&key, &value, Kind::String, 1, None),
                1 => to.put(&key, &value, Kind::String, 1, Some(77)),
                _ => to.delete(&key),
            }
        }
    });
    clock.leave(worker);
    result.map(|()| Logged { id, tid, writes })
}

/// The outcome of a recovery.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) recovered: Recovered,
    /// The transactions by id.
    pub(crate) transactions: BTreeMap<u64, Logged>,
}

/// Recovers, and checks that every transaction is whole and of a recovered epoch.
pub(crate) fn recover(disk: &Arc<dyn Disk>) -> Result<Found, RecoverError> {
    type Seen = BTreeMap<u64, (Tid, Vec<u8>, u8)>;
    let seen: Mutex<Seen> = Mutex::default();
    let apply = |entry: Entry<'_>| {
        let (Change::Put { key, .. } | Change::Delete { key, .. }) = entry.change else {
            panic!("no flush was logged")
        };
        let id = u64::from_le_bytes(key[..8].try_into().unwrap());
        if let Change::Put {
            value,
            generation,
            deadline,
            ..
        } = entry.change
        {
            assert!(
                value.iter().all(|&byte| byte == id as u8),
                "a value of its own"
            );
            assert_eq!((generation, deadline), (1, (key[8] % 3 == 1).then_some(77)));
        }
        assert_eq!(entry.stamp_ms, 1_000_000 + entry.tid.epoch().0);
        let mut seen = seen.lock().unwrap();
        let (tid, writes, _) = seen.entry(id).or_insert((entry.tid, Vec::new(), key[9]));
        assert_eq!(*tid, entry.tid);
        writes.push(key[8]);
    };
    let recovered = Journal::recover(disk, Path::new(DIR), 2, &apply, &|_| {})?;
    let mut transactions = BTreeMap::new();
    for (id, (tid, mut writes, n)) in seen.into_inner().unwrap() {
        writes.sort_unstable();
        assert!(
            writes.into_iter().eq(0..n),
            "transaction {id} is half there, or twice"
        );
        assert!(
            tid.epoch() <= recovered.durable,
            "transaction {id} is of a void epoch"
        );
        transactions.insert(id, Logged { id, tid, writes: n });
    }
    Ok(Found {
        recovered,
        transactions,
    })
}

pub(crate) fn options(loggers: usize) -> Options {
    Options {
        loggers,
        workers: 4,
        log_buffers: 2,
        log_buffer_size: 1024,
        segment_size: 4096,
        preallocate: 0,
        epoch_time: EpochTime::Adaptive,
        drive: Drive::Manual,
        salt: 42,
        ..Options::default()
    }
}

/// A journal that runs on a disk, and the knowledge of its clients.
pub(crate) struct Run {
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) writers: Vec<LogWriter>,
    pub(crate) logged: Vec<Logged>,
}

impl Run {
    /// Starts behind the recovered data; returns `None` if the disk fails.
    pub(crate) fn start(disk: &FaultDisk, options: Options, recovered: &Recovered) -> Option<Run> {
        let workers = options.workers;
        // One more than those that log: a reader that stays for long.
        let clock = TestClock::new(recovered.newest.next(), workers + 1);
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let clock_of = Arc::clone(&clock) as Arc<dyn EpochClock>;
        let journal = Journal::start(disk, Path::new(DIR), options, clock_of, recovered).ok()?;
        let writers = (0..workers).map(|worker| journal.writer(worker)).collect();
        Some(Run {
            journal,
            clock,
            writers,
            logged: Vec::new(),
        })
    }

    /// Plays a scripted load: `steps` of transactions, cycles and marks. Stops when the journal
    /// fails.
    pub(crate) fn play(&mut self, loggers: usize, steps: usize, first_id: u64, rng: &mut Rng) {
        let reader = self.writers.len();
        for step in 0..steps as u64 {
            let result = match rng.u8(0..12) {
                0..6 => {
                    let worker = rng.usize(0..self.writers.len());
                    let id = first_id + step;
                    commit(&self.clock, &self.writers[worker], worker, id, rng)
                        .map(|logged| self.logged.push(logged))
                }
                6 => {
                    self.clock.advance(self.clock.current());
                    Ok(())
                }
                7 => self.journal.record(rng.usize(0..loggers)),
                8 => {
                    // Seldom: a caller that waits for its epoch yields the processor many times.
                    if rng.u8(0..4) == 0 {
                        self.clock.enter(reader);
                    }
                    Ok(())
                }
                9 => {
                    self.clock.leave(reader);
                    Ok(())
                }
                _ => {
                    self.journal.request(self.clock.current());
                    self.journal.cycle(rng.usize(0..loggers))
                }
            };
            if result.is_err() {
                assert!(self.journal.failed().is_some(), "an error is for ever");
                return;
            }
        }
        self.clock.leave(reader);
    }

    /// Returns the epoch that clients know to be durable.
    pub(crate) fn acknowledged(&self) -> Epoch {
        self.journal.durable()
    }
}

/// Compares the outcome of a recovery with the transactions that were logged before: everything
/// acknowledged must be there, nothing unknown, and all transactions within the recovered epochs.
/// Returns a description of any error.
pub(crate) fn judge(found: &Found, logged: &[Logged], acknowledged: Epoch) -> Result<(), String> {
    let durable = found.recovered.durable;
    if durable < acknowledged
        && logged
            .iter()
            .any(|l| l.tid.epoch() > durable && l.tid.epoch() <= acknowledged)
    {
        return Err(format!(
            "acknowledged up to {acknowledged}, recovered up to {durable}"
        ));
    }
    for one in logged {
        let there = found.transactions.get(&one.id) == Some(one);
        if there != (one.tid.epoch() <= durable) {
            let word = if there { "came back" } else { "is lost" };
            return Err(format!("{one:?} {word}; recovered up to {durable}"));
        }
    }
    match found
        .transactions
        .values()
        .find(|one| !logged.contains(one))
    {
        Some(one) => Err(format!("{one:?} came from nowhere")),
        None => Ok(()),
    }
}

/// Starts a journal on an empty disk.
pub(crate) fn start(disk: &FaultDisk, options: Options) -> Run {
    Run::start(disk, options, &Recovered::default()).unwrap()
}
