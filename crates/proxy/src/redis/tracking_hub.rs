//! The proxy's requests to the nodes to be told of all changes of keys (`CLIENT TRACKING ON BCAST`), while
//! clients want such news. This is a machine without I/O; the [thread](super::subscription_thread) of the
//! subscriptions has the connections.
//!
//! Each node with slots has a connection for the news. If it is lost, it is made again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use resp::command::write_command;

use super::retry_policy;
use super::slot_map::SlotMap;
use super::subscription_hub::HUB;
use super::subscription_wire::{NodePush, news_key};
use super::tracking_service::TrackingService;
use crate::nodes::Nodes;
use crate::runtime::query::{
    BackendCommand, BackendQuery, BackendReply, NodeError, NodeIndex, QueryFailure,
};

/// The pause before a node is asked again that has failed.
const PAUSE: Duration = Duration::from_millis(50);
/// The pause before a node is asked again that has refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// See the module documentation.
pub(crate) struct TrackingHub {
    map: Arc<SlotMap>,
    nodes: Arc<Nodes>,
    service: Arc<TrackingService>,
    /// The nodes have been asked, or will be.
    is_running: bool,
    /// The clients know the result of the first requests.
    has_begun: bool,
    /// The nodes with slots while the hub runs.
    asked: HashMap<NodeIndex, AskedNode, RandomState>,
    /// The number of the last request.
    last: u64,
    /// Commands for the connections.
    pub(crate) orders: VecDeque<BackendCommand>,
}

/// A node, as far as it has been asked for news.
struct AskedNode {
    state: NewsRequest,
    /// The first request has ended.
    was_tried: bool,
    /// The node has refused the last request.
    refused: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NewsRequest {
    /// It is to be sent, not before this time.
    Wanted { due: Duration },
    /// It is under way, under this number.
    Sent(u64),
    /// The node sends news.
    Confirmed,
}

impl TrackingHub {
    pub(crate) fn new(
        map: Arc<SlotMap>,
        nodes: Arc<Nodes>,
        service: Arc<TrackingService>,
    ) -> TrackingHub {
        TrackingHub {
            map,
            nodes,
            service,
            is_running: false,
            has_begun: false,
            asked: HashMap::default(),
            last: 0,
            orders: VecDeque::new(),
        }
    }

    /// Returns `true` if clients want news and none are there, or the other way round.
    pub(crate) fn is_outdated(&self) -> bool {
        self.service.is_wanted() != self.is_running
    }

    /// Takes over a new map of slots. A node that has lost a slot may not know of it, and answer reads of it.
    pub(crate) fn set_map(&mut self, map: Arc<SlotMap>, now: Duration) {
        self.map = map;
        if !self.is_running {
            return;
        }
        let left: Vec<NodeIndex> = self
            .asked
            .keys()
            .copied()
            .filter(|node| !self.map.all().contains(node))
            .collect();
        for node in left {
            self.asked.remove(&node);
            self.service.note_silent(node);
            self.hang_up(node);
        }
        self.ask_all(now);
        self.service.changed_all();
    }

    /// Has the nodes asked that are not asked yet.
    fn ask_all(&mut self, now: Duration) {
        for &node in self.map.all() {
            self.asked.entry(node).or_insert(AskedNode {
                state: NewsRequest::Wanted { due: now },
                was_tried: false,
                refused: None,
            });
        }
    }

    fn hang_up(&mut self, node: NodeIndex) {
        let key = news_key(node);
        self.orders.push_back(BackendCommand::HangUp(node, key));
    }

    /// Begins or ends, as the clients want it, and sends the requests that are due.
    pub(crate) fn tick(&mut self, now: Duration) {
        if self.is_outdated() {
            match self.is_running {
                true => self.try_end(),
                false => {
                    self.is_running = true;
                    self.ask_all(now);
                }
            }
        }
        let mut last = self.last;
        for (&node, asked) in &mut self.asked {
            if let NewsRequest::Wanted { due } = asked.state
                && due <= now
            {
                last += 1;
                asked.state = NewsRequest::Sent(last);
                self.orders
                    .push_back(BackendCommand::Send(request(node, last, now)));
            }
        }
        self.last = last;
    }

