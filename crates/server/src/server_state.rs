//! The state that the runtimes of one server share.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use base::Tid;
use base::eviction::{EvictionPolicy, EvictionSettings};
use base::key_event::KeyEvent;
use base::versions::ReadAtomic;
use cluster::ramp::PublishedSlots;
use parking_lot::Mutex;
use reactor::Io;
use reactor::budget::Budget;
use replica::{Role, Status};
use store::CheckpointStatus;

use crate::acl_log::AclLog;
use crate::blocked_clients::BlockedClients;
use crate::client_pause::ClientPause;
use crate::clients::ClientRegistry;
use crate::command_statistics::CommandStatistics;
use crate::config::Config;
use crate::cursors::Cursors;
use crate::database_selection::DatabaseLimits;
use crate::failures::SharedFailures;
use crate::function_libraries::LibraryCache;
use crate::key_events::{EventClasses, KeyEvents};
use crate::latency_monitor::LatencyMonitor;
use crate::memory_watch::MemoryWatch;
use crate::monitors::MonitorRegistry;
use crate::partition::Partition;
use crate::routing::Routes;
use crate::runtime_signal::RuntimeSignal;
use crate::script_registry::ScriptRegistry;
use crate::settings::ChangeableSettings;
use crate::slow_log::SlowLog;
use crate::snapshot_permits::SnapshotPermits;
use crate::tracking::TrackingTable;
use crate::unix_time::unix_ms;
use channels::ChannelRegistry;

/// How often, and at which interval, it is looked whether all commits report changes of keys.
const ANNOUNCEMENT_LOOKS: u32 = 100;
const ANNOUNCEMENT_PAUSE: Duration = Duration::from_micros(20);

/// See the module's description.
pub(crate) struct ServerState {
    pub(crate) partition: Partition,
    pub(crate) config: Config,
    /// The keys that are read atomic.
    pub(crate) read_atomic: ReadAtomic,
    /// The place where the newest versions of them are published, if they are.
    pub(crate) published: Option<Arc<PublishedSlots>>,
    /// How the runtimes wait for their connections.
    pub(crate) io: Io,
    /// The port that the server listens on.
    pub(crate) port: u16,
    /// The port that it listens on for clients that speak TLS; 0: none.
    pub(crate) tls_port: u16,
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
    /// A name of this process of the server.
    pub(crate) run_id: String,
    pub(crate) clients: ClientRegistry,
    pub(crate) channels: ChannelRegistry,
    pub(crate) monitors: MonitorRegistry,
    pub(crate) key_events: KeyEvents,
    pub(crate) tracking: TrackingTable,
    /// The clients that wait for keys to have something.
    pub(crate) blocked: BlockedClients,
    /// Locked while the store is asked to report changes of keys, or not to.
    listening: Mutex<()>,
    pub(crate) cursors: Cursors,
    pub(crate) scripts: ScriptRegistry,
    pub(crate) libraries: LibraryCache,
    /// The number of the next transaction that holds keys.
    pub(crate) holds: AtomicU64,
    /// The number of snapshots that clients have open.
    pub(crate) snapshots: SnapshotPermits,
    pub(crate) memory: MemoryWatch,
    pub(crate) settings: ChangeableSettings,
    /// The memory that connections use for requests and replies.
    pub(crate) in_flight: Arc<Budget>,
    /// The routes of the cluster, if this is a node of one.
    pub(crate) routes: Option<Arc<Routes>>,
    pub(crate) counters: ServerCounters,
    /// The statistics of each command and each kind of error.
    pub(crate) statistics: CommandStatistics,
    pub(crate) slow_log: SlowLog,
    pub(crate) latency: LatencyMonitor,
    pub(crate) acl_log: AclLog,
    /// One for each runtime.
    pub(crate) signals: Arc<[RuntimeSignal]>,
    pub(crate) stopping: AtomicBool,
    pub(crate) pause: ClientPause,
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
pub(crate) struct ServerCounters {
    pub(crate) connections: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Messages of channels, each for every subscriber who got it.
    pub(crate) messages: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) auth_failures: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    /// Connections that now wait for keys that a transaction over several nodes holds.
    pub(crate) lock_waits: AtomicU64,
    /// Connections whose commands now wait for the end of a pause.
    pub(crate) paused: AtomicU64,
}

impl ServerState {
    /// Returns the databases that clients can select.
    pub(crate) fn database_limits(&self) -> DatabaseLimits {
        DatabaseLimits {
            count: self.config.databases,
            in_cluster: self.routes.is_some(),
        }
    }

