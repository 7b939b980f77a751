//! One connection: its socket, its owner, and what was reported of it.

use std::any::Any;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use reactor::SocketEvent;
use reactor::buffered::{LINGER, MOST};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{self, CongestionControl, State};
use smoltcp::time::Instant;

use crate::headers::HardwareAddress;

/// How long an acknowledgement waits for data to travel with.
const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(5);
/// How long the peer of a closed connection may take to end its side.
const PEER_END: Duration = Duration::from_secs(60);
/// Free bytes that make a connection writable again.
const ROOM: usize = MOST / 4;

/// A port that stays the stack's as long as this lives.
pub(crate) type PortLease = Arc<dyn Any + Send + Sync>;

/// The addresses of a connection: the peer's, and the own port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Flow {
    pub(super) peer: SocketAddrV4,
    pub(super) port: u16,
}

/// The stage of a connection, as its owner sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionRole {
    /// Its handshake has begun.
    HalfOpen,
    /// It waits to be accepted.
    Waiting,
    /// It has an owner.
    Owned,
    /// Its owner has closed it.
    Closed,
}

/// A connection. See the module.
pub(crate) struct TcpConnection {
    pub(super) sockets: SocketSet<'static>,
    handle: SocketHandle,
    pub(super) flow: Flow,
    _lease: PortLease,
    pub(super) role: ConnectionRole,
    pub(super) token: Option<usize>,
    /// The neighbour that gets its packets, as soon as it is known.
    pub(super) next_hop: Option<HardwareAddress>,
    pub(super) is_dirty: bool,
    /// When the stack looks at it.
    pub(super) due: Option<Instant>,
    /// When a closed connection is broken unless its peer has acknowledged something until then.
    pub(super) deadline: Option<Instant>,
    /// The unacknowledged bytes of a closed connection when its deadline was set.
    unacknowledged: usize,
    pub(super) is_connecting: bool,
    pub(super) was_reset: bool,
    failed: Option<ErrorKind>,
    /// Received bytes that its owner knows of or has been told of.
    reported: usize,
    end_is_reported: bool,
    failure_is_reported: bool,
    /// Its owner found no room, and wants to know when there is some.
    wants_room: bool,
}

impl TcpConnection {
    pub(super) fn new(flow: Flow, lease: PortLease, role: ConnectionRole) -> TcpConnection {
        let buffer = || tcp::SocketBuffer::new(vec![0; MOST]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(Some(ACKNOWLEDGEMENT_DELAY.into()));
        socket.set_congestion_control(CongestionControl::Reno);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        TcpConnection {
            sockets,
            handle,
            flow,
            _lease: lease,
            role,
            token: None,
            next_hop: None,
            is_dirty: false,
            due: None,
            deadline: None,
            unacknowledged: 0,
            is_connecting: false,
            was_reset: false,
            failed: None,
            reported: 0,
            end_is_reported: false,
            failure_is_reported: false,
            wants_room: false,
        }
    }

    fn socket(&self) -> &tcp::Socket<'static> {
        self.sockets.get(self.handle)
    }

