//! The experiments on clusters of server processes, without a program whose processes could be
//! started: they say so. Tests of the program have it, and run them.

mod support;

use bench::table;

use support::{experiment, options, run};

#[test]
fn what_needs_servers_is_skipped_without_a_program() {
    for name in [
        "ramp-transport",
        "ramp-size",
        "ramp-reads",
        "ramp-ycsb",
        "ramp-mget",
        "ramp-scale",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let outcome = run(name, &options(dir.path()));
        assert_eq!(outcome.failure(), None);
        assert!(outcome.results.complete && !outcome.results.points.is_empty());
        for point in &outcome.results.points {
            let why = point.skipped.as_deref();
            let why = why.unwrap_or_else(|| panic!("{}", point.id));
            assert!(why.contains("no program"), "{}: {why}", point.id);
            assert!(point.summary.is_empty());
        }
        let text = table::show(experiment(name), &outcome.results);
        assert!(text.contains("skipped: there is no program"), "{text}");
    }
}
