//! The evaluation of the scanned segments together: which epochs of which run are valid, which
//! bytes are torn and may be cut, and which are damaged. Pure: no input, no output.

use std::collections::BTreeMap;
use std::path::Path;

use base::Epoch;

use super::layout::{LogDirectory, SegmentFile};
use super::scan::SegmentSummary;
use crate::error::RecoverError;
use crate::format::{LogSegmentHeader, log_name, segment_name};

/// A segment, its contents, and the part of them that counts.
pub(super) struct SegmentPiece<'a> {
    pub(super) segment: &'a SegmentFile,
    pub(super) summary: SegmentSummary,
    /// Entries up to this epoch are valid.
    pub(super) limit: Epoch,
    /// `true` if its log is needed only from here on beside a checkpoint, which was checked.
    pub(super) is_start: bool,
}

/// The verdict over all logs.
#[derive(Debug, Default)]
pub(super) struct RecoveryPlan {
    /// The epoch up to which everything is recovered.
    pub(super) durable: Epoch,
    /// The newest epoch that left any trace.
    pub(super) newest: Epoch,
    pub(super) stamp_ms: u64,
    /// The last run's number.
    pub(super) run: u32,
}

/// One run: the header that its segments share, and the pieces that each log wrote in it.
struct JournalRun {
    header: LogSegmentHeader,
    /// For each log: indexes of its pieces, in order.
    logs: BTreeMap<u32, Vec<usize>>,
}

