//! A connection between two endpoints: its ends, and the items in transit in each direction.
//!
//! Items in one direction arrive in their order. Invariants:
//! 1. Items in transit behind an [`Item::Fin`] do not arrive.
//! 2. An end that is closed has received no event since, and has had its `Down`, if it was due one.

use std::collections::VecDeque;
use std::time::Duration;

use super::Place;
use crate::messages::Link;
use crate::room::Room;

/// See the module's description.
pub(super) struct Wire {
    /// The initiator, and the acceptor.
    pub(super) ends: [End; 2],
    /// The number of the partition that separates its ends.
    pub(super) cut: Option<u64>,
}

/// One end, and the items in transit from it to the other.
pub(super) struct End {
    pub(super) place: Place,
    /// The endpoint's number; `None` for an acceptor that was not reached yet.
    pub(super) endpoint: Option<usize>,
    pub(super) link: Link,
    pub(super) state: State,
    /// Messages that were sent and not flushed.
    pub(super) outbox: Vec<Vec<u8>>,
    /// Items in transit, and their times of arrival.
    pub(super) flight: VecDeque<(Duration, Item)>,
    /// Bytes in the outbox, in transit, or arrived and not received.
    pub(super) waiting: usize,
    pub(super) room: Room,
    /// The time at which the last item arrives.
    pub(super) last: Duration,
    /// The time at which the line has taken the last item.
    pub(super) taken: Duration,
}

/// The state of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// An initiator that is not welcome yet; `closing` if it was closed meanwhile.
    Opening { closing: bool },
    /// Messages pass.
    Up,
    /// It was closed here, and waits until the other end has seen that.
    Closing,
    /// It no longer exists.
    Closed,
}

/// An item in transit.
#[derive(Debug)]
pub(super) enum Item {
    Hello,
    Welcome,
    Message(Vec<u8>),
    /// This many bytes were received.
    Ack(usize),
    /// The end, with the reason for the other end's user.
    Fin(&'static str),
}

impl Item {
    pub(super) fn len(&self) -> usize {
        match self {
            Item::Message(message) => message.len(),
            _ => 0,
        }
    }
}

impl End {
    pub(super) fn new(place: Place, link: Link, queue: usize) -> End {
        End {
            place,
            endpoint: None,
            link,
            state: State::Opening { closing: false },
            outbox: Vec::new(),
            flight: VecDeque::new(),
            waiting: 0,
            room: Room::new(queue),
            last: Duration::ZERO,
            taken: Duration::ZERO,
        }
    }

    /// Cuts off what is sent from here: `keep` of the items in transit arrive.
    pub(super) fn cut_short(&mut self, keep: usize) {
        self.outbox.clear();
        self.flight.truncate(keep);
    }
}

impl Wire {
    pub(super) fn places(&self) -> [Place; 2] {
        [self.ends[0].place, self.ends[1].place]
    }

    pub(super) fn links(&self) -> [Link; 2] {
        [self.ends[0].link, self.ends[1].link]
    }

    /// Returns `true` if neither end will have another event of it.
    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.state == State::Closed)
    }
}
