//! The contents of a frame: records in sequence, each a tag and its fields in this order.
//!
//! | tag | record | fields |
//! |---|---|---|
//! | 1 | start | term, vote, commit; index and members to start with; index and members now; floor; tail |
//! | 2 | entry | as in messages; it takes the place of those from its index on |
//! | 3 | hard state | term, vote, commit |
//! | 4 | members | index, members: who they are since the entry of that index was applied |
//! | 5 | floor | floor: entries up to it have been removed |
//! | 6 | replaced | index, term, members: a snapshot is in the place of all entries |
//! | 7 | end | none; the log goes on in the next segment |
//!
//! | field | encoding |
//! |---|---|
//! | term, vote, commit, index | counts |
//! | members | as in messages |
//! | floor, tail | index and term: of the last entry that was removed, and of the last one before this segment |
//!
//! A start is the only record of a segment's first frame, and an end the only one of its last
//! frame.

use base::codec::{Malformed, MalformedKind, Reader, put_count};
use raft::eraftpb::{ConfState, Entry, HardState, SnapshotMetadata};

use crate::wire;

const START: u8 = 1;
const ENTRY: u8 = 2;
const HARD_STATE: u8 = 3;
const MEMBERS: u8 = 4;
const FLOOR: u8 = 5;
const REPLACED: u8 = 6;
const END: u8 = 7;

/// The first record of a segment: all that the earlier segments said, except for the entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SegmentStart {
    pub(super) hard: HardState,
    pub(super) base: (u64, ConfState),
    pub(super) conf: (u64, ConfState),
    pub(super) floor: (u64, u64),
    pub(super) tail: (u64, u64),
}

/// See the module's first table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogRecord {
    Start(Box<SegmentStart>),
    Entry(Entry),
    HardState(HardState),
    Members((u64, ConfState)),
    Floor((u64, u64)),
    Replaced(SnapshotMetadata),
    End,
}

pub(super) fn put_start(to: &mut Vec<u8>, start: &SegmentStart) {
    to.push(START);
    hard_state(to, &start.hard);
    members(to, &start.base);
    members(to, &start.conf);
    pair(to, start.floor);
    pair(to, start.tail);
}

pub(super) fn put_entry(to: &mut Vec<u8>, entry: &Entry) {
    to.push(ENTRY);
    wire::put_entry(to, entry);
}

pub(super) fn put_hard_state(to: &mut Vec<u8>, hard: &HardState) {
    to.push(HARD_STATE);
    hard_state(to, hard);
}

pub(super) fn put_members(to: &mut Vec<u8>, since: &(u64, ConfState)) {
    to.push(MEMBERS);
    members(to, since);
}

pub(super) fn put_floor(to: &mut Vec<u8>, floor: (u64, u64)) {
    to.push(FLOOR);
    pair(to, floor);
}

pub(super) fn put_replaced(to: &mut Vec<u8>, meta: &SnapshotMetadata) {
    to.push(REPLACED);
    pair(to, (meta.index, meta.term));
    wire::put_conf_state(to, meta.get_conf_state());
}

pub(super) fn put_end(to: &mut Vec<u8>) {
    to.push(END);
}

fn hard_state(to: &mut Vec<u8>, hard: &HardState) {
    for number in [hard.term, hard.vote, hard.commit] {
        put_count(to, number);
    }
}

fn members(to: &mut Vec<u8>, (index, members): &(u64, ConfState)) {
    put_count(to, *index);
    wire::put_conf_state(to, members);
}

fn pair(to: &mut Vec<u8>, (first, second): (u64, u64)) {
    put_count(to, first);
    put_count(to, second);
}

/// Reads a record, which others may follow.
pub(super) fn read(from: &mut Reader<'_>) -> Result<LogRecord, Malformed> {
    let tag = from.u8()?;
    Ok(match tag {
        START => LogRecord::Start(Box::new(SegmentStart {
            hard: read_hard_state(from)?,
            base: read_members(from)?,
            conf: read_members(from)?,
            floor: read_pair(from)?,
            tail: read_pair(from)?,
        })),
        ENTRY => LogRecord::Entry(wire::read_entry(from)?),
        HARD_STATE => LogRecord::HardState(read_hard_state(from)?),
        MEMBERS => LogRecord::Members(read_members(from)?),
        FLOOR => LogRecord::Floor(read_pair(from)?),
        REPLACED => {
            let mut meta = SnapshotMetadata::default();
            (meta.index, meta.term) = read_pair(from)?;
            meta.set_conf_state(wire::read_conf_state(from)?);
            LogRecord::Replaced(meta)
        }
        END => LogRecord::End,
        other => return Err(from.malformed(MalformedKind::Kind(other, "record"))),
    })
}

fn read_hard_state(from: &mut Reader<'_>) -> Result<HardState, Malformed> {
    Ok(HardState {
        term: from.number()?,
        vote: from.number()?,
        commit: from.number()?,
        ..HardState::default()
    })
}

fn read_members(from: &mut Reader<'_>) -> Result<(u64, ConfState), Malformed> {
    Ok((from.number()?, wire::read_conf_state(from)?))
}

fn read_pair(from: &mut Reader<'_>) -> Result<(u64, u64), Malformed> {
    Ok((from.number()?, from.number()?))
}