/// Judges `pieces`, which are all segments of `logs`, and sets their limits. `known` are epochs
/// that were durable according to checkpoints, each with its run.
pub(super) fn plan(
    dir: &Path,
    logs: &[LogDirectory],
    known: &[(u32, Epoch)],
    pieces: &mut [SegmentPiece<'_>],
) -> Result<RecoveryPlan, RecoverError> {
    let runs = runs(dir, logs, pieces)?;
    let mut plan = RecoveryPlan::default();
    for piece in pieces.iter() {
        plan.newest = plan
            .newest
            .max(piece.summary.newest)
            .max(piece.segment.header.start);
        plan.stamp_ms = plan.stamp_ms.max(piece.summary.stamp_ms);
        plan.run = plan.run.max(piece.segment.header.run);
    }
    let mut runs = runs.into_values().peekable();
    while let Some(run) = runs.next() {
        let next_base = runs.peek().map(|next| next.header.base);
        if !is_complete(dir, logs, pieces, &run)? {
            // The run died during its start, before anything was written in it.
            continue;
        }
        let of_run = known.iter().filter(|(of, _)| *of == run.header.run);
        let known = next_base
            .into_iter()
            .chain(of_run.map(|&(_, epoch)| epoch))
            .max();
        plan.durable = durable(pieces, &run, known)?;
        let limit = next_base.unwrap_or(plan.durable);
        for &index in run.logs.values().flatten() {
            pieces[index].limit = limit;
        }
    }
    Ok(plan)
}

/// Groups the segments by run, and checks that they follow each other.
fn runs(
    dir: &Path,
    logs: &[LogDirectory],
    pieces: &[SegmentPiece<'_>],
) -> Result<BTreeMap<u32, JournalRun>, RecoverError> {
    let mut runs: BTreeMap<u32, JournalRun> = BTreeMap::new();
    let mut previous: Option<&SegmentPiece<'_>> = None;
    for (index, piece) in pieces.iter().enumerate() {
        let header = piece.segment.header;
        let path = &piece.segment.path;
        if let Some(log) = (logs.len()..header.logs as usize).next() {
            let why = format!("{} counts {} logs", path.display(), header.logs);
            return Err(RecoverError::Missing {
                path: dir.join(log_name(log)),
                why,
            });
        }
        let run = runs.entry(header.run).or_insert_with(|| JournalRun {
            header,
            logs: BTreeMap::new(),
        });
        let shared = LogSegmentHeader {
            log: header.log,
            segment: header.segment,
            sequence: header.sequence,
            ..run.header
        };
        if header != shared || header.loggers == 0 || header.loggers > header.logs {
            return Err(RecoverError::corrupt(
                path,
                0,
                "its header contradicts another segment's",
            ));
        }
        let of_log = run.logs.entry(header.log).or_default();
        let before = previous.filter(|before| before.segment.header.log == header.log);
        follows(before, piece)?;
        of_log.push(index);
        previous = Some(piece);
    }
    Ok(runs)
}

/// Checks that `piece` continues the segment `before` it in the same log.
fn follows(
    before: Option<&SegmentPiece<'_>>,
    piece: &SegmentPiece<'_>,
) -> Result<(), RecoverError> {
    let header = &piece.segment.header;
    let before = before.filter(|before| before.segment.header.run >= header.run);
    let Some(before) = before else {
        // The first segment may be the first that is needed beside a checkpoint.
        if header.sequence == 0 || piece.is_start {
            return Ok(());
        }
        let what = "its run begins in the middle";
        return Err(RecoverError::corrupt(&piece.segment.path, 0, what));
    };
    if before.segment.header.run > header.run {
        let what = "it is of an earlier run than the segment before it";
        return Err(RecoverError::corrupt(&piece.segment.path, 0, what));
    }
    if before.summary.sequence != header.sequence {
        let what = format!(
            "blocks {} to {} are missing, and the log goes on in a later file",
            before.summary.sequence,
            header.sequence.saturating_sub(1)
        );
        return Err(RecoverError::corrupt(
            &before.segment.path,
            before.summary.end,
            what,
        ));
    }
    let summary = &piece.summary;
    if summary.blocks > 0 && summary.closed < before.summary.closed {
        let what = "its blocks contradict the segment before it";
        return Err(RecoverError::corrupt(&piece.segment.path, 0, what));
    }
    Ok(())
}

/// Returns `true` if the run's start was completed. Blocks are written only after that.
fn is_complete(
    dir: &Path,
    logs: &[LogDirectory],
    pieces: &[SegmentPiece<'_>],
    run: &JournalRun,
) -> Result<bool, RecoverError> {
    let Some(missing) = (0..run.header.logs).find(|log| !run.logs.contains_key(log)) else {
        return Ok(true);
    };
    let mut with_data = run.logs.values().flatten().map(|&index| &pieces[index]);
    match with_data.find(|piece| piece.summary.data_end > u64::from(piece.segment.header.first)) {
        None => Ok(false),
        Some(piece) => {
            let number = logs[missing as usize].next_segment();
            let path = dir
                .join(log_name(missing as usize))
                .join(segment_name(number));
            let why = format!(
                "{} holds data of run {}, which began with a segment in each of {} logs",
                piece.segment.path.display(),
                run.header.run,
                run.header.logs
            );
            Err(RecoverError::Missing { path, why })
        }
    }
}

/// Returns the run's durable epoch: the one up to which all its logs are closed. Refuses if a later
/// epoch is known to have been durable.
fn durable(
    pieces: &[SegmentPiece<'_>],
    run: &JournalRun,
    known: Option<Epoch>,
) -> Result<Epoch, RecoverError> {
    let noted = run
        .logs
        .values()
        .flatten()
        .map(|&index| pieces[index].summary.durable);
    let known = noted.chain(known).max().unwrap_or_default();
    let mut least = None;
    for log in 0..run.header.loggers {
        let of_log = &run.logs[&log];
        let closed = of_log
            .iter()
            .map(|&index| pieces[index].summary.closed)
            .max();
        let closed = closed.unwrap_or_default().max(run.header.start);
        if closed < known {
            let last = &pieces[*of_log
                .last()
                .expect("a run has a segment in each of its logs")];
            let what = format!(
                "the log breaks off after epoch {closed}, but everything up to epoch {known} was \
                 durable"
            );
            return Err(RecoverError::corrupt(
                &last.segment.path,
                last.summary.end,
                what,
            ));
        }
        least = Some(least.map_or(closed, |least: Epoch| least.min(closed)));
    }
    Ok(least.expect("a run has a logger"))
}
