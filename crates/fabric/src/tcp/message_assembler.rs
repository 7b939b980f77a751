//! Makes messages of the bytes that arrive on a connection.
//!
//! The bytes are read into the inbox, where whole messages stay; only the beginning of an
//! unfinished one is kept here. A long message is gathered in memory of its own, which grows as its
//! bytes come: a length that is only claimed takes no memory.

use std::io::{self, ErrorKind, Read};

use super::link_error::LinkError;
use crate::frame::{LENGTH, message_len};
use crate::inbox::Inbox;
use crate::link::Link;

/// Bytes read at a time.
const READ: usize = 256 << 10;
/// The length from which on an unfinished message is gathered in memory of its own.
const LONG: usize = 16 << 10;
/// The bytes of a long message that are read before others have their turn.
const TURN: usize = 1 << 20;

/// Bytes that have arrived and are not a whole message.
#[derive(Debug)]
pub(crate) enum MessageAssembler {
    /// The beginning of a frame; usually empty.
    Begun(Vec<u8>),
    /// The beginning of a message of this length.
    Long(Vec<u8>, usize),
}

/// The result of reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AssemblyProgress {
    /// There may be more.
    More,
    /// There is nothing to read for now.
    Dry,
    /// Nothing more will come, for this reason.
    End(LinkError),
}

impl Default for MessageAssembler {
    fn default() -> MessageAssembler {
        MessageAssembler::Begun(Vec::new())
    }
}

impl MessageAssembler {
    /// Returns the bytes of memory that it takes.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        let (MessageAssembler::Begun(bytes) | MessageAssembler::Long(bytes, _)) = self;
        bytes.capacity()
    }

    /// Reads once, and appends the messages that are whole. `to` is the link on which they come,
    /// and the length of the longest message that is allowed. `end_seen` says that nothing more
    /// will come behind the bytes that can be read now.
    pub(crate) fn read(
        &mut self,
        from: &mut impl Read,
        inbox: &mut Inbox,
        to: (Link, usize),
        end_seen: bool,
    ) -> AssemblyProgress {
        match self {
            MessageAssembler::Begun(_) => self.read_frames(from, inbox, to, end_seen),
            MessageAssembler::Long(message, len) => {
                let progress = gather(from, message, *len);
                if message.len() < *len {
                    return progress;
                }
                inbox.push_long(to.0, std::mem::take(message));
                *self = MessageAssembler::default();
                AssemblyProgress::More
            }
        }
    }

    fn read_frames(
        &mut self,
        from: &mut impl Read,
        inbox: &mut Inbox,
        to: (Link, usize),
        end_seen: bool,
    ) -> AssemblyProgress {
        let MessageAssembler::Begun(begun) = self else {
            unreachable!("frames are read while no long message is gathered");
        };
        let (start, kept) = (inbox.filled(), begun.len());
        let room = inbox.room(kept + READ);
        let read = from.read(&mut room[kept..kept + READ]);
        let Some(n) = settle(&read) else {
            return verdict(&read, kept > 0);
        };
        room[..kept].copy_from_slice(begun);
        *self = MessageAssembler::default();
        inbox.fill(start + kept + n);
        match self.split(inbox, start, to) {
            Err(end) => AssemblyProgress::End(end),
            // Fewer bytes came than there was room for: the system has no more.
            Ok(()) if n < READ && !end_seen => AssemblyProgress::Dry,
            Ok(()) => AssemblyProgress::More,
        }
    }

    /// Takes bytes that were read elsewhere, at the beginning.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        inbox: &mut Inbox,
        to: (Link, usize),
    ) -> Result<(), LinkError> {
        let start = inbox.filled();
        inbox.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        inbox.fill(start + bytes.len());
        self.split(inbox, start, to)
    }

    /// Finds the messages in the bytes with which the inbox was filled since `start`, and keeps the
    /// rest.
    fn split(
        &mut self,
        inbox: &mut Inbox,
        start: usize,
        (link, limit): (Link, usize),
    ) -> Result<(), LinkError> {
        let mut at = start;
        while let Some(len) = message_len(inbox.since(at)) {
            if len > limit {
                inbox.fill(at);
                return Err(LinkError::MessageTooLong { len, limit });
            }
            let end = at + LENGTH + len;
            if end > inbox.filled() {
                if len > LONG {
                    *self = MessageAssembler::Long(inbox.since(at)[LENGTH..].to_vec(), len);
                    inbox.fill(at);
                    return Ok(());
                }
                break;
            }
            inbox.push_filled(link, at + LENGTH..end);
            at = end;
        }
        let rest = inbox.since(at);
        if !rest.is_empty() {
            *self = MessageAssembler::Begun(rest.to_vec());
            inbox.fill(at);
        }
        Ok(())
    }
}

