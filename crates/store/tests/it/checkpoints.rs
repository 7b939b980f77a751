//! Checkpoints of a database, and recoveries from them, on real files and on disks that fail.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::clock::ManualClock;
use base::steady_clock::{Clocks, SteadyClock};
use base::transaction::{Expiry, When};
use base::{Abort, Op};
use disk::{Crash, Disk, Fault, FaultDisk, FaultKind, OpKind};
use kumiki_store::{
    CheckpointError, CheckpointOptions, CheckpointRefused, Db, EpochTime, Options, Worker,
};
use testkit::SetOnDrop;

/// Executes the operations, and waits until they are durable.
fn durably(db: &Db, ops: &[Op<'_>]) -> Result<(), Abort> {
    let mut worker = db.worker().expect("few workers");
    worker.execute(ops)?;
    let epoch = worker.observed().epoch;
    worker.wait_durable(epoch)
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns all keys and values.
fn content(db: &Db) -> Content {
    let snapshot = db.snapshot();
    let mut worker = db.worker().expect("few workers");
    let (mut from, mut found) = (Some(Vec::new()), Content::new());
    while let Some(key) = from {
        from = worker.scan_snapshot(&snapshot, &key, None, 1000, &mut |entry| {
            found.insert(entry.key.to_vec(), entry.value.bytes().into_owned());
        });
    }
    found
}

/// Returns options by which checkpoints are made only when asked for.
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
            worker.execute(&[Op::put(&key(n), &[1; 20])]).unwrap();
        }
        durably(&db, &[Op::put(b"large", &vec![threads as u8; 3 << 20])]).unwrap();
        durably(&db, &[Op::Delete { key: &key(7) }]).unwrap();
        let report = db.checkpoint().unwrap();
        assert_eq!(
            report.entries, 3000,
            "all but the deleted one, and the large one"
        );
        assert!(report.segments_removed > 0 && report.bytes > 3 << 20);
        durably(
            &db,
            &[Op::Delete { key: &key(8) }, Op::put(&key(7), b"again")],
        )
        .unwrap();
        durably(&db, &[Op::put(&key(3001), b"behind")]).unwrap();
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

fn on(disk: &FaultDisk) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        workers: 6,
        segment_size: 8 << 10,
        checkpoint: CheckpointOptions {
            share: 1.0,
            ..asked()
        },
        ..Options::in_dir("/data")
    }
}

