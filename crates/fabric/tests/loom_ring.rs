//! Every interleaving of two sides of a ring, under loom: `RUSTFLAGS="--cfg loom" cargo test -p
//! kumiki-fabric --release --test loom_ring`. This is a program of its own, because loom replaces
//! the atomics of the whole build.

#![cfg(loom)]
#![allow(dead_code, unreachable_pub)]

// The model compiles the very files, over atomics of loom's.
#[path = "../src"]
mod source {
    pub(crate) mod ring;
}

/// The atomics of the ring.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

/// The memory of the ring.
mod memory {
    use crate::sync::AtomicU64;

    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("out of reach")]
    pub struct RemoteError;

    pub trait Words {
        fn words(&self) -> &[AtomicU64];
    }

    pub trait Remote {
        fn len(&self) -> usize;
        fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError>;
        fn settle(&mut self) -> Result<bool, RemoteError>;
    }
}

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use memory::{Remote, RemoteError, Words};
use source::ring::{CONTROL, RING_MIN, Rings, Until};

#[derive(Clone)]
struct Mailbox(Arc<Vec<AtomicU64>>);

impl Mailbox {
    fn new() -> Mailbox {
        let words = (0..CONTROL + RING_MIN).map(|_| AtomicU64::new(0));
        Mailbox(Arc::new(words.collect()))
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
