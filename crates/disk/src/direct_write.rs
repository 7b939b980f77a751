//! One write through a ring: in pieces, several of them under way at once, the sync behind the
//! last.
//!
//! Invariants:
//! 1. When a transfer ends, well or not, nothing of it is under way.
//! 2. A sync counts only if it was submitted behind the last piece, when all the others had been
//!    written, and this piece was written whole.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use crate::buffers::ALIGNMENT;
use crate::write_ring::{FinishedOperation, SLOT, SLOTS, SlotWrite, WriteRing};

/// The number of times that a write is tried again that the kernel put off, or that made no
/// progress.
const TRIES: u32 = 1000;

/// Writes all of `parts` at `offset`, both aligned, and syncs the file's data if asked.
pub(crate) fn write(
    ring: &mut WriteRing,
    file: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    offset: u64,
    sync: bool,
) -> io::Result<()> {
    let transfer = DirectWrite {
        ring,
        file,
        pieces: [None; SLOTS],
        sync,
        sync_number: None,
        synced: false,
        tries: 0,
    };
    transfer.run(PartsReader::new(parts), offset)
}

struct DirectWrite<'a> {
    ring: &'a mut WriteRing,
    file: BorrowedFd<'a>,
    /// The write that is under way from each slot, and `true` if it is the last piece.
    pieces: [Option<(SlotWrite, bool)>; SLOTS],
    sync: bool,
    /// The sync that counts.
    sync_number: Option<u64>,
    synced: bool,
    tries: u32,
}

