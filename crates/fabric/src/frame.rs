//! The encoding. Numbers are little-endian.
//!
//! A connection begins with a handshake, whose frames are:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `89 6b 75 6d 69 6b 69 0a` |
//! | 8 | 2 | version of the protocol that the sender speaks |
//! | 10 | 1 | kind |
//! | 11 | 1 | zero |
//! | 12 | 4 | length of the body, at most 1024 |
//! | 16 | | body |
//!
//! | kind | name | body |
//! |---|---|---|
//! | 0 | refusal | 2 bytes: code, see [`RefusalCode`]; then a text for people, UTF-8 |
//! | 1 | hello | a greeting |
//! | 2 | challenge | a greeting |
//! | 3 | proof | 48 bytes, see [`handshake`](crate::handshake) |
//! | 4 | welcome | 48 bytes, see [`handshake`](crate::handshake) |
//! | 5 | mailbox | a grant, see [`memory`](crate::memory); empty: there is none |
//! | 6 | ready | 1 byte: 1 if messages travel through the mailboxes, else 0 |
//!
//! *mailbox* and *ready* are sent if both peers know a way for messages besides the connection;
//! then the initiator ends the handshake with *ready*.
//!
//! A greeting has 48 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | role: 1 a node, 2 a client |
//! | 1 | 1 | 1 if a client will take any cluster, else 0 |
//! | 2 | 2 | the node's number; of a client 0 |
//! | 4 | 1 | ways that it knows: bit 0 memory that processes share, bit 1 an RDMA device, bit 2 Send and Receive by these |
//! | 5 | 1 | 1 if the peer asks for encryption, else 0 |
//! | 6 | 2 | zero |
//! | 8 | 8 | the cluster's fingerprint; 0 where any will do |
//! | 16 | 32 | a nonce: random bytes of this connection |
//!
//! Afterwards there are messages, in both directions, on the connection or through the mailboxes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the message |
//! | 4 | | the message |
//!
//! If one of the greetings asks for encryption, all bytes behind *welcome* are records, whose contents are the
//! bytes that are described here:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | length of the rest, big-endian |
//! | 2 | | at least 1 byte, encrypted, and a tag of 16 bytes: a transport message of the Noise protocol |
//!
//! If messages travel through mailboxes, bytes on the connection only wake the receiver, which then
//! looks into its mailbox; they are never encrypted. A grant of kind 3 or 4 is no mailbox, but the
//! places of Receives ([`send_receive`](crate::send_receive)); the device wakes the receiver of kind 4. The end of the connection is the end of the link.
//!
//! **What stays the same in all versions**: the header of handshake frames, their greatest length,
//! and kind 0 with its body. So peers of two versions understand each other's refusal. Everything
//! else may change with the version.

mod greeting;

use crate::memory::{Grant, RegionKind};
pub use crate::noise::PROOF;
pub use greeting::{Greeting, NONCE, TransportSet};

/// The first bytes of a handshake frame. The first of them occurs in no text. The last one reveals
/// programs that translate ends of lines.
pub const MAGIC: [u8; 8] = *b"\x89kumiki\n";
/// The version of the protocol of this release.
pub const VERSION: u16 = 3;
/// Bytes of a handshake frame before its body.
pub const HEADER: usize = 16;
/// The longest body of a handshake frame.
pub const BODY_MAX: usize = 1024;
/// Bytes before a message.
pub const LENGTH: usize = 4;

const CODE: usize = 2;

/// A frame of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Ends the connection, with a reason.
    Refusal(RefusalCode, String),
    /// The initiator's first message.
    Hello(Greeting),
    /// The acceptor's first message.
    Challenge(Greeting),
    /// Proves that the initiator knows the secret.
    Proof([u8; PROOF]),
    /// Proves that the acceptor knows the secret, too. It takes messages from now on.
    Welcome([u8; PROOF]),
    /// The place of the mailbox that the receiver may write; `None` if there is none.
    Mailbox(Option<Grant>),
    /// `true` if messages travel through the mailboxes.
    Ready(bool),
}

/// The reason why a connection is refused, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum RefusalCode {
    /// A reason that this version does not know.
    Other = 0,
    /// The peer speaks another version of the protocol.
    Version = 1,
    /// The peer belongs to another cluster.
    Cluster = 2,
    /// The peer has another secret.
    Secret = 3,
    /// The bytes are not this protocol, or have no meaning in it.
    Garbage = 4,
    /// The node is not the one that was wanted, or is not a possible one.
    Node = 5,
    /// There are too many connections that have not authenticated.
    Busy = 6,
    /// The handshake took too long.
    Late = 7,
    /// Messages cannot travel in the way that was requested.
    Transport = 8,
}

