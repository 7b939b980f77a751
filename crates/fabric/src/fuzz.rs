//! Entry points for fuzzing the code that reads frames. They panic when a promise is broken.

use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicU64, Ordering};

use base::NodeId;

use crate::frame::{Frame, LENGTH, NONCE, TransportSet, message_len};
use crate::handshake::{ConnectionTerms, Handshake, Identity, Secret};
use crate::inbox::Inbox;
use crate::link::{Event, Link, Peer};
use crate::memory::{GRANT_MAX, Grant, Remote, RemoteError, RemoteMemory, Words};
use crate::ring::{CONTROL, Rings, Until};
use crate::send_receive::{EmulatedPair, ReceiveDepth, SendReceive};
use crate::tcp::link_error::LinkError;
use crate::tcp::message_assembler::{AssemblyProgress, MessageAssembler};

/// The longest message that fuzzing allows: long enough that some messages are gathered.
const LIMIT: usize = 40 << 10;

/// Reads `bytes` as a frame of the handshake, and as the input of a stranger to a node that accepts
/// and to one that initiates: as a whole, and byte by byte.
///
/// # Panics
/// Panics if the pieces make a difference, if a frame is not written as it was read, or if a peer
/// that does not know the secret has proved that it does.
pub fn fuzz_handshake(bytes: &[u8]) {
    if let Ok(Some((frame, end))) = Frame::decode(bytes) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        if let Frame::Refusal(..) = frame {
            // The refusal may be of any version, with any code; its text was made fit for a log.
            let reread = Frame::decode(&again).map(|read| read.map(|(frame, _)| frame));
            assert!(matches!(reread, Ok(Some(Frame::Refusal(..)))));
        } else {
            assert_eq!(again, bytes[..end], "a frame is written otherwise");
        }
    }
    for accepts in [true, false] {
        let (at_once, refused) = greet(bytes, accepts, bytes.len().max(1));
        let (piecewise, refused_piecewise) = greet(bytes, accepts, 1);
        // An initiator's proof has a new key each time.
        let same = match accepts {
            true => at_once == piecewise,
            false => at_once.len() == piecewise.len(),
        };
        assert!(
            same && refused == refused_piecewise,
            "the pieces make a difference"
        );
    }
}

/// Lets a stranger talk to a node, in pieces. Returns the node's answer and its error.
fn greet(bytes: &[u8], accepts: bool, piece: usize) -> (Vec<u8>, Option<String>) {
    let identity = Identity {
        me: Peer::Node(NodeId(1)),
        cluster: Some(7),
        secret: Secret::new("the stranger does not know it"),
        clients: None,
        ways: TransportSet::SHM,
    };
    let terms = ConnectionTerms {
        nonce: [1; NONCE],
        encrypt: false,
    };
    let mut out = Vec::new();
    let mut handshake = if accepts {
        Handshake::accept(terms)
    } else {
        Handshake::initiate(&identity, Some(NodeId(2)), terms, &mut out)
    };
    let mut arrived = Vec::new();
    for part in bytes.chunks(piece) {
        arrived.extend(part);
        match handshake.advance(&identity, &arrived, &mut out) {
            Ok((used, proved)) => {
                assert!(used <= arrived.len(), "more was used than there is");
                assert_eq!(proved, None, "a stranger has proved to be a peer");
                arrived.drain(..used);
            }
            Err(refused) => return (out, Some(refused.to_string())),
        }
    }
    (out, None)
}

/// Reads `bytes`, except for the first four, as messages that arrive in pieces. The first four
/// bytes choose the lengths of the pieces.
///
/// # Panics
/// Panics if other messages are found than are there.
pub fn fuzz_messages(bytes: &[u8]) {
    let (cuts, stream) = bytes.split_at(bytes.len().min(4));
    let mut source = PieceReader {
        rest: stream,
        cuts: cuts.iter().map(|&cut| 1 << (cut % 18)).collect(),
        turn: 0,
    };
    let (mut assembler, mut inbox) = (MessageAssembler::default(), Inbox::default());
    let refused = loop {
        match assembler.read(&mut source, &mut inbox, (Link(1), LIMIT), false) {
            AssemblyProgress::End(why) => break matches!(why, LinkError::MessageTooLong { .. }),
            AssemblyProgress::More | AssemblyProgress::Dry => {}
        }
    };
    let found = inbox.iter().map(|(_, event)| match event {
        Event::Message(message) => message,
        other => panic!("{other:?} from bytes"),
    });
    let (messages, beyond) = split(stream);
    assert!(found.eq(messages), "other messages than are there");
    assert_eq!(refused, beyond, "a message beyond the limit");
}

