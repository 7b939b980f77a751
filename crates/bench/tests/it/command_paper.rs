//! `kumiki-bench paper` as users run it, and the series behind it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bench::experiments;
use bench::paper_index::PAPERS;
use bench::series::ExperimentSeries;

use crate::command::{bench, text};
use crate::support::options;

/// The smallest part of paper 5: one point each of `raft-grouping` and `raft-bulk`.
const PAPER_5: [&str; 9] = [
    "paper",
    "5",
    "--quick",
    "--out",
    "results",
    "--memory",
    ".",
    "--only",
    "log=memory transfer=naive nodes=5 clients=1",
];

fn paper_5(dir: &Path, more: &[&str]) -> Output {
    let mut all = [
        &PAPER_5[..],
        &["--seconds", "0.03", "--warm-up", "0.01"],
        more,
    ]
    .concat();
    if !more.contains(&"--repetitions") {
        all.extend(["--repetitions", "1"]);
    }
    bench(dir, &all)
}

#[test]
fn a_paper_is_measured_and_what_is_complete_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let result = |name: &str| dir.path().join(format!("results/{name}.json"));
    let read = |name: &str| std::fs::read_to_string(result(name)).unwrap();
    let plan = paper_5(dir.path(), &["--plan"]);
    let said = text(&plan.stdout);
    assert!(plan.status.success(), "{}", text(&plan.stderr));
    for part in ["raft-grouping", "raft-bulk", "no run is measured yet"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        !said.contains("raft-servers"),
        "no point was selected: {said}"
    );
    assert!(!dir.path().join("results").exists(), "nothing is measured");

    let first = paper_5(dir.path(), &[]);
    let (said, told) = (text(&first.stdout), text(&first.stderr));
    assert!(first.status.success(), "{told}");
    assert!(told.contains("to measure: 2, kept: 0; at least"), "{told}");
    assert!(said.contains("the report is results/report.html"), "{said}");
    let page = std::fs::read_to_string(dir.path().join("results/report.html")).unwrap();
    for part in [
        "id=\"index\"",
        "href=\"#raft-grouping-0\"",
        "id=\"raft-grouping-0\"",
        "kumiki-bench run raft-links",
        "in part: ",
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }

    let (grouping, bulk) = (read("raft-grouping"), read("raft-bulk"));
    std::fs::remove_file(result("raft-bulk")).unwrap();
    let second = paper_5(dir.path(), &[]);
    let told = text(&second.stderr);
    assert!(second.status.success(), "{told}");
    assert!(told.contains("to measure: 1, kept: 1; about"), "{told}");
    assert_eq!(read("raft-grouping"), grouping);
    assert_ne!(read("raft-bulk"), bulk);

    // A result that was stopped, or is of another commit, is measured again; so is everything with
    // the option.
    let other = grouping.replacen("\"complete\": true", "\"complete\": false", 1);
    assert_ne!(other, grouping);
    std::fs::write(result("raft-grouping"), other).unwrap();
    let other = read("raft-bulk").replacen("\"commit\": \"", "\"commit\": \"x", 1);
    std::fs::write(result("raft-bulk"), other).unwrap();
    let plan = text(&paper_5(dir.path(), &["--plan"]).stdout);
    assert!(!plan.contains("kept"), "{plan}");
    assert!(paper_5(dir.path(), &[]).status.success());
    let plan = text(&paper_5(dir.path(), &["--plan"]).stdout);
    assert_eq!(plan.matches("kept").count(), 2, "{plan}");
    assert!(plan.contains("nothing to measure"), "{plan}");
    let plan = text(&paper_5(dir.path(), &["--plan", "--again"]).stdout);
    assert_eq!(plan.matches("kept").count(), 0, "{plan}");
}

#[test]
fn a_failed_check_is_measured_again_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let planted = paper_5(dir.path(), &["--plant-failure"]);
    let told = text(&planted.stderr);
    assert_eq!(planted.status.code(), Some(1), "{told}");
    for name in ["raft-grouping: ", "raft-bulk: "] {
        assert!(told.contains(name), "{name}: {told}");
    }
    let plan = text(&paper_5(dir.path(), &["--plan"]).stdout);
    assert_eq!(plan.matches("kept").count(), 0, "{plan}");
}

#[test]
fn mistakes_explain_themselves() {
    let dir = tempfile::tempdir().unwrap();
    for (args, code, says) in [
        (&["paper", "6"][..], 2, "neither the number of a paper"),
        (&["paper", "5", "--only", "x=y"], 1, "contains 'x=y'"),
    ] {
        let said = bench(dir.path(), args);
        let stderr = text(&said.stderr);
        assert_eq!(said.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    let plan = bench(dir.path(), &["paper", "all", "--quick", "--plan"]);
    let said = text(&plan.stdout);
    assert!(plan.status.success(), "{}", text(&plan.stderr));
    for experiment in experiments::ALL {
        assert!(
            said.contains(experiment.name),
            "{}: {said}",
            experiment.name
        );
    }
}

/// Where time is short there are fewer repetitions, with all checks; they are kept as long as time is
/// limited.
#[test]
fn rounds_are_left_out_where_time_is_short() {
    let dir = tempfile::tempdir().unwrap();
    let three = ["--repetitions", "3"];
    let limited = paper_5(dir.path(), &[&three[..], &["--within", "0.0001"]].concat());
    assert!(limited.status.success(), "{}", text(&limited.stderr));
    let json = std::fs::read_to_string(dir.path().join("results/raft-bulk.json")).unwrap();
    assert!(json.contains("\"complete\": true") && json.contains("\"rounds\": 1"));
    let page = std::fs::read_to_string(dir.path().join("results/report.html")).unwrap();
    assert!(page.contains("1 of 3 rounds were made, because time was short"));
    for (more, kept) in [(&["--plan", "--within", "9"][..], 2), (&["--plan"], 0)] {
        let plan = text(&paper_5(dir.path(), &[&three[..], more].concat()).stdout);
        assert_eq!(plan.matches("kept").count(), kept, "{plan}");
    }
}

/// A signal ends the series in good order, and the report says so.
#[test]
fn a_signal_ends_the_series() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kumiki-bench"))
        .args(PAPER_5)
        .args(["--seconds", "600"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // The result file is there from the beginning on.
    let begun = Instant::now();
    while !dir.path().join("results/raft-grouping.json").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it has begun");
        std::thread::sleep(Duration::from_millis(10));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let mut told = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut told).unwrap();
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(
        told.contains("stopped: 0 of 2 experiments are complete"),
        "{told}"
    );
    let page = std::fs::read_to_string(dir.path().join("results/report.html")).unwrap();
    assert!(page.contains("This run was stopped before its end"));
}

/// A series that is stopped before it begins measures nothing.
#[test]
fn a_stopped_series_ends() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let series = ExperimentSeries::plan(&PAPERS[4].experiments(), &options, false, None).unwrap();
    assert_eq!((series.planned.len(), series.kept.len()), (4, 0));
    let mut measured = 0;
    let stop = AtomicBool::new(true);
    series.run(&options, &stop, |_, _| measured += 1).unwrap();
    assert_eq!(measured, 0);
    assert!(!options.out.exists());
}
