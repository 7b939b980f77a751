//! The hub between clients and nodes that are played here.

use channels::ChannelMessage;

use super::*;
use crate::runtime::query::NodeError;

const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(3);

/// A hub before two nodes.
struct Scene {
    hub: SubscriptionHub,
    now: Duration,
    requests: u64,
}

impl Scene {
    fn new(kind: NodeKind) -> Scene {
        let nodes = Arc::new(Nodes::default());
        let places = [1, 2].map(|port| nodes.place(SocketAddr::from(([127, 0, 0, 1], port))));
        let service = Arc::new(SubscriptionService::new(1, kind));
        let map = Arc::new(SlotMap::even(&places));
        Scene {
            hub: SubscriptionHub::new(kind, map, nodes, service, PATIENCE),
            now: Duration::ZERO,
            requests: 0,
        }
    }

    /// Subscribes a client, and returns the number of the request.
    fn subscribe(&mut self, kind: SubscriptionKind, names: &[&str]) -> u64 {
        self.requests += 1;
        let names = names.iter().map(|name| ChannelName::from(name.as_bytes()));
        let request = SubscribeRequest {
            client: HUB,
            sequence: self.requests,
            wanted: super::super::subscription_service::OpenSubscription {
                kind,
                names: names.collect(),
            },
        };
        self.hub.handle(HubRequest::Subscribe(request), self.now);
        self.requests
    }

    fn unsubscribe(&mut self, kind: SubscriptionKind, name: &str) {
        let request = HubRequest::Unsubscribe(kind, name.as_bytes().into());
        self.hub.handle(request, self.now);
    }

    /// Takes the requests for the nodes: the node, the words, and the query.
    fn sent(&mut self) -> Vec<(u32, String, BackendQuery)> {
        self.hub.tick(self.now);
        let orders = std::mem::take(&mut self.hub.orders);
        let sent = orders.into_iter().filter_map(|order| match order {
            BackendCommand::Send(query) => Some(query),
            BackendCommand::HangUp(..) | BackendCommand::Release(..) => None,
        });
        let shown = |query: &BackendQuery| {
            let text = String::from_utf8_lossy(&query.bytes).into_owned();
            let words = text.split("\r\n").skip(2).step_by(2);
            words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
        };
        sent.map(|query| (query.node.0, shown(&query), query))
            .collect()
    }

    fn answer(&mut self, query: BackendQuery, bytes: &'static str) {
        let result = Ok(BackendAnswer {
            bytes: Bytes::from_static(bytes.as_bytes()),
            earlier_error: None,
        });
        self.reply(query, result);
    }

    fn reply(&mut self, query: BackendQuery, result: Result<BackendAnswer, QueryFailure>) {
        let reply = BackendReply {
            query,
            connection: 1,
            result,
        };
        let nodes = Arc::clone(&self.hub.nodes);
        let known = move |address| Some(nodes.place(address));
        self.hub.answered(reply, known, self.now);
    }

    /// Has the nodes confirm everything, and returns what they were asked.
    fn confirm(&mut self) -> Vec<(u32, String)> {
        let sent = self.sent().into_iter();
        sent.map(|(node, words, query)| {
            self.answer(query, "*3\r\n$1\r\nx\r\n$1\r\nx\r\n:1\r\n");
            (node, words)
        })
        .collect()
    }

    /// Takes the events for the clients: the numbers of confirmed requests, and of those that were refused.
    fn events(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut confirmed, mut refused) = (Vec::new(), Vec::new());
        while let Some(event) = self.hub.service.take_event(0) {
            match event {
                SubscriptionEvent::Subscribed { sequence, .. } => confirmed.push(sequence),
                SubscriptionEvent::Refused { sequence, .. } => refused.push(sequence),
                _ => panic!("no client subscribes"),
            }
        }
        (confirmed, refused)
    }
}

fn at(node: u32, words: &str) -> (u32, String) {
    (node, words.to_owned())
}

fn unreachable() -> QueryFailure {
    QueryFailure::Unsent(NodeError::Unreachable("a test".to_owned()))
}

const CHANNEL: SubscriptionKind = SubscriptionKind::Channel;
const PATTERN: SubscriptionKind = SubscriptionKind::Pattern;
const SHARD: SubscriptionKind = SubscriptionKind::ShardChannel;
/// Channels whose slots are those of the first and of the second node.
const ON: [&str; 2] = ["bar", "foo"];

