//! Copies of a running journal's files, as a backup makes them: while the journal goes on, a copy can be
//! rewound to any epoch that it has, and holds the state of that epoch then.

use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use base::Epoch;
use base::epochs::EpochClock;
use disk::{Crash, Disk, FaultDisk};
use fastrand::Rng;
use kumiki_journal::{
    CheckpointFiles, DataFile, DataFiles, Drive, Journal, Options, Recovered, RewindError,
};

use testkit::SetOnDrop;

use crate::support::small::{History, Store, judge, options, recover, state_at};
use crate::support::{self, DIR, Run, shared};

const LONG: Duration = Duration::from_secs(3600);
const PIN: &str = "a backup";

/// Copies a file to another disk, in pieces.
fn copy_file(from: &FaultDisk, to: &FaultDisk, file: &DataFile) {
    let path = Path::new(DIR).join(&file.name);
    to.create_dir_all(path.parent().unwrap()).unwrap();
    let copy = to.create_new(&path).unwrap();
    let mut at = 0;
    while at < file.bytes {
        let count = (file.bytes - at).min(100) as usize;
        let bytes = Journal::read_data_file(from, Path::new(DIR), &file.name, at, count).unwrap();
        assert_eq!(bytes.len(), count, "{} at {at}", file.name);
        copy.write_all_at(&[IoSlice::new(&bytes)], at).unwrap();
        at += count as u64;
    }
    copy.sync_data().unwrap();
    to.sync_dir(path.parent().unwrap()).unwrap();
}

/// Copies the segments that are needed beside a checkpoint.
fn copy_segments(
    from: &FaultDisk,
    to: &FaultDisk,
    files: &DataFiles,
    base: Option<&CheckpointFiles>,
) {
    for (log, segments) in files.logs.iter().enumerate() {
        let first = base.and_then(|base| base.first_segments.get(log));
        let first = first.copied().unwrap_or_default();
        let needed = segments.iter().filter(|segment| segment.number >= first);
        needed.for_each(|segment| copy_file(from, to, &segment.file));
    }
}

fn rewound(copy: &FaultDisk, epoch: Epoch) -> Result<FaultDisk, RewindError> {
    let disk = copy.crash(Crash::KillProcess, 0);
    Journal::rewind(&shared(&disk), Path::new(DIR), 2, epoch, &|_| {})?;
    Ok(disk.crash(Crash::DropAll, 0))
}

/// Checks that a copy that was rewound has the state of the epoch, and can be continued.
fn judge_at(copy: &FaultDisk, epoch: Epoch, history: &History, next: &Options, seed: u64) {
    let disk = rewound(copy, epoch).unwrap();
    let (recovered, state) = recover(&disk).unwrap();
    assert_eq!(
        state,
        state_at(history, epoch),
        "epoch {epoch}, seed {seed}"
    );
    let kept = history.iter().filter(|(tid, _)| tid.epoch() <= epoch);
    let kept: History = kept.cloned().collect();
    let mut store = Store::start(&disk, next.clone(), &recovered, kept).unwrap();
    store.play_some(&mut Rng::with_seed(seed));
    let (history, durable) = (store.history.clone(), store.journal.durable());
    let found = recover(&disk.crash(Crash::KillProcess, 0));
    judge(&found, &history, durable).unwrap();
}

