//! Reads and writes of connections.

use std::io::ErrorKind;

use reactor::Network;

use super::connection::Phase;
use super::link_error::LinkError;
use super::message_assembler::AssemblyProgress;
use super::negotiation::NegotiationStep;
use super::{LinkNotice, POOL, Tcp, note};
use crate::inbox::Inbox;
use crate::link::Event;

impl<N: Network> Tcp<N> {
    /// Gives a connection one read.
    pub(super) fn serve(&mut self, network: &mut N, place: usize, inbox: &mut Inbox) {
        self.wake(place);
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.in_ready = false;
        let progress = match connection.phase {
            Phase::Connecting(_) => return self.connected(network, place),
            Phase::Greeting(..) => return self.greet(network, place, inbox),
            Phase::Up => {
                let progress =
                    connection.read(network, inbox, self.limits.message, &mut self.scratch);
                connection
                    .charge()
                    .map_or_else(AssemblyProgress::End, |()| progress)
            }
            Phase::Ending(_) => connection.discard(network, inbox),
        };
        let progress = match (progress, connection.failed()) {
            (AssemblyProgress::Dry, Some(why)) => AssemblyProgress::End(why),
            (progress, _) => progress,
        };
        if let Err(error) = connection.ring(network) {
            self.fail(place, &error);
        }
        self.go_on(network, place, progress);
    }

    /// Notes that writing has failed. Bytes that arrived before are read first.
    pub(super) fn fail(&mut self, place: usize, error: &std::io::Error) {
        let connection = &mut self.connections[place];
        connection.fail(error);
        if !std::mem::replace(&mut connection.in_ready, true) {
            self.ready.push_back(place);
        }
    }

    pub(super) fn go_on(&mut self, network: &mut N, place: usize, progress: AssemblyProgress) {
        let connection = &mut self.connections[place];
        match progress {
            AssemblyProgress::More => {
                if !std::mem::replace(&mut connection.in_ready, true) {
                    self.ready.push_back(place);
                }
            }
            AssemblyProgress::Dry => {}
            AssemblyProgress::End(why) => self.down(network, place, &why),
        }
    }

    /// Handles an event about a connection that is being made.
    pub(super) fn connected(&mut self, network: &mut N, place: usize) {
        let connection = &mut self.connections[place];
        let Some(stream) = &connection.stream else {
            return;
        };
        let connected = network.connected(stream);
        match connected.and_then(|()| network.set_dead_after(stream, self.limits.dead_after)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => return,
            Err(error) => {
                return self.down(network, place, &LinkError::cannot_connect(&error));
            }
        }
        let phase = std::mem::replace(&mut connection.phase, Phase::Up);
        if let Phase::Connecting(negotiation) = phase {
            connection.phase = Phase::Greeting(negotiation, Vec::new());
        }
        connection.full = false;
        note(&mut self.dirty, place, &mut connection.in_dirty);
        self.go_on(network, place, AssemblyProgress::More);
    }

    /// Goes on with a handshake.
    pub(super) fn greet(&mut self, network: &mut N, place: usize, inbox: &mut Inbox) {
        let connection = &mut self.connections[place];
        let phase = std::mem::replace(&mut connection.phase, Phase::Up);
        let Phase::Greeting(mut negotiation, mut arrived) = phase else {
            unreachable!("it was greeting");
        };
        let mut progress = connection.read_greeting(network, &mut arrived, &mut self.scratch);
        let advanced = loop {
            let mut words = Vec::new();
            let (identity, transports) = (&self.identity, &self.transports);
            let advanced = negotiation.advance(identity, transports, &arrived, &mut words);
            connection.send_frames(&words);
            match advanced {
                Ok((used, NegotiationStep::Encrypted(cipher))) => {
                    connection.encrypt(cipher, &arrived[used..]);
                    self.encrypted += 1;
                    arrived.clear();
                    progress = AssemblyProgress::More;
                }
                Ok((used, NegotiationStep::Incomplete)) => break Ok((used, None)),
                Ok((used, NegotiationStep::Complete(result))) => break Ok((used, Some(result))),
                Err(refused) => break Err(refused),
            }
        };
        match advanced {
            Err(refused) => self.refused(network, place, &refused),
            Ok((used, None)) => {
                arrived.drain(..used);
                connection.phase = Phase::Greeting(negotiation, arrived);
                note(&mut self.dirty, place, &mut connection.in_dirty);
                self.go_on(network, place, progress);
            }
            Ok((used, Some(negotiated))) => {
                self.up(network, place, negotiated);
                self.deliver_notices(inbox);
                let connection = &mut self.connections[place];
                if std::mem::take(&mut connection.closing) {
                    return self.end_closed(place);
                }
                match connection.read_rest(&arrived[used..], inbox, self.limits.message) {
                    Ok(()) => self.go_on(network, place, AssemblyProgress::More),
                    Err(why) => self.down(network, place, &why),
                }
            }
        }
    }

    pub(super) fn end_closed(&mut self, place: usize) {
        self.end(place, Some(LinkError::ClosedHere), self.limits.dead_after);
    }

    /// Writes the output of a connection.
    pub(super) fn write(&mut self, network: &mut N, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.in_dirty = false;
        if matches!(connection.phase, Phase::Connecting(_)) {
            return;
        }
        match connection.write(network, &mut self.pool, &mut self.scratch) {
            Ok(more) => {
                // It holds less than before.
                let _ = connection.charge();
                if more {
                    note(&mut self.dirty, place, &mut connection.in_dirty);
                }
                if connection.drained() {
                    self.notices.push((connection.link, LinkNotice::Drained));
                }
                if matches!(connection.phase, Phase::Ending(_)) && connection.is_written() {
                    // The peer may have gone; then reading finds out.
                    let stream = connection.stream.as_mut();
                    // If it fails, the connection has no peer.
                    drop(stream.map(|stream| network.end_output(stream)));
                }
                // An answer may come soon.
                self.wake(place);
                self.polled.expect();
            }
            Err(error) => self.fail(place, &error),
        }
    }

    pub(super) fn write_dirty(&mut self, network: &mut N) {
        // A connection with more output is put in the list again, for the next turn.
        let mut dirty = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare));
        for place in dirty.drain(..) {
            self.write(network, place);
        }
        self.spare = dirty;
        self.pool.truncate(POOL);
    }

    /// Passes the events to the user.
    pub(super) fn deliver_notices(&mut self, inbox: &mut Inbox) {
        for (link, notices) in self.notices.drain(..) {
            let event = match &notices {
                LinkNotice::Up(peer) => Event::Up(*peer),
                LinkNotice::Drained => Event::Drained,
                LinkNotice::Down(why) => Event::Down(why),
            };
            inbox.push(link, event);
        }
    }
}
