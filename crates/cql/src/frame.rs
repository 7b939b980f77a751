//! Outer frames of version 5: checksummed pieces of the stream in which envelopes travel.
//!
//! | offset | bytes | field (numbers little-endian) |
//! |---|---|---|
//! | 0 | 3 | bits 0–16: length of the payload; bit 17: self-contained; the rest unused |
//! | 3 | 3 | CRC-24 of the three bytes before |
//! | 6 | – | payload, at most 131,071 bytes |
//! | – | 4 | CRC-32 of the payload |
//!
//! A self-contained frame holds whole envelopes, as many as fit. An envelope that is longer than a
//! payload is cut over several frames, which are not self-contained and hold nothing else.
//!
//! STARTUP and its answer travel without frames: the version is not agreed on before. This is the
//! format without compression; the other one is in [`compression`](crate::compression).

use crate::checksum::{crc24, crc32};

/// The longest payload in bytes.
pub const MAX_PAYLOAD: usize = (1 << 17) - 1;
/// The length of a frame's header in bytes.
pub const FRAME_HEADER_LEN: usize = 6;
/// The length of a frame's checksum behind the payload.
pub const FRAME_TRAILER_LEN: usize = 4;

const SELF_CONTAINED: u32 = 1 << 17;

/// The reason why the input is no frame, or none that may stand there. The connection cannot be
/// used afterwards: close it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The header's checksum is wrong.
    #[error("a frame's header is corrupt (checksum {found:#08x}, should be {expected:#08x})")]
    Header {
        /// The checksum that came.
        found: u32,
        /// The checksum computed from the header.
        expected: u32,
    },
    /// The payload's checksum is wrong.
    #[error("a frame's payload is corrupt (checksum {found:#010x}, should be {expected:#010x})")]
    Payload {
        /// The checksum that came.
        found: u32,
        /// The checksum computed from the payload.
        expected: u32,
    },
    /// The payload cannot be decompressed.
    #[error("a frame's compressed payload is corrupt")]
    Compression,
    /// A self-contained frame that ends within an envelope.
    #[error("a self-contained frame ends within an envelope")]
    Cut,
    /// A self-contained frame between the pieces of a large envelope.
    #[error("a self-contained frame came within an envelope of several frames")]
    Interrupted,
    /// The first piece of a large envelope that is shorter than the envelope's header.
    #[error("the first frame of a large envelope ends within its header")]
    NoHeader,
    /// More bytes than the large envelope has.
    #[error("a frame holds more than the rest of its envelope")]
    Overrun,
}

/// A frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// `true` if the payload consists of whole envelopes.
    pub self_contained: bool,
    /// The length of the payload in bytes.
    pub payload_len: usize,
}

impl FrameHeader {
    /// Returns the header at the start of `input`, or `None` when more input is needed.
    ///
    /// # Errors
    /// Its checksum is wrong.
    pub fn parse(input: &[u8]) -> Result<Option<FrameHeader>, FrameError> {
        let Some(&[b0, b1, b2, c0, c1, c2]) = input.first_chunk::<FRAME_HEADER_LEN>() else {
            return Ok(None);
        };
        let found = u32::from_le_bytes([c0, c1, c2, 0]);
        let expected = crc24(&[b0, b1, b2]);
        if found != expected {
            return Err(FrameError::Header { found, expected });
        }
        let word = u32::from_le_bytes([b0, b1, b2, 0]);
        Ok(Some(FrameHeader {
            self_contained: word & SELF_CONTAINED != 0,
            payload_len: word as usize & MAX_PAYLOAD,
        }))
    }

    /// Returns the header's bytes.
    ///
    /// # Panics
    /// Panics if the payload is longer than [`MAX_PAYLOAD`].
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        assert!(self.payload_len <= MAX_PAYLOAD, "a payload too long");
        let flag = if self.self_contained {
            SELF_CONTAINED
        } else {
            0
        };
        let [b0, b1, b2, _] = (self.payload_len as u32 | flag).to_le_bytes();
        let [c0, c1, c2, _] = crc24(&[b0, b1, b2]).to_le_bytes();
        [b0, b1, b2, c0, c1, c2]
    }

    /// Returns the length of the whole frame in bytes.
    #[must_use]
    pub fn frame_len(self) -> usize {
        FRAME_HEADER_LEN + self.payload_len + FRAME_TRAILER_LEN
    }

    /// Checks the payload of the frame that `input` starts with.
    ///
    /// # Errors
    /// Its checksum is wrong.
    ///
    /// # Panics
    /// Panics if `input` does not contain the whole frame.
    pub(crate) fn check_payload(self, input: &[u8]) -> Result<(), FrameError> {
        check_payload(&input[FRAME_HEADER_LEN..], self.payload_len)
    }
}

/// Checks the payload of this length that `input` starts with.
///
/// # Errors
/// Its checksum is wrong.
///
/// # Panics
/// Panics if `input` does not contain the payload and its checksum.
pub(crate) fn check_payload(input: &[u8], payload_len: usize) -> Result<(), FrameError> {
    let (payload, rest) = input.split_at(payload_len);
    let trailer = rest.first_chunk().expect("a whole frame");
    let found = u32::from_le_bytes(*trailer);
    let expected = crc32(payload);
    if found == expected {
        Ok(())
    } else {
        Err(FrameError::Payload { found, expected })
    }
}

/// Returns the checksum that stands behind `payload`.
pub(crate) fn trailer(payload: &[u8]) -> [u8; FRAME_TRAILER_LEN] {
    crc32(payload).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame made by another implementation: nine bytes of OPTIONS in version 5.
    const OPTIONS: [u8; 19] = [
        0x09, 0x00, 0x02, 0xa4, 0xc8, 0xc1, 0x05, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00,
        0x10, 0x86, 0x28, 0x4d,
    ];

    #[test]
    fn a_header_has_its_length_and_its_checksum() {
        let header = FrameHeader {
            self_contained: true,
            payload_len: 9,
        };
        assert_eq!(header.to_bytes(), OPTIONS[..6]);
        for len in 0..FRAME_HEADER_LEN {
            assert_eq!(FrameHeader::parse(&OPTIONS[..len]), Ok(None));
        }
        assert_eq!(FrameHeader::parse(&OPTIONS), Ok(Some(header)));
        assert_eq!(header.frame_len(), OPTIONS.len());
        let large = FrameHeader {
            self_contained: false,
            payload_len: MAX_PAYLOAD,
        };
        assert_eq!(FrameHeader::parse(&large.to_bytes()), Ok(Some(large)));
    }

    #[test]
    fn one_wrong_bit_is_found() {
        for bit in 0..48 {
            let mut bytes = OPTIONS;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = FrameHeader::parse(&bytes).unwrap_err();
            assert!(matches!(error, FrameError::Header { .. }), "bit {bit}");
        }
        let header = FrameHeader::parse(&OPTIONS).unwrap().unwrap();
        assert_eq!(header.check_payload(&OPTIONS), Ok(()));
        for bit in 48..OPTIONS.len() * 8 {
            let mut bytes = OPTIONS;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = header.check_payload(&bytes).unwrap_err();
            assert!(matches!(error, FrameError::Payload { .. }), "bit {bit}");
        }
    }
}
