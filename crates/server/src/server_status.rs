//! The status of a server at one moment: the numbers, which `INFO` and the admin endpoint both show.
//!
//! Each number is exact by itself; they are read one after another, so that sums of several may be
//! off by what happens meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admin::process::Process;
use cluster::ramp::slots;
use replica::{Role, Status};
use store::{CheckpointStatus, KeyStats, RecoveryReport, Stats};

use crate::config::Durability;
use crate::partition::Replicated;
use crate::routing::ClusterStatistics;
use crate::server_state::ServerState;

/// See the module's description.
pub(crate) struct ServerStatus<'a> {
    pub(crate) server: &'a ServerState,
    pub(crate) uptime: Duration,
    pub(crate) clients: usize,
    /// Clients that subscribe to channels.
    pub(crate) subscribers: usize,
    pub(crate) traffic: ClientTraffic,
    /// Bytes of memory above which commands that need more are refused; 0: no limit.
    pub(crate) memory_limit: u64,
    pub(crate) store: Stats,
    /// The keys of each database.
    pub(crate) databases: Vec<(u16, KeyStats)>,
    pub(crate) checkpoints: CheckpointStatus,
    pub(crate) recovery: &'a RecoveryReport,
    pub(crate) process: Process,
    /// The state of transactions with other nodes, if this is a node of a cluster.
    pub(crate) cluster: Option<ClusterStatistics>,
    /// The state of the slots that clients read by themselves, if this is a node of a cluster;
    /// zeros if there are none.
    pub(crate) published: Option<slots::Figures>,
    /// The state of this node's replica, if its partition is replicated.
    pub(crate) replication: Option<ReplicaStatus>,
    /// Connections that wait for keys that a transaction over several nodes holds.
    pub(crate) lock_waits: u64,
    /// Connections whose commands wait for the end of a pause.
    pub(crate) paused: u64,
}

/// The state of a node's replica.
pub(crate) struct ReplicaStatus {
    pub(crate) status: Status,
    stale: Option<Duration>,
}

impl ReplicaStatus {
    fn now(own: &Replicated) -> ReplicaStatus {
        ReplicaStatus {
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
    pub(crate) fn active_voters(status: &Status) -> u64 {
        let voters = status.members.iter().filter(|member| member.voter);
        voters.filter(|member| member.active).count() as u64
    }

    /// Returns the number of entries that the slowest member lacks, among those heard from lately.
    pub(crate) fn lag(status: &Status) -> u64 {
        let active = status.members.iter().filter(|member| member.active);
        let lags = active.map(|member| status.last.saturating_sub(member.matched));
        lags.max().unwrap_or(0)
    }
}

/// The traffic of clients.
#[derive(Clone, Copy)]
pub(crate) struct ClientTraffic {
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
    /// Messages of channels, each for every subscriber who got it.
    pub(crate) messages: u64,
}

impl ServerStatus<'_> {
    /// Collects it.
    pub(crate) fn now(server: &ServerState) -> ServerStatus<'_> {
        let counters = &server.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // The kinds are read before their sum, so that the rest is never negative.
        let (reads, writes) = (of(&counters.reads), of(&counters.writes));
        ServerStatus {
            server,
            uptime: server.started.elapsed(),
            clients: server.clients.count(),
            subscribers: server.clients.subscribers(),
            traffic: ClientTraffic {
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
                messages: of(&counters.messages),
            },
            memory_limit: of(&server.memory.limit),
            store: server.partition.stats(),
            databases: server.partition.key_stats(),
            checkpoints: server.partition.checkpoint_status(),
            recovery: server.partition.recovery(),
            process: Process::now(),
            cluster: server.routes.as_ref().map(|routes| routes.statistics()),
            published: match &server.published {
                Some(published) => Some(published.slots().figures()),
                None => server.routes.as_ref().map(|_| slots::Figures::default()),
            },
            replication: server
                .partition
                .replicated()
                .map(|own| ReplicaStatus::now(own)),
            lock_waits: of(&counters.lock_waits),
            paused: of(&counters.paused),
        }
    }

    /// Returns `true` if there is a log. Without one no data survives the process.
    pub(crate) fn is_durable(&self) -> bool {
        self.server.config.data.is_some()
    }

    /// Returns the promise of replies, in the words of the command line.
    pub(crate) fn durability(&self) -> &'static str {
        match (self.is_durable(), self.server.config.durability) {
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
        self.server.last_save_ms(&self.checkpoints)
    }
}
