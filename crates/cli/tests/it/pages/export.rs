//! `kumiki pages export`: the keys of a running server as a table, which is read back.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use disk::RealDisk;
use pages::{Local, LocalOptions, Source, Tables};

use super::node::Node;
use super::storage_commands::{done, files, pages};
use super::{json, refused};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::{proxy, start_server};
use crate::support::replicas::{Replicas, STEADY};
use testkit::SetOnDrop;
use testkit::{Client, eventually, free_address};

/// A row without its version.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    kind: String,
    expires_ms: Option<i64>,
}

fn row(key: &str, value: &str) -> Row {
    Row {
        key: key.into(),
        value: Some(value.into()),
        kind: "string".to_owned(),
        expires_ms: None,
    }
}

/// Returns the rows of a table in a directory, and the versions in them.
fn rows_of(dir: &Path, name: &str) -> (Vec<Row>, Vec<i64>) {
    let tables = Tables::open_read_only(Arc::new(RealDisk), &[dir.to_path_buf()]);
    let tables = tables.expect("a directory of pages");
    let table = tables.table(name).expect("the table");
    let source = Local::new(tables, LocalOptions::default());
    let column = |at: usize| -> Vec<ArrayRef> {
        let own = table.schema.field(at).data_type();
        let read = |(segment, entry): (_, &pages::PageEntry)| {
            let address = pages::PageAddress {
                segment,
                page: entry.page,
            };
            let mut stream = source.read(&table, vec![address]);
            let page = stream.next().expect("a page").expect("a sound one");
            pages::widen(&page.column(0).expect("a column"), own)
        };
        let segments = table.segments.iter();
        let entries = segments.flat_map(|segment| {
            let group = segment.groups[at].iter();
            group.map(|entry| (segment.id, entry))
        });
        entries.map(read).collect()
    };
    let bytes = |at: usize| -> Vec<Option<Vec<u8>>> {
        let pieces = column(at).into_iter();
        let values = pieces.flat_map(|array| -> Vec<Option<Vec<u8>>> {
            match array.data_type() {
                DataType::Utf8 => {
                    let texts = array.as_string::<i32>().iter();
                    texts.map(|text| text.map(|text| text.into())).collect()
                }
                _ => {
                    let values = array.as_binary::<i32>().iter();
                    values.map(|value| value.map(<[u8]>::to_vec)).collect()
                }
            }
        });
        values.collect()
    };
    let kinds = bytes(2).into_iter().flatten();
    let kinds = kinds.map(|kind| String::from_utf8(kind).expect("text"));
    let expires = column(3).into_iter().flat_map(|array| {
        let times = array.as_primitive::<TimestampMillisecondType>();
        times.iter().collect::<Vec<_>>()
    });
    let versions = column(4).into_iter().flat_map(|array| {
        let versions = array.as_primitive::<Int64Type>();
        versions.values().to_vec()
    });
    let keys = bytes(0).into_iter().flatten();
    let columns = keys.zip(bytes(1)).zip(kinds.zip(expires));
    let rows = columns.map(|((key, value), (kind, expires_ms))| Row {
        key,
        value,
        kind,
        expires_ms,
    });
    let (rows, versions): (Vec<Row>, Vec<i64>) = (rows.collect(), versions.collect());
    assert_eq!(rows.len() as u64, table.rows());
    assert_eq!(rows.len(), versions.len());
    assert!(
        rows.is_sorted_by(|a, b| a.key < b.key),
        "in the keys' order"
    );
    (rows, versions)
}

fn export(from: SocketAddr, dir: &Path, args: &[&str]) -> Command {
    let mut command = pages(&["export", "--from", &from.to_string()]);
    command.arg("--dir").arg(dir).args(args);
    command.env_remove("KUMIKI_PASSWORD");
    command
}

fn set(client: &mut Client, pairs: &[(&str, &str)]) {
    for (key, value) in pairs {
        assert!(!client.frame(&["SET", key, value]).is_error());
    }
}

/// Writes keys `name:000000` and so on, with values of so many bytes.
fn fill(client: &mut Client, name: &str, keys: usize, bytes: usize) {
    let value = "v".repeat(bytes);
    let all: Vec<String> = (0..keys).map(|key| format!("{name}:{key:06}")).collect();
    for some in all.chunks(500) {
        let mut args = vec!["MSET"];
        args.extend(some.iter().flat_map(|key| [key.as_str(), &value]));
        assert!(!client.frame(&args).is_error());
    }
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a directory"))
    }

    fn pages(&self) -> PathBuf {
        self.0.path().join("pages")
    }
}

