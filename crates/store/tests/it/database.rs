//! A database over real files and over disks that fail.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::database::qualified;
use base::partition::{OwnedReply, Partition};
use base::transaction::{Expiry, When};
use base::versions::ReadAtomic;
use base::{Abort, Epoch, Op, Transaction};
use disk::{Crash, Fault, FaultDisk, FaultKind, OpKind};
use kumiki_store::{Db, EpochTime, OpenError, Options};

use crate::support::block_on;

fn durably(db: &Db, ops: Vec<Op<'_>>) -> Result<Vec<OwnedReply>, Abort> {
    block_on(db.execute(&Transaction::new(ops)))
}

fn get(db: &Db, key: &[u8]) -> Option<Vec<u8>> {
    match durably(db, vec![Op::Get { key }]).unwrap().remove(0) {
        OwnedReply::Bytes(bytes) => Some(bytes),
        OwnedReply::Nil => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(Options::in_dir(dir.path())).unwrap();
        durably(
            &db,
            vec![
                Op::put(b"a", b"1"),
                Op::put(b"b", b"2"),
                Op::put(b"c", b"3"),
            ],
        )
        .unwrap();
        durably(&db, vec![Op::Delete { key: b"b" }]).unwrap();
        durably(
            &db,
            vec![Op::Append {
                key: b"c",
                value: b"!",
            }],
        )
        .unwrap();
        let large = vec![7; 3 << 20];
        durably(&db, vec![Op::put(b"large", &large)]).unwrap();
        db.close().unwrap();
        let refused = durably(&db, vec![Op::put(b"a", b"2")]);
        assert!(
            matches!(refused, Err(Abort::ReadOnly { .. })),
            "{refused:?}"
        );
    }
    let db = Db::open(Options::in_dir(dir.path())).unwrap();
    assert_eq!(db.recovery().keys, 3);
    assert_eq!(get(&db, b"a"), Some(b"1".to_vec()));
    assert_eq!(get(&db, b"b"), None);
    assert_eq!(get(&db, b"c"), Some(b"3!".to_vec()));
    assert_eq!(get(&db, b"large").map(|v| v.len()), Some(3 << 20));
}

#[test]
fn a_flush_and_an_expiry_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let far = i64::MAX / 2;
    {
        let db = Db::open(Options::in_dir(dir.path())).unwrap();
        durably(&db, vec![Op::put(b"old", b"1")]).unwrap();
        durably(&db, vec![Op::Flush, Op::put(b"new", b"2")]).unwrap();
        let expiry = Expiry::AtMs(far);
        let later = Op::Put {
            key: b"later",
            value: b"3",
            when: When::Always,
            expiry,
            get: false,
        };
        let soon = Op::Expire {
            key: b"soon",
            expiry: Expiry::InMs(30),
            when: Default::default(),
        };
        durably(&db, vec![later, Op::put(b"soon", b"4"), soon]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(40));
    for _ in 0..2 {
        let db = Db::open(Options::in_dir(dir.path())).unwrap();
        assert_eq!(get(&db, b"old"), None);
        assert_eq!(get(&db, b"new"), Some(b"2".to_vec()));
        assert_eq!(get(&db, b"soon"), None);
        let deadline = durably(&db, vec![Op::ExpiryOf { key: b"later" }]).unwrap();
        assert_eq!(deadline, [OwnedReply::Deadline(Some(far as u64))]);
    }
}

#[test]
fn exchanged_databases_and_read_atomic_keys_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let one = qualified(1, b"key");
    let swap = || Op::SwapDatabases {
        first: 0,
        second: 1,
    };
    let with_read_atomic = || Options {
        read_atomic: ReadAtomic::new([&b"ra:"[..]]),
        ..Options::in_dir(dir.path())
    };
    let db = Db::open(Options::in_dir(dir.path())).unwrap();
    durably(&db, vec![Op::put(b"key", b"0"), swap()]).unwrap();
    assert_eq!(
        (get(&db, b"key"), get(&db, &one)),
        (None, Some(b"0".to_vec()))
    );
    drop(db);
    let refused = Db::open(with_read_atomic()).err().unwrap().to_string();
    assert!(refused.starts_with("databases were exchanged"), "{refused}");
    let db = Db::open(Options::in_dir(dir.path())).unwrap();
    durably(&db, vec![swap()]).unwrap();
    drop(db);
    let db = Db::open(with_read_atomic()).unwrap();
    assert_eq!(get(&db, b"key"), Some(b"0".to_vec()));
    let refused = durably(&db, vec![swap()]);
    let Err(Abort::Unsupported { what }) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        what.contains("database 0 alone") && what.contains("start without"),
        "{what}"
    );
}

