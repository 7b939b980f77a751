//! First pass: every block header, and at the ends of the logs every byte.
//!
//! Headers alone say how far each log is closed and which epochs it knows to be durable. The
//! payloads of a log's last segment are verified too, because a write may be unfinished there.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::Epoch;
use parking_lot::Mutex;

use super::layout::SegmentFile;
use super::walk::{BlockWalker, WalkStep};
use crate::error::RecoverError;
use crate::format::BlockKind;

/// The contents of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentSummary {
    /// Sound blocks, from the beginning on.
    pub(super) blocks: u64,
    /// The offset at which they end.
    pub(super) end: u64,
    /// The offset up to which a later block proves that everything was synced.
    pub(super) proven: u64,
    /// The offset of the end of any data behind them; `end` if there is none.
    pub(super) data_end: u64,
    /// The sequence number of the block that would follow.
    pub(super) sequence: u64,
    /// The epoch that the last block closes.
    pub(super) closed: Epoch,
    /// The newest epoch that any block knows to be durable, those behind `end` included.
    pub(super) durable: Epoch,
    /// The newest epoch that occurs in a sound block.
    pub(super) newest: Epoch,
    /// The greatest time stamp.
    pub(super) stamp_ms: u64,
}

/// Scans all segments with `threads` threads.
pub(super) fn scan(
    segments: &[&SegmentFile],
    threads: usize,
) -> Result<Vec<SegmentSummary>, RecoverError> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(segment) = segments.get(index) else {
            return;
        };
        let result = scan_segment(segment);
        results.lock().insert(index, result);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, segments.len().max(1)) {
            scope.spawn(work);
        }
    });
    results.into_inner().into_values().collect()
}

fn scan_segment(segment: &SegmentFile) -> Result<SegmentSummary, RecoverError> {
    let read = |error: io::Error| RecoverError::io("read", &segment.path)(error);
    let corrupt = |offset, what: &str| RecoverError::corrupt(&segment.path, offset, what);
    let mut walker = BlockWalker::new(&segment.file, segment.size, &segment.header);
    let mut summary = SegmentSummary::default();
    // The ends of blocks that closed epochs which no block has recorded as durable so far.
    let mut unproven: VecDeque<(Epoch, u64)> = VecDeque::new();
    let bad = loop {
        let header = match walker.peek().map_err(read)? {
            WalkStep::Block(header) => header,
            WalkStep::End => break None,
            WalkStep::Bad(what) => break Some(what),
        };
        if segment.is_last && !walker.payload_is_sound(&header).map_err(read)? {
            break Some("a block's payload does not match its checksum");
        }
        let is_data = header.kind == BlockKind::Data;
        if header.closed < summary.closed
            || header.durable < summary.durable
            || is_data && header.epoch <= summary.closed
        {
            return Err(corrupt(
                walker.at(),
                "a block contradicts the one before it",
            ));
        }
        // Several blocks may carry one `closed`: it is complete with the first of them. That cannot
        // be known of the segment's first block, whose predecessor lies in another file.
        let closes = summary.blocks > 0 && header.closed > summary.closed;
        summary.blocks += 1;
        summary.closed = header.closed;
        summary.durable = header.durable;
        summary.newest = summary.newest.max(header.epoch).max(header.closed);
        summary.stamp_ms = summary.stamp_ms.max(header.stamp_ms);
        while let Some((_, at)) = unproven.pop_front_if(|(closed, _)| *closed <= header.durable) {
            summary.proven = at;
        }
        walker.pass(&header);
        unproven.extend(closes.then_some((header.closed, walker.at())));
    };
    summary.end = walker.at();
    summary.data_end = summary.end;
    summary.sequence = walker.sequence();
    if segment.is_last {
        let tail = walker.examine_tail().map_err(read)?;
        summary.data_end = tail.data_end;
        summary.durable = summary.durable.max(tail.durable);
    } else if let Some(what) = bad {
        return Err(corrupt(
            summary.end,
            &format!("{what}, and the log goes on in a later file"),
        ));
    }
    Ok(summary)
}
