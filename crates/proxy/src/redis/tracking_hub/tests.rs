//! The hub between clients and nodes that are played here.

use std::net::SocketAddr;

use super::*;
use crate::node_kind::NodeKind;
use crate::redis::subscription_service::{SubscriptionEvent, SubscriptionService};
use crate::runtime::query::{BackendAnswer, ClientId};

const MS: Duration = Duration::from_millis(1);
const CLIENT: ClientId = ClientId {
    place: 3,
    thread: 0,
    number: 7,
};

/// A hub before two nodes, and one thread with clients.
struct Scene {
    hub: TrackingHub,
    subscriptions: Arc<SubscriptionService>,
    service: Arc<TrackingService>,
    now: Duration,
}

impl Scene {
    fn new() -> Scene {
        let nodes = Arc::new(Nodes::default());
        let places = [1, 2].map(|port| nodes.place(SocketAddr::from(([127, 0, 0, 1], port))));
        let subscriptions = Arc::new(SubscriptionService::new(1, NodeKind::RedisCluster));
        let service = Arc::new(TrackingService::new(Arc::clone(&subscriptions), 100));
        let map = Arc::new(SlotMap::even(&places));
        Scene {
            hub: TrackingHub::new(map, nodes, Arc::clone(&service)),
            subscriptions,
            service,
            now: Duration::ZERO,
        }
    }

    /// Takes the requests for the nodes, in the order of these, and the nodes whose connections are closed.
    fn orders(&mut self) -> (Vec<BackendQuery>, Vec<u32>) {
        self.hub.tick(self.now);
        let (mut queries, mut closed) = (Vec::new(), Vec::new());
        for order in std::mem::take(&mut self.hub.orders) {
            match order {
                BackendCommand::Send(query) => queries.push(query),
                BackendCommand::HangUp(node, _) => closed.push(node.0),
                BackendCommand::Release(..) => panic!("it is closed at once"),
            }
        }
        queries.sort_by_key(|query| query.node);
        closed.sort_unstable();
        (queries, closed)
    }

    fn queries(&mut self) -> Vec<BackendQuery> {
        let (queries, closed) = self.orders();
        assert_eq!(closed, [0_u32; 0]);
        queries
    }

    fn reply(&mut self, query: BackendQuery, result: Result<&'static str, QueryFailure>) {
        let result = result.map(|bytes| BackendAnswer {
            bytes: Bytes::from_static(bytes.as_bytes()),
            earlier_error: None,
        });
        let reply = BackendReply {
            query,
            connection: 1,
            result,
        };
        self.hub.answered(reply, self.now);
    }

    /// Lets both nodes send news to a client that waits.
    fn begin(&mut self) {
        assert_eq!(self.service.begin(), None);
        for query in self.queries() {
            self.reply(query, Ok("+OK\r\n"));
        }
        assert_eq!(self.events(), ["all", "all", "begun"]);
    }

    fn events(&self) -> Vec<String> {
        let events = std::iter::from_fn(|| self.subscriptions.take_event(0));
        let shown = events.map(|event| match event {
            SubscriptionEvent::AllInvalidated => "all".to_owned(),
            SubscriptionEvent::TrackingBegun(Ok(())) => "begun".to_owned(),
            SubscriptionEvent::TrackingBegun(Err(error)) => {
                String::from_utf8_lossy(&error).trim_end().to_owned()
            }
            SubscriptionEvent::Invalidated { client, keys, .. } => {
                let keys = keys.expect("single keys");
                let keys: Vec<_> = keys
                    .iter()
                    .map(|key| String::from_utf8_lossy(key))
                    .collect();
                format!("{}: {}", client.number, keys.join(" "))
            }
            _ => panic!("it is about channels"),
        });
        shown.collect()
    }

    fn changed(&mut self, names: &str) {
        let keys = names.split_whitespace();
        let keys = Some(keys.map(|key| key.as_bytes().into()).collect());
        let push = self.hub.pushed(NodePush::Changed { keys }, self.now);
        assert_eq!(push, None);
    }
}

#[test]
fn nodes_are_asked_while_clients_want_news() {
    let mut scene = Scene::new();
    assert!(scene.queries().is_empty() && !scene.hub.is_outdated());
    scene.begin();
    assert_eq!(scene.service.begin(), Some(Ok(())));
    assert!(scene.queries().is_empty());
    assert!(scene.service.sends_news(NodeIndex(0)) && scene.service.sends_news(NodeIndex(1)));
    scene.service.end();
    assert!(!scene.hub.is_outdated());
    scene.service.end();
    assert!(scene.hub.is_outdated());
    let (queries, closed) = scene.orders();
    assert!(queries.is_empty());
    assert_eq!(closed, [0, 1]);
    assert!(!scene.service.sends_news(NodeIndex(0)));
    // It begins anew.
    scene.begin();
}

