//! Tokens of locks, and times that clients got, over crashes, checkpoints and flushes.

use base::participant::DurableEpochs;
use base::partition::{OwnedReply, Partition};
use base::{Abort, Op, Transaction};
use disk::FaultDisk;
use kumiki_store::Db;

use crate::support::{NOW_MS, block_on, crash, still};

const LOCK: &[u8] = b"lock";

/// Opens a database whose clock stands still.
fn open(disk: &FaultDisk, now_ms: u64) -> Db {
    Db::open(still(disk, now_ms)).expect("the disk is sound")
}

fn run(db: &Db, ops: Vec<Op<'_>>) -> Result<Vec<OwnedReply>, Abort> {
    block_on(db.execute(&Transaction::new(ops)))
}

fn guard(token: u64) -> Op<'static> {
    Op::Guard { lock: LOCK, token }
}

#[track_caller]
fn assert_highest(db: &Db, highest: u64) {
    let token = highest - 1;
    let lock = LOCK.to_vec();
    let stale = Abort::Stale {
        lock,
        token,
        highest,
    };
    assert_eq!(run(db, vec![guard(token), Op::put(b"a", b"x")]), Err(stale));
}

#[test]
fn tokens_are_not_forgotten() {
    let mut disk = FaultDisk::new();
    let db = open(&disk, NOW_MS);
    run(&db, vec![guard(5), Op::put(b"a", b"1")]).unwrap();
    disk = crash(&disk);
    let db = open(&disk, NOW_MS);
    assert_highest(&db, 5);
    run(&db, vec![guard(6), Op::Flush]).unwrap();
    disk = crash(&disk);
    let db = open(&disk, NOW_MS);
    assert_highest(&db, 6);
    assert_eq!(db.recovery().keys, 0);
    for n in 0..200u32 {
        run(&db, vec![guard(7), Op::put(&n.to_be_bytes(), &[7; 500])]).unwrap();
    }
    let made = db.checkpoint().unwrap();
    assert!(made.segments_removed > 0, "{made:?}");
    disk = crash(&disk);
    let db = open(&disk, NOW_MS);
    assert!(db.recovery().checkpoint.is_some());
    assert_highest(&db, 7);
    run(&db, vec![Op::Flush]).unwrap();
    db.checkpoint().unwrap();
    let db = open(&crash(&disk), NOW_MS);
    assert_highest(&db, 7);
    run(&db, vec![guard(7), Op::put(b"a", b"2")]).unwrap();
}

/// No client has seen writes that were not durable, nor a token of them.
#[test]
fn a_refusal_waits_until_the_token_that_it_shows_is_durable() {
    let disk = FaultDisk::new();
    let db = open(&disk, NOW_MS);
    let mut worker = db.worker().unwrap();
    worker.execute(&[guard(5), Op::put(b"a", b"1")]).unwrap();
    let written = worker.observed().epoch;
    assert!(worker.execute(&[guard(4), Op::put(b"a", b"2")]).is_err());
    assert!(worker.observed().epoch >= written, "it has seen the token");
    assert!(worker.durable() < written);
    // The partition's own call does wait.
    assert_highest(&db, 5);
    assert!(worker.durable() >= written);
}

#[test]
fn the_time_does_not_go_back_with_a_clock_that_does() {
    let mut disk = FaultDisk::new();
    for (round, clock_ms) in [NOW_MS, NOW_MS - 5_000, 1, NOW_MS + 1]
        .into_iter()
        .enumerate()
    {
        let db = open(&disk, clock_ms);
        let expected = clock_ms.max(NOW_MS) as i64;
        // No operation but the time: the transaction is written for that.
        let told = run(&db, vec![Op::Now]);
        assert_eq!(told, Ok(vec![OwnedReply::Int(expected)]), "round {round}");
        disk = crash(&disk);
    }
}
