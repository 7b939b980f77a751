//! The experiments on replicas at the smallest scale. A program of its own, because many members at once
//! are a load on the disk and the processors that other experiments are measured on.

#[path = "it/checks.rs"]
mod checks;
#[path = "it/support.rs"]
mod support;

use std::path::Path;

use bench::result::{PointResult, Results};
use bench::runner::Options;
use bench::table;
use testkit::peers::Group;

use crate::checks::whole;
use crate::support::{experiment, left, options, peers, run};

/// Runs an experiment, and repeats it if nothing was done at one of its points: on a busy machine a
/// group may elect a leader for as long as such a short point lasts.
fn running(measured: impl Fn() -> Results) -> Results {
    let is_idle = |results: &Results| {
        let throughput =
            |point: &PointResult| point.summary.get("throughput").map(|one| one.median);
        results
            .points
            .iter()
            .any(|point| throughput(point) == Some(0.0))
    };
    let mut results = measured();
    for _ in 0..2 {
        if is_idle(&results) {
            results = measured();
        }
    }
    results
}

/// Runs an experiment on replicas of this process, and makes the checks that all share.
fn replicas(name: &str) -> Results {
    let results = running(|| whole(name));
    for point in &results.points {
        let checks = || point.repetitions.iter().flat_map(|run| &run.checks);
        let named = |name: &str| checks().any(|check| check.name.contains(name));
        let on_disk = point.id.contains("log=disk");
        assert!(
            named("on every member") && named("recovered") == on_disk,
            "{}",
            point.id
        );
        let median = |metric: &str| point.summary.get(metric).map(|summary| summary.median);
        let group = median("entries-per-group").unwrap();
        let one = point.id.contains("naive") || point.id.contains("group 1 ");
        assert!(
            if one {
                group == 1.0
            } else {
                (1.0..=64.0).contains(&group)
            },
            "{}",
            point.id
        );
        assert_eq!(median("ceiling").is_some(), on_disk, "{}", point.id);
        assert!(median("throughput") > Some(0.0) && median("latency-p99") > Some(0.0));
    }
    results
}

#[test]
fn raft_grouping() {
    let results = replicas("raft-grouping");
    let text = table::show(experiment("raft-grouping"), &results);
    assert!(text.contains("31.7") && text.contains("group 64"), "{text}");
}

#[test]
fn raft_servers() {
    replicas("raft-servers");
}

#[test]
fn raft_bulk() {
    let results = replicas("raft-bulk");
    let text = table::show(experiment("raft-bulk"), &results);
    assert!(text.contains("283") && text.contains("201"), "{text}");
}

#[test]
fn raft_workers() {
    let results = running(|| whole("raft-workers"));
    for point in &results.points {
        let checks = || point.repetitions.iter().flat_map(|run| &run.checks);
        assert!(checks().any(|check| check.name.contains("on every member")));
        let median = |metric: &str| point.summary.get(metric).map(|summary| summary.median);
        assert!(median("throughput") > Some(0.0), "{}", point.id);
        let is_real = point.id.contains("threads=real");
        for metric in ["worker-cpu", "leader-cpu", "follower-cpu", "simulated"] {
            assert_eq!(median(metric).is_some(), is_real, "{}: {metric}", point.id);
        }
    }
    let text = table::show(experiment("raft-workers"), &results);
    assert!(text.contains("16 workers by one"), "{text}");
}

/// Returns the options of a run whose clients are a process of their own.
fn with_clients(dir: &Path) -> Options {
    Options {
        laboratory: Some(env!("CARGO_BIN_EXE_kumiki-bench").into()),
        ..options(dir)
    }
}

#[test]
fn raft_links() {
    let results = running(|| {
        let dir = tempfile::tempdir().unwrap();
        let outcome = run("raft-links", &with_clients(dir.path()));
        assert_eq!(outcome.failure(), None);
        outcome.results
    });
    assert!(results.complete);
    for point in &results.points {
        assert_eq!(point.skipped, None, "{}", point.id);
        let checks = || point.repetitions.iter().flat_map(|run| &run.checks);
        assert!(checks().any(|check| check.name.contains("on every member")));
        for metric in ["throughput", "ceiling", "of-ceiling", "cpu"] {
            assert!(point.summary[metric].median > 0.0, "{}: {metric}", point.id);
        }
        let has_links = point.id.contains("links=1 Gb/s");
        assert_eq!(point.summary.contains_key("link-cpu"), has_links);
        if has_links {
            // Four delays of 0.1 ms.
            let median = point.summary["latency-p50"].min;
            assert!(median >= 0.4, "{}: {median}", point.id);
        }
    }
    let text = table::show(experiment("raft-links"), &results);
    assert!(text.contains("31.7") && text.contains("283"), "{text}");
}

#[test]
fn clients_elsewhere_need_their_program_and_their_failures_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let only = Some("links=loopback delay=0 transfer=bulk".to_owned());
    let without = Options {
        only: only.clone(),
        ..options(dir.path())
    };
    let results = run("raft-links", &without).results;
    let skipped = |point: &PointResult| {
        point
            .skipped
            .as_ref()
            .is_some_and(|why| why.contains("clients"))
    };
    assert!(results.points.iter().all(skipped));
    let planted = Options {
        plant: true,
        only,
        ..with_clients(dir.path())
    };
    let outcome = run("raft-links", &planted);
    let failure = outcome.failure().expect("the wrong counter is found");
    assert!(failure.contains("additions were acknowledged"), "{failure}");
}

#[test]
fn an_addition_that_was_not_acknowledged_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let planted = Options {
        plant: true,
        only: Some("log=memory".to_owned()),
        ..options(dir.path())
    };
    let outcome = run("raft-bulk", &planted);
    let failure = outcome.failure().expect("the wrong counter is found");
    assert!(failure.contains("additions were acknowledged"), "{failure}");
    let points = &outcome.results.points;
    assert!(points.iter().all(|point| point.summary.is_empty()));
}

/// Kumiki's servers are processes of its program, which tests of that crate have.
#[test]
fn raft_etcd_without_kumiki() {
    let options = |dir: &Path| Options {
        only: Some("system=etcd".to_owned()),
        ..options(dir)
    };
    if testkit::peers::find(Group::Etcd, "etcd", || peers().etcd).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let outcome = run("raft-etcd", &options(dir.path()));
    assert_eq!(outcome.failure(), None);
    let results = outcome.results;
    assert!(results.complete && left(&dir.path().join("disk")) == 0);
    for point in &results.points {
        assert_eq!(point.skipped, None);
        for metric in ["throughput", "latency-p99", "device-syncs", "per-sync"] {
            assert!(point.summary[metric].median > 0.0, "{}: {metric}", point.id);
        }
        let checks = || point.repetitions.iter().flat_map(|run| &run.checks);
        let named = |name: &str| checks().any(|check| check.name.contains(name));
        assert!(named("etcd 3.") && named("last write") && named("recovered"));
    }
    let planted = Options {
        plant: true,
        ..options(dir.path())
    };
    let outcome = run("raft-etcd", &planted);
    let failure = outcome.failure().expect("the wrong value is found");
    assert!(failure.contains("does not hold put"), "{failure}");
}
