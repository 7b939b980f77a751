//! The work of a wait: it gives buffers back, hands written bytes to the ring, and processes the
//! completions of requests.

use std::io;
use std::time::{Duration, Instant};

use crate::ring::{ReceiveEnd, SocketCompletion};
use socket2::SockRef;

use super::connection::{WatchedConnection, mark};
use super::{DESCRIPTORS, LISTENERS, Uring, is_passing};
use crate::buffered::{Failure, LINGER, MOST};
use crate::network::SocketEvent;

impl Uring {
    pub(super) fn receive(&mut self, place: usize) -> io::Result<()> {
        let connection = &mut self.connections[place];
        connection.receiving = true;
        self.ring.receive(connection.socket)
    }

    /// Gives buffers back, and copies the bytes that were not read.
    pub(super) fn clear_buffers(&mut self) -> io::Result<()> {
        for place in std::mem::take(&mut self.holding) {
            let Some(connection) = self.connections.get_mut(place) else {
                continue;
            };
            for (buffer, read) in connection.arrived.drain(..) {
                connection
                    .kept
                    .extend_from_slice(&self.ring.bytes(buffer)[read..]);
                self.ring.give_back(buffer);
            }
            if connection.kept.len() >= MOST && connection.receiving && !connection.holding_off {
                connection.holding_off = true;
                self.ring.pause(connection.socket)?;
            }
        }
        for place in std::mem::take(&mut self.resuming) {
            if self
                .connections
                .get(place)
                .is_some_and(WatchedConnection::may_resume)
            {
                self.receive(place)?;
            }
        }
        Ok(())
    }

    /// Hands written bytes to the ring. Returns `true` if an owner waits for them to be sent.
    pub(super) fn send_all(&mut self) -> io::Result<bool> {
        let mut urgent = false;
        std::mem::swap(&mut self.dirty, &mut self.sending);
        for &place in &self.sending {
            let Some(connection) = self.connections.get_mut(place) else {
                continue;
            };
            connection.dirty = false;
            if connection.full || connection.out.is_empty() || connection.failed.is_some() {
                continue;
            }
            urgent |= connection.wanted || connection.closing.is_some();
            self.ring
                .send(connection.socket, std::mem::take(&mut connection.out))?;
        }
        Ok(urgent)
    }

    /// Reports room after sending.
    pub(super) fn sent_all(&mut self) {
        let mut sending = std::mem::take(&mut self.sending);
        for place in sending.drain(..) {
            let Some(connection) = self.connections.get_mut(place) else {
                continue;
            };
            if connection.full || !connection.out.is_empty() {
                continue;
            }
            if connection.closing.is_some() {
                self.remove(place);
            } else if std::mem::take(&mut connection.ends_output) {
                let socket = self.ring.socket(connection.socket);
                if let Err(error) = SockRef::from(&socket).shutdown(std::net::Shutdown::Write) {
                    self.fail(place, &error);
                }
            } else if std::mem::take(&mut connection.wanted) {
                self.events
                    .push(event(connection.token, false, true, false));
            }
        }
        self.sending = sending;
    }

    pub(super) fn note(&mut self, done: SocketCompletion) -> io::Result<()> {
        match done {
            SocketCompletion::Received { key, buffer } => match self.connections.get_mut(key) {
                Some(connection) if connection.closing.is_none() => {
                    if connection.arrived.is_empty() {
                        self.holding.push(key);
                        self.events
                            .push(event(connection.token, true, false, false));
                    }
                    connection.arrived.push_back((buffer, 0));
                }
                _ => self.ring.give_back(buffer),
            },
            SocketCompletion::Finished { key, why } => self.finished(key, why),
            SocketCompletion::Unsent { key, bytes, result } => self.unsent(key, bytes, result)?,
            SocketCompletion::Room { key } => self.has_room(key)?,
            SocketCompletion::Incoming { key: DESCRIPTORS } => self.poll_descriptors()?,
            SocketCompletion::Incoming { key } => {
                let token = self.listeners[key - LISTENERS];
                self.events.push(event(token, true, false, false));
            }
        }
        Ok(())
    }

