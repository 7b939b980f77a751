//! Envelopes: a header of nine bytes and a body, in which every message travels.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version; 0x80 is set in responses |
//! | 1 | 1 | [`Flags`] |
//! | 2 | 2 | stream, signed: joins a response to its request; −1 in events |
//! | 4 | 1 | [`Opcode`] |
//! | 5 | 4 | length of the body |
//! | 9 | – | body |
//!
//! Invariants:
//! 1. The end of an envelope depends on its header alone, and not on the pieces in which it came.
//! 2. A header is refused as soon as possible: no reader waits for a body that will be refused.

use std::fmt;

/// The length of a header in bytes.
pub const HEADER_LEN: usize = 9;
/// Set in the version of a response.
const RESPONSE: u8 = 0x80;
const STREAM_AT: usize = 2;
const LENGTH_AT: usize = 5;

/// A version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// Cassandra 2.1 on.
    V3 = 3,
    /// Cassandra 2.2 on: unset values, key columns of prepared statements, warnings.
    V4 = 4,
    /// Cassandra 4.0 on: outer frames with checksums, a keyspace for each request.
    V5 = 5,
}

impl Version {
    /// All versions, the oldest first.
    pub const ALL: [Version; 3] = [Version::V3, Version::V4, Version::V5];

    /// Returns the version with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|v| v.number() == number)
    }

    /// Returns 3, 4 or 5.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// The sender of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// A client, to a server.
    Request,
    /// A server, to a client.
    Response,
}

/// Associates a response with its request. Clients choose numbers that are not negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId(pub i16);

impl StreamId {
    /// The stream of events, which answer no request.
    pub const EVENTS: StreamId = StreamId(-1);
    /// The most requests that can be under way on one connection.
    pub const COUNT: usize = 1 << 15;
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The properties of an envelope. Unknown bits are kept and mean nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The body is compressed (before version 5; since then frames are).
    pub const COMPRESSED: Flags = Flags(0x01);
    /// A request asks for tracing; a response begins with the trace's id.
    pub const TRACING: Flags = Flags(0x02);
    /// The body has a `[bytes map]` before the message.
    pub const CUSTOM_PAYLOAD: Flags = Flags(0x04);
    /// A response has a `[string list]` of warnings.
    pub const WARNING: Flags = Flags(0x08);
    /// The client agrees to a version that is not yet released.
    pub const BETA: Flags = Flags(0x10);

    /// Returns `true` if all of `flags` are set.
    #[must_use]
    pub fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the flags with `flags` set, too.
    #[must_use]
    pub fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // The names are those of the protocol.
pub enum Opcode {
    Error = 0x00,
    Startup = 0x01,
    Ready = 0x02,
    Authenticate = 0x03,
    Options = 0x05,
    Supported = 0x06,
    Query = 0x07,
    Result = 0x08,
    Prepare = 0x09,
    Execute = 0x0a,
    Register = 0x0b,
    Event = 0x0c,
    Batch = 0x0d,
    AuthChallenge = 0x0e,
    AuthResponse = 0x0f,
    AuthSuccess = 0x10,
}

impl Opcode {
    /// Returns the opcode with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Opcode> {
        Some(match number {
            0x00 => Opcode::Error,
            0x01 => Opcode::Startup,
            0x02 => Opcode::Ready,
            0x03 => Opcode::Authenticate,
            0x05 => Opcode::Options,
            0x06 => Opcode::Supported,
            0x07 => Opcode::Query,
            0x08 => Opcode::Result,
            0x09 => Opcode::Prepare,
            0x0a => Opcode::Execute,
            0x0b => Opcode::Register,
            0x0c => Opcode::Event,
            0x0d => Opcode::Batch,
            0x0e => Opcode::AuthChallenge,
            0x0f => Opcode::AuthResponse,
            0x10 => Opcode::AuthSuccess,
            _ => return None,
        })
    }

    /// Returns the side that sends it.
    #[must_use]
    pub fn direction(self) -> Direction {
        match self {
            Opcode::Startup
            | Opcode::Options
            | Opcode::Query
            | Opcode::Prepare
            | Opcode::Execute
            | Opcode::Register
            | Opcode::Batch
            | Opcode::AuthResponse => Direction::Request,
            _ => Direction::Response,
        }
    }
}

/// The limits of an envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest body in bytes.
    pub body: usize,
}

impl Default for Limits {
    /// Returns 256 MiB, the protocol's own limit. Cassandra since 4.1 accepts 16 MiB unless
    /// configured otherwise, and reports a longer body itself.
    fn default() -> Limits {
        Limits {
            body: 256 * 1024 * 1024,
        }
    }
}

