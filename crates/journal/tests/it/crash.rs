//! A scripted load, stopped at every one of its disk operations in every way, and recovered; then
//! continued, stopped and recovered again.

use base::Epoch;
use base::planted::{self, Bug};
use disk::{Crash, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_journal::{Options, Recovered};

use crate::support::{CRASHES, FAULTS, Found, Logged, Run, judge, options, recover, shared};

const STEPS: usize = 80;

/// Starts on `disk` and plays. Returns all logged transactions, and those that were acknowledged.
fn play(
    disk: &FaultDisk,
    options: &Options,
    found: Option<&Found>,
    seed: u64,
) -> (Vec<Logged>, Epoch) {
    let fresh = Recovered::default();
    let recovered = found.map_or(&fresh, |found| &found.recovered);
    let before = found
        .map(|found| found.transactions.values().copied())
        .into_iter()
        .flatten();
    let mut logged: Vec<Logged> = before.collect();
    let first_id = 1 + logged.last().map_or(0, |last| last.id);
    let Some(mut run) = Run::start(disk, options.clone(), recovered) else {
        return (logged, recovered.durable);
    };
    run.play(options.loggers, STEPS, first_id, &mut Rng::with_seed(seed));
    let acknowledged = run.acknowledged();
    logged.extend(&run.logged);
    // The process is gone: dropping the journal must not tidy up after the crash.
    let off = Fault {
        on: OpKind::Change,
        nth: disk.count(OpKind::Change),
        kind: FaultKind::PowerOff,
    };
    disk.plan(off);
    (logged, acknowledged)
}

/// Runs one case: a load that meets `fault`, a crash, a recovery; and once more with other options.
fn case(
    (first, second): (&Options, &Options),
    alignment: usize,
    fault: Fault,
    crash: Crash,
    seed: u64,
) -> Result<(), String> {
    let disk = FaultDisk::with_alignment(alignment);
    disk.plan(fault);
    let (logged, acknowledged) = play(&disk, first, None, seed);
    let disk = disk.crash(crash, seed);
    let found = recover(&shared(&disk)).map_err(|error| format!("first: {error}"))?;
    judge(&found, &logged, acknowledged).map_err(|error| format!("first: {error}"))?;

    // The recovered data is durable: it survives another crash at once.
    let survivors: Vec<Logged> = found.transactions.values().copied().collect();
    let again = recover(&shared(&disk.crash(Crash::DropAll, seed)));
    let again = again.map_err(|error| format!("again: {error}"))?;
    judge(&again, &survivors, found.recovered.durable)
        .map_err(|error| format!("again: {error}"))?;
    if !again.recovered.cuts.is_empty() {
        return Err(format!("again: {:?} was cut before", again.recovered.cuts));
    }

    let (logged, acknowledged) = play(&disk, second, Some(&found), seed + 1);
    let disk = disk.crash(crash, seed + 1);
    let found = recover(&shared(&disk)).map_err(|error| format!("second: {error}"))?;
    judge(&found, &logged, acknowledged).map_err(|error| format!("second: {error}"))
}

/// Runs every operation of the load, failing in every way, before every kind of crash. Returns the
/// errors.
fn sweep(first: &Options, second: &Options, alignment: usize) -> Vec<String> {
    let disk = FaultDisk::with_alignment(alignment);
    play(&disk, first, None, 1);
    let operations = disk.count(OpKind::Change);
    assert!(
        operations > 30,
        "the load keeps the disk busy ({operations})"
    );
    let mut wrong = Vec::new();
    for nth in 0..=operations {
        for kind in FAULTS {
            for crash in CRASHES {
                // Different values of `nth` also see different loads; nth 0 … n of one load would
                // see the same few interleavings again and again.
                let seed = if nth % 2 == 0 { 1 } else { nth };
                let fault = Fault {
                    on: OpKind::Change,
                    nth,
                    kind,
                };
                if let Err(error) = case((first, second), alignment, fault, crash, seed) {
                    wrong.push(format!(
                        "{kind:?} at {nth}, then {crash:?}, seed {seed}: {error}"
                    ));
                }
            }
        }
    }
    wrong
}

fn assert_sweep(first: &Options, second: &Options) {
    assert_sweep_aligned(first, second, 1);
}

fn assert_sweep_aligned(first: &Options, second: &Options, alignment: usize) {
    let wrong = sweep(first, second, alignment);
    if planted::is(Bug::EarlyReply) {
        let lost = wrong
            .iter()
            .filter(|line| line.contains("acknowledged up to"))
            .count();
        assert!(lost > 0, "the planted bug went unnoticed");
        return;
    }
    assert!(
        wrong.is_empty(),
        "{} cases went wrong, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(5)]
    );
}

#[test]
fn one_logger() {
    assert_sweep(&options(1), &options(1));
}

#[test]
fn one_logger_with_space_set_aside() {
    let first = Options {
        preallocate: 2000,
        segment_size: 1500,
        ..options(1)
    };
    assert_sweep(
        &first,
        &Options {
            preallocate: 2000,
            ..options(2)
        },
    );
}

/// The device writes whole sectors.
#[test]
fn one_logger_then_two_on_a_device_of_sectors() {
    let first = Options {
        preallocate: 5000,
        segment_size: 20_000,
        ..options(1)
    };
    let second = Options {
        segment_size: 12_000,
        ..options(2)
    };
    assert_sweep_aligned(&first, &second, 4096);
}

/// Segments are written before they are used.
#[test]
fn one_logger_then_two_with_warm_up() {
    let first = Options {
        warm_up: true,
        segment_size: 1500,
        preallocate: 500,
        ..options(1)
    };
    let second = Options {
        loggers: 2,
        ..first.clone()
    };
    assert_sweep(&first, &second);
}

#[test]
fn two_loggers_with_warm_up_on_a_device_of_sectors() {
    let first = Options {
        warm_up: true,
        segment_size: 10_000,
        preallocate: 5000,
        ..options(2)
    };
    assert_sweep_aligned(&first, &options(1), 512);
}

#[test]
fn two_loggers_then_one() {
    assert_sweep(&options(2), &options(1));
}

#[test]
fn three_loggers_then_two_with_more_space() {
    let second = Options {
        preallocate: 4096,
        ..options(2)
    };
    assert_sweep(
        &Options {
            segment_size: 1000,
            ..options(3)
        },
        &second,
    );
}

/// With the planted bug the sweep above has something to find; the tests here have nothing to
/// prove.
mod dying {
    use super::*;

    /// A recovery that fails or dies at any of its operations leaves the files that the next one
    /// needs.
    #[test]
    fn recovery_itself_may_die() {
        if planted::is(Bug::EarlyReply) {
            return;
        }
        for (loggers, crash, seed) in [
            (1, Crash::KeepSectors, 3),
            (2, Crash::KeepPrefix, 4),
            (3, Crash::KillProcess, 5),
        ] {
            let disk = FaultDisk::new();
            let (logged, acknowledged) = play(&disk, &options(loggers), None, seed);
            let disk = disk.crash(crash, seed);
            let probe = disk.crash(Crash::KillProcess, 0);
            let found = recover(&shared(&probe)).unwrap();
            let counts = [
                (OpKind::Change, probe.count(OpKind::Change)),
                (OpKind::Read, probe.count(OpKind::Read)),
            ];
            for (on, count) in counts {
                assert!(count > 3, "recovery has operations to fail");
                for nth in 0..count {
                    for kind in [FaultKind::PowerOff, FaultKind::Io] {
                        let disk = disk.crash(Crash::KillProcess, 0);
                        disk.plan(Fault { on, nth, kind });
                        let error = recover(&shared(&disk)).expect_err("the failure is reported");
                        assert!(error.to_string().contains("/data/log"), "{error}");
                        let again = recover(&shared(&disk.crash(crash, nth))).unwrap();
                        if crash == Crash::KillProcess {
                            assert_eq!(again.transactions, found.transactions);
                        } else {
                            judge(&again, &logged, acknowledged).unwrap();
                        }
                    }
                }
            }
        }
    }

    /// A start that fails or dies at any of its operations changes nothing.
    #[test]
    fn a_start_may_die() {
        if planted::is(Bug::EarlyReply) {
            return;
        }
        let disk = FaultDisk::new();
        let (logged, acknowledged) = play(&disk, &options(2), None, 9);
        let disk = disk.crash(Crash::KeepPrefix, 9);
        let found = recover(&shared(&disk)).unwrap();
        judge(&found, &logged, acknowledged).unwrap();
        let survivors: Vec<Logged> = found.transactions.values().copied().collect();
        let start = disk.count(OpKind::Change);
        for nth in start.. {
            let mut reached = false;
            for (kind, crash) in FAULTS
                .into_iter()
                .flat_map(|kind| CRASHES.map(|crash| (kind, crash)))
            {
                let disk = disk.crash(Crash::KillProcess, 0);
                disk.plan(Fault {
                    on: OpKind::Change,
                    nth: nth - start,
                    kind,
                });
                reached |= Run::start(&disk, options(3), &found.recovered).is_none();
                let disk = disk.crash(crash, nth);
                let again = recover(&shared(&disk)).unwrap();
                judge(&again, &survivors, found.recovered.durable).unwrap();
                let (logged, acknowledged) = play(&disk, &options(1), Some(&again), nth);
                judge(
                    &recover(&shared(&disk.crash(crash, nth))).unwrap(),
                    &logged,
                    acknowledged,
                )
                .unwrap();
            }
            if !reached {
                assert!(nth - start > 8, "a start has operations to fail");
                return;
            }
        }
    }
}
