//! The loop of one thread: its connections, its worker, its turns.
//!
//! In a turn the runtime waits for events → takes the messages of other nodes → serves each
//! connection that is ready (at most one read, or one slice of a long command, each) → lets the
//! node make progress, if there is one → writes the replies that may leave, once for each
//! connection → asks once for the durability that the others wait for.
//!
//! Invariants:
//! 1. Events are edge-triggered, in both directions; a connection's state remembers
//!    whether the socket has input or is full. No system call but the read and the write is made
//!    for a command.
//! 2. A connection whose client takes no replies is closed when these, and its input, have no room
//!    any more in the memory that all connections share. No connection waits for another.
//! 3. Before it sleeps with waiting replies, the thread has announced that and checked once more
//!    what is durable (see [`RuntimeSignal`](crate::runtime_signal::RuntimeSignal)): no wake-up is lost. The same holds
//!    for transactions that wait for keys.

mod accept;
mod blocking;
mod eviction;
mod expired_fields;
mod idle;
mod invalidations;
mod messages;
mod monitoring;
mod newcomers;
mod nodes;
mod settle;
mod setup;
mod snapshots;
mod stop;
mod tasks;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::Epoch;
use cluster::Finished;
use reactor::accept::AcceptSchedule;
use reactor::newcomers::Newcomers;
use reactor::{Network, SocketEvent};
use slab::Slab;

use crate::command_timing::CommandTiming;
use crate::commands;
use crate::connection::Connection;
use crate::coordination::{CoordinationCaller, NodeLinks};
use crate::eviction_pace::EvictionPace;
use crate::execution::Executor;
use crate::held_messages::HeldMessages;
use crate::input::{self, CommandBatch};
use crate::limits::{KEEP_ALIVE, READ_BUFFER};
use crate::partition::Worker;
use crate::pending_command::PendingCommand;
use crate::read_tracking;
use crate::runtime_context::RuntimeContext;
use crate::runtime_signal::RuntimeSignal;
use crate::server_state::ServerState;

/// The tokens of the listeners; those of connections are their numbers.
const LISTENER: usize = usize::MAX - 1;
const TLS_LISTENER: usize = usize::MAX - 2;
/// The listeners whose connections do not speak TLS; links to other nodes have an encryption of their own.
pub(crate) const UNENCRYPTED: [usize; 2] = [LISTENER, setup::FIRST_TOKEN];
/// The interval at which a stopping runtime checks if its time is over.
const STOP_TICK: Duration = Duration::from_millis(20);

/// The network of one runtime, and its sockets that accept connections, which are bound.
pub(crate) struct Endpoints<N> {
    pub(crate) network: N,
    /// Of clients that do not encrypt.
    pub(crate) plain: TcpListener,
    /// Of clients that speak TLS.
    pub(crate) tls: Option<TcpListener>,
    /// Of other nodes.
    pub(crate) fabric: Option<TcpListener>,
}

/// See the module's description.
pub(crate) struct Runtime<N: Network> {
    index: usize,
    network: N,
    /// The sockets that accept connections; none while the server stops.
    listeners: Vec<ClientListener<N::Listener>>,
    executor: Executor,
    /// The links to other nodes, if the server is a node of a cluster.
    links: Option<NodeLinks<N>>,
    connections: Slab<Connection>,
    /// The connections' streams, under the same numbers.
    streams: Slab<N::Stream>,
    /// Events of the current turn, kept for its memory.
    events: Vec<SocketEvent>,
    buffer: Box<[u8]>,
    batch: CommandBatch,
    lists: Lists,
    /// Output buffers of connections that are idle.
    pool: Vec<Vec<u8>>,
    accepting: AcceptSchedule,
    /// Connections whose clients have not given the password.
    newcomers: Newcomers<usize>,
    /// The newest epoch whose durability was requested.
    requested: Epoch,
    /// The latest time, since the server's start, until which a request for a newer epoch is put
    /// off.
    deferred_until: Option<Duration>,
    /// The time, since the server's start, before which syncs on this thread are not tried.
    sync_here_from: Duration,
    /// When the server began to stop, and the number of turns since then.
    stopping: Option<(Instant, u32)>,
    /// The latest time at which a task that waits must be looked at.
    tasks_due: Option<Duration>,
    /// When clients must be looked at that wait for keys, and their numbers.
    blocked_until: BTreeSet<(Duration, usize)>,
    /// The latest time at which unused snapshots must be looked at.
    snapshots_due: Option<Duration>,
    /// When idle connections must be looked at, if there is a limit on idle time.
    idle_due: Option<Duration>,
    /// When expired fields of hashes must be removed.
    fields_due: Option<Duration>,
    /// The hash of which some were removed, and more are left.
    expiring_hash: Option<Vec<u8>>,
    /// When failed commands must be summed up, if there are any.
    failures_due: Option<Duration>,
    /// The count of releases when tasks that wait for holds were last looked at.
    releases: u64,
    /// More has come from other nodes than was taken.
    more_from_nodes: bool,
    /// Messages that clients have published and that must not be sent yet.
    held_messages: HeldMessages,
    /// Messages of clients wait to be sent to other nodes.
    has_published: bool,
    /// Outcomes of transactions over several nodes, kept for its memory.
    finished: Vec<Finished<CoordinationCaller>>,
}

