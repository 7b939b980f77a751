//! Messages by Send and Receive.
//!
//! A message travels in pieces, each at most as long as the peer's memory for a piece. Each piece
//! has a number of 32 bits, the device's *immediate data*:
//!
//! | bits | field |
//! |---|---|
//! | 31 | 1: the message goes on in the next piece |
//! | 30 | 1: there is no piece, only the count |
//! | 0…29 | the number of pieces that the sender has received and made room for again: the lower bits of the count |
//!
//! Invariants:
//! 1. A piece is sent only if there is memory for it: the pieces that were sent and are not counted
//!    by the peer stay within the peer's receives. So the device never finds a peer that is not
//!    ready.
//! 2. The last place is kept for a count alone. A side that uses it informs the peer of at least
//!    half of its places; so one of the two can always go on.
//! 3. A count alone is sent when half of the places are owed, so that counts are not answered by
//!    counts for ever.
//! 4. No call waits: messages for which the device or the peer has no room wait here.
//! 5. The peer's input is not trusted: a count of pieces that were not sent, a piece that is longer
//!    than its memory, or pieces that never come to an end, end the messages.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use base::memory::{RemoteError, WORD};

use super::active_pair::{ActivePair, ReceivedMessage};
use super::address::Address;
use super::ffi::access;
use super::options::Depths;
use super::resources::{Domain, Registered};

const GOES_ON: u32 = 1 << 31;
const COUNT_ALONE: u32 = 1 << 30;
const COUNT: u32 = COUNT_ALONE - 1;

/// A connection's messages.
pub(super) struct MessageChannel {
    /// The memory for pieces, and the bytes of each.
    inbox: Option<Arc<Registered>>,
    room: usize,
    /// The number of places for the peer here, and for this side at the peer.
    places: u32,
    credit: SendCredit,
    /// The length of the longest piece that the peer takes, and of the longest message, in bytes.
    piece: usize,
    longest: usize,
    /// The number of pieces received, and the number that the peer knows.
    received: u32,
    acknowledged: u32,
    /// Messages that wait, and the number of bytes of the first one that were sent.
    waiting: VecDeque<Vec<u8>>,
    from: usize,
    bytes: usize,
    /// The beginning of a message that is not complete.
    begun: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
}

/// The number of pieces for which the peer has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SendCredit {
    places: u32,
    sent: u32,
    /// The number of pieces that were sent and for which the peer has made room again.
    counted: u32,
}

impl SendCredit {
    fn new(places: u32) -> SendCredit {
        SendCredit {
            places,
            sent: 0,
            counted: 0,
        }
    }

    fn left(&self) -> u32 {
        self.places - (self.sent.wrapping_sub(self.counted) & COUNT)
    }

    /// Takes the peer's count. Returns `false` if it counts pieces that were not sent.
    fn count(&mut self, count: u32) -> bool {
        let new = count.wrapping_sub(self.counted) & COUNT;
        if new > self.sent.wrapping_sub(self.counted) & COUNT {
            return false;
        }
        self.counted = self.counted.wrapping_add(new) & COUNT;
        true
    }

    fn send(&mut self) {
        self.sent = self.sent.wrapping_add(1) & COUNT;
    }
}

impl MessageChannel {
    /// Makes memory for messages, which is registered with the device.
    pub(super) fn inbox(
        domain: &Arc<Domain>,
        depths: &Depths,
        line: &mut ActivePair,
    ) -> io::Result<Option<Arc<Registered>>> {
        if depths.receives == 0 {
            return Ok(None);
        }
        let bytes = depths.receive_bytes as usize;
        let words = depths.receives as usize * bytes / WORD;
        let inbox = Arc::new(Registered::new(domain, words, access::LOCAL_WRITE)?);
        for place in 0..u64::from(depths.receives) {
            line.expect(place, &inbox, bytes)
                .map_err(io::Error::other)?;
        }
        Ok(Some(inbox))
    }

    pub(super) fn new(
        inbox: Option<Arc<Registered>>,
        depths: &Depths,
        peer: &Address,
    ) -> MessageChannel {
        let most = depths.staging_words / 4 * WORD;
        MessageChannel {
            inbox,
            room: depths.receive_bytes as usize,
            places: depths.receives,
            credit: SendCredit::new(u32::from(peer.receives)),
            piece: (peer.receive_bytes as usize).min(most),
            longest: depths.message_bytes,
            received: 0,
            acknowledged: 0,
            waiting: VecDeque::new(),
            from: 0,
            bytes: 0,
            begun: Vec::new(),
            whole: VecDeque::new(),
        }
    }