fn case(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let disk = FaultDisk::with_alignment(if seed.is_multiple_of(5) { 512 } else { 1 });
    let (mut history, mut recovered) = (History::new(), Recovered::default());
    // Some runs of other numbers of loggers before it.
    for _ in 0..rng.usize(0..3) {
        let loggers = rng.usize(1..4);
        let mut store = Store::start(&disk, options(loggers), &recovered, history).unwrap();
        store.play_some(&mut rng);
        store.some(&mut rng, 4);
        let (logged, durable) = (store.history.clone(), store.journal.durable());
        std::mem::forget(store);
        (recovered, history) = judge(&recover(&disk), &logged, durable).unwrap();
    }
    let loggers = rng.usize(1..4);
    let mut store = Store::start(&disk, options(loggers), &recovered, history).unwrap();
    store.play_some(&mut rng);
    let dir = Path::new(DIR);
    store.journal.pin_files(&disk, dir, PIN, LONG).unwrap();
    let files = store.journal.data_files(&disk, dir).unwrap();
    let base = files.checkpoints.first().cloned();
    for _ in 0..rng.usize(0..3) {
        store.play_some(&mut rng);
    }
    let (hold, epoch) = store.journal.hold_durable(LONG).unwrap();
    for _ in 0..3 {
        store.some(&mut rng, 3);
    }
    assert_eq!(store.journal.durable(), epoch, "it is held");
    assert!(store.journal.release_durable(hold));
    store.some(&mut rng, 3);
    let files = store.journal.data_files(&disk, dir).unwrap();
    for _ in 0..2 {
        store.play_some(&mut rng);
    }
    let copy = FaultDisk::new();
    let of_base = base.iter().flat_map(|base| &base.files);
    of_base.for_each(|file| copy_file(&disk, &copy, file));
    copy_segments(&disk, &copy, &files, base.as_ref());
    let first = base.map_or(Epoch::ZERO, |base| base.epoch);
    judge_at(
        &copy,
        epoch,
        &store.history,
        &options(rng.usize(1..4)),
        seed,
    );
    for number in first.0..=epoch.0 {
        judge_at(&copy, Epoch(number), &store.history, &options(1), seed);
    }
    if first > Epoch::ZERO {
        let earlier = rewound(&copy, Epoch(first.0 - 1));
        assert!(matches!(earlier, Err(RewindError::NoSuchEpoch { .. })));
    }
    // Everything that the copy has is that of its last epoch.
    let (whole, _) = recover(&copy.crash(Crash::KillProcess, 0)).unwrap();
    let last = rewound(&copy, Epoch(u64::MAX)).unwrap();
    let (_, state) = recover(&last).unwrap();
    assert_eq!(state, state_at(&store.history, whole.durable));
    // Without the pin, a checkpoint removes what it makes superfluous.
    assert!(store.journal.renew_pin(PIN, LONG));
    store.journal.unpin_files(PIN);
    assert!(!store.journal.renew_pin(PIN, LONG));
    store.settle(&mut rng);
    store.quiet_checkpoint(&mut rng);
    let files = store.journal.data_files(&disk, dir).unwrap();
    let [newest] = &*files.checkpoints else {
        panic!("{files}")
    };
    for (segments, first) in files.logs.iter().zip(&newest.first_segments) {
        let numbers: Vec<u32> = segments.iter().map(|segment| segment.number).collect();
        assert!(numbers.iter().all(|number| number >= first), "{files}");
    }
}

#[test]
fn a_copy_of_a_running_journal_holds_every_epoch_up_to_the_one_that_was_held() {
    for seed in 0..60 {
        case(seed);
    }
}

/// Several threads write logs, each of which says which epochs all of them have.
#[test]
fn a_copy_of_logs_that_are_being_written_is_one_that_a_crash_leaves() {
    const LOGGERS: usize = 3;
    let disk = FaultDisk::new();
    let options = Options {
        drive: Drive::Threads,
        ..support::options(LOGGERS)
    };
    let Run {
        journal,
        clock,
        writers,
        ..
    } = support::start(&disk, options);
    let stop = AtomicBool::new(false);
    let (journal, clock) = (&journal, &clock);
    thread::scope(|scope| {
        let stop = SetOnDrop(&stop);
        for (worker, writer) in writers.iter().enumerate() {
            let stop = stop.0;
            scope.spawn(move || {
                let mut rng = Rng::with_seed(worker as u64);
                // A copy becomes no larger than this.
                for number in 0..2000 {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    writer.wait_ready().unwrap();
                    let id = number * 100 + worker as u64;
                    let logged = support::commit(clock, writer, worker, id, &mut rng).unwrap();
                    journal.request(logged.tid.epoch());
                }
            });
        }
        let dir = Path::new(DIR);
        for _ in 0..40 {
            let files = journal.data_files(&disk, dir).unwrap();
            let copy = FaultDisk::new();
            copy_segments(&disk, &copy, &files, None);
            let checked = Journal::check(&shared(&copy), dir, 2, &|_| {});
            checked.unwrap_or_else(|error| panic!("{error}: {files}"));
        }
    });
    journal.close().unwrap();
}

#[test]
fn the_epoch_of_a_time_is_the_newest_that_is_not_after_it() {
    let disk = FaultDisk::new();
    let mut store = Store::new(&disk, options(2));
    let mut rng = Rng::with_seed(7);
    store.quiet_checkpoint(&mut rng);
    for _ in 0..20 {
        store.some(&mut rng, 2);
        store.clock.advance(store.clock.current());
    }
    store.settle(&mut rng);
    let durable = store.journal.durable();
    let epochs = store.history.iter().map(|(tid, _)| tid.epoch());
    let epochs: Vec<Epoch> = epochs.filter(|epoch| *epoch <= durable).collect();
    let disk = disk.crash(Crash::KillProcess, 0);
    let at = |stamp_ms| {
        let found = Journal::epoch_at(&shared(&disk), Path::new(DIR), 2, stamp_ms, &|_| {});
        found.unwrap()
    };
    let (first, earliest) = at(1);
    assert_eq!(earliest, 1, "the checkpoint's time");
    for epoch in first.0..=durable.0 {
        let expected = epochs.iter().copied().filter(|one| one.0 <= epoch).max();
        let expected = expected.unwrap_or_default().max(first);
        // The clock of these tests gives each epoch a time of its own.
        assert_eq!(at(1_000_000 + epoch).0, expected, "{epoch}");
    }
    assert_eq!(at(u64::MAX).0, epochs.into_iter().max().unwrap());
}
