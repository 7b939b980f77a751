//! An operator's work with the real binary: placing threads, bounding latency, monitoring.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::process::{kumiki, proxy, start_server};
use testkit::Client;
use testkit::http::get;
use testkit::process::{Server, wait};
use testkit::tls::CertificateAuthority;

/// Runs `kumiki serve`, which is expected to be refused. Returns its exit code and its output.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut child = kumiki()
        .arg("serve")
        .args(args)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let status = wait(&mut child);
    let mut said = String::new();
    let mut errors = child.stderr.take().expect("it is piped");
    errors.read_to_string(&mut said).expect("text");
    let left: Vec<_> = fs::read_dir(dir.path()).expect("the directory").collect();
    assert!(left.is_empty(), "refused, yet it began: {left:?}");
    (status.code(), said)
}

/// Every user can read the arguments of every process.
#[test]
fn passwords_are_hidden_from_the_list_of_processes() {
    let server = start_server(&["--ephemeral", "--requirepass", "first-password"]);
    let node = server.address.to_string();
    let proxy = proxy(&[
        "--redis",
        &node,
        "--node-password=first-password",
        "--requirepass",
        "second-password",
    ]);
    for (server, password, options) in [
        (&server, "first-password", 1),
        (&proxy, "second-password", 2),
    ] {
        let args = fs::read(format!("/proc/{}/cmdline", server.process())).expect("its arguments");
        let args = String::from_utf8_lossy(&args);
        for hidden in ["first-password", "second-password"] {
            assert!(!args.contains(hidden), "{args}");
        }
        assert_eq!(args.matches("/proc/self/fd/").count(), options, "{args}");
        let mut client = Client::connect(server.address);
        assert!(client.told("GET a").starts_with("-NOAUTH"));
        assert_eq!(client.told(&format!("AUTH {password}")), "+OK");
        assert_eq!(client.told("SET a 1"), "+OK");
    }
}

/// Returns the processors that this process may use.
fn processors() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).expect("the system's answer");
    let most = rustix::thread::CpuSet::MAX_CPU;
    (0..most).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Returns the value behind `name` in a file of lines, such as those in `/proc`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches([':', '\t', ' ']).to_owned())
}

/// Returns the names of a process's threads, and the processors on which each may run.
fn threads(process: &str) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
    let texts = tasks.filter_map(Result::ok).filter_map(status);
    let pairs = texts.map(|text| {
        let of = |name| field(&text, name).expect("a field of every thread");
        (of("Name"), of("Cpus_allowed_list"))
    });
    pairs.collect()
}

fn info(client: &mut Client, name: &str) -> String {
    let reply = client.frame(&["INFO"]);
    let text = String::from_utf8_lossy(&reply.raw).into_owned();
    field(&text, name).unwrap_or_else(|| panic!("no {name}: {text}"))
}

/// Returns the address at which the server says that its metrics are.
fn admin_address(server: &Server) -> SocketAddr {
    let output = server.only_line();
    let (_, rest) = output.split_once("http://").expect("an address");
    let (address, _) = rest.split_once("/metrics").expect("a path");
    address.parse().expect("an address")
}

/// Sockets that send nothing cannot take descriptors that the log needs.
#[test]
fn idle_sockets_leave_the_log_its_files() {
    for limit in ["-Sn 300", "-n 300"] {
        let server = Server::start(|address, dir| {
            let mut command = Command::new("sh");
            let program = env!("CARGO_BIN_EXE_kumiki");
            command.args([
                "-c",
                &format!("ulimit {limit}; exec \"$0\" \"$@\""),
                program,
            ]);
            command.args(["serve", "--listen", &address.to_string(), "--data"]);
            command.arg(dir.join("data"));
            command.args(["--log-segment-size", "1mb", "--requirepass", "pw"]);
            command
        });
        let mut client = Client::connect(server.address);
        assert_eq!(client.told("AUTH pw"), "+OK");
        let connect = |_| TcpStream::connect(server.address).ok();
        let idle: Vec<TcpStream> = (0..400).filter_map(connect).collect();
        assert!(idle.len() > 200, "{}", idle.len());
        let value = "v".repeat(100_000);
        for number in 0..50 {
            let reply = client.call(&["SET", &format!("key{number}"), &value]);
            assert_eq!(reply.shown(), "+OK", "{limit}");
        }
        assert_eq!(client.told("SAVE"), "+OK", "{limit}");
        drop(idle);
        assert_eq!(client.told("SET key 1"), "+OK", "{limit}");
        let warned = server.errors().contains("clients instead of 10000");
        assert_eq!(warned, limit.starts_with("-n"), "{}", server.errors());
    }
}

