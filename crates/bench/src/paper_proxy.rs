//! Paper 3's own proxies, to be measured beside Kumiki's: the improved one (section 5) and the earlier
//! one (section 4.3).
//!
//! Both have *client threads*, which take queries from clients and write replies, and *aggregation
//! threads*, which pack the queries for a node into one packet and take its replies apart. Between them
//! are a *query queue* for each node, into which all client threads put, and a *result queue* for each
//! client thread, into which all aggregation threads put.
//!
//! | | improved | earlier |
//! |---|---|---|
//! | queues | rings with many producers and consumers, by compare-and-swap | deques, each behind a mutex |
//! | client threads | a number of them, which share the connections (the paper: 26) | one for each connection of a client |
//! | aggregation threads | at least one for each node; several share the node's queue (the paper: 10 for five nodes) | the same |
//! | network | on each thread | in another process, with one thread and a copy in each direction |
//! | locks | in the aggregation threads, in one table, which is entered by test-and-set | none in the paper; here the same table |
//!
//! | module | contents |
//! |---|---|
//! | `config` | which proxy |
//! | `shared_queue`, `doorbell` | the queues between threads, and how a thread wakes another one |
//! | `message`, `proxy_state` | what passes through queues; what threads share |
//! | `client_connection`, `client_thread` | the side of clients |
//! | `node_connection`, `aggregation_thread` | the side of nodes |
//! | `lock_table` | the locks |
//! | `network_process` | the earlier proxy's network |
//! | this | a proxy of these parts |
//!
//! What differs from the paper: the network is the kernel's, by epoll, where the improved proxy has mTCP
//! on DPDK and the earlier one DPDK-ANS; threads sleep when they have nothing to do, where the paper's
//! poll, each on a processor of its own; and a new connection goes to the client thread whose turn it is,
//! where the paper's network card chooses by a hash. Where several aggregation threads share a node, requests that a
//! client sends without waiting for replies can be executed in another order. The proxy serves the commands of experiments alone,
//! and ends when a node is lost.
//!
//! A program that runs experiments starts itself with `paper-proxy CONFIGURATION` for it, where
//! `CONFIGURATION` is a [`PaperProxyConfig`] as JSON, and calls [`serve`]; for the network of an earlier
//! proxy, before it, with `paper-proxy-network CONFIGURATION`, a [`NetworkProcessConfig`], and calls
//! [`serve_network`].

mod aggregation_thread;
mod client_connection;
mod client_thread;
mod config;
mod doorbell;
mod lock_table;
mod message;
mod network_process;
mod node_connection;
mod proxy_state;
mod shared_queue;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::error::RunError;
use aggregation_thread::{AggregationSeat, AggregationThread};
use client_thread::PaperClientThread;
use message::{ByteStream, ClientMailbox, NodeMailbox};
use node_connection::AggregatedConnection;
use proxy_state::ProxyState;

pub use config::{BatchLimits, PaperProxyConfig, ProxyDesign};
pub(crate) use network_process::clients_socket;
pub use network_process::{NetworkProcess, NetworkProcessConfig, serve_network};

/// Runs a proxy until the process is killed.
///
/// # Errors
/// The configuration is malformed, the proxy cannot start, or it has ended, because a node or a thread
/// was lost; the text says why.
pub fn serve(config: &str) -> Result<(), RunError> {
    let config: PaperProxyConfig = serde_json::from_str(config).map_err(RunError::of)?;
    PaperProxy::start(&config)?.wait()
}

/// A proxy that runs. It stops when this is dropped.
pub struct PaperProxy {
    state: Arc<ProxyState>,
    address: SocketAddr,
    acceptor: Arc<Acceptor>,
    threads: Vec<JoinHandle<()>>,
}

impl PaperProxy {
    /// Starts a proxy.
    ///
    /// # Errors
    /// There are no nodes or threads, a node or the network process cannot be reached, or the system
    /// refuses a listener or a thread; the text says which.
    pub fn start(config: &PaperProxyConfig) -> Result<PaperProxy, RunError> {
        let (threads, nodes) = (config.aggregation_threads, config.nodes.len());
        if nodes == 0 || threads == 0 || config.client_threads == 0 || config.batch.queries == 0 {
            let what =
                "a proxy of paper 3 needs a node, a thread of each kind, and room in a batch";
            return Err(RunError::Failed(what.to_owned()));
        }
        let failed = |what: &str, error: io::Error| RunError::failed(what)(&error);
        let seats: io::Result<Vec<AggregationSeat>> =
            (0..threads).map(|_| AggregationSeat::new()).collect();
        let seats = seats.map_err(|error| failed("making threads", error))?;
        let serves = |thread: usize, node: usize| match threads >= nodes {
            true => thread % nodes == node,
            false => node % threads == thread,
        };
        let mailbox = |node| NodeMailbox {
            queries: proxy_state::queue(config.design),
            doorbells: (0..threads)
                .filter(|&thread| serves(thread, node))
                .map(|thread| Arc::clone(&seats[thread].doorbell))
                .collect(),
        };
        let mailboxes = (0..nodes).map(mailbox).collect();
        let state = ProxyState::new(config.design, config.nodes.clone(), mailboxes);
        let state = Arc::new(state);
        let acceptor = Acceptor::new(config);
        let acceptor = Arc::new(acceptor.map_err(|error| {
            failed(
                &format!("listening for clients of {}", config.listen),
                error,
            )
        })?);
        let mut proxy = PaperProxy {
            state: Arc::clone(&state),
            address: acceptor.address(config),
            acceptor: Arc::clone(&acceptor),
            threads: Vec::new(),
        };
        for (thread, seat) in seats.into_iter().enumerate() {
            let mut connections = Vec::new();
            for node in (0..nodes).filter(|&node| serves(thread, node)) {
                let stream = connect(config, node).map_err(|error| {
                    failed(&format!("connecting to node {}", config.nodes[node]), error)
                })?;
                connections.push(AggregatedConnection::new(node, stream, config.batch));
            }
            let thread = AggregationThread::new(&state, seat, connections);
            let thread = thread.map_err(|error| failed("watching nodes", error))?;
            proxy.spawn("aggregation", move || thread.run())?;
        }
        let mut clients = Vec::new();
        if config.design == ProxyDesign::Improved {
            for number in 0..config.client_threads {
                let thread = PaperClientThread::new(&state, number, false);
                let thread = thread.map_err(|error| failed("making threads", error))?;
                clients.push(Arc::clone(thread.mailbox()));
                proxy.spawn("clients", move || thread.run())?;
            }
        }
        proxy.spawn("acceptor", move || accept(&state, &acceptor, &clients))?;
        Ok(proxy)
    }