#[test]
fn the_keys_of_a_server_become_a_table() {
    let server = start_server(&["--ephemeral"]);
    let mut client = Client::connect(server.address);
    let dir = Dir::new();
    let dir = dir.pages();
    let pairs = [
        ("b", "2"),
        ("a", "1"),
        ("ä:1", "größer"),
        ("ä:2", ""),
        ("x", "y"),
    ];
    set(&mut client, &pairs);
    client.frame(&["SET", "later", "x", "PXAT", "4102444800123"]);
    client.frame(&["SET", "soon", "x", "PX", "1"]);
    client.frame(&["DEL", "x"]);
    std::thread::sleep(std::time::Duration::from_millis(20));

    let said = done(export(server.address, &dir, &[]));
    assert!(said.starts_with("store: 5 rows in 5 pages"), "{said}");
    assert!(
        said.contains("UTC (epoch ") && said.contains("version 1"),
        "{said}"
    );
    let later = Row {
        expires_ms: Some(4_102_444_800_123),
        ..row("later", "x")
    };
    let expected = [
        row("a", "1"),
        row("b", "2"),
        later,
        row("ä:1", "größer"),
        row("ä:2", ""),
    ];
    let (rows, versions) = rows_of(&dir, "store");
    assert_eq!(rows, expected);
    // The later one was written first.
    assert!(versions[1] < versions[0], "{versions:?}");

    // A table that is there stays as it is.
    set(&mut client, &[("a", "9")]);
    let said = refused(export(server.address, &dir, &[]));
    assert!(
        said.contains("--replace") && said.contains("store"),
        "{said}"
    );
    assert_eq!(rows_of(&dir, "store").0, expected);
    let said = done(export(server.address, &dir, &["--replace"]));
    assert!(said.contains("version 2"), "{said}");
    let (rows, newer) = rows_of(&dir, "store");
    assert_eq!(rows[0], row("a", "9"));
    assert!(newer[0] > versions[0] && newer[1] == versions[1]);

    let some = [
        "--table",
        "some",
        "--match",
        "ä:[2-9]",
        "--page-size",
        "4KiB",
    ];
    let said = done(export(server.address, &dir, &some));
    assert!(said.starts_with("some: 1 rows"), "{said}");
    assert_eq!(rows_of(&dir, "some").0, [row("ä:2", "")]);
    let none = ["--table", "none", "--match", "nothing*"];
    done(export(server.address, &dir, &none));
    assert!(rows_of(&dir, "none").0.is_empty());
    let mut listed = pages(&["ls", "some", "--json", "--dir"]);
    listed.arg(&dir);
    assert_eq!(json(&done(listed))["page_size"], 4096);
    let mut checked = pages(&["check", "--dir"]);
    checked.arg(&dir);
    assert!(done(checked).contains("store: 5 rows"));
}

/// The table has the keys that many clients change as they were at one moment.
#[test]
fn a_table_is_of_one_moment() {
    const ACCOUNTS: usize = 3000;
    const EACH: i64 = 100;
    let server = start_server(&["--ephemeral", "--threads", "2"]);
    let mut client = Client::connect(server.address);
    let account = |number: usize| format!("account:{number:05}");
    for number in 0..ACCOUNTS {
        set(&mut client, &[(&account(number), &EACH.to_string())]);
    }
    let dir = Dir::new();
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        for seed in 1..4 {
            let (stop, moved, account) = (&stop, &moved, &account);
            let mut client = Client::connect(server.address);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let (from, to) = (random.usize(..ACCOUNTS), random.usize(..ACCOUNTS));
                    client.frame(&["MULTI"]);
                    client.frame(&["DECRBY", &account(from), "7"]);
                    client.frame(&["INCRBY", &account(to), "7"]);
                    if !client.frame(&["EXEC"]).is_error() {
                        moved.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut before = 0;
        let mut tables = std::collections::BTreeSet::new();
        for _ in 0..6 {
            // So that something has moved since the last one.
            while moved.load(Ordering::Relaxed) < before + 100 {
                std::thread::yield_now();
            }
            before = moved.load(Ordering::Relaxed);
            done(export(server.address, &dir.pages(), &["--replace"]));
            let (rows, _) = rows_of(&dir.pages(), "store");
            assert_eq!(rows.len(), ACCOUNTS);
            let values = rows.into_iter().map(|row| {
                let value = String::from_utf8(row.value.expect("a value")).expect("a number");
                value.parse::<i64>().expect("a number")
            });
            let values: Vec<i64> = values.collect();
            assert_eq!(values.iter().sum::<i64>(), EACH * ACCOUNTS as i64);
            tables.insert(values);
        }
        assert_eq!(tables.len(), 6, "each has seen another moment");
    });
}

