//! Long values of which parts change: the log gets those parts, and recovery restores the values.

use std::sync::Arc;

use base::Op;
use disk::{Crash, FaultDisk};
use kumiki_store::{CheckpointOptions, Db, Options};

fn on(disk: &FaultDisk) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        workers: 3,
        segment_size: 64 << 10,
        checkpoint: CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        },
        ..Options::in_dir("/db")
    }
}

fn run(db: &Db, ops: &[Op<'_>]) {
    let mut worker = db.worker().expect("few workers");
    worker.execute(ops).map(drop).expect("it commits");
    let epoch = worker.observed().epoch;
    worker.wait_durable(epoch).expect("the disk is sound");
}

fn value(db: &Db, key: &[u8]) -> Vec<u8> {
    let mut worker = db.worker().expect("few workers");
    let done = worker.execute(&[Op::Get { key }]).expect("it commits");
    match done.replies()[0] {
        base::Reply::Bytes(bytes) => bytes.to_vec(),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn an_append_to_a_long_value_logs_little() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        checkpoint: CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        },
        ..Options::in_dir(dir.path())
    };
    let db = Db::open(options()).unwrap();
    run(&db, &[Op::put(b"long", &vec![1; 50 << 20])]);
    let before = db.checkpoint_status().log_bytes_since;
    assert!(before > 50 << 20);
    for _ in 0..3 {
        let append = Op::Append {
            key: b"long",
            value: b"x",
        };
        run(&db, &[append]);
    }
    let logged = db.checkpoint_status().log_bytes_since - before;
    assert!(logged < 64 << 10, "{logged} bytes are logged");
    drop(db);
    let db = Db::open(options()).unwrap();
    let value = value(&db, b"long");
    assert_eq!(
        (value.len(), &value[50 << 20..]),
        ((50 << 20) + 3, &b"xxx"[..])
    );
}

/// Values are edited by several workers, with checkpoints and crashes in between.
#[test]
fn edits_come_back_after_checkpoints_and_crashes() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut disk = FaultDisk::new();
    let keys: Vec<Vec<u8>> = (0..6).map(|n| format!("key:{n}").into_bytes()).collect();
    let mut expected: Vec<Vec<u8>> = vec![vec![0; 8_000]; 6];
    let db = Db::open(on(&disk)).unwrap();
    for key in &keys {
        run(&db, &[Op::put(key, &[0; 8_000])]);
    }
    drop(db);
    for round in 0..12 {
        let db = Db::open(on(&disk)).unwrap();
        let mut workers: Vec<_> = (0..2).map(|_| db.worker().expect("few workers")).collect();
        for _ in 0..60 {
            let at = random.usize(..6);
            let bytes = vec![random.u8(..); random.usize(1..40)];
            let (key, value) = (&keys[at][..], &mut expected[at]);
            let op = match random.u8(..8) {
                0 => {
                    value.clear();
                    value.extend_from_slice(&[5; 7_000]);
                    Op::put(key, &[5; 7_000])
                }
                1..4 => {
                    value.extend_from_slice(&bytes);
                    Op::Append { key, value: &bytes }
                }
                _ => {
                    let offset = random.usize(..value.len() + 100);
                    let end = offset + bytes.len();
                    value.resize(value.len().max(end), 0);
                    value[offset..end].copy_from_slice(&bytes);
                    Op::SetRange {
                        key,
                        offset,
                        value: &bytes,
                    }
                }
            };
            let worker = &mut workers[random.usize(..2)];
            worker.execute(&[op]).map(drop).expect("it commits");
            if random.u8(..20) == 0 {
                db.checkpoint().expect("the disk is sound");
            }
        }
        for worker in &mut workers {
            let epoch = worker.observed().epoch;
            worker.wait_durable(epoch).expect("the disk is sound");
        }
        drop(workers);
        disk = disk.crash(Crash::DropAll, round);
        drop(db);
        let db = Db::open(on(&disk)).unwrap();
        for (key, expected) in keys.iter().zip(&expected) {
            assert!(
                value(&db, key) == *expected,
                "round {round}: {}",
                key.escape_ascii()
            );
        }
    }
}