impl DirectWrite<'_> {
    fn run(mut self, mut source: PartsReader<'_>, mut offset: u64) -> io::Result<()> {
        while source.left > 0 {
            let Some(slot) = self.ring.idle_slot() else {
                self.settle_one()?;
                continue;
            };
            let len = source.left.min(SLOT);
            source.fill(&mut self.ring.slot(slot)[..len]);
            let last = source.left == 0;
            let piece = SlotWrite {
                slot,
                from: 0,
                len,
                offset,
            };
            if last && self.sync {
                // Invariant 2.
                self.settle_all()?;
            }
            self.submit(piece, last)?;
            offset += len as u64;
        }
        self.settle_all()?;
        if self.sync && !self.synced {
            return Err(io::Error::other("the sync was cancelled"));
        }
        Ok(())
    }

    fn submit(&mut self, piece: SlotWrite, last: bool) -> io::Result<()> {
        self.pieces[piece.slot] = Some((piece, last));
        let sync = last && self.sync;
        let done = if sync { 2 } else { 0 };
        let number = self.ring.submit(self.file, piece, sync, done)?;
        self.sync_number = sync.then_some(number);
        Ok(())
    }

    fn settle_all(&mut self) -> io::Result<()> {
        while self.ring.under_way() > 0 {
            self.settle_one()?;
        }
        Ok(())
    }

    /// Takes a completion. After an error everything else is waited for, too (invariant 1).
    fn settle_one(&mut self) -> io::Result<()> {
        let (what, result) = self.ring.next()?;
        let settled = match what {
            FinishedOperation::Write(slot) => self.written(slot, result),
            FinishedOperation::Sync(number) => self.flushed(number, result),
        };
        if settled.is_err() {
            while self.ring.under_way() > 0 {
                // Its outcome changes nothing: the transfer has failed already.
                let _ = self.ring.next()?;
            }
        }
        settled
    }

    fn written(&mut self, slot: usize, result: io::Result<usize>) -> io::Result<()> {
        let (piece, last) = self.pieces[slot]
            .take()
            .expect("a write that was submitted");
        let written = match result {
            Ok(n) if n == piece.len => return Ok(()),
            // The rest begins where a write can begin.
            Ok(n) => n - n % ALIGNMENT,
            Err(error) if put_off(&error) => 0,
            Err(error) => return Err(error),
        };
        self.tries += u32::from(written == 0);
        if self.tries > TRIES {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let rest = SlotWrite {
            slot,
            from: piece.from + written,
            len: piece.len - written,
            offset: piece.offset + written as u64,
        };
        self.submit(rest, last)
    }

    /// Takes the outcome of a sync. A sync of an earlier number was cancelled, or should have been:
    /// its write was short.
    fn flushed(&mut self, number: u64, result: io::Result<usize>) -> io::Result<()> {
        if self.sync_number != Some(number) {
            return Ok(());
        }
        match result {
            Ok(_) => self.synced = true,
            // The write's outcome tells the reason, before or after this.
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn put_off(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

/// The bytes of all parts, as one sequence.
struct PartsReader<'a> {
    parts: &'a [IoSlice<'a>],
    /// Bytes of the first part that were taken.
    taken: usize,
    left: usize,
}

impl<'a> PartsReader<'a> {
    fn new(parts: &'a [IoSlice<'a>]) -> PartsReader<'a> {
        PartsReader {
            parts,
            taken: 0,
            left: parts.iter().map(|part| part.len()).sum(),
        }
    }

    fn fill(&mut self, mut buf: &mut [u8]) {
        self.left -= buf.len();
        while !buf.is_empty() {
            let rest = &self.parts[0][self.taken..];
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            buf = &mut buf[n..];
            self.taken += n;
            if self.taken == self.parts[0].len() {
                self.parts = &self.parts[1..];
                self.taken = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn transfer<'a>(ring: &'a mut WriteRing, file: &'a File) -> DirectWrite<'a> {
        DirectWrite {
            ring,
            file: file.as_fd(),
            pieces: [None; SLOTS],
            sync: true,
            sync_number: None,
            synced: false,
            tries: 0,
        }
    }

    /// Submits two sectors with a sync behind them, and takes the kernel's results.
    fn submitted(transfer: &mut DirectWrite<'_>) -> u64 {
        transfer.ring.slot(0)[..ALIGNMENT].fill(1);
        transfer.ring.slot(0)[ALIGNMENT..2 * ALIGNMENT].fill(2);
        let piece = SlotWrite {
            slot: 0,
            from: 0,
            len: 2 * ALIGNMENT,
            offset: 0,
        };
        transfer.submit(piece, true).unwrap();
        let number = transfer.sync_number.unwrap();
        for _ in 0..2 {
            transfer.ring.next().unwrap().1.unwrap();
        }
        number
    }

    #[test]
    fn after_a_short_write_the_rest_is_written_and_synced_anew() {
        let (mut ring, file) = (WriteRing::new().unwrap(), tempfile::tempfile().unwrap());
        let mut transfer = transfer(&mut ring, &file);
        let first = submitted(&mut transfer);
        file.write_all_at(&[0; 2 * ALIGNMENT], 0).unwrap();
        // As if not all of the second sector had been written.
        transfer.written(0, Ok(ALIGNMENT + 512)).unwrap();
        transfer.flushed(first, Ok(0)).unwrap();
        assert!(!transfer.synced, "the first sync did not cover the rest");
        transfer.settle_all().unwrap();
        assert!(transfer.synced && transfer.sync_number != Some(first));
        let mut bytes = [9; 2 * ALIGNMENT];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[..ALIGNMENT], [0; ALIGNMENT], "written before");
        assert_eq!(bytes[ALIGNMENT..], [2; ALIGNMENT], "the rest");
    }

    #[test]
    fn failures_are_reported_and_leave_nothing_under_way() {
        let (mut ring, file) = (WriteRing::new().unwrap(), tempfile::tempfile().unwrap());
        let error = |code| Err(io::Error::from_raw_os_error(code));
        for (write, sync) in [(libc::EIO, libc::ECANCELED), (0, libc::EIO)] {
            let mut transfer = transfer(&mut ring, &file);
            let number = submitted(&mut transfer);
            let written = match write {
                0 => Ok(2 * ALIGNMENT),
                code => error(code),
            };
            let written = transfer.written(0, written);
            let flushed = transfer.flushed(number, error(sync));
            let failed = written.and(flushed).unwrap_err();
            assert_eq!(failed.raw_os_error(), Some(libc::EIO));
            assert!(!transfer.synced && ring.is_idle());
        }
        let mut transfer = transfer(&mut ring, &file);
        submitted(&mut transfer);
        transfer.written(0, error(libc::EINTR)).unwrap();
        transfer.settle_all().unwrap();
        assert!(transfer.synced, "what was put off is tried again");
        let reader = File::open("/dev/null").unwrap();
        let parts = [7; 3 * SLOT];
        let refused = write(&mut ring, reader.as_fd(), &[IoSlice::new(&parts)], 0, true);
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(ring.is_idle(), "also with several pieces");
    }
}
