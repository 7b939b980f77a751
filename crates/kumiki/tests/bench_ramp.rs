//! `kumiki bench run` of the experiments on read-atomic keys, as little of them as can be measured:
//! real servers, whose every run checks itself.

use std::path::Path;
use std::process::{Command, Output};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bench(dir: &Path, name: &str, only: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki"));
    command.args(["bench", "run", name, "--quick", "--out", "results"]);
    command.args(["--memory", ".", "--repetitions", "1", "--records", "2000"]);
    command.args(["--seconds", "0.1", "--warm-up", "0.02", "--only", only]);
    command.args(more).current_dir(dir);
    command.output().expect("the binary runs")
}

/// Runs some points, and returns the result file; every check in it was made and held.
fn measured(name: &str, only: &str, checks: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let run = bench(dir.path(), name, only, &[]);
    assert!(run.status.success(), "{name}: {}", text(&run.stderr));
    let json = std::fs::read_to_string(dir.path().join(format!("results/{name}.json"))).unwrap();
    for check in checks {
        assert!(json.contains(check), "{name}: {check} was not checked");
    }
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 1, "the servers' files are removed");
    json
}

const CHECKS: [&str; 4] = [
    "every answer is right",
    "the servers serve",
    "no read is fractured",
    "every key is right",
];

#[test]
fn transactions_of_all_ways_are_measured_and_right() {
    let json = measured("ramp-size", "log=disk size=4", &CHECKS);
    for metric in ["\"server-cpu\"", "\"one-round\"", "system=ramp-h log=disk"] {
        assert!(json.contains(metric), "{metric}");
    }
    assert!(json.contains("what was acknowledged is recovered"));
    measured("ramp-ycsb", "keys=many draw=zipfian", &CHECKS);
}

#[test]
fn reads_of_redis_clients_are_measured_beside_split_ones() {
    measured(
        "ramp-mget",
        "clients=16",
        &["every value is what was loaded"],
    );
}

#[test]
fn partitions_are_simulated_beside_real_ones() {
    let check = "no simulated read is fractured";
    let only = "servers=real system=ramp-f draw=uniform partitions=2";
    let json = measured("ramp-scale", only, &[check, CHECKS[2]]);
    assert!(json.contains("\"of-real\"") && json.contains("\"simulated-cpu\""));
    let only = "servers=simulated system=ramp-h draw=zipfian partitions=16";
    let json = measured("ramp-scale", only, &[check]);
    assert!(json.contains("\"per-partition\"") && json.contains("\"bytes\""));
}

#[test]
fn what_is_planted_is_found() {
    let dir = tempfile::tempdir().unwrap();
    for (name, only) in [
        ("ramp-reads", "system=ramp-s log=memory reads=50"),
        ("ramp-mget", "clients=16"),
    ] {
        let planted = bench(dir.path(), name, only, &["--plant-failure"]);
        assert!(!planted.status.success(), "{name}");
        assert!(text(&planted.stderr).contains("the check '"), "{name}");
    }
}