    /// Creates the state of a server at these addresses, the second for TLS. `commands` are the names of the commands, by
    /// number; `signals` are those of the runtimes.
    pub(crate) fn new(
        partition: Partition,
        config: Config,
        (address, tls, io): (SocketAddr, Option<SocketAddr>, Io),
        signals: Vec<RuntimeSignal>,
        commands: Vec<&'static str>,
    ) -> ServerState {
        let random = RandomState::new();
        let run_id = (0..3u8)
            .map(|part| format!("{:016x}", random.hash_one(part)))
            .collect::<String>();
        ServerState {
            snapshots: SnapshotPermits::default(),
            cursors: Cursors::new(config.limits.cursors, config.limits.cursor_bytes),
            scripts: ScriptRegistry::default(),
            libraries: LibraryCache::default(),
            // Transactions of the cluster have random numbers.
            holds: AtomicU64::new(random.hash_one("holds")),
            memory: MemoryWatch::new(config.maxmemory),
            settings: ChangeableSettings::new(&config.limits),
            in_flight: Budget::new(config.limits.in_flight),
            routes: config
                .cluster
                .as_ref()
                .map(|membership| Arc::new(Routes::new(membership, signals.len()))),
            io,
            port: address.port(),
            tls_port: tls.map_or(0, |address| address.port()),
            started: Instant::now(),
            started_at: SystemTime::now(),
            run_id: run_id[..40].to_owned(),
            clients: ClientRegistry::default(),
            channels: ChannelRegistry::new(signals.len()),
            monitors: MonitorRegistry::new(signals.len()),
            key_events: KeyEvents::default(),
            tracking: TrackingTable::default(),
            blocked: BlockedClients::default(),
            listening: Mutex::default(),
            counters: ServerCounters::default(),
            statistics: CommandStatistics::new(signals.len(), commands),
            slow_log: SlowLog::new(config.slow_log_limit, config.slow_log_length),
            latency: LatencyMonitor::new(config.latency_threshold),
            acl_log: AclLog::default(),
            signals: signals.into(),
            stopping: AtomicBool::new(false),
            pause: ClientPause::default(),
            failures: SharedFailures::new(config.failure_summary),
            handing_over: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            read_atomic: config.read_atomic().clone(),
            published: None,
            partition,
            config,
        }
    }

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
        self.signals.iter().for_each(RuntimeSignal::wake);
    }

    /// Wakes the runtimes that wait: durability has advanced, or never will.
    pub(crate) fn durable_changed(&self) {
        let failed = self.partition.failed();
        let had_failed = self.failed.swap(failed.is_some(), Ordering::SeqCst);
        match failed {
            Some(reason) if !had_failed => tracing::error!("{reason}"),
            None if had_failed => tracing::info!("the log is written again; writes are accepted"),
            _ => {}
        }
        self.note_leader();
        // Pairs with the fence in `RuntimeSignal::announce_waiting_replies`: either this sees that the runtime waits, or the
        // runtime sees what became durable before this was called.
        std::sync::atomic::fence(Ordering::SeqCst);
        for signal in self.signals.iter() {
            if signal.has_waiting_replies.load(Ordering::Relaxed) {
                signal.wake();
            }
        }
    }

    /// Sets the bytes of memory above which commands that need more are refused; 0: no limit.
    pub(crate) fn limit_memory(&self, bytes: u64) {
        self.memory.limit.store(bytes, Ordering::Relaxed);
        self.partition.limit_memory(bytes);
        self.memory.ask_again();
        let used = self.partition.memory_bytes();
        if bytes > 0 && used > bytes && !self.memory.evicts.load(Ordering::Relaxed) {
            tracing::warn!(
                "the keys use {used} bytes of memory, and maxmemory is {bytes}: commands that need \
                 memory are refused until keys are deleted or maxmemory is raised"
            );
        }
        self.wake_to_evict();
    }

    /// Changes how keys are evicted.
    pub(crate) fn change_eviction(&self, change: impl FnOnce(&mut EvictionSettings)) {
        let mut settings = self.partition.eviction();
        change(&mut settings);
        self.partition.set_eviction(&settings);
        let evicts = settings.policy != EvictionPolicy::NoEviction;
        self.memory.evicts.store(evicts, Ordering::Relaxed);
        self.memory.ask_again();
        self.wake_to_evict();
    }

    /// Has a runtime evict keys that the present settings have no room for.
    fn wake_to_evict(&self) {
        if self.partition.must_evict(0) {
            self.signals.iter().for_each(RuntimeSignal::wake);
        }
    }

    /// Sets how long a client may send nothing, in seconds; 0: for ever.
    pub(crate) fn limit_idle_time(&self, secs: u64) {
        self.settings.set_idle_secs(secs);
        // A runtime that sleeps may have no reason yet to look at its connections.
        self.signals.iter().for_each(RuntimeSignal::wake);
    }

    /// Sets the classes of events of keys that clients want.
    pub(crate) fn want_events(&self, classes: EventClasses) {
        self.key_events.set_classes(classes);
        self.update_listening();
    }

    /// Has the store report changes of keys exactly while something here wants them.
    pub(crate) fn update_listening(&self) {
        let _one = self.listening.lock();
        let listens =
            self.key_events.wants_any() || self.tracking.clients() > 0 || self.blocked.listens();
        self.partition.listen(listens);
    }

    /// Waits a moment for the end of the commits that may not report the changes that they make. Returns `true` if
    /// they have ended. To be called where no transaction is open.
    pub(crate) fn await_announcements(&self) -> bool {
        for _ in 0..ANNOUNCEMENT_LOOKS {
            if self.partition.announces_all() {
                return true;
            }
            std::thread::sleep(ANNOUNCEMENT_PAUSE);
        }
        false
    }

    /// Sets the most keys in the table of tracked keys; 0: no bound.
    pub(crate) fn limit_tracked_keys(&self, most: usize) {
        if self.tracking.set_most_keys(most) {
            self.signals[0].wake();
        }
    }

    /// Takes an event of a key, from the commit that causes it.
    pub(crate) fn key_changed(&self, key: (u16, &[u8]), event: KeyEvent, tid: Tid) {
        let wakes = [
            self.key_events.add(key, event, tid),
            event != KeyEvent::New && self.tracking.changed(key.1, tid),
        ];
        if wakes.contains(&true) {
            self.signals[0].wake();
        }
        self.blocked.changed(key, event, &self.signals);
    }

    /// Takes the removal of all keys, from the commit that causes it.
    pub(crate) fn keys_flushed(&self, tid: Tid) {
        if self.tracking.flushed(tid) {
            self.signals[0].wake();
        }
        // Of two databases that are exchanged, too.
        self.blocked.changed_all(&self.signals);
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
        if let Some(routes) = &self.routes
            && self.blocked.count() > 0
            && own.member().leader() != Some(routes.me)
        {
            // They are sent to the next leader, or get an error.
            self.blocked.changed_all(&self.signals);
        }
    }

    /// Wakes the runtimes that wait for keys: some have been given back.
    pub(crate) fn holds_released(&self) {
        // As in `durable_changed`.
        std::sync::atomic::fence(Ordering::SeqCst);
        for signal in self.signals.iter() {
            if signal.waits_for_keys.load(Ordering::Relaxed) {
                signal.wake();
            }
        }
    }

    /// Returns `true` if the server is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the status of this node's replica, unless it leads or there is none: then the node is
    /// what Redis calls a master.
    pub(crate) fn follower(&self) -> Option<Status> {
        let status = self.partition.replicated()?.member().status();
        (status.role != Role::Leader).then_some(status)
    }

    /// Returns when the last checkpoint was finished, in milliseconds since the Unix epoch; without
    /// one, when the server started, with all that it had recovered.
    pub(crate) fn last_save_ms(&self, checkpoints: &CheckpointStatus) -> u64 {
        match &checkpoints.last {
            Some(last) => last.finished_ms,
            None => unix_ms(self.started_at),
        }
    }
}

/// Counts a waiting connection for as long as this value lives.
pub(crate) struct CountedWait {
    server: Arc<ServerState>,
    counter: fn(&ServerCounters) -> &AtomicU64,
}

impl CountedWait {
    /// Counts one more connection.
    pub(crate) fn new(
        server: &Arc<ServerState>,
        counter: fn(&ServerCounters) -> &AtomicU64,
    ) -> CountedWait {
        counter(&server.counters).fetch_add(1, Ordering::Relaxed);
        CountedWait {
            server: Arc::clone(server),
            counter,
        }
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        (self.counter)(&self.server.counters).fetch_sub(1, Ordering::Relaxed);
    }
}
