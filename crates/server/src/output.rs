//! A connection's replies: bytes in order, and the epochs that they wait for.
//!
//! | part | meaning |
//! |---|---|
//! | set aside | the first of the encoded replies that the socket has not taken, in pieces that do not grow any more |
//! | bytes | the others |
//! | marks | a reply, or several, and an epoch: they, and all bytes behind them, may leave once the epoch is durable |
//!
//! Replies of a client that takes none are set aside, so that the buffer of the others stays small: it is copied when
//! it grows, and that must not take long.
//!
//! Invariants:
//! 1. Marks grow in position: none overtakes another. Where one epoch can be lost and a later one
//!    not, each reply that waits has a mark of its own; elsewhere marks grow in their epoch, too,
//!    and replies that wait for no later epoch than the one before them share its mark.
//! 2. Bytes before the first mark may leave; among them are all that are set aside.

use std::collections::VecDeque;

use base::Epoch;
use resp::ReplyParser;

/// Replies are set aside when there are so many bytes of them.
const PIECE: usize = 1 << 20;
/// Bytes that take the system longer to free than a turn should last.
const MUCH: usize = 16 << 20;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    /// Pieces, each with the number of its bytes that the socket has taken; the socket gets the first one first.
    set_aside: VecDeque<(Vec<u8>, usize)>,
    /// The bytes of them that the socket has not taken.
    aside: usize,
    bytes: Vec<u8>,
    /// The number of bytes of `bytes` that the socket has taken.
    sent: usize,
    marks: VecDeque<Mark>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    from: usize,
    /// The end of the reply, if the mark is of one reply alone.
    to: usize,
    epoch: Epoch,
}

impl OutputQueue {
    /// Returns the buffer, to encode a reply at its end.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns where the next reply will start.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Makes the reply that starts at `from` wait for `epoch`. Everything up to `durable` is
    /// durable.
    #[inline]
    pub(crate) fn hold(&mut self, from: usize, epoch: Epoch, durable: Epoch) {
        if epoch > durable && self.marks.back().is_none_or(|last| last.epoch < epoch) {
            self.mark(from, epoch);
        }
    }

    /// As [`OutputQueue::hold`], where epochs can be lost: the reply takes all bytes from `from` on.
    #[inline]
    pub(crate) fn hold_alone(&mut self, from: usize, epoch: Epoch, durable: Epoch) {
        if epoch > durable {
            self.mark(from, epoch);
        }
    }

    #[inline]
    fn mark(&mut self, from: usize, epoch: Epoch) {
        let to = self.bytes.len();
        self.marks.push_back(Mark { from, to, epoch });
    }

    /// Returns `true` if the reply that starts at `position` is an error; `false` where there is
    /// none.
    #[inline]
    pub(crate) fn is_error_at(&self, position: usize) -> bool {
        self.bytes.get(position) == Some(&b'-')
    }

    /// Returns the bytes from `position` on, which begin a reply.
    pub(crate) fn from(&self, position: usize) -> &[u8] {
        self.bytes.get(position..).unwrap_or_default()
    }

    /// Drops the replies from `position` on, with their marks.
    pub(crate) fn discard(&mut self, position: usize) {
        self.bytes.truncate(position);
        self.marks.retain(|mark| mark.from < position);
    }

    /// Removes everything encoded from `position` on, which is not held yet.
    pub(crate) fn truncate(&mut self, position: usize) {
        self.bytes.truncate(position);
    }

    /// Releases the replies that waited for epochs up to `durable`.
    #[inline]
    pub(crate) fn release(&mut self, durable: Epoch) {
        while self.marks.front().is_some_and(|mark| mark.epoch <= durable) {
            self.marks.pop_front();
        }
    }

    /// As [`OutputQueue::release`], where epochs can be lost: this is checked before an epoch counts as
    /// durable. Replaces each reply that is lost with `instead`. Returns their number.
    #[inline]
    pub(crate) fn release_or_lose(
        &mut self,
        durable: Epoch,
        is_lost: impl Fn(Epoch) -> bool,
        instead: &[u8],
    ) -> usize {
        let mut lost = 0;
        while let Some(mark) = self.marks.front() {
            if is_lost(mark.epoch) {
                lost += self.lose(&is_lost, instead);
            } else if mark.epoch <= durable {
                self.marks.pop_front();
            } else {
                break;
            }
        }
        lost
    }

