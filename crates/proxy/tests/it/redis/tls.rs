//! TLS on both sides: with real nodes, with clients of another implementation, and with hostile
//! clients.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumiki_proxy::{Config, Nodes};
use reactor::tls::{AuthorityFiles, CertificateFiles, ClientCertificates, ServerTls};
use rustls::StreamOwned;

use crate::redis::support::{PATIENCE, Proxy, connect, redis_server};
use testkit::process::Redis;
use testkit::tls::CertificateAuthority;
use testkit::tls::rcgen::{CertificateParams, SanType, date_time_ymd};
use testkit::{Client, Reply};

/// Files and servers with certificates of an authority.
trait Signs {
    /// Returns the files of a certificate for the proxy.
    fn files(&self, client_ca: Option<PathBuf>) -> CertificateFiles;
    /// Returns the certificate by which the proxy identifies itself.
    fn for_clients(&self, client_ca: Option<PathBuf>) -> Arc<ServerTls>;
    /// Returns the files by which the proxy recognises nodes.
    fn for_nodes(&self) -> AuthorityFiles;
    /// Starts a server that speaks TLS. Returns its address as well.
    fn redis(
        &self,
        program: &Path,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (Redis, SocketAddr);
}

impl Signs for CertificateAuthority {
    fn files(&self, client_ca: Option<PathBuf>) -> CertificateFiles {
        let (cert, key) = self.sign("proxy", |_| {});
        CertificateFiles {
            cert,
            key,
            clients: client_ca.map_or(ClientCertificates::None, ClientCertificates::Required),
        }
    }

    fn for_clients(&self, client_ca: Option<PathBuf>) -> Arc<ServerTls> {
        Arc::new(ServerTls::load(self.files(client_ca)).expect("the files are whole"))
    }

    fn for_nodes(&self) -> AuthorityFiles {
        AuthorityFiles {
            ca: Some(self.ca()),
            name: None,
            own: None,
        }
    }

    fn redis(
        &self,
        program: &Path,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (Redis, SocketAddr) {
        let (cert, key) = self.sign("node", change);
        let address = testkit::free_address().expect("a free port");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let options = [
            "--tls-port".to_owned(),
            address.port().to_string(),
            "--tls-cert-file".to_owned(),
            text(&cert),
            "--tls-key-file".to_owned(),
            text(&key),
            "--tls-ca-cert-file".to_owned(),
            text(&self.ca()),
            "--tls-auth-clients".to_owned(),
            "no".to_owned(),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        (Redis::start(program, &options), address)
    }
}

/// Starts a node, and a proxy before it that speaks TLS only with clients.
fn for_clients_alone(program: &Path) -> (CertificateAuthority, Redis, Proxy) {
    let authority = CertificateAuthority::new("one");
    let node = Redis::start(program, &[]);
    let proxy = Proxy::start(
        |config| config.certificate = Some(authority.for_clients(None)),
        &[node.address],
    );
    (authority, node, proxy)
}

fn plain(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// Returns `true` if the other end closes the connection within this time.
fn is_closed_within(stream: &mut TcpStream, time: Duration) -> bool {
    let begin = Instant::now();
    stream.set_read_timeout(Some(time)).expect("a limit");
    let mut left = [0; 1024];
    loop {
        match stream.read(&mut left) {
            Ok(0) => return true,
            Ok(_) if begin.elapsed() < time => {}
            Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            Ok(_) => return false,
        }
    }
}

/// Sends small and large values, one by one and in pipelines.
fn exercise<S: Read + Write>(client: &mut Client<S>) {
    assert_eq!(client.told("SET a b"), "+OK");
    assert_eq!(client.told("GET a"), "b");
    for length in [1, 100, 16_383, 16_384, 16_385, 65_536, 200_000, 5_000_000] {
        let value: String = (0..length)
            .map(|at| char::from(b'a' + (at % 23) as u8))
            .collect();
        assert_eq!(client.call(&["SET", "large", &value]), Reply::status("OK"));
        let got = client.call(&["GET", "large"]);
        assert!(got == Reply::Bulk(value.into_bytes()), "{length} bytes");
    }
    for number in 0..2000 {
        let (key, value) = (format!("key{number}"), format!("value{number}"));
        client.send(&["SET", &key, &value]);
        client.send(&["GET", &key]);
    }
    for number in 0..2000 {
        assert_eq!(client.reply(), Reply::status("OK"));
        let value = format!("value{number}").into_bytes();
        assert_eq!(client.reply(), Reply::Bulk(value));
    }
    assert!(matches!(client.call(&["HELLO", "3"]), Reply::Map(_)));
    assert!(matches!(
        client.call(&["SUBSCRIBE", "news"]),
        Reply::Push(_)
    ));
    let payload = "x".repeat(1_000_000);
    client.send(&["PUBLISH", "news", &payload]);
    let mut both = [client.reply(), client.reply()];
    both.sort_by_key(|reply| matches!(reply, Reply::Push(_)));
    assert_eq!(both[0], Reply::Int(1));
    let message = [b"message", &b"news"[..], payload.as_bytes()];
    let message = message.map(|part| Reply::Bulk(part.to_vec())).to_vec();
    assert!(both[1] == Reply::Push(message), "another message");
}

#[test]
fn clients_and_nodes_speak_tls() {
    let Some(program) = redis_server() else {
        return;
    };
    let authority = CertificateAuthority::new("one");
    let (_a, first) = authority.redis(&program, |_| {});
    let (_b, second) = authority.redis(&program, |_| {});
    for (threads, aggregation) in [(2, 0), (1, 1)] {
        let proxy = Proxy::start(
            |config| {
                config.certificate = Some(authority.for_clients(None));
                config.node_tls = Some(authority.for_nodes());
                config.network_threads = threads;
                config.aggregation_threads = aggregation;
            },
            &[first, second],
        );
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client = authority.client(proxy.address, None);
                    for number in 0..200 {
                        assert_eq!(client.told(&format!("ECHO {number}")), number.to_string());
                    }
                });
            }
        });
        exercise(&mut authority.client(proxy.address, None));
    }
}

