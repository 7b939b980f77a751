//! A connection of the ring: what was received and not read, what was written and not sent.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::BytesMut;
use uring::{BufferId, SocketId};

use crate::net::buffered::{Failure, MOST};

/// A connection that is watched.
pub(super) struct Line {
    pub(super) token: usize,
    pub(super) socket: SocketId,
    pub(super) connecting: bool,
    /// What was received, in order: first what was copied, then buffers with how much of each is
    /// read.
    pub(super) kept: BytesMut,
    pub(super) arrived: VecDeque<(BufferId, usize)>,
    pub(super) receiving: bool,
    /// It is being told to receive no more.
    pub(super) holding_off: bool,
    pub(super) ended: bool,
    pub(super) failed: Option<Failure>,
    /// Written and not sent.
    pub(super) out: Vec<u8>,
    pub(super) dirty: bool,
    /// There is no room in the kernel; it tells when there is.
    pub(super) full: bool,
    /// The owner waits for room.
    pub(super) wanted: bool,
    /// It is closed, and given up at this time.
    pub(super) closing: Option<Instant>,
}

impl Line {
    pub(super) fn new(token: usize, socket: SocketId, connecting: bool) -> Line {
        Line {
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
            closing: None,
        }
    }

    /// Whether it is to receive, and does not.
    pub(super) fn may_resume(&self) -> bool {
        let over = self.ended || self.failed.is_some() || self.closing.is_some();
        !over && !self.connecting && !self.receiving && self.kept.len() < MOST
    }
}

/// Puts a line on the list of those with something to send, once.
pub(super) fn mark(dirty: &mut Vec<usize>, line: &mut Line, place: usize) {
    if !std::mem::replace(&mut line.dirty, true) {
        dirty.push(place);
    }
}
