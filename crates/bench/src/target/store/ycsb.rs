//! YCSB on a store: loads it, runs its transactions, verifies every value that is read.

use std::ops::Range;
use std::sync::Arc;

use base::transaction::{Observed, ScanContents};
use base::{Abort, Reply};
use history::{Outcome, recorder};
use smallvec::SmallVec;
use store::{Db, Op, TransactionError, Txn, Worker};

use super::job::StoreJob;
use super::read_back;
use super::store_under_test::{PinnedWorker, StoreUnderTest, StoreWorkload, TicketSource};
use crate::driver;
use crate::error::RunError;
use crate::keys::{self, Chooser, Population};
use crate::run_context::RunContext;
use crate::stamp::{self, Stamp};
use crate::workload::{ClientWrites, Generator, LastWrites, YcsbOperation, YcsbSettings};

/// Keys loaded by one transaction.
const BATCH: u64 = 16;
/// One key in so many has its last write recorded; all of them if there are few.
const SAMPLE: u64 = 64;
const FEW: u64 = 10_000;
/// With a planted failure one value in so many is wrong: often enough that some are not overwritten
/// before they are read.
const PLANT_EVERY: u64 = 50;
/// The most transactions of a recorded client: the judgement of a history must end.
const RECORDED_TRANSACTIONS: u64 = 500;
/// The greatest key space of a recorded run.
const RECORDED_RECORDS: u64 = 1_000;

/// The workload and its state.
pub(super) struct YcsbLoad {
    ycsb: YcsbSettings,
    population: Arc<Population>,
    chooser: Chooser,
    sample: u64,
    last_writes: LastWrites,
}

impl YcsbLoad {
    pub(super) fn new(ycsb: &YcsbSettings, job: &StoreJob, context: &RunContext<'_>) -> YcsbLoad {
        let mut ycsb = ycsb.clone();
        if context.recorder.is_some() {
            ycsb.records = ycsb.records.min(RECORDED_RECORDS);
            // A history distinguishes values, so that a stamp must be whole.
            ycsb.value_size = ycsb.value_size.max(stamp::WHOLE);
        }
        let population = Arc::new(Population::new(ycsb.records, job.workers));
        YcsbLoad {
            chooser: Chooser::new(ycsb.distribution, Arc::clone(&population)),
            sample: if ycsb.records <= FEW { 1 } else { SAMPLE },
            population,
            ycsb,
            last_writes: LastWrites::default(),
        }
    }

    /// Writes these keys, in transactions of a few.
    fn load_range(&self, worker: &mut Worker, range: Range<u64>) -> Result<(), RunError> {
        let mut value = vec![0; self.ycsb.value_size];
        for first in range.clone().step_by(BATCH as usize) {
            let batch = first..range.end.min(first + BATCH);
            let keys: Vec<[u8; 8]> = batch.clone().map(keys::encode).collect();
            let mut values = Vec::with_capacity(keys.len() * value.len());
            for key in batch {
                Stamp::INITIAL.write(key, &mut value);
                values.extend_from_slice(&value);
            }
            let pairs = keys.iter().zip(values.chunks(value.len()));
            let ops: Vec<Op<'_>> = pairs.map(|(key, value)| Op::put(key, value)).collect();
            worker.refresh();
            worker.execute(&ops).map_err(RunError::of)?;
        }
        Ok(())
    }
}

impl StoreWorkload for YcsbLoad {
    type Client<'r> = YcsbClient<'r>;

    fn load(&self, bench: &StoreUnderTest<'_>) -> Result<(), RunError> {
        let mut log = bench.recorder.map(history::Recorder::process);
        let mut entry = log.as_mut().map(recorder::HistoryLog::begin);
        let mut worker = bench.worker()?;
        self.load_range(&mut worker, 0..self.ycsb.records)?;
        let epoch = worker.observed().epoch;
        worker.wait_durable(epoch).map_err(RunError::of)?;
        if let Some(entry) = &mut entry {
            for key in 0..self.ycsb.records {
                entry.write(&name(bench.number, key), number(Stamp::INITIAL), None);
            }
        }
        if let Some(entry) = entry {
            entry.end(Outcome::Committed);
        }
        Ok(())
    }

