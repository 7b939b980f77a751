//! The real binary as a user sees it: the first minute, mistakes, stopping, and Redis's tools.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::process::{kumiki, run, serve, start_server};
use tempfile::{TempDir, tempdir};
use testkit::cluster_file::{NodeAddresses, describe};
use testkit::peers::{self, Group};
use testkit::process::Server;
use testkit::{Client, eventually, free_address};

fn serve_in(data: &TempDir, more: &[&str]) -> Server {
    let data = data.path().to_str().expect("a path in UTF-8");
    start_server(&[&["--data", data], more].concat())
}

/// Runs `kumiki serve`, which is expected to end by itself, and returns its exit code and its
/// errors.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let (code, printed, said) = run(&[&["serve"], args].concat());
    assert!(printed.is_empty(), "{printed}");
    (code, said)
}

#[track_caller]
fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is missing: {said}");
    }
}

/// Runs `redis-cli` with these arguments, and returns its output.
fn redis_cli(program: &Path, server: &Server, args: &[&str]) -> String {
    let out = Command::new(program)
        .args(["-p", &server.address.port().to_string()])
        .args(args)
        .output()
        .expect("run redis-cli");
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout)
        .expect("text")
        .trim_end()
        .to_owned()
}

#[test]
fn one_line_says_where_it_listens_and_where_data_lies() {
    let data = tempdir().expect("a temporary directory");
    let server = serve_in(&data, &["--threads", "3"]);
    Client::connect(server.address).frame(&["PING"]);
    assert_says(
        &server.only_line(),
        &[
            &server.address.to_string(),
            data.path().to_str().expect("a path"),
            "durability: group",
            "threads: 3",
            "version 0.1.0",
            &format!("redis-cli -p {} set ", server.address.port()),
        ],
    );

    let ephemeral = start_server(&["--ephemeral"]);
    Client::connect(ephemeral.address).frame(&["PING"]);
    assert_says(
        &ephemeral.only_line(),
        &[&ephemeral.address.to_string(), "memory only"],
    );
}

#[test]
fn an_address_may_be_a_port_or_a_name() {
    for option in ["--listen", "--port"] {
        let server = Server::start(|address, dir| {
            let mut command = kumiki();
            let port = address.port().to_string();
            command.args(["serve", "--ephemeral", option, &port]);
            command.current_dir(dir);
            command
        });
        Client::connect(server.address).frame(&["PING"]);
    }
    let server = Server::start(|address, dir| {
        let mut command = kumiki();
        let at = format!("localhost:{}", address.port());
        command.args(["serve", "--ephemeral", "--listen", &at]);
        command.current_dir(dir);
        command
    });
    Client::connect(server.address).frame(&["PING"]);
    let (code, said) = refused(&["--listen", "localhost"]);
    assert_eq!(code, Some(2), "{said}");
    assert_says(&said, &["write HOST:PORT, for example 127.0.0.1:6380"]);
}

#[test]
fn a_bound_that_nothing_fits_into_is_warned_of() {
    let server = start_server(&["--ephemeral", "--maxmemory", "10"]);
    eventually("it warns", || {
        server.errors().contains("--maxmemory is 10 bytes") && server.errors().contains("10mb")
    });
}

#[test]
fn help_groups_the_options() {
    let (code, printed, said) = run(&["serve", "--help"]);
    assert_eq!(code, Some(0), "{said}");
    for group in [
        "Start:",
        "Durability:",
        "Limits:",
        "Security:",
        "Cluster:",
        "Expert:",
    ] {
        assert!(
            printed.contains(&format!("\n{group}\n")),
            "{group}: {printed}"
        );
    }
}

#[test]
fn redis_cli_sets_a_value_that_survives_a_kill() {
    let Some(cli) = peers::program(Group::Redis, "redis-cli") else {
        return;
    };
    let data = tempdir().expect("a temporary directory");
    let server = serve_in(&data, &[]);
    assert_eq!(redis_cli(&cli, &server, &["set", "a", "1"]), "OK");
    assert_eq!(redis_cli(&cli, &server, &["get", "a"]), "1");
    server.kill();
    let server = serve_in(&data, &[]);
    assert_eq!(redis_cli(&cli, &server, &["get", "a"]), "1");
    assert_eq!(redis_cli(&cli, &server, &["-3", "incr", "a"]), "2");
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let data = tempdir().expect("a temporary directory");
    let server = serve_in(&data, &[]);
    let mut client = Client::connect(server.address);
    for i in 0..100 {
        assert_eq!(
            client
                .frame(&["SET", &format!("key{i}"), &i.to_string()])
                .raw,
            b"+OK\r\n"
        );
    }
    server.kill();
    let server = serve_in(&data, &[]);
    let mut client = Client::connect(server.address);
    assert_eq!(client.frame(&["DBSIZE"]).int(), Some(100));
    assert_eq!(client.frame(&["GET", "key99"]).raw, b"$2\r\n99\r\n");
}

