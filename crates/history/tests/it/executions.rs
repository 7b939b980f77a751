//! Random executions: of serial stores, whose histories must be accepted, and of stores with a
//! planted fault, which must be found.
//!
//! Everything runs in one thread on a simulated clock, so that a seed is a schedule.

use kumiki_history::check::{
    read_atomic, serializable, strictly_read_atomic, strictly_serializable,
};
use kumiki_history::{Anomaly, History, HistoryOp, Key, Outcome, Value, json};

use crate::support::simulation::{Fault, Simulation};

#[track_caller]
fn accept(simulation: &Simulation) {
    let history = simulation.run();
    for verdict in [
        strictly_serializable(&history),
        serializable(&history),
        read_atomic(&history),
        strictly_read_atomic(&history),
    ] {
        assert!(verdict.is_accepted(), "{simulation:?}: {verdict}");
    }
}

#[test]
fn serial_executions_are_accepted() {
    for seed in 0..60 {
        accept(&Simulation {
            seed,
            ..Simulation::default()
        });
    }
}

#[test]
fn long_preempted_clients_are_accepted() {
    // A client that sleeps between its commit and its answer overlaps with many lives of a key.
    for seed in 0..60 {
        accept(&Simulation {
            seed,
            processes: 6,
            keys: 3,
            stall: 200,
            ..Simulation::default()
        });
    }
}

#[test]
fn mostly_deletes_are_accepted() {
    for seed in 0..40 {
        let weights = (1, 1, 1, 6, 3, 0);
        let base = Simulation {
            seed,
            weights,
            ..Simulation::default()
        };
        accept(&Simulation {
            processes: 5,
            keys: 2,
            stall: 60,
            ..base
        });
    }
}

#[test]
fn blind_writes_are_accepted() {
    for seed in 0..40 {
        let weights = (3, 4, 3, 3, 3, 4);
        accept(&Simulation {
            seed,
            weights,
            processes: 3,
            ..Simulation::default()
        });
    }
}

#[test]
fn lost_connections_are_accepted() {
    for seed in 0..40 {
        accept(&Simulation {
            seed,
            lose: 0.03,
            abort: 0.1,
            ..Simulation::default()
        });
    }
}

#[test]
fn a_history_survives_its_text() {
    let history = Simulation {
        lose: 0.05,
        abort: 0.05,
        ..Simulation::default()
    }
    .run();
    let mut text = Vec::new();
    json::write(&history, &mut text).unwrap();
    assert_eq!(json::read(&text[..]).unwrap(), history);
}

/// Runs a faulty store with many seeds; returns how often it was caught, and by which names.
fn caught(fault: Fault, check: fn(&History) -> kumiki_history::Verdict) -> (usize, Vec<Anomaly>) {
    let mut names = Vec::new();
    let mut count = 0;
    for seed in 0..20 {
        let history = Simulation {
            seed,
            fault,
            transactions: 400,
            ..Simulation::default()
        }
        .run();
        if let Some(anomaly) = check(&history).anomaly() {
            count += 1;
            names.push(anomaly);
        }
    }
    (count, names)
}

#[test]
fn snapshot_isolation_is_caught_at_write_skew() {
    let (count, names) = caught(Fault::SnapshotIsolation, serializable);
    assert_eq!(count, 20, "{names:?}");
    assert!(
        names.contains(&Anomaly::WriteSkew) || names.contains(&Anomaly::Phantom),
        "{names:?}"
    );
    assert!(
        !names.contains(&Anomaly::LostUpdate),
        "it prevents lost updates: {names:?}"
    );
    // The same history is read atomic.
    assert_eq!(
        caught(Fault::SnapshotIsolation, read_atomic),
        (0, Vec::new())
    );
}

#[test]
fn reads_without_validation_are_caught() {
    let (count, names) = caught(Fault::ReadCommitted, serializable);
    assert_eq!(count, 20, "{names:?}");
    assert!(names.contains(&Anomaly::LostUpdate), "{names:?}");
    let (count, names) = caught(Fault::ReadCommitted, read_atomic);
    assert!(count >= 15, "{names:?}");
    assert!(names.contains(&Anomaly::FracturedRead), "{names:?}");
}

#[test]
fn reads_of_uncommitted_writes_are_caught() {
    let (count, names) = caught(Fault::ReadUncommitted, serializable);
    assert_eq!(count, 20, "{names:?}");
    assert!(names.contains(&Anomaly::AbortedRead), "{names:?}");
}

#[test]
fn scans_without_validation_are_caught() {
    let (count, names) = caught(Fault::UnprotectedScans, serializable);
    assert!(count >= 4, "{count} {names:?}");
    assert!(names.contains(&Anomaly::Phantom), "{names:?}");
}

#[test]
fn stale_snapshots_are_caught_by_real_time_alone() {
    let (count, names) = caught(Fault::StaleReaders, strictly_serializable);
    assert_eq!(count, 20, "{names:?}");
    assert!(
        names.iter().all(|&name| name == Anomaly::RealTimeViolation),
        "{names:?}"
    );
    assert_eq!(caught(Fault::StaleReaders, serializable), (0, Vec::new()));
}

/// Changes one read of a transaction.
fn mutate(history: &mut History, rng: &mut fastrand::Rng) -> bool {
    let values: Vec<(Key, Value)> = history
        .transactions
        .iter()
        .filter(|transaction| transaction.outcome == Outcome::Committed)
        .flat_map(|transaction| &transaction.ops)
        .filter_map(|op| match op {
            HistoryOp::Write { key, value, .. } => Some((*key, *value)),
            HistoryOp::Read { .. } | HistoryOp::Delete { .. } | HistoryOp::Scan { .. } => None,
        })
        .collect();
    let index = rng.usize(..history.transactions.len());
    let ops = &mut history.transactions[index].ops;
    if ops.is_empty() {
        return false;
    }
    let index = rng.usize(..ops.len());
    match &mut ops[index] {
        HistoryOp::Read { key, value, .. } => {
            let others: Vec<Value> = values
                .iter()
                .filter(|other| other.0 == *key)
                .map(|other| other.1)
                .collect();
            let before = *value;
            *value = rng.choice(others).filter(|_| rng.u8(..4) > 0);
            *value != before
        }
        HistoryOp::Scan { found, .. } if !found.is_empty() => {
            found.remove(rng.usize(..found.len()));
            true
        }
        HistoryOp::Scan { .. } | HistoryOp::Write { .. } | HistoryOp::Delete { .. } => false,
    }
}

#[test]
fn changed_histories_are_rejected() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut changed, mut rejected) = (0, 0);
    for seed in 0..200 {
        let mut history = Simulation {
            seed,
            transactions: 150,
            ..Simulation::default()
        }
        .run();
        if mutate(&mut history, &mut rng) {
            changed += 1;
            rejected += usize::from(!strictly_serializable(&history).is_accepted());
        }
    }
    // Some changes have an explanation too: another absence, a read that nothing depends on.
    assert!(changed > 80, "{changed}");
    assert!(rejected * 100 >= changed * 90, "{rejected} of {changed}");
}
