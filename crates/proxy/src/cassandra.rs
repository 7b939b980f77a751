//! CQL: the proxy as the one node of a Cassandra cluster, in versions 4 and 5 of the protocol.
//!
//! | module | concept |
//! |---|---|
//! | [`frames`] | envelopes as they come and as they leave |
//! | [`wire`] | a connection to a node |
//! | [`connection_key`] | what connections to a node differ in |
//! | [`protocol`] | what a thread knows for its clients, and in what steps it serves them |
//! | [`requests`] | what clients ask, and which node gets it |
//! | [`replies`] | what nodes answer, and what becomes of what none has answered |
//! | [`keyspace`] | `USE` |
//! | [`preparing`] | nodes are told of statements that they do not know |
//! | [`client`] | what is remembered of a client |
//! | [`handshake`] | how a client begins: versions, options, who it is |
//! | [`route`] | where a request goes |
//! | [`suspect_nodes`] | nodes that have failed, and are asked nothing |
//! | [`prepared`] | statements that nodes have prepared, for all clients |
//! | [`retry_policy`] | what is tried again, and what is told instead |
//! | [`system`] | `system.local` and `system.peers`: the proxy as the one node |
//! | [`lock_table`] | tables that are locks, which the proxy keeps |
//! | [`merge`] | writes of several clients as one batch, if that is wanted |
//! | [`token_ring`] | which node keeps which key |
//! | [`topology`] | what nodes tell of themselves and of each other |
//! | [`topology_refresher`] | asks them for it, and again when it may have changed |
//! | [`events`] | what nodes tell without having been asked |
//! | [`control_connection`] | a connection for a few questions |
//! | [`credentials`] | who clients are |
//!
//! Guarantees:
//! 1. A reply has the stream of its request, and goes to the connection that this came from.
//! 2. A request is given to a node as it came: but for its stream, not a byte is changed. Writes are
//!    merged only if `--merge-writes` says so; see [`merge`].
//! 3. What was not sent, and what only reads, goes to another node when one fails. Everything else
//!    whose reply was lost, or does not come, is answered with a write timeout that nobody has
//!    acknowledged, which is what Cassandra says of an uncertain outcome. A reply that comes after
//!    that is nobody's.
//! 4. A change of the schema is answered, and clients are told of it, when all nodes that live have
//!    it, or ten seconds later: what comes next may go to any of them.

pub(crate) mod client;
pub(crate) mod connection_key;
pub(crate) mod control_connection;
pub(crate) mod credentials;
pub(crate) mod events;
pub(crate) mod frames;
pub(crate) mod handshake;
pub(crate) mod keyspace;
pub(crate) mod lock_table;
pub(crate) mod merge;
pub(crate) mod prepared;
pub(crate) mod preparing;
pub(crate) mod protocol;
pub(crate) mod replies;
pub(crate) mod requests;
pub(crate) mod retry_policy;
pub(crate) mod route;
pub(crate) mod suspect_nodes;
pub(crate) mod system;
pub(crate) mod token_ring;
pub(crate) mod topology;
pub(crate) mod topology_refresher;
pub(crate) mod wire;

use std::sync::Arc;

use self::credentials::Credential;
use self::lock_table::Keeping;
use self::protocol::CqlProtocol;
use self::topology_refresher::{RefresherOptions, State};
use self::wire::{CqlWire, Options};
use crate::Running;
use crate::config::{Config, StartError};
use crate::nodes::Nodes;
use crate::redis::Kind;
use crate::seeds::{NodeAddress, Seeds};
use crate::threads::{Ground, Parts};
use crate::tls::Setup;

/// Starts a proxy in front of Cassandra.
pub(crate) fn start<P: Parts>(
    config: &Config,
    tls: Setup,
    seeds: &[NodeAddress],
) -> Result<Running, StartError> {
    let own = match (&config.node_user, &config.node_password) {
        (Some(user), Some(password)) => Some(Credential::of_password(user, password)),
        _ => None,
    };
    let options = Arc::new(Options {
        own,
        tls: tls.nodes.clone(),
        ..Options::default()
    });
    let nodes = Arc::new(Nodes::default());
    let seeds = Seeds::look_up(seeds).map_err(|tried| StartError::NoNode { tried })?;
    let seeds = Arc::new(seeds);
    let found = topology::discover(&seeds.addresses(), &config.lock_tables, &options, &nodes);
    let (nature, known) = found.map_err(|tried| StartError::NoNode { tried })?;
    let listen = config.listen;
    // Nodes that ask nobody serve anyone; the proxy must not do that for strangers.
    let asks = nature.authenticator.is_some()
        || config
            .tls
            .as_ref()
            .is_some_and(|tls| tls.client_ca.is_some());
    if !listen.ip().is_loopback() && !asks && !config.insecure {
        return Err(StartError::OpenNodes { listen });
    }
    let ground = Ground::new(config, Kind::Cassandra, nodes, tls)?;
    let setting = RefresherOptions {
        nodes: Arc::clone(&ground.nodes),
        options: Arc::clone(&options),
        limits: config.limits,
        connections: config.connections,
        patience: config.patience,
        address: config.advertise.unwrap_or(ground.address),
        others: config.proxies.clone(),
        merge_writes: config.merge_writes,
        keeping: Keeping {
            tables: config.lock_tables.clone(),
            context: ground.about.locks.clone(),
        },
    };
    let state = Arc::new(State::new(setting, nature, known));
    let protocol = || CqlProtocol::new(Arc::clone(&state));
    let mut running =
        ground.start::<P, CqlProtocol, CqlWire>(config, protocol, &options, state.clone())?;
    state.set_bells(running.stopper.wakers.clone());
    let (kept, near) = (Arc::clone(&state), Arc::clone(&seeds));
    running.keep("keeper", move || kept.keep(&near))?;
    let (heard, near) = (Arc::clone(&state), seeds);
    running.keep("listener", move || events::listen(&heard, &near))?;
    running.release = Box::new(move || state.stop());
    Ok(running)
}
