//! A journal with its threads: durability, notification, failure, backpressure, idleness.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base::epochs::EpochClock;
use base::{Epoch, Tid};
use disk::{
    Access, Crash, DirEntry, DirLock, Disk, DiskFile, Fault, FaultDisk, FaultKind, LockError,
    OpKind, RealDisk,
};
use fastrand::Rng;
use kumiki_journal::{Drive, EpochTime, Journal, Options, Recovered};
use testkit::eventually;

use crate::support::{DIR, Logged, Run, TestClock, commit, judge, options, recover, shared, start};

fn threaded(loggers: usize) -> Options {
    Options {
        drive: Drive::Threads,
        idle_flush: Duration::from_millis(20),
        ..options(loggers)
    }
}

/// Runs several workers that commit and wait, while the power may fail at any moment; transactions
/// that were acknowledged as durable are there afterwards.
fn concurrent_load(options: &Options, seed: u64, power_off_at: Option<u64>) {
    let disk = FaultDisk::new();
    if let Some(nth) = power_off_at {
        disk.plan(Fault {
            on: OpKind::Change,
            nth,
            kind: FaultKind::PowerOff,
        });
    }
    let Some(run) = Run::start(&disk, options.clone(), &Recovered::default()) else {
        return;
    };
    let logged = Mutex::new(Vec::new());
    let acknowledged = AtomicU64::new(0);
    thread::scope(|scope| {
        for (worker, writer) in run.writers.iter().enumerate() {
            let (run, logged, acknowledged) = (&run, &logged, &acknowledged);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed * 16 + worker as u64);
                for i in 0..60 {
                    if writer.wait_ready().is_err() {
                        return;
                    }
                    let id = worker as u64 * 1000 + i;
                    let Ok(one) = commit(&run.clock, writer, worker, id, &mut rng) else {
                        return;
                    };
                    logged.lock().unwrap().push(one);
                    let epoch = one.tid.epoch();
                    let durable = match rng.u8(0..4) {
                        0 => run.journal.try_cycle_inline(epoch),
                        1 => run.journal.wait(epoch).is_ok(),
                        2 => {
                            run.journal.request(epoch);
                            false
                        }
                        _ => false,
                    };
                    if durable {
                        acknowledged.fetch_max(epoch.0, SeqCst);
                    }
                }
            });
        }
    });
    let closed = run.journal.close();
    assert_eq!(closed.is_err(), run.journal.failed().is_some());
    let logged = logged.into_inner().unwrap();
    let acknowledged = Epoch(acknowledged.into_inner());
    for crash in [Crash::DropAll, Crash::KeepSectors] {
        let disk: Arc<dyn Disk> = Arc::new(disk.crash(crash, seed));
        let found = recover(&disk).unwrap();
        judge(&found, &logged, acknowledged).unwrap();
        if closed.is_ok() {
            assert_eq!(
                found.transactions.len(),
                logged.len(),
                "a clean close keeps everything"
            );
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_fails() {
    for seed in 0..25 {
        for loggers in 1..4 {
            let options = Options {
                segment_size: 3000,
                ..threaded(loggers)
            };
            concurrent_load(&options, seed, Some(8 + seed * 5));
        }
        let tick = EpochTime::Fixed(Duration::from_micros(200));
        concurrent_load(
            &Options {
                epoch_time: tick,
                ..threaded(2)
            },
            seed,
            Some(8 + seed * 7),
        );
    }
}

#[test]
fn a_clean_close_keeps_everything() {
    for loggers in 1..4 {
        concurrent_load(&threaded(loggers), 1, None);
        let tick = EpochTime::Fixed(Duration::from_millis(1));
        concurrent_load(
            &Options {
                epoch_time: tick,
                ..threaded(loggers)
            },
            2,
            None,
        );
    }
}

#[test]
fn a_request_is_served_and_subscribers_hear_of_it() {
    for epoch_time in [
        EpochTime::Adaptive,
        EpochTime::Fixed(Duration::from_millis(2)),
    ] {
        let run = start(
            &FaultDisk::new(),
            Options {
                epoch_time,
                ..threaded(2)
            },
        );
        let heard = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&heard);
        run.journal.subscribe(Box::new(move || {
            count.fetch_add(1, SeqCst);
        }));
        let mut rng = Rng::with_seed(1);
        let mut commit = || commit(&run.clock, &run.writers[1], 1, 7, &mut rng).unwrap();
        // The commit is flushed soon also if no caller asks: on a busy machine this thread may see
        // that.
        let mut tries = (0..100).map(|_| commit());
        let one = tries.find(|one| run.journal.durable() < one.tid.epoch());
        let one = one.expect("it is not durable at once");
        run.journal.request(one.tid.epoch());
        eventually("durability", || run.journal.durable() >= one.tid.epoch());
        eventually("notification", || heard.load(SeqCst) > 0);
    }
}

#[test]
fn writes_without_a_waiter_are_flushed_soon() {
    for epoch_time in [
        EpochTime::Adaptive,
        EpochTime::Fixed(Duration::from_millis(2)),
    ] {
        let run = start(
            &FaultDisk::new(),
            Options {
                epoch_time,
                ..threaded(2)
            },
        );
        thread::sleep(Duration::from_millis(60));
        for round in 0..3 {
            let one = commit(
                &run.clock,
                &run.writers[0],
                0,
                round,
                &mut Rng::with_seed(1),
            )
            .unwrap();
            eventually("a flush", || run.journal.durable() >= one.tid.epoch());
            thread::sleep(Duration::from_millis(30 * round));
        }
    }
}

/// A worker that stays in its transaction does not keep finished epochs from becoming durable,
/// nor its own from doing so afterwards.
#[test]
fn a_long_transaction_only_holds_back_its_own_epoch() {
    let disk = FaultDisk::new();
    let run = start(&disk, threaded(1));
    let mut rng = Rng::with_seed(1);
    let before = commit(&run.clock, &run.writers[0], 0, 1, &mut rng).unwrap();
    run.journal.wait(before.tid.epoch()).unwrap();
    run.clock.enter(1);
    let during = commit(&run.clock, &run.writers[0], 0, 2, &mut rng).unwrap();
    run.journal.request(during.tid.epoch());
    thread::sleep(Duration::from_millis(20));
    assert!(
        run.journal.durable() < during.tid.epoch(),
        "its epoch is not over"
    );
    run.clock.leave(1);
    run.journal.wait(during.tid.epoch()).unwrap();
    // Its block was written before its epoch was over: a later one must have recorded that it is.
    let crashed: Arc<dyn Disk> = Arc::new(disk.crash(Crash::DropAll, 1));
    let found = crate::support::recover(&crashed).unwrap();
    assert_eq!(found.transactions.get(&2), Some(&during));
}

/// Returns how many of fifty commits a thread has made durable itself.
fn served_inline() -> u64 {
    let run = start(&FaultDisk::new(), threaded(1));
    let mut inline = 0;
    for id in 0..50 {
        let one = commit(&run.clock, &run.writers[0], 0, id, &mut Rng::with_seed(id)).unwrap();
        if run.journal.try_cycle_inline(one.tid.epoch()) {
            assert!(run.journal.durable() >= one.tid.epoch());
            inline += 1;
        } else {
            run.journal.wait(one.tid.epoch()).unwrap();
        }
    }
    run.journal.stats().inline_cycles.min(inline)
}

#[test]
fn a_lone_client_is_served_on_its_own_thread() {
    // On a busy machine the logger may be faster.
    let mut most = 0;
    for _ in 0..20 {
        most = served_inline().max(most);
        if most > 25 {
            break;
        }
    }
    assert!(most > 25, "{most} of 50");
    let two = start(&FaultDisk::new(), threaded(2));
    let one = commit(&two.clock, &two.writers[0], 0, 1, &mut Rng::with_seed(1)).unwrap();
    assert!(
        !two.journal.try_cycle_inline(one.tid.epoch()),
        "one logger cannot close an epoch for two"
    );
    two.journal.wait(one.tid.epoch()).unwrap();
}

#[test]
fn the_first_failure_is_the_last() {
    for kind in [FaultKind::Io, FaultKind::NoSpace, FaultKind::ShortWrite] {
        for on in [OpKind::Write, OpKind::Sync] {
            // On a busy machine the journal may meet the fault while no worker logs.
            assert!((0..20).any(|_| fails_for_ever(on, kind)), "{on:?} {kind:?}");
        }
    }
}

/// Space for a write, and for the next segment, is set aside before anything is written: without it
/// nothing is lost, and the journal continues once there is room.
#[test]
fn a_log_without_room_goes_on_when_there_is_some() {
    let mut rng = Rng::with_seed(5);
    for with_next_segment in [false, true] {
        let disk = FaultDisk::new();
        let small = Options {
            preallocate: 1,
            segment_size: if with_next_segment { 1 } else { 1 << 20 },
            ..options(1)
        };
        let run = start(&disk, small);
        let mut logged = vec![commit(&run.clock, &run.writers[0], 0, 1, &mut rng).unwrap()];
        run.journal.request(run.clock.current());
        run.journal.cycle(0).unwrap();
        assert_eq!(run.journal.durable(), logged[0].tid.epoch());

        logged.push(commit(&run.clock, &run.writers[0], 0, 2, &mut rng).unwrap());
        for round in 0..3_u64 {
            // In the same segment the journal tries again with less room: both attempts must fail.
            for nth in 0..if with_next_segment { 1 } else { 2 } {
                disk.plan(Fault {
                    on: OpKind::Write,
                    nth: disk.count(OpKind::Write) + nth,
                    kind: FaultKind::NoSpace,
                });
            }
            run.journal.request(run.clock.current());
            run.journal.cycle(0).unwrap();
            let trouble = run.journal.trouble().expect("there is no room");
            assert!(!trouble.is_lasting && run.journal.failed().is_none());
            assert!(
                trouble.to_string().contains("until there is room"),
                "{trouble}"
            );
            assert_eq!(
                run.journal.wait(logged[1].tid.epoch()),
                Err(trouble.clone())
            );
            assert_eq!(run.journal.durable(), logged[0].tid.epoch());
            assert_eq!(run.writers[1].wait_ready(), Err(trouble));
            // A transaction that had begun before is kept.
            let one = commit(&run.clock, &run.writers[1], 1, 3 + round, &mut rng);
            logged.push(one.unwrap());
        }
        let last = logged.last().unwrap().tid.epoch();
        run.journal.request(run.clock.current());
        run.journal.cycle(0).unwrap();
        assert_eq!(run.journal.trouble(), None);
        assert_eq!(run.journal.wait(last), Ok(()));
        assert_eq!(run.writers[1].wait_ready(), Ok(()));
        drop(run);
        let found = recover(&shared(&disk.crash(Crash::DropAll, 1))).unwrap();
        judge(&found, &logged, last).unwrap();
        assert_eq!(found.transactions.len(), logged.len());
    }
}

/// A segment that cannot be made for lack of file descriptors is made later. The first operation that
/// needs a descriptor creates its file; the next one syncs its directory.
#[test]
fn a_log_without_file_descriptors_goes_on_when_there_are_some() {
    let mut rng = Rng::with_seed(6);
    for lacking in [0..1, 1..2, 0..3] {
        let disk = FaultDisk::new();
        let small = Options {
            segment_size: 1,
            ..options(1)
        };
        let run = start(&disk, small);
        let mut logged = vec![commit(&run.clock, &run.writers[0], 0, 1, &mut rng).unwrap()];
        run.journal.request(run.clock.current());
        run.journal.cycle(0).unwrap();
        let acknowledged = logged[0].tid.epoch();
        assert_eq!(run.journal.durable(), acknowledged);

        logged.push(commit(&run.clock, &run.writers[0], 0, 2, &mut rng).unwrap());
        let before = disk.count(OpKind::Open);
        for nth in lacking.clone() {
            disk.plan(Fault {
                on: OpKind::Open,
                nth: before + nth,
                kind: FaultKind::NoDescriptor,
            });
        }
        let mut failed = 0;
        loop {
            run.journal.request(run.clock.current());
            run.journal.cycle(0).expect("it is tried again");
            let Some(trouble) = run.journal.trouble() else {
                break;
            };
            assert!(!trouble.is_lasting && run.journal.failed().is_none());
            let said = trouble.to_string();
            assert!(said.contains("Too many open files"), "{said}");
            assert_eq!(run.journal.wait(logged[1].tid.epoch()), Err(trouble));
            assert_eq!(run.journal.durable(), acknowledged);
            let crashed = recover(&shared(&disk.crash(Crash::KeepPrefix, failed))).unwrap();
            judge(&crashed, &logged, acknowledged).unwrap();
            // A transaction that had begun before is kept.
            let one = commit(&run.clock, &run.writers[1], 1, 3 + failed, &mut rng);
            logged.push(one.unwrap());
            failed += 1;
        }
        assert!(failed > 0, "{lacking:?}");
        let last = logged.last().unwrap().tid.epoch();
        assert_eq!(run.journal.wait(last), Ok(()));
        drop(run);
        let found = recover(&shared(&disk.crash(Crash::DropAll, 1))).unwrap();
        judge(&found, &logged, last).unwrap();
        assert_eq!(found.transactions.len(), logged.len());
    }
}

/// Makes a journal fail, and checks that it does nothing more. Returns `true` if it failed with the
/// intended commit, and not before.
fn fails_for_ever(on: OpKind, kind: FaultKind) -> bool {
    let disk = FaultDisk::new();
    let run = start(&disk, threaded(2));
    let heard = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&heard);
    let mut rng = Rng::with_seed(1);
    let good = commit(&run.clock, &run.writers[0], 0, 1, &mut rng).unwrap();
    run.journal.wait(good.tid.epoch()).unwrap();
    disk.plan(Fault {
        on,
        nth: disk.count(on),
        kind,
    });
    run.journal
        .subscribe(Box::new(move || flag.store(true, SeqCst)));
    let Ok(bad) = commit(&run.clock, &run.writers[0], 0, 2, &mut rng) else {
        return false;
    };
    let failed = run.journal.wait(bad.tid.epoch()).unwrap_err();
    let text = failed.to_string();
    assert!(
        text.contains("/data/log/log") && text.contains(".log: "),
        "{text}"
    );
    assert_eq!(run.journal.failed(), Some(failed.clone()));
    eventually("notification", || heard.load(SeqCst));
    let durable = run.journal.durable();
    assert!(durable >= good.tid.epoch() && durable < bad.tid.epoch());

    assert_eq!(run.writers[0].wait_ready().err(), Some(failed.clone()));
    for worker in 0..4 {
        let refused = commit(&run.clock, &run.writers[worker], worker, 3, &mut rng);
        assert_eq!(refused.unwrap_err(), failed, "worker {worker}");
    }
    let syncs = disk.count(OpKind::Sync);
    run.journal.request(run.clock.current());
    assert!(!run.journal.try_cycle_inline(bad.tid.epoch()));
    thread::sleep(Duration::from_millis(30));
    assert_eq!(run.journal.close(), Err(failed));
    assert!(
        disk.count(OpKind::Sync) <= syncs + 1,
        "no sync after a failed one"
    );
    assert_eq!(run.journal.durable(), durable);
    true
}