/// The reason why the input is no envelope. The bytes behind it cannot be understood: answer it
/// with an error of code [`PROTOCOL_ERROR`](crate::response::PROTOCOL_ERROR) and close the
/// connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Drivers look for this text, and try an older version.
    #[error(
        "Invalid or unsupported protocol version ({0}); supported versions are (3/v3, 4/v4, 5/v5)"
    )]
    Version(u8),
    /// A response where a request should be, or the reverse.
    #[error("Wrong protocol direction (expected a {expected:?}) on stream {stream}")]
    Direction {
        /// The direction that was expected.
        expected: Direction,
        /// The stream of the answer.
        stream: StreamId,
    },
    /// No such message, or none that this side may send.
    #[error("Unknown opcode {opcode} on stream {stream}")]
    Opcode {
        /// Its number.
        opcode: u8,
        /// The stream of the answer.
        stream: StreamId,
    },
    /// Longer than the limit.
    #[error("Request is too big: length {len} exceeds maximum allowed length {limit}")]
    TooLong {
        /// The announced length of the body.
        len: u32,
        /// The limit.
        limit: usize,
        /// The stream of the answer.
        stream: StreamId,
    },
}

impl EnvelopeError {
    /// Returns the stream to answer on: that of the envelope. The place of the stream in an unknown
    /// version is not known; Cassandra answers on stream 0.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        match *self {
            EnvelopeError::Version(_) => StreamId(0),
            EnvelopeError::Direction { stream, .. }
            | EnvelopeError::Opcode { stream, .. }
            | EnvelopeError::TooLong { stream, .. } => stream,
        }
    }
}

/// The bytes before a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The version of this connection.
    pub version: Version,
    /// The properties of the envelope.
    pub flags: Flags,
    /// Associates response and request.
    pub stream: StreamId,
    /// The kind of the message, which determines its sender.
    pub opcode: Opcode,
    /// The length of the body in bytes.
    pub body_len: u32,
}

impl Header {
    /// Returns the header at the start of `input`, or `None` when more input is needed.
    ///
    /// # Errors
    /// `input` does not start with an envelope of that direction within the limits.
    #[inline]
    pub fn parse(
        input: &[u8],
        direction: Direction,
        limits: &Limits,
    ) -> Result<Option<Header>, EnvelopeError> {
        let Some(&first) = input.first() else {
            return Ok(None);
        };
        let number = first & !RESPONSE;
        let version = Version::from_number(number).ok_or(EnvelopeError::Version(number))?;
        let Some(bytes) = input.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let [_, flags, s0, s1, number, l0, l1, l2, l3] = *bytes;
        let stream = StreamId(i16::from_be_bytes([s0, s1]));
        if (first & RESPONSE != 0) != (direction == Direction::Response) {
            return Err(EnvelopeError::Direction {
                expected: direction,
                stream,
            });
        }
        let opcode = Opcode::from_number(number).filter(|opcode| opcode.direction() == direction);
        let opcode = opcode.ok_or(EnvelopeError::Opcode {
            opcode: number,
            stream,
        })?;
        let body_len = u32::from_be_bytes([l0, l1, l2, l3]);
        if body_len as usize > limits.body {
            return Err(EnvelopeError::TooLong {
                len: body_len,
                limit: limits.body,
                stream,
            });
        }
        Ok(Some(Header {
            version,
            flags: Flags(flags),
            stream,
            opcode,
            body_len,
        }))
    }

    /// Returns the length of the whole envelope in bytes.
    #[must_use]
    pub fn envelope_len(&self) -> usize {
        HEADER_LEN + self.body_len as usize
    }

    /// Returns the header's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let direction = match self.opcode.direction() {
            Direction::Request => 0,
            Direction::Response => RESPONSE,
        };
        let [s0, s1] = self.stream.0.to_be_bytes();
        let [l0, l1, l2, l3] = self.body_len.to_be_bytes();
        let version = self.version.number() | direction;
        [
            version,
            self.flags.0,
            s0,
            s1,
            self.opcode as u8,
            l0,
            l1,
            l2,
            l3,
        ]
    }
}

/// A whole envelope, as slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope<'a> {
    /// Its header.
    pub header: Header,
    /// Its body, of the length in the header.
    pub body: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Returns the envelope at the start of `input`, or `None` when more input is needed; the
    /// header then says how much ([`Header::parse`]). Its length is [`Header::envelope_len`].
    ///
    /// # Errors
    /// As [`Header::parse`].
    #[inline]
    pub fn split(
        input: &'a [u8],
        direction: Direction,
        limits: &Limits,
    ) -> Result<Option<Envelope<'a>>, EnvelopeError> {
        let Some(header) = Header::parse(input, direction, limits)? else {
            return Ok(None);
        };
        let body = input.get(HEADER_LEN..header.envelope_len());
        Ok(body.map(|body| Envelope { header, body }))
    }
}