#[test]
fn a_change_is_told_once_to_the_clients_that_may_keep_the_key() {
    let mut scene = Scene::new();
    scene.begin();
    let other = ClientId {
        number: 8,
        ..CLIENT
    };
    scene.service.add_read(b"a", CLIENT);
    scene.service.add_read(b"b", CLIENT);
    scene
        .service
        .prefixes
        .change()
        .add(other, &[b"a"[..].into()]);
    scene.changed("a x ab");
    assert_eq!(scene.events(), ["7: a", "8: a ab"]);
    scene.changed("a");
    assert_eq!(scene.events(), ["8: a"]);
    assert!(scene.service.take_read(b"b", CLIENT));
    scene.changed("b");
    scene.service.add_read(b"b", CLIENT);
    let push = NodePush::Changed { keys: None };
    scene.hub.pushed(push, scene.now);
    scene.changed("b");
    assert_eq!(scene.events(), ["all"]);
    // Beyond the bound of the table, keys count as changed.
    for number in 0..300 {
        scene
            .service
            .add_read(format!("{number}").as_bytes(), CLIENT);
    }
    assert!(scene.events().len() >= 100);
}

#[test]
fn a_lost_node_is_asked_again_and_all_keys_may_have_changed() {
    let mut scene = Scene::new();
    scene.begin();
    scene.service.add_read(b"a", CLIENT);
    let lost = || NodePush::NewsLost { node: NodeIndex(1) };
    scene.hub.pushed(lost(), scene.now);
    assert_eq!(scene.events(), ["all"]);
    assert!(!scene.service.sends_news(NodeIndex(1)) && scene.service.sends_news(NodeIndex(0)));
    scene.changed("a");
    assert!(scene.events().is_empty());
    let query = scene.queries().pop().expect("it is asked again");
    let unreachable = || NodeError::Unreachable("no".to_owned());
    scene.reply(query, Err(QueryFailure::Unsent(unreachable())));
    // The end of a connection that sent no news is no event.
    scene.hub.pushed(lost(), scene.now);
    assert!(scene.events().is_empty() && scene.queries().is_empty());
    assert_eq!(scene.hub.timeout(scene.now), Some(PAUSE));
    scene.now += PAUSE;
    let query = scene.queries().pop().expect("it is asked again");
    scene.reply(query, Ok("+OK\r\n"));
    assert_eq!(scene.events(), ["all"]);
    assert!(scene.service.sends_news(NodeIndex(1)));
}

#[test]
fn an_unreachable_node_keeps_no_client_waiting_and_a_refusal_is_passed_on() {
    let mut scene = Scene::new();
    assert_eq!(scene.service.begin(), None);
    let [first, second] = <[BackendQuery; 2]>::try_from(scene.queries()).expect("two nodes");
    scene.reply(first, Ok("+OK\r\n"));
    assert_eq!(scene.events(), ["all"]);
    let silent = NodeError::Silent(MS);
    scene.reply(second, Err(QueryFailure::Lost(silent)));
    assert_eq!(scene.events(), ["begun"]);
    assert!(!scene.service.sends_news(NodeIndex(1)));

    let mut scene = Scene::new();
    assert_eq!(scene.service.begin(), None);
    let [first, second] = <[BackendQuery; 2]>::try_from(scene.queries()).expect("two nodes");
    scene.reply(first, Ok("-NOPERM no\r\n"));
    scene.reply(second, Ok("-LOADING later\r\n"));
    assert_eq!(scene.events(), ["-NOPERM no"]);
    assert_eq!(scene.service.begin(), Some(Err("-NOPERM no\r\n".into())));
    scene.service.end();
    scene.now += REFUSED_PAUSE;
    let (queries, closed) = scene.orders();
    assert_eq!((queries.len(), closed), (0, vec![0, 1]));
}

#[test]
fn the_news_follow_the_slots() {
    let mut scene = Scene::new();
    scene.begin();
    let third = scene.hub.nodes.place(SocketAddr::from(([127, 0, 0, 1], 3)));
    let map = SlotMap::even(&[NodeIndex(0), third]);
    scene.hub.set_map(Arc::new(map), scene.now);
    assert_eq!(scene.events(), ["all", "all"]);
    let (queries, closed) = scene.orders();
    assert_eq!(closed, [1]);
    assert!(!scene.service.sends_news(NodeIndex(1)));
    let [query] = <[BackendQuery; 1]>::try_from(queries).expect("the new node");
    assert_eq!(query.node, third);
    scene.reply(query, Ok("+OK\r\n"));
    assert!(scene.service.sends_news(third));
}
