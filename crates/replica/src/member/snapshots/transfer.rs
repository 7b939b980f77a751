//! Sends snapshots in pieces. The answer to each piece asks for the next one.

use std::path::Path;
use std::time::Duration;

use raft::SnapshotStatus;
use raft::eraftpb::{Message, SnapshotMetadata};

use crate::member::{Failure, Member};
use crate::messages::{Envelope, REFUSED};
use crate::snapshot::{SnapshotError, SnapshotReceiver, SnapshotSource, newest};
use crate::status::node_of;

/// A piece that was not answered is sent again after this many election time-outs, up to this many
/// times.
const PATIENCE: u32 = 2;
const TRIES: u32 = 10;
/// A member that did not take a snapshot gets the next one after a pause. The pause begins with a
/// tenth of an election time-out, doubles each time, and is at most this many election time-outs.
const LONGEST_PAUSE: u32 = 60;

/// A snapshot that is being sent.
pub(in crate::member) struct Sending {
    source: SnapshotSource,
    pub(super) announces: Message,
    pub(in crate::member) offset: u64,
    sent_at: Duration,
    tries: u32,
}

impl Sending {
    pub(in crate::member) fn progress(&self) -> (u64, u64) {
        (self.offset, self.source.bytes())
    }
}

/// A member that did not take a snapshot.
#[derive(Clone, Copy, Debug)]
pub(in crate::member) struct PutOff {
    until: Duration,
    pause: Duration,
    /// Raft waits for the outcome, and has no snapshot sent before it knows the outcome.
    is_reported: bool,
}

impl Member {
    /// Begins to send a snapshot to a member that is too far behind.
    pub(in crate::member) fn begin_sending(&mut self, announces: Message) {
        let to = announces.to;
        if self.snapshots.sending.contains_key(&to) {
            return;
        }
        if let Some(put_off) = self.snapshots.put_off.get_mut(&to)
            && self.now.since < put_off.until
        {
            put_off.is_reported = false;
            return;
        }
        let index = announces.get_snapshot().get_metadata().index;
        match self.source(index) {
            Ok(source) => {
                tracing::info!(
                    node = node_of(to).0,
                    index,
                    bytes = source.bytes(),
                    "sends a snapshot"
                );
                let sending = Sending {
                    source,
                    announces,
                    offset: 0,
                    sent_at: self.now.since,
                    tries: 0,
                };
                self.snapshots.sending.insert(to, sending);
                self.send_piece(to);
            }
            Err(error) => {
                tracing::warn!(%error, "a snapshot cannot be sent");
                self.end_sending(to, SnapshotStatus::Failure);
            }
        }
    }

    fn source(&self, index: u64) -> Result<SnapshotSource, String> {
        let dir = self.dir().ok_or("there are none in memory")?;
        let file = newest(&self.place.disk, dir).map_err(|error| error.to_string())?;
        let file = file.filter(|file| file.head.meta.index == index);
        let path = file.ok_or("it is there no more")?.path;
        SnapshotSource::open(&*self.place.disk, &path).map_err(|error| error.to_string())
    }

    fn send_piece(&mut self, to: u64) {
        let chunk = self.options.chunk;
        let now = self.now.since;
        let Some(sending) = self.snapshots.sending.get_mut(&to) else {
            return;
        };
        sending.sent_at = now;
        match sending.source.read_chunk(sending.offset, chunk) {
            Ok(piece) => {
                let envelope = Envelope::Piece {
                    to,
                    announces: sending.announces.clone(),
                    total: sending.source.bytes(),
                    offset: sending.offset,
                    piece: &piece,
                };
                let bytes = envelope.encode();
                self.outbox.push((node_of(to), bytes));
            }
            Err(error) => {
                tracing::warn!(%error, "a snapshot cannot be sent");
                self.end_sending(to, SnapshotStatus::Failure);
            }
        }
    }

    /// Reports to Raft that a snapshot was not taken, once the next one may be sent.
    fn report_put_off(&mut self) {
        let now = self.now.since;
        let all = self.snapshots.put_off.iter_mut();
        for (to, put_off) in all.filter(|(_, one)| !one.is_reported && now >= one.until) {
            put_off.is_reported = true;
            if let Some(raft) = &mut self.raft {
                raft.report_snapshot(*to, SnapshotStatus::Failure);
            }
        }
    }

    pub(super) fn send_again(&mut self) {
        self.report_put_off();
        if self.snapshots.sending.is_empty() {
            return;
        }
        let patience = self.options.election * PATIENCE;
        let late = self.snapshots.sending.iter();
        let late = late.filter(|(_, sending)| self.now.since >= sending.sent_at + patience);
        for to in late.map(|(to, _)| *to).collect::<Vec<u64>>() {
            let sending = self.snapshots.sending.get_mut(&to).expect("it was there");
            sending.tries += 1;
            if sending.tries > TRIES || self.leading.is_none() {
                self.end_sending(to, SnapshotStatus::Failure);
            } else {
                self.send_piece(to);
            }
        }
    }