#[test]
fn a_closed_journal_refuses_and_says_so() {
    let run = start(&FaultDisk::new(), threaded(2));
    let one = commit(&run.clock, &run.writers[0], 0, 1, &mut Rng::with_seed(1)).unwrap();
    run.journal.close().unwrap();
    run.journal.close().unwrap();
    assert!(run.journal.durable() >= one.tid.epoch());
    assert_eq!(run.journal.failed(), None, "nothing is wrong");
    let refused = commit(&run.clock, &run.writers[0], 0, 2, &mut Rng::with_seed(1)).unwrap_err();
    assert!(refused.to_string().contains("closed"), "{refused}");
    assert!(run.writers[0].wait_ready().is_err());
    assert!(run.journal.wait(run.clock.current().next()).is_err());
}

/// The transaction is larger than any buffer, and than a segment.
#[test]
fn a_large_transaction_gets_a_buffer_of_its_own() {
    let disk = FaultDisk::new();
    let run = start(&disk, threaded(1));
    let value = vec![5; 100_000];
    for (sequence, hint) in [(1, value.len()), (2, 0)] {
        run.clock.enter(0);
        let tid = Tid::new(run.clock.current(), sequence);
        let stamp = run.clock.stamp_ms(tid.epoch());
        run.writers[0]
            .append(tid, stamp, hint, |to| {
                let key = [5, 0, 0, 0, 0, 0, 0, 0, 0, 1];
                to.put(&key, &value, base::transaction::Kind::String, 1, None);
            })
            .unwrap();
        run.clock.leave(0);
        run.journal.wait(tid.epoch()).unwrap();
    }
    let small = commit(&run.clock, &run.writers[0], 0, 9, &mut Rng::with_seed(1)).unwrap();
    run.journal.close().unwrap();
    let entries = AtomicUsize::new(0);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let count = |entry: kumiki_journal::Entry<'_>| {
        if let kumiki_journal::Change::Put { value: found, .. } = entry.change
            && entry.tid != small.tid
        {
            assert!(found == value);
            entries.fetch_add(1, SeqCst);
        }
    };
    let last = Mutex::new(None);
    let progress = |at| *last.lock().unwrap() = Some(at);
    let recovered = Journal::recover(&disk, Path::new(DIR), 3, &count, &progress).unwrap();
    assert_eq!(entries.into_inner(), 2);
    let last = last.into_inner().unwrap().expect("progress was told");
    assert!(last.bytes_total > 200_000 && last.bytes_read <= last.bytes_total);
    assert_eq!(recovered.entries, 2 + u64::from(small.writes));
    assert_eq!(
        Journal::check(&disk, Path::new(DIR), 1, &|_| {}).unwrap(),
        recovered
    );
}

