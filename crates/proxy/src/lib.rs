//! The proxy gathers many clients' requests into few packets to the nodes, and serves locks (paper 3).
//!
//! | module | concept |
//! |---|---|
//! | [`config`] | the settings of a proxy |
//! | [`net`] | the network as threads see it: sockets, or a stack that bypasses the kernel |
//! | `tls` | encrypted connections on top of any such network |
//! | `threads` | the threads, and the queues that connect them |
//! | [`queue`] | the queues between threads |
//! | `runtime` | carries requests and replies; the same for all protocols |
//! | [`locks`] | locks with leases and tokens, which the proxy serves without the nodes |
//! | `redis` | RESP: one server in front of Kumiki, Redis Cluster or Redis servers |
//! | `cassandra` | CQL: one node in front of a Cassandra cluster |
//! | [`NodeAddress`] | the nodes that the proxy was given, by address or by name |
//! | `nodes` `figures` | the nodes; counts of the work done |
//! | `info` `metrics` | the figures as `INFO`; for Prometheus, and health for the admin endpoint |
//!
//! Decision that binds this crate: `docs/decisions/0063-tls-is-a-network-around-a-network.md`.

#![forbid(unsafe_code)]

mod cassandra;
pub mod config;
mod figures;
mod info;
pub mod locks;
mod metrics;
pub mod net;
mod nodes;
pub mod queue;
mod redis;
mod runtime;
mod seeds;
mod threads;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

pub use admin::{Admin, Build, LogLevel};
pub use config::{Config, Limits, LockTable, Nodes, Stack, StartError, TlsClients, TlsNodes};
pub use redis::Kind;
pub use seeds::{LookUp, NodeAddress};

use crate::info::About;
use crate::net::Network;
use crate::nodes::NodeRoles;
use crate::queue::Queues;
use crate::runtime::thread::{Stopping, Watch};
use crate::runtime::thread_waker::ThreadWaker;
use crate::threads::{Configured, Given, Parts};
use crate::tls::Setup;

/// A proxy that is serving.
pub struct Running {
    address: SocketAddr,
    kind: Kind,
    stopper: Stopper,
    threads: Vec<JoinHandle<()>>,
    /// Threads that keep the proxy's knowledge of the nodes up to date; `release` ends them.
    refreshers: Vec<JoinHandle<()>>,
    release: Box<dyn Fn() + Send + Sync>,
    about: Arc<About>,
    duties: Arc<dyn NodeRoles>,
    /// Runs until everything else has ended, to report that the proxy is stopping.
    admin: Option<Admin>,
}

/// A proxy has lost a thread, and has stopped because of that. Its log names the thread. Start the
/// proxy again, and report its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the proxy has lost a thread, and has stopped: start it again, and report what its log says"
)]
pub struct ThreadLost;

/// Stops a proxy; all clones stop the same proxy.
#[derive(Clone)]
pub struct Stopper {
    stopping: Arc<Stopping>,
    wakers: Vec<Arc<ThreadWaker>>,
}

impl Stopper {
    /// Begins to stop the proxy: it accepts no connections, answers the requests that it has received,
    /// and closes. Returns at once.
    pub fn stop(&self) {
        self.stopping.begun.store(true, Ordering::SeqCst);
        for waker in &self.wakers {
            waker.wake();
        }
    }
}

impl Running {
    /// Returns the address on which the proxy listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address on which figures and health are served, if they are.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Returns the kind of the nodes, as the proxy found it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns a handle that stops the proxy.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the proxy has stopped.
    ///
    /// # Errors
    /// Returns an error if the proxy has stopped by itself because it had lost a thread.
    pub fn wait(self) -> Result<(), ThreadLost> {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the proxy has panicked");
            }
        }
        (self.release)();
        if let Some(locks) = &self.about.locks {
            locks.stop();
        }
        for refresher in self.refreshers {
            if refresher.join().is_err() {
                tracing::error!("a thread that refreshes the topology has panicked");
            }
        }
        match self.stopper.stopping.lost.load(Ordering::SeqCst) {
            true => Err(ThreadLost),
            false => Ok(()),
        }
    }

    /// Starts a thread that keeps knowledge of the nodes up to date.
    fn keep(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        let watch = Watch {
            name: name.to_owned(),
            stopper: self.stopper(),
            front: false,
            stays: false,
        };
        let refresher = builder.spawn(move || {
            let _watch = watch;
            work();
        });
        let refresher = refresher.map_err(|error| StartError::Thread { error })?;
        self.refreshers.push(refresher);
        Ok(())
    }
}

/// Starts a proxy.
///
/// # Errors
/// The [`StartError`] says what to change.
pub fn start(config: &Config) -> Result<Running, StartError> {
    check(config)?;
    let admin = config
        .admin
        .map(|address| Admin::start(address, config.build));
    let admin = admin.transpose()?;
    start_with(config, admin)
}

/// Checks that no address can be reached from other machines without authentication.
///
/// # Errors
/// Returns [`StartError::Open`] or [`StartError::Admin`] if one can.
pub fn check(config: &Config) -> Result<(), StartError> {
    let listen = config.listen;
    let shows_certificate = |tls: &TlsClients| tls.client_ca.is_some();
    // Before Cassandra, authentication is the nodes' decision; they have yet to be asked.
    let has_password = config
        .password
        .as_ref()
        .is_some_and(|password| !password.is_empty());
    let asks = has_password || matches!(config.nodes, Nodes::Cassandra(_));
    let is_closed = asks || config.tls.as_ref().is_some_and(shows_certificate);
    if !listen.ip().is_loopback() && !is_closed && !config.insecure {
        return Err(StartError::Open { listen });
    }
    if let Some(address) = config.admin {
        // The password is for clients; the admin endpoint does not ask for it.
        admin::check(address, config.insecure)?;
    }
    Ok(())
}

/// Starts a proxy like [`start`], but with an admin endpoint that was started before, or with none;
/// [`Config::admin`] is only checked.
///
/// # Errors
/// The [`StartError`] says what to change.
pub fn start_with(config: &Config, admin: Option<Admin>) -> Result<Running, StartError> {
    start_of::<Configured>(config, admin)
}

/// Starts a proxy like [`start`], but without an admin endpoint, and with threads that use the network
/// `N` and the queues `Q`; [`Config::network`] has no effect.
///
/// # Errors
/// The [`StartError`] says what to change.
pub fn start_on<N: Network, Q: Queues>(config: &Config) -> Result<Running, StartError> {
    start_of::<Given<N, Q>>(config, None)
}

fn start_of<P: Parts>(config: &Config, admin: Option<Admin>) -> Result<Running, StartError> {
    check(config)?;
    if let Some(admin) = &admin {
        admin.starting().tell("asking the nodes what they are");
    }
    let tls = Setup::load(config).map_err(|what| StartError::Tls { what })?;
    let mut running = match &config.nodes {
        Nodes::Kumiki(seeds) => redis::start::<P>(config, tls, seeds, true),
        Nodes::Redis(seeds) => redis::start::<P>(config, tls, seeds, false),
        Nodes::Cassandra(seeds) => cassandra::start::<P>(config, tls, seeds),
    }?;
    if let Some(admin) = &admin {
        admin.attach(Arc::new(metrics::ProxySubject {
            about: Arc::clone(&running.about),
            duties: Arc::clone(&running.duties),
            wakers: running.stopper.wakers.clone(),
            stopping: Arc::clone(&running.stopper.stopping),
        }));
    }
    running.admin = admin;
    Ok(running)
}
