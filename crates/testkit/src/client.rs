//! A blocking RESP client that sends any bytes and keeps every byte of a reply.
//!
//! It shares no code with the parsers of the workspace, which it helps to test. Requests are arrays
//! of bulk strings. They may be sent ahead of their replies: [`Client::push`] collects them, and
//! [`Client::flush`] sends them.
//!
//! | if there is no reply | functions |
//! |---|---|
//! | they panic | [`Client::reply`], [`Client::next`], [`Client::call`], [`Client::frame`] |
//! | they return an error | [`Client::flush`], [`Client::try_reply`], [`Client::try_call`], [`Client::expect`] |
//! | they return it as an [`Answer`] | [`Client::answer`], [`Client::receive`] |

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::frame::{Frame, Reply, Scanner};

/// The longest time of a reply, for a client that has no limit of its own.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The number of bytes that are read at once.
const PIECE: usize = 64 * 1024;

/// The result of waiting for a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A reply.
    Reply(Frame),
    /// The server closed the connection.
    Closed,
    /// Nothing came in time, or bytes that are not RESP, or the connection failed.
    Broken(String),
}

impl Answer {
    /// Returns `true` if nothing can follow.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !matches!(self, Answer::Reply(_))
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client<S = TcpStream> {
    stream: S,
    /// The bytes that [`Client::flush`] will send.
    pending: Vec<u8>,
    /// Bytes that came and were not consumed: `received[consumed..]`.
    received: Vec<u8>,
    consumed: usize,
    scanner: Scanner,
}

impl Client {
    /// Connects to `address`.
    ///
    /// # Panics
    /// Panics if no process listens there.
    #[must_use]
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Does the same as [`Client::connect`], but returns an error if no process listens.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn try_connect(address: SocketAddr) -> io::Result<Client> {
        Client::over_tcp(TcpStream::connect(address)?, PATIENCE)
    }

    /// Does the same as [`Client::try_connect`], but neither connecting nor any reply may take
    /// longer than `patience`.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn connect_within(address: SocketAddr, patience: Duration) -> io::Result<Client> {
        Client::over_tcp(TcpStream::connect_timeout(&address, patience)?, patience)
    }

    fn over_tcp(stream: TcpStream, patience: Duration) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience.max(PATIENCE)))?;
        Ok(Client::over(stream))
    }

    /// Returns the connection.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sets the time for which reads wait before they fail.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Returns this end's address.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Announces that nothing more will be sent.
    pub fn end(&self) {
        // If the peer has closed the connection, reading the answer shows it.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Returns `true` if a reply, or a part of one, or the end of the connection, is there within
    /// `wait`, which is [`Client::set_patience`]'s afterwards.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn has_reply(&mut self, wait: Duration) -> io::Result<bool> {
        if self.consumed < self.received.len() {
            return Ok(true);
        }
        self.set_patience(wait)?;
        match self.stream.peek(&mut [0]) {
            Ok(_) => Ok(true),
            Err(error) if is_late(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns `true` if no reply, no part of one and no end of the connection comes within `time`.
    ///
    /// # Panics
    /// Panics if there are replies that were not read, or if the connection fails.
    #[track_caller]
    pub fn is_silent(&mut self, time: Duration) -> bool {
        assert!(self.consumed == self.received.len(), "replies are left");
        let patience = self.stream.read_timeout().expect("a limit");
        self.stream.set_read_timeout(Some(time)).expect("a limit");
        let outcome = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(patience).expect("a limit");
        outcome.is_err_and(|error| is_late(&error))
    }
}

impl<S: Read + Write> Client<S> {
    /// Makes a client over a stream that is connected, with the stream's time limits.
    pub fn over(stream: S) -> Client<S> {
        Client {
            stream,
            pending: Vec::new(),
            received: Vec::new(),
            consumed: 0,
            scanner: Scanner::default(),
        }
    }

    /// Adds a request to those that the next [`Client::flush`] sends.
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        encode(args, &mut self.pending);
    }

    /// Sends the requests that were pushed.
    ///
    /// # Errors
    /// Returns the errors of the operating system; the requests may have been sent in part.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.pending);
        self.pending.clear();
        sent
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends bytes. If the peer has closed the connection, reading the answer shows it.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.try_send_raw(bytes);
    }

    /// Sends one command; see [`Client::send_raw`].
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.push(args);
        let _ = self.flush();
    }

    /// Returns the next reply as it came; `None` if the connection has ended.
    fn read_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let scanned = self.scanner.scan(&self.received[self.consumed..]);
            if let Some(length) = scanned.map_err(invalid)? {
                let end = self.consumed + length;
                let frame = Frame::parse(&self.received[self.consumed..end]);
                self.consumed = end;
                self.scanner = Scanner::default();
                return frame
                    .map(Some)
                    .map_err(|error| invalid(format!("{error:?}")));
            }
            self.received.drain(..self.consumed);
            self.consumed = 0;
            let at = self.received.len();
            self.received.resize(at + PIECE, 0);
            let read = self.stream.read(&mut self.received[at..]);
            self.received
                .truncate(at + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) if at == 0 => return Ok(None),
                Ok(0) => {
                    let text = "the connection ended within a reply";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A close with unread bytes in the server's socket arrives as a reset.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the next reply, or the reason why there is none.
    pub fn receive(&mut self) -> Answer {
        match self.read_frame() {
            Ok(Some(frame)) => Answer::Reply(frame),
            Ok(None) => Answer::Closed,
            Err(error) => Answer::Broken(error.to_string()),
        }
    }

    /// Sends one command and returns its reply, or the reason why there is none.
    pub fn answer<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Answer {
        self.push(args);
        // If the peer has closed the connection, reading the answer shows it.
        let _ = self.flush();
        self.receive()
    }

    /// Sends one command and returns its reply as it came.
    ///
    /// # Panics
    /// Panics if there is no reply.
    #[track_caller]
    pub fn frame<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Frame {
        match self.answer(args) {
            Answer::Reply(frame) => frame,
            other => panic!("no reply: {other:?}"),
        }
    }

    /// Returns the next reply.
    ///
    /// # Errors
    /// Returns an error if the connection ends or fails, and [`ErrorKind::InvalidData`] if the
    /// bytes are not RESP.
    pub fn try_reply(&mut self) -> io::Result<Reply> {
        let frame = self.read_frame()?.ok_or(ErrorKind::UnexpectedEof)?;
        frame.into_reply().map_err(invalid)
    }

    /// Returns the next reply; `None` if the connection has ended, before a reply or within one.
    ///
    /// # Panics
    /// Panics if the connection fails otherwise, or if the bytes are not RESP.
    #[expect(
        clippy::should_implement_trait,
        reason = "replies follow requests, and do not end"
    )]
    #[track_caller]
    pub fn next(&mut self) -> Option<Reply> {
        match self.read_frame() {
            Ok(frame) => frame.map(|frame| frame.into_reply().expect("RESP")),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// Returns the next reply.
    ///
    /// # Panics
    /// Panics if there is none.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.next().expect("a reply before the connection ends")
    }

    /// Returns `true` if the connection ends before another reply comes.
    ///
    /// # Panics
    /// Panics in the same cases as [`Client::next`].
    #[track_caller]
    pub fn is_closed(&mut self) -> bool {
        self.next().is_none()
    }

    /// Sends one command and returns its reply.
    ///
    /// # Panics
    /// Panics if there is no reply.
    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.send(args);
        self.reply()
    }

    /// Does the same as [`Client::call`], but returns errors.
    ///
    /// # Errors
    /// Returns an error if the request cannot be sent, and the errors of [`Client::try_reply`].
    pub fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.push(args);
        self.flush()?;
        self.try_reply()
    }

    /// Does the same as [`Client::try_call`], for a command whose reply must not be an error.
    ///
    /// # Errors
    /// Returns the errors of [`Client::try_call`], and an error if the reply is one.
    pub fn expect<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        match self.try_call(args)? {
            Reply::Error(text) => {
                let name = args.first().map_or(&b""[..], AsRef::as_ref);
                let name = String::from_utf8_lossy(name);
                let text = format!("{name} was answered with an error: {text}");
                Err(io::Error::other(text))
            }
            reply => Ok(reply),
        }
    }

    /// Sends one command, given as words with blanks between them, and returns its reply as a short
    /// text; see [`Reply::shown`].
    ///
    /// # Panics
    /// Panics if there is no reply.
    #[track_caller]
    pub fn told(&mut self, command: &str) -> String {
        self.call(&command.split(' ').collect::<Vec<_>>()).shown()
    }
}

