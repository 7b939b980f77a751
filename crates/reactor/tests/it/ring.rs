//! A ring with sockets that work, and with sockets that fail.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use kumiki_reactor::ring::{IoRing, ReceiveEnd, SocketCompletion, SocketId};
use testkit::peers::{Group, program};

use crate::strace::Strace;

const PATIENCE: Duration = Duration::from_secs(20);
const KEY: usize = 5;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let ours = TcpStream::connect(listener.local_addr().expect("an address")).expect("a peer");
    let (theirs, _) = listener.accept().expect("a connection");
    ours.set_nonblocking(true).expect("a mode");
    theirs.set_read_timeout(Some(PATIENCE)).expect("a limit");
    (ours, theirs)
}

fn ring_with_a_socket() -> (IoRing, SocketId, TcpStream) {
    let mut ring = IoRing::new().expect("io_uring");
    let (ours, theirs) = pair();
    let socket = ring.add(ours.into(), KEY);
    (ring, socket, theirs)
}

/// Waits until `found` returns `true` for an outcome.
fn until(ring: &mut IoRing, mut found: impl FnMut(&mut IoRing, SocketCompletion) -> bool) {
    let begin = Instant::now();
    let mut done = Vec::new();
    while begin.elapsed() < PATIENCE {
        let waited = ring.wait(&mut done, Some(Duration::from_millis(50)));
        waited.expect("it waits");
        let mut enough = false;
        for it in done.drain(..) {
            enough |= found(ring, it);
        }
        if enough {
            return;
        }
    }
    panic!("it did not happen");
}

#[test]
fn receives_go_on_until_the_peer_ends() {
    const LEN: usize = 5 << 20;
    let (mut ring, socket, mut peer) = ring_with_a_socket();
    let sent: Vec<u8> = (0..LEN).map(|at| (at % 253) as u8).collect();
    let expected = sent.clone();
    let writes = std::thread::spawn(move || peer.write_all(&sent).expect("it takes all"));
    ring.receive(socket).expect("a request");
    let mut received = Vec::new();
    // More bytes than all buffers hold come at once: now and then the kernel has none left.
    until(&mut ring, |ring, done| match done {
        SocketCompletion::Received { key, buffer } => {
            assert_eq!(key, KEY);
            received.extend_from_slice(ring.bytes(buffer));
            ring.give_back(buffer);
            false
        }
        SocketCompletion::Finished {
            why: ReceiveEnd::ClosedByPeer,
            ..
        } => true,
        SocketCompletion::Finished {
            why: ReceiveEnd::Paused,
            ..
        } => {
            ring.receive(socket).expect("a request");
            false
        }
        other => panic!("{other:?}"),
    });
    writes.join().expect("no panic");
    assert!(received == expected, "other bytes");
}

#[test]
fn who_is_held_receives_later() {
    let (mut ring, socket, mut peer) = ring_with_a_socket();
    ring.receive(socket).expect("a request");
    ring.wait(&mut Vec::new(), Some(Duration::ZERO))
        .expect("it waits");
    ring.pause(socket).expect("a request");
    until(&mut ring, |_, done| {
        matches!(
            done,
            SocketCompletion::Finished {
                key: KEY,
                why: ReceiveEnd::Paused
            }
        )
    });
    peer.write_all(b"later").expect("it is sent");
    let mut done = Vec::new();
    ring.wait(&mut done, Some(Duration::from_millis(30)))
        .expect("it waits");
    assert!(done.is_empty(), "{done:?}");
    ring.receive(socket).expect("a request");
    until(&mut ring, |ring, done| match done {
        SocketCompletion::Received { buffer, .. } => {
            assert_eq!(ring.bytes(buffer), b"later");
            ring.give_back(buffer);
            true
        }
        other => panic!("{other:?}"),
    });
}

#[test]
fn what_has_no_room_comes_back_and_nothing_is_lost() {
    const LEN: usize = 16 << 20;
    let (mut ring, socket, mut peer) = ring_with_a_socket();
    let all: Vec<u8> = (0..LEN).map(|at| (at % 241) as u8).collect();
    let expected = all.clone();
    ring.send(socket, all).expect("a request");
    let reads = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        let mut read = vec![0; LEN];
        peer.read_exact(&mut read).expect("all arrives");
        read
    });
    let (mut rest, mut refused) = (None, 0);
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "it takes too long");
        let mut done = Vec::new();
        ring.wait(&mut done, Some(Duration::from_millis(20)))
            .expect("it waits");
        for it in done {
            match it {
                SocketCompletion::Unsent {
                    key: KEY,
                    mut bytes,
                    result,
                } => {
                    refused += 1;
                    let sent = result.or_else(|error| match error.kind() {
                        ErrorKind::WouldBlock => Ok(0),
                        _ => Err(error),
                    });
                    bytes.drain(..sent.expect("the peer is there"));
                    rest = Some(bytes);
                    ring.await_room(socket).expect("a request");
                }
                SocketCompletion::Room { key: KEY } => {
                    ring.send(socket, rest.take().expect("a rest"))
                        .expect("a request");
                }
                other => panic!("{other:?}"),
            }
        }
        if reads.is_finished() {
            break;
        }
    }
    assert!(refused > 0, "no kernel has so much room");
    assert!(reads.join().expect("no panic") == expected, "other bytes");
}

