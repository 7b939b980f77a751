//! The RESP server: any Redis client can use the store through it.
//!
//! Each module uses those above it in this table, and none below:
//!
//! | module | concept |
//! |---|---|
//! | [`limits`] `config_file` [`config`] | sizes that clients control; the file of the options; how a server is set up |
//! | `cursors` `unix_time` `hexadecimal` `bit_field` | positions of scans; times as numbers; bytes as text; numbers among bits |
//! | `function_libraries` | the libraries of functions, as partitions store them |
//! | `refusal` `render` | errors and replies as RESP |
//! | [`replication`] `partition` | what a node says of its replicas; what is served: the partition behind all this |
//! | `output` `clients` | a connection's replies, and the epochs they wait for; the connected clients |
//! | `routing` `coordination` `read_atomic` | in a cluster: where keys lead; transactions with other nodes; what is refused of commands and blocks with read-atomic keys |
//! | `published` | newest versions of read-atomic keys, in memory that clients read by themselves |
//! | `command_statistics` `slow_log` `latency_monitor` `failures` `acl_log` | counters of each command; commands that took long; events that did; failed commands, summed up for the log; refused attempts to authenticate |
//! | `held_messages` | messages of publish/subscribe (crate `channels`) that wait for durability |
//! | `monitors` | clients that are shown the commands of all others |
//! | `handover` `blocked_clients` | who waits for the turns of clients that wait for keys; these clients |
//! | `client_pause` `memory_watch` `eviction_pace` `runtime_signal` `settings` `snapshot_permits` | parts of the state that runtimes share |
//! | `server_state` `runtime_context` | what the runtimes of a server share; what one runtime executes commands with |
//! | `server_status` `metrics` `info` | the numbers of the server; as metrics for Prometheus; as `INFO` |
//! | `session` | what a client has set up, and its replies |
//! | `background_job` `key_walk` | work that lasts: of another thread; a walk through all keys, in slices |
//! | `script_registry` `interpreter_pool` | the scripts that clients have given the server; what runs them |
//! | `working_set` | the keys that a transaction in several steps has read and written |
//! | `database_selection` | the numbers of databases that clients select |
//! | `command` `command_table` `lookup_counts` | the definition of a command; the table that finds it by name; hits and misses of its reads |
//! | `secret_arguments` | the arguments of commands that no list shows |
//! | `commands` | the commands, a module for each family |
//! | `command_call` `command_block` `block_transaction` | a command kept for later; a `MULTI` block while it is queued, and as a transaction |
//! | `key_lookup` `sliced_write` | reads and writes of very many keys, in slices |
//! | `long_transaction` | commands that read before they write, as a transaction in several steps |
//! | `blocked_command` | the command of a client that waits for keys |
//! | `command_timing` | finds commands that take long |
//! | `snapshots` | consistent copies of all keys that clients take in pieces |
//! | `pending_command` `connection` | what a connection waits for; one client's connection |
//! | `execution` | the execution of requests |
//! | `input` | reading, parsing and executing what a connection sends |
//! | `listeners` `runtime` | sockets that listen; the loop of one thread |
//!
//! The way of `SET a 1`, function by function:
//!
//! | in | function | does |
//! |---|---|---|
//! | `runtime` | `Runtime::serve` | gives the connection its turn |
//! | `input` | `read`, `execute` | reads from the socket; parses a batch, finds its commands in the table, has the store prefetch their keys |
//! | `execution::request` | `Executor::execute`, `admit` | makes the checks that every command must pass |
//! | `execution::dispatch` | `Executor::run` | goes by the command's kind: `Store(set)` |
//! | `execution::single` | `Executor::run_plan`, `transact_in`, `transact` | calls the plan; qualifies the keys of its operations if the database is not number 0; executes them as one transaction |
//! | `commands::strings` | `set` | turns the arguments into `Op::Put`, and says how the reply is written |
//! | `partition` | `Worker::execute` | leads to the store, which calls back with the replies |
//! | `render` | `Render::write` | encodes the reply at the end of the connection's output |
//! | `execution::executor` | `Executor::hold_reply` | makes it wait for its epoch |
//! | `runtime::settle` | `Runtime::settle_one` | writes the replies that may leave; those that wait make the runtime ask for durability |
//!
//! Guarantees:
//! 1. A connection's replies have the order of its commands.
//! 2. With [`Durability::Group`], no reply leaves before everything it shows is durable: also not
//!    one that shows an absence, a failed condition or an aborted block.
//! 3. If the log fails, replies that wait for it can never leave. They are replaced by one error
//!    and the connection is closed: which of its commands will be found after a restart is unknown,
//!    and a connection that continued would hide that. From then on commands that write are
//!    refused, commands that read durable data are answered, and `INFO persistence` and the
//!    server's log say why.
//! 4. A `MULTI` block is one transaction; `WATCH` is its precondition.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0006-snapshots-of-clients-belong-to-connections.md`
//! - `docs/decisions/0007-dbsize-adds-counters.md`
//! - `docs/decisions/0027-refusals-do-not-depend-on-where-keys-lie.md`
//! - `docs/decisions/0039-device-readers-have-their-own-connection.md`
//! - `docs/decisions/0040-a-door-says-how-peers-reach-slots.md`
//! - `docs/decisions/0041-auto-has-one-region-of-slots.md`
//! - `docs/decisions/0042-slots-of-a-leader-have-the-leaders-lease.md`
//! - `docs/decisions/0044-each-runtime-coordinates-by-itself.md`
//! - `docs/decisions/0058-every-waiting-reply-has-a-mark-where-tickets-can-be-lost.md`
//! - `docs/decisions/0073-event-loops-share-one-network.md`
//! - `docs/decisions/0075-a-group-waits-for-what-is-under-way.md`
//! - `docs/decisions/0084-messages-leave-with-their-publishers-reply.md`
//! - `docs/decisions/0085-transactions-in-steps-run-outside-of-epochs.md`
//! - `docs/decisions/0087-databases-are-prefixes-of-keys.md`
//! - `docs/decisions/0088-events-of-keys-are-announced-by-the-commit.md`
//! - `docs/decisions/0090-clients-that-wait-execute-their-commands-again.md`
//! - `docs/decisions/0096-very-many-writes-hold-their-keys-in-slices.md`
//! - `docs/decisions/0101-a-backup-is-a-crash-of-all-nodes-at-once.md`