    pub(in crate::member) fn on_taken(
        &mut self,
        from: u64,
        index: u64,
        offset: u64,
    ) -> Result<(), Failure> {
        let Some(sending) = self.snapshots.sending.get_mut(&from) else {
            return Ok(());
        };
        if sending.announces.get_snapshot().get_metadata().index != index {
            return Ok(());
        }
        if offset == REFUSED {
            self.end_sending(from, SnapshotStatus::Failure);
        } else if offset >= sending.source.bytes() {
            self.end_sending(from, SnapshotStatus::Finish);
        } else {
            sending.offset = offset;
            sending.tries = 0;
            self.send_piece(from);
        }
        self.changed = true;
        Ok(())
    }

    fn end_sending(&mut self, to: u64, status: SnapshotStatus) {
        self.snapshots.sending.remove(&to);
        if status == SnapshotStatus::Finish {
            self.snapshots.put_off.remove(&to);
            if let Some(raft) = &mut self.raft {
                raft.report_snapshot(to, status);
            }
            return;
        }
        let longest = self.options.election * LONGEST_PAUSE;
        let before = self.snapshots.put_off.get(&to);
        let pause = before.map_or(self.options.tick(), |before| {
            (before.pause * 2).min(longest)
        });
        let put_off = PutOff {
            until: self.now.since + pause,
            pause,
            is_reported: false,
        };
        self.snapshots.put_off.insert(to, put_off);
    }

    /// Takes a piece of a snapshot.
    pub(in crate::member) fn on_piece(
        &mut self,
        to: u64,
        announces: Message,
        (total, offset): (u64, u64),
        piece: &[u8],
    ) -> Result<(), Failure> {
        let Some(raft) = self.raft.as_ref().filter(|raft| raft.raft.id == to) else {
            return Ok(());
        };
        // A leader of the past sends nothing useful.
        if announces.term < raft.raft.term {
            return Ok(());
        }
        let from = node_of(announces.from);
        let meta = announces.get_snapshot().get_metadata().clone();
        let members = meta.get_conf_state();
        let taken = if !members.voters.contains(&to) && !members.learners.contains(&to) {
            // Raft would not take it: this member came later.
            Ok(REFUSED)
        } else if meta.index <= self.applied {
            Ok(total)
        } else {
            self.take_piece(&meta, (total, offset), piece)
        };
        let offset = match taken {
            Ok(offset) => {
                self.snapshots.refused = None;
                offset
            }
            Err(error) => {
                self.snapshots.receiving = None;
                self.note_refused(&error, total);
                REFUSED
            }
        };
        self.changed = true;
        let index = meta.index;
        self.send(
            from,
            &Envelope::Taken {
                from: to,
                index,
                offset,
            },
        );
        if offset == total {
            self.step(announces)?;
            self.note_passed_over(&meta);
        }
        Ok(())
    }

    /// Notes that a snapshot cannot be received: in the status until one can be, and in the log
    /// once.
    fn note_refused(&mut self, error: &SnapshotError, total: u64) {
        let mib = total as f64 / 1_048_576.0;
        let note = format!("a snapshot of {mib:.1} MiB cannot be received: {error}");
        if self.snapshots.refused.as_ref() != Some(&note) {
            tracing::warn!("{note}");
            self.snapshots.refused = Some(note);
        }
    }

    /// Notes a received snapshot as the newest one even if Raft did not need it, because the log
    /// has all of its entries.
    fn note_passed_over(&mut self, meta: &SnapshotMetadata) {
        let Some(raft) = &mut self.raft else { return };
        let log = raft.store();
        let newest = log.snapshot_meta().map_or(0, |newest| newest.index);
        let has = log
            .entry(meta.index)
            .is_some_and(|entry| entry.term == meta.term);
        if raft.raft.snap().is_none() && has && meta.index > newest && meta.index <= self.applied {
            raft.mut_store().set_snapshot(meta);
        }
    }

    /// Begins to receive a snapshot. If the disk is full, it uses the space that is set aside for
    /// the next snapshot that is made here.
    fn begin_receiving(
        &mut self,
        dir: &Path,
        of: (u64, u64),
        total: u64,
    ) -> Result<SnapshotReceiver, SnapshotError> {
        let disk = &self.place.disk;
        match SnapshotReceiver::begin(disk, dir, of, total) {
            Err(error) if error.is_full() && self.snapshots.has_reserve() => {
                let begun = SnapshotReceiver::begin_in_reserve(disk, dir, of, total)?;
                tracing::debug!(%error, "the snapshot is received in the space that is set aside");
                self.snapshots.reserved = 0;
                Ok(begun)
            }
            begun => begun,
        }
    }

    /// Takes a piece, and returns the offset of the next one.
    fn take_piece(
        &mut self,
        meta: &SnapshotMetadata,
        (total, offset): (u64, u64),
        piece: &[u8],
    ) -> Result<u64, SnapshotError> {
        let Some(dir) = self.place.dir.clone() else {
            return Ok(REFUSED);
        };
        let of = (meta.term, meta.index);
        let receiver = match self.snapshots.receiving.take() {
            Some(receiver) if receiver.of() == of => receiver,
            _ => self.begin_receiving(&dir, of, total)?,
        };
        let receiver = self.snapshots.receiving.insert(receiver);
        let next = receiver.chunk(offset, piece)?;
        if receiver.is_complete() {
            let receiver = self
                .snapshots
                .receiving
                .take()
                .expect("it has just been there");
            receiver.finish()?;
        }
        Ok(next)
    }
}