/// A socket that accepts clients.
struct ClientListener<L> {
    socket: L,
    /// `true` if its clients speak TLS.
    over_tls: bool,
}

/// Connections that need work, by number.
#[derive(Default)]
struct Lists {
    /// Those to serve in the next turn.
    ready: Vec<usize>,
    /// Those to write to at the end of this turn.
    touched: Vec<usize>,
    /// Those whose replies wait for durability.
    waiting: Vec<usize>,
    /// Those whose task waits, in the order in which they began to; some may have gone in the
    /// meantime.
    tasks: Vec<usize>,
    /// Those that may have a snapshot open; some may have gone in the meantime.
    snapshots: Vec<usize>,
    /// Lists that are being worked off, kept for their memory.
    spare: Vec<usize>,
}

impl Lists {
    fn ready(&mut self, key: usize, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.state.in_ready, true) {
            self.ready.push(key);
        }
    }

    fn touched(&mut self, key: usize, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.state.in_touched, true) {
            self.touched.push(key);
        }
    }

    fn task(&mut self, key: usize, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.state.in_tasks, true) {
            self.tasks.push(key);
        }
    }

    fn waiting(&mut self, key: usize, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.state.in_waiting, true) {
            self.waiting.push(key);
        }
    }
}

impl<N: Network> Runtime<N> {
    pub(crate) fn new(
        index: usize,
        endpoints: Endpoints<N>,
        mut worker: Worker,
        shared: Arc<ServerState>,
    ) -> std::io::Result<Runtime<N>> {
        let mut network = endpoints.network;
        network.set_keep_alive(KEEP_ALIVE);
        let plain = (endpoints.plain, LISTENER, false);
        let tls = endpoints.tls.map(|socket| (socket, TLS_LISTENER, true));
        let listeners = [Some(plain), tls].into_iter().flatten();
        let listeners = listeners.map(|(socket, token, over_tls)| {
            let socket = network.listen(socket, token)?;
            Ok(ClientListener { socket, over_tls })
        });
        let listeners = listeners.collect::<std::io::Result<Vec<_>>>()?;
        let cluster = setup::join(&shared, index, &mut network, endpoints.fabric)?;
        let (cluster, links) = cluster.unzip();
        worker.gather();
        let in_flight = Arc::clone(&shared.in_flight);
        Ok(Runtime {
            newcomers: setup::newcomer_places(&shared),
            index,
            network,
            listeners,
            links,
            executor: Executor {
                table: commands::table(),
                worker,
                context: RuntimeContext::new(shared, index),
                cluster,
                ended: None,
                gives_input: false,
                closing_writes: Vec::new(),
                timing: CommandTiming::new(),
                eviction: EvictionPace::default(),
            },
            connections: Slab::new(),
            streams: Slab::new(),
            events: Vec::new(),
            buffer: vec![0; READ_BUFFER].into(),
            batch: CommandBatch::default(),
            lists: Lists::default(),
            pool: Vec::new(),
            accepting: AcceptSchedule::default(),
            requested: Epoch::ZERO,
            deferred_until: None,
            sync_here_from: Duration::ZERO,
            stopping: None,
            tasks_due: None,
            blocked_until: BTreeSet::new(),
            snapshots_due: None,
            idle_due: None,
            fields_due: None,
            expiring_hash: None,
            failures_due: None,
            releases: 0,
            more_from_nodes: false,
            held_messages: HeldMessages::new(&in_flight),
            has_published: false,
            finished: Vec::new(),
        })
    }

