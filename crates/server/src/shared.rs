//! The state that the runtimes of one server share.

use std::cell::Cell;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use base::Epoch;
use base::log_limit::LogLimit;
use base::versions::ReadAtomic;
use budget::Budget;
use cluster::ramp::Published;
use reactor::{Io, Wake};

use crate::clients::Clients;
use crate::config::Config;
use crate::cursors::Cursors;
use crate::failures::{Failures, SharedFailures};
use crate::partition::Partition;
use crate::pause::Pause;
use crate::routing::Routes;
use crate::snapshots::Places;
use crate::statistics::{Recorder, Statistics};

pub(crate) struct Shared {
    pub(crate) partition: Partition,
    pub(crate) config: Config,
    /// The keys that are read atomic.
    pub(crate) read_atomic: ReadAtomic,
    /// The place where the newest versions of them are published, if they are.
    pub(crate) published: Option<Arc<Published>>,
    /// How the runtimes wait for their connections.
    pub(crate) io: Io,
    /// The port that the server listens on.
    pub(crate) port: u16,
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
    /// A name of this process of the server.
    pub(crate) run_id: String,
    pub(crate) clients: Clients,
    pub(crate) cursors: Cursors,
    /// The places for snapshots that clients have open.
    pub(crate) snapshots: Places,
    pub(crate) memory: MemoryWatch,
    /// The memory that connections use for requests and replies.
    pub(crate) in_flight: Arc<Budget>,
    /// The routes of the cluster, if this is a node of one.
    pub(crate) routes: Option<Arc<Routes>>,
    pub(crate) counters: Counters,
    /// The statistics of each command and each kind of error.
    pub(crate) statistics: Statistics,
    /// One for each runtime.
    pub(crate) signals: Vec<Signal>,
    pub(crate) stopping: AtomicBool,
    pub(crate) pause: Pause,
    /// Commands that failed since they were last summed up.
    pub(crate) failures: SharedFailures,
    /// The server is about to stop, and hands the leadership over before that.
    pub(crate) handing_over: AtomicBool,
    /// The journal has failed.
    pub(crate) failed: AtomicBool,
    /// The number of times that the tickets of replies may have changed, where epochs can be lost:
    /// durability does not show a loss.
    pub(crate) changes: AtomicU64,
}

/// Counters of events since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) auth_failures: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    /// Connections that now wait for keys that a transaction over several nodes holds.
    pub(crate) parked: AtomicU64,
    /// Connections whose commands now wait for the end of a pause.
    pub(crate) postponed: AtomicU64,
}

impl Shared {
    /// Returns the server's mode, in Redis's words.
    pub(crate) fn mode(&self) -> &'static str {
        match self.routes {
            Some(_) => "cluster",
            None => "standalone",
        }
    }

    /// Makes every runtime finish the requests that it has received and stop.
    pub(crate) fn stop(self: &Arc<Self>) {
        let Some(own) = self.partition.replicated() else {
            return self.stop_now();
        };
        // Clients are better off with the next leader before this one refuses them.
        if self.handing_over.swap(true, Ordering::SeqCst) {
            return;
        }
        let (shared, own) = (Arc::clone(self), Arc::clone(own));
        let hand_over = move || {
            own.hand_over();
            shared.stop_now();
        };
        let thread = std::thread::Builder::new().name("hand-over".to_owned());
        if let Err(error) = thread.spawn(hand_over) {
            tracing::warn!(%error, "stopping without handing over the leadership");
            self.stop_now();
        }
    }

    fn stop_now(&self) {
        // Commands that wait for the end of a pause are executed before the server stops.
        self.pause.end_now();
        self.stopping.store(true, Ordering::SeqCst);
        self.signals.iter().for_each(Signal::wake);
    }

    /// Wakes the runtimes that wait: durability has advanced, or never will.
    pub(crate) fn durable_changed(&self) {
        let failed = self.partition.failed();
        let before = self.failed.swap(failed.is_some(), Ordering::SeqCst);
        match failed {
            Some(reason) if !before => tracing::error!("{reason}"),
            None if before => tracing::info!("the log is written again; writes are accepted"),
            _ => {}
        }
        self.note_leader();
        // Pairs with the fence in `Signal::wait`: either this sees that the runtime waits, or the
        // runtime sees what became durable before this was called.
        std::sync::atomic::fence(Ordering::SeqCst);
        for signal in &self.signals {
            if signal.waiting.load(Ordering::Relaxed) {
                signal.wake();
            }
        }
    }

    /// Sets the bytes of memory above which commands that need more are refused; 0: no limit.
    pub(crate) fn limit_memory(&self, bytes: u64) {
        self.memory.most.store(bytes, Ordering::Relaxed);
        self.partition.limit_memory(bytes);
        let used = self.partition.memory_bytes();
        if bytes > 0 && used > bytes {
            tracing::warn!(
                "the keys use {used} bytes of memory, and maxmemory is {bytes}: commands that need \
                 memory are refused until keys are deleted or maxmemory is raised"
            );
        }
    }

    /// Records who leads a replicated partition, and that something has changed.
    pub(crate) fn note_leader(&self) {
        let Some(own) = self.partition.replicated() else {
            return;
        };
        if let Some(routes) = &self.routes
            && let Some(partition) = routes.own
        {
            routes.leaders.learn(partition, own.member().leader());
        }
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes the runtimes that wait for keys: some have been given back.
    pub(crate) fn holds_released(&self) {
        // As in `durable_changed`.
        std::sync::atomic::fence(Ordering::SeqCst);
        for signal in &self.signals {
            if signal.held.load(Ordering::Relaxed) {
                signal.wake();
            }
        }
    }
}

