//! Proxies in virtual time, from 600 seeds; `cargo xtask sim` runs any number.

#![cfg(feature = "simulation")]

use ::simulation::Coverage;
use base::planted::{self, Bug};
use kumiki_locks::simulation::{self, CoveragePoint, Run};

const SEEDS: u64 = 600;

/// A planted bug must be found within this many seeds.
const PLANTED_SEEDS: u64 = 400;

fn is_planted() -> bool {
    planted::is(Bug::TrustedWallClock)
        || planted::is(Bug::ForgottenToken)
        || planted::is(Bug::ForgottenGrace)
}

fn first_failure(seeds: u64) -> Option<Run> {
    let mut runs = (0..seeds).map(|seed| simulation::run(seed, false));
    runs.find(|run| run.failure.is_some())
}

#[test]
fn proxies_keep_their_promises_and_meet_what_is_worth_meeting() {
    if is_planted() {
        let found = first_failure(PLANTED_SEEDS);
        assert!(found.is_some(), "the planted bug was not found");
        return;
    }
    let mut reached = Coverage::default();
    for seed in 0..SEEDS {
        let run = simulation::run(seed, false);
        assert_eq!(run.failure, None, "seed {seed}");
        reached.count(&run.reached);
    }
    let missed: Vec<CoveragePoint> = reached.rarer_than(1).collect();
    assert_eq!(missed, [], "no seed has met this:\n{reached}");
    // The most important points must be reached more than once.
    for point in [
        CoveragePoint::Waited,
        CoveragePoint::Takeover,
        CoveragePoint::Expired,
        CoveragePoint::Tombstone,
        CoveragePoint::Found,
        CoveragePoint::Repeated,
        CoveragePoint::Uncertain,
        CoveragePoint::Overtaken,
        CoveragePoint::EraLost,
        CoveragePoint::Swept,
        CoveragePoint::Late,
        CoveragePoint::Killed,
        CoveragePoint::Rebooted,
        CoveragePoint::Paused,
        CoveragePoint::Settling,
    ] {
        assert!(reached.times(point) >= 10, "{point:?}:\n{reached}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..30 {
        let (first, second) = (simulation::run(seed, true), simulation::run(seed, false));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.reached, second.reached);
        assert!(first.trace.len() > 50 && second.trace.is_empty());
    }
    assert_ne!(
        simulation::run(1, false).hash,
        simulation::run(2, false).hash
    );
}