#[test]
fn ephemeral_data_is_gone_after_a_restart() {
    let server = start_server(&["--ephemeral"]);
    Client::connect(server.address).frame(&["SET", "a", "1"]);
    assert!(server.terminate().success());
    let server = start_server(&["--ephemeral"]);
    assert_eq!(
        Client::connect(server.address).frame(&["GET", "a"]).raw,
        b"$-1\r\n"
    );
}

#[test]
fn sigterm_stops_it_with_all_data() {
    for durability in ["group", "async"] {
        let data = tempdir().expect("a temporary directory");
        let server = serve_in(&data, &["--durability", durability]);
        let mut client = Client::connect(server.address);
        for i in 0..200 {
            client.send(&["SET", &format!("key{i}"), "value"]);
        }
        for _ in 0..200 {
            assert!(!client.receive().is_last());
        }
        assert_eq!(server.terminate().code(), Some(0), "{durability}");
        let server = serve_in(&data, &[]);
        let mut client = Client::connect(server.address);
        assert_eq!(client.frame(&["DBSIZE"]).int(), Some(200), "{durability}");
    }
}

#[test]
fn a_public_address_needs_a_password() {
    let (code, said) = refused(&["--listen", "0.0.0.0:0", "--ephemeral"]);
    assert_eq!(code, Some(1), "{said}");
    assert_says(&said, &["0.0.0.0", "--requirepass", "--insecure"]);
}

#[test]
fn an_empty_password_is_refused() {
    let listen = ["--listen", "0.0.0.0:0", "--ephemeral", "--requirepass", ""];
    let (code, said) = refused(&listen);
    assert_eq!(code, Some(2), "{said}");
    assert_says(&said, &["an empty password protects nothing"]);
}

/// Otherwise every user of the machine could read and write without it, at the addresses of nodes.
/// Other users of the machine can read neither the password nor the data.
#[test]
fn a_file_with_a_password_and_the_data_are_private() {
    let dir = tempdir().expect("a temporary directory");
    let (file, data) = (dir.path().join("password"), dir.path().join("data"));
    let [file, data] = [&file, &data].map(|path| path.to_str().expect("a path in UTF-8"));
    let options = ["--data", data, "--requirepass-file", file];
    let mode = |path: &str, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
    };
    fs::write(file, "secret\n").expect("the file");
    mode(file, 0o644);
    let address = free_address().expect("a free port").to_string();
    let (code, said) = refused(&[&["--listen", &address], &options[..]].concat());
    assert_eq!(code, Some(1), "{said}");
    assert_says(&said, &[&format!("chmod o-rwx {file}")]);
    mode(file, 0o600);
    let server = start_server(&options);
    let mut client = Client::connect(server.address);
    assert!(client.told("GET a").starts_with("-NOAUTH"));
    assert_eq!(client.told("AUTH secret"), "+OK");
    assert_eq!(client.told("SET a 1"), "+OK");
    assert_eq!(client.told("SAVE"), "+OK");
    let mut paths = vec![Path::new(data).to_owned()];
    while let Some(path) = paths.pop() {
        let about = fs::metadata(&path).expect("it is there");
        let private = if about.is_dir() { 0o700 } else { 0o600 };
        let mode = about.permissions().mode() & 0o777;
        assert_eq!(mode, private, "{}: {mode:o}", path.display());
        if about.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
}

#[test]
fn a_configuration_with_a_password_is_private() {
    let dir = tempdir().expect("a temporary directory");
    let file = dir.path().join("serve.toml");
    let name = file.to_str().expect("a path in UTF-8");
    let mode = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its mode");
    fs::write(&file, "requirepass = \"secret\"\n").expect("the file");
    mode(0o644);
    let address = free_address().expect("a free port").to_string();
    let (code, said) = refused(&["--listen", &address, "--ephemeral", "--config", name]);
    assert_ne!(code, Some(0), "{said}");
    assert_says(&said, &["requirepass", &format!("chmod o-rwx {name}")]);
    mode(0o600);
    let server = start_server(&["--ephemeral", "--config", name]);
    let mut client = Client::connect(server.address);
    assert!(client.told("GET a").starts_with("-NOAUTH"));
    // Without a password every user may read it.
    mode(0o644);
    fs::write(&file, "max-clients = 10\n").expect("the file");
    drop(start_server(&["--ephemeral", "--config", name]));
}

