//! The requirements on every network, for all implementations of the trait.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use reactor::tls::Tls;
use reactor::{Network, SocketEvent, Sockets, Uring, Wake};

// Other crates include this file by its path, too.
#[path = "conformance/connections.rs"]
mod connections;
#[path = "conformance/echo_server.rs"]
pub(crate) mod echo_server;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// As servers number theirs.
const LISTENER: usize = usize::MAX - 1;
const STREAM: usize = 11;

/// A network that is tested, and where its peers are: on this machine, unless it says otherwise.
pub(crate) trait SuiteNetwork: Network {
    /// The kernel lists its connections.
    const IS_LISTED: bool = true;

    /// Opens a network.
    fn opened() -> io::Result<Self> {
        Self::open()
    }

    /// Returns a listener that a network can have, and its address.
    fn bound() -> (TcpListener, SocketAddr) {
        bound_at(Ipv4Addr::LOCALHOST)
    }

    /// Returns a listener to which a network can connect, and its address.
    fn bound_peer() -> (TcpListener, SocketAddr) {
        bound_at(Ipv4Addr::LOCALHOST)
    }

    /// Connects to a listener of either kind, not by a network.
    fn connect_peer(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address)
    }
}

impl SuiteNetwork for Sockets {}
impl SuiteNetwork for Uring {}
impl<N: SuiteNetwork> SuiteNetwork for Tls<N> {}

/// Returns a listener on a free port of an address.
pub(crate) fn bound_at(address: Ipv4Addr) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((address, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// Waits for an event with this token.
fn await_event<N: SuiteNetwork>(
    network: &mut N,
    token: usize,
    wanted: impl Fn(&SocketEvent) -> bool,
) -> SocketEvent {
    let begin = Instant::now();
    let mut happened = Vec::new();
    while begin.elapsed() < PATIENCE {
        let waited = network.wait(&mut happened, Some(Duration::from_millis(100)));
        waited.expect("it waits");
        let mut all = happened.drain(..);
        if let Some(event) = all.find(|event| event.token == token && wanted(event)) {
            return event;
        }
    }
    panic!("nothing has happened at {token}");
}

/// Connects to a listener of the network, which waits meanwhile: a network with a stack of its own answers only then.
fn connect_meanwhile<N: SuiteNetwork>(
    network: &mut N,
    address: SocketAddr,
) -> io::Result<TcpStream> {
    let connects = std::thread::spawn(move || N::connect_peer(address));
    let (begin, mut happened, mut is_reported) = (Instant::now(), Vec::new(), false);
    loop {
        let is_over = connects.is_finished();
        let waited = network.wait(&mut happened, Some(Duration::from_millis(5)));
        waited.expect("it waits");
        let mut all = happened.drain(..);
        is_reported |= all.any(|event| event.token == LISTENER && event.readable);
        if is_over {
            let peer = connects.join().expect("no panic");
            if is_reported || peer.is_err() {
                return peer;
            }
            return peer.inspect(|_| {
                await_event(network, LISTENER, |event| event.readable);
            });
        }
        assert!(begin.elapsed() < PATIENCE, "no connection, and no error");
    }
}

/// Returns a connection that the network has accepted and does not watch, and the peer's end of it.
fn accept_from<N: SuiteNetwork>(
    network: &mut N,
    listener: &N::Listener,
    address: SocketAddr,
) -> (N::Stream, TcpStream) {
    let peer = connect_meanwhile(network, address).expect("a connection");
    peer.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let (stream, from) = network.accept(listener).expect("it is there");
    assert_eq!(from, peer.local_addr().expect("an address"));
    let none = network.accept(listener).err().expect("there was one");
    assert_eq!(none.kind(), ErrorKind::WouldBlock);
    (stream, peer)
}

/// Waits, so that the network does its work, until `done` returns `true`.
pub(crate) fn wait_until<N: SuiteNetwork>(network: &mut N, done: impl Fn() -> bool) {
    let (begin, mut happened) = (Instant::now(), Vec::new());
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "no end");
        let waited = network.wait(&mut happened, Some(Duration::from_millis(5)));
        waited.expect("it waits");
    }
}

