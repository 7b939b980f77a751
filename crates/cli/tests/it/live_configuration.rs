//! Changes that an operator makes without a restart, and the contents of a configuration file.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use testkit::http::{self, request_with};
use testkit::process::{Server, wait};
use testkit::tls::CertificateAuthority;
use testkit::{Client, eventually, free_address};

use crate::support::process::kumiki;

/// Returns the status and the body of the answer.
fn ask(address: SocketAddr, method: &str, header: &str, body: &str) -> (u16, String) {
    let answer = request_with(address, method, "/log-level", header, body);
    (answer.status, answer.body)
}

/// Returns a server or proxy with its configuration in this file.
fn configured(command: &str, config: &str, file: &Path) -> (Server, SocketAddr) {
    for _ in 0..5 {
        let (listen, admin) = (
            free_address().expect("a free port"),
            free_address().expect("a free port"),
        );
        let config = format!("listen = \"{listen}\"\nadmin = \"{admin}\"\n{config}");
        fs::write(file, &config).expect("a file");
        let started = Server::start_at(listen, |_, dir| {
            let mut started = kumiki();
            started.current_dir(dir);
            started.args([command, "--config"]).arg(file);
            started
        });
        match started {
            Ok(server) => return (server, admin),
            Err(said) => assert!(said.to_string().contains("in use"), "{said}"),
        }
    }
    panic!("no port is free");
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
    server.signal(Signal::HUP);
    eventually("the file is read again", || is("trace"));
    // A file with a mistake changes nothing, and the process continues.
    fs::write(file, "log-level = 5\n").expect("written");
    server.signal(Signal::HUP);
    eventually("the log reports it", || {
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
            .frame(&["SET", "a", "b"])
            .raw,
        b"+OK\r\n"
    );
    let config = format!("redis = [\"{}\"]\nlog-level = \"warn\"\n", server.address);
    let (proxy, proxy_admin) = configured("proxy", &config, &of_proxy);
    assert_eq!(
        Client::connect(proxy.address).frame(&["GET", "a"]).raw,
        b"$1\r\nb\r\n"
    );
    level_changes(&server, admin, &own);
    level_changes(&proxy, proxy_admin, &of_proxy);
    assert_eq!(
        Client::connect(proxy.address).frame(&["GET", "a"]).raw,
        b"$1\r\nb\r\n"
    );
}

#[test]
fn mistakes_of_a_file_are_told_all_at_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("p.toml"), "quue = 1\nqueue = \"many\"\n").expect("a file");
    let mut child = kumiki()
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
    assert!(said.contains("p.toml:1: quue is no setting"), "{said}");
    assert!(said.contains("p.toml:2: invalid value 'many'"), "{said}");
}

#[test]
fn the_admin_endpoint_takes_a_certificate_that_is_read_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let authority = CertificateAuthority::new("one");
    let (cert, key) = authority.sign("server", |_| {});
    let tls = format!(
        "admin-tls = true\ntls-cert = \"{}\"\ntls-key = \"{}\"\n",
        cert.display(),
        key.display()
    );
    let config = format!("ephemeral = true\n{tls}");
    let (server, admin) = configured("serve", &config, &dir.path().join("serve.toml"));
    let config = format!("redis = [\"{}\"]\n{tls}", server.address);
    let (proxy, proxy_admin) = configured("proxy", &config, &dir.path().join("proxy.toml"));
    // The server has no other listener that speaks TLS.
    assert_eq!(Client::connect(server.address).told("PING"), "+PONG");
    let gets = |authority: &CertificateAuthority, admin, figure: &str| {
        let answer = authority.get(admin, "/metrics", None);
        answer.is_some_and(|answer| answer.body.contains(figure))
    };
    let next = CertificateAuthority::new("next");
    let renewed = next.sign("renewed", |_| {});
    let endpoints = [
        (&server, admin, "\nkumiki_keys "),
        (&proxy, proxy_admin, "\nkumiki_proxy_"),
    ];
    for (process, admin, figure) in &endpoints {
        eventually("the endpoint serves, and the banner says so", || {
            process.output().contains("metrics on https://")
        });
        assert!(gets(&authority, *admin, figure));
        assert!(http::get_over(http::connect(*admin), "/metrics").is_none());
    }
    fs::copy(renewed.0, cert).expect("a copy");
    fs::copy(renewed.1, key).expect("a copy");
    for (process, admin, figure) in &endpoints {
        assert!(!gets(&next, *admin, figure), "before it is read again");
        process.signal(Signal::HUP);
        eventually("the certificate is read", || gets(&next, *admin, figure));
        assert!(!gets(&authority, *admin, figure));
    }
}

#[test]
fn what_clients_change_is_written_to_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("serve.toml");
    let (server, _) = configured("serve", "# Mine.\nephemeral = true\ntimeout = 0\n", &file);
    let mut client = Client::connect(server.address);
    for (name, value) in [
        ("timeout", "3600"),
        ("maxmemory", "1gb"),
        ("slowlog-log-slower-than", "-1"),
        ("slowlog-max-len", "7"),
        ("latency-monitor-threshold", "5"),
        ("maxclients", "50"),
    ] {
        let answer = client.call(&["CONFIG", "SET", name, value]).shown();
        assert_eq!(answer, "+OK", "{name}");
    }
    assert_eq!(client.call(&["CONFIG", "REWRITE"]).shown(), "+OK");
    let text = fs::read_to_string(&file).expect("the file");
    assert!(
        text.contains("# Mine.\n") && text.contains("\ntimeout = 3600\n"),
        "{text}"
    );
    let shown = |client: &mut Client| {
        let names = [
            "timeout",
            "maxmemory",
            "slowlog-*",
            "latency-monitor-*",
            "maxclients",
        ];
        client
            .call(&[&["CONFIG", "GET"], &names[..]].concat())
            .shown()
    };
    let before = shown(&mut client);
    drop(server);
    // The file has the addresses; their ports may have been taken since.
    let lines = text.lines().skip(2).collect::<Vec<_>>().join("\n");
    let (server, _) = configured("serve", &lines, &file);
    assert_eq!(shown(&mut Client::connect(server.address)), before);
}
