//! The state of a network, and its events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use fastrand::Rng;

use super::wire::{Item, State, Wire};
use super::{Options, Place};
use crate::messages::{Link, Peer};

/// See the module's description.
pub(super) struct World {
    pub(super) options: Options,
    pub(super) rng: Rng,
    pub(super) now: Duration,
    /// The number of the last event or link.
    count: u64,
    clients: u32,
    events: BinaryHeap<Reverse<(Duration, u64, Action)>>,
    pub(super) endpoints: Vec<Mailbox>,
    pub(super) places: BTreeMap<Place, Standing>,
    pub(super) wires: BTreeMap<u64, Wire>,
    /// The wire and the side of each link.
    pub(super) links: BTreeMap<Link, (u64, usize)>,
    pub(super) blocked: BTreeSet<(Place, Place)>,
    pub(super) rates: BTreeMap<(Place, Place), u64>,
}

/// The events that an endpoint has not received yet.
#[derive(Default)]
pub(super) struct Mailbox {
    pub(super) news: VecDeque<(Link, News)>,
    /// Links that have something to flush.
    pub(super) dirty: Vec<Link>,
}

/// An event of an endpoint.
#[derive(Debug)]
pub(super) enum News {
    Up(Peer),
    Message(Vec<u8>),
    Drained,
    Down(&'static str),
}

/// The state of a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has this endpoint.
    Alive(usize),
    /// It has crashed, and refuses connections.
    Refusing,
    /// It has crashed, and does not answer.
    Silent,
}