fn checkpoint_files(disk: &FaultDisk) -> usize {
    let files = disk.files();
    let of_checkpoints = files
        .iter()
        .filter(|path| path.starts_with("/data/checkpoint"));
    of_checkpoints.count()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn one_begins_by_itself_when_the_logs_have_grown() {
    let disk = FaultDisk::new();
    let options = || Options {
        checkpoint: CheckpointOptions {
            log_size: 20 << 10,
            ..on(&disk).checkpoint
        },
        ..on(&disk)
    };
    let db = Db::open(options()).unwrap();
    for n in 0..20 {
        durably(&db, &[Op::put(&key(n), &[1; 900])]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(db.checkpoint_status().completed, 0, "not grown enough");
    drop(db);
    // The log that recovery found counts, too.
    let db = Db::open(options()).unwrap();
    assert!(db.checkpoint_status().log_bytes_since > 18_000);
    durably(&db, &[Op::put(&key(21), &[1; 3000])]).unwrap();
    until("a checkpoint", || db.checkpoint_status().completed == 1);
    assert!(db.checkpoint_status().log_bytes_since < 10_000);
    assert_eq!(db.checkpoint_status().last.unwrap().entries, 21);
}

#[test]
fn what_cannot_be_is_refused() {
    let db = Db::open(Options::default()).unwrap();
    assert_eq!(db.checkpoint(), Err(CheckpointError::Ephemeral));
    assert_eq!(db.request_checkpoint(), Err(CheckpointRefused::Ephemeral));
    assert_eq!(db.checkpoint_status(), Default::default());

    let disk = FaultDisk::new();
    let slow = Options {
        checkpoint: CheckpointOptions {
            share: 0.01,
            ..asked()
        },
        ..on(&disk)
    };
    let db = Db::open(slow).unwrap();
    let filler = vec![1; 100 << 10];
    for n in 0..400 {
        let mut worker = db.worker().unwrap();
        worker.execute(&[Op::put(&key(n), &filler)]).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        // The store is in use: the checkpoint takes its time.
        scope.spawn(|| {
            let mut worker = db.worker().unwrap();
            while !stop.load(Ordering::Relaxed) {
                // Refused once it is closed.
                let _ = worker.execute(&[Op::put(b"busy", b"1")]);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        db.request_checkpoint().unwrap();
        let refused = db.request_checkpoint();
        assert_eq!(refused, Err(CheckpointRefused::AlreadyRunning));
        until("some keys", || db.checkpoint_status().entries_written > 3);
        let status = db.checkpoint_status();
        assert!(status.running && status.started_ms.is_some(), "{status:?}");
        // Closing does not wait for it, and nothing of it stays.
        let start = Instant::now();
        db.close().unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(checkpoint_files(&disk), 0);
    assert_eq!(db.checkpoint_status().completed, 0);
    let closed = db.checkpoint().unwrap_err().to_string();
    assert!(closed.contains("closed"), "{closed}");
    assert!(matches!(
        db.request_checkpoint(),
        Err(CheckpointRefused::Failed(_))
    ));
}

/// The disk has no room for a checkpoint: the database continues, nothing stays behind,
/// and the next one is made when there is room again.
#[test]
fn a_full_disk_fails_the_checkpoint_alone() {
    fails_the_checkpoint_alone(OpKind::Change, FaultKind::NoSpace, 10);
}

/// So does a process without a free file descriptor.
#[test]
fn no_descriptor_fails_the_checkpoint_alone() {
    fails_the_checkpoint_alone(OpKind::Open, FaultKind::NoDescriptor, 4);
}

/// Makes one operation of a checkpoint fail after the other, until more than `least` checkpoints have failed.
fn fails_the_checkpoint_alone(on_kind: OpKind, kind: FaultKind, least: usize) {
    let plain = FaultDisk::new();
    let fill = |db: &Db| {
        for n in 0..30 {
            durably(db, &[Op::put(&key(n), &[2; 500])]).unwrap();
        }
    };
    let db = Db::open(on(&plain)).unwrap();
    fill(&db);
    let before = plain.count(on_kind);
    db.checkpoint().unwrap();
    let operations = plain.count(on_kind) - before;
    drop(db);
    assert!(operations > least as u64, "{operations}");
    let (mut failed, mut broken) = (0, 0);
    // On a slow machine more of the disk's operations are the log's own: another pass meets others.
    let passes = (0..5).flat_map(|_| 0..operations);
    for (at, nth) in passes.enumerate() {
        if at as u64 >= operations && failed > least {
            break;
        }
        let disk = FaultDisk::new();
        let db = Db::open(on(&disk)).unwrap();
        fill(&db);
        disk.plan(Fault {
            on: on_kind,
            nth: disk.count(on_kind) + nth,
            kind,
        });
        let held = content(&db);
        let made = db.checkpoint();
        if db.durable().failed.is_some() {
            // The log's own directory could not be synced, or its block not be written.
            broken += 1;
            continue;
        }
        let again = db.checkpoint();
        if let Err(error) = &made {
            failed += 1;
            let text = error.to_string();
            assert!(text.contains("/data/"), "{text}");
            match &again {
                Ok(_) => assert_eq!(db.checkpoint_status().completed, 1),
                Err(error) => {
                    // An operation without a descriptor has not touched the directory.
                    assert!(kind != FaultKind::NoDescriptor, "{error}");
                    assert!(error.to_string().contains("opened again"), "{error}");
                }
            }
            let left = if again.is_ok() { 2 } else { 0 };
            assert_eq!(checkpoint_files(&disk), left, "operation {nth}");
        }
        durably(&db, &[Op::put(b"after", b"1")]).unwrap();
        let disk = disk.crash(Crash::DropAll, nth);
        let db = Db::open(on(&disk)).unwrap();
        let mut found = content(&db);
        assert_eq!(found.remove(&b"after"[..]), Some(b"1".to_vec()));
        assert_eq!(found, held, "operation {nth}");
    }
    assert!(failed > least, "{failed} failed, {broken} broke the log");
}

/// Failures are counted and reported, and automatic attempts rest after them.
#[test]
fn automatic_attempts_rest_after_a_failure() {
    let disk = FaultDisk::new();
    let options = Options {
        checkpoint: CheckpointOptions {
            log_size: 1000,
            ..on(&disk).checkpoint
        },
        ..on(&disk)
    };
    // A file is in the way of the directory.
    disk.create_dir_all(Path::new("/data")).unwrap();
    drop(disk.create_new(Path::new("/data/checkpoint")).unwrap());
    let db = Db::open(options).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(600) {
        durably(&db, &[Op::put(b"key", &[3; 600])]).unwrap();
    }
    let status = db.checkpoint_status();
    assert_eq!(
        (status.failed, status.completed),
        (1, 0),
        "it rests for a second"
    );
    let error = status.last_error.expect("it is told");
    assert!(error.contains("/data/checkpoint"), "{error}");
    assert!(status.log_bytes_since > 1000 && db.durable().failed.is_none());
}

/// The hands of a machine's clocks, in milliseconds.
#[derive(Clone, Default)]
struct Hands(Arc<[AtomicI64; 2]>);

impl Hands {
    fn pass(&self, ms: i64) {
        for hand in &*self.0 {
            hand.fetch_add(ms, Ordering::SeqCst);
        }
    }

    fn set_wall(&self, ms: i64) {
        self.0[1].store(ms, Ordering::SeqCst);
    }
}

impl Clocks for Hands {
    fn steady_ns(&self) -> i64 {
        self.0[0].load(Ordering::SeqCst) * 1_000_000
    }

    fn wall_ns(&self) -> i64 {
        self.0[1].load(Ordering::SeqCst) * 1_000_000
    }
}

/// The machine's clock was a day ahead, in this run or when the last one began, and is set back. A key
/// that is to expire in half a second does so, before and after a restart, and keys that have expired
/// stay so.
#[test]
fn a_clock_that_was_ahead_freezes_no_expiry() {
    const DAY: i64 = 86_400_000;
    const NOW: i64 = 1_000_000;
    let disk = FaultDisk::new();
    let hands = Hands::default();
    let options = || Options {
        clock: Arc::new(SteadyClock::of(hands.clone(), |_| {})),
        ..on(&disk)
    };
    let short = || Op::Put {
        key: b"short",
        value: b"1",
        when: When::Always,
        expiry: Expiry::InMs(500),
        get: false,
    };
    let has = |db: &Db, key: &str| content(db).contains_key(key.as_bytes());
    let expires = |db: &Db| {
        durably(db, &[short()]).unwrap();
        hands.pass(400);
        durably(db, &[Op::put(b"tick", b"1")]).unwrap();
        assert!(has(db, "short"), "not before its time");
        hands.pass(200);
        durably(db, &[Op::put(b"tick", b"2")]).unwrap();
        assert!(!has(db, "short"), "in time");
        // A restart knows the time of the last write.
        durably(db, &[Op::put(b"tick", b"3")]).unwrap();
    };
    for ahead_at_the_start in [false, true] {
        hands.set_wall(NOW + if ahead_at_the_start { DAY } else { 0 });
        let db = Db::open(options()).unwrap();
        hands.set_wall(NOW + DAY);
        hands.pass(300);
        durably(&db, &[Op::put(b"a", b"1")]).unwrap();
        hands.set_wall(NOW);
        expires(&db);
        db.close().unwrap();
        drop(db);
        let db = Db::open(options()).unwrap();
        assert!(has(&db, "a") && !has(&db, "short"), "{:?}", content(&db));
        expires(&db);
        db.close().unwrap();
    }
}

/// There is one report for each time.
#[test]
fn a_clock_that_was_set_is_counted_and_reported() {
    const DAY: i64 = 86_400_000;
    const NOW: i64 = 1_000_000;
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let hands = Hands::default();
    hands.set_wall(NOW);
    let clock = SteadyClock::of(hands.clone(), |step| {
        TOLD.lock().unwrap().push(step.to_string());
    });
    let options = Options {
        clock: Arc::new(clock),
        ..on(&FaultDisk::new())
    };
    let db = Db::open(options).unwrap();
    let pass = |ms| {
        hands.pass(ms);
        durably(&db, &[Op::put(b"a", b"1")]).unwrap();
    };
    pass(200);
    assert_eq!(db.stats().clock_steps, 0);
    for (count, wall, ms, words) in [
        (1, Some(NOW + DAY), 200, "s ahead of the time"),
        (2, None, 60_000, "keys expire by it from now on"),
        (3, Some(NOW), 200, "behind the time by which keys expire"),
    ] {
        if let Some(wall) = wall {
            hands.set_wall(wall);
        }
        for _ in 0..3 {
            pass(ms);
        }
        let told = TOLD.lock().unwrap();
        assert_eq!(
            (db.stats().clock_steps, told.len()),
            (count, count as usize),
            "{told:?}"
        );
        assert!(told.last().unwrap().contains(words), "{told:?}");
    }
}

#[test]
fn expiry_flushes_and_a_clock_that_steps_back() {
    let disk = FaultDisk::new();
    let clock = Arc::new(ManualClock::new(10_000));
    let options = || Options {
        clock: Arc::clone(&clock) as _,
        ..on(&disk)
    };
    let until = |key, at| Op::Put {
        key,
        value: b"1",
        when: When::Always,
        expiry: Expiry::AtMs(at),
        get: false,
    };
    let db = Db::open(options()).unwrap();
    durably(&db, &[Op::put(b"flushed", b"1")]).unwrap();
    durably(&db, &[Op::Flush]).unwrap();
    durably(&db, &[until(b"soon", 11_000), until(b"gone", 10_500)]).unwrap();
    durably(&db, &[until(b"later", 20_000), Op::put(b"stays", b"1")]).unwrap();
    clock.set(10_600);
    durably(&db, &[Op::put(b"tick", b"1")]).unwrap();
    let report = db.checkpoint().unwrap();
    assert_eq!(report.entries, 4, "without what was flushed or has expired");
    db.close().unwrap();
    drop(db);

    // Time does not go back with the clock: expired keys stay expired.
    clock.set(9_000);
    let db = Db::open(options()).unwrap();
    let keys = |db: &Db| content(db).into_keys().collect::<Vec<_>>();
    let named = |names: &[&str]| -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    };
    assert_eq!(keys(&db), named(&["later", "soon", "stays", "tick"]));
    clock.set(12_000);
    durably(&db, &[Op::put(b"tick", b"2")]).unwrap();
    assert_eq!(keys(&db), named(&["later", "stays", "tick"]));
    // A flush behind the checkpoint, and another checkpoint behind that.
    durably(&db, &[Op::Flush, Op::put(b"new", b"1")]).unwrap();
    db.close().unwrap();
    drop(db);
    let db = Db::open(options()).unwrap();
    assert_eq!(keys(&db), named(&["new"]));
    db.checkpoint().unwrap();
    durably(&db, &[Op::put(b"newer", b"1")]).unwrap();
    db.close().unwrap();
    drop(db);
    let db = Db::open(options()).unwrap();
    assert_eq!(keys(&db), named(&["new", "newer"]));
}

/// A client sees a key expire, nothing is written after that, and the clock is set back while the
/// database is closed, or while its machine is down: the key stays expired.
#[test]
fn a_key_that_was_seen_to_expire_is_not_seen_again() {
    let disk = FaultDisk::new();
    let clock = Arc::new(ManualClock::new(10_000));
    let options = |disk: &FaultDisk| Options {
        clock: Arc::clone(&clock) as _,
        ..on(disk)
    };
    let db = Db::open(options(&disk)).unwrap();
    let put = Op::Put {
        key: b"k",
        value: b"1",
        when: When::Always,
        expiry: Expiry::AtMs(10_500),
        get: false,
    };
    durably(&db, &[put]).unwrap();
    clock.set(10_600);
    testkit::eventually("the key expires", || content(&db).is_empty());
    clock.set(9_000);
    testkit::eventually("the log knows of the deadline", || {
        let disk = disk.crash(Crash::DropAll, 1);
        content(&Db::open(options(&disk)).unwrap()).is_empty()
    });
    db.close().unwrap();
    drop(db);
    // The first start says as much as it has read.
    for _ in 0..2 {
        let db = Db::open(options(&disk)).unwrap();
        assert!(content(&db).is_empty());
        db.checkpoint().unwrap();
        db.close().unwrap();
    }
}

/// Several threads transfer between accounts, checkpoints are made one after another, and the power
/// fails at any moment: the sum stays, and no acknowledged transfer is lost.
#[test]
fn sums_are_conserved_whenever_the_power_fails() {
    const ACCOUNTS: u32 = 40;
    let disk = FaultDisk::new();
    let options = |disk: &FaultDisk| Options {
        loggers: 2,
        epoch_time: EpochTime::Fixed(Duration::from_millis(1)),
        checkpoint: CheckpointOptions {
            threads: 2,
            ..on(disk).checkpoint
        },
        ..on(disk)
    };
    let db = Db::open(options(&disk)).unwrap();
    let zero = 1000_i64.to_be_bytes();
    for n in 0..ACCOUNTS {
        durably(&db, &[Op::put(&key(n), &zero)]).unwrap();
    }
    let stop = AtomicBool::new(false);
    let checked = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        for seed in 0..2 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || transfer(db, stop, seed, ACCOUNTS));
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                db.checkpoint().unwrap();
            }
        });
        let (mut checked, start) = (0, Instant::now());
        let mut used = 0;
        while checked < 25 || used < 10 {
            assert!(start.elapsed() < Duration::from_secs(600));
            std::thread::sleep(Duration::from_millis(fastrand::u64(0..20)));
            // Read before the crash: everything that is counted in them was acknowledged.
            let counters = acknowledged(&db);
            let crash = [Crash::DropAll, Crash::KeepPrefix, Crash::KillProcess][checked % 3];
            let after = disk.crash(crash, checked as u64);
            let again = Db::open(options(&after)).unwrap();
            used += usize::from(again.recovery().checkpoint.is_some());
            verify(&again, &counters, ACCOUNTS);
            // And once more: a recovery changes nothing.
            let held = content(&again);
            drop(again);
            assert_eq!(content(&Db::open(options(&after)).unwrap()), held);
            checked += 1;
        }
        stop.store(true, Ordering::Relaxed);
        checked
    });
    assert!(checked >= 25 && db.checkpoint_status().failed == 0);
}

