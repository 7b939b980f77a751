//! Links, their peers, and their events. [`messages`](crate::messages) states the promises.

use base::NodeId;

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
