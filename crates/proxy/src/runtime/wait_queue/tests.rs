//! Clients that ask nodes with little room again and again.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::runtime::query::{BackendQuery, ClientId, ConnectionKey};

const A: NodeIndex = NodeIndex(0);
const B: NodeIndex = NodeIndex(1);

fn query(place: usize, node: NodeIndex) -> BackendQuery {
    BackendQuery {
        client: ClientId {
            place: place as u32,
            thread: 0,
            number: 0,
        },
        sequence: 0,
        part: 0,
        node,
        connection_key: ConnectionKey(0),
        bytes: Bytes::new(),
        connection: None,
        replies: 1,
        safe: true,
        waits: false,
        route: 0,
        since: Duration::ZERO,
        retries: 0,
    }
}

/// A client: the needs of its requests, and its state.
#[derive(Clone, Default)]
struct Asking {
    wants: Vec<(NodeIndex, u32)>,
    /// Queries of its request that are with nodes.
    under_way: u32,
    /// Requests that have been sent.
    sent: usize,
    /// Turns since the last request was sent.
    waited: usize,
    gone: bool,
}

/// A thread with clients, with the steps of a turn.
struct Thread {
    wait_queue: WaitQueue,
    inflight: InflightBudget,
    clients: Vec<Asking>,
    /// The clients of the queries that are with each node.
    nodes: Vec<VecDeque<usize>>,
    ready: Vec<usize>,
}

impl Thread {
    fn new(most: u32, nodes: usize, clients: &[&[(NodeIndex, u32)]]) -> Thread {
        let asking = |wants: &&[(NodeIndex, u32)]| Asking {
            wants: wants.to_vec(),
            ..Asking::default()
        };
        Thread {
            wait_queue: WaitQueue::default(),
            inflight: InflightBudget::new(most),
            clients: clients.iter().map(asking).collect(),
            nodes: vec![VecDeque::new(); nodes],
            ready: (0..clients.len()).collect(),
        }
    }

    /// Lets a node answer the oldest of its queries. A client that has all replies asks again at once,
    /// before all clients that wait.
    fn answer(&mut self, node: NodeIndex) {
        let Some(place) = self.nodes[node.0 as usize].pop_front() else {
            return;
        };
        self.inflight.give_back(&query(place, node));
        self.wait_queue.freed(node);
        let client = &mut self.clients[place];
        client.under_way -= 1;
        if client.under_way == 0 && !client.gone {
            self.ready.insert(0, place);
        }
    }

    /// Serves the clients that are ready or woken. Returns those that were woken.
    fn turn(&mut self) -> Vec<usize> {
        let mut woken = Vec::new();
        self.wait_queue
            .wake(&mut self.inflight, |place| woken.push(place));
        self.ready.extend(&woken);
        for place in std::mem::take(&mut self.ready) {
            self.serve(place);
        }
        self.wait_queue.settle(&mut self.inflight);
        for client in &mut self.clients {
            client.waited += 1;
        }
        woken
    }

    fn serve(&mut self, place: usize) {
        let client = &mut self.clients[place];
        if client.gone || client.under_way > 0 {
            return;
        }
        self.wait_queue.begin(place, &mut self.inflight);
        let goes = match client.wants[..] {
            [(node, 1)] => self.inflight.has_one(node),
            _ => self.inflight.has_all(&client.wants),
        };
        if goes {
            for &(node, count) in &client.wants {
                for _ in 0..count {
                    self.inflight.take(&query(place, node));
                    self.nodes[node.0 as usize].push_back(place);
                    client.under_way += 1;
                }
            }
            client.sent += 1;
            client.waited = 0;
        }
        self.wait_queue.end(place, !goes, &mut self.inflight);
    }

    /// Checks that all clients that wait are served when the nodes go on to answer, and that no room
    /// stays kept.
    fn comes_to_rest(mut self) {
        let before: Vec<usize> = self.clients.iter().map(|client| client.sent).collect();
        let all = self.nodes.len() as u32;
        for round in 0.. {
            assert!(round < 100_000, "a client waits, and nothing happens");
            self.ready
                .retain(|&place| self.clients[place].sent == before[place]);
            self.turn();
            let idle = self.nodes.iter().all(VecDeque::is_empty);
            if idle && !self.wait_queue.has_freed() && self.ready.is_empty() {
                break;
            }
            (0..all).for_each(|node| self.answer(NodeIndex(node)));
        }
        for (place, client) in self.clients.iter().enumerate() {
            let waits = self.wait_queue.waits.contains_key(&place);
            assert!(!waits, "{place} waits with nodes that have nothing to do");
            assert!(client.gone || client.sent > 0, "{place} was never served");
        }
        let WaitQueue {
            granted,
            line,
            tickets,
            claim,
            ..
        } = &self.wait_queue;
        assert!(granted.is_empty() && line.is_empty() && tickets.is_empty() && claim.is_empty());
        for node in 0..all {
            assert_eq!(
                self.inflight.free(NodeIndex(node)),
                self.inflight.free(NodeIndex(all))
            );
        }
    }
}

