//! A connection between two endpoints: its ends, and what travels in each direction.
//!
//! What travels in one direction arrives in its order. Invariants:
//! 1. What is on its way behind an [`Item::Fin`] does not arrive.
//! 2. An end that is closed has been told of nothing since, and has had its `Down`, if it was owed
//!    one.

use std::collections::VecDeque;
use std::time::Duration;

use super::Place;
use crate::messages::Link;
use crate::room::Room;

/// See the module's description.
pub(super) struct Wire {
    /// The initiator, and the acceptor.
    pub(super) ends: [End; 2],
    /// The partition that it lies across, by number.
    pub(super) cut: Option<u64>,
}

/// One end, and what travels from it to the other.
pub(super) struct End {
    pub(super) place: Place,
    /// The endpoint's number; of an acceptor that was not reached yet `None`.
    pub(super) endpoint: Option<usize>,
    pub(super) link: Link,
    pub(super) state: State,
    /// Messages that were sent and not flushed.
    pub(super) outbox: Vec<Vec<u8>>,
    /// What is on its way, and when it arrives.
    pub(super) flight: VecDeque<(Duration, Item)>,
    /// Bytes in the outbox, on their way, or arrived and not received.
    pub(super) waiting: usize,
    pub(super) room: Room,
    /// When the last item arrives.
    pub(super) last: Duration,
    /// When the line has taken the last item.
    pub(super) taken: Duration,
}

/// What an end is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The initiator's, until it is welcome; whether it was closed meanwhile.
    Opening { closing: bool },
    /// Messages pass.
    Up,
    /// It was closed here, and waits until the other end has seen that.
    Closing,
    /// It is no more.
    Closed,
}

/// What travels.
#[derive(Debug)]
pub(super) enum Item {
    Hello,
    Welcome,
    Message(Vec<u8>),
    /// So many bytes were received.
    Ack(usize),
    /// The end; what the other end's user is told.
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

    /// Nothing more will be sent from here: of what is on its way `keep` items arrive.
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

    /// Whether nobody will hear of it again.
    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.state == State::Closed)
    }
}
