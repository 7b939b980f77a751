//! Transactions in slices over crashes and checkpoints: all of one is there afterwards, or nothing.

use base::transaction::Holder;
use base::{Op, Reply, Timestamp};
use disk::{Crash, FaultDisk};
use kumiki_store::{Db, SlicedTransaction, Worker};

use crate::support::{NOW_MS, id, still};

const KEYS: u32 = 120;
const SLICE: usize = 16;

/// Where the crash comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashPoint {
    /// Half of the operations are executed.
    Executing,
    /// Readers are excluded from half of the keys.
    Excluding,
    /// It has committed, and nothing of it is durable.
    Committed,
    /// It is durable, and half of it is published.
    Publishing,
    /// The same, with a checkpoint of that moment.
    CheckpointedWhilePublishing,
    /// It has ended.
    Ended,
}

const POINTS: [CrashPoint; 6] = [
    CrashPoint::Executing,
    CrashPoint::Excluding,
    CrashPoint::Committed,
    CrashPoint::Publishing,
    CrashPoint::CheckpointedWhilePublishing,
    CrashPoint::Ended,
];

const CRASHES: [Crash; 4] = [
    Crash::DropAll,
    Crash::KeepPrefix,
    Crash::KeepSectors,
    Crash::KillProcess,
];

impl CrashPoint {
    /// Returns `true` if the transaction must be there afterwards.
    fn is_durable(self) -> bool {
        matches!(
            self,
            CrashPoint::Publishing | CrashPoint::CheckpointedWhilePublishing | CrashPoint::Ended
        )
    }
}

fn open(disk: &FaultDisk) -> Db {
    Db::open(still(disk, NOW_MS)).expect("the disk is sound")
}

fn keys() -> Vec<[u8; 4]> {
    (0..KEYS).map(u32::to_be_bytes).collect()
}

fn begin(worker: &mut Worker, number: u64) -> SlicedTransaction {
    let holder = Holder {
        id: id(number),
        age: Timestamp::at_ms(NOW_MS + number),
    };
    worker
        .begin_sliced(holder, 0)
        .expect("nothing is in its way")
}

/// Executes operations that put every key whose number is even, and delete the others.
fn execute(worker: &mut Worker, sliced: &mut SlicedTransaction, keys: &[[u8; 4]]) {
    for slice in keys.chunks(SLICE) {
        let ops = slice.iter().map(|key| match key[3] % 2 {
            0 => Op::put(key, b"new"),
            _ => Op::Delete { key },
        });
        let ops: Vec<Op<'_>> = ops.collect();
        let executed = worker.execute_slice(sliced, &ops, |_| {});
        executed.expect("it is alone");
    }
}

/// Commits slices of the transaction until `is_there`; returns `true` if that came before its end.
fn commit_until(
    worker: &mut Worker,
    sliced: &mut SlicedTransaction,
    is_there: impl Fn(&SlicedTransaction) -> bool,
) -> bool {
    for _ in 0..KEYS {
        if is_there(sliced) {
            return true;
        }
        if worker.commit_slice(sliced, SLICE).expect("it is alone") {
            return false;
        }
    }
    panic!("it does not end");
}

/// Runs the transaction up to the point.
fn run_to(point: CrashPoint, db: &Db) {
    let keys = keys();
    let mut worker = db.worker().expect("few workers");
    let mut sliced = begin(&mut worker, 1);
    if point == CrashPoint::Executing {
        execute(&mut worker, &mut sliced, &keys[..KEYS as usize / 2]);
        std::mem::forget(sliced);
        return;
    }
    execute(&mut worker, &mut sliced, &keys);
    if point == CrashPoint::Excluding {
        for _ in 0..KEYS as usize / SLICE / 2 {
            assert!(
                !worker
                    .commit_slice(&mut sliced, SLICE)
                    .expect("it is alone")
            );
        }
        assert!(!sliced.has_committed());
        std::mem::forget(sliced);
        return;
    }
    assert!(commit_until(
        &mut worker,
        &mut sliced,
        SlicedTransaction::has_committed
    ));
    if point == CrashPoint::Committed {
        std::mem::forget(sliced);
        return;
    }
    worker
        .wait_durable(sliced.observed().epoch)
        .expect("the disk is sound");
    for _ in 0..KEYS as usize / SLICE / 2 {
        assert!(
            !worker
                .commit_slice(&mut sliced, SLICE)
                .expect("it is alone")
        );
    }
    if point == CrashPoint::CheckpointedWhilePublishing {
        // The view of the checkpoint begins behind the epoch of the commit.
        let mut other = db.worker().expect("few workers");
        other
            .execute(&[Op::put(b"other", b"1")])
            .expect("it commits");
        let epoch = other.observed().epoch;
        other.wait_durable(epoch).expect("the disk is sound");
        let made = db.checkpoint().expect("the disk is sound");
        assert!(made.segments_removed > 0, "{made:?}");
    }
    if point == CrashPoint::Ended {
        assert!(!commit_until(&mut worker, &mut sliced, |_| false));
    } else {
        std::mem::forget(sliced);
    }
}

#[test]
fn all_of_it_or_nothing_is_recovered() {
    for point in POINTS {
        for (round, kind) in CRASHES.into_iter().enumerate() {
            let disk = FaultDisk::new();
            let db = open(&disk);
            let mut worker = db.worker().expect("few workers");
            let keys = keys();
            // More than one segment, of which a checkpoint removes some.
            for _ in 0..4 {
                let olds: Vec<Op<'_>> = keys.iter().map(|key| Op::put(key, &[b'o'; 60])).collect();
                worker.execute(&olds).expect("it commits");
            }
            let epoch = worker.observed().epoch;
            worker.wait_durable(epoch).expect("the disk is sound");
            run_to(point, &db);
            let disk = disk.crash(kind, round as u64);
            let db = open(&disk);
            let mut worker = db.worker().expect("few workers");
            let gets: Vec<Op<'_>> = keys.iter().map(|key| Op::Get { key }).collect();
            let done = worker.execute(&gets).expect("it commits");
            let is_new = |(key, reply): (&[u8; 4], &Reply<'_>)| match (key[3] % 2, reply) {
                (0, Reply::Bytes(value)) => *value == b"new",
                (1, Reply::Nil) => true,
                _ => false,
            };
            let new = keys.iter().zip(done.replies()).filter(|pair| is_new(*pair));
            let new = new.count();
            let what = format!("{point:?}, {kind:?}: {new} of {KEYS} are new");
            assert!(new == 0 || new == KEYS as usize, "{what}");
            assert!(!point.is_durable() || new > 0, "{what}");
            if matches!(point, CrashPoint::Executing | CrashPoint::Excluding) {
                assert_eq!(new, 0, "{what}");
            }
            drop(done);
            let number = worker
                .execute(&[Op::Count { database: 0 }])
                .expect("it commits");
            let Reply::Int(number) = number.replies()[0] else {
                panic!("it is a number");
            };
            let other = i64::from(point == CrashPoint::CheckpointedWhilePublishing);
            let expected = if new > 0 { KEYS / 2 } else { KEYS };
            assert_eq!(number, i64::from(expected) + other, "{what}");
        }
    }
}
