//! Drivers that others have written, as they are, with a real Cassandra. What they do stands in
//! `clients/cassandra/`. And YCSB, with our bindings, which checks what it reads.
//!
//! `cargo xtask peers` installs Cassandra and the drivers. Without them a test says so and passes;
//! with `KUMIKI_REQUIRE_PEERS=1` it fails.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use bench::cassandra::{Installed, Nodes, Options};
use bench::ycsb::{Binding, Phase, Ycsb};
use support::process::{Server, peer, peer_library};

/// The versions of the protocol that both drivers speak.
const PROTOCOLS: [&str; 2] = ["4", "5"];
/// What tells of the version itself, or is only to be had with the newer one.
const OF_VERSION: [&str; 2] = ["protocol", "schema after"];
/// Steps that both drivers make, whose lines must be there.
const STEPS: [&str; 9] = [
    "prepared unset",
    "batch of counters",
    "pages prepared",
    "lock, held",
    "lock, its lease has ended",
    "release, not the holder",
    "schema, table dropped",
    "trace",
    "truncated",
];

/// A node takes a gigabyte, so that the tests of this file take turns.
static TURN: Mutex<()> = Mutex::new(());

/// The driver programs that are there.
struct Clients {
    python: PathBuf,
    /// The folder with libraries for Python.
    libraries: PathBuf,
    /// The Java driver's jars.
    jars: PathBuf,
}

/// What a driver program is written in.
#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    Java,
}

/// Nodes, the clients, and the right to use them.
struct Stage {
    nodes: Nodes,
    java: PathBuf,
    clients: Clients,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// Starts nodes; `None` after saying that something is not installed.
    fn set(nodes: u8) -> Option<Stage> {
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let clients = Clients {
            python: peer("python3")?,
            libraries: peer_library("python/cassandra")?.parent()?.to_owned(),
            jars: peer_library("java-driver/lib")?,
        };
        peer_library("cassandra/lib")?;
        let installed = Installed::find(&root()).expect("its jars are there");
        let java = installed.java.clone();
        let options = Options::new(installed, nodes).anywhere();
        let nodes = Nodes::start(&options).expect("they start");
        Some(Stage {
            nodes,
            java,
            clients,
            _turn: turn,
        })
    }

    /// The command that runs a driver program against the first node.
    fn command(&self, language: Language, protocol: &str) -> Command {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/cassandra");
        // Whatever happens, it ends.
        let mut command = Command::new("timeout");
        command.arg("180");
        match language {
            Language::Python => {
                command.arg(&self.clients.python);
                command.arg(programs.join("driver_program.py"));
                command.env("PYTHONPATH", &self.clients.libraries);
            }
            Language::Java => {
                command
                    .arg(&self.java)
                    .arg("-cp")
                    .arg(self.clients.jars.join("*"));
                command.arg(programs.join("DriverProgram.java"));
            }
        }
        let address = self.nodes.addresses()[0];
        command.args([address.ip().to_string(), address.port().to_string()]);
        // Programs may run at the same time.
        command.arg(format!("{language:?}{protocol}").to_lowercase());
        command.arg(protocol).stdin(Stdio::null());
        command
    }

