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
use crate::message::{Answer, Message, Notice, Request};
use crate::node::Purpose;

/// A map by numbers that this node chose, so that no other machine can choose them.
pub(crate) type Numbered<V> = HashMap<u64, V, foldhash::fast::RandomState>;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The request may have arrived.
    pub(crate) sent: bool,
    /// The reason, for people.
    pub(crate) why: String,
}

/// A request without an answer.
struct Asked {
    to: NodeId,
    /// The partition that it is for.
    of: PartitionId,
    purpose: Purpose,
    /// The link on which it was sent.
    on: Option<Link>,
}

/// The link to one node.
#[derive(Default)]
struct Wire {
    link: Option<Link>,
    up: bool,
    /// Messages that wait for the link: the number, for a request, and the bytes.
    waiting: VecDeque<(Option<u64>, Vec<u8>)>,
    /// After a failure: no attempt to connect before this time.
    dial_at: Duration,
    failures: u32,
}

/// Messages for which a link had no room.
#[derive(Default)]
struct Backlog {
    messages: Vec<Vec<u8>>,
    bytes: usize,
}

impl Backlog {
    /// Adds a message. Returns how many bytes wait.
    fn push(&mut self, message: &[u8]) -> usize {
        self.messages.push(message.to_vec());
        self.bytes += message.len();
        self.bytes
    }
}

/// The links to other nodes, and their messages.
pub(crate) struct Wires {
    /// Learns from answers, and from requests that are lost.
    leaders: Arc<Leaders>,
    /// In order, so that one schedule gives one outcome.
    nodes: BTreeMap<NodeId, Wire>,
    asked: Numbered<Asked>,
    next: u64,
    /// Messages to be sent: the link, and the place in `bytes`.
    outbox: Vec<(Link, Range<usize>)>,
    bytes: Vec<u8>,
    /// Messages for which links had no room.
    backlog: HashMap<Link, Backlog>,
    /// Notices that can wait, and the time until which they can.
    leisurely: Vec<(NodeId, Notice)>,
    leisure_until: Option<Duration>,
    closing: Vec<Link>,
    /// For each node an epoch that has finished there, as the node has said on the link that is up.
    finished: BTreeMap<NodeId, Epoch>,
}

