//! Two sides of a ring, and of emulated Send and Receive.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use crate::fabric::ring::{CONTROL, RING_MIN, Rings, Until};
use crate::fabric::send_receive::{EmulatedPair, ReceiveDepth, SendReceive};
use crate::memory::{Remote, RemoteError, Words};

#[derive(Clone)]
struct Mailbox(Arc<Vec<AtomicU64>>);

impl Mailbox {
    fn new() -> Mailbox {
        Mailbox::of(CONTROL + RING_MIN)
    }

    fn of(words: usize) -> Mailbox {
        Mailbox(Arc::new((0..words).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Words for Mailbox {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Writes as memory that processes share is written.
impl Remote for Mailbox {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError> {
        for (place, &word) in words.iter().enumerate() {
            self.0[from + place].store(word, Ordering::Release);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<bool, RemoteError> {
        fence(Ordering::SeqCst);
        Ok(true)
    }
}

fn pair() -> [Rings<Mailbox, Mailbox>; 2] {
    let (a, b) = (Mailbox::new(), Mailbox::new());
    [
        Rings::new(a.clone(), b.clone()).expect("there is room"),
        Rings::new(b, a).expect("there is room"),
    ]
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

#[test]
fn what_is_received_is_what_was_sent() {
    model(|| {
        let [mut a, mut b] = pair();
        let writer = thread::spawn(move || {
            // This is more than one lap of the smallest ring, as far as there is room.
            let mut sent = 0;
            for byte in 1..=5_u8 {
                sent += a.send(&[byte; 6]).expect("the peer keeps to the format");
            }
            (a, sent)
        });
        let mut got = [0; 30];
        let mut filled = 0;
        for _ in 0..2 {
            let n = b.receive(&mut got[filled..]);
            filled += n.expect("the peer keeps to the format");
        }
        let (a, sent) = writer.join().expect("the writer ends");
        let n = b.receive(&mut got[filled..]);
        filled += n.expect("the peer keeps to the format");
        assert_eq!(filled, sent, "something is missing");
        for (at, &byte) in got[..filled].iter().enumerate() {
            assert_eq!(usize::from(byte), at / 6 + 1);
        }
        drop(a);
    });
}

#[test]
fn who_sleeps_over_a_message_gets_a_bell() {
    model(|| {
        let [mut a, mut b] = pair();
        let writer = thread::spawn(move || {
            a.send(&[7]).expect("there is room");
            (a.must_ring().expect("it can be told"), a)
        });
        let asleep = b.sleep(Until::Input).expect("it can be told");
        let (rang, a) = writer.join().expect("the writer ends");
        assert!(!asleep || rang, "the bell is lost");
        drop(a);
    });
}

#[test]
fn who_sleeps_for_room_gets_a_bell() {
    model(|| {
        let [mut a, mut b] = pair();
        while a.send(&[7; 6]).expect("it can be sent") > 0 {}
        let reader = thread::spawn(move || {
            while b.receive(&mut [0; 100]).expect("it can be read") > 0 {}
            (b.must_ring().expect("it can be told"), b)
        });
        let asleep = a.sleep(Until::Space).expect("it can be told");
        let (rang, b) = reader.join().expect("the reader ends");
        assert!(!asleep || rang, "the bell is lost");
        drop(b);
    });
}

/// Places of eight bytes.
const DEPTH: ReceiveDepth = ReceiveDepth {
    places: ReceiveDepth::PLACES_MIN,
    bytes: 8,
};

type Stream = SendReceive<EmulatedPair<Mailbox, Mailbox>>;

fn streams() -> [Stream; 2] {
    let words = EmulatedPair::<Mailbox, Mailbox>::words(DEPTH);
    let (a, b) = (Mailbox::of(words), Mailbox::of(words));
    let pairs = [(a.clone(), b.clone()), (b, a)];
    let pairs = pairs.map(|(near, far)| EmulatedPair::new(near, far, DEPTH));
    pairs.map(|pair| SendReceive::new(pair.expect("they have one size")))
}

#[test]
fn what_is_received_by_send_and_receive_is_what_was_sent() {
    model(|| {
        let [mut a, mut b] = streams();
        let writer = thread::spawn(move || {
            // There are more pieces than places, as far as counts come back.
            let mut sent = 0;
            for _ in 1..=5 {
                let byte = (sent / 8 + 1) as u8;
                sent += a.send(&[byte; 8]).expect("the receiver is ready");
            }
            (a, sent)
        });
        let (mut got, mut filled) = ([0; 40], 0);
        for _ in 0..2 {
            filled += b.receive(&mut got[filled..]).expect("they are read");
        }
        let (a, sent) = writer.join().expect("the writer ends");
        filled += b.receive(&mut got[filled..]).expect("they are read");
        assert_eq!(filled, sent, "something is missing");
        for (at, &byte) in got[..filled].iter().enumerate() {
            assert_eq!(usize::from(byte), at / 8 + 1);
        }
        drop(a);
    });
}

#[test]
fn who_sleeps_over_a_piece_gets_a_bell() {
    model(|| {
        let [mut a, mut b] = streams();
        let writer = thread::spawn(move || {
            a.send(&[7]).expect("there is room");
            (a.must_ring().expect("it can be told"), a)
        });
        let asleep = b.sleep(Until::Input).expect("it can be told");
        let (rang, a) = writer.join().expect("the writer ends");
        assert!(!asleep || rang, "the bell is lost");
        drop(a);
    });
}

#[test]
fn who_sleeps_for_a_place_gets_a_bell() {
    model(|| {
        let [mut a, mut b] = streams();
        while a.send(&[7; 8]).expect("it can be sent") > 0 {}
        a.must_ring().expect("it can be told");
        let reader = thread::spawn(move || {
            while b.receive(&mut [0; 100]).expect("it can be read") > 0 {}
            (b.must_ring().expect("it can be told"), b)
        });
        let asleep = a.sleep(Until::Space).expect("it can be told");
        let (rang, b) = reader.join().expect("the reader ends");
        assert!(!asleep || rang, "the bell is lost");
        drop(b);
    });
}
