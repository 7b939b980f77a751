//! Scenarios with many connections, and with connections that end early.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use super::echo_server::EchoServer;
use super::{
    LISTENER, PATIENCE, STREAM, SuiteNetwork, accept_from, accepted, await_event, fill,
    read_to_end, wait_until,
};

fn peer_of<N: SuiteNetwork>(address: SocketAddr) -> TcpStream {
    let peer = N::connect_peer(address).expect("a connection");
    peer.set_read_timeout(Some(PATIENCE)).expect("a limit");
    peer.set_write_timeout(Some(PATIENCE)).expect("a limit");
    peer
}

fn bytes_of(peer: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + peer * 7) % 251) as u8).collect()
}

fn expect_bytes(peer: &mut TcpStream, expected: &[u8]) {
    let mut back = vec![0; expected.len()];
    peer.read_exact(&mut back).expect("all comes back");
    assert!(back == expected, "other bytes");
}

/// Writes all bytes, in pieces of one length.
fn write_all<N: SuiteNetwork>(network: &mut N, stream: &mut N::Stream, bytes: &[u8], piece: usize) {
    let mut written = 0;
    while written < bytes.len() {
        let pieces: Vec<_> = bytes[written..].chunks(piece).map(IoSlice::new).collect();
        match network.write(stream, &pieces) {
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                await_event(network, STREAM, |event| event.writable);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks that a peer that has ended its own side gets everything that is written afterwards.
pub(super) fn writes_to_a_peer_that_has_ended_its_side<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, mut peer) = accepted(&mut network);
    peer.write_all(b"request").expect("it is sent");
    peer.shutdown(Shutdown::Write).expect("one side ends");
    assert_eq!(read_to_end(&mut network, &mut stream), b"request");
    let reply = bytes_of(0, 8 << 20);
    let reads = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("it ends");
        all
    });
    write_all(&mut network, &mut stream, &reply, 60_000);
    network.close(stream);
    wait_until(&mut network, || reads.is_finished());
    assert!(reads.join().expect("no panic") == reply, "other bytes");
}

/// Checks that a write may have more pieces than the kernel takes at a time.
pub(super) fn writes_any_number_of_pieces<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (_listener, mut stream, mut peer) = accepted(&mut network);
    let all = bytes_of(0, 30_000);
    write_all(&mut network, &mut stream, &all, 10);
    network.close(stream);
    let reads = thread::spawn(move || {
        let mut read = Vec::new();
        peer.read_to_end(&mut read).expect("it ends");
        read
    });
    wait_until(&mut network, || reads.is_finished());
    assert!(reads.join().expect("no panic") == all, "other bytes");
}

/// Checks that many connections are served that are made at once, some of which their peers close before they
/// are accepted. They send more at once than the ring's buffers hold.
pub(super) fn serves_a_flood_of_connections<N: SuiteNetwork>() {
    const PEERS: usize = 500;
    const LEN: usize = 30_000;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("descriptors for both ends of the connections");
    let (socket, address) = N::bound();
    rustix::net::listen(&socket, PEERS as i32).expect("room for all that connect at once");
    let mut server = EchoServer::<N>::new(socket).expect("a server");
    let connects = thread::spawn(move || {
        let peers = (0..PEERS).map(|peer| (peer % 5 > 0).then_some(peer_of::<N>(address)));
        peers.flatten().collect::<Vec<_>>()
    });
    let mut peers = server.serve_until(connects);
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.write_all(&bytes_of(number, LEN)).expect("it is sent");
    }
    let reads = thread::spawn(move || {
        for (number, peer) in peers.iter_mut().enumerate() {
            expect_bytes(peer, &bytes_of(number, LEN));
        }
    });
    server.serve_until(reads);
    server.serve_all();
    assert!(server.errors.is_empty(), "{:?}", server.errors);
}

