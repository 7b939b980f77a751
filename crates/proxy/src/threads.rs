//! The threads of a proxy, and the queues between them.
//!
//! Threads with clients come first, and threads with nodes follow. Where there are none with nodes,
//! each thread with clients has its own connections to the nodes. This module makes the threads for all
//! protocols.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Instant;

use reactor::budget::Budget;
use reactor::newcomers::places_of_thread;
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{Config, Limits, Stack, StartError};
use crate::figures::{BackendFigures, FrontendFigures};
use crate::nodes::Nodes;
use crate::queue::queue;
use crate::runtime::backend::{Backend, FrontendQueues};
use crate::runtime::frontend::Frontend;
use crate::runtime::link::LinkLimits;
use crate::runtime::outbox::{BackendQueues, NodeShares, Outbox};
use crate::runtime::protocol::ClientProtocol;
use crate::runtime::thread::Thread;
use crate::runtime::thread_waker::ThreadWaker;
use crate::runtime::token::LISTENER;
use crate::runtime::wire::Wire;
use crate::stopper::{Stopper, Stopping, ThreadWatch};
use reactor::tls::{Tls, TlsSettings};
use reactor::{Network, Sockets, Uring};
use xdp::{Xdp, XdpInterface};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Capacity of a queue between two threads.
const QUEUE: usize = 8192;

/// The base of a proxy, the same for all protocols: its nodes are found, and it listens.
pub(crate) struct ListeningProxy {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) address: SocketAddr,
    pub(crate) started: Instant,
    listeners: Vec<TcpListener>,
    tls: TlsSettings,
}

/// The parts of a proxy that its threads with clients report to.
pub(crate) struct Observers<'a> {
    /// The figures of each thread with clients.
    pub(crate) fronts: &'a [Arc<FrontendFigures>],
    /// Gets the waker of each thread with clients before the thread starts.
    pub(crate) on_waker: &'a dyn Fn(usize, &Arc<ThreadWaker>),
}

/// Threads that run, and a handle that stops them.
pub(crate) type Threads = (Vec<JoinHandle<()>>, Stopper);

/// Starts the threads on the networks that `open` returns, with TLS around them if connections are encrypted.
fn spawn_on<F: ClientProtocol, W: Wire, N: Network>(
    ground: ListeningProxy,
    config: &Config,
    observers: &Observers<'_>,
    protocol: impl Fn() -> F,
    options: &Arc<W::Options>,
    open: impl Fn() -> std::io::Result<N>,
) -> Result<Threads, StartError> {
    let tls = ground.tls.clone();
    let started = match tls.is_plain() {
        true => ground.spawn::<F, W, N>(config, observers, protocol, options, open),
        false => ground.spawn::<F, W, _>(config, observers, protocol, options, || {
            Ok(Tls::around(open()?, tls.clone()))
        }),
    };
    started.map_err(|error| StartError::Thread { error })
}

/// Starts the threads on the interface of this name, with a receive queue for each of them.
fn spawn_past_kernel<F: ClientProtocol, W: Wire>(
    name: &str,
    ground: ListeningProxy,
    config: &Config,
    observers: &Observers<'_>,
    protocol: impl Fn() -> F,
    options: &Arc<W::Options>,
) -> Result<Threads, StartError> {
    let threads = config.network_threads + config.aggregation_threads;
    let interface = XdpInterface::attach(name, config.listen.ip(), threads)?;
    let queues = 0..threads as u32;
    let networks: Result<Vec<Xdp>, _> = queues.map(|queue| Xdp::open(&interface, queue)).collect();
    let networks = RefCell::new(networks?.into_iter());
    let nodes = match interface.queues() {
        1 => "past the kernel if they are reached over the interface",
        _ => "by the kernel's sockets, because the interface has several queues",
    };
    tracing::info!(interface = name, address = %interface.address(), queues = interface.queues(), nodes,
        "clients over this interface are served past the kernel");
    let open = || {
        let next = networks.borrow_mut().next();
        next.ok_or_else(|| std::io::Error::other("a thread has no queue"))
    };
    spawn_on::<F, W, Xdp>(ground, config, observers, protocol, options, open)
}

