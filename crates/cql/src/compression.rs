//! Compression of bodies (before version 5) and of frames (since then).
//!
//! | what | algorithm | bytes |
//! |---|---|---|
//! | body of an envelope, versions 3 and 4 | LZ4 | length without compression (4 bytes, big-endian), LZ4 block |
//! | the same | Snappy | a Snappy block, which begins with that length |
//! | payload of a frame, version 5 | LZ4 | LZ4 block; the frame's header has both lengths |
//!
//! A header of a frame with compression (little-endian):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 5 | bits 0–16: length of the payload; 17–33: its length without compression, 0 for one that is not compressed; 34: self-contained; the rest unused |
//! | 5 | 3 | CRC-24 of the five bytes before |

use crate::checksum::crc24;
use crate::envelope::{Flags, HEADER_LEN, Limits};
use crate::frame::{FRAME_TRAILER_LEN, FrameError, MAX_PAYLOAD};

/// The length of the header of a frame with compression, in bytes.
pub(crate) const COMPRESSED_HEADER_LEN: usize = 8;
/// Shorter bodies are not compressed: it would save less than it costs.
const SHORTEST: usize = 128;
/// The length of the field before an LZ4 block of a body, in bytes.
const LZ4_LEN: usize = 4;
const SELF_CONTAINED: u64 = 1 << 34;

/// How bodies and frames are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// LZ4, in all versions.
    Lz4,
    /// Snappy, before version 5.
    Snappy,
}

/// The reason why a compressed body is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompressionError {
    /// It cannot be decompressed.
    #[error("a compressed body is corrupt")]
    Corrupt,
    /// It is longer than the limit.
    #[error(
        "a compressed body of {len} bytes without compression is too long: {limit} bytes are allowed"
    )]
    TooLong {
        /// Its length without compression in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Compression {
    /// Returns the algorithm with this name, in the spelling of STARTUP.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Compression> {
        match name {
            "lz4" => Some(Compression::Lz4),
            "snappy" => Some(Compression::Snappy),
            _ => None,
        }
    }

    /// Returns an envelope whose body is not compressed, made from one whose body is.
    ///
    /// # Errors
    /// Returns an error if the body is not of this algorithm, or is longer than `limits` allow.
    ///
    /// # Panics
    /// Panics if the envelope is shorter than a header.
    pub fn expand(self, envelope: &[u8], limits: &Limits) -> Result<Vec<u8>, CompressionError> {
        let (header, body) = envelope.split_at(HEADER_LEN);
        let (len, block) = match self {
            Compression::Lz4 => {
                let (len, block) = body
                    .split_first_chunk::<LZ4_LEN>()
                    .ok_or(CompressionError::Corrupt)?;
                (u32::from_be_bytes(*len) as usize, block)
            }
            Compression::Snappy => {
                let len = snap::raw::decompress_len(body);
                (len.map_err(|_| CompressionError::Corrupt)?, body)
            }
        };
        let limit = limits.body;
        if len > limit {
            return Err(CompressionError::TooLong { len, limit });
        }
        let mut out = vec![0; HEADER_LEN + len];
        out[..HEADER_LEN].copy_from_slice(header);
        let room = &mut out[HEADER_LEN..];
        let written = match self {
            Compression::Lz4 => lz4_flex::block::decompress_into(block, room).ok(),
            Compression::Snappy => snap::raw::Decoder::new().decompress(block, room).ok(),
        };
        if written != Some(len) {
            return Err(CompressionError::Corrupt);
        }
        out[1] &= !Flags::COMPRESSED.0;
        set_len(&mut out, len);
        Ok(out)
    }

    /// Returns an envelope whose body is compressed, if that makes it shorter.
    ///
    /// # Panics
    /// Panics if the envelope is shorter than a header.
    #[must_use]
    pub fn shorten(self, envelope: &[u8]) -> Option<Vec<u8>> {
        let (header, body) = envelope.split_at(HEADER_LEN);
        if body.len() < SHORTEST {
            return None;
        }
        let mut out = header.to_vec();
        match self {
            Compression::Lz4 => {
                let len = u32::try_from(body.len()).ok()?;
                out.extend_from_slice(&len.to_be_bytes());
                out.append(&mut lz4_flex::block::compress(body));
            }
            Compression::Snappy => {
                out.append(&mut snap::raw::Encoder::new().compress_vec(body).ok()?);
            }
        }
        if out.len() >= envelope.len() {
            return None;
        }
        out[1] |= Flags::COMPRESSED.0;
        let len = out.len() - HEADER_LEN;
        set_len(&mut out, len);
        Some(out)
    }
}

fn set_len(envelope: &mut [u8], len: usize) {
    let len = u32::try_from(len).expect("the length of a body has four bytes");
    envelope[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
}

/// The header of a frame with compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CompressedHeader {
    /// `true` if the payload consists of whole envelopes.
    pub(crate) self_contained: bool,
    /// The length of the payload in bytes.
    pub(crate) payload_len: usize,
    /// The length of the payload without compression; `None`: it is not compressed.
    pub(crate) expanded_len: Option<usize>,
}

impl CompressedHeader {
    /// Returns the header at the start of `input`, or `None` when more input is needed.
    ///
    /// # Errors
    /// Its checksum is wrong.
    pub(crate) fn parse(input: &[u8]) -> Result<Option<CompressedHeader>, FrameError> {
        let Some(&[b0, b1, b2, b3, b4, c0, c1, c2]) = input.first_chunk() else {
            return Ok(None);
        };
        let found = u32::from_le_bytes([c0, c1, c2, 0]);
        let expected = crc24(&[b0, b1, b2, b3, b4]);
        if found != expected {
            return Err(FrameError::Header { found, expected });
        }
        let word = u64::from_le_bytes([b0, b1, b2, b3, b4, 0, 0, 0]);
        let field = |shift: u32| (word >> shift) as usize & MAX_PAYLOAD;
        Ok(Some(CompressedHeader {
            self_contained: word & SELF_CONTAINED != 0,
            payload_len: field(0),
            expanded_len: Some(field(17)).filter(|&len| len != 0),
        }))
    }

