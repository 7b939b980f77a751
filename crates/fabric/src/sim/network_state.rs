//! The state of a network, and its events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use fastrand::Rng;

use super::connection::{EndState, Packet, SimConnection};
use super::host::NetworkHost;
use super::options::Options;
use crate::link::{Link, Peer};

/// See the module's description.
pub(super) struct NetworkState {
    pub(super) options: Options,
    pub(super) rng: Rng,
    pub(super) now: Duration,
    /// The number of the last event or link.
    count: u64,
    clients: u32,
    schedule_queue: BinaryHeap<Reverse<(Duration, u64, ScheduledEvent)>>,
    pub(super) endpoints: Vec<EndpointQueue>,
    pub(super) hosts: BTreeMap<NetworkHost, HostState>,
    pub(super) connections: BTreeMap<u64, SimConnection>,
    /// The connection and the side of each link.
    pub(super) links: BTreeMap<Link, (u64, usize)>,
    pub(super) blocked: BTreeSet<(NetworkHost, NetworkHost)>,
    pub(super) rates: BTreeMap<(NetworkHost, NetworkHost), u64>,
}

/// The events that an endpoint has not received yet.
#[derive(Default)]
pub(super) struct EndpointQueue {
    pub(super) events: VecDeque<(Link, EndpointEvent)>,
    /// Links that have something to flush.
    pub(super) dirty: Vec<Link>,
}

/// An event of an endpoint.
#[derive(Debug)]
pub(super) enum EndpointEvent {
    Up(Peer),
    Message(Vec<u8>),
    Drained,
    Down(&'static str),
}

/// The state of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HostState {
    /// It has this endpoint.
    Alive(usize),
    /// It has crashed, and refuses connections.
    Refusing,
    /// It has crashed, and does not answer.
    Silent,
}

/// An action in the future.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScheduledEvent {
    /// Packets from this side arrive.
    Arrive { connection: u64, side: usize },
    /// Connecting has taken too long.
    GiveUp { connection: u64 },
    /// There was no endpoint.
    Refused { connection: u64 },
    /// The silence has lasted too long for this side; if a partition causes it, only if that lasts.
    Dead {
        connection: u64,
        side: usize,
        cut: Option<u64>,
    },
}

