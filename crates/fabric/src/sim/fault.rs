//! Faults of a network.

use super::connection::{EndState, Packet};
use super::host::NetworkHost;
use super::network_state::{HostState, NetworkState, ScheduledEvent};
use crate::link::Link;

impl NetworkState {
    /// Blocks the direction from one host to another.
    pub(super) fn block(&mut self, from: NetworkHost, to: NetworkHost) {
        if !self.blocked.insert((from, to)) {
            return;
        }
        let cut = self.number();
        for name in self.connections_between(from, to) {
            let connection = self.connections.get_mut(&name).expect("it was just found");
            // Silence counts from its beginning, in whichever direction it began.
            if connection.cut.is_some() {
                continue;
            }
            connection.cut = Some(cut);
            for side in [0, 1] {
                self.doom(name, side, Some(cut));
            }
        }
    }

    /// Makes one side give up after a time, unless the partition ends.
    fn doom(&mut self, connection: u64, side: usize, cut: Option<u64>) {
        let patience = self.options.dead_after.mul_f64(1.0 + self.rng.f64() / 5.0);
        self.schedule(
            self.now + patience,
            ScheduledEvent::Dead {
                connection,
                side,
                cut,
            },
        );
    }

    fn connections_between(&self, a: NetworkHost, b: NetworkHost) -> Vec<u64> {
        let is_meant = |hosts| hosts == [a, b] || hosts == [b, a];
        let found = self
            .connections
            .iter()
            .filter(|(_, connection)| is_meant(connection.hosts()));
        found.map(|(&name, _)| name).collect()
    }

    /// Ends partitions. Packets that have waited arrive after a new delay, in their order.
    pub(super) fn heal(&mut self, is_meant: impl Fn(NetworkHost, NetworkHost) -> bool) {
        let healed: Vec<(NetworkHost, NetworkHost)> = self
            .blocked
            .iter()
            .copied()
            .filter(|&(from, to)| is_meant(from, to))
            .collect();
        for way in &healed {
            self.blocked.remove(way);
        }
        for (from, to) in healed {
            for name in self.connections_between(from, to) {
                self.resume(name);
            }
        }
    }

    fn resume(&mut self, name: u64) {
        for side in [0, 1] {
            let delay = self.delay();
            let Some(connection) = self.connections.get_mut(&name) else {
                return;
            };
            let way = (connection.ends[side].host, connection.ends[1 - side].host);
            let back = (way.1, way.0);
            if !self.blocked.contains(&way) && !self.blocked.contains(&back) {
                connection.cut = None;
            }
            if self.blocked.contains(&way) || connection.ends[side].flight.is_empty() {
                continue;
            }
            let at = self.now + delay;
            let end = &mut connection.ends[side];
            for (arrives, _) in &mut end.flight {
                *arrives = (*arrives).max(at);
            }
            end.last = end.last.max(at);
            self.schedule(
                at,
                ScheduledEvent::Arrive {
                    connection: name,
                    side,
                },
            );
        }
    }

    /// Breaks the connections with these links and hosts.
    pub(super) fn break_where(&mut self, is_meant: impl Fn([Link; 2], [NetworkHost; 2]) -> bool) {
        let found = self
            .connections
            .iter()
            .filter(|(_, connection)| is_meant(connection.links(), connection.hosts()));
        let names: Vec<u64> = found.map(|(&name, _)| name).collect();
        for name in names {
            self.break_wire(name);
        }
    }

    /// Breaks a connection: in each direction a prefix of the packets in transit arrives, then the end.
    pub(super) fn break_wire(&mut self, name: u64) {
        for side in [0, 1] {
            self.cut_short(name, side);
            self.transmit(name, side, Packet::Close("the connection broke"));
        }
    }

    /// Loses the last packets in transit. The caller ensures that the other side learns of the end,
    /// by a new [`Packet::Close`] or by silence: one that was in transit may be lost.
    fn cut_short(&mut self, name: u64, side: usize) {
        if let Some(connection) = self.connections.get_mut(&name) {
            let flight = connection.ends[side].flight.len();
            let keep = self.rng.usize(0..=flight);
            connection.ends[side].cut_short(keep);
        }
    }

    /// Limits the rate of one direction from now on.
    pub(super) fn slow(&mut self, from: NetworkHost, to: NetworkHost, bytes_per_s: Option<u64>) {
        match bytes_per_s {
            Some(rate) => self.rates.insert((from, to), rate.max(1)),
            None => self.rates.remove(&(from, to)),
        };
    }

    /// Ends a host's endpoint.
    pub(super) fn crash(&mut self, host: NetworkHost) {
        let Some(&HostState::Alive(number)) = self.hosts.get(&host) else {
            return;
        };
        let silent = self.rng.f64() < self.options.silent_crashes;
        let standing = if silent {
            HostState::Silent
        } else {
            HostState::Refusing
        };
        self.hosts.insert(host, standing);
        self.silence(number);
        let names: Vec<u64> = self.connections.keys().copied().collect();
        for name in names {
            let ends = &self.connections[&name].ends;
            let Some(side) = ends.iter().position(|end| end.endpoint == Some(number)) else {
                continue;
            };
            self.cut_short(name, side);
            if silent {
                self.doom(name, 1 - side, None);
            } else {
                self.transmit(name, side, Packet::Close("the peer's process ended"));
            }
            self.forget(name, side);
        }
    }

    /// Brings a machine back that had vanished: peers that still wait for it learn that it knows
    /// nothing any more.
    pub(super) fn break_silence(&mut self, host: NetworkHost) {
        let names: Vec<u64> = self.connections.keys().copied().collect();
        for name in names {
            let connection = &self.connections[&name];
            for side in [0, 1] {
                if connection.ends[side].host == host
                    && connection.ends[side].state == EndState::Closed
                {
                    self.transmit(name, side, Packet::Close("the peer has started again"));
                    break;
                }
            }
        }
    }
}
