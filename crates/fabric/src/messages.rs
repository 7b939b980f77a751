//! Messages on links: the interface of every implementation.
//!
//! A *link* is one side of a connection. Invariants:
//!
//! 1. Messages of a link arrive whole, once, and in the order in which they were sent, as long as
//!    the link is up. Between links there is no order.
//! 2. When a link goes down, messages that were sent may have arrived or not; those that arrived
//!    are a prefix of those that were sent. Nothing arrives on it afterwards.
//! 3. [`Event::Up`](crate::Event::Up) comes before a link's messages and
//!    [`Event::Down`](crate::Event::Down) after them, once each; a link that could not be made has
//!    `Down` alone.
//! 4. No call blocks. A link takes messages up to a bound and then returns [`SendError::Full`]; an
//!    [`Event::Drained`](crate::Event::Drained) comes when it takes some again.
//! 5. Numbers of links are never used again.
//! 6. A link that was made here takes messages at once; they wait until it is up.
//! 7. On a link that was closed here, only its `Down` arrives.

use base::NodeId;

use crate::link::{Link, SendError};

/// Makes links and sends messages; see the module's invariants. It belongs to one thread, whose turns
/// receive, and send the messages that were taken.
pub trait Messages {
    /// Makes a link to a node; `Up` or `Down` will follow.
    fn connect(&mut self, to: NodeId) -> Link;

    /// Takes a message to be sent; the end of the turn sends it at the latest.
    ///
    /// # Errors
    /// Returns a [`SendError`] that says why the message was not taken.
    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError>;

    /// Does the same as [`Messages::send`] for a message that consists of these parts in sequence.
    ///
    /// # Errors
    /// Returns the errors of [`Messages::send`].
    fn send_parts(&mut self, on: Link, parts: &[&[u8]]) -> Result<(), SendError> {
        self.send(on, &parts.concat())
    }

    /// Takes the link down after the messages that were taken are sent.
    fn close(&mut self, link: Link);
}