impl NetworkState {
    pub(super) fn new(seed: u64, options: Options) -> NetworkState {
        NetworkState {
            options,
            rng: Rng::with_seed(seed),
            now: Duration::ZERO,
            count: 0,
            clients: 0,
            schedule_queue: BinaryHeap::new(),
            endpoints: Vec::new(),
            hosts: BTreeMap::new(),
            connections: BTreeMap::new(),
            links: BTreeMap::new(),
            blocked: BTreeSet::new(),
            rates: BTreeMap::new(),
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn next_client(&mut self) -> NetworkHost {
        self.clients += 1;
        NetworkHost::Client(self.clients)
    }

    pub(super) fn add_endpoint(&mut self, host: NetworkHost) -> usize {
        let alive = HostState::Alive(self.endpoints.len());
        let before = self.hosts.insert(host, alive);
        if let Some(HostState::Alive(_)) = before {
            panic!("{host:?} has an endpoint already");
        }
        if before == Some(HostState::Silent) {
            self.break_silence(host);
        }
        self.endpoints.push(EndpointQueue::default());
        self.endpoints.len() - 1
    }

    pub(super) fn is_alive(&self, host: NetworkHost) -> bool {
        matches!(self.hosts.get(&host), Some(HostState::Alive(_)))
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn next_event_at(&self) -> Option<Duration> {
        self.schedule_queue.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse((at, _, action))) = self.schedule_queue.pop() else {
            return false;
        };
        self.now = self.now.max(at);
        self.act(action);
        true
    }

    pub(super) fn advance(&mut self, to: Duration) {
        while self.next_event_at().is_some_and(|at| at <= to) {
            self.step();
        }
        self.now = self.now.max(to);
    }

    pub(super) fn schedule(&mut self, at: Duration, action: ScheduledEvent) {
        let number = self.number();
        self.schedule_queue.push(Reverse((at, number, action)));
    }

    fn act(&mut self, action: ScheduledEvent) {
        match action {
            ScheduledEvent::Arrive { connection, side } => self.arrive(connection, side),
            ScheduledEvent::GiveUp { connection } => {
                let opening = |connection: &SimConnection| {
                    matches!(connection.ends[0].state, EndState::Opening { .. })
                };
                if self.connections.get(&connection).is_some_and(opening) {
                    self.down(connection, 0, "no process answers");
                    self.transmit(connection, 0, Packet::Close("the peer closed it"));
                }
            }
            ScheduledEvent::Refused { connection } => {
                self.down(connection, 0, "the connection was refused")
            }
            ScheduledEvent::Dead {
                connection,
                side,
                cut,
            } => {
                let found = self.connections.get_mut(&connection);
                let Some(found) = found.filter(|connection| cut.is_none() || connection.cut == cut)
                else {
                    return;
                };
                if found.ends[side].state == EndState::Closed {
                    return;
                }
                found.ends[side].cut_short(0);
                self.down(connection, side, "the peer keeps silent");
                self.transmit(connection, side, Packet::Close("the peer has given up"));
            }
        }
    }

    pub(super) fn delay(&mut self) -> Duration {
        let slow = self.options.slow_share > 0.0 && self.rng.f64() < self.options.slow_share;
        let range = if slow {
            &self.options.slow_delay
        } else {
            &self.options.delay
        };
        let span = range.end.saturating_sub(range.start);
        range.start + span.mul_f64(self.rng.f64())
    }

    /// Sends a packet on its way.
    pub(super) fn transmit(&mut self, number: u64, side: usize, packet: Packet) {
        let delay = self.delay();
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let way = (connection.ends[side].host, connection.ends[1 - side].host);
        let end = &mut connection.ends[side];
        let rate = self.rates.get(&way).copied();
        let takes = rate.map_or(0.0, |rate| packet.len() as f64 / rate as f64);
        end.taken = end.taken.max(self.now) + Duration::from_secs_f64(takes);
        end.last = end.last.max(end.taken + delay);
        end.flight.push_back((end.last, packet));
        let at = end.last;
        self.schedule(
            at,
            ScheduledEvent::Arrive {
                connection: number,
                side,
            },
        );
    }

    /// Delivers the packets from one side of a connection that are due.
    fn arrive(&mut self, number: u64, side: usize) {
        loop {
            let Some(connection) = self.connections.get_mut(&number) else {
                return;
            };
            let way = (connection.ends[side].host, connection.ends[1 - side].host);
            if self.blocked.contains(&way) {
                return;
            }
            let now = self.now;
            let due = connection.ends[side]
                .flight
                .pop_front_if(|(at, _)| *at <= now);
            let Some((_, packet)) = due else {
                return;
            };
            self.deliver(number, 1 - side, packet);
        }
    }

    /// Delivers a packet to a side.
    fn deliver(&mut self, number: u64, side: usize, packet: Packet) {
        if let Packet::Connect = packet {
            return self.deliver_hello(number);
        }
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let end = &mut connection.ends[side];
        match (packet, end.state) {
            (_, EndState::Closed) => {}
            (Packet::Accept, EndState::Opening { closing }) => {
                let peer = connection.ends[1 - side].host.peer();
                self.open(number, side, (!closing).then_some(peer));
                self.flush_end(number, side);
                if closing {
                    self.end(number, side);
                }
            }
            (Packet::Message(message), EndState::Up) => {
                self.notify(number, side, EndpointEvent::Message(message));
            }
            (Packet::Ack(bytes), EndState::Up) => {
                end.waiting -= bytes;
                if end.room.drained(end.waiting) {
                    self.notify(number, side, EndpointEvent::Drained);
                }
            }
            (Packet::Close(why), state) => {
                let why = if state == EndState::Closing {
                    "it was closed here"
                } else {
                    why
                };
                self.down(number, side, why);
                self.transmit(number, side, Packet::Close("the peer closed it"));
            }
            _ => {}
        }
    }

    /// Delivers a request to connect.
    fn deliver_hello(&mut self, number: u64) {
        let link = self.next_link();
        let delay = self.delay();
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        match self.hosts.get(&connection.ends[1].host) {
            Some(&HostState::Alive(endpoint)) => {
                let peer = connection.ends[0].host.peer();
                connection.ends[1].endpoint = Some(endpoint);
                connection.ends[1].link = link;
                self.links.insert(link, (number, 1));
                self.open(number, 1, Some(peer));
                self.transmit(number, 1, Packet::Accept);
            }
            Some(HostState::Silent) => {}
            Some(HostState::Refusing) | None => {
                connection.ends[1].state = EndState::Closed;
                self.schedule(
                    self.now + delay,
                    ScheduledEvent::Refused { connection: number },
                );
            }
        }
    }

    /// Marks an end as up; its user learns the peer, if `peer` names one.
    fn open(&mut self, number: u64, side: usize, peer: Option<Peer>) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.ends[side].state = EndState::Up;
        }
        if let Some(peer) = peer {
            self.notify(number, side, EndpointEvent::Up(peer));
        }
    }

    /// Removes an end, and informs its user of the reason.
    pub(super) fn down(&mut self, number: u64, side: usize, why: &'static str) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let end = &mut connection.ends[side];
        if end.state == EndState::Closed {
            return;
        }
        end.outbox.clear();
        self.notify(number, side, EndpointEvent::Down(why));
        self.forget(number, side);
    }

    /// Removes an end. The last one removes its connection.
    pub(super) fn forget(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.ends[side].state = EndState::Closed;
        self.links.remove(&connection.ends[side].link);
        if connection.is_over() {
            self.connections.remove(&number);
        }
    }

    fn notify(&mut self, number: u64, side: usize, event: EndpointEvent) {
        let end = &self.connections[&number].ends[side];
        if let Some(endpoint) = end.endpoint {
            self.endpoints[endpoint].events.push_back((end.link, event));
        }
    }
}