/// Wakes one runtime.
///
/// Invariant: a runtime that sleeps with waiting replies has announced that by [`Signal::wait`] and
/// afterwards checked once more what is durable; one that sleeps with transactions that wait for
/// keys has announced that by [`Signal::hold`] and checked once more what was given back.
pub(crate) struct Signal {
    waker: Box<dyn Wake>,
    /// `true` if it has replies that wait for durability.
    waiting: AtomicBool,
    /// `true` if it has transactions that wait for keys that others hold.
    held: AtomicBool,
    /// `true` if it has been woken and has not handled that yet: one wake-up suffices.
    woken: AtomicBool,
    /// `true` if another connection has requested that one of its connections is closed.
    pub(crate) kills: AtomicBool,
}

impl Signal {
    pub(crate) fn new(waker: impl Wake) -> Signal {
        let no = || AtomicBool::new(false);
        Signal {
            waker: Box::new(waker),
            waiting: no(),
            held: no(),
            woken: no(),
            kills: no(),
        }
    }

    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Returns `true` if it has been woken and has not handled that yet.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// Announces if the runtime, which is about to sleep, has waiting replies.
    pub(crate) fn wait(&self, waiting: bool) {
        if self.waiting.load(Ordering::Relaxed) != waiting {
            self.waiting.store(waiting, Ordering::SeqCst);
        }
        if waiting {
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// Announces if the runtime, which is about to sleep, has transactions that wait for keys.
    pub(crate) fn hold(&self, held: bool) {
        if self.held.load(Ordering::Relaxed) != held {
            self.held.store(held, Ordering::SeqCst);
        }
        if held {
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// Records that the runtime is awake and will check everything.
    pub(crate) fn awake(&self) {
        if self.woken.load(Ordering::Relaxed) {
            self.woken.store(false, Ordering::SeqCst);
        }
    }
}

/// Knows if the store uses more memory than it should. Asking the store has a cost, so that its
/// answer is used for a few milliseconds, or until much has been written.
pub(crate) struct MemoryWatch {
    /// The limit in bytes; 0: none.
    pub(crate) most: AtomicU64,
    used: AtomicU64,
    /// Bytes of commands since `used` was read.
    written: AtomicU64,
    /// Milliseconds from the server's start to when `used` was read.
    asked_ms: AtomicU64,
}

/// The time for which an answer is used, and the bytes after which it is not.
const MEMORY_AGE: Duration = Duration::from_millis(10);
const MEMORY_WRITTEN: u64 = 1 << 20;

impl MemoryWatch {
    pub(crate) fn new(most: u64) -> MemoryWatch {
        MemoryWatch {
            most: AtomicU64::new(most),
            used: AtomicU64::new(0),
            written: AtomicU64::new(0),
            asked_ms: AtomicU64::new(0),
        }
    }

    /// Returns `true` if a command that brings `bytes` must be refused. `now` is the time since the
    /// server's start.
    pub(crate) fn is_full(&self, partition: &Partition, now: Duration, bytes: usize) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        if most == 0 {
            return false;
        }
        let now = now.as_millis() as u64;
        let written = self.written.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let age = now.saturating_sub(self.asked_ms.load(Ordering::Relaxed));
        if age >= MEMORY_AGE.as_millis() as u64 || written >= MEMORY_WRITTEN {
            self.asked_ms.store(now, Ordering::Relaxed);
            self.written.store(0, Ordering::Relaxed);
            self.used.store(partition.memory_bytes(), Ordering::Relaxed);
        }
        self.used.load(Ordering::Relaxed) > most
    }
}

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

/// The state that one runtime uses while it executes commands.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    /// `true` if replies wait for durability.
    pub(crate) group: bool,
    /// Everything up to this epoch is durable; refreshed in each turn of the loop.
    pub(crate) durable: Epoch,
    /// Why no later epoch will become durable.
    pub(crate) failed: Option<String>,
    /// `true` if an epoch can be lost and a later one not.
    pub(crate) can_lose: bool,
    /// [`Shared::changes`] when it was last read.
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
    /// Those replies by their first word.
    pub(crate) error_kinds: Vec<(Box<str>, u64)>,
    /// Commands that failed since they were last added to the shared ones.
    pub(crate) failures: Failures,
    /// Limits log lines that clients cause, by their kind.
    log_limit: LogLimit<&'static str>,
    /// This runtime's counters of each command.
    pub(crate) recorder: Recorder,
    pub(crate) lookups: Lookups,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// `true` if the command that runs is one of a `MULTI` block.
    pub(crate) in_block: bool,
    /// A client has asked for the leaders of other partitions.
    pub(crate) wants_leaders: bool,
}

impl Context {
    pub(crate) fn new(shared: Arc<Shared>, runtime: usize) -> Context {
        let group = shared.config.durability == crate::config::Durability::Group;
        let durable = shared.partition.durable();
        Context {
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
            error_kinds: Vec::new(),
            failures: Failures::default(),
            log_limit: LogLimit::new(LOG_INTERVAL),
            lookups: Lookups::default(),
            bytes_in: 0,
            bytes_out: 0,
            in_block: false,
            wants_leaders: false,
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
        let kind = crate::statistics::kind_of(error);
        match self.error_kinds.iter_mut().find(|(own, _)| **own == *kind) {
            Some((_, count)) => *count += 1,
            None => self.error_kinds.push((kind.into(), 1)),
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