    fn clients<'r>(&self, bench: &StoreUnderTest<'r>) -> Result<Vec<YcsbClient<'r>>, RunError> {
        (0..bench.workers)
            .map(|lane| {
                let recorded = bench.recorder.is_some();
                let chooser = self.chooser.clone();
                Ok(YcsbClient {
                    seat: bench.seat(lane)?,
                    ticket: bench.ticket(),
                    generator: Generator::new(
                        &self.ycsb,
                        chooser,
                        &self.population,
                        lane,
                        bench.seed,
                        recorded,
                    ),
                    writer: ValueWriter {
                        number: lane as u32 + 1,
                        sequence: 0,
                        size: self.ycsb.value_size,
                        plant: bench.plant && lane == 0,
                    },
                    ledger: ClientWrites::new(self.sample, lane as u32 + 1),
                    todo: Vec::new(),
                    keys: Vec::new(),
                    values: Vec::new(),
                    seen: Vec::new(),
                    log: bench.recorder.map(history::Recorder::process),
                    number: bench.number,
                    left: if recorded {
                        RECORDED_TRANSACTIONS
                    } else {
                        u64::MAX
                    },
                })
            })
            .collect()
    }

    fn ended(&mut self, clients: Vec<YcsbClient<'_>>) {
        self.last_writes =
            LastWrites::of(clients.into_iter().map(|client| client.ledger).collect());
    }

    fn check(&self, db: &Db) -> Result<u64, RunError> {
        let mut sum = 0u64;
        let visited = read_back::each(db, self.population.all(), |key, value| {
            let value = value.ok_or_else(|| format!("key {key} is missing"))?;
            let stamp = stamped(key, value, self.ycsb.value_size)?;
            if let Some(right) = self.last_writes.expected(key, Stamp::INITIAL) {
                let mut expected = vec![0; value.len()];
                right.write(key, &mut expected);
                if expected != value {
                    return Err(RunError::Failed(format!(
                        "key {key} has {stamp:?} instead of the last acknowledged {right:?}"
                    )));
                }
            }
            sum = sum.wrapping_add(read_back::digest(key, value));
            Ok(())
        })?;
        let keys = db.stats().keys;
        if keys != visited {
            return Err(RunError::Failed(format!(
                "the store has {keys} keys instead of {visited}"
            )));
        }
        Ok(sum)
    }
}

/// Returns the stamp of a value that may be there.
fn stamped(key: u64, value: &[u8], size: usize) -> Result<Stamp, RunError> {
    let stamp = Stamp::read(key, value).filter(|_| value.len() == size);
    stamp.ok_or_else(|| {
        RunError::Failed(format!(
            "key {key} has a value that no client wrote there: {value:02x?}"
        ))
    })
}

/// Returns a key's name in a history. Names are in the order of the store's keys, for the sake of
/// scans.
fn name(run: usize, key: u64) -> String {
    format!("r{run}:{:016x}", u64::from_be_bytes(keys::encode(key)))
}

/// Returns a value's number in a history.
fn number(stamp: Stamp) -> i64 {
    i64::from(stamp.writer) << 40 | stamp.sequence as i64
}

/// Makes the values that a client writes.
struct ValueWriter {
    number: u32,
    sequence: u64,
    size: usize,
    /// Some values must be wrong.
    plant: bool,
}

impl ValueWriter {
    fn value(&mut self, key: u64, to: &mut Vec<u8>) {
        self.sequence += 1;
        let stamp = Stamp {
            writer: self.number,
            sequence: self.sequence,
        };
        let from = to.len();
        to.resize(from + self.size, 0);
        stamp.write(key, &mut to[from..]);
        if self.plant && self.sequence.is_multiple_of(PLANT_EVERY) {
            to[from] ^= 1;
        }
    }
}

pub(super) struct YcsbClient<'r> {
    seat: PinnedWorker,
    ticket: TicketSource,
    generator: Generator,
    writer: ValueWriter,
    ledger: ClientWrites,
    todo: Vec<YcsbOperation>,
    keys: Vec<[u8; 8]>,
    /// The values to write, one behind the other.
    values: Vec<u8>,
    /// The values that were read, for the history alone.
    seen: Vec<RecordedOperation>,
    log: Option<recorder::HistoryLog<'r>>,
    number: usize,
    /// Transactions that are still to run.
    left: u64,
}

/// The result of an operation, or the value that it wrote.
enum RecordedOperation {
    Read(u64, Stamp),
    Wrote(u64, Stamp),
    Scanned(u64, usize, Vec<(u64, Stamp)>),
}

