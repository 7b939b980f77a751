//! Paper 3's older design of the proxy (section 4.3, figure 4), to be measured beside the newer one: the
//! same proxy on another network and with other queues.
//!
//! | module | contents |
//! |---|---|
//! | `relayed`, `relay`, `relay_queues` | a network that another thread does for each thread, with a copy in each direction |
//! | `mutex_queue` | queues behind mutexes |
//! | this | the proxy with both |
//!
//! A program that runs experiments starts itself with `older-proxy CONFIGURATION` for it, where `CONFIGURATION`
//! is a [`OlderProxyConfig`] as JSON, and calls [`serve`].

mod mutex_queue;
mod relay;
mod relay_queues;
mod relayed;

use crate::error::RunError;
use std::net::SocketAddr;

use proxy::{Config, Nodes, Running, StartError};
use serde::{Deserialize, Serialize};

pub use relayed::{RelayedListener, RelayedNetwork, RelayedStream, RelayedWaker};

/// The configuration of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OlderProxyConfig {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// The nodes.
    pub nodes: Vec<SocketAddr>,
    /// `true` if the nodes are Kumiki's; otherwise they are Redis servers.
    pub kumiki: bool,
    /// Threads that have clients.
    pub network_threads: usize,
    /// Threads that have nodes; 0: those with clients have them, too.
    pub aggregation_threads: usize,
}

/// Starts a proxy of the older design. Packets to a node do not wait for one another, as in the paper.
///
/// # Errors
/// Returns the errors of the proxy.
pub fn start(config: &OlderProxyConfig) -> Result<Running, StartError> {
    let nodes = config.nodes.iter().map(|&node| node.into()).collect();
    let nodes = match config.kumiki {
        true => Nodes::Kumiki(nodes),
        false => Nodes::Redis(nodes),
    };
    proxy::start_on::<RelayedNetwork, mutex_queue::MutexQueues>(&Config {
        listen: config.listen,
        network_threads: config.network_threads,
        aggregation_threads: config.aggregation_threads,
        packs: Some(usize::MAX),
        ..Config::new(nodes)
    })
}

/// Runs such a proxy, until the process is killed.
///
/// # Errors
/// The proxy cannot start or has lost a thread; the text says why.
pub fn serve(config: &str) -> Result<(), RunError> {
    let config: OlderProxyConfig = serde_json::from_str(config).map_err(RunError::of)?;
    let running = start(&config).map_err(RunError::of)?;
    running.wait().map_err(RunError::of)
}