    fn signal(&self) -> &RuntimeSignal {
        &self.executor.context.shared.signals[self.index]
    }

    /// Runs until the server has stopped.
    pub(crate) fn run(mut self) {
        loop {
            let timeout = self.timeout();
            let mut events = std::mem::take(&mut self.events);
            let waited = match &self.links {
                Some(links) => links.wait(&mut self.network, &mut events, timeout),
                None => self.network.wait(&mut events, timeout),
            };
            if let Err(error) = waited {
                tracing::error!(%error, runtime = self.index, "cannot wait for events");
                break;
            }
            self.executor.context.now = self.executor.context.shared.started.elapsed();
            let woken = self.signal().is_woken();
            for &event in &events {
                match event.token {
                    LISTENER | TLS_LISTENER => self.accepting.note_listener(),
                    setup::FIRST_TOKEN.. => self.note_fabric_event(event),
                    _ => self.note_event(event),
                }
            }
            let is_quiet = events.is_empty() && !woken && self.network.has_looked();
            events.clear();
            self.events = events;
            if woken {
                self.on_wake();
            }
            self.accept();
            self.close_late_newcomers();
            self.close_idle();
            self.sum_up_failures();
            let heard = self.hear_nodes();
            if is_quiet && !heard && self.deferred_until.is_some() {
                // Nothing more has come.
                self.deferred_until = Some(Duration::ZERO);
            }
            self.look_at_tasks(woken);
            self.end_waits();
            self.look_at_snapshots();
            self.serve_ready();
            self.executor.continue_closing_writes();
            self.remove_expired_fields();
            self.evict(!is_quiet || heard);
            self.settle();
            if self.is_over() {
                break;
            }
        }
        self.close_links();
        for (_, mut connection) in std::mem::take(&mut self.connections) {
            self.executor.take_write(&mut connection);
            self.executor
                .context
                .shared
                .clients
                .remove(connection.session.client.id);
        }
        while self.executor.has_closing_writes() {
            self.executor.continue_closing_writes();
        }
    }

    /// Returns the time for which to sleep.
    fn timeout(&mut self) -> Option<Duration> {
        let lists = &self.lists;
        let more = !lists.ready.is_empty()
            || !lists.touched.is_empty()
            || self.more_from_nodes
            || self.executor.has_closing_writes();
        if more || self.deferred_until.is_some() || self.misses_a_release() {
            return Some(Duration::ZERO);
        }
        let pause = self.stopping.is_some().then_some(STOP_TICK);
        pause.into_iter().chain(self.due_in()).min()
    }

    fn note_event(&mut self, event: SocketEvent) {
        let key = event.token;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let state = &mut connection.state;
        if event.ended {
            state.end_seen = true;
        }
        if event.readable || state.end_seen {
            state.readable = true;
            self.lists.ready(key, connection);
        }
        if event.writable && connection.state.full {
            connection.state.full = false;
            self.lists.touched(key, connection);
        }
    }

    /// Handles a wake-up: durability advanced, a checkpoint has ended, or a stop or a kill was
    /// requested.
    fn on_wake(&mut self) {
        self.signal().awake();
        self.executor.context.refresh_all();
        self.touch_waiting();
        self.take_received();
        for lines in self.signal().take_monitored() {
            self.deliver_monitored(&lines);
        }
        if self.signal().kills.swap(false, Ordering::SeqCst) {
            for (key, connection) in &mut self.connections {
                if connection.session.client.killed.load(Ordering::SeqCst) {
                    connection.state.dead = true;
                    self.lists.touched(key, connection);
                }
            }
        }
        if self.stopping.is_none() && self.executor.context.shared.is_stopping() {
            self.begin_stop();
        }
    }

