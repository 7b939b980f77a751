//! Links to other nodes, the requests that were sent on them, and the messages that wait to be sent.
//!
//! Invariants:
//! 1. Each request is answered, or reported as lost, once.
//! 2. A request that was lost is reported as sent if it could have arrived.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base::{Abort, Epoch, NodeId, PartitionId};
use fabric::{Link, Messages, SendError};

use crate::codec;
use crate::leaders::Leaders;
use crate::message::{Answer, Message, Notice, Publication, Request};
use crate::requester::{LostRequest, Numbered, RequestPurpose};

/// A request without an answer.
struct SentRequest {
    to: NodeId,
    /// The partition that it is for.
    of: PartitionId,
    purpose: RequestPurpose,
    /// The link on which it was sent.
    on: Option<Link>,
}

/// The link to one node.
#[derive(Default)]
struct PeerConnection {
    link: Option<Link>,
    up: bool,
    /// Messages that wait for the link: the number, for a request, and the bytes.
    waiting: VecDeque<(Option<u64>, Vec<u8>)>,
    /// After a failure: no attempt to connect before this time.
    connect_at: Duration,
    failures: u32,
}

/// Messages for which a link had no room.
#[derive(Default)]
struct LinkBacklog {
    messages: Vec<Vec<u8>>,
    bytes: usize,
}

impl LinkBacklog {
    /// Adds a message. Returns how many bytes wait.
    fn push(&mut self, message: &[u8]) -> usize {
        self.messages.push(message.to_vec());
        self.bytes += message.len();
        self.bytes
    }
}

/// The links to other nodes, and their messages.
pub(crate) struct PeerConnections {
    /// Learns from answers, and from requests that are lost.
    leaders: Arc<Leaders>,
    /// In order, so that one schedule gives one outcome.
    nodes: BTreeMap<NodeId, PeerConnection>,
    unanswered: Numbered<SentRequest>,
    next: u64,
    /// Messages to be sent: the link, and the place in `bytes`.
    outbox: Vec<(Link, Range<usize>)>,
    bytes: Vec<u8>,
    /// Messages for which links had no room.
    backlog: HashMap<Link, LinkBacklog>,
    /// Notices that can wait, and the time until which they can.
    lazy_notices: Vec<(NodeId, Notice)>,
    lazy_notices_due: Option<Duration>,
    closing: Vec<Link>,
    /// For each node an epoch that has finished there, as the node has said on the link that is up.
    finished: BTreeMap<NodeId, Epoch>,
}

/// A link on which more bytes wait is closed.
const MOST_BACKLOG_BYTES: usize = 256 << 20;
/// If so many messages wait for a node that is not connected, messages of publish/subscribe for it are
/// dropped.
const MOST_WAITING_PUBLICATIONS: usize = 1024;
/// Notices that can wait are sent after this time.
const LAZY_NOTICE_DELAY: Duration = Duration::from_millis(2);
/// Pauses between attempts to reach a node.
const FIRST_CONNECT_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_CONNECT_PAUSE: Duration = Duration::from_millis(500);

impl PeerConnections {
    pub(crate) fn new(leaders: Arc<Leaders>) -> PeerConnections {
        PeerConnections {
            leaders,
            nodes: BTreeMap::new(),
            unanswered: Numbered::default(),
            next: 0,
            outbox: Vec::new(),
            bytes: Vec::new(),
            backlog: HashMap::new(),
            lazy_notices: Vec::new(),
            lazy_notices_due: None,
            closing: Vec::new(),
            finished: BTreeMap::new(),
        }
    }

    /// Sends a node a request for a partition.
    pub(crate) fn request(
        &mut self,
        (to, of): (NodeId, PartitionId),
        request: Request<'_>,
        purpose: RequestPurpose,
    ) {
        self.next += 1;
        let number = self.next;
        let on = self.put(to, Some(number), &Message::Request { number, request });
        let asked = SentRequest {
            to,
            of,
            purpose,
            on,
        };
        self.unanswered.insert(number, asked);
    }

    /// Sends a node a notice, which is lost if the node cannot be reached.
    pub(crate) fn notify(&mut self, to: NodeId, notice: Notice) {
        self.put(to, None, &Message::Notice(notice));
    }

    /// As [`PeerConnections::notify`], but together with another message to that node, if there is one soon.
    pub(crate) fn notify_lazily(&mut self, to: NodeId, notice: Notice, now: Duration) {
        self.lazy_notices.push((to, notice));
        self.lazy_notices_due.get_or_insert(now + LAZY_NOTICE_DELAY);
    }