impl ListeningProxy {
    /// Starts to listen.
    ///
    /// # Errors
    /// Returns [`StartError::Listen`] if the address cannot be used.
    pub(crate) fn new(
        config: &Config,
        nodes: Arc<Nodes>,
        tls: TlsSettings,
    ) -> Result<ListeningProxy, StartError> {
        let listen = config.listen;
        let failed = |error| StartError::Listen { listen, error };
        let listeners = listeners(listen, config.network_threads).map_err(failed)?;
        let address = listeners[0].local_addr().map_err(failed)?;
        Ok(ListeningProxy {
            nodes,
            address,
            started: Instant::now(),
            listeners,
            tls,
        })
    }

    /// Starts the threads, on the network that [`Config::network`] names.
    ///
    /// # Errors
    /// Returns [`StartError::Thread`] if a thread cannot start, [`StartError::Xdp`] if the interface cannot be used.
    pub(crate) fn start_threads<F: ClientProtocol, W: Wire>(
        self,
        config: &Config,
        observers: &Observers<'_>,
        protocol: impl Fn() -> F,
        options: &Arc<W::Options>,
    ) -> Result<Threads, StartError> {
        match available_stack(&config.network, Uring::open) {
            Stack::Xdp(name) => {
                spawn_past_kernel::<F, W>(&name, self, config, observers, protocol, options)
            }
            Stack::Sockets => {
                spawn_on::<F, W, _>(self, config, observers, protocol, options, Sockets::open)
            }
            Stack::Uring => {
                spawn_on::<F, W, _>(self, config, observers, protocol, options, Uring::open)
            }
        }
    }

    fn spawn<F: ClientProtocol, W: Wire, N: Network>(
        self,
        config: &Config,
        observers: &Observers<'_>,
        protocol: impl Fn() -> F,
        options: &Arc<W::Options>,
        open: impl Fn() -> std::io::Result<N>,
    ) -> std::io::Result<Threads> {
        let inline = config.aggregation_threads == 0;
        let count = config.network_threads + config.aggregation_threads;
        let stopping = Arc::new(Stopping {
            drain: config.drain,
            fronts: AtomicUsize::new(config.network_threads),
            ..Stopping::default()
        });
        let mut networks = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..count {
            let mut network = open()?;
            wakers.push(Arc::new(ThreadWaker::new(network.waker()?)));
            networks.push(network);
        }
        let (fronts, backs) = wakers.split_at(config.network_threads);
        for (thread, waker) in fronts.iter().enumerate() {
            (observers.on_waker)(thread, waker);
        }
        let backs = if inline { fronts } else { backs };
        let mut queues = ThreadQueues::new(fronts, backs, inline);
        let limits = LinkLimits {
            packs: config.packs_under_way(),
            pack_count: config.pack_count,
            pack_bytes: config.pack_bytes,
            window: config.queue,
            timeout: config.timeout,
            health: config.health,
        };
        let shares = |mine| NodeShares {
            backends: if inline { 1 } else { backs.len() },
            for_each_node: if inline {
                1
            } else {
                config.threads_for_each_node.max(1)
            },
            mine,
        };
        let inflight = (config.queue / config.network_threads).max(1) as u32;
        let mut listeners = self.listeners.into_iter();
        let stopper = Stopper {
            stopping: Arc::clone(&stopping),
            wakers: wakers.clone(),
        };
        let budget = Budget::new(config.limits.in_flight);
        let client_limits = Limits {
            newcomers: places_of_thread(
                config.limits.clients,
                config.limits.newcomers,
                config.network_threads,
            ),
            ..config.limits
        };
        let mut threads = Vec::new();
        for (index, mut network) in networks.into_iter().enumerate() {
            let front = match listeners.next() {
                None => None,
                Some(listener) => Some(Frontend::new(
                    index as u16,
                    protocol(),
                    client_limits,
                    Arc::clone(&budget),
                    network.listen(listener, LISTENER)?,
                    Outbox::new(
                        std::mem::take(&mut queues.of_frontends[index]),
                        shares(index),
                        inflight,
                    ),
                    Arc::clone(&observers.fronts[index]),
                )),
            };
            let back = match (inline, index.checked_sub(config.network_threads)) {
                (true, _) => Some(index),
                (false, back) => back,
            };
            let back = back.map(|back| {
                Backend::new(
                    Arc::clone(options),
                    limits,
                    Arc::clone(&self.nodes),
                    std::mem::take(&mut queues.of_backends[back]),
                    Arc::new(BackendFigures::new(back, Arc::clone(&self.nodes))),
                )
            });
            let thread = Thread::<N, F, W> {
                network,
                front,
                back,
                waker: Arc::clone(&wakers[index]),
                started: self.started,
                stopping: Arc::clone(&stopping),
            };
            let cpu = config.cpus.get(index).copied();
            let name = format!("proxy-{index}");
            let builder = std::thread::Builder::new().name(name.clone());
            let watch = ThreadWatch {
                name,
                stopper: stopper.clone(),
                front: thread.front.is_some(),
                stays: true,
            };
            threads.push(builder.spawn(move || {
                let _watch = watch;
                if let Some(cpu) = cpu
                    && let Err(error) = base::cpus::pin_current_thread(cpu)
                {
                    tracing::warn!(%error, cpu, "a thread cannot stay on its processor");
                }
                thread.run();
            })?);
        }
        Ok((threads, stopper))
    }
}