    fn to_bytes(self) -> [u8; COMPRESSED_HEADER_LEN] {
        let flag = if self.self_contained {
            SELF_CONTAINED
        } else {
            0
        };
        let expanded = self.expanded_len.unwrap_or(0) as u64;
        let word = self.payload_len as u64 | expanded << 17 | flag;
        let [b0, b1, b2, b3, b4, ..] = word.to_le_bytes();
        let [c0, c1, c2, _] = crc24(&[b0, b1, b2, b3, b4]).to_le_bytes();
        [b0, b1, b2, b3, b4, c0, c1, c2]
    }

    /// Returns the length of the whole frame in bytes.
    pub(crate) fn frame_len(self) -> usize {
        COMPRESSED_HEADER_LEN + self.payload_len + FRAME_TRAILER_LEN
    }

    /// Returns the length of the envelopes in it, in bytes.
    pub(crate) fn contents_len(self) -> usize {
        self.expanded_len.unwrap_or(self.payload_len)
    }

    /// Appends the payload without compression to `out`.
    ///
    /// # Errors
    /// It cannot be decompressed to the length that the header has.
    pub(crate) fn expand(self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let Some(len) = self.expanded_len else {
            out.extend_from_slice(payload);
            return Ok(());
        };
        let begin = out.len();
        out.resize(begin + len, 0);
        match lz4_flex::block::decompress_into(payload, &mut out[begin..]) {
            Ok(written) if written == len => Ok(()),
            _ => Err(FrameError::Compression),
        }
    }
}

/// Compresses the payload that lies in `out` behind room for a header at `start`, and fills in the header.
pub(crate) fn close_frame(out: &mut Vec<u8>, start: usize, self_contained: bool) {
    let payload = start + COMPRESSED_HEADER_LEN;
    let len = out.len() - payload;
    let compressed = lz4_flex::block::compress(&out[payload..]);
    let expanded_len = (compressed.len() < len).then_some(len);
    if expanded_len.is_some() {
        out.truncate(payload);
        out.extend_from_slice(&compressed);
    }
    let header = CompressedHeader {
        self_contained,
        payload_len: out.len() - payload,
        expanded_len,
    };
    out[start..payload].copy_from_slice(&header.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { body: 1 << 20 };

    fn envelope(body: &[u8]) -> Vec<u8> {
        let mut envelope = vec![4, Flags::TRACING.0, 0, 1, 7, 0, 0, 0, 0];
        envelope.extend_from_slice(body);
        set_len(&mut envelope, body.len());
        envelope
    }

    #[test]
    fn what_is_shortened_is_expanded_again() {
        let long = envelope(&b"kumiki ".repeat(1000));
        for compression in [Compression::Lz4, Compression::Snappy] {
            let short = compression.shorten(&long).expect("it repeats itself");
            assert!(short.len() * 4 < long.len(), "{}", short.len());
            assert_eq!(short[1], Flags::TRACING.0 | Flags::COMPRESSED.0);
            assert_eq!(compression.expand(&short, &LIMITS).as_ref(), Ok(&long));
            // A payload that does not become shorter is not compressed.
            let random: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
                .take(500)
                .collect();
            assert_eq!(compression.shorten(&envelope(&random)), None);
            assert_eq!(compression.shorten(&envelope(b"short")), None);
            for end in HEADER_LEN..short.len() {
                let cut = compression.expand(&short[..end], &LIMITS);
                assert!(cut.is_err(), "{end} bytes of it");
            }
        }
    }

    /// A few bytes must not allocate the memory that they announce.
    #[test]
    fn a_claim_beyond_the_limit_is_refused() {
        let claims = |len: usize| CompressionError::TooLong {
            len,
            limit: LIMITS.body,
        };
        let lz4 = envelope(&[0x7f, 0xff, 0xff, 0xff, 0]);
        assert_eq!(
            Compression::Lz4.expand(&lz4, &LIMITS),
            Err(claims(0x7fff_ffff))
        );
        let snappy = envelope(&[0xff, 0xff, 0xff, 0xff, 0x07, 0]);
        assert_eq!(
            Compression::Snappy.expand(&snappy, &LIMITS),
            Err(claims(0x7fff_ffff))
        );
        let nothing = envelope(&[]);
        assert_eq!(
            Compression::Lz4.expand(&nothing, &LIMITS),
            Err(CompressionError::Corrupt)
        );
    }

    #[test]
    fn a_header_has_both_lengths_and_its_checksum() {
        for header in [
            CompressedHeader {
                self_contained: true,
                payload_len: 9,
                expanded_len: None,
            },
            CompressedHeader {
                self_contained: false,
                payload_len: MAX_PAYLOAD - 1,
                expanded_len: Some(MAX_PAYLOAD),
            },
        ] {
            let bytes = header.to_bytes();
            assert_eq!(CompressedHeader::parse(&bytes), Ok(Some(header)));
            assert_eq!(CompressedHeader::parse(&bytes[..7]), Ok(None));
            for bit in 0..64 {
                let mut wrong = bytes;
                wrong[bit / 8] ^= 1 << (bit % 8);
                let error = CompressedHeader::parse(&wrong).unwrap_err();
                assert!(matches!(error, FrameError::Header { .. }), "bit {bit}");
            }
        }
    }
}