/// Reads until the peer has ended.
fn read_to_end<N: SuiteNetwork>(network: &mut N, stream: &mut N::Stream) -> Vec<u8> {
    let (begin, mut all) = (Instant::now(), Vec::new());
    loop {
        assert!(begin.elapsed() < PATIENCE, "no end");
        let mut room = [0; 3];
        match network.read(stream, &mut room) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                await_event(network, STREAM, |event| event.readable);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes until there is no room. Returns the bytes that were taken.
fn fill<N: SuiteNetwork>(network: &mut N, stream: &mut N::Stream) -> Vec<u8> {
    let piece: Vec<u8> = (0..10_007).map(|at| (at % 256) as u8).collect();
    let mut taken = Vec::new();
    let (mut refused, mut happened) = (0, Vec::new());
    // It is full if it refuses for a while: data that was taken may still be on its way to the kernel.
    while refused < 20 {
        match network.write(stream, &[IoSlice::new(&piece)]) {
            Ok(count) => {
                taken.extend_from_slice(&piece[..count]);
                refused = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                let waited = network.wait(&mut happened, Some(Duration::from_millis(1)));
                waited.expect("it waits");
            }
            Err(error) => panic!("{error}"),
        }
    }
    taken
}

/// Returns a connection that the network has accepted, and the peer's end of it.
fn accepted<N: SuiteNetwork>(network: &mut N) -> (N::Listener, N::Stream, TcpStream) {
    let (socket, address) = N::bound();
    let listener = network.listen(socket, LISTENER).expect("it listens");
    let (mut stream, peer) = accept_from(network, &listener, address);
    network.watch(&mut stream, STREAM).expect("it is watched");
    (listener, stream, peer)
}

/// Checks that more data than all buffers on the way hold goes out and comes back unchanged.
fn carries_much_in_both_directions<N: SuiteNetwork>() {
    const LEN: usize = 24 << 20;
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, peer) = accepted(&mut network);
    let sent: Vec<u8> = (0..LEN).map(|at| (at * 31 % 251) as u8).collect();
    let expected = sent.clone();
    let mut reader = peer.try_clone().expect("a second handle");
    let writes = std::thread::spawn({
        let mut peer = peer;
        move || peer.write_all(&sent).expect("it takes everything")
    });
    let reads = std::thread::spawn(move || {
        // Slowly at first, so that there is no room for a while.
        std::thread::sleep(Duration::from_millis(300));
        let mut back = vec![0; LEN];
        reader.read_exact(&mut back).expect("all comes back");
        back
    });
    let (mut held, mut taken, mut room) = (Vec::new(), 0, vec![0; 50_000]);
    let (mut readable, mut full, mut happened) = (true, false, Vec::new());
    let begin = Instant::now();
    while taken < LEN {
        assert!(begin.elapsed() < PATIENCE * 3, "{taken} of {LEN}");
        // As in the proxy, data that was read and not written is bounded.
        if readable && held.len() < 200_000 {
            match network.read(&mut stream, &mut room) {
                Ok(0) => panic!("the peer has not ended"),
                Ok(count) => held.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => readable = false,
                Err(error) => panic!("{error}"),
            }
        }
        if !full && !held.is_empty() {
            let (first, second) = held.split_at(held.len() / 2);
            match network.write(&mut stream, &[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(count) => {
                    held.drain(..count);
                    taken += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => full = true,
                Err(error) => panic!("{error}"),
            }
        }
        let idle = (full || held.is_empty()) && (!readable || held.len() >= 200_000);
        let timeout = if idle {
            Duration::from_secs(5)
        } else {
            Duration::ZERO
        };
        let waited = network.wait(&mut happened, Some(timeout));
        waited.expect("it waits");
        for event in happened.drain(..).filter(|event| event.token == STREAM) {
            readable |= event.readable;
            full &= !event.writable;
        }
    }
    // The last data that was taken leaves with a wait.
    wait_until(&mut network, || reads.is_finished());
    writes.join().expect("no panic");
    assert!(reads.join().expect("no panic") == expected, "other bytes");
}

/// Checks that data written before a connection is closed arrives, and then the end.
fn closes_behind_what_was_written<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, mut peer) = accepted(&mut network);
    let written = network.write(&mut stream, &[IoSlice::new(b"farewell")]);
    assert_eq!(written.expect("there is room"), 8);
    network.close(stream);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).expect("it ends");
    assert_eq!(all, b"farewell");
}

/// Checks that data which a slow peer has not taken when a connection is closed is still sent.
fn closes_behind_what_a_slow_peer_has_not_taken<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, mut peer) = accepted(&mut network);
    let expected = fill(&mut network, &mut stream);
    network.close(stream);
    let reads = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("it ends");
        all
    });
    wait_until(&mut network, || reads.is_finished());
    let read = reads.join().expect("no panic");
    // The peer has everything; a network with a stack of its own has yet to hear of that.
    let begin = Instant::now();
    while !network.is_settled() {
        assert!(begin.elapsed() < PATIENCE, "bytes are left");
        let waited = network.wait(&mut Vec::new(), Some(Duration::from_millis(5)));
        waited.expect("it waits");
    }
    assert!(read == expected, "{} of {}", read.len(), expected.len());
}