#![forbid(unsafe_code)]

mod acl_log;
mod background_job;
mod bit_field;
mod block_transaction;
mod blocked_clients;
mod blocked_command;
mod client_pause;
mod clients;
mod command;
mod command_block;
mod command_call;
mod command_statistics;
mod command_table;
mod command_timing;
mod commands;
mod compound_stop;
pub mod config;
mod config_file;
mod connection;
mod coordination;
mod cursors;
mod database_selection;
mod durable_queue;
mod eviction_pace;
mod execution;
mod failures;
mod function_libraries;
mod handover;
mod held_messages;
mod hexadecimal;
mod info;
mod input;
mod interpreter_pool;
mod key_events;
mod key_lookup;
mod key_walk;
mod last_owner;
mod latency_monitor;
pub mod limits;
mod listeners;
mod long_transaction;
mod lookup_counts;
mod memory_watch;
mod metrics;
mod monitors;
mod output;
mod partition;
mod pending_command;
mod published;
mod read_atomic;
mod read_tracking;
mod refusal;
mod render;
pub mod replication;
mod routing;
mod runtime;
mod runtime_context;
mod runtime_signal;
mod script_registry;
mod secret_arguments;
mod server_state;
mod server_status;
mod session;
mod settings;
mod sliced_write;
mod slow_log;
mod snapshot_permits;
mod snapshots;
mod tracking;
mod transaction_keys;
mod unix_time;
mod working_set;

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use base::Tid;
use base::key_event::{KeyEvent, KeyListener};
use reactor::tls::{Tls, TlsSettings};
use reactor::{Io, Network, Sockets, Uring};

pub use admin::{Admin, Build, Starting};
pub use config::{Config, DebugAccess, Durability, Membership, StartError, TlsListener};
pub use config_file::ConfigFile;
pub use key_events::EventClasses;
pub use limits::Limits;
pub use partition::{Partition, Replicated};

use crate::last_owner::LastOwner;
use crate::partition::Worker;
use crate::published::Lease;
use crate::runtime::{Endpoints, Runtime};
use crate::runtime_signal::RuntimeSignal;
use crate::server_state::ServerState;

/// A running server.
pub struct Running {
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    io: Io,
    threads: Vec<JoinHandle<()>>,
    /// The lease of the data that is published for clients to read by themselves.
    _lease: Option<Lease>,
    /// Runs until everything else has ended, so that it can say that the server is stopping.
    admin: Option<Admin>,
    /// Dropped last.
    shared: LastOwner<ServerState>,
}

