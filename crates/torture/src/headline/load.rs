//! The load generator: one thread with many connections, which writes a batch of requests on each
//! of them and then takes all replies.
//!
//! A batch is rendered once for each connection; before it is sent, only the numbers in its keys
//! are drawn anew. The first line of a reply is compared with the expected one, and the rest is
//! skipped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use xtask::interrupt;

/// Bytes in a value.
pub(super) const VALUE: usize = 100;
/// Digits of a key's number.
const DIGITS: usize = 12;
/// How long a reply may take; it takes long while instructions are counted.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a key by its number.
pub(super) fn key(number: u32) -> Vec<u8> {
    format!("key:{number:0DIGITS$}").into_bytes()
}

/// The request that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Get {
        pipeline: usize,
    },
    Set {
        pipeline: usize,
    },
    /// Moves one from an account to another, in a `MULTI` block.
    Transfer,
    MsetOfTwoNodes,
    Mget {
        keys: usize,
    },
    /// Each connection takes a lock of its own and gives it back.
    Lock,
}

impl Request {
    /// Returns the batches that a connection sends by turns.
    fn batches(self, connection: usize) -> Vec<Batch> {
        match self {
            Request::Get { pipeline } => {
                let mut batch = Batch::default();
                for _ in 0..pipeline {
                    batch.request(&[Word::Text(b"GET"), Word::Key(0)], b"$100");
                }
                vec![batch.counting(pipeline as u64)]
            }
            Request::Set { pipeline } => {
                let mut batch = Batch::default();
                let value = [b'y'; VALUE];
                for _ in 0..pipeline {
                    let words = [Word::Text(b"SET"), Word::Key(0), Word::Text(&value)];
                    batch.request(&words, b"+OK");
                }
                vec![batch.counting(pipeline as u64)]
            }
            Request::Transfer => {
                let mut batch = Batch::default();
                batch.request(&[Word::Text(b"MULTI")], b"+OK");
                for command in [b"DECRBY", b"INCRBY"] {
                    let words = [Word::Text(command), Word::Key(0), Word::Text(b"1")];
                    batch.request(&words, b"+QUEUED");
                }
                batch.request(&[Word::Text(b"EXEC")], b"*2");
                vec![batch.counting(1)]
            }
            Request::MsetOfTwoNodes => {
                let mut batch = Batch::default();
                let value = [b'y'; VALUE];
                let mut words = vec![Word::Text(b"MSET")];
                words.extend([Word::Key(0), Word::Text(&value)]);
                words.extend([Word::Key(1), Word::Text(&value)]);
                batch.request(&words, b"+OK");
                vec![batch.counting(1)]
            }
            Request::Mget { keys } => {
                let mut batch = Batch::default();
                let mut words = vec![Word::Text(b"MGET")];
                words.extend((0..keys).map(|_| Word::Key(0)));
                batch.request(&words, format!("*{keys}").as_bytes());
                vec![batch.counting(1)]
            }
            Request::Lock => {
                let name = format!("lock:{connection}").into_bytes();
                let mut acquire = Batch::default();
                let mut words = ["LOCK.ACQUIRE"]
                    .map(|word| Word::Text(word.as_bytes()))
                    .to_vec();
                words.extend([Word::Text(&name), Word::Text(&name)]);
                words.extend([Word::Text(b"PX"), Word::Text(b"60000")]);
                acquire.request(&words, b"*3");
                let mut release = Batch::default();
                let words = [
                    Word::Text(b"LOCK.RELEASE"),
                    Word::Text(&name),
                    Word::Text(&name),
                ];
                release.request(&words, b":1");
                vec![acquire.counting(0), release.counting(1)]
            }
        }
    }
}

/// A word of a request.
#[derive(Clone, Copy)]
enum Word<'a> {
    Text(&'a [u8]),
    /// A key that is drawn from this pool.
    Key(usize),
}

/// Requests that leave together.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The places of the numbers of keys in the bytes, and the pool that each is drawn from.
    numbers: Vec<(usize, usize)>,
    /// The first line of each reply.
    replies: Vec<Vec<u8>>,
    /// The number of operations that are done when the replies have come.
    operations: u64,
}

