//! Entry points for fuzzing: each takes arbitrary bytes and panics if the parsers break a promise.

use crate::bound::Bound;
use crate::compression::Compression;
use crate::envelope::{Direction, Envelope, Flags, HEADER_LEN, Limits, Opcode};
use crate::frame::{self, FrameHeader};
use crate::packer::{Framing, Packer};
use crate::paging;
use crate::request::{Execute, Query, Request, RequestMessage};
use crate::response::{Response, ResponseMessage, ResultBody, Rows, peek_error_code};
use crate::statement::{
    Lexer, LockStatement, LockVerb, Select, StatementKind, Summary, is_idempotent,
};
use crate::token::{Token, named_partition_key, partition_key};
use crate::unpacker::{StreamError, Unpacker};
use crate::value::CqlValue;

/// Small, so that inputs reach it.
const LIMITS: Limits = Limits { body: 64 * 1024 };
/// The number of bytes before the input itself that choose the cuts.
const CUTS: usize = 4;

/// Unpacks `bytes` as if they came in pieces that end at `cuts`. Returns all envelopes, and the
/// error that ended them.
///
/// # Panics
/// Panics if the unpacker claims to have consumed more than it was given.
#[must_use]
pub fn unpack_in_pieces(
    bytes: &[u8],
    cuts: &[usize],
    mut unpacker: Unpacker,
) -> (Vec<u8>, Option<StreamError>) {
    let mut cuts: Vec<usize> = cuts.iter().map(|&cut| cut.min(bytes.len())).collect();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let mut buffer = Vec::new();
    let mut envelopes = Vec::new();
    let mut given = 0;
    for cut in cuts {
        buffer.extend_from_slice(&bytes[given..cut]);
        given = cut;
        loop {
            match unpacker.next(&mut buffer) {
                Ok(Some(unpacked)) => {
                    let consumed = unpacked.consumed;
                    envelopes.extend_from_slice(unpacked.envelopes);
                    assert!(0 < consumed && consumed <= buffer.len(), "beyond the input");
                    buffer.drain(..consumed);
                }
                Ok(None) => {
                    assert!(unpacker.wanted() > buffer.len(), "it wants what it has");
                    break;
                }
                Err(error) => return (envelopes, Some(error)),
            }
        }
    }
    (envelopes, None)
}

/// Unpacks `bytes` plain, as frames, and as payloads of frames, whole and in pieces, and checks
/// that the pieces make no difference and that the results can be packed again. The first bytes
/// choose the cuts.
///
/// # Panics
/// Panics if a check fails.
pub fn fuzz_frames(bytes: &[u8]) {
    let cuts: Vec<usize> = bytes
        .iter()
        .take(CUTS)
        .map(|&b| usize::from(b) * 3)
        .collect();
    let bytes = bytes.get(CUTS..).unwrap_or(&[]);
    check_pieces(bytes, &cuts, Framing::Plain);
    check_pieces(bytes, &cuts, Framing::Frames);
    check_pieces(bytes, &cuts, Framing::CompressedFrames);
    for compression in [Compression::Lz4, Compression::Snappy] {
        check_compression(compression, bytes);
    }
    for self_contained in [true, false] {
        check_pieces(
            &in_frames(bytes, &cuts, self_contained),
            &cuts,
            Framing::Frames,
        );
    }
}

/// Returns frames with right checksums, whose payloads are the pieces of `bytes` that end at
/// `cuts`.
fn in_frames(bytes: &[u8], cuts: &[usize], self_contained: bool) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    for piece in cuts.iter().copied().chain([frame::MAX_PAYLOAD]) {
        let (payload, behind) = rest.split_at(piece.min(rest.len()));
        rest = behind;
        let header = FrameHeader {
            self_contained,
            payload_len: payload.len(),
        };
        frames.extend_from_slice(&header.to_bytes());
        frames.extend_from_slice(payload);
        frames.extend_from_slice(&frame::trailer(payload));
    }
    frames
}