/// Threads of a server have panicked: its last requests may not be answered, and a new process must
/// be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} panicked", .threads.join(", "))]
pub struct ThreadsPanicked {
    /// The names of the threads.
    pub threads: Vec<String>,
}

/// Stops a server; clones stop the same one. It keeps nothing of the server alive: a thread that
/// waits for a signal has it for ever, and memory that other processes read must go with the
/// server.
#[derive(Clone)]
pub struct Stopper(Weak<ServerState>);

impl Stopper {
    /// Makes the server stop: it accepts nothing more, answers the requests that it has received
    /// once the answers are durable, and closes. Returns at once.
    pub fn stop(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.stop();
        }
    }
}

impl Running {
    /// Returns the address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address that it listens on for clients that speak TLS, if there is one.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// Returns how its threads wait for their connections: never [`Io::Auto`].
    #[must_use]
    pub fn io(&self) -> Io {
        self.io
    }

    /// Returns the address of the admin endpoint, if there is one.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Returns a handle that stops the server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.shared))
    }

    /// Waits until the server has stopped.
    ///
    /// # Errors
    /// Threads of the server have panicked.
    pub fn wait(mut self) -> Result<(), ThreadsPanicked> {
        let mut failed = Vec::new();
        for thread in std::mem::take(&mut self.threads) {
            let name = thread.thread().name().unwrap_or("a runtime").to_owned();
            if thread.join().is_err() {
                failed.push(name);
            }
        }
        if failed.is_empty() {
            Ok(())
        } else {
            Err(ThreadsPanicked { threads: failed })
        }
    }
}

impl Drop for Running {
    /// Stops the server, and waits.
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // The thread itself has reported a panic.
            drop(thread.join());
        }
    }
}

/// Serves `partition` with the settings of `config`, on threads of its own.
///
/// # Errors
/// The [`StartError`] says what to do.
pub fn serve(partition: impl Into<Partition>, config: Config) -> Result<Running, StartError> {
    config.check()?;
    let admin = config
        .admin
        .map(|address| Admin::start(address, config.admin_certificate.clone(), config.build));
    let admin = admin.transpose()?;
    serve_with(partition, config, admin)
}

/// As [`serve`], with an admin endpoint that was started before, or none; [`Config::admin`] is
/// ignored.
///
/// # Errors
/// The [`StartError`] says what to do.
pub fn serve_with(
    partition: impl Into<Partition>,
    config: Config,
    admin: Option<Admin>,
) -> Result<Running, StartError> {
    config.check()?;
    let io = config.io.choose()?;
    let server = config.tls.as_ref();
    let tls = TlsSettings {
        server: server.map(|tls| Arc::clone(&tls.certificate)),
        unencrypted_listeners: &runtime::UNENCRYPTED,
        client: None,
    };
    let parts = Parts {
        partition: partition.into(),
        config,
        admin,
        io,
    };
    // Without TLS the runtimes are compiled without it, too.
    match (io, tls.is_plain()) {
        (Io::Uring, true) => start(parts, Uring::open),
        (Io::Uring, false) => start(parts, || Ok(Tls::around(Uring::open()?, tls.clone()))),
        (_, true) => start(parts, Sockets::open),
        (_, false) => start(parts, || Ok(Tls::around(Sockets::open()?, tls.clone()))),
    }
}

/// What a server is made of.
struct Parts {
    partition: Partition,
    config: Config,
    admin: Option<Admin>,
    io: Io,
}

