//! Writes envelopes to one connection: as many in a frame as fit.
//!
//! Invariants:
//! 1. Envelopes stay in the order in which they were pushed.
//! 2. They lie in as few frames as that order allows.
//! 3. Each byte of an envelope is copied once, before compression if there is any.

use crate::compression::{self, COMPRESSED_HEADER_LEN};
use crate::envelope::{HEADER_LEN, StreamId, set_stream};
use crate::frame::{FRAME_HEADER_LEN, FrameHeader, MAX_PAYLOAD, trailer};

/// How envelopes travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// One behind the other: before version 5, and in version 5 until STARTUP is answered.
    Plain,
    /// In frames with checksums.
    Frames,
    /// In frames with checksums, whose payloads are compressed.
    CompressedFrames,
}

impl Framing {
    /// Returns the length of a frame's header in bytes.
    fn header_len(self) -> usize {
        match self {
            Framing::Plain => 0,
            Framing::Frames => FRAME_HEADER_LEN,
            Framing::CompressedFrames => COMPRESSED_HEADER_LEN,
        }
    }
}

/// Appends envelopes to a buffer. An open frame is closed when the packer is dropped.
#[derive(Debug)]
pub struct Packer<'o> {
    out: &'o mut Vec<u8>,
    framing: Framing,
    /// The start of the open frame.
    open: Option<usize>,
}

impl<'o> Packer<'o> {
    /// Creates a packer to the end of `out`.
    pub fn new(out: &'o mut Vec<u8>, framing: Framing) -> Packer<'o> {
        Packer {
            out,
            framing,
            open: None,
        }
    }

    /// Appends an envelope unchanged.
    ///
    /// # Panics
    /// Panics if it is shorter than a header.
    pub fn push(&mut self, envelope: &[u8]) {
        assert!(envelope.len() >= HEADER_LEN, "no envelope");
        let (header, body) = envelope.split_at(HEADER_LEN);
        let header = header.try_into().expect("as many bytes as were split off");
        self.append(header, body);
    }

    /// Appends an envelope with another stream.
    ///
    /// # Panics
    /// Panics if it is shorter than a header.
    pub fn push_as(&mut self, envelope: &[u8], stream: StreamId) {
        assert!(envelope.len() >= HEADER_LEN, "no envelope");
        let (header, body) = envelope.split_at(HEADER_LEN);
        let mut header: [u8; HEADER_LEN] = header.try_into().expect("as many as were split off");
        set_stream(&mut header, stream);
        self.append(header, body);
    }

    fn append(&mut self, header: [u8; HEADER_LEN], body: &[u8]) {
        let len = HEADER_LEN + body.len();
        if self.framing != Framing::Plain {
            if len > MAX_PAYLOAD {
                return self.append_large(header, body);
            }
            self.make_room(len);
        }
        self.out.extend_from_slice(&header);
        self.out.extend_from_slice(body);
    }

    /// Opens a frame, unless one is open that has room for `len` bytes.
    fn make_room(&mut self, len: usize) {
        if let Some(start) = self.open
            && self.out.len() - start - self.framing.header_len() + len > MAX_PAYLOAD
        {
            self.close(true);
        }
        if self.open.is_none() {
            self.open_frame();
        }
    }

    fn open_frame(&mut self) {
        self.open = Some(self.out.len());
        let header = self.out.len() + self.framing.header_len();
        self.out.resize(header, 0);
    }

    #[cold]
    fn append_large(&mut self, header: [u8; HEADER_LEN], body: &[u8]) {
        self.close(true);
        let (first, rest) = body.split_at(MAX_PAYLOAD - HEADER_LEN);
        self.open_frame();
        self.out.extend_from_slice(&header);
        self.out.extend_from_slice(first);
        self.close(false);
        for piece in rest.chunks(MAX_PAYLOAD) {
            self.open_frame();
            self.out.extend_from_slice(piece);
            self.close(false);
        }
    }

    /// Fills in the header of the open frame, if there is one, and its checksums.
    fn close(&mut self, self_contained: bool) {
        let Some(start) = self.open.take() else {
            return;
        };
        let payload = start + self.framing.header_len();
        if self.framing == Framing::CompressedFrames {
            compression::close_frame(self.out, start, self_contained);
        } else {
            let header = FrameHeader {
                self_contained,
                payload_len: self.out.len() - payload,
            };
            self.out[start..payload].copy_from_slice(&header.to_bytes());
        }
        let trailer = trailer(&self.out[payload..]);
        self.out.extend_from_slice(&trailer);
    }
}

impl Drop for Packer<'_> {
    fn drop(&mut self) {
        self.close(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of the frames' payloads, and whether they are self-contained.
    fn frames(mut bytes: &[u8]) -> Vec<(usize, bool)> {
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::parse(bytes).unwrap() {
            header.check_payload(bytes).unwrap();
            frames.push((header.payload_len, header.self_contained));
            bytes = &bytes[header.frame_len()..];
        }
        assert!(bytes.is_empty());
        frames
    }

    fn pack(lens: &[usize], framing: Framing) -> Vec<u8> {
        let mut out = Vec::new();
        let mut packer = Packer::new(&mut out, framing);
        for &len in lens {
            packer.push(&vec![7; len]);
        }
        drop(packer);
        out
    }

    #[test]
    fn a_frame_takes_what_fits() {
        let packed = |lens: &[usize]| frames(&pack(lens, Framing::Frames));
        assert_eq!(packed(&[]), []);
        assert_eq!(packed(&[9, 10, 11]), [(30, true)]);
        assert_eq!(packed(&[MAX_PAYLOAD - 9, 9]), [(MAX_PAYLOAD, true)]);
        assert_eq!(
            packed(&[MAX_PAYLOAD - 9, 10, 9]),
            [(MAX_PAYLOAD - 9, true), (19, true)]
        );
        let many = packed(&[100; 2000]);
        assert_eq!(many, [(131_000, true), (69_000, true)]);
    }

    #[test]
    fn a_large_envelope_is_cut_and_stands_alone() {
        let packed = |lens: &[usize]| frames(&pack(lens, Framing::Frames));
        let max = MAX_PAYLOAD;
        assert_eq!(
            packed(&[20, max + 1, 30]),
            [(20, true), (max, false), (1, false), (30, true)]
        );
        assert_eq!(packed(&[2 * max]), [(max, false), (max, false)]);
    }

    #[test]
    fn without_frames_nothing_is_added() {
        assert_eq!(pack(&[9, 300_000], Framing::Plain), vec![7; 300_009]);
    }

    #[test]
    fn a_stream_is_changed_on_the_way() {
        let mut out = Vec::new();
        let mut large = vec![0; MAX_PAYLOAD + 10];
        large[0] = 5;
        let mut packer = Packer::new(&mut out, Framing::Frames);
        packer.push_as(b"\x05\0\0\0\x05\0\0\0\0", StreamId(0x1234));
        packer.push_as(&large, StreamId(0x5678));
        drop(packer);
        assert_eq!(out[6..15], *b"\x05\0\x12\x34\x05\0\0\0\0");
        assert_eq!(out[25..29], *b"\x05\0\x56\x78");
        assert_eq!(frames(&out).len(), 3);
    }
}
