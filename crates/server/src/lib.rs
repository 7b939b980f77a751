//! The RESP server: any Redis client can use the store through it.
//!
//! The path of a command: the socket wakes a runtime → it reads the input → parses a batch and
//! makes the store prefetch its keys → executes each command as a transaction of its worker →
//! encodes the replies into the connection's output → at the end of the turn writes the replies
//! that may leave, and asks the store to make durable what the others wait for.
//!
//! | module | concept |
//! |---|---|
//! | [`config`] | how a server is set up |
//! | [`limits`] | sizes that clients control |
//! | `runtime` `input` | the loop of one thread; reading, parsing and executing what a connection sends |
//! | `connection` `output` | one client's state; its replies and the epochs they wait for |
//! | `command` `commands` | the table of commands; the commands |
//! | `executor` `block` `execution` | running a command alone, in a `MULTI` block |
//! | `task` `keys` `parking` | commands that last: checkpoints on request, `KEYS` in slices, those that wait for others |
//! | `snapshots` | consistent copies of all keys that clients take in pieces |
//! | `routing` `coordination` | in a cluster: where keys lead; transactions with other nodes |
//! | `read_atomic` | what is refused of commands and blocks with read-atomic keys |
//! | `published` | newest versions of read-atomic keys, in memory that clients read by themselves |
//! | [`replication`] | what a node says of its replicas |
//! | `redirect` | what a node does that does not lead its partition |
//! | `partition` | what is served: the partition behind all this |
//! | `glob` | patterns of `KEYS`, `SCAN` and `CONFIG GET` |
//! | `render` `refusal` | replies and errors as RESP |
//! | `clients` `cursors` `shared` | what runtimes have in common |
//! | `figures` | figures of the server |
//! | `info` `metrics` | the figures as `INFO`; for Prometheus, and what the admin endpoint tells |
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

#![forbid(unsafe_code)]

mod block;
mod clients;
mod command;
mod commands;
pub mod config;
mod connection;
mod coordination;
mod cursors;
mod execution;
mod executor;
mod failures;
mod figures;
mod glob;
mod info;
mod input;
mod keys;
pub mod limits;
mod metrics;
mod output;
mod parking;
mod partition;
mod pause;
mod published;
mod read_atomic;
mod redirect;
mod refusal;
mod render;
pub mod replication;
mod routing;
mod runtime;
mod shared;
mod snapshots;
mod statistics;
mod task;

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use reactor::tls::{ServerTls, Tls, TlsSettings};
use reactor::{Io, Network, Sockets, Uring};
use socket2::{Domain, Protocol, Socket, Type};

pub use admin::{Admin, Build, Starting};
pub use config::{Config, Durability, Membership, StartError, TlsListener};
pub use limits::Limits;
pub use partition::{Partition, Replicated};

use crate::partition::Worker;
use crate::published::Lease;
use crate::routing::Routes;
use crate::runtime::{Endpoints, Runtime};
use crate::shared::{Counters, MemoryWatch, Shared, Signal};

/// A running server.
pub struct Running {
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    certificate: Option<Arc<ServerTls>>,
    io: Io,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The lease of the data that is published for clients to read by themselves.
    _lease: Option<Lease>,
    /// Runs until everything else has ended, so that it can say that the server is stopping.
    admin: Option<Admin>,
}

/// Stops a server; clones stop the same one. It keeps nothing of the server alive: a thread that
/// waits for a signal has it for ever, and memory that other processes read must go with the
/// server.
#[derive(Clone)]
pub struct Stopper(Weak<Shared>);

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

    /// Returns the certificate that clients are shown, if the server speaks TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<Arc<ServerTls>> {
        self.certificate.clone()
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
    /// A thread of the server has panicked; the text says which.
    pub fn wait(mut self) -> Result<(), String> {
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
            Err(format!("{} panicked", failed.join(", ")))
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
        .map(|address| Admin::start(address, config.build));
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
    let server = config
        .tls
        .as_ref()
        .map(|tls| ServerTls::load(tls.files.clone()));
    let tls = TlsSettings {
        server: server.transpose()?.map(Arc::new),
        unencrypted_listener: Some(runtime::LISTENER),
        client: None,
    };
    let parts = Parts {
        partition: partition.into(),
        config,
        admin,
        io,
        certificate: tls.server.clone(),
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
    certificate: Option<Arc<ServerTls>>,
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
        certificate,
    } = parts;
    let threads = config.threads.max(1);
    let listeners = listen(config.listen, threads).map_err(|error| StartError::Listen {
        listen: config.listen,
        error,
    })?;
    let address = listeners[0].local_addr()?;
    let tls = listen_for_tls(&config, threads)?;
    let tls_address = tls[0].as_ref().map(TcpListener::local_addr).transpose()?;
    let fabric = listen_for_nodes(&config, threads)?;
    let mut networks: Vec<N> = (0..threads).map(|_| open()).collect::<Result<_, _>>()?;
    let signals = networks
        .iter_mut()
        .map(|network| network.waker().map(Signal::new))
        .collect::<Result<Vec<_>, _>>()?;
    let published = published::publish(&config, &partition)?;
    let (published, lease) = published.unzip();
    let mut shared = share(partition, config, address, io, signals);
    shared.published = published;
    let shared = Arc::new(shared);
    listen_to_store(&shared);
    shared.note_leader();
    shared.limit_memory(shared.config.maxmemory);
    let mut running = Running {
        address,
        tls_address,
        certificate,
        io,
        shared,
        threads: Vec::new(),
        _lease: lease,
        admin,
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
fn settle_in(shared: &Shared, index: usize) -> Result<Worker, StartError> {
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
fn listen_to_store(shared: &Arc<Shared>) {
    let tell = |what: fn(&Shared)| {
        let shared = Arc::downgrade(shared);
        Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                what(&shared);
            }
        })
    };
    shared.partition.on_change(tell(Shared::durable_changed));
    shared.partition.on_release(tell(Shared::holds_released));
}

