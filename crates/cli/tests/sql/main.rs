//! `kumiki sql` over a storage node, as an analyst uses it: the answers are DuckDB's, wherever the
//! operators run. Also `kumiki pages load` of files, which needs the same library.
//!
//! These tests have a program of their own, which alone is compiled again with the feature `sql`.

#[path = "../it/pages/storage_commands.rs"]
mod storage_commands;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::eventually;
use testkit::http;
use testkit::process::Server;
use testkit::tls::CertificateAuthority;

use storage_commands::{done, files, kumiki, pages, serve};

/// The forecast of the change of revenue (TPC-H, query 6).
const Q6: &str = "select sum(l_extendedprice * l_discount) as revenue from lineitem \
                  where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01' \
                  and l_discount between 0.05 and 0.07 and l_quantity < 24";
/// DuckDB's answer at scale factor 0.1.
const REVENUE: &str = "11803420.2534";

/// A storage node.
struct Node {
    server: Server,
    address: String,
}

impl Node {
    fn start(dir: &Path) -> Node {
        let server = Server::start(|address, _| serve(address, dir, &[]));
        let address = server.address.to_string();
        Node { server, address }
    }

    fn load(&self) {
        let load = [
            "pages", "load", "tpch", "--sf", "0.1", "--tables", "lineitem", "--node",
        ];
        done(kumiki().args(load).arg(&self.address));
    }
}

fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "{command:?} is done");
    String::from_utf8(stderr).unwrap()
}

/// Returns a node's description of a table.
fn table(node: &Node, name: &str) -> Value {
    let said = done(&mut pages(&["ls", name, "--json", "--node", &node.address]));
    serde_json::from_str(&said).unwrap()
}

/// Returns `kumiki sql` with a statement.
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
fn tables_that_are_spread_over_directories_are_read_in_any_order_of_these() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (one, two, alone) = (path("one"), path("two"), path("alone"));
    let tpch = ["load", "tpch", "--sf", "0.01", "--tables"];
    let spread = ["orders", "--dir", &one, "--dir", &two];
    done(&mut pages(&[&tpch[..], &spread].concat()));
    done(&mut pages(
        &[&tpch[..], &["nation", "--dir", &alone]].concat(),
    ));
    let count = "select (select count(*) from orders) as o, (select count(*) from nation) as n";
    for dirs in [[&one, &two, &alone], [&alone, &two, &one]] {
        let options: Vec<&str> = dirs
            .iter()
            .flat_map(|dir| ["--dir", dir.as_str()])
            .collect();
        let said = done(&mut ask(count, &options));
        assert_eq!(said.trim(), "o,n\n15000,25");
    }
    let half = refused(&mut ask(count, &["--dir", &two, "--dir", &alone]));
    assert!(half.contains("name the first one first"), "{half}");
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
    // The directory has the data of the node.
    let both = ["--node", &at, "--dir", pages.to_str().unwrap()];
    let said = done(&mut ask(Q6, &both));
    assert!(said.contains(REVENUE), "{said}");
}

#[test]
fn files_are_loaded_into_directories_and_through_the_node_that_serves_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (here, csv, more) = (path("pages"), path("t.csv"), path("more.txt"));
    std::fs::write(&csv, "n,name\n2,b\n1,a\n").unwrap();
    std::fs::write(&more, "3;c\n").unwrap();
    // No node serves the directory yet.
    let load = ["load", "csv", &csv, "--table", "t", "--dir", &here];
    let said = done(&mut pages(&[&load[..], &["--sort-by", "n"]].concat()));
    assert!(said.contains("t: 2 rows in all"), "{said}");
    assert!(said.contains("version 1"), "{said}");
    let node = Node::start(dir.path().join("pages").as_path());
    // A command that names the directory finds the node that uses it.
    let other = ["load", "csv", &more, "--table", "t", "--dir", &here];
    let form = ["--append", "--no-header", "--delimiter", ";"];
    let said = done(&mut pages(&[&other[..], &form].concat()));
    assert!(said.contains("t: 3 rows in all"), "{said}");
    let at = ["--node", &node.address];
    let parquet = path("t.parquet");
    let copy = format!("copy (select n, name from t where n > 1) to '{parquet}'");
    done(&mut ask(&copy, &at));
    let load = ["load", "parquet", &parquet, "--table", "u"];
    let shape = ["--page-size", "4KiB", "--groups", "all"];
    done(&mut pages(&[&load[..], &shape, &at].concat()));
    let loaded = table(&node, "u");
    assert_eq!(
        (&loaded["rows"], &loaded["page_size"]),
        (&2.into(), &4096.into())
    );
    assert_eq!(loaded["groups"].as_array().map(Vec::len), Some(1));
    let packed = path("t.csv.gz");
    let form = "stored as csv options ('format.compression' 'gzip', 'format.has_header' 'true')";
    let copy = format!("copy (select n, name from t where n > 1) to '{packed}' {form}");
    done(&mut ask(&copy, &at));
    let load = ["load", "csv", &packed, "--table", "packed"];
    done(&mut pages(&[&load[..], &at].concat()));
    let said = done(&mut ask("select name from packed order by n", &at));
    assert_eq!(said, "name\nb\nc\n");
    let said = done(&mut ask(
        "select t.name from t join u on t.n = u.n order by 1",
        &at,
    ));
    assert_eq!(said, "name\nb\nc\n");
}

