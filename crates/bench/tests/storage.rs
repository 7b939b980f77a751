//! The experiments on storage nodes, at the smallest scale.
//!
//! This test has a `main` of its own, because it is also the program whose storage nodes are
//! measured: called as `bench storage-node SHOWING` it is one.

mod support;

use bench::result::{PointResult, Results};
use bench::runner::Options;
use bench::storage;
use bench::table;
use bench::target::{Job, Reader};

use support::{experiment, left, options, run};

/// What is tested, by name.
const TESTS: [(&str, fn()); 4] = [
    (
        "points_are_measured_and_checked",
        points_are_measured_and_checked,
    ),
    ("a_cache_of_all_spares_reads", a_cache_of_all_spares_reads),
    (
        "a_wrong_byte_is_found_on_every_way",
        a_wrong_byte_is_found_on_every_way,
    ),
    (
        "without_a_program_nodes_are_skipped",
        without_a_program_nodes_are_skipped,
    ),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [bench, node, showing] = &args[..]
        && (bench.as_str(), node.as_str()) == ("bench", "storage-node")
    {
        storage::serve(showing).expect("the node runs");
        return;
    }
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let lists = args.iter().any(|arg| arg == "--list");
    for (name, test) in TESTS {
        if filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())) {
            if lists {
                println!("{name}: test");
                continue;
            }
            test();
            println!("test {name} ... ok");
        }
    }
}

/// Options of a run that has this program for its nodes.
fn with_nodes(dir: &std::path::Path) -> Options {
    Options {
        server: std::env::current_exe().ok(),
        ..options(dir)
    }
}

fn is_remote(point: &PointResult) -> bool {
    matches!(&point.job, Job::Reads(job) if matches!(job.reader, Reader::Node(_)))
}

/// Runs an experiment with nodes.
fn measured(name: &str) -> Results {
    let dir = tempfile::tempdir().unwrap();
    let options = with_nodes(dir.path());
    let outcome = run(name, &options);
    assert_eq!(outcome.failure(), None, "{name}");
    let results = Results::read(&outcome.path).unwrap();
    assert!(results == outcome.results, "read as they were written");
    assert_eq!((left(&options.disk), left(&options.memory)), (0, 0));
    results
}

fn points_are_measured_and_checked() {
    for (name, checks) in [("remote-io", 1), ("io-replay", 2)] {
        let results = measured(name);
        let measured = results.points.iter().filter(|p| p.skipped.is_none());
        let measured: Vec<&PointResult> = measured.collect();
        assert!(measured.iter().any(|point| is_remote(point)), "{name}");
        for point in measured {
            assert!(point.summary["iops"].median > 0.0, "{}", point.id);
            let node = point.summary.contains_key("node-cores");
            assert_eq!(node, is_remote(point), "{}", point.id);
            for run in &point.repetitions {
                assert_eq!(run.checks.len(), checks, "{}", point.id);
                assert!(!run.course.is_empty(), "{}", point.id);
            }
        }
        let text = table::show(experiment(name), &results);
        assert!(text.contains("remote over shm"), "{text}");
        let page = bench::report::page(std::slice::from_ref(&results));
        assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    }
}

fn a_cache_of_all_spares_reads() {
    let results = measured("io-replay");
    let with_cache = |point: &&PointResult| point.summary.contains_key("hit-rate");
    let cached: Vec<&PointResult> = results.points.iter().filter(with_cache).collect();
    assert!(cached.iter().any(|point| is_remote(point)));
    assert!(cached.iter().any(|point| !is_remote(point)));
    for point in cached {
        // A query asks for most of its pages again and again.
        let rate = point.summary["hit-rate"].median;
        assert!((0.2..1.0).contains(&rate), "{}: {rate}", point.id);
    }
}

fn a_wrong_byte_is_found_on_every_way() {
    for (name, only) in [
        (
            "remote-io",
            "mode=remote reader=shm ring device=disk size=65536",
        ),
        (
            "remote-io",
            "mode=remote reader=tcp ring device=disk size=65536",
        ),
        ("remote-io", "mode=local reader=ring device=disk size=65536"),
        ("io-replay", "order=random"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            plant: true,
            only: Some(only.to_owned()),
            ..with_nodes(dir.path())
        };
        let outcome = run(name, &options);
        let failure = outcome.failure().expect("the wrong byte is found");
        assert!(failure.contains("other bytes"), "{name}: {failure}");
        let wanted = |point: &&PointResult| point.id.contains(only);
        for point in outcome.results.points.iter().filter(wanted) {
            let failed = point.failure().is_some();
            assert!(failed || name == "io-replay", "{}", point.id);
            assert!(!failed || point.summary.is_empty(), "{}", point.id);
        }
    }
}

fn without_a_program_nodes_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = run("remote-io", &options(dir.path()));
    assert_eq!(outcome.failure(), None);
    for point in outcome
        .results
        .points
        .iter()
        .filter(|point| is_remote(point))
    {
        let why = point.skipped.as_deref().unwrap_or_default();
        assert!(why.contains("no program"), "{}: {why}", point.id);
    }
}
