//! Links to other nodes, what was asked on them, and what waits to be sent.
//!
//! Invariants:
//! 1. Each question is answered, or reported as lost, once.
//! 2. A question that was lost is reported as sent if it could have arrived.

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

/// By numbers that were given here, so that nobody can choose them.
pub(crate) type Numbered<V> = HashMap<u64, V, foldhash::fast::RandomState>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Whether the question may have arrived.
    pub(crate) sent: bool,
    /// Said for people.
    pub(crate) why: String,
}

/// What was asked.
struct Asked {
    to: NodeId,
    /// For which partition.
    of: PartitionId,
    purpose: Purpose,
    /// The link that it was given to.
    on: Option<Link>,
}

/// The link to one node.
#[derive(Default)]
struct Wire {
    link: Option<Link>,
    up: bool,
    /// What waits for the link: its number if it is a question, its bytes.
    waiting: VecDeque<(Option<u64>, Vec<u8>)>,
    /// After a failure: not before this time.
    dial_at: Duration,
    failures: u32,
}

/// What a link had no room for.
#[derive(Default)]
struct Backlog {
    messages: Vec<Vec<u8>>,
    bytes: usize,
}

impl Backlog {
    /// Returns how many bytes wait.
    fn push(&mut self, message: &[u8]) -> usize {
        self.messages.push(message.to_vec());
        self.bytes += message.len();
        self.bytes
    }
}

/// See the module's description.
pub(crate) struct Wires {
    /// Learns from answers, and from questions that are lost.
    leaders: Arc<Leaders>,
    /// In order, so that one schedule gives one outcome.
    nodes: BTreeMap<NodeId, Wire>,
    asked: Numbered<Asked>,
    next: u64,
    /// What is to be sent: on which link, and where in `bytes`.
    outbox: Vec<(Link, Range<usize>)>,
    bytes: Vec<u8>,
    /// What links had no room for.
    backlog: HashMap<Link, Backlog>,
    /// What has time, and until when it has.
    leisurely: Vec<(NodeId, Notice)>,
    leisure_until: Option<Duration>,
    closing: Vec<Link>,
    /// For each node an epoch that it has said to have finished, on the link that is up.
    finished: BTreeMap<NodeId, Epoch>,
}

/// A link whose peer lets more bytes wait is closed.
const BACKLOG: usize = 256 << 20;
/// What has time is sent after this one.
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

    /// Asks a node something of a partition.
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

    /// Tells a node; in vain if it cannot be reached.
    pub(crate) fn tell(&mut self, to: NodeId, notice: Notice) {
        self.put(to, None, &Message::Notice(notice));
    }

    /// As [`Wires::tell`], together with something else for that node, if there is before long.
    pub(crate) fn tell_at_leisure(&mut self, to: NodeId, notice: Notice, now: Duration) {
        self.leisurely.push((to, notice));
        self.leisure_until.get_or_insert(now + LEISURE);
    }

    /// When something has to be sent, if nothing happens before.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.leisure_until
    }

    /// Puts what has time behind what is sent to the same node anyway, or all of it when it is time.
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

    /// Answers on the link from which was asked.
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

    /// A link is there.
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

    /// A link has room again.
    pub(crate) fn drained(&mut self, link: Link) {
        let mut first = Vec::new();
        for bytes in self.backlog.remove(&link).unwrap_or_default().messages {
            let from = self.bytes.len();
            self.bytes.extend_from_slice(&bytes);
            first.push((link, from..self.bytes.len()));
        }
        // Before what was put behind it since.
        self.outbox.splice(0..0, first);
    }

    /// A link is gone. Returns the questions that are lost with it.
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

    /// Takes questions off the list, in the order in which they were asked.
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

    /// The purpose of a question that is answered. `None`: nobody waits for it any more.
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
            // That says nothing of who leads now.
            Answer::Aborted(Abort::Unknown { .. }) | Answer::Failed(_) => {}
            _ => self.leaders.served(asked.of, asked.to),
        }
        if let Answer::Read { finished, .. } = answer {
            self.finished.insert(asked.to, *finished);
        }
        Some(asked.purpose)
    }

    /// An epoch that a node has said to have finished.
    pub(crate) fn finished(&self, node: NodeId) -> Epoch {
        self.finished.get(&node).copied().unwrap_or_default()
    }

    /// Gives up a link whose peer talks nonsense.
    pub(crate) fn hang_up(&mut self, link: Link) {
        self.closing.push(link);
    }

    /// Dials, sends, closes. Returns the questions that could not be sent.
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
        // What is too long is answered for, which is sent, too.
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

    /// Gives what is to be sent to the links. Returns what is longer than messages may be.
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
                // Its end will be told; what was asked is lost then.
                Err(SendError::Down) => {}
                Err(SendError::TooLong) => too_long.push((link, bytes.to_vec())),
            }
        }
        self.bytes.clear();
        too_long
    }

    /// Answers for a message that cannot be sent.
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

    /// Whether nothing waits to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.outbox.is_empty() && self.backlog.is_empty()
    }

    /// Whether a node is to be reached.
    pub(crate) fn is_dialling(&self) -> bool {
        self.nodes
            .values()
            .any(|wire| wire.link.is_none() && !wire.waiting.is_empty())
    }

    pub(crate) fn links_up(&self) -> usize {
        self.nodes.values().filter(|wire| wire.up).count()
    }
}
