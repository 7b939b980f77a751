//! A storage node, and commands that load, list, check and remove its tables.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::eventually;
use testkit::process::Server;

use super::storage_commands::{done, files, pages, serve};
use super::{json, refused};

const LOAD: &[&str] = &["load", "tpch", "--sf", "0.01", "--tables"];

/// A storage node, and the directory that it serves.
pub(super) struct Node {
    server: Server,
    dir: TempDir,
}

impl Node {
    /// Starts a node on a free port, with further options.
    pub(super) fn start(options: &[&str]) -> Node {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(|address, _| serve(address, &pages_dir(dir.path()), options));
        let line = server.only_line();
        let expected = format!("storage node listening on {}", server.address);
        assert!(line.contains(&expected), "{line:?}");
        Node { server, dir }
    }

    /// Starts it again at the same address, after it has ended.
    fn start_again(&mut self) {
        let command = |address, _: &Path| serve(address, &self.dir(), &[]);
        let started = Server::insist_at(self.server.address, command);
        self.server = started.expect("it starts again");
    }

    pub(super) fn dir(&self) -> PathBuf {
        pages_dir(self.dir.path())
    }

    /// Returns a command for the node, by its address.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = pages(args);
        command.arg("--node").arg(self.server.address.to_string());
        command
    }

    /// Returns a command for the node's directory.
    fn in_dir(&self, args: &[&str]) -> Command {
        let mut command = pages(args);
        command.arg("--dir").arg(self.dir());
        command
    }

    fn load(&self, table: &str, more: &[&str]) -> Command {
        self.command(&[LOAD, &[table], more].concat())
    }

    /// Returns the node's description of a table.
    pub(super) fn table(&self, name: &str) -> serde_json::Value {
        json(&done(self.command(&["ls", name, "--json"])))
    }
}

fn pages_dir(dir: &Path) -> PathBuf {
    dir.join("pages")
}

#[test]
fn tables_are_loaded_listed_checked_and_removed_while_it_runs() {
    let mut node = Node::start(&[]);
    assert_eq!(json(&done(node.command(&["ls", "--json"]))), json("[]"));
    let said = done(node.load("orders,nation", &[]));
    assert!(said.contains("orders: 15000 rows"), "{said}");
    let said = refused(node.load("orders", &[]));
    assert!(said.contains("--replace"), "{said}");

    // A command that names the directory finds the node that uses it.
    let said = done(node.in_dir(&[LOAD, &["region"]].concat()));
    assert!(said.contains("region: 5 rows"), "{said}");
    let tables = json(&done(node.command(&["ls", "--json"])));
    let names = tables.as_array().expect("a list").iter();
    let names: Vec<_> = names.map(|table| table["name"].as_str()).collect();
    assert_eq!(names, [Some("nation"), Some("orders"), Some("region")]);
    for said in [
        done(node.command(&["ls"])),
        done(node.in_dir(&["ls"])),
        done(node.in_dir(&["check"])),
    ] {
        assert!(said.contains("orders") && said.contains("15000"), "{said}");
    }
    let said = done(node.command(&["ls", "orders"]));
    assert!(said.contains("o_orderkey"), "{said}");
    let said = refused(node.command(&["check"]));
    assert!(said.contains("--dir"), "{said}");

    done(node.load("orders", &["--append"]));
    assert_eq!(node.table("orders")["rows"], 30_000);
    done(node.load("orders", &["--replace", "--page-size", "4KiB"]));
    let orders = node.table("orders");
    assert_eq!(orders["rows"], 15_000);
    assert_eq!(orders["version"], 3);
    assert_eq!(orders["page_size"], 4096);
    let rows = ["--replace", "--layout", "rows", "--sort-by", "o_orderdate"];
    done(node.load("orders", &rows));
    assert_eq!(node.table("orders")["layout"], "rows");
    assert!(done(node.in_dir(&["check", "orders"])).contains("15000 rows"));

    done(node.command(&["remove", "orders"]));
    let said = refused(node.command(&["remove", "orders"]));
    assert!(said.contains("there are: nation, region"), "{said}");
    let said = refused(node.command(&["ls", "orders"]));
    assert!(said.contains("there are: nation, region"), "{said}");
    // It keeps versions that were opened for readers that may continue with them, until it ends.
    node.server.signal(Signal::TERM);
    assert_eq!(node.server.end().code(), Some(0));
    let left = files(&node.dir());
    assert_eq!(
        left.len(),
        6,
        "a table, a directory and pages for each: {left:?}"
    );
}

/// A table that cannot be read is reported.
#[test]
fn a_table_that_is_damaged_is_told_of() {
    let mut node = Node::start(&[]);
    done(node.load("nation,region", &[]));
    let files_of = node.table("region")["segments"][0]["id"].clone();
    node.server.signal(Signal::TERM);
    assert_eq!(node.server.end().code(), Some(0));
    let id = files_of.as_str().expect("a name");
    std::fs::remove_file(node.dir().join(format!("{id}.0"))).expect("it is there");
    node.start_again();
    let said = done(node.command(&["ls"]));
    assert!(said.contains("nation"), "{said}");
    assert!(said.contains("damaged") && said.contains(id), "{said}");
    let listed = json(&done(node.command(&["ls", "--json"])));
    assert_eq!(listed[1]["name"], "region");
    let damage = listed[1]["damage"].as_str().expect("it is damaged");
    assert!(damage.contains(id), "{damage}");
    for said in [
        refused(node.command(&["ls", "region"])),
        refused(node.load("region", &[])),
        refused(node.load("region", &["--append"])),
    ] {
        assert!(said.contains("region is damaged"), "{said}");
    }
    done(node.load("region", &["--replace"]));
    assert_eq!(node.table("region")["rows"], 5);
}

