//! `kumiki-bench` as users run it: exit codes, files, and output.

use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn bench(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki-bench"));
    command.args(args).current_dir(dir);
    command.output().expect("the binary runs")
}

/// Runs the smallest part of `transfers`.
fn transfers(dir: &Path, more: &[&str]) -> Output {
    let small = [
        "run",
        "transfers",
        "--quick",
        "--out",
        "results",
        "--memory",
        ".",
        "--repetitions",
        "1",
        "--seconds",
        "0.03",
        "--warm-up",
        "0.01",
        "--only",
        "accounts=10 log=disk",
    ];
    bench(dir, &[&small[..], more].concat())
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_and_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let run = transfers(dir.path(), &[]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert!(
        text(&run.stdout).contains("throughput"),
        "{}",
        text(&run.stdout)
    );
    let json = std::fs::read_to_string(dir.path().join("results/transfers.json")).unwrap();
    assert!(json.contains("\"schema\": 1") && json.contains("\"complete\": true"));
    for part in [
        "\"measuring\"",
        "\"sha256\"",
        "\"before\"",
        "\"after\"",
        "\"seconds\"",
    ] {
        assert!(json.contains(part), "{part} is not there: {json}");
    }
    let report = bench(dir.path(), &["report", "results"]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let page = std::fs::read_to_string(dir.path().join("results/report.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script") && !page.contains("http"));
    let left = std::fs::read_dir(dir.path().join("results"))
        .unwrap()
        .count();
    assert_eq!(left, 2, "data directories are removed");
}

#[test]
fn a_wrong_value_fails_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = transfers(dir.path(), &["--plant-failure"]);
    assert_eq!(run.status.code(), Some(1));
    assert!(
        text(&run.stdout).contains("FAILED"),
        "{}",
        text(&run.stdout)
    );
    assert!(
        text(&run.stderr).contains("failed"),
        "{}",
        text(&run.stderr)
    );
}

#[test]
fn mistakes_explain_themselves() {
    let dir = tempfile::tempdir().unwrap();
    for (args, code, says) in [
        (&["run", "nonsense"][..], 1, "log-device, silo-threads"),
        (&["report", "nowhere"], 1, "nowhere"),
        (&["report", "."], 1, "holds no results"),
        (&["run", "ycsb", "--seconds", "0"], 2, "number of seconds"),
        (
            &["run", "ycsb", "--quick", "--only", "x=y"],
            1,
            "no point of ycsb",
        ),
    ] {
        let said = bench(dir.path(), args);
        let stderr = text(&said.stderr);
        assert_eq!(said.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    let list = bench(dir.path(), &["list"]);
    assert!(list.status.success() && text(&list.stdout).contains("silo-latency"));
}

/// The smallest part of `ramp-reads`: four servers, started and killed.
#[test]
fn servers_are_started_judged_and_gone_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let small = [
        "run",
        "ramp-reads",
        "--quick",
        "--out",
        "results",
        "--memory",
        ".",
        "--repetitions",
        "1",
        "--seconds",
        "1",
        "--warm-up",
        "0.01",
        "--only",
        "log=disk reads=50",
    ];
    let run = bench(dir.path(), &small);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let json = std::fs::read_to_string(dir.path().join("results/ramp-reads.json")).unwrap();
    for check in [
        "every answer is right",
        "no read is fractured",
        "every key is right",
        "what was acknowledged is recovered",
    ] {
        assert!(json.contains(check), "{check} was not checked: {json}");
    }
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 1, "the servers' files are removed");
    let planted = bench(dir.path(), &[&small[..], &["--plant-failure"]].concat());
    assert!(!planted.status.success(), "what was planted is found");
    assert!(text(&planted.stderr).contains("the check '"));
}

/// The smallest part of `raft-etcd`: three servers that hold one partition, and, if `cargo xtask
/// peers` has installed it, etcd.
#[test]
fn replicas_are_measured_beside_etcd() {
    let dir = tempfile::tempdir().unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/etcd");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(peers).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(places).unwrap();
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki-bench"));
        command.args(["run", "raft-etcd", "--quick", "--out", "results"]);
        command.args([
            "--repetitions",
            "1",
            "--seconds",
            "0.2",
            "--warm-up",
            "0.01",
        ]);
        command.args(["--only", "clients=8"]).args(more);
        command.current_dir(dir.path()).env("PATH", &path);
        command.output().expect("the binary runs")
    };
    let measured = run(&[]);
    let (said, told) = (text(&measured.stdout), text(&measured.stderr));
    assert!(measured.status.success(), "{said}{told}");
    let json = std::fs::read_to_string(dir.path().join("results/raft-etcd.json")).unwrap();
    for check in [
        concat!("Kumiki ", env!("CARGO_PKG_VERSION"), " has a leader"),
        "every put is acknowledged",
        "every key holds its last write",
        "what was acknowledged is recovered",
    ] {
        assert!(json.contains(check), "{check} was not checked: {json}");
    }
    let has_etcd = json.contains("has a leader\"") && json.contains("\"name\": \"etcd 3.");
    assert!(
        has_etcd
            || said.contains("`cargo xtask peers` installs it")
            || said.contains("left out: group etcd"),
        "{said}"
    );
    let left = std::fs::read_dir(dir.path().join("results"))
        .unwrap()
        .count();
    assert_eq!(left, 1, "the servers' files are removed");
    let planted = run(&["--plant-failure"]);
    assert!(!planted.status.success(), "what was planted is found");
    let told = text(&planted.stderr);
    assert!(told.contains("does not hold put"), "{told}");
}

