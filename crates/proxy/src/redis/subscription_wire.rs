//! A connection to a node that has subscriptions, or that tells of changes of keys: the node sends messages on it
//! that no request asked for.
//!
//! | connection | protocol | requests |
//! |---|---|---|
//! | with subscriptions | RESP2, which every node speaks | each changes one subscription. Its answer is the confirmation, which is a list as messages are; its first word tells which it is |
//! | with the news of keys | RESP3, in which the news are pushes | `CLIENT TRACKING` |

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
    /// The connection with subscriptions has ended, and all of them with it.
    Lost { node: NodeIndex },
    /// Keys have changed; `None`: all keys may have.
    Changed { keys: Option<Vec<Box<[u8]>>> },
    /// The connection with the news of keys has ended.
    NewsLost { node: NodeIndex },
}

/// The settings of connections with subscriptions.
pub(crate) struct SubscriptionOptions {
    pub(crate) node: Arc<Options>,
    /// Where the connections put what comes without a request.
    pub(crate) pushes: Arc<Mutex<Vec<NodePush>>>,
}

/// Returns the key of the only connection to a node that has subscriptions.
pub(crate) fn connection_key(node: NodeIndex) -> ConnectionKey {
    ConnectionKey(node.0.into())
}

/// Marks the key of a connection with the news of keys.
const NEWS: u64 = 1 << 32;

/// Returns the key of the only connection to a node that tells of changes of keys.
pub(crate) fn news_key(node: NodeIndex) -> ConnectionKey {
    ConnectionKey(NEWS | u64::from(node.0))
}

/// See the module documentation.
pub(crate) struct SubscriptionWire {
    node: NodeIndex,
    /// It is for the news of keys.
    has_news: bool,
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
    /// Something that is of no interest.
    Other,
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
            has_news: connection_key.0 & NEWS != 0,
            pushes: Arc::clone(&options.pushes),
            flights: VecDeque::new(),
            parser: ReplyParser::new(),
            is_new: false,
        };
        let request = greeting(&options.node, wire.has_news);
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
                NodeFrame::Other => {}
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
        let node = self.node;
        self.pushes.lock().push(match self.has_news {
            true => NodePush::NewsLost { node },
            false => NodePush::Lost { node },
        });
    }
}

impl SubscriptionWire {
    fn put_own(&mut self, request: &[&[u8]], pack: &mut OutBatch, now: Duration) {
        pack.put_with(|out| write_command(out, request));
        self.flights.push_back((None, now));
    }