#[test]
fn closures_wait_for_durability_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(Options::in_dir(dir.path())).unwrap();
    let commit = db.transact(|txn| txn.put(b"k", b"v")).unwrap();
    let epoch = commit.observed().epoch;
    commit.wait_durable().unwrap();
    assert!(db.durable_epoch() >= epoch);
    let read = db
        .transact(|txn| Ok(txn.get(b"k")?.map(<[u8]>::to_vec)))
        .unwrap();
    assert_eq!(
        read.observed().epoch,
        epoch,
        "a read waits for what it saw, not for more"
    );
    assert_eq!(read.wait_durable().unwrap(), Some(b"v".to_vec()));
}

#[test]
fn an_ephemeral_database_has_nothing_to_wait_for() {
    let db = Db::open(Options::default()).unwrap();
    durably(&db, vec![Op::put(b"k", b"v")]).unwrap();
    assert_eq!(db.durable_epoch(), Epoch(u64::MAX));
    assert_eq!(get(&db, b"k"), Some(b"v".to_vec()));
    assert!(db.sync_inline(Epoch(5)));
}

#[test]
fn no_client_waits_long_with_any_epoch_time() {
    for epoch_time in [
        EpochTime::Adaptive,
        EpochTime::Fixed(Duration::from_millis(2)),
    ] {
        for loggers in [1, 2] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options {
                epoch_time,
                loggers,
                ..Options::in_dir(dir.path())
            };
            let db = Db::open(options).unwrap();
            let start = std::time::Instant::now();
            for i in 0..20u32 {
                durably(&db, vec![Op::put(&i.to_be_bytes(), b"v")]).unwrap();
            }
            let took = start.elapsed();
            assert!(
                took < Duration::from_secs(10),
                "{epoch_time:?} {loggers}: {took:?}"
            );
        }
    }
}

