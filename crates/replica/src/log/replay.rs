//! Replays the records of the segments, one segment after another.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use base::codec::Reader;

use super::error::LogError;
use super::files::OlderSegment;
use super::format::{self, FRAME_HEADER, InvalidSegmentHeader, ReplicaSegmentHeader, VERSION};
use super::record::{self, LogRecord, SegmentStart};
use super::state::LogState;

/// Indexes stay below this, so that their sums do not overflow.
const INDEXES: u64 = 1 << 60;

/// The reason why a frame's records cannot follow those before it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct InvalidRecord(String);

fn invalid(reason: impl ToString) -> InvalidRecord {
    InvalidRecord(reason.to_string())
}

/// The end of a segment.
pub(super) struct SegmentTail {
    pub(super) header: ReplicaSegmentHeader,
    /// The offset of the last frame.
    pub(super) last: usize,
    /// The offset of the next frame.
    pub(super) end: usize,
    /// `true` if there are bytes at that offset.
    pub(super) torn: bool,
}

/// The state that has been read.
#[derive(Default)]
pub(super) struct LogReplay {
    pub(super) raft_id: u64,
    /// Its floor is the beginning of the segments, until the log's own floor is known to be above
    /// that.
    pub(super) state: LogState,
    /// The floor that the log states.
    floor: (u64, u64),
    /// Number of the next frame.
    pub(super) sequence: u64,
    /// The previous segment, and its end.
    before: Option<(PathBuf, u64)>,
    first: u64,
    pub(super) older: VecDeque<OlderSegment>,
    /// The greatest index in the current segment.
    pub(super) max: u64,
}