/// Sets the stream of an envelope, in place.
///
/// # Panics
/// Panics if `envelope` is shorter than a header.
#[inline]
pub fn set_stream(envelope: &mut [u8], stream: StreamId) {
    envelope[STREAM_AT..STREAM_AT + 2].copy_from_slice(&stream.0.to_be_bytes());
}

/// Writes an envelope: `header` with the length of the bytes that `body` writes behind it.
///
/// # Panics
/// Panics if the body is 2 GiB long or longer.
pub fn write_envelope(out: &mut Vec<u8>, header: Header, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&header.to_bytes());
    body(out);
    let len = i32::try_from(out.len() - start - HEADER_LEN).expect("a body below 2 GiB");
    let at = start + LENGTH_AT;
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first message of a driver: OPTIONS in version 4.
    const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];

    fn parse(input: &[u8]) -> Result<Option<Header>, EnvelopeError> {
        Header::parse(input, Direction::Request, &Limits { body: 100 })
    }

    #[test]
    fn a_header_is_found_in_any_pieces() {
        for len in 0..HEADER_LEN {
            assert_eq!(parse(&OPTIONS[..len]), Ok(None), "{len} bytes");
        }
        let header = parse(&OPTIONS).unwrap().unwrap();
        assert_eq!(header.version, Version::V4);
        assert_eq!(header.opcode, Opcode::Options);
        assert_eq!(header.envelope_len(), HEADER_LEN);
        assert_eq!(header.to_bytes(), OPTIONS);
    }

    #[test]
    fn a_body_is_waited_for() {
        let input = b"\x85\x08\xff\xff\x0c\0\0\0\x03abcd";
        let split = |len: usize| {
            Envelope::split(&input[..len], Direction::Response, &Limits::default()).unwrap()
        };
        assert_eq!(split(11), None);
        let envelope = split(13).unwrap();
        assert_eq!(envelope.body, b"abc");
        assert_eq!(envelope.header.stream, StreamId::EVENTS);
        assert!(envelope.header.flags.has(Flags::WARNING));
        assert!(!envelope.header.flags.has(Flags::TRACING));
    }

    #[test]
    fn what_is_no_envelope_is_refused_early() {
        assert_eq!(parse(&[6]), Err(EnvelopeError::Version(6)));
        assert_eq!(parse(&[0x86]), Err(EnvelopeError::Version(6)));
        let direction = parse(&[0x84, 0, 1, 2, 5, 0, 0, 0, 0]).unwrap_err();
        assert!(matches!(direction, EnvelopeError::Direction { .. }));
        assert_eq!(direction.stream(), StreamId(0x102));
        for opcode in [0x04, 0x11, 0x08] {
            let error = parse(&[4, 0, 1, 2, opcode, 0, 0, 0, 0]).unwrap_err();
            let stream = StreamId(0x102);
            assert_eq!(error, EnvelopeError::Opcode { opcode, stream });
            assert_eq!(error.stream(), stream);
        }
        let long = parse(&[5, 0, 0, 7, 7, 0, 0, 0, 101]).unwrap_err();
        assert_eq!(
            long.to_string(),
            "Request is too big: length 101 exceeds maximum allowed length 100"
        );
        assert_eq!(long.stream(), StreamId(7));
        let version = EnvelopeError::Version(66).to_string();
        assert!(version.starts_with("Invalid or unsupported protocol version (66)"));
    }

    #[test]
    fn a_stream_is_rewritten_in_place() {
        let mut input = OPTIONS;
        set_stream(&mut input, StreamId(0x7f01));
        let header = parse(&input).unwrap().unwrap();
        assert_eq!(header.stream, StreamId(0x7f01));
        set_stream(&mut input, StreamId(0));
        assert_eq!(input, OPTIONS);
    }

    #[test]
    fn a_body_is_measured_when_it_is_written() {
        let mut out = b"before".to_vec();
        let header = Header {
            body_len: 0,
            ..parse(&OPTIONS).unwrap().unwrap()
        };
        write_envelope(&mut out, header, |out| out.extend_from_slice(b"xyz"));
        assert_eq!(out, b"before\x04\0\0\0\x05\0\0\0\x03xyz");
    }

    #[test]
    fn every_opcode_has_one_number() {
        let known: Vec<u8> = (0..=255)
            .filter(|&n| Opcode::from_number(n).is_some_and(|opcode| opcode as u8 == n))
            .collect();
        assert_eq!(known.len(), 16);
        assert_eq!(known.last(), Some(&0x10));
    }
}
