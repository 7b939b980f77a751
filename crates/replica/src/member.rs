//! One member of a replicated partition: all of it except for threads, sockets and clocks.
//!
//! The Raft algorithm is a library's; around it:
//!
//! | module | concept |
//! |---|---|
//! | `founding` | the start of the first members; the joining of a member whose disk is empty |
//! | `incoming` | checks of other members' messages |
//! | `leading` | submissions go into the log in groups; leadership begins and ends |
//! | `turn` | the work that Raft asks for: append, sync, send, in this order |
//! | `apply` | entries become state, on every member alike |
//! | `reads` | rounds of messages that show that no other member leads; leases |
//! | `snapshots` | making, sending, receiving and loading them |
//! | `comparison` | the comparison of all members' states |
//! | `job` | background work |
//! | `membership` | members come and go by command; leadership is handed over |
//! | `report` | the member's status |
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

mod apply;
mod comparison;
mod founding;
mod incoming;
mod job;
mod leading;
mod membership;
mod reads;
mod report;
mod snapshots;
mod turn;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{NodeId, TransactionId};
use disk::Disk;
use engine::Applier;
use raft::{Config, RawNode};

use crate::deadlines::Deadlines;
use crate::log::{Log, LogError, LogOptions};
use crate::messages::Envelope;
use crate::options::{ELECTION_TICKS, Grouping, MemberOptions};
use crate::shared::Shared;
use crate::snapshot::SnapshotError;
use crate::status::node_of;
use crate::time::Now;
use comparison::Comparison;
use founding::Founding;
use incoming::Claims;
pub(crate) use incoming::Received;
pub(crate) use membership::Answer;
use membership::Changing;
pub use membership::{Change, NOT_WAITING};
use reads::Rounds;
pub(crate) use report::copy_of;
use snapshots::Snapshots;

/// The reason why a member cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A snapshot cannot be read or written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The members have agreed upon an entry that this release cannot understand.
    #[error(
        "entry {index} cannot be applied: {what}. All members have it; start the release that wrote \
         it, or a newer one"
    )]
    Entry {
        /// The index of the entry.
        index: u64,
        /// The problem with the entry.
        what: String,
    },
    /// The log lacks entries that this member has acknowledged.
    #[error(
        "the data directory is older than what this member has acknowledged: its log ends at entry {last}, and \
         the leader knows it to have entry {acknowledged}. Stop this node, delete its data directory, start it \
         again, and run \"kumiki cluster add --node {node}\""
    )]
    Outdated {
        /// The last entry of the log.
        last: u64,
        /// An entry that the member has acknowledged.
        acknowledged: u64,
        /// This node.
        node: NodeId,
    },
    /// The Raft library returns an error that should be impossible.
    #[error("the Raft group cannot go on: {0}")]
    Raft(String),
}

impl Failure {
    /// Returns `true` if the operation may succeed later: nothing was lost.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Failure::Log(error) if error.may_retry())
    }

    /// Returns `true` if the disk has no space.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Failure::Log(error) => error.is_full(),
            Failure::Snapshot(error) => error.is_full(),
            _ => false,
        }
    }
}

/// Runs background work of the member: on a thread of its own, or at once.
pub(crate) type Spawn = Box<dyn FnMut(Box<dyn FnOnce() + Send>) + Send>;

/// The place of a member's data.
pub(crate) struct Place {
    /// The disk.
    pub(crate) disk: Arc<dyn Disk>,
    /// The directory, which exists. If it is `None`, the log is in memory, and there are no
    /// snapshots.
    pub(crate) dir: Option<PathBuf>,
    /// The options of the log.
    pub(crate) log: LogOptions,
}

/// An entry that was proposed and is not applied yet.
struct Pending {
    index: u64,
    release: Option<TransactionId>,
    number: Option<u64>,
    client: u64,
    bytes: usize,
}

/// A turn whose ticket has not resolved.
struct Open {
    ticket: u64,
    /// The last entry that it took; 0 if it took none.
    last: u64,
    /// The round of messages that its reads wait for; 0 if they wait for none.
    round: u64,
}