/// Expands `bytes` as a compressed envelope, and checks that a shortened envelope is expanded to
/// the same.
fn check_compression(compression: Compression, bytes: &[u8]) {
    let mut envelope = vec![0; HEADER_LEN];
    envelope.extend_from_slice(bytes);
    if let Ok(expanded) = compression.expand(&envelope, &LIMITS) {
        assert!(
            expanded.len() <= HEADER_LEN + LIMITS.body,
            "longer than it may be"
        );
    }
    let len = u32::try_from(bytes.len()).expect("inputs are short");
    envelope[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
    if let Some(short) = compression.shorten(&envelope) {
        let expanded = compression.expand(&short, &Limits { body: usize::MAX });
        assert_eq!(expanded, Ok(envelope), "another envelope");
    }
}

fn check_pieces(bytes: &[u8], cuts: &[usize], framing: Framing) {
    for direction in [Direction::Request, Direction::Response] {
        let unpacker = || {
            let mut unpacker = Unpacker::new(direction, LIMITS);
            unpacker.expect(framing);
            unpacker
        };
        let whole = unpack_in_pieces(bytes, &[], unpacker());
        let pieces = unpack_in_pieces(bytes, cuts, unpacker());
        assert_eq!(whole, pieces, "envelopes differ by the pieces of {bytes:?}");
        let mut packed = Vec::new();
        let mut packer = Packer::new(&mut packed, framing);
        each_envelope(&whole.0, direction, |envelope| packer.push(envelope));
        drop(packer);
        let again = unpack_in_pieces(&packed, cuts, unpacker());
        assert_eq!(again, (whole.0, None), "packed envelopes differ");
    }
}

/// Calls `each` with every whole envelope; bytes behind the last one are ignored.
fn each_envelope(bytes: &[u8], direction: Direction, mut each: impl FnMut(&[u8])) {
    let mut rest = bytes;
    while let Ok(Some(envelope)) = Envelope::split(rest, direction, &LIMITS) {
        let (bytes, behind) = rest.split_at(envelope.header.envelope_len());
        each(bytes);
        rest = behind;
    }
}

/// Returns the same bytes with the right length in the last envelope's header: otherwise hardly any
/// mutation would be decoded.
fn with_right_length(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let len_at = |start: usize| start + HEADER_LEN - 4..start + HEADER_LEN;
    let mut start = 0;
    while let Some(body) = bytes.len().checked_sub(start + HEADER_LEN) {
        let len = bytes[len_at(start)].try_into().expect("four bytes");
        let len = u32::from_be_bytes(len) as usize;
        // Bytes that cannot be another envelope of the connection belong to this one.
        if len >= body || bytes[start + HEADER_LEN + len] != bytes[start] {
            bytes[len_at(start)].copy_from_slice(&(body as u32).to_be_bytes());
            break;
        }
        start += HEADER_LEN + len;
    }
    bytes
}

/// Decodes `bytes` as requests, and checks that each decoded request is written and decoded to the
/// same, and that the quick looks at a request agree with the decoder.
///
/// # Panics
/// Panics if a check fails.
pub fn fuzz_requests(bytes: &[u8]) {
    each_envelope(&with_right_length(bytes), Direction::Request, |bytes| {
        let envelope = whole(bytes, Direction::Request);
        let decoded = RequestMessage::decode(envelope);
        match envelope.header.opcode {
            Opcode::Query => {
                let query = Query::decode(&envelope);
                assert_eq!(query.is_ok(), decoded.is_ok());
            }
            Opcode::Execute => check_execute(&envelope, decoded.is_ok()),
            _ => {}
        }
        let Ok(message) = decoded else { return };
        if let Request::Query(query) = &message.request {
            fuzz_statements(query.text.as_bytes());
        }
        let header = envelope.header;
        let mut written = Vec::new();
        message.write(
            &mut written,
            header.version,
            header.stream,
            Flags::default(),
        );
        let again = RequestMessage::decode(whole(&written, Direction::Request));
        assert_eq!(again, Ok(message), "a request that was written");
    });
}

fn check_execute(envelope: &Envelope<'_>, decodes: bool) {
    let execute = Execute::decode(envelope);
    assert_eq!(execute.is_ok(), decodes);
    let Ok(execute) = execute else { return };
    if let Some(state) = execute.parameters.paging_state
        && paging::is_readable(state)
    {
        let longer = [state, b"\0"].concat();
        assert!(!paging::is_readable(&longer), "two states in one");
    }
    let values = execute.parameters.values;
    assert_eq!(values.iter().count(), values.len());
    let mut scratch = Vec::new();
    for columns in [&[][..], &[0], &[1, 0]] {
        if let Ok(key) = partition_key(&values, columns, &mut scratch) {
            assert_eq!(Token::of_key(key), Token::of_key(key));
        }
    }
    if let Some((Some(name), Bound::Bytes(first))) = values.iter().next() {
        let key = named_partition_key(&values, &[name.to_owned()], &mut scratch);
        assert!(key.is_err() || key == Ok(first));
    }
}

fn whole(bytes: &[u8], direction: Direction) -> Envelope<'_> {
    let limits = Limits::default();
    let envelope = Envelope::split(bytes, direction, &limits);
    envelope.ok().flatten().expect("a whole envelope")
}

