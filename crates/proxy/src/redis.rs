//! RESP: the proxy as one server in front of Kumiki, Redis Cluster, or a few Redis servers.
//!
//! | module | concept |
//! |---|---|
//! | [`wire`] | a connection to a node |
//! | [`protocol`] | what clients send, and where it goes |
//! | [`replies`] | what nodes answer, and what becomes of what none has answered |
//! | [`transactions`] | what clients put into blocks, and what becomes of blocks |
//! | [`client`] | what is remembered of a client; its replies in their order |
//! | [`commands`] | which commands there are, and where their keys stand: as the nodes say it |
//! | [`route`] | where a command goes |
//! | [`reply_merge`] | one reply of several |
//! | [`multi_block`] | a block, and what is watched |
//! | [`retry_policy`] | what is tried again, and what is told instead |
//! | [`local_commands`] | commands that the proxy answers |
//! | [`lock`] | commands about locks |
//! | [`slot_map`] | which node has which slot |
//! | [`topology_refresher`] | finds that out, and keeps it so |
//!
//! Guarantees:
//! 1. A client's replies have the order of its commands. Commands on one key are executed in their
//!    order, unless one is tried again while later ones were under way already; of commands on keys of several nodes that are sent without waiting for replies, each
//!    node executes its own in their order. A command that one node executes for several (Kumiki)
//!    waits for what was sent before it, and what is sent after it waits for it.
//! 2. Kumiki: a command on several keys is one transaction, and so is a `MULTI` block with what it
//!    watches. Redis: a command on several keys of several slots is split into one for each slot,
//!    each of which is atomic for itself; a block must have all keys in one slot.
//! 3. What was not sent, and what changes nothing, is tried again for a while when a node fails.
//!    Everything else whose reply was lost is answered with `-UNKNOWN`.

pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod local_commands;
pub(crate) mod lock;
pub(crate) mod multi_block;
pub(crate) mod protocol;
pub(crate) mod replies;
pub(crate) mod reply_merge;
pub(crate) mod retry_policy;
pub(crate) mod route;
pub(crate) mod slot_map;
pub(crate) mod topology_refresher;
pub(crate) mod transactions;
pub(crate) mod wire;

use std::sync::Arc;

use self::protocol::RedisProtocol;
use self::topology_refresher::{RefresherOptions, State};
use self::wire::{Options, RespWire};
use crate::Running;
use crate::config::{Config, StartError};
use crate::nodes::Nodes;
use crate::seeds::{NodeAddress, Seeds};
use crate::threads::{Ground, Parts};
use crate::tls::Setup;

/// What the nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nodes of a Kumiki cluster: any of them executes a command on keys of several.
    Kumiki,
    /// Nodes of a Redis Cluster.
    RedisCluster,
    /// Redis servers that do not know of each other: the slots are shared out evenly among them, in
    /// the order in which they were given.
    RedisServers,
    /// Nodes of a Cassandra cluster.
    Cassandra,
}

/// Starts a proxy in front of Kumiki, or Redis.
pub(crate) fn start<P: Parts>(
    config: &Config,
    tls: Setup,
    seeds: &[NodeAddress],
    kumiki: bool,
) -> Result<Running, StartError> {
    let options = Arc::new(Options {
        user: config.node_user.clone(),
        password: config.node_password.clone(),
        tls: tls.nodes.clone(),
    });
    let nodes = Arc::new(Nodes::default());
    let seeds = Seeds::look_up(seeds).map_err(|tried| StartError::NoNode { tried })?;
    let found = topology_refresher::discover(&seeds, kumiki, &options, &nodes);
    let (kind, known) = found.map_err(|tried| StartError::NoNode { tried })?;
    let ground = Ground::new(config, kind, nodes, tls)?;
    let about = Arc::clone(&ground.about);
    let setting = RefresherOptions {
        nodes: Arc::clone(&ground.nodes),
        started: ground.started,
        limits: config.limits,
        password: config.password.clone(),
        connection_keys: config.connections.max(1),
        patience: config.patience,
        locks: about.locks.clone(),
        clients: Arc::clone(&about.clients),
        about: Box::new(move |section| about.text(section)),
    };
    let state = Arc::new(State::new(setting, kind, known));
    let woken = Arc::downgrade(&state);
    state.nodes.on_silence(move || {
        if let Some(state) = woken.upgrade() {
            state.ask_for_news();
        }
    });
    let protocol = || RedisProtocol::new(Arc::clone(&state));
    let mut running =
        ground.start::<P, RedisProtocol, RespWire>(config, protocol, &options, state.clone())?;
    let kept = Arc::clone(&state);
    running.keep("keeper", move || kept.keep(&seeds, &options))?;
    running.release = Box::new(move || state.stop());
    Ok(running)
}
