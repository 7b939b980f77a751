//! The encoding of envelopes: in the frames of version 5, or without frames.

use bytes::{Bytes, BytesMut};
use cql::{
    Compression, Direction, Flags, Framing, HEADER_LEN, Header, Limits, Packer, StreamError,
    StreamId, Unpacker, Version, set_stream,
};

use crate::runtime::out_batch::OutBatch;

/// Takes whole envelopes from the start of `input`; `None` when more input is needed. They are shared
/// with the input, and not copied, unless one came in several frames.
///
/// # Errors
/// Returns an error if the input is no envelope.
pub(crate) fn take(
    unpacker: &mut Unpacker,
    input: &mut BytesMut,
) -> Result<Option<Bytes>, StreamError> {
    let begin = input.as_ptr().addr();
    let Some(unpacked) = unpacker.next(input)? else {
        return Ok(None);
    };
    let (consumed, len) = (unpacked.consumed, unpacked.envelopes.len());
    let at = unpacked.envelopes.as_ptr().addr().wrapping_sub(begin);
    let in_place = at <= consumed && len <= consumed - at;
    let copied = match in_place {
        true => Bytes::new(),
        false => Bytes::copy_from_slice(unpacked.envelopes),
    };
    let taken = input.split_to(consumed).freeze();
    Ok(Some(match in_place {
        true => taken.slice(at..at + len),
        false => copied,
    }))
}

/// Takes the first of the envelopes that [`take`] has found.
pub(crate) fn next(envelopes: &mut Bytes, direction: Direction) -> Option<(Header, Bytes)> {
    let any = Limits { body: usize::MAX };
    let header = Header::parse(envelopes, direction, &any).ok().flatten()?;
    let len = header.envelope_len();
    (len <= envelopes.len()).then(|| (header, envelopes.split_to(len)))
}

/// Returns the envelope with its body decompressed.
///
/// # Errors
/// Returns an error if the body is not compressed as agreed on, or is too long.
pub(crate) fn expand(
    (header, bytes): (Header, Bytes),
    compression: Option<Compression>,
    limits: &Limits,
) -> Result<(Header, Bytes), StreamError> {
    match compression {
        // In version 5 the flag has no meaning.
        Some(compression)
            if header.flags.has(Flags::COMPRESSED) && header.version < Version::V5 =>
        {
            let expanded: Bytes = compression.expand(&bytes, limits)?.into();
            let header = Header::parse(&expanded, Direction::Request, limits)?;
            Ok((header.expect("it has one"), expanded))
        }
        _ => Ok((header, bytes)),
    }
}

/// Returns the header of an envelope.
pub(crate) fn header_of(bytes: &Bytes, direction: Direction) -> Option<Header> {
    let any = Limits { body: usize::MAX };
    let header = Header::parse(bytes, direction, &any).ok().flatten()?;
    (bytes.len() >= HEADER_LEN).then_some(header)
}

/// Returns the body of an envelope.
pub(crate) fn body(envelope: &Bytes) -> Bytes {
    envelope.slice(HEADER_LEN..)
}

/// Envelopes that are to leave together, in as few frames as possible.
#[derive(Debug, Default)]
pub(crate) struct EnvelopeBatch {
    envelopes: Vec<(StreamId, Bytes)>,
    len: usize,
}

impl EnvelopeBatch {
    /// Puts an envelope after the others; it leaves with this stream.
    pub(crate) fn put(&mut self, stream: StreamId, envelope: Bytes) {
        self.len += envelope.len();
        self.envelopes.push((stream, envelope));
    }

    /// Returns how many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Moves all of it into `pack`. Outside of frames, bodies are compressed if `compression` is set.
    pub(crate) fn seal(
        &mut self,
        framing: Framing,
        compression: Option<Compression>,
        pack: &mut OutBatch,
    ) {
        if self.envelopes.is_empty() {
            return;
        }
        match framing {
            Framing::Plain => {
                for (stream, envelope) in self.envelopes.drain(..) {
                    let shorter = compression.and_then(|how| how.shorten(&envelope));
                    let envelope = shorter.map_or(envelope, Bytes::from);
                    let mut header = [0; HEADER_LEN];
                    header.copy_from_slice(&envelope[..HEADER_LEN]);
                    set_stream(&mut header, stream);
                    pack.put_slice(&header);
                    pack.put(&body(&envelope));
                }
            }
            Framing::Frames | Framing::CompressedFrames => pack.put_with(|out| {
                let mut packer = Packer::new(out, framing);
                for (stream, envelope) in self.envelopes.drain(..) {
                    packer.push_as(&envelope, stream);
                }
            }),
        }
        self.len = 0;
    }
}