    fn try_end(&mut self) {
        if !self.service.try_end() {
            return;
        }
        (self.is_running, self.has_begun) = (false, false);
        let nodes: Vec<NodeIndex> = self.asked.drain().map(|(node, _)| node).collect();
        for node in nodes {
            self.hang_up(node);
        }
    }

    /// Returns how long the hub may wait for events; `None`: for ever.
    pub(crate) fn timeout(&self, now: Duration) -> Option<Duration> {
        let due = self.asked.values().filter_map(|asked| match asked.state {
            NewsRequest::Wanted { due } => Some(due),
            NewsRequest::Sent(_) | NewsRequest::Confirmed => None,
        });
        Some(due.min()?.saturating_sub(now))
    }

    /// Handles the answer to a request. Returns `true` if the knowledge of the nodes may be old.
    pub(crate) fn answered(&mut self, reply: BackendReply, now: Duration) -> bool {
        let (node, number) = (reply.query.node, reply.query.sequence);
        let asked = self.asked.get_mut(&node);
        let Some(asked) = asked.filter(|asked| asked.state == NewsRequest::Sent(number)) else {
            return false;
        };
        asked.was_tried = true;
        let refusal = match reply.result {
            Ok(answer) if answer.bytes.first() != Some(&b'-') => None,
            Ok(answer) if retry_policy::hint(&answer).is_some() => Some(None),
            Ok(answer) => Some(Some(answer.bytes)),
            Err(QueryFailure::Unsent(NodeError::Refused(text))) => {
                let address = self.nodes.address(node);
                let text =
                    format!("-ERR node {address} does not tell of changes of keys: {text}\r\n");
                Some(Some(text.into()))
            }
            Err(_) => Some(None),
        };
        match refusal {
            None => {
                asked.state = NewsRequest::Confirmed;
                asked.refused = None;
                self.service.note_sending(node);
            }
            Some(refused) => {
                let pause = if refused.is_some() {
                    REFUSED_PAUSE
                } else {
                    PAUSE
                };
                asked.state = NewsRequest::Wanted { due: now + pause };
                if let Some(text) = &refused
                    && self.has_begun
                    && asked.refused.is_none()
                {
                    let (address, error) =
                        (self.nodes.address(node), String::from_utf8_lossy(text));
                    tracing::warn!(node = %address, error = error.trim_end(),
                        "a node refuses to tell of changes of keys: clients cannot keep its values");
                }
                asked.refused = refused;
            }
        }
        self.note_begun();
        matches!(self.asked.get(&node), Some(asked) if asked.state != NewsRequest::Confirmed)
    }

    /// Tells the clients when all nodes have been asked.
    fn note_begun(&mut self) {
        if self.has_begun || !self.asked.values().all(|asked| asked.was_tried) {
            return;
        }
        self.has_begun = true;
        let refused = self.asked.values().find_map(|asked| asked.refused.clone());
        self.service.note_begun(refused.map_or(Ok(()), Err));
    }

    /// Handles what came on a connection for news. Returns anything else.
    pub(crate) fn pushed(&mut self, push: NodePush, now: Duration) -> Option<NodePush> {
        match push {
            NodePush::Changed { keys: Some(keys) } => self.service.changed(keys),
            NodePush::Changed { keys: None } => self.service.changed_all(),
            NodePush::NewsLost { node } => self.lost(node, now),
            other => return Some(other),
        }
        None
    }

    fn lost(&mut self, node: NodeIndex, now: Duration) {
        let asked = self.asked.get_mut(&node);
        let Some(asked) = asked.filter(|asked| asked.state == NewsRequest::Confirmed) else {
            return;
        };
        asked.state = NewsRequest::Wanted { due: now };
        let address = self.nodes.address(node);
        tracing::warn!(node = %address,
            "the connection with the news of a node is lost: clients get the news that all keys may have changed");
        self.service.note_silent(node);
    }
}

/// Returns the request for the news of a node.
fn request(node: NodeIndex, number: u64, now: Duration) -> BackendQuery {
    let mut bytes = Vec::new();
    write_command(&mut bytes, &[b"CLIENT", b"TRACKING", b"ON", b"BCAST"]);
    BackendQuery {
        client: HUB,
        sequence: number,
        part: 0,
        node,
        connection_key: news_key(node),
        bytes: bytes.into(),
        connection: None,
        replies: 1,
        safe: true,
        waits: false,
        route: 0,
        since: now,
        retries: 0,
    }
}

#[cfg(test)]
mod tests;
