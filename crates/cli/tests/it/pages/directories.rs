//! Tables in directories of this machine.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::storage_commands::pages;

fn kumiki(dir: &Path, args: &[&str]) -> Command {
    let mut command = pages(args);
    for name in ["a", "b"] {
        command.arg("--dir").arg(dir.join(name));
    }
    command
}

fn done(dir: &Path, args: &[&str]) -> String {
    super::done(kumiki(dir, args))
}

fn refused(dir: &Path, args: &[&str]) -> String {
    super::refused(kumiki(dir, args))
}

fn json(dir: &Path, table: &str) -> Value {
    super::json(&done(dir, &["ls", table, "--json"]))
}

#[test]
fn tables_are_loaded_listed_checked_and_removed() {
    let folder = tempfile::tempdir().expect("a directory");
    let dir = folder.path();
    assert!(refused(dir, &["ls"]).contains("no tables"));
    let load = [
        "load",
        "tpch",
        "--sf",
        "0.01",
        "--tables",
        "orders,lineitem",
    ];
    let said = done(dir, &load);
    assert!(said.contains("orders: 15000 rows"), "{said}");
    let said = refused(dir, &load);
    assert!(said.contains("--replace"), "{said}");
    let said = refused(dir, &["load", "tpch", "--tables", "order"]);
    assert!(said.contains("orders, lineitem"), "{said}");

    let (small, sorted) = (["--page-size", "4KiB"], ["--sort-by", "l_shipdate"]);
    let again = [
        &load[..4],
        &["--tables", "lineitem", "--replace"],
        &small,
        &sorted,
    ]
    .concat();
    done(dir, &again);
    let lineitem = json(dir, "lineitem");
    assert_eq!(lineitem["version"], 2);
    assert_eq!(lineitem["page_size"], 4096);
    assert_eq!(lineitem["rows"], 60_175);
    assert_eq!(lineitem["segments"][0]["stripes"], 2);
    assert_eq!(lineitem["groups"].as_array().map(Vec::len), Some(16));
    done(
        dir,
        &[&load[..4], &["--tables", "orders", "--append"]].concat(),
    );
    assert_eq!(json(dir, "orders")["rows"], 30_000);
    let rows = [
        &load[..4],
        &["--tables", "lineitem", "--replace", "--layout", "rows"],
    ]
    .concat();
    done(dir, &rows);
    assert_eq!(json(dir, "lineitem")["layout"], "rows");
    assert!(done(dir, &["ls"]).contains("lineitem"));
    let said = done(dir, &["ls", "orders"]);
    assert!(said.contains("Decimal128(15, 2) not null"), "{said}");

    assert!(done(dir, &["check"]).contains("orders: 30000 rows"));
    let files = std::fs::read_dir(dir.join("b")).expect("a directory");
    let stripes = files
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().ends_with(".1"));
    let stripe = stripes.max_by_key(|file| file.metadata().map_or(0, |about| about.len()));
    let stripe = stripe.expect("pages are striped").path();
    let mut bytes = std::fs::read(&stripe).expect("a file");
    bytes[5000] ^= 1;
    std::fs::write(&stripe, bytes).expect("a file");
    let said = kumiki(dir, &["check"]).output().expect("it starts");
    assert!(!said.status.success());
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("checksum") && said.contains(".1, at byte 0"),
        "{said}"
    );

    done(dir, &["remove", "lineitem"]);
    assert!(refused(dir, &["remove", "lineitem"]).contains("there are: orders"));
}

#[test]
fn a_load_that_is_stopped_says_so_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a directory");
    let dir = folder.path();
    let load = [
        "load",
        "tpch",
        "--sf",
        "10",
        "--tables",
        "orders",
        "--page-size",
        "4KiB",
    ];
    let process = kumiki(dir, &load).stderr(Stdio::piped()).spawn();
    let process = process.expect("it starts");
    let written = || -> Vec<u64> {
        let files = std::fs::read_dir(dir.join("a"))
            .into_iter()
            .flatten()
            .flatten();
        let stripes = files.filter(|file| file.file_name().to_string_lossy().ends_with(".0"));
        stripes
            .filter_map(|file| Some(file.metadata().ok()?.len()))
            .collect()
    };
    testkit::eventually("something is written", || {
        written().iter().any(|bytes| *bytes > 1 << 16)
    });
    // Not SIGINT: a shell that runs tests in the background may have made them ignore it.
    kill_process(Pid::from_child(&process), Signal::TERM).expect("it runs");
    let ended = process.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(
        said.contains("stopped; nothing of this load of orders is kept"),
        "{said}"
    );
    assert_eq!(written(), Vec::<u64>::new());
}

#[test]
fn an_output_that_is_closed_ends_a_command_quietly() {
    let folder = tempfile::tempdir().expect("a directory");
    let dir = folder.path();
    done(dir, &["load", "tpch", "--sf", "0.01", "--tables", "region"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut list = kumiki(dir, &["ls", "--json"]);
    let ended = list
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let ended = ended.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert!(ended.status.success());
}

/// A binary that was built without it says how to get what reads files.
#[cfg(not(feature = "sql"))]
#[test]
fn without_the_feature_loading_files_says_how_to_get_it() {
    let folder = tempfile::tempdir().expect("a directory");
    for kind in ["csv", "parquet"] {
        let options = ["load", kind, "t.csv", "--table", "t", "--no-header"];
        let said = refused(folder.path(), &options);
        let command = format!("--features sql -- pages load {kind} t.csv --table t --no-header");
        assert!(said.contains(&command), "{said}");
        let said = refused(folder.path(), &["load", kind, "--help"]);
        assert!(said.contains("--features sql"), "{said}");
    }
    let entries = std::fs::read_dir(folder.path()).expect("a directory");
    assert_eq!(entries.count(), 0, "nothing was made");
}
