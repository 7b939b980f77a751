//! The operations of endpoints. An endpoint is named by its number.

use super::connection::{ConnectionEnd, EndState, Packet, SimConnection};
use super::host::NetworkHost;
use super::network_state::{EndpointEvent, EndpointQueue, HostState, NetworkState, ScheduledEvent};
use crate::frame::LENGTH;
use crate::link::{Link, SendError};

impl NetworkState {
    pub(super) fn next_link(&mut self) -> Link {
        Link(self.number())
    }

    pub(super) fn connect(&mut self, number: usize, from: NetworkHost, to: NetworkHost) -> Link {
        let link = self.next_link();
        if self.hosts.get(&from) != Some(&HostState::Alive(number)) {
            // The endpoint has crashed: it receives no events.
            return link;
        }
        if from == to {
            let why = "a node does not connect to itself";
            self.endpoints[number]
                .events
                .push_back((link, EndpointEvent::Down(why)));
            return link;
        }
        let queue = self.options.queue;
        let mut ends = [
            ConnectionEnd::new(from, link, queue),
            ConnectionEnd::new(to, Link(0), queue),
        ];
        ends[0].endpoint = Some(number);
        let connection = SimConnection { ends, cut: None };
        let name = self.number();
        self.connections.insert(name, connection);
        self.links.insert(link, (name, 0));
        self.transmit(name, 0, Packet::Connect);
        let limit = self.now + self.options.connect_limit;
        self.schedule(limit, ScheduledEvent::GiveUp { connection: name });
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
        let connection = self.connections.get_mut(&name).ok_or(SendError::Down)?;
        let end = &mut connection.ends[side];
        let is_own = end.endpoint == Some(number);
        if !is_own
            || !matches!(
                end.state,
                EndState::Up | EndState::Opening { closing: false }
            )
        {
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
        let Some(connection) = self.connections.get_mut(&name) else {
            return;
        };
        let end = &mut connection.ends[side];
        if !matches!(end.state, EndState::Up) {
            return;
        }
        for message in std::mem::take(&mut end.outbox) {
            self.transmit(name, side, Packet::Message(message));
            if self.options.breaks > 0.0 && self.rng.f64() < self.options.breaks {
                self.break_wire(name);
            }
        }
    }

    pub(super) fn close(&mut self, number: usize, link: Link) {
        let Some(&(name, side)) = self.links.get(&link) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&name) else {
            return;
        };
        let end = &mut connection.ends[side];
        if end.endpoint != Some(number) {
            return;
        }
        match &mut end.state {
            EndState::Opening { closing } => *closing = true,
            EndState::Up => {
                self.endpoints[number].events.retain(|(on, _)| *on != link);
                self.flush_end(name, side);
                self.end(name, side);
            }
            EndState::Closing | EndState::Closed => {}
        }
    }

    /// Sends the end, behind the packets in transit.
    pub(super) fn end(&mut self, name: u64, side: usize) {
        if let Some(connection) = self.connections.get_mut(&name) {
            connection.ends[side].state = EndState::Closing;
            self.transmit(name, side, Packet::Close("the peer closed it"));
            let at = self.now + self.options.dead_after;
            let cut = None;
            self.schedule(
                at,
                ScheduledEvent::Dead {
                    connection: name,
                    side,
                    cut,
                },
            );
        }
    }

    /// Returns the next event of an endpoint.
    pub(super) fn next_event(&mut self, number: usize) -> Option<(Link, EndpointEvent)> {
        let (link, events) = self.endpoints[number].events.pop_front()?;
        if let (EndpointEvent::Message(message), Some(&(name, side))) =
            (&events, self.links.get(&link))
        {
            let bytes = message.len() + LENGTH;
            self.transmit(name, side, Packet::Ack(bytes));
        }
        Some((link, events))
    }

    pub(super) fn has_events(&self, number: usize) -> bool {
        !self.endpoints[number].events.is_empty()
    }

    /// Forgets the events that an endpoint has not received.
    pub(super) fn silence(&mut self, number: usize) {
        self.endpoints[number] = EndpointQueue::default();
    }
}
