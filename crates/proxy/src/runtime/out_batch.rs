//! Bytes that wait to be written to a socket: small pieces are gathered into one buffer, large ones
//! stay as they are.
//!
//! Invariants:
//! 1. Bytes leave in the order in which they were put.
//! 2. A piece of [`LARGE`] bytes or more is never copied: it is written from where it was received.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::Bytes;

use reactor::Network;

/// A piece of at least this length (in bytes) is written from where it lies. Copying a smaller one
/// costs less than keeping track of it.
pub(crate) const LARGE: usize = 4096;
/// Pieces given to one write.
const PIECES: usize = 64;
/// The greatest capacity that is kept while there is nothing to write.
const KEPT: usize = 64 * 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct OutBatch {
    /// Pieces before `tail`, in order.
    pieces: VecDeque<Bytes>,
    /// How many bytes of the first piece, or of the tail if there is no piece, have been written.
    written: usize,
    tail: Vec<u8>,
    /// The number of all bytes that are not written yet.
    len: usize,
}

impl OutBatch {
    /// Returns how many bytes have not been written.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts bytes after the others.
    pub(crate) fn put(&mut self, bytes: &Bytes) {
        if bytes.len() < LARGE {
            return self.put_slice(bytes);
        }
        self.close_tail();
        self.len += bytes.len();
        self.pieces.push_back(bytes.clone());
    }

    /// Puts a copy of bytes after the others.
    pub(crate) fn put_slice(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Lets `write` put bytes after the others.
    pub(crate) fn put_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.tail.len();
        write(&mut self.tail);
        self.len += self.tail.len() - before;
    }

    /// Makes a piece of the tail, so that another piece can follow.
    fn close_tail(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        // Bytes written of the tail now count as written of this piece, which is then the first.
        self.pieces.push_back(std::mem::take(&mut self.tail).into());
    }

    /// Writes as much as the stream takes. Returns `true` if it took everything.
    pub(crate) fn write<N: Network>(
        &mut self,
        network: &mut N,
        stream: &mut N::Stream,
    ) -> io::Result<bool> {
        while self.len > 0 {
            let result = if self.pieces.is_empty() {
                network.write(stream, &[IoSlice::new(&self.tail[self.written..])])
            } else {
                let mut slices = [IoSlice::new(&[]); PIECES];
                let count = self.slices(&mut slices);
                network.write(stream, &slices[..count])
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.take(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; PIECES]) -> usize {
        let mut count = 0;
        let mut skip = self.written;
        for piece in self.pieces.iter().map(|piece| &piece[..]) {
            if count == PIECES {
                return count;
            }
            slices[count] = IoSlice::new(&piece[skip..]);
            skip = 0;
            count += 1;
        }
        if count < PIECES && !self.tail.is_empty() {
            slices[count] = IoSlice::new(&self.tail[skip..]);
            count += 1;
        }
        count
    }

    /// Records that `count` more bytes have been written.
    fn take(&mut self, count: usize) {
        self.len -= count;
        self.written += count;
        while let Some(first) = self.pieces.front() {
            if self.written < first.len() {
                return;
            }
            self.written -= first.len();
            self.pieces.pop_front();
        }
        if self.written == self.tail.len() {
            self.written = 0;
            self.tail.clear();
            self.tail.shrink_to(KEPT);
        }
    }

    /// Returns all bytes that are not written.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut all = self.pieces.iter().flatten().copied().collect::<Vec<u8>>();
        all.extend_from_slice(&self.tail);
        all.split_off(self.written)
    }

    /// Returns all bytes that are not written, as text.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes()).expect("text")
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = OutBatch::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::{SocketEvent, Wake};
    use std::net::SocketAddr;
    use std::time::Duration;

    /// A network whose streams take at most so many bytes at a time, and sometimes none.
    struct Narrow(fastrand::Rng);

    struct NoWaker;

    impl Wake for NoWaker {
        fn wake(&self) {}
    }

    impl Network for Narrow {
        type Stream = Vec<u8>;
        type Listener = ();
        type Waker = NoWaker;

        fn open() -> io::Result<Narrow> {
            Ok(Narrow(fastrand::Rng::with_seed(1)))
        }
        fn waker(&mut self) -> io::Result<NoWaker> {
            Ok(NoWaker)
        }
        fn listen(&mut self, _: std::net::TcpListener, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn accept(&mut self, (): &()) -> io::Result<(Vec<u8>, SocketAddr)> {
            Err(io::ErrorKind::WouldBlock.into())
        }
        fn watch(&mut self, _: &mut Vec<u8>, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn connect(&mut self, _: SocketAddr, _: usize) -> io::Result<Vec<u8>> {
            Ok(Vec::new())
        }
        fn connected(&mut self, _: &Vec<u8>) -> io::Result<()> {
            Ok(())
        }
        fn read(&mut self, _: &mut Vec<u8>, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
        fn write(&mut self, stream: &mut Vec<u8>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            let mut room = self.0.usize(0..9000);
            if room < 1000 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let before = stream.len();
            for piece in pieces {
                let count = piece.len().min(room);
                stream.extend_from_slice(&piece[..count]);
                room -= count;
            }
            Ok(stream.len() - before)
        }
        fn close(&mut self, _: Vec<u8>) {}
        fn wait(&mut self, _: &mut Vec<SocketEvent>, _: Option<Duration>) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_leave_in_order_when_the_stream_takes_few_at_a_time() {
        let mut network = Narrow::open().expect("a network");
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut pack, mut stream, mut expected) =
                (OutBatch::default(), Vec::new(), Vec::new());
            for step in 0..100 {
                let len = match random.u8(..4) {
                    0 => random.usize(LARGE..3 * LARGE),
                    _ => random.usize(0..200),
                };
                let piece = Bytes::from(vec![step; len]);
                expected.extend_from_slice(&piece);
                pack.put(&piece);
                if random.u8(..5) == 0 {
                    pack.write(&mut network, &mut stream)
                        .expect("it takes some");
                    assert_eq!(stream.len() + pack.len(), expected.len());
                    assert_eq!(stream, expected[..stream.len()]);
                }
            }
            while !pack
                .write(&mut network, &mut stream)
                .expect("it takes some")
            {}
            assert_eq!(stream, expected, "seed {seed}");
            assert!(pack.is_empty());
        }
    }
}