/// The smallest part of `proxy-latency`: nodes, our proxy and those of the paper, clients on a
/// schedule and at full speed.
#[test]
fn the_proxy_is_measured_beside_the_direct_way() {
    let dir = tempfile::tempdir().unwrap();
    let small = [
        "run",
        "proxy-latency",
        "--quick",
        "--out",
        "results",
        "--memory",
        ".",
        "--repetitions",
        "1",
        "--seconds",
        "0.3",
        "--warm-up",
        "0.05",
    ];
    let measured = bench(dir.path(), &small);
    let (said, told) = (text(&measured.stdout), text(&measured.stderr));
    assert!(measured.status.success(), "{said}{told}");
    let json = std::fs::read_to_string(dir.path().join("results/proxy-latency.json")).unwrap();
    for piece in [
        "every reply is right",
        "every key holds its last write",
        "\"system\": \"paper\"",
        "\"system\": \"older\"",
        "\"above\"",
        "\"proxy-cpu\"",
    ] {
        assert!(json.contains(piece), "{piece} is not there: {json}");
    }
    assert!(!json.contains("\"skipped\""), "{json}");
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 1, "the files of nodes and proxy are removed");
    let one = ["--only", "load=full system=proxy", "--plant-failure"];
    let planted = bench(dir.path(), &[&small[..], &one].concat());
    assert!(!planted.status.success(), "what was planted is found");
    let told = text(&planted.stderr);
    assert!(told.contains("instead of"), "{told}");
}

/// Parts of `proxy-designs`: the paper's load as an open loop, and as a closed one on a Redis Cluster.
#[test]
fn the_papers_proxies_are_measured_beside_ours() {
    let dir = tempfile::tempdir().unwrap();
    let small = [
        "run",
        "proxy-designs",
        "--quick",
        "--out",
        "results",
        "--memory",
        ".",
        "--repetitions",
        "1",
        "--seconds",
        "0.3",
        "--warm-up",
        "0.05",
    ];
    for (only, systems) in [
        (
            "load=open sent=20000",
            &["proxy", "paper", "older", "direct"][..],
        ),
        // Our proxy learns the nodes of a Redis Cluster from one of them.
        (
            "nodes=cluster load=closed sent=0 system=proxy",
            &["proxy", "paper"],
        ),
    ] {
        let measured = bench(dir.path(), &[&small[..], &["--only", only]].concat());
        let (said, told) = (text(&measured.stdout), text(&measured.stderr));
        assert!(measured.status.success(), "{said}{told}");
        let json = std::fs::read_to_string(dir.path().join("results/proxy-designs.json")).unwrap();
        let systems = systems.iter().map(|name| format!("\"system\": \"{name}\""));
        let checks = ["every reply is right", "every key holds its last write"];
        let figures = ["\"proxy-cpu\"", "\"per-core\""];
        let all = checks.into_iter().chain(figures).map(str::to_owned);
        for piece in systems.chain(all) {
            assert!(json.contains(&piece), "{piece} is not there: {json}");
        }
        assert!(
            !json.contains("\"skipped\"") || json.contains("redis-server is not installed"),
            "{json}"
        );
    }
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 1, "the files of nodes and proxies are removed");
    let one = [
        "--only",
        "load=open sent=20000 system=paper",
        "--plant-failure",
    ];
    let planted = bench(dir.path(), &[&small[..], &one].concat());
    assert!(!planted.status.success(), "what was planted is found");
    let told = text(&planted.stderr);
    assert!(told.contains("instead of"), "{told}");
}

