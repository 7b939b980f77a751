//! A turn: does the work that Raft asks for.

use std::time::Duration;

use base::NodeId;
use raft::eraftpb::{Message, MessageType};
use raft::{RawNode, Ready};

use super::incoming::is_passed_on;
use super::{Failure, Member};
use crate::log::Log;
use crate::messages::Envelope;
use crate::options::Grouping;
use crate::status::node_of;
use crate::time::Now;

/// Sends a member's messages, and empties the list.
pub(crate) type Flush<'f> = &'f mut dyn FnMut(&mut Vec<(NodeId, Vec<u8>)>);

/// The greatest number of rounds of `Ready` in one turn.
const ROUNDS: usize = 16;
/// The bytes of entries that a log in memory alone keeps.
const IN_MEMORY: u64 = 4 << 20;
/// The delay after which followers learn of a commit if no other message tells them.
const SOON: Duration = Duration::from_millis(2);

impl Member {
    /// Runs a turn: takes what was submitted, writes, syncs, sends, applies, and resolves tickets.
    /// It calls `flush` with the messages that can be sent before each sync; the rest is in
    /// [`Member::outbox`] afterwards.
    ///
    /// # Errors
    /// Returns the [`Failure`] after which this member must not go on.
    pub(crate) fn turn(&mut self, now: Now, flush: Flush<'_>) -> Result<(), Failure> {
        self.now = now;
        if self.raft.is_none() {
            self.seek_others()?;
        } else {
            if let Some(ready) = self.unsynced.take()
                && let Err(failure) = self.persist(ready, flush)
            {
                if failure.is_full() {
                    self.make_room()?;
                }
                self.report_if_due();
                return Err(failure);
            }
            self.tick();
            self.note_role();
            self.tell_time();
            self.propose();
            self.ready(flush)?;
            self.tell_committed();
            self.resolve();
            self.ask_again();
            self.keep_snapshots()?;
            self.compare();
            self.go_on_changing();
            self.forget();
        }
        self.report_if_due();
        Ok(())
    }

    /// Tells followers the commit index: with the next group or, if none comes soon, with a
    /// heartbeat. Messages for each commit would cost as much as the groups themselves. The paper's
    /// baseline sends a message for each commit.
    fn tell_committed(&mut self) {
        let raft = self.raft.as_mut().expect("it takes part");
        let committed = raft.raft.raft_log.committed;
        let tells = self.leading.is_some() && self.options.grouping != Grouping::Naive;
        if !tells || committed == self.told {
            self.tell_at = None;
            return;
        }
        let at = *self.tell_at.get_or_insert(self.now.since + SOON);
        if self.now.since >= at {
            raft.ping();
            self.told = committed;
            self.tell_at = None;
        }
    }

    /// Frees memory of the log, and prevents a log in memory alone from growing while all members
    /// have the same entries: a leader keeps the entries that others lack. The next leader may not
    /// have them any more; a log on disk and snapshots exist for that.
    fn forget(&mut self) {
        let raft = self.raft.as_mut().expect("it takes part");
        raft.mut_store().give_back();
        if self.place.dir.is_some() {
            return;
        }
        let leads = self.leading.is_some();
        let matched = raft.raft.prs().iter().map(|(_, progress)| progress.matched);
        let lacking = matched.min().filter(|_| leads).unwrap_or(u64::MAX);
        raft.mut_store()
            .forget(self.applied.min(lacking), IN_MEMORY);
    }

    /// Passes time to Raft. A time during which the process slept counts once, because it could
    /// receive no message.
    fn tick(&mut self) {
        if self.now.since < self.next_tick {
            return;
        }
        let tick = self.options.tick();
        self.next_tick += tick;
        if self.next_tick < self.now.since {
            self.next_tick = self.now.since + tick;
        }
        if let Some(raft) = &mut self.raft {
            raft.tick();
        }
        self.draw_timeout();
        self.ask_committed();
    }

    /// Passes a message to Raft. It passes none while the disk is full and something that Raft has
    /// given out is not written: Raft would believe that more of it is written.
    pub(super) fn step(&mut self, message: Message) -> Result<(), Failure> {
        if self.unsynced.is_some() {
            return Ok(());
        }
        let Some(raft) = &mut self.raft else {
            return Ok(());
        };
        let vote = matches!(
            message.get_msg_type(),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote
        );
        let to_another = message.to != raft.raft.id;
        // The library passes on commands for the leader; here they are executed at the leader only.
        let passed_on = is_passed_on(message.get_msg_type());
        // A member that was invited needs a snapshot first, to know the members. It rejects entries
        // until the leader finds that it lacks everything.
        let too_early = message.get_msg_type() == MessageType::MsgAppend
            && message.index == 0
            && raft.raft.prs().conf().voters().ids().is_empty();
        if to_another || passed_on || too_early || vote && self.now.since < self.silent_until {
            return Ok(());
        }
        if let Err(error) = raft.step(message) {
            tracing::debug!(%error, "a message was of no use");
        }
        self.draw_timeout();
        Ok(())
    }

    /// Does the work that Raft asks for.
    fn ready(&mut self, flush: Flush<'_>) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            self.note_role();
            if !self.raft.as_ref().is_some_and(RawNode::has_ready) {
                break;
            }
            let ready = self.begin_ready()?;
            self.persist(ready, flush)?;
        }
        self.draw_timeout();
        self.note_fresh();
        Ok(())
    }

    /// Syncs what Raft wants to be on disk, and does the work that may be done then.
    fn persist(&mut self, ready: Ready, flush: Flush<'_>) -> Result<(), Failure> {
        let sync = ready.must_sync() || !ready.entries().is_empty();
        if sync {
            flush(&mut self.outbox);
        }
        if sync && let Err(error) = self.log().sync() {
            // If the disk has space again, the work goes on here.
            self.unsynced = Some(ready);
            return Err(error.into());
        }
        self.end_ready(ready)
    }

    /// Does the work before the sync: followers get entries while they are synced here.
    fn begin_ready(&mut self) -> Result<Ready, Failure> {
        let raft = self.raft.as_mut().expect("asked before");
        let mut ready = raft.ready();
        let reads = ready.take_read_states();
        let messages = ready.take_messages();
        self.send_all(messages);
        self.confirm(reads);
        if !ready.snapshot().is_empty() {
            let meta = ready.snapshot().get_metadata().clone();
            self.install(&meta)?;
        }
        self.apply(ready.take_committed_entries())?;
        let log = self.log();
        log.append(ready.entries());
        if let Some(hard) = ready.hs() {
            log.set_hard_state(hard);
        }
        Ok(ready)
    }

    fn end_ready(&mut self, mut ready: Ready) -> Result<(), Failure> {
        self.send_all(ready.take_persisted_messages());
        let raft = self.raft.as_mut().expect("it is still there");
        let mut light = raft.advance(ready);
        if let Some(commit) = light.commit_index() {
            let log = raft.mut_store();
            let mut hard = log.hard_state().clone();
            hard.commit = commit;
            log.set_hard_state(&hard);
        }
        self.send_all(light.take_messages());
        self.apply(light.take_committed_entries())?;
        self.raft
            .as_mut()
            .expect("it is still there")
            .advance_apply();
        Ok(())
    }

    pub(super) fn log(&mut self) -> &mut Log {
        self.raft.as_mut().expect("it takes part").mut_store()
    }

    fn send_all(&mut self, messages: Vec<Message>) {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.begin_sending(message);
            } else {
                let to = node_of(message.to);
                self.send(to, &Envelope::Raft(message));
            }
        }
    }
}
