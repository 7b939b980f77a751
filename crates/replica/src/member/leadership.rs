//! The leader's part of a member: puts what was submitted into the log in groups, shows for reads
//! that no other member leads, keeps followers up to date, and changes the members by command.
//!
//! A lease rests on this: followers vote for no candidate within an election time-out of a message
//! of their leader. So no other member leads for that long from the beginning of a confirmed round,
//! less the possible difference of the clocks.
//!
//! While the member does not lead, all parts are empty, except for numbers that go on.

use std::time::Duration;

use base::planted::{self, Bug};
use raft::ReadState;
use raft::eraftpb::{Entry, Message, MessageType};

use super::commit_notice::CommitNotice;
use super::comparison::StateComparison;
use super::context::{MemberContext, RaftNode};
use super::membership_change::{ChangeInProgress, ChangeParts, LeaderParts};
use super::proposals::{OpenTurn, Proposal, Proposals};
use super::read_rounds::ReadRounds;
use super::snapshot_sender::SnapshotSender;
use super::state_machine::StateMachine;
use super::tenure::LeaderTenure;
use crate::entry_validation::checksum;
use crate::membership::{ChangeAnswer, ChangeError, MembershipChange};
use crate::options::{ELECTION_TICKS, Grouping};
use crate::tickets::{QueuedEntry, SubmissionGroup};
use crate::wire::Payload;

/// The interval, in election time-outs, at which the leader looks for clients that were silent for
/// long.
const EXPIRY_EVERY: u32 = 10;

/// See the module's description.
#[derive(Default)]
pub(super) struct Leadership {
    pub(super) tenure: LeaderTenure,
    pub(super) proposals: Proposals,
    rounds: ReadRounds,
    pub(super) notice: CommitNotice,
    pub(super) sender: SnapshotSender,
    pub(super) comparison: StateComparison,
    change: Option<ChangeInProgress>,
    /// The time at which sessions are looked for that were not used for long.
    next_expiry: Duration,
    /// The number of turns that took entries, and the number of these entries.
    groups: u64,
    entries: u64,
}