    /// What a driver program prints.
    fn run(&self, language: Language, protocol: &str) -> Vec<String> {
        let output = self.command(language, protocol).output().expect("timeout");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let lines: Vec<String> = out.lines().map(str::to_owned).collect();
        let done = lines.last().is_some_and(|line| line == "done");
        assert!(
            output.status.success() && done,
            "{language:?}, version {protocol}: {out}{err}"
        );
        lines
    }
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The name of the step that a line tells of.
fn step(line: &str) -> &str {
    line.split(": ").next().unwrap_or_default()
}

/// The lines that do not tell of the protocol's version.
fn without_version(lines: &[String]) -> Vec<&String> {
    let kept = |line: &&String| !OF_VERSION.contains(&step(line));
    lines.iter().filter(kept).collect()
}

/// Runs a program with both versions of the protocol, and with the last one twice.
fn both_versions_agree(language: Language) {
    let Some(stage) = Stage::set(1) else {
        return;
    };
    let [old, new] = PROTOCOLS.map(|protocol| stage.run(language, protocol));
    assert_eq!(without_version(&old), without_version(&new));
    for name in STEPS {
        let told = new.iter().filter(|line| step(line) == name).count();
        assert_eq!(told, 1, "{name} in {new:#?}");
    }
    for (lines, protocol) in [(&old, "protocol: 4"), (&new, "protocol: 5")] {
        assert!(lines.iter().any(|line| line == protocol), "{lines:#?}");
    }
    // What it leaves behind must not change what it does.
    assert_eq!(stage.run(language, PROTOCOLS[1]), new);
}

#[test]
fn the_python_driver_does_the_same_in_both_versions() {
    both_versions_agree(Language::Python);
}

#[test]
fn the_java_driver_does_the_same_in_both_versions() {
    both_versions_agree(Language::Java);
}

#[test]
fn nodes_are_killed_and_paused_and_come_back() {
    let Some(mut stage) = Stage::set(2) else {
        return;
    };
    let nodes = &mut stage.nodes;
    let second = nodes.pid(1).expect("it runs");
    nodes.pause(1).expect("it stands still");
    nodes.resume(1).expect("it goes on");
    nodes.kill(0).expect("it dies");
    assert_eq!(nodes.pid(0), None);
    assert!(nodes.pause(0).is_err());
    // It comes back although it is alone.
    nodes.terminate(1).expect("it ends");
    nodes.restart(1).expect("it comes back");
    assert_ne!(nodes.pid(1), Some(second));
    nodes.restart(0).expect("so does the other one");
    stage.run(Language::Python, PROTOCOLS[0]);
    assert!(stage.nodes.ended().expect("the system says").is_empty());
    stage.nodes.stop().expect("they end in good order");
}

/// Runs YCSB's workload A, which checks what it reads; all of it must be right.
fn ycsb(binding: Binding, properties: &[(&str, &str)]) {
    let ycsb = Ycsb::find(&root()).expect("its jars are there");
    let workload = [
        ("recordcount", "1000"),
        ("operationcount", "1000"),
        ("readproportion", "0.5"),
        ("updateproportion", "0.5"),
        ("dataintegrity", "true"),
        ("fieldlengthdistribution", "constant"),
    ];
    let properties = [&workload, properties].concat();
    let said = |phase| {
        let output = ycsb.command(phase, binding, 8, &properties).output();
        String::from_utf8(output.expect("java").stdout).expect("text")
    };
    let loaded = said(Phase::Load);
    assert!(loaded.contains("[INSERT], Return=OK, 1000\n"), "{loaded}");
    let done = said(Phase::Transactions);
    let count = |what: &str| {
        let lines = done.lines().filter_map(|line| line.strip_prefix(what));
        lines
            .filter_map(|count| count.parse::<u64>().ok())
            .sum::<u64>()
    };
    let read = count("[READ], Return=OK, ");
    assert_eq!(count("[VERIFY], Return=OK, "), read, "{done}");
    assert_eq!(read + count("[UPDATE], Return=OK, "), 1000, "{done}");
    assert!(
        !done.contains("ERROR") && !done.contains("UNEXPECTED"),
        "{done}"
    );
}

#[test]
fn ycsb_finds_in_cassandra_what_it_has_written() {
    if peer_library("ycsb/lib").is_none() {
        return;
    }
    let Some(stage) = Stage::set(1) else {
        return;
    };
    let address = stage.nodes.addresses()[0].to_string();
    for protocol in ["V4", "V5"] {
        let properties = [
            ("cassandra.hosts", address.as_str()),
            ("cassandra.connections", "8"),
            ("cassandra.protocol", protocol),
            ("cassandra.keyspace", protocol),
        ];
        ycsb(Binding::Cassandra, &properties);
    }
}

#[test]
fn ycsb_finds_in_redis_what_it_has_written() {
    let (Some(program), Some(_)) = (peer("redis-server"), peer_library("ycsb/lib")) else {
        return;
    };
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let server = Server::redis(&program, &[]);
    let port = server.address.port().to_string();
    for form in ["hashes", "strings"] {
        ycsb(
            Binding::Redis,
            &[("redis.port", port.as_str()), ("redis.form", form)],
        );
    }
}