#[test]
fn as_many_are_woken_as_there_is_room_for_and_no_others() {
    // Two requests fit with A; one asks B.
    let mut thread = Thread::new(
        2,
        2,
        &[
            &[(A, 1)],
            &[(A, 1)],
            &[(A, 1)],
            &[(A, 1)],
            &[(A, 1)],
            &[(B, 2)],
        ],
    );
    assert_eq!(thread.turn(), Vec::<usize>::new());
    let with =
        |thread: &Thread, node: usize| thread.nodes[node].iter().copied().collect::<Vec<_>>();
    assert_eq!(
        (with(&thread, 0), with(&thread, 1)),
        (vec![0, 1], vec![5, 5])
    );
    thread.answer(B);
    assert_eq!(thread.turn(), Vec::<usize>::new(), "no client waits for B");
    thread.answer(A);
    assert_eq!(
        thread.turn(),
        [2],
        "and not the first one, which has asked again"
    );
    thread.answer(A);
    thread.answer(A);
    assert_eq!(thread.turn(), [3, 4]);
    // A client that was woken and is gone leaves its room to the next.
    thread.answer(A);
    thread.clients[0].gone = true;
    assert_eq!(thread.turn(), [0]);
    assert!(thread.wait_queue.has_freed());
    assert_eq!(thread.turn(), [2]);
    thread.comes_to_rest();
}

#[test]
fn what_waits_for_something_else_is_woken_by_any_reply() {
    let mut thread = Thread::new(2, 2, &[&[(A, 1)]]);
    thread.turn();
    thread.wait_queue.begin(7, &mut thread.inflight);
    thread.wait_queue.end(7, true, &mut thread.inflight);
    assert_eq!(thread.turn(), Vec::<usize>::new());
    thread.answer(A);
    let mut woken = Vec::new();
    thread
        .wait_queue
        .wake(&mut thread.inflight, |place| woken.push(place));
    assert_eq!(woken, [7]);
}

/// The nodes answer in turn, so that never both of them have room at the same time.
#[test]
fn a_request_over_several_nodes_is_not_overtaken_for_ever() {
    for (most, part) in [(1, 1), (2, 1), (4, 1), (4, 2), (5, 3), (4, 4)] {
        let mut wants: Vec<&[(NodeIndex, u32)]> = Vec::new();
        wants.extend([&[(A, 1)][..]; 12]);
        wants.extend([&[(B, 1)][..]; 12]);
        let both = [(A, part), (B, part)];
        wants.extend([&both[..]; 3]);
        let mut thread = Thread::new(most, 2, &wants);
        for number in 0..4000 {
            thread.turn();
            thread.answer(NodeIndex(number % 2));
            let longest = thread.clients.iter().map(|client| client.waited).max();
            let longest = longest.unwrap_or_default();
            assert!(
                longest < 300,
                "{longest} turns, {most} {part}: turn {number}"
            );
        }
        let sent = thread.clients.iter().map(|client| client.sent);
        assert!(sent.min() >= Some(20), "{most} {part}");
        thread.comes_to_rest();
    }
}

/// While a node is silent, all clients have at least half of the other node's room.
#[test]
fn a_silent_node_holds_up_only_its_own() {
    let both = [(A, 2), (B, 2)];
    let wants: [&[(NodeIndex, u32)]; 6] = [&[(B, 4)], &both, &both, &both, &[(A, 1)], &[(A, 1)]];
    let mut thread = Thread::new(4, 2, &wants);
    for _ in 0..100 {
        thread.turn();
        thread.answer(A);
    }
    assert!(thread.clients[4].sent > 40 && thread.clients[5].sent > 40);
    assert!(thread.clients[1..4].iter().all(|client| client.sent == 0));
    // The silent node answers again, and its clients go on.
    for _ in 0..300 {
        thread.turn();
        thread.answer(A);
        thread.answer(B);
    }
    assert!(thread.clients.iter().all(|client| client.sent > 5));
    thread.comes_to_rest();
}

#[test]
fn every_client_is_served_under_random_events() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (most, nodes) = (random.u32(1..9), random.usize(1..5));
        let wants: Vec<Vec<(NodeIndex, u32)>> = (0..random.usize(1..30))
            .map(|_| {
                let mut wanted = Vec::new();
                for node in 0..nodes as u32 {
                    if wanted.is_empty() || random.u8(..4) == 0 {
                        wanted.push((NodeIndex(node), random.u32(1..5)));
                    }
                }
                wanted.iter_mut().for_each(|(node, _)| {
                    node.0 = (node.0 + seed as u32) % nodes as u32;
                });
                wanted
            })
            .collect();
        let wants: Vec<&[(NodeIndex, u32)]> = wants.iter().map(Vec::as_slice).collect();
        let mut thread = Thread::new(most, nodes, &wants);
        for _ in 0..random.usize(1..400) {
            thread.turn();
            for _ in 0..random.usize(..4) {
                thread.answer(NodeIndex(random.u32(..nodes as u32)));
            }
            let place = random.usize(..thread.clients.len());
            match random.u8(..60) {
                0 => {
                    thread.clients[place].gone = true;
                    thread.wait_queue.gone(place, &mut thread.inflight);
                }
                // A client is looked at though nothing has changed.
                1..10 => thread.ready.push(place),
                _ => {}
            }
        }
        thread.comes_to_rest();
    }
}
