//! How far workers may run ahead of their loggers, which logger serves which workers, and where the
//! time goes.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use base::Epoch;
use base::affinity::{Affinity, LoggerPlace};
use base::epochs::EpochClock;
use disk::{Crash, Disk, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_journal::{Drive, EpochTime, Journal, Options, Recovered};
use testkit::eventually;

use crate::support::{DIR, TestClock, commit, judge, options, recover, shared, start};

/// Paper 2, algorithm 1: the worker waits while its epoch is `max_epoch_diff` or more ahead of its
/// logger's, which is one above what the logger has closed.
#[test]
fn a_worker_waits_while_it_is_too_far_ahead() {
    for diff in 1..4 {
        let disk = FaultDisk::new();
        let max_epoch_diff = NonZeroU64::new(diff);
        let run = start(
            &disk,
            Options {
                max_epoch_diff,
                epoch_time: EpochTime::Fixed(Duration::from_secs(1)),
                ..options(1)
            },
        );
        let mut rng = Rng::with_seed(diff);
        // No epoch is closed yet, so that the logger's epoch is the first.
        for ahead in 0..=diff {
            run.writers[0].wait_ready().unwrap();
            commit(&run.clock, &run.writers[0], 0, ahead, &mut rng).unwrap();
            run.clock.advance(run.clock.current());
        }
        let passed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                run.writers[0].wait_ready().unwrap();
                passed.store(true, SeqCst);
            });
            thread::sleep(Duration::from_millis(30));
            assert!(!passed.load(SeqCst), "{diff} epochs ahead, and it goes on");
            run.journal.cycle(0).unwrap();
        });
        assert!(passed.load(SeqCst));
        // Another worker that has logged nothing of late is not ahead.
        run.writers[1].wait_ready().unwrap();
    }
}

/// While workers wait, no other event wakes the loggers: they must continue by themselves.
#[test]
fn waiting_workers_do_not_stop_their_logger() {
    for (loggers, diff) in [(1, 1), (2, 2), (3, 1)] {
        let disk = FaultDisk::new();
        let run = start(
            &disk,
            Options {
                drive: Drive::Threads,
                epoch_time: EpochTime::Fixed(Duration::from_micros(500)),
                max_epoch_diff: NonZeroU64::new(diff),
                ..options(loggers)
            },
        );
        let deadline = Instant::now() + Duration::from_secs(60);
        thread::scope(|scope| {
            for (worker, writer) in run.writers.iter().enumerate() {
                let clock = &run.clock;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(worker as u64);
                    for i in 0..300 {
                        assert!(Instant::now() < deadline, "worker {worker} waits for ever");
                        writer.wait_ready().unwrap();
                        commit(clock, writer, worker, worker as u64 * 1000 + i, &mut rng).unwrap();
                    }
                });
            }
        });
        run.journal.close().unwrap();
    }
}

/// With fixed epochs all logs close an epoch when it ends, not one of them and the others an epoch
/// later: a caller that waits does so for about one interval.
#[test]
fn loggers_that_wake_at_once_close_the_same_epoch() {
    // A busy machine may not let any thread run in time.
    let waits = (0..20).map(|_| waits());
    let mut last = Vec::new();
    for waits in waits {
        if waits[10] < INTERVAL * 3 / 2 {
            return;
        }
        last = waits;
    }
    panic!("{last:?}");
}

const INTERVAL: Duration = Duration::from_millis(30);

/// Returns the times that a client waits, the shortest first.
fn waits() -> Vec<Duration> {
    let disk = FaultDisk::new();
    let run = start(
        &disk,
        Options {
            drive: Drive::Threads,
            epoch_time: EpochTime::Fixed(INTERVAL),
            ..options(3)
        },
    );
    let mut rng = Rng::with_seed(8);
    let mut waits: Vec<_> = (0..21)
        .map(|id| {
            let began = Instant::now();
            let one = commit(&run.clock, &run.writers[0], 0, id, &mut rng).unwrap();
            run.journal.wait(one.tid.epoch()).unwrap();
            began.elapsed()
        })
        .collect();
    waits.sort_unstable();
    run.journal.close().unwrap();
    waits
}

/// A clock whose epochs are requested as soon as they begin, as many busy workers do.
struct BusyClock {
    clock: Arc<TestClock>,
    journal: OnceLock<Weak<Journal>>,
}

impl EpochClock for BusyClock {
    fn current(&self) -> Epoch {
        self.clock.current()
    }

    fn advance(&self, from: Epoch) -> Epoch {
        let current = self.clock.advance(from);
        if let Some(journal) = self.journal.get().and_then(Weak::upgrade) {
            journal.request(current);
        }
        current
    }

    fn finished(&self) -> Epoch {
        self.clock.finished()
    }

    fn stamp_ms(&self, epoch: Epoch) -> u64 {
        self.clock.stamp_ms(epoch)
    }
}

/// The same under load: the next epoch is requested before the other loggers have looked.
#[test]
fn loggers_close_an_epoch_that_is_over_also_when_the_next_one_is_requested() {
    let disk = FaultDisk::new();
    let recovered = Recovered::default();
    let options = Options {
        drive: Drive::Threads,
        // One epoch ends at the start, and no other one within this test.
        epoch_time: EpochTime::Fixed(Duration::from_secs(3600)),
        ..options(3)
    };
    let test_clock = TestClock::new(recovered.newest.next(), options.workers);
    let clock = Arc::new(BusyClock {
        clock: Arc::clone(&test_clock),
        journal: OnceLock::new(),
    });
    let shared_clock: Arc<dyn EpochClock> = Arc::clone(&clock) as _;
    let dir = Path::new(DIR);
    let journal = Journal::start(shared(&disk), dir, options, shared_clock, &recovered).unwrap();
    let journal = Arc::new(journal);
    clock.journal.set(Arc::downgrade(&journal)).unwrap();
    let writers = [0, 1, 2].map(|worker| journal.writer(worker));
    let mut rng = Rng::with_seed(9);
    let mut epoch = Epoch::ZERO;
    for (worker, writer) in writers.iter().enumerate() {
        let one = commit(&test_clock, writer, worker, worker as u64, &mut rng).unwrap();
        epoch = one.tid.epoch();
    }
    journal.request(epoch);
    eventually("all loggers close the epoch", || journal.durable() >= epoch);
    journal.close().unwrap();
}