#[test]
fn a_load_that_cannot_be_says_why_and_leaves_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(&dir.path().join("pages"));
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let file = |name: &str, text: &str| {
        std::fs::write(path(name), text).unwrap();
        path(name)
    };
    let (good, bad) = (file("good.csv", "n\n1\n"), file("bad.csv", "n\nword\n"));
    let (empty, zero) = (file("empty.csv", ""), file("zero.csv", "n\n99999999999\n"));
    let (wide, missing) = (file("wide.csv", "n,m\n1,2\n"), path("missing.csv"));
    let load = |files: &[&str], more: &[&str]| {
        let table = ["--table", "t", "--node", &node.address];
        pages(&[&["load", "csv"][..], files, &table, more].concat())
    };
    let columns = ["--columns", "n int, x int"];
    for (mut command, words) in [
        (load(&[&missing], &[]), "missing.csv"),
        (load(&[&good, &bad], &[]), "bad.csv"),
        (
            load(&[&good, &wide], &[]),
            "wide.csv: it has columns n, m, and not n",
        ),
        (
            load(&[&good], &columns),
            "good.csv: it has columns n, and not n, x",
        ),
        (
            load(&[&good], &["--columns", "n smallfloat"]),
            "the columns",
        ),
        (load(&[&good], &["--sort-by", "m"]), "no column \"m\""),
        (load(&[&good], &["--append"]), "there is no table t"),
        (load(&[&good], &["--groups", "m"]), "no column \"m\""),
        (
            load(&[&good], &["--columns", "n time"]),
            "which pages do not have",
        ),
        (load(&[&empty], &[]), "empty.csv: it is empty"),
        (load(&["/dev/null"], &[]), "no regular file"),
        (
            load(&[&zero], &["--columns", "n int"]),
            "zero.csv: column n, row 1: '99999999999' is no Int32",
        ),
        (load(&[&good], &["--append", "--replace"]), "--append"),
        (load(&[&good], &["--delimiter", "::"]), "single character"),
    ] {
        let said = refused(&mut command);
        assert!(said.contains(words), "{command:?}: {said}");
    }
    let said = done(&mut pages(&["ls", "--json", "--node", &node.address]));
    assert_eq!(said.trim(), "[]");
    done(&mut load(&[&good], &[]));
    let said = refused(&mut load(&[&good], &[]));
    assert!(
        said.contains("already") && said.contains("--replace"),
        "{said}"
    );
    done(&mut load(&[&good], &["--replace"]));
    assert_eq!(table(&node, "t")["version"], 2);
    let tpch = [
        "load", "tpch", "--sf", "0.001", "--tables", "region", "--node",
    ];
    for option in ["--groups", "--sort-by"] {
        let misspelt = [&tpch[..], &[&node.address, option, "r_nane"]].concat();
        let said = refused(&mut pages(&misspelt));
        assert!(said.contains("no column \"r_nane\" in region"), "{said}");
    }
    let gone = node.address.clone();
    drop(node);
    let load = ["load", "csv", &good, "--table", "u", "--node", &gone];
    let said = refused(&mut pages(&load));
    assert!(said.contains(&gone), "{said}");
}

