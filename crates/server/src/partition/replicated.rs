//! A replicated partition in the server: the member, and its share of the server's figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use base::epochs::EpochClock;
use parking_lot::Mutex;
use replica::{MembershipChange, Role, Status};
use store::{CheckpointRefused, CheckpointReport, CheckpointStatus, RecoveryReport, Stats};

use crate::replication::{Member, Progress, Report};
use crate::unix_time::unix_ms;

/// How long a requested snapshot may take.
const LONGEST_SNAPSHOT: Duration = Duration::from_secs(600);
/// The interval at which the server checks if the snapshot is there.
const SNAPSHOT_POLL: Duration = Duration::from_millis(10);
/// How long handing over the leadership may delay a server that stops.
pub(crate) const HANDOVER: Duration = Duration::from_secs(3);

/// Why there is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// Another one is under way; it may be awaited.
    #[error("one is being made")]
    AlreadyRunning,
    /// The node has no data yet. A later call may succeed.
    #[error("this node is no member of its partition yet")]
    NoMember,
    /// The member has failed, or could not write the snapshot.
    #[error("{0}")]
    Failed(String),
    /// It was not there after [`LONGEST_SNAPSHOT`]; it may still be made.
    #[error("it takes too long; the server's log may say why")]
    TimedOut,
}

/// See the module's description.
pub struct Replicated {
    member: Arc<replica::ReplicatedPartition>,
    recovery: RecoveryReport,
    saving: AtomicBool,
    saves: Mutex<CheckpointStatus>,
}

impl Replicated {
    /// Creates it from a member and the report of its recovery.
    #[must_use]
    pub fn new(
        member: Arc<replica::ReplicatedPartition>,
        mut recovery: RecoveryReport,
    ) -> Replicated {
        recovery.keys = member.engine().stats().keys;
        Replicated {
            member,
            recovery,
            saving: AtomicBool::new(false),
            saves: Mutex::default(),
        }
    }

    /// Returns the member.
    #[must_use]
    pub fn member(&self) -> &Arc<replica::ReplicatedPartition> {
        &self.member
    }

    /// Returns what recovery found at the start.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Hands the leadership over to another member, if this one leads.
    pub(crate) fn hand_over(&self) {
        if !self.member.is_leader() {
            return;
        }
        tracing::info!("handing over the leadership before stopping");
        match self
            .member
            .change(MembershipChange::Transfer(None), HANDOVER)
        {
            Ok(()) => tracing::info!(leader = ?self.member.leader(), "another node leads now"),
            Err(error) => tracing::warn!(%error, "the leadership was not handed over"),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let (engine, status) = (self.member.engine().stats(), self.member.status());
        Stats {
            keys: engine.keys,
            expiring: engine.expiring,
            mean_deadline_ms: engine.mean_deadline_ms,
            memory_bytes: engine.memory_bytes,
            epoch: self.member.engine().epochs().current(),
            durable_epoch: self.member.engine().applied(),
            commits: engine.commits,
            conflicts: engine.conflicts,
            prepared: self.member.prepared(),
            kept_versions: engine.kept_versions,
            evicted: engine.evicted,
            eviction_exceeded_ms: engine.eviction_exceeded_ms,
            expired: engine.expired,
            clock_steps: engine.clock_steps,
            log_bytes: status.log_bytes,
            log_syncs: status.syncs,
            journal_failure: self.member.failed().or(status.log_trouble),
            ..Stats::default()
        }
    }

    pub(crate) fn checkpoint_status(&self) -> CheckpointStatus {
        CheckpointStatus {
            running: self.saving.load(Ordering::SeqCst),
            ..self.saves.lock().clone()
        }
    }

    /// Begins a snapshot in the background.
    pub(crate) fn request_checkpoint(self: &Arc<Self>) -> Result<(), CheckpointRefused> {
        if self.saving.load(Ordering::SeqCst) {
            return Err(CheckpointRefused::AlreadyRunning);
        }
        let partition = Arc::clone(self);
        let wait = move || {
            if let Err(reason) = partition.checkpoint() {
                tracing::error!(%reason, "a client asked for a snapshot, and there is none");
            }
        };
        let thread = std::thread::Builder::new().name("save".to_owned());
        let started = thread.spawn(wait);
        started.map_err(|error| CheckpointRefused::Failed(error.to_string()))?;
        Ok(())
    }

    /// Makes a snapshot of the applied entries, and waits for it.
    pub(crate) fn checkpoint(&self) -> Result<CheckpointReport, SnapshotError> {
        if self.saving.swap(true, Ordering::SeqCst) {
            return Err(SnapshotError::AlreadyRunning);
        }
        let (start, started_at) = (Instant::now(), SystemTime::now());
        self.saves.lock().started_ms = Some(unix_ms(started_at));
        let made = self.make();
        let mut saves = self.saves.lock();
        let outcome = match made {
            Ok(index) => {
                let report = CheckpointReport {
                    epoch: base::Epoch(index),
                    entries: self.member.engine().stats().keys,
                    elapsed: start.elapsed(),
                    finished_ms: unix_ms(SystemTime::now()),
                    ..CheckpointReport::default()
                };
                saves.completed += 1;
                saves.last = Some(report.clone());
                saves.last_error = None;
                Ok(report)
            }
            Err(reason) => {
                saves.failed += 1;
                saves.last_error = Some(reason.to_string());
                Err(reason)
            }
        };
        saves.started_ms = None;
        drop(saves);
        self.saving.store(false, Ordering::SeqCst);
        outcome
    }

    /// Makes a snapshot of everything that is applied now. Returns its index.
    fn make(&self) -> Result<u64, SnapshotError> {
        let before = self.member.status();
        if before.role == Role::Blank {
            return Err(SnapshotError::NoMember);
        }
        let wanted = self.member.engine().applied().0;
        self.member.snapshot();
        let start = Instant::now();
        while start.elapsed() < LONGEST_SNAPSHOT {
            let status = self.member.status();
            let made = status.snapshot;
            if made >= wanted {
                return Ok(made);
            }
            if let Some(reason) = self.member.failed() {
                return Err(SnapshotError::Failed(reason));
            }
            if status.snapshot_failures.0 > before.snapshot_failures.0 {
                let reason = status.snapshot_failures.1;
                return Err(SnapshotError::Failed(reason.unwrap_or_default()));
            }
            std::thread::sleep(SNAPSHOT_POLL);
        }
        Err(SnapshotError::TimedOut)
    }

    /// Returns what the node reports about its replica.
    pub(crate) fn report(&self, partition: u16) -> Report {
        let status = self.member.status();
        let stale = self.member.staleness().filter(|_| !self.member.is_leader());
        Report {
            partition,
            node: status.node.0,
            role: status.role.name().to_owned(),
            leader: status.leader.map(|node| node.0),
            term: status.term,
            last: status.last,
            committed: status.committed,
            applied: status.applied,
            snapshot: status.snapshot,
            stale_ms: stale.map(|stale| stale.as_millis() as u64),
            receiving: status.receiving.map(Progress::from),
            members: members(&status),
            note: self.member.failed().or(status.note),
        }
    }
}

fn members(status: &Status) -> Vec<Member> {
    let members = status.members.iter().map(|member| Member {
        node: member.node.0,
        id: member.raft_id,
        voter: member.voter,
        active: member.active,
        matched: member.matched,
        snapshot: member.snapshot.map(Progress::from),
    });
    members.collect()
}