    /// Returns when a notice must be sent, if nothing happens before.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.lazy_notices_due
    }

    /// Sends the notices that can wait to nodes that get other messages anyway, or all of them when it
    /// is time.
    fn put_lazy_notices(&mut self, now: Duration) {
        let Some(until) = self.lazy_notices_due else {
            return;
        };
        let is_time = until <= now;
        let mut open = std::mem::take(&mut self.lazy_notices);
        open.retain(|(to, notice)| {
            let link = self.nodes.get(to).and_then(|connection| connection.link);
            let is_sent_to = self.outbox.iter().any(|(on, _)| Some(*on) == link);
            if is_time || is_sent_to {
                self.notify(*to, *notice);
            }
            !is_time && !is_sent_to
        });
        self.lazy_notices = open;
        if self.lazy_notices.is_empty() {
            self.lazy_notices_due = None;
        }
    }

    /// Sends a node a message of publish/subscribe, which is lost if the node cannot be reached.
    pub(crate) fn publish(&mut self, to: NodeId, publication: Publication<'_>) {
        let connection = self.nodes.entry(to).or_default();
        if connection.up || connection.waiting.len() < MOST_WAITING_PUBLICATIONS {
            self.put(to, None, &Message::Publication(publication));
        }
    }

    /// Answers on the link on which the request came.
    pub(crate) fn reply(&mut self, link: Link, number: u64, reply: Answer) {
        let from = self.bytes.len();
        codec::encode(&Message::Reply { number, reply }, &mut self.bytes);
        self.outbox.push((link, from..self.bytes.len()));
    }

    fn put(&mut self, to: NodeId, number: Option<u64>, message: &Message<'_>) -> Option<Link> {
        let connection = self.nodes.entry(to).or_default();
        if let (Some(link), true) = (connection.link, connection.up) {
            let from = self.bytes.len();
            codec::encode(message, &mut self.bytes);
            self.outbox.push((link, from..self.bytes.len()));
            return Some(link);
        }
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes);
        connection.waiting.push_back((number, bytes));
        None
    }

    /// Notes that a link is up, and sends the messages that wait for it.
    pub(crate) fn link_up(&mut self, link: Link) {
        let Some(connection) = self
            .nodes
            .values_mut()
            .find(|connection| connection.link == Some(link))
        else {
            return;
        };
        connection.up = true;
        connection.failures = 0;
        for (number, bytes) in connection.waiting.drain(..) {
            if let Some(asked) = number.and_then(|number| self.unanswered.get_mut(&number)) {
                asked.on = Some(link);
            }
            let from = self.bytes.len();
            self.bytes.extend_from_slice(&bytes);
            self.outbox.push((link, from..self.bytes.len()));
        }
    }

    /// Notes that a link has room again.
    pub(crate) fn link_drained(&mut self, link: Link) {
        let mut first = Vec::new();
        for bytes in self.backlog.remove(&link).unwrap_or_default().messages {
            let from = self.bytes.len();
            self.bytes.extend_from_slice(&bytes);
            first.push((link, from..self.bytes.len()));
        }
        // Before the messages that were put behind them since.
        self.outbox.splice(0..0, first);
    }

    /// Notes that a link is down. Returns the requests that are lost with it.
    pub(crate) fn link_down(
        &mut self,
        link: Link,
        why: &str,
        now: Duration,
    ) -> Vec<(RequestPurpose, LostRequest)> {
        self.backlog.remove(&link);
        self.outbox.retain(|(on, _)| *on != link);
        let connection = self
            .nodes
            .iter_mut()
            .find(|(_, connection)| connection.link == Some(link));
        let Some((&node, connection)) = connection else {
            return Vec::new();
        };
        // After a restart epochs may have lower numbers.
        self.finished.remove(&node);
        let was_up = connection.up;
        connection.link = None;
        connection.up = false;
        connection.waiting.clear();
        let pause = FIRST_CONNECT_PAUSE * (1 << connection.failures.min(5));
        connection.failures += 1;
        connection.connect_at = now
            + if was_up {
                Duration::ZERO
            } else {
                pause.min(LONGEST_CONNECT_PAUSE)
            };
        let gone: Vec<u64> = self
            .unanswered
            .iter()
            .filter(|(_, asked)| asked.to == node)
            .map(|(number, _)| *number)
            .collect();
        self.fail_requests(gone, &format!("node {node} cannot be reached: {why}"))
    }

    /// Takes requests off the list, in the order in which they were sent.
    fn fail_requests(
        &mut self,
        mut numbers: Vec<u64>,
        why: &str,
    ) -> Vec<(RequestPurpose, LostRequest)> {
        numbers.sort_unstable();
        let lost = numbers
            .iter()
            .filter_map(|number| self.unanswered.remove(number));
        lost.map(|asked| {
            self.leaders.doubt(asked.of, asked.to);
            let sent = asked.on.is_some();
            let why = why.to_owned();
            (asked.purpose, LostRequest { sent, why })
        })
        .collect()
    }

    /// Returns the purpose of a request that is answered. `None` if the answer is not awaited any more.
    pub(crate) fn answered(
        &mut self,
        link: Link,
        number: u64,
        answer: &Answer,
    ) -> Option<RequestPurpose> {
        let Entry::Occupied(asked) = self.unanswered.entry(number) else {
            return None;
        };
        if asked.get().on != Some(link) {
            return None;
        }
        let asked = asked.remove();
        match answer {
            Answer::Aborted(Abort::Elsewhere { leader }) => {
                self.leaders.redirect(asked.of, asked.to, *leader);
            }
            // This says nothing about the current leader.
            Answer::Aborted(Abort::Unknown { .. }) | Answer::Failed(_) => {}
            _ => self.leaders.served(asked.of, asked.to),
        }
        if let Answer::Read { finished, .. } = answer {
            self.finished.insert(asked.to, *finished);
        }
        Some(asked.purpose)
    }

    /// Returns an epoch that a node has said to have finished.
    pub(crate) fn finished(&self, node: NodeId) -> Epoch {
        self.finished.get(&node).copied().unwrap_or_default()
    }

    /// Gives up a link whose peer sends malformed messages.
    pub(crate) fn close(&mut self, link: Link) {
        self.closing.push(link);
    }

    /// Connects, sends and closes. Returns the requests that could not be sent.
    pub(crate) fn pump(
        &mut self,
        fabric: &mut impl Messages,
        now: Duration,
    ) -> Vec<(RequestPurpose, LostRequest)> {
        self.put_lazy_notices(now);
        for (node, connection) in &mut self.nodes {
            if connection.link.is_none()
                && !connection.waiting.is_empty()
                && connection.connect_at <= now
            {
                connection.link = Some(fabric.connect(*node));
            }
        }
        let mut lost = Vec::new();
        // A message that is too long is replaced by an answer, which is sent, too.
        for _ in 0..2 {
            for (link, bytes) in self.send_all(fabric) {
                lost.extend(self.answer_for(link, &bytes));
            }
        }
        for link in self.closing.drain(..) {
            fabric.close(link);
        }
        lost
    }

    /// Gives all messages to the links. Returns those that are longer than allowed.
    fn send_all(&mut self, fabric: &mut impl Messages) -> Vec<(Link, Vec<u8>)> {
        let mut too_long = Vec::new();
        for (link, range) in self.outbox.drain(..) {
            let bytes = &self.bytes[range];
            if let Some(backlog) = self.backlog.get_mut(&link) {
                if backlog.push(bytes) > MOST_BACKLOG_BYTES {
                    tracing::warn!("a peer takes no messages; its link is closed");
                    self.closing.push(link);
                }
                continue;
            }
            match fabric.send(link, bytes) {
                Ok(()) => {}
                Err(SendError::Full) => {
                    self.backlog.entry(link).or_default().push(bytes);
                }
                // The end of the link will be reported; its requests are lost then.
                Err(SendError::Down) => {}
                Err(SendError::TooLong) => too_long.push((link, bytes.to_vec())),
            }
        }
        self.bytes.clear();
        too_long
    }

    /// Answers in place of a message that cannot be sent.
    fn answer_for(&mut self, link: Link, bytes: &[u8]) -> Option<(RequestPurpose, LostRequest)> {
        match codec::decode(bytes) {
            Ok(Message::Request { number, .. }) => {
                let asked = self.unanswered.remove(&number)?;
                let why = "a part of the transaction is longer than messages may be".to_owned();
                Some((asked.purpose, LostRequest { sent: false, why }))
            }
            Ok(Message::Reply { number, .. }) => {
                let what = "the replies are longer than messages may be".to_owned();
                self.reply(link, number, Answer::Failed(what));
                None
            }
            _ => None,
        }
    }

    /// Returns `true` if nothing waits to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.outbox.is_empty() && self.backlog.is_empty()
    }

    /// Returns `true` if a node must be connected.
    pub(crate) fn is_connecting(&self) -> bool {
        self.nodes
            .values()
            .any(|connection| connection.link.is_none() && !connection.waiting.is_empty())
    }

    pub(crate) fn links_up(&self) -> usize {
        self.nodes
            .values()
            .filter(|connection| connection.up)
            .count()
    }
}
