//! A connection between two endpoints: its ends, and the packets in transit in each direction.
//!
//! Packets in one direction arrive in their order. Invariants:
//! 1. Packets in transit behind an [`Packet::Close`] do not arrive.
//! 2. An end that is closed has received no event since, and has had its `Down`, if it was due one.

use std::collections::VecDeque;
use std::time::Duration;

use super::host::NetworkHost;
use crate::link::Link;
use crate::send_limit::SendLimit;

/// See the module's description.
pub(super) struct SimConnection {
    /// The initiator, and the acceptor.
    pub(super) ends: [ConnectionEnd; 2],
    /// The number of the partition that separates its ends.
    pub(super) cut: Option<u64>,
}

/// One end, and the packets in transit from it to the other.
pub(super) struct ConnectionEnd {
    pub(super) host: NetworkHost,
    /// The endpoint's number; `None` for an acceptor that was not reached yet.
    pub(super) endpoint: Option<usize>,
    pub(super) link: Link,
    pub(super) state: EndState,
    /// Messages that were sent and not flushed.
    pub(super) outbox: Vec<Vec<u8>>,
    /// Packets in transit, and their times of arrival.
    pub(super) flight: VecDeque<(Duration, Packet)>,
    /// Bytes in the outbox, in transit, or arrived and not received.
    pub(super) waiting: usize,
    pub(super) room: SendLimit,
    /// The time at which the last packet arrives.
    pub(super) last: Duration,
    /// The time at which the line has taken the last packet.
    pub(super) taken: Duration,
}

/// The state of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndState {
    /// An initiator that is not welcome yet; `closing` if it was closed meanwhile.
    Opening { closing: bool },
    /// Messages pass.
    Up,
    /// It was closed here, and waits until the other end has seen that.
    Closing,
    /// It no longer exists.
    Closed,
}

/// A packet in transit.
#[derive(Debug)]
pub(super) enum Packet {
    /// Asks for a connection.
    Connect,
    /// The acceptor has an endpoint.
    Accept,
    Message(Vec<u8>),
    /// This many bytes were received.
    Ack(usize),
    /// The end, with the reason for the other end's user.
    Close(&'static str),
}

impl Packet {
    pub(super) fn len(&self) -> usize {
        match self {
            Packet::Message(message) => message.len(),
            _ => 0,
        }
    }
}

impl ConnectionEnd {
    pub(super) fn new(host: NetworkHost, link: Link, queue: usize) -> ConnectionEnd {
        ConnectionEnd {
            host,
            endpoint: None,
            link,
            state: EndState::Opening { closing: false },
            outbox: Vec::new(),
            flight: VecDeque::new(),
            waiting: 0,
            room: SendLimit::new(queue),
            last: Duration::ZERO,
            taken: Duration::ZERO,
        }
    }

    /// Cuts off what is sent from here: `keep` of the packets in transit arrive.
    pub(super) fn cut_short(&mut self, keep: usize) {
        self.outbox.clear();
        self.flight.truncate(keep);
    }
}

impl SimConnection {
    pub(super) fn hosts(&self) -> [NetworkHost; 2] {
        [self.ends[0].host, self.ends[1].host]
    }

    pub(super) fn links(&self) -> [Link; 2] {
        [self.ends[0].link, self.ends[1].link]
    }

    /// Returns `true` if neither end will have another event of it.
    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.state == EndState::Closed)
    }
}