impl Batch {
    fn request(&mut self, words: &[Word<'_>], reply: &[u8]) {
        self.bytes
            .extend(format!("*{}\r\n", words.len()).into_bytes());
        for word in words {
            match word {
                Word::Text(text) => self.bulk(text),
                Word::Key(pool) => {
                    let key = key(0);
                    self.bulk(&key);
                    // The number stands before the line's end.
                    self.numbers.push((self.bytes.len() - 2 - DIGITS, *pool));
                }
            }
        }
        self.replies.push(reply.to_vec());
    }

    fn bulk(&mut self, text: &[u8]) {
        self.bytes
            .extend(format!("${}\r\n", text.len()).into_bytes());
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn counting(mut self, operations: u64) -> Batch {
        self.operations = operations;
        self
    }

    fn draw(&mut self, pools: &[Vec<u32>], random: &mut fastrand::Rng) {
        for (at, pool) in &self.numbers {
            let pool = &pools[*pool];
            let mut rest = pool[random.usize(..pool.len())];
            for digit in self.bytes[*at..at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    After(Duration),
    /// When at least so many operations are done.
    Operations(u64),
}

/// The work of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) operations: u64,
    pub(super) seconds: f64,
}

/// Connections that ask.
#[derive(Debug)]
pub(super) struct Load {
    connections: Vec<Connection>,
    pools: Vec<Vec<u32>>,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    replies: Replies,
    batches: Vec<Batch>,
    next: usize,
}

impl Load {
    /// Connects to the addresses in turn.
    pub(super) fn connect(
        addresses: &[SocketAddr],
        connections: usize,
        request: Request,
        pools: Vec<Vec<u32>>,
    ) -> Result<Load> {
        let connect = |(number, address): (usize, &SocketAddr)| {
            let stream = TcpStream::connect(address)
                .with_context(|| format!("cannot connect to {address}"))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            anyhow::Ok(Connection {
                stream,
                replies: Replies::default(),
                batches: request.batches(number),
                next: 0,
            })
        };
        let numbered = (0..connections).zip(addresses.iter().cycle());
        Ok(Load {
            connections: numbered.map(connect).collect::<Result<_>>()?,
            pools,
            random: fastrand::Rng::with_seed(7),
        })
    }

    /// Sends requests until the stop.
    pub(super) fn run(&mut self, stop: Stop) -> Result<Sample> {
        let begun = Instant::now();
        let mut operations = 0;
        loop {
            let is_over = match stop {
                Stop::After(time) => begun.elapsed() >= time,
                Stop::Operations(wanted) => operations >= wanted,
            };
            if is_over {
                break;
            }
            interrupt::check()?;
            for connection in &mut self.connections {
                connection.ask(&self.pools, &mut self.random)?;
            }
            for connection in &mut self.connections {
                operations += connection.take()?;
            }
        }
        Ok(Sample {
            operations,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }
}

impl Connection {
    fn ask(&mut self, pools: &[Vec<u32>], random: &mut fastrand::Rng) -> Result<()> {
        let batch = &mut self.batches[self.next];
        batch.draw(pools, random);
        self.stream
            .write_all(&batch.bytes)
            .context("cannot send requests")
    }

    /// Takes the replies, and returns the number of operations that are done.
    fn take(&mut self) -> Result<u64> {
        let batch = &self.batches[self.next];
        self.next = (self.next + 1) % self.batches.len();
        for wanted in &batch.replies {
            self.replies.expect(wanted, &mut self.stream)?;
        }
        Ok(batch.operations)
    }
}

/// Input that has been received and not yet parsed.
#[derive(Debug)]
struct Replies {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl Default for Replies {
    fn default() -> Replies {
        Replies {
            buffer: vec![0; 16 * 1024],
            from: 0,
            to: 0,
        }
    }
}

impl Replies {
    /// Takes a reply whose first line is `wanted`.
    fn expect(&mut self, wanted: &[u8], source: &mut impl Read) -> Result<()> {
        let mut left = self.line(Some(wanted), source)?;
        while left > 0 {
            left -= 1;
            left += self.line(None, source)?;
        }
        Ok(())
    }

    /// Takes a line, and a string's bytes behind it. Returns the number of replies that are nested
    /// in it.
    fn line(&mut self, wanted: Option<&[u8]>, source: &mut impl Read) -> Result<usize> {
        let end = loop {
            let there = &self.buffer[self.from..self.to];
            if let Some(end) = there.windows(2).position(|two| two == b"\r\n") {
                break end;
            }
            self.fill(source)?;
        };
        let line = &self.buffer[self.from..self.from + end];
        let (kind, rest) = line.split_first().context("a reply has no first byte")?;
        let text = || String::from_utf8_lossy(line).into_owned();
        if let Some(wanted) = wanted {
            ensure!(
                line == wanted,
                "a request was answered with {:?} instead of {:?}",
                text(),
                String::from_utf8_lossy(wanted)
            );
        } else {
            ensure!(
                *kind != b'-' && rest != b"-1",
                "{:?} is nested in a reply",
                text()
            );
        }
        let number = || -> Result<usize> {
            let digits = std::str::from_utf8(rest)?;
            digits
                .parse()
                .with_context(|| format!("no length: {:?}", text()))
        };
        let (nested, skipped) = match kind {
            b'+' | b':' => (0, 0),
            b'$' => (0, number()? + 2),
            b'*' => (number()?, 0),
            _ => bail!("no reply: {:?}", text()),
        };
        self.from += end + 2;
        while self.to - self.from < skipped {
            self.fill(source)?;
        }
        self.from += skipped;
        Ok(nested)
    }

    fn fill(&mut self, source: &mut impl Read) -> Result<()> {
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        if self.to == self.buffer.len() {
            self.buffer.resize(2 * self.to, 0);
        }
        let read = source
            .read(&mut self.buffer[self.to..])
            .context("no reply has come")?;
        ensure!(read > 0, "the server closed the connection");
        self.to += read;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes one at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else {
                return Ok(0);
            };
            buffer[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn replies_are_taken_whole_wherever_they_are_cut() {
        let mut source =
            Slow(b"+OK\r\n*3\r\n:1\r\n$4\r\na\r\nb\r\n*1\r\n+x\r\n$3\r\nabc\r\n:1\r\n");
        let mut replies = Replies::default();
        for wanted in ["+OK", "*3", "$3", ":1"] {
            replies.expect(wanted.as_bytes(), &mut source).unwrap();
        }
        let closed = replies.expect(b"+OK", &mut source).unwrap_err();
        assert!(closed.to_string().contains("closed"), "{closed}");
    }

    #[test]
    fn another_reply_than_the_expected_one_is_an_error() {
        for (bytes, said) in [
            (&b"-ERR no\r\n"[..], "-ERR no"),
            (b"$-1\r\n", "$-1"),
            (b"$4\r\nabcd\r\n", "instead of"),
        ] {
            let error = Replies::default()
                .expect(b"$3", &mut Slow(bytes))
                .unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
        for nested in [&b"*1\r\n$-1\r\n"[..], b"*1\r\n-ERR no\r\n"] {
            let error = Replies::default()
                .expect(b"*1", &mut Slow(nested))
                .unwrap_err();
            assert!(error.to_string().contains("nested"), "{error}");
        }
    }

    #[test]
    fn numbers_are_drawn_into_the_keys_of_a_batch() {
        let mut batch = Request::MsetOfTwoNodes.batches(0).remove(0);
        batch.draw(
            &[vec![123], vec![4_000_000_000]],
            &mut fastrand::Rng::with_seed(1),
        );
        let text = String::from_utf8(batch.bytes).unwrap();
        assert!(
            text.starts_with("*5\r\n$4\r\nMSET\r\n$16\r\nkey:000000000123\r\n$100\r\ny"),
            "{text}"
        );
        assert!(
            text.contains("\r\n$16\r\nkey:004000000000\r\n$100\r\n"),
            "{text}"
        );
        assert_eq!(key(123), b"key:000000000123");
    }
}