#[test]
fn a_storage_node_takes_it() {
    let server = start_server(&["--ephemeral"]);
    let mut client = Client::connect(server.address);
    fill(&mut client, "k", 20_000, 300);
    let node = Node::start(&[]);
    let to_node = |args: &[&str]| {
        let mut command = node.command(&["export", "--from", &server.address.to_string()]);
        command.args(args);
        command
    };
    let said = done(to_node(&[]));
    assert!(said.starts_with("store: 20000 rows"), "{said}");
    assert!(refused(to_node(&[])).contains("--replace"));
    // A command that names the directory finds the node that uses it.
    done(export(server.address, &node.dir(), &["--replace"]));
    assert_eq!(node.table("store")["version"], 2);
    assert_eq!(node.table("store")["rows"], 20_000);
    let (rows, _) = rows_of(&node.dir(), "store");
    assert_eq!(rows[19_999], row("k:019999", &"v".repeat(300)));
    // A failure at the server leaves the node's table unchanged.
    set(&mut client, &[("m", "1")]);
    client.frame(&[&b"SET"[..], b"z", b"\xff"]);
    let said = refused(to_node(&["--replace"]));
    assert!(said.contains("\"z\" is not UTF-8"), "{said}");
    assert_eq!(node.table("store")["version"], 2);
}

/// The store's own records about read-atomic keys are not exported.
#[test]
fn the_keys_of_one_database_are_taken() {
    let server = start_server(&["--ephemeral"]);
    let mut client = Client::connect(server.address);
    set(&mut client, &[("key", "zero")]);
    assert_eq!(client.told("SELECT 2"), "+OK");
    set(&mut client, &[("key", "two"), ("other", "2")]);
    let dir = Dir::new();
    done(export(server.address, &dir.pages(), &[]));
    let args = ["--database", "2", "--table", "two"];
    done(export(server.address, &dir.pages(), &args));
    assert_eq!(rows_of(&dir.pages(), "store").0, [row("key", "zero")]);
    let two = [row("key", "two"), row("other", "2")];
    assert_eq!(rows_of(&dir.pages(), "two").0, two);
    let said = refused(export(
        server.address,
        &dir.pages(),
        &["--database", "99", "--replace"],
    ));
    assert!(said.contains("--database 99: "), "{said}");
}

#[test]
fn read_atomic_keys_are_as_they_are_read() {
    let server = start_server(&["--ephemeral", "--read-atomic", "ra:"]);
    let mut client = Client::connect(server.address);
    for number in ["1", "2", "3"] {
        client.frame(&["MSET", "ra:a", number, "ra:b", number, "ra:c", number]);
    }
    client.frame(&["DEL", "ra:b", "ra:none"]);
    set(&mut client, &[("other", "x")]);
    let dir = Dir::new();
    let name = format!("localhost:{}", server.address.port());
    let mut command = pages(&["export", "--from", &name, "--dir"]);
    command.arg(dir.pages());
    done(command);
    let expected = [row("other", "x"), row("ra:a", "3"), row("ra:c", "3")];
    assert_eq!(rows_of(&dir.pages(), "store").0, expected);
}

