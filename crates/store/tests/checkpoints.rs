//! Checkpoints of a database: what a recovery finds beside them, on real files and on disks that
//! fail.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::clock::ManualClock;
use base::transaction::{Expiry, When};
use base::{Abort, Op};
use disk::{Crash, Disk, Fault, FaultDisk, FaultKind, OpKind};
use kumiki_store::{
    CheckpointError, CheckpointOptions, CheckpointRefused, Db, EpochTime, Options, Worker,
};

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Op<'a> {
    Op::Put {
        key,
        value,
        when: When::Always,
        expiry: Expiry::Never,
        get: false,
    }
}

/// Executes, and waits until it is durable.
fn durably(db: &Db, ops: &[Op<'_>]) -> Result<(), Abort> {
    let mut worker = db.worker().expect("few workers");
    worker.execute(ops)?;
    let epoch = worker.observed().epoch;
    worker.wait_durable(epoch)
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// All keys and values.
fn content(db: &Db) -> Content {
    let snapshot = db.snapshot();
    let mut worker = db.worker().expect("few workers");
    let (mut from, mut found) = (Some(Vec::new()), Content::new());
    while let Some(key) = from {
        from = worker.scan_snapshot(&snapshot, &key, None, 1000, &mut |entry| {
            found.insert(entry.key.to_vec(), entry.value.to_vec());
        });
    }
    found
}

/// No checkpoint but those that are asked for.
fn asked() -> CheckpointOptions {
    CheckpointOptions {
        log_size: 0,
        ..CheckpointOptions::default()
    }
}

fn in_dir(dir: &Path) -> Options {
    Options {
        workers: 6,
        checkpoint: asked(),
        ..Options::in_dir(dir)
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number:06}").into_bytes()
}

fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_recovery_is_a_checkpoint_and_the_log_behind_it() {
    for threads in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let options = || Options {
            checkpoint: CheckpointOptions { threads, ..asked() },
            segment_size: 16 << 10,
            ..in_dir(dir.path())
        };
        let db = Db::open(options()).unwrap();
        for n in 0..3000 {
            let mut worker = db.worker().unwrap();
            worker.execute(&[put(&key(n), &[1; 20])]).unwrap();
        }
        durably(&db, &[put(b"large", &vec![threads as u8; 3 << 20])]).unwrap();
        durably(&db, &[Op::Delete { key: &key(7) }]).unwrap();
        let report = db.checkpoint().unwrap();
        assert_eq!(report.entries, 3000, "all but the deleted one, and the large one");
        assert!(report.segments_removed > 0 && report.bytes > 3 << 20);
        durably(&db, &[Op::Delete { key: &key(8) }, put(&key(7), b"again")]).unwrap();
        durably(&db, &[put(&key(3001), b"behind")]).unwrap();
        let status = db.checkpoint_status();
        assert_eq!((status.completed, status.failed), (1, 0));
        assert_eq!(status.last.as_ref(), Some(&report));
        assert!(status.log_bytes_since < 64 << 10, "{status:?}");
        let held = content(&db);
        assert_eq!(held.len(), 3001);
        db.close().unwrap();
        drop(db);

        for _ in 0..2 {
            let db = Db::open(options()).unwrap();
            assert_eq!(content(&db), held);
            let found = db.recovery();
            let used = found.checkpoint.as_ref().expect("a checkpoint was used");
            assert_eq!((used.epoch, used.entries), (report.epoch, report.entries));
            assert_eq!(used.finished_ms, report.finished_ms);
            assert!(found.entries >= 3003 && found.entries < 3010, "{found:?}");
            assert_eq!(db.checkpoint_status().last.as_ref(), Some(used));
        }
        let db = Db::open(options()).unwrap();
        db.checkpoint().unwrap();
        let names = files(&dir.path().join("checkpoint"));
        assert_eq!(names.len(), threads + 1, "the last one alone: {names:?}");
    }
}
