//! The proxy gathers many clients' requests into few packets to the nodes, and serves locks (paper 3).
//!
//! | module | concept |
//! |---|---|
//! | [`config`] | the settings of a proxy |
//! | `threads` | the threads, and the queues that connect them |
//! | `queue` | the queues between threads |
//! | `runtime` | carries requests and replies; the same for all protocols |
//! | [`locks`] | locks with leases and tokens, which the proxy serves without the nodes |
//! | `redis` | RESP: one server in front of Kumiki, Redis Cluster or Redis servers |
//! | `cassandra` | CQL: one node in front of a Cassandra cluster |
//! | [`NodeAddress`] | the nodes that the proxy was given, by address or by name |
//! | `running` `stopper` | a proxy that serves, and how it stops |
//! | `node_kind` `error` | the kinds of nodes; the errors |
//! | `nodes` `refresh_signal` `node_figures` `figures` | the nodes; counts of the work done |
//! | `info` `metrics` | the figures as `INFO`; for Prometheus, and health for the admin endpoint |
//!
//! Decision that binds this crate: `docs/decisions/0063-tls-is-a-network-around-a-network.md`.

#![forbid(unsafe_code)]

mod cassandra;
pub mod config;
mod error;
mod figures;
mod info;
pub mod locks;
mod metrics;
mod node_figures;
mod node_kind;
mod nodes;
mod queue;
mod redis;
mod refresh_signal;
mod running;
mod runtime;
mod seeds;
mod stopper;
mod threads;

use std::sync::Arc;

pub use admin::{Admin, Build, LogLevel};
pub use config::{Config, CqlTable, Limits, Nodes, Stack, StartError, UnknownOutcome};
pub use error::ProxyError;
pub use node_kind::NodeKind;
pub use running::{Running, ThreadLost};
pub use seeds::{LookUp, NodeAddress};
pub use stopper::Stopper;
pub use xdp::receive_queues;

use reactor::tls::{ClientTls, ServerTls, TlsSettings};

/// Starts a proxy.
///
/// # Errors
/// The [`StartError`] says what to change.
pub fn start(config: &Config) -> Result<Running, StartError> {
    check(config)?;
    let admin = config
        .admin
        .map(|address| Admin::start(address, config.admin_certificate.clone(), config.build));
    let admin = admin.transpose()?;
    start_with(config, admin)
}

/// Checks that no address can be reached from other machines without authentication.
///
/// # Errors
/// Returns [`StartError::Open`] or [`StartError::Admin`] if one can.
pub fn check(config: &Config) -> Result<(), StartError> {
    let listen = config.listen;
    let certificate = config.certificate.as_deref();
    // Before Cassandra, authentication is the nodes' decision; they have yet to be asked.
    let has_password = config
        .password
        .as_ref()
        .is_some_and(|password| !password.is_empty());
    let asks = has_password || matches!(config.nodes, Nodes::Cassandra(_));
    let is_closed = asks || certificate.is_some_and(ServerTls::requires_certificates);
    if !listen.ip().is_loopback() && !is_closed && !config.insecure {
        return Err(StartError::Open { listen });
    }
    if let Some(address) = config.admin {
        // The password is for clients; the admin endpoint does not ask for it.
        admin::check(
            address,
            config.admin_certificate.as_deref(),
            config.insecure,
        )?;
    }
    Ok(())
}

/// Starts a proxy like [`start`], but with an admin endpoint that was started before, or with none;
/// [`Config::admin`] is only checked.
///
/// # Errors
/// The [`StartError`] says what to change.
pub fn start_with(config: &Config, admin: Option<Admin>) -> Result<Running, StartError> {
    check(config)?;
    if let Some(admin) = &admin {
        admin.starting().tell("asking the nodes what they are");
    }
    let tls = tls_settings(config)?;
    let mut running = match &config.nodes {
        Nodes::Kumiki(seeds) => redis::start(config, tls, seeds, true),
        Nodes::Redis(seeds) => redis::start(config, tls, seeds, false),
        Nodes::Cassandra(seeds) => cassandra::start(config, tls, seeds),
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

/// Reads the authorities of nodes that `config` names.
fn tls_settings(config: &Config) -> Result<TlsSettings, StartError> {
    let client = config.node_tls.as_ref().map(ClientTls::load).transpose()?;
    Ok(TlsSettings {
        server: config.certificate.clone(),
        client: client.map(Arc::new),
        ..TlsSettings::default()
    })
}