/// A disk whose syncs take a given time.
struct SlowDisk {
    inner: FaultDisk,
    blocked: Arc<AtomicBool>,
}

struct SlowFile {
    inner: Box<dyn DiskFile>,
    blocked: Arc<AtomicBool>,
}

impl SlowDisk {
    fn wrap(&self, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(SlowFile {
            inner,
            blocked: Arc::clone(&self.blocked),
        })
    }
}

impl Disk for SlowDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.inner.create_new(path).map(|file| self.wrap(file))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        self.inner.open(path, access).map(|file| self.wrap(file))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        self.inner.lock_dir(dir)
    }
}

impl DiskFile for SlowFile {
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_all_at(&self, parts: &[io::IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.inner.write_all_at(parts, offset)
    }
    fn set_size(&self, size: u64) -> io::Result<()> {
        self.inner.set_size(size)
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        self.inner.allocate(size)
    }
    fn sync_data(&self) -> io::Result<()> {
        while self.blocked.load(SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        self.inner.sync_data()
    }
}

/// While the device is stuck, a worker executes as many transactions as its buffers hold and then
/// waits; when the device continues, so does the worker, and nothing is lost.
#[test]
fn a_worker_waits_for_a_buffer_and_no_longer() {
    let blocked = Arc::new(AtomicBool::new(false));
    let disk = FaultDisk::new();
    let slow = SlowDisk {
        inner: disk.clone(),
        blocked: Arc::clone(&blocked),
    };
    let clock = TestClock::new(Epoch(1), 4);
    let options = Options {
        log_buffers: 3,
        ..threaded(1)
    };
    let epochs = Arc::clone(&clock) as Arc<dyn EpochClock>;
    let dir = Path::new(DIR);
    let journal =
        Journal::start(Arc::new(slow), dir, options, epochs, &Recovered::default()).unwrap();
    let writer = journal.writer(0);
    blocked.store(true, SeqCst);
    let done = AtomicU64::new(0);
    let logged: Vec<Logged> = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut rng = Rng::with_seed(3);
            let mut run = |id| {
                writer.wait_ready().unwrap();
                let one = commit(&clock, &writer, 0, id, &mut rng).unwrap();
                done.fetch_add(1, SeqCst);
                one
            };
            (0..500).map(&mut run).collect()
        });
        eventually("a full set of buffers", || {
            let before = done.load(SeqCst);
            thread::sleep(Duration::from_millis(50));
            before >= 3 && done.load(SeqCst) == before
        });
        let stuck_at = done.load(SeqCst);
        assert!((3..200).contains(&stuck_at), "{stuck_at} transactions fit");
        blocked.store(false, SeqCst);
        worker.join().unwrap()
    });
    journal.close().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    judge(&recover(&disk).unwrap(), &logged, journal.durable()).unwrap();
    assert_eq!(logged.len(), 500);
}

