//! Reads envelopes from one connection, in frames or without.
//!
//! Invariants:
//! 1. The input given to [`Unpacker::next`] starts at the end of what was last consumed, and after
//!    "not yet" with the same bytes again and more behind them.
//! 2. The results are whole envelopes of the right direction within the limits, in place if they
//!    lie in one piece.
//! 3. Only a large envelope of several frames is copied, and only the part that has arrived is
//!    kept: nothing is allocated for a length that has only been announced.
//! 4. The envelopes do not depend on the pieces in which the input came.

use crate::compression::{COMPRESSED_HEADER_LEN, CompressedHeader, CompressionError};
use crate::envelope::{Direction, EnvelopeError, Header, Limits};
use crate::frame::{self, FRAME_HEADER_LEN, FrameError, FrameHeader};
use crate::packer::Framing;

/// The reason why a connection's input cannot be understood any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// An invalid envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// A frame that is damaged.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A compressed body that is damaged, or too long.
    #[error(transparent)]
    Compression(#[from] CompressionError),
}

/// Some whole envelopes.
#[derive(PartialEq, Eq, Debug)]
pub struct Unpacked<'a> {
    /// Their length in the input, frames included.
    pub consumed: usize,
    /// Envelopes, one behind the other; none when the input was a piece of a large one. They may
    /// be changed in place, for example to have other streams.
    pub envelopes: &'a mut [u8],
}

/// Finds envelopes in the input of a connection.
#[derive(Debug)]
pub struct Unpacker {
    direction: Direction,
    limits: Limits,
    framing: Framing,
    /// The part of an envelope of several frames that has arrived.
    large: Vec<u8>,
    /// Its full length; zero if none is under way.
    large_len: usize,
    wanted: usize,
    /// The expanded payload of the last frame, if frames are compressed.
    expanded: Vec<u8>,
}

impl Unpacker {
    /// Creates an unpacker of messages in `direction`, without frames at first.
    #[must_use]
    pub fn new(direction: Direction, limits: Limits) -> Unpacker {
        Unpacker {
            direction,
            limits,
            framing: Framing::Plain,
            large: Vec::new(),
            large_len: 0,
            wanted: 0,
            expanded: Vec::new(),
        }
    }

    /// Expects frames from here on: in version 5, when STARTUP has been answered.
    pub fn expect_frames(&mut self) {
        self.expect(Framing::Frames);
    }

