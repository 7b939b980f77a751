//! Send and Receive in memory that processes share: for tests, and for comparisons on machines
//! without a device. It does what a device does between the queues of two processes, on the
//! sender's processor.
//!
//! Each side has a region, of which its peer writes all words:
//!
//! | word | field |
//! |---|---|
//! | 0 | *posted*: Receives that the peer has posted, ever |
//! | 1 | *armed*: odd if the peer has asked for an event; it grows with each request and each withdrawal |
//! | 2 | *arrived*: pieces that the peer has sent, ever |
//! | 3…15 | zero |
//! | 16… | the peer's Receives, a word for each place: Receive n is at 16 + n mod places, and names a place at the peer |
//! | | completions, a word for each place: that of piece n has the length of the piece, and above 32 bits its number |
//! | | the places of this side |
//!
//! Invariants:
//!
//! 1. Words become visible in the order of their writes ([`memory`](crate::memory), invariant 5),
//!    and at once. So a piece that is counted as arrived is whole; a peer that dies before that has
//!    sent nothing.
//! 2. A Send takes the oldest Receive that the peer has posted. Without one it fails, as a device's
//!    does: the peer is not ready.
//! 3. **The contents of the region are not trusted.** Counts, lengths and places are checked, and
//!    each word is loaded once for its check.
//! 4. **No event is lost.** A side that asks for an event looks once more afterwards, and a side that
//!    has sent a piece looks afterwards if the other one has asked; each makes its first step
//!    visible before the second ([`Remote::settle`]). One request gets one bell.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use super::queue_pair::{ArrivedPiece, QueuePair, ReceiveDepth};
use crate::memory::{Remote, RemoteError, Words};
use crate::sync::{AtomicU64, Ordering};

/// Places of words.
const POSTED: usize = 0;
const ARMED: usize = 1;
const ARRIVED: usize = 2;
/// The number of words before the Receives.
const CONTROL: usize = 16;
/// The bytes of a word.
const WORD: usize = 8;

/// See the module's description.
#[derive(Debug)]
pub struct EmulatedPair<N, F> {
    near: N,
    far: F,
    depth: ReceiveDepth,
    /// Posted places that no piece has filled, in the order in which they were posted.
    waiting: VecDeque<usize>,
    /// The number of Receives posted, of pieces taken, and of pieces sent, ever.
    posted: u64,
    taken: u64,
    sent: u64,
    /// This side's request for an event, and the peer's for which a bell was rung last.
    armed: u64,
    rung: u64,
    /// A piece was sent, and this side has not looked since if the peer has asked for an event.
    written: bool,
    /// A piece as words, kept for its memory.
    words: Vec<u64>,
}

impl<N, F> EmulatedPair<N, F> {
    /// Returns the number of words of a region with these places.
    #[must_use]
    pub fn words(depth: ReceiveDepth) -> usize {
        CONTROL + depth.places * (2 + depth.bytes / WORD)
    }
}

impl<N: Words, F: Remote> EmulatedPair<N, F> {
    /// Makes queues over this side's region and the peer's, both of which are zero, and posts all
    /// places.
    ///
    /// # Errors
    /// Returns an error if a region has not the size for these places, or if the peer's is out of
    /// reach.
    pub fn new(near: N, far: F, depth: ReceiveDepth) -> Result<EmulatedPair<N, F>, RemoteError> {
        let expected = Self::words(depth);
        for (owner, words) in [("here", near.words().len()), ("of the peer", far.len())] {
            if words != expected {
                return Err(RemoteError::Refused(format!(
                    "the region {owner} has {words} words for Receives, and {expected} are expected; \
                     give both sides rings of one size"
                )));
            }
        }
        let mut pair = EmulatedPair {
            near,
            far,
            depth,
            waiting: VecDeque::with_capacity(depth.places),
            posted: 0,
            taken: 0,
            sent: 0,
            armed: 0,
            rung: 0,
            written: false,
            words: Vec::new(),
        };
        for place in 0..depth.places {
            pair.post(place)?;
        }
        Ok(pair)
    }

    /// Returns this side's region; its words keep their values and places.
    pub fn region_mut(&mut self) -> &mut N {
        &mut self.near
    }

    #[inline]
    fn near(&self, word: usize) -> u64 {
        self.near.words()[word].load(Ordering::Acquire)
    }

    /// Returns the word of a Receive, of a completion, or of a place's first byte.
    fn receive_word(&self, number: u64) -> usize {
        CONTROL + (number % self.depth.places as u64) as usize
    }

