//! Experiments at the smallest scale.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bench::experiment::Experiment;
use bench::experiments;
use bench::parameters::{Effort, Scale};
use bench::peers::Peers;
use bench::result::MeasurementPrograms;
use bench::runner::{self, ExperimentOutcome, Options};
use testkit::peers::Selection;

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
        commit: "unknown".to_owned(),
        profile: "debug".to_owned(),
        programs: MeasurementPrograms::default(),
        numa_nodes: None,
        server: None,
        laboratory: None,
        peers: peers(),
    }
}

/// Returns what `cargo xtask peers` installs.
pub(crate) fn peers() -> Peers {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = std::env::var_os("PATH").unwrap_or_default();
    Peers {
        selection: Selection::of_environment().unwrap(),
        ..Peers::find(&root, &path)
    }
}

pub(crate) fn run(name: &str, options: &Options) -> ExperimentOutcome {
    let stop = AtomicBool::new(false);
    runner::run(experiment(name), options, &stop).unwrap()
}

pub(crate) fn experiment(name: &str) -> &'static Experiment {
    experiments::named(name).unwrap()
}

pub(crate) fn left(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}
