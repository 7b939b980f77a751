//! A small store with a journal and checkpoints, stopped at every one of its disk operations in
//! every way, and recovered; then continued, stopped and recovered again. The recovered state is
//! that of an oracle: exactly the transactions up to the recovered epoch.

use disk::{Crash, Fault, FaultDisk, OpKind};
use fastrand::Rng;
use kumiki_journal::{Options, Recovered};

use crate::support::small::{Did, Left, Store, judge, options, play, recover};
use crate::support::{CRASHES, FAULTS};

/// Runs one case: a load that meets `fault`, a crash, a recovery; and once more with other options.
fn case(
    (first, second): (&Options, &Options),
    alignment: usize,
    fault: Fault,
    crash: Crash,
    seed: u64,
) -> Result<Left, String> {
    let at = |when: &'static str| move |error: String| format!("{when}: {error}");
    let disk = FaultDisk::with_alignment(alignment);
    disk.plan(fault);
    let one = play(&disk, first, &Recovered::default(), Vec::new(), seed);
    let disk = disk.crash(crash, seed);
    let found = recover(&disk);
    let (recovered, history) =
        judge(&found, &one.history, one.acknowledged).map_err(at("first"))?;
    // The recovered data is durable: it survives another crash at once.
    let again = recover(&disk.crash(Crash::DropAll, seed));
    judge(&again, &history, recovered.durable).map_err(at("again"))?;
    let two = play(&disk, second, &recovered, history, seed + 1);
    let found = recover(&disk.crash(crash, seed + 1));
    judge(&found, &two.history, two.acknowledged).map_err(at("second"))?;
    if two.made == 0 {
        return Err("second: no checkpoint was made".to_owned());
    }
    Ok(one)
}

fn assert_sweep(first: &Options, second: &Options, alignment: usize) {
    let disk = FaultDisk::with_alignment(alignment);
    let whole = play(&disk, first, &Recovered::default(), Vec::new(), 1);
    let operations = disk.count(OpKind::Change);
    assert!(
        operations > 80 && whole.made == 4,
        "{operations} operations"
    );
    let (mut wrong, mut survived) = (Vec::new(), 0);
    for nth in 0..=operations {
        for kind in FAULTS {
            // Half of the crashes for each fault; the next operation has the other half.
            for crash in CRASHES.into_iter().skip(nth as usize % 2).step_by(2) {
                let seed = if nth % 4 < 2 { 1 } else { nth };
                let on = OpKind::Change;
                let fault = Fault { on, nth, kind };
                match case((first, second), alignment, fault, crash, seed) {
                    Ok(left) => survived += left.failed,
                    Err(error) => wrong.push(format!(
                        "{kind:?} at {nth}, then {crash:?}, seed {seed}: {error}"
                    )),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases went wrong, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(5)]
    );
    assert!(
        survived > 100,
        "{survived} failures were the checkpoint's alone"
    );
}

#[test]
fn one_logger() {
    assert_sweep(&options(1), &options(1), 1);
}

#[test]
fn two_loggers_then_one() {
    assert_sweep(&options(2), &options(1), 1);
}

#[test]
fn whole_sectors_and_files_written_before() {
    let first = Options {
        warm_up: true,
        preallocate: 2048,
        ..options(1)
    };
    assert_sweep(&first, &options(2), 512);
}

#[test]
fn one_logger_then_three_with_more_space() {
    let second = Options {
        preallocate: 4096,
        ..options(3)
    };
    assert_sweep(&options(1), &second, 1);
}

/// A put waits in a buffer while its deletion is written by another logger. Then that segment is
/// removed by a checkpoint, and the put is written to one that stays.
#[test]
fn a_deletion_in_a_removed_segment_stays_done() {
    let disk = FaultDisk::new();
    let mut store = Store::new(&disk, options(2));
    let mut rng = Rng::with_seed(1);
    store.log(0, Did::Put(1, 10, 0));
    store.log(0, Did::Put(2, 20, 0));
    store.log(1, Did::Delete(1));
    store.journal.cycle(1).unwrap();
    store.quiet_checkpoint(&mut rng);
    assert_eq!(store.segments(1), ["00000001.log"]);
    let acknowledged = store.journal.durable();
    let found = recover(&disk.crash(Crash::KillProcess, 0));
    judge(&found, &store.history, acknowledged).unwrap();
    let (recovered, state) = found.unwrap();
    assert_eq!(state.keys.keys().collect::<Vec<_>>(), [&2]);
    assert_eq!(recovered.checkpoint.unwrap().entries, 1);
}
