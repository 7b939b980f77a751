//! The experiments on clusters of server processes, without a program whose processes could be
//! started: they are skipped with a message. Tests of the program have it, and run them.

use bench::result::PointResult;
use bench::runner::Options;
use bench::table;
use bench::target::TargetJob;

use crate::support::{experiment, options, run};

/// Returns `true` for copies of values, which need no servers.
fn is_copy(point: &PointResult) -> bool {
    matches!(point.job, TargetJob::Copy(_))
}

#[test]
fn what_needs_servers_is_skipped_without_a_program() {
    for name in [
        "ramp-transport",
        "ramp-size",
        "ramp-reads",
        "ramp-ycsb",
        "ramp-writes",
        "ramp-idle",
        "ramp-mget",
        "ramp-scale",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let outcome = run(name, &options(dir.path()));
        assert_eq!(outcome.failure(), None);
        assert!(outcome.results.complete && !outcome.results.points.is_empty());
        let points = outcome.results.points.iter();
        for point in points.filter(|point| !is_copy(point)) {
            let why = point.skipped.as_deref();
            let why = why.unwrap_or_else(|| panic!("{}", point.id));
            assert!(why.contains("no program"), "{}: {why}", point.id);
            assert!(point.summary.is_empty());
        }
        let text = table::show(experiment(name), &outcome.results);
        assert!(text.contains("skipped: there is no program"), "{text}");
    }
}

#[test]
fn copies_are_measured_and_other_bytes_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let only_copies = Options {
        only: Some("transport=memcpy".to_owned()),
        ..options(dir.path())
    };
    let outcome = run("ramp-transport", &only_copies);
    assert_eq!(outcome.failure(), None);
    let copies = outcome.results.points.iter().find(|point| is_copy(point));
    let copies = copies.expect("they are a point");
    // A transaction of eight keys of 1 KB is at most that fast on any machine, and not this slow.
    let rate = copies.summary["throughput"].median;
    assert!((1e3..1e9).contains(&rate), "{rate}");
    let planted = Options {
        plant: true,
        ..only_copies
    };
    let failure = run("ramp-transport", &planted).failure();
    let failure = failure.expect("the wrong value is found");
    assert!(failure.contains("other bytes"), "{failure}");
}