/// Reads some more of a message of `len` bytes. Takes at most as much memory again as has arrived.
fn gather(from: &mut impl Read, message: &mut Vec<u8>, len: usize) -> AssemblyProgress {
    let missing = len - message.len();
    let doubled = missing.min(message.len().max(READ));
    let step = doubled.min(TURN);
    message.reserve_exact(doubled);
    let read = from.take(step as u64).read_to_end(message);
    // It stops before the step only at the end.
    let read = read.map(|n| if n < step { 0 } else { n });
    match settle(&read) {
        Some(_) => AssemblyProgress::More,
        None => verdict(&read, true),
    }
}

/// Reads some bytes, and appends them.
pub(super) fn append(from: &mut impl Read, bytes: &mut Vec<u8>) -> AssemblyProgress {
    let mut buffer = [0; 512];
    let read = from.read(&mut buffer);
    match settle(&read) {
        Some(n) => {
            bytes.extend(&buffer[..n]);
            AssemblyProgress::More
        }
        None => verdict(&read, false),
    }
}

/// Reads and drops bytes that are not needed any more.
pub(super) fn discard(from: &mut impl Read, inbox: &mut Inbox) -> AssemblyProgress {
    let read = from.read(&mut inbox.room(READ)[..READ]);
    match settle(&read) {
        Some(_) => AssemblyProgress::More,
        None => verdict(&read, false),
    }
}

/// Returns the number of bytes that were read, if there were any.
fn settle(read: &io::Result<usize>) -> Option<usize> {
    read.as_ref().ok().copied().filter(|&n| n > 0)
}

/// Interprets a read that returned no bytes.
fn verdict(read: &io::Result<usize>, within: bool) -> AssemblyProgress {
    match read {
        Ok(_) if within => AssemblyProgress::End(LinkError::ClosedWithinMessage),
        Ok(_) => AssemblyProgress::End(LinkError::ClosedByPeer),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock => AssemblyProgress::Dry,
            ErrorKind::Interrupted => AssemblyProgress::More,
            ErrorKind::UnexpectedEof => AssemblyProgress::End(LinkError::ClosedWithinMessage),
            _ => AssemblyProgress::End(LinkError::broken(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that claims a long message does not make us take memory for it.
    #[test]
    fn a_claimed_length_takes_no_memory() {
        let (mut assembler, mut inbox) = (MessageAssembler::default(), Inbox::default());
        let to = (Link(1), usize::MAX);
        let mut claim = u32::MAX.to_le_bytes().to_vec();
        claim.extend([1; 100]);
        for piece in [&claim[..], &[2; 1000]] {
            let mut piece = piece;
            // The end of a slice reads as the end of a connection.
            assembler.read(&mut piece, &mut inbox, to, false);
        }
        let MessageAssembler::Long(message, len) = &assembler else {
            panic!("no long message");
        };
        assert_eq!((message.len(), *len), (1100, u32::MAX as usize));
        assert!(message.capacity() < 4 * READ, "{}", message.capacity());
        assert!(inbox.is_empty());
    }
}