/// See the module's description.
pub(crate) struct Member {
    options: MemberOptions,
    shared: Arc<Shared>,
    place: Place,
    spawn: Spawn,
    applier: Applier,
    /// The empty log, while the disk is empty.
    blank: Option<Log>,
    raft: Option<RawNode<Log>>,
    founding: Founding,
    now: Now,
    next_tick: Duration,
    random: fastrand::Rng,
    /// The term, role and leader when the election time-out was drawn last.
    drawn_for: (u64, raft::StateRole, u64),
    timeout: usize,
    /// The term in which this member leads, if it does.
    leading: Option<u64>,
    /// The rest of Raft's work, from the sync on, if the sync failed.
    unsynced: Option<raft::Ready>,
    /// The last commit index that was sent to followers, and the time at which a later one is to be
    /// sent.
    told: u64,
    tell_at: Option<Duration>,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    open: VecDeque<Open>,
    rounds: Rounds,
    /// The term in which the leadership was to be handed over: a message may still be in transit
    /// that lets another member be elected in spite of a lease.
    handed_over_in: u64,
    applied: u64,
    applied_term: u64,
    /// The greatest stamp of the applied entries.
    stamp_ms: u64,
    /// Deadlines of keys that the log has not said to have passed.
    deadlines: Deadlines,
    next_expiry: Duration,
    snapshots: Snapshots,
    comparison: Comparison,
    changing: Option<Changing>,
    /// The member is about to hand the leadership over, and admits no transaction.
    draining: bool,
    outbox: Vec<(NodeId, Vec<u8>)>,
    groups: u64,
    entries: u64,
    changed: bool,
    next_report: Duration,
    /// A member must not vote after its start while the leader that it followed before may hold a
    /// lease.
    silent_until: Duration,
    note: Option<String>,
    /// The reason why the log cannot be written at the moment.
    trouble: Option<String>,
    /// The reasons for which links to nodes were refused.
    refused: BTreeMap<NodeId, String>,
    /// Nodes of which there was a copy, and the time at which its link was refused last.
    copies: BTreeMap<NodeId, Duration>,
    /// The claims of leaders that this member has acknowledged more than it has.
    claims: Option<Claims>,
}

