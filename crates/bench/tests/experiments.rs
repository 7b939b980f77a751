//! Every experiment at the smallest scale: it runs, its checks hold, its results are complete.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::experiment::{Effort, Experiment, Scale};
use bench::peers::Peers;
use bench::result::Results;
use bench::runner::{self, Options, Outcome};
use bench::{experiments, report, table};

fn options(dir: &Path) -> Options {
    Options {
        scale: Scale {
            cores: 2,
            ..Scale::of(Effort::Tiny)
        },
        out: dir.join("out"),
        disk: dir.join("disk"),
        // Speed is of no interest here, and /dev/shm may be small.
        memory: {
            std::fs::create_dir_all(dir.join("memory")).unwrap();
            dir.join("memory")
        },
        history: None,
        only: None,
        seed: 7,
        affinity: None,
        plant: false,
        server: None,
        peers: peers(),
    }
}

/// What `cargo xtask peers` installs.
fn peers() -> Peers {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = std::env::var_os("PATH").unwrap_or_default();
    Peers {
        required: std::env::var("KUMIKI_REQUIRE_PEERS").is_ok_and(|value| value == "1"),
        ..Peers::find(&root, &path)
    }
}

fn run(name: &str, options: &Options) -> Outcome {
    let stop = AtomicBool::new(false);
    runner::run(experiment(name), options, &stop).unwrap()
}

fn experiment(name: &str) -> &'static Experiment {
    experiments::named(name).unwrap()
}