#[test]
fn writes_without_a_waiter_become_durable() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(Options::in_dir(dir.path())).unwrap();
    let epoch = db
        .transact(|txn| txn.put(b"k", b"v"))
        .unwrap()
        .observed()
        .epoch;
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while db.durable_epoch() < epoch {
        assert!(std::time::Instant::now() < end, "still not durable");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_directory_has_one_database() {
    let dir = tempfile::tempdir().unwrap();
    let _db = Db::open(Options::in_dir(dir.path())).unwrap();
    let second = Db::open(Options::in_dir(dir.path())).err().unwrap();
    assert!(matches!(second, OpenError::Lock(_)));
    assert!(
        second
            .to_string()
            .contains("is open in this process already"),
        "{second}"
    );
}

#[test]
fn reclaimed_memory_comes_back_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(Options::in_dir(dir.path())).unwrap();
    let value = vec![1; 1000];
    let keys: Vec<_> = (0..1000u32).map(u32::to_be_bytes).collect();
    durably(&db, keys.iter().map(|key| Op::put(key, &value)).collect()).unwrap();
    let full = db.memory_bytes();
    durably(&db, keys.iter().map(|key| Op::Delete { key }).collect()).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while db.memory_bytes() + 1_000_000 > full {
        assert!(
            std::time::Instant::now() < end,
            "{} of {full}",
            db.memory_bytes()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn on(disk: &FaultDisk) -> Options {
    let disk: Arc<dyn disk::Disk> = Arc::new(disk.clone());
    Options {
        disk,
        segment_size: 64 << 10,
        recovery_threads: 2,
        ..Options::in_dir("/db")
    }
}

#[test]
fn a_failed_sync_refuses_writes_and_goes_on_reading() {
    let disk = FaultDisk::new();
    let db = Db::open(on(&disk)).unwrap();
    durably(&db, vec![Op::put(b"k", b"durable")]).unwrap();
    disk.plan(Fault {
        on: OpKind::Sync,
        nth: disk.count(OpKind::Sync),
        kind: FaultKind::Io,
    });
    let failed = durably(&db, vec![Op::put(b"lost", b"v")]);
    assert!(
        matches!(&failed, Err(Abort::ReadOnly { reason }) if !reason.is_empty()),
        "{failed:?}"
    );
    let refused = durably(&db, vec![Op::put(b"k", b"later")]);
    assert!(
        matches!(refused, Err(Abort::ReadOnly { .. })),
        "{refused:?}"
    );
    assert_eq!(
        get(&db, b"k"),
        Some(b"durable".to_vec()),
        "reads of what is durable go on"
    );
    let unsure = durably(&db, vec![Op::Get { key: b"lost" }]);
    assert!(unsure.is_err(), "what may be lost is not shown: {unsure:?}");
    assert!(db.stats().journal_failure.is_some());
    drop(db);
    let db = Db::open(on(&disk.crash(Crash::DropAll, 1))).unwrap();
    assert_eq!(get(&db, b"k"), Some(b"durable".to_vec()));
}

/// Every key of a pair carries the same number; pairs are written in turn and acknowledged.
#[test]
fn no_crash_loses_or_splits_what_was_acknowledged() {
    let faults = [
        FaultKind::Io,
        FaultKind::NoSpace,
        FaultKind::ShortWrite,
        FaultKind::PowerOff,
    ];
    let mut refused = 0;
    for mode in [Crash::DropAll, Crash::KeepSectors, Crash::KeepPrefix] {
        for nth in 0..60 {
            let disk = FaultDisk::new();
            let mut acknowledged = [None; 4];
            if let Ok(db) = Db::open(on(&disk)) {
                let nth_from_here = disk.count(OpKind::Change) + nth;
                let kind = faults[nth as usize % 4];
                disk.plan(Fault {
                    on: OpKind::Change,
                    nth: nth_from_here,
                    kind,
                });
                for n in 0..12u64 {
                    let value = n.to_be_bytes();
                    let key = [n as u8 % 4, 0];
                    let twin = [n as u8 % 4, 1];
                    let done = durably(&db, vec![Op::put(&key, &value), Op::put(&twin, &value)]);
                    if done.is_ok() {
                        acknowledged[n as usize % 4] = Some(n);
                    } else {
                        refused += 1;
                    }
                }
            }
            let crashed = disk.crash(mode, nth);
            let db = Db::open(on(&crashed)).unwrap_or_else(|e| panic!("{mode:?} at {nth}: {e}"));
            for (k, acknowledged) in acknowledged.iter().enumerate() {
                let number =
                    |key: &[u8]| get(&db, key).map(|v| u64::from_be_bytes(v.try_into().unwrap()));
                let (one, two) = (number(&[k as u8, 0]), number(&[k as u8, 1]));
                assert_eq!(one, two, "{mode:?} at {nth}: half a transaction");
                assert!(
                    one >= *acknowledged,
                    "{mode:?} at {nth}: {one:?} after {acknowledged:?}"
                );
            }
        }
    }
    assert!(refused > 100, "the faults are felt: {refused}");
}

#[test]
fn options_that_cannot_be_are_explained() {
    let bad = Options {
        workers: 0,
        ..Options::default()
    };
    assert!(Db::open(bad).err().unwrap().to_string().contains("worker"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let path: &Path = file.path();
    let error = Db::open(Options::in_dir(path)).err().unwrap().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
}

/// A transaction that runs while the database is closed commits in memory and will never be
/// durable: a caller that waits for it gets an error, instead of waiting for ever.
#[test]
fn a_wait_for_a_closed_database_ends_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(Options::in_dir(dir.path())).unwrap();
    let mut closed = false;
    let outcome = db.transact(|txn| {
        txn.put(b"late", b"1")?;
        if !closed {
            closed = true;
            db.close().expect_err("a transaction is still running");
        }
        Ok(())
    });
    if let Ok(commit) = outcome {
        commit.wait_durable().expect_err("the log has ended");
    }
    let (told, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(durably(&db, vec![Op::Get { key: b"late" }])));
    let answer = answer
        .recv_timeout(Duration::from_secs(20))
        .expect("it does not wait for ever");
    assert!(
        matches!(answer, Err(Abort::ReadOnly { .. })) || answer == Ok(vec![OwnedReply::Nil]),
        "{answer:?}"
    );
}

#[test]
fn buffers_without_room_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for log_buffer_size in [0, 64, 4095, 5 << 30] {
        let options = Options {
            log_buffer_size,
            ..Options::in_dir(dir.path())
        };
        let refused = Db::open(options).err().expect("it cannot work");
        assert!(refused.to_string().contains("log buffer"), "{refused}");
    }
}

/// Workers of checkpoints do not give their places to other threads when the database closes.
#[test]
fn a_closed_database_refuses_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        workers: 1,
        ..Options::in_dir(dir.path())
    };
    let db = Db::open(options).unwrap();
    db.close().unwrap();
    for _ in 0..3 {
        let refused = db.transact(|txn| txn.put(b"k", b"v")).err();
        assert!(
            matches!(refused, Some(Abort::ReadOnly { .. })),
            "{refused:?}"
        );
    }
}
