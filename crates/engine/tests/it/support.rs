//! An engine with a clock that stands still, a log that remembers, and short helper functions.

pub(crate) mod bank;
pub(crate) mod replica;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::change::siblings;
use base::clock::ManualClock;
use base::limits::Limits;
use base::participant::{Isolation, Prepare, State};
use base::partition::OwnedReply;
use base::transaction::{Expiry, Holder, Kind, ValueCall, When};
use base::versions::ReadAtomic;
use base::{Abort, Change, Epoch, Op, Origin, Reply, Tid, Timestamp, TransactionId};
use kumiki_engine::{
    Changes, EncodedChanges, Engine, Janitor, LogFailure, Options, RedoLog, Restorer, Snapshot,
    SnapshotEntry, Worker,
};
use parking_lot::Mutex;

/// A change that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Logged {
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        kind: Kind,
        generation: u16,
        deadline: Option<u64>,
        origin: Option<(TransactionId, Vec<u8>)>,
    },
    Edit {
        key: Vec<u8>,
        base: Tid,
        offset: usize,
        bytes: Vec<u8>,
    },
    Elements {
        key: Vec<u8>,
        base: Tid,
        deadline: Option<u64>,
        changes: Vec<u8>,
    },
    Delete {
        key: Vec<u8>,
        origin: Option<(TransactionId, Vec<u8>)>,
    },
    Flush(u16),
}

/// The log's contents, transaction by transaction.
pub(crate) type Entries = Vec<(Tid, Vec<Logged>)>;

/// A log in memory.
#[derive(Clone, Default)]
pub(crate) struct Log {
    pub(crate) entries: Arc<Mutex<Entries>>,
    /// The reason why it takes nothing more.
    pub(crate) broken: Arc<Mutex<Option<&'static str>>>,
    /// The time of the last transaction's epoch.
    pub(crate) stamp_ms: Arc<AtomicU64>,
    /// `true` if staged transactions pass their holds on.
    pub(crate) passes: Arc<AtomicBool>,
    /// The changes of transactions in slices, which have their numbers here.
    encoded: Arc<Mutex<Vec<Logged>>>,
}

impl RedoLog for Log {
    fn ready(&mut self) -> Result<(), LogFailure> {
        Ok(())
    }

    fn append(&mut self, tid: Tid, stamp_ms: u64, changes: Changes<'_>) -> Result<(), LogFailure> {
        if let Some(reason) = *self.broken.lock() {
            return Err(LogFailure::new(reason));
        }
        let logged = changes.iter().map(|change| owned(&change)).collect();
        self.entries.lock().push((tid, logged));
        self.stamp_ms.store(stamp_ms, Ordering::SeqCst);
        Ok(())
    }

    fn encode(&mut self, changes: Changes<'_>, to: &mut EncodedChanges) {
        let mut encoded = self.encoded.lock();
        for change in changes.iter() {
            to.bytes.extend((encoded.len() as u32).to_le_bytes());
            to.count += 1;
            encoded.push(owned(&change));
        }
    }

    fn append_encoded(
        &mut self,
        tid: Tid,
        stamp_ms: u64,
        changes: &EncodedChanges,
    ) -> Result<(), LogFailure> {
        if let Some(reason) = *self.broken.lock() {
            return Err(LogFailure::new(reason));
        }
        let encoded = self.encoded.lock();
        let (numbers, rest) = changes.bytes.as_chunks();
        assert_eq!((numbers.len(), rest.len()), (changes.count as usize, 0));
        let logged = numbers
            .iter()
            .map(|number| u32::from_le_bytes(*number) as usize);
        let logged = logged.map(|number| encoded[number].clone()).collect();
        self.entries.lock().push((tid, logged));
        self.stamp_ms.store(stamp_ms, Ordering::SeqCst);
        Ok(())
    }

    fn passes_holds(&self) -> bool {
        self.passes.load(Ordering::SeqCst)
    }
}

pub(crate) fn owned(change: &Change<'_>) -> Logged {
    let own = |origin: Option<Origin<'_>>| origin.map(|o| (o.id, o.siblings.to_vec()));
    match *change {
        Change::Put {
            key,
            value,
            kind,
            generation,
            deadline,
            origin,
        } => Logged::Put {
            key: key.to_vec(),
            value: value.to_vec(),
            kind,
            generation,
            deadline,
            origin: own(origin),
        },
        Change::Edit {
            key,
            base,
            offset,
            bytes,
        } => Logged::Edit {
            key: key.to_vec(),
            base,
            offset,
            bytes: bytes.to_vec(),
        },
        Change::Elements {
            key,
            base,
            deadline,
            changes,
        } => Logged::Elements {
            key: key.to_vec(),
            base,
            deadline,
            changes: changes.to_vec(),
        },
        Change::Delete { key, origin } => Logged::Delete {
            key: key.to_vec(),
            origin: own(origin),
        },
        Change::Flush { generation } => Logged::Flush(generation),
    }
}