    /// Returns the address to which clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the proxy has ended.
    ///
    /// # Errors
    /// Returns the reason, unless it was stopped.
    pub fn wait(mut self) -> Result<(), RunError> {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.state.fail("a thread panicked".to_owned());
            }
            // The first thread that ends may have failed: the acceptor waits for connections.
            if self.state.is_stopping() {
                self.acceptor.wake();
            }
        }
        self.state
            .failure()
            .map_or(Ok(()), |what| Err(RunError::Failed(what)))
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), RunError> {
        let spawned = spawn(&self.state, name, body);
        let thread = spawned.map_err(|error| RunError::failed("starting a thread")(&error))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for PaperProxy {
    fn drop(&mut self) {
        self.state.stop();
        self.acceptor.wake();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of a proxy panicked");
            }
        }
    }
}

/// Starts a thread that stops the proxy if it fails.
fn spawn(
    state: &Arc<ProxyState>,
    name: &str,
    body: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let state = Arc::clone(state);
    let builder = std::thread::Builder::new().name(format!("paper-{name}"));
    builder.spawn(move || {
        // A panic stops the others, too.
        let guard = StopOnPanic(Arc::clone(&state));
        if let Err(error) = body() {
            state.fail(error.to_string());
        }
        drop(guard);
    })
}

struct StopOnPanic(Arc<ProxyState>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a thread panicked".to_owned());
        }
    }
}

/// Connects to a node, directly or through the network process.
fn connect(config: &PaperProxyConfig, node: usize) -> io::Result<Box<dyn ByteStream>> {
    Ok(match config.design {
        ProxyDesign::Improved => {
            let stream = TcpStream::connect(config.nodes[node])?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Box::new(mio::net::TcpStream::from_std(stream))
        }
        ProxyDesign::Earlier => {
            let at = network_process::node_socket(config.listen, node)?;
            let stream = UnixStream::connect_addr(&at)?;
            stream.set_nonblocking(true)?;
            Box::new(mio::net::UnixStream::from_std(stream))
        }
    })
}

/// Where connections of clients come from.
enum Acceptor {
    Network(TcpListener),
    NetworkProcess(UnixListener),
}

impl Acceptor {
    fn new(config: &PaperProxyConfig) -> io::Result<Acceptor> {
        Ok(match config.design {
            ProxyDesign::Improved => Acceptor::Network(TcpListener::bind(config.listen)?),
            ProxyDesign::Earlier => {
                let at = clients_socket(config.listen)?;
                Acceptor::NetworkProcess(UnixListener::bind_addr(&at)?)
            }
        })
    }

    fn address(&self, config: &PaperProxyConfig) -> SocketAddr {
        match self {
            Acceptor::Network(listener) => listener.local_addr().unwrap_or(config.listen),
            Acceptor::NetworkProcess(_) => config.listen,
        }
    }

    fn accept(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(match self {
            Acceptor::Network(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Box::new(mio::net::TcpStream::from_std(stream))
            }
            Acceptor::NetworkProcess(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Box::new(mio::net::UnixStream::from_std(stream))
            }
        })
    }

    /// Makes a thread that accepts look up: it gets a connection.
    fn wake(&self) {
        let woken = match self {
            Acceptor::Network(listener) => {
                listener.local_addr().and_then(TcpStream::connect).map(drop)
            }
            Acceptor::NetworkProcess(listener) => listener
                .local_addr()
                .and_then(|at| UnixStream::connect_addr(&at))
                .map(drop),
        };
        if let Err(error) = woken {
            tracing::debug!(%error, "the acceptor cannot be woken; it may have ended");
        }
    }
}

/// Accepts connections. Each goes to the client thread whose turn it is, or to a new one if there are
/// none.
fn accept(
    state: &Arc<ProxyState>,
    acceptor: &Acceptor,
    clients: &[Arc<ClientMailbox>],
) -> io::Result<()> {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut accepted = 0;
    loop {
        let stream = acceptor.accept()?;
        if state.is_stopping() {
            break;
        }
        match clients.is_empty() {
            false => give(&clients[accepted % clients.len()], stream),
            true => {
                threads.retain(|thread| !thread.is_finished());
                let thread = PaperClientThread::new(state, accepted, true)?;
                give(thread.mailbox(), stream);
                threads.push(spawn(state, "client", move || thread.run())?);
            }
        }
        accepted += 1;
    }
    for thread in threads {
        if thread.join().is_err() {
            return Err(io::Error::other("a client's thread panicked"));
        }
    }
    Ok(())
}

fn give(client: &ClientMailbox, stream: Box<dyn ByteStream>) {
    client.arrivals.lock().push(stream);
    client.doorbell.ring();
}
