//! Histories of concurrent transactions, judged by the checkers of `history`.
//!
//! With the planted bug `no-validation` the engine commits without validating its reads, and these
//! tests require that the checkers find it.

use base::planted::{self, Bug};
use base::{Abort, Op, Reply, Tid};
use history::recorder::HistoryEntry;
use history::{Outcome, Recorder, check};
use kumiki_store::{Db, Options, TransactionError, Txn, Worker};
use testkit::workload::{
    Ended, Extent, Plan, Seen, Step, Subject, Transfers, Workload, mixed, ops, run, transfers,
};

/// Returns the place of a version among those of its key.
fn order(version: base::Version) -> u64 {
    Tid::from_bits(version.to_bits()).to_bits()
}

/// Runs plans on a database: every other one as a closure, the rest as one-shot transactions.
struct OnDb {
    db: Db,
    worker: Worker,
    random: fastrand::Rng,
}

impl OnDb {
    fn new(db: &Db, process: u32) -> OnDb {
        let worker = db.worker().expect("few processes");
        OnDb {
            db: db.clone(),
            worker,
            random: fastrand::Rng::with_seed(u64::from(process)),
        }
    }
}

fn number(value: &[u8]) -> i64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

fn text(key: &[u8]) -> String {
    String::from_utf8(key.to_vec()).unwrap()
}

fn step(txn: &mut Txn<'_>, step: &Step) -> Result<Seen, TransactionError> {
    Ok(match step {
        Step::Get { key } => {
            let value = txn.get(key.as_bytes())?.map(number);
            Seen::Versioned(value, order(txn.version(key.as_bytes())?))
        }
        Step::Put { key, value } => {
            txn.put(key.as_bytes(), value.to_string().as_bytes())?;
            Seen::Done
        }
        Step::Add { key, delta } => {
            let sum = txn.get(key.as_bytes())?.map_or(0, number) + delta;
            txn.put(key.as_bytes(), sum.to_string().as_bytes())?;
            Seen::Value(Some(sum))
        }
        Step::Delete { key } => Seen::Deleted(txn.delete(key.as_bytes())?),
        Step::Collection(step) => panic!("{step:?} is not of this workload"),
        Step::Scan { from, to, limit } => {
            let pairs = txn.scan(from.as_bytes(), to.as_deref().map(str::as_bytes), *limit)?;
            Seen::Pairs(
                pairs
                    .into_iter()
                    .map(|(k, v)| (text(k), number(v)))
                    .collect(),
            )
        }
    })
}

impl Subject for OnDb {
    fn run(&mut self, plan: &Plan) -> Ended {
        let outcome = if self.random.bool() {
            self.closure(plan)
        } else {
            self.one_shot(plan)
        };
        match outcome {
            Ok(seen) => {
                let epoch = self.worker.observed().epoch;
                match self.db.wait_durable(epoch) {
                    Ok(()) => Ended::Committed(seen),
                    Err(_) => Ended::Unknown,
                }
            }
            Err(Abort::ReadOnly { .. }) => Ended::Unknown,
            Err(_) => Ended::Aborted,
        }
    }
}

impl OnDb {
    fn closure(&mut self, plan: &Plan) -> Result<Vec<Seen>, Abort> {
        let random = &mut self.random;
        let body = |txn: &mut Txn<'_>| {
            let mut all = Vec::new();
            for s in &plan.steps {
                all.push(step(txn, s)?);
                // Other threads get in between, also on few processors.
                if random.u32(..4) == 0 {
                    std::thread::yield_now();
                }
            }
            Ok(all)
        };
        self.worker.transact(body).map(|(seen, _)| seen)
    }

    /// Runs a plan as one transaction: every step becomes an operation, and each read is followed
    /// by a look at the version.
    fn one_shot(&mut self, plan: &Plan) -> Result<Vec<Seen>, Abort> {
        let texts = ops::texts(plan);
        let mut all = Vec::new();
        for (s, text) in plan.steps.iter().zip(&texts) {
            all.push(ops::op(s, text));
            if let Step::Get { key } = s {
                all.push(Op::Watch {
                    key: key.as_bytes(),
                });
            }
        }
        self.worker.refresh();
        let done = self.worker.execute(&all)?;
        let mut replies = done.replies().iter();
        let mut see = |s: &Step| match (s, ops::seen(s, replies.next().unwrap()).unwrap()) {
            (Step::Get { .. }, Seen::Value(value)) => match replies.next() {
                Some(Reply::Version(version)) => Seen::Versioned(value, order(*version)),
                other => panic!("{other:?}"),
            },
            (_, seen) => seen,
        };
        Ok(plan.steps.iter().map(&mut see).collect())
    }
}