    /// Sets the framing of envelopes from here on.
    pub fn expect(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Sets the limits of envelopes from here on: for example, those of a client that has
    /// authenticated.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns the framing of envelopes.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the least length of the input at which there can be a result; known after "not yet".
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Returns `true` if an envelope of several frames has begun and its rest has not arrived.
    #[must_use]
    pub fn in_large_envelope(&self) -> bool {
        self.large_len > 0
    }

    /// Returns the whole envelopes at the start of `input`, or `None` when more input is needed
    /// (invariant 1 says how to continue).
    ///
    /// # Errors
    /// The input is no envelope. The unpacker must not be used afterwards.
    pub fn next<'a>(
        &'a mut self,
        input: &'a mut [u8],
    ) -> Result<Option<Unpacked<'a>>, StreamError> {
        match self.framing {
            Framing::Plain => self.next_plain(input),
            Framing::Frames => self.next_frame(input),
            Framing::CompressedFrames => self.next_compressed(input),
        }
    }

    fn next_plain<'a>(&mut self, input: &'a mut [u8]) -> Result<Option<Unpacked<'a>>, StreamError> {
        let (end, error) = self.whole_envelopes(input);
        match error {
            // The envelopes before the error are valid; the error comes again at the next call.
            Some(error) if end == 0 => Err(error.into()),
            None if end == 0 => Ok(None),
            _ => Ok(Some(Unpacked {
                consumed: end,
                envelopes: &mut input[..end],
            })),
        }
    }

    /// Returns the end of the last whole envelope, and the fault of the next one.
    fn whole_envelopes(&mut self, input: &[u8]) -> (usize, Option<EnvelopeError>) {
        let mut at = 0;
        loop {
            match Header::parse(&input[at..], self.direction, &self.limits) {
                Ok(Some(header)) if header.envelope_len() <= input.len() - at => {
                    at += header.envelope_len();
                }
                Ok(header) => {
                    self.wanted = header.map_or(crate::envelope::HEADER_LEN, |h| h.envelope_len());
                    return (at, None);
                }
                Err(error) => return (at, Some(error)),
            }
        }
    }

    fn next_frame<'a>(
        &'a mut self,
        input: &'a mut [u8],
    ) -> Result<Option<Unpacked<'a>>, StreamError> {
        if self.large_len == 0 && self.large.capacity() > 0 {
            // The large envelope has been returned. It may have been huge.
            self.large = Vec::new();
        }
        let Some(header) = FrameHeader::parse(input)? else {
            self.wanted = FRAME_HEADER_LEN;
            return Ok(None);
        };
        self.check_place(header.self_contained, header.payload_len)?;
        let consumed = header.frame_len();
        if input.len() < consumed {
            self.wanted = consumed;
            return Ok(None);
        }
        header.check_payload(input)?;
        let payload = &mut input[FRAME_HEADER_LEN..FRAME_HEADER_LEN + header.payload_len];
        let envelopes = if header.self_contained {
            self.check_whole(payload)?;
            payload
        } else {
            self.piece(payload)?
        };
        Ok(Some(Unpacked {
            consumed,
            envelopes,
        }))
    }

    fn next_compressed<'a>(
        &'a mut self,
        input: &'a mut [u8],
    ) -> Result<Option<Unpacked<'a>>, StreamError> {
        if self.large_len == 0 && self.large.capacity() > 0 {
            self.large = Vec::new();
        }
        let Some(header) = CompressedHeader::parse(input)? else {
            self.wanted = COMPRESSED_HEADER_LEN;
            return Ok(None);
        };
        self.check_place(header.self_contained, header.contents_len())?;
        let consumed = header.frame_len();
        if input.len() < consumed {
            self.wanted = consumed;
            return Ok(None);
        }
        let behind = &input[COMPRESSED_HEADER_LEN..];
        frame::check_payload(behind, header.payload_len)?;
        let mut expanded = std::mem::take(&mut self.expanded);
        expanded.clear();
        header.expand(&behind[..header.payload_len], &mut expanded)?;
        let envelopes = if header.self_contained {
            self.check_whole(&expanded)?;
            self.expanded = expanded;
            &mut self.expanded[..]
        } else {
            self.piece(&expanded)?
        };
        Ok(Some(Unpacked {
            consumed,
            envelopes,
        }))
    }

    /// Checks that the payload of a self-contained frame consists of whole envelopes.
    fn check_whole(&mut self, payload: &[u8]) -> Result<(), StreamError> {
        match self.whole_envelopes(payload) {
            (_, Some(error)) => Err(error.into()),
            (end, None) if end < payload.len() => Err(FrameError::Cut.into()),
            _ => Ok(()),
        }
    }

    /// Checks that such a frame may stand here, before its payload has come.
    fn check_place(&self, self_contained: bool, len: usize) -> Result<(), FrameError> {
        if self.large_len == 0 {
            return Ok(());
        }
        if self_contained {
            return Err(FrameError::Interrupted);
        }
        if len > self.large_len - self.large.len() {
            return Err(FrameError::Overrun);
        }
        Ok(())
    }

    /// Takes a piece of a large envelope. Returns the envelope if it was the last one.
    fn piece(&mut self, payload: &[u8]) -> Result<&mut [u8], StreamError> {
        if self.large_len == 0 {
            let header = Header::parse(payload, self.direction, &self.limits)?;
            let header = header.ok_or(FrameError::NoHeader)?;
            if payload.len() > header.envelope_len() {
                return Err(FrameError::Overrun.into());
            }
            self.large_len = header.envelope_len();
        }
        self.large.extend_from_slice(payload);
        if self.large.len() < self.large_len {
            return Ok(&mut []);
        }
        self.large_len = 0;
        Ok(&mut self.large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{HEADER_LEN, StreamId};
    use crate::frame::MAX_PAYLOAD;
    use crate::packer::Packer;

    fn envelope(stream: i16, body_len: usize) -> Vec<u8> {
        let mut envelope = vec![5, 0, 0, 0, 7];
        crate::envelope::set_stream(&mut envelope, StreamId(stream));
        envelope.extend_from_slice(&(body_len as u32).to_be_bytes());
        envelope.resize(HEADER_LEN + body_len, stream as u8);
        envelope
    }

    fn unpacker(framing: Framing) -> Unpacker {
        let mut unpacker = Unpacker::new(Direction::Request, Limits { body: 1 << 20 });
        unpacker.expect(framing);
        unpacker
    }

    fn frame(payload: &[u8], self_contained: bool) -> Vec<u8> {
        let header = FrameHeader {
            self_contained,
            payload_len: payload.len(),
        };
        let trailer = crate::frame::trailer(payload);
        [&header.to_bytes()[..], payload, &trailer].concat()
    }

    fn error(frames: &[Vec<u8>]) -> StreamError {
        let mut input = frames.concat();
        let mut unpacker = unpacker(Framing::Frames);
        let mut at = 0;
        loop {
            let next = unpacker.next(&mut input[at..]);
            match next {
                Ok(unpacked) => at += unpacked.expect("an error before the end").consumed,
                Err(error) => return error,
            }
        }
    }

    #[test]
    fn what_was_packed_comes_out_again() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..60 {
            let framing = [Framing::Plain, Framing::Frames, Framing::CompressedFrames][round % 3];
            let envelopes: Vec<Vec<u8>> = (0..random.usize(1..12))
                .map(|i| {
                    let longest = [50, 70_000, 400_000][random.usize(..3)];
                    envelope(i as i16, random.usize(..longest))
                })
                .collect();
            let mut bytes = Vec::new();
            let mut packer = Packer::new(&mut bytes, framing);
            envelopes.iter().for_each(|envelope| packer.push(envelope));
            drop(packer);
            let cuts: Vec<usize> = (0..random.usize(..8))
                .map(|_| random.usize(..bytes.len()))
                .collect();
            let (got, error) = crate::fuzz::unpack_in_pieces(&bytes, &cuts, unpacker(framing));
            assert_eq!(error, None);
            assert!(got == envelopes.concat(), "round {round}: other bytes");
        }
    }

    #[test]
    fn envelopes_before_an_error_are_good() {
        let mut input = [envelope(1, 5), vec![9]].concat();
        let mut unpacker = unpacker(Framing::Plain);
        let unpacked = unpacker.next(&mut input).unwrap().unwrap();
        assert_eq!(unpacked.consumed, 14);
        let error = unpacker.next(&mut input[14..]).unwrap_err();
        assert_eq!(error, EnvelopeError::Version(9).into());
    }

    #[test]
    fn how_much_is_wanted_is_told() {
        let mut input = envelope(1, 500);
        let mut plain = unpacker(Framing::Plain);
        assert_eq!(plain.next(&mut input[..4]), Ok(None));
        assert_eq!(plain.wanted(), 9);
        assert_eq!(plain.next(&mut input[..300]), Ok(None));
        assert_eq!(plain.wanted(), 509);
        let mut input = frame(&input, true);
        let mut framed = unpacker(Framing::Frames);
        assert_eq!(framed.next(&mut input[..3]), Ok(None));
        assert_eq!(framed.wanted(), 6);
        assert_eq!(framed.next(&mut input[..300]), Ok(None));
        assert_eq!(framed.wanted(), 519);
    }

    #[test]
    fn frames_that_do_not_fit_together_are_refused() {
        let large = envelope(1, MAX_PAYLOAD + 100);
        let (first, second) = large.split_at(MAX_PAYLOAD);
        let small = envelope(2, 3);
        let begun = || frame(first, false);
        for (frames, expected) in [
            (vec![frame(&small[..11], true)], FrameError::Cut),
            (vec![frame(&small[..8], false)], FrameError::NoHeader),
            (
                vec![frame(&[&small[..], &small].concat(), false)],
                FrameError::Overrun,
            ),
            (vec![begun(), frame(&small, true)], FrameError::Interrupted),
            (
                vec![begun(), frame(&[second, &small].concat(), false)],
                FrameError::Overrun,
            ),
        ] {
            assert_eq!(error(&frames), expected.into());
        }
        let mut announced = envelope(4, 0);
        announced[5..9].copy_from_slice(&(2u32 << 20).to_be_bytes());
        assert!(matches!(
            error(&[frame(&announced, false)]),
            StreamError::Envelope(EnvelopeError::TooLong { .. })
        ));
    }

    #[test]
    fn an_empty_frame_is_nothing() {
        let mut input = frame(b"", true);
        let mut unpacker = unpacker(Framing::Frames);
        let unpacked = unpacker.next(&mut input).unwrap().unwrap();
        assert_eq!((unpacked.consumed, unpacked.envelopes.len()), (10, 0));
    }
}
