//! Stops a load on a log at every one of its disk operations in every way; checks what is found
//! then, and that the log can be continued.

use disk::{Crash, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_replica::log::RaftLog;

use crate::support::CRASHES;
use crate::support::logs::{Model, append, members, open, step};

const FAULTS: [FaultKind; 4] = [
    FaultKind::PowerOff,
    FaultKind::Io,
    FaultKind::NoSpace,
    FaultKind::ShortWrite,
];
const SEGMENT: u64 = 3000;
const STEPS: usize = 50;

/// The states that were acknowledged, and those that may be found as well.
struct Played {
    acknowledged: Option<Model>,
    /// Every state since then for which a write was begun.
    attempted: Vec<Model>,
}

/// Goes on from `model` until a final error.
fn play(log: &mut RaftLog, mut model: Model, seed: u64) -> Played {
    let mut rng = Rng::with_seed(seed);
    let mut played = Played {
        acknowledged: Some(model.clone()),
        attempted: Vec::new(),
    };
    for _ in 0..STEPS {
        let stepped = step(log, &mut model, &mut rng);
        let synced = match stepped {
            Ok(()) if rng.bool() => continue_unsynced(&mut played, &model),
            Ok(()) => Some(log.sync()),
            Err(error) => Some(Err(error)),
        };
        let Some(synced) = synced else { continue };
        played.attempted.push(model.clone());
        let synced = match synced {
            Err(error) if error.may_retry() => log.sync(),
            other => other,
        };
        match synced {
            Ok(()) => {
                played.acknowledged = Some(model.clone());
                played.attempted.clear();
            }
            Err(error) if error.may_retry() => {}
            Err(_) => {
                let again = log.sync().expect_err("a log that failed has failed");
                assert!(!again.may_retry());
                break;
            }
        }
    }
    // A compaction or an installation may have been written behind the last sync.
    played.attempted.push(model);
    played
}

/// Continues with a step that syncs nothing; a compaction may have written what was added.
fn continue_unsynced(
    played: &mut Played,
    model: &Model,
) -> Option<Result<(), kumiki_replica::log::LogError>> {
    played.attempted.push(model.clone());
    None
}

fn found(log: &RaftLog, played: &Played) -> Result<Model, String> {
    let mut wrong = String::new();
    let models = || played.attempted.iter().chain(&played.acknowledged);
    // A compaction is written by itself, before what was added earlier.
    let compacted = models().flat_map(|model| {
        let floors = models().map(|other| other.floor);
        let above = floors.filter(|floor| (model.floor.0 + 1..=model.last()).contains(&floor.0));
        above.map(|floor| {
            let mut model = model.clone();
            model.entries.drain(..(floor.0 - model.floor.0) as usize);
            model.floor = floor;
            model
        })
    });
    for model in models().cloned().chain(compacted) {
        match model.compare(log) {
            Ok(()) => return Ok(model),
            Err(difference) => wrong = difference,
        }
    }
    Err(format!(
        "neither what was acknowledged nor what was attempted: {wrong}"
    ))
}

fn begin(disk: &FaultDisk) -> Option<RaftLog> {
    let mut log = open(disk, SEGMENT).ok()?;
    log.found(65_537, &members(&[65_537])).ok()?;
    Some(log)
}

fn fresh() -> Model {
    Model {
        conf: (0, members(&[65_537])),
        ..Model::default()
    }
}

fn case(alignment: usize, fault: Fault, crash: Crash, seed: u64) -> Result<(), String> {
    let disk = FaultDisk::with_alignment(alignment);
    disk.plan(fault);
    let Some(mut log) = begin(&disk) else {
        let log = open(&disk.crash(crash, seed), SEGMENT).map_err(|error| error.to_string())?;
        let sound = log.is_blank() || log.raft_id() == 65_537 && log.last() == 0;
        return sound
            .then_some(())
            .ok_or("something was founded".to_owned());
    };
    let played = play(&mut log, fresh(), seed);
    let disk = disk.crash(crash, seed);
    let log = open(&disk, SEGMENT).map_err(|error| format!("first: {error}"))?;
    let mut model = found(&log, &played).map_err(|error| format!("first: {error}"))?;

    // What was found is durable, and so is what is written next.
    let lost = open(&disk.crash(Crash::DropAll, seed), SEGMENT);
    let lost = lost.map_err(|error| format!("again: {error}"))?;
    model
        .compare(&lost)
        .map_err(|error| format!("again: {error}"))?;
    let mut log = log;
    append(&mut log, &mut model, &mut Rng::with_seed(seed));
    log.sync().map_err(|error| format!("next: {error}"))?;
    drop(log);
    let disk = disk.crash(Crash::DropAll, seed);
    let mut log = open(&disk, SEGMENT).map_err(|error| format!("next: {error}"))?;
    model
        .compare(&log)
        .map_err(|error| format!("next: {error}"))?;
    let floor = log.floor();
    if floor.0 < model.floor.0 {
        // Entries that had been compacted came back.
        let back: Vec<_> = (floor.0 + 1..=model.floor.0)
            .map(|index| log.entry(index).expect("no gap").clone())
            .collect();
        model.entries.splice(0..0, back);
        model.floor = floor;
    }

    let played = play(&mut log, model, seed + 1);
    let disk = disk.crash(crash, seed + 1);
    let log = open(&disk, SEGMENT).map_err(|error| format!("second: {error}"))?;
    found(&log, &played).map_err(|error| format!("second: {error}"))?;
    Ok(())
}

fn sweep(alignment: usize) {
    let disk = FaultDisk::with_alignment(alignment);
    let mut log = begin(&disk).expect("no fault is planned");
    play(&mut log, fresh(), 1);
    let operations = disk.count(OpKind::Change);
    assert!(
        operations > 60,
        "the load keeps the disk busy ({operations})"
    );
    let mut wrong = Vec::new();
    for nth in 0..=operations {
        for kind in FAULTS {
            for crash in CRASHES {
                for seed in [1, 1000 + nth] {
                    let fault = Fault {
                        on: OpKind::Change,
                        nth,
                        kind,
                    };
                    if let Err(error) = case(alignment, fault, crash, seed) {
                        wrong.push(format!(
                            "{kind:?} at {nth}, then {crash:?}, seed {seed}: {error}"
                        ));
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(5)]
    );
}

#[test]
fn what_was_synced_is_found_and_nothing_behind_what_was_lost() {
    sweep(1);
}

#[test]
fn the_same_on_a_device_that_writes_whole_units() {
    sweep(512);
}
