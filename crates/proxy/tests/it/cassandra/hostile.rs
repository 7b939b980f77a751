//! Clients that send wrong input, or hardly any: other clients do not notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cql::Version;
use cql::request::{Parameters, Query, Request};
use cql::response::PROTOCOL_ERROR;

use crate::cassandra::client::{Client, PATIENCE, Proxy, Received};
use crate::cassandra::node::Nodes;
use testkit::SetOnDrop;

/// The longest body that the proxy takes here.
const LONGEST: usize = 64 * 1024;

fn proxy(nodes: &Nodes) -> Proxy {
    Proxy::start(nodes, |config| {
        config.network_threads = 2;
        config.limits.envelope = LONGEST;
    })
}

/// Runs a client that behaves: it sends many tagged requests at a time and checks the replies, until
/// `over`.
fn well_behaved(address: SocketAddr, number: u64, over: &AtomicBool, answered: &AtomicU64) {
    let version = [Version::V4, Version::V5][number as usize % 2];
    let mut client = Client::open(address, version);
    let text = "SELECT * FROM app.echo WHERE k = ?";
    client.prepare(text);
    let mut random = fastrand::Rng::with_seed(number);
    while !over.load(Ordering::Relaxed) {
        let tags: Vec<String> = (0..random.i16(1..50))
            .map(|_| format!("{number} {}", random.u64(..)))
            .collect();
        for (stream, tag) in (0..).zip(&tags) {
            match random.bool() {
                true => client.ask(stream, tag),
                false => client.execute(stream, text, tag),
            }
        }
        for _ in &tags {
            let (stream, told) = client.receive();
            let tag = tags[stream as usize].clone();
            assert_eq!(told, Received::Echo(tag, String::new()));
        }
        answered.fetch_add(tags.len() as u64, Ordering::Relaxed);
    }
}

/// Checks that other clients get their replies, at least so many, while `hostile` runs.
fn beside(proxy: &Proxy, least: u64, hostile: impl FnOnce(SocketAddr)) {
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&over);
        let (over, answered) = (&over, &answered);
        let address = proxy.address;
        let clients: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || well_behaved(address, number, over, answered)))
            .collect();
        hostile(address);
        let begun = Instant::now();
        while answered.load(Ordering::Relaxed) < least && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("its replies are right");
        }
    });
    let answered = answered.into_inner();
    assert!(answered >= least, "only {answered} replies");
}

fn query(client: &Client, stream: i16, text: &str) -> Vec<u8> {
    let parameters = Parameters::new(
        cql::Consistency::One,
        cql::BoundValues::none(client.version),
    );
    client.packed(stream, Request::Query(Query { text, parameters }))
}

/// Checks that only an error of the protocol comes before the proxy closes the connection.
fn is_refused(client: &mut Client, what: &str) {
    let mut errors = 0;
    loop {
        match client.try_receive() {
            Ok((_, Received::Error(PROTOCOL_ERROR, _))) => errors += 1,
            Ok((_, other)) => panic!("{what}: {other:?}"),
            Err(error) => {
                let ended = error.kind() != std::io::ErrorKind::WouldBlock;
                assert!(ended, "{what}: the connection stays open");
                break;
            }
        }
    }
    assert_eq!(errors, 1, "{what}");
}

#[test]
fn what_is_not_of_the_protocol_is_refused_and_hurts_no_other_client() {
    let nodes = Nodes::start(2, &[]);
    let proxy = proxy(&nodes);
    let oversized = |version: u8| [version, 0, 0, 1, 7, 0, 1, 0, 1];
    let before_startup: [(&str, Vec<u8>); 8] = [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        ("version 66", vec![0x42, 0, 0, 0, 1, 0, 0, 0, 0]),
        ("a response", vec![0x84, 0, 0, 0, 2, 0, 0, 0, 0]),
        ("an unknown opcode", vec![4, 0, 0, 0, 0x77, 0, 0, 0, 0]),
        ("a request too early", vec![4, 0, 0, 0, 7, 0, 0, 0, 0]),
        ("an oversized body", oversized(4).to_vec()),
        (
            "a negative length",
            vec![4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
        ),
        ("STARTUP without a body", vec![4, 0, 0, 0, 1, 0, 0, 0, 0]),
    ];
    beside(&proxy, 2000, |address| {
        for (what, bytes) in &before_startup {
            let mut client = Client::connect(address, Version::V4);
            client.stream.write_all(bytes).expect("the proxy reads");
            is_refused(&mut client, what);
        }
        for (what, bytes) in [
            (
                "a compressed envelope",
                vec![4, 1, 0, 1, 7, 0, 0, 0, 4, 1, 2, 3, 4],
            ),
            ("another version", vec![5, 0, 0, 1, 5, 0, 0, 0, 0]),
            (
                "REGISTER without a body",
                vec![4, 0, 0, 1, 0x0b, 0, 0, 0, 0],
            ),
            ("an oversized body", oversized(4).to_vec()),
            ("a second STARTUP", vec![4, 0, 0, 1, 1, 0, 0, 0, 2, 0, 0]),
            (
                "an unasked AUTH_RESPONSE",
                vec![4, 0, 0, 1, 15, 0, 0, 0, 4, 0, 0, 0, 0],
            ),
            (
                "garbage",
                (0..=255).cycle().skip(77).step_by(7).take(500).collect(),
            ),
        ] {
            let mut client = Client::open(address, Version::V4);
            client.stream.write_all(&bytes).expect("the proxy reads");
            is_refused(&mut client, what);
        }
        // Frames: each byte of a whole one is changed once.
        let whole = query(
            &Client::open(address, Version::V5),
            1,
            "SELECT hostile FROM app.echo",
        );
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            let mut client = Client::open(address, Version::V5);
            client.stream.write_all(&bytes).expect("the proxy reads");
            is_refused(&mut client, &format!("a frame with another byte {at}"));
        }
        let mut client = Client::open(address, Version::V5);
        let plain = Client::connect(address, Version::V5);
        let bytes = query(&plain, 1, "SELECT hostile FROM app.echo");
        client.stream.write_all(&bytes).expect("the proxy reads");
        is_refused(&mut client, "an envelope without a frame");
    });
    assert_eq!(
        nodes.asked("SELECT hostile FROM app.echo"),
        Vec::<usize>::new()
    );
}

