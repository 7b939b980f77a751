//! The figures of a server at one moment, which `INFO` and the admin endpoint both show.
//!
//! Each figure is exact by itself; they are read one after another, so that sums of several may be
//! off by what happens meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin::process::Process;
use cluster::ramp::slots;
use replica::{Role, Status};
use store::{CheckpointStatus, RecoveryReport, Stats};

use crate::config::Durability;
use crate::partition::Replicated;
use crate::routing::ClusterFigures;
use crate::shared::Shared;

/// See the module's description.
pub(crate) struct Figures<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) uptime: Duration,
    pub(crate) clients: usize,
    pub(crate) traffic: Traffic,
    /// Bytes of memory above which commands that need more are refused; 0: no limit.
    pub(crate) memory_limit: u64,
    pub(crate) store: Stats,
    pub(crate) checkpoints: CheckpointStatus,
    pub(crate) recovery: &'a RecoveryReport,
    pub(crate) process: Process,
    /// The figures of transactions with other nodes, if this is a node of a cluster.
    pub(crate) cluster: Option<ClusterFigures>,
    /// The figures of the slots that clients read by themselves, if this is a node of a cluster;
    /// zeros if there are none.
    pub(crate) published: Option<slots::Figures>,
    /// The figures of this node's replica, if its partition is replicated.
    pub(crate) replication: Option<Replication>,
    /// Connections that wait for keys that a transaction over several nodes holds.
    pub(crate) parked: u64,
    /// Connections whose commands wait for the end of a pause.
    pub(crate) postponed: u64,
}

/// The figures of a node's replica.
pub(crate) struct Replication {
    pub(crate) status: Status,
    stale: Option<Duration>,
}

impl Replication {
    fn now(own: &Replicated) -> Replication {
        Replication {
            status: own.member().status(),
            stale: own.member().staleness(),
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.status.role == Role::Leader
    }

    /// Returns the greatest age of the node's data, if it is known.
    pub(crate) fn staleness(&self) -> Option<Duration> {
        if self.leads() {
            Some(Duration::ZERO)
        } else {
            self.stale
        }
    }

    /// Returns the number of members with a vote.
    pub(crate) fn voters(status: &Status) -> u64 {
        let voters = status.members.iter().filter(|member| member.voter);
        voters.count() as u64
    }

    /// Returns the number of voting members that the leader has heard from lately.
    pub(crate) fn heard(status: &Status) -> u64 {
        let voters = status.members.iter().filter(|member| member.voter);
        voters.filter(|member| member.active).count() as u64
    }

    /// Returns the number of entries that the slowest member lacks, among those heard from lately.
    pub(crate) fn lag(status: &Status) -> u64 {
        let heard = status.members.iter().filter(|member| member.active);
        let lags = heard.map(|member| status.last.saturating_sub(member.matched));
        lags.max().unwrap_or(0)
    }
}

/// The traffic of clients.
#[derive(Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    /// Commands of all kinds, refused ones among them.
    pub(crate) commands: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Replies that are errors.
    pub(crate) errors: u64,
    /// Attempts to authenticate that were refused.
    pub(crate) auth_failures: u64,
    /// Keys that commands looked up to read and found; and those that they did not find.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Figures<'_> {
    /// Collects the figures.
    pub(crate) fn now(shared: &Shared) -> Figures<'_> {
        let counters = &shared.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // The kinds are read before their sum, so that the rest is never negative.
        let (reads, writes) = (of(&counters.reads), of(&counters.writes));
        Figures {
            shared,
            uptime: shared.started.elapsed(),
            clients: shared.clients.count(),
            traffic: Traffic {
                accepted: of(&counters.connections),
                rejected: of(&counters.rejected),
                commands: of(&counters.commands),
                reads,
                writes,
                errors: of(&counters.errors),
                auth_failures: of(&counters.auth_failures),
                hits: of(&counters.hits),
                misses: of(&counters.misses),
                bytes_in: of(&counters.bytes_in),
                bytes_out: of(&counters.bytes_out),
            },
            memory_limit: of(&shared.memory.most),
            store: shared.partition.stats(),
            checkpoints: shared.partition.checkpoint_status(),
            recovery: shared.partition.recovery(),
            process: Process::now(),
            cluster: shared.routes.as_ref().map(|routes| routes.figures()),
            published: match &shared.published {
                Some(published) => Some(published.slots().figures()),
                None => shared.routes.as_ref().map(|_| slots::Figures::default()),
            },
            replication: shared
                .partition
                .replicated()
                .map(|own| Replication::now(own)),
            parked: of(&counters.parked),
            postponed: of(&counters.postponed),
        }
    }

    /// Returns `true` if there is a log. Without one no data survives the process.
    pub(crate) fn is_durable(&self) -> bool {
        self.shared.config.data.is_some()
    }

    /// Returns the promise of replies, in the words of the command line.
    pub(crate) fn durability(&self) -> &'static str {
        match (self.is_durable(), self.shared.config.durability) {
            (false, _) => "ephemeral",
            (true, Durability::Group) => "group",
            (true, Durability::Async) => "async",
        }
    }

    /// Returns the number of epochs between the newest durable one and the newest one.
    pub(crate) fn lag_epochs(&self) -> u64 {
        let Stats {
            epoch,
            durable_epoch,
            ..
        } = self.store;
        epoch.0.saturating_sub(durable_epoch.0)
    }

    /// Returns the number of commands that neither read nor write the store, or were refused before
    /// they could.
    pub(crate) fn other_commands(&self) -> u64 {
        let traffic = &self.traffic;
        traffic
            .commands
            .saturating_sub(traffic.reads)
            .saturating_sub(traffic.writes)
    }

    /// Returns when the last checkpoint was finished, in milliseconds since the Unix epoch; without
    /// one, when the server started, with all that it had recovered.
    pub(crate) fn last_save_ms(&self) -> u64 {
        last_save_ms(self.shared, &self.checkpoints)
    }
}

/// As [`Figures::last_save_ms`], for callers that need only this figure.
pub(crate) fn last_save_ms(shared: &Shared, checkpoints: &CheckpointStatus) -> u64 {
    match &checkpoints.last {
        Some(last) => last.finished_ms,
        None => unix_ms(shared.started_at),
    }
}

/// Returns a time as milliseconds since the Unix epoch.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
