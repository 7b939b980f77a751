//! One member of a replicated partition: all of it except for threads, sockets and clocks.
//!
//! The Raft algorithm is a library's. A node whose disk is empty has no Raft yet: it looks for the
//! other nodes until it founds the partition with them, or is invited. From then on it is an
//! `ActiveMember`, whose parts are values; none of them knows the member. From the highest module
//! to the lowest:
//!
//! | module | concept |
//! |---|---|
//! | `active_member` | the work that Raft asks for: append, sync, send, apply, in this order |
//! | `leadership` | the leader's part: submissions go into the log in groups; leadership begins and ends |
//! | `membership_change` | the leader adds and removes members by command, and hands the leadership over |
//! | `comparison`, `state_hash` | the leader compares the states of all members, each of which hashes its own |
//! | `snapshot_sender` | the leader sends snapshots to members that are too far behind |
//! | `snapshots` | every member makes snapshots, receives them, and replaces its state by one |
//! | `snapshot_intake` | a follower receives a snapshot |
//! | `snapshot_maker`, `snapshot_contents`, `snapshot_reserve` | every member makes snapshots, in space that it has set aside |
//! | `tenure` | the leader's term; transactions are admitted or not |
//! | `proposals` | what the leader has proposed and is not applied |
//! | `read_rounds` | rounds of messages that show to the leader that no other member leads |
//! | `commit_notice` | the leader tells followers of commits |
//! | `freshness` | a follower learns the age of its state |
//! | `state_machine` | entries become state, on every member alike |
//! | `election_timer` | ticks and time-outs |
//! | `founding` | the start of the first members; the joining of a member whose disk is empty |
//! | `message_check`, `outdated_log` | checks of other members' messages |
//! | `background_job` | background work |
//! | `report` | the status that a member reports |
//! | `context`, `notes` | what all parts use; notes for people |
//!
//! The driver calls [`Member::receive`] for each message, and [`Member::turn`] when a message has
//! come, something was submitted, or a turn is due ([`Member::due`]). Then it sends
//! [`Member::outbox`].
//!
//! Invariants:
//! 1. One append, one sync and one transfer serve all that was submitted between two turns, up to
//!    the size of a group. Followers get it before it is synced here.
//! 2. A ticket resolves when its entries are applied here in the term in which they were proposed.
//!    When leadership ends, all that was executed and not applied is dropped before anything else
//!    is applied.
//! 3. A new leader admits no transaction before it has applied an entry of its own term, and so all
//!    that earlier leaders have acknowledged.

mod active_member;
mod background_job;
mod commit_notice;
mod comparison;
mod context;
mod election_timer;
mod founding;
mod freshness;
mod leadership;
mod membership_change;
mod message_check;
mod notes;
mod outdated_log;
mod proposals;
mod read_rounds;
mod report;
mod snapshot_contents;
mod snapshot_intake;
mod snapshot_maker;
mod snapshot_reserve;
mod snapshot_sender;
mod snapshots;
mod state_hash;
mod state_machine;
mod tenure;

use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use raft::eraftpb::ConfState;

use crate::failure::MemberFailure;
use crate::log::RaftLog;
use crate::membership::{ChangeAnswer, ChangeError, MembershipChange};
use crate::messages::{Hello, MemberMessage};
use crate::options::MemberOptions;
use crate::shared::MemberShared;
use crate::snapshot::{newest, tidy};
use crate::status::{Role, Status, node_of, raft_id};
use crate::time::Now;
use active_member::{ActiveMember, Flush};
use context::MemberContext;
pub(crate) use context::{MemberStorage, Outbox, SpawnWork};
use founding::Founding;
pub(crate) use message_check::MalformedMessage;
use message_check::{MessageCheck, MessageObjection};
use notes::MemberNotes;
pub(crate) use notes::duplicate_note;
use outdated_log::OutdatedLogDetector;
use snapshots::SnapshotPiece;
use state_machine::StateMachine;

/// A refused link, also that of a second process of a node, is noted until it was not refused for this many
/// election time-outs.
const REFUSAL_NOTED: u32 = 10;

/// The result of receiving a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageOutcome {
    /// The message was taken, or was dropped because it came too late.
    Taken,
    /// The message is not one that a member sends; the error says why.
    Malformed(MalformedMessage),
}

/// A node's part in the partition.
enum Participation {
    /// The disk is empty: the log is blank.
    Blank(Box<(RaftLog, StateMachine)>),
    Active(Box<ActiveMember>),
    /// The member has failed while it started to take part.
    Failed,
}

