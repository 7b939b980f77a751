//! What a runtime begins with: its part of the cluster, and the places of clients that have not given
//! the password.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;

use fabric::Peer;
use fabric::tcp::{Tcp, TcpOptions};
use reactor::Network;
use reactor::newcomers::{Newcomers, places_of_thread};

use crate::coordination::{NodeLinks, RuntimeNode};
use crate::server_state::ServerState;

/// The events of links begin here; those of clients' connections begin at 0.
pub(super) const FIRST_TOKEN: usize = 1 << 40;

/// Creates the part of the cluster that runtime `index` is, if the server is a node of one.
pub(super) fn join<N: Network>(
    shared: &Arc<ServerState>,
    index: usize,
    network: &mut N,
    listener: Option<TcpListener>,
) -> std::io::Result<Option<(Box<RuntimeNode>, NodeLinks<N>)>> {
    let (Some(membership), Some(routes)) = (&shared.config.cluster, &shared.routes) else {
        return Ok(None);
    };
    let topology = &membership.topology;
    let secrets = membership.secrets.clone();
    let me = Peer::Node(membership.node);
    let peers: HashMap<_, _> = topology
        .nodes()
        .iter()
        .map(|node| (node.id, node.fabric))
        .collect();
    let mut identity = TcpOptions::new(me, secrets.nodes, topology.fingerprint());
    identity.identity.clients = Some(secrets.clients);
    let options = TcpOptions {
        listener,
        peers,
        transport: membership.transport,
        encryption: membership.encryption,
        verbs: membership.verbs.clone(),
        budget: Arc::clone(&shared.in_flight),
        ..identity
    };
    let fabric = Tcp::new(options, network, FIRST_TOKEN)?;
    let now = shared.started.elapsed();
    let routes = Arc::clone(routes);
    let ramp = (shared.config.ramp, shared.published.clone());
    let coordination = RuntimeNode::new(membership, ramp, routes, index, now);
    Ok(Some((Box::new(coordination), NodeLinks::new(fabric))))
}

/// Returns the places of one of the server's threads.
pub(super) fn newcomer_places(shared: &ServerState) -> Newcomers<usize> {
    let limits = &shared.config.limits;
    let threads = shared.config.threads;
    let places = places_of_thread(limits.clients, limits.unauthenticated, threads);
    Newcomers::new(places, limits.authentication)
}