    /// Sends waiting messages, as far as the peer has memory for them, and a count if many are
    /// owed.
    fn send_waiting(&mut self, line: &mut ActivePair) -> Result<(), RemoteError> {
        while self.credit.left() > 1
            && let Some(message) = self.waiting.front()
        {
            let end = message.len().min(self.from + self.piece);
            if !line.has_room((end - self.from).div_ceil(WORD)) {
                break;
            }
            let goes_on = if end < message.len() { GOES_ON } else { 0 };
            line.send(&message[self.from..end], goes_on | self.received)?;
            self.bytes -= end - self.from;
            self.from = end;
            if goes_on == 0 {
                self.waiting.pop_front();
                self.from = 0;
            }
            self.sent_count();
        }
        let owed = self.received.wrapping_sub(self.acknowledged) & COUNT;
        if owed > 0 && owed >= self.places / 2 && self.credit.left() > 0 && line.has_room(0) {
            line.send(&[], COUNT_ALONE | self.received)?;
            self.sent_count();
        }
        Ok(())
    }

    fn sent_count(&mut self) {
        self.credit.send();
        self.acknowledged = self.received;
    }

    /// Takes the messages that have arrived.
    fn take(&mut self, line: &mut ActivePair) -> Result<(), RemoteError> {
        line.poll();
        line.poll_messages();
        while let Some(arrived) = line.arrived.pop_front() {
            self.take_piece(arrived, line)?;
        }
        // Messages that came before an end are there.
        if self.whole.is_empty() {
            line.check()?;
        }
        Ok(())
    }

    fn take_piece(
        &mut self,
        arrived: ReceivedMessage,
        line: &mut ActivePair,
    ) -> Result<(), RemoteError> {
        let mut wrong = |what: &str| Err(line.end(format!("the peer {what}")));
        let (Some(inbox), Some(number)) = (&self.inbox, arrived.number) else {
            return wrong("sends messages of another kind");
        };
        if !self.credit.count(number & COUNT) {
            return wrong("counts what was not sent");
        }
        if number & COUNT_ALONE == 0 {
            let len = arrived.len.min(self.room);
            if len == 0 && number & GOES_ON != 0 {
                return wrong("sends pieces with nothing in them");
            }
            if self.begun.len() + len > self.longest {
                return wrong("sends a message that is longer than it may be");
            }
            let at = arrived.place as usize * self.room / WORD;
            inbox.load(at, len, &mut self.begun);
            if number & GOES_ON == 0 {
                self.whole.push_back(std::mem::take(&mut self.begun));
            }
        }
        line.expect(arrived.place, inbox, self.room)?;
        self.received = self.received.wrapping_add(1) & COUNT;
        Ok(())
    }
}

impl MessageChannel {
    /// Takes a message to be sent, as [`Connection::send`](super::Connection::send) says.
    pub(super) fn send(
        &mut self,
        message: &[u8],
        line: &mut ActivePair,
    ) -> Result<(), RemoteError> {
        if message.len() > self.longest {
            let (len, most) = (message.len(), self.longest);
            let text = format!("a message of {len} bytes, and {most} are the most");
            return Err(RemoteError::Refused(text));
        }
        if self.credit.places == 0 || self.inbox.is_none() {
            let text = "this connection carries no messages: one side keeps no memory for them";
            return Err(RemoteError::Refused(text.to_owned()));
        }
        line.check()?;
        self.bytes += message.len();
        self.waiting.push_back(message.to_vec());
        self.send_waiting(line)
    }

    /// Returns the number of bytes that wait because the peer has no memory for them yet.
    pub(super) fn waiting(&self) -> usize {
        self.bytes
    }

    /// Takes the messages that have arrived, and sends waiting ones.
    pub(super) fn advance(&mut self, line: &mut ActivePair) -> Result<(), RemoteError> {
        self.take(line)?;
        line.check()?;
        self.send_waiting(line)
    }

    /// Returns the next message that has arrived.
    pub(super) fn receive(
        &mut self,
        line: &mut ActivePair,
    ) -> Result<Option<Vec<u8>>, RemoteError> {
        if self.whole.is_empty() {
            self.take(line)?;
            if line.check().is_ok() {
                self.send_waiting(line)?;
            }
        }
        Ok(self.whole.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_stays_within_the_places() {
        let mut credit = SendCredit::new(4);
        for _ in 0..4 {
            credit.send();
        }
        assert_eq!(credit.left(), 0);
        assert!(credit.count(3));
        assert_eq!(credit.left(), 3);
        assert!(credit.count(3), "the same count again says nothing new");
        assert_eq!(credit.left(), 3);
    }

    #[test]
    fn a_count_of_what_was_not_sent_is_found() {
        let mut credit = SendCredit::new(4);
        credit.send();
        credit.send();
        assert!(!credit.count(3));
        assert!(credit.count(2));
        assert!(!credit.count(1), "counts do not go back");
        assert_eq!(credit.left(), 4);
    }

    #[test]
    fn counts_go_on_beyond_their_bits() {
        let mut credit = SendCredit {
            places: 4,
            sent: COUNT,
            counted: COUNT,
        };
        credit.send();
        credit.send();
        assert_eq!((credit.sent, credit.left()), (1, 2));
        assert!(!credit.count(2));
        assert!(credit.count(1));
        assert_eq!(credit.left(), 4);
    }
}