#[test]
fn one_side_alone_may_speak_tls() {
    let Some(program) = redis_server() else {
        return;
    };
    let authority = CertificateAuthority::new("one");
    let (node, encrypted) = authority.redis(&program, |_| {});
    let before = |config: &mut Config| config.certificate = Some(authority.for_clients(None));
    let proxy = Proxy::start(before, &[node.address]);
    exercise(&mut authority.client(proxy.address, None));
    let behind = |config: &mut Config| config.node_tls = Some(authority.for_nodes());
    let proxy = Proxy::start(behind, &[encrypted]);
    exercise(&mut connect(proxy.address));
}

#[test]
fn redis_cli_speaks_tls_with_the_proxy() {
    let Some(program) = redis_server() else {
        return;
    };
    let authority = CertificateAuthority::new("one");
    let node = Redis::start(&program, &[]);
    let ca = Some(authority.ca());
    let proxy = Proxy::start(
        |config| config.certificate = Some(authority.for_clients(ca)),
        &[node.address],
    );
    let (cert, key) = authority.sign("client", |_| {});
    let cli = |with_certificate: bool| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &proxy.address.port().to_string()]);
        cli.arg("--tls").arg("--cacert").arg(authority.ca());
        if with_certificate {
            cli.arg("--cert").arg(&cert).arg("--key").arg(&key);
        }
        let done = cli
            .args(["SET", "a", "b"])
            .output()
            .expect("redis-cli runs");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert_eq!(cli(true), "OK\n");
    assert!(!cli(false).contains("OK"), "a client without a certificate");
    let own = (cert, key);
    let session = authority.session(Some(&own));
    let mut client = Client::over(StreamOwned::new(session, plain(proxy.address)));
    assert_eq!(client.told("GET a"), "b");
    // A certificate of another authority counts as none.
    let another = CertificateAuthority::new("another");
    let stranger = another.sign("client", |_| {});
    let session = authority.session(Some(&stranger));
    let mut stream = StreamOwned::new(session, plain(proxy.address));
    let asked = stream
        .write_all(b"PING\r\n")
        .and_then(|()| stream.read(&mut [0; 16]));
    assert!(asked.is_err(), "{asked:?}");
}

/// A stream that gives the other end one byte after another, so that handshakes come in pieces.
struct Dribble(TcpStream);

impl Read for Dribble {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(7);
        self.0.read(&mut into[..most])
    }
}

