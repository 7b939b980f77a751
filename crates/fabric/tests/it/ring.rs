//! Rings by themselves, over memory of this process that can be cut off, damaged, and late.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use base::memory::{RemoteError, RemoteMemory, Words};
use fastrand::Rng;
use kumiki_fabric as fabric;

use fabric::memory::{Access, Memory, Region, Remote};
use fabric::ring::{CONTROL, RING_MIN, RingError, Rings, Until};
use fabric::shm::Shm;

#[derive(Clone, Debug)]
pub(crate) struct Near(Arc<[AtomicU64]>);

impl Near {
    pub(crate) fn new(ring: usize) -> Near {
        Near((0..CONTROL + ring).map(|_| AtomicU64::new(0)).collect())
    }

    fn snapshot(&self) -> Vec<u64> {
        self.0.iter().map(|w| w.load(Ordering::Relaxed)).collect()
    }
}

impl Words for Near {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// The peer's view of it. After `left` words nothing is written any more, as if the writer had been
/// killed there. With `late`, writes arrive only at the second request for them.
#[derive(Debug)]
pub(crate) struct PeerSide {
    to: Near,
    pub(crate) left: usize,
    late: bool,
    under_way: VecDeque<(usize, u64)>,
    asked: bool,
}

impl PeerSide {
    pub(crate) fn new(to: &Near) -> PeerSide {
        PeerSide {
            to: to.clone(),
            left: usize::MAX,
            late: false,
            under_way: VecDeque::new(),
            asked: false,
        }
    }

    fn arrive(&mut self, count: usize) {
        for (place, word) in self.under_way.drain(..count) {
            self.to.0[place].store(word, Ordering::Release);
        }
    }
}

impl RemoteMemory for PeerSide {
    fn len(&self) -> usize {
        self.to.0.len()
    }

    fn begin(&mut self, _: usize, _: usize) -> Result<(), RemoteError> {
        unreachable!("rings read nothing of their peer's")
    }

    fn finish(&mut self, _: &mut Vec<u64>) -> Result<(), RemoteError> {
        unreachable!("rings read nothing of their peer's")
    }
}

impl Remote for PeerSide {
    fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError> {
        assert!(from + words.len() <= self.len(), "beyond the mailbox");
        for (place, &word) in words.iter().enumerate() {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            self.under_way.push_back((from + place, word));
        }
        if !self.late {
            self.arrive(self.under_way.len());
        }
        self.asked = false;
        Ok(())
    }

    fn settle(&mut self) -> Result<bool, RemoteError> {
        if self.late && !std::mem::replace(&mut self.asked, true) {
            self.arrive(self.under_way.len() / 2);
            return Ok(false);
        }
        self.arrive(self.under_way.len());
        fence(Ordering::SeqCst);
        Ok(true)
    }
}

type End = Rings<Near, PeerSide>;

/// Returns two ends, and their mailboxes.
fn pair(rings: [usize; 2]) -> ([End; 2], [Near; 2]) {
    let [a, b] = rings.map(Near::new);
    let ends = [
        Rings::new(a.clone(), PeerSide::new(&b)).unwrap(),
        Rings::new(b.clone(), PeerSide::new(&a)).unwrap(),
    ];
    (ends, [a, b])
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    // Bytes that look like indicators, and zeros, are common.
    (0..len).map(|_| rng.u8(..) % 3).collect()
}

/// Receives all bytes that have come, in pieces of at most `piece` bytes.
fn receive_all(end: &mut End, piece: usize) -> Result<Vec<u8>, RingError> {
    let mut got = Vec::new();
    loop {
        let mut buffer = vec![0xee; piece];
        let n = end.receive(&mut buffer)?;
        if n == 0 {
            return Ok(got);
        }
        assert!(buffer[n..].iter().all(|&byte| byte == 0xee));
        got.extend(&buffer[..n]);
    }
}

/// The record has the bytes of the table in the module's description.
#[test]
fn a_record_is_as_the_format_says() {
    let ([mut a, mut b], [_, mailbox]) = pair([64, 64]);
    for (body, expected) in [
        (
            &b"abc"[..],
            [3, u64::from_le_bytes(*b"\x01abc\x01\0\0\0"), 0, 0],
        ),
        (b"1234567", [7, u64::from_le_bytes(*b"\x011234567"), 1, 0]),
        (
            b"1234567abcdefg",
            [
                14,
                u64::from_le_bytes(*b"\x011234567"),
                u64::from_le_bytes(*b"abcdefg\x01"),
                0,
            ],
        ),
    ] {
        let place = mailbox.snapshot().len() - 64;
        let begun = a.send(body).unwrap();
        assert_eq!(begun, body.len());
        let words = mailbox.snapshot();
        let record = words[place..].iter().skip_while(|&&word| word == 0);
        let record: Vec<u64> = record.copied().chain([0; 4]).take(4).collect();
        assert_eq!(record, expected);
        assert_eq!(receive_all(&mut b, 100).unwrap(), body);
        assert!(mailbox.snapshot().iter().all(|&word| word == 0), "cleared");
    }
}

#[test]
fn a_stream_of_any_sizes_arrives_as_it_was_sent() {
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let ring = |rng: &mut Rng| RING_MIN + 2 * rng.usize(..60);
        let sizes = [ring(&mut rng), ring(&mut rng)];
        let (mut ends, _) = pair(sizes);
        let mut sent: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
        let mut got = [Vec::new(), Vec::new()];
        for _ in 0..300 {
            let side = rng.usize(..2);
            if rng.bool() {
                let bits = rng.u32(..10);
                let len = rng.usize(..1 << bits);
                let message = bytes(&mut rng, len);
                let taken = ends[side].send(&message).unwrap();
                sent[side].extend(&message[..taken]);
                assert!(taken == len || !ends[side].has_room(), "seed {seed}");
            } else {
                let bits = rng.u32(1..10);
                let mut buffer = vec![0; rng.usize(1..1 << bits)];
                let n = ends[side].receive(&mut buffer).unwrap();
                got[1 - side].extend(&buffer[..n]);
                assert!(n == buffer.len() || !ends[side].has_input());
            }
        }
        for side in 0..2 {
            got[1 - side].extend(receive_all(&mut ends[side], 1000).unwrap());
        }
        assert!(got == sent, "seed {seed}");
    }
}