/// See the module's description.
pub(crate) struct Member {
    context: MemberContext,
    founding: Founding,
    participation: Participation,
    outdated_log: OutdatedLogDetector,
    next_report: Duration,
}

impl Member {
    /// Reads the data in `storage`, and starts. `progress` is called with the number of bytes that
    /// have been read and with their total.
    ///
    /// # Errors
    /// Returns a [`MemberFailure`] that says what cannot be read, and what to do.
    pub(crate) fn open(
        options: MemberOptions,
        shared: Arc<MemberShared>,
        storage: MemberStorage,
        spawn: SpawnWork,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Member, MemberFailure> {
        let now = shared.time.now();
        let state = StateMachine::new(Arc::clone(&shared));
        let log = match &storage.dir {
            Some(dir) => {
                let disk = Arc::clone(&storage.disk);
                tidy(&*disk, dir)?;
                RaftLog::open(disk, dir, storage.log.clone(), progress)?
            }
            None => RaftLog::in_memory(),
        };
        let mut context = MemberContext {
            options,
            shared,
            storage,
            spawn,
            now,
            outbox: Vec::new(),
            changed: true,
            notes: MemberNotes::default(),
        };
        let participation = if log.is_blank() {
            Participation::Blank(Box::new((log, state)))
        } else {
            Participation::Active(Box::new(recover(&mut context, log, state)?))
        };
        let mut member = Member {
            founding: Founding::new(&context.options, now),
            next_report: now.since,
            context,
            participation,
            outdated_log: OutdatedLogDetector::default(),
        };
        member.report();
        Ok(member)
    }

    fn active(&self) -> Option<&ActiveMember> {
        match &self.participation {
            Participation::Active(active) => Some(active),
            _ => None,
        }
    }

    /// Runs a turn: takes what was submitted, writes, syncs, sends, applies, and resolves tickets.
    /// It calls `flush` with the messages that can be sent before each sync; the rest is in
    /// [`Member::outbox`] afterwards.
    ///
    /// # Errors
    /// Returns the [`MemberFailure`] after which this member must not go on.
    pub(crate) fn turn(&mut self, now: Now, flush: Flush<'_>) -> Result<(), MemberFailure> {
        let context = &mut self.context;
        context.now = now;
        let outcome = match &mut self.participation {
            Participation::Active(active) => active.turn(context, &self.founding, flush),
            _ if context.options.nodes == [context.options.me] => self.found(),
            _ => {
                self.founding.ask_if_due(context);
                Ok(())
            }
        };
        if self.context.changed || now.since >= self.next_report {
            self.next_report = now.since + self.context.options.tick();
            self.report();
        }
        outcome
    }

    /// Receives a message from another member. A malformed message changes nothing.
    ///
    /// # Errors
    /// Returns the [`MemberFailure`] after which this member must not go on.
    pub(crate) fn receive(
        &mut self,
        from: NodeId,
        bytes: &[u8],
        now: Now,
    ) -> Result<MessageOutcome, MemberFailure> {
        self.context.now = now;
        let envelope = match MemberMessage::decode(bytes) {
            Ok(envelope) => envelope,
            Err(error) => return Ok(MessageOutcome::Malformed(MalformedMessage::new(error))),
        };
        let active = self.active();
        let check = active.map_or_else(MessageCheck::default, |one| MessageCheck::of(one.raft()));
        match check.check(from, &envelope) {
            Ok(()) => {
                if check.fits_log(&envelope) {
                    self.outdated_log.note_fitting();
                }
                self.dispatch(from, envelope)?;
                Ok(MessageOutcome::Taken)
            }
            Err(MessageObjection::Malformed(error)) => Ok(MessageOutcome::Malformed(error)),
            Err(objection @ MessageObjection::BeyondLog { claimed, last }) => {
                let period = self.context.options.election * 2;
                if self.outdated_log.note_claim(now.since, period) {
                    return Err(MemberFailure::Outdated {
                        last,
                        acknowledged: claimed,
                        node: self.context.options.me,
                    });
                }
                Ok(MessageOutcome::Malformed(MalformedMessage::new(objection)))
            }
        }
    }

    /// Passes a message to the part that it is for. A node that is not a member yet takes only
    /// those that may make it one.
    fn dispatch(&mut self, from: NodeId, envelope: MemberMessage<'_>) -> Result<(), MemberFailure> {
        match envelope {
            MemberMessage::Hello(hello) => return self.on_hello(from, hello),
            MemberMessage::Invite { raft_id } => return self.on_invite(raft_id),
            _ => {}
        }
        let Participation::Active(active) = &mut self.participation else {
            return Ok(());
        };
        let context = &mut self.context;
        match envelope {
            MemberMessage::Raft(message) => active.step(context, message),
            MemberMessage::SnapshotPiece {
                to,
                announces,
                total,
                offset,
                piece,
            } => {
                let piece = SnapshotPiece {
                    to,
                    announces,
                    total,
                    offset,
                    piece,
                };
                active.on_piece(context, piece);
            }
            MemberMessage::SnapshotProgress {
                from,
                index,
                offset,
            } => active.on_taken(context, from, (index, offset)),
            MemberMessage::CommitIndexRequest { asked } => active.on_how_far(context, from, asked),
            MemberMessage::CommitIndexReply { term, index, asked } => {
                active.on_committed(context, (term, index), asked);
            }
            MemberMessage::StateHashRequest { index } => active.on_compare(context, from, index),
            MemberMessage::StateHashReply { index, hash } => active.on_hash(from, index, hash),
            MemberMessage::Hello(_) | MemberMessage::Invite { .. } => {}
        }
        Ok(())
    }

    fn on_hello(&mut self, from: NodeId, hello: Hello) -> Result<(), MemberFailure> {
        let context = &mut self.context;
        let raft = match &self.participation {
            Participation::Active(active) => Some(active.raft()),
            _ => None,
        };
        self.founding.on_hello(context, raft, from, hello);
        if raft.is_some() {
            return Ok(());
        }
        if self.founding.may_found(&context.options) {
            return self.found();
        }
        self.founding.note_waiting(context);
        Ok(())
    }

    /// Starts as one of the first members.
    fn found(&mut self) -> Result<(), MemberFailure> {
        let options = &self.context.options;
        let ids = options.nodes.iter().map(|node| raft_id(1, *node));
        let members = ConfState::from((ids.collect::<Vec<u64>>(), vec![]));
        let id = raft_id(1, options.me);
        tracing::info!(members = ?options.nodes, "founds the partition");
        self.take_part(id, &members)
    }

    /// Takes a leader's invitation to join as a member.
    fn on_invite(&mut self, id: u64) -> Result<(), MemberFailure> {
        if self.active().is_some() || node_of(id) != self.context.options.me {
            return Ok(());
        }
        tracing::info!(raft_id = id, "joins the partition");
        self.take_part(id, &ConfState::default())
    }

    /// Starts to take part under this number, and tells the others.
    fn take_part(&mut self, id: u64, members: &ConfState) -> Result<(), MemberFailure> {
        let Participation::Blank(blank) = &mut self.participation else {
            return Ok(());
        };
        blank.0.found(id, members)?;
        let former = std::mem::replace(&mut self.participation, Participation::Failed);
        if let Participation::Blank(blank) = former {
            let (log, state) = *blank;
            self.context.notes.general = None;
            let active = ActiveMember::start(&mut self.context, log, state, Duration::ZERO)?;
            self.founding.greet(&mut self.context, Some(active.raft()));
            self.participation = Participation::Active(Box::new(active));
        }
        Ok(())
    }

    /// Returns the messages that are to be sent, with their receivers.
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        &mut self.context.outbox
    }

