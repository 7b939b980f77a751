//! A stream of bytes through a peer's memory. One side writes into the ring of the other, which
//! finds the bytes there by looking, without any system call and without an event of a device.
//!
//! Each side has a *mailbox*, a region that its peer may write. A side reads only its own mailbox,
//! and writes only its peer's. So the same code serves memory that processes share and memory that
//! RDMA devices write. This is a mailbox in words of eight bytes, all of which the peer writes:
//!
//! | word | field |
//! |---|---|
//! | 0 | *taken*: words of the other mailbox's ring that the peer has read and cleared, ever |
//! | 1 | *sleep*: bit 0 if the peer sleeps until something comes, bit 1 until there is room; above, a count of its sleeps |
//! | 2–15 | zero |
//! | 16– | the ring: records, one behind the other; behind the end it goes on at the beginning |
//!
//! A record is a message of paper 1 (its section on GET+ and PUT+). It begins at a multiple of 16
//! bytes, does not go over the ring's end, and carries a piece of the stream:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | n, bytes of the body; 1 at least, a quarter of the ring at most |
//! | 8 | 1 | first indicator, 1: the size has come |
//! | 9 | n | body |
//! | 9 + n | 1 | second indicator, 1: the body has come |
//! | | | zeros up to a multiple of 16 bytes |
//!
//! Invariants:
//!
//! 1. Space that is not filled is zero: the reader of a record clears it, and then gives it back by
//!    counting it as taken. The writer writes only to space that was never written or was given
//!    back.
//! 2. Words become visible in the order of their places ([`memory`](crate::memory), invariant 5).
//!    So an indicator that is set means that everything before it has arrived. A writer that dies
//!    between two words leaves a record that is never taken.
//! 3. **The contents of the mailbox are not trusted.** Sizes and counts are checked, and each word
//!    is loaded once for its check. A peer that writes garbage damages and ends only its own
//!    stream.
//! 4. **No bell is lost.** A side that goes to sleep announces it, and then looks once more. A side
//!    that has written looks afterwards if the other one sleeps. Between the two steps, each side
//!    waits until the first is visible ([`Remote::settle`]). So at least one of them sees the
//!    other. One sleep gets one bell, because the count distinguishes it from the next sleep.
//!
//! This module does not ring bells: a bell takes another way, and wakes a thread that waits in a
//! poll.

mod layout;
mod receiver;
mod sender;

use std::io::{self, ErrorKind};

use crate::memory::{Remote, RemoteError, Words};
use crate::sync::Ordering;
pub use layout::{CONTROL, RING_MIN, RingError};
use layout::{INPUT, NAP, SLEEP, SPACE, TAKEN};
use receiver::Receiver;
use sender::Sender;

/// The event for which a side sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Bytes have come.
    Input,
    /// There is room to send something.
    Space,
    /// Either of the two.
    Either,
}

impl Until {
    fn bits(self) -> u64 {
        match self {
            Until::Input => INPUT,
            Until::Space => SPACE,
            Until::Either => INPUT | SPACE,
        }
    }
}

/// Both directions of a connection, as one side has them.
#[derive(Debug)]
pub struct Rings<N, F> {
    near: N,
    far: F,
    sender: Sender,
    receiver: Receiver,
    /// The last announcement of this side's sleep.
    sleep: u64,
    /// The peer's sleep for which a bell was rung last.
    rung: u64,
    /// Bytes were written, or room was given back, and this side has not looked since if the peer
    /// sleeps.
    written: bool,
    gave: bool,
    /// The error because of which room could not be given back.
    lost: Option<RemoteError>,
}

impl<N: Words, F: Remote> Rings<N, F> {
    /// Makes rings over this side's mailbox and the peer's, both of which are zero.
    ///
    /// # Errors
    /// Returns an error if a mailbox has no room for a ring.
    pub fn new(near: N, far: F) -> Result<Rings<N, F>, RingError> {
        let capacity = |words: usize| {
            let ring = words.saturating_sub(CONTROL);
            let fits = ring >= RING_MIN && ring.is_multiple_of(2);
            fits.then_some(ring)
                .ok_or(RingError::Garbage("a mailbox without room for a ring"))
        };
        Ok(Rings {
            receiver: Receiver::new(capacity(near.words().len())?),
            sender: Sender::new(capacity(far.len())?),
            near,
            far,
            sleep: 0,
            rung: 0,
            written: false,
            gave: false,
            lost: None,
        })
    }

    /// Returns this side's mailbox.
    pub fn mailbox(&self) -> &N {
        &self.near
    }