    #[cold]
    fn lose(&mut self, is_lost: impl Fn(Epoch) -> bool, instead: &[u8]) -> usize {
        let lost = |mark: &Mark| is_lost(mark.epoch);
        let Some(first) = self.marks.iter().find(|mark| lost(mark)) else {
            return 0;
        };
        // Each byte behind the first one that is lost moves once.
        let mut old = self.bytes.split_off(first.from);
        let (start, mut copied, before) = (self.bytes.len(), 0, self.marks.len());
        let bytes = &mut self.bytes;
        self.marks.retain_mut(|mark| {
            if mark.from < start {
                return true;
            }
            bytes.extend_from_slice(&old[copied..mark.from - start]);
            let reply = mark.from - start..mark.to - start;
            copied = reply.end;
            mark.from = bytes.len();
            let is_lost = lost(mark);
            bytes.extend_from_slice(if is_lost { instead } else { &old[reply] });
            mark.to = bytes.len();
            !is_lost
        });
        bytes.extend(old.drain(copied..));
        before - self.marks.len()
    }

    /// Returns the epochs that decide when something may be sent that a reply at `position` is about: the
    /// greatest one that the reply waits for, and the one whose loss is the reply's.
    pub(crate) fn epochs_at(&self, position: usize) -> (Option<Epoch>, Option<Epoch>) {
        let before = self.marks.iter().take_while(|mark| mark.from <= position);
        let greatest = before.clone().map(|mark| mark.epoch).max();
        let own = before.filter(|mark| position < mark.to).last();
        (greatest, own.map(|mark| mark.epoch))
    }

    /// Returns the epoch that the last waiting reply waits for. It is the greatest one, unless
    /// epochs can be lost.
    #[inline]
    pub(crate) fn waits_for(&self) -> Option<Epoch> {
        self.marks.back().map(|mark| mark.epoch)
    }

    /// Returns the bytes that may leave now.
    #[inline]
    pub(crate) fn sendable(&self) -> &[u8] {
        if let Some((piece, sent)) = self.set_aside.front() {
            return &piece[*sent..];
        }
        let end = self
            .marks
            .front()
            .map_or(self.bytes.len(), |mark| mark.from);
        &self.bytes[self.sent..end]
    }

    /// Records that the socket took `count` of the sendable bytes.
    pub(crate) fn sent(&mut self, count: usize) {
        if let Some((piece, sent)) = self.set_aside.front_mut() {
            *sent += count;
            self.aside -= count;
            if *sent == piece.len() {
                self.set_aside.pop_front();
            }
            return;
        }
        self.sent += count;
        debug_assert!(self.sent <= self.bytes.len(), "sent more than there is");
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent >= 64 * 1024 && self.sent >= self.bytes.len() / 2 {
            // The rest is no longer than the dropped part: each byte moves once on average.
            self.bytes.drain(..self.sent);
            for mark in &mut self.marks {
                mark.from -= self.sent;
                mark.to -= self.sent;
            }
            self.sent = 0;
        }
    }

