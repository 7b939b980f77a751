//! `kumiki sql` over a storage node, as an analyst types it: the answers are DuckDB's, wherever the
//! operators run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The forecast of the change of revenue (TPC-H, query 6).
const Q6: &str = "select sum(l_extendedprice * l_discount) as revenue from lineitem \
                  where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01' \
                  and l_discount between 0.05 and 0.07 and l_quantity < 24";
/// What DuckDB says at scale factor 0.1.
const REVENUE: &str = "11803420.2534";

fn kumiki() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kumiki"))
}

/// A storage node, which is killed when it is dropped.
struct Node {
    process: Child,
    address: String,
}

impl Node {
    fn start(dir: &Path) -> Node {
        let mut process = kumiki()
            .args(["pages", "serve", "--listen", "127.0.0.1:0", "--dir"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let (_, rest) = line.split_once("listening on ").expect(&line);
        let address = rest.split(',').next().unwrap().to_owned();
        Node { process, address }
    }

    fn load(&self) {
        let load = [
            "pages", "load", "tpch", "--sf", "0.1", "--tables", "lineitem", "--node",
        ];
        done(kumiki().args(load).arg(&self.address));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn done(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let error = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {error}");
    String::from_utf8(stdout).unwrap()
}

fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "{command:?} is done");
    String::from_utf8(stderr).unwrap()
}

/// `kumiki sql` with a statement.
fn ask(sql: &str, options: &[&str]) -> Command {
    let mut command = kumiki();
    command
        .args(["sql", "--format", "csv", "-c", sql])
        .args(options);
    command
}

#[test]
fn a_query_is_answered_wherever_its_operators_run() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("pages");
    let node = Node::start(&pages);
    node.load();
    let (at, here) = (&*node.address, pages.to_str().unwrap());
    let both = ["--node", at, "--dir", here];
    for placement in ["auto", "local", "remote-local", "remote-remote"] {
        let options = [&both[..], &["--placement", placement]].concat();
        let said = done(&mut ask(Q6, &options));
        assert_eq!(said.trim(), format!("revenue\n{REVENUE}"), "{placement}");
        let plan = done(&mut ask(&format!("explain {Q6}"), &options));
        if placement != "auto" {
            assert!(plan.contains(&format!("placement={placement} ")), "{plan}");
        }
    }
    for transport in ["tcp", "shm"] {
        for placement in ["remote-local", "remote-remote"] {
            let options = [
                "--node",
                at,
                "--placement",
                placement,
                "--transport",
                transport,
            ];
            let said = done(&mut ask(Q6, &options));
            assert_eq!(said.trim(), format!("revenue\n{REVENUE}"), "{transport}");
        }
    }
    // With nothing named it is the usual directory, and the node that serves it.
    let mut usual = kumiki();
    usual.args([
        "sql",
        "--format",
        "csv",
        "--placement",
        "remote-remote",
        "-c",
        Q6,
    ]);
    std::os::unix::fs::symlink(&pages, dir.path().join("kumiki-pages")).unwrap();
    let said = done(usual.current_dir(dir.path()));
    assert!(said.contains(REVENUE), "{said}");
}

#[test]
fn a_node_that_is_gone_is_told_and_a_replica_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("pages");
    let node = Node::start(&pages);
    node.load();
    let at = node.address.clone();
    drop(node);
    let said = refused(&mut ask(Q6, &["--node", &at]));
    assert!(said.contains(&at), "{said}");
    // The directory has what the node had.
    let both = ["--node", &at, "--dir", pages.to_str().unwrap()];
    let said = done(&mut ask(Q6, &both));
    assert!(said.contains(REVENUE), "{said}");
}