impl Member {
    /// Reads the data in `place`, and starts. `progress` is called with the number of bytes that
    /// have been read and with their total.
    ///
    /// # Errors
    /// Returns a [`Failure`] that says what cannot be read, and what to do.
    pub(crate) fn open(
        options: MemberOptions,
        shared: Arc<Shared>,
        place: Place,
        spawn: Spawn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Member, Failure> {
        let now = shared.time.now();
        let applier = shared.engine.applier().expect("no other thread applies");
        let log = match &place.dir {
            Some(dir) => {
                let disk = Arc::clone(&place.disk);
                crate::snapshot::tidy(&*disk, dir)?;
                Log::open(disk, dir, place.log.clone(), progress)?
            }
            None => Log::in_memory(),
        };
        let tick = options.tick();
        let mut member = Member {
            random: fastrand::Rng::with_seed(options.seed),
            founding: Founding::default(),
            next_tick: now.since + tick,
            silent_until: Duration::ZERO,
            options,
            shared,
            place,
            spawn,
            applier,
            blank: None,
            raft: None,
            now,
            drawn_for: (0, raft::StateRole::Follower, 0),
            timeout: ELECTION_TICKS,
            leading: None,
            unsynced: None,
            told: 0,
            tell_at: None,
            pending: VecDeque::new(),
            pending_bytes: 0,
            open: VecDeque::new(),
            rounds: Rounds::default(),
            handed_over_in: 0,
            applied: 0,
            applied_term: 0,
            stamp_ms: 0,
            deadlines: Deadlines::default(),
            next_expiry: now.since,
            snapshots: Snapshots::default(),
            comparison: Comparison::default(),
            changing: None,
            draining: false,
            outbox: Vec::new(),
            groups: 0,
            entries: 0,
            changed: true,
            next_report: now.since,
            note: None,
            trouble: None,
            refused: BTreeMap::new(),
            copies: BTreeMap::new(),
            claims: None,
        };
        if log.is_blank() {
            member.blank = Some(log);
        } else {
            member.recover(log)?;
        }
        member.report();
        Ok(member)
    }

    fn recover(&mut self, mut log: Log) -> Result<(), Failure> {
        if let Some(dir) = self.place.dir.clone() {
            match crate::snapshot::newest(&self.place.disk, &dir)? {
                Some(file) => {
                    log.recover_snapshot(&file.head.meta)?;
                    self.load(&file.path)?;
                }
                None => log.recover_without_snapshot()?,
            }
        }
        if log.hard_state().term > 0 {
            // The member may have promised the leader that it followed before not to vote for a
            // while.
            self.silent_until = self.now.since + self.options.election;
        }
        self.start(log)
    }

    /// Starts to take part with a log that is not blank.
    fn start(&mut self, log: Log) -> Result<(), Failure> {
        let config = Config {
            id: log.raft_id(),
            election_tick: ELECTION_TICKS,
            heartbeat_tick: 1,
            applied: self.applied,
            max_size_per_msg: self.options.message as u64,
            max_inflight_msgs: 256,
            check_quorum: true,
            pre_vote: true,
            // In this release of the library it adds entries to messages that they do not follow.
            batch_append: false,
            // Followers learn the commit index from the next group: see `tell_committed`.
            skip_bcast_commit: self.options.grouping != Grouping::Naive,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&config, log, &logger);
        self.raft = Some(raft.map_err(|error| Failure::Raft(error.to_string()))?);
        self.draw_timeout();
        self.changed = true;
        Ok(())
    }

    fn take(&mut self, from: NodeId, envelope: Envelope<'_>) -> Result<(), Failure> {
        match envelope {
            Envelope::Raft(message) => self.step(message),
            Envelope::Hello(hello) => self.on_hello(from, hello),
            Envelope::Invite { raft_id } => self.on_invite(raft_id),
            Envelope::Piece {
                to,
                announces,
                total,
                offset,
                piece,
            } => self.on_piece(to, announces, (total, offset), piece),
            Envelope::HowFar { asked } => {
                self.on_how_far(from, asked);
                Ok(())
            }
            Envelope::Committed { term, index, asked } => {
                self.on_committed(term, index, asked);
                Ok(())
            }
            Envelope::Taken {
                from,
                index,
                offset,
            } => self.on_taken(from, index, offset),
            Envelope::Compare { index } => {
                self.on_compare(from, index);
                Ok(())
            }
            Envelope::State { index, hash } => {
                self.on_hash(from, index, hash);
                Ok(())
            }
        }
    }

    /// Returns the time without messages of a leader after which a follower wants to be elected.
    pub(crate) fn election(&self) -> Duration {
        self.options.election
    }

    /// Returns the messages that are to be sent, with their receivers.
    pub(crate) fn outbox(&mut self) -> &mut Vec<(NodeId, Vec<u8>)> {
        &mut self.outbox
    }

    fn send(&mut self, to: NodeId, envelope: &Envelope<'_>) {
        if to != self.options.me {
            self.outbox.push((to, envelope.encode()));
        }
    }

    /// Notes that messages to a node do not arrive at the moment.
    pub(crate) fn unreachable(&mut self, node: NodeId) {
        if let Some(raft) = &mut self.raft {
            let ids: Vec<u64> = raft.raft.prs().iter().map(|(id, _)| *id).collect();
            for id in ids.into_iter().filter(|id| node_of(*id) == node) {
                raft.report_unreachable(id);
            }
        }
    }

    /// Returns the time, as [`Now::since`], at which [`Member::turn`] is due even if nothing has
    /// come.
    #[must_use]
    pub(crate) fn due(&self) -> Duration {
        self.tell_at
            .map_or(self.next_tick, |at| at.min(self.next_tick))
    }

    /// Returns `true` if another turn would have work to do at once.
    #[must_use]
    pub(crate) fn has_more(&self) -> bool {
        self.raft.as_ref().is_some_and(RawNode::has_ready) || self.may_propose()
    }

    /// Returns the last entry that was removed from the log.
    #[cfg(feature = "simulation")]
    pub(crate) fn log_floor(&self) -> u64 {
        self.raft.as_ref().map_or(0, |raft| raft.store().floor().0)
    }

    /// Returns the directory of the member's files, if it has one.
    fn dir(&self) -> Option<&Path> {
        self.place.dir.as_deref()
    }

    fn draw_timeout(&mut self) {
        let Some(raft) = &mut self.raft else { return };
        let state = (raft.raft.term, raft.raft.state, raft.raft.leader_id);
        if state != self.drawn_for {
            self.drawn_for = state;
            self.timeout = self.random.usize(ELECTION_TICKS..2 * ELECTION_TICKS);
        }
        // The library draws from a generator of its own, which the seed does not control.
        raft.raft.set_randomized_election_timeout(self.timeout);
    }
}