fn left(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Runs it, and checks what is the same for all.
fn whole(name: &str) -> Results {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let outcome = run(name, &options);
    assert_eq!(outcome.failure(), None);
    let results = Results::read(&outcome.path).unwrap();
    assert!(results == outcome.results, "read as they were written");
    assert!(results.complete && !results.points.is_empty());
    for point in &results.points {
        if point.skipped.is_some() {
            continue;
        }
        assert!(!point.repetitions.is_empty(), "{}", point.id);
        assert!(point.repetitions.iter().all(|run| !run.checks.is_empty()));
        assert!(!point.summary.is_empty(), "{}", point.id);
        if point.baseline.is_some() {
            let share = point.summary.values().find_map(|summary| summary.share);
            assert!(share.is_some_and(|share| share > 0.0), "{}", point.id);
        }
    }
    assert_eq!((left(&options.disk), left(&options.memory)), (0, 0));
    let text = table::show(experiment(name), &results);
    assert!(text.contains(&results.title), "{text}");
    let page = report::page(std::slice::from_ref(&results));
    assert!(page.contains(&results.title) && page.ends_with("</html>\n"));
    assert!(page.contains("<svg") && page.contains("<figcaption>"));
    for foreign in ["NaN", "inf\"", "<script", "http:", "https:", "url("] {
        assert!(!page.contains(foreign), "{name}: {foreign}");
    }
    results
}

#[test]
fn log_device() {
    let results = whole("log-device");
    assert!(results.points.iter().any(|point| point.skipped.is_none()));
}

#[test]
fn silo_threads() {
    let results = whole("silo-threads");
    let logged = |point: &&bench::result::PointResult| point.baseline.is_some();
    for point in results.points.iter().filter(logged) {
        for metric in ["throughput", "latency", "log-rate"] {
            assert!(point.summary[metric].median > 0.0, "{}: {metric}", point.id);
        }
    }
}

#[test]
fn silo_buffers() {
    whole("silo-buffers");
}

#[test]
fn silo_latency() {
    let results = whole("silo-latency");
    let text = table::show(experiment("silo-latency"), &results);
    assert!(
        text.contains("9.1") && text.contains("3.3") && text.contains("2.8"),
        "{text}"
    );
    // The paper's bars stand beside ours, of the same colours.
    let page = report::page(std::slice::from_ref(&results));
    for piece in [
        "bar c0 quoted",
        "9.1 (52 workers",
        "shortened by a factor of",
        "≥ 2.8",
    ] {
        assert!(page.contains(piece), "{piece}");
    }
}

#[test]
fn ycsb() {
    whole("ycsb");
}

#[test]
fn transfers() {
    whole("transfers");
}

/// Runs an experiment on replicas of this process, and checks what is the same for all of them.
fn replicas(name: &str) -> Results {
    let results = whole(name);
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

/// Kumiki's servers are processes of its program, which tests of that crate have.
#[test]
fn raft_etcd_without_kumiki() {
    let options = |dir: &Path| Options {
        only: Some("system=etcd".to_owned()),
        ..options(dir)
    };
    if peers().etcd.is_none() && !peers().required {
        eprintln!("skipped: etcd is not installed (see cargo xtask peers)");
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

#[test]
fn a_wrong_value_is_a_failure_and_has_no_speed() {
    for (name, only) in [
        ("silo-threads", "log=disk"),
        ("transfers", "log=disk"),
        ("raft-bulk", "log=memory"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            plant: true,
            only: Some(only.to_owned()),
            ..options(dir.path())
        };
        let outcome = run(name, &options);
        let failure = outcome.failure().expect("the wrong value is found");
        assert!(failure.contains("failed"), "{failure}");
        for point in &outcome.results.points {
            assert!(
                point.failure().is_some() && point.summary.is_empty(),
                "{}",
                point.id
            );
            assert!(point.repetitions.iter().all(|run| run.values.0.is_empty()));
        }
        let text = table::show(experiment(name), &outcome.results);
        assert!(text.contains("FAILED"), "{text}");
        let page = report::page(std::slice::from_ref(&outcome.results));
        assert!(page.contains("Failed, and therefore without figures") && !page.contains("<svg"));
    }
}

#[test]
fn a_history_is_recorded_judged_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("history.jsonl");
    for (name, only) in [
        ("ycsb", "log=disk pace=saturated"),
        ("silo-latency", "load=slow log"),
    ] {
        let options = Options {
            history: Some(file.clone()),
            only: Some(only.to_owned()),
            ..options(dir.path())
        };
        let outcome = run(name, &options);
        assert_eq!(outcome.failure(), None);
        assert!(outcome.results.recorded);
        let text = std::fs::File::open(&file).unwrap();
        let history = history::json::read(std::io::BufReader::new(text)).unwrap();
        assert!(
            history.transactions.len() > 100,
            "{}",
            history.transactions.len()
        );
    }
}

#[test]
fn stopping_keeps_what_was_measured_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path());
    options.scale.time = Duration::from_secs(60);
    let stop = AtomicBool::new(false);
    let begun = std::time::Instant::now();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        runner::run(experiment("silo-threads"), &options, &stop).unwrap()
    });
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(!outcome.results.complete);
    assert!(!Results::read(&outcome.path).unwrap().complete);
    assert_eq!(left(&options.disk), 0);
    let text = table::show(experiment("silo-threads"), &outcome.results);
    assert!(text.contains("stopped"), "{text}");
}

#[test]
fn a_placement_skips_what_it_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = base::cpus::usable().unwrap();
    let [logger, worker, ..] = cpus[..] else {
        // One processor cannot hold two threads of a placement.
        return;
    };
    let options = Options {
        affinity: Some(format!("{logger}:{worker}").parse().unwrap()),
        ..options(dir.path())
    };
    let outcome = run("silo-latency", &options);
    assert_eq!(outcome.failure(), None);
    for point in &outcome.results.points {
        // Two loggers are one too many.
        let skipped = point.id.contains("slow log");
        assert_eq!(point.skipped.is_some(), skipped, "{}", point.id);
        assert_eq!(point.summary.is_empty(), skipped, "{}", point.id);
    }
}

#[test]
fn a_filter_that_fits_nothing_names_the_points() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        only: Some("nonsense".to_owned()),
        ..options(dir.path())
    };
    let error = runner::run(experiment("ycsb"), &options, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("workload=A"), "{error}");
}
