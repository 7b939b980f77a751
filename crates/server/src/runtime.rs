//! The loop of one thread: its connections, its worker, its turns.
//!
//! A turn: wait for events → serve each connection that is ready (at most one read, or one slice
//! of a long command, each) → write what may leave, once for each connection → ask for durability,
//! once, of what the rest waits for.
//!
//! Invariants:
//! 1. A connection is registered once, for both directions, edge-triggered; its state remembers
//!    whether the socket has input or is full. No system call but the read and the write is made
//!    for a command.
//! 2. A connection whose client takes no replies is not read from beyond the soft limit of its
//!    output, and closed beyond the hard one. No connection waits for another.
//! 3. Before sleeping with replies that wait, the thread has said so and looked once more at what
//!    is durable (see [`Signal`](crate::shared::Signal)): no wake-up is lost.

use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Epoch;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use parking_lot::Mutex;
use slab::Slab;
use store::Worker;

use crate::clients::{Client, Names};
use crate::commands;
use crate::connection::Connection;
use crate::executor::Executor;
use crate::input::{self, Batch};
use crate::limits::{POOLED_BUFFERS, POOLED_CAPACITY, READ_BUFFER};
use crate::refusal;
use crate::shared::{Context, Shared, Signal};

pub(crate) const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
/// Events taken at a time.
const EVENTS: usize = 1024;
/// Connections accepted in one turn.
const ACCEPTS: usize = 128;
/// When the system has no descriptor left, accepting is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a stopping runtime looks whether its time is over.
const STOP_TICK: Duration = Duration::from_millis(20);
/// How often asking for a sync is put off while requests keep coming.
const DEFERRALS: u32 = 8;
/// After a sync that took too long for a serving thread, log threads sync for this time.
const SYNC_PAUSE: Duration = Duration::from_secs(1);
/// Turns in which a stopping runtime still reads from one connection.
const STOP_READS: u32 = 1024;

/// See the module's description.
pub(crate) struct Runtime {
    index: usize,
    poll: Poll,
    listener: Option<TcpListener>,
    executor: Executor,
    connections: Slab<Connection>,
    buffer: Box<[u8]>,
    batch: Batch,
    lists: Lists,
    /// Output buffers of connections that are idle.
    pool: Vec<Vec<u8>>,
    /// The listener may have more connections.
    accepting: bool,
    /// The newest epoch that was asked to be made durable.
    requested: Epoch,
    /// How often asking for a newer one was put off.
    deferred: u32,
    /// Syncs on this thread are not tried before this time since the server's start.
    sync_here_from: Duration,
    /// When the server began to stop, and how many turns ago.
    stopping: Option<(Instant, u32)>,
}

/// Connections for which there is something to do, by number.
#[derive(Default)]
struct Lists {
    /// To be served in the next turn.
    ready: Vec<usize>,
    /// To be written to at the end of this turn.
    touched: Vec<usize>,
    /// Whose replies wait for durability.
    waiting: Vec<usize>,
    /// Lists to be worked off, kept for their memory.
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

    fn waiting(&mut self, key: usize, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.state.in_waiting, true) {
            self.waiting.push(key);
        }
    }
}