/// The smallest part of `lock-latency`: the proxy's own locks, those of the paper's proxies, and, if `cargo xtask peers` has
/// installed it, those of one Cassandra node.
#[test]
fn locks_are_measured_beside_cassandra() {
    let dir = tempfile::tempdir().unwrap();
    // Peers are looked for below the directory in which the program is started.
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    if let Ok(peers) = peers.canonicalize() {
        std::fs::create_dir(dir.path().join("target")).unwrap();
        std::os::unix::fs::symlink(peers, dir.path().join("target/peers")).unwrap();
    }
    let small = ["run", "lock-latency", "--quick", "--out", "results"];
    let run = |more: &[&str]| bench(dir.path(), &[&small[..], more].concat());
    let left = || {
        std::fs::read_dir(dir.path().join("results"))
            .unwrap()
            .count()
    };
    for only in [
        "system=durable",
        "system=replicated",
        "system=paper",
        "system=older",
    ] {
        let measured = run(&["--repetitions", "1", "--only", only]);
        let (said, told) = (text(&measured.stdout), text(&measured.stderr));
        assert!(measured.status.success(), "{only}: {said}{told}");
        let json = std::fs::read_to_string(dir.path().join("results/lock-latency.json")).unwrap();
        for piece in ["every answer is right", "\"of-memory\"", "\"release-p99\""] {
            assert!(json.contains(piece), "{piece} is not there: {json}");
        }
        assert_eq!(left(), 1, "the files of the proxies are removed");
    }
    let lwt = ["--only", "system=lwt nodes=1 paxos=v2"];
    let measured = run(&lwt);
    let (said, told) = (text(&measured.stdout), text(&measured.stderr));
    assert!(measured.status.success(), "{said}{told}");
    let json = std::fs::read_to_string(dir.path().join("results/lock-latency.json")).unwrap();
    let is_measured = json.contains("\"of-memory\"") && json.contains("every answer is right");
    assert!(
        is_measured
            || said.contains("`cargo xtask peers` installs it")
            || said.contains("left out: group cassandra"),
        "{said}"
    );
    assert_eq!(left(), 1, "the files of proxy and nodes are removed");
    let memory = ["--repetitions", "1", "--only", "system=memory"];
    let planted = run(&[&memory[..], &["--plant-failure"]].concat());
    assert!(!planted.status.success(), "what was planted is found");
    let told = text(&planted.stderr);
    assert!(told.contains("other has it"), "{told}");
}

/// A result names the program whose processes are measured, by its version and its hash.
#[test]
fn the_measured_program_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_kumiki-bench");
    let run = transfers(dir.path(), &["--server", program]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let json = std::fs::read_to_string(dir.path().join("results/transfers.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let [measuring, measured] = ["measuring", "measured"].map(|name| &json["programs"][name]);
    assert_eq!(measured["path"], program);
    assert_eq!(measured["sha256"], measuring["sha256"]);
    assert_eq!(measured["version"], measuring["version"]);
    let version = measured["version"].as_str().unwrap();
    assert!(version.starts_with("kumiki-bench "), "{version}");
}

/// A missing server is an error; a run that needs none does not look for it.
#[test]
fn a_missing_server_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let missing = ["--server", "nowhere/kumiki"];
    let run = transfers(dir.path(), &missing);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let small = ["run", "ramp-reads", "--quick", "--memory", "."];
    let only = ["--only", "log=memory reads=50"];
    let run = bench(dir.path(), &[&small[..], &only, &missing].concat());
    let told = text(&run.stderr) + &text(&run.stdout);
    assert_eq!(run.status.code(), Some(1), "{told}");
    for part in ["nowhere/kumiki", "--package kumiki-cli", "--server"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// Runs of one point, compared as directories and as files.
#[test]
fn results_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    for (name, more) in [("a", &[][..]), ("b", &[]), ("c", &["--records", "50000"])] {
        let dir = dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let run = transfers(&dir, more);
        assert!(run.status.success(), "{}", text(&run.stderr));
    }
    let diff = bench(dir.path(), &["diff", "a/results", "b/results"]);
    let (said, told) = (text(&diff.stdout), text(&diff.stderr));
    assert!(diff.status.success(), "{told}");
    for part in [
        "A: a/results\nB: b/results\n",
        "\ntransfers\n",
        "throughput, txn/s",
        "metrics are apart",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("{name}/results/transfers.json"));
    let diff = bench(dir.path(), &["diff", &a, &b, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&diff.stdout).unwrap();
    let points = json["results"][0]["points"].as_array().unwrap();
    let is_logged = |point: &&serde_json::Value| point["id"].as_str().unwrap().contains("log=disk");
    let point = points.iter().find(is_logged).expect("it is compared");
    let metrics = point["metrics"].as_array().unwrap();
    let throughput = metrics.iter().find(|one| one["metric"] == "throughput");
    let throughput = throughput.expect("it is measured");
    assert!(throughput["quotient"].is_number(), "{throughput}");
    assert_eq!(throughput["a"]["runs"], 1, "{throughput}");
    for (args, says) in [
        (
            ["diff", &a, &c],
            "different scales: records 100000 and 50000",
        ),
        (["diff", &a, "nowhere"], "cannot read nowhere"),
        (["diff", &a, "."], ". holds no results"),
    ] {
        let diff = bench(dir.path(), &args);
        let told = text(&diff.stderr);
        assert_eq!(diff.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.contains(says), "{args:?}: {told}");
    }
}
