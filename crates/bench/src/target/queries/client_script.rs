//! The queries of a client, and the expected replies.
//!
//! | | bytes |
//! |---|---|
//! | key | the client's number times [`KEYS`] plus the key's place, five decimal digits |
//! | value | a number made of the key and of how many writes there were before, five decimal digits |

use super::job::QueryMix;
use crate::error::RunError;
use crate::even_slots::node_of;
use ::resp::command::write_command;

/// Keys of each client.
pub(super) const KEYS: u64 = 16;
/// One query in so many reads.
const READS: u64 = 10;
/// The number of keys and values that five digits can distinguish.
const MANY: u64 = 100_000;

/// The state of one client.
pub(super) struct ClientScript {
    client: u64,
    nodes: usize,
    mix: QueryMix,
    asked: u64,
    puts: u64,
    /// Writes other values than it records, to see that it is found.
    planted: bool,
    request: Vec<u8>,
    expected: Vec<u8>,
}

impl ClientScript {
    pub(super) fn new(client: u64, nodes: usize, mix: QueryMix, planted: bool) -> ClientScript {
        assert!((client + 1) * KEYS <= MANY, "keys have five digits");
        ClientScript {
            client,
            nodes,
            mix,
            asked: 0,
            puts: 0,
            planted,
            request: Vec::new(),
            expected: Vec::new(),
        }
    }

    /// Returns the number of queries.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// Makes the next query. Returns the node that has its key.
    pub(super) fn turn(&mut self) -> usize {
        self.asked += 1;
        let reads = self.mix == QueryMix::Mixed && self.asked.is_multiple_of(READS);
        let put = self.puts - u64::from(reads);
        let (key, value) = (self.key(put), self.value(put));
        self.request.clear();
        self.expected.clear();
        if reads {
            write_command(&mut self.request, &[b"GET", &key]);
            self.expected.extend_from_slice(b"$5\r\n");
            self.expected.extend_from_slice(&value);
            self.expected.extend_from_slice(b"\r\n");
        } else {
            let mut written = value;
            written[4] ^= u8::from(self.planted);
            write_command(&mut self.request, &[b"SET", &key, &written]);
            self.expected.extend_from_slice(b"+OK\r\n");
            self.puts += 1;
        }
        node_of(&key, self.nodes)
    }

    pub(super) fn request(&self) -> &[u8] {
        &self.request
    }

    /// Returns the expected reply to the last query.
    pub(super) fn expected(&self) -> &[u8] {
        &self.expected
    }

    /// Returns `true` if `reply` is the whole reply to the last query.
    ///
    /// # Errors
    /// Returns an error if it is neither that nor the beginning of it.
    pub(super) fn is_whole(&self, reply: &[u8]) -> Result<bool, RunError> {
        if self.expected.starts_with(reply) {
            return Ok(reply.len() == self.expected.len());
        }
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        Err(RunError::Failed(format!(
            "client {} has asked {} and was answered {} instead of {}",
            self.client,
            text(&self.request),
            text(reply),
            text(&self.expected)
        )))
    }

    /// Returns the keys that were written, with their expected values.
    pub(super) fn last_writes(&self) -> impl Iterator<Item = ([u8; 5], [u8; 5])> {
        let oldest = self.puts.saturating_sub(KEYS);
        (oldest..self.puts).map(|put| (self.key(put), self.value(put)))
    }

    fn key(&self, put: u64) -> [u8; 5] {
        digits(self.client * KEYS + put % KEYS)
    }

    fn value(&self, put: u64) -> [u8; 5] {
        digits((self.client * 7919 + put * 4729) % MANY)
    }
}

fn digits(mut number: u64) -> [u8; 5] {
    let mut digits = [b'0'; 5];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_knows_every_reply() {
        let mut script = ClientScript::new(3, 5, QueryMix::Mixed, false);
        let mut kept = std::collections::BTreeMap::new();
        for _ in 0..1000 {
            script.turn();
            let text = String::from_utf8(script.request().to_vec()).unwrap();
            let parts: Vec<&str> = text.split("\r\n").collect();
            let reply = if parts[2] == "SET" {
                kept.insert(parts[4].to_owned(), parts[6].to_owned());
                "+OK\r\n".to_owned()
            } else {
                assert_eq!(parts[2], "GET");
                format!("$5\r\n{}\r\n", kept[parts[4]])
            };
            assert_eq!(script.is_whole(reply.as_bytes()), Ok(true));
            assert_eq!(script.is_whole(&reply.as_bytes()[..3]), Ok(false));
            assert!(script.is_whole(b"-ERR no\r\n").is_err());
            assert!(script.is_whole((reply + "+OK\r\n").as_bytes()).is_err());
        }
        let text = |bytes: [u8; 5]| String::from_utf8(bytes.to_vec()).unwrap();
        let last = script
            .last_writes()
            .map(|(key, value)| (text(key), text(value)));
        assert_eq!(last.collect::<std::collections::BTreeMap<_, _>>(), kept);
        assert_eq!((script.asked(), kept.len()), (1000, 16));
    }

    #[test]
    fn a_load_of_writes_reads_nothing() {
        let mut script = ClientScript::new(0, 1, QueryMix::Writes, false);
        for _ in 0..100 {
            script.turn();
            assert!(script.request().starts_with(b"*3\r\n$3\r\nSET\r\n"));
            assert_eq!(script.expected(), b"+OK\r\n");
        }
    }

    #[test]
    fn what_was_planted_is_found() {
        let mut script = ClientScript::new(0, 1, QueryMix::Mixed, true);
        script.turn();
        let request = String::from_utf8(script.request().to_vec()).unwrap();
        let [(_, value)] = script.last_writes().collect::<Vec<_>>()[..] else {
            panic!("one write");
        };
        let value = String::from_utf8(value.to_vec()).unwrap();
        assert!(!request.contains(&format!("{value}\r\n")) || value == "00000");
        assert!(!request.ends_with(&format!("{value}\r\n")));
    }
}