impl driver::BlockingClient for YcsbClient<'_> {
    fn run(&mut self) -> Result<u64, RunError> {
        if self.left == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            return Ok(driver::DONE);
        }
        self.left -= 1;
        self.generator.next(&mut self.todo);
        let first = self.writer.sequence;
        self.values.clear();
        for todo in &self.todo {
            if let YcsbOperation::Update(key)
            | YcsbOperation::Insert(key)
            | YcsbOperation::Modify(key) = *todo
            {
                self.writer.value(key, &mut self.values);
            }
        }
        self.seen.clear();
        let mut log = self.log.take();
        let entry = log.as_mut().map(recorder::HistoryLog::begin);
        let recorded = entry.is_some();
        let modifies = self
            .todo
            .iter()
            .any(|todo| matches!(todo, YcsbOperation::Modify(_)));
        let observed = if modifies {
            self.closure(first, recorded)?
        } else {
            self.one_shot(first, recorded)?
        };
        self.generator.committed();
        self.keep(first, observed);
        if let Some(entry) = entry {
            record(entry, self.number, &self.seen, observed);
        }
        self.log = log;
        Ok(self.ticket.of(observed.epoch))
    }

    fn settle(&mut self, ticket: u64) -> Result<(), RunError> {
        self.ticket.settle(ticket)
    }
}

impl YcsbClient<'_> {
    /// Runs the transaction as a list of operations.
    fn one_shot(&mut self, first: u64, recorded: bool) -> Result<Observed, RunError> {
        self.keys.clear();
        let key = |todo: &YcsbOperation| match *todo {
            YcsbOperation::Read(key) | YcsbOperation::Update(key) | YcsbOperation::Insert(key) => {
                keys::encode(key)
            }
            YcsbOperation::Scan(key, _) | YcsbOperation::Modify(key) => keys::encode(key),
        };
        self.keys.extend(self.todo.iter().map(key));
        let mut values = self.values.chunks(self.writer.size);
        let mut ops: SmallVec<[Op<'_>; 16]> = SmallVec::new();
        for (todo, key) in self.todo.iter().zip(&self.keys) {
            ops.push(match todo {
                YcsbOperation::Read(_) | YcsbOperation::Modify(_) => Op::Get { key },
                YcsbOperation::Update(_) | YcsbOperation::Insert(_) => {
                    Op::put(key, values.next().expect("a value for each write"))
                }
                YcsbOperation::Scan(_, limit) => Op::Scan {
                    from: key,
                    to: None,
                    limit: *limit,
                    contents: ScanContents::Values,
                },
            });
        }
        let worker = self.seat.take()?;
        worker.refresh();
        let done = worker.execute(&ops).map_err(RunError::of)?;
        let mut sequence = first;
        for (todo, reply) in self.todo.iter().zip(done.replies()) {
            let seen = verify(todo, reply, self.writer.size, recorded)?;
            if recorded {
                self.seen.push(match (*todo, seen) {
                    (YcsbOperation::Scan(key, limit), pairs) => {
                        RecordedOperation::Scanned(key, limit, pairs)
                    }
                    (YcsbOperation::Read(key), pairs) => RecordedOperation::Read(key, pairs[0].1),
                    (
                        YcsbOperation::Update(key)
                        | YcsbOperation::Insert(key)
                        | YcsbOperation::Modify(key),
                        _,
                    ) => {
                        sequence += 1;
                        RecordedOperation::Wrote(key, self.writer.stamp(sequence))
                    }
                });
            }
        }
        Ok(done.observed())
    }

    /// Runs the transaction as a closure: what it writes comes after what it read.
    fn closure(&mut self, first: u64, recorded: bool) -> Result<Observed, RunError> {
        let (todo, size) = (&self.todo, self.writer.size);
        let (values, writer) = (&self.values, &self.writer);
        let mut wrong = None;
        let body = |txn: &mut Txn<'_>| -> Result<Vec<RecordedOperation>, TransactionError> {
            let mut seen = Vec::new();
            let mut values = values.chunks(size);
            let mut sequence = first;
            for one in todo {
                let (YcsbOperation::Read(key) | YcsbOperation::Modify(key)) = *one else {
                    continue;
                };
                let bytes = keys::encode(key);
                let found = txn
                    .get(&bytes)?
                    .ok_or_else(|| RunError::Failed(format!("key {key} is missing")));
                match found.and_then(|value| stamped(key, value, size)) {
                    Ok(stamp) if recorded => seen.push(RecordedOperation::Read(key, stamp)),
                    Ok(_) => {}
                    Err(what) => {
                        wrong = Some(what);
                        return Err(txn.cancel());
                    }
                }
                if matches!(one, YcsbOperation::Modify(_)) {
                    txn.put(&bytes, values.next().expect("a value for each write"))?;
                    sequence += 1;
                    if recorded {
                        seen.push(RecordedOperation::Wrote(key, writer.stamp(sequence)));
                    }
                }
            }
            Ok(seen)
        };
        match self.seat.take()?.transact(body) {
            Ok((seen, observed)) => {
                self.seen = seen;
                Ok(observed)
            }
            Err(Abort::Cancelled) => Err(wrong.unwrap_or_else(|| RunError::of(Abort::Cancelled))),
            Err(abort) => Err(RunError::of(abort)),
        }
    }

    /// Records the writes in the ledger.
    fn keep(&mut self, first: u64, observed: Observed) {
        let writes = self.todo.iter().filter_map(|todo| match *todo {
            YcsbOperation::Update(key)
            | YcsbOperation::Insert(key)
            | YcsbOperation::Modify(key) => Some(key),
            YcsbOperation::Read(_) | YcsbOperation::Scan(..) => None,
        });
        for (sequence, key) in (first + 1..).zip(writes) {
            self.ledger.wrote(key, observed.tid.to_bits(), sequence);
        }
    }
}

