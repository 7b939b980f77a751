//! Paper 3's older design of the proxy (section 4.3, figure 4), to be measured beside the newer one: the
//! same proxy on another network and with other queues.
//!
//! | module | contents |
//! |---|---|
//! | `relayed`, `relay`, `shared` | a network that another thread does for each thread, with a copy in each direction |
//! | `locked` | queues behind mutexes |
//! | this | the proxy with both |
//!
//! A program that runs experiments starts itself with `older-proxy SERVING` for it, where `SERVING`
//! is a [`Serving`] as JSON, and calls [`serve`].

mod locked;
mod relay;
mod relayed;
mod shared;

use std::net::SocketAddr;

use proxy::{Config, Nodes, Running, StartError};
use serde::{Deserialize, Serialize};

pub use relayed::{Relayed, RelayedListener, RelayedStream, RelayedWaker};

/// The configuration of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
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
pub fn start(serving: &Serving) -> Result<Running, StartError> {
    let nodes = serving.nodes.iter().map(|&node| node.into()).collect();
    let nodes = match serving.kumiki {
        true => Nodes::Kumiki(nodes),
        false => Nodes::Redis(nodes),
    };
    proxy::start_on::<Relayed, locked::Locked>(&Config {
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
pub fn serve(serving: &str) -> Result<(), String> {
    let serving: Serving = serde_json::from_str(serving).map_err(|error| error.to_string())?;
    let running = start(&serving).map_err(|error| error.to_string())?;
    running.wait().map_err(|error| error.to_string())
}