impl Runtime {
    pub(crate) fn new(
        index: usize,
        poll: Poll,
        mut listener: TcpListener,
        worker: Worker,
        shared: Arc<Shared>,
    ) -> std::io::Result<Runtime> {
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Runtime {
            index,
            poll,
            listener: Some(listener),
            executor: Executor {
                worker,
                context: Context::new(shared),
            },
            connections: Slab::new(),
            buffer: vec![0; READ_BUFFER].into(),
            batch: Batch::default(),
            lists: Lists::default(),
            pool: Vec::new(),
            accepting: false,
            requested: Epoch::ZERO,
            deferred: 0,
            sync_here_from: Duration::ZERO,
            stopping: None,
        })
    }

    fn signal(&self) -> &Signal {
        &self.executor.context.shared.signals[self.index]
    }

    /// Runs until the server has stopped.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let timeout = self.timeout();
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, runtime = self.index, "cannot wait for events");
                break;
            }
            self.executor.context.now = self.executor.context.shared.started.elapsed();
            if events.is_empty() && self.deferred > 0 {
                self.deferred = DEFERRALS;
            }
            let mut woken = false;
            for event in &events {
                match event.token() {
                    WAKER => woken = true,
                    LISTENER => self.accepting = true,
                    Token(key) => self.note_event(key, event),
                }
            }
            if woken {
                self.on_wake();
            }
            if self.accepting {
                self.accept();
            }
            self.serve_ready();
            self.settle();
            if self.is_over() {
                break;
            }
        }
        for (_, connection) in std::mem::take(&mut self.connections) {
            self.executor
                .context
                .shared
                .clients
                .remove(connection.client.id);
        }
    }

    /// How long to sleep.
    fn timeout(&self) -> Option<Duration> {
        if !self.lists.ready.is_empty() || !self.lists.touched.is_empty() {
            Some(Duration::ZERO)
        } else if self.deferred > 0 {
            Some(Duration::ZERO)
        } else if self.stopping.is_some() {
            Some(STOP_TICK)
        } else if self.accepting {
            Some(ACCEPT_PAUSE)
        } else {
            None
        }
    }

    fn note_event(&mut self, key: usize, event: &mio::event::Event) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let state = &mut connection.state;
        if event.is_read_closed() || event.is_error() {
            state.end_seen = true;
        }
        if event.is_readable() || state.end_seen {
            state.readable = true;
            self.lists.ready(key, connection);
        }
        if event.is_writable() && connection.state.full {
            connection.state.full = false;
            self.lists.touched(key, connection);
        }
    }

    /// Someone woke this runtime: durability advanced, or a stop or a kill was asked for.
    fn on_wake(&mut self) {
        self.signal().awake();
        self.executor.context.refresh_all();
        self.touch_waiting();
        if self.signal().kills.swap(false, Ordering::SeqCst) {
            for (key, connection) in &mut self.connections {
                if connection.client.killed.load(Ordering::SeqCst) {
                    connection.state.dead = true;
                    self.lists.touched(key, connection);
                }
            }
        }
        if self.stopping.is_none() && self.executor.context.shared.is_stopping() {
            self.begin_stop();
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else {
                self.accepting = false;
                return;
            };
            match listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.accepting = false;
                    return;
                }
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    return;
                }
            }
        }
    }

    /// Makes a connection of an accepted socket.
    fn admit(&mut self, mut stream: TcpStream, address: std::net::SocketAddr) {
        let shared = Arc::clone(&self.executor.context.shared);
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let Ok(local) = stream.local_addr() else {
            return;
        };
        let descriptor = stream.as_raw_fd();
        let runtime = self.index;
        let client = shared
            .clients
            .add(shared.config.limits.clients, |id| Client {
                id,
                address,
                local,
                descriptor,
                runtime,
                since: Instant::now(),
                names: Mutex::new(Names {
                    last_command: "NULL",
                    ..Names::default()
                }),
                last_ms: AtomicU64::new(0),
                queued: AtomicI64::new(-1),
                protocol: AtomicU8::new(2),
                killed: AtomicBool::new(false),
            });
        let Some(client) = client else {
            shared.counters.rejected.fetch_add(1, Ordering::Relaxed);
            commands::refuse_client(&mut stream);
            return;
        };
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        let both = Interest::READABLE | Interest::WRITABLE;
        let registered = stream
            .set_nodelay(true)
            .and_then(|()| self.poll.registry().register(&mut stream, Token(key), both));
        if let Err(error) = registered {
            tracing::warn!(%error, "cannot serve a connection");
            shared.clients.remove(client.id);
            return;
        }
        let authenticated = shared.config.password.is_none();
        let connection = entry.insert(Connection::new(stream, client, authenticated));
        self.lists.ready(key, connection);
    }

    fn serve_ready(&mut self) {
        if self.lists.ready.is_empty() {
            return;
        }
        self.executor.worker.refresh();
        self.executor.context.refresh_durable();
        let mut ready =
            std::mem::replace(&mut self.lists.ready, std::mem::take(&mut self.lists.spare));
        for &key in &ready {
            self.serve(key);
        }
        ready.clear();
        self.lists.spare = ready;
        self.count();
    }

    /// Adds what was counted since the last turn to what all runtimes count.
    fn count(&mut self) {
        let context = &mut self.executor.context;
        if context.commands > 0 {
            let counters = &context.shared.counters;
            counters
                .commands
                .fetch_add(context.commands, Ordering::Relaxed);
            context.commands = 0;
            if context.errors > 0 {
                counters.errors.fetch_add(context.errors, Ordering::Relaxed);
                context.errors = 0;
            }
            counters
                .bytes_in
                .fetch_add(std::mem::take(&mut context.bytes_in), Ordering::Relaxed);
            counters
                .bytes_out
                .fetch_add(std::mem::take(&mut context.bytes_out), Ordering::Relaxed);
        }
    }

    /// Gives a connection its turn.
    fn serve(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.state.in_ready = false;
        if connection.state.closing || connection.state.dead {
            return self.lists.touched(key, connection);
        }
        connection.output.borrow_buffer(&mut self.pool);
        let soft = self.executor.context.shared.config.limits.output_soft;
        if connection.task.is_some() {
            self.executor.step_task(connection);
        } else if connection.output.pending() > soft {
            // It goes on when its client has taken some: see `settle_one`.
        } else if connection.state.stalled {
            input::resume(&mut self.executor, connection, &mut self.batch);
        } else if connection.state.readable {
            let count = input::read(
                &mut self.executor,
                connection,
                &mut self.buffer,
                &mut self.batch,
            );
            self.executor.context.bytes_in += count as u64;
            commands::note_client(&self.executor.context, connection);
        }
        if connection.state.ended && !connection.state.stalled && connection.task.is_none() {
            connection.state.closing = true;
        }
        self.lists.touched(key, connection);
    }

    /// Ends the turn: writes what may leave, has the rest made durable, and makes sure that it
    /// will be noticed.
    fn settle(&mut self) {
        self.settle_touched();
        while let Some(wanted) = self.wanted() {
            self.signal().wait(false);
            if !self.sync_here(wanted) {
                self.signal().wait(true);
                let before = self.executor.context.durable;
                self.executor.context.refresh_all();
                let context = &self.executor.context;
                if context.durable == before && context.failed.is_none() {
                    return self.request(wanted);
                }
            }
            self.touch_waiting();
            self.settle_touched();
        }
        self.signal().wait(false);
    }

    /// Asks for `epoch` to be made durable; but first looks whether more requests have come, so
    /// that they share the sync: the fewer clients do not wait, the less there is to look for.
    fn request(&mut self, epoch: Epoch) {
        let all_wait = self.lists.waiting.len() == self.connections.len();
        if !all_wait && self.deferred < DEFERRALS && epoch > self.requested {
            self.deferred += 1;
            return;
        }
        self.deferred = 0;
        self.requested = epoch;
        self.executor.context.shared.db.request_durable(epoch);
    }

    /// Makes `epoch` durable on this very thread when all its connections wait for that, so that
    /// there is nothing better to do. Returns whether it did.
    fn sync_here(&mut self, epoch: Epoch) -> bool {
        let context = &mut self.executor.context;
        let all_wait = self.lists.waiting.len() == self.connections.len();
        if !all_wait || !self.lists.ready.is_empty() || context.now < self.sync_here_from {
            return false;
        }
        let longest = context.shared.config.inline_sync;
        let start = Instant::now();
        let done = !longest.is_zero() && context.shared.db.sync_inline(epoch);
        if start.elapsed() > longest {
            // The device is slow; it may be faster some time.
            self.sync_here_from = context.now + SYNC_PAUSE;
        }
        if done {
            context.refresh_all();
        }
        done
    }

    fn touch_waiting(&mut self) {
        for at in 0..self.lists.waiting.len() {
            let key = self.lists.waiting[at];
            if let Some(connection) = self.connections.get_mut(key) {
                self.lists.touched(key, connection);
            }
        }
    }

    /// The newest epoch that a reply waits for. Connections that wait no more leave the list.
    fn wanted(&mut self) -> Option<Epoch> {
        let connections = &mut self.connections;
        let mut wanted = None;
        self.lists.waiting.retain(|&key| {
            let Some(connection) = connections.get_mut(key) else {
                return false;
            };
            let epoch = connection.output.waits_for();
            connection.state.in_waiting = epoch.is_some();
            wanted = wanted.max(epoch);
            epoch.is_some()
        });
        wanted
    }

    fn settle_touched(&mut self) {
        let mut touched = std::mem::replace(
            &mut self.lists.touched,
            std::mem::take(&mut self.lists.spare),
        );
        for &key in &touched {
            self.settle_one(key);
        }
        touched.clear();
        self.lists.spare = touched;
    }

    /// Writes what may leave of one connection's output, and decides how it goes on.
    fn settle_one(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.state.in_touched = false;
        let context = &mut self.executor.context;
        connection.output.release(context.durable);
        if context.failed.is_some() && connection.output.give_up() {
            connection.writer().error(refusal::OUTCOME_UNKNOWN);
            connection.state.closing = true;
        }
        context.bytes_out += write(connection) as u64;
        let limits = &context.shared.config.limits;
        if connection.output.pending() > limits.output_hard {
            tracing::warn!(client = %connection.client.address, "closed: it takes no replies");
            connection.state.dead = true;
        }
        if connection.state.dead || connection.state.closing && connection.output.is_empty() {
            return self.close(key);
        }
        if connection.output.waits_for().is_some() {
            self.lists.waiting(key, connection);
        }
        if let Some(buffer) = connection.output.take_buffer()
            && self.pool.len() < POOLED_BUFFERS
            && buffer.capacity() <= POOLED_CAPACITY
        {
            self.pool.push(buffer);
        }
        let state = &connection.state;
        let more = connection.task.is_some()
            || (state.stalled || state.readable)
                && connection.output.pending() <= limits.output_soft;
        if more && !state.closing {
            self.lists.ready(key, connection);
        }
    }

    fn close(&mut self, key: usize) {
        let mut connection = self.connections.remove(key);
        if let Err(error) = self.poll.registry().deregister(&mut connection.stream) {
            tracing::debug!(%error, "deregistering a connection");
        }
        self.executor
            .context
            .shared
            .clients
            .remove(connection.client.id);
    }

    /// Accepts nothing more, and has every connection read what has come.
    fn begin_stop(&mut self) {
        self.stopping = Some((Instant::now(), 0));
        self.accepting = false;
        if let Some(mut listener) = self.listener.take()
            && let Err(error) = self.poll.registry().deregister(&mut listener)
        {
            tracing::debug!(%error, "deregistering the listener");
        }
        for (key, connection) in &mut self.connections {
            connection.state.readable = true;
            self.lists.ready(key, connection);
        }
    }

    /// Whether the runtime has stopped. While it is stopping, connections that have nothing more
    /// to be read are closed, once their replies are taken.
    fn is_over(&mut self) -> bool {
        let Some((since, turns)) = &mut self.stopping else {
            return false;
        };
        *turns += 1;
        let stop_reading = *turns >= STOP_READS;
        let out_of_time = since.elapsed() >= self.executor.context.shared.config.drain;
        for (key, connection) in &mut self.connections {
            let state = &mut connection.state;
            let idle = !state.readable && !state.stalled && connection.task.is_none();
            if idle || stop_reading {
                state.closing = true;
                self.lists.touched(key, connection);
            }
        }
        self.settle();
        if out_of_time && !self.connections.is_empty() {
            let left = self.connections.len();
            tracing::warn!(
                left,
                "stopped without waiting longer for clients to take replies"
            );
        }
        self.connections.is_empty() || out_of_time
    }
}

/// Writes what may leave. Returns how much the socket took.
fn write(connection: &mut Connection) -> usize {
    let mut taken = 0;
    while !connection.state.full && !connection.state.dead {
        let bytes = connection.output.sendable();
        if bytes.is_empty() {
            break;
        }
        let whole = bytes.len();
        match connection.stream.write(bytes) {
            Ok(count) => {
                connection.output.sent(count);
                taken += count;
                // A socket that took a part is full: it will say when it is not.
                connection.state.full = count < whole;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => connection.state.full = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => connection.state.dead = true,
        }
    }
    taken
}

/// Whether accepting failed because of the connection that was to be accepted.
fn is_of_the_client(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::Interrupted | ErrorKind::ConnectionReset
    )
}
