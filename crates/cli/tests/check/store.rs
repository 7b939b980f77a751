//! Directories of a store: good, torn, damaged, foreign.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::participant::{Prepare, TwoPhaseCommit};
use base::transaction::Holder;
use base::{Op, Timestamp, TransactionId};
use store::{CheckpointOptions, Db, Options};
use tempfile::{TempDir, tempdir};

use crate::{assert_says, check};

fn options(dir: &Path) -> Options {
    Options {
        checkpoint: CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        },
        ..Options::in_dir(dir)
    }
}

/// Returns a directory with a checkpoint of 500 keys and a log behind it; the database is still
/// open.
fn filled() -> (TempDir, Db) {
    let dir = tempdir().expect("a temporary directory");
    let db = Db::open(options(dir.path())).expect("it opens");
    put(&db, 0..500);
    db.checkpoint().expect("a checkpoint");
    put(&db, 400..600);
    (dir, db)
}

fn put(db: &Db, keys: std::ops::Range<u32>) {
    for key in keys {
        let put = db.transact(|txn| txn.put(&key.to_be_bytes(), b"value"));
        put.expect("committed").wait_durable().expect("durable");
    }
}

/// Returns every file with its content and the time of its last change.
fn files(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let changed = entry.metadata().and_then(|data| data.modified());
            let content = fs::read(&path).expect("its content");
            found.insert(path, (content, changed.expect("its time")));
        }
    }
    found
}

/// Returns the last file with this ending.
fn last(dir: &Path, ending: &str) -> PathBuf {
    let mut all = files(dir).into_keys();
    let found = all.rfind(|path| path.to_string_lossy().ends_with(ending));
    found.unwrap_or_else(|| panic!("a file *{ending}"))
}

#[test]
fn a_good_directory_is_described_and_not_changed() {
    let (dir, db) = filled();
    let in_use = check(dir.path());
    let pid = std::process::id().to_string();
    assert_says(&in_use, 1, &["used by another process", &pid, "stop it"]);
    db.close().expect("closed");
    drop(db);
    let before = files(dir.path());
    let said = check(dir.path());
    let words = [
        ".manifest",
        "500 keys",
        "1 log,",
        "written in 1 run\n",
        "everything up to epoch",
        "700 changes",
        "MiB/s",
        "sound",
    ];
    assert_says(&said, 0, &words);
    assert!(files(dir.path()) == before, "something was changed");
    // It reports what a recovery gives.
    let db = Db::open(options(dir.path())).expect("it opens");
    assert_eq!((db.recovery().entries, db.recovery().keys), (700, 600));
}

/// System records and siblings lie in the checkpoint and in the log behind it.
#[test]
fn transactions_over_several_partitions_are_verified() {
    let (dir, db) = filled();
    let mut worker = db.worker().expect("few workers");
    let mut prepare = |unique, key: &[u8]| {
        let timestamp = Timestamp::at_ms(base::clock::Clock::now_ms(&base::clock::SystemClock));
        let id = TransactionId { timestamp, unique };
        let age = timestamp;
        let prepare = Prepare {
            holder: Holder { id, age },
            ops: &[Op::put(key, b"value")],
            siblings: b"\x01\0\0\0k",
            note: b"note",
            isolation: base::participant::Isolation::Serializable,
        };
        worker.prepare(&prepare).expect("nothing is in the way");
        if unique == 2 {
            worker.commit(id).expect("it is prepared");
        }
        worker
            .wait_durable(worker.observed().epoch)
            .expect("durable");
    };
    prepare(1, b"one");
    prepare(2, b"two");
    db.checkpoint().expect("a checkpoint");
    prepare(3, b"three");
    drop(worker);
    db.close().expect("closed");
    drop(db);
    // 600 keys, one more, and two system records; behind them a third one.
    assert_says(&check(dir.path()), 0, &["603 keys", "604 changes", "sound"]);
    let db = Db::open(options(dir.path())).expect("it opens");
    assert_eq!((db.recovery().keys, db.recovery().prepared), (601, 2));
}

#[test]
fn a_torn_end_would_be_cut_off() {
    let (dir, db) = filled();
    db.close().expect("closed");
    drop(db);
    let log = last(dir.path(), ".log");
    let mut bytes = fs::read(&log).expect("its content");
    let end = bytes.iter().rposition(|&byte| byte != 0).expect("data") + 1;
    let end = end.next_multiple_of(8);
    bytes.truncate(end);
    bytes.extend([9; 30]);
    fs::write(&log, &bytes).expect("written");
    let said = check(dir.path());
    let place = format!(
        "{}: an unfinished write of 30 bytes at byte {end}",
        log.display()
    );
    assert_says(&said, 0, &[&place, "would be cut off", "sound"]);
    assert_eq!(fs::read(&log).expect("its content"), bytes, "not cut yet");
}

#[test]
fn damage_is_named_with_its_place_and_the_remedy() {
    let (dir, db) = filled();
    db.close().expect("closed");
    drop(db);
    for (ending, at) in [(".part", 100), (".manifest", 30), (".log", 100)] {
        let path = last(dir.path(), ending);
        let good = fs::read(&path).expect("its content");
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, bad).expect("written");
        let said = check(dir.path());
        let name = path.display().to_string();
        assert_says(&said, 1, &[&name, "damaged at byte", "backup"]);
        fs::write(&path, good).expect("written");
    }
    let manifest = last(dir.path(), ".manifest");
    let mut newer = fs::read(&manifest).expect("its content");
    newer[8] = 9;
    fs::write(&manifest, newer).expect("written");
    let name = manifest.display().to_string();
    assert_says(
        &check(dir.path()),
        1,
        &[&name, "format version 9", "reads up to 4", "newer"],
    );
}

/// No other file has a trace of the transactions in the newest segment. If it is the only one, a
/// checkpoint needs it, or the record of the newest segment names it.
#[test]
fn a_newest_log_file_that_is_gone_or_emptied_is_missed() {
    let plain = tempdir().expect("a temporary directory");
    let db = Db::open(options(plain.path())).expect("it opens");
    put(&db, 0..100);
    for ((dir, db), needed_by) in [(filled(), ".manifest"), ((plain, db), "log0.newest")] {
        db.close().expect("closed");
        drop(db);
        let log = last(dir.path(), ".log");
        let good = fs::read(&log).expect("its content");
        let (name, remedy) = (log.display().to_string(), "backup");
        fs::remove_file(&log).expect("removed");
        let missing = format!("{name} is missing");
        assert_says(&check(dir.path()), 1, &[&missing, needed_by, remedy]);
        for emptied in [Vec::new(), vec![0; good.len()]] {
            fs::write(&log, emptied).expect("written");
            assert_says(&check(dir.path()), 1, &[&name, "not valid", remedy]);
        }
        fs::write(&log, good).expect("written");
        assert_says(&check(dir.path()), 0, &["sound"]);
    }
}

#[test]
fn what_is_no_data_directory_is_refused() {
    let dir = tempdir().expect("a temporary directory");
    assert_says(&check(dir.path()), 1, &["holds no data", "--data"]);
    let absent = dir.path().join("absent");
    assert_says(&check(&absent), 1, &["cannot read", "absent"]);
    let file = dir.path().join("file");
    fs::write(&file, b"x").expect("written");
    assert_says(&check(&file), 1, &["cannot read"]);
}
