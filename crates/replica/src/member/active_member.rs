//! A member that takes part in the Raft group: passes it messages and time, does the work that it
//! asks for, and gives entries to the state machine.
//!
//! | what Raft asks for, in this order | by |
//! |---|---|
//! | messages are sent that need not wait for the disk: followers get entries before they are synced here | [`ActiveMember::begin_ready`] |
//! | a snapshot that was received replaces the state | [`install_snapshot`] |
//! | committed entries are applied | [`ActiveMember::apply`] |
//! | new entries, the term and the vote are synced | [`ActiveMember::persist`] |
//! | the other messages are sent | [`ActiveMember::end_ready`] |

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::NodeId;
use protobuf::Message as _;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeType, ConfChangeV2, Entry, EntryType, Message, MessageType,
};
use raft::{Config, RawNode, Ready, StateRole};

use super::context::{MemberContext, Outbox, RaftNode};
use super::election_timer::ElectionTimer;
use super::founding::Founding;
use super::freshness::Freshness;
use super::leadership::{Leadership, become_follower};
use super::membership_change::ChangeParts;
use super::message_check::is_forwarded;
use super::report::StatusParts;
use super::snapshots::{MemberSnapshots, SnapshotPiece, install_snapshot, note_unneeded_snapshot};
use super::state_hash::StateHasher;
use super::state_machine::{OwnProposal, StateMachine};
use crate::failure::MemberFailure;
use crate::log::RaftLog;
use crate::membership::{ChangeAnswer, MembershipChange};
use crate::messages::MemberMessage;
use crate::options::{ELECTION_TICKS, Grouping};
use crate::status::{Status, node_of};

/// Sends a member's messages, and empties the list.
pub(crate) type Flush<'f> = &'f mut dyn FnMut(&mut Outbox);

/// The greatest number of rounds of `Ready` in one turn.
const ROUNDS: usize = 16;
/// The bytes of entries that a log in memory alone keeps.
const IN_MEMORY: u64 = 4 << 20;

/// See the module's description.
pub(super) struct ActiveMember {
    raft: RaftNode,
    timer: ElectionTimer,
    /// The rest of Raft's work, from the sync on, if the sync failed.
    unsynced: Option<Ready>,
    /// A member must not vote after its start while the leader that it followed before may hold a
    /// lease.
    silent_until: Duration,
    state: StateMachine,
    leadership: Leadership,
    freshness: Freshness,
    hasher: StateHasher,
    snapshots: MemberSnapshots,
}

