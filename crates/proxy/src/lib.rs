//! The proxy: many clients' requests in few packets to the nodes, and locks (paper 3).
//!
//! | module | concept |
//! |---|---|
//! | [`config`] | how a proxy is set up |
//! | [`net`] | the network as threads see it: sockets, or a stack that bypasses the kernel |
//! | `tls` | the same, encrypted |
//! | `threads` | the threads, and what connects them |
//! | [`queue`] | the queues between threads |
//! | `runtime` | what carries requests and replies, whatever their protocol |
//! | [`locks`] | locks with leases and tokens, which no node is asked about |
//! | `redis` | RESP: one server in front of Kumiki, Redis Cluster or Redis servers |
//! | `cassandra` | CQL: the one node in front of a Cassandra cluster |
//! | [`NodeAddress`] | the nodes that the proxy was given, by address or by name |
//! | `nodes` `figures` | the nodes; what was done |
//! | `info` `metrics` | the figures as `INFO`; for Prometheus, and what the admin endpoint tells |
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
    /// Threads that keep true what is known of the nodes, and what ends them.
    keepers: Vec<JoinHandle<()>>,
    release: Box<dyn Fn() + Send + Sync>,
    about: Arc<About>,
    duties: Arc<dyn NodeRoles>,
    /// Goes on until everything else has ended, to say that it is stopping.
    admin: Option<Admin>,
}

/// A proxy has lost a thread, and has stopped because of that. Its log says which one. Start it
/// again, and report what the log says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the proxy has lost a thread, and has stopped: start it again, and report what its log says"
)]
pub struct ThreadLost;

/// Stops a proxy; clones stop the same one.
#[derive(Clone)]
pub struct Stopper {
    stopping: Arc<Stopping>,
    wakers: Vec<Arc<ThreadWaker>>,
}

impl Stopper {
    /// Has the proxy stop: it accepts nothing more, answers what it has received, and closes.
    /// Returns at once.
    pub fn stop(&self) {
        self.stopping.begun.store(true, Ordering::SeqCst);
        for waker in &self.wakers {
            waker.wake();
        }
    }
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where figures and health are served, if they are.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// What it found the nodes to be.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What stops it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// It has stopped by itself, because it had lost a thread.
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
        for refresher in self.keepers {
            if refresher.join().is_err() {
                tracing::error!("a keeper of the proxy has panicked");
            }
        }
        match self.stopper.stopping.lost.load(Ordering::SeqCst) {
            true => Err(ThreadLost),
            false => Ok(()),
        }
    }

    /// Has a thread of its own for what is kept true.
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
        self.keepers.push(refresher);
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

/// Checks that no address lies open to strangers.
///
/// # Errors
/// [`StartError::Open`] or [`StartError::Admin`] if one does.
pub fn check(config: &Config) -> Result<(), StartError> {
    let listen = config.listen;
    let shows_certificate = |tls: &TlsClients| tls.client_ca.is_some();
    // Before Cassandra the nodes say who must give a password; they have yet to be asked.
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
        // The password is for clients; here nobody asks for it.
        admin::check(address, config.insecure)?;
    }
    Ok(())
}

/// As [`start`], with an admin endpoint that was started before, or none; [`Config::admin`] is only
/// checked.
///
/// # Errors
/// The [`StartError`] says what to change.
pub fn start_with(config: &Config, admin: Option<Admin>) -> Result<Running, StartError> {
    start_of::<Configured>(config, admin)
}

/// As [`start`], without an admin endpoint, with threads that use the network `N` and the queues `Q`;
/// [`Config::network`] has no effect.
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