/// Checks that an output that is ended arrives before its end, and that the input goes on.
fn ends_its_output_alone<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    for is_long in [false, true] {
        let (_listener, mut stream, mut peer) = accepted(&mut network);
        let expected = match is_long {
            true => fill(&mut network, &mut stream),
            false => {
                let written = network.write(&mut stream, &[IoSlice::new(b"last words")]);
                assert_eq!(written.expect("there is room"), 10);
                b"last words".to_vec()
            }
        };
        match network.end_output(&mut stream) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return,
            ended => ended.expect("it ends"),
        }
        let reads = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).expect("it ends");
            peer.write_all(b"an answer")
                .expect("the other side is open");
            all
        });
        wait_until(&mut network, || reads.is_finished());
        assert_eq!(read_to_end(&mut network, &mut stream), b"an answer");
        assert!(reads.join().expect("no panic") == expected, "other bytes");
        network.close(stream);
    }
}

/// Checks that written data leaves before the thread waits, if it is flushed.
fn flushes_what_was_written<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, mut peer) = accepted(&mut network);
    for number in 0..100 {
        let written = network.write(&mut stream, &[IoSlice::new(&[number; 3])]);
        assert_eq!(written.expect("there is room"), 3);
        network.flush().expect("it is sent");
        let mut three = [0; 3];
        peer.read_exact(&mut three).expect("they arrive");
        assert_eq!(three, [number; 3]);
    }
    // Events that come meanwhile are not lost.
    peer.write_all(b"input").expect("it is sent");
    let written = network.write(&mut stream, &[IoSlice::new(b"output")]);
    assert_eq!(written.expect("there is room"), 6);
    network.flush().expect("it is sent");
    peer.read_exact(&mut [0; 6]).expect("they arrive");
    drop(peer);
    assert_eq!(read_to_end(&mut network, &mut stream), b"input");
}