impl LogReplay {
    /// Reads a segment, which is all of `bytes`.
    pub(super) fn segment(
        &mut self,
        path: &Path,
        number: u64,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<SegmentTail, LogError> {
        let header = self.header(path, number, bytes)?;
        let mut tail = SegmentTail {
            header,
            last: 0,
            end: header.first(),
            torn: false,
        };
        let mut ended = false;
        loop {
            let rest = bytes.get(tail.end..).unwrap_or_default();
            let found = format::frame(rest, header.seed());
            let Some((_, payload)) = found.filter(|(sequence, _)| *sequence == self.sequence)
            else {
                break;
            };
            let applied = if tail.last == 0 {
                self.start(payload)
            } else {
                self.apply(payload)
            };
            ended = applied
                .map_err(|error| LogError::corrupt(path, tail.end as u64, error.to_string()))?;
            if ended {
                break;
            }
            self.sequence += 1;
            tail.last = tail.end;
            tail.end += (FRAME_HEADER + payload.len()).next_multiple_of(header.align as usize);
        }
        if tail.last == 0 {
            let what = "its first frame is not whole";
            return Err(LogError::corrupt(path, tail.end as u64, what));
        }
        if is_last {
            self.torn(path, bytes, &mut tail, ended)?;
        } else {
            self.older.push_back(OlderSegment {
                segment: number,
                max: std::mem::take(&mut self.max),
                bytes: tail.end as u64,
            });
        }
        self.before = Some((path.to_owned(), tail.end as u64));
        Ok(tail)
    }

    fn header(
        &mut self,
        path: &Path,
        number: u64,
        bytes: &[u8],
    ) -> Result<ReplicaSegmentHeader, LogError> {
        let header = ReplicaSegmentHeader::decode(bytes).map_err(|bad| match bad {
            InvalidSegmentHeader::Damaged => LogError::corrupt(path, 0, "its header is not sound"),
            InvalidSegmentHeader::Newer(version) => LogError::Newer {
                path: path.to_owned(),
                version,
                supported: VERSION,
            },
        })?;
        if header.segment != number {
            let what = format!("it is segment {}", header.segment);
            return Err(LogError::corrupt(path, 0, what));
        }
        match &self.before {
            None => {
                (self.raft_id, self.sequence, self.first) =
                    (header.raft_id, header.sequence, number)
            }
            Some(_) if header.raft_id != self.raft_id => {
                return Err(LogError::corrupt(path, 0, "it is another member's"));
            }
            Some((before, end)) if header.sequence != self.sequence => {
                let (from, to) = (self.sequence, header.sequence);
                let what = format!("frame {from} is not whole, and {to} follows in the next file");
                return Err(LogError::corrupt(before, *end, what));
            }
            Some(_) => {}
        }
        Ok(header)
    }

    /// Checks the bytes behind the last frame of the log.
    fn torn(
        &self,
        path: &Path,
        bytes: &[u8],
        tail: &mut SegmentTail,
        ended: bool,
    ) -> Result<(), LogError> {
        if ended {
            return Err(LogError::Missing {
                path: path.parent().unwrap_or(Path::new(".")).to_owned(),
                what: format!("segment {}", format::name(tail.header.segment + 1)),
            });
        }
        let rest = bytes.get(tail.end..).unwrap_or_default();
        tail.torn = rest.iter().any(|&byte| byte != 0);
        if !tail.torn {
            return Ok(());
        }
        let seed = tail.header.seed();
        let mut later = (0..rest.len()).step_by(tail.header.align as usize);
        match later.find(|&at| format::frame(&rest[at..], seed).is_some()) {
            Some(at) => {
                let what = format!("a frame is not whole, and another follows {at} bytes later");
                Err(LogError::corrupt(path, tail.end as u64, what))
            }
            None => Ok(()),
        }
    }

    /// Takes the first frame of a segment.
    fn start(&mut self, payload: &[u8]) -> Result<bool, InvalidRecord> {
        let mut from = Reader::new(payload);
        let record = record::read(&mut from).map_err(invalid)?;
        let LogRecord::Start(start) = record else {
            return Err(invalid("the first frame is no start"));
        };
        from.end().map_err(invalid)?;
        let SegmentStart {
            hard,
            base,
            conf,
            floor,
            tail,
        } = *start;
        bounded(tail.0)?;
        if floor.0 > tail.0 {
            return Err(invalid("a floor above the end"));
        }
        if self.before.is_none() {
            self.state.clear(tail);
            self.floor = floor;
        } else if tail != self.state.tail() || hard != self.state.hard {
            return Err(invalid("it does not follow the segment before"));
        }
        (self.state.hard, self.state.base, self.state.conf) = (hard, base, conf);
        Ok(false)
    }

    /// Takes the records of a frame. Returns `true` if it is an end.
    fn apply(&mut self, payload: &[u8]) -> Result<bool, InvalidRecord> {
        let mut from = Reader::new(payload);
        while from.end().is_err() {
            match record::read(&mut from).map_err(invalid)? {
                LogRecord::Start(_) => return Err(invalid("a start in the middle")),
                LogRecord::Entry(entry) => {
                    let index = bounded(entry.index)?;
                    if index > self.floor.0 && index <= self.state.floor.0 {
                        // The entry takes the place of one in a segment that has been removed.
                        self.state.clear((index - 1, 0));
                    }
                    if !self.state.has_place_for(index) {
                        return Err(invalid(format!(
                            "entry {index} follows {}",
                            self.state.last()
                        )));
                    }
                    self.max = self.max.max(index);
                    self.state.append(entry);
                }
                LogRecord::HardState(hard) => self.state.hard = hard,
                LogRecord::Members(members) => self.state.conf = members,
                LogRecord::Floor(floor) => self.raise(floor)?,
                LogRecord::Replaced(meta) => {
                    bounded(meta.index)?;
                    self.state.replace(&meta);
                    self.floor = self.state.floor;
                    self.older.iter_mut().for_each(|older| older.max = 0);
                    self.max = 0;
                }
                LogRecord::End if payload.len() == 1 => return Ok(true),
                LogRecord::End => return Err(invalid("an end in the middle")),
            }
        }
        Ok(false)
    }

    fn raise(&mut self, floor: (u64, u64)) -> Result<(), InvalidRecord> {
        if floor.0 < self.floor.0 || floor.0 > self.state.last() {
            return Err(invalid(format!("a floor of {}", floor.0)));
        }
        self.floor = floor;
        if floor.0 >= self.state.floor.0 {
            self.state.compact(floor);
        }
        Ok(())
    }

    /// Checks that all that must be there was read.
    pub(super) fn finish(&mut self, dir: &Path, path: &Path) -> Result<(), LogError> {
        if self.floor.0 < self.state.floor.0 {
            return Err(LogError::Missing {
                path: dir.to_owned(),
                what: format!("segment {}", format::name(self.first.saturating_sub(1))),
            });
        }
        let (end, last) = (
            self.before.as_ref().map_or(0, |(_, end)| *end),
            self.state.last(),
        );
        if self.floor.0 > last || self.state.hard.commit > last {
            let commit = self.state.hard.commit;
            let what = format!("the log ends with entry {last}, and {commit} was committed");
            return Err(LogError::corrupt(path, end, what));
        }
        self.state.compact(self.floor);
        Ok(())
    }
}

fn bounded(index: u64) -> Result<u64, InvalidRecord> {
    if index < INDEXES {
        Ok(index)
    } else {
        Err(invalid(format!("an index of {index}")))
    }
}

/// Reads `payload` as a frame of a log, for fuzzing. Returns the number of entries.
pub(crate) fn read_payload(payload: &[u8]) -> Option<usize> {
    let mut replay = LogReplay::default();
    replay.apply(payload).ok()?;
    let (floor, last) = (replay.state.floor.0, replay.state.last());
    assert!(replay.floor.0 <= last, "a floor above the end");
    let entries = replay.state.range(floor + 1, last + 1, u64::MAX);
    let in_order = entries
        .iter()
        .zip(floor + 1..)
        .all(|(entry, index)| entry.index == index);
    assert!(in_order, "a gap");
    Some(entries.len())
}
