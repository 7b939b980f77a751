//! Whole clusters in virtual time, from 300 seeds; `cargo xtask sim` runs any number.

#![cfg(feature = "simulation")]

use ::simulation::Coverage;
use base::planted::{self, Bug};
use kumiki_cluster::simulation::{self, Point, Run, Scenario};

const SEEDS: u64 = 300;

/// A planted bug must be found within this many seeds.
const PLANTED_SEEDS: u64 = 400;

/// Returns the scenario in which the planted bug shows, if there is one.
fn planted() -> Option<Scenario> {
    if planted::is(Bug::OneRound) || planted::is(Bug::EarlyCommit) {
        Some(Scenario::Ramp)
    } else if planted::is(Bug::EarlyDecision) || planted::is(Bug::IgnoredHolds) {
        Some(Scenario::TwoPhaseCommit)
    } else {
        None
    }
}

fn failed(scenario: Scenario, seeds: u64) -> Option<Run> {
    let runs = (0..seeds).map(|seed| simulation::run(scenario, seed, false));
    runs.into_iter().find(|run| run.failure.is_some())
}

/// Runs all seeds, and checks that each of these points is reached often, and each other one at all.
fn run_all(scenario: Scenario, often: &[Point]) {
    if let Some(of) = planted() {
        let is_found = of != scenario || failed(scenario, PLANTED_SEEDS).is_some();
        assert!(is_found, "the planted bug was not found");
        return;
    }
    let mut reached = Coverage::default();
    for seed in 0..SEEDS {
        let run = simulation::run(scenario, seed, false);
        assert_eq!(run.failure, None, "seed {seed}");
        reached.count(&run.reached);
    }
    let missed = reached.rarer_than(1);
    let missed: Vec<Point> = missed.filter(|point| scenario.has(*point)).collect();
    assert_eq!(missed, [], "no seed has met this:\n{reached}");
    // The most important points must be reached more than once.
    for point in often {
        assert!(reached.times(*point) >= 10, "{point:?}:\n{reached}");
    }
}

#[test]
fn clusters_keep_their_promises_and_meet_what_is_worth_meeting() {
    let often = [
        Point::CoordinatorCrash,
        Point::ParticipantCrash,
        Point::RestoredPrepared,
        Point::HomeCommitted,
        Point::HomeAborted,
        Point::Abandoned,
        Point::Died,
        Point::Waited,
        Point::Refused,
        Point::HeldOcc,
        Point::Elected,
        Point::TookOver,
        Point::Kept,
        Point::Lost,
        Point::LostAnswer,
        Point::Redirected,
        Point::Stale,
    ];
    run_all(Scenario::TwoPhaseCommit, &often);
}

#[test]
fn read_atomic_keys_keep_their_promises_too() {
    let often = [
        Point::CoordinatorCrash,
        Point::ParticipantCrash,
        Point::RestoredPrepared,
        Point::HomeCommitted,
        Point::HomeAborted,
        Point::TookOver,
        Point::Kept,
        Point::Lost,
        Point::RampWrite,
        Point::SecondRound,
        Point::RampOvertaken,
        Point::CommitWaited,
        Point::ClientWrite,
        Point::ClientGone,
    ];
    run_all(Scenario::Ramp, &often);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for scenario in [Scenario::TwoPhaseCommit, Scenario::Ramp] {
        let run = |seed, keep_trace| simulation::run(scenario, seed, keep_trace);
        for seed in 0..30 {
            let (first, second) = (run(seed, true), run(seed, false));
            assert_eq!(first.hash, second.hash, "seed {seed}");
            assert_eq!(first.counts, second.counts);
            assert!(first.trace.len() > 50 && second.trace.is_empty());
        }
        assert_ne!(run(1, false).hash, run(2, false).hash);
    }
}
