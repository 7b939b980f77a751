//! One participant of a network.

use std::cell::RefCell;
use std::rc::Rc;

use base::NodeId;

use super::Place;
use super::world::{News, World};
use crate::inbox::Inbox;
use crate::messages::{Event, Link, Messages, SendError};

/// One participant of a network, from its start to its crash.
pub struct Endpoint {
    world: Rc<RefCell<World>>,
    place: Place,
    number: usize,
}

impl Endpoint {
    pub(super) fn new(world: Rc<RefCell<World>>, place: Place, number: usize) -> Endpoint {
        Endpoint {
            world,
            place,
            number,
        }
    }

    /// Returns the place of the endpoint.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns `true` if there is something to receive.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.world.borrow().has_news(self.number)
    }
}

impl Messages for Endpoint {
    fn connect(&mut self, to: NodeId) -> Link {
        let mut world = self.world.borrow_mut();
        world.connect(self.number, self.place, Place::Node(to))
    }

    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.world.borrow_mut().send(self.number, on, message)
    }

    fn flush(&mut self) {
        self.world.borrow_mut().flush(self.number);
    }

    fn receive(&mut self, inbox: &mut Inbox) -> bool {
        let mut world = self.world.borrow_mut();
        while let Some((link, news)) = world.next_news(self.number) {
            let event = match &news {
                News::Up(peer) => Event::Up(*peer),
                News::Message(message) => Event::Message(message),
                News::Drained => Event::Drained,
                News::Down(why) => Event::Down(why),
            };
            inbox.push(link, event);
        }
        false
    }

    fn close(&mut self, link: Link) {
        self.world.borrow_mut().close(self.number, link);
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint {} of {:?}", self.number, self.place)
    }
}