/// Writes for which no caller waits become durable, also when their own log has closed their epoch
/// at once and another log has nothing to do.
#[test]
fn what_one_log_has_closed_is_flushed_in_all() {
    let disk = FaultDisk::new();
    let run = start(
        &disk,
        Options {
            drive: Drive::Threads,
            idle_flush: Duration::from_millis(5),
            ..options(2)
        },
    );
    for round in 0..20 {
        run.clock.enter(0);
        let epoch = run.clock.current();
        // Larger than a buffer: the logger writes it at once.
        let value = vec![1; 2000];
        let tid = base::Tid::new(epoch, 1);
        let appended = run.writers[0].append(tid, 1, 2000, |to| {
            to.put(b"key", &value, base::transaction::Kind::String, 1, None);
        });
        run.clock.leave(0);
        appended.unwrap();
        eventually(&format!("round {round} is durable"), || {
            run.journal.durable() >= epoch
        });
    }
    run.journal.close().unwrap();
}

/// A failure reaches callers that wait for their logger.
#[test]
fn a_failure_ends_the_wait_for_a_logger() {
    let disk = FaultDisk::new();
    let run = start(
        &disk,
        Options {
            max_epoch_diff: NonZeroU64::new(1),
            epoch_time: EpochTime::Fixed(Duration::from_secs(1)),
            ..options(1)
        },
    );
    let mut rng = Rng::with_seed(5);
    for id in 0..2 {
        commit(&run.clock, &run.writers[0], 0, id, &mut rng).unwrap();
        run.clock.advance(run.clock.current());
    }
    disk.plan(Fault {
        on: OpKind::Sync,
        nth: disk.count(OpKind::Sync),
        kind: FaultKind::Io,
    });
    thread::scope(|scope| {
        let waiting = scope.spawn(|| run.writers[0].wait_ready());
        thread::sleep(Duration::from_millis(10));
        let failed = run.journal.cycle(0).unwrap_err();
        assert_eq!(waiting.join().unwrap(), Err(failed));
    });
}

/// Workers that an affinity names are served by its loggers, the others in turn.
#[test]
fn an_affinity_assigns_workers_to_loggers() {
    let disk = FaultDisk::new();
    let place = |workers: &[usize]| LoggerPlace {
        cpu: 0,
        workers: workers.to_vec(),
    };
    let affinity = Affinity {
        loggers: vec![place(&[0]), place(&[0, 0])],
    };
    let mut run = start(
        &disk,
        Options {
            affinity: Some(affinity),
            ..options(2)
        },
    );
    let mut rng = Rng::with_seed(3);
    let size = |log: &str| {
        let path = Path::new(DIR).join(log).join("00000000.log");
        let file = (&disk as &dyn Disk).open(&path, disk::Access::Read);
        file.unwrap().size().unwrap()
    };
    for (worker, logger) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
        let before = [size("log0"), size("log1")];
        let id = worker as u64;
        let one = commit(&run.clock, &run.writers[worker], worker, id, &mut rng).unwrap();
        run.logged.push(one);
        // Without a request the other logger has nothing to write.
        run.journal.cycle(0).unwrap();
        run.journal.cycle(1).unwrap();
        let grown = [size("log0") - before[0], size("log1") - before[1]];
        assert!(grown[logger] > 64, "worker {worker}: {grown:?}");
        assert!(grown[1 - logger] <= 64, "worker {worker}: {grown:?}");
    }
    run.journal.close().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk.crash(Crash::DropAll, 0));
    let found = recover(&disk).unwrap();
    judge(&found, &run.logged, run.acknowledged()).unwrap();
}

/// The parts of the latency add up to the time that clients saw, measured or estimated.
#[test]
fn the_parts_of_the_latency_are_the_whole() {
    for measure_latency in [false, true] {
        let disk = FaultDisk::new();
        let run = start(
            &disk,
            Options {
                measure_latency,
                log_buffer_size: 64 * 1024,
                ..options(2)
            },
        );
        let mut rng = Rng::with_seed(9);
        let first = Instant::now();
        commit(&run.clock, &run.writers[0], 0, 0, &mut rng).unwrap();
        thread::sleep(Duration::from_millis(20));
        let epoch = run.clock.current();
        run.journal.request(epoch);
        run.journal.cycle(0).unwrap();
        thread::sleep(Duration::from_millis(10));
        assert_eq!(
            run.journal.stats().latency.transactions,
            0,
            "not durable yet"
        );
        run.journal.cycle(1).unwrap();
        let whole = first.elapsed();
        let latency = run.journal.stats().latency;
        assert_eq!(latency.transactions, 1);
        assert!(latency.buffer >= Duration::from_millis(20), "{latency:?}");
        assert!(
            latency.notification >= Duration::from_millis(10),
            "{latency:?}"
        );
        let mean = latency.mean().unwrap();
        assert!(
            mean >= Duration::from_millis(30) && mean <= whole,
            "{latency:?}"
        );
    }
}