fn share(
    partition: Partition,
    config: Config,
    address: SocketAddr,
    io: Io,
    signals: Vec<Signal>,
) -> Shared {
    let random = RandomState::new();
    let run_id = (0..3u8)
        .map(|part| format!("{:016x}", random.hash_one(part)))
        .collect::<String>();
    Shared {
        snapshots: snapshots::Places::default(),
        cursors: cursors::Cursors::new(config.limits.cursors, config.limits.cursor_bytes),
        memory: MemoryWatch::new(config.maxmemory),
        in_flight: budget::Budget::new(config.limits.in_flight),
        routes: config
            .cluster
            .as_ref()
            .map(|membership| Arc::new(Routes::new(membership, signals.len()))),
        io,
        port: address.port(),
        started: Instant::now(),
        started_at: SystemTime::now(),
        run_id: run_id[..40].to_owned(),
        clients: clients::Clients::default(),
        counters: Counters::default(),
        statistics: statistics::Statistics::new(signals.len()),
        signals,
        stopping: AtomicBool::new(false),
        pause: pause::Pause::default(),
        failures: failures::SharedFailures::new(config.failure_summary),
        handing_over: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        changes: AtomicU64::new(0),
        read_atomic: config.read_atomic().clone(),
        published: None,
        partition,
        config,
    }
}

/// Returns listeners for other nodes, one for each runtime; none for a server that is in no
/// cluster.
fn listen_for_nodes(config: &Config, count: usize) -> Result<Vec<Option<TcpListener>>, StartError> {
    let Some(membership) = &config.cluster else {
        return Ok((0..count).map(|_| None).collect());
    };
    let node = membership.node;
    let fabric = membership.info()?.fabric;
    fabric::tcp::listen(fabric, count)
        .map(|listeners| listeners.into_iter().map(Some).collect())
        .map_err(|error| StartError::ListenFabric {
            fabric,
            node,
            error,
        })
}

/// Returns listeners for clients that speak TLS, one for each runtime, if there are any.
fn listen_for_tls(config: &Config, count: usize) -> Result<Vec<Option<TcpListener>>, StartError> {
    let Some(tls) = &config.tls else {
        return Ok((0..count).map(|_| None).collect());
    };
    let listeners = listen(tls.listen, count).map_err(|error| StartError::ListenTls {
        listen: tls.listen,
        error,
    })?;
    Ok(listeners.into_iter().map(Some).collect())
}

/// Returns as many listeners on one address: the system spreads connections over them.
fn listen(address: SocketAddr, count: usize) -> std::io::Result<Vec<TcpListener>> {
    refuse_shared(address)?;
    if count > 1 && address.port() != 0 {
        // Sockets that share an address share it with those of another server, too, and would take
        // turns with it. A socket that does not share detects that.
        socket(address)?;
    }
    let mut address = address;
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = if count > 1 {
            shared_socket(address)?
        } else {
            socket(address)?
        };
        socket.listen(limits::BACKLOG)?;
        let listener = TcpListener::from(socket);
        // With port 0 the first listener has chosen; the others share its port.
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Returns an error if another process listens on the address. Listeners that share a port would do
/// so with those of another server of the same user, too, which would then get a part of the
/// connections.
fn refuse_shared(address: SocketAddr) -> std::io::Result<()> {
    let domain = Domain::for_address(address);
    let probe = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier server that linger are no obstacle.
    probe.set_reuse_address(true)?;
    probe.bind(&address.into())
}

/// Returns a socket bound to `address`, for itself alone.
fn socket(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = unbound_socket(address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Returns a socket bound to `address`, which others may be bound to as well.
fn shared_socket(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = unbound_socket(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn unbound_socket(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
