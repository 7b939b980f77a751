//! Streams by Send and Receive: cases for all queues, here over the emulated ones; and what can be
//! done to memory that processes share. `verbs::send_receive` has the same cases over a device.
//!
//! The emulated queues refuse a Send for which no Receive is posted, as a device does. So any case
//! fails if the credit of the stream is wrong, and `credit_that_is_too_large_is_found` shows that.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use base::memory::RemoteError;
use fastrand::Rng;
use kumiki_fabric as fabric;

use fabric::memory::Remote;
use fabric::ring::{CONTROL, RingError, Until};
use fabric::send_receive::{ArrivedPiece, EmulatedPair, QueuePair, ReceiveDepth, SendReceive};

use crate::ring::{Near, PeerSide};

/// The greatest time of any step: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Few and small places, which run out.
pub(crate) const NARROW: ReceiveDepth = ReceiveDepth {
    places: 4,
    bytes: 64,
};

type End = SendReceive<EmulatedPair<Near, PeerSide>>;
type Pair = EmulatedPair<Near, PeerSide>;

/// Returns two connected queues, and their regions.
fn pairs(depth: ReceiveDepth) -> ([Pair; 2], [Near; 2]) {
    let words = Pair::words(depth);
    let [a, b] = [Near::new(words - CONTROL), Near::new(words - CONTROL)];
    let ends = [
        EmulatedPair::new(a.clone(), PeerSide::new(&b), depth).unwrap(),
        EmulatedPair::new(b.clone(), PeerSide::new(&a), depth).unwrap(),
    ];
    (ends, [a, b])
}

