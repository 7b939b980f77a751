//! Outcomes of requests.

use std::io;

use super::buffers::BufferId;

/// The reason why nothing more is received.
#[derive(Debug)]
pub enum ReceiveEnd {
    /// The peer has closed its side.
    ClosedByPeer,
    /// [`Ring::pause`](super::IoRing::pause) asked for it, or the kernel had no buffer left:
    /// [`Ring::receive`](super::IoRing::receive) continues.
    Paused,
    /// The connection is broken.
    Broken(io::Error),
}

/// The outcome of a request. `key` is the key with which the socket was added.
#[derive(Debug)]
pub enum SocketCompletion {
    /// Bytes were received. The buffer must be given back.
    Received {
        /// The socket.
        key: usize,
        /// The buffer that holds them.
        buffer: BufferId,
    },
    /// Nothing more is received.
    Finished {
        /// The socket.
        key: usize,
        /// The reason.
        why: ReceiveEnd,
    },
    /// Not all bytes could be sent.
    Unsent {
        /// The socket.
        key: usize,
        /// The bytes that were to be sent.
        bytes: Vec<u8>,
        /// The number of bytes sent, or the reason why none was ([`io::ErrorKind::WouldBlock`]:
        /// there is no room).
        result: io::Result<usize>,
    },
    /// There is room to send, the connection is made, or it is broken.
    Room {
        /// The socket.
        key: usize,
    },
    /// A peer connects.
    Incoming {
        /// The listener.
        key: usize,
    },
}