/// Checks that peers which ask and wait are served while another peer takes nothing and others send without end.
pub(super) fn serves_quick_peers_beside_slow_and_flooding_ones<N: SuiteNetwork>() {
    const SLOW: usize = 8 << 20;
    let (socket, address) = N::bound();
    let mut server = EchoServer::<N>::new(socket).expect("a server");
    let over = Arc::new(AtomicBool::new(false));
    let slow = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let (mut peer, all) = (peer_of::<N>(address), bytes_of(0, SLOW));
            let mut writer = peer.try_clone().expect("a second handle");
            // It is blocked until this peer reads.
            writer.set_write_timeout(None).expect("no limit");
            let writes = thread::spawn(move || writer.write_all(&bytes_of(0, SLOW)));
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            expect_bytes(&mut peer, &all);
            writes.join().expect("no panic").expect("all is sent");
        }
    });
    let flooding = (1..3).map(|number| {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            let mut peer = peer_of::<N>(address);
            let mut reader = peer.try_clone().expect("a second handle");
            let reads = thread::spawn(move || {
                std::io::copy(&mut reader, &mut std::io::sink()).expect("it ends")
            });
            let (piece, mut sent) = (bytes_of(number, 100_000), 0);
            while !over.load(Ordering::Relaxed) {
                peer.write_all(&piece).expect("it is sent");
                sent += piece.len() as u64;
            }
            peer.shutdown(Shutdown::Write).expect("one side ends");
            assert_eq!(reads.join().expect("no panic"), sent);
        })
    });
    let flooding: Vec<_> = flooding.collect();
    let quick = thread::spawn(move || {
        let mut peers: Vec<_> = (0..8).map(|_| peer_of::<N>(address)).collect();
        for turn in 0..10 {
            for (number, peer) in peers.iter_mut().enumerate() {
                let request = bytes_of(number, 1 + turn * 1000);
                peer.write_all(&request).expect("it is sent");
            }
            for (number, peer) in peers.iter_mut().enumerate() {
                expect_bytes(peer, &bytes_of(number, 1 + turn * 1000));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    server.serve_until(quick);
    server.serve_until(slow);
    for peer in flooding {
        server.serve_until(peer);
    }
    assert!(server.errors.is_empty(), "{:?}", server.errors);
}

/// Checks that a stream which is closed while an operation of it is outstanding reports nothing to the next stream
/// with its token.
pub(super) fn closed_streams_report_nothing<N: SuiteNetwork>() {
    let mut network = N::opened().expect("a network");
    let (socket, address) = N::bound();
    let listener = network.listen(socket, LISTENER).expect("it listens");
    let (other, other_address) = N::bound_peer();
    other.set_nonblocking(true).expect("a mode");
    // A listener whose queue is full does not answer.
    let (silent, silent_address) = N::bound_peer();
    rustix::net::listen(&silent, 0).expect("a short queue");
    let _queued = N::connect_peer(silent_address).expect("a connection");
    let mut happened = Vec::new();
    for outstanding in ["receive", "send", "connect", "answer", "refusal"] {
        let (mut next, mut next_peer) = accept_from(&mut network, &listener, address);
        let mut old_peer = None;
        match outstanding {
            "receive" | "send" => {
                let (mut old, mut peer) = accept_from(&mut network, &listener, address);
                network.watch(&mut old, STREAM).expect("it is watched");
                begin_operations(&mut network);
                if outstanding == "send" {
                    // The peer closes with unread bytes, which breaks the connection.
                    fill(&mut network, &mut old);
                    network.close(old);
                    drop(peer);
                } else {
                    peer.write_all(b"old").expect("it is sent");
                    network.close(old);
                    old_peer = Some(peer);
                }
            }
            "connect" => {
                let old = network.connect(other_address, STREAM).expect("an attempt");
                network.close(old);
                // A network with a stack of its own may not have sent anything yet.
                old_peer = accept_soon(&other);
            }
            "answer" => {
                let old = network.connect(silent_address, STREAM).expect("an attempt");
                begin_operations(&mut network);
                network.close(old);
            }
            _ => {
                let (closed, closed_address) = N::bound_peer();
                drop(closed);
                if let Ok(old) = network.connect(closed_address, STREAM) {
                    network.close(old);
                }
            }
        }
        network.watch(&mut next, STREAM).expect("it is watched");
        for _ in 0..10 {
            let waited = network.wait(&mut happened, Some(Duration::from_millis(5)));
            waited.expect("it waits");
            let is_old = |event: &reactor::SocketEvent| event.readable || event.ended;
            let mut events = happened.drain(..).filter(|event| event.token == STREAM);
            assert_eq!(events.find(is_old), None, "{outstanding}");
        }
        next_peer.write_all(b"new").expect("it is sent");
        next_peer.shutdown(Shutdown::Write).expect("one side ends");
        assert_eq!(read_to_end(&mut network, &mut next), b"new");
        network.close(next);
        drop(old_peer);
    }
}

/// Returns the next connection of a listener that does not block, if it comes soon.
fn accept_soon(listener: &TcpListener) -> Option<TcpStream> {
    for _ in 0..20 {
        match listener.accept() {
            Ok((peer, _)) => return Some(peer),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Waits once, so that the network submits the operations that it has queued.
fn begin_operations<N: SuiteNetwork>(network: &mut N) {
    let waited = network.wait(&mut Vec::new(), Some(Duration::from_millis(5)));
    waited.expect("it waits");
}
