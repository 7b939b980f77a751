//! Send and Receive of a device: the cases of the emulated queues, another process, and events.

use std::time::{Duration, Instant};

use base::memory::RemoteError;
use kumiki_fabric as fabric;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use fabric::memory::{Access, GRANT_MAX, Grant, RegionKind};
use fabric::ring::Until;
use fabric::send_receive::{ReceiveDepth, SendReceive};
use fabric::verbs::{Domain, MessagePair};

use crate::send_receive::{
    NARROW, a_slow_reader_stops_its_peer, both_directions, one_direction_alone_does_not_run_dry,
    two_full_sides_go_on,
};
use crate::verbs::net::{domain, options};
use crate::verbs::process::{Peer, Role};

/// The greatest time of any step: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(120);

type End = SendReceive<MessagePair>;

/// Returns two ends that have met by one exchange of offers.
fn ends(domain: &Domain, depth: ReceiveDepth) -> [End; 2] {
    let [a, b] = [depth; 2].map(|depth| domain.message_offer(depth).unwrap());
    let grants = [a.grant(), b.grant()].map(|grant| {
        let mut bytes = Vec::new();
        grant.encode(&mut bytes);
        assert!(bytes.len() <= GRANT_MAX);
        Grant::decode(&bytes).unwrap()
    });
    let b = b.accept(&grants[0]).unwrap();
    let a = a.accept(&grants[1]).unwrap();
    [a, b].map(SendReceive::new)
}

/// Sleeps until there is an event, but not longer than `timeout`.
pub(crate) fn wait_for_event(stream: &End, timeout: Duration) {
    let events = stream.events().expect("a device has events");
    let mut poll = Poll::new().unwrap();
    let registry = poll.registry();
    let registered = registry.register(&mut SourceFd(&events), Token(0), Interest::READABLE);
    registered.unwrap();
    poll.poll(&mut Events::with_capacity(1), Some(timeout))
        .unwrap();
}

#[test]
fn both_directions_carry_at_once() {
    let Some(domain) = domain() else { return };
    both_directions(&mut ends(&domain, NARROW), (20_000, 1)).unwrap();
    let wide = &mut ends(&domain, ReceiveDepth::of(64 << 10));
    both_directions(wide, (200_000, 2)).unwrap();
}

#[test]
fn slow_readers_stop_their_peers() {
    let Some(domain) = domain() else { return };
    a_slow_reader_stops_its_peer(&mut ends(&domain, NARROW));
}

#[test]
fn two_full_sides_go_on_when_they_read() {
    let Some(domain) = domain() else { return };
    two_full_sides_go_on(&mut ends(&domain, NARROW));
}

#[test]
fn one_direction_alone_carries() {
    let Some(domain) = domain() else { return };
    one_direction_alone_does_not_run_dry(&mut ends(&domain, NARROW));
}

/// Many times as many bytes as there are places for, through another process and back.
#[test]
fn bytes_come_back_from_another_process() {
    for depth in [NARROW, ReceiveDepth::of(64 << 10)] {
        let Some(mut peer) = Peer::start_with(Role::Echo, &options(), depth) else {
            return;
        };
        let message: Vec<u8> = (0..100_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let (mut sent, mut back, mut buffer) = (0, Vec::new(), [0; 5000]);
        let begun = Instant::now();
        while back.len() < message.len() {
            sent += peer.stream.send(&message[sent..]).unwrap();
            peer.stream.must_ring().unwrap();
            let n = peer.stream.receive(&mut buffer).unwrap();
            back.extend_from_slice(&buffer[..n]);
            assert!(
                begun.elapsed() < PATIENCE,
                "{sent} sent, {} back",
                back.len()
            );
        }
        assert!(back == message);
    }
}

#[test]
fn an_event_wakes_a_side_that_sleeps() {
    let Some(domain) = domain() else { return };
    let [mut near, mut far] = ends(&domain, NARROW);
    let pause = Duration::from_millis(300);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(pause);
            near.send(b"now").unwrap();
            while near.is_unsettled() {
                assert!(
                    !near.must_ring().unwrap(),
                    "devices raise events themselves"
                );
            }
        });
        let (mut message, mut filled, mut waits) = ([0; 3], 0, 0);
        while filled < 3 {
            if far.sleep(Until::Input).unwrap() {
                wait_for_event(&far, PATIENCE);
                waits += 1;
                far.wake().unwrap();
            }
            filled += far.receive(&mut message[filled..]).unwrap();
        }
        assert_eq!(&message, b"now");
        assert!(begun.elapsed() >= pause);
        assert!((1..10).contains(&waits), "it woke {waits} times");
    });
    assert!(begun.elapsed() < PATIENCE / 2, "it slept through the event");
}

/// A grant that is not an offer of Receives is not accepted.
#[test]
fn another_kind_of_grant_is_no_offer() {
    let Some(domain) = domain() else { return };
    let mailbox = domain.offer(80).unwrap();
    let receives = domain.message_offer(NARROW).unwrap();
    let cut = &receives.grant().address()[..39];
    let cut = Grant::new(RegionKind::VerbsReceives, Access::Write, 32, [0; 16], cut);
    // A queue pair without Receives.
    let address = &mailbox.grant().address()[12..];
    let none = Grant::new(
        RegionKind::VerbsReceives,
        Access::Write,
        32,
        [0; 16],
        address,
    );
    for grant in [mailbox.grant().clone(), cut, none] {
        let error = domain.message_offer(NARROW).unwrap().accept(&grant);
        let error = error.expect_err("it is none");
        assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    }
}
