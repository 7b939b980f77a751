//! The encryption of a connection: a layer between the socket and its user, which keeps the bytes of unfinished
//! records in both directions.
//!
//! The format of records is in [`frame`](crate::frame). After [`REKEY`] records of a direction, both sides
//! derive its next key from the last one.
//!
//! Invariants:
//! 1. Bytes are delivered in the order in which they were written, or not at all: a record that was altered,
//!    repeated, left out or put elsewhere ends the connection, and delivers nothing.
//! 2. No memory is held if there is nothing unfinished.

use std::io::{self, ErrorKind, Read, Write};

use snow::{HandshakeState, TransportState};

/// No limit on the records of a read.
pub(crate) const ALL: usize = usize::MAX;

/// Bytes before a record.
const HEAD: usize = 2;
/// Bytes of a tag.
const TAG: usize = 16;
/// The greatest content of a record in bytes.
const CONTENT: usize = u16::MAX as usize - TAG;
/// The number of bytes that are sealed before the system gets them.
const BATCH: usize = 128 << 10;
/// The number of records after which the next key is used. It keeps the bytes under one key, at most 2^36,
/// below what TLS 1.3 allows for AES-GCM (RFC 8446, section 5.5: 2^24.5 records of 2^14 bytes).
const REKEY: u64 = if cfg!(test) { 100 } else { 1 << 20 };

/// See the module's description.
pub(crate) struct Cipher {
    keys: TransportState,
    /// Records that the system has not taken.
    sealed: Vec<u8>,
    /// Bytes of records that have arrived and are not opened.
    arrived: Vec<u8>,
    /// Opened bytes that did not fit into the reader's memory, from `read` on.
    opened: Vec<u8>,
    read: usize,
}

/// Memory for the work on one connection at a time. It grows and stays, so that it is rarely filled with zeros.
#[derive(Default)]
pub(crate) struct Scratch(Vec<u8>);

impl Scratch {
    /// Makes room for `room` bytes behind `kept` bytes.
    fn reserve(&mut self, kept: usize, room: usize) {
        if self.0.len() < kept + room {
            self.0.resize(kept + room, 0);
        }
    }
}

impl Cipher {
    pub(crate) fn new(handshake: HandshakeState) -> Cipher {
        let keys = handshake.into_transport_mode();
        Cipher {
            keys: keys.expect("the handshake has ended"),
            sealed: Vec::new(),
            arrived: Vec::new(),
            opened: Vec::new(),
            read: 0,
        }
    }

    /// Takes bytes that are to be sent as they are, before all records.
    pub(crate) fn send_plain(&mut self, bytes: &[u8]) {
        debug_assert!(self.sealed.is_empty());
        self.sealed.extend_from_slice(bytes);
    }

    /// Takes bytes of records that were read elsewhere, before all others.
    pub(crate) fn take_arrived(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// Returns the number of bytes of unfinished records that it holds.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.sealed.capacity() + self.arrived.capacity() + self.opened.capacity()
    }

    /// Returns `true` if the system has taken all records.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Seals bytes, and takes the records that the system has not taken, instead of sending them here.
    ///
    /// # Errors
    /// Returns an error if there are no keys for more records.
    pub(crate) fn seal(&mut self, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut records = std::mem::take(&mut self.sealed);
        while !bytes.is_empty() {
            let (content, rest) = bytes.split_at(bytes.len().min(CONTENT));
            let start = records.len();
            records.resize(start + HEAD + content.len() + TAG, 0);
            self.seal_record(content, &mut records[start..])?;
            bytes = rest;
        }
        Ok(records)
    }

    /// Writes a record to memory of its length.
    fn seal_record(&mut self, content: &[u8], record: &mut [u8]) -> io::Result<()> {
        let (head, rest) = record.split_at_mut(HEAD);
        head.copy_from_slice(&(rest.len() as u16).to_be_bytes());
        let sealed = self.keys.write_message(content, rest);
        sealed.map_err(io::Error::other)?;
        if self.keys.sending_nonce().is_multiple_of(REKEY) {
            self.keys.rekey_outgoing();
        }
        Ok(())
    }

    /// Sends records that the system has not taken. Returns `true` if there are none left.
    ///
    /// # Errors
    /// Returns the errors of `to`, except for those that say that it would block or was interrupted.
    pub(crate) fn flush(&mut self, to: &mut impl Write) -> io::Result<bool> {
        let mut sent = 0;
        let flushed = send(&self.sealed, &mut sent, to)?;
        match flushed {
            true => self.sealed = Vec::new(),
            false => drop(self.sealed.drain(..sent)),
        }
        Ok(flushed)
    }

