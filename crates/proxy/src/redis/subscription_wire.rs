//! A connection to a node that has subscriptions: the node sends messages on it that no request asked for.
//!
//! Each request changes one subscription. Its answer is the confirmation, which is a list as messages are;
//! its first word tells which it is. The protocol is RESP2, which every node speaks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use channels::frames::SubscriptionChange;
use channels::{ChannelMessage, ChannelName, SubscriptionKind};
use parking_lot::Mutex;
use resp::command::write_command;
use resp::{ReplyParser, Value};

use super::wire::{Options, greeting};
use crate::runtime::out_batch::OutBatch;
use crate::runtime::query::{BackendAnswer, BackendQuery, ConnectionKey, NodeIndex};
use crate::runtime::wire::{Wire, WireError};

/// Something that a node has sent, or a connection has met, without a request.
#[derive(Debug, PartialEq)]
pub(crate) enum NodePush {
    Message {
        message: ChannelMessage,
        /// The pattern because of which it was sent.
        pattern: Option<ChannelName>,
    },
    /// The node has ended a subscription to a shard channel: another node has its slot.
    Ended { node: NodeIndex, name: Vec<u8> },
    /// The connection has ended, and all subscriptions with it.
    Lost { node: NodeIndex },
}

/// The settings of connections with subscriptions.
pub(crate) struct SubscriptionOptions {
    pub(crate) node: Arc<Options>,
    /// Where the connections put what comes without a request.
    pub(crate) pushes: Arc<Mutex<Vec<NodePush>>>,
}

/// Returns the key of the only such connection to a node.
pub(crate) fn connection_key(node: NodeIndex) -> ConnectionKey {
    ConnectionKey(node.0.into())
}

/// See the module documentation.
pub(crate) struct SubscriptionWire {
    node: NodeIndex,
    pushes: Arc<Mutex<Vec<NodePush>>>,
    /// The requests that are under way, and when they were put; `None`: one of the proxy's own.
    flights: VecDeque<(Option<BackendQuery>, Duration)>,
    parser: ReplyParser,
    /// The node has not accepted the proxy yet.
    is_new: bool,
}

/// What a node has sent.
enum NodeFrame {
    Push(NodePush),
    /// The answer to the oldest request.
    Answer,
}

impl Wire for SubscriptionWire {
    type Options = SubscriptionOptions;

    fn open(
        options: &SubscriptionOptions,
        connection_key: ConnectionKey,
        pack: &mut OutBatch,
        now: Duration,
    ) -> SubscriptionWire {
        let mut wire = SubscriptionWire {
            node: NodeIndex(connection_key.0 as u32),
            pushes: Arc::clone(&options.pushes),
            flights: VecDeque::new(),
            parser: ReplyParser::new(),
            is_new: false,
        };
        let request = greeting(&options.node, false);
        if !request.is_empty() {
            wire.is_new = true;
            wire.put_own(&request, pack, now);
        }
        wire
    }

    fn has_room(&self) -> bool {
        !self.is_new
    }

    fn put(&mut self, query: BackendQuery, pack: &mut OutBatch, now: Duration) {
        pack.put(&query.bytes);
        self.flights.push_back((Some(query), now));
    }

    fn seal(&mut self, _: &mut OutBatch) {}

    fn probe(&mut self, pack: &mut OutBatch, now: Duration) {
        self.put_own(&[b"PING"], pack, now);
    }

    fn receive(
        &mut self,
        input: &mut BytesMut,
        told: &mut dyn FnMut(BackendQuery, BackendAnswer),
    ) -> Result<(), WireError> {
        let malformed = |error: resp::reply::BadReply| WireError::Nonsense(error.to_string());
        while let Some(end) = self.parser.parse(input).map_err(malformed)? {
            let bytes = input.split_to(end).freeze();
            match self.read(&bytes).map_err(malformed)? {
                NodeFrame::Push(push) => self.pushes.lock().push(push),
                NodeFrame::Answer => self.answered(bytes, told)?,
            }
        }
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.flights.len()
    }

