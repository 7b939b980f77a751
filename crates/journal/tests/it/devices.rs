//! A journal on every device, and with files that are written before they are used.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::epochs::EpochClock;
use disk::{Access, Crash, DirectDisk, Disk, FaultDisk, ForgetfulDisk, MappedDisk, RealDisk};
use fastrand::Rng;
use kumiki_journal::{Drive, Entry, Journal, Options, Recovered};

use crate::support::{DIR, Run, TestClock, commit, judge, options, recover};

fn warm(loggers: usize) -> Options {
    Options {
        warm_up: true,
        segment_size: 8000,
        preallocate: 1000,
        ..options(loggers)
    }
}

/// Commits and makes the commit durable, over and over, until `done`.
fn work_until(run: &mut Run, rng: &mut Rng, mut done: impl FnMut() -> bool) {
    for id in run.logged.len() as u64.. {
        if done() {
            return;
        }
        assert!(id < 2000, "it does not come about");
        let one = commit(&run.clock, &run.writers[0], 0, id, rng).unwrap();
        run.logged.push(one);
        run.journal.request(run.clock.current());
        run.journal.cycle(0).unwrap();
    }
}

fn has(disk: &FaultDisk, name: &str) -> bool {
    let path = Path::new(DIR).join("log0").join(name);
    disk.files().contains(&path)
}

fn size(disk: &FaultDisk, name: &str) -> u64 {
    let path = Path::new(DIR).join("log0").join(name);
    disk.open(&path, Access::Read).unwrap().size().unwrap()
}

#[test]
fn a_log_goes_on_in_a_file_that_was_written_before() {
    let disk = FaultDisk::new();
    let mut run = Run::start(&disk, warm(1), &Recovered::default()).unwrap();
    let mut rng = Rng::with_seed(1);
    assert_eq!(size(&disk, "00000000.log"), 9000, "the first one, too");
    for segment in 1..4 {
        work_until(&mut run, &mut rng, || has(&disk, "spare"));
        assert_eq!(size(&disk, "spare"), 9000);
        let next = format!("{segment:08}.log");
        assert!(!has(&disk, &next), "it is ready before it is needed");
        work_until(&mut run, &mut rng, || has(&disk, &next));
        assert_eq!(size(&disk, &next), 9000);
        assert!(!has(&disk, "spare"), "it has got its name");
    }
    work_until(&mut run, &mut rng, || has(&disk, "spare"));
    let acknowledged = run.acknowledged();
    // The spare means nothing to a recovery, nor to a check.
    let crashed = disk.crash(Crash::KillProcess, 0);
    let shared: Arc<dyn Disk> = Arc::new(crashed.clone());
    Journal::check(&shared, Path::new(DIR), 1, &|_| {}).unwrap();
    assert!(has(&crashed, "spare"), "a check changes nothing");
    let found = recover(&shared).unwrap();
    judge(&found, &run.logged, acknowledged).unwrap();
    assert!(!has(&crashed, "spare"));
    assert_eq!(found.recovered.cuts, []);

    run.journal.close().unwrap();
    assert!(!has(&disk, "spare"), "what was not used goes away");
    assert!(size(&disk, "00000003.log") < 9000, "and so does the room");
    let found = recover(&(Arc::new(disk.clone()) as Arc<dyn Disk>)).unwrap();
    judge(&found, &run.logged, run.journal.durable()).unwrap();
}

/// The journal runs with threads, several segments, all ways to write, with and without warm-up;
/// then everything is read back.
#[test]
fn every_device_keeps_what_was_acknowledged() {
    let (on_disk, in_memory) = (env!("CARGO_TARGET_TMPDIR"), "/dev/shm");
    let direct = || DirectDisk::new().unwrap();
    let disks: [(&str, Arc<dyn Disk>, &str); 7] = [
        ("write", Arc::new(RealDisk), on_disk),
        ("direct", Arc::new(direct()), on_disk),
        ("map", Arc::new(MappedDisk::default()), on_disk),
        ("map, memory", Arc::new(MappedDisk::default()), in_memory),
        (
            "forgetful write",
            Arc::new(ForgetfulDisk::new(RealDisk)),
            on_disk,
        ),
        (
            "forgetful direct",
            Arc::new(ForgetfulDisk::new(direct())),
            on_disk,
        ),
        (
            "forgetful map",
            Arc::new(ForgetfulDisk::new(MappedDisk::default())),
            in_memory,
        ),
    ];
    for (name, disk, place) in disks {
        for warm_up in [false, true] {
            let dir = tempfile::tempdir_in(place).unwrap();
            let options = Options {
                warm_up,
                segment_size: 64 * 1024,
                preallocate: 16 * 1024,
                drive: Drive::Threads,
                idle_flush: Duration::from_millis(5),
                ..options(2)
            };
            let written = load(&disk, dir.path(), options);
            let log = dir.path().join("log0");
            // Listed by the disk itself: a forgetful disk keeps the removal of the spare to itself,
            // as no thread has synced it.
            let segments = disk.list(&log).unwrap();
            assert!(segments.len() > 3, "{name}: {} segments", segments.len());
            assert!(segments.iter().all(|entry| entry.name != "spare"));
            let found = std::sync::Mutex::new(Vec::new());
            let apply = |entry: Entry<'_>| found.lock().unwrap().push(entry.tid);
            let real: Arc<dyn Disk> = Arc::new(RealDisk);
            Journal::recover(&real, dir.path(), 2, &apply, &|_| {}).unwrap();
            let mut found = found.into_inner().unwrap();
            found.sort_unstable();
            assert_eq!(found, written, "{name}, warm-up: {warm_up}");
        }
    }
}

/// Runs two workers that commit and wait. Returns the ids of the transactions that were
/// acknowledged as durable, as often as each wrote.
fn load(disk: &Arc<dyn Disk>, dir: &Path, options: Options) -> Vec<base::Tid> {
    let fresh = Recovered::default();
    let clock = TestClock::new(fresh.newest.next(), options.workers);
    let clock_of = Arc::clone(&clock) as Arc<dyn EpochClock>;
    let journal = Journal::start(Arc::clone(disk), dir, options, clock_of, &fresh).unwrap();
    let worker = |worker: usize| {
        let (writer, mut rng) = (journal.writer(worker), Rng::with_seed(worker as u64));
        let mut logged = Vec::new();
        for i in 0..60 {
            writer.wait_ready().unwrap();
            for _ in 0..40 {
                let id = (worker * 100 + i) as u64;
                logged.push(commit(&clock, &writer, worker, id, &mut rng).unwrap());
            }
            journal.wait(logged.last().unwrap().tid.epoch()).unwrap();
        }
        logged
    };
    let mut logged = std::thread::scope(|scope| {
        let threads = [0, 1].map(|i| scope.spawn(move || worker(i)));
        threads.map(|thread| thread.join().unwrap()).concat()
    });
    journal.close().unwrap();
    logged.sort_unstable_by_key(|one| one.tid);
    let writes = |one: &crate::support::Logged| std::iter::repeat_n(one.tid, one.writes.into());
    logged.iter().flat_map(writes).collect()
}