    fn serve_ready(&mut self) {
        if self.lists.ready.is_empty() {
            return;
        }
        self.executor.worker.refresh();
        self.executor.context.refresh_durable();
        self.executor.begin_timing();
        let mut ready =
            std::mem::replace(&mut self.lists.ready, std::mem::take(&mut self.lists.spare));
        for &key in &ready {
            self.serve(key);
        }
        ready.clear();
        self.lists.spare = ready;
        self.send_monitored();
        self.count();
    }

    /// Adds the counts of this turn to those that all runtimes share.
    fn count(&mut self) {
        let context = &mut self.executor.context;
        let counters = &context.shared.counters;
        if context.errors > 0 {
            counters.errors.fetch_add(context.errors, Ordering::Relaxed);
            context.errors = 0;
            context
                .shared
                .statistics
                .add_errors(&mut context.error_codes);
        }
        if !context.failures.is_empty() {
            let due = context
                .shared
                .failures
                .add(&mut context.failures, context.now);
            self.failures_due.get_or_insert(due);
        }
        if context.commands > 0 {
            counters
                .commands
                .fetch_add(context.commands, Ordering::Relaxed);
            context.commands = 0;
            let lookups = &context.lookups;
            counters
                .hits
                .fetch_add(lookups.hits.take(), Ordering::Relaxed);
            counters
                .misses
                .fetch_add(lookups.misses.take(), Ordering::Relaxed);
            counters
                .reads
                .fetch_add(std::mem::take(&mut context.reads), Ordering::Relaxed);
            counters
                .writes
                .fetch_add(std::mem::take(&mut context.writes), Ordering::Relaxed);
            counters
                .bytes_in
                .fetch_add(std::mem::take(&mut context.bytes_in), Ordering::Relaxed);
            counters
                .bytes_out
                .fetch_add(std::mem::take(&mut context.bytes_out), Ordering::Relaxed);
        }
    }

    /// Logs the commands that failed in the last interval.
    fn sum_up_failures(&mut self) {
        let context = &self.executor.context;
        if self.failures_due.is_some_and(|due| due <= context.now) {
            self.failures_due = None;
            for line in context.shared.failures.sum_up(context.now) {
                tracing::warn!("{line}");
            }
        }
    }

    /// Gives a connection its turn.
    fn serve(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.state.in_ready = false;
        if connection.session.closing || connection.state.dead {
            return self.lists.touched(key, connection);
        }
        connection.session.output.borrow_buffer(&mut self.pool);
        if matches!(connection.pending, Some(PendingCommand::Blocked)) && connection.state.end_seen
        {
            // Nothing is taken for a client that has gone.
            connection.state.dead = true;
        } else if connection.pending.is_some() {
            self.executor.resume(connection);
            self.executor.end_slice(connection);
        } else if connection.state.stalled {
            input::resume(&mut self.executor, connection, &mut self.batch);
        } else if connection.state.readable {
            let mut source = input::Source {
                network: &mut self.network,
                stream: &mut self.streams[key],
            };
            let count = input::read(
                &mut self.executor,
                connection,
                &mut source,
                &mut self.buffer,
                &mut self.batch,
            );
            self.executor.context.bytes_in += count as u64;
            connection.session.publish_activity(&self.executor.context);
        }
        if connection.state.ended && !connection.state.stalled && connection.pending.is_none() {
            connection.session.closing = true;
        }
        self.lists.touched(key, connection);
    }

    fn close(&mut self, key: usize) {
        let mut connection = self.connections.remove(key);
        self.executor.take_write(&mut connection);
        if let Some(place) = connection.newcomer {
            self.newcomers.leave(place);
        }
        connection.session.output.clear();
        let due = connection.state.blocked_until;
        if let Some(due) = due {
            self.blocked_until.remove(&(due, key));
        }
        let context = &mut self.executor.context;
        context.end_monitor(key);
        read_tracking::end_tracking(context, &mut connection.session);
        let subscriptions = &mut connection.session.subscriptions;
        context
            .subscribers
            .unsubscribe_all(&context.shared.channels, key, subscriptions);
        self.network.close(self.streams.remove(key));
        self.executor
            .context
            .shared
            .clients
            .remove(connection.session.client.id);
    }
}
