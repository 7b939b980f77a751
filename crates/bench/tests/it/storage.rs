//! The experiments on storage nodes, at the smallest scale.

use bench::result::{PointResult, Results};
use bench::runner::Options;
use bench::table;
use bench::target::{FileReader, TargetJob};

use crate::support::{experiment, left, options, run};

/// Returns the options of a run whose storage nodes are processes.
fn with_nodes(dir: &std::path::Path) -> Options {
    Options {
        laboratory: Some(env!("CARGO_BIN_EXE_kumiki-bench").into()),
        ..options(dir)
    }
}

fn is_remote(point: &PointResult) -> bool {
    matches!(&point.job, TargetJob::Reads(job) if matches!(job.reader, FileReader::Node(_)))
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

#[test]
fn points_are_measured_and_checked() {
    for (name, checks) in [("remote-io", 1), ("io-replay", 2)] {
        let results = measured(name);
        let measured = results.points.iter().filter(|p| p.skipped.is_none());
        let measured: Vec<&PointResult> = measured.collect();
        assert!(measured.iter().any(|point| is_remote(point)), "{name}");
        let threads = |point: &&PointResult| point.params.get("threads-per-connection").cloned();
        let shared: Vec<_> = measured.iter().filter_map(threads).collect();
        assert!(shared.len() >= 2, "{name}");
        assert!(shared.iter().all(|threads| *threads == 4.0.into()));
        for point in measured {
            assert!(point.summary["iops"].median > 0.0, "{}", point.id);
            let node = point.summary.contains_key("node-cores");
            assert_eq!(node, is_remote(point), "{}", point.id);
            for run in &point.repetitions {
                assert_eq!(run.checks.len(), checks, "{}", point.id);
                assert!(!run.timeline.is_empty(), "{}", point.id);
            }
        }
        let text = table::show(experiment(name), &results);
        assert!(text.contains("remote over shm"), "{text}");
        let page = bench::report::page(std::slice::from_ref(&results));
        assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    }
}

#[test]
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

#[test]
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
        (
            "remote-io",
            "mode=shared reader=shm ring device=disk size=65536",
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
        // A point that reads few pages may miss the wrong one.
        let points = outcome.results.points.iter().filter(wanted);
        let failed: Vec<&PointResult> = points.filter(|point| point.failure().is_some()).collect();
        assert!(!failed.is_empty(), "{only}");
        for point in failed {
            assert!(point.summary.is_empty(), "{}", point.id);
        }
    }
}

#[test]
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