    /// Returns this side's mailbox; its words keep their values and places.
    pub fn mailbox_mut(&mut self) -> &mut N {
        &mut self.near
    }

    /// Writes as many of these bytes as there is room for, and returns their number. The caller
    /// must call [`Rings::must_ring`] afterwards.
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, RingError> {
        let sent = self.sender.send(self.near.words(), &mut self.far, bytes)?;
        if sent > 0 {
            self.written = true;
            self.hush()?;
        }
        Ok(sent)
    }

    /// Reads as many bytes as have come and fit, and returns their number. The caller must call
    /// [`Rings::must_ring`] afterwards.
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more. All bytes that had come were received
    /// before, except for those that came together with garbage.
    #[inline]
    pub fn receive(&mut self, into: &mut [u8]) -> Result<usize, RingError> {
        let received = self.receiver.receive(self.near.words(), into)?;
        if let Some(taken) = self.receiver.give_back() {
            match self.far.write(TAKEN, &[taken]) {
                Ok(()) => self.gave = true,
                Err(error) => self.lost = Some(error),
            }
        }
        if received > 0 {
            // A bell may have been rung for a sleep that was announced and not begun: the next
            // sleep is another one. If this cannot be announced, the next step fails.
            let said = self.hush();
            self.lost = self.lost.take().or(said.err());
        }
        match &self.lost {
            // The bytes that have come are received first.
            Some(error) if received == 0 => Err(error.clone().into()),
            _ => Ok(received),
        }
    }

    /// Returns `true` if there is something to receive, or an error that receiving will find.
    #[inline]
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.receiver.has_input(self.near.words())
    }

    /// Returns `true` if there is room to send something, or an error that sending will find.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.sender.has_room(self.near.words())
    }

    /// Announces that this side sleeps until a bell rings. Returns `true` if it may sleep.
    /// Otherwise the event for which it would sleep has happened, or the announcement is not visible
    /// yet: it looks again, and then calls this again. Sending or receiving ends the sleep; after a
    /// bell, the caller ends it by [`Rings::wake`].
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more.
    pub fn sleep(&mut self, until: Until) -> Result<bool, RingError> {
        let wanted = until.bits();
        if self.sleep % NAP != wanted {
            self.announce_sleep(self.sleep / NAP * NAP + NAP + wanted)?;
        }
        if !self.far.settle()? {
            return Ok(false);
        }
        let come = wanted & INPUT != 0 && self.has_input();
        let called = come || (wanted & SPACE != 0 && self.has_room());
        if called {
            self.wake()?;
        }
        Ok(!called)
    }

    /// Announces that this side does not sleep any more, if it did.
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more.
    #[inline]
    pub fn wake(&mut self) -> Result<(), RingError> {
        Ok(self.hush()?)
    }

    #[inline]
    fn hush(&mut self) -> Result<(), RemoteError> {
        match self.sleep.is_multiple_of(NAP) {
            true => Ok(()),
            false => self.announce_sleep(self.sleep / NAP * NAP),
        }
    }

    fn announce_sleep(&mut self, sleep: u64) -> Result<(), RemoteError> {
        self.sleep = sleep;
        self.far.write(SLEEP, &[sleep])
    }

    /// Returns `true` if the caller must ring a bell for the peer now, because of bytes that were
    /// sent or room that was given back. Call it again as long as it is
    /// [unsettled](Rings::is_unsettled).
    ///
    /// # Errors
    /// See [`RingError`]; the stream is of no use any more.
    #[inline]
    pub fn must_ring(&mut self) -> Result<bool, RingError> {
        if !self.is_unsettled() || !self.far.settle()? {
            return Ok(false);
        }
        let written = std::mem::take(&mut self.written);
        let gave = std::mem::take(&mut self.gave);
        let sleep = self.near.words()[SLEEP].load(Ordering::Acquire);
        let concerned = (written && sleep & INPUT != 0) || (gave && sleep & SPACE != 0);
        let must = concerned && sleep != self.rung;
        if must {
            self.rung = sleep;
        }
        Ok(must)
    }

    /// Returns `true` if it is not known yet if the peer sleeps for what was written.
    #[inline]
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.written || self.gave
    }
}

impl<N: Words, F: Remote> io::Read for Rings<N, F> {
    /// Reads as from a socket that does not block.
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.receive(into)? {
            0 if !into.is_empty() => Err(ErrorKind::WouldBlock.into()),
            n => Ok(n),
        }
    }
}

impl<N: Words, F: Remote> io::Write for Rings<N, F> {
    /// Writes as to a socket that does not block.
    #[inline]
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
