//! Random executions of read-atomic transactions: correct ones must be accepted, and planted faults
//! found.

use kumiki_history::check::{read_atomic, serializable, strictly_read_atomic};
use kumiki_history::{Anomaly, History, Verdict};

use crate::support::ramp::{Fault, Simulation};

#[track_caller]
fn accept(simulation: &Simulation) {
    let history = simulation.run();
    for verdict in [read_atomic(&history), strictly_read_atomic(&history)] {
        assert!(verdict.is_accepted(), "{simulation:?}: {verdict}");
    }
}

#[test]
fn two_rounds_are_accepted() {
    let mut differ = 0;
    for seed in 0..60 {
        let simulation = Simulation {
            seed,
            versions: seed % 2 == 0,
            ..Simulation::default()
        };
        accept(&simulation);
        let is_serializable = || serializable(&simulation.run()).is_accepted();
        differ += usize::from(simulation.versions && !is_serializable());
    }
    // Otherwise the histories would not show the difference of read atomicity alone.
    assert!(differ > 20, "{differ} of 30");
}

#[test]
fn deletes_are_accepted() {
    for seed in 0..60 {
        accept(&Simulation {
            seed,
            deletes: true,
            versions: seed % 3 == 0,
            ..Simulation::default()
        });
    }
}

#[test]
fn writers_that_go_away_are_accepted() {
    for seed in 0..60 {
        accept(&Simulation {
            seed,
            deletes: seed % 2 == 0,
            lose: 0.2,
            ..Simulation::default()
        });
    }
}

#[test]
fn many_clients_of_many_keys_are_accepted() {
    accept(&Simulation {
        clients: 40,
        keys: 60,
        transactions: 8000,
        deletes: true,
        lose: 0.01,
        ..Simulation::default()
    });
}

/// Returns how often of 20 a fault is caught, and by which names.
fn caught(fault: Fault, versions: bool, check: fn(&History) -> Verdict) -> (usize, Vec<Anomaly>) {
    let mut names = Vec::new();
    for seed in 0..20 {
        let simulation = Simulation {
            seed,
            fault,
            versions,
            ..Simulation::default()
        };
        names.extend(check(&simulation.run()).anomaly());
    }
    (names.len(), names)
}

#[test]
fn without_the_second_round_reads_are_fractured() {
    for versions in [false, true] {
        for check in [read_atomic, strictly_read_atomic] {
            let (count, names) = caught(Fault::OneRound, versions, check);
            assert_eq!(count, 20, "{names:?}");
            let fractured = |&name: &Anomaly| name == Anomaly::FracturedRead;
            assert!(names.iter().all(fractured), "{names:?}");
        }
    }
}

#[test]
fn the_second_round_is_missed_when_deletes_make_keys_absent() {
    let mut count = 0;
    for seed in 0..20 {
        let simulation = Simulation {
            seed,
            deletes: true,
            fault: Fault::OneRound,
            ..Simulation::default()
        };
        count += usize::from(!read_atomic(&simulation.run()).is_accepted());
    }
    assert_eq!(count, 20);
}

#[test]
fn reads_of_what_was_given_up_are_caught() {
    let (count, names) = caught(Fault::ShowsPrepared, false, read_atomic);
    assert_eq!(count, 20, "{names:?}");
    assert!(names.contains(&Anomaly::AbortedRead), "{names:?}");
}

#[test]
fn commits_that_are_forgotten_are_caught_by_time() {
    let (count, names) = caught(Fault::ForgetsCommits, false, strictly_read_atomic);
    assert_eq!(count, 20, "{names:?}");
    let late = |name: &Anomaly| matches!(name, Anomaly::StaleRead | Anomaly::LostWrite);
    assert!(names.iter().any(late), "{names:?}");
}

#[test]
fn old_reads_of_one_key_are_caught_by_time_alone() {
    let (count, names) = caught(Fault::OldReads, false, strictly_read_atomic);
    assert_eq!(count, 20, "{names:?}");
    let stale = |name: &Anomaly| matches!(name, Anomaly::StaleRead | Anomaly::LostWrite);
    assert!(names.iter().any(stale), "{names:?}");
    assert_eq!(caught(Fault::OldReads, false, read_atomic), (0, Vec::new()));
}

#[test]
fn updates_that_overwrite_what_they_did_not_see_are_caught() {
    let (count, names) = caught(Fault::BlindUpdates, false, strictly_read_atomic);
    assert!(count >= 15, "{names:?}");
    assert!(names.contains(&Anomaly::LostUpdate), "{names:?}");
}