/// Decodes `bytes` as responses, and checks that each decoded response is written and decoded to
/// the same.
///
/// # Panics
/// Panics if a check fails.
pub fn fuzz_responses(bytes: &[u8]) {
    each_envelope(&with_right_length(bytes), Direction::Response, |bytes| {
        let envelope = whole(bytes, Direction::Response);
        let decoded = ResponseMessage::decode(envelope);
        if envelope.header.opcode == Opcode::Error && decoded.is_ok() {
            assert!(peek_error_code(&envelope).is_ok());
        }
        let Ok(message) = decoded else { return };
        if let Response::Result(ResultBody::Rows(rows)) = &message.response {
            check_rows(rows);
        }
        let header = envelope.header;
        let mut written = Vec::new();
        message.write(&mut written, header.version, header.stream);
        let again = ResponseMessage::decode(whole(&written, Direction::Response));
        assert_eq!(again, Ok(message), "a response that was written");
    });
}

fn check_rows(rows: &Rows<'_>) {
    assert_eq!(rows.iter().count(), rows.len());
    let Some(columns) = &rows.metadata.columns else {
        return;
    };
    for row in rows.iter() {
        for (column, bytes) in columns.0.iter().zip(row) {
            if let Ok(value) = CqlValue::decode(&column.data_type, bytes) {
                assert!(value.is_of(&column.data_type), "{value:?}");
            }
        }
    }
}

/// Reads `bytes` as a statement in every way, and checks that the ways agree.
///
/// # Panics
/// Panics if they do not.
pub fn fuzz_statements(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut lexer = Lexer::new(text);
    let mut end = 0;
    while let Ok(Some(token)) = lexer.next() {
        assert!(token.at >= end && !token.text.is_empty(), "words in order");
        end = token.at + token.text.len();
        assert_eq!(&text[token.at..end], token.text);
    }
    let summary = Summary::of(text);
    let idempotent = is_idempotent(text);
    if let Ok(select) = Select::parse(text) {
        let summary = summary.as_ref().expect("a read is a statement");
        assert_eq!(summary.kind, StatementKind::Select);
        assert_eq!(summary.tables, [select.table]);
    }
    if let Ok(lock) = LockStatement::parse(text) {
        let summary = summary
            .as_ref()
            .expect("a step of the recipe is a statement");
        let conditional = !matches!(
            lock.verb,
            LockVerb::Select { .. }
                | LockVerb::Delete {
                    condition: None,
                    ..
                }
        );
        assert_eq!(summary.tables, [lock.table]);
        assert_eq!(summary.conditional, conditional);
        assert_eq!(idempotent, !conditional);
    }
}
