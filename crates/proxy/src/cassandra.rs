//! CQL: the proxy as the one node of a Cassandra cluster, in versions 4 and 5 of the protocol.
//!
//! | module | concept |
//! |---|---|
//! | [`frames`] | the encoding of envelopes |
//! | [`wire`] | a connection to a node |
//! | [`connection_key`] | the properties by which connections to a node differ |
//! | [`client_protocol`] | the steps in which a thread serves its clients, for the runtime |
//! | [`protocol`] | the state of a thread for its clients |
//! | [`requests`] | the clients' requests, and the nodes that get them |
//! | [`replies`] | the nodes' replies, and requests that got none |
//! | [`keyspace`] | `USE` |
//! | [`preparing`] | prepares statements with nodes that do not know them |
//! | [`client`] | the state of a client |
//! | [`handshake`] | the handshake of a client: versions, options, authentication |
//! | [`route`] | the node or nodes of a request |
//! | [`suspect_nodes`] | nodes that have failed, and are avoided |
//! | [`prepared`] | statements that nodes have prepared, for all clients |
//! | [`retry_policy`] | which queries are retried, and the errors for the others |
//! | [`system`] | `system.local` and `system.peers`: the proxy as the one node |
//! | [`lock_table`] | tables that are locks, which the proxy keeps |
//! | [`lock_requests`] | the clients' requests about these tables |
//! | [`read_atomic`] | read-atomic transactions over designated tables |
//! | [`atomic_requests`] | the clients' requests about these tables |
//! | [`merge`] | merges writes of several clients into one batch, if configured |
//! | [`token_ring`] | the nodes of each key |
//! | [`topology`] | the nodes, as they report themselves and each other |
//! | [`shared_state`] | the state that all threads with clients share |
//! | [`topology_refresher`] | asks the nodes for the topology, and again when it may have changed |
//! | [`events`] | events of nodes |
//! | [`control_connection`] | a connection for a few requests of the proxy's own |
//! | [`node_connection`] | the settings of connections to nodes, and the requests with which they begin |
//! | [`reply_time_limit`] | how long a node may take for a request |
//! | [`credentials`] | the proofs of clients' identities |
//!
//! Guarantees:
//! 1. A reply has the stream of its request, and goes to the connection that the request came from.
//! 2. A node gets a request as the client sent it: only its stream is changed. Writes are merged only
//!    with `--merge-writes`, see [`merge`]; requests about read-atomic tables become others, see
//!    [`atomic_requests`].
//! 3. When a node fails, requests that were not sent and requests that only read go to another node.
//!    Every other request whose reply was lost, or does not come, is answered with a write timeout
//!    without acknowledgements, which is what Cassandra reports for an uncertain outcome. A reply that
//!    comes after that is dropped.
//! 4. A change of the schema is answered, and clients get its event, when all living nodes have it, or
//!    ten seconds later: the next request may go to any of them.

pub(crate) mod atomic_requests;
pub(crate) mod client;
pub(crate) mod client_protocol;
pub(crate) mod connection_key;
pub(crate) mod control_connection;
pub(crate) mod credentials;
pub(crate) mod events;
pub(crate) mod frames;
pub(crate) mod handshake;
pub(crate) mod keyspace;
pub(crate) mod lock_requests;
pub(crate) mod lock_table;
pub(crate) mod merge;
pub(crate) mod node_connection;
pub(crate) mod prepared;
pub(crate) mod preparing;
pub(crate) mod protocol;
pub(crate) mod read_atomic;
pub(crate) mod replies;
pub(crate) mod reply_time_limit;
pub(crate) mod requests;
pub(crate) mod retry_policy;
pub(crate) mod route;
pub(crate) mod shared_state;
pub(crate) mod suspect_nodes;
pub(crate) mod system;
pub(crate) mod token_ring;
pub(crate) mod topology;
pub(crate) mod topology_refresher;
pub(crate) mod wire;

use std::sync::Arc;