    fn read(&self, bytes: &[u8]) -> Result<NodeFrame, resp::reply::BadReply> {
        if self.has_news {
            return read_news(bytes);
        }
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

/// Reads what came on a connection with the news of keys.
fn read_news(bytes: &[u8]) -> Result<NodeFrame, resp::reply::BadReply> {
    if bytes.first() != Some(&b'>') {
        return Ok(NodeFrame::Answer);
    }
    let Value::Push(fields) = Value::decode(bytes)? else {
        return Ok(NodeFrame::Other);
    };
    let [Value::Bulk(word), keys] = &fields[..] else {
        return Ok(NodeFrame::Other);
    };
    if word != b"invalidate" {
        return Ok(NodeFrame::Other);
    }
    let key = |key: &Value| match key {
        Value::Bulk(key) => Some(Box::from(&key[..])),
        _ => None,
    };
    let keys = match keys {
        Value::Array(keys) => keys.iter().map(key).collect(),
        _ => None,
    };
    Ok(NodeFrame::Push(NodePush::Changed { keys }))
}

/// Returns the request that changes a subscription.
pub(crate) fn encode((change, kind): (SubscriptionChange, SubscriptionKind), name: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(name.len() + 48);
    write_command(&mut bytes, &[change.word(kind).as_bytes(), name]);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::subscription_hub::HUB;

    const NODE: NodeIndex = NodeIndex(7);

    fn options(password: Option<&str>) -> SubscriptionOptions {
        let node = Options {
            password: password.map(str::to_owned),
            ..Options::default()
        };
        SubscriptionOptions {
            node: Arc::new(node),
            pushes: Arc::default(),
        }
    }

    fn open(options: &SubscriptionOptions) -> SubscriptionWire {
        let mut pack = OutBatch::default();
        SubscriptionWire::open(options, connection_key(NODE), &mut pack, Duration::ZERO)
    }

    fn put(wire: &mut SubscriptionWire, change: SubscriptionChange, sequence: u64, name: &[u8]) {
        let query = BackendQuery {
            client: HUB,
            sequence,
            part: 0,
            node: NODE,
            connection_key: connection_key(NODE),
            bytes: encode((change, SubscriptionKind::ShardChannel), name),
            connection: None,
            replies: 1,
            safe: true,
            waits: false,
            route: 0,
            since: Duration::ZERO,
            retries: 0,
        };
        wire.put(query, &mut OutBatch::default(), Duration::ZERO);
    }

    /// Gives the wire the bytes one by one, and returns the numbers of the queries that are answered.
    fn receive(wire: &mut SubscriptionWire, bytes: &[u8]) -> Result<Vec<u64>, WireError> {
        let (mut input, mut answered) = (BytesMut::new(), Vec::new());
        for byte in bytes {
            input.extend_from_slice(&[*byte]);
            wire.receive(&mut input, &mut |query, _| answered.push(query.sequence))?;
        }
        Ok(answered)
    }

    #[test]
    fn answers_and_messages_are_told_apart() {
        let options = options(None);
        let mut wire = open(&options);
        for (sequence, change) in [
            (1, SubscriptionChange::Begins),
            (2, SubscriptionChange::Ends),
            (3, SubscriptionChange::Begins),
        ] {
            put(&mut wire, change, sequence, b"foo");
        }
        wire.probe(&mut OutBatch::default(), Duration::ZERO);
        let input = b"*3\r\n$10\r\nssubscribe\r\n$3\r\nfoo\r\n:1\r\n\
            *3\r\n$8\r\nsmessage\r\n$3\r\nfoo\r\n$1\r\nx\r\n\
            *3\r\n$12\r\nsunsubscribe\r\n$3\r\nbar\r\n:1\r\n\
            *3\r\n$12\r\nsunsubscribe\r\n$3\r\nfoo\r\n:0\r\n\
            *4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$3\r\nfoo\r\n$0\r\n\r\n\
            -MOVED 1 127.0.0.1:1\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n";
        assert_eq!(receive(&mut wire, input), Ok(vec![1, 2, 3]));
        assert_eq!(wire.under_way(), 0);
        let message = |sharded, payload: &[u8]| ChannelMessage {
            sharded,
            channel: b"foo"[..].into(),
            payload: payload.into(),
        };
        let expected = vec![
            NodePush::Message {
                message: message(true, b"x"),
                pattern: None,
            },
            NodePush::Ended {
                node: NODE,
                name: b"bar".to_vec(),
            },
            NodePush::Message {
                message: message(false, b""),
                pattern: Some(b"*"[..].into()),
            },
        ];
        assert_eq!(std::mem::take(&mut *options.pushes.lock()), expected);
        for nonsense in [&b"+more\r\n"[..], b"*0\r\n", b"*1\r\n:1\r\n", b"hello\r\n"] {
            assert!(receive(&mut open(&options), nonsense).is_err());
        }
        drop(wire);
        let lost = NodePush::Lost { node: NODE };
        assert_eq!(options.pushes.lock().last(), Some(&lost));
    }

    #[test]
    fn news_of_keys_are_told_from_answers() {
        let options = options(None);
        let mut pack = OutBatch::default();
        let key = news_key(NODE);
        let mut wire = SubscriptionWire::open(&options, key, &mut pack, Duration::ZERO);
        assert!(!wire.has_room());
        let greeted = receive(&mut wire, b"%1\r\n+proto\r\n:3\r\n");
        assert_eq!(greeted, Ok(vec![]));
        assert!(wire.has_room());
        put(&mut wire, SubscriptionChange::Begins, 1, b"any request");
        let input = b"+OK\r\n>2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$0\r\n\r\n\
            >2\r\n$10\r\ninvalidate\r\n_\r\n>1\r\n$5\r\nother\r\n";
        assert_eq!(receive(&mut wire, input), Ok(vec![1]));
        drop(wire);
        let keys = Some(vec![b"a"[..].into(), Box::default()]);
        let expected = vec![
            NodePush::Changed { keys },
            NodePush::Changed { keys: None },
            NodePush::NewsLost { node: NODE },
        ];
        assert_eq!(std::mem::take(&mut *options.pushes.lock()), expected);
    }

    #[test]
    fn requests_wait_until_the_node_has_accepted_the_proxy() {
        let options = options(Some("secret"));
        let mut wire = open(&options);
        assert!(!wire.has_room());
        assert_eq!(receive(&mut wire, b"+OK\r\n"), Ok(vec![]));
        assert!(wire.has_room());
        let refused = receive(&mut open(&options), b"-WRONGPASS no\r\n");
        assert_eq!(refused, Err(WireError::Refused("WRONGPASS no".to_owned())));
    }
}