#[test]
fn what_is_sent_before_a_removal_arrives_and_then_the_end() {
    let (mut ring, socket, mut peer) = ring_with_a_socket();
    ring.receive(socket).expect("a request");
    ring.send(socket, b"farewell".to_vec()).expect("a request");
    let mut done = Vec::new();
    ring.wait(&mut done, Some(Duration::ZERO))
        .expect("it waits");
    ring.remove(socket);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).expect("it ends");
    assert_eq!(all, b"farewell");
    ring.wait(&mut done, Some(Duration::from_millis(10)))
        .expect("it waits");
    assert!(done.is_empty(), "{done:?}");
}

#[test]
fn a_broken_connection_is_told_to_who_sends_and_to_who_receives() {
    let (mut ring, socket, peer) = ring_with_a_socket();
    // A peer that closes with unread bytes resets the connection.
    ring.send(socket, b"unread".to_vec()).expect("a request");
    ring.wait(&mut Vec::new(), Some(Duration::ZERO))
        .expect("it waits");
    std::thread::sleep(Duration::from_millis(20));
    drop(peer);
    ring.receive(socket).expect("a request");
    until(&mut ring, |_, done| {
        matches!(done, SocketCompletion::Finished { why: ReceiveEnd::Broken(error), .. }
            if error.kind() == ErrorKind::ConnectionReset)
    });
    ring.send(socket, b"in vain".to_vec()).expect("a request");
    until(&mut ring, |_, done| {
        matches!(done, SocketCompletion::Unsent { result: Err(error), .. }
            if error.kind() == ErrorKind::BrokenPipe)
    });
}

#[test]
fn listeners_tell_of_everybody_and_wakers_wake() {
    let mut ring = IoRing::new().expect("io_uring");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let socket = ring.add(listener.into(), KEY);
    ring.await_connections(socket).expect("a request");
    for _ in 0..20 {
        let _peer = TcpStream::connect(address).expect("a connection");
        until(&mut ring, |_, done| {
            matches!(done, SocketCompletion::Incoming { key: KEY })
        });
    }
    let waker = ring.waker();
    let mut done = Vec::new();
    for _ in 0..1000 {
        waker.wake().expect("it is woken");
        let begin = Instant::now();
        ring.wait(&mut done, Some(PATIENCE)).expect("it waits");
        assert!(begin.elapsed() < PATIENCE && done.is_empty());
    }
}

#[test]
fn more_requests_than_the_queues_hold_are_submitted_on_the_way() {
    submits_more_requests_than_the_queues_hold();
}

#[test]
fn requests_that_the_kernel_refuses_for_now_are_submitted_again() {
    let Some(strace) = program(Group::Redis, "strace") else {
        return;
    };
    let fault = "inject=io_uring_enter:error=EAGAIN:when=2+3";
    let strace = Strace::attach(&strace, &["-e".to_owned(), fault.to_owned()]);
    submits_more_requests_than_the_queues_hold();
    let calls = strace.end();
    assert!(calls.iter().any(|call| call.contains("(INJECTED)")));
}

/// A thread whose ring is refused goes on without it.
#[test]
fn a_ring_that_the_kernel_does_not_wait_for_is_dropped() {
    let Some(strace) = program(Group::Redis, "strace") else {
        return;
    };
    let (mut ring, socket, _peer) = ring_with_a_socket();
    ring.receive(socket).expect("a request");
    ring.send(socket, b"in vain".to_vec()).expect("a request");
    let fault = "inject=io_uring_enter:error=EBADF";
    let strace = Strace::attach(&strace, &["-e".to_owned(), fault.to_owned()]);
    let waited = ring.wait(&mut Vec::new(), Some(PATIENCE));
    drop(ring);
    drop(strace);
    assert_eq!(
        waited.expect_err("it failed").raw_os_error(),
        Some(libc::EBADF)
    );
}

fn submits_more_requests_than_the_queues_hold() {
    // The kernel's queues hold 1024 requests and 8192 completions.
    const EACH: usize = 40;
    let mut ring = IoRing::new().expect("io_uring");
    ring.wait(&mut Vec::new(), Some(Duration::ZERO))
        .expect("it waits");
    let pairs: Vec<_> = (0..300).map(|_| pair()).collect();
    let mut peers = Vec::new();
    for (key, (ours, theirs)) in pairs.into_iter().enumerate() {
        let socket = ring.add(ours.into(), key);
        for _ in 0..EACH {
            // Each request reports room by itself.
            ring.await_room(socket).expect("a request");
        }
        ring.send(socket, vec![key as u8; 10]).expect("a request");
        peers.push(theirs);
    }
    let mut told = 0;
    until(&mut ring, |_, done| {
        told += usize::from(matches!(done, SocketCompletion::Room { .. }));
        told == EACH * 300
    });
    for (key, peer) in peers.iter_mut().enumerate() {
        let mut ten = [0; 10];
        peer.read_exact(&mut ten).expect("they arrive");
        assert_eq!(ten, [key as u8; 10]);
    }
}