/// Moves amounts, and counts the acknowledged transfers in a key of its own.
fn transfer(db: &Db, stop: &AtomicBool, seed: u64, accounts: u32) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut worker: Worker = db.worker().unwrap();
    let own = format!("count:{seed}").into_bytes();
    let mut count = 0_i64;
    while !stop.load(Ordering::Relaxed) {
        let (from, to) = (key(rng.u32(0..accounts)), key(rng.u32(0..accounts)));
        let amount = rng.i64(1..50);
        let extra = key(accounts + rng.u32(0..30));
        count += 1;
        worker.refresh();
        let done = worker.transact(|txn| {
            let read =
                |value: Option<&[u8]>| i64::from_be_bytes(value.unwrap().try_into().unwrap());
            let less = read(txn.get(&from)?) - amount;
            txn.put(&from, &less.to_be_bytes())?;
            let more = read(txn.get(&to)?) + amount;
            txn.put(&to, &more.to_be_bytes())?;
            // Keys come and go, too.
            if amount % 2 == 0 {
                txn.put(&extra, &count.to_be_bytes())?;
            } else {
                txn.delete(&extra)?;
            }
            txn.put(&own, &count.to_be_bytes())
        });
        let ((), observed) = done.unwrap();
        if rng.u8(0..8) == 0 {
            worker.wait_durable(observed.epoch).unwrap();
        }
    }
}

