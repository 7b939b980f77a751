//! The reasons why a link ends, or why its messages cannot travel through memory.

use std::io;

use base::NodeId;
use base::memory::RemoteError;

use crate::cipher::AlteredRecord;
use crate::ring::RingError;

/// The reason why a link ended or was not made, if neither side refused it. Except after
/// [`LinkError::OwnNode`], [`LinkError::UnknownNode`] and the limits, the caller may connect again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    /// The link was to be made to this node.
    #[error("node {0} is this one")]
    OwnNode(NodeId),
    /// No address of the node is known.
    #[error("no node {0} is known")]
    UnknownNode(NodeId),
    /// The system does not connect; with its error.
    #[error("cannot connect: {0}")]
    CannotConnect(String),
    /// The peer's system did not answer in time.
    #[error("no process answers at this address")]
    NoAnswer,
    /// The user of this side closed the link.
    #[error("it was closed here")]
    ClosedHere,
    /// The peer closed the link.
    #[error("the peer closed it")]
    ClosedByPeer,
    /// The peer closed the link before a message was complete.
    #[error("the peer closed it in the middle of a message")]
    ClosedWithinMessage,
    /// The peer did not take the rest of the output in time.
    #[error("the peer took no more")]
    OutputStuck,
    /// The connection failed; with the system's error.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// Bytes that have arrived on an encrypted connection are not those that the peer sent.
    #[error("{AlteredRecord}; look for the machine between the peers that did it")]
    Altered,
    /// The peer sends a message that is longer than the options allow.
    #[error(
        "the peer began a message of {len} bytes, more than the {limit} that are allowed here; \
         raise the limit, or send less at a time"
    )]
    MessageTooLong {
        /// The bytes of the message.
        len: usize,
        /// The most bytes of a message.
        limit: usize,
    },
    /// All links together hold as much memory as they may.
    #[error(
        "unfinished messages take all the memory that links may have together; this one has \
         {held} bytes of them"
    )]
    MemoryLimit {
        /// The bytes that this link holds.
        held: usize,
    },
}

impl LinkError {
    /// Returns the reason for an error of the system on an open connection.
    pub(super) fn broken(error: &io::Error) -> LinkError {
        match error.get_ref() {
            Some(inner) if inner.is::<AlteredRecord>() => LinkError::Altered,
            _ => LinkError::Broken(error.to_string()),
        }
    }

    /// Returns the reason for an error of the system while a connection is made.
    pub(super) fn cannot_connect(error: &io::Error) -> LinkError {
        LinkError::CannotConnect(error.to_string())
    }
}

/// The reason why the messages of a link cannot travel through memory of one kind. The peers try
/// the next kind, or the connection itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum MailboxError {
    /// The peer does not offer memory of this kind.
    #[error("the peer does not use it")]
    NotOffered,
    /// No device is open on this side.
    #[error("there is no RDMA device here")]
    NoDevice,
    /// The link is encrypted, and a device would send messages as they are.
    #[error("the link is to be encrypted, and RDMA devices send messages as they are")]
    Encrypted,
    /// The peer cannot open the memory.
    #[error("the peer does not see the same memory")]
    NotSeen,
    /// The peer's grant does not allow writing.
    #[error("the peer's mailbox is not for writing")]
    NotWritable,
    /// The mailbox of this side cannot be made.
    #[error(transparent)]
    Make(#[from] io::Error),
    /// The peer's mailbox cannot be reached.
    #[error(transparent)]
    Reach(#[from] RemoteError),
    /// The mailboxes are not valid for rings.
    #[error(transparent)]
    Ring(#[from] RingError),
}