    pub(super) fn socket_mut(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    pub(super) fn state(&self) -> State {
        self.socket().state()
    }

    /// Returns what changes when a packet is accepted.
    pub(super) fn progress(&self) -> (State, usize, usize) {
        let socket = self.socket();
        (socket.state(), socket.recv_queue(), socket.send_queue())
    }

    pub(super) fn is_readable(&self) -> bool {
        self.socket().can_recv()
    }

    /// Returns `true` if the peer has ended its side, or the connection is broken.
    pub(super) fn has_ended(&self) -> bool {
        use State::{CloseWait, Closed, Closing, LastAck, TimeWait};
        matches!(
            self.state(),
            CloseWait | Closing | LastAck | TimeWait | Closed
        )
    }

    /// Returns `true` if a new connection may have the addresses of this one.
    pub(super) fn is_replaceable(&self) -> bool {
        self.role == ConnectionRole::Closed
            && matches!(self.state(), State::TimeWait | State::Closed)
    }

    /// Breaks the connection.
    pub(super) fn fail(&mut self, why: ErrorKind) {
        self.failed = Some(why);
        self.socket_mut().abort();
    }

    /// Checks a connection that was being made.
    pub(crate) fn connected(&self) -> io::Result<()> {
        match self.failed {
            Some(why) => Err(why.into()),
            None if self.is_connecting => Err(ErrorKind::NotConnected.into()),
            None => Ok(()),
        }
    }

    /// Has the connection broken when its peer is silent for `dead_after`, and its peer asked for a sign of life before.
    pub(crate) fn set_dead_after(&mut self, dead_after: Duration) {
        let socket = self.socket_mut();
        socket.set_timeout(Some(dead_after.into()));
        socket.set_keep_alive(Some((dead_after / 4).into()));
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // An error of the socket says that nothing is there or will come: the same as no bytes.
        let count = self.socket_mut().recv_slice(into).unwrap_or(0);
        self.reported = self.socket().recv_queue();
        match (count, self.failed) {
            (1.., _) => Ok(count),
            (0, Some(why)) => Err(why.into()),
            (0, None) if self.has_ended() || into.is_empty() => Ok(0),
            (0, None) => Err(ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(why) = self.failed {
            return Err(why.into());
        }
        if self.is_connecting {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut count = 0;
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let sent = self.socket_mut().send_slice(piece);
            let sent = sent.map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            count += sent;
            if sent < piece.len() {
                break;
            }
        }
        if count == 0 && pieces.iter().any(|piece| !piece.is_empty()) {
            self.wants_room = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    /// Closes the connection: what was written is still sent; what has arrived is forgotten.
    pub(super) fn close(&mut self, now: Instant) {
        self.role = ConnectionRole::Closed;
        if self.is_connecting {
            self.socket_mut().abort();
        }
        self.forget_input();
        self.socket_mut().close();
        self.set_deadline(now);
    }

    fn forget_input(&mut self) -> bool {
        let mut any = false;
        while let Ok(1..) = self.socket_mut().recv(|bytes| (bytes.len(), bytes.len())) {
            any = true;
        }
        any
    }

    fn set_deadline(&mut self, now: Instant) {
        self.unacknowledged = self.socket().send_queue();
        let time = match self.is_lingering() {
            true => LINGER,
            false => PEER_END,
        };
        self.deadline = Some(now + time.into());
    }

    /// Breaks a closed connection whose peer takes nothing, or goes on sending.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.role != ConnectionRole::Closed {
            return;
        }
        if self.forget_input() && !self.is_lingering() {
            return self.socket_mut().abort();
        }
        if self.socket().send_queue() < self.unacknowledged {
            self.set_deadline(now);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            let has_taken_all = self.unacknowledged == 0 && self.state() == State::FinWait2;
            match self.is_lingering() || has_taken_all {
                true => self.socket_mut().abort(),
                false => self.set_deadline(now),
            }
        }
    }

    /// Returns `true` if its owner has closed it and its peer has not acknowledged everything.
    pub(super) fn is_lingering(&self) -> bool {
        use State::{Closing, Established, FinWait1, LastAck};
        let is_open = matches!(self.state(), Established | FinWait1 | Closing | LastAck);
        self.role == ConnectionRole::Closed && is_open
    }

    /// Returns `true` if a closed connection has nothing left to do, after it was given the chance to send.
    pub(super) fn is_over(&self) -> bool {
        let is_over = matches!(
            self.state(),
            State::Closed | State::TimeWait | State::Listen
        );
        self.role == ConnectionRole::Closed && is_over
    }

    /// Returns what its owner has to know.
    pub(super) fn take_event(&mut self) -> Option<SocketEvent> {
        let state = self.state();
        if state == State::Closed && self.failed.is_none() && self.is_broken() {
            self.failed = Some(match (self.was_reset, self.is_connecting) {
                (true, true) => ErrorKind::ConnectionRefused,
                (true, false) => ErrorKind::ConnectionReset,
                (false, _) => ErrorKind::TimedOut,
            });
        }
        let (mut readable, mut writable, mut ended) = (false, false, false);
        let queued = self.socket().recv_queue();
        readable |= queued > self.reported;
        self.reported = queued;
        if self.has_ended() && !std::mem::replace(&mut self.end_is_reported, true) {
            (readable, ended) = (true, true);
        }
        if self.failed.is_some() && !std::mem::replace(&mut self.failure_is_reported, true) {
            (readable, writable, ended) = (true, true, true);
            self.is_connecting = false;
        }
        if self.is_connecting && !matches!(state, State::SynSent | State::SynReceived) {
            self.is_connecting = false;
            writable = true;
        }
        let free = MOST - self.socket().send_queue();
        if self.wants_room && free >= ROOM {
            self.wants_room = false;
            writable = true;
        }
        let token = self.token.filter(|_| readable || writable || ended)?;
        Some(SocketEvent {
            token,
            readable,
            writable,
            ended,
        })
    }

    /// Returns `true` if a connection that is closed did not end in the usual way: both sides have ended then.
    fn is_broken(&self) -> bool {
        self.was_reset
            || self.is_connecting
            || !self.end_is_reported
            || self.socket().send_queue() > 0
    }
}