/// Starts a server whose runtimes use the networks that `open` returns.
fn start<N: Network>(
    parts: Parts,
    open: impl Fn() -> std::io::Result<N>,
) -> Result<Running, StartError> {
    let Parts {
        partition,
        config,
        admin,
        io,
    } = parts;
    let threads = config.threads.max(1);
    let listeners =
        listeners::listen(config.listen, threads).map_err(|error| StartError::Listen {
            listen: config.listen,
            error,
        })?;
    let address = listeners[0].local_addr()?;
    let tls = listeners::listen_for_tls(&config, threads)?;
    let tls_address = tls[0].as_ref().map(TcpListener::local_addr).transpose()?;
    let fabric = listeners::listen_for_nodes(&config, threads)?;
    let mut networks: Vec<N> = (0..threads).map(|_| open()).collect::<Result<_, _>>()?;
    let signals = networks
        .iter_mut()
        .map(|network| network.waker().map(RuntimeSignal::new))
        .collect::<Result<Vec<_>, _>>()?;
    let published = published::publish(&config, &partition)?;
    let (published, lease) = published.unzip();
    let commands = commands::table().every().map(|command| command.name);
    let mut shared = ServerState::new(
        partition,
        config,
        (address, tls_address, io),
        signals,
        commands.collect(),
    );
    shared.published = published;
    let shared = Arc::new(shared);
    listen_to_store(&shared);
    shared.note_leader();
    shared.change_eviction(|settings| *settings = shared.config.eviction);
    shared.limit_memory(shared.config.maxmemory);
    let mut running = Running {
        address,
        tls_address,
        io,
        threads: Vec::new(),
        _lease: lease,
        admin,
        shared: LastOwner::new(shared),
    };
    let parts = networks.into_iter().zip(listeners).zip(tls).zip(fabric);
    let endpoints = parts.map(|(((network, plain), tls), fabric)| Endpoints {
        network,
        plain,
        tls,
        fabric,
    });
    running.start(endpoints)?;
    if let Some(admin) = &running.admin {
        let shared = Arc::clone(&running.shared);
        admin.attach(shared);
    }
    Ok(running)
}

impl Running {
    /// Starts a runtime for each of these, and waits until all of them serve.
    fn start<N: Network>(
        &mut self,
        endpoints: impl Iterator<Item = Endpoints<N>>,
    ) -> Result<(), StartError> {
        let (started, starts) = mpsc::channel();
        for (index, endpoints) in endpoints.enumerate() {
            let shared = Arc::clone(&self.shared);
            let started = started.clone();
            let body = move || {
                let runtime = settle_in(&shared, index).and_then(|worker| {
                    let runtime = Runtime::new(index, endpoints, worker, shared);
                    Ok(runtime?)
                });
                match runtime {
                    Ok(runtime) => {
                        drop(started.send(Ok(())));
                        runtime.run();
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            };
            let name = format!("runtime-{index}");
            self.threads
                .push(std::thread::Builder::new().name(name).spawn(body)?);
        }
        for _ in 0..self.threads.len() {
            // A thread that ends without a result has panicked, which it reports itself.
            starts
                .recv()
                .unwrap_or_else(|_| Err(std::io::Error::other("it panicked").into()))?;
        }
        Ok(())
    }
}

/// Pins this thread, which is that of runtime `index`, to its processor, if it has one, and returns
/// its worker. This comes before anything else: memory belongs to the processor that touches it
/// first.
fn settle_in(shared: &ServerState, index: usize) -> Result<Worker, StartError> {
    let partition = &shared.partition;
    let worker = match shared.config.cpus.get(index) {
        Some(&cpu) => {
            let pinned = base::cpus::pin_current_thread(cpu);
            pinned.map_err(|error| StartError::Pin { cpu, error })?;
            // Another worker would be served by a logger that was not meant for this processor.
            partition.worker_at(index)
        }
        // A program that embeds the store may have taken some.
        None => partition.worker_at(index).or_else(|| partition.worker()),
    };
    worker.ok_or(StartError::NoWorker { thread: index })
}

/// Makes the store notify the runtimes of the events that they wait for. This does not keep the
/// server alive.
fn listen_to_store(shared: &Arc<ServerState>) {
    let tell = |what: fn(&ServerState)| {
        let shared = Arc::downgrade(shared);
        Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                what(&shared);
            }
        })
    };
    shared
        .partition
        .on_change(tell(ServerState::durable_changed));
    shared
        .partition
        .on_release(tell(ServerState::holds_released));
    let listener = Arc::new(ServerListener(Arc::downgrade(shared)));
    shared.partition.set_key_listener(listener);
    shared.want_events(shared.config.key_events);
}

/// Takes the changes of keys for a server.
struct ServerListener(Weak<ServerState>);

impl KeyListener for ServerListener {
    fn changed(&self, key: (u16, &[u8]), event: KeyEvent, tid: Tid) {
        if let Some(shared) = self.0.upgrade() {
            shared.key_changed(key, event, tid);
        }
    }

    fn flushed(&self, tid: Tid) {
        if let Some(shared) = self.0.upgrade() {
            shared.keys_flushed(tid);
        }
    }
}
