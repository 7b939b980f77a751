//! Requests in the form that a server reads: an incremental parser over one contiguous input
//! buffer.
//!
//! | form | bytes | arguments |
//! |---|---|---|
//! | multibulk | `*` count CRLF, then count times `$` length CRLF bytes CRLF | slices of the input |
//! | inline | words LF (a CR before it is dropped) | slices of the input, unescaped in place |
//!
//! A count of zero or less, and an empty line, are commands without arguments, which a server
//! skips. The texts of errors are Redis's.
//!
//! Invariants:
//! 1. The input given to [`Parser::parse`] starts with the first byte of a command, and after
//!    "not yet" with the same bytes again and more behind them: positions stay valid.
//! 2. No byte is looked at twice, except for a constant number around the end of the input: a
//!    command that arrives in many pieces costs as much as one that arrives whole.
//! 3. Nothing is allocated for a length that a client has only announced.
//! 4. Whether and where a command ends, and its arguments, do not depend on the pieces in which
//!    it arrived.

use base::number::parse_int;

use crate::args::Span;
use crate::inline;

/// Limits of one request. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest argument.
    pub bulk: usize,
    /// The most arguments (a count).
    pub args: usize,
    /// The longest inline request, and the longest line that announces a count or a length.
    pub inline: usize,
    /// `true` if the client has yet to authenticate: then the limit is ten arguments of 16 KiB.
    pub unauthenticated: bool,
}

impl Limits {
    /// The most arguments of a client that has not authenticated.
    pub const UNAUTHENTICATED_ARGS: usize = 10;
    /// The longest argument of a client that has not authenticated.
    pub const UNAUTHENTICATED_BULK: usize = 16 * 1024;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk: 512 * 1024 * 1024,
            args: 1024 * 1024,
            inline: 64 * 1024,
            unauthenticated: false,
        }
    }
}

/// The reason why the input is not RESP. The bytes behind it cannot be understood: answer it and
/// close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each says its text.
pub enum ProtocolError {
    InvalidMultibulkLength,
    InvalidBulkLength,
    ExpectedBulk(u8),
    TooBigMultibulkCount,
    TooBigBulkCount,
    TooBigInline,
    UnbalancedQuotes,
    UnauthenticatedMultibulk,
    UnauthenticatedBulk,
}

impl ProtocolError {
    /// Appends the text of the error reply, without its code and line end.
    pub fn write_text(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Protocol error: ");
        out.extend_from_slice(match self {
            ProtocolError::InvalidMultibulkLength => b"invalid multibulk length",
            ProtocolError::InvalidBulkLength => b"invalid bulk length",
            ProtocolError::ExpectedBulk(_) => b"expected '$', got '",
            ProtocolError::TooBigMultibulkCount => b"too big mbulk count string",
            ProtocolError::TooBigBulkCount => b"too big bulk count string",
            ProtocolError::TooBigInline => b"too big inline request",
            ProtocolError::UnbalancedQuotes => b"unbalanced quotes in request",
            ProtocolError::UnauthenticatedMultibulk => b"unauthenticated multibulk length",
            ProtocolError::UnauthenticatedBulk => b"unauthenticated bulk length",
        });
        if let ProtocolError::ExpectedBulk(got) = self {
            // A line end within the reply would break it.
            out.push(if matches!(got, b'\r' | b'\n') {
                b' '
            } else {
                got
            });
            out.push(b'\'');
        }
    }
}

/// Parses requests, and keeps its place in a request that has not arrived whole.
#[derive(Debug, Default)]
pub struct Parser {
    /// The number of bytes of the current command that are parsed.
    at: usize,
    /// The number of bytes that were searched in vain for the end of the current line.
    searched: usize,
    /// Arguments to come; zero before the count is known.
    missing: usize,
    /// The length of the argument whose bytes come next.
    bulk: Option<usize>,
    spans: Vec<Span>,
}