#[test]
fn bytes_that_are_no_text_are_named_and_taken_as_they_are() {
    let server = start_server(&["--ephemeral"]);
    let mut client = Client::connect(server.address);
    let dir = Dir::new();
    let dir = dir.pages();
    let bytes: Vec<u8> = (0..=255).collect();
    client.frame(&[&b"SET"[..], b"a", &bytes]);
    let said = refused(export(server.address, &dir, &[]));
    assert!(said.contains("value of key \"a\" is not UTF-8"), "{said}");
    assert!(
        said.contains("--binary") && said.contains("nothing of this export"),
        "{said}"
    );
    client.frame(&[&b"SET"[..], b"\xfe\r\n", b"text"]);
    let said = refused(export(server.address, &dir, &["--match", "?\r\n"]));
    assert!(said.contains("key \"\\xfe\\r\\n\" is not UTF-8"), "{said}");
    assert!(files(&dir).is_empty(), "nothing is left");

    done(export(server.address, &dir, &["--binary"]));
    let (rows, _) = rows_of(&dir, "store");
    let got: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
        rows.into_iter().map(|row| (row.key, row.value)).collect();
    let expected = [
        (b"a".to_vec(), Some(bytes)),
        (b"\xfe\r\n".to_vec(), Some(b"text".to_vec())),
    ];
    assert_eq!(got, BTreeMap::from(expected));
}

#[test]
fn values_that_no_page_holds_are_named_or_null() {
    let server = start_server(&["--ephemeral"]);
    let mut client = Client::connect(server.address);
    let dir = Dir::new();
    let dir = dir.pages();
    set(
        &mut client,
        &[("long", &"x".repeat(10_000)), ("short", "x")],
    );
    let small = ["--page-size", "4KiB"];
    let said = refused(export(server.address, &dir, &small));
    assert!(said.contains("key \"long\" has 10000 bytes"), "{said}");
    assert!(said.contains("--page-size 16"), "{said}");
    done(export(server.address, &dir, &["--page-size", "16KiB"]));
    set(&mut client, &[("huge", &"x".repeat(5 << 20))]);
    let said = refused(export(server.address, &dir, &["--replace"]));
    assert!(
        said.contains("\"huge\"") && said.contains("--long-values null"),
        "{said}"
    );
    assert_eq!(
        rows_of(&dir, "store").0.len(),
        2,
        "the older table is there"
    );

    let null = ["--replace", "--long-values", "null"];
    let said = done(export(server.address, &dir, &null));
    assert!(said.contains("1 values are null"), "{said}");
    let huge = Row {
        value: None,
        ..row("huge", "")
    };
    let rows = rows_of(&dir, "store").0;
    assert_eq!(
        rows,
        [huge, row("long", &"x".repeat(10_000)), row("short", "x")]
    );
}

/// Forwards what a server sends, up to so many bytes; then calls `stop`, and ends the connection
/// once that has returned.
fn relay(to: SocketAddr, bytes: usize, stop: impl FnOnce() + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has one");
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut server = TcpStream::connect(to).expect("the server");
        let (mut from, mut onto) = (
            client.try_clone().expect("a handle"),
            server.try_clone().expect("a handle"),
        );
        std::thread::spawn(move || std::io::copy(&mut from, &mut onto));
        let mut limited = Read::by_ref(&mut server).take(bytes as u64);
        let passed = std::io::copy(&mut limited, &mut client);
        assert_eq!(passed.expect("both are there"), bytes as u64);
        stop();
        // The bytes that the server sent before it was killed.
        drop(std::io::copy(&mut server, &mut client));
        drop(client.flush());
    });
    address
}

#[test]
fn a_server_that_is_killed_meanwhile_leaves_no_half_table() {
    let dir = Dir::new();
    let dir = dir.pages();
    let mut before = None;
    for mode in [&[][..], &["--replace"]] {
        let server = start_server(&["--ephemeral"]);
        let mut client = Client::connect(server.address);
        fill(&mut client, "k", 50_000, 1000);
        if let [_] = mode {
            done(export(server.address, &dir, &["--match", "k:00000*"]));
            before = Some(rows_of(&dir, "store"));
        }
        let (kill, killed) = channel();
        let (tell, told) = channel();
        let through = relay(server.address, 20 << 20, move || {
            kill.send(()).expect("a listener is there");
            told.recv().expect("it is killed");
        });
        let running = export(through, &dir, mode).stderr(Stdio::piped()).spawn();
        let running = running.expect("it starts");
        killed.recv().expect("so much has come");
        server.kill();
        tell.send(()).expect("it waits");
        let ended = running.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains(&through.to_string()), "{said}");
        assert!(
            said.contains("nothing of this export to store is kept"),
            "{said}"
        );
        match &before {
            None => assert!(files(&dir).is_empty(), "{:?}", files(&dir)),
            Some(before) => assert_eq!(&rows_of(&dir, "store"), before),
        }
    }
}