fn ends(depth: ReceiveDepth) -> [End; 2] {
    pairs(depth).0.map(SendReceive::new)
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

/// Both sides send `len` bytes, in parts of random lengths, and read as random: at times one of them
/// reads nothing for long.
///
/// # Errors
/// Returns the first error of a stream.
pub(crate) fn both_directions<P: QueuePair>(
    ends: &mut [SendReceive<P>; 2],
    (len, seed): (usize, u64),
) -> Result<(), RingError> {
    let mut rng = Rng::with_seed(seed);
    let messages = [bytes(seed, len), bytes(seed + 1, len)];
    let (mut sent, mut got) = ([0; 2], [Vec::new(), Vec::new()]);
    let begun = Instant::now();
    while got.iter().any(|got| got.len() < len) {
        let side = rng.usize(..2);
        let end = &mut ends[side];
        for _ in 0..rng.usize(1..10) {
            if rng.bool() {
                let to = len.min(sent[side] + rng.usize(1..700));
                sent[side] += end.send(&messages[side][sent[side]..to])?;
            } else {
                let mut buffer = vec![0; rng.usize(1..500)];
                let n = end.receive(&mut buffer)?;
                got[side].extend_from_slice(&buffer[..n]);
            }
            end.must_ring()?;
        }
        assert!(begun.elapsed() < PATIENCE, "{sent:?} of {len} bytes");
    }
    assert!(got[0] == messages[1] && got[1] == messages[0]);
    Ok(())
}

/// A reader that reads nothing stops its peer, and memory does not grow; afterwards all arrives.
pub(crate) fn a_slow_reader_stops_its_peer<P: QueuePair>(ends: &mut [SendReceive<P>; 2]) {
    let depth = ends[0].pair_mut().receives();
    let message = bytes(7, depth.total() * 3);
    let [near, far] = ends;
    let begun = Instant::now();
    let (mut sent, mut idle) = (0, 0);
    while idle < 1000 {
        let n = near.send(&message[sent..]).unwrap();
        near.must_ring().unwrap();
        sent += n;
        idle = if n == 0 { idle + 1 } else { 0 };
        // It looks, and does not read.
        assert!(!far.has_input() || sent > 0);
    }
    assert_eq!(sent, depth.total() - depth.bytes, "all places but the last");
    assert!(!near.has_room());
    let mut got = Vec::new();
    while got.len() < message.len() {
        let mut buffer = [0; 50];
        let n = far.receive(&mut buffer).unwrap();
        got.extend_from_slice(&buffer[..n]);
        far.must_ring().unwrap();
        sent += near.send(&message[sent..]).unwrap();
        near.must_ring().unwrap();
        assert!(begun.elapsed() < PATIENCE, "{} bytes", got.len());
    }
    assert!(got == message);
}

/// Both sides send until neither has room, and only then read.
pub(crate) fn two_full_sides_go_on<P: QueuePair>(ends: &mut [SendReceive<P>; 2]) {
    let begun = Instant::now();
    for round in 0..50 {
        let mut sent = [0; 2];
        for (side, end) in ends.iter_mut().enumerate() {
            let mut idle = 0;
            while idle < 20 {
                let n = end.send(&[round; 40]).unwrap();
                end.must_ring().unwrap();
                sent[side] += n;
                idle = if n == 0 { idle + 1 } else { 0 };
            }
        }
        let mut got = [0; 2];
        while got != [sent[1], sent[0]] {
            for (end, got) in ends.iter_mut().zip(&mut got) {
                let mut buffer = [0; 100];
                let n = end.receive(&mut buffer).unwrap();
                assert!(buffer[..n].iter().all(|&byte| byte == round));
                *got += n;
                end.must_ring().unwrap();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "round {round}: {got:?} of {sent:?}"
            );
        }
        assert!(sent.iter().sum::<usize>() > 0 || round > 0);
    }
}

/// Bytes in one direction alone, many times as many as there are places for: counts go back by
/// themselves, and the last ones do not keep either side from sleep.
pub(crate) fn one_direction_alone_does_not_run_dry<P: QueuePair>(ends: &mut [SendReceive<P>; 2]) {
    let [near, far] = ends;
    let begun = Instant::now();
    for number in 0..500_u32 {
        let mut part = &number.to_le_bytes()[..];
        let mut got = Vec::new();
        while got.len() < 4 {
            part = &part[near.send(part).unwrap()..];
            near.must_ring().unwrap();
            let mut buffer = [0; 4];
            let n = far.receive(&mut buffer[got.len()..]).unwrap();
            got.extend_from_slice(&buffer[..n]);
            far.must_ring().unwrap();
            assert!(begun.elapsed() < PATIENCE, "{number}");
        }
        assert_eq!(got, number.to_le_bytes());
    }
    for end in [near, far] {
        while !end.sleep(Until::Input).unwrap() {
            end.must_ring().unwrap();
            assert!(begun.elapsed() < PATIENCE, "it does not fall asleep");
        }
    }
}

#[test]
fn both_directions_carry_at_once() {
    for seed in 0..20 {
        let narrow = both_directions(&mut ends(NARROW), (20_000, seed));
        narrow.unwrap();
    }
    let wide = both_directions(&mut ends(ReceiveDepth::of(64 << 10)), (500_000, 3));
    wide.unwrap();
}

#[test]
fn slow_readers_stop_their_peers() {
    a_slow_reader_stops_its_peer(&mut ends(NARROW));
    a_slow_reader_stops_its_peer(&mut ends(ReceiveDepth::of(1 << 20)));
}

#[test]
fn two_full_sides_go_on_when_they_read() {
    two_full_sides_go_on(&mut ends(NARROW));
}

#[test]
fn one_direction_alone_carries() {
    one_direction_alone_does_not_run_dry(&mut ends(NARROW));
    one_direction_alone_does_not_run_dry(&mut ends(ReceiveDepth::of(64 << 10)));
}

/// Queues whose peer seems to have one place more than it has: the error of a stream that does not
/// keep to its credit.
struct Generous(Pair);

impl QueuePair for Generous {
    fn receives(&self) -> ReceiveDepth {
        self.0.receives()
    }

    fn peer_receives(&self) -> ReceiveDepth {
        let depth = self.0.peer_receives();
        ReceiveDepth {
            places: depth.places + 2,
            ..depth
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.0.has_room(bytes)
    }

    fn send(&mut self, piece: &[u8], number: u32) -> Result<(), RemoteError> {
        self.0.send(piece, number)
    }

    fn receive(&mut self) -> Result<Option<ArrivedPiece>, RemoteError> {
        self.0.receive()
    }

    fn load(&self, place: usize, from: usize, into: &mut [u8]) {
        self.0.load(place, from, into);
    }

    fn post(&mut self, place: usize) -> Result<(), RemoteError> {
        self.0.post(place)
    }

    fn is_unsettled(&self) -> bool {
        self.0.is_unsettled()
    }

    fn settle(&mut self) -> Result<bool, RemoteError> {
        self.0.settle()
    }

    fn arm(&mut self) -> Result<(), RemoteError> {
        self.0.arm()
    }

    fn disarm(&mut self) -> Result<(), RemoteError> {
        self.0.disarm()
    }

    fn events(&self) -> Option<RawFd> {
        self.0.events()
    }
}

/// The cases above notice a stream that sends without credit.
#[test]
fn credit_that_is_too_large_is_found() {
    let mut ends = pairs(NARROW).0.map(|pair| SendReceive::new(Generous(pair)));
    let error = both_directions(&mut ends, (20_000, 1)).unwrap_err();
    assert!(error.to_string().contains("not ready"), "{error}");
}

#[test]
fn a_side_that_sleeps_gets_one_bell() {
    let [mut near, mut far] = ends(NARROW);
    for round in 0..20 {
        assert!(far.sleep(Until::Input).unwrap());
        assert_eq!(near.send(b"word").unwrap(), 4);
        assert!(near.is_unsettled());
        assert!(near.must_ring().unwrap(), "round {round}");
        near.send(b"more").unwrap();
        assert!(!near.must_ring().unwrap(), "a second bell");
        assert!(!far.sleep(Until::Input).unwrap(), "it has input");
        far.wake().unwrap();
        let mut both = [0; 8];
        assert_eq!(far.receive(&mut both).unwrap(), 8);
        assert_eq!(&both, b"wordmore");
        near.must_ring().unwrap();
        near.receive(&mut [0; 8]).unwrap();
        // A side that is awake gets none.
        far.must_ring().unwrap();
        near.send(b"w").unwrap();
        assert!(!near.must_ring().unwrap());
        far.receive(&mut both).unwrap();
        far.must_ring().unwrap();
    }
}

/// A side that waits for room is woken by the count of its peer.
#[test]
fn a_side_that_sleeps_for_room_gets_a_bell() {
    let [mut near, mut far] = ends(NARROW);
    while near.send(&[1; 64]).unwrap() > 0 {}
    near.must_ring().unwrap();
    assert!(near.sleep(Until::Space).unwrap());
    let (mut rang, mut buffer) = (false, [0; 64]);
    while far.receive(&mut buffer).unwrap() > 0 {
        rang |= far.must_ring().unwrap();
    }
    assert!(rang);
    near.wake().unwrap();
    assert!(near.has_room());
}

/// A peer that is killed after any word has sent a prefix.
#[test]
fn a_peer_that_dies_at_any_word_has_sent_a_prefix() {
    let message = bytes(3, 150);
    for left in 0..80 {
        let words = Pair::words(NARROW);
        let [a, b] = [Near::new(words - CONTROL), Near::new(words - CONTROL)];
        let near = EmulatedPair::new(a.clone(), PeerSide::new(&b), NARROW).unwrap();
        let mut cut = PeerSide::new(&a);
        // The posts of the beginning are not cut.
        cut.left = 8 + left;
        let dying = EmulatedPair::new(b, cut, NARROW).unwrap();
        let (mut near, mut dying) = (SendReceive::new(near), SendReceive::new(dying));
        dying.send(&message).unwrap();
        let mut buffer = [0; 200];
        let n = near.receive(&mut buffer).unwrap();
        assert!(n % 64 == 0 || n == message.len(), "{left}: a torn piece");
        assert_eq!(buffer[..n], message[..n], "{left}");
        assert!(left < 60 || n == message.len(), "{left}: {n}");
    }
}

/// Each of these ends the stream, on which nothing wrong is read, and panics nowhere.
#[test]
fn garbage_of_a_peer_ends_the_stream() {
    let completions = CONTROL + NARROW.places;
    let number = |number: u64| number << 32;
    let cases: [(&str, Vec<(usize, u64)>); 10] = [
        ("pieces that no Receive awaits", vec![(2, 5)]),
        ("fewer pieces than before", vec![(2, u64::MAX)]),
        ("a long piece", vec![(completions, 65), (2, 1)]),
        ("an empty piece", vec![(completions, 0), (2, 1)]),
        (
            "an unknown bit",
            vec![(completions, 1 | number(1 << 31)), (2, 1)],
        ),
        (
            "a count of nothing sent",
            vec![(completions, 1 | number(1)), (2, 1)],
        ),
        (
            "a count alone with a piece",
            vec![(completions, 1 | number(1 << 30)), (2, 1)],
        ),
        ("Receives without end", vec![(0, 1 << 40)]),
        ("a Receive elsewhere", vec![(CONTROL, 1 << 50)]),
        ("no Receives", vec![(0, 0)]),
    ];
    for (what, words) in cases {
        let (pairs, [region, _]) = pairs(NARROW);
        let mut liar = PeerSide::new(&region);
        let [mut near, _] = pairs.map(SendReceive::new);
        for (at, word) in words {
            liar.write(at, &[word]).unwrap();
        }
        let mut buffer = [0; 100];
        let received = near.receive(&mut buffer);
        let sent = near.send(b"hello");
        assert!(
            received.is_err() || sent.is_err(),
            "{what}: nothing is noticed"
        );
        assert!(received.unwrap_or(0) == 0, "{what}: it is read");
        let again = [near.receive(&mut buffer), near.send(b"hello")];
        assert!(again.iter().any(Result::is_err), "{what}: it goes on");
    }
}

#[test]
fn arbitrary_words_of_a_peer_end_its_own_stream_at_most() {
    for seed in 0..3_000 {
        let mut rng = Rng::with_seed(seed);
        // The first words are those that count.
        let mut spoilt: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
        let places = spoilt.iter_mut().step_by(4);
        places.for_each(|place| *place %= [4, 24, 56][rng.usize(..3)]);
        fabric::fuzz::fuzz_receives(&spoilt);
    }
}

#[test]
fn sides_with_other_places_do_not_meet() {
    let near = Near::new(Pair::words(NARROW) - CONTROL);
    let far = Near::new(Pair::words(ReceiveDepth::of(1 << 10)) - CONTROL);
    let error = Pair::new(near, PeerSide::new(&far), NARROW).unwrap_err();
    assert!(error.to_string().contains("rings of one size"), "{error}");
}

#[test]
fn memory_is_divided_into_places() {
    for bytes in [1 << 10, 3000, 64 << 10, 65_000, 1 << 20, 1 << 30] {
        let depth = ReceiveDepth::of(bytes);
        assert!(depth.bytes.is_multiple_of(8) && (64..=4096).contains(&depth.bytes));
        assert!((ReceiveDepth::PLACES_MIN..=ReceiveDepth::PLACES_MAX).contains(&depth.places));
        assert!(depth.total() <= bytes, "{bytes}: {depth:?}");
    }
    assert_eq!(ReceiveDepth::of(64 << 10).places, 16);
}