impl Parser {
    /// Creates a parser at the start of a command.
    #[must_use]
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Parses the command at the start of `input`. Returns its end, or `None` when more input is
    /// needed (invariant 1 says how to continue). [`Parser::spans`] has its arguments, until the
    /// next call.
    ///
    /// # Errors
    /// The input is not RESP. The parser must not be used afterwards.
    #[inline]
    pub fn parse(
        &mut self,
        input: &mut [u8],
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        if self.missing == 0 {
            self.spans.clear();
            match input.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.inline(input, limits),
            }
            let Some(count) = self.header(input, limits)? else {
                return Ok(None);
            };
            if count == 0 {
                return Ok(Some(self.finish()));
            }
            self.missing = count;
        }
        while self.missing > 0 {
            if !self.argument(input, limits)? {
                return Ok(None);
            }
        }
        Ok(Some(self.finish()))
    }

    /// Returns the places of the arguments of the last parsed command.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns `true` if a command has begun and its rest has not arrived.
    #[must_use]
    pub fn in_command(&self) -> bool {
        self.missing > 0 || self.searched > 0
    }

    /// Returns the least length of the input for the argument that has been announced; zero if none
    /// has.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.bulk.map_or(0, |len| self.at + len + 2)
    }

    /// Forgets a command that has begun: its bytes will be given again from its start.
    pub fn reset(&mut self) {
        self.finish();
        // A command of many arguments must not hold its memory for ever.
        self.spans.clear();
        self.spans.shrink_to(64);
    }

    fn finish(&mut self) -> usize {
        self.missing = 0;
        self.searched = 0;
        self.bulk = None;
        std::mem::take(&mut self.at)
    }

    /// Parses the count of a multibulk. Reserves the spans of at most a few arguments (invariant
    /// 3).
    fn header(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let too_long = ProtocolError::TooBigMultibulkCount;
        let Some(count) = self.number(input, limits, too_long)? else {
            return Ok(None);
        };
        let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?;
        if count > limits.args as i64 {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if limits.unauthenticated && count > Limits::UNAUTHENTICATED_ARGS as i64 {
            return Err(ProtocolError::UnauthenticatedMultibulk);
        }
        Ok(Some(count.max(0) as usize))
    }

    /// Parses one argument. Returns `true` if it was there as a whole.
    #[inline]
    fn argument(&mut self, input: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let len = match self.bulk {
            Some(len) => len,
            None => match self.length(input, limits)? {
                Some(len) => len,
                None => return Ok(false),
            },
        };
        if input.len() < self.at + len + 2 {
            self.bulk = Some(len);
            return Ok(false);
        }
        self.bulk = None;
        self.spans.push(Span::new(self.at, len));
        self.at += len + 2;
        self.missing -= 1;
        Ok(true)
    }

    #[inline]
    fn length(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let first = input.get(self.at).copied();
        let too_long = ProtocolError::TooBigBulkCount;
        // Redis looks at the line's first byte only when the whole line is there.
        let Some(len) = self.number(input, limits, too_long)? else {
            return Ok(None);
        };
        match first {
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::ExpectedBulk(other)),
            None => return Ok(None),
        }
        let len = len.ok_or(ProtocolError::InvalidBulkLength)?;
        match usize::try_from(len) {
            Ok(len) if len <= limits.bulk => {
                if limits.unauthenticated && len > Limits::UNAUTHENTICATED_BULK {
                    return Err(ProtocolError::UnauthenticatedBulk);
                }
                Ok(Some(len))
            }
            _ => Err(ProtocolError::InvalidBulkLength),
        }
    }

    /// Parses the number on the current line, behind its first byte, and moves past the line.
    /// `Some(None)`: the line is there and is no number.
    #[inline]
    fn number(
        &mut self,
        input: &[u8],
        limits: &Limits,
        too_long: ProtocolError,
    ) -> Result<Option<Option<i64>>, ProtocolError> {
        let line = input.get(self.at + 1..).unwrap_or(&[]);
        let mut value = 0i64;
        let mut digits = 0;
        while let Some(digit) = line.get(digits).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
            && digits < 9
        {
            value = value * 10 + i64::from(digit);
            digits += 1;
        }
        let plain = digits == 1 || digits > 1 && line[0] != b'0';
        if plain && digits + 1 < line.len() && line[digits] == b'\r' {
            self.at += digits + 3;
            return Ok(Some(Some(value)));
        }
        self.unusual_number(input, limits, too_long)
    }

    /// Parses a number that is incomplete, or long, or negative, or no number at all.
    #[cold]
    fn unusual_number(
        &mut self,
        input: &[u8],
        limits: &Limits,
        too_long: ProtocolError,
    ) -> Result<Option<Option<i64>>, ProtocolError> {
        let from = self.searched.max(self.at);
        let Some(end) = input[from.min(input.len())..]
            .iter()
            .position(|&byte| byte == b'\r')
        else {
            self.searched = input.len();
            let too_long = (input.len() - self.at > limits.inline).then_some(too_long);
            return too_long.map_or(Ok(None), Err);
        };
        let end = from + end;
        self.searched = end;
        if end + 1 >= input.len() {
            return Ok(None);
        }
        let number = parse_int(input.get(self.at + 1..end).unwrap_or(&[]));
        self.at = end + 2;
        Ok(Some(number))
    }

    #[cold]
    fn inline(
        &mut self,
        input: &mut [u8],
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        let from = self.searched;
        let Some(end) = input[from..].iter().position(|&byte| byte == b'\n') else {
            self.searched = input.len();
            let too_long = input.len() > limits.inline;
            return if too_long {
                Err(ProtocolError::TooBigInline)
            } else {
                Ok(None)
            };
        };
        let end = from + end;
        let line = &mut input[..end];
        let line = match line {
            [line @ .., b'\r'] => line,
            line => line,
        };
        inline::split(line, &mut self.spans).map_err(|_| ProtocolError::UnbalancedQuotes)?;
        self.at = end + 1;
        Ok(Some(self.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;

    /// Returns all commands of `input`, and the error that ends it.
    fn commands(input: &[u8], limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let mut input = input.to_vec();
        let mut parser = Parser::new();
        let mut commands = Vec::new();
        let mut at = 0;
        loop {
            match parser.parse(&mut input[at..], limits) {
                Ok(Some(end)) => {
                    let args = Args::new(&input[at..], parser.spans());
                    commands.push(args.iter().map(<[u8]>::to_vec).collect());
                    at += end;
                }
                Ok(None) => return (commands, None),
                Err(error) => return (commands, Some(error)),
            }
        }
    }

    fn error(input: &[u8]) -> Option<ProtocolError> {
        commands(input, &Limits::default()).1
    }

    #[test]
    fn commands_in_a_row() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*0\r\nPING \"x y\"\r\n\r\n*-1\r\n*1\r\n$0\r\n\r\n*2\r\n";
        let (commands, error) = commands(input, &Limits::default());
        let expected: Vec<Vec<&[u8]>> = vec![
            vec![b"GET", b"a"],
            vec![],
            vec![b"PING", b"x y"],
            vec![],
            vec![],
            vec![b""],
        ];
        assert_eq!(commands, expected);
        assert_eq!(error, None);
    }

    #[test]
    fn errors_are_those_of_redis() {
        use ProtocolError as E;
        let long = |start: &[u8]| [start, &[b'1'; 70_000]].concat();
        for (input, expected) in [
            (b"*x\r\n".to_vec(), E::InvalidMultibulkLength),
            (b"*\r\n".to_vec(), E::InvalidMultibulkLength),
            (b"*01\r\n".to_vec(), E::InvalidMultibulkLength),
            (b"*1048577\r\n".to_vec(), E::InvalidMultibulkLength),
            (
                b"*99999999999999999999\r\n".to_vec(),
                E::InvalidMultibulkLength,
            ),
            (b"*1\r\n!3\r\n".to_vec(), E::ExpectedBulk(b'!')),
            (b"*1\r\n\r\n".to_vec(), E::ExpectedBulk(b'\r')),
            (b"*1\r\n$-1\r\n".to_vec(), E::InvalidBulkLength),
            (b"*1\r\n$x\r\n".to_vec(), E::InvalidBulkLength),
            (b"*1\r\n$536870913\r\n".to_vec(), E::InvalidBulkLength),
            (long(b"*"), E::TooBigMultibulkCount),
            (long(b"*1\r\n$"), E::TooBigBulkCount),
            (long(b"get "), E::TooBigInline),
            (b"get \"a\n".to_vec(), E::UnbalancedQuotes),
        ] {
            assert_eq!(error(&input), Some(expected), "{:?}", input.get(..30));
        }
        let mut text = Vec::new();
        ProtocolError::ExpectedBulk(b'\n').write_text(&mut text);
        assert_eq!(text, b"Protocol error: expected '$', got ' '");
    }

    #[test]
    fn who_has_not_authenticated_gets_less() {
        let limits = Limits {
            unauthenticated: true,
            ..Limits::default()
        };
        let error = |input: &[u8]| commands(input, &limits).1;
        assert_eq!(
            error(b"*11\r\n"),
            Some(ProtocolError::UnauthenticatedMultibulk)
        );
        assert_eq!(
            error(b"*1\r\n$16385\r\n"),
            Some(ProtocolError::UnauthenticatedBulk)
        );
        assert_eq!(error(b"*10\r\n$16384\r\n"), None);
    }

    #[test]
    fn any_split_gives_the_same_commands() {
        let input = b"*3\r\n$3\r\nSET\r\n$12\r\na\r\nb\r\n*1\r\n$1\r\n$3\r\nxyz\r\nset 'a b' c\r\n*1\r\n$4\r\nPING\r\n";
        let whole = commands(input, &Limits::default());
        assert_eq!(whole.0.len(), 3);
        for split in 0..input.len() {
            for second in split..input.len() {
                let got = crate::fuzz::parse_in_pieces(input, &[split, second], &Limits::default());
                assert_eq!(got, whole, "split at {split} and {second}");
            }
        }
    }

    #[test]
    fn a_large_argument_in_small_pieces_is_not_rescanned() {
        // If each piece started over, these 64 Ki pieces would look at 2 Gi bytes.
        let len = 4 << 20;
        let mut input = format!("*2\r\n$3\r\nGET\r\n${len}\r\n").into_bytes();
        let mut parser = Parser::new();
        let limits = Limits::default();
        assert_eq!(parser.parse(&mut input, &limits), Ok(None));
        let wanted = parser.wanted();
        assert_eq!(wanted, input.len() + len + 2);
        while input.len() < wanted {
            assert_eq!(parser.parse(&mut input, &limits), Ok(None));
            input.resize((input.len() + 64).min(wanted), b'x');
        }
        assert_eq!(parser.parse(&mut input, &limits), Ok(Some(wanted)));
        assert_eq!(parser.spans()[1].len(), len);
    }
}