/// An idle journal sleeps: its threads are not switched to at all.
#[test]
fn an_idle_journal_costs_nothing() {
    let switches = |name: &str| -> u64 {
        let mut total = 0;
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let status = task.unwrap().path().join("status");
            let Ok(text) = std::fs::read_to_string(status) else {
                continue;
            };
            if !text.starts_with(&format!("Name:\t{name}\n")) {
                continue;
            }
            let lines = text.lines().filter(|line| line.contains("ctxt_switches"));
            total += lines
                .map(|l| l.rsplit('\t').next().unwrap().parse::<u64>().unwrap())
                .sum::<u64>();
        }
        total
    };
    // The only journal of the process with so many loggers; the ninth is this test's alone.
    let options = Options {
        workers: 9,
        ..threaded(9)
    };
    let run = start(&FaultDisk::new(), options);
    let one = commit(&run.clock, &run.writers[8], 8, 1, &mut Rng::with_seed(1)).unwrap();
    run.journal.wait(one.tid.epoch()).unwrap();
    thread::sleep(Duration::from_millis(100));
    // On a busy machine it may take a while until it sleeps.
    for tries in 1.. {
        let before = switches("log8");
        assert!(before > 0, "the thread is there");
        thread::sleep(Duration::from_millis(200));
        let after = switches("log8");
        if after == before {
            break;
        }
        assert!(tries < 50, "it does not sleep: {before} and {after}");
    }
}

