//! Messages of clients, checked before the library reads them: it relies on their form.
//!
//! | message | body |
//! |---|---|
//! | the first | protocol, then pairs of texts and an empty one; or the code for a cancellation, a process and a key |
//! | `Q` | text |
//! | `P` | text, text, a number of types of 4 bytes |
//! | `B` | text, text, a number of formats of 2 bytes, a number of values (4 bytes of length, -1 for null), a number of formats |
//! | `C`, `D` | `S` or `P`, text |
//! | `E` | text, 4 bytes |
//! | `H`, `S`, `X`, `c` | nothing |
//! | `d` | anything |
//! | `f` | text |
//! | `p` | the first: text, 4 bytes of length, so many bytes; the others: anything |
//!
//! Texts end with a zero. Numbers of things have 2 bytes. Nothing may follow.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The code of a message that cancels.
const CANCEL: u32 = 80_877_102;
/// The bytes of a message before the client is known.
const MOST_BEFORE: usize = 10_000;
/// The bytes of any message.
const MOST: usize = 0x3fff_fffe;
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// Messages of a client, of which each comes out when it is complete and has the form that it should have.
pub(crate) struct PgMessages<S> {
    socket: S,
    /// What the client has sent and was not checked.
    sent: BytesMut,
    /// What was checked.
    checked: BytesMut,
    stage: Stage,
    /// The client must send a password.
    has_password: bool,
    /// The client has answered the request for one.
    has_answered: bool,
}

/// What a client may say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Who it is.
    Startup,
    /// Its password.
    Authentication,
    Queries,
}

/// A message has another form than it should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MalformedFrontendMessage(pub(crate) &'static str);

impl fmt::Display for MalformedFrontendMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for MalformedFrontendMessage {}

impl<S> PgMessages<S> {
    /// Messages that come from a socket, of which some bytes were read already.
    pub(crate) fn new(socket: S, read: BytesMut, has_password: bool) -> PgMessages<S> {
        PgMessages {
            socket,
            sent: read,
            checked: BytesMut::new(),
            stage: Stage::Startup,
            has_password,
            has_answered: false,
        }
    }

    /// Has the client be one whose password was right, or that needs none.
    pub(crate) fn admit(&mut self) {
        self.stage = Stage::Queries;
    }

    /// Takes the next message, if there is a complete one.
    fn take(&mut self) -> Result<bool, MalformedFrontendMessage> {
        let typed = usize::from(self.stage != Stage::Startup);
        let head = typed + 4;
        if self.sent.len() < head {
            return Ok(false);
        }
        let kind = self.sent[0];
        if typed == 1 && !b"QPBCDEHSXcdfp".contains(&kind) {
            return Err(MalformedFrontendMessage("invalid frontend message type"));
        }
        if self.stage == Stage::Authentication && !matches!(kind, b'p' | b'X') {
            return Err(MalformedFrontendMessage("expected a password message"));
        }
        let length = (&self.sent[typed..]).get_u32() as usize;
        let most = match self.stage {
            Stage::Queries => MOST,
            Stage::Startup | Stage::Authentication => MOST_BEFORE,
        };
        if length < 4 || length > most {
            return Err(MalformedFrontendMessage("invalid message length"));
        }
        if self.sent.len() < typed + length {
            return Ok(false);
        }
        let body = &self.sent[head..typed + length];
        match self.stage {
            Stage::Startup => startup(body)?,
            Stage::Authentication | Stage::Queries => {
                let first = self.has_password && !self.has_answered;
                check(kind, body, first)?;
            }
        }
        self.has_answered |= typed == 1 && kind == b'p';
        if self.stage == Stage::Startup {
            self.stage = Stage::Authentication;
        }
        let message = self.sent.split_to(typed + length);
        match self.checked.is_empty() {
            true => self.checked = message,
            false => self.checked.unsplit(message),
        }
        Ok(true)
    }
}

/// A body, from its beginning on.
struct Body<'b>(&'b [u8]);

impl<'b> Body<'b> {
    fn bytes(&mut self, count: usize) -> Result<&'b [u8], MalformedFrontendMessage> {
        let short = MalformedFrontendMessage("insufficient data left in message");
        let (taken, rest) = self.0.split_at_checked(count).ok_or(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<&'b [u8], MalformedFrontendMessage> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or(MalformedFrontendMessage("invalid string in message"))?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        Ok(text)
    }

    /// Reads a count, and as many things of so many bytes each.
    fn several(&mut self, size: usize) -> Result<(), MalformedFrontendMessage> {
        let count = usize::from(self.bytes(2)?.get_u16());
        self.bytes(count * size).map(|_| ())
    }