#[test]
fn it_ends_when_it_is_told_to_and_has_its_tables_afterwards() {
    let mut node = Node::start(&["--io", "static", "--io-threads", "2"]);
    done(node.load("orders", &[]));
    let address = node.dir().join("node.address");
    let told = std::fs::read_to_string(&address).expect("it tells where it is");
    assert_eq!(told.trim(), node.server.address.to_string());
    for signal in [Signal::TERM, Signal::INT] {
        node.server.signal(signal);
        assert_eq!(node.server.end().code(), Some(0));
        assert!(!address.exists());
        let said = refused(node.command(&["ls"]));
        assert!(said.contains(&node.server.address.to_string()), "{said}");
        // No node uses its directory now.
        done(node.in_dir(&[LOAD, &["orders", "--replace"]].concat()));
        node.start_again();
        assert_eq!(node.table("orders")["rows"], 15_000);
    }
    let said = refused(pages(&[
        "serve",
        "--dir",
        &node.dir().to_string_lossy(),
        "--insecure",
        "--listen",
        "127.0.0.1:0",
    ]));
    assert!(said.contains("is used by another process"), "{said}");
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        testkit::files::write_private(&path, text);
        path.to_string_lossy().into_owned()
    };
    let (right, wrong) = (file("right", "tell nobody\n"), file("wrong", "guess\n"));
    let empty = file("empty", "\n");
    let node = Node::start(&["--secret-file", &right]);
    let with = |secret: &str| node.command(&["ls", "--secret-file", secret]);
    assert!(refused(node.command(&["ls"])).contains("secret"));
    assert!(refused(with(&wrong)).contains("secret"));
    assert!(refused(with(&empty)).contains("has no secret in it"));
    assert!(refused(with("/no such file")).contains("/no such file"));
    assert!(refused(node.load("region", &["--secret-file", &wrong])).contains("secret"));
    assert!(files(&node.dir()).is_empty());
    done(node.load("region", &["--secret-file", &right]));
    assert!(done(with(&right)).contains("region"));
}

#[test]
fn a_secret_is_wanted_unless_all_are_trusted() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = testkit::free_address().expect("a free port").port();
    let address = SocketAddr::from(([0, 0, 0, 0], port));
    for (address, strangers) in [
        (address, "everyone who reaches this address"),
        (([127, 0, 0, 1], port).into(), "every user of this machine"),
    ] {
        let mut command = pages(&["serve", "--listen", &address.to_string()]);
        command.arg("--dir").arg(dir.path().join("pages"));
        let said = refused(command);
        for word in ["--secret-file", "--insecure", strangers] {
            assert!(said.contains(word), "{said}");
        }
        assert!(!dir.path().join("pages").exists(), "nothing was made");
    }
    let open = |_, _: &Path| serve(address, &pages_dir(dir.path()), &["--insecure"]);
    let server = Server::start_at(([127, 0, 0, 1], port).into(), open);
    let server = server.expect("it starts");
    let node = Node { server, dir };
    done(node.command(&["ls"]));
}

/// A node that is killed while a table is loaded has no part of it afterwards, and everything that
/// was loaded before.
#[test]
fn a_node_that_is_killed_leaves_no_half_table() {
    let mut node = Node::start(&[]);
    done(node.load("nation", &[]));
    let before = files(&node.dir());
    for mode in ["--append", "--replace"] {
        let table = [
            "load",
            "tpch",
            "--tables",
            "lineitem,nation",
            "--sf",
            "0.2",
            mode,
        ];
        let load = node.command(&table).stderr(Stdio::piped()).spawn();
        let load = load.expect("it starts");
        let begun = |name: &String| {
            let path = node.dir().join(name);
            !before.contains(name) && std::fs::metadata(path).is_ok_and(|file| file.len() > 1 << 20)
        };
        eventually("something is written", || {
            files(&node.dir()).iter().any(begun)
        });
        node.server.signal(Signal::KILL);
        node.server.end();
        let load = load.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&load.stderr).into_owned();
        assert!(!load.status.success(), "{said}");
        assert!(said.contains(&node.server.address.to_string()), "{said}");
        assert!(
            said.contains("nothing of this load of lineitem is kept"),
            "{said}"
        );

        node.start_again();
        let mut after = files(&node.dir());
        after.sort();
        let mut before = before.clone();
        before.sort();
        assert_eq!(after, before);
        assert!(refused(node.command(&["ls", "lineitem"])).contains("there are: nation"));
        assert_eq!(node.table("nation")["rows"], 25);
    }
    done(node.in_dir(&["check"]));
    done(node.load("region", &[]));
}