#[test]
fn a_wrong_placement_explains_itself() {
    for (list, words) in [
        ("x", &["'x'", "character 1", "0:1,2,3+4:5,6,10"][..]),
        ("0:0", &["processor 0", "twice"]),
        ("0:1,", &["character 5", "the end"]),
        ("0:9999", &["processor 9999", "which may use"]),
        ("", &["character 1"]),
    ] {
        let (code, said) = refused(&["--affinity", list]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("--affinity"), "{said}");
        for word in words {
            assert!(said.contains(word), "{list}: {word} is missing: {said}");
        }
    }
}

#[test]
fn options_that_contradict_each_other_are_explained() {
    for args in [
        &["--epoch-time", "1ms", "--durability-target", "3ms"][..],
        &["--ephemeral", "--max-epoch-diff", "3"],
        &["--ephemeral", "--checkpoint-log-size", "1g"],
        &["--epoch-time", "0.5"],
        &["--max-epoch-diff", "0"],
        &["--checkpoint-share", "200"],
        &["--admin", "here"],
    ] {
        let (code, said) = refused(args);
        assert_eq!(code, Some(2), "{said}");
        assert!(args.iter().any(|arg| said.contains(arg)), "{said}");
    }
    let all = processors();
    if let [logger, first, ..] = all[..] {
        let list = format!("{logger}:{first}");
        for (option, count) in [("--loggers", "2"), ("--threads", "2")] {
            let (code, said) = refused(&["--affinity", &list, option, count]);
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains(option) && said.contains(&list), "{said}");
        }
    }
}

#[test]
fn threads_stay_where_they_are_placed() {
    let all = processors();
    let [logger, first, ..] = all[..] else {
        // A logger and a thread for clients need a processor each; this machine has one.
        return;
    };
    let second = all.get(2).copied();
    let list = match second {
        Some(second) => format!("{logger}:{first},{second}"),
        None => format!("{logger}:{first}"),
    };
    let more = ["--epoch-time", "1ms", "--max-epoch-diff", "3"];
    let server = start_server(&[&["--affinity", &list], &more[..]].concat());
    let mut client = Client::connect(server.address);
    for number in 0..100 {
        let key = format!("key{number}");
        assert_eq!(client.frame(&["SET", &key, "1"]).raw, b"+OK\r\n");
    }
    let threads = threads(&info(&mut client, "process_id"));
    let places = |name: &str| -> Vec<&str> {
        let named = threads.iter().filter(|(own, _)| own.starts_with(name));
        named.map(|(_, cpus)| cpus.as_str()).collect()
    };
    assert_eq!(places("log0"), [logger.to_string()], "{threads:?}");
    assert_eq!(places("runtime-0"), [first.to_string()], "{threads:?}");
    let serving = places("runtime-").len();
    assert_eq!(serving, 1 + usize::from(second.is_some()), "{threads:?}");
    // Threads that were not placed are not pinned.
    for (name, cpus) in &threads {
        if !name.starts_with("log") && !name.starts_with("runtime-") {
            assert_ne!(*cpus, logger.to_string(), "{name}");
            assert_ne!(*cpus, first.to_string(), "{name}");
        }
    }
    assert!(server.terminate().success());
}

#[test]
fn every_way_to_time_epochs_serves() {
    for args in [
        &["--epoch-time", "adaptive"][..],
        &["--epoch-time", "adaptive", "--durability-target", "1.5ms"],
        &["--epoch-time", "0.5ms"],
        &["--epoch-time", "40ms", "--max-epoch-diff", "2"],
        &["--max-epoch-diff", "1", "--loggers", "2"],
        &["--max-epoch-diff", "off", "--durability", "async"],
    ] {
        let server = start_server(args);
        let mut client = Client::connect(server.address);
        for number in 0..20 {
            let key = format!("key{number}");
            assert_eq!(
                client.frame(&["SET", &key, "1"]).raw,
                b"+OK\r\n",
                "{args:?}"
            );
        }
        assert_eq!(client.frame(&["GET", "key7"]).raw, b"$1\r\n1\r\n");
        assert!(server.terminate().success(), "{args:?}");
    }
}

