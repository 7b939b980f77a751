//! Communication with other nodes.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use base::Epoch;
use fabric::tcp::{Tcp, TcpOptions};
use fabric::{Peer, Secret};
use mio::Token;
use reactor::{Network, SocketEvent};

use super::Runtime;
use crate::coordination::Coordination;
use crate::shared::Shared;

/// How long links may take to be closed.
const CLOSING: Duration = Duration::from_secs(1);
/// The events of links begin here; those of clients' connections begin at 0.
pub(super) const FIRST_TOKEN: usize = 1 << 40;

/// Creates the part of the cluster that runtime `index` is, if the server is a node of one.
pub(super) fn join(
    shared: &Arc<Shared>,
    index: usize,
    network: &mut impl Network,
    listener: Option<TcpListener>,
) -> std::io::Result<Option<Box<Coordination>>> {
    let (Some(membership), Some(routes)) = (&shared.config.cluster, &shared.routes) else {
        return Ok(None);
    };
    let topology = &membership.topology;
    let secret = Secret::new(topology.secret().unwrap_or_default());
    let me = Peer::Node(membership.node);
    let peers: HashMap<_, _> = topology
        .nodes()
        .iter()
        .map(|node| (node.id, node.fabric))
        .collect();
    let mut identity = TcpOptions::new(me, secret, topology.fingerprint());
    identity.identity.clients = topology.client_secret().map(Secret::new);
    let options = TcpOptions {
        listener,
        peers,
        transport: membership.transport,
        verbs: membership.verbs.clone(),
        budget: Arc::clone(&shared.in_flight),
        ..identity
    };
    let fabric = Tcp::new(options, network.registry()?, Token(FIRST_TOKEN))?;
    let now = shared.started.elapsed();
    let routes = Arc::clone(routes);
    let ramp = (shared.config.ramp, shared.published.clone());
    let coordination = Coordination::new(membership, ramp, routes, index, fabric, now);
    Ok(Some(Box::new(coordination)))
}

impl<N: Network> Runtime<N> {
    pub(super) fn note_fabric_event(&mut self, event: SocketEvent) {
        if let Some(cluster) = &mut self.executor.cluster {
            cluster.note_event(event);
        }
    }

    /// Takes the messages of other nodes. Returns `true` if there were any.
    pub(super) fn hear_nodes(&mut self) -> bool {
        let Some(cluster) = &mut self.executor.cluster else {
            return false;
        };
        let (worker, now) = (&mut self.executor.worker, self.executor.context.now);
        worker.refresh();
        let heard = cluster.receive(worker, now);
        self.more_from_nodes = heard.more;
        heard.something
    }

    /// Closes the links to other nodes and clients, and sends what waited on them, for a limited
    /// time: a peer that is stopped or cut off does not take it.
    pub(super) fn close_links(&mut self) {
        let Some(cluster) = &mut self.executor.cluster else {
            return;
        };
        let clock = self.executor.context.shared.started;
        let until = clock.elapsed() + CLOSING;
        let mut events = Vec::new();
        cluster.close();
        loop {
            let now = clock.elapsed();
            let Some(pause) = cluster.go_on_closing(now) else {
                return;
            };
            let left = until.saturating_sub(now);
            let waited = self.network.wait(&mut events, Some(pause.min(left)));
            if left.is_zero() || waited.is_err() {
                tracing::debug!("stopped without waiting longer for nodes to take messages");
                return;
            }
            for event in events.drain(..) {
                if event.token >= FIRST_TOKEN {
                    cluster.note_event(event);
                }
            }
        }
    }

    /// Lets the node make progress, tells connections the outcomes of their transactions, and sends
    /// the messages for other nodes: in this order, because clients wait for the outcomes, and no
    /// client for what follows from them.
    pub(super) fn turn_node(&mut self) {
        let Some(cluster) = &mut self.executor.cluster else {
            return;
        };
        let mut finished = std::mem::take(&mut self.finished);
        let (worker, now) = (&mut self.executor.worker, self.executor.context.now);
        // Transactions that waited for holds belong to no client here.
        worker.serve(0);
        if std::mem::take(&mut self.executor.context.wants_leaders) {
            cluster.look_for_leaders(worker, now);
        }
        cluster.go_on(worker, now, &mut finished);
        let told = !finished.is_empty();
        for finished in finished.drain(..) {
            let key = finished.caller.key;
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            self.executor.tell_finished(connection, finished);
            self.lists.touched(key, connection);
        }
        self.finished = finished;
        if told {
            self.settle_touched();
        }
        if let Some(cluster) = &mut self.executor.cluster {
            cluster.send();
        }
    }

    /// Returns the epoch that an answer to another node waits for. Once the log has failed, none
    /// will come.
    pub(super) fn node_wants(&self) -> Option<Epoch> {
        let cluster = self.executor.cluster.as_ref()?;
        let failed = self.executor.context.failed.is_some();
        cluster.wants().epoch.filter(|_| !failed)
    }
}