    fn completion_word(&self, number: u64) -> usize {
        self.depth.places + self.receive_word(number)
    }

    fn place_word(&self, place: usize) -> usize {
        CONTROL + 2 * self.depth.places + place * self.depth.bytes / WORD
    }

    /// Writes the number of this side's requests for an event.
    fn announce(&mut self) -> Result<(), RemoteError> {
        self.armed += 1;
        self.far.write(ARMED, &[self.armed])
    }
}

fn garbage<T>(what: &str) -> Result<T, RemoteError> {
    Err(RemoteError::Lost(format!(
        "the peer has written garbage: {what}"
    )))
}

impl<N: Words, F: Remote> QueuePair for EmulatedPair<N, F> {
    fn receives(&self) -> ReceiveDepth {
        self.depth
    }

    fn peer_receives(&self) -> ReceiveDepth {
        self.depth
    }

    #[inline]
    fn has_room(&self, _bytes: usize) -> bool {
        true
    }

    fn send(&mut self, piece: &[u8], number: u32) -> Result<(), RemoteError> {
        assert!(piece.len() <= self.depth.bytes, "a piece beyond its place");
        let waiting = self.near(POSTED).wrapping_sub(self.sent);
        if waiting == 0 {
            return Err(RemoteError::Lost("the receiver is not ready".to_owned()));
        }
        if waiting > self.depth.places as u64 {
            return garbage("more Receives than there are places");
        }
        let place = self.near(self.receive_word(self.sent)) as usize;
        if place >= self.depth.places {
            return garbage("a Receive for a place that does not exist");
        }
        let words = piece.chunks(WORD).map(|bytes| {
            let mut whole = [0; WORD];
            whole[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(whole)
        });
        self.words.clear();
        self.words.extend(words);
        self.far.write(self.place_word(place), &self.words)?;
        let completion = piece.len() as u64 | u64::from(number) << 32;
        self.far
            .write(self.completion_word(self.sent), &[completion])?;
        self.sent += 1;
        self.far.write(ARRIVED, &[self.sent])?;
        self.written = true;
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<ArrivedPiece>, RemoteError> {
        let arrived = self.near(ARRIVED).wrapping_sub(self.taken);
        if arrived == 0 {
            return Ok(None);
        }
        if arrived > self.waiting.len() as u64 {
            return garbage("more pieces than Receives");
        }
        let completion = self.near(self.completion_word(self.taken));
        let len = (completion & u64::from(u32::MAX)) as usize;
        if len > self.depth.bytes {
            return garbage("a piece that is longer than its place");
        }
        self.taken += 1;
        let place = self.waiting.pop_front();
        Ok(place.map(|place| ArrivedPiece {
            place,
            len,
            number: Some((completion >> 32) as u32),
        }))
    }

    fn load(&self, place: usize, from: usize, into: &mut [u8]) {
        let words = &self.near.words()[self.place_word(place)..];
        copy(words, from, into);
    }

    fn post(&mut self, place: usize) -> Result<(), RemoteError> {
        self.far
            .write(self.receive_word(self.posted), &[place as u64])?;
        self.posted += 1;
        self.far.write(POSTED, &[self.posted])?;
        self.waiting.push_back(place);
        Ok(())
    }

    #[inline]
    fn is_unsettled(&self) -> bool {
        self.written
    }

    fn settle(&mut self) -> Result<bool, RemoteError> {
        if !self.written || !self.far.settle()? {
            return Ok(false);
        }
        self.written = false;
        let armed = self.near(ARMED);
        let must = armed % 2 == 1 && armed != self.rung;
        if must {
            self.rung = armed;
        }
        Ok(must)
    }

    fn arm(&mut self) -> Result<(), RemoteError> {
        self.announce()?;
        self.far.settle().map(drop)
    }

    fn disarm(&mut self) -> Result<(), RemoteError> {
        self.announce()
    }

    fn events(&self) -> Option<RawFd> {
        None
    }
}

/// Copies bytes out of words, from byte `from` on.
pub(crate) fn copy(words: &[AtomicU64], from: usize, into: &mut [u8]) {
    let (mut at, mut skip, mut filled) = (from / WORD, from % WORD, 0);
    while filled < into.len() {
        let word = words[at].load(Ordering::Relaxed).to_ne_bytes();
        let count = (WORD - skip).min(into.len() - filled);
        into[filled..filled + count].copy_from_slice(&word[skip..skip + count]);
        filled += count;
        at += 1;
        skip = 0;
    }
}
