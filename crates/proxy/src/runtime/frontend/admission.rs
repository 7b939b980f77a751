//! Accepts clients, and closes those that do not authenticate or do not go on in time.

use reactor::budget::Share;
use std::net::SocketAddr;
use std::time::Duration;

use super::Frontend;
use super::connection::{Connection, due, list};
use crate::runtime::protocol::ClientProtocol;
use crate::runtime::query::ClientId;
use crate::runtime::token::client_token;
use reactor::Network;

impl<N: Network, F: ClientProtocol> Frontend<N, F> {
    /// Accepts some of the clients that have connected.
    pub(super) fn accept(&mut self, network: &mut N, now: Duration) {
        if !self.accepting.begin(now) {
            return;
        }
        while let Some(listener) = &self.listener {
            match self.accepting.next(now, || network.accept(listener)) {
                Ok(Some((stream, address))) => self.admit(network, stream, address, now),
                Ok(None) => return,
                Err(error) => {
                    if let Some(left_out) = self.log_limit.count("accept", now) {
                        tracing::warn!(%error, "cannot accept a connection; trying again{left_out}");
                    }
                    return;
                }
            }
        }
    }

    /// Closes connections of clients that have not gone on in time.
    pub(super) fn turn_out(&mut self, now: Duration) {
        while let Some(place) = self.deadlines.take(now) {
            let Some(connection) = self.connections.get_mut(place) else {
                continue;
            };
            let Some(due) = due(&self.protocol, &self.limits, connection) else {
                continue;
            };
            // Input of a client that takes no replies may have arrived and not been read.
            let unread = connection.readable || connection.out.len() > self.protocol.unread();
            if due > now {
                self.deadlines.set(place, due);
            } else if unread && self.protocol.has_begun(&connection.client) {
                self.deadlines.set(place, now + self.limits.stall);
            } else {
                tracing::debug!("a client is closed: it has not gone on in time");
                self.figures.turn_out();
                connection.dead = true;
                list(&mut self.touched, &mut connection.in_touched, place);
            }
        }
    }

    fn admit(
        &mut self,
        network: &mut N,
        mut stream: N::Stream,
        address: SocketAddr,
        now: Duration,
    ) {
        if !self.figures.admit(self.limits.clients) {
            let refusal = [std::io::IoSlice::new(self.protocol.refusal())];
            let _ = network.write(&mut stream, &refusal);
            return network.close(stream);
        }
        let entry = self.connections.vacant_entry();
        let place = entry.key();
        if let Err(error) = network.watch(&mut stream, client_token(place)) {
            tracing::warn!(%error, "cannot watch a connection");
            self.figures.dismiss();
            return network.close(stream);
        }
        self.accepted = self.accepted.wrapping_add(1);
        let id = ClientId {
            place: place as u32,
            thread: self.thread,
            number: self.accepted,
        };
        let client = self.protocol.admit(id, address);
        let share = Share::new(&self.budget);
        let connection = entry.insert(Connection::new(id, stream, client, now, share));
        self.ready.push(place);
        if let Some(patience) = self.protocol.patience() {
            self.deadlines.set(place, now + patience);
            let (newcomer, evicted) = self.newcomers.admit(place, now);
            connection.newcomer = Some(newcomer);
            if let Some(oldest) = evicted {
                self.turn_out_newcomer(oldest);
            }
        }
    }

    /// Closes the connection of a client that has not authenticated: a newer client has got its place.
    fn turn_out_newcomer(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        tracing::debug!("a client is closed that has not said who it is: newer ones have come");
        self.figures.turn_out();
        connection.newcomer = None;
        connection.dead = true;
        list(&mut self.touched, &mut connection.in_touched, place);
    }
}