impl Leadership {
    /// Returns the number of turns that took entries, and the number of these entries.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.groups, self.entries)
    }

    /// Begins to lead in this term.
    pub(super) fn begin(&mut self, context: &mut MemberContext, term: u64) {
        tracing::info!(term, "elected");
        self.tenure.begin(term);
        context.changed = true;
    }

    /// Admits transactions if none are admitted: all that earlier leaders have acknowledged is
    /// applied.
    pub(super) fn admit(&mut self, context: &mut MemberContext, state: &StateMachine) {
        if self.tenure.takes_submissions(&context.shared) {
            return;
        }
        match self.tenure.admit(&context.shared, state) {
            Ok(()) => context.changed = true,
            Err(error) => {
                tracing::error!(%error, "cannot lead");
                context.notes.general = Some(error.to_string());
            }
        }
    }

    /// Ends the leadership: drops everything that was executed and is not applied, and the locks,
    /// before any entry of the next leader is applied (paper 5 leaves this open).
    pub(super) fn end(&mut self, context: &mut MemberContext) {
        tracing::info!(term = self.tenure.term(), "leads no more");
        self.tenure.end();
        context.changed = true;
        self.sender.clear();
        if let Some(change) = self.change.take() {
            change.end_by_loss(context);
        }
        if planted::is(Bug::KeptOverlay) {
            // The open turns stay, as if their entries could not be replaced.
            return context.shared.tickets.pause();
        }
        context.shared.drop_everything();
        self.proposals.clear();
        self.rounds.forget();
    }

    /// Steps aside, so that another member can lead.
    pub(super) fn step_aside(&mut self, context: &mut MemberContext, raft: &mut RaftNode) {
        if self.tenure.is_leader() {
            become_follower(raft);
            self.end(context);
        }
    }

    /// Makes the log state that deadlines have passed.
    pub(super) fn state_time(&self, context: &MemberContext, state: &StateMachine) {
        use std::sync::atomic::Ordering::SeqCst;
        let shared = &context.shared;
        if !shared.tickets.is_serving() {
            return;
        }
        let now_ms = context.now.wall_ms.max(shared.engine.time_ms());
        if state.is_deadline_due(now_ms) && !shared.ticking.swap(true, SeqCst) {
            shared.tickets.tick(now_ms);
            shared.engine.set_time_ms(now_ms);
        }
        shared.refresh();
    }

    /// Returns `true` if something that was submitted can be taken now.
    pub(super) fn may_propose(&self, context: &MemberContext, raft: &RaftNode) -> bool {
        let shared = &context.shared;
        let one_at_a_time = context.options.grouping == Grouping::Naive;
        self.tenure.takes_submissions(shared)
            && raft.raft.lead_transferee.is_none()
            && self.proposals.has_room()
            && (!one_at_a_time || self.proposals.are_applied())
            && match shared.tickets.waiting() {
                // Reads gather during a round: the next round serves them all.
                (0, reads) => reads && !self.rounds.is_open(),
                // Entries gather while others are under way.
                (waiting, _) => self.proposals.let_through(waiting),
            }
    }

    /// Puts the next group into the log.
    pub(super) fn propose(
        &mut self,
        context: &mut MemberContext,
        raft: &mut RaftNode,
        state: &StateMachine,
    ) {
        if !self.may_propose(context, raft) {
            return;
        }
        let Some(group) = context.shared.tickets.take() else {
            return;
        };
        self.end_silent_sessions(context, raft, state);
        let SubmissionGroup {
            ticket,
            entries: queued,
            reads,
        } = group;
        let (mut entries, mut proposals) = (Vec::new(), Vec::new());
        let mut submissions = 0;
        for one in queued {
            match one {
                QueuedEntry::Submission(submission) => {
                    submissions += 1;
                    proposals.push(Proposal::of(&submission));
                    entries.push(entry(submission.payload));
                }
                QueuedEntry::Tick(stamp_ms) => {
                    proposals.push(Proposal::default());
                    entries.push(entry(encode(&Payload::Tick { stamp_ms })));
                }
            }
        }
        self.groups += u64::from(submissions > 0);
        self.entries += submissions;
        let last = match entries.is_empty() {
            true => 0,
            false => match self.append(context, raft, entries, proposals) {
                Some(last) => last,
                None => return,
            },
        };
        // The commit of this turn's entries shows that no other member leads.
        let round = match reads && last == 0 {
            true => self.rounds.begin(raft, context.now.since),
            false => 0,
        };
        self.proposals.add_turn(OpenTurn {
            ticket,
            last,
            round,
        });
    }

    /// Proposes entries, and returns the index of the last one. Returns `None` if they were not
    /// taken: this member leads no more, and waiting transactions fail.
    fn append(
        &mut self,
        context: &mut MemberContext,
        raft: &mut RaftNode,
        entries: Vec<Entry>,
        proposals: Vec<Proposal>,
    ) -> Option<u64> {
        let count = entries.len() as u64;
        let mut message = Message {
            from: raft.raft.id,
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgPropose);
        message.set_entries(entries.into());
        if let Err(error) = raft.step(message) {
            // This does not happen while the member leads and hands nothing over.
            tracing::error!(%error, "a group was not taken: another member had better lead");
            self.step_aside(context, raft);
            return None;
        }
        self.notice.note_sent(raft.raft.raft_log.committed);
        let last = raft.raft.raft_log.last_index();
        self.proposals.add(last + 1 - count, proposals);
        Some(last)
    }

    /// Makes the log end sessions that were not used for long.
    fn end_silent_sessions(
        &mut self,
        context: &mut MemberContext,
        raft: &mut RaftNode,
        state: &StateMachine,
    ) {
        let (now, options) = (context.now, &context.options);
        if now.since < self.next_expiry {
            return;
        }
        self.next_expiry = now.since + options.election * EXPIRY_EVERY;
        let stamp_ms = now.wall_ms.max(state.stamp_ms());
        let oldest = stamp_ms.saturating_sub(options.session.as_millis() as u64);
        let expire = context.shared.end_stale(oldest);
        if !expire.is_empty() {
            let payload = encode(&Payload::Sessions { stamp_ms, expire });
            self.append(
                context,
                raft,
                vec![entry(payload)],
                vec![Proposal::default()],
            );
        }
    }

    /// Resolves the tickets whose outcome is known.
    pub(super) fn resolve(&mut self, context: &MemberContext, state: &StateMachine) {
        let confirmed = self.rounds.confirmed();
        if let Some(ticket) = self.proposals.resolve(state.applied(), confirmed) {
            context.shared.tickets.resolve(ticket);
            context.shared.notify();
        }
    }

    /// Begins another round of messages for reads if the last one was not confirmed for long, or if
    /// the lease is to be prolonged.
    pub(super) fn renew_round(&mut self, context: &MemberContext, raft: &mut RaftNode) {
        if !context.shared.tickets.is_serving() {
            return;
        }
        let (now, options) = (context.now.since, &context.options);
        let interval = options.leases.then_some(options.election / 5);
        if self.rounds.is_due(now, options.tick(), interval) {
            self.rounds.begin(raft, now);
        }
    }

    /// Takes the rounds that have been confirmed, and prolongs the lease.
    pub(super) fn confirm(
        &mut self,
        context: &MemberContext,
        raft_term: u64,
        reads: Vec<ReadState>,
    ) {
        if let Some(begun) = self.rounds.confirm(reads)
            && self.tenure.may_hold_lease(raft_term)
        {
            // A follower counts whole ticks, the first of which may come at once.
            let ticks = context.options.tick() * (ELECTION_TICKS as u32 - 1);
            context.shared.set_lease(begun + ticks * 8 / 10);
        }
    }

    /// Tells followers the commit index if no group has told them.
    pub(super) fn send_commit_index(&mut self, context: &MemberContext, raft: &mut RaftNode) {
        let naive = context.options.grouping == Grouping::Naive;
        let is_needed = self.tenure.is_leader() && !naive;
        self.notice.send_if_due(raft, is_needed, context.now.since);
    }

    /// Begins to change the members. `answer` gets the outcome.
    pub(super) fn begin_change(
        &mut self,
        parts: &ChangeParts<'_>,
        change: MembershipChange,
        answer: ChangeAnswer,
    ) {
        let checked = match &self.change {
            Some(_) => Err(ChangeError::Busy),
            None => parts.check(change),
        };
        match checked {
            Ok(()) => {
                let now = parts.context.now.since;
                self.change = Some(ChangeInProgress::new(change, answer, now));
            }
            Err(error) => {
                *answer.lock() = Some(Err(error));
                parts.context.shared.notify();
            }
        }
    }

    /// Goes on with the change in progress.
    pub(super) fn advance_change(&mut self, parts: &mut ChangeParts<'_>) {
        let Some(change) = &mut self.change else {
            return;
        };
        let mut leader = LeaderParts {
            tenure: &mut self.tenure,
            proposals: &self.proposals,
            sender: &self.sender,
        };
        if let Some(outcome) = change.advance(parts, &mut leader) {
            change.answer(parts.context, outcome);
            self.change = None;
        }
    }
}

/// Makes Raft a follower that knows no leader.
pub(super) fn become_follower(raft: &mut RaftNode) {
    // The library does not expect messages of a leader from a follower; these count as lost.
    raft.raft.msgs.clear();
    let term = raft.raft.term;
    raft.raft.become_follower(term, raft::INVALID_ID);
}

fn encode(payload: &Payload<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    payload.encode(&mut bytes);
    bytes
}

fn entry(data: Vec<u8>) -> Entry {
    Entry {
        context: checksum(&data).to_vec().into(),
        data: data.into(),
        ..Entry::default()
    }
}
