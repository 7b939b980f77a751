//! Messages by Send and Receive.

use std::time::{Duration, Instant};

use base::memory::RemoteError;
use fastrand::Rng;
use kumiki_fabric as fabric;

use fabric::verbs::{Connection, VerbsOptions};

use crate::verbs::net::{connect, device, options};
use crate::verbs::process::{Peer, Role};

/// The greatest time of any step: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns options with few and small places: messages longer than 64 bytes go in pieces, and
/// places run out.
fn narrow() -> VerbsOptions {
    let mut options = options();
    (options.depths.receives, options.depths.receive_bytes) = (4, 64);
    options
}

fn receive(connection: &Connection) -> Vec<u8> {
    let (begun, mut message) = (Instant::now(), Vec::new());
    while !connection.receive(&mut message).unwrap() {
        assert!(begun.elapsed() < PATIENCE, "nothing comes");
        connection.wait(Duration::from_secs(1)).unwrap();
    }
    message
}

fn messages(seed: u64, count: usize, longest: usize) -> Vec<Vec<u8>> {
    let mut rng = Rng::with_seed(seed);
    let message = |_| {
        let len = rng.usize(0..=longest);
        std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
    };
    (0..count).map(message).collect()
}

/// Sends all messages, however many places there are, and gets them back from the other process.
fn comes_back(options: &VerbsOptions, messages: &[Vec<u8>]) {
    let Some(peer) = Peer::start(Role::Echo, options) else {
        return;
    };
    for message in messages {
        peer.connection.send(message).unwrap();
    }
    for message in messages {
        assert_eq!(receive(&peer.connection), *message);
    }
    assert_eq!(peer.connection.waiting(), 0);
    peer.connection.check().unwrap();
}

#[test]
fn messages_of_all_sizes_come_back_from_another_process() {
    comes_back(&options(), &messages(1, 300, 20_000));
}

#[test]
fn few_places_are_never_found_taken() {
    comes_back(&narrow(), &messages(2, 300, 300));
}

/// Both sides send at once, and neither has places for all messages.
#[test]
fn both_directions_carry_at_once() {
    let Some(device) = device(&narrow()) else {
        return;
    };
    let domain = device.domain().unwrap();
    let ends = connect(&domain, &domain);
    let sent = [messages(3, 200, 300), messages(4, 200, 300)];
    for (end, sent) in ends.iter().zip(&sent) {
        for message in sent {
            end.send(message).unwrap();
        }
    }
    let begun = Instant::now();
    let mut received = [Vec::new(), Vec::new()];
    while received.iter().any(|messages| messages.len() < 200) {
        for (end, received) in ends.iter().zip(&mut received) {
            let mut message = Vec::new();
            while end.receive(&mut message).unwrap() {
                received.push(message.clone());
            }
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{:?}",
            received.map(|r| r.len())
        );
    }
    assert_eq!(received[0], sent[1]);
    assert_eq!(received[1], sent[0]);
}

/// Messages in one direction alone, many times as many as there are places: counts go back by
/// themselves.
#[test]
fn one_direction_alone_does_not_run_dry() {
    let Some(device) = device(&narrow()) else {
        return;
    };
    let domain = device.domain().unwrap();
    let [near, far] = connect(&domain, &domain);
    for number in 0..500_u32 {
        near.send(&number.to_le_bytes()).unwrap();
        near.advance().unwrap();
        if number % 7 == 6 {
            for number in number - 6..=number {
                let begun = Instant::now();
                let mut message = Vec::new();
                while !far.receive(&mut message).unwrap() {
                    near.advance().unwrap();
                    assert!(begun.elapsed() < PATIENCE, "{number} does not come");
                }
                assert_eq!(message, number.to_le_bytes());
            }
        }
    }
}

#[test]
fn an_event_wakes_who_waits() {
    let Some(device) = device(&options()) else {
        return;
    };
    let domain = device.domain().unwrap();
    let [near, far] = connect(&domain, &domain);
    let pause = Duration::from_millis(300);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(pause);
            near.send(b"now").unwrap();
        });
        let mut message = Vec::new();
        let mut waits = 0;
        while !far.receive(&mut message).unwrap() {
            far.wait(PATIENCE).unwrap();
            waits += 1;
        }
        assert_eq!(message, b"now");
        assert!(begun.elapsed() >= pause);
        assert!((1..10).contains(&waits), "it woke {waits} times");
    });
    assert!(
        begun.elapsed() < PATIENCE / 2,
        "it slept until its time was over"
    );
}

#[test]
fn a_connection_without_places_carries_no_messages() {
    let mut options = options();
    options.depths.receives = 0;
    let Some(device) = device(&options) else {
        return;
    };
    let domain = device.domain().unwrap();
    let [near, _far] = connect(&domain, &domain);
    let error = near.send(b"x").expect_err("there is no memory for it");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
}

/// A message must end, or its sender is disconnected.
#[test]
fn a_message_beyond_the_bound_is_neither_sent_nor_taken() {
    let (mut wide, mut tight) = (options(), narrow());
    (wide.depths.message_bytes, tight.depths.message_bytes) = (2000, 1000);
    let (Some(wide), Some(tight)) = (device(&wide), device(&tight)) else {
        return;
    };
    let domains = [wide, tight].map(|device| device.domain().unwrap());
    let [wide, tight] = connect(&domains[0], &domains[1]);
    let error = wide.send(&[7; 2001]).expect_err("it is too long");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    wide.send(&[7; 1000]).unwrap();
    let (begun, mut message) = (Instant::now(), Vec::new());
    while !tight.receive(&mut message).unwrap() {
        wide.advance().unwrap();
        assert!(begun.elapsed() < PATIENCE, "nothing comes");
    }
    assert_eq!(message, [7; 1000]);
    wide.send(&[7; 1001]).unwrap();
    let error = loop {
        // The sender goes on as long as it can.
        drop(wide.advance());
        match tight.receive(&mut message) {
            Ok(came) => assert!(!came, "it is longer than it may be"),
            Err(error) => break error,
        }
        assert!(begun.elapsed() < PATIENCE, "it goes on for ever");
    };
    assert!(error.to_string().contains("longer"), "{error}");
}