#[test]
fn a_full_ring_has_room_again_when_it_was_read() {
    let ([mut a, mut b], _) = pair([64, 64]);
    for _ in 0..20 {
        let mut sent = 0;
        while a.has_room() {
            sent += a.send(&[7; 10]).unwrap();
        }
        assert_eq!(a.send(&[7]), Ok(0));
        assert!(sent > 64, "{sent}");
        assert_eq!(receive_all(&mut b, 1000).unwrap(), vec![7; sent]);
        assert!(a.has_room());
    }
}

/// The part of a record that a killed peer has written is neither taken nor waited for.
#[test]
fn a_writer_that_ends_after_any_store_leaves_no_torn_record() {
    let mut rng = Rng::with_seed(3);
    for cut in 0..200 {
        let [a, b] = [Near::new(48), Near::new(48)];
        let mut far = PeerSide::new(&b);
        far.left = cut;
        let mut writer = Rings::new(a.clone(), far).unwrap();
        let mut reader = Rings::new(b, PeerSide::new(&a)).unwrap();
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let len = rng.usize(1..70);
            let message = bytes(&mut rng, len);
            let taken = writer.send(&message).unwrap();
            sent.extend(&message[..taken]);
            got.extend(receive_all(&mut reader, 9).unwrap());
            assert!(sent.starts_with(&got), "cut after {cut}");
        }
        assert!(got.len() < sent.len(), "it was not cut off");
        assert!(!reader.has_input(), "it is looked at for ever");
        assert_eq!(reader.sleep(Until::Input), Ok(true), "it cannot sleep");
    }
}

/// A side that waits for room that a dead peer does not give can sleep.
#[test]
fn a_reader_that_ends_leaves_a_writer_that_can_sleep() {
    let ([mut a, _], _) = pair([48, 48]);
    while a.send(&[1; 100]).unwrap() > 0 {}
    assert_eq!(a.sleep(Until::Space), Ok(true));
}

#[test]
fn garbage_is_found() {
    let spoilt = |place: usize, word: u64, is_found: fn(&mut End) -> bool| {
        let ([mut a, mut b], [mailbox, _]) = pair([64, 64]);
        b.send(b"hello").unwrap();
        a.send(b"hello").unwrap();
        mailbox.0[place].store(word, Ordering::Relaxed);
        is_found(&mut a)
    };
    let receives = |end: &mut End| {
        let found = matches!(end.receive(&mut [0; 9]), Err(RingError::Garbage(_)));
        found && end.has_input() && end.sleep(Until::Input) == Ok(false)
    };
    let sends = |end: &mut End| {
        let found = matches!(end.send(&[0; 999]), Err(RingError::Garbage(_)));
        found && end.has_room()
    };
    for size in [0, 119, 120, u64::MAX, 1 << 63] {
        assert!(spoilt(CONTROL, size, receives), "a size of {size}");
    }
    assert!(spoilt(CONTROL + 1, 2, receives), "a first indicator");
    assert!(spoilt(CONTROL + 1, 1 | 9 << 48, receives), "a second one");
    for taken in [1, 4, u64::MAX] {
        assert!(spoilt(0, taken, sends), "taken {taken}");
    }
}