    /// Seals bytes, and sends the records as far as that is possible now. Returns the number of bytes that it
    /// has taken; [`Cipher::flush`] sends the rest of their records.
    ///
    /// # Errors
    /// Returns [`ErrorKind::WouldBlock`] if records wait to be sent already, and the errors of `to`.
    pub(crate) fn write(
        &mut self,
        to: &mut impl Write,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> io::Result<usize> {
        if !self.flush(to)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = bytes.len().min(BATCH);
        let mut end = 0;
        for content in bytes[..taken].chunks(CONTENT) {
            let len = HEAD + content.len() + TAG;
            scratch.reserve(end, len);
            self.seal_record(content, &mut scratch.0[end..end + len])?;
            end += len;
        }
        let mut sent = 0;
        send(&scratch.0[..end], &mut sent, to)?;
        self.sealed.extend_from_slice(&scratch.0[sent..end]);
        Ok(taken)
    }

    /// Reads records, and opens at most `most` of them into `into`. Returns the number of bytes; 0 when the peer
    /// has ended. If it returns fewer than there is room for, and `most` is [`ALL`], there is nothing more to
    /// read now, or the peer has ended.
    ///
    /// # Errors
    /// Returns the errors of `from`; [`ErrorKind::InvalidData`] if a record was altered on its way; and
    /// [`ErrorKind::UnexpectedEof`] if the peer has ended within a record.
    pub(crate) fn read(
        &mut self,
        from: &mut impl Read,
        into: &mut [u8],
        scratch: &mut Scratch,
        most: usize,
    ) -> io::Result<usize> {
        let arrived = std::mem::take(&mut self.arrived);
        let mut end = arrived.len();
        scratch.reserve(0, end);
        scratch.0[..end].copy_from_slice(&arrived);
        let mut filled = self.take_opened(into);
        let mut records = usize::from(filled > 0);
        let (mut opened, mut more) = (0, true);
        let result = loop {
            if filled == into.len() || (filled > 0 && records >= most) {
                break Ok(filled);
            }
            if let Some(record) = first_record(&scratch.0[opened..end])? {
                opened += HEAD + record.len();
                filled += self.open(record, &mut into[filled..])?;
                filled += self.take_opened(&mut into[filled..]);
                records += 1;
                continue;
            }
            if filled > 0 && !more {
                break Ok(filled);
            }
            // So at most one record is opened for which there is no room.
            let room = into.len() - filled + HEAD + TAG + CONTENT;
            scratch.reserve(end, room);
            match from.read(&mut scratch.0[end..end + room]) {
                Ok(0) if filled == 0 && opened < end => {
                    break Err(ErrorKind::UnexpectedEof.into());
                }
                Ok(0) => break Ok(filled),
                Ok(n) => {
                    end += n;
                    more = n == room;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) if filled > 0 => break Ok(filled),
                Err(error) => break Err(error),
            }
        };
        self.arrived = scratch.0[opened..end].to_vec();
        result
    }

    /// Opens one record, and returns how many bytes of it are in `into`. The others are read next.
    fn open(&mut self, record: &[u8], into: &mut [u8]) -> io::Result<usize> {
        // The keys write a tag behind the content.
        let fits = record.len() <= into.len();
        let to = match fits {
            true => into,
            false => {
                self.opened.resize(record.len(), 0);
                &mut self.opened[..]
            }
        };
        let content = self.keys.read_message(record, to);
        let content = content.map_err(|_| io::Error::new(ErrorKind::InvalidData, AlteredRecord))?;
        if self.keys.receiving_nonce().is_multiple_of(REKEY) {
            self.keys.rekey_incoming();
        }
        if fits {
            return Ok(content);
        }
        self.opened.truncate(content);
        Ok(0)
    }

    /// Moves bytes that are opened already; returns their number.
    fn take_opened(&mut self, into: &mut [u8]) -> usize {
        let left = &self.opened[self.read..];
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        self.read += count;
        if self.read == self.opened.len() {
            (self.opened, self.read) = (Vec::new(), 0);
        }
        count
    }
}

/// A record is not what the peer has sent.
#[derive(Debug, thiserror::Error)]
#[error("a message was altered on its way")]
pub(crate) struct AlteredRecord;

/// Returns the record at the beginning of these bytes without its head, if it is whole.
fn first_record(bytes: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes(*head));
    if len <= TAG {
        return Err(io::Error::new(ErrorKind::InvalidData, AlteredRecord));
    }
    Ok(rest.get(..len))
}