/// Returns the transfers of each thread that are durable.
fn acknowledged(db: &Db) -> Vec<(Vec<u8>, i64)> {
    let mut worker = db.worker().unwrap();
    let keys = [b"count:0".to_vec(), b"count:1".to_vec()];
    let read = worker.transact(|txn| {
        let mut counts = Vec::new();
        for key in &keys {
            let value = txn
                .get(key)?
                .map(|value| i64::from_be_bytes(value.try_into().unwrap()));
            counts.push((key.clone(), value.unwrap_or(0)));
        }
        Ok(counts)
    });
    let (counts, observed) = read.unwrap();
    worker.wait_durable(observed.epoch).unwrap();
    counts
}

fn verify(db: &Db, counters: &[(Vec<u8>, i64)], accounts: u32) {
    let found = content(db);
    let number = |value: &Vec<u8>| i64::from_be_bytes(value[..].try_into().unwrap());
    let sum: i64 = (0..accounts).map(|n| number(&found[&key(n)])).sum();
    assert_eq!(
        sum,
        1000 * i64::from(accounts),
        "a transfer is there in part"
    );
    for (key, acknowledged) in counters {
        let there = found.get(key).map_or(0, number);
        assert!(
            there >= *acknowledged,
            "{there} of {acknowledged} transfers"
        );
    }
}