#[test]
fn what_cannot_be_exported_is_told() {
    let dir = Dir::new();
    let dir = dir.pages();
    let nobody = free_address().expect("a free port");
    let said = refused(export(nobody, &dir, &[]));
    assert!(
        said.contains(&nobody.to_string()) && said.contains("refused"),
        "{said}"
    );
    let mut nowhere = pages(&["export", "--from", "127.0.0.1", "--dir"]);
    nowhere.arg(&dir);
    assert!(refused(nowhere).contains("give host:port"));
    assert!(!dir.exists(), "nothing was made");

    let server = start_server(&["--ephemeral", "--requirepass", "tell nobody"]);
    let mut client = Client::connect(server.address);
    client.frame(&["AUTH", "tell nobody"]);
    set(&mut client, &[("a", "1")]);
    let said = refused(export(server.address, &dir, &[]));
    assert!(
        said.contains("--password") && said.contains("KUMIKI_PASSWORD"),
        "{said}"
    );
    let said = refused(export(server.address, &dir, &["--password", "guess"]));
    assert!(said.contains("refuses the password"), "{said}");
    assert!(files(&dir).is_empty());
    done(export(server.address, &dir, &["--password", "tell nobody"]));
    let mut by_environment = export(server.address, &dir, &["--replace"]);
    done({
        by_environment.env("KUMIKI_PASSWORD", "tell nobody");
        by_environment
    });
    assert_eq!(rows_of(&dir, "store").0, [row("a", "1")]);
    let bad = ["--password", "tell nobody", "--table", "no table"];
    assert!(refused(export(server.address, &dir, &bad)).contains("no table"));
}

#[test]
fn each_node_of_a_cluster_is_exported_by_itself() {
    let cluster = Cluster::start(3, Keeping::Nothing);
    let proxy = proxy(&["--cluster", &cluster.file()]);
    let mut client = Client::connect(proxy.address);
    let keys: Vec<String> = (0..60).map(|key| format!("k{key:02}")).collect();
    let mut args = vec!["MSET"];
    args.extend(keys.iter().flat_map(|key| [key.as_str(), "v"]));
    assert!(!client.frame(&args).is_error());
    let dir = Dir::new();
    let mut all = Vec::new();
    for node in 1..=3 {
        let table = format!("of_{node}");
        let args = ["--table", &table];
        let output = export(cluster.address(node - 1), &dir.pages(), &args).output();
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains(&format!("has partition {node} of 3")),
            "{said}"
        );
        let rows = rows_of(&dir.pages(), &table).0;
        assert!(!rows.is_empty());
        all.extend(rows);
    }
    all.sort_by(|a, b| a.key.cmp(&b.key));
    let expected: Vec<Row> = keys.iter().map(|key| row(key, "v")).collect();
    assert_eq!(all, expected);
    let said = refused(export(proxy.address, &dir.pages(), &[]));
    assert!(said.contains("about one node"), "{said}");
}

#[test]
fn who_does_not_lead_says_who_does() {
    let replicas = Replicas::start_with(1, 3, &STEADY);
    let leader = replicas.leader(1);
    let mut client = replicas.client();
    for number in 0..100 {
        client.insist(&["SET", &format!("k:{number:02}"), "v"]);
    }
    let dir = Dir::new();
    let follower = (1..=3).find(|node| *node != leader).expect("others");
    let said = refused(export(replicas.address(follower), &dir.pages(), &[]));
    let advice = format!("--from {}", replicas.address(leader));
    assert!(said.contains(&advice), "{said}");
    // The replica's copy is as complete as the leader's, and may be older.
    let mut said = String::new();
    eventually("a table of what the follower has", || {
        let args = ["--table", "stale", "--stale", "--replace"];
        let mut stale = export(replicas.address(follower), &dir.pages(), &args);
        let output = stale.output().expect("it starts");
        said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.starts_with("stale: 100 rows")
    });
    assert_eq!(rows_of(&dir.pages(), "stale").0.len(), 100, "{said}");
    let said = done(export(replicas.address(leader), &dir.pages(), &[]));
    assert!(said.starts_with("store: 100 rows"), "{said}");
    let (rows, _) = rows_of(&dir.pages(), "store");
    let expected: Vec<Row> = (0..100).map(|n| row(&format!("k:{n:02}"), "v")).collect();
    assert_eq!(rows, expected);
}
