//! The operations of endpoints. An endpoint is named by its number.

use super::Place;
use super::wire::{End, Item, State, Wire};
use super::world::{Action, Mailbox, News, Standing, World};
use crate::frame::LENGTH;
use crate::messages::{Link, SendError};

impl World {
    pub(super) fn next_link(&mut self) -> Link {
        Link(self.number())
    }

    pub(super) fn connect(&mut self, number: usize, from: Place, to: Place) -> Link {
        let link = self.next_link();
        if self.places.get(&from) != Some(&Standing::Alive(number)) {
            // The endpoint has crashed: it receives no events.
            return link;
        }
        if from == to {
            let why = "a node does not connect to itself";
            self.endpoints[number]
                .news
                .push_back((link, News::Down(why)));
            return link;
        }
        let queue = self.options.queue;
        let mut ends = [End::new(from, link, queue), End::new(to, Link(0), queue)];
        ends[0].endpoint = Some(number);
        let wire = Wire { ends, cut: None };
        let name = self.number();
        self.wires.insert(name, wire);
        self.links.insert(link, (name, 0));
        self.travel(name, 0, Item::Hello);
        let limit = self.now + self.options.connect_limit;
        self.schedule(limit, Action::GiveUp { wire: name });
        link
    }

    pub(super) fn send(
        &mut self,
        number: usize,
        link: Link,
        message: &[u8],
    ) -> Result<(), SendError> {
        if message.len() > self.options.message {
            return Err(SendError::TooLong);
        }
        let &(name, side) = self.links.get(&link).ok_or(SendError::Down)?;
        let wire = self.wires.get_mut(&name).ok_or(SendError::Down)?;
        let end = &mut wire.ends[side];
        let is_own = end.endpoint == Some(number);
        if !is_own || !matches!(end.state, State::Up | State::Opening { closing: false }) {
            return Err(SendError::Down);
        }
        // The length includes the header that a frame has before its message.
        let len = message.len() + LENGTH;
        end.room.admit(end.waiting, len)?;
        end.waiting += len;
        if end.outbox.is_empty() {
            self.endpoints[number].dirty.push(link);
        }
        end.outbox.push(message.to_vec());
        Ok(())
    }

    pub(super) fn flush(&mut self, number: usize) {
        for link in std::mem::take(&mut self.endpoints[number].dirty) {
            if let Some(&(name, side)) = self.links.get(&link) {
                self.flush_end(name, side);
            }
        }
    }

    pub(super) fn flush_end(&mut self, name: u64, side: usize) {
        let Some(wire) = self.wires.get_mut(&name) else {
            return;
        };
        let end = &mut wire.ends[side];
        if !matches!(end.state, State::Up) {
            return;
        }
        for message in std::mem::take(&mut end.outbox) {
            self.travel(name, side, Item::Message(message));
            if self.options.breaks > 0.0 && self.rng.f64() < self.options.breaks {
                self.break_wire(name);
            }
        }
    }

    pub(super) fn close(&mut self, number: usize, link: Link) {
        let Some(&(name, side)) = self.links.get(&link) else {
            return;
        };
        let Some(wire) = self.wires.get_mut(&name) else {
            return;
        };
        let end = &mut wire.ends[side];
        if end.endpoint != Some(number) {
            return;
        }
        match &mut end.state {
            State::Opening { closing } => *closing = true,
            State::Up => {
                self.endpoints[number].news.retain(|(on, _)| *on != link);
                self.flush_end(name, side);
                self.end(name, side);
            }
            State::Closing | State::Closed => {}
        }
    }

    /// Sends the end, behind the items in transit.
    pub(super) fn end(&mut self, name: u64, side: usize) {
        if let Some(wire) = self.wires.get_mut(&name) {
            wire.ends[side].state = State::Closing;
            self.travel(name, side, Item::Fin("the peer closed it"));
            let at = self.now + self.options.dead_after;
            let cut = None;
            self.schedule(
                at,
                Action::Dead {
                    wire: name,
                    side,
                    cut,
                },
            );
        }
    }

    /// Returns the next event of an endpoint.
    pub(super) fn next_news(&mut self, number: usize) -> Option<(Link, News)> {
        let (link, news) = self.endpoints[number].news.pop_front()?;
        if let (News::Message(message), Some(&(name, side))) = (&news, self.links.get(&link)) {
            let bytes = message.len() + LENGTH;
            self.travel(name, side, Item::Ack(bytes));
        }
        Some((link, news))
    }

    pub(super) fn has_news(&self, number: usize) -> bool {
        !self.endpoints[number].news.is_empty()
    }

    /// Forgets the events that an endpoint has not received.
    pub(super) fn silence(&mut self, number: usize) {
        self.endpoints[number] = Mailbox::default();
    }
}
