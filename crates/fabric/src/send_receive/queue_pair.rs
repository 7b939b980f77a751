//! The operations Send and Receive, and the memory that a side posts for them.

use std::os::fd::RawFd;

use crate::memory::RemoteError;

/// The greatest number of bytes of a place.
const PIECE_MAX: usize = 4096;
/// The number of places into which little memory is divided.
const FEW: usize = 16;

/// The memory that a side posts for the pieces of its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveDepth {
    /// The number of places.
    pub places: usize,
    /// The bytes of each: a multiple of 8.
    pub bytes: usize,
}

impl ReceiveDepth {
    /// The smallest number of places: one for a count, and one for which half is not zero.
    pub const PLACES_MIN: usize = 4;
    /// The greatest number of places.
    pub const PLACES_MAX: usize = 1 << 14;

    /// Divides this many bytes of memory: into places of 4 KiB, or into 16 places if it has less
    /// than 64 KiB.
    #[must_use]
    pub fn of(bytes: usize) -> ReceiveDepth {
        let place = (bytes / FEW).clamp(64, PIECE_MAX) / 8 * 8;
        let places = (bytes / place).clamp(ReceiveDepth::PLACES_MIN, ReceiveDepth::PLACES_MAX);
        ReceiveDepth {
            places,
            bytes: place,
        }
    }

    /// Returns the number of bytes of all places.
    #[must_use]
    pub fn total(self) -> usize {
        self.places * self.bytes
    }
}

/// A piece that has arrived, in one of this side's places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrivedPiece {
    /// The number of the place.
    pub place: usize,
    /// The length of the piece in bytes; at most that of the place.
    pub len: usize,
    /// The piece's number; `None` if the peer sent none.
    pub number: Option<u32>,
}

/// One side of two connected queues of Sends and Receives. All places are posted at the beginning.
///
/// Pieces arrive whole, once, and in the order in which they were sent.
pub trait QueuePair {
    /// Returns the places of this side.
    fn receives(&self) -> ReceiveDepth;

    /// Returns the places of the peer.
    fn peer_receives(&self) -> ReceiveDepth;

    /// Returns `true` if a piece of this length can be sent now, as far as this side is concerned.
    fn has_room(&self, bytes: usize) -> bool;

    /// Sends a piece, for which there [is room](QueuePair::has_room), with a number.
    ///
    /// # Errors
    /// Returns an error if the connection has ended. If the peer has no place, it ends.
    fn send(&mut self, piece: &[u8], number: u32) -> Result<(), RemoteError>;

    /// Returns the next piece that has arrived.
    ///
    /// # Errors
    /// Returns an error if the connection has ended, and no piece that came before is left.
    fn receive(&mut self) -> Result<Option<ArrivedPiece>, RemoteError>;

    /// Reads the bytes of a place from byte `from` on.
    fn load(&self, place: usize, from: usize, into: &mut [u8]);

    /// Posts a place again, whose piece was read.
    ///
    /// # Errors
    /// Returns an error if the connection has ended.
    fn post(&mut self, place: usize) -> Result<(), RemoteError>;

    /// Returns `true` if it is not known yet that the peer has all pieces, and an event if it sleeps.
    /// [`QueuePair::settle`] finds out.
    fn is_unsettled(&self) -> bool;

    /// Takes the completions of what was sent. Returns `true` if the caller must ring a bell for the
    /// peer; a device raises the event by itself.
    ///
    /// # Errors
    /// Returns an error if the connection has ended.
    fn settle(&mut self) -> Result<bool, RemoteError>;

    /// Asks for an event with the next piece that arrives. The caller looks once more afterwards.
    ///
    /// # Errors
    /// Returns an error if the connection has ended.
    fn arm(&mut self) -> Result<(), RemoteError>;

    /// Withdraws the request for an event, if there is one.
    ///
    /// # Errors
    /// Returns an error if the connection has ended.
    fn disarm(&mut self) -> Result<(), RemoteError>;

    /// Returns the descriptor that becomes readable with an event; `None` if the peer rings a bell.
    fn events(&self) -> Option<RawFd>;
}