#[test]
fn metrics_and_health_are_served_where_asked_for() {
    let server = start_server(&["--admin", "127.0.0.1:0"]);
    let mut client = Client::connect(server.address);
    assert_eq!(client.frame(&["SET", "a", "1"]).raw, b"+OK\r\n");
    let admin = admin_address(&server);
    let metrics = get(admin, "/metrics");
    assert!(
        metrics.head.starts_with("HTTP/1.1 200 OK\r\n"),
        "{metrics:?}"
    );
    for line in [
        "\nkumiki_keys 1\n",
        "\nkumiki_log_failed 0\n",
        "\nkumiki_clock_steps_total 0\n",
        "\n# TYPE kumiki_log_sync_seconds histogram\n",
        "\nkumiki_durability_info{durability=\"group\"} 1\n",
    ] {
        assert!(
            metrics.body.contains(line),
            "{line} is missing: {metrics:?}"
        );
    }
    let health = get(admin, "/health");
    assert_eq!(health.body, "ok\n", "{health:?}");
    assert!(server.terminate().success());
    assert!(TcpStream::connect(admin).is_err());
}

#[test]
fn the_admin_endpoint_needs_a_certificate_for_https() {
    let authority = CertificateAuthority::new("one");
    let (cert, key) = authority.sign("server", |_| {});
    let (cert, key) = (cert.to_str().expect("text"), key.to_str().expect("text"));
    let missing = authority.path("missing.pem");
    let missing = missing.to_str().expect("text");
    let admin = ["--admin", "127.0.0.1:0", "--admin-tls"];
    let files = |cert, key| [&admin[..], &["--tls-cert", cert, "--tls-key", key]].concat();
    let alone = ["--admin-tls", "--tls-cert", cert, "--tls-key", key];
    for (args, code, expected) in [
        (admin.to_vec(), 2, "--tls-cert <FILE>"),
        (alone.to_vec(), 2, "--admin <ADDRESS>"),
        (files(missing, key), 1, "--tls-cert"),
        (files(cert, missing), 1, "--tls-key"),
    ] {
        let (status, said) = refused(&args);
        assert_eq!(status, Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_public_admin_address_must_be_asked_for_twice() {
    let args = ["--admin", "0.0.0.0:0", "--requirepass", "pw"];
    let (code, said) = refused(&args);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("--admin") && said.contains("--insecure"),
        "{said}"
    );
}

#[test]
fn checkpoints_are_made_when_the_log_has_grown() {
    let options = [
        "--checkpoint-log-size",
        "256KiB",
        "--checkpoint-share",
        "100",
    ];
    let server = start_server(&options);
    let mut client = Client::connect(server.address);
    let value = "x".repeat(4096);
    let (mut made, begin) = (0, Instant::now());
    // Eight megabytes of log, and more where it takes its time.
    for number in 0.. {
        if number >= 2000 && begin.elapsed() > Duration::from_secs(60) {
            break;
        }
        let key = format!("key{}", number % 10);
        assert_eq!(client.frame(&["SET", &key, &value]).raw, b"+OK\r\n");
        if number % 50 == 49 {
            made = info(&mut client, "rdb_saves").parse().expect("a number");
        }
        if made >= 2 {
            break;
        }
    }
    assert!(made >= 2, "{made} checkpoints of 8 MB of log or more");
    assert_eq!(info(&mut client, "checkpoint_last_entries"), "10");
    assert_eq!(client.frame(&["DBSIZE"]).int(), Some(10));
}

#[test]
fn a_save_shortens_what_the_next_start_reads() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let path = data.path().to_str().expect("a path");
    let server = start_server(&["--data", path]);
    let mut client = Client::connect(server.address);
    for _ in 0..500 {
        client.frame(&["SET", "a", &"x".repeat(1000)]);
    }
    client.send(&["SHUTDOWN", "SAVE"]);
    assert!(client.receive().is_last());
    drop(server);
    let server = start_server(&["--data", path]);
    let mut client = Client::connect(server.address);
    let entries: u64 = info(&mut client, "recovery_entries")
        .parse()
        .expect("a number");
    assert!(entries < 10, "{entries} entries for one key");
    assert_eq!(client.frame(&["STRLEN", "a"]).int(), Some(1000));
    assert_ne!(client.frame(&["LASTSAVE"]).int(), Some(0));
}