#[test]
fn one_subscription_serves_all_clients() {
    let mut scene = Scene::new(NodeKind::RedisCluster);
    let first = scene.subscribe(CHANNEL, &ON);
    let second = scene.subscribe(CHANNEL, &[ON[0]]);
    assert_eq!(scene.events(), (vec![], vec![]));
    let mut asked = scene.confirm();
    asked.sort();
    assert_eq!(asked, [at(0, "subscribe bar"), at(1, "subscribe foo")]);
    let (mut confirmed, refused) = scene.events();
    confirmed.sort_unstable();
    assert_eq!((confirmed, refused), (vec![first, second], vec![]));
    // The third client finds both.
    let third = scene.subscribe(CHANNEL, &ON);
    assert_eq!(scene.events(), (vec![third], vec![]));
    let message = (false, ON[0].as_bytes());
    assert_eq!(scene.hub.service.receivers(NodeIndex(0), message, 3), 2);
    assert_eq!(scene.hub.service.receivers(NodeIndex(1), message, 3), 3);
    for _ in 0..2 {
        scene.unsubscribe(CHANNEL, ON[0]);
        assert!(scene.confirm().is_empty());
    }
    scene.unsubscribe(CHANNEL, ON[0]);
    assert_eq!(scene.confirm(), [at(0, "unsubscribe bar")]);
    assert_eq!(scene.hub.service.receivers(NodeIndex(0), message, 3), 3);
    // A subscription that ends before it is confirmed, and begins again.
    scene.subscribe(CHANNEL, &["x"]);
    let (_, _, lost) = scene.sent().remove(0);
    scene.unsubscribe(CHANNEL, "x");
    let again = scene.subscribe(CHANNEL, &["x"]);
    scene.answer(lost, "*3\r\n");
    assert_eq!(scene.events(), (vec![], vec![]));
    let words: Vec<String> = scene
        .confirm()
        .into_iter()
        .map(|(_, words)| words)
        .collect();
    assert_eq!(words, ["unsubscribe x", "subscribe x"]);
    assert_eq!(scene.events(), (vec![again], vec![]));
}

#[test]
fn separate_servers_have_a_pattern_each() {
    let mut scene = Scene::new(NodeKind::RedisServers);
    let request = scene.subscribe(PATTERN, &["f*"]);
    let mut sent = scene.sent();
    assert_eq!(sent.len(), 2);
    let (_, _, second) = sent.remove(1);
    let (_, _, first) = sent.remove(0);
    scene.answer(second, "*3\r\n");
    assert_eq!(scene.events(), (vec![], vec![]), "one has not confirmed");
    scene.answer(first, "*3\r\n");
    assert_eq!(scene.events(), (vec![request], vec![]));
    let mut scene = Scene::new(NodeKind::Kumiki);
    scene.subscribe(PATTERN, &["f*"]);
    assert_eq!(scene.confirm().len(), 1);
}