/// Appends a command as clients send it: an array of bulk strings.
pub fn encode<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        out.extend_from_slice(arg.as_ref());
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns `true` if the error means that a time limit has passed.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not RESP: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that yields these bytes a few at a time, and accepts all writes.
    struct Scripted {
        bytes: Vec<u8>,
        at: usize,
        step: usize,
    }

    impl Read for Scripted {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.step.min(self.bytes.len() - self.at).min(into.len());
            into[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(bytes: &[u8], step: usize) -> Client<Scripted> {
        let bytes = bytes.to_vec();
        Client::over(Scripted { bytes, at: 0, step })
    }

    #[test]
    fn replies_do_not_depend_on_the_pieces_in_which_they_come() {
        let bytes = b"+OK\r\n*2\r\n:1\r\n*1\r\n$3\r\na\r\n\r\n-ERR no\r\n$0\r\n\r\n*0\r\n";
        for step in [1, 2, 3, 7, 100] {
            let mut client = client(bytes, step);
            assert_eq!(client.reply(), Reply::Status("OK".to_owned()));
            let inner = Reply::Array(vec![Reply::Bulk(b"a\r\n".to_vec())]);
            assert_eq!(client.reply(), Reply::Array(vec![Reply::Int(1), inner]));
            assert_eq!(
                client.try_reply().unwrap(),
                Reply::Error("ERR no".to_owned())
            );
            let frame = client.frame(&["GET", "k"]);
            assert_eq!(frame.raw, b"$0\r\n\r\n");
            assert_eq!(client.reply(), Reply::Array(Vec::new()));
            assert!(client.is_closed());
            assert_eq!(client.receive(), Answer::Closed);
        }
    }

    #[test]
    fn an_end_within_a_reply_and_nonsense_are_errors() {
        let kind = |bytes: &[u8]| client(bytes, 5).try_reply().unwrap_err().kind();
        assert_eq!(kind(b""), ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"*2\r\n:1\r\n"), ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"$3\r\nabcd\r\n"), ErrorKind::InvalidData);
        assert_eq!(kind(b"HTTP/1.1 400\r\n"), ErrorKind::InvalidData);
        assert_eq!(kind(b":one\r\n"), ErrorKind::InvalidData);
        assert!(matches!(client(b"*1\r\n", 9).receive(), Answer::Broken(_)));
        assert!(client(b"*1\r\n", 9).is_closed());
    }

    #[test]
    fn an_error_reply_is_an_error_where_none_is_expected() {
        let refused = client(b"-ERR no\r\n", 9).expect(&["SET", "k"]);
        let text = refused.unwrap_err().to_string();
        assert_eq!(text, "SET was answered with an error: ERR no");
        let done = client(b"+OK\r\n", 9).expect(&["SET", "k", "v"]);
        assert_eq!(done.unwrap(), Reply::Status("OK".to_owned()));
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        encode(&["GET", "a\r\n"], &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
    }
}