/// Lets a peer write `bytes` into the mailbox of a ring, in pieces and anywhere, while this side
/// sends, receives, and goes to sleep.
///
/// # Panics
/// Panics if more is received than a ring can hold for each look at it, or if more is sent than
/// there is space for.
pub fn fuzz_ring(bytes: &[u8]) {
    const WORDS: usize = CONTROL + 32;
    let mailbox = || -> Box<[AtomicU64]> { (0..WORDS).map(|_| AtomicU64::new(0)).collect() };
    let Ok(mut rings) = Rings::new(mailbox(), WriteCounter(WORDS)) else {
        unreachable!("the mailboxes have room");
    };
    for piece in bytes.chunks(4) {
        let [place, shift, high, low] =
            std::array::from_fn(|at| piece.get(at).copied().unwrap_or(1));
        let word = u64::from(high) << (shift % 64) | u64::from(low);
        rings.mailbox().words()[usize::from(place) % WORDS].store(word, Ordering::Relaxed);
        let mut buffer = [0; WORDS * 8];
        let received = rings.receive(&mut buffer);
        assert!(received.unwrap_or(0) <= 32 * 8, "more than there can be");
        let sent = rings.send(&buffer);
        assert!(sent.unwrap_or(0) <= 32 * 8, "more than there is room for");
        let asleep = rings.sleep(Until::Either);
        assert!(
            asleep != Ok(true) || !rings.has_input(),
            "it sleeps over something"
        );
        drop((rings.must_ring(), rings.wake()));
    }
}

/// Lets a peer write `bytes` into the region of emulated Receives, in pieces and anywhere, while this
/// side sends, receives, and goes to sleep.
///
/// # Panics
/// Panics if more is received or sent at a time than there are places for.
pub fn fuzz_receives(bytes: &[u8]) {
    const DEPTH: ReceiveDepth = ReceiveDepth {
        places: 4,
        bytes: 64,
    };
    let words = EmulatedPair::<Box<[AtomicU64]>, WriteCounter>::words(DEPTH);
    let region: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
    let Ok(pair) = EmulatedPair::new(region, WriteCounter(words), DEPTH) else {
        unreachable!("the regions have one size");
    };
    let mut stream = SendReceive::new(pair);
    for piece in bytes.chunks(4) {
        let [place, shift, high, low] =
            std::array::from_fn(|at| piece.get(at).copied().unwrap_or(1));
        let word = u64::from(high) << (shift % 64) | u64::from(low);
        let region = stream.pair_mut().region_mut();
        region[usize::from(place) % words].store(word, Ordering::Relaxed);
        let mut buffer = [0; 1024];
        let received = stream.receive(&mut buffer);
        assert!(received.unwrap_or(0) <= DEPTH.total(), "more than places");
        let sent = stream.send(&buffer);
        assert!(sent.unwrap_or(0) <= DEPTH.total(), "more than places");
        let asleep = stream.sleep(Until::Either);
        assert!(
            asleep != Ok(true) || !stream.has_input(),
            "it sleeps over something"
        );
        drop((stream.must_ring(), stream.wake()));
    }
}

/// Memory that discards what is written.
struct WriteCounter(usize);

impl RemoteMemory for WriteCounter {
    fn len(&self) -> usize {
        self.0
    }

    fn begin(&mut self, _: usize, _: usize) -> Result<(), RemoteError> {
        unreachable!("rings read nothing of their peer's")
    }

    fn finish(&mut self, _: &mut Vec<u64>) -> Result<(), RemoteError> {
        unreachable!("rings read nothing of their peer's")
    }
}

impl Remote for WriteCounter {
    fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError> {
        assert!(from + words.len() <= self.0, "beyond the mailbox");
        Ok(())
    }

    fn settle(&mut self) -> Result<bool, RemoteError> {
        Ok(true)
    }
}

/// Reads `bytes` as a grant.
///
/// # Panics
/// Panics if the grant is not written as it was read.
pub fn fuzz_grant(bytes: &[u8]) {
    if let Some(grant) = Grant::decode(bytes) {
        let mut again = Vec::new();
        grant.encode(&mut again);
        assert!(again == bytes && bytes.len() <= GRANT_MAX);
    }
}

/// Returns the messages at the beginning of a stream, and `true` if one that is too long follows.
fn split(mut stream: &[u8]) -> (Vec<&[u8]>, bool) {
    let mut messages = Vec::new();
    while let Some(len) = message_len(stream) {
        if len > LIMIT {
            return (messages, true);
        }
        let Some(message) = stream.get(LENGTH..LENGTH + len) else {
            break;
        };
        messages.push(message);
        stream = &stream[LENGTH + len..];
    }
    (messages, false)
}

/// A connection on which bytes arrive in pieces of given lengths, in turn, with pauses.
struct PieceReader<'a> {
    rest: &'a [u8],
    cuts: Vec<usize>,
    turn: usize,
}

