//! Messages on links: the interface of every implementation.
//!
//! A *link* is one side of a connection. Invariants:
//!
//! 1. Messages of a link arrive whole, once, and in the order in which they were sent, as long as
//!    the link is up. Between links there is no order.
//! 2. When a link goes down, messages that were sent may have arrived or not; those that arrived
//!    are a prefix of those that were sent. Nothing arrives on it afterwards.
//! 3. [`Event::Up`] comes before a link's messages and [`Event::Down`] after them, once each; a
//!    link that could not be made has `Down` alone.
//! 4. No call blocks. A link takes messages up to a bound and then returns [`SendError::Full`]; an
//!    [`Event::Drained`] comes when it takes some again.
//! 5. Numbers of links are never used again.
//! 6. A link that was made here takes messages at once; they wait until it is up.
//! 7. On a link that was closed here, only its `Down` arrives.

use base::NodeId;

use crate::inbox::Inbox;

/// One side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link(pub u64);

/// The peer at the other end, which has proved its identity by the secret that peers share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    /// A node of the cluster.
    Node(NodeId),
    /// A client.
    Client,
}

/// An event on a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The link is up.
    Up(Peer),
    /// A message has come.
    Message(&'a [u8]),
    /// The link takes messages again.
    Drained,
    /// The link is gone, or was never made; the text says why, for people.
    Down(&'a str),
}

/// The reason why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// Too much waits to be sent. Wait for [`Event::Drained`].
    #[error("too much waits to be sent on this link")]
    Full,
    /// The link does not exist, or no longer exists. Its [`Event::Down`] has come or will come.
    #[error("the link is down")]
    Down,
    /// The message is longer than the limit.
    #[error("the message is longer than messages may be")]
    TooLong,
}

/// Sends and receives messages; see the module's invariants. It belongs to one thread.
pub trait Messages {
    /// Makes a link to a node; `Up` or `Down` will follow.
    fn connect(&mut self, to: NodeId) -> Link;

    /// Takes a message to be sent; [`Messages::flush`] sends it at the latest.
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

    /// Sends the messages that were taken, as far as the links have room.
    fn flush(&mut self);

    /// Appends the events since the last call. Stops when there are many. Returns `true` if the
    /// next call has more.
    fn receive(&mut self, inbox: &mut Inbox) -> bool;

    /// Takes the link down after the messages that were taken are sent.
    fn close(&mut self, link: Link);
}