    /// Returns the time without messages of a leader after which a follower wants to be elected.
    pub(crate) fn election(&self) -> Duration {
        self.context.options.election
    }

    /// Returns the time, as [`Now::since`], at which [`Member::turn`] is due even if nothing has
    /// come.
    #[must_use]
    pub(crate) fn due(&self) -> Duration {
        self.active()
            .map_or_else(|| self.founding.due(), ActiveMember::due)
    }

    /// Returns `true` if another turn would have work to do at once.
    #[must_use]
    pub(crate) fn has_more(&self) -> bool {
        self.active()
            .is_some_and(|active| active.has_more(&self.context))
    }

    /// Returns the last entry that was removed from the log.
    #[cfg(feature = "simulation")]
    pub(crate) fn log_floor(&self) -> u64 {
        self.active()
            .map_or(0, |active| active.raft().store().floor().0)
    }

    /// Begins to change the members. `answer` gets the outcome.
    pub(crate) fn change(&mut self, change: MembershipChange, answer: ChangeAnswer) {
        let shared = &self.context.shared;
        match &mut self.participation {
            Participation::Active(active) if shared.tickets.is_serving() => {
                active.begin_change(&mut self.context, &self.founding, change, answer);
            }
            _ => {
                let leader = shared.leader();
                let other = leader.filter(|leader| *leader != self.context.options.me);
                let error = match other {
                    Some(leader) => ChangeError::NotLeader { leader },
                    None => ChangeError::NoLeader,
                };
                *answer.lock() = Some(Err(error));
                shared.notify();
            }
        }
    }