#[test]
fn a_password_in_a_cluster_needs_a_secret() {
    let dir = tempdir().expect("a temporary directory");
    let file = dir.path().join("cluster.toml");
    let nodes = NodeAddresses::free(1, false);
    let text = describe(&nodes, 1);
    fs::write(&file, &text).expect("the cluster's file");
    let file = file.to_str().expect("a path");
    let node = ["--ephemeral", "--cluster", file, "--node", "1"];
    let password = ["--requirepass", "pw"];
    let (code, said) = refused(&[&node[..], &password].concat());
    assert_eq!(code, Some(1), "{said}");
    assert_says(&said, &["--requirepass", "secret-file", "--insecure"]);
    fs::write(file, format!("secret = \"0123456789abcdef\"\n{text}")).expect("the file");
    let build = |_, _: &Path| {
        let mut command = kumiki();
        command.arg("serve").args(node).args(password);
        command
    };
    let server = Server::insist_at(nodes[0].client, build).expect("it starts");
    assert_eq!(
        Client::connect(server.address).frame(&["AUTH", "pw"]).raw,
        b"+OK\r\n"
    );
}

#[test]
fn an_address_for_tls_in_a_clusters_file_needs_a_certificate() {
    let dir = tempdir().expect("a temporary directory");
    let file = dir.path().join("cluster.toml");
    let nodes = NodeAddresses::with_tls(NodeAddresses::free(1, false));
    fs::write(&file, describe(&nodes, 1)).expect("the cluster's file");
    let file = file.to_str().expect("a path");
    let (code, said) = refused(&["--ephemeral", "--cluster", file, "--node", "1"]);
    assert_eq!(code, Some(1), "{said}");
    let tls = nodes[0].tls.expect("an address").to_string();
    assert_says(&said, &[&tls, "--tls-cert", "--tls-key"]);
}

#[test]
fn a_data_directory_serves_one_process() {
    let data = tempdir().expect("a temporary directory");
    let path = data.path().to_str().expect("a path");
    let first = serve_in(&data, &[]);
    let address = free_address().expect("a free port").to_string();
    let (code, said) = refused(&["--listen", &address, "--data", path]);
    assert_eq!(code, Some(1), "{said}");
    assert_says(&said, &[path, "another process"]);
    // The first one continues, and releases the directory when it ends.
    assert_eq!(
        Client::connect(first.address).frame(&["SET", "a", "1"]).raw,
        b"+OK\r\n"
    );
    first.kill();
    let second = serve_in(&data, &[]);
    assert_eq!(
        Client::connect(second.address).frame(&["GET", "a"]).raw,
        b"$1\r\n1\r\n"
    );
}

#[test]
fn an_address_in_use_is_said() {
    let first = start_server(&["--ephemeral"]);
    let address = first.address.to_string();
    let (code, said) = refused(&["--listen", &address, "--ephemeral"]);
    assert_eq!(code, Some(1), "{said}");
    assert_says(&said, &[&address, "--listen"]);
}

#[test]
fn bad_flags_are_explained() {
    for (args, words) in [
        (&["--dta", "x"][..], &["--dta", "--data"][..]),
        (&["--maxmemory", "5zb"], &["5zb", "--maxmemory", "512KiB"]),
        (&["--durability", "maybe"], &["maybe", "group", "async"]),
        (&["--epoch-time", "soon"], &["soon", "adaptive", "1ms"]),
        (
            &["--listen", "localhost"],
            &["localhost", "--listen", "6380"],
        ),
        (&["--ephemeral", "--data", "x"], &["--ephemeral", "--data"]),
    ] {
        let (code, said) = refused(args);
        assert_eq!(code, Some(2), "{said}");
        assert_says(&said, words);
    }
}

