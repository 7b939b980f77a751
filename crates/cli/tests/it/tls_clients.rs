//! Unmodified clients of others over TLS, with and without certificates of their own: redis-cli, redis-py and
//! go-redis. The programs for the latter two are in `clients/`.
//!
//! `cargo xtask peers redis python go` installs them. Without them a test says so and passes; with
//! `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use testkit::eventually;
use testkit::peers::{self, Group};
use testkit::process::Server;
use testkit::tls::Authority;
use testkit::tls::rcgen::date_time_ymd;

use crate::support::clients::{output, run, said, script};
use crate::support::process::serve;

/// A certificate and its key.
type Own = (PathBuf, PathBuf);

/// A server that speaks TLS.
struct TlsServer {
    authority: Authority,
    server: Server,
    /// The address for clients that speak TLS.
    address: SocketAddr,
}

impl TlsServer {
    /// Starts one that asks clients for certificates as `auth` says.
    fn start(auth: &str) -> TlsServer {
        let authority = Authority::new("one");
        let (cert, key) = authority.sign("server", |_| {});
        let address = testkit::free_address().expect("a free port");
        let server = Server::start(|plain, dir| {
            let mut command = serve(plain);
            command.args(["--ephemeral", "--tls-port", &address.port().to_string()]);
            command
                .arg("--tls-cert")
                .arg(&cert)
                .arg("--tls-key")
                .arg(&key);
            command.arg("--tls-ca").arg(authority.ca());
            command.args(["--tls-auth-clients", auth]).current_dir(dir);
            command
        });
        TlsServer {
            authority,
            server,
            address,
        }
    }

    fn port(&self) -> String {
        self.address.port().to_string()
    }
}

/// Returns servers that do not ask for certificates and that do, with what clients show them.
fn servers() -> impl Iterator<Item = (TlsServer, Option<Own>)> {
    ["no", "yes"].into_iter().map(|auth| {
        let server = TlsServer::start(auth);
        let own = (auth == "yes").then(|| server.authority.sign("client", |_| {}));
        (server, own)
    })
}

/// Returns how the program with redis-py is started, if it is installed.
fn redis_py() -> Option<impl Fn(&TlsServer, &Path, Option<&Own>) -> Command> {
    let python = peers::program(Group::Python, "python3")?;
    let library = peers::installed(Group::Python, "python/redis")?;
    Some(move |served: &TlsServer, ca: &Path, own: Option<&Own>| {
        let mut command = Command::new(&python);
        command.arg(script("tls.py")).arg(served.port()).arg(ca);
        command.args(own.iter().flat_map(|(cert, key)| [cert, key]));
        command.env(
            "PYTHONPATH",
            library.parent().expect("a folder of libraries"),
        );
        command
    })
}

#[test]
fn redis_py_works_over_tls() {
    let Some(redis_py) = redis_py() else {
        return;
    };
    for (served, own) in servers() {
        let ca = served.authority.ca();
        let command = redis_py(&served, &ca, own.as_ref());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn go_redis_works_over_tls() {
    let Some(program) = peers::installed(Group::Go, "go-redis/client") else {
        return;
    };
    for (server, own) in servers() {
        let mut command = Command::new(&program);
        command
            .arg(server.address.to_string())
            .arg(server.authority.ca());
        command.args(own.iter().flat_map(|(cert, key)| [cert, key]));
        assert_eq!(run(&command, ""), "done\n");
    }
}

/// The certificate is renewed while a client makes connections and uses them: none of them fails.
#[test]
fn a_renewed_certificate_disturbs_no_client() {
    let Some(program) = peers::installed(Group::Go, "go-redis/client") else {
        return;
    };
    let served = TlsServer::start("no");
    let (authority, server) = (&served.authority, &served.server);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            for _ in 0..5 {
                let mut command = Command::new(&program);
                command.arg(served.address.to_string()).arg(authority.ca());
                assert_eq!(run(&command, ""), "done\n");
            }
        });
        let mut renewed = 0;
        while !client.is_finished() {
            // By the same name: the files of the server are replaced.
            let (cert, key) = authority.sign("renewed", |_| {});
            std::fs::rename(cert, authority.path("server.pem")).expect("the certificate");
            std::fs::rename(key, authority.path("server.key")).expect("its key");
            server.signal(Signal::HUP);
            renewed += 1;
            eventually("the certificate is read", || {
                server
                    .errors()
                    .matches("the certificate that was read again")
                    .count()
                    >= renewed
            });
        }
        assert!(renewed > 1, "it was renewed {renewed} times");
    });
    assert!(!server.errors().contains("the certificate stays as it was"));
}

/// Returns redis-cli with a command over TLS.
fn redis_cli(program: &Path, served: &TlsServer, ca: &Path, own: Option<&Own>) -> Command {
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", &served.port(), "--tls", "--cacert"]);
    command.arg(ca);
    if let Some((cert, key)) = own {
        command.arg("--cert").arg(cert).arg("--key").arg(key);
    }
    command.arg("PING");
    command
}

#[test]
fn redis_cli_works_over_tls() {
    let Some(program) = peers::program(Group::Redis, "redis-cli") else {
        return;
    };
    for (served, own) in servers() {
        let ca = served.authority.ca();
        let command = redis_cli(&program, &served, &ca, own.as_ref());
        assert_eq!(run(&command, "").trim(), "PONG");
        // Another authority signed neither certificate.
        let foreign = Authority::new("another").ca();
        let command = redis_cli(&program, &served, &foreign, own.as_ref());
        assert!(!said(&output(&command, "")).contains("PONG"));
    }
}

/// Both sides say why a client is refused.
#[test]
fn certificates_are_refused_with_a_reason_on_both_sides() {
    let Some(redis_py) = redis_py() else {
        return;
    };
    let served = TlsServer::start("yes");
    let (authority, foreign) = (&served.authority, Authority::new("another"));
    let own = authority.sign("client", |_| {});
    let expired = authority.sign("expired", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let stranger = foreign.sign("client", |_| {});
    let ca = authority.ca();
    for (ca, own, at_client, at_server) in [
        (
            &ca,
            None,
            "CERTIFICATE_REQUIRED",
            "the peer shows no certificate",
        ),
        (
            &ca,
            Some(&expired),
            "CERTIFICATE_EXPIRED",
            "the peer's certificate has expired",
        ),
        (
            &ca,
            Some(&stranger),
            "UNKNOWN_CA",
            "of an authority that is not known here",
        ),
        (
            &foreign.ca(),
            Some(&own),
            "CERTIFICATE_VERIFY_FAILED",
            "the peer does not know the authority of the certificate that it was shown",
        ),
    ] {
        // The server writes at most one such line a second.
        eventually("the server says why", || {
            let output = output(&redis_py(&served, ca, own), "");
            let text = said(&output);
            assert!(!output.status.success(), "{text}");
            assert!(text.contains(at_client), "{at_client}: {text}");
            served.server.errors().contains(at_server)
        });
    }
}