use self::credentials::Credential;
use self::lock_table::LockTables;
use self::node_connection::Options;
use self::protocol::CqlProtocol;
use self::read_atomic::ReadAtomicTables;
use self::read_atomic::recovery::Recovery;
use self::read_atomic::transaction_id::Owner;
use self::shared_state::{CassandraOptions, CassandraState};
use self::topology_refresher::TopologyRefresher;
use self::wire::CqlWire;
use crate::config::{Config, StartError};
use crate::info::ProxyInfo;
use crate::locks::lock_service::LockService;
use crate::node_kind::NodeKind;
use crate::nodes::Nodes;
use crate::running::Running;
use crate::seeds::{NodeAddress, SeedAddresses};
use crate::threads::ListeningProxy;
use base::clock::{Clock, SystemClock};
use reactor::tls::{ServerTls, TlsSettings};

/// Starts a proxy in front of Cassandra.
pub(crate) fn start(
    config: &Config,
    tls: TlsSettings,
    seeds: &[NodeAddress],
) -> Result<Running, StartError> {
    let own = match (&config.node_user, &config.node_password) {
        (Some(user), Some(password)) => Some(Credential::of_password(user, password)),
        _ => None,
    };
    let options = Arc::new(Options {
        own,
        tls: tls.client.clone(),
        ..Options::default()
    });
    let nodes = Arc::new(Nodes::default());
    let seeds = SeedAddresses::look_up(seeds).map_err(|tried| StartError::NoNode { tried })?;
    let seeds = Arc::new(seeds);
    let tables = [&config.lock_tables[..], &config.read_atomic];
    let found = topology::discover(&seeds.addresses(), tables, &options, &nodes);
    let (nature, known) = found.map_err(|tried| StartError::NoNode { tried })?;
    if !config.read_atomic.is_empty() && nature.authenticator.is_some() {
        return Err(StartError::ReadAtomicUsers);
    }
    for table in &known.read_atomic {
        if let Err(fault) = &table.schema {
            tracing::warn!("{} is not read atomic yet: {fault}", table.name);
        }
    }
    let listen = config.listen;
    // Nodes without authentication serve anyone; the proxy must not do that for other machines.
    let asks = nature.authenticator.is_some()
        || config
            .certificate
            .as_deref()
            .is_some_and(ServerTls::requires_certificates);
    if !listen.ip().is_loopback() && !asks && !config.insecure {
        return Err(StartError::OpenNodes { listen });
    }
    let ground = ListeningProxy::new(config, nodes, tls)?;
    let locks = LockService::configured(config)?;
    let about = ProxyInfo::new(config, NodeKind::Cassandra, &ground, locks.clone());
    let setting = CassandraOptions {
        nodes: Arc::clone(&ground.nodes),
        options: Arc::clone(&options),
        limits: config.limits,
        connections: config.connections,
        patience: config.patience,
        address: config.advertise.unwrap_or(ground.address),
        others: config.proxies.clone(),
        merge_writes: config.merge_writes,
        lock_tables: LockTables {
            tables: config.lock_tables.clone(),
            locks,
        },
        read_atomic: ReadAtomicTables::new(
            config.read_atomic.clone(),
            Owner(fastrand::i64(..)),
            &(Arc::new(SystemClock) as Arc<dyn Clock>),
            &about.read_atomic,
        ),
    };
    let state = Arc::new(CassandraState::new(setting, nature, known));
    let protocol = || CqlProtocol::new(Arc::clone(&state));
    let mut running = Running::start::<CqlProtocol, CqlWire>(
        ground,
        config,
        about,
        protocol,
        &options,
        state.clone(),
        &|_, _| {},
    )?;
    state.set_wakers(running.stopper.wakers.clone());
    let (kept, near) = (Arc::clone(&state), Arc::clone(&seeds));
    running.keep("refresher", move || {
        TopologyRefresher::new(&kept, &near).run();
    })?;
    if !config.read_atomic.is_empty() {
        let (kept, near) = (Arc::clone(&state), Arc::clone(&seeds));
        running.keep("recovery", move || Recovery::new(&kept, &near).run())?;
    }
    let (heard, near) = (Arc::clone(&state), seeds);
    running.keep("listener", move || events::listen(&heard, &near))?;
    running.release = Box::new(move || state.stop());
    Ok(running)
}
