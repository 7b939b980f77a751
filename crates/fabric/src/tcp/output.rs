//! The output of a connection that waits to be sent.
//!
//! It lies in chunks of bounded size, which are used again as soon as they are sent. So waiting
//! bytes are never moved, however many there are, and memory that was just sent is written next.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

/// The number of bytes of a chunk.
const CHUNK: usize = 128 << 10;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// The chunks; none is empty.
    chunks: VecDeque<Vec<u8>>,
    /// The number of bytes of the first chunk that are sent.
    sent: usize,
    /// The number of bytes that are not sent.
    waiting: usize,
}

/// The result of writing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Everything has been taken.
    All,
    /// The allowed amount was written; there is more.
    Enough,
    /// There is more, which is not taken now.
    Full,
}

impl Output {
    /// Returns the number of bytes that are not sent.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Appends bytes. Chunks are taken from the pool, as long as it has some.
    #[inline]
    pub(super) fn append(&mut self, mut bytes: &[u8], pool: &mut Vec<Vec<u8>>) {
        self.waiting += bytes.len();
        if let Some(last) = self.chunks.back_mut()
            && last.len() < CHUNK
        {
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK - last.len()));
            last.extend_from_slice(now);
            bytes = rest;
        }
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK));
            let mut chunk = pool.pop().unwrap_or_default();
            chunk.extend_from_slice(now);
            self.chunks.push_back(chunk);
            bytes = rest;
        }
    }

    /// Appends another output, of which nothing has been sent.
    pub(super) fn follow(&mut self, mut other: Output) {
        debug_assert_eq!(other.sent, 0);
        self.waiting += other.waiting;
        self.chunks.append(&mut other.chunks);
    }

    /// Passes at most `most` bytes to `write`. Chunks that are sent are put into the pool.
    ///
    /// # Errors
    /// Returns the errors of `write`, except for those that say that it would block or was
    /// interrupted; and [`ErrorKind::WriteZero`].
    pub(super) fn write(
        &mut self,
        most: usize,
        pool: &mut Vec<Vec<u8>>,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Written> {
        let mut budget = most;
        while let Some(chunk) = self.chunks.front_mut() {
            if budget == 0 {
                return Ok(Written::Enough);
            }
            let end = chunk.len().min(self.sent + budget);
            match write(&chunk[self.sent..end]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.sent += n;
                    self.waiting -= n;
                    budget -= n;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Written::Full),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent == chunk.len() {
                chunk.clear();
                pool.extend(self.chunks.pop_front());
                self.sent = 0;
            }
        }
        Ok(Written::All)
    }

    /// Takes all bytes that are not sent.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.waiting);
        let mut from = self.sent;
        for chunk in &self.chunks {
            bytes.extend_from_slice(&chunk[from..]);
            from = 0;
        }
        *self = Output::default();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bytes that show where they belong.
    fn bytes(from: usize, len: usize) -> Vec<u8> {
        (from..from + len).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn bytes_leave_in_their_order_and_chunks_are_used_again() {
        let (mut output, mut pool) = (Output::default(), Vec::new());
        let (mut taken, mut left) = (0, Vec::new());
        for len in [1, CHUNK - 1, CHUNK, 1, 3 * CHUNK + 7, 100, 0, 2 * CHUNK] {
            output.append(&bytes(taken, len), &mut pool);
            taken += len;
            assert_eq!(output.len(), taken - left.len());
            // Two chunks are taken before the system is full, in pieces that fit nothing.
            let mut calls = 0;
            let written = output.write(CHUNK, &mut pool, |slice| {
                calls += 1;
                if calls > 2 {
                    return Err(ErrorKind::WouldBlock.into());
                }
                let n = slice.len().min(50_001);
                left.extend_from_slice(&slice[..n]);
                Ok(n)
            });
            let all = left.len() == taken;
            assert_eq!(written.unwrap() == Written::All, all);
        }
        let most = CHUNK + 5;
        while output.len() > 0 {
            let before = output.len();
            let written = output.write(most, &mut pool, |slice| {
                left.extend_from_slice(slice);
                Ok(slice.len())
            });
            let expected = match before > most {
                true => Written::Enough,
                false => Written::All,
            };
            // If the output ends exactly with the allowance, everything was written as well.
            assert!(written.unwrap() == expected || before == most);
            assert_eq!(output.len(), before.saturating_sub(most));
        }
        assert_eq!(left, bytes(0, taken));
        assert!(pool.iter().all(Vec::is_empty));
        let chunks = pool.len();
        output.append(&bytes(0, CHUNK * chunks), &mut pool);
        assert!(pool.is_empty(), "chunks are made while there are some");
    }

    #[test]
    fn what_waits_can_be_taken_back() {
        let (mut output, mut pool) = (Output::default(), Vec::new());
        output.append(&bytes(0, 2 * CHUNK), &mut pool);
        let mut once = Some(9);
        let written = output.write(CHUNK, &mut pool, |_| {
            once.take().ok_or(ErrorKind::WouldBlock.into())
        });
        assert_eq!(written.unwrap(), Written::Full);
        assert_eq!(output.take(), bytes(9, 2 * CHUNK - 9));
        assert_eq!((output.len(), output.take()), (0, vec![]));
    }

    #[test]
    fn a_stream_that_takes_nothing_has_failed() {
        let (mut output, mut pool) = (Output::default(), Vec::new());
        output.append(b"x", &mut pool);
        let error = output.write(1, &mut pool, |_| Ok(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteZero);
    }
}