#[test]
fn a_load_that_is_interrupted_and_one_whose_node_is_killed_leave_no_half_table() {
    let dir = tempfile::tempdir().unwrap();
    let pages_dir = dir.path().join("pages");
    let mut node = Node::start(&pages_dir);
    let csv = dir.path().join("t.csv");
    let line = "12345678,some words that differ from no others,0.25\n";
    std::fs::write(&csv, format!("a,b,c\n{}", line.repeat(2_000_000))).unwrap();
    let csv = csv.to_str().unwrap();
    for killed in [false, true] {
        // Of small pages the first are written long before the last ones are full.
        let load = ["load", "csv", csv, "--table", "t", "--page-size", "4KiB"];
        let load = [&load[..], &["--node", &node.address]].concat();
        let load = pages(&load).stderr(Stdio::piped()).spawn().unwrap();
        // Something of the table lies there.
        let begun = |name: &String| {
            std::fs::metadata(pages_dir.join(name)).is_ok_and(|file| file.len() > 1 << 16)
        };
        eventually("something is written", || {
            files(&pages_dir).iter().any(begun)
        });
        if killed {
            node.server.signal(Signal::KILL);
            node.server.end();
        } else {
            // Not SIGINT: a shell that runs tests in the background may have made them ignore it.
            kill_process(Pid::from_child(&load), Signal::TERM).unwrap();
        }
        let ended = load.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success(), "{said}");
        if killed {
            assert!(said.contains(&node.address), "{said}");
            node = Node::start(&pages_dir);
        }
        // The node notices that its reader is gone, and takes the files away.
        eventually("no file is left", || files(&pages_dir).is_empty());
        let said = done(&mut pages(&["ls", "--json", "--node", &node.address]));
        assert_eq!(said.trim(), "[]");
    }
}

#[test]
fn what_is_loaded_into_several_nodes_is_there_while_one_of_them_is() {
    let dir = tempfile::tempdir().unwrap();
    let node = |name: &str| Node::start(&dir.path().join(name));
    let (one, two) = (node("one"), node("two"));
    let both = ["--node", &*one.address, "--node", &*two.address];
    let csv = dir.path().join("t.csv");
    std::fs::write(&csv, "n\n1\n2\n3\n").unwrap();
    let csv = csv.to_str().unwrap();
    done(&mut pages(
        &[&["load", "csv", csv, "--table", "t"][..], &both].concat(),
    ));
    let tpch = ["load", "tpch", "--sf", "0.01", "--tables", "orders"];
    done(&mut pages(&[&tpch[..], &both].concat()));
    let said = refused(&mut pages(&[&tpch[..], &both].concat()));
    assert!(said.contains("--replace"), "{said}");
    done(&mut pages(&[&tpch[..], &["--append"], &both].concat()));
    let parquet = dir.path().join("t.parquet");
    let parquet = parquet.to_str().unwrap();
    let copy = format!("copy (select n from t) to '{parquet}'");
    done(&mut ask(&copy, &both));
    let load = ["load", "parquet", parquet, "--table", "t", "--replace"];
    done(&mut pages(&[&load[..], &both].concat()));
    for name in ["t", "orders"] {
        assert_eq!(table(&one, name), table(&two, name));
    }
    let plan = done(&mut ask("explain select sum(n) from t where n > 0", &both));
    let replicas = |plan: &str| plan.contains(&one.address) && plan.contains(&two.address);
    assert!(replicas(&plan), "{plan}");
    let said = refused(&mut pages(
        &[&tpch[..], &["--node", &one.address], &both].concat(),
    ));
    assert!(said.contains("named twice"), "{said}");
    // One of them alone gets more: the nodes have no version in common now.
    let more = ["load", "csv", csv, "--table", "t", "--append"];
    done(&mut pages(&[&more[..], &["--node", &two.address]].concat()));
    let said = refused(&mut pages(&[&more[..], &both].concat()));
    assert!(
        said.contains("different tables t") && replicas(&said),
        "{said}"
    );
    let said = done(&mut ask("select count(*) as rows from t", &both));
    assert_eq!(said, "rows\n6\n");
    done(&mut pages(&[&["remove", "t"][..], &both].concat()));
    let gone = one.address.clone();
    drop(one);
    let both = ["--node", &*gone, "--node", &*two.address];
    let said = done(&mut ask("select count(*) as rows from orders", &both));
    assert_eq!(said, "rows\n30000\n");
    let said = refused(&mut pages(
        &[&["load", "csv", csv, "--table", "t"][..], &both].concat(),
    ));
    assert!(said.contains(&gone), "{said}");
    assert!(
        refused(&mut pages(&["ls", "t", "--node", &two.address])).contains("there are: orders")
    );
}