impl ActiveMember {
    /// Starts to take part with a log that is not blank. Until `silent_until` the member does not
    /// vote.
    ///
    /// # Errors
    /// Returns the error of the Raft library.
    pub(super) fn start(
        context: &mut MemberContext,
        log: RaftLog,
        state: StateMachine,
        silent_until: Duration,
    ) -> Result<ActiveMember, MemberFailure> {
        let options = &context.options;
        let config = Config {
            id: log.raft_id(),
            election_tick: ELECTION_TICKS,
            heartbeat_tick: 1,
            applied: state.applied(),
            max_size_per_msg: options.message as u64,
            max_inflight_msgs: 256,
            check_quorum: true,
            pre_vote: true,
            // In this release of the library it adds entries to messages that they do not follow.
            batch_append: false,
            // Followers learn the commit index from the next group: see `CommitNotice`.
            skip_bcast_commit: options.grouping != Grouping::Naive,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut raft = RawNode::new(&config, log, &logger)?;
        let mut timer = ElectionTimer::new(options, context.now);
        timer.set_timeout(&mut raft);
        context.changed = true;
        Ok(ActiveMember {
            raft,
            timer,
            unsynced: None,
            silent_until,
            state,
            leadership: Leadership::default(),
            freshness: Freshness::default(),
            hasher: StateHasher::default(),
            snapshots: MemberSnapshots::default(),
        })
    }

    pub(super) fn raft(&self) -> &RaftNode {
        &self.raft
    }

    /// Returns the time at which a turn is due even if nothing has come.
    pub(super) fn due(&self) -> Duration {
        let tick = self.timer.next_tick();
        self.leadership.notice.due().map_or(tick, |at| at.min(tick))
    }

    /// Returns `true` if another turn would have work to do at once.
    pub(super) fn has_more(&self, context: &MemberContext) -> bool {
        self.raft.has_ready() || self.leadership.may_propose(context, &self.raft)
    }

    /// Runs a turn: takes what was submitted, writes, syncs, sends, applies, and resolves tickets.
    ///
    /// # Errors
    /// Returns the [`MemberFailure`] after which this member must not go on.
    pub(super) fn turn(
        &mut self,
        context: &mut MemberContext,
        founding: &Founding,
        flush: Flush<'_>,
    ) -> Result<(), MemberFailure> {
        if let Some(ready) = self.unsynced.take()
            && let Err(failure) = self.persist(context, ready, flush)
        {
            if failure.is_full() {
                self.make_room(context)?;
            }
            return Err(failure);
        }
        self.tick(context);
        self.note_role(context);
        self.leadership.state_time(context, &self.state);
        self.leadership
            .propose(context, &mut self.raft, &self.state);
        self.ready(context, flush)?;
        self.leadership.send_commit_index(context, &mut self.raft);
        self.leadership.resolve(context, &self.state);
        self.leadership.renew_round(context, &mut self.raft);
        self.keep_snapshots(context)?;
        self.compare(context);
        self.advance_change(context, founding);
        self.free_log(context);
        Ok(())
    }

    /// Passes time to Raft.
    fn tick(&mut self, context: &mut MemberContext) {
        if self.timer.has_ticked(context.now, context.options.tick()) {
            self.raft.tick();
            self.timer.set_timeout(&mut self.raft);
            self.ask_committed(context);
        }
    }

    /// Asks the leader, as a follower, for its commit index, so that this member knows the age of
    /// the state that it shows.
    fn ask_committed(&self, context: &mut MemberContext) {
        let leader = self.raft.raft.leader_id;
        if leader != 0 && !self.leadership.tenure.is_leader() {
            let asked = context.now.since.as_nanos() as u64;
            context.send(
                node_of(leader),
                &MemberMessage::CommitIndexRequest { asked },
            );
        }
    }

    /// Notes that leadership has begun or ended.
    fn note_role(&mut self, context: &mut MemberContext) {
        let raft = &self.raft.raft;
        let (term, leads) = (raft.term, raft.state == StateRole::Leader);
        let leader = (raft.leader_id != 0).then(|| node_of(raft.leader_id));
        let tenure = self.leadership.tenure.term();
        if tenure.is_some_and(|since| !leads || since != term) {
            self.leadership.end(context);
        }
        if leads && !self.leadership.tenure.is_leader() {
            self.leadership.begin(context, term);
        }
        if leads && self.state.applied_term() == term {
            self.leadership.admit(context, &self.state);
        }
        let shared = &context.shared;
        if leader.is_some_and(|leader| leader != context.options.me) {
            shared.handing_over.store(false, Ordering::SeqCst);
        }
        if shared.leader() != leader {
            shared.set_leader(leader);
            context.changed = true;
        }
    }

    /// Gives up leading for good: waiting transactions fail.
    pub(super) fn abdicate(&mut self, context: &mut MemberContext) {
        if self.leadership.tenure.is_leader() {
            self.leadership.end(context);
        }
    }

    /// Steps aside while this member cannot write, so that another member can lead.
    pub(super) fn step_aside(&mut self, context: &mut MemberContext) {
        self.leadership.step_aside(context, &mut self.raft);
    }

    /// Takes a message of Raft. It is dropped while the disk is full and something that Raft has
    /// given out is not written: Raft would believe that more of it is written.
    pub(super) fn step(&mut self, context: &MemberContext, message: Message) {
        if self.unsynced.is_some() {
            return;
        }
        let raft = &mut self.raft;
        let vote = matches!(
            message.get_msg_type(),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote
        );
        let to_another = message.to != raft.raft.id;
        // The library passes on commands for the leader; here they are executed at the leader only.
        let forwarded = is_forwarded(message.get_msg_type());
        // A member that was invited needs a snapshot first, to know the members. It rejects entries
        // until the leader finds that it lacks everything.
        let too_early = message.get_msg_type() == MessageType::MsgAppend
            && message.index == 0
            && raft.raft.prs().conf().voters().ids().is_empty();
        let is_silent = vote && context.now.since < self.silent_until;
        if to_another || forwarded || too_early || is_silent {
            return;
        }
        if let Err(error) = raft.step(message) {
            tracing::debug!(%error, "a message was of no use");
        }
        self.timer.set_timeout(&mut self.raft);
    }

    /// Does the work that Raft asks for.
    fn ready(
        &mut self,
        context: &mut MemberContext,
        flush: Flush<'_>,
    ) -> Result<(), MemberFailure> {
        for _ in 0..ROUNDS {
            self.note_role(context);
            if !self.raft.has_ready() {
                break;
            }
            let ready = self.begin_ready(context)?;
            self.persist(context, ready, flush)?;
        }
        self.timer.set_timeout(&mut self.raft);
        if let Some(at) = self.freshness.take(self.state.applied()) {
            context.shared.set_fresh(at);
        }
        Ok(())
    }

    /// Does the work before the sync: followers get entries while they are synced here.
    fn begin_ready(&mut self, context: &mut MemberContext) -> Result<Ready, MemberFailure> {
        let mut ready = self.raft.ready();
        let reads = ready.take_read_states();
        self.send_all(context, ready.take_messages());
        let term = self.raft.raft.term;
        self.leadership.confirm(context, term, reads);
        if !ready.snapshot().is_empty() {
            let meta = ready.snapshot().get_metadata().clone();
            install_snapshot(context, &mut self.raft, &mut self.state, &meta)?;
        }
        self.apply(context, ready.take_committed_entries())?;
        let log = self.raft.mut_store();
        log.append(ready.entries());
        if let Some(hard) = ready.hs() {
            log.set_hard_state(hard);
        }
        Ok(ready)
    }

    /// Syncs what Raft wants to be on disk, and does the work that may be done then.
    fn persist(
        &mut self,
        context: &mut MemberContext,
        ready: Ready,
        flush: Flush<'_>,
    ) -> Result<(), MemberFailure> {
        let sync = ready.must_sync() || !ready.entries().is_empty();
        if sync {
            flush(&mut context.outbox);
        }
        if sync && let Err(error) = self.raft.mut_store().sync() {
            // If the disk has space again, the work goes on here.
            self.unsynced = Some(ready);
            return Err(error.into());
        }
        self.end_ready(context, ready)
    }

    /// Does the work after the sync.
    fn end_ready(
        &mut self,
        context: &mut MemberContext,
        mut ready: Ready,
    ) -> Result<(), MemberFailure> {
        self.send_all(context, ready.take_persisted_messages());
        let mut light = self.raft.advance(ready);
        if let Some(commit) = light.commit_index() {
            let log = self.raft.mut_store();
            let mut hard = log.hard_state().clone();
            hard.commit = commit;
            log.set_hard_state(&hard);
        }
        self.send_all(context, light.take_messages());
        self.apply(context, light.take_committed_entries())?;
        self.raft.advance_apply();
        Ok(())
    }

    fn send_all(&mut self, context: &mut MemberContext, messages: Vec<Message>) {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.leadership
                    .sender
                    .begin(context, &mut self.raft, message);
            } else {
                let to = node_of(message.to);
                context.send(to, &MemberMessage::Raft(message));
            }
        }
    }

    /// Applies committed entries.
    fn apply(
        &mut self,
        context: &mut MemberContext,
        entries: Vec<Entry>,
    ) -> Result<(), MemberFailure> {
        let mut fetched = 0;
        for (at, entry) in entries.iter().enumerate() {
            if at == fetched {
                fetched = self.state.prefetch(&entries, at);
            }
            // A snapshot that contains the entry may have been loaded.
            if entry.index <= self.state.applied() {
                continue;
            }
            match entry.get_entry_type() {
                EntryType::EntryNormal => {
                    let proposals = &self.leadership.proposals;
                    let own = OwnProposal {
                        holder: proposals.holder(entry.index),
                        waiter: proposals.waiter(entry.index),
                    };
                    self.state.apply(entry, own)?;
                }
                EntryType::EntryConfChangeV2 => self.apply_members(context, entry)?,
                // No member proposes the older kind.
                EntryType::EntryConfChange => {
                    let what = "a change of members of the older kind";
                    return Err(MemberFailure::unreadable(entry.index, what));
                }
            }
            self.leadership
                .proposals
                .settle(entry.index, &context.shared);
            self.hasher.begin_if_requested(context, entry.index);
        }
        self.note_role(context);
        Ok(())
    }

    fn apply_members(
        &mut self,
        context: &mut MemberContext,
        entry: &Entry,
    ) -> Result<(), MemberFailure> {
        let index = entry.index;
        let mut change = ConfChangeV2::default();
        let read = change.merge_from_bytes(&entry.data);
        read.map_err(|error| MemberFailure::unreadable(index, error))?;
        let applied = self.raft.apply_conf_change(&change);
        self.state.skip(entry);
        let members = match applied {
            Ok(members) => members,
            Err(error) => {
                // All members have the same members at this entry, and so refuse it alike.
                tracing::error!(%error, index, "a change of the members is passed over");
                return Ok(());
            }
        };
        tracing::info!(voters = ?members.voters, learners = ?members.learners, "members");
        self.raft.mut_store().set_conf_state(index, &members);
        let own = &self.raft.raft;
        if own.state == StateRole::Leader && !own.prs().conf().voters().contains(own.id) {
            // The leader that was to remove this member was deposed meanwhile. The library lets
            // this member lead on, and panics when an answer comes.
            become_follower(&mut self.raft);
        }
        context.changed = true;
        let is_learner =
            |one: &ConfChangeSingle| one.get_change_type() == ConfChangeType::AddLearnerNode;
        if change.get_changes().iter().any(is_learner) {
            // Every member makes a snapshot, because any of them may lead when the learner asks for
            // entries. The learner needs a snapshot that says that it is a member.
            self.snapshots.maker.request(index);
        }
        Ok(())
    }

    /// Makes snapshots when the log has grown, and sends lost pieces again.
    fn keep_snapshots(&mut self, context: &mut MemberContext) -> Result<(), MemberFailure> {
        let leadership = &mut self.leadership;
        let is_leader = leadership.tenure.is_leader();
        leadership.sender.resend(context, &mut self.raft, is_leader);
        let needed = leadership.sender.oldest();
        let needed = needed.filter(|_| self.unsynced.is_none());
        self.snapshots
            .maker
            .advance(context, &mut self.raft, &self.state, needed)
    }

    /// Requests a snapshot soon, behind which the log begins.
    pub(super) fn request_snapshot(&mut self) {
        self.snapshots.maker.request(self.state.applied());
    }

    /// Makes a snapshot in the space that is set aside for it, and cuts the log behind it, because
    /// the disk has no space for the log. This is called until there is space.
    fn make_room(&mut self, context: &mut MemberContext) -> Result<(), MemberFailure> {
        self.request_snapshot();
        self.keep_snapshots(context)
    }

    /// Takes a piece of a snapshot. When the snapshot is complete, Raft takes it over.
    pub(super) fn on_piece(&mut self, context: &mut MemberContext, piece: SnapshotPiece<'_>) {
        let received = self
            .snapshots
            .receive(context, &self.raft, &self.state, piece);
        if let Some(announces) = received {
            let meta = announces.get_snapshot().get_metadata().clone();
            self.step(context, announces);
            note_unneeded_snapshot(&mut self.raft, &self.state, &meta);
        }
    }

    /// Takes the answer of a member to a piece of a snapshot.
    pub(super) fn on_taken(
        &mut self,
        context: &mut MemberContext,
        from: u64,
        index_and_offset: (u64, u64),
    ) {
        let sender = &mut self.leadership.sender;
        sender.on_taken(context, &mut self.raft, from, index_and_offset);
    }

    /// Answers a follower's question for the commit index.
    pub(super) fn on_how_far(&self, context: &mut MemberContext, from: NodeId, asked: u64) {
        if self.leadership.tenure.is_leader() {
            let raft = &self.raft.raft;
            let (term, index) = (raft.term, raft.raft_log.committed);
            context.send(
                from,
                &MemberMessage::CommitIndexReply { term, index, asked },
            );
        }
    }

    /// Takes the leader's answer to the question for its commit index.
    pub(super) fn on_committed(
        &mut self,
        context: &MemberContext,
        (term, index): (u64, u64),
        asked: u64,
    ) {
        // An answer to a question from before a restart, or from a leader of the past, is of no use.
        let is_known = u128::from(asked) <= context.now.since.as_nanos();
        if is_known && term >= self.raft.raft.term {
            self.freshness.note(index, Duration::from_nanos(asked));
        }
    }

    /// Takes the leader's question for the hash of the state at an entry.
    pub(super) fn on_compare(&mut self, context: &mut MemberContext, from: NodeId, index: u64) {
        let applied = self.state.applied();
        if node_of(self.raft.raft.leader_id) == from && index >= applied {
            self.hasher.request(context, index, from, applied);
        }
    }

    /// Takes the hash of a member's state.
    pub(super) fn on_hash(&mut self, from: NodeId, index: u64, hash: u64) {
        self.leadership.comparison.note_hash(from, index, hash);
    }

    /// Goes on with the comparison of states.
    fn compare(&mut self, context: &mut MemberContext) {
        let comparison = &mut self.leadership.comparison;
        let applied = self.state.applied();
        comparison.run(context, &self.raft, &mut self.hasher, applied);
    }

    /// Begins to change the members, as the leader. `answer` gets the outcome.
    pub(super) fn begin_change(
        &mut self,
        context: &mut MemberContext,
        founding: &Founding,
        change: MembershipChange,
        answer: ChangeAnswer,
    ) {
        let (leadership, parts) = self.change_parts(context, founding);
        leadership.begin_change(&parts, change, answer);
    }

    fn advance_change(&mut self, context: &mut MemberContext, founding: &Founding) {
        let (leadership, mut parts) = self.change_parts(context, founding);
        leadership.advance_change(&mut parts);
    }

    fn change_parts<'m>(
        &'m mut self,
        context: &'m mut MemberContext,
        founding: &'m Founding,
    ) -> (&'m mut Leadership, ChangeParts<'m>) {
        let parts = ChangeParts {
            context,
            raft: &mut self.raft,
            founding,
            snapshots: &mut self.snapshots.maker,
            applied: self.state.applied(),
        };
        (&mut self.leadership, parts)
    }

    /// Frees memory of the log, and prevents a log in memory alone from growing while all members
    /// have the same entries: a leader keeps the entries that others lack. The next leader may not
    /// have them any more; a log on disk and snapshots exist for that.
    fn free_log(&mut self, context: &MemberContext) {
        self.raft.mut_store().give_back();
        if context.dir().is_some() {
            return;
        }
        let is_leader = self.leadership.tenure.is_leader();
        let raft = &self.raft.raft;
        let matched = raft.prs().iter().map(|(_, progress)| progress.matched);
        let lacking = matched.min().filter(|_| is_leader).unwrap_or(u64::MAX);
        let applied = self.state.applied();
        let log = self.raft.mut_store();
        log.forget(applied.min(lacking), IN_MEMORY);
    }

    /// Notes that messages to a node do not arrive at the moment.
    pub(super) fn note_unreachable(&mut self, node: NodeId) {
        let ids = self.raft.raft.prs().iter().map(|(id, _)| *id);
        let ids: Vec<u64> = ids.filter(|id| node_of(*id) == node).collect();
        for id in ids {
            self.raft.report_unreachable(id);
        }
    }

    /// Returns the reason why the last snapshot was not received, and the difference that the last
    /// comparison of states has found.
    pub(super) fn problems(&self) -> (Option<&String>, Option<&String>) {
        let difference = self.leadership.comparison.difference();
        (self.snapshots.intake.refused(), difference)
    }

    /// Writes the status of the member.
    pub(super) fn describe(&self, context: &MemberContext, status: &mut Status) {
        let parts = StatusParts {
            raft: &self.raft,
            state: &self.state,
            leadership: &self.leadership,
            snapshots: &self.snapshots,
        };
        parts.describe(context, status);
    }
}
