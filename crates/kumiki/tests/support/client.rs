//! A client that sends any bytes and gets exact replies.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::frame::{Frame, Parse};

/// How long a reply may take; a test that waits longer has found a hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a connection gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// A reply.
    Reply(Frame),
    /// The server closed the connection.
    Closed,
    /// Nothing came in time, or something that is not RESP, or a connection failed.
    Broken(String),
}

impl Answer {
    /// Whether nothing can follow.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(self, Answer::Reply(_))
    }
}

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes that came and were not consumed: `received[consumed..]`.
    received: Vec<u8>,
    consumed: usize,
}

impl Client {
    /// Connects to `address`.
    ///
    /// # Panics
    /// When nobody listens there.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).unwrap_or_else(|e| panic!("{address}: {e}"))
    }

    /// As [`Client::connect`], if somebody listens there.
    pub(crate) fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client {
            stream,
            received: Vec::new(),
            consumed: 0,
        })
    }

    /// Says that nothing more will be sent.
    pub(crate) fn end(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Sends bytes. A connection that the peer has closed shows when its answer is read.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends one command.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        let mut out = Vec::new();
        encode(args, &mut out);
        self.send_raw(&out);
    }

    /// Sends one command and reads its reply.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Answer {
        self.send(args);
        self.receive()
    }

    /// As [`Client::call`].
    ///
    /// # Panics
    /// When there is no reply.
    pub(crate) fn reply<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Frame {
        match self.call(args) {
            Answer::Reply(frame) => frame,
            other => panic!("no reply: {other:?}"),
        }
    }

    /// The next reply.
    pub(crate) fn receive(&mut self) -> Answer {
        loop {
            match Frame::parse(&self.received[self.consumed..]) {
                Ok(frame) => {
                    self.consumed += frame.raw.len();
                    return Answer::Reply(frame);
                }
                Err(Parse::Invalid(what)) => return Answer::Broken(format!("not RESP: {what}")),
                Err(Parse::Incomplete) => {}
            }
            self.received.drain(..self.consumed);
            self.consumed = 0;
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) if self.received.is_empty() => return Answer::Closed,
                Ok(0) => return Answer::Broken("closed within a reply".into()),
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A close with unread bytes in the server's socket arrives as a reset.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Answer::Closed,
                Err(e) => return Answer::Broken(e.to_string()),
            }
        }
    }
}

/// Appends a command as clients send it: an array of bulk strings.
pub(crate) fn encode<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    write!(out, "*{}\r\n", args.len()).expect("memory");
    for arg in args {
        write!(out, "${}\r\n", arg.as_ref().len()).expect("memory");
        out.extend_from_slice(arg.as_ref());
        out.extend_from_slice(b"\r\n");
    }
}