#[test]
fn data_of_a_newer_release_is_refused_and_left_alone() {
    let data = tempdir().expect("a temporary directory");
    let path = data.path().to_str().expect("a path");
    let server = serve_in(&data, &[]);
    Client::connect(server.address).frame(&["SET", "a", "1"]);
    server.kill();
    // The version stands behind the eight bytes of the magic.
    let log = data.path().join("log0/00000000.log");
    let mut bytes = fs::read(&log).expect("the first segment");
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    let newer = version + 1;
    bytes[8..12].copy_from_slice(&newer.to_le_bytes());
    fs::write(&log, &bytes).expect("a newer segment");
    let address = free_address().expect("a free port").to_string();
    let (code, said) = refused(&["--listen", &address, "--data", path]);
    assert_eq!(code, Some(1), "{said}");
    assert_says(
        &said,
        &[log.to_str().expect("a path"), &format!("version {newer}")],
    );
    assert_eq!(fs::read(&log).expect("the segment"), bytes);
    // The release that wrote it finds its data.
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    fs::write(&log, &bytes).expect("the segment as it was");
    let server = serve_in(&data, &[]);
    assert_eq!(
        Client::connect(server.address).frame(&["GET", "a"]).raw,
        b"$1\r\n1\r\n"
    );
}

#[test]
fn a_password_is_asked_for() {
    let Some(cli) = peers::program(Group::Redis, "redis-cli") else {
        return;
    };
    let server = start_server(&["--ephemeral", "--requirepass", "secret"]);
    let without = redis_cli(&cli, &server, &["get", "a"]);
    assert_says(&without, &["NOAUTH"]);
    let ask = |args: &[&str]| {
        let login = ["--no-auth-warning", "-a", "secret"];
        redis_cli(&cli, &server, &[&login, args].concat())
    };
    assert_eq!(ask(&["set", "a", "1"]), "OK");
    assert_eq!(ask(&["get", "a"]), "1");
}

#[test]
fn full_memory_refuses_writes_and_goes_on_reading() {
    let server = start_server(&["--ephemeral", "--maxmemory", "4mb"]);
    let mut client = Client::connect(server.address);
    let value = "x".repeat(100_000);
    let mut refused = None;
    for i in 0..100 {
        let reply = client.frame(&["SET", &format!("key{i}"), &value]);
        if reply.is_error() {
            refused = Some((i, reply));
            break;
        }
    }
    let (count, reply) = refused.expect("memory is limited");
    let text = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert_eq!(reply.raw, text, "{reply:?}");
    // The server checks its memory at intervals.
    assert!(
        (20..=55).contains(&count),
        "4 MB held {count} values of 100 KB"
    );
    assert_eq!(client.frame(&["STRLEN", "key0"]).int(), Some(100_000));
    assert_eq!(client.frame(&["DEL", "key0"]).int(), Some(1));
    assert_eq!(client.frame(&["FLUSHALL"]).raw, b"+OK\r\n");
}

#[test]
fn redis_benchmark_runs_through() {
    let Some(benchmark) = peers::program(Group::Redis, "redis-benchmark") else {
        return;
    };
    let data = tempdir().expect("a temporary directory");
    let server = serve_in(&data, &[]);
    let tests = "ping_inline,ping_mbulk,set,get,incr,mset";
    let out = Command::new(benchmark)
        .args([
            "-p",
            &server.address.port().to_string(),
            "-q",
            "-n",
            "1000",
            "-t",
            tests,
        ])
        .output()
        .expect("run redis-benchmark");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}");
    for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET"] {
        let line = said
            .split(['\r', '\n'])
            .find(|line| line.starts_with(test) && line.contains("requests per second"));
        assert!(line.is_some(), "{test} is missing: {said}");
    }
    assert!(!said.contains("rror"), "{said}");
    let mut client = Client::connect(server.address);
    assert_eq!(
        client.frame(&["GET", "counter:__rand_int__"]).raw,
        b"$4\r\n1000\r\n"
    );
}

#[test]
fn help_shows_every_option() {
    let out = serve(free_address().expect("a free port"))
        .arg("--help")
        .output()
        .expect("run kumiki");
    let said = String::from_utf8(out.stdout).expect("text");
    assert!(out.status.success());
    let options = [
        "--listen",
        "--data",
        "--ephemeral",
        "--durability",
        "--maxmemory",
        "--requirepass",
        "--affinity",
        "--epoch-time",
        "--durability-target",
        "--max-epoch-diff",
        "--checkpoint-log-size",
        "--checkpoint-share",
        "--admin",
    ];
    assert_says(&said, &options);
}
