//! A stream of bytes by Send and Receive, the two-sided operations of RDMA devices.
//!
//! The receiver *posts* memory, in places of one size; each Send of the peer fills one of them, in
//! the order in which they were posted, and completes a Receive. A Send that finds no place breaks
//! the connection ("receiver not ready"): the device could repeat it, but that would hide an error.
//! Paper 1 (figure 4) compares such links with the rings of [`ring`](crate::ring).
//!
//! | part | concept |
//! |---|---|
//! | this | the stream: pieces, and the credit to send them |
//! | `queue_pair` | the two operations: a trait |
//! | `credit` | the number of places that the peer has for this side |
//! | `emulated_pair` | the same two operations in memory that processes share, for tests and comparisons |
//! | [`verbs`](crate::verbs) | the operations of a device |
//!
//! The stream travels in pieces, each at most as long as a place. Each piece has a number of 32
//! bits, the device's *immediate data*:
//!
//! | bits | field |
//! |---|---|
//! | 31 | zero |
//! | 30 | 1: there is no piece, only the count |
//! | 0…29 | the number of places that the sender has posted again, ever: the lower bits of the count |
//!
//! Invariants:
//!
//! 1. A piece is sent only if there is a place for it: the pieces that were sent and are not counted
//!    by the peer stay within the peer's places. So no Send ever finds a receiver that is not ready.
//! 2. The last place is kept for a count alone. A side that uses it informs the peer of at least
//!    half of its places; so one of the two can always go on.
//! 3. A count alone is sent when half of the places are owed, so that counts are not answered by
//!    counts for ever.
//! 4. No call waits, and no memory is taken for bytes that wait: a place is posted again when its
//!    bytes were read. A slow reader stops its peer.
//! 5. **The peer's input is not trusted.** A count of pieces that were not sent, a number with
//!    unknown bits, or a piece without content ends the stream.
//! 6. **No event is lost.** A side that goes to sleep asks for an event, and then looks once more.

mod credit;
mod emulated_pair;
mod queue_pair;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::RawFd;

use parking_lot::Mutex;

use crate::ring::{RingError, Until};
use credit::{COUNT, SendCredit};
pub use emulated_pair::EmulatedPair;
pub(crate) use emulated_pair::copy;
pub use queue_pair::{ArrivedPiece, QueuePair, ReceiveDepth};

/// The bit of a number that has no meaning.
const UNKNOWN: u32 = 1 << 31;
const COUNT_ALONE: u32 = COUNT + 1;

/// Both directions of a stream, as one side has them. Its calls are those of
/// [`Rings`](crate::ring::Rings).
pub struct SendReceive<P> {
    /// Looks find what has arrived.
    state: Mutex<State<P>>,
    /// The bytes of memory that this side has posted.
    posted: usize,
}

struct State<P> {
    pair: P,
    credit: SendCredit,
    /// The number of places that were posted again, and the number that the peer knows.
    received: u32,
    acknowledged: u32,
    /// Pieces that were not read whole, and the bytes of the first one that were read.
    arrived: VecDeque<ArrivedPiece>,
    read: usize,
    /// This side has asked for an event.
    armed: bool,
    /// The reason why the stream has ended.
    ended: Option<RingError>,
}

impl<P> fmt::Debug for SendReceive<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendReceive").finish_non_exhaustive()
    }
}

impl<P: QueuePair> SendReceive<P> {
    /// Makes a stream over queues that are connected.
    pub fn new(pair: P) -> SendReceive<P> {
        let places = pair.peer_receives().places;
        SendReceive {
            posted: pair.receives().total(),
            state: Mutex::new(State {
                credit: SendCredit::new(u32::try_from(places).unwrap_or(COUNT)),
                pair,
                received: 0,
                acknowledged: 0,
                arrived: VecDeque::new(),
                read: 0,
                armed: false,
                ended: None,
            }),
        }
    }

    /// Returns the queues.
    pub fn pair_mut(&mut self) -> &mut P {
        &mut self.state.get_mut().pair
    }

    /// Returns the bytes of memory that this side has posted.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.posted
    }

    /// Returns the descriptor that becomes readable with an event, if there is one.
    #[must_use]
    pub fn events(&self) -> Option<RawFd> {
        self.state.lock().pair.events()
    }

    /// Sends as many of these bytes as the peer has places for, and returns their number. The caller
    /// must call [`SendReceive::must_ring`] afterwards.
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, RingError> {
        self.state.get_mut().send(bytes)
    }

    /// Reads as many bytes as have arrived and fit, and returns their number. The caller must call
    /// [`SendReceive::must_ring`] afterwards.
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more. All bytes that had arrived were read
    /// before.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<usize, RingError> {
        self.state.get_mut().receive(into)
    }

    /// Returns `true` if there is something to read, or an error that reading will find.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.state.lock().has_input()
    }

    /// Returns `true` if something can be sent, or an error that sending will find.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.state.lock().has_room()
    }

    /// Asks for an event. Returns `true` if the caller may sleep until there is one. Otherwise it
    /// looks again, and then calls this again. Sending and receiving withdraw the request; after an
    /// event, the caller withdraws it by [`SendReceive::wake`].
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more.
    pub fn sleep(&mut self, until: Until) -> Result<bool, RingError> {
        self.state.get_mut().sleep(until)
    }

    /// Withdraws the request for an event, if there is one.
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more.
    pub fn wake(&mut self) -> Result<(), RingError> {
        self.state.get_mut().wake()
    }

    /// Returns `true` if the caller must ring a bell for the peer now. Call it again as long as the
    /// stream is [unsettled](SendReceive::is_unsettled).
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more.
    pub fn must_ring(&mut self) -> Result<bool, RingError> {
        let state = self.state.get_mut();
        state.acknowledge()?;
        Ok(state.pair.settle()?)
    }

    /// Returns `true` if it is not known yet that the peer has all that was sent.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.state.lock().pair.is_unsettled()
    }
}