/// Writes the bytes from `sent` on, and counts there how many were taken. Returns `true` if all were.
fn send(bytes: &[u8], sent: &mut usize, to: &mut impl Write) -> io::Result<bool> {
    while *sent < bytes.len() {
        match to.write(&bytes[*sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => *sent += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cipher")
            .field("sealed", &self.sealed.len())
            .field("arrived", &self.arrived.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scratch({} bytes)", self.0.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{self, HandshakeRole, KEY};

    /// Returns the ciphers of both sides of a connection.
    fn pair() -> (Cipher, Cipher) {
        let mut initiator = noise::begin(HandshakeRole::Initiator, &[1; KEY], b"hello");
        let mut acceptor = noise::begin(HandshakeRole::Acceptor, &[1; KEY], b"hello");
        let proof = noise::prove(&mut initiator).unwrap();
        assert!(noise::verify(&mut acceptor, &proof));
        let welcome = noise::prove(&mut acceptor).unwrap();
        assert!(noise::verify(&mut initiator, &welcome));
        (Cipher::new(initiator), Cipher::new(acceptor))
    }

    /// A connection that takes and gives at most `piece` bytes at a time.
    #[derive(Default)]
    struct Wire {
        bytes: std::collections::VecDeque<u8>,
        piece: usize,
        blocked: bool,
    }

    impl Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.blocked = !self.blocked;
            if self.blocked {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.piece);
            self.bytes.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Wire {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.bytes.len().min(self.piece).min(into.len());
            if count == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            for (to, byte) in into.iter_mut().zip(self.bytes.drain(..count)) {
                *to = byte;
            }
            Ok(count)
        }
    }

    /// Bytes come out as they went in, for pieces of all sizes that the system and the reader take.
    #[test]
    fn bytes_are_read_as_they_were_written() {
        for (piece, most) in [(1, 7), (4096, 100), (70_001, 256 << 10), (1 << 20, 1 << 20)] {
            let (mut a, mut b) = pair();
            let mut scratch = Scratch::default();
            let mut wire = Wire {
                piece,
                ..Wire::default()
            };
            let len = if piece == 1 { 3000 } else { 1 << 20 };
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let (mut written, mut read) = (0, Vec::new());
            let mut into = vec![0; most];
            while read.len() < len {
                if written < len {
                    let next = (written + 30_011).min(len);
                    match a.write(&mut wire, &bytes[written..next], &mut scratch) {
                        Ok(n) => written += n,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                } else {
                    a.flush(&mut wire).unwrap();
                }
                match b.read(&mut wire, &mut into, &mut scratch, ALL) {
                    Ok(n) => read.extend_from_slice(&into[..n]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            assert!(read == bytes, "pieces of {piece}");
            assert!(a.is_flushed());
            assert_eq!(
                (a.memory(), b.memory()),
                (0, 0),
                "memory of an idle connection"
            );
        }
    }

    /// Seals two records, and returns what the other side reads after `alter` has changed them.
    fn read_altered(alter: impl FnOnce(&mut Vec<u8>)) -> io::Result<Vec<u8>> {
        let (mut a, mut b) = pair();
        let mut records = a.seal(b"pay 10 to alice").unwrap();
        records.extend(a.seal(b"pay 20 to bobby").unwrap());
        alter(&mut records);
        let (mut into, mut read) = (vec![0; 4096], Vec::new());
        let mut records = &records[..];
        loop {
            match b.read(&mut records, &mut into, &mut Scratch::default(), ALL) {
                Ok(0) => return Ok(read),
                Ok(n) => read.extend_from_slice(&into[..n]),
                Err(error) => return Err(error),
            }
        }
    }

    /// Every bit of a record counts; records cannot be left out, repeated or exchanged.
    #[test]
    fn altered_records_are_refused() {
        let len = HEAD + 15 + TAG;
        assert_eq!(read_altered(|_| {}).unwrap().len(), 30);
        for bit in 0..8 * len {
            let error = read_altered(|records| records[bit / 8] ^= 1 << (bit % 8)).unwrap_err();
            let expected = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
            assert!(expected.contains(&error.kind()), "bit {bit}: {error}");
        }
        let is_altered = |alter: fn(&mut Vec<u8>)| {
            let error = read_altered(alter).unwrap_err();
            error
                .get_ref()
                .is_some_and(|inner| inner.is::<AlteredRecord>())
        };
        assert!(is_altered(|records| drop(records.drain(..HEAD + 15 + TAG))));
        assert!(is_altered(|records| records.rotate_left(HEAD + 15 + TAG)));
        assert!(is_altered(|records| {
            let first = records[..HEAD + 15 + TAG].to_vec();
            records.splice(0..0, first);
        }));
        let cut = read_altered(|records| records.truncate(HEAD + 15 + TAG + 5));
        assert_eq!(cut.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    /// A reader can take one record at a time: what follows may not be records.
    #[test]
    fn records_are_read_one_by_one() {
        let (mut a, mut b) = pair();
        let mut bytes = a.seal(b"first").unwrap();
        bytes.extend([0; 40]);
        let mut into = [0; 512];
        let read = b.read(&mut &bytes[..], &mut into, &mut Scratch::default(), 1);
        assert_eq!(&into[..read.unwrap()], b"first");
    }

    /// Both sides change to the next key after the same record.
    #[test]
    fn keys_are_changed_in_step() {
        let (mut a, mut b) = pair();
        let mut into = [0; 64];
        for _ in 0..3 * REKEY {
            let record = a.seal(b"x").unwrap();
            let read = b.read(&mut &record[..], &mut into, &mut Scratch::default(), ALL);
            assert_eq!((read.unwrap(), into[0]), (1, b'x'));
        }
    }
}
