//! `kumiki-bench run` of the experiments on read-atomic keys, in their smallest part: real servers,
//! whose every run checks itself.

use std::path::Path;
use std::process::{Command, Output};

use bench::result::{PointResult, Results};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bench(dir: &Path, name: &str, only: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki-bench"));
    command.args(["run", name, "--quick", "--out", "results"]);
    command.args(["--memory", ".", "--repetitions", "1", "--records", "2000"]);
    command.args(["--seconds", "0.1", "--warm-up", "0.02", "--only", only]);
    command.args(more).current_dir(dir);
    command.output().expect("the binary runs")
}

/// Runs some points, and returns the result file; every check in it was made and held.
fn measured(name: &str, only: &str, checks: &[&str]) -> String {
    results(name, only, checks).0
}

/// As [`measured`], also returns the output.
fn results(name: &str, only: &str, checks: &[&str]) -> (String, Results) {
    let dir = tempfile::tempdir().unwrap();
    let run = bench(dir.path(), name, only, &[]);
    assert!(run.status.success(), "{name}: {}", text(&run.stderr));
    let file = dir.path().join(format!("results/{name}.json"));
    let json = std::fs::read_to_string(&file).unwrap();
    let results = Results::read(&file).unwrap();
    for check in checks {
        assert!(json.contains(check), "{name}: {check} was not checked");
    }
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 1, "the servers' files are removed");
    (json, results)
}

/// Returns the point whose id contains this.
fn point<'r>(results: &'r Results, id: &str) -> &'r PointResult {
    let mut points = results.points.iter();
    points.find(|point| point.id.contains(id)).expect(id)
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
    // With more partitions there are more clients, and two-phase locking over so few keys tries again without an end.
    let only = "servers=simulated system=ramp-h draw=zipfian partitions=4";
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

#[test]
fn reads_of_what_is_published_leave_servers_alone() {
    let of_servers = |results: &Results, id: &str| {
        let metric = point(results, id).summary.get("server-cpu").copied();
        metric.unwrap_or_else(|| panic!("{id}")).median
    };
    let (_, all) = results("ramp-transport", "reads=100 transport=shm", &CHECKS);
    let ring = of_servers(&all, "reads=100 transport=shm-ring");
    let one_sided = of_servers(&all, "reads=100 transport=shm-one-sided");
    assert!(one_sided < ring / 4.0, "{one_sided} and {ring} µs");
    assert!(of_servers(&all, "reads=100 transport=tcp") > 0.0);
    let (_, some) = results("ramp-reads", "PUT+ log=memory reads=95", &CHECKS);
    for id in ["system=GET+/PUT+", "system=GET*/PUT+"] {
        assert!(point(&some, id).summary["throughput"].share > Some(0.0));
    }
}

#[test]
fn what_needs_devices_is_skipped_and_says_why() {
    let (_, all) = results("ramp-transport", "reads=95 transport=verbs-send", &CHECKS);
    let why = point(&all, "verbs-send").skipped.as_deref().unwrap();
    assert!(why.contains("RDMA device"), "{why}");
    let (_, all) = results("ramp-transport", "reads=95 transport=tcp-ipoib", &CHECKS);
    let ipoib = point(&all, "tcp-ipoib");
    let said = ipoib.skipped.as_deref().or(ipoib.note.as_deref()).unwrap();
    assert!(
        said.contains("InfiniBand") || said.contains("without the device"),
        "{said}"
    );
}

#[test]
fn an_idle_cluster_in_shared_memory_sleeps() {
    let only = "work=nothing transport=shm-one-sided";
    let (_, all) = results("ramp-idle", only, &["every key is right before and after"]);
    let idle = point(&all, only).summary["idle"].median;
    assert!(idle < 0.03, "{idle} of a core is used");
}

#[test]
fn writes_are_compared_in_pairs() {
    let (_, all) = results("ramp-idle", "work=writes", &CHECKS);
    let told = &point(&all, "work=writes").summary;
    for [low, middle, high] in [
        ["ratio-low", "ratio", "ratio-high"],
        ["cpu-ratio-low", "cpu-ratio", "cpu-ratio-high"],
    ] {
        let [low, middle, high] = [low, middle, high].map(|metric| told[metric].median);
        assert!(0.0 < low && low <= middle && middle <= high, "{told:?}");
    }
}