/// The queues between threads with clients and threads with nodes.
struct ThreadQueues {
    of_frontends: Vec<Vec<BackendQueues>>,
    of_backends: Vec<Vec<FrontendQueues>>,
}

impl ThreadQueues {
    /// Creates the queues. `inline`: each thread has both clients and nodes, and passes queries to
    /// itself.
    fn new(fronts: &[Arc<ThreadWaker>], backs: &[Arc<ThreadWaker>], inline: bool) -> ThreadQueues {
        let mut queues = ThreadQueues {
            of_frontends: fronts.iter().map(|_| Vec::new()).collect(),
            of_backends: backs.iter().map(|_| Vec::new()).collect(),
        };
        for (front, front_waker) in fronts.iter().enumerate() {
            for (back, back_waker) in backs.iter().enumerate() {
                if inline && front != back {
                    continue;
                }
                let (orders, taken_orders) = queue(QUEUE);
                let (replies, taken_replies) = queue(QUEUE);
                queues.of_frontends[front].push(BackendQueues {
                    orders,
                    replies: taken_replies,
                    waker: Arc::clone(back_waker),
                });
                queues.of_backends[back].push(FrontendQueues {
                    front: front as u16,
                    orders: taken_orders,
                    replies,
                    waker: Arc::clone(front_waker),
                });
            }
        }
        queues
    }
}

/// Returns the wanted network, or sockets if the kernel refuses io_uring.
fn available_stack(wanted: &Stack, open: impl FnOnce() -> std::io::Result<Uring>) -> Stack {
    match wanted {
        Stack::Uring => match open() {
            Ok(_) => Stack::Uring,
            Err(error) => {
                tracing::warn!(%error, "the kernel refuses io_uring; going on without it, a little slower");
                Stack::Sockets
            }
        },
        other => other.clone(),
    }
}

/// Opens `count` listeners on one address: the system spreads connections over them.
fn listeners(address: SocketAddr, count: usize) -> std::io::Result<Vec<TcpListener>> {
    let mut address = address;
    // Sockets that share an address also share it with those of another process, and would take turns
    // with them. A socket that does not share fails if the address is in use.
    drop(reactor::bind_when_free(|| socket(address, false))?);
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = socket(address, count > 1)?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        // With port 0 the system has chosen the first listener's port; the others share it.
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn socket(address: SocketAddr, shared: bool) -> std::io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_refuses_io_uring_is_asked_for_sockets() {
        let refuses = || Err(std::io::ErrorKind::PermissionDenied.into());
        assert_eq!(available_stack(&Stack::Uring, refuses), Stack::Sockets);
        assert_eq!(available_stack(&Stack::Uring, Uring::open), Stack::Uring);
        let never = || panic!("no thread asked for it");
        assert_eq!(available_stack(&Stack::Sockets, never), Stack::Sockets);
    }
}
