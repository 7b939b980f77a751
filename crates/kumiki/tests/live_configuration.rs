//! What an operator changes without a restart, and what stands in a configuration file.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::client::Client;
use support::process::{Server, free_address, wait};

const PATIENCE: Duration = Duration::from_secs(20);

/// The status and the body of the answer.
fn ask(address: SocketAddr, method: &str, header: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let length = body.len();
    let request = format!(
        "{method} /log-level HTTP/1.1\r\nHost: {address}\r\n{header}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("send");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    let (head, body) = said.split_once("\r\n\r\n").expect("an empty line");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// A server or proxy with its configuration in this file.
fn configured(command: &str, config: &str, file: &Path) -> (Server, SocketAddr) {
    for _ in 0..5 {
        let (listen, admin) = (free_address(), free_address());
        let config = format!("listen = \"{listen}\"\nadmin = \"{admin}\"\n{config}");
        fs::write(file, &config).expect("a file");
        let started = Server::start_at(listen, |_, dir| {
            let mut kumiki = Command::new(env!("CARGO_BIN_EXE_kumiki"));
            kumiki.current_dir(dir);
            kumiki.args([command, "--config"]).arg(file);
            kumiki
        });
        match started {
            Ok(server) => return (server, admin),
            Err(said) => assert!(said.contains("in use"), "{said}"),
        }
    }
    panic!("no port is free");
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn hang_up(server: &Server) {
    let process = i32::try_from(server.process()).ok().and_then(Pid::from_raw);
    kill_process(process.expect("a process"), Signal::HUP).expect("a signal");
}

fn level_changes(server: &Server, admin: SocketAddr, file: &Path) {
    let is = |level: &str| ask(admin, "GET", "", "") == (200, format!("{level}\n"));
    assert!(is("warn"), "as the file says");
    for (text, becomes) in [
        ("debug", "debug"),
        ("off\n", "off"),
        ("kumiki_proxy=trace", "info,kumiki_proxy=trace"),
        ("error,kumiki_server=debug", "error,kumiki_server=debug"),
    ] {
        assert_eq!(ask(admin, "PUT", "", text), (200, format!("{becomes}\n")));
        assert!(is(becomes), "{text}");
    }
    let long = "x".repeat(10_000);
    for text in ["", "loud", "info,debug", "a b=info", "\u{1F600}", &long] {
        assert_eq!(ask(admin, "PUT", "", text).0, 400, "{text}");
    }
    let (status, why) = ask(admin, "PUT", "", "loud");
    assert!(
        status == 400 && why.contains("'loud'") && why.contains("debug"),
        "{why}"
    );
    let page = "Origin: http://example.com\r\n";
    assert_eq!(ask(admin, "PUT", page, "debug").0, 403);
    assert_eq!(ask(admin, "POST", "", "debug").0, 405);
    assert!(is("error,kumiki_server=debug"), "nothing has changed");
    let config = fs::read_to_string(file).expect("the file");
    fs::write(file, config.replace("\"warn\"", "\"trace\"")).expect("written");
    hang_up(server);
    eventually("the file is read again", || is("trace"));
    // A file with a mistake changes nothing, and the process goes on.
    fs::write(file, "log-level = 5\n").expect("written");
    hang_up(server);
    eventually("it is told", || {
        server.errors().contains("log-level is of the type integer")
    });
    assert!(is("trace"));
}

#[test]
fn the_log_level_changes_while_a_server_and_a_proxy_run() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (own, of_proxy) = (dir.path().join("serve.toml"), dir.path().join("proxy.toml"));
    let config = "ephemeral = true\nlog-level = \"warn\"\n";
    let (server, admin) = configured("serve", config, &own);
    assert_eq!(
        Client::connect(server.address)
            .reply(&["SET", "a", "b"])
            .raw,
        b"+OK\r\n"
    );
    let config = format!("redis = [\"{}\"]\nlog-level = \"warn\"\n", server.address);
    let (proxy, proxy_admin) = configured("proxy", &config, &of_proxy);
    assert_eq!(
        Client::connect(proxy.address).reply(&["GET", "a"]).raw,
        b"$1\r\nb\r\n"
    );
    level_changes(&server, admin, &own);
    level_changes(&proxy, proxy_admin, &of_proxy);
    assert_eq!(
        Client::connect(proxy.address).reply(&["GET", "a"]).raw,
        b"$1\r\nb\r\n"
    );
}

#[test]
fn mistakes_of_a_file_are_told_all_at_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("p.toml"), "quue = 1\nqueue = \"many\"\n").expect("a file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_kumiki"))
        .args(["proxy", "--config", "p.toml"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let status = wait(&mut child);
    let mut said = String::new();
    let mut errors = child.stderr.take().expect("it is piped");
    errors.read_to_string(&mut said).expect("text");
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("p.toml:1: quue means nothing"), "{said}");
    assert!(said.contains("p.toml:2: invalid value 'many'"), "{said}");
}
