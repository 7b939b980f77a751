//! Clients that speak TLS, over epoll and over io_uring.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kumiki_server::{Config, TlsListener};
use reactor::Io;
use reactor::tls::{CertificateFiles, ClientCertificates, ServerTls};
use rustls::{ClientConnection, StreamOwned};
use testkit::http;
use testkit::tls::CertificateAuthority;
use testkit::tls::rcgen::date_time_ymd;
use testkit::{Client, Reply};

use crate::support::{Served, bulk, config, ephemeral, ok};

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the server's certificate, which the authority signs.
fn certificate(authority: &CertificateAuthority, clients: ClientCertificates) -> Arc<ServerTls> {
    let (cert, key) = authority.sign("server", |_| {});
    let files = CertificateFiles { cert, key, clients };
    Arc::new(ServerTls::load(files).expect("the files are whole"))
}

fn served(io: Io, certificate: Arc<ServerTls>) -> Served {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    ephemeral(Config {
        io,
        tls: Some(TlsListener {
            listen,
            certificate,
        }),
        ..config()
    })
}

fn tls_address(served: &Served) -> SocketAddr {
    let server = served.server.as_ref().expect("it runs");
    server.tls_address().expect("it speaks TLS")
}

fn stream(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(tls_address(served)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn client(
    served: &Served,
    authority: &CertificateAuthority,
    own: Option<&(PathBuf, PathBuf)>,
) -> Client<Encrypted> {
    authority.client(tls_address(served), own)
}

/// Returns `true` if a client with the certificate `own` is served.
fn is_served(
    served: &Served,
    authority: &CertificateAuthority,
    own: Option<&(PathBuf, PathBuf)>,
) -> bool {
    let mut stream = StreamOwned::new(authority.session(own), stream(served));
    let mut reply = [0; 7];
    let asked = stream.write_all(b"PING\r\n");
    asked
        .and_then(|()| stream.read_exact(&mut reply))
        .is_ok_and(|()| &reply == b"+PONG\r\n")
}

#[test]
fn values_of_all_sizes_and_pipelines_pass() {
    let authority = CertificateAuthority::new("one");
    for io in [Io::Epoll, Io::Auto] {
        let served = served(io, certificate(&authority, ClientCertificates::None));
        let mut encrypted = client(&served, &authority, None);
        let mut plain = served.client();
        for length in [
            0, 1, 100, 16_383, 16_384, 16_385, 65_536, 200_000, 5_000_000,
        ] {
            let value = "abcdefghijklmnopqrstuvw".repeat(length / 23 + 1)[..length].to_owned();
            assert_eq!(encrypted.call(&["SET", "large", &value]), ok());
            assert!(plain.call(&["GET", "large"]) == bulk(&value), "{length}");
            assert!(
                encrypted.call(&["GET", "large"]) == bulk(&value),
                "{length}"
            );
        }
        for number in 0..2000 {
            let (key, value) = (format!("key{number}"), format!("value{number}"));
            encrypted.send(&["SET", &key, &value]);
            encrypted.send(&["GET", &key]);
        }
        for number in 0..2000 {
            assert_eq!(encrypted.reply(), ok());
            assert_eq!(encrypted.reply(), bulk(&format!("value{number}")));
        }
    }
}

/// Replies that the client does not take fill the socket, and ciphertext waits within the server.
#[test]
fn a_slow_reader_gets_everything_before_the_end() {
    let authority = CertificateAuthority::new("one");
    for io in [Io::Epoll, Io::Auto] {
        let served = served(io, certificate(&authority, ClientCertificates::None));
        let mut client = client(&served, &authority, None);
        let value = "v".repeat(1 << 20);
        assert_eq!(client.call(&["SET", "large", &value]), ok());
        for _ in 0..24 {
            client.send(&["GET", "large"]);
        }
        client.send(&["QUIT"]);
        std::thread::sleep(Duration::from_millis(300));
        for number in 0..24 {
            assert!(client.reply() == Reply::bulk(&value), "{number}");
        }
        assert_eq!(client.reply(), ok());
        assert!(client.try_reply().is_err(), "it is closed");
    }
}

#[test]
fn certificates_of_clients_are_judged() {
    let (authority, foreign) = (
        CertificateAuthority::new("one"),
        CertificateAuthority::new("another"),
    );
    let own = authority.sign("client", |_| {});
    let stranger = foreign.sign("client", |_| {});
    let expired = authority.sign("expired", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let ca = authority.ca();
    for (clients, without) in [
        (ClientCertificates::Required(ca.clone()), false),
        (ClientCertificates::Optional(ca), true),
    ] {
        let served = served(Io::Auto, certificate(&authority, clients));
        assert!(is_served(&served, &authority, Some(&own)));
        assert_eq!(is_served(&served, &authority, None), without);
        assert!(!is_served(&served, &authority, Some(&stranger)));
        assert!(!is_served(&served, &authority, Some(&expired)));
    }
}

#[test]
fn bytes_that_are_no_tls_close_the_connection_alone() {
    let authority = CertificateAuthority::new("one");
    let served = served(Io::Auto, certificate(&authority, ClientCertificates::None));
    let mut client = client(&served, &authority, None);
    for bytes in [
        &b"PING\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16, 3, 1, 0xff, 0xff],
    ] {
        let mut other = stream(&served);
        other.write_all(bytes).expect("it takes it");
        other.shutdown(std::net::Shutdown::Write).expect("an end");
        let mut rest = Vec::new();
        // An alert may come before the end; a reset is an end, too.
        let _ = other.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"+PONG"), "{bytes:?}");
        assert_eq!(client.call(&["PING"]), Reply::status("PONG"));
    }
}

#[test]
fn a_new_certificate_is_taken_under_load() {
    let (authority, next) = (
        CertificateAuthority::new("one"),
        CertificateAuthority::new("next"),
    );
    let certificate = certificate(&authority, ClientCertificates::None);
    let served = served(Io::Auto, Arc::clone(&certificate));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for process in 0..3 {
            // Its handshake is over before the certificate changes.
            let mut client = client(&served, &authority, None);
            assert_eq!(client.call(&["PING"]), Reply::status("PONG"));
            let stop = &stop;
            scope.spawn(move || {
                let key = format!("counter{process}");
                for count in 1.. {
                    assert_eq!(client.call(&["INCR", &key]), Reply::Int(count));
                    if stop.load(Ordering::SeqCst) && count > 100 {
                        break;
                    }
                }
            });
        }
        for round in 0..20 {
            let by = if round % 2 == 0 { &next } else { &authority };
            let (cert, key) = by.sign("renewed", |_| {});
            std::fs::copy(cert, authority.path("server.pem")).expect("a copy");
            std::fs::copy(key, authority.path("server.key")).expect("a copy");
            certificate.reload().expect("the files are whole");
            assert!(is_served(&served, by, None), "round {round}");
            let other = if round % 2 == 0 { &authority } else { &next };
            assert!(!is_served(&served, other, None), "round {round}");
        }
        // What cannot be read changes nothing.
        std::fs::write(authority.path("server.pem"), "nothing").expect("a file");
        let error = certificate.reload().expect_err("no certificate");
        assert!(error.to_string().contains("--tls-cert"), "{error}");
        assert!(is_served(&served, &authority, None));
        stop.store(true, Ordering::SeqCst);
    });
}