#[test]
fn the_cache_s_hit_rate_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(&dir.path().join("pages"));
    node.load();
    let sql = "select sum(l_tax) from lineitem";
    let both = format!("{sql}; {sql}");
    let options = [
        "--node",
        &node.address,
        "--placement",
        "remote-local",
        "--timing",
    ];
    let output = ask(&both, &options).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let told: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("Time: "))
        .collect();
    assert_eq!(told.len(), 2, "{said}");
    assert!(
        told[0].ends_with(" 0 from the cache, 0 skipped (hit rate 0.0 %)"),
        "{said}"
    );
    assert!(told[1].contains("pages: 0 read, "), "{said}");
    assert!(told[1].ends_with(" 0 skipped (hit rate 100.0 %)"), "{said}");
}

/// Returns `kumiki sql serve` over the tables of a directory, with the certificate in these files.
fn serve_sql(listen: &str, dir: &Path, files: &(PathBuf, PathBuf)) -> Command {
    let mut command = kumiki();
    command.args(["sql", "serve", "--listen", listen, "--dir"]);
    command.arg(dir).arg("--tls-cert").arg(&files.0);
    command.arg("--tls-key").arg(&files.1);
    command
}

/// Returns `true` if a client of PostgreSQL that knows the authority accepts the server's certificate.
fn is_accepted(server: &Server, authority: &CertificateAuthority) -> bool {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    let mut socket = http::connect(server.address);
    socket.write_all(&SSL_REQUEST).unwrap();
    let mut answer = [0];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"S", "it speaks TLS");
    let mut session = authority.session(None);
    while session.is_handshaking() {
        if session.complete_io(&mut socket).is_err() {
            return false;
        }
    }
    true
}

#[test]
fn sql_is_served_with_a_certificate_that_is_read_again() {
    let (authority, next) = (
        CertificateAuthority::new("one"),
        CertificateAuthority::new("next"),
    );
    let files = authority.sign("server", |_| {});
    let tables = tempfile::tempdir().unwrap();
    let load = [
        "load", "tpch", "--sf", "0.01", "--tables", "region", "--dir",
    ];
    done(pages(&load).arg(tables.path()));
    let server = Server::start(|address, _| serve_sql(&address.to_string(), tables.path(), &files));
    assert!(is_accepted(&server, &authority));
    let (cert, key) = next.sign("renewed", |_| {});
    fs::copy(cert, &files.0).unwrap();
    fs::copy(key, &files.1).unwrap();
    assert!(!is_accepted(&server, &next), "before it is read again");
    server.signal(Signal::HUP);
    eventually("the certificate is read", || is_accepted(&server, &next));
    assert!(!is_accepted(&server, &authority));
    fs::write(&files.0, "nothing").unwrap();
    server.signal(Signal::HUP);
    eventually("the log reports it", || {
        server
            .errors()
            .contains("the certificate stays as it was: --tls-cert")
    });
    assert!(is_accepted(&server, &next));
    assert!(server.terminate().success());
}

#[test]
fn files_of_certificates_that_cannot_be_used_are_refused() {
    let authority = CertificateAuthority::new("one");
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = authority.sign("server", |_| {});
    let (_, other) = authority.sign("other", |_| {});
    let missing = authority.path("missing.pem");
    let ca = ["--tls-ca", missing.to_str().unwrap()];
    for (files, more, expected) in [
        ((&cert, &other), &[][..], "correct --tls-key or --tls-cert"),
        ((&missing, &key), &[], "--tls-cert"),
        ((&cert, &missing), &[], "--tls-key"),
        ((&cert, &key), &ca, "--tls-ca"),
        (
            (&cert, &key),
            &["--tls-auth-clients", "yes"],
            "needs --tls-ca FILE",
        ),
    ] {
        let files = (files.0.clone(), files.1.clone());
        let mut command = serve_sql("127.0.0.1:0", dir.path(), &files);
        let said = refused(command.args(more));
        assert!(said.contains(expected), "{said}");
    }
}
