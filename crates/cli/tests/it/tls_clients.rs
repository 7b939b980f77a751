//! Unmodified clients of others over TLS, with and without certificates of their own: redis-cli, redis-py and
//! go-redis; and redis-cli and redis-py with clusters. The programs for the latter two are in `clients/`.
//!
//! `cargo xtask peers redis python go` installs them. Without them a test says so and passes; with
//! `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use testkit::peers::{self, Group};
use testkit::process::{Server, finished};
use testkit::tls::CertificateAuthority;
use testkit::tls::rcgen::date_time_ymd;
use testkit::{Client, eventually};

use crate::support::clients::{output, run, said, script};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::{kumiki, proxy, serve};
use crate::support::replicas::{Replicas, STEADY};

/// A certificate and its key.
type Own = (PathBuf, PathBuf);

/// A server that speaks TLS.
struct TlsServer {
    authority: CertificateAuthority,
    server: Server,
    /// The address for clients that speak TLS.
    address: SocketAddr,
}

impl TlsServer {
    /// Starts one that asks clients for certificates as `auth` says.
    fn start(auth: &str) -> TlsServer {
        let authority = CertificateAuthority::new("one");
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

#[test]
fn go_redis_works_with_a_cluster_over_tls() {
    let Some(program) = peers::installed(Group::Go, "go-redis/client") else {
        return;
    };
    let (authority, cluster) = cluster();
    for node in [0, 2] {
        let mut command = Command::new(&program);
        command.arg("cluster");
        command.arg(cluster.tls_address(node).to_string());
        command.arg(authority.ca());
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
        let foreign = CertificateAuthority::new("another").ca();
        let command = redis_cli(&program, &served, &foreign, own.as_ref());
        assert!(!said(&output(&command, "")).contains("PONG"));
    }
}

/// Returns an authority, and the options of nodes that have a certificate of it.
fn certified() -> (CertificateAuthority, [String; 4]) {
    let authority = CertificateAuthority::new("one");
    let (cert, key) = authority.sign("server", |_| {});
    let [cert, key] = [cert, key].map(|file| file.display().to_string());
    let options = ["--tls-cert".to_owned(), cert, "--tls-key".to_owned(), key];
    (authority, options)
}

/// Starts a cluster of three nodes that speak TLS.
fn cluster() -> (CertificateAuthority, Cluster) {
    let (authority, options) = certified();
    let options = options.each_ref().map(String::as_str);
    let cluster = Cluster::start_with(3, Keeping::Nothing, "", &options);
    (authority, cluster)
}

/// Returns redis-cli over TLS, for the node at this address.
fn redis_cli_at(program: &Path, address: SocketAddr, authority: &CertificateAuthority) -> Command {
    let mut command = Command::new(program);
    command.args(["-p", &address.port().to_string(), "--tls", "--cacert"]);
    command.arg(authority.ca());
    command
}

#[test]
fn redis_cli_follows_redirects_over_tls() {
    let Some(program) = peers::program(Group::Redis, "redis-cli") else {
        return;
    };
    let (authority, cluster) = cluster();
    let mut redis_cli = redis_cli_at(&program, cluster.tls_address(0), &authority);
    // foo is of the last node, bar of the first.
    let said = run(redis_cli.arg("-c"), "SET foo 1\nSET bar 2\nMGET foo bar\n");
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    for (at, slot, node) in [(0, 12182, 2), (2, 5061, 0)] {
        let to = format!("[{slot}] located at {}", cluster.tls_address(node));
        assert!(lines[at].contains(&to), "{to} in {said}");
    }
    assert_eq!(
        (lines[1], &lines[3..]),
        ("OK", &["OK", "1", "2"][..]),
        "{said}"
    );
    let address = cluster.tls_address(1);
    let mut check = redis_cli_at(&program, address, &authority);
    check.args(["--cluster", "check", &address.to_string()]);
    let said = run(&check, "");
    assert!(said.contains("All 16384 slots covered"), "{said}");
}

/// A node that does not lead its partition redirects commands after it has looked at them.
#[test]
fn a_replica_sends_clients_over_tls_to_the_leader() {
    let Some(program) = peers::program(Group::Redis, "redis-cli") else {
        return;
    };
    let (authority, options) = certified();
    let options = options.each_ref().map(String::as_str);
    let replicas = Replicas::start_with(1, 3, &[&options[..], &STEADY].concat());
    let leader = replicas.leader(1);
    let to = replicas.tls_address(leader);
    for node in (1..=3).filter(|node| *node != leader) {
        let mut redis_cli = redis_cli_at(&program, replicas.tls_address(node), &authority);
        let said = run(redis_cli.arg("-c"), "SET foo 1\n");
        assert!(said.contains(&format!("[12182] located at {to}")), "{said}");
        let said = run(
            &redis_cli_at(&program, replicas.tls_address(node), &authority),
            "ROLE\n",
        );
        assert!(
            said.lines().any(|line| line == to.port().to_string()),
            "{said}"
        );
        let moved = format!("MOVED 12182 {}", replicas.address(leader));
        let reply = Client::connect(replicas.address(node)).told("SET foo 1");
        assert!(reply.contains(&moved), "{reply}");
    }
}

#[test]
fn redis_py_works_with_a_cluster_over_tls() {
    let (Some(python), Some(library)) = (
        peers::program(Group::Python, "python3"),
        peers::installed(Group::Python, "python/redis"),
    ) else {
        return;
    };
    let (authority, cluster) = cluster();
    for (node, protocol) in [(0, "2"), (1, "3")] {
        let port = cluster.tls_address(node).port().to_string();
        let mut command = Command::new(&python);
        command.arg(script("cluster.py")).args([&port, protocol]);
        command.arg(authority.ca());
        let folder = library.parent().expect("it lies in a folder");
        let said = run(command.env("PYTHONPATH", folder), "");
        assert_eq!(said.trim(), "done");
    }
}

#[test]
fn a_proxy_reaches_all_nodes_of_a_cluster_over_tls() {
    let (authority, cluster) = cluster();
    let (node, ca) = (cluster.tls_address(0).to_string(), authority.ca());
    let ca = ca.to_str().expect("a path");
    let proxy = proxy(&["--redis", &node, "--node-tls", "--node-ca", ca]);
    let mut client = Client::connect(proxy.address);
    for number in 0..100 {
        assert_eq!(client.told(&format!("SET key:{number} v")), "+OK");
    }
    // Each node has some of them.
    for node in 0..3 {
        let mut client = Client::connect(cluster.address(node));
        assert_ne!(client.told("DBSIZE"), "0", "node {node}");
    }
}

/// Returns the options by which a command reaches nodes that want a certificate of `authority`.
fn node_tls(authority: &CertificateAuthority, own: Option<&Own>) -> Vec<String> {
    let mut options = vec!["--node-tls".to_owned(), "--node-ca".to_owned()];
    options.push(authority.ca().display().to_string());
    if let Some((cert, key)) = own {
        options.extend(["--node-cert".to_owned(), cert.display().to_string()]);
        options.extend(["--node-key".to_owned(), key.display().to_string()]);
    }
    options
}

/// The nodes ask for certificates of clients, and the commands of this program show one.
#[test]
fn commands_show_nodes_a_certificate() {
    let (authority, options) = certified();
    let own = authority.sign("operator", |_| {});
    let ca = authority.ca().display().to_string();
    let mut options = options.each_ref().map(String::as_str).to_vec();
    options.extend(["--tls-ca", &ca]);
    options.extend(STEADY);
    let replicas = Replicas::start_with(1, 3, &options);
    let leader = replicas.leader(1);
    let command = |words: &[&str], own| {
        let tls = node_tls(&authority, own);
        replicas.command(&[words, &tls.iter().map(String::as_str).collect::<Vec<_>>()].concat())
    };
    eventually("all is well", || {
        command(&["status"], Some(&own)).0 == Some(0)
    });
    let to = 1 + leader % 3;
    let (code, said, errors) = command(&["transfer", "--to", &to.to_string()], Some(&own));
    assert_eq!(code, Some(0), "{said}{errors}");
    assert_eq!(replicas.leader(1), to);
    let (code, said, errors) = command(&["status"], None);
    assert_eq!(code, Some(1), "{said}{errors}");
    assert!(said.contains("certificate"), "{said}{errors}");
    // The proxy asks every node for its state.
    let node = replicas.tls_address(to).to_string();
    let mut arguments = vec!["--redis".to_owned(), node];
    arguments.extend(node_tls(&authority, Some(&own)));
    let proxy = proxy(&arguments);
    assert_eq!(Client::connect(proxy.address).told("SET a 1"), "+OK");
}

#[test]
fn an_export_reads_a_server_over_tls() {
    let served = TlsServer::start("yes");
    let own = served.authority.sign("operator", |_| {});
    let mut client = Client::connect(served.server.address);
    for number in 0..100 {
        assert_eq!(client.told(&format!("SET key:{number} v")), "+OK");
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let export = |own| {
        let mut command = kumiki();
        command.args([
            "pages",
            "export",
            "--from",
            &served.address.to_string(),
            "--dir",
        ]);
        command
            .arg(dir.path())
            .args(node_tls(&served.authority, own));
        finished(&mut command)
    };
    let (code, _, errors) = export(None);
    assert!(
        code == Some(1) && errors.contains("certificate"),
        "{code:?}: {errors}"
    );
    let (code, said, errors) = export(Some(&own));
    assert_eq!(code, Some(0), "{errors}");
    assert!((said + &errors).contains("100"), "{errors}");
}

/// Both sides say why a client is refused.
#[test]
fn certificates_are_refused_with_a_reason_on_both_sides() {
    let Some(redis_py) = redis_py() else {
        return;
    };
    let served = TlsServer::start("yes");
    let (authority, foreign) = (&served.authority, CertificateAuthority::new("another"));
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
