//! Messages on links: what every implementation offers.
//!
//! A *link* is one side of a connection. Invariants:
//!
//! 1. Messages of a link arrive whole, once, and in the order in which they were sent, as long as
//!    the link is up. Between links there is no order.
//! 2. When a link goes down, messages that were sent may have arrived or not; those that arrived are
//!    a beginning of those that were sent. Nothing arrives on it afterwards.
//! 3. [`Event::Up`] comes before a link's messages and [`Event::Down`] after them, once each; a
//!    link that could not be made has `Down` alone.
//! 4. No call blocks. A link takes messages up to a bound and then says [`SendError::Full`]; it
//!    has [`Event::Drained`] when it takes some again.
//! 5. Numbers of links are never used again.
//! 6. A link that was made here takes messages at once; they wait until it is up.
//! 7. On a link that was closed here nothing arrives any more but its `Down`.

use base::NodeId;

use crate::inbox::Inbox;

/// One side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link(pub u64);

/// Who is at the other end, as it has proved by the secret that peers share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    /// A node of the cluster.
    Node(NodeId),
    /// A client.
    Client,
}

/// Something that happened on a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// It is there.
    Up(Peer),
    /// A message has come.
    Message(&'a [u8]),
    /// It takes messages again.
    Drained,
    /// It is gone, or was never made; why, said for people.
    Down(&'a str),
}

/// Why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// Too much waits to be sent. Wait for [`Event::Drained`].
    #[error("too much waits to be sent on this link")]
    Full,
    /// There is no such link, or no longer. Its [`Event::Down`] has come or will.
    #[error("the link is down")]
    Down,
    /// The message is longer than messages may be.
    #[error("the message is longer than messages may be")]
    TooLong,
}

/// Sends and receives messages; see the module's invariants. One thread's own.
pub trait Messages {
    /// Makes a link to a node; `Up` or `Down` will follow.
    fn connect(&mut self, to: NodeId) -> Link;

    /// Takes a message to be sent; [`Messages::flush`] sends it, at the latest.
    ///
    /// # Errors
    /// The [`SendError`] says why it was not taken.
    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError>;

    /// As [`Messages::send`], for a message that consists of these parts, one behind the other.
    ///
    /// # Errors
    /// As there.
    fn send_parts(&mut self, on: Link, parts: &[&[u8]]) -> Result<(), SendError> {
        self.send(on, &parts.concat())
    }

    /// Sends what was taken, as far as the links have room.
    fn flush(&mut self);

    /// Appends what has happened since the last call. Stops when there is much; then the next call
    /// has more, and returns whether there is.
    fn receive(&mut self, inbox: &mut Inbox) -> bool;

    /// Takes the link down after what was taken is sent.
    fn close(&mut self, link: Link);
}