pub(crate) fn apply(restorer: &mut Restorer, tid: Tid, changes: &[Logged]) {
    let changes = changes.iter();
    changes.for_each(|change| restorer.apply(tid, &borrowed(change)));
}

pub(crate) fn borrowed(logged: &Logged) -> Change<'_> {
    fn of(origin: &Option<(TransactionId, Vec<u8>)>) -> Option<Origin<'_>> {
        origin
            .as_ref()
            .map(|(id, siblings)| Origin { id: *id, siblings })
    }
    match logged {
        Logged::Put {
            key,
            value,
            kind,
            generation,
            deadline,
            origin,
        } => Change::Put {
            key,
            value,
            kind: *kind,
            generation: *generation,
            deadline: *deadline,
            origin: of(origin),
        },
        Logged::Edit {
            key,
            base,
            offset,
            bytes,
        } => Change::Edit {
            key,
            base: *base,
            offset: *offset,
            bytes,
        },
        Logged::Elements {
            key,
            base,
            deadline,
            changes,
        } => Change::Elements {
            key,
            base: *base,
            deadline: *deadline,
            changes,
        },
        Logged::Delete { key, origin } => Change::Delete {
            key,
            origin: of(origin),
        },
        Logged::Flush(generation) => Change::Flush {
            generation: *generation,
        },
    }
}

pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) log: Log,
    read_atomic: ReadAtomic,
    janitor: RefCell<Janitor>,
    /// The worker for additional reads by the test.
    observer: RefCell<Worker<Log>>,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> World {
        let read_atomic = ReadAtomic::new([&b"ra:"[..]]);
        World::start(limits, Log::default(), 1_000, read_atomic, |_| {})
    }

    /// Returns a world without read-atomic keys.
    pub(crate) fn without_read_atomic() -> World {
        let none = ReadAtomic::default();
        World::start(Limits::default(), Log::default(), 1_000, none, |_| {})
    }

    fn start(
        limits: Limits,
        log: Log,
        now_ms: u64,
        read_atomic: ReadAtomic,
        restore: impl FnOnce(&Arc<Engine>),
    ) -> World {
        let clock = Arc::new(ManualClock::new(now_ms));
        let engine = Engine::new(&Options {
            workers: 6,
            clock: Arc::clone(&clock) as _,
            limits,
        });
        engine.declare_read_atomic(read_atomic.clone());
        restore(&engine);
        World {
            janitor: RefCell::new(engine.janitor()),
            observer: RefCell::new(engine.worker(|_| log.clone()).unwrap()),
            engine,
            clock,
            log,
            read_atomic,
        }
    }

    /// Returns the world after a restart: the log is read, in no particular order.
    pub(crate) fn restarted(&self) -> World {
        let entries = self.log.entries.lock().clone();
        self.restarted_with(entries)
    }

    /// Returns the content of a snapshot, as a checkpoint has it.
    pub(crate) fn checkpointed(&self, snapshot: &Snapshot) -> Entries {
        let mut entries: Entries = Vec::new();
        let put = |entry: Option<SnapshotEntry<'_>>| {
            entries.extend(entry.map(|entry| {
                let put = Logged::Put {
                    key: entry.key.to_vec(),
                    value: entry.value.bytes().into_owned(),
                    kind: entry.kind,
                    generation: entry.generation,
                    deadline: entry.deadline,
                    origin: None,
                };
                (entry.tid, vec![put])
            }));
            true
        };
        let mut worker = self.worker();
        assert_eq!(worker.copy_snapshot(snapshot, b"", None, put), None);
        entries
    }

    /// Returns a world that is restored from these changes, with the limits and the time of this one.
    pub(crate) fn restarted_with(&self, entries: Entries) -> World {
        let log = Log {
            entries: Arc::new(Mutex::new(entries.clone())),
            ..Log::default()
        };
        let now_ms = base::clock::Clock::now_ms(&*self.clock);
        let read_atomic = self.read_atomic.clone();
        World::start(*self.engine.limits(), log, now_ms, read_atomic, |engine| {
            let mut restorer = engine.restorer().unwrap();
            let mut newest = Epoch::ZERO;
            for (tid, changes) in entries.iter().rev() {
                newest = newest.max(tid.epoch());
                apply(&mut restorer, *tid, changes);
            }
            engine
                .finish_restore(vec![restorer], newest, now_ms)
                .unwrap();
            engine.restore_prepared().unwrap();
        })
    }

    pub(crate) fn worker(&self) -> Worker<Log> {
        self.engine
            .worker(|_| self.log.clone())
            .expect("few workers")
    }

    pub(crate) fn tidy(&self) {
        let mut janitor = self.janitor.borrow_mut();
        for _ in 0..20 {
            janitor.tidy(Epoch(u64::MAX), 1000);
        }
    }

    /// Runs operations that must succeed.
    pub(crate) fn run(&self, ops: &[Op<'_>]) -> Vec<OwnedReply> {
        self.try_run(ops).unwrap()
    }

    pub(crate) fn try_run(&self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Abort> {
        let mut w = self.observer.borrow_mut();
        w.refresh();
        let done = w.execute(ops)?;
        Ok(done.replies().iter().map(OwnedReply::from).collect())
    }

    /// Returns the value of a key, or its holder.
    pub(crate) fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Holder> {
        match self.try_run(&[Op::Get { key }]) {
            Ok(replies) => match &replies[0] {
                OwnedReply::Nil => Ok(None),
                OwnedReply::Bytes(bytes) => Ok(Some(bytes.clone())),
                other => panic!("{other:?}"),
            },
            Err(Abort::Held { by }) => Err(by),
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.read(key).expect("it is not held")
    }

    /// Prepares these operations as attempt `number`.
    pub(crate) fn prepare(
        &self,
        worker: &mut Worker<Log>,
        number: u64,
        ops: &[Op<'_>],
    ) -> Result<Vec<OwnedReply>, Abort> {
        self.prepare_as(worker, number, ops, Isolation::Serializable)
    }

    pub(crate) fn prepare_as(
        &self,
        worker: &mut Worker<Log>,
        number: u64,
        ops: &[Op<'_>],
        isolation: Isolation,
    ) -> Result<Vec<OwnedReply>, Abort> {
        worker.prepare(&Prepare {
            holder: holder(number),
            ops,
            siblings: &siblings_of(&keys_of(ops)),
            note: NOTE,
            isolation,
        })
    }

    pub(crate) fn state(&self, number: u64) -> State {
        self.observer.borrow_mut().state(holder(number).id).0
    }

    pub(crate) fn undecided(&self) -> Vec<(TransactionId, State)> {
        self.observer.borrow_mut().undecided()
    }

    pub(crate) fn origin(&self, key: &[u8]) -> Option<(TransactionId, Vec<u8>)> {
        self.observer.borrow_mut().origin_of(key)
    }
}

pub(crate) const NOTE: &[u8] = b"note";

/// Returns the holder that makes attempt `number`: the smaller the number, the older.
pub(crate) fn holder(number: u64) -> Holder {
    let timestamp = Timestamp::at_ms(1_000 + number);
    Holder {
        id: TransactionId {
            timestamp,
            unique: number,
        },
        age: timestamp,
    }
}

pub(crate) fn prepared() -> State {
    State::Prepared(NOTE.to_vec())
}

pub(crate) fn committed() -> State {
    State::Committed(NOTE.to_vec())
}

pub(crate) fn assert_unsupported<T: std::fmt::Debug>(outcome: Result<T, Abort>, words: &[&str]) {
    let Err(Abort::Unsupported { what }) = outcome else {
        panic!("{outcome:?}");
    };
    for word in words {
        assert!(what.contains(word), "{word} in {what}");
    }
}

pub(crate) fn holder_of<T>(outcome: Result<T, Abort>) -> Holder {
    match outcome {
        Err(Abort::Held { by }) => by,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("nothing was held"),
    }
}

pub(crate) fn keys_of<'a>(ops: &[Op<'a>]) -> Vec<&'a [u8]> {
    let writes = ops.iter().filter(|op| !op.is_read_only());
    writes.filter_map(Op::key).collect()
}

pub(crate) fn siblings_of(keys: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    keys.iter().for_each(|key| siblings::push(&mut bytes, key));
    bytes
}

pub(crate) fn put_until<'a>(key: &'a [u8], value: &'a [u8], at: i64) -> Op<'a> {
    Op::Put {
        key,
        value,
        when: When::Always,
        expiry: Expiry::AtMs(at),
        get: false,
    }
}

pub(crate) fn number(reply: &Reply<'_>) -> i64 {
    match reply {
        Reply::Bytes(bytes) => std::str::from_utf8(bytes).unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Returns an operation that executes a command on a collection.
pub(crate) fn call<'a>(key: &'a [u8], command: u16, args: &[&'a [u8]]) -> Op<'a> {
    Op::Call {
        key,
        call: ValueCall {
            command,
            seed: 0,
            args: args.into(),
        },
    }
}
