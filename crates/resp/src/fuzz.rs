//! Entry points for fuzzing: each takes arbitrary bytes and panics if the parsers break a promise.

use crate::args::Args;
use crate::reply::{ReplyParser, Value};
use crate::request::{Limits, Parser, ProtocolError};

/// Commands, and the error that ended them.
pub type Parsed = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Parses `bytes` as requests, whole and in pieces, and checks that the pieces make no difference.
/// The first bytes choose the cuts, so that a fuzzer controls them too.
///
/// # Panics
/// Panics if they make a difference.
pub fn fuzz_requests(bytes: &[u8]) {
    let cuts: Vec<usize> = bytes
        .iter()
        .take(4)
        .map(|&byte| usize::from(byte))
        .collect();
    for unauthenticated in [false, true] {
        let limits = Limits {
            bulk: 1 << 20,
            args: 1024,
            inline: 256,
            unauthenticated,
        };
        let (whole, whole_error) = parse_in_pieces(bytes, &[], &limits);
        let (pieces, pieces_error) = parse_in_pieces(bytes, &cuts, &limits);
        if is_about_length(whole_error, pieces_error) {
            let common = whole.len().min(pieces.len());
            assert_eq!(
                whole[..common],
                pieces[..common],
                "commands differ by the pieces of {bytes:?}"
            );
        } else {
            let (whole, pieces) = ((whole, whole_error), (pieces, pieces_error));
            assert_eq!(whole, pieces, "requests differ by the pieces of {bytes:?}");
        }
    }
}

/// Returns `true` if the two results differ only in an error about length: a line may be too long
/// while its end has not arrived, and be judged by its content when it has. Redis, too, bounds only
/// what it must keep.
fn is_about_length(a: Option<ProtocolError>, b: Option<ProtocolError>) -> bool {
    let too_big = |error| {
        matches!(
            error,
            Some(
                ProtocolError::TooBigBulkCount
                    | ProtocolError::TooBigInline
                    | ProtocolError::TooBigMultibulkCount
            )
        )
    };
    too_big(a) || too_big(b)
}

/// Parses `input` as it would arrive in pieces that end at `cuts`.
///
/// # Panics
/// Panics if the parser claims bytes that it was not given.
#[must_use]
pub fn parse_in_pieces(input: &[u8], cuts: &[usize], limits: &Limits) -> Parsed {
    let mut cuts: Vec<usize> = cuts.iter().map(|&cut| cut.min(input.len())).collect();
    cuts.push(input.len());
    cuts.sort_unstable();
    let mut parser = Parser::new();
    let mut buffer = Vec::new();
    let mut commands = Vec::new();
    let mut given = 0;
    for cut in cuts {
        buffer.extend_from_slice(&input[given..cut]);
        given = cut;
        loop {
            match parser.parse(&mut buffer, limits) {
                Ok(Some(end)) => {
                    assert!(0 < end && end <= buffer.len(), "a command beyond the input");
                    let args = Args::new(&buffer, parser.spans());
                    commands.push(args.iter().map(<[u8]>::to_vec).collect());
                    buffer.drain(..end);
                }
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

/// Parses `bytes` as replies, whole and byte by byte, and checks that both agree and that each
/// reply that was found can be decoded or is refused.
///
/// # Panics
/// Panics if a check fails.
pub fn fuzz_replies(bytes: &[u8]) {
    let mut rest = bytes;
    for _ in 0..64 {
        let whole = ReplyParser::new().parse(rest);
        let mut parser = ReplyParser::new();
        let bound = rest.len().min(512);
        let pieces = (0..=bound)
            .map(|len| parser.parse(&rest[..len]))
            .find(|r| *r != Ok(None));
        if let (Some(pieces), true) = (pieces, whole.as_ref().is_ok_and(Option::is_some)) {
            assert_eq!(whole, pieces, "replies differ by the pieces of {rest:?}");
        }
        let Ok(Some(end)) = whole else { return };
        assert!(0 < end && end <= rest.len(), "a reply beyond the input");
        // Errors are allowed, such as a text without its format; a panic is not.
        drop(Value::decode(&rest[..end]));
        rest = &rest[end..];
    }
}