/// A link on which more bytes wait is closed.
const BACKLOG: usize = 256 << 20;
/// Notices that can wait are sent after this time.
const LEISURE: Duration = Duration::from_millis(2);
/// Pauses between attempts to reach a node.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Wires {
    pub(crate) fn new(leaders: Arc<Leaders>) -> Wires {
        Wires {
            leaders,
            nodes: BTreeMap::new(),
            asked: Numbered::default(),
            next: 0,
            outbox: Vec::new(),
            bytes: Vec::new(),
            backlog: HashMap::new(),
            leisurely: Vec::new(),
            leisure_until: None,
            closing: Vec::new(),
            finished: BTreeMap::new(),
        }
    }

    /// Sends a node a request for a partition.
    pub(crate) fn ask(
        &mut self,
        (to, of): (NodeId, PartitionId),
        request: Request<'_>,
        purpose: Purpose,
    ) {
        self.next += 1;
        let number = self.next;
        let on = self.put(to, Some(number), &Message::Request { number, request });
        let asked = Asked {
            to,
            of,
            purpose,
            on,
        };
        self.asked.insert(number, asked);
    }

    /// Sends a node a notice, which is lost if the node cannot be reached.
    pub(crate) fn tell(&mut self, to: NodeId, notice: Notice) {
        self.put(to, None, &Message::Notice(notice));
    }

    /// As [`Wires::tell`], but together with another message to that node, if there is one soon.
    pub(crate) fn tell_at_leisure(&mut self, to: NodeId, notice: Notice, now: Duration) {
        self.leisurely.push((to, notice));
        self.leisure_until.get_or_insert(now + LEISURE);
    }

    /// Returns when a notice must be sent, if nothing happens before.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.leisure_until
    }

    /// Sends the notices that can wait to nodes that get other messages anyway, or all of them when it
    /// is time.
    fn put_leisurely(&mut self, now: Duration) {
        let Some(until) = self.leisure_until else {
            return;
        };
        let is_time = until <= now;
        let mut open = std::mem::take(&mut self.leisurely);
        open.retain(|(to, notice)| {
            let link = self.nodes.get(to).and_then(|wire| wire.link);
            let is_sent_to = self.outbox.iter().any(|(on, _)| Some(*on) == link);
            if is_time || is_sent_to {
                self.tell(*to, *notice);
            }
            !is_time && !is_sent_to
        });
        self.leisurely = open;
        if self.leisurely.is_empty() {
            self.leisure_until = None;
        }
    }

    /// Answers on the link on which the request came.
    pub(crate) fn reply(&mut self, link: Link, number: u64, reply: Answer) {
        let from = self.bytes.len();
        codec::encode(&Message::Reply { number, reply }, &mut self.bytes);
        self.outbox.push((link, from..self.bytes.len()));
    }

    fn put(&mut self, to: NodeId, number: Option<u64>, message: &Message<'_>) -> Option<Link> {
        let wire = self.nodes.entry(to).or_default();
        if let (Some(link), true) = (wire.link, wire.up) {
            let from = self.bytes.len();
            codec::encode(message, &mut self.bytes);
            self.outbox.push((link, from..self.bytes.len()));
            return Some(link);
        }
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes);
        wire.waiting.push_back((number, bytes));
        None
    }

    /// Notes that a link is up, and sends the messages that wait for it.
    pub(crate) fn up(&mut self, link: Link) {
        let Some(wire) = self.nodes.values_mut().find(|wire| wire.link == Some(link)) else {
            return;
        };
        wire.up = true;
        wire.failures = 0;
        for (number, bytes) in wire.waiting.drain(..) {
            if let Some(asked) = number.and_then(|number| self.asked.get_mut(&number)) {
                asked.on = Some(link);
            }
            let from = self.bytes.len();
            self.bytes.extend_from_slice(&bytes);
            self.outbox.push((link, from..self.bytes.len()));
        }
    }

    /// Notes that a link has room again.
    pub(crate) fn drained(&mut self, link: Link) {
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
    pub(crate) fn down(&mut self, link: Link, why: &str, now: Duration) -> Vec<(Purpose, Lost)> {
        self.backlog.remove(&link);
        self.outbox.retain(|(on, _)| *on != link);
        let wire = self
            .nodes
            .iter_mut()
            .find(|(_, wire)| wire.link == Some(link));
        let Some((&node, wire)) = wire else {
            return Vec::new();
        };
        // After a restart epochs may have lower numbers.
        self.finished.remove(&node);
        let was_up = wire.up;
        wire.link = None;
        wire.up = false;
        wire.waiting.clear();
        let pause = FIRST_PAUSE * (1 << wire.failures.min(5));
        wire.failures += 1;
        wire.dial_at = now
            + if was_up {
                Duration::ZERO
            } else {
                pause.min(LONGEST_PAUSE)
            };
        let gone: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.to == node)
            .map(|(number, _)| *number)
            .collect();
        self.lose(gone, &format!("node {node} cannot be reached: {why}"))
    }

    /// Takes requests off the list, in the order in which they were sent.
    fn lose(&mut self, mut numbers: Vec<u64>, why: &str) -> Vec<(Purpose, Lost)> {
        numbers.sort_unstable();
        let lost = numbers
            .iter()
            .filter_map(|number| self.asked.remove(number));
        lost.map(|asked| {
            self.leaders.doubt(asked.of, asked.to);
            let sent = asked.on.is_some();
            let why = why.to_owned();
            (asked.purpose, Lost { sent, why })
        })
        .collect()
    }

    /// Returns the purpose of a request that is answered. `None` if the answer is not awaited any more.
    pub(crate) fn answered(&mut self, link: Link, number: u64, answer: &Answer) -> Option<Purpose> {
        let Entry::Occupied(asked) = self.asked.entry(number) else {
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
    pub(crate) fn hang_up(&mut self, link: Link) {
        self.closing.push(link);
    }

    /// Connects, sends and closes. Returns the requests that could not be sent.
    pub(crate) fn pump(
        &mut self,
        fabric: &mut impl Messages,
        now: Duration,
    ) -> Vec<(Purpose, Lost)> {
        self.put_leisurely(now);
        for (node, wire) in &mut self.nodes {
            if wire.link.is_none() && !wire.waiting.is_empty() && wire.dial_at <= now {
                wire.link = Some(fabric.connect(*node));
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
                if backlog.push(bytes) > BACKLOG {
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
    fn answer_for(&mut self, link: Link, bytes: &[u8]) -> Option<(Purpose, Lost)> {
        match codec::decode(bytes) {
            Ok(Message::Request { number, .. }) => {
                let asked = self.asked.remove(&number)?;
                let why = "a part of the transaction is longer than messages may be".to_owned();
                Some((asked.purpose, Lost { sent: false, why }))
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
    pub(crate) fn is_dialling(&self) -> bool {
        self.nodes
            .values()
            .any(|wire| wire.link.is_none() && !wire.waiting.is_empty())
    }

    pub(crate) fn links_up(&self) -> usize {
        self.nodes.values().filter(|wire| wire.up).count()
    }
}
