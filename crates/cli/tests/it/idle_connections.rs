//! The memory of a server with connections that wait for nothing.

use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::process::Server;
use testkit::tls::CertificateAuthority;
use testkit::{Client, Reply};

use crate::support::process::serve;

/// Connections before memory is measured: what all connections share exists by then.
const BEFORE: usize = 300;
/// Connections that are measured.
const MEASURED: usize = 1500;

/// Returns the resident memory of a server, in bytes.
fn resident(server: &Server) -> usize {
    let path = format!("/proc/{}/smaps_rollup", server.process());
    let text = std::fs::read_to_string(path).expect("it runs");
    let rss = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = rss.and_then(|rss| rss.trim().strip_suffix(" kB"));
    1024 * kib
        .expect("the line")
        .trim()
        .parse::<usize>()
        .expect("a number")
}

/// Returns the bytes that each of `MEASURED` connections takes, which `connect` makes.
fn bytes_of_a_connection<S: std::io::Read + std::io::Write>(
    server: &Server,
    connect: impl Fn() -> Client<S>,
) -> usize {
    let connected = |count| -> Vec<Client<S>> {
        let clients = (0..count).map(|_| {
            let mut client = connect();
            assert_eq!(client.call(&["PING"]), Reply::Status("PONG".into()));
            client
        });
        clients.collect()
    };
    let _first = connected(BEFORE);
    let before = resident(server);
    let _measured = connected(MEASURED);
    resident(server).saturating_sub(before) / MEASURED
}

#[test]
fn idle_connections_take_little_memory() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("the soft limit is raised");
    let authority = CertificateAuthority::new("one");
    let (cert, key) = authority.sign("server", |_| {});
    for io in ["epoll", "auto"] {
        let encrypted: SocketAddr = testkit::free_address().expect("a free port");
        let server = Server::start(|plain, dir| {
            let mut command = serve(plain);
            command.args(["--ephemeral", "--threads", "1", "--io", io]);
            // The allocator takes pages of 4 KiB, and gives them back at once.
            command.env("MIMALLOC_ALLOW_THP", "0");
            command.env("MIMALLOC_PURGE_DELAY", "0");
            command.args(["--tls-port", &encrypted.port().to_string()]);
            command.arg("--tls-cert").arg(&cert);
            command.arg("--tls-key").arg(&key).current_dir(dir);
            command
        });
        let plain = bytes_of_a_connection(&server, || Client::connect(server.address));
        assert!(plain <= 2048, "{plain} bytes without TLS, --io {io}");
        let tls = bytes_of_a_connection(&server, || authority.client(encrypted, None));
        assert!(tls <= 8192, "{tls} bytes with TLS, --io {io}");
        println!("--io {io}: an idle connection takes {plain} B, with TLS {tls} B");
    }
}