    /// Reads a value with its length before it.
    fn value(&mut self) -> Result<(), MalformedFrontendMessage> {
        match self.bytes(4)?.get_i32() {
            -1 => Ok(()),
            length => {
                let length = usize::try_from(length);
                let length =
                    length.map_err(|_| MalformedFrontendMessage("invalid length of a value"))?;
                self.bytes(length).map(|_| ())
            }
        }
    }

    fn end(&self) -> Result<(), MalformedFrontendMessage> {
        match self.0 {
            [] => Ok(()),
            _ => Err(MalformedFrontendMessage("invalid message format")),
        }
    }
}

fn startup(body: &[u8]) -> Result<(), MalformedFrontendMessage> {
    let mut body = Body(body);
    let code = body.bytes(4)?.get_u32();
    if code == CANCEL {
        body.bytes(4)?;
        return match body.0.len() {
            4..=256 => Ok(()),
            _ => Err(MalformedFrontendMessage("invalid length of a cancellation")),
        };
    }
    if code >> 16 != 3 {
        return Err(MalformedFrontendMessage(
            "unsupported frontend protocol: the server speaks 3.0",
        ));
    }
    while !body.text()?.is_empty() {
        body.text()?;
    }
    body.end()
}

fn check(kind: u8, body: &[u8], is_first_password: bool) -> Result<(), MalformedFrontendMessage> {
    let mut body = Body(body);
    match kind {
        b'Q' | b'f' => {
            body.text()?;
        }
        b'P' => {
            body.text()?;
            body.text()?;
            body.several(4)?;
        }
        b'B' => {
            body.text()?;
            body.text()?;
            body.several(2)?;
            let values = body.bytes(2)?.get_u16();
            (0..values).try_for_each(|_| body.value())?;
            body.several(2)?;
        }
        b'C' | b'D' => {
            if !matches!(body.bytes(1)?, b"S" | b"P") {
                return Err(MalformedFrontendMessage("invalid subtype: it is S or P"));
            }
            body.text()?;
        }
        b'E' => {
            body.text()?;
            body.bytes(4)?;
        }
        b'p' if is_first_password => {
            body.text()?;
            body.value()?;
        }
        b'd' | b'p' => return Ok(()),
        _ => {}
    }
    body.end()
}

impl<S: AsyncRead + Unpin> AsyncRead for PgMessages<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.checked.is_empty() {
            match this.take() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(malformed) => {
                    let error = io::Error::new(io::ErrorKind::InvalidData, malformed);
                    return Poll::Ready(Err(error));
                }
            }
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.socket).poll_read(context, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.sent.extend_from_slice(piece.filled());
        }
        let count = this.checked.len().min(into.remaining());
        into.put_slice(&this.checked.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PgMessages<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(kind: u8, bytes: &[u8]) -> bool {
        check(kind, bytes, false).is_ok()
    }

    #[test]
    fn messages_have_the_form_that_the_protocol_gives() {
        assert!(body(b'Q', b"select 1\0"));
        assert!(!body(b'Q', b"select 1"));
        assert!(!body(b'Q', b"select 1\0 "));
        assert!(body(b'P', b"a\0select 1\0\0\x01\0\0\0\x17"));
        assert!(!body(b'P', b"a\0select 1\0\0\x02\0\0\0\x17"));
        assert!(!body(b'P', b"a\0select 1\0\0"));
        let bind = b"p\0s\0\0\x01\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x01x\0\0";
        assert!(body(b'B', bind));
        for end in 0..bind.len() {
            assert!(!body(b'B', &bind[..end]), "{end}");
        }
        assert!(!body(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"));
        assert!(body(b'D', b"Sx\0") && body(b'C', b"P\0"));
        assert!(!body(b'D', b"Xx\0") && !body(b'D', b""));
        assert!(body(b'E', b"\0\0\0\0\0") && !body(b'E', b"\0\0\0\0"));
        assert!(body(b'S', b"") && !body(b'S', b"x"));
        assert!(body(b'd', b"\xff") && body(b'f', b"why\0"));
        assert!(check(b'p', b"SCRAM-SHA-256\0\0\0\0\x01n", true).is_ok());
        for password in [
            &b"secret\0"[..],
            b"",
            b"x\0\0\0\0\x02n",
            b"x\0\xff\xff\xff\x00",
        ] {
            assert!(check(b'p', password, true).is_err(), "{password:?}");
        }
        assert!(startup(b"\0\x03\0\0user\0me\0\0").is_ok());
        for short in [
            &b""[..],
            b"\0\x03\0\0",
            b"\0\x03\0\0user\0me\0",
            b"\0\x02\0\0\0",
        ] {
            assert!(startup(short).is_err(), "{short:?}");
        }
        let cancel = [&CANCEL.to_be_bytes()[..], &[0; 8]].concat();
        assert!(startup(&cancel).is_ok());
        assert!(startup(&cancel[..11]).is_err());
    }
}
