//! An aggregation thread's connection to a node: queries of many clients leave in one packet, and the
//! node's output is split into their replies.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use resp::ReplyParser;

use super::client_connection::write_out;
use super::config::BatchLimits;
use super::lock_table::SharedLockTable;
use super::message::{ByteStream, QueryWork, QueuedQuery, ResultAddress};
use super::shared_queue::SharedQueue;

/// Bytes of queries in a packet of Ethernet. A longer query has a batch of its own.
const PACKET: usize = 1448;
/// Queries that may be with a node on one connection.
const MOST_UNDER_WAY: usize = 16 * 1024;
/// Bytes read at a time.
const ROOM: usize = 16 * 1024;

/// A reply and where it goes.
pub(super) type AddressedReply = (ResultAddress, Bytes);

/// See the module's page.
pub(super) struct AggregatedConnection {
    /// The place of its node.
    pub(super) node: usize,
    pub(super) stream: Box<dyn ByteStream>,
    limits: BatchLimits,
    /// The batch that gathers, or what the socket has not taken of one.
    batch: BytesMut,
    /// Queries in the batch that gathers.
    gathered: usize,
    /// When the first of them was taken.
    since: Instant,
    /// The socket has not taken all of the last batch.
    blocked: bool,
    /// A query that was taken and did not fit into the batch.
    held: Option<(ResultAddress, Bytes)>,
    /// Queries that were sent, in order.
    sent: VecDeque<ResultAddress>,
    input: BytesMut,
    parser: ReplyParser,
    room: Vec<u8>,
}

impl AggregatedConnection {
    pub(super) fn new(
        node: usize,
        stream: Box<dyn ByteStream>,
        limits: BatchLimits,
    ) -> AggregatedConnection {
        AggregatedConnection {
            node,
            stream,
            limits,
            batch: BytesMut::new(),
            gathered: 0,
            since: Instant::now(),
            blocked: false,
            held: None,
            sent: VecDeque::new(),
            input: BytesMut::new(),
            parser: ReplyParser::new(),
            room: vec![0; ROOM],
        }
    }

    /// Returns `true` if it could take a query.
    pub(super) fn has_room(&self) -> bool {
        !self.blocked && self.sent.len() < MOST_UNDER_WAY
    }

    /// Returns `true` if a batch waits for more queries.
    pub(super) fn is_gathering(&self) -> bool {
        self.gathered > 0 && !self.blocked
    }

    /// Takes queries, sends them in batches, and executes requests for locks. Replies of the lock
    /// table go to `replies`.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn aggregate(
        &mut self,
        queries: &dyn SharedQueue<QueuedQuery>,
        locks: &SharedLockTable,
        replies: &mut Vec<AddressedReply>,
    ) -> io::Result<()> {
        if self.blocked && !self.flush()? {
            return Ok(());
        }
        while self.sent.len() < MOST_UNDER_WAY {
            let is_full = self.gather(queries, locks, replies);
            let has_waited = self.since.elapsed() >= Duration::from_micros(self.limits.wait_us);
            if self.gathered == 0 || !(is_full || has_waited) || !self.flush()? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Adds queries to the batch. Returns `true` if no more fit.
    fn gather(
        &mut self,
        queries: &dyn SharedQueue<QueuedQuery>,
        locks: &SharedLockTable,
        replies: &mut Vec<AddressedReply>,
    ) -> bool {
        while self.gathered < self.limits.queries {
            let (reply_to, bytes) = match self.held.take() {
                Some(held) => held,
                None => match queries.take() {
                    None => return false,
                    Some(QueuedQuery { reply_to, work }) => match work {
                        QueryWork::Forward(bytes) => (reply_to, bytes),
                        QueryWork::Lock(request) => {
                            let reply = locks.execute(request, Instant::now());
                            replies.push((reply_to, reply));
                            continue;
                        }
                    },
                },
            };
            if self.gathered > 0 && self.batch.len() + bytes.len() > PACKET {
                self.held = Some((reply_to, bytes));
                return true;
            }
            if self.gathered == 0 {
                self.since = Instant::now();
            }
            self.batch.extend_from_slice(&bytes);
            self.gathered += 1;
            self.sent.push_back(reply_to);
        }
        true
    }

    /// Writes the batch. Returns `true` if the socket has taken all of it.
    fn flush(&mut self) -> io::Result<bool> {
        write_out(&mut *self.stream, &mut self.batch)?;
        self.gathered = 0;
        self.blocked = !self.batch.is_empty();
        Ok(!self.blocked)
    }

    /// Reads the available input. The replies in it go to `replies`.
    ///
    /// # Errors
    /// The connection is lost, or the node does not speak RESP.
    pub(super) fn receive(&mut self, replies: &mut Vec<AddressedReply>) -> io::Result<()> {
        loop {
            match self.stream.read(&mut self.room) {
                Ok(0) => return Err(io::Error::other("the node has closed the connection")),
                Ok(count) => self.input.extend_from_slice(&self.room[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            while let Some(end) = self.parser.parse(&self.input).map_err(io::Error::other)? {
                let reply = self.input.split_to(end).freeze();
                let Some(reply_to) = self.sent.pop_front() else {
                    return Err(io::Error::other("the node sent a reply to no request"));
                };
                replies.push((reply_to, reply));
            }
        }
    }

    /// Returns `true` if a query was taken and not sent.
    pub(super) fn holds_query(&self) -> bool {
        self.held.is_some()
    }
}