/// The bytes that a peer sent before its memory went away are read, and then the end is reported.
#[test]
fn what_has_come_outlives_the_peer_s_memory() {
    let shm = Shm::default();
    let register = || shm.register(CONTROL + 64, Access::Write).unwrap();
    let (at_a, at_b) = (register(), register());
    let to_a = shm.reach(at_a.grant()).unwrap();
    let mut a = Rings::new(at_a, shm.reach(at_b.grant()).unwrap()).unwrap();
    let mut b = Rings::new(at_b, to_a).unwrap();
    let sent = b.send(&[5; 300]).unwrap();
    drop(b);
    assert!(a.send(b"?").is_err());
    assert_eq!(receive_some(&mut a, 200), Ok(200));
    assert_eq!(receive_some(&mut a, 200), Ok(sent - 200));
    assert!(matches!(receive_some(&mut a, 1), Err(RingError::Remote(_))));
}

fn receive_some<N: Words, F: Remote>(
    end: &mut Rings<N, F>,
    len: usize,
) -> Result<usize, RingError> {
    end.receive(&mut vec![0; len])
}

#[test]
fn mailboxes_without_room_are_refused() {
    for words in [0, CONTROL, CONTROL + RING_MIN - 2, CONTROL + RING_MIN + 1] {
        let [small, good] = [words, CONTROL + 64].map(|words| Near::new(0).resized(words));
        let made = Rings::new(good.clone(), PeerSide::new(&small));
        assert!(made.is_err(), "{words} words");
        assert!(
            Rings::new(small, PeerSide::new(&good)).is_err(),
            "{words} words"
        );
    }
}

