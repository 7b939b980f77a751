//! A replica: a driven engine with its applier, its staged entries, and short helper functions.

use std::cell::RefCell;
use std::sync::Arc;

use base::clock::ManualClock;
use base::epochs::EpochClock;
use base::limits::Limits;
use base::participant::{Isolation, Prepare, State};
use base::partition::OwnedReply;
use base::transaction::Holder;
use base::versions::ReadAtomic;
use base::{Abort, Op, Timestamp, TransactionId, Version};
use kumiki_engine::{
    Applier, Engine, Janitor, Options, Snapshot, SnapshotEntry, Staged, TransactionError, Txn,
    Worker,
};

use super::{Log, Logged, NOTE, borrowed, holder, keys_of, siblings_of};

/// The contents of a log of replicas at one index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) stamp_ms: u64,
    pub(crate) changes: Vec<Logged>,
}

impl Entry {
    pub(crate) fn changes(&self) -> Vec<base::Change<'_>> {
        self.changes.iter().map(borrowed).collect()
    }
}

pub(crate) struct Replica {
    pub(crate) engine: Arc<Engine>,
    pub(crate) applier: RefCell<Applier>,
    pub(crate) log: Log,
    pub(crate) worker: RefCell<Worker<Log>>,
    pub(crate) janitor: RefCell<Janitor>,
    /// The clock from which relative deadlines count; behind the engine's time unless it is set.
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) fn driven() -> Arc<Engine> {
    driven_with(Arc::default())
}

fn driven_with(clock: Arc<ManualClock>) -> Arc<Engine> {
    let engine = Engine::driven(&Options {
        workers: 6,
        clock,
        limits: Limits::default(),
    });
    engine.declare_read_atomic(ReadAtomic::new([&b"ra:"[..]]));
    engine
}

/// Returns the holder that stages transaction `number` of this partition alone.
pub(crate) fn stager(number: u64) -> Holder {
    let timestamp = Timestamp(number);
    let id = TransactionId {
        timestamp,
        unique: u64::MAX,
    };
    Holder {
        id,
        age: Timestamp(u64::MAX),
    }
}

impl Replica {
    pub(crate) fn new() -> Replica {
        let (clock, log) = (Arc::<ManualClock>::default(), Log::default());
        let engine = driven_with(Arc::clone(&clock));
        Replica {
            clock,
            applier: RefCell::new(engine.applier().unwrap()),
            worker: RefCell::new(engine.worker(|_| log.clone()).unwrap()),
            janitor: RefCell::new(engine.janitor()),
            engine,
            log,
        }
    }

    pub(crate) fn stage(
        &self,
        number: u64,
        ops: &[Op<'_>],
    ) -> Result<Staged<Vec<OwnedReply>>, Abort> {
        self.worker.borrow_mut().stage(ops, stager(number))
    }

    pub(crate) fn stage_transaction<T>(
        &self,
        number: u64,
        body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, TransactionError>,
    ) -> Result<Staged<T>, Abort> {
        let mut worker = self.worker.borrow_mut();
        worker.stage_transaction(stager(number), body)
    }

    pub(crate) fn stage_prepare(
        &self,
        number: u64,
        ops: &[Op<'_>],
    ) -> Result<Vec<OwnedReply>, Abort> {
        self.stage_prepare_as(number, ops, Isolation::Serializable)
    }

    pub(crate) fn stage_prepare_as(
        &self,
        number: u64,
        ops: &[Op<'_>],
        isolation: Isolation,
    ) -> Result<Vec<OwnedReply>, Abort> {
        self.worker.borrow_mut().stage_prepare(&Prepare {
            holder: holder(number),
            ops,
            siblings: &siblings_of(&keys_of(ops)),
            note: NOTE,
            isolation,
        })
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Worker<Log>) -> T) -> T {
        act(&mut self.worker.borrow_mut())
    }

    /// Returns the last staged entry.
    pub(crate) fn entry(&self) -> Entry {
        let (tid, changes) = self.log.entries.lock().pop().expect("something was staged");
        assert_eq!(tid, base::Tid::ZERO);
        let stamp_ms = self.log.stamp_ms.load(std::sync::atomic::Ordering::SeqCst);
        Entry { stamp_ms, changes }
    }

    pub(crate) fn apply(&self, entry: &Entry) {
        let index = self.engine.applied().next();
        let mut applier = self.applier.borrow_mut();
        applier.apply(index, entry.stamp_ms, &entry.changes());
    }

    /// Applies an entry that moves time.
    pub(crate) fn tick(&self, stamp_ms: u64) {
        let index = self.engine.applied().next();
        self.applier.borrow_mut().skip(index, stamp_ms);
    }

    /// Stages operations that must succeed, applies their writes and releases their holds.
    pub(crate) fn run(&self, number: u64, ops: &[Op<'_>]) -> Entry {
        self.stage(number, ops).unwrap();
        let entry = self.entry();
        self.apply(&entry);
        self.engine.release(stager(number).id);
        entry
    }

    pub(crate) fn execute(&self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Abort> {
        let mut worker = self.worker.borrow_mut();
        let done = worker.execute(ops)?;
        Ok(done.replies().iter().map(OwnedReply::from).collect())
    }

    pub(crate) fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Abort> {
        match &self.execute(&[Op::Get { key }])?[0] {
            OwnedReply::Nil => Ok(None),
            OwnedReply::Bytes(bytes) => Ok(Some(bytes.clone())),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.read(key).expect("it is not held")
    }

    pub(crate) fn version(&self, key: &[u8]) -> Version {
        match self.execute(&[Op::Watch { key }]).unwrap()[0] {
            OwnedReply::Version(version) => version,
            ref other => panic!("{other:?}"),
        }
    }

    pub(crate) fn state(&self, number: u64) -> State {
        self.with(|w| w.state(holder(number).id).0)
    }

    pub(crate) fn hash(&self) -> u64 {
        let snapshot = self.engine.snapshot();
        self.with(|w| w.state_hash(&snapshot))
    }

    pub(crate) fn tidy(&self) {
        let mut janitor = self.janitor.borrow_mut();
        for _ in 0..5 {
            janitor.tidy(self.engine.applied(), 1_000);
        }
    }

    /// Loads the state that `from` has applied.
    pub(crate) fn load(&self, from: &Replica) {
        let snapshot = from.engine.snapshot();
        load(
            &mut self.applier.borrow_mut(),
            &mut from.worker.borrow_mut(),
            &snapshot,
        );
        assert_eq!(self.engine.applied(), from.engine.applied());
        assert_eq!(self.engine.epochs().finished(), self.engine.applied());
    }
}

pub(crate) fn load(applier: &mut Applier, from: &mut Worker<Log>, snapshot: &Snapshot) {
    let mut loader = applier.load(snapshot.epoch(), snapshot.time_ms());
    let put = |entry: Option<SnapshotEntry<'_>>| {
        entry.iter().for_each(|entry| loader.put(entry));
        true
    };
    assert_eq!(from.copy_snapshot(snapshot, b"", None, put), None);
    let (generation, flushed) = from.snapshot_generation(snapshot);
    loader.finish(generation, flushed);
}