    /// Returns the number of bytes held, whether they may leave or not.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.aside + self.bytes.len() - self.sent
    }

    /// Sets the replies aside, if they may leave and are many: the socket does not take them for now.
    pub(crate) fn set_aside(&mut self) {
        let count = self.bytes.len() - self.sent;
        if count >= PIECE && self.marks.is_empty() {
            let piece = (std::mem::take(&mut self.bytes), self.sent);
            self.set_aside.push_back(piece);
            (self.aside, self.sent) = (self.aside + count, 0);
        }
    }

    /// Drops everything. Much memory is freed by a thread of its own, because the system needs long for it.
    pub(crate) fn clear(&mut self) {
        let output = std::mem::take(self);
        if output.pending() >= MUCH {
            let freeing = std::thread::Builder::new().name("free-memory".to_owned());
            // If there is no thread to be had, the closure is dropped here, and the memory with it.
            let _ = freeing.spawn(move || drop(output));
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pending() == 0
    }

    /// Drops the replies that still wait, because their epochs do not become durable, and the
    /// replies behind them. Returns their number.
    pub(crate) fn give_up(&mut self) -> usize {
        let Some(first) = self.marks.front() else {
            return 0;
        };
        let (mut at, mut replies) = (first.from, 0);
        while let Ok(Some(length)) = ReplyParser::new().parse(&self.bytes[at..]) {
            at += length;
            replies += 1;
        }
        debug_assert_eq!(at, self.bytes.len(), "replies are whole");
        self.bytes.truncate(first.from);
        self.marks.clear();
        replies
    }

    /// Takes a buffer from `pool` if there is none.
    #[inline]
    pub(crate) fn borrow_buffer(&mut self, pool: &mut Vec<Vec<u8>>) {
        if self.bytes.capacity() == 0
            && let Some(buffer) = pool.pop()
        {
            self.bytes = buffer;
        }
    }

    /// Gives the empty buffer away, so that an idle connection holds no memory.
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Option<Vec<u8>> {
        (self.bytes.is_empty() && self.bytes.capacity() > 0)
            .then(|| std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(output: &mut OutputQueue, text: &str, epoch: u64, durable: u64) {
        let from = output.position();
        output.buffer().extend_from_slice(text.as_bytes());
        output.hold(from, Epoch(epoch), Epoch(durable));
    }

    fn take(output: &mut OutputQueue) -> String {
        let text = String::from_utf8(output.sendable().to_vec()).unwrap();
        output.sent(text.len());
        text
    }

    #[test]
    fn replies_leave_in_order_as_epochs_become_durable() {
        let mut output = OutputQueue::default();
        reply(&mut output, "a", 3, 3);
        assert_eq!(take(&mut output), "a");
        reply(&mut output, "b", 4, 3);
        reply(&mut output, "c", 1, 3);
        reply(&mut output, "d", 5, 3);
        reply(&mut output, "e", 4, 3);
        assert_eq!(take(&mut output), "");
        assert_eq!(output.waits_for(), Some(Epoch(5)));
        output.release(Epoch(4));
        assert_eq!(take(&mut output), "bc");
        output.release(Epoch(9));
        assert_eq!(take(&mut output), "de");
        assert!(output.is_empty() && output.waits_for().is_none());
    }

    #[test]
    fn a_durable_reply_before_a_held_one_leaves() {
        let mut output = OutputQueue::default();
        reply(&mut output, "a", 3, 3);
        reply(&mut output, "b", 4, 3);
        assert_eq!(take(&mut output), "a");
        assert_eq!(output.pending(), 1);
        assert_eq!(output.sendable(), b"");
        output.release(Epoch(4));
        assert_eq!(take(&mut output), "b");
    }

    /// The replies behind it are of commands that were executed after it.
    #[test]
    fn replies_that_are_given_up_are_counted_with_those_behind_them() {
        let mut output = OutputQueue::default();
        reply(&mut output, "+a\r\n", 3, 3);
        assert_eq!(output.give_up(), 0);
        reply(&mut output, "*2\r\n+b\r\n$1\r\nb\r\n", 4, 3);
        reply(&mut output, ":1\r\n", 1, 3);
        reply(&mut output, "$-1\r\n", 5, 3);
        assert_eq!(output.give_up(), 3);
        assert_eq!(take(&mut output), "+a\r\n");
        assert!(output.is_empty() && output.give_up() == 0);
    }

    /// Adds a reply with a mark of its own.
    fn alone(output: &mut OutputQueue, text: &str, epoch: u64) {
        let from = output.position();
        output.buffer().extend_from_slice(text.as_bytes());
        output.hold_alone(from, Epoch(epoch), Epoch(3));
    }

    #[test]
    fn what_is_lost_is_told_in_its_place() {
        let mut output = OutputQueue::default();
        for (text, epoch) in [
            ("a", 3),
            ("bbbb", 4),
            ("c", 0),
            ("dd", 5),
            ("e", 5),
            ("f", 0),
            ("g", 9),
            ("h", 0),
        ] {
            alone(&mut output, text, epoch);
        }
        let fifth = |epoch| epoch == Epoch(5);
        assert_eq!(output.release_or_lose(Epoch(3), fifth, b"-X"), 0);
        assert_eq!(take(&mut output), "a", "the one before them still waits");
        // Durability has passed the lost reply: it is lost all the same.
        assert_eq!(output.release_or_lose(Epoch(6), fifth, b"-X"), 2);
        assert_eq!(take(&mut output), "bbbbc-X-Xf");
        assert_eq!(output.waits_for(), Some(Epoch(9)));
        assert_eq!(output.release_or_lose(Epoch(6), |_| true, b"-long"), 1);
        assert_eq!(take(&mut output), "-longh");
        assert!(output.is_empty() && output.waits_for().is_none());
    }

    #[test]
    fn losses_are_found_behind_what_was_sent() {
        let mut output = OutputQueue::default();
        let long = "x".repeat(100 * 1024);
        alone(&mut output, &long, 0);
        alone(&mut output, "lost", 5);
        alone(&mut output, "kept", 6);
        output.sent(90 * 1024);
        let fifth = |epoch| epoch == Epoch(5);
        assert_eq!(output.release_or_lose(Epoch(3), fifth, b"-X"), 1);
        output.sent(10 * 1024);
        assert_eq!(take(&mut output), "-X");
        assert_eq!(output.release_or_lose(Epoch(6), fifth, b"-X"), 0);
        assert_eq!(take(&mut output), "kept");
    }

    #[test]
    fn marks_stay_right_when_the_buffer_is_compacted() {
        let mut output = OutputQueue::default();
        let long = "x".repeat(100 * 1024);
        reply(&mut output, &long, 1, 3);
        reply(&mut output, "held", 4, 3);
        reply(&mut output, "later", 5, 3);
        assert_eq!(output.sendable().len(), long.len());
        output.sent(90 * 1024);
        output.sent(10 * 1024);
        assert_eq!(take(&mut output), "");
        output.release(Epoch(4));
        assert_eq!(take(&mut output), "held");
        output.release(Epoch(5));
        assert_eq!(take(&mut output), "later");
    }

    #[test]
    fn replies_that_are_set_aside_leave_first() {
        let mut output = OutputQueue::default();
        let long = "x".repeat(PIECE);
        reply(&mut output, "a", 3, 3);
        output.set_aside();
        assert!(output.set_aside.is_empty(), "few bytes stay where they are");
        reply(&mut output, &long, 3, 3);
        output.sent(1);
        output.set_aside();
        reply(&mut output, &long, 4, 3);
        output.set_aside();
        assert_eq!(output.set_aside.len(), 1, "replies that wait stay");
        assert_eq!((output.pending(), output.position()), (2 * PIECE, PIECE));
        output.sent(10);
        assert_eq!(take(&mut output).len(), PIECE - 10);
        assert_eq!(take(&mut output), "");
        output.release(Epoch(4));
        assert_eq!(take(&mut output).len(), PIECE);
        assert!(output.is_empty());
    }

    #[test]
    fn order_holds_for_random_replies() {
        let mut seed = 12_345_u64;
        let mut next = |bound: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % bound
        };
        let (mut output, mut all, mut got) = (OutputQueue::default(), Vec::new(), String::new());
        let mut durable = 0;
        for number in 0..5000 {
            let text = format!("{number},");
            let epoch = durable + next(3);
            reply(&mut output, &text, epoch, durable);
            all.push((text, epoch));
            if next(4) == 0 {
                durable += next(2);
                output.release(Epoch(durable));
                let some = next(output.sendable().len() as u64 + 1) as usize;
                got.push_str(std::str::from_utf8(&output.sendable()[..some]).unwrap());
                output.sent(some);
            }
            let allowed: usize = all
                .iter()
                .take_while(|(_, epoch)| *epoch <= durable)
                .map(|(text, _)| text.len())
                .sum();
            assert!(got.len() <= allowed, "a reply left before its epoch");
        }
        output.release(Epoch(durable + 3));
        got.push_str(std::str::from_utf8(output.sendable()).unwrap());
        assert_eq!(
            got,
            all.into_iter().map(|(text, _)| text).collect::<String>()
        );
    }
}