impl ValueWriter {
    fn stamp(&self, sequence: u64) -> Stamp {
        Stamp {
            writer: self.number,
            sequence,
        }
    }
}

type FoundStamps = Vec<(u64, Stamp)>;

/// Checks that this is an answer to that operation. Returns what was read if it must be kept: an
/// empty list costs nothing.
fn verify(
    todo: &YcsbOperation,
    reply: &Reply<'_>,
    size: usize,
    keep: bool,
) -> Result<FoundStamps, RunError> {
    let mut found = FoundStamps::new();
    let mut take = |key, value| {
        let stamp = stamped(key, value, size)?;
        if keep {
            found.push((key, stamp));
        }
        Ok::<(), RunError>(())
    };
    match (todo, reply) {
        (YcsbOperation::Read(key), Reply::Bytes(value)) => take(*key, value)?,
        (YcsbOperation::Update(_) | YcsbOperation::Insert(_), Reply::Ok) => {}
        (YcsbOperation::Scan(from, limit), Reply::Pairs(pairs)) => {
            for (bytes, value) in pairs {
                let key = keys::decode(bytes).ok_or("a scan answered a key that is not ours")?;
                take(key, value)?;
            }
            let ordered = pairs.windows(2).all(|two| two[0].0 < two[1].0);
            let from = keys::encode(*from);
            let first = pairs.first().is_some_and(|pair| pair.0 == from);
            if !ordered || !first || pairs.len() > *limit {
                return Err(RunError::Failed(format!(
                    "a scan of {limit} keys answered {} wrongly",
                    pairs.len()
                )));
            }
        }
        (todo, reply) => {
            return Err(RunError::Failed(format!(
                "{todo:?} was answered with {reply:?}"
            )));
        }
    }
    Ok(found)
}

fn record(
    mut entry: recorder::HistoryEntry<'_>,
    run: usize,
    seen: &[RecordedOperation],
    observed: Observed,
) {
    for one in seen {
        match one {
            RecordedOperation::Read(key, stamp) => {
                entry.read(&name(run, *key), Some(number(*stamp)), None)
            }
            RecordedOperation::Wrote(key, stamp) => {
                let version = Some(observed.tid.to_bits());
                entry.write(&name(run, *key), number(*stamp), version);
            }
            RecordedOperation::Scanned(from, limit, found) => {
                let names: Vec<String> = found.iter().map(|(key, _)| name(run, *key)).collect();
                let values = found.iter().map(|(_, stamp)| number(*stamp));
                let pairs = names.iter().map(String::as_str).zip(values);
                let end = format!("r{run}:~");
                entry.scan(&name(run, *from), Some(&end), *limit, pairs);
            }
        }
    }
    entry.end(Outcome::Committed);
}