#[test]
fn a_client_that_sends_slowly_starves_no_other() {
    let nodes = Nodes::start(2, &[]);
    let proxy = proxy(&nodes);
    beside(&proxy, 20_000, |address| {
        let mut slow = Vec::new();
        for number in 0..150 {
            let version = [Version::V4, Version::V5][number % 2];
            let mut client = match number % 3 {
                0 => Client::connect(address, version),
                _ => Client::open(address, version),
            };
            let bytes = match number % 3 {
                0 => client.packed(0, Request::Startup(vec![("CQL_VERSION", "3.0.0")])),
                _ => query(&client, 1, &format!("SELECT slow {number}")),
            };
            // Half a header or half a body, and then a byte at a time.
            let sent = [3, bytes.len() / 2][number / 3 % 2];
            client
                .stream
                .write_all(&bytes[..sent])
                .expect("the proxy reads");
            slow.push((client, bytes, sent));
        }
        for _ in 0..60 {
            for (client, bytes, sent) in &mut slow {
                if *sent + 1 < bytes.len() {
                    client
                        .stream
                        .write_all(&bytes[*sent..*sent + 1])
                        .expect("it reads");
                    *sent += 1;
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // Slow requests are answered as well; some clients leave in the middle.
        for (number, (mut client, bytes, sent)) in slow.into_iter().enumerate() {
            if number % 5 == 0 {
                continue;
            }
            client.stream.write_all(&bytes[sent..]).expect("it reads");
            let (stream, told) = client.receive();
            match number % 3 {
                0 => assert_eq!((stream, told), (0, Received::Other("Ready".to_owned()))),
                _ => {
                    let text = format!("SELECT slow {number}");
                    assert_eq!((stream, told), (1, Received::Echo(text, String::new())));
                }
            }
        }
    });
}

#[test]
fn a_client_that_takes_no_replies_starves_no_other() {
    let nodes = Nodes::start(2, &[]);
    let proxy = proxy(&nodes);
    beside(&proxy, 5000, |address| {
        let mut deaf: Vec<(Client, usize)> = (0..4)
            .map(|_| (Client::open(address, Version::V4), 0))
            .collect();
        let text = format!("SELECT deaf {}", "x".repeat(10_000));
        for (client, sent) in &mut deaf {
            let limit = Some(Duration::from_millis(300));
            client.stream.set_write_timeout(limit).expect("a limit");
            let bytes = query(client, 3, &text);
            // Its socket fills, because the proxy reads no more of it.
            while *sent < 5000 && client.stream.write_all(&bytes).is_ok() {
                *sent += 1;
            }
            assert!(*sent < 5000, "it is always read from");
        }
    });
}

#[test]
fn who_does_not_begin_is_turned_out() {
    let nodes = Nodes::start(1, &[("proxy", "p")]);
    let proxy = Proxy::start(&nodes, |config| {
        config.node_user = Some("proxy".to_owned());
        config.node_password = Some("p".to_owned());
    });
    let begun = Instant::now();
    let mut silent = Client::connect(proxy.address, Version::V4);
    let mut nameless = Client::connect(proxy.address, Version::V5);
    assert_eq!(nameless.start(), Received::Other("Authenticate".to_owned()));
    let known = Client::of_user(proxy.address, Version::V4, "proxy", "p");
    let mut known = known.unwrap_or_else(|told| panic!("{told:?}"));
    for stranger in [&mut silent, &mut nameless] {
        let error = stranger.try_receive().expect_err("nothing comes");
        let waits = error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!waits, "it is closed within {PATIENCE:?}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(9));
    known.ask(1, "SELECT 1 FROM app.echo");
    assert!(matches!(known.receive(), (1, Received::Echo(..))));
}

#[test]
fn who_stops_in_the_middle_of_a_request_is_turned_out() {
    const LIMIT: Duration = Duration::from_secs(1);
    /// The size of the longest frame, with its header and its checksum.
    const FRAME: usize = 6 + 131_071 + 4;
    let nodes = Nodes::start(2, &[]);
    let proxy = Proxy::start(&nodes, |config| {
        config.network_threads = 2;
        config.limits.stall = LIMIT;
    });
    let mut idle = Client::open(proxy.address, Version::V5);
    beside(&proxy, 2000, |address| {
        let begun = Instant::now();
        let mut halves: Vec<Client> = (0..200)
            .map(|number| Client::open(address, [Version::V4, Version::V5][number % 2]))
            .collect();
        for (number, client) in halves.iter_mut().enumerate() {
            let bytes = query(client, 1, "SELECT half FROM app.echo");
            let sent = 1 + number % (bytes.len() - 1);
            client.stream.write_all(&bytes[..sent]).expect("it reads");
        }
        // Whole frames of an envelope that goes on in another frame.
        let mut large = Client::open(address, Version::V5);
        let bytes = query(
            &large,
            1,
            &format!("SELECT large {}", "x".repeat(2 * FRAME)),
        );
        large.stream.write_all(&bytes[..FRAME]).expect("it reads");
        // The proxy waits for a client that goes on.
        let mut slow = Client::open(address, Version::V5);
        let bytes = query(&slow, 1, "SELECT slow FROM app.echo");
        for piece in bytes.chunks(bytes.len().div_ceil(8)) {
            slow.stream.write_all(piece).expect("it reads");
            std::thread::sleep(LIMIT / 4);
        }
        let echo = Received::Echo("SELECT slow FROM app.echo".to_owned(), String::new());
        assert_eq!(slow.receive(), (1, echo));
        for client in halves.iter_mut().chain([&mut large]) {
            let error = client.try_receive().expect_err("nothing comes");
            let waits = error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(!waits, "it is closed within {PATIENCE:?}");
        }
        assert!(begun.elapsed() >= LIMIT);
    });
    idle.ask(1, "SELECT idle FROM app.echo");
    assert!(matches!(idle.receive(), (1, Received::Echo(..))));
}

/// Nodes close a connection on which they cannot read two requests. Two new clients send one such
/// request each: another client's write on the connection still gets its reply.
#[test]
fn what_nodes_cannot_read_costs_no_other_client_its_connection() {
    let nodes = Nodes::start(1, &[]);
    let proxy = Proxy::start(&nodes, |config| config.network_threads = 1);
    for version in [Version::V4, Version::V5] {
        let mut waits = Client::open(proxy.address, version);
        let text = format!("INSERT INTO app.echo (k) VALUES ('late {version:?}')");
        waits.ask(1, &text);
        let begun = Instant::now();
        while nodes.asked(&text).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "the node is not asked");
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..2 {
            let mut hostile = Client::open(proxy.address, version);
            let none = cql::BoundValues::none(version);
            let mut parameters = Parameters::new(cql::Consistency::One, none);
            parameters.paging_state = Some(b"no state of any node");
            let text = "SELECT * FROM app.echo";
            hostile.send(2, Request::Query(Query { text, parameters }));
            let (stream, told) = hostile.receive();
            let is_refused = matches!(told, Received::Error(PROTOCOL_ERROR, _));
            assert!(stream == 2 && is_refused, "{told:?}");
        }
        assert_eq!(waits.receive(), (1, Received::Echo(text, String::new())));
    }
}

/// Bytes of real conversations with random changes, and noise.
#[test]
fn changed_conversations_hurt_no_other_client() {
    let nodes = Nodes::start(2, &[]);
    let proxy = proxy(&nodes);
    beside(&proxy, 5000, |address| {
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let version = [Version::V4, Version::V5][seed as usize % 2];
            let mut client = match random.u8(..4) {
                0 => Client::connect(address, version),
                _ => Client::open(address, version),
            };
            let mut bytes: Vec<u8> = Vec::new();
            for stream in 0..random.i16(1..8) {
                bytes.extend(query(&client, stream, "SELECT changed FROM app.echo"));
            }
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                match random.u8(..3) {
                    0 => bytes[at] = random.u8(..),
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, random.u8(..)),
                }
            }
            // Some of the connections may have been closed by then.
            let _ = client.stream.write_all(&bytes);
            if random.bool() {
                let _ = client.stream.shutdown(std::net::Shutdown::Write);
                drain(&mut client.stream);
            }
        }
    });
}

/// Reads until the end, for as long as that may take.
fn drain(stream: &mut TcpStream) {
    let mut piece = vec![0; 4096];
    while stream.read(&mut piece).is_ok_and(|count| count > 0) {}
}