/// Returns the kinds of databases, each with its directory if it has one.
fn databases() -> [(&'static str, Option<tempfile::TempDir>); 2] {
    [
        ("ephemeral", None),
        ("durable", Some(tempfile::tempdir().unwrap())),
    ]
}

fn open(dir: Option<&tempfile::TempDir>) -> Db {
    Db::open(Options {
        dir: dir.map(|dir| dir.path().to_owned()),
        ..Options::default()
    })
    .unwrap()
}

/// Runs plans in several threads and records them with the versions that the database reports, so
/// that the checker need not infer any order.
fn mixed_history(db: &Db, seed: u64, keys: usize, transactions: usize) -> history::History {
    let recorder = Recorder::new();
    let options = mixed::Options {
        seed,
        keys,
        transactions,
        ..mixed::Options::default()
    };
    std::thread::scope(|scope| {
        for process in 0..options.processes {
            let (recorder, options) = (&recorder, &options);
            scope.spawn(move || {
                let mut subject = OnDb::new(db, process);
                let mut log = recorder.process();
                let mut plans = mixed::Plans::new(options, log.process());
                for _ in 0..transactions {
                    let plan = plans.draw();
                    let mut entry = log.begin();
                    let Ended::Committed(seen) = subject.run(&plan) else {
                        entry.end(Outcome::Aborted);
                        continue;
                    };
                    let tid = subject.worker.observed().tid.to_bits();
                    for (step, seen) in plan.steps.iter().zip(seen) {
                        record(&mut entry, step, seen, tid);
                    }
                    entry.end(Outcome::Committed);
                }
            });
        }
    });
    recorder.finish()
}

fn record(entry: &mut HistoryEntry<'_>, step: &Step, seen: Seen, tid: u64) {
    match (step, seen) {
        (Step::Get { key }, Seen::Versioned(value, version)) => {
            entry.read(key, value, Some(version));
        }
        (Step::Put { key, value }, Seen::Done) => entry.write(key, *value, Some(tid)),
        (Step::Delete { key }, Seen::Deleted(true)) => entry.delete(key, Some(tid)),
        (Step::Delete { key }, Seen::Deleted(false)) => entry.read(key, None, None),
        (Step::Scan { from, to, limit }, Seen::Pairs(pairs)) => {
            let pairs = pairs.iter().map(|(key, value)| (key.as_str(), *value));
            entry.scan(from, to.as_deref(), *limit, pairs);
        }
        (step, seen) => panic!("{seen:?} is no answer to {step:?}"),
    }
}

#[test]
fn histories_are_strictly_serializable() {
    if planted::is(Bug::NoValidation) {
        return the_planted_bug_is_found();
    }
    for (name, dir) in databases() {
        for (seed, keys, transactions) in [(1, 3, 2000), (2, 8, 2000), (3, 50, 2000)] {
            let db = open(dir.as_ref());
            // As many rounds as it takes until threads meet, which depends on the scheduler.
            for _ in 0..20 {
                let prefix = Op::Flush;
                db.worker().unwrap().execute(&[prefix]).map(drop).unwrap();
                let history = mixed_history(&db, seed, keys, transactions);
                let verdict = check::strictly_serializable(&history);
                assert!(verdict.is_accepted(), "{name}, seed {seed}: {verdict:?}");
                if db.stats().conflicts > 0 {
                    break;
                }
            }
            assert!(
                db.stats().conflicts > 0,
                "{name}, seed {seed}: no conflicts occurred"
            );
        }
    }
}

#[test]
fn transfers_keep_the_sum() {
    if planted::is(Bug::NoValidation) {
        return;
    }
    for (name, dir) in databases() {
        let db = open(dir.as_ref());
        let mut transfers = Transfers::new(transfers::Options::default());
        let extent = Extent {
            transactions: 3000,
            ..Extent::default()
        };
        assert!(matches!(
            OnDb::new(&db, 0).run(&transfers.setup()),
            Ended::Committed(_)
        ));
        let counts = run(&mut transfers, &extent, |process| OnDb::new(&db, process));
        let counts = counts.unwrap_or_else(|complaint| panic!("{name}: {complaint}"));
        assert!(counts.committed > 1100, "{name}: {counts:?}");
    }
}

fn the_planted_bug_is_found() {
    let db = open(None);
    let found = (0..20).any(|seed| {
        db.worker()
            .unwrap()
            .execute(&[Op::Flush])
            .map(drop)
            .unwrap();
        !check::serializable(&mixed_history(&db, seed, 3, 2000)).is_accepted()
    });
    assert!(
        found,
        "an engine that does not validate passed for serializable"
    );
}