    fn oldest(&self) -> Option<Duration> {
        self.flights.front().map(|&(_, put)| put)
    }

    fn abandon(&mut self, given_up: &mut dyn FnMut(BackendQuery)) {
        for query in self.flights.drain(..).filter_map(|(query, _)| query) {
            given_up(query);
        }
    }
}

impl Drop for SubscriptionWire {
    fn drop(&mut self) {
        self.pushes.lock().push(NodePush::Lost { node: self.node });
    }
}

impl SubscriptionWire {
    fn put_own(&mut self, request: &[&[u8]], pack: &mut OutBatch, now: Duration) {
        pack.put_with(|out| write_command(out, request));
        self.flights.push_back((None, now));
    }

    fn read(&self, bytes: &[u8]) -> Result<NodeFrame, resp::reply::BadReply> {
        // Everything else is an answer.
        if !matches!(bytes.first(), Some(b'*' | b'>')) {
            return Ok(NodeFrame::Answer);
        }
        let (Value::Array(fields) | Value::Push(fields)) = Value::decode(bytes)? else {
            return Ok(NodeFrame::Answer);
        };
        let fields = fields.into_iter().map(|field| match field {
            Value::Bulk(bytes) => bytes,
            _ => Vec::new(),
        });
        let mut fields: Vec<Vec<u8>> = fields.collect();
        let Some(word) = fields.first_mut().map(std::mem::take) else {
            return Ok(NodeFrame::Answer);
        };
        let message = |sharded, channel: Vec<u8>, payload: Vec<u8>| ChannelMessage {
            sharded,
            channel: channel.into(),
            payload: payload.into(),
        };
        Ok(match (&word[..], fields.len()) {
            (b"message" | b"smessage", 3) => {
                let payload = fields.remove(2);
                NodeFrame::Push(NodePush::Message {
                    message: message(word == b"smessage", fields.remove(1), payload),
                    pattern: None,
                })
            }
            (b"pmessage", 4) => {
                let payload = fields.remove(3);
                NodeFrame::Push(NodePush::Message {
                    message: message(false, fields.remove(2), payload),
                    pattern: Some(fields.remove(1).into()),
                })
            }
            (b"sunsubscribe", 3) if !self.awaits_end(&fields[1]) => {
                NodeFrame::Push(NodePush::Ended {
                    node: self.node,
                    name: fields.remove(1),
                })
            }
            _ => NodeFrame::Answer,
        })
    }

    /// Returns `true` if the oldest request ends the subscription to this shard channel.
    fn awaits_end(&self, name: &[u8]) -> bool {
        let oldest = self.flights.front().and_then(|(query, _)| query.as_ref());
        let ends = (SubscriptionChange::Ends, SubscriptionKind::ShardChannel);
        oldest.is_some_and(|query| query.bytes == encode(ends, name))
    }

    fn answered(
        &mut self,
        bytes: Bytes,
        told: &mut dyn FnMut(BackendQuery, BackendAnswer),
    ) -> Result<(), WireError> {
        let Some((query, _)) = self.flights.pop_front() else {
            let what = "a reply without a request";
            return Err(WireError::Nonsense(what.to_owned()));
        };
        let refusal = bytes.strip_prefix(b"-");
        match (query, refusal) {
            (Some(query), _) => {
                let earlier_error = None;
                told(
                    query,
                    BackendAnswer {
                        bytes,
                        earlier_error,
                    },
                );
            }
            (None, Some(text)) if self.is_new => {
                let text = String::from_utf8_lossy(text).trim_end().to_owned();
                return Err(WireError::Refused(text));
            }
            (None, _) => self.is_new = false,
        }
        Ok(())
    }
}

/// Returns the request that changes a subscription.
pub(crate) fn encode((change, kind): (SubscriptionChange, SubscriptionKind), name: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(name.len() + 48);
    write_command(&mut bytes, &[change.word(kind).as_bytes(), name]);
    bytes.into()
}
