//! Nodes that live, but keep replies back.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use cql::request::Request;
use cql::response::{READ_TIMEOUT, WRITE_TIMEOUT};
use cql::{EventKind, Version};

use crate::cassandra::client::{Client, Proxy, Received};
use crate::cassandra::node::{LATE, Nodes};

/// The timeout of nodes: a request about rows has three times that.
const TIMEOUT: Duration = Duration::from_millis(500);

fn code(told: &Received) -> i32 {
    match told {
        Received::Error(code, _) => *code,
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn a_write_that_is_never_answered_is_told_of_and_not_repeated() {
    let nodes = Nodes::start(3, &[]);
    let proxy = Proxy::start(&nodes, |config| config.timeout = TIMEOUT);
    for version in [Version::V4, Version::V5] {
        let mut client = Client::open(proxy.address, version);
        let text = format!("INSERT INTO app.echo (never) VALUES ('{version:?}')");
        let begun = Instant::now();
        client.ask(5, &text);
        let (stream, told) = client.receive();
        assert_eq!((stream, code(&told)), (5, WRITE_TIMEOUT), "{told:?}");
        assert!(begun.elapsed() >= 3 * TIMEOUT, "{:?}", begun.elapsed());
        assert!(matches!(&told, Received::Error(_, words) if words.contains("is not known")));
        assert_eq!(nodes.asked(&text).len(), 1);
        // The connection goes on.
        client.ask(6, "SELECT 1 FROM app.echo");
        let echo = Received::Echo("SELECT 1 FROM app.echo".to_owned(), String::new());
        assert_eq!(client.receive(), (6, echo));
    }
}

#[test]
fn a_read_that_is_never_answered_is_asked_of_each_node_once() {
    let nodes = Nodes::start(3, &[]);
    let proxy = Proxy::start(&nodes, |config| config.timeout = TIMEOUT);
    let mut client = Client::open(proxy.address, Version::V5);
    let text = "SELECT never FROM app.echo";
    client.ask(5, text);
    let (stream, told) = client.receive();
    assert_eq!((stream, code(&told)), (5, READ_TIMEOUT), "{told:?}");
    let mut asked = nodes.asked(text);
    asked.sort_unstable();
    assert_eq!(asked, [0, 1, 2]);
    client.prepare("UPDATE app.echo SET v = 1 WHERE k = ?");
    client.execute(9, "UPDATE app.echo SET v = 1 WHERE k = ?", "never 1");
    let (stream, told) = client.receive();
    assert_eq!((stream, code(&told)), (9, WRITE_TIMEOUT), "{told:?}");
    assert_eq!(nodes.asked("never 1").len(), 1);
}

#[test]
fn a_late_reply_goes_to_no_client() {
    // One node, so that all requests share a connection.
    let nodes = Nodes::start(1, &[]);
    let proxy = Proxy::start(&nodes, |config| config.timeout = TIMEOUT);
    let mut slow = Client::open(proxy.address, Version::V4);
    let others = [Version::V4, Version::V4, Version::V5];
    let mut others = others.map(|version| Client::open(proxy.address, version));
    let begun = Instant::now();
    for stream in 0..100 {
        slow.ask(stream, &format!("UPDATE app.echo SET late = {stream}"));
    }
    let mut asked = 0_u32;
    let mut timed_out = 0;
    // The other clients' requests take streams before and after the late replies come.
    while begun.elapsed() < LATE + TIMEOUT {
        for (number, client) in others.iter_mut().enumerate() {
            let texts: Vec<String> = (0..40)
                .map(|place| format!("SELECT {number} {asked} {place} FROM app.echo"))
                .collect();
            for (stream, text) in (0..).zip(&texts) {
                client.ask(stream, text);
            }
            for _ in &texts {
                let (stream, told) = client.receive();
                let text = texts[stream as usize].clone();
                assert_eq!(told, Received::Echo(text, String::new()));
            }
        }
        asked += 1;
        if begun.elapsed() > 3 * TIMEOUT + TIMEOUT / 2 && timed_out == 0 {
            while timed_out < 100 {
                assert_eq!(code(&slow.receive().1), WRITE_TIMEOUT);
                timed_out += 1;
            }
            // A client may use its streams again.
            for stream in 0..100 {
                slow.ask(stream, &format!("SELECT {stream} FROM app.echo"));
            }
        }
    }
    assert_eq!(timed_out, 100);
    for _ in 0..100 {
        let (stream, told) = slow.receive();
        let text = format!("SELECT {stream} FROM app.echo");
        assert_eq!(told, Received::Echo(text, String::new()));
    }
    // Nothing more comes, and no connection was given up: two of the proxy's own, one for each version.
    slow.ask(7, "SELECT last FROM app.echo");
    let last = Received::Echo("SELECT last FROM app.echo".to_owned(), String::new());
    assert_eq!(slow.receive(), (7, last));
    assert!(asked > 10, "{asked} rounds");
    assert!(nodes.connections() <= 6, "{}", nodes.connections());
}

/// Returns an address that does not answer, not even with a refusal: a listener whose queue is full.
/// This holds as long as the returned values live.
fn nowhere() -> (SocketAddr, socket2::Socket, Vec<TcpStream>) {
    let kind = socket2::Type::STREAM;
    let listener = socket2::Socket::new(socket2::Domain::IPV4, kind, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&any.into()).expect("a free port");
    listener.listen(0).expect("it listens");
    let address = listener.local_addr().expect("one").as_socket();
    let address = address.expect("of the Internet");
    let mut queue = Vec::new();
    for _ in 0..16 {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => queue.push(stream),
            Err(_) => return (address, listener, queue),
        }
    }
    panic!("the queue does not end");
}

#[test]
fn a_node_that_has_vanished_holds_up_its_keys_once() {
    const SLOW: Duration = Duration::from_millis(1500);
    let (address, _listener, _queue) = nowhere();
    let nodes = Nodes::start_beside(2, &[], &[address]);
    let proxy = Proxy::start(&nodes, |config| config.timeout = SLOW);
    let mut client = Client::open(proxy.address, Version::V5);
    let text = "SELECT * FROM app.echo WHERE k = ?";
    client.prepare(text);
    let (begun, mut slow, mut asked) = (Instant::now(), 0, 0);
    while begun.elapsed() < 8 * SLOW {
        let sent = Instant::now();
        for stream in 0..10 {
            client.execute(stream, text, &format!("{asked} {stream}"));
        }
        for _ in 0..10 {
            let (stream, told) = client.receive();
            let echo = Received::Echo(format!("{asked} {stream}"), String::new());
            assert_eq!(told, echo);
        }
        slow += u32::from(sent.elapsed() >= SLOW / 2);
        asked += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    // Asking it again and again would have been slow every few seconds.
    assert!(slow <= 2, "{slow} of {asked} were slow");
}

#[test]
fn missed_schema_changes_are_told_when_a_node_is_listened_to_again() {
    let nodes = Nodes::start(2, &[]);
    let proxy = Proxy::start(&nodes, |_| {});
    let mut client = Client::open(proxy.address, Version::V4);
    client.send(1, Request::Register(vec![EventKind::Schema]));
    assert_eq!(client.receive(), (1, Received::Other("Ready".to_owned())));
    // The listener has seen the schema once its connection is there.
    std::thread::sleep(Duration::from_secs(1));
    nodes.cut_off_listeners();
    let told = client.receive();
    assert_eq!(told, (-1, Received::Other("Event".to_owned())));
}