impl Read for PieceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(3) && !self.rest.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let cut = self.cuts.get(self.turn % 4).copied().unwrap_or(1 << 17);
        let n = cut.min(buffer.len()).min(self.rest.len());
        buffer[..n].copy_from_slice(&self.rest[..n]);
        self.rest = &self.rest[n..];
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::frame::{Greeting, PROOF, RefusalCode};
    use crate::memory::{Access, RegionKind};

    fn grant() -> Grant {
        Grant::new(RegionKind::Shm, Access::Write, 9, [3; 16], b"somewhere")
    }

    /// Returns frames as peers write them.
    fn frames() -> Vec<Vec<u8>> {
        let greeting = |peer, cluster| Greeting {
            peer,
            cluster,
            ways: TransportSet::SHM,
            encrypt: false,
            nonce: [5; NONCE],
        };
        let frames = [
            Frame::Hello(greeting(Peer::Node(NodeId(2)), Some(7))),
            Frame::Hello(greeting(Peer::Client, None)),
            Frame::Challenge(greeting(Peer::Node(NodeId(2)), Some(7))),
            Frame::Proof([3; PROOF]),
            Frame::Welcome([4; PROOF]),
            Frame::Refusal(RefusalCode::Version, "another version".into()),
            Frame::Mailbox(Some(grant())),
            Frame::Ready(true),
        ];
        let encode = |frame: &Frame| {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            bytes
        };
        frames.iter().map(encode).collect()
    }

    /// The corpus has the bytes that peers write; it is written again when the encoding changes.
    #[test]
    fn the_corpus_is_of_this_encoding() {
        let names = [
            "hello",
            "client",
            "challenge",
            "proof",
            "welcome",
            "refusal",
            "mailbox",
            "ready",
        ];
        let mut inputs: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, frame) in names.into_iter().zip(frames()) {
            inputs.push((format!("handshake/{name}"), frame));
        }
        inputs.push((
            "handshake/initiator".into(),
            [0, 3].map(|i| frames()[i].clone()).concat(),
        ));
        inputs.push((
            "handshake/acceptor".into(),
            [2, 4].map(|i| frames()[i].clone()).concat(),
        ));
        for (name, lens) in [
            ("short", &[5, 0, 1, 17][..]),
            ("gathered", &[3, 20_000, 1]),
            ("beyond", &[3, LIMIT + 1]),
        ] {
            let mut bytes = vec![0, 3, 9, 12];
            for &len in lens {
                bytes.extend((len as u32).to_le_bytes());
                bytes.resize(bytes.len() + len.min(LIMIT), 7);
            }
            inputs.push((format!("messages/{name}"), bytes));
        }
        let mut bytes = Vec::new();
        grant().encode(&mut bytes);
        inputs.push(("grants/grant".into(), bytes));
        // The words of a mailbox: place, shift, and two bytes. There is a record, a size without a
        // record, a count of words that were taken, and a peer that sleeps.
        let word = |place, shift, high, low| [place, shift, high, low];
        let begin = CONTROL as u8;
        for (name, words) in [
            ("record", [word(begin, 0, 0, 5), word(begin + 1, 48, 1, 1)]),
            ("size", [word(begin, 56, 255, 9), word(begin + 1, 0, 0, 1)]),
            ("taken", [word(0, 0, 0, 4), word(1, 2, 7, 3)]),
        ] {
            inputs.push((format!("rings/{name}"), words.concat()));
        }
        // A Receive of the peer, a piece of one byte with a count, and a count of pieces.
        for (name, words) in [
            ("receive", [word(begin, 0, 0, 1), word(0, 0, 0, 1)]),
            ("piece", [word(begin + 4, 0, 0, 1), word(2, 0, 0, 1)]),
            ("count", [word(begin + 4, 32, 64, 0), word(2, 0, 0, 1)]),
        ] {
            inputs.push((format!("receives/{name}"), words.concat()));
        }
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for (name, bytes) in inputs {
            fuzz_handshake(&bytes);
            fuzz_messages(&bytes);
            fuzz_grant(&bytes);
            fuzz_ring(&bytes);
            fuzz_receives(&bytes);
            let path = corpus.join(name);
            let there = std::fs::read(&path).unwrap_or_default();
            assert!(there == bytes, "{} is out of date", path.display());
        }
    }

    #[test]
    fn handshakes_survive_what_strangers_say() {
        let frames = frames();
        let mut rng = Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..rng.usize(0..4))
                .flat_map(|_| frames[rng.usize(..frames.len())].clone())
                .collect();
            bytes.extend((0..rng.usize(0..8)).map(|_| rng.u8(..)));
            for _ in 0..rng.usize(0..3) {
                if !bytes.is_empty() {
                    let at = rng.usize(..bytes.len());
                    bytes[at] = rng.u8(..);
                }
            }
            fuzz_handshake(&bytes);
        }
    }

    #[test]
    fn messages_are_found_in_any_pieces() {
        let mut rng = Rng::with_seed(2);
        for _ in 0..2_000 {
            let mut bytes: Vec<u8> = (0..4).map(|_| rng.u8(..)).collect();
            for _ in 0..rng.usize(0..8) {
                let bits = rng.u32(0..17);
                let len = rng.usize(..1 << bits);
                bytes.extend((len as u32).to_le_bytes());
                let there = if rng.u8(..) < 250 { len } else { len / 2 };
                bytes.resize(bytes.len() + there, rng.u8(..));
            }
            fuzz_messages(&bytes);
        }
    }
}