#[test]
fn it_works_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut recovered = Recovered::default();
    for round in 1..4_u64 {
        let clock = TestClock::new(recovered.newest.next(), 4);
        let options = Options {
            loggers: 1 + round as usize % 2,
            drive: Drive::Threads,
            ..Options::default()
        };
        let epochs = Arc::clone(&clock) as Arc<dyn EpochClock>;
        let journal =
            Journal::start(Arc::clone(&disk), &path, options, epochs, &recovered).unwrap();
        let writer = journal.writer(0);
        let mut rng = Rng::with_seed(round);
        for id in 0..100 {
            let one = commit(&clock, &writer, 0, round * 100 + id, &mut rng).unwrap();
            if id % 10 == 0 {
                journal.wait(one.tid.epoch()).unwrap();
            }
        }
        journal.close().unwrap();
        let transactions = Mutex::new(std::collections::BTreeSet::new());
        let apply = |entry: kumiki_journal::Entry<'_>| {
            if let kumiki_journal::Change::Put { key, .. } = entry.change {
                transactions.lock().unwrap().insert(key[..8].to_vec());
            }
        };
        recovered = Journal::recover(&disk, &path, 2, &apply, &|_| {}).unwrap();
        assert_eq!(transactions.into_inner().unwrap().len() as u64, round * 100);
    }
}

/// A panic anywhere within a cycle is a failure: nothing is acknowledged without the cycle, and
/// every caller gets the error.
#[test]
fn a_panic_in_a_cycle_is_a_failure() {
    let disk = FaultDisk::new();
    let mut rng = Rng::with_seed(4);
    let run = Run::start(&disk, options(1), &Recovered::default()).unwrap();
    let panics = AtomicBool::new(true);
    run.journal.subscribe(Box::new(move || {
        assert!(!panics.swap(false, SeqCst), "on purpose");
    }));
    let one = commit(&run.clock, &run.writers[0], 0, 1, &mut rng).unwrap();
    run.journal.request(one.tid.epoch());
    let failed = run.journal.cycle(0).unwrap_err();
    assert_eq!(run.journal.failed(), Some(failed.clone()));
    assert_eq!(run.writers[0].wait_ready(), Err(failed.clone()));
    assert_eq!(run.journal.wait(run.clock.current()), Err(failed));
}