/// An action in the future.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Items from this side arrive.
    Arrive { wire: u64, side: usize },
    /// Connecting has taken too long.
    GiveUp { wire: u64 },
    /// There was no endpoint.
    Refused { wire: u64 },
    /// The silence has lasted too long for this side; if a partition causes it, only if that lasts.
    Dead {
        wire: u64,
        side: usize,
        cut: Option<u64>,
    },
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> World {
        World {
            options,
            rng: Rng::with_seed(seed),
            now: Duration::ZERO,
            count: 0,
            clients: 0,
            events: BinaryHeap::new(),
            endpoints: Vec::new(),
            places: BTreeMap::new(),
            wires: BTreeMap::new(),
            links: BTreeMap::new(),
            blocked: BTreeSet::new(),
            rates: BTreeMap::new(),
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn next_client(&mut self) -> Place {
        self.clients += 1;
        Place::Client(self.clients)
    }

    pub(super) fn settle(&mut self, place: Place) -> usize {
        let alive = Standing::Alive(self.endpoints.len());
        let before = self.places.insert(place, alive);
        if let Some(Standing::Alive(_)) = before {
            panic!("{place:?} has an endpoint already");
        }
        if before == Some(Standing::Silent) {
            self.break_silence(place);
        }
        self.endpoints.push(Mailbox::default());
        self.endpoints.len() - 1
    }

    pub(super) fn is_alive(&self, place: Place) -> bool {
        matches!(self.places.get(&place), Some(Standing::Alive(_)))
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn next_event_at(&self) -> Option<Duration> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse((at, _, action))) = self.events.pop() else {
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

    pub(super) fn schedule(&mut self, at: Duration, action: Action) {
        let number = self.number();
        self.events.push(Reverse((at, number, action)));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Arrive { wire, side } => self.arrive(wire, side),
            Action::GiveUp { wire } => {
                let opening = |wire: &Wire| matches!(wire.ends[0].state, State::Opening { .. });
                if self.wires.get(&wire).is_some_and(opening) {
                    self.down(wire, 0, "no process answers");
                    self.travel(wire, 0, Item::Fin("the peer closed it"));
                }
            }
            Action::Refused { wire } => self.down(wire, 0, "the connection was refused"),
            Action::Dead { wire, side, cut } => {
                let found = self.wires.get_mut(&wire);
                let Some(found) = found.filter(|wire| cut.is_none() || wire.cut == cut) else {
                    return;
                };
                if found.ends[side].state == State::Closed {
                    return;
                }
                found.ends[side].cut_short(0);
                self.down(wire, side, "the peer keeps silent");
                self.travel(wire, side, Item::Fin("the peer has given up"));
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

    /// Sends an item on its way.
    pub(super) fn travel(&mut self, number: u64, side: usize, item: Item) {
        let delay = self.delay();
        let Some(wire) = self.wires.get_mut(&number) else {
            return;
        };
        let way = (wire.ends[side].place, wire.ends[1 - side].place);
        let end = &mut wire.ends[side];
        let rate = self.rates.get(&way).copied();
        let takes = rate.map_or(0.0, |rate| item.len() as f64 / rate as f64);
        end.taken = end.taken.max(self.now) + Duration::from_secs_f64(takes);
        end.last = end.last.max(end.taken + delay);
        end.flight.push_back((end.last, item));
        let at = end.last;
        self.schedule(at, Action::Arrive { wire: number, side });
    }

    /// Delivers the items from one side of a wire that are due.
    fn arrive(&mut self, number: u64, side: usize) {
        loop {
            let Some(wire) = self.wires.get_mut(&number) else {
                return;
            };
            let way = (wire.ends[side].place, wire.ends[1 - side].place);
            if self.blocked.contains(&way) {
                return;
            }
            let now = self.now;
            let due = wire.ends[side].flight.pop_front_if(|(at, _)| *at <= now);
            let Some((_, item)) = due else {
                return;
            };
            self.deliver(number, 1 - side, item);
        }
    }

    /// Delivers an item to a side.
    fn deliver(&mut self, number: u64, side: usize, item: Item) {
        if let Item::Hello = item {
            return self.deliver_hello(number);
        }
        let Some(wire) = self.wires.get_mut(&number) else {
            return;
        };
        let end = &mut wire.ends[side];
        match (item, end.state) {
            (_, State::Closed) => {}
            (Item::Welcome, State::Opening { closing }) => {
                let peer = wire.ends[1 - side].place.peer();
                self.open(number, side, (!closing).then_some(peer));
                self.flush_end(number, side);
                if closing {
                    self.end(number, side);
                }
            }
            (Item::Message(message), State::Up) => {
                self.tell(number, side, News::Message(message));
            }
            (Item::Ack(bytes), State::Up) => {
                end.waiting -= bytes;
                if end.room.drained(end.waiting) {
                    self.tell(number, side, News::Drained);
                }
            }
            (Item::Fin(why), state) => {
                let why = if state == State::Closing {
                    "it was closed here"
                } else {
                    why
                };
                self.down(number, side, why);
                self.travel(number, side, Item::Fin("the peer closed it"));
            }
            _ => {}
        }
    }

    /// Delivers a request to connect.
    fn deliver_hello(&mut self, number: u64) {
        let link = self.next_link();
        let delay = self.delay();
        let Some(wire) = self.wires.get_mut(&number) else {
            return;
        };
        match self.places.get(&wire.ends[1].place) {
            Some(&Standing::Alive(endpoint)) => {
                let peer = wire.ends[0].place.peer();
                wire.ends[1].endpoint = Some(endpoint);
                wire.ends[1].link = link;
                self.links.insert(link, (number, 1));
                self.open(number, 1, Some(peer));
                self.travel(number, 1, Item::Welcome);
            }
            Some(Standing::Silent) => {}
            Some(Standing::Refusing) | None => {
                wire.ends[1].state = State::Closed;
                self.schedule(self.now + delay, Action::Refused { wire: number });
            }
        }
    }

    /// Marks an end as up; its user learns the peer, if `peer` names one.
    fn open(&mut self, number: u64, side: usize, peer: Option<Peer>) {
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.ends[side].state = State::Up;
        }
        if let Some(peer) = peer {
            self.tell(number, side, News::Up(peer));
        }
    }

    /// Removes an end, and informs its user of the reason.
    pub(super) fn down(&mut self, number: u64, side: usize, why: &'static str) {
        let Some(wire) = self.wires.get_mut(&number) else {
            return;
        };
        let end = &mut wire.ends[side];
        if end.state == State::Closed {
            return;
        }
        end.outbox.clear();
        self.tell(number, side, News::Down(why));
        self.forget(number, side);
    }

    /// Removes an end. The last one removes its wire.
    pub(super) fn forget(&mut self, number: u64, side: usize) {
        let Some(wire) = self.wires.get_mut(&number) else {
            return;
        };
        wire.ends[side].state = State::Closed;
        self.links.remove(&wire.ends[side].link);
        if wire.is_over() {
            self.wires.remove(&number);
        }
    }

    fn tell(&mut self, number: u64, side: usize, news: News) {
        let end = &self.wires[&number].ends[side];
        if let Some(endpoint) = end.endpoint {
            self.endpoints[endpoint].news.push_back((end.link, news));
        }
    }
}
