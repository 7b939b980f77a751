//! The work of a wait: it gives buffers back, hands written bytes to the ring, and processes the
//! completions of requests.

use std::io;
use std::time::Instant;

use socket2::SockRef;
use uring::{ReceiveEnd, SocketCompletion};

use super::watched_connection::{WatchedConnection, mark};
use super::{LISTENERS, Uring, is_passing};
use crate::net::SocketEvent;
use crate::net::buffered::{Failure, LINGER, MOST};

impl Uring {
    pub(super) fn receive(&mut self, place: usize) -> io::Result<()> {
        let line = &mut self.lines[place];
        line.receiving = true;
        self.ring.receive(line.socket)
    }

    /// Gives buffers back, and copies the bytes that were not read.
    pub(super) fn clear_buffers(&mut self) -> io::Result<()> {
        for place in std::mem::take(&mut self.holding) {
            let Some(line) = self.lines.get_mut(place) else {
                continue;
            };
            for (buffer, read) in line.arrived.drain(..) {
                line.kept
                    .extend_from_slice(&self.ring.bytes(buffer)[read..]);
                self.ring.give_back(buffer);
            }
            if line.kept.len() >= MOST && line.receiving && !line.holding_off {
                line.holding_off = true;
                self.ring.pause(line.socket)?;
            }
        }
        for place in std::mem::take(&mut self.resuming) {
            if self
                .lines
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
            let Some(line) = self.lines.get_mut(place) else {
                continue;
            };
            line.dirty = false;
            if line.full || line.out.is_empty() || line.failed.is_some() {
                continue;
            }
            urgent |= line.wanted || line.closing.is_some();
            self.ring.send(line.socket, std::mem::take(&mut line.out))?;
        }
        Ok(urgent)
    }

    /// Reports room after sending.
    pub(super) fn sent_all(&mut self) {
        let mut sending = std::mem::take(&mut self.sending);
        for place in sending.drain(..) {
            let Some(line) = self.lines.get_mut(place) else {
                continue;
            };
            if line.full || !line.out.is_empty() {
                continue;
            }
            if line.closing.is_some() {
                self.remove(place);
            } else if std::mem::take(&mut line.wanted) {
                self.told.push(event(line.token, false, true, false));
            }
        }
        self.sending = sending;
    }

    pub(super) fn note(&mut self, done: SocketCompletion) -> io::Result<()> {
        match done {
            SocketCompletion::Received { key, buffer } => match self.lines.get_mut(key) {
                Some(line) if line.closing.is_none() => {
                    if line.arrived.is_empty() {
                        self.holding.push(key);
                        self.told.push(event(line.token, true, false, false));
                    }
                    line.arrived.push_back((buffer, 0));
                }
                _ => self.ring.give_back(buffer),
            },
            SocketCompletion::Finished { key, why } => self.finished(key, why),
            SocketCompletion::Unsent { key, bytes, result } => self.unsent(key, bytes, result)?,
            SocketCompletion::Room { key } => self.has_room(key)?,
            SocketCompletion::Incoming { key } => {
                let token = self.listeners[key - LISTENERS];
                self.told.push(event(token, true, false, false));
            }
        }
        Ok(())
    }

    fn finished(&mut self, place: usize, why: ReceiveEnd) {
        let Some(line) = self.lines.get_mut(place) else {
            return;
        };
        (line.receiving, line.holding_off) = (false, false);
        match why {
            ReceiveEnd::Paused => self.resuming.push(place),
            ReceiveEnd::ClosedByPeer => {
                line.ended = true;
                self.told.push(event(line.token, true, false, true));
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
        let Some(line) = self.lines.get_mut(place) else {
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
        line.out = bytes;
        line.out.drain(..sent);
        line.full = true;
        if let Some(by) = &mut line.closing
            && sent > 0
        {
            *by = Instant::now() + LINGER;
        }
        self.ring.await_room(line.socket)
    }

    /// Handles that a connection has room again, was made, or is broken.
    fn has_room(&mut self, place: usize) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(place) else {
            return Ok(());
        };
        line.full = false;
        if std::mem::take(&mut line.connecting) {
            let token = line.token;
            match made(&SockRef::from(&self.ring.socket(line.socket))) {
                Ok(()) => {
                    self.told.push(event(token, false, true, false));
                    self.receive(place)?;
                }
                Err(error) => self.fail(place, &error),
            }
        } else if !line.out.is_empty() {
            mark(&mut self.dirty, line, place);
        } else if std::mem::take(&mut line.wanted) {
            self.told.push(event(line.token, false, true, false));
        }
        Ok(())
    }

    fn fail(&mut self, place: usize, error: &io::Error) {
        let line = &mut self.lines[place];
        if line.closing.is_some() {
            return self.remove(place);
        }
        line.failed.get_or_insert_with(|| Failure::new(error));
        line.out = Vec::new();
        self.told.push(event(line.token, true, true, true));
    }

    pub(super) fn remove(&mut self, place: usize) {
        let line = self.lines.remove(place);
        for (buffer, _) in line.arrived {
            self.ring.give_back(buffer);
        }
        self.ring.remove(line.socket);
    }

    /// Drops lines that have lingered for too long.
    pub(super) fn look_at_lingering(&mut self) {
        let now = Instant::now();
        for place in std::mem::take(&mut self.lingering) {
            match self.lines.get(place).and_then(|line| line.closing) {
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
    crate::net::keep_node_alive(socket)?;
    socket.set_tcp_nodelay(true)
}
