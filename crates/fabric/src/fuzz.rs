//! Entry points for fuzzing what reads frames. They panic when a promise is broken.

use std::io::{self, ErrorKind, Read};

use base::NodeId;

use crate::frame::{Frame, LENGTH, PROOF, message_len};
use crate::handshake::{Handshake, Identity, Secret};
use crate::inbox::Inbox;
use crate::messages::{Event, Link, Peer};
use crate::tcp::arrival::{Arrival, Progress};

/// The longest message that fuzzing allows: so long that there are messages that are gathered.
const LIMIT: usize = 40 << 10;

/// Reads `bytes` as a frame of the handshake, and as what a stranger says to a node that accepts
/// and to one that initiates: whole, and byte by byte.
///
/// # Panics
/// If the pieces make a difference, a frame is not written as it was read, or somebody who does
/// not know the secret has proved that he does.
pub fn fuzz_handshake(bytes: &[u8]) {
    if let Ok(Some((frame, end))) = Frame::decode(bytes) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        if let Frame::Refusal(..) = frame {
            // It may be of any version, with any code; the text was made fit for a log.
            let reread = Frame::decode(&again).map(|read| read.map(|(frame, _)| frame));
            assert!(matches!(reread, Ok(Some(Frame::Refusal(..)))));
        } else {
            assert_eq!(again, bytes[..end], "a frame is written otherwise");
        }
    }
    for accepts in [true, false] {
        assert_eq!(
            greet(bytes, accepts, bytes.len().max(1)),
            greet(bytes, accepts, 1),
            "the pieces make a difference"
        );
    }
}

/// Lets a stranger talk to a node, in pieces. Returns what the node says and thinks.
fn greet(bytes: &[u8], accepts: bool, piece: usize) -> (Vec<u8>, Option<String>) {
    let identity = Identity {
        me: Peer::Node(NodeId(1)),
        cluster: Some(7),
        secret: Secret::new("the stranger does not know it"),
    };
    let mut out = Vec::new();
    let mut handshake = if accepts {
        Handshake::accept([1; PROOF])
    } else {
        Handshake::initiate(&identity, Some(NodeId(2)), [1; PROOF], &mut out)
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

/// Reads what follows the first four of `bytes` as messages that arrive in pieces, whose lengths
/// those four choose.
///
/// # Panics
/// If other messages are found than are there.
pub fn fuzz_messages(bytes: &[u8]) {
    let (cuts, stream) = bytes.split_at(bytes.len().min(4));
    let mut source = Pieces {
        rest: stream,
        cuts: cuts.iter().map(|&cut| 1 << (cut % 18)).collect(),
        turn: 0,
    };
    let (mut arrival, mut inbox) = (Arrival::default(), Inbox::default());
    let refused = loop {
        match arrival.read(&mut source, &mut inbox, (Link(1), LIMIT), false) {
            Progress::End(why) => break why.contains("more than"),
            Progress::More | Progress::Dry => {}
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

/// The messages at the beginning of a stream, and whether one that is too long follows.
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
struct Pieces<'a> {
    rest: &'a [u8],
    cuts: Vec<usize>,
    turn: usize,
}

impl Read for Pieces<'_> {
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
    use crate::frame::{Code, Greeting};

    /// Frames as peers write them.
    fn frames() -> Vec<Vec<u8>> {
        let greeting = |peer, cluster| Greeting {
            peer,
            cluster,
            nonce: [5; PROOF],
        };
        let frames = [
            Frame::Hello(greeting(Peer::Node(NodeId(2)), Some(7))),
            Frame::Hello(greeting(Peer::Client, None)),
            Frame::Challenge(greeting(Peer::Node(NodeId(2)), Some(7))),
            Frame::Proof([3; PROOF]),
            Frame::Welcome([4; PROOF]),
            Frame::Refusal(Code::Version, "another version".into()),
        ];
        let encode = |frame: &Frame| {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            bytes
        };
        frames.iter().map(encode).collect()
    }

    /// The corpus is what peers write; it is written again when the encoding changes.
    #[test]
    fn the_corpus_is_of_this_encoding() {
        let names = [
            "hello",
            "client",
            "challenge",
            "proof",
            "welcome",
            "refusal",
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
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for (name, bytes) in inputs {
            fuzz_handshake(&bytes);
            fuzz_messages(&bytes);
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
