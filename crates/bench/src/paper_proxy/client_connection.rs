//! A client's connection: its input, and its replies in the order of its requests.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use bytes::{Buf, Bytes, BytesMut};

use super::message::ByteStream;

/// Requests of one connection that wait for replies; beyond this the proxy does not read on.
const MOST_WAITING: usize = 1024;
/// Bytes of replies that a client has not taken; beyond this the proxy does not read on.
const MOST_OUTPUT: usize = 1 << 20;

/// See the module's page.
pub(super) struct ClientConnection {
    pub(super) stream: Box<dyn ByteStream>,
    /// How many connections the thread had accepted before.
    pub(super) number: u64,
    pub(super) input: BytesMut,
    pub(super) parser: resp::Parser,
    /// The proxy has stopped reading, although there may be input.
    pub(super) paused: bool,
    /// The sequence number of the first waiting request.
    first: u64,
    /// Replies of waiting requests, as far as they have come.
    waiting: VecDeque<Option<Bytes>>,
    output: BytesMut,
}

impl ClientConnection {
    pub(super) fn new(stream: Box<dyn ByteStream>, number: u64) -> ClientConnection {
        ClientConnection {
            stream,
            number,
            input: BytesMut::new(),
            parser: resp::Parser::new(),
            paused: false,
            first: 0,
            waiting: VecDeque::new(),
            output: BytesMut::new(),
        }
    }

    /// Notes that a request was read. Returns its sequence number.
    pub(super) fn begin(&mut self) -> u64 {
        self.waiting.push_back(None);
        self.first + self.waiting.len() as u64 - 1
    }

    /// Notes the reply to a request that was read on this connection.
    pub(super) fn complete(&mut self, sequence: u64, reply: Bytes) {
        let place = (sequence - self.first) as usize;
        self.waiting[place] = Some(reply);
        while let Some(Some(reply)) = self.waiting.front() {
            self.output.extend_from_slice(reply);
            self.waiting.pop_front();
            self.first += 1;
        }
    }

    /// Returns `true` if the proxy should not read on before replies have left.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_WAITING || self.output.len() >= MOST_OUTPUT
    }

    /// Writes the replies, as far as the socket takes them.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        write_out(&mut *self.stream, &mut self.output)
    }
}

/// Writes `output` as far as the socket takes it, and removes it.
///
/// # Errors
/// The connection is lost.
pub(super) fn write_out(stream: &mut dyn ByteStream, output: &mut BytesMut) -> io::Result<()> {
    while !output.is_empty() {
        match stream.write(output) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => output.advance(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_leave_in_the_order_of_requests() {
        let (near, _far) = mio::net::UnixStream::pair().unwrap();
        let mut connection = ClientConnection::new(Box::new(near), 0);
        let numbers: Vec<u64> = (0..3).map(|_| connection.begin()).collect();
        assert_eq!(numbers, [0, 1, 2]);
        connection.complete(2, Bytes::from_static(b"c"));
        connection.complete(1, Bytes::from_static(b"b"));
        assert!(connection.output.is_empty(), "the first has no reply");
        connection.complete(0, Bytes::from_static(b"a"));
        assert_eq!(&connection.output[..], b"abc");
        assert_eq!(connection.begin(), 3);
    }

    #[test]
    fn a_client_that_takes_no_replies_is_not_read() {
        let (near, _far) = mio::net::UnixStream::pair().unwrap();
        let mut connection = ClientConnection::new(Box::new(near), 0);
        let sequence = connection.begin();
        assert!(!connection.is_full());
        connection.complete(sequence, vec![0; MOST_OUTPUT].into());
        assert!(connection.is_full());
        for _ in 0..MOST_WAITING {
            connection.begin();
        }
        connection.output.clear();
        assert!(connection.is_full());
    }
}
