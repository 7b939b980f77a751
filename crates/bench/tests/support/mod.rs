//! Experiments at the smallest scale, and what is checked of all of them.

// Each test file uses a part of this.
#![allow(dead_code)]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bench::experiment::{Effort, Experiment, Scale};
use bench::peers::Peers;
use bench::result::Results;
use bench::runner::{self, Options, Outcome};
use bench::{experiments, report, table};

pub(crate) fn options(dir: &Path) -> Options {
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
pub(crate) fn peers() -> Peers {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = std::env::var_os("PATH").unwrap_or_default();
    Peers {
        required: std::env::var("KUMIKI_REQUIRE_PEERS").is_ok_and(|value| value == "1"),
        ..Peers::find(&root, &path)
    }
}

pub(crate) fn run(name: &str, options: &Options) -> Outcome {
    let stop = AtomicBool::new(false);
    runner::run(experiment(name), options, &stop).unwrap()
}

pub(crate) fn experiment(name: &str) -> &'static Experiment {
    experiments::named(name).unwrap()
}

pub(crate) fn left(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Runs it, and checks what is the same for all.
pub(crate) fn whole(name: &str) -> Results {
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
