//! Second pass: every payload, first of the checkpoint, then of the logs. The threads take turns
//! at walking from block to block and claiming some; each reads, verifies and applies what it
//! claimed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Epoch;
use disk::DiskFile;
use parking_lot::Mutex;

use super::base_checkpoint::BaseCheckpoint;
use super::plan::SegmentPiece;
use super::recovered::Progress;
use super::walk::{BlockWalker, WalkStep};
use crate::checkpoint::read::{PartBlock, PartFile, PartWalker};
use crate::entry::{self, Entry};
use crate::error::RecoverError;
use crate::format::{BLOCK_HEADER, BlockHeader, BlockKind, payload_checksum};

/// The least number of bytes that a thread claims, if the segment has as many.
const CLAIM: u64 = 1024 * 1024;

/// The entries that have been applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

/// Applies the entries of the checkpoint `base`, and all valid ones of `pieces` that it does not
/// have.
pub(super) fn replay(
    base: Option<&BaseCheckpoint>,
    pieces: &[SegmentPiece<'_>],
    threads: usize,
    apply: &(dyn Fn(Entry<'_>) + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Replayed, RecoverError> {
    let part_bytes = base.map_or(0, |base| base.manifest.part_bytes());
    let replay = RecoveryReplay {
        base,
        parts: base.map_or(&[], |base| &base.parts),
        pieces,
        cursor: Mutex::new(ClaimCursor {
            part: 0,
            part_walker: PartWalker::default(),
            piece: 0,
            walker: None,
            failed: false,
        }),
        total: part_bytes + pieces.iter().map(|piece| piece.summary.end).sum::<u64>(),
        bytes: AtomicU64::new(0),
        entries: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1))
            .map(|_| scope.spawn(|| replay.run(apply, progress)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })?;
    Ok(Replayed {
        entries: replay.entries.into_inner(),
        bytes: replay.bytes.into_inner().saturating_sub(part_bytes),
    })
}

struct RecoveryReplay<'a> {
    base: Option<&'a BaseCheckpoint>,
    parts: &'a [PartFile],
    pieces: &'a [SegmentPiece<'a>],
    cursor: Mutex<ClaimCursor>,
    total: u64,
    bytes: AtomicU64,
    entries: AtomicU64,
}

/// The place of the next claim.
struct ClaimCursor {
    part: usize,
    part_walker: PartWalker,
    piece: usize,
    walker: Option<BlockWalker>,
    /// A thread met an error: there is nothing more to claim.
    failed: bool,
}

/// The work of one thread.
enum ReplayClaim<'a> {
    Part(&'a PartFile, PartBlock),
    Log(LogClaim<'a>),
}

/// Blocks of a log.
struct LogClaim<'a> {
    piece: &'a SegmentPiece<'a>,
    file: Arc<dyn DiskFile>,
    seed: u32,
    at: u64,
    bytes: u64,
}

impl<'a> RecoveryReplay<'a> {
    fn run(
        &self,
        apply: &(dyn Fn(Entry<'_>) + Sync),
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), RecoverError> {
        let mut buf = Vec::new();
        while let Some(claim) = self.claim().inspect_err(|_| self.fail())? {
            let (bytes, entries) = self
                .apply(&claim, &mut buf, apply)
                .inspect_err(|_| self.fail())?;
            progress(Progress {
                bytes_read: self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes,
                bytes_total: self.total,
                entries: self.entries.fetch_add(entries, Ordering::Relaxed) + entries,
            });
        }
        Ok(())
    }

    /// Applies the claim. Returns the number of bytes that were read, and of entries that were
    /// applied.
    fn apply(
        &self,
        claim: &ReplayClaim<'_>,
        buf: &mut Vec<u8>,
        apply: &(dyn Fn(Entry<'_>) + Sync),
    ) -> Result<(u64, u64), RecoverError> {
        match claim {
            ReplayClaim::Part(part, block) => {
                let base = self.base.expect("parts are a checkpoint's");
                let entries = part.apply(*block, &base.manifest.view, buf, apply)?;
                Ok((block.size(), entries))
            }
            ReplayClaim::Log(claim) => {
                let above = self.base.map_or(Epoch::ZERO, BaseCheckpoint::epoch);
                Ok((claim.bytes, claim.apply(above, buf, apply)?))
            }
        }
    }

    fn fail(&self) {
        self.cursor.lock().failed = true;
    }

    /// Claims the next blocks. Returns `None` when all are claimed.
    fn claim(&self) -> Result<Option<ReplayClaim<'a>>, RecoverError> {
        let mut cursor = self.cursor.lock();
        while let Some(part) = self.parts.get(cursor.part).filter(|_| !cursor.failed) {
            if let Some(block) = cursor.part_walker.next(part)? {
                return Ok(Some(ReplayClaim::Part(part, block)));
            }
            cursor.part_walker = PartWalker::default();
            cursor.part += 1;
        }
        while let Some(piece) = self.pieces.get(cursor.piece).filter(|_| !cursor.failed) {
            let (segment, end) = (piece.segment, piece.summary.end);
            let walker = cursor
                .walker
                .get_or_insert_with(|| BlockWalker::new(&segment.file, end, &segment.header));
            let at = walker.at();
            while walker.at() - at < CLAIM && walker.at() < end {
                match walker
                    .peek()
                    .map_err(RecoverError::io("read", &segment.path))?
                {
                    WalkStep::Block(header) => walker.pass(&header),
                    WalkStep::End | WalkStep::Bad(_) => {
                        let what = "a block changed while it was being read";
                        return Err(RecoverError::corrupt(&segment.path, walker.at(), what));
                    }
                }
            }
            let bytes = walker.at() - at;
            if bytes > 0 {
                let (file, seed) = (Arc::clone(&walker.file), walker.seed);
                return Ok(Some(ReplayClaim::Log(LogClaim {
                    piece,
                    file,
                    seed,
                    at,
                    bytes,
                })));
            }
            cursor.walker = None;
            cursor.piece += 1;
        }
        Ok(None)
    }
}

impl LogClaim<'_> {
    /// Applies entries of epochs above `above`; those before are in the checkpoint, or were undone
    /// by changes that it does not show.
    fn apply(
        &self,
        above: Epoch,
        buf: &mut Vec<u8>,
        apply: &(dyn Fn(Entry<'_>) + Sync),
    ) -> Result<u64, RecoverError> {
        let path = &self.piece.segment.path;
        buf.resize(self.bytes as usize, 0);
        self.file
            .read_exact_at(buf, self.at)
            .map_err(RecoverError::io("read", path))?;
        let (mut from, mut entries) = (0, 0);
        while from < buf.len() {
            let corrupt = |what: &str| RecoverError::corrupt(path, self.at + from as u64, what);
            let header = buf[from..].first_chunk::<BLOCK_HEADER>();
            let header = header.and_then(|bytes| BlockHeader::decode(bytes, self.seed));
            let header =
                header.ok_or_else(|| corrupt("a block changed while it was being read"))?;
            let payload = &buf[from + BLOCK_HEADER..][..header.length as usize];
            if payload_checksum(self.seed, payload) != header.payload_checksum {
                return Err(corrupt("a block's payload does not match its checksum"));
            }
            let counts = header.epoch > above && header.epoch <= self.piece.limit;
            if header.kind == BlockKind::Data && counts {
                let epoch = header.epoch;
                entries += entry::decode(payload, epoch, header.stamp_ms, apply)
                    .map_err(|(at, what)| corrupt(&format!("{what}, at byte {at} of a payload")))?;
            }
            from += header.size() as usize;
        }
        Ok(entries)
    }
}