impl RefusalCode {
    const ALL: [RefusalCode; 9] = [
        RefusalCode::Other,
        RefusalCode::Version,
        RefusalCode::Cluster,
        RefusalCode::Secret,
        RefusalCode::Garbage,
        RefusalCode::Node,
        RefusalCode::Busy,
        RefusalCode::Late,
        RefusalCode::Transport,
    ];

    fn from_number(number: u16) -> RefusalCode {
        let known = RefusalCode::ALL
            .into_iter()
            .find(|&code| code as u16 == number);
        known.unwrap_or(RefusalCode::Other)
    }
}

/// The flaw of bytes that should be a frame of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFlaw {
    /// The bytes do not begin as a frame does.
    #[error("the bytes do not begin as a frame of the fabric does")]
    Magic,
    /// The bytes are a frame of another version.
    #[error("the frame is of version {0} of the protocol")]
    Version(u16),
    /// The frame offers memory of a kind that this version does not know.
    #[error("the frame offers memory of kind {0}, which is not known here")]
    MemoryKind(u8),
    /// The bytes are a frame that has no meaning.
    #[error("the frame has no meaning")]
    Meaning,
}

impl Frame {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self {
            Frame::Refusal(..) => 0,
            Frame::Hello(_) => 1,
            Frame::Challenge(_) => 2,
            Frame::Proof(_) => 3,
            Frame::Welcome(_) => 4,
            Frame::Mailbox(_) => 5,
            Frame::Ready(_) => 6,
        };
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([kind, 0]);
        let length = out.len();
        out.extend([0; 4]);
        self.encode_body(out);
        let len = (out.len() - length - 4) as u32;
        out[length..length + 4].copy_from_slice(&len.to_le_bytes());
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Refusal(code, text) => {
                out.extend((*code as u16).to_le_bytes());
                out.extend(clipped(text).as_bytes());
            }
            Frame::Hello(greeting) | Frame::Challenge(greeting) => greeting.encode(out),
            Frame::Proof(proof) | Frame::Welcome(proof) => out.extend(proof),
            Frame::Mailbox(None) => {}
            Frame::Mailbox(Some(grant)) => grant.encode(out),
            Frame::Ready(ready) => out.push(u8::from(*ready)),
        }
    }

    /// Reads the frame at the beginning of `bytes`. Returns it with the offset of its end; `None`
    /// if it is not whole yet.
    ///
    /// # Errors
    /// Returns the [`FrameFlaw`] because of which the bytes can never be a frame. It is found as early
    /// as possible.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, FrameFlaw> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(FrameFlaw::Magic);
        }
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [.., a, b, kind, zero, l0, l1, l2, l3] = *header;
        let version = u16::from_le_bytes([a, b]);
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if kind != 0 && version != VERSION {
            return Err(FrameFlaw::Version(version));
        }
        if len > BODY_MAX || zero != 0 {
            return Err(FrameFlaw::Meaning);
        }
        let Some(body) = bytes.get(HEADER..HEADER + len) else {
            return Ok(None);
        };
        if let (5, Some(&number)) = (kind, body.first())
            && RegionKind::from_number(number).is_none()
        {
            return Err(FrameFlaw::MemoryKind(number));
        }
        let frame = Frame::decode_body(kind, body).ok_or(FrameFlaw::Meaning)?;
        Ok(Some((frame, HEADER + len)))
    }

    fn decode_body(kind: u8, body: &[u8]) -> Option<Frame> {
        Some(match kind {
            0 => {
                let (&code, text) = body.split_first_chunk()?;
                let code = RefusalCode::from_number(u16::from_le_bytes(code));
                Frame::Refusal(code, readable(text))
            }
            1 => Frame::Hello(Greeting::decode(body)?),
            2 => Frame::Challenge(Greeting::decode(body)?),
            3 => Frame::Proof(body.try_into().ok()?),
            4 => Frame::Welcome(body.try_into().ok()?),
            5 if body.is_empty() => Frame::Mailbox(None),
            5 => Frame::Mailbox(Some(Grant::decode(body)?)),
            6 => match body {
                [ready @ 0..=1] => Frame::Ready(*ready == 1),
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// Returns as much of a text as a refusal can hold.
fn clipped(text: &str) -> &str {
    &text[..text.floor_char_boundary(BODY_MAX - CODE)]
}

/// Makes a peer's text fit for a log: it can neither break lines nor control a terminal.
fn readable(text: &[u8]) -> String {
    String::from_utf8_lossy(text)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Returns the length of the message at the beginning of `bytes`; `None` if it is not known yet.
#[inline]
#[must_use]
pub fn message_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.first_chunk::<LENGTH>()?;
    Some(u32::from_le_bytes(*len) as usize)
}

/// Returns the header of a message of `len` bytes.
///
/// # Panics
/// Panics if the length does not fit its field; limits prevent that.
#[inline]
#[must_use]
pub fn message_head(len: usize) -> [u8; LENGTH] {
    u32::try_from(len)
        .expect("a limit below the field's")
        .to_le_bytes()
}

#[cfg(test)]
mod tests {
    use base::NodeId;

    use super::*;
    use crate::link::Peer;
    use crate::memory::{Access, RegionKind};

    fn frames() -> Vec<Frame> {
        let greeting = |peer, cluster| Greeting {
            peer,
            cluster,
            ways: TransportSet::SHM,
            encrypt: true,
            nonce: [9; NONCE],
        };
        let grant = Grant::new(RegionKind::Shm, Access::Write, 9, [3; 16], b"somewhere");
        vec![
            Frame::Refusal(RefusalCode::Version, "use another".into()),
            Frame::Hello(greeting(Peer::Node(NodeId(513)), Some(7))),
            Frame::Hello(greeting(Peer::Client, None)),
            Frame::Challenge(greeting(Peer::Node(NodeId(1)), Some(0))),
            Frame::Proof([1; PROOF]),
            Frame::Welcome([2; PROOF]),
            Frame::Mailbox(None),
            Frame::Mailbox(Some(grant)),
            Frame::Ready(true),
        ]
    }

    #[test]
    fn frames_are_read_as_they_were_written_and_not_before_they_are_whole() {
        for frame in frames() {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            for cut in 0..bytes.len() {
                assert_eq!(Frame::decode(&bytes[..cut]), Ok(None), "{frame:?} at {cut}");
            }
            let end = bytes.len();
            bytes.push(77);
            assert_eq!(Frame::decode(&bytes), Ok(Some((frame, end))));
        }
    }

    /// Other versions rely on these bytes: they must never change.
    #[test]
    fn a_refusal_is_the_same_in_all_versions() {
        let mut bytes = Vec::new();
        Frame::Refusal(RefusalCode::Version, "no".into()).encode(&mut bytes);
        assert_eq!(bytes, *b"\x89kumiki\n\x03\0\0\0\x04\0\0\0\x01\0no");
        bytes[8] = 200;
        bytes[16] = 99;
        let read = Frame::Refusal(RefusalCode::Other, "no".into());
        assert_eq!(Frame::decode(&bytes), Ok(Some((read, 20))));
    }

    #[test]
    fn flaws_are_found_early() {
        assert_eq!(Frame::decode(b"G"), Err(FrameFlaw::Magic));
        assert_eq!(Frame::decode(b"\x89kumiki\r"), Err(FrameFlaw::Magic));
        let mut bytes = Vec::new();
        Frame::Proof([0; PROOF]).encode(&mut bytes);
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes[..HEADER].to_vec();
            bytes[at] = byte;
            Frame::decode(&bytes)
        };
        assert_eq!(with(8, 1), Err(FrameFlaw::Version(1)));
        assert_eq!(with(11, 1), Err(FrameFlaw::Meaning));
        assert_eq!(with(14, 1), Err(FrameFlaw::Meaning), "a long body");
        bytes[10] = 9;
        assert_eq!(Frame::decode(&bytes), Err(FrameFlaw::Meaning), "a kind");
    }

    #[test]
    fn a_refusal_s_text_is_clipped_and_cannot_drive_a_terminal() {
        let mut bytes = Vec::new();
        let text = format!("\x1b[2J{}", "ä".repeat(BODY_MAX));
        Frame::Refusal(RefusalCode::Busy, text).encode(&mut bytes);
        assert!(bytes.len() <= HEADER + BODY_MAX);
        let Ok(Some((Frame::Refusal(RefusalCode::Busy, text), _))) = Frame::decode(&bytes) else {
            panic!("no refusal");
        };
        assert!(text.starts_with(" [2Jää") && text.ends_with('ä'), "{text}");
    }
}