/// Returns a server whose admin endpoint has the certificate, and the address of that.
fn with_admin(certificate: &Arc<ServerTls>) -> (Served, SocketAddr) {
    let served = ephemeral(Config {
        admin: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        admin_certificate: Some(Arc::clone(certificate)),
        ..config()
    });
    let admin = served.admin();
    (served, admin)
}

/// Returns `true` if a client with the certificate `own` gets the metrics.
fn shows_metrics(
    admin: SocketAddr,
    authority: &CertificateAuthority,
    own: Option<&(PathBuf, PathBuf)>,
) -> bool {
    let answer = authority.get(admin, "/metrics", own);
    answer.is_some_and(|answer| {
        assert_eq!(answer.status, 200);
        answer.body.contains("\nkumiki_keys 0\n")
    })
}

#[test]
fn the_admin_endpoint_speaks_https_and_nothing_else() {
    let authority = CertificateAuthority::new("one");
    let (_served, admin) = with_admin(&certificate(&authority, ClientCertificates::None));
    assert!(shows_metrics(admin, &authority, None));
    assert!(!shows_metrics(
        admin,
        &CertificateAuthority::new("another"),
        None
    ));
    for bytes in [
        &b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\n",
        &[0x16, 3, 1, 0xff, 0xff],
        b"",
    ] {
        let mut plain = http::connect(admin);
        plain.write_all(bytes).expect("it takes it");
        plain.shutdown(std::net::Shutdown::Write).expect("an end");
        let mut rest = Vec::new();
        // An alert may come before the end; a reset is an end, too.
        let _ = plain.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP"), "{bytes:?}");
        assert!(shows_metrics(admin, &authority, None), "{bytes:?}");
    }
}

#[test]
fn unfinished_handshakes_keep_no_other_client_from_the_admin_endpoint() {
    let authority = CertificateAuthority::new("one");
    let (_served, admin) = with_admin(&certificate(&authority, ClientCertificates::None));
    let mut hello = Vec::new();
    let mut session = authority.session(None);
    session.write_tls(&mut hello).expect("bytes");
    let begin = Instant::now();
    let halves = (0..100).map(|_| {
        let mut half = http::connect(admin);
        half.write_all(&hello[..hello.len() / 2])
            .expect("it takes it");
        half
    });
    let mut halves: Vec<TcpStream> = halves.collect();
    assert!(shows_metrics(admin, &authority, None));
    let mut last = halves.pop().expect("a connection");
    let _ = last.read_to_end(&mut Vec::new());
    let (least, most) = (Duration::from_secs(4), Duration::from_secs(10));
    let took = begin.elapsed();
    assert!(took > least && took < most, "closed after {took:?}");
}

#[test]
fn the_admin_endpoint_judges_certificates_of_clients() {
    let (authority, foreign) = (
        CertificateAuthority::new("one"),
        CertificateAuthority::new("another"),
    );
    let own = authority.sign("client", |_| {});
    let stranger = foreign.sign("client", |_| {});
    let expired = authority.sign("expired", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let ca = authority.ca();
    for (clients, without) in [
        (ClientCertificates::Required(ca.clone()), false),
        (ClientCertificates::Optional(ca), true),
    ] {
        let certificate = certificate(&authority, clients);
        let public = Config {
            admin: Some(SocketAddr::from(([0, 0, 0, 0], 0))),
            admin_certificate: Some(Arc::clone(&certificate)),
            ..config()
        };
        assert_eq!(public.check().is_err(), without, "an open address");
        let (_served, admin) = with_admin(&certificate);
        assert!(shows_metrics(admin, &authority, Some(&own)));
        assert_eq!(shows_metrics(admin, &authority, None), without);
        assert!(!shows_metrics(admin, &authority, Some(&stranger)));
        assert!(!shows_metrics(admin, &authority, Some(&expired)));
    }
}
