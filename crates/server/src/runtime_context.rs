//! The state that one runtime uses while it executes commands.

use std::cell::Cell;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Epoch;
use base::log_limit::LogLimit;

use crate::command_statistics::CommandRecorder;
use crate::config::Durability;
use crate::failures::CommandFailures;
use crate::interpreter_pool::InterpreterPool;
use crate::refusal::error_code;
use crate::script_registry::LastScript;
use crate::server_state::ServerState;
use channels::SubscriberTable;

/// The interval at which clients can cause one log line of each kind, in each runtime.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Keys that commands of one runtime looked up to read, since they were last added to the shared counters.
#[derive(Default)]
pub(crate) struct Lookups {
    pub(crate) hits: Cell<u64>,
    pub(crate) misses: Cell<u64>,
}

impl Lookups {
    #[inline]
    pub(crate) fn count(&self, found: bool) {
        let counter = if found { &self.hits } else { &self.misses };
        counter.set(counter.get() + 1);
    }
}

/// See the module's description.
pub(crate) struct RuntimeContext {
    pub(crate) shared: Arc<ServerState>,
    /// `true` if replies wait for durability.
    pub(crate) group: bool,
    /// Everything up to this epoch is durable; refreshed in each turn of the loop.
    pub(crate) durable: Epoch,
    /// Why no later epoch will become durable.
    pub(crate) failed: Option<String>,
    /// `true` if an epoch can be lost and a later one not.
    pub(crate) can_lose: bool,
    /// [`ServerState::changes`] when it was last read.
    pub(crate) changes: u64,
    /// Time since the server's start, as of this turn of the loop.
    pub(crate) now: Duration,
    /// Commands executed since they were last added to the shared counter.
    pub(crate) commands: u64,
    /// Those of them that read the store, and those that write to it.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Replies that are errors.
    pub(crate) errors: u64,
    /// Those replies by the code of the error.
    pub(crate) error_codes: Vec<(Box<str>, u64)>,
    /// Commands that failed since they were last added to the shared ones.
    pub(crate) failures: CommandFailures,
    /// Limits log lines that clients cause, by their kind.
    log_limit: LogLimit<&'static str>,
    /// This runtime's counters of each command.
    pub(crate) recorder: CommandRecorder,
    pub(crate) lookups: Lookups,
    /// The subscribers among this runtime's clients.
    pub(crate) subscribers: SubscriberTable,
    pub(crate) interpreters: InterpreterPool,
    pub(crate) last_script: LastScript,
    /// The connections of this runtime that monitor the server.
    pub(crate) monitors: Vec<usize>,
    /// Lines for monitors, of the commands of this turn.
    pub(crate) monitored: Vec<u8>,
    /// The number of this runtime.
    runtime: usize,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// `true` if the command that runs is one of a `MULTI` block.
    pub(crate) in_block: bool,
    /// A client has asked for the leaders of other partitions.
    pub(crate) wants_leaders: bool,
    /// A transaction in slices has committed since the last sync.
    pub(crate) has_large_commit: bool,
}

impl RuntimeContext {
    pub(crate) fn new(shared: Arc<ServerState>, runtime: usize) -> RuntimeContext {
        let group = shared.config.durability == Durability::Group;
        let durable = shared.partition.durable();
        RuntimeContext {
            group,
            durable: if group {
                durable.epoch
            } else {
                Epoch(u64::MAX)
            },
            failed: durable.failed,
            can_lose: shared.partition.can_lose(),
            changes: 0,
            now: shared.started.elapsed(),
            recorder: shared.statistics.recorder(runtime),
            shared,
            commands: 0,
            reads: 0,
            writes: 0,
            errors: 0,
            error_codes: Vec::new(),
            failures: CommandFailures::default(),
            log_limit: LogLimit::new(LOG_INTERVAL),
            lookups: Lookups::default(),
            subscribers: SubscriberTable::new(runtime),
            interpreters: InterpreterPool::default(),
            last_script: LastScript::default(),
            monitors: Vec::new(),
            monitored: Vec::new(),
            runtime,
            bytes_in: 0,
            bytes_out: 0,
            in_block: false,
            has_large_commit: false,
            wants_leaders: false,
        }
    }

    /// Has connection `key` monitor the server.
    pub(crate) fn begin_monitor(&mut self, key: usize) {
        if !self.monitors.contains(&key) {
            self.monitors.push(key);
            self.shared.monitors.add(self.runtime);
        }
    }

    /// Ends that connection `key` monitors the server, if it does.
    pub(crate) fn end_monitor(&mut self, key: usize) {
        if let Some(at) = self.monitors.iter().position(|&monitor| monitor == key) {
            self.monitors.swap_remove(at);
            self.shared.monitors.remove(self.runtime);
        }
    }

    /// Logs what a client has caused, at a limited rate for each `kind`.
    #[cold]
    pub(crate) fn warn(&mut self, client: SocketAddr, kind: &'static str, text: impl Display) {
        match self.log_limit.count(kind, self.now) {
            Some(left_out) => tracing::warn!(%client, "{text}{left_out}"),
            None => tracing::debug!(%client, "{text}"),
        }
    }

    /// Counts a reply that is an error, given its bytes.
    #[cold]
    pub(crate) fn note_error(&mut self, error: &[u8]) {
        self.errors += 1;
        let code = error_code(error);
        match self.error_codes.iter_mut().find(|(own, _)| **own == *code) {
            Some((_, count)) => *count += 1,
            None => self.error_codes.push((code.into(), 1)),
        }
    }

    /// Updates what is durable. Cheap enough for every turn of the loop.
    pub(crate) fn refresh_durable(&mut self) {
        if self.failed.is_some() != self.shared.failed.load(Ordering::Relaxed) {
            self.refresh_all();
        } else if self.group {
            self.durable = self.shared.partition.durable_epoch();
        }
    }

    /// Updates what is durable and whether the journal has failed.
    pub(crate) fn refresh_all(&mut self) {
        if self.can_lose {
            self.changes = self.shared.changes.load(Ordering::SeqCst);
        }
        let durable = self.shared.partition.durable();
        if self.group {
            self.durable = durable.epoch;
        }
        self.failed = durable.failed;
    }
}