impl Near {
    fn resized(self, words: usize) -> Near {
        Near((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

#[test]
fn garbage_from_a_peer_ends_its_own_stream_at_most() {
    for seed in 0..3_000 {
        let mut rng = Rng::with_seed(seed);
        let spoilt: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
        fabric::fuzz::fuzz_ring(&spoilt);
    }
}

#[test]
fn a_sleep_gets_one_bell() {
    let ([mut a, mut b], _) = pair([64, 64]);
    a.send(b"1").unwrap();
    assert_eq!(a.must_ring(), Ok(false), "no thread sleeps");
    assert_eq!(b.sleep(Until::Input), Ok(false), "something has come");
    assert_eq!(receive_all(&mut b, 9).unwrap(), b"1");
    assert_eq!(b.sleep(Until::Input), Ok(true));
    assert_eq!(a.must_ring(), Ok(false), "nothing was written");
    a.send(b"2").unwrap();
    assert_eq!(a.must_ring(), Ok(true));
    a.send(b"3").unwrap();
    assert_eq!(a.must_ring(), Ok(false), "it has one");
    b.wake().unwrap();
    assert_eq!(receive_all(&mut b, 9).unwrap(), b"23");
    a.send(b"4").unwrap();
    assert_eq!(a.must_ring(), Ok(false), "it is awake");
    assert_eq!(receive_all(&mut b, 9).unwrap(), b"4");
    assert_eq!(b.sleep(Until::Input), Ok(true));
    a.send(b"5").unwrap();
    assert_eq!(a.must_ring(), Ok(true), "it sleeps anew");
}

#[test]
fn who_sleeps_for_room_gets_a_bell_for_it_and_others_do_not() {
    for (until, room, come) in [
        (Until::Space, true, false),
        (Until::Input, false, true),
        (Until::Either, true, true),
    ] {
        for for_room in [true, false] {
            let ([mut a, mut b], _) = pair([64, 64]);
            while a.send(&[1; 50]).unwrap() > 0 {}
            assert_eq!(a.sleep(until), Ok(true));
            if for_room {
                assert!(!receive_all(&mut b, 1000).unwrap().is_empty());
                assert_eq!(b.must_ring(), Ok(room), "{until:?}");
            } else {
                b.send(b"x").unwrap();
                assert_eq!(b.must_ring(), Ok(come), "{until:?}");
            }
        }
    }
}

/// With memory whose writes are late, no side sleeps before its sleep is known, and bells come in
/// the end.
#[test]
fn bells_are_not_lost_when_writes_are_late() {
    let [at_a, at_b] = [Near::new(64), Near::new(64)];
    let [mut a, mut b] = [(&at_a, &at_b), (&at_b, &at_a)].map(|(near, far)| {
        let mut far = PeerSide::new(far);
        far.late = true;
        Rings::new(near.clone(), far).unwrap()
    });
    assert_eq!(b.sleep(Until::Input), Ok(false), "it is not known yet");
    a.send(b"x").unwrap();
    assert_eq!((a.must_ring(), a.is_unsettled()), (Ok(false), true));
    assert_eq!(
        b.sleep(Until::Input),
        Ok(true),
        "the message is not there yet"
    );
    assert_eq!((a.must_ring(), a.is_unsettled()), (Ok(true), false));
    b.wake().unwrap();
    assert_eq!(receive_all(&mut b, 9).unwrap(), b"x");
}

/// A side that announces a sleep, and finds something by looking before it sleeps, may get a bell
/// for that sleep, which it does not need. The next sleep is another one, with a bell of its own.
#[test]
fn a_bell_for_a_sleep_that_was_not_begun_is_none_for_the_next_one() {
    let [at_a, at_b] = [Near::new(64), Near::new(64)];
    let [mut a, mut b] = [(&at_a, &at_b), (&at_b, &at_a)].map(|(near, far)| {
        let mut far = PeerSide::new(far);
        far.late = true;
        Rings::new(near.clone(), far).unwrap()
    });
    let rings = |rings: &mut Rings<_, _>| {
        let mut rung = false;
        for _ in 0..10 {
            rung |= rings.must_ring().unwrap();
        }
        assert!(!rings.is_unsettled());
        rung
    };
    let falls_asleep =
        |rings: &mut Rings<_, _>| (0..10).any(|_| rings.sleep(Until::Input).unwrap());
    assert_eq!(b.sleep(Until::Input), Ok(false), "it is not known yet");
    // This makes it known.
    b.send(b"0").unwrap();
    rings(&mut b);
    a.send(b"1").unwrap();
    rings(&mut a);
    assert_eq!(receive_all(&mut b, 9).unwrap(), b"1");
    rings(&mut b);
    for _ in 0..3 {
        assert!(falls_asleep(&mut b));
        a.send(b"2").unwrap();
        assert!(rings(&mut a), "it sleeps");
        assert_eq!(receive_all(&mut b, 9).unwrap(), b"2");
        rings(&mut b);
    }
}

/// A side of a connection on a thread of its own, over memory that processes share. It sleeps
/// whenever there is nothing to do, and only a bell wakes it.
struct Sleeper<N, F> {
    rings: Rings<N, F>,
    bell: Receiver<()>,
    other: Sender<()>,
}

impl<N: Words, F: Remote> Sleeper<N, F> {
    fn ring(&mut self) {
        if self.rings.must_ring().unwrap() {
            // The other side may have ended already.
            self.other.send(()).unwrap_or_default();
        }
    }

    /// Waits for bytes to come, or for room.
    fn wait(&mut self, until: Until) {
        if self.rings.sleep(until).unwrap() {
            let rung = self.bell.recv_timeout(Duration::from_secs(20));
            rung.expect("a bell was lost");
            self.rings.wake().unwrap();
        }
    }

    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = self.rings.send(bytes).unwrap();
            bytes = &bytes[n..];
            self.ring();
            if n == 0 {
                self.wait(Until::Space);
            }
        }
    }

    fn receive(&mut self, into: &mut [u8]) {
        let mut filled = 0;
        while filled < into.len() {
            let n = self.rings.receive(&mut into[filled..]).unwrap();
            filled += n;
            self.ring();
            if n == 0 {
                self.wait(Until::Input);
            }
        }
    }
}

#[test]
fn two_threads_that_sleep_do_not_lose_a_bell() {
    let shm = Shm::default();
    let register = || shm.register(CONTROL + 64, Access::Write).unwrap();
    let (at_a, at_b) = (register(), register());
    let (to_a, to_b) = (
        shm.reach(at_a.grant()).unwrap(),
        shm.reach(at_b.grant()).unwrap(),
    );
    let ((ring_a, bell_a), (ring_b, bell_b)) = (channel(), channel());
    let mut a = Sleeper {
        rings: Rings::new(at_a, to_b).unwrap(),
        bell: bell_a,
        other: ring_b,
    };
    let mut b = Sleeper {
        rings: Rings::new(at_b, to_a).unwrap(),
        bell: bell_b,
        other: ring_a,
    };
    const ROUNDS: u64 = 20_000;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            let mut rng = Rng::with_seed(1);
            for round in 0..ROUNDS {
                let mut message = vec![0; 8 + (round % 7 * 90) as usize];
                b.receive(&mut message);
                assert_eq!(message[..8], round.to_le_bytes());
                (0..rng.u32(..100)).for_each(|_| std::hint::spin_loop());
                b.send(&message);
            }
            // Its mailbox stays until the last answer was read.
            b
        });
        let mut rng = Rng::with_seed(2);
        for round in 0..ROUNDS {
            let mut message = vec![round as u8; 8 + (round % 7 * 90) as usize];
            message[..8].copy_from_slice(&round.to_le_bytes());
            a.send(&message);
            (0..rng.u32(..300)).for_each(|_| std::hint::spin_loop());
            let mut answer = vec![0; message.len()];
            a.receive(&mut answer);
            assert!(answer == message);
        }
        drop(other.join());
    });
    println!("{ROUNDS} rounds in {:?}", begun.elapsed());
}