impl Write for Dribble {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn handshakes_may_come_in_halves_but_not_for_ever() {
    let Some(program) = redis_server() else {
        return;
    };
    let (authority, _node, proxy) = for_clients_alone(&program);
    let stream = Dribble(plain(proxy.address));
    let mut slow = Client::over(StreamOwned::new(authority.session(None), stream));
    assert_eq!(slow.told("SET a b"), "+OK");
    let begin = Instant::now();
    let mut hello = Vec::new();
    authority
        .session(None)
        .write_tls(&mut hello)
        .expect("bytes");
    let mut halves: Vec<TcpStream> = [0, 1, 5, 100, hello.len() - 1, hello.len()]
        .iter()
        .map(|&length| {
            let mut stream = plain(proxy.address);
            stream.write_all(&hello[..length]).expect("it takes it");
            stream
        })
        .collect();
    // They delay no other client.
    let mut client = authority.client(proxy.address, None);
    assert_eq!(client.told("GET a"), "b");
    assert!(begin.elapsed() < Duration::from_secs(8));
    for stream in &mut halves {
        assert!(is_closed_within(stream, PATIENCE));
    }
    let ended = begin.elapsed();
    assert!(
        ended > Duration::from_secs(9) && ended < Duration::from_secs(20),
        "{ended:?}"
    );
    assert_eq!(client.told("GET a"), "b");
}

#[test]
fn who_speaks_no_tls_is_closed_and_does_no_harm() {
    let Some(program) = redis_server() else {
        return;
    };
    let (authority, _node, proxy) = for_clients_alone(&program);
    let mut client = authority.client(proxy.address, None);
    let mut random = fastrand::Rng::with_seed(11);
    let mut cases = vec![
        b"PING\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0x16, 3, 1, 0xff, 0xff],
        vec![0x16, 3, 1, 0, 4, 1, 0, 0, 0],
    ];
    cases.extend((0..100).map(|_| (0..random.usize(1..3000)).map(|_| random.u8(..)).collect()));
    // Records with a valid header and a random body.
    cases.extend((0..100).map(|_| {
        let body: Vec<u8> = (0..random.usize(1..200)).map(|_| random.u8(..)).collect();
        let mut record = vec![random.u8(20..24), 3, 3, 0, body.len() as u8];
        record.extend(body);
        record
    }));
    for case in cases {
        let mut stream = plain(proxy.address);
        let _ = stream.write_all(&case);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(
            is_closed_within(&mut stream, Duration::from_secs(5)),
            "{case:?}"
        );
        assert_eq!(client.told("PING"), "+PONG");
    }
    // Random bytes in the middle of an open session, where records are expected.
    let mut session = StreamOwned::new(authority.session(None), plain(proxy.address));
    session.write_all(b"PING\r\n").expect("it takes it");
    assert_eq!(session.read(&mut [0; 16]).expect("a reply"), 7);
    session
        .sock
        .write_all(&[23, 3, 3, 0, 4, 1, 2, 3, 4])
        .expect("it takes it");
    assert!(is_closed_within(&mut session.sock, Duration::from_secs(5)));
    assert_eq!(client.told("PING"), "+PONG");
}

#[test]
fn a_slow_reader_gets_everything_before_the_end() {
    let Some(program) = redis_server() else {
        return;
    };
    let (authority, _node, proxy) = for_clients_alone(&program);
    let mut client = authority.client(proxy.address, None);
    let value = "v".repeat(1 << 20);
    assert_eq!(client.call(&["SET", "large", &value]), Reply::status("OK"));
    for _ in 0..24 {
        client.send(&["GET", "large"]);
    }
    client.send(&["QUIT"]);
    // Sockets fill, and ciphertext waits within the proxy.
    std::thread::sleep(Duration::from_millis(500));
    for number in 0..24 {
        let got = client.reply();
        assert!(got == Reply::Bulk(value.clone().into_bytes()), "{number}");
    }
    assert_eq!(client.reply(), Reply::status("OK"));
    assert!(client.try_reply().is_err(), "it is closed");
}

#[test]
fn a_node_that_comes_back_is_spoken_with_again() {
    let Some(program) = redis_server() else {
        return;
    };
    let authority = CertificateAuthority::new("one");
    let (mut node, address) = authority.redis(&program, |_| {});
    let proxy = Proxy::start(
        |config| config.node_tls = Some(authority.for_nodes()),
        &[address],
    );
    let mut client = connect(proxy.address);
    assert_eq!(client.told("SET a b"), "+OK");
    node.kill();
    client.send(&["GET", "a"]);
    node.restart();
    assert_eq!(client.reply(), Reply::Null);
    assert_eq!(client.told("SET a c"), "+OK");
}

/// Returns the error of a proxy that does not start.
fn refused(nodes: &[SocketAddr], change: impl FnOnce(&mut Config)) -> String {
    let mut config = Config::new(Nodes::Redis(
        nodes.iter().map(|&node| node.into()).collect(),
    ));
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    change(&mut config);
    match kumiki_proxy::start(&config) {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn nodes_that_are_not_to_be_trusted_are_refused() {
    let Some(program) = redis_server() else {
        return;
    };
    let (authority, other) = (
        CertificateAuthority::new("one"),
        CertificateAuthority::new("another"),
    );
    let by = |authority: &CertificateAuthority, name: Option<&str>| {
        let tls = AuthorityFiles {
            ca: Some(authority.ca()),
            name: name.map(str::to_owned),
            own: None,
        };
        move |config: &mut Config| config.node_tls = Some(tls)
    };
    let (node, address) = authority.redis(&program, |_| {});
    let told = refused(&[address], by(&other, None));
    assert!(
        told.contains("an authority that is not known here"),
        "{told}"
    );
    let told = refused(&[address], by(&authority, Some("node.example")));
    assert!(
        told.contains("another name") && told.contains("node.example"),
        "{told}"
    );
    let told = refused(&[node.address], by(&authority, None));
    assert!(told.contains("does it speak TLS there?"), "{told}");
    drop(node);
    let (_expired, address) = authority.redis(&program, |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let told = refused(&[address], by(&authority, None));
    assert!(
        told.contains("the peer's certificate has expired"),
        "{told}"
    );
    // A name that all nodes share.
    let (_named, address) = authority.redis(&program, |params| {
        let name = "node.example".try_into().expect("a name");
        params.subject_alt_names = vec![SanType::DnsName(name)];
    });
    let proxy = Proxy::start(by(&authority, Some("node.example")), &[address]);
    assert_eq!(connect(proxy.address).told("SET a b"), "+OK");
}

#[test]
fn files_that_are_of_no_use_are_named() {
    let authority = CertificateAuthority::new("one");
    let whole = authority.files(None);
    let (_, key) = authority.sign("other", |_| {});
    let with = |change: fn(&mut CertificateFiles, PathBuf), path: &Path| {
        let mut tls = whole.clone();
        change(&mut tls, path.to_owned());
        let loaded = ServerTls::load(tls).map(drop);
        loaded.expect_err("it is of no use").to_string()
    };
    let told = with(|tls, path| tls.key = path, &key);
    assert!(
        told.contains("is not that of the certificate") && told.contains("other.key"),
        "{told}"
    );
    let own = std::fs::read(&whole.key).expect("a key");
    testkit::files::write_public(&authority.path("open.key"), own);
    let told = with(|tls, path| tls.key = path, &authority.path("open.key"));
    assert!(
        told.contains("--tls-key") && told.contains("chmod o-rwx"),
        "{told}"
    );
    let nowhere = authority.path("nowhere.pem");
    for (change, option) in [
        (
            (|tls, path| tls.cert = path) as fn(&mut CertificateFiles, PathBuf),
            "--tls-cert",
        ),
        (|tls, path| tls.key = path, "--tls-key"),
        (
            |tls, path| tls.clients = ClientCertificates::Required(path),
            "--tls-ca",
        ),
    ] {
        let told = with(change, &nowhere);
        assert!(
            told.contains(option) && told.contains("nowhere.pem"),
            "{told}"
        );
    }
    // A key where a certificate should be.
    let told = with(|tls, path| tls.cert = path, &key);
    assert!(
        told.contains("--tls-cert") && told.contains("none in PEM"),
        "{told}"
    );
    let told = refused(&[SocketAddr::from(([127, 0, 0, 1], 1))], |config| {
        config.node_tls = Some(AuthorityFiles {
            ca: Some(authority.ca()),
            name: Some("no name".to_owned()),
            own: None,
        });
    });
    assert!(told.contains("--node-name no name"), "{told}");
}
