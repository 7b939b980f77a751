//! Peers that die, and peers that are stopped.

use std::time::{Duration, Instant};

use base::memory::RemoteError;
use kumiki_fabric as fabric;

use fabric::memory::Remote;
use fabric::ring::{CONTROL, RingError};
use rustix::process::Signal;

use crate::verbs::net::{options, read, try_read};
use crate::verbs::process::{ANSWER, Peer, Role};

/// The time for which a dead peer may be taken for a living one. It is given up after about half a
/// second, but this machine may be slow. It is less than the time after which a silent device is
/// given up.
const NOTICED: Duration = Duration::from_secs(25);

/// Waits until the other process has done its work.
fn wait_for_answer(peer: &mut Peer) {
    let begun = Instant::now();
    while read(&mut peer.remote, CONTROL, 1) != [ANSWER] {
        assert!(begun.elapsed() < NOTICED);
    }
}

#[test]
fn a_killed_owner_is_noticed_by_its_readers() {
    let Some(mut peer) = Peer::start(Role::Owner, &options()) else {
        return;
    };
    wait_for_answer(&mut peer);
    peer.signal(Signal::KILL);
    let killed = Instant::now();
    let error = loop {
        match try_read(&mut peer.remote, CONTROL, 1) {
            Ok(words) => assert_eq!(words, [ANSWER], "what it was never"),
            Err(error) => break error,
        }
        assert!(killed.elapsed() < NOTICED, "the dead are read");
    };
    println!("noticed after {:?}", killed.elapsed());
    // Its regions go before its connections, so that either error is possible.
    let is_gone = matches!(error, RemoteError::Lost(_) | RemoteError::Refused(_));
    assert!(is_gone, "{error}");
    assert!(matches!(peer.connection.check(), Err(RemoteError::Lost(_))));
}

#[test]
fn a_killed_reader_of_messages_is_noticed_by_who_sends() {
    let Some(mut peer) = Peer::start(Role::Echo, &options()) else {
        return;
    };
    peer.kill();
    let killed = Instant::now();
    let error = loop {
        let done = peer.stream.send(b"hello");
        let done = done.and_then(|_| peer.stream.receive(&mut [0; 100]));
        match done {
            Ok(_) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => break error,
        }
        assert!(killed.elapsed() < NOTICED, "the dead are written to");
    };
    let is_lost = matches!(error, RingError::Remote(RemoteError::Lost(_)));
    assert!(is_lost, "{error}");
    let again = peer.stream.send(b"hello");
    again.expect_err("the connection has ended");
}

/// A peer that is gone does not hold up a thread that serves others.
#[test]
fn to_write_to_the_dead_does_not_wait() {
    let mut options = options();
    options.dead_after = Duration::from_secs(4);
    (options.depths.sends, options.depths.signal_every) = (8, 2);
    let Some(mut peer) = Peer::start(Role::Owner, &options) else {
        return;
    };
    wait_for_answer(&mut peer);
    peer.kill();
    let begun = Instant::now();
    for word in 0..200 {
        peer.remote.write(CONTROL + 1, &[word]).unwrap();
        assert_eq!(peer.remote.settle(), Ok(false), "the dead have taken it");
        peer.stream.send(b"hello").unwrap();
    }
    assert!(
        begun.elapsed() < options.dead_after / 2,
        "{:?}",
        begun.elapsed()
    );
    while let Ok(settled) = peer.remote.settle() {
        assert!(!settled, "the dead have taken it");
        assert!(begun.elapsed() < NOTICED);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Memory remains readable while its owner is stopped: a reader has to know for how long to trust
/// it.
#[test]
fn a_stopped_owner_s_memory_answers_as_before() {
    let Some(mut peer) = Peer::start(Role::Owner, &options()) else {
        return;
    };
    wait_for_answer(&mut peer);
    peer.signal(Signal::STOP);
    let begun = Instant::now();
    let mut reads = 0;
    // This is longer than the time after which a dead peer is given up.
    while begun.elapsed() < Duration::from_secs(5) {
        assert_eq!(read(&mut peer.remote, CONTROL, 1), [ANSWER]);
        reads += 1;
    }
    peer.remote.write(CONTROL + 1, &[7]).unwrap();
    assert_eq!(read(&mut peer.remote, CONTROL + 1, 1), [7]);
    println!("{reads} reads of a stopped process's memory");
    peer.signal(Signal::CONT);
    assert_eq!(read(&mut peer.remote, CONTROL, 1), [ANSWER]);
}