impl<P: QueuePair> State<P> {
    fn send(&mut self, bytes: &[u8]) -> Result<usize, RingError> {
        self.take();
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let longest = self.pair.peer_receives().bytes;
        let mut sent = 0;
        while sent < bytes.len() && self.credit.left() > 1 {
            let piece = &bytes[sent..bytes.len().min(sent + longest)];
            if !self.pair.has_room(piece.len()) {
                break;
            }
            self.pair.send(piece, self.received)?;
            self.sent_count();
            sent += piece.len();
        }
        if sent > 0 {
            self.wake()?;
        }
        Ok(sent)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, RingError> {
        let mut filled = 0;
        while filled < into.len() {
            let Some(&piece) = self.arrived.front() else {
                self.take();
                if self.arrived.is_empty() {
                    break;
                }
                continue;
            };
            let count = (piece.len - self.read).min(into.len() - filled);
            let part = &mut into[filled..filled + count];
            self.pair.load(piece.place, self.read, part);
            filled += count;
            self.read += count;
            if self.read == piece.len {
                self.read = 0;
                self.arrived.pop_front();
                self.post(piece.place);
            }
        }
        let acknowledged = if filled > 0 { self.wake() } else { Ok(()) };
        if let Err(error) = acknowledged.and_then(|()| self.acknowledge()) {
            self.ended.get_or_insert(error);
        }
        match &self.ended {
            // The bytes that have come are received first.
            Some(error) if filled == 0 => Err(error.clone()),
            _ => Ok(filled),
        }
    }

    /// Takes the pieces that have arrived. An error is kept for the time when they are read.
    fn take(&mut self) {
        while self.ended.is_none() {
            match self.pair.receive() {
                Ok(None) => return,
                Ok(Some(piece)) => {
                    if let Err(flaw) = self.take_piece(piece) {
                        self.ended = Some(RingError::Garbage(flaw));
                    }
                }
                Err(error) => self.ended = Some(error.into()),
            }
        }
    }

    fn take_piece(&mut self, piece: ArrivedPiece) -> Result<(), &'static str> {
        let number = piece.number.ok_or("a piece without a number")?;
        if number & UNKNOWN != 0 {
            return Err("a number that has no meaning");
        }
        if !self.credit.count(number & COUNT) {
            return Err("a count of pieces that were not sent");
        }
        match (number & COUNT_ALONE != 0, piece.len) {
            (true, 0) => self.post(piece.place),
            (false, 1..) => self.arrived.push_back(piece),
            (true, _) => return Err("a count with a piece"),
            (false, 0) => return Err("a piece with nothing in it"),
        }
        Ok(())
    }

    fn post(&mut self, place: usize) {
        match self.pair.post(place) {
            Ok(()) => self.received = self.received.wrapping_add(1) & COUNT,
            Err(error) => drop(self.ended.get_or_insert(error.into())),
        }
    }

    /// Returns the number of places that the peer does not know to be posted again.
    fn owed(&self) -> usize {
        (self.received.wrapping_sub(self.acknowledged) & COUNT) as usize
    }

    /// Sends a count alone, if many places are owed and it can be sent.
    fn acknowledge(&mut self) -> Result<(), RingError> {
        if self.owes_count() && self.pair.has_room(0) {
            self.pair.send(&[], COUNT_ALONE | self.received)?;
            self.sent_count();
        }
        Ok(())
    }

    /// Returns `true` if a count alone is to be sent. Without any place at the peer it is not: the
    /// peer's own count comes first.
    fn owes_count(&self) -> bool {
        let many = self.owed() >= self.pair.receives().places / 2;
        many && self.ended.is_none() && self.credit.left() > 0
    }

    fn sent_count(&mut self) {
        self.credit.send();
        self.acknowledged = self.received;
    }

    fn has_input(&mut self) -> bool {
        if self.arrived.is_empty() {
            self.take();
        }
        !self.arrived.is_empty() || self.ended.is_some()
    }

    fn has_room(&mut self) -> bool {
        self.take();
        let longest = self.pair.peer_receives().bytes;
        (self.credit.left() > 1 && self.pair.has_room(longest)) || self.ended.is_some()
    }

    fn sleep(&mut self, until: Until) -> Result<bool, RingError> {
        self.acknowledge()?;
        // A count that has no room now is sent when it has.
        if self.owes_count() || self.pair.is_unsettled() {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.armed, true) {
            self.pair.arm()?;
        }
        let come = until != Until::Space && self.has_input();
        let called = come || (until != Until::Input && self.has_room());
        // Counts alone that have come just now may have to be answered.
        if called || self.owes_count() {
            self.wake()?;
            return Ok(false);
        }
        Ok(true)
    }

    fn wake(&mut self) -> Result<(), RingError> {
        if std::mem::take(&mut self.armed) {
            self.pair.disarm()?;
        }
        Ok(())
    }
}

impl<P: QueuePair> io::Read for SendReceive<P> {
    /// Reads as from a socket that does not block.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.receive(into)? {
            0 if !into.is_empty() => Err(ErrorKind::WouldBlock.into()),
            n => Ok(n),
        }
    }
}

impl<P: QueuePair> io::Write for SendReceive<P> {
    /// Writes as to a socket that does not block.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.send(bytes)? {
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            n => Ok(n),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
