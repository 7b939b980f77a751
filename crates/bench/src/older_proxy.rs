//! Paper 3's older design of the proxy (section 4.3, figure 4), to be measured beside the newer one: the
//! same proxy on another network and with other queues.
//!
//! | module | contents |
//! |---|---|
//! | `relayed`, `relay`, `relay_queues` | a network that another thread does for each thread, with a copy in each direction |
//! | `mutex_queue` | queues behind mutexes |
//! | this | the proxy with both |
//!
//! A program that runs experiments starts itself with `older-proxy SERVING` for it, where `SERVING`
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
pub fn start(serving: &OlderProxyConfig) -> Result<Running, StartError> {
    let nodes = serving.nodes.iter().map(|&node| node.into()).collect();
    let nodes = match serving.kumiki {
        true => Nodes::Kumiki(nodes),
        false => Nodes::Redis(nodes),
    };
    proxy::start_on::<RelayedNetwork, mutex_queue::MutexQueues>(&Config {
        listen: serving.listen,
        network_threads: serving.network_threads,
        aggregation_threads: serving.aggregation_threads,
        packs: Some(usize::MAX),
        ..Config::new(nodes)
    })
}

/// Runs such a proxy, until the process is killed.
///
/// # Errors
/// The proxy cannot start or has lost a thread; the text says why.
pub fn serve(serving: &str) -> Result<(), RunError> {
    let serving: OlderProxyConfig = serde_json::from_str(serving).map_err(RunError::of)?;
    let running = start(&serving).map_err(RunError::of)?;
    running.wait().map_err(RunError::of)
}