    /// Takes the events of descriptors that are no streams.
    fn poll_descriptors(&mut self) -> io::Result<()> {
        let Some((poll, found)) = &mut self.descriptors else {
            return Ok(());
        };
        loop {
            match poll.poll(found, Some(Duration::ZERO)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            let count = found.iter().count();
            self.events.extend(found.iter().map(SocketEvent::from));
            if count < found.capacity() {
                return Ok(());
            }
        }
    }

    fn finished(&mut self, place: usize, why: ReceiveEnd) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        (connection.receiving, connection.holding_off) = (false, false);
        match why {
            ReceiveEnd::Paused => self.resuming.push(place),
            ReceiveEnd::ClosedByPeer => {
                connection.ended = true;
                self.events.push(event(connection.token, true, false, true));
            }
            ReceiveEnd::Broken(error) => self.fail(place, &error),
        }
    }

    fn unsent(
        &mut self,
        place: usize,
        bytes: Vec<u8>,
        result: io::Result<usize>,
    ) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(place) else {
            return Ok(());
        };
        let sent = match result {
            Ok(sent) => sent,
            Err(error) if is_passing(&error) => 0,
            Err(error) => {
                self.fail(place, &error);
                return Ok(());
            }
        };
        connection.out = bytes;
        connection.out.drain(..sent);
        connection.full = true;
        if let Some(by) = &mut connection.closing
            && sent > 0
        {
            *by = Instant::now() + LINGER;
        }
        self.ring.await_room(connection.socket)
    }

    /// Handles that a connection has room again, was made, or is broken.
    fn has_room(&mut self, place: usize) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(place) else {
            return Ok(());
        };
        connection.full = false;
        if std::mem::take(&mut connection.connecting) {
            let token = connection.token;
            match made(&SockRef::from(&self.ring.socket(connection.socket))) {
                Ok(()) => {
                    self.events.push(event(token, false, true, false));
                    self.receive(place)?;
                }
                Err(error) => self.fail(place, &error),
            }
        } else if !connection.out.is_empty() {
            mark(&mut self.dirty, connection, place);
        } else if std::mem::take(&mut connection.wanted) {
            self.events
                .push(event(connection.token, false, true, false));
        }
        Ok(())
    }

    fn fail(&mut self, place: usize, error: &io::Error) {
        let connection = &mut self.connections[place];
        if connection.closing.is_some() {
            return self.remove(place);
        }
        connection.failed.get_or_insert_with(|| Failure::new(error));
        connection.out = Vec::new();
        self.events.push(event(connection.token, true, true, true));
    }

    pub(super) fn remove(&mut self, place: usize) {
        let connection = self.connections.remove(place);
        for (buffer, _) in connection.arrived {
            self.ring.give_back(buffer);
        }
        self.ring.remove(connection.socket);
    }

    /// Drops connections that have lingered for too long.
    pub(super) fn look_at_lingering(&mut self) {
        let now = Instant::now();
        for place in std::mem::take(&mut self.lingering) {
            match self
                .connections
                .get(place)
                .and_then(|connection| connection.closing)
            {
                None => {}
                Some(by) if by <= now => self.remove(place),
                Some(_) => self.lingering.push(place),
            }
        }
    }
}

fn event(token: usize, readable: bool, writable: bool, ended: bool) -> SocketEvent {
    SocketEvent {
        token,
        readable,
        writable,
        ended,
    }
}

/// Returns an error if the connection was not made.
fn made(socket: &SockRef<'_>) -> io::Result<()> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    socket.peer_addr()?;
    crate::keep_alive::keep_node_alive(socket)?;
    socket.set_tcp_nodelay(true)
}
