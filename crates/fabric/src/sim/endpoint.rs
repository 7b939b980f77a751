//! One participant of a network.

use std::cell::RefCell;
use std::rc::Rc;

use base::NodeId;

use super::host::NetworkHost;
use super::network_state::{EndpointEvent, NetworkState};
use crate::inbox::Inbox;
use crate::link::{Event, Link, SendError};
use crate::messages::Messages;

/// One participant of a network, from its start to its crash.
pub struct Endpoint {
    world: Rc<RefCell<NetworkState>>,
    host: NetworkHost,
    number: usize,
}

impl Endpoint {
    pub(super) fn new(
        world: Rc<RefCell<NetworkState>>,
        host: NetworkHost,
        number: usize,
    ) -> Endpoint {
        Endpoint {
            world,
            host,
            number,
        }
    }

    /// Returns the host of the endpoint.
    #[must_use]
    pub fn host(&self) -> NetworkHost {
        self.host
    }

    /// Returns `true` if there is something to receive.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.world.borrow().has_events(self.number)
    }

    /// Sends the messages that were taken.
    pub fn flush(&mut self) {
        self.world.borrow_mut().flush(self.number);
    }

    /// Appends the events since the last call. Returns `false`: the next call has no more.
    pub fn receive(&mut self, inbox: &mut Inbox) -> bool {
        let mut world = self.world.borrow_mut();
        while let Some((link, events)) = world.next_event(self.number) {
            let event = match &events {
                EndpointEvent::Up(peer) => Event::Up(*peer),
                EndpointEvent::Message(message) => Event::Message(message),
                EndpointEvent::Drained => Event::Drained,
                EndpointEvent::Down(why) => Event::Down(why),
            };
            inbox.push(link, event);
        }
        false
    }
}

impl Messages for Endpoint {
    fn connect(&mut self, to: NodeId) -> Link {
        let mut world = self.world.borrow_mut();
        world.connect(self.number, self.host, NetworkHost::Node(to))
    }

    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.world.borrow_mut().send(self.number, on, message)
    }

    fn close(&mut self, link: Link) {
        self.world.borrow_mut().close(self.number, link);
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint {} of {:?}", self.number, self.host)
    }
}