/// Checks that a peer cannot send without end while it is not read from.
fn holds_up_who_is_not_read_from<N: SuiteNetwork>() {
    const LEN: usize = 64 << 20;
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, mut peer) = accepted(&mut network);
    peer.set_nonblocking(true).expect("a mode");
    let piece: Vec<u8> = (0..65_521).map(|at| (at % 256) as u8).collect();
    let (mut sent, mut refused, mut happened) = (0, 0, Vec::new());
    while refused < 20 {
        match peer.write(&piece[sent % piece.len()..]) {
            Ok(count) => {
                sent += count;
                refused = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => refused += 1,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
        assert!(sent < LEN, "{sent} bytes that are not read");
        let waited = network.wait(&mut happened, Some(Duration::from_millis(1)));
        waited.expect("it waits");
    }
    // All of it is there, and the end after it.
    drop(peer);
    let (mut room, mut taken, begin) = (vec![0; 30_000], 0, Instant::now());
    loop {
        assert!(begin.elapsed() < PATIENCE, "{taken} of {sent}");
        match network.read(&mut stream, &mut room) {
            Ok(0) => break,
            Ok(count) => {
                for (at, &byte) in room[..count].iter().enumerate() {
                    assert_eq!(byte, piece[(taken + at) % piece.len()]);
                }
                taken += count;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let waited = network.wait(&mut happened, Some(Duration::from_millis(5)));
                waited.expect("it waits");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(taken, sent);
}

/// Returns `true` if a peer can connect while the network waits.
fn is_connected<N: SuiteNetwork>(network: &mut N, address: SocketAddr) -> bool {
    let connects = std::thread::spawn(move || N::connect_peer(address).is_ok());
    wait_until(network, || connects.is_finished());
    connects.join().expect("no panic")
}

/// Checks that a listener that is gone accepts no connection.
fn listens_no_more_when_the_listener_is_gone<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (listener, _stream, peer) = accepted(&mut network);
    let address = peer.peer_addr().expect("an address");
    drop(listener);
    let begin = Instant::now();
    // A connection that is made while the listener closes is not reported.
    while is_connected(&mut network, address) {
        assert!(begin.elapsed() < PATIENCE, "a listener is there");
    }
}

/// Checks that the end of a peer's data is reported after all of the data.
fn tells_the_end_behind_the_rest<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, mut peer) = accepted(&mut network);
    peer.write_all(b"the last").expect("it is sent");
    drop(peer);
    assert_eq!(read_to_end(&mut network, &mut stream), b"the last");
}

fn connects_or_says_why_not<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (listener, address) = N::bound_peer();
    let mut stream = network.connect(address, STREAM).expect("an attempt");
    await_event(&mut network, STREAM, |event| event.writable);
    network.connected(&stream).expect("a listener is there");
    let (mut peer, _) = listener.accept().expect("a connection");
    let written = network.write(&mut stream, &[IoSlice::new(b"well")]);
    assert_eq!(written.expect("there is room"), 4);
    // Written data leaves with the next wait at the latest.
    let waited = network.wait(&mut Vec::new(), Some(Duration::from_millis(1)));
    waited.expect("it waits");
    let mut four = [0; 4];
    peer.read_exact(&mut four).expect("they arrive");
    assert_eq!(&four, b"well");
    drop((listener, peer));
    network.close(stream);
    let closed = network.connect(address, STREAM);
    let refused = closed.and_then(|stream| {
        await_event(&mut network, STREAM, |event| event.writable);
        network.connected(&stream)
    });
    let refused = refused.expect_err("no server listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

/// Checks how the kernel lists an idle connection of the network: it asks if the peer lives. It does not know connections
/// of a network with a stack of its own.
fn is_looked_after<N: SuiteNetwork>(own: SocketAddr, peer: SocketAddr) -> bool {
    let written = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => {
            let bits = u32::from_ne_bytes(v4.ip().octets());
            format!("{bits:08X}:{:04X}", v4.port())
        }
        SocketAddr::V6(_) => panic!("tests use the fourth version"),
    };
    let listed = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("the system's list");
    let pair = [written(own), written(peer)];
    let lines = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut lines = lines.filter(|words| words.len() > 5 && words[1..3] == pair);
    // The timer of a connection with keep-alive.
    let has_timer = lines.next().map(|line| line[5].starts_with("02:"));
    has_timer == N::IS_LISTED.then_some(true)
}

/// Checks that peers that have vanished without a word are noticed, on either side.
fn looks_after_idle_connections<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (_listener, stream, peer) = accepted(&mut network);
    let (own, client) = (peer.peer_addr(), peer.local_addr());
    let (own, client) = (own.expect("an address"), client.expect("an address"));
    assert!(is_looked_after::<N>(own, client), "a client");
    if let Err(error) = network.set_dead_after(&stream, Duration::from_secs(20)) {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    let (listener, address) = N::bound_peer();
    let stream = network.connect(address, STREAM).expect("an attempt");
    await_event(&mut network, STREAM, |event| event.writable);
    network.connected(&stream).expect("a listener is there");
    let (node, own) = listener.accept().expect("a connection");
    assert!(is_looked_after::<N>(own, address), "a node");
    drop(node);
}

/// Checks that a thread that always finds something in memory gets events, too.
fn reports_events_beside_memory<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, mut peer) = accepted(&mut network);
    for found in [true, false] {
        peer.write_all(b"input").expect("it is sent");
        let (begin, mut happened) = (Instant::now(), Vec::new());
        let is_input = |event: &SocketEvent| event.token == STREAM && event.readable;
        while !happened.iter().any(is_input) {
            assert!(begin.elapsed() < PATIENCE, "no event");
            let looked = network.look(&mut happened, || found);
            looked.expect("it looks");
        }
        let read = network.read(&mut stream, &mut [0; 100]);
        assert_eq!(read.expect("it is there"), 5);
    }
}

fn is_woken_by_others<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let waker = network.waker().expect("a waker");
    let (go, gone) = mpsc::channel();
    let wakes = std::thread::spawn(move || {
        for () in gone {
            waker.wake();
        }
    });
    let mut happened = Vec::new();
    for _ in 0..1000 {
        let begin = Instant::now();
        go.send(()).expect("it listens");
        network
            .wait(&mut happened, Some(PATIENCE))
            .expect("it waits");
        assert!(begin.elapsed() < PATIENCE && happened.is_empty());
    }
    drop(go);
    wakes.join().expect("no panic");
}

/// Checks that data arrives, in all scenarios.
pub(crate) fn carries_data<N: SuiteNetwork>() {
    carries_much_in_both_directions::<N>();
    closes_behind_what_was_written::<N>();
    closes_behind_what_a_slow_peer_has_not_taken::<N>();
    ends_its_output_alone::<N>();
    flushes_what_was_written::<N>();
    holds_up_who_is_not_read_from::<N>();
    tells_the_end_behind_the_rest::<N>();
    connects_or_says_why_not::<N>();
    is_woken_by_others::<N>();
    reports_events_beside_memory::<N>();
    connections::writes_to_a_peer_that_has_ended_its_side::<N>();
    connections::writes_any_number_of_pieces::<N>();
    connections::serves_a_flood_of_connections::<N>();
    connections::serves_quick_peers_beside_slow_and_flooding_ones::<N>();
    connections::closed_streams_report_nothing::<N>();
}

pub(crate) fn conforms<N: SuiteNetwork>() {
    carries_data::<N>();
    listens_no_more_when_the_listener_is_gone::<N>();
    looks_after_idle_connections::<N>();
}
