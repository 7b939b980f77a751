//! What has come of requests.

use std::io;

use crate::buffers::BufferId;

/// Why nothing more is received.
#[derive(Debug)]
pub enum Finish {
    /// The peer has ended.
    End,
    /// It was asked for by [`Ring::hold`](crate::Ring::hold), or the kernel had no buffer left:
    /// [`Ring::receive`](crate::Ring::receive) goes on.
    Held,
    /// The connection is broken.
    Broken(io::Error),
}

/// What has come of requests. `key` is what the socket was added with.
#[derive(Debug)]
pub enum Done {
    /// Bytes have come. The buffer must be given back.
    Received {
        /// Whose.
        key: usize,
        /// Where they are.
        buffer: BufferId,
    },
    /// Nothing more is received.
    Finished {
        /// Whose.
        key: usize,
        /// Why.
        why: Finish,
    },
    /// Not everything could be sent.
    Unsent {
        /// Whose.
        key: usize,
        /// What was to be sent.
        bytes: Vec<u8>,
        /// How much of it was, or why nothing was ([`io::ErrorKind::WouldBlock`]: there is no room).
        result: io::Result<usize>,
    },
    /// There is room to send, the connection is made, or it is broken.
    Room {
        /// Whose.
        key: usize,
    },
    /// Somebody connects.
    Coming {
        /// To which listener.
        key: usize,
    },
}
