//! A connection of the ring: bytes that were received and not read, and bytes that were written and not
//! sent.

use std::collections::VecDeque;
use std::time::Instant;

use crate::ring::{BufferId, SocketId};
use bytes::BytesMut;

use crate::buffered::{Failure, MOST};

/// A connection that is watched.
pub(super) struct WatchedConnection {
    pub(super) token: usize,
    pub(super) socket: SocketId,
    pub(super) connecting: bool,
    /// Received bytes, in order: first the copied ones (`kept`), then buffers, each with the number of
    /// bytes of it that are read (`arrived`).
    pub(super) kept: BytesMut,
    pub(super) arrived: VecDeque<(BufferId, usize)>,
    pub(super) receiving: bool,
    /// The ring has been asked to receive no more for it.
    pub(super) holding_off: bool,
    pub(super) ended: bool,
    pub(super) failed: Option<Failure>,
    /// Bytes that were written and not sent.
    pub(super) out: Vec<u8>,
    pub(super) dirty: bool,
    /// The kernel has no room; it reports when there is room.
    pub(super) full: bool,
    /// The owner waits for room.
    pub(super) wanted: bool,
    /// The output ends when the written bytes are sent.
    pub(super) ends_output: bool,
    /// It is closed, and is dropped at this time.
    pub(super) closing: Option<Instant>,
}

impl WatchedConnection {
    pub(super) fn new(token: usize, socket: SocketId, connecting: bool) -> WatchedConnection {
        WatchedConnection {
            token,
            socket,
            connecting,
            kept: BytesMut::new(),
            arrived: VecDeque::new(),
            receiving: false,
            holding_off: false,
            ended: false,
            failed: None,
            out: Vec::new(),
            dirty: false,
            full: false,
            wanted: false,
            ends_output: false,
            closing: None,
        }
    }

    /// Returns `true` if the connection should receive again.
    pub(super) fn may_resume(&self) -> bool {
        let over = self.ended || self.failed.is_some() || self.closing.is_some();
        !over && !self.connecting && !self.receiving && self.kept.len() < MOST
    }
}

/// Puts a connection on the list of connections with bytes to send, unless it is on it already.
pub(super) fn mark(dirty: &mut Vec<usize>, connection: &mut WatchedConnection, place: usize) {
    if !std::mem::replace(&mut connection.dirty, true) {
        dirty.push(place);
    }
}
