//! Read-atomic keys on disk: prepared versions, committed versions, and the transactions that made a
//! key absent come back after a power failure, from the log and from checkpoints.

use std::sync::Arc;

use base::change::siblings;
use base::participant::{Isolation, Prepare, State, TransactionExecutor, TwoPhaseCommit};
use base::transaction::Holder;
use base::versions::{Ask, OwnedFound, ReadAtomic};
use base::{Op, Timestamp, TransactionId};
use disk::FaultDisk;
use kumiki_store::{Db, Options, Worker};

use crate::support::{NOW_MS, crash, id, settle, still};

const X: &[u8] = b"ra:x";
const Y: &[u8] = b"ra:y";

fn open(disk: &FaultDisk) -> Arc<Db> {
    let options = Options {
        read_atomic: ReadAtomic::new([&b"ra:"[..]]),
        ..still(disk, NOW_MS)
    };
    Arc::new(Db::open(options).unwrap())
}

fn prepare(worker: &mut Worker, n: u64, ops: &[Op<'_>]) {
    let mut both = Vec::new();
    [X, Y].iter().for_each(|key| siblings::push(&mut both, key));
    worker.refresh();
    let holder = Holder {
        id: id(n),
        age: Timestamp::ZERO,
    };
    let prepare = Prepare {
        holder,
        ops,
        siblings: &both,
        note: b"note",
        isolation: Isolation::ReadAtomic,
    };
    TwoPhaseCommit::prepare(worker, &prepare).unwrap();
}

/// Returns the transaction that wrote the version found, and the value.
fn found(worker: &mut Worker, ask: Ask<'_>) -> Option<(TransactionId, Option<Vec<u8>>)> {
    let mut seen = None;
    let mut see = |found: base::versions::Found<'_>| seen = Some(OwnedFound::from(found));
    TransactionExecutor::read_versions(worker, &[ask], &mut see).unwrap();
    match seen.expect("it was asked") {
        OwnedFound::Version(version) => {
            let content = version.content.map(|content| content.value);
            Some((version.id, content))
        }
        _ => None,
    }
}

fn newest(worker: &mut Worker, key: &[u8]) -> Option<(TransactionId, Option<Vec<u8>>)> {
    found(worker, Ask::Newest { key })
}

/// Returns the same database after a power failure.
fn again(db: Arc<Db>, worker: Worker, disk: &FaultDisk) -> (FaultDisk, Arc<Db>, Worker) {
    drop(worker);
    let disk = crash(disk);
    drop(db);
    let db = open(&disk);
    let worker = db.worker().unwrap();
    (disk, db, worker)
}

fn written(n: u64, value: &[u8]) -> Option<(TransactionId, Option<Vec<u8>>)> {
    Some((id(n), Some(value.to_vec())))
}

#[test]
fn what_is_prepared_and_committed_comes_back() {
    let disk = FaultDisk::new();
    let db = open(&disk);
    let mut worker = db.worker().unwrap();
    prepare(&mut worker, 1, &[Op::put(X, b"1"), Op::put(Y, b"1")]);
    worker.commit(id(1)).unwrap();
    prepare(&mut worker, 5, &[Op::put(X, b"5")]);
    settle(&worker);
    let (disk, db, mut worker) = again(db, worker, &disk);
    assert_eq!(db.recovery().prepared, 1);
    assert_eq!(worker.state(id(1)).0, State::Committed(b"note".to_vec()));
    assert_eq!(newest(&mut worker, X), written(1, b"1"));
    let ids = vec![id(5)];
    assert_eq!(
        found(&mut worker, Ask::OneOf { key: X, ids }),
        written(5, b"5")
    );
    worker.commit(id(5)).unwrap();
    settle(&worker);
    db.checkpoint().unwrap();
    let (_, _db, mut worker) = again(db, worker, &disk);
    assert_eq!(newest(&mut worker, X), written(5, b"5"));
    assert_eq!(newest(&mut worker, Y), written(1, b"1"));
}

#[test]
fn a_checkpoint_has_what_older_writes_must_not_bring_back() {
    let disk = FaultDisk::new();
    let db = open(&disk);
    let mut worker = db.worker().unwrap();
    prepare(&mut worker, 1, &[Op::put(X, b"1")]);
    worker.commit(id(1)).unwrap();
    prepare(&mut worker, 3, &[Op::put(X, b"late")]);
    prepare(&mut worker, 5, &[Op::Delete { key: X }]);
    worker.commit(id(5)).unwrap();
    worker.forget(id(5)).unwrap();
    settle(&worker);
    db.checkpoint().unwrap();
    let (_, db, mut worker) = again(db, worker, &disk);
    assert!(db.recovery().checkpoint.is_some());
    assert_eq!(newest(&mut worker, X), Some((id(5), None)));
    worker.commit(id(3)).unwrap();
    assert_eq!(
        newest(&mut worker, X),
        Some((id(5), None)),
        "it came before"
    );
}
