//! Clients of a cluster: those that are connected over TLS get the addresses for TLS, all others those
//! without.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use kumiki_server::{Config, TlsListener};
use reactor::Io;
use reactor::tls::{CertificateFiles, ClientCertificates, ServerTls};
use rustls::StreamOwned;
use testkit::tls::CertificateAuthority;
use testkit::{Client, Reply};

use crate::support::nodes::{Nodes, NodesOptions, slot_of};
use crate::support::{bulk, config, error, int};

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns nodes that speak TLS, too.
fn nodes(authority: &CertificateAuthority, io: Io) -> Nodes {
    let (cert, key) = authority.sign("server", |_| {});
    let clients = ClientCertificates::None;
    let certificate = ServerTls::load(CertificateFiles { cert, key, clients });
    let certificate = Arc::new(certificate.expect("the files are whole"));
    Nodes::start(NodesOptions {
        durable: false,
        config: Config {
            io,
            tls: Some(TlsListener {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                certificate,
            }),
            ..config()
        },
        ..NodesOptions::default()
    })
}

/// Returns a client of a node that speaks TLS.
fn encrypted(
    nodes: &Nodes,
    node: u16,
    authority: &CertificateAuthority,
) -> Client<impl Read + Write> {
    let stream = TcpStream::connect(nodes.tls_address(node)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    Client::over(StreamOwned::new(authority.session(None), stream))
}

fn array(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(items) => items,
        other => panic!("{other:?} is no array"),
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).expect("text"),
        other => panic!("{other:?} is no text"),
    }
}

/// Checks what node 1 answers this client, who must get these addresses of the three nodes.
fn check<S: Read + Write>(client: &mut Client<S>, nodes: &Nodes, expected: [SocketAddr; 3]) {
    for node in [2, 3] {
        let key = nodes.key_of(node, "key");
        let moved = format!(
            "MOVED {} {}",
            slot_of(&key),
            expected[usize::from(node) - 1]
        );
        assert_eq!(error(&client.call(&["GET", &key])), moved);
        assert_eq!(error(&client.call(&["SET", &key, "v"])), moved);
    }
    let slots = client.call(&["CLUSTER", "SLOTS"]);
    for (range, address) in array(&slots).iter().zip(expected) {
        let node = array(&array(range)[2]);
        assert_eq!(node[0], bulk("127.0.0.1"));
        assert_eq!(node[1], int(address.port().into()));
    }
    let lines = text(&client.call(&["CLUSTER", "NODES"]));
    assert_eq!(lines.lines().count(), 3);
    for (line, address) in lines.lines().zip(expected) {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[1].starts_with(&format!("{address}@")), "{line}");
    }
    // Both ports, to every client.
    let shards = client.call(&["CLUSTER", "SHARDS"]);
    assert_eq!(array(&shards).len(), 3);
    for (node, shard) in (1..).zip(array(&shards)) {
        let fields = array(&array(&array(shard)[3])[0]);
        let port = |address: SocketAddr| int(address.port().into());
        for pair in [
            [bulk("port"), port(nodes.address(node))],
            [bulk("tls-port"), port(nodes.tls_address(node))],
            [bulk("ip"), bulk("127.0.0.1")],
        ] {
            assert!(fields.chunks(2).any(|chunk| chunk == pair), "{pair:?}");
        }
    }
}

#[test]
fn each_client_gets_the_addresses_that_it_can_use() {
    let authority = CertificateAuthority::new("one");
    for io in [Io::Epoll, Io::Auto] {
        let nodes = nodes(&authority, io);
        let mut over_tls = encrypted(&nodes, 1, &authority);
        let mut plain = nodes.client(1);
        check(
            &mut over_tls,
            &nodes,
            [1, 2, 3].map(|node| nodes.tls_address(node)),
        );
        check(
            &mut plain,
            &nodes,
            [1, 2, 3].map(|node| nodes.address(node)),
        );
        // A node has one name, however its clients are connected.
        let myid = ["CLUSTER", "MYID"];
        assert_eq!(over_tls.call(&myid), plain.call(&myid));
        for (name, address) in [
            ("port", nodes.address(1)),
            ("tls-port", nodes.tls_address(1)),
        ] {
            let port = Reply::Array(vec![bulk(name), bulk(&address.port().to_string())]);
            assert_eq!(plain.call(&["CONFIG", "GET", name]), port);
        }
    }
}