#[test]
fn what_a_node_loses_is_made_again_once_it_is_back() {
    let mut scene = Scene::new(NodeKind::RedisServers);
    let names: Vec<String> = (0..40).map(|number| format!("{{bar}}{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let request = scene.subscribe(CHANNEL, &names);
    scene.confirm();
    assert_eq!(scene.events(), (vec![request], vec![]));
    scene
        .hub
        .pushed(NodePush::Lost { node: NodeIndex(0) }, scene.now);
    let message = (false, names[3].as_bytes());
    assert_eq!(scene.hub.service.receivers(NodeIndex(0), message, 1), 1);
    // One request shows that the node is not back; clients get no news.
    for _ in 0..5 {
        let mut sent = scene.sent();
        assert_eq!(sent.len(), 1);
        assert!(scene.sent().is_empty());
        let (_, _, query) = sent.remove(0);
        scene.reply(query, Err(unreachable()));
        assert!(scene.sent().is_empty(), "after a pause");
        scene.now += PAUSE;
    }
    let late = scene.subscribe(CHANNEL, &[names[7], "{bar}new"]);
    assert_eq!(scene.confirm().len(), 1);
    assert_eq!(scene.confirm().len(), names.len());
    assert_eq!(scene.events(), (vec![late], vec![]));
    assert_eq!(scene.hub.service.receivers(NodeIndex(0), message, 1), 0);
}

#[test]
fn a_request_that_is_refused_or_too_late_has_no_effect() {
    let mut scene = Scene::new(NodeKind::Kumiki);
    let stays = scene.subscribe(CHANNEL, &["stays"]);
    scene.confirm();
    let request = scene.subscribe(CHANNEL, &["stays", "bar", "foo"]);
    for (_, words, query) in scene.sent() {
        match &*words {
            "subscribe bar" => scene.answer(query, "-NOPERM no\r\n"),
            _ => scene.answer(query, "*3\r\n"),
        }
    }
    assert_eq!(scene.events(), (vec![stays], vec![request]));
    assert_eq!(scene.confirm(), [at(1, "unsubscribe foo")]);
    // A node that does not answer.
    let request = scene.subscribe(CHANNEL, &["bar"]);
    assert_eq!(scene.sent().len(), 1);
    assert_eq!(scene.hub.timeout(scene.now), Some(PATIENCE));
    scene.now += PATIENCE - MS;
    scene.hub.tick(scene.now);
    assert_eq!(scene.events(), (vec![], vec![]));
    scene.now += MS;
    scene.hub.tick(scene.now);
    assert_eq!(scene.events(), (vec![], vec![request]));
    assert_eq!(scene.confirm(), [at(0, "unsubscribe bar")]);
    scene.unsubscribe(CHANNEL, "stays");
    scene.confirm();
    assert!(scene.hub.subscriptions.is_empty() && scene.hub.names.is_empty());
    assert!(scene.hub.requests.is_empty());
    assert!(
        scene
            .hub
            .links
            .values()
            .all(|link| link.places == 0 && link.wanted.is_empty())
    );
}

#[test]
fn shard_channels_follow_their_slots() {
    let mut scene = Scene::new(NodeKind::RedisCluster);
    let request = scene.subscribe(SHARD, &["foo"]);
    let (node, _, query) = scene.sent().remove(0);
    assert_eq!(node, 1);
    scene.answer(query, "-MOVED 12182 127.0.0.1:1\r\n");
    assert!(scene.sent().is_empty(), "after a pause");
    scene.now += PAUSE;
    assert_eq!(scene.confirm(), [at(0, "ssubscribe foo")]);
    assert_eq!(scene.events(), (vec![request], vec![]));
    // The node hands its slot over, and says so.
    let (node, name) = (NodeIndex(0), b"foo".to_vec());
    scene.hub.pushed(NodePush::Ended { node, name }, scene.now);
    scene.now += PAUSE;
    assert_eq!(scene.confirm(), [at(1, "ssubscribe foo")]);
    // Other channels stay at their node as long as it has slots.
    scene.subscribe(CHANNEL, &["foo"]);
    scene.confirm();
    let both = [(0, 16000, NodeIndex(0)), (16001, 16383, NodeIndex(1))];
    let map = SlotMap::new(&both, NodeIndex(0));
    scene.hub.set_map(Arc::new(map), scene.now);
    let asked = scene.confirm();
    assert_eq!(asked, [at(1, "sunsubscribe foo"), at(0, "ssubscribe foo")]);
    let map = SlotMap::new(&[(0, 16383, NodeIndex(0))], NodeIndex(0));
    scene.hub.set_map(Arc::new(map), scene.now);
    let asked = scene.confirm();
    assert_eq!(asked, [at(1, "unsubscribe foo"), at(0, "subscribe foo")]);
}

#[test]
fn messages_come_to_the_threads_that_have_subscribers() {
    let mut scene = Scene::new(NodeKind::Kumiki);
    let message = |channel: &str| ChannelMessage {
        sharded: false,
        channel: channel.as_bytes().into(),
        payload: Box::default(),
    };
    let (mut table, mut client) = (channels::SubscriberTable::new(0), Default::default());
    let service = Arc::clone(&scene.hub.service);
    table.subscribe(&service.registry, (PATTERN, b"f*"), 7, &mut client);
    for (channel, pattern, comes) in [
        ("foo", Some("f*"), true),
        ("foo", Some("fo*"), false),
        ("foo", None, false),
    ] {
        let pattern = pattern.map(|pattern| ChannelName::from(pattern.as_bytes()));
        let message = message(channel);
        scene
            .hub
            .pushed(NodePush::Message { message, pattern }, scene.now);
        assert_eq!(service.take_event(0).is_some(), comes, "{channel}");
    }
    // A message of another node comes as well; a pattern that no node has confirmed counts for nothing.
    let message = (false, &b"foo"[..]);
    assert_eq!(service.receivers(NodeIndex(0), message, 5), 5);
    service.note_confirmed(NodeIndex(1), PATTERN, ChannelName::from(&b"f*"[..]));
    assert_eq!(service.receivers(NodeIndex(0), message, 5), 6);
    assert_eq!(service.receivers(NodeIndex(1), message, 5), 5);
    assert_eq!(service.receivers(NodeIndex(1), (true, b"foo"), 5), 5);
    assert_eq!(service.receivers(NodeIndex(1), message, 0), 0);
}
