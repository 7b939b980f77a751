//! Every experiment at the smallest scale: it runs, its checks hold, its results are complete.
//! Those on replicas are in `replicas.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::result::Results;
use bench::runner::{self, Options};
use bench::{report, table};

use crate::checks::whole;
use crate::support::{experiment, left, options, run};

#[test]
fn log_device() {
    let results = whole("log-device");
    assert!(results.points.iter().any(|point| point.skipped.is_none()));
}

#[test]
fn silo_threads() {
    let results = whole("silo-threads");
    let logged = |point: &&bench::result::PointResult| point.baseline.is_some();
    // A run is so short here that on a busy machine nothing may be durable within it.
    let metrics = ["throughput", "latency", "log-rate"];
    let measured = |point: &bench::result::PointResult| {
        let found = metrics.map(|metric| point.summary.get(metric));
        for (metric, summary) in metrics.iter().zip(found) {
            let is_right = summary.is_none_or(|summary| summary.median > 0.0);
            assert!(is_right, "{}: {metric}", point.id);
        }
        found.iter().all(Option::is_some)
    };
    let logged: Vec<_> = results.points.iter().filter(logged).collect();
    let complete = logged.iter().filter(|point| measured(point)).count();
    assert!(complete > 0, "none of {} points is complete", logged.len());
    // Simulated threads stand beside real ones, and look different.
    let of = |threads: &'static str| {
        let fits = move |point: &&bench::result::PointResult| {
            point.skipped.is_none() && point.params["threads"] == threads.into()
        };
        results.points.iter().filter(fits)
    };
    for point in of("validation") {
        for metric in ["of-real", "latency-of-real", "simulated"] {
            assert!(point.summary[metric].median > 0.0, "{}: {metric}", point.id);
        }
    }
    let page = report::page(std::slice::from_ref(&results));
    assert!(page.contains("published c"), "the paper's points are drawn");
    let is_simulated = of("simulated").chain(of("extrapolated")).count() > 0;
    assert_eq!(page.contains(", simulated"), is_simulated);
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

#[test]
fn a_wrong_value_is_a_failure_and_has_no_speed() {
    for (name, only) in [("silo-threads", "log=disk"), ("transfers", "log=disk")] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options {
            plant: true,
            only: Some(only.to_owned()),
            ..options(dir.path())
        };
        // A client of a busy machine must come to the first wrong value, too.
        options.scale.time = Duration::from_millis(400);
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
        // Two loggers are one too many, and simulated threads have no place.
        let is_real =
            !point.params.contains_key("threads") || point.params["threads"] == "real".into();
        let skipped = point.id.contains("slow log") || !is_real;
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