    /// Requests a snapshot soon, behind which the log begins.
    pub(crate) fn request_snapshot(&mut self) {
        if let Participation::Active(active) = &mut self.participation {
            active.request_snapshot();
        }
    }

    /// Gives up leading for good: waiting transactions fail.
    pub(crate) fn abdicate(&mut self) {
        if let Participation::Active(active) = &mut self.participation {
            active.abdicate(&mut self.context);
        }
        self.context.shared.set_leader(None);
    }

    /// Steps aside while this member cannot write, so that another member can lead.
    pub(crate) fn step_aside(&mut self) {
        if let Participation::Active(active) = &mut self.participation {
            active.step_aside(&mut self.context);
        }
    }

    /// Notes that messages to a node do not arrive at the moment.
    pub(crate) fn note_unreachable(&mut self, node: NodeId) {
        if let Participation::Active(active) = &mut self.participation {
            active.note_unreachable(node);
        }
    }

    /// Notes that the member cannot write its log at the moment.
    pub(crate) fn note_log_trouble(&mut self, failure: &MemberFailure) {
        let note = format!("{failure}; it goes on as soon as its log can be written");
        if self.context.notes.log_trouble.as_ref() != Some(&note) {
            tracing::error!("{note}");
            self.context.notes.log_trouble = Some(note);
            self.report();
        }
    }

    /// Notes that the log can be written.
    pub(crate) fn note_log_written(&mut self) {
        if self.context.notes.log_trouble.take().is_some() {
            tracing::info!("the log can be written again");
            self.context.changed = true;
        }
    }

    /// Notes that there is a link to a node, or that the link was refused for this reason.
    pub(crate) fn note_link(&mut self, node: NodeId, refused: Option<String>, now: Duration) {
        self.context.changed |= self.context.notes.note_link(node, refused, now);
    }

    /// Notes that the link of a second process that takes part as a node was refused.
    pub(crate) fn note_duplicate(&mut self, node: NodeId, now: Duration) {
        self.context.changed |= self.context.notes.note_duplicate(node, now);
    }

    /// Updates the status, and informs those who wait for changes.
    fn report(&mut self) {
        let changed = std::mem::take(&mut self.context.changed);
        let status = self.describe();
        let shared = &self.context.shared;
        let mut published = shared.status.lock();
        let is_new = published.role != status.role || published.leader != status.leader;
        *published = status;
        drop(published);
        if changed || is_new {
            shared.notify();
        }
    }

    fn describe(&self) -> Status {
        let context = &self.context;
        let active = self.active();
        let (snapshot_refused, difference) = active.map_or((None, None), ActiveMember::problems);
        let refused_for = context.options.election * REFUSAL_NOTED;
        let now = context.now.since;
        let note = context
            .notes
            .text(snapshot_refused, difference, now, refused_for);
        let mut status = Status {
            role: Role::Blank,
            leader: context.shared.leader(),
            leaderships: context.shared.tickets.leaderships(),
            note,
            log_trouble: context.notes.log_trouble.clone(),
            ..Status::new(context.options.me)
        };
        if let Some(active) = active {
            active.describe(context, &mut status);
        }
        status
    }
}

/// Rebuilds the state from the newest snapshot, and starts to take part with the log.
fn recover(
    context: &mut MemberContext,
    mut log: RaftLog,
    mut state: StateMachine,
) -> Result<ActiveMember, MemberFailure> {
    if let Some(dir) = context.dir() {
        let disk = &context.storage.disk;
        match newest(disk, dir)? {
            Some(file) => {
                log.recover_snapshot(&file.head.meta)?;
                state.load(disk, &file.path)?;
            }
            None => log.recover_without_snapshot()?,
        }
    }
    let silent_until = if log.hard_state().term > 0 {
        // The member may have promised the leader that it followed before not to vote for a while.
        context.now.since + context.options.election
    } else {
        Duration::ZERO
    };
    ActiveMember::start(context, log, state, silent_until)
}
