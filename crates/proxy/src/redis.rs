//! RESP: the proxy as one server in front of Kumiki, Redis Cluster, or a few Redis servers.
//!
//! | module | concept |
//! |---|---|
//! | [`wire`] | a connection to a node |
//! | [`protocol`] | the clients' commands, and their ways to the nodes |
//! | [`command_dispatch`] | the dispatch of commands to nodes |
//! | [`replies`] | the nodes' replies, and queries that got none |
//! | [`transactions`] | commands in blocks, and the execution of blocks |
//! | [`client`] | the state of a client; its replies in their order |
//! | [`commands`] | the commands and the positions of their keys, as the nodes report them |
//! | [`command_docs`] | what `COMMAND` says of the proxy's own commands |
//! | [`outcome`] | the result of one command |
//! | [`route`] | the node or nodes of a command |
//! | [`reply_merge`] | one reply made of several |
//! | [`multi_block`] | a block, and the watched keys |
//! | [`repeated_script`] | scripts that are sent again |
//! | [`retry_policy`] | which queries are retried, and the errors for the others |
//! | [`local_commands`] | commands that the proxy answers |
//! | [`delayed_refusals`] | the answers to wrong passwords |
//! | [`publish_subscribe`] [`pubsub_command`] | commands of publish/subscribe, and the messages for a client |
//! | [`publish_request`] | the number of the receivers of a message |
//! | [`thread_subscribers`] | the subscribers among a thread's clients |
//! | [`client_tracking`] [`caching_client`] | client-side caching: its commands; what a client has chosen, and its reads that have no reply yet |
//! | [`thread_tracking`] | the clients of a thread with client-side caching |
//! | [`tracking_service`] [`tracking_hub`] | which client may keep which key; the proxy's requests to the nodes to tell of changes |
//! | [`subscription_service`] | the way between the threads with clients and the hub |
//! | [`subscription_hub`] [`subscription_wire`] [`subscription_thread`] | the proxy's subscriptions at the nodes: which there are, their connections, their thread |
//! | [`lock`] | commands about locks |
//! | [`slot_map`] | which node has which slot |
//! | [`shared_state`] | the state that all threads with clients share |
//! | [`topology_refresher`] | learns the slots' nodes, and keeps them up to date |
//! | [`control_connection`] | a connection for a few requests of the proxy's own |
//!
//! Guarantees:
//! 1. A client's replies have the order of its commands. Commands on one key are executed in their
//!    order, unless one of them is retried while later ones were under way already. Of commands on keys
//!    of several nodes that are sent without waiting for replies, each node executes its own in their
//!    order. A command that one node executes for several (Kumiki) waits for the commands sent before
//!    it, and those sent after it wait for it.
//! 2. Kumiki: a command on several keys is one transaction, and so is a `MULTI` block with its watched
//!    keys. Redis: a command on keys of several slots is split into one for each slot, each of which is
//!    atomic by itself; all keys of a block must be in one slot.
//! 3. A query that was not sent, or that changes nothing, is retried for a while when a node fails.
//!    The client of every other query whose reply was lost learns that its outcome is not known.

pub(crate) mod caching_client;
pub(crate) mod client;
pub(crate) mod client_tracking;
pub(crate) mod command_dispatch;
pub(crate) mod command_docs;
pub(crate) mod commands;
pub(crate) mod control_connection;
pub(crate) mod delayed_refusals;
pub(crate) mod local_commands;
pub(crate) mod lock;
pub(crate) mod multi_block;
pub(crate) mod outcome;
pub(crate) mod protocol;
pub(crate) mod publish_request;
pub(crate) mod publish_subscribe;
pub(crate) mod pubsub_command;
pub(crate) mod repeated_script;
pub(crate) mod replies;
pub(crate) mod reply_merge;
pub(crate) mod retry_policy;
pub(crate) mod route;
pub(crate) mod shared_state;
pub(crate) mod slot_map;
pub(crate) mod subscription_hub;
pub(crate) mod subscription_service;
pub(crate) mod subscription_thread;
pub(crate) mod subscription_wire;
pub(crate) mod thread_subscribers;
pub(crate) mod thread_tracking;
pub(crate) mod topology_refresher;
pub(crate) mod tracking_hub;
pub(crate) mod tracking_service;
pub(crate) mod transactions;
pub(crate) mod wire;

use std::sync::Arc;

use self::protocol::RedisProtocol;
use self::shared_state::{RedisOptions, RedisState};
use self::subscription_service::SubscriptionService;
use self::subscription_thread::SubscriptionThread;
use self::wire::{Options, RespWire};
use crate::config::{Config, StartError};
use crate::info::ProxyInfo;
use crate::locks::lock_service::LockService;
use crate::nodes::Nodes;
use crate::running::Running;
use crate::seeds::{NodeAddress, SeedAddresses};
use crate::threads::ListeningProxy;
use reactor::tls::{Tls, TlsSettings};
use reactor::{Network, Sockets};

/// Starts a proxy in front of Kumiki, or Redis.
pub(crate) fn start(
    config: &Config,
    tls: TlsSettings,
    seeds: &[NodeAddress],
    kumiki: bool,
) -> Result<Running, StartError> {
    let options = Arc::new(Options {
        user: config.node_user.clone(),
        password: config.node_password.clone(),
        tls: tls.client.clone(),
    });
    let nodes = Arc::new(Nodes::default());
    let seeds = SeedAddresses::look_up(seeds).map_err(|tried| StartError::NoNode { tried })?;
    let found = topology_refresher::discover(&seeds, kumiki, &options, &nodes);
    let (kind, known) = found.map_err(|tried| StartError::NoNode { tried })?;
    let client_tls = TlsSettings {
        client: tls.client.clone(),
        ..TlsSettings::default()
    };
    let ground = ListeningProxy::new(config, nodes, tls)?;
    let locks = LockService::configured(config)?;
    let subscriptions = Arc::new(SubscriptionService::new(config.network_threads, kind));
    let about = ProxyInfo::new(config, kind, &ground, locks.clone());
    let info = Arc::clone(&about);
    let setting = RedisOptions {
        nodes: Arc::clone(&ground.nodes),
        started: ground.started,
        limits: config.limits,
        password: config.password.clone(),
        connection_keys: config.connections.max(1),
        patience: config.patience,
        unknown_outcome: config.unknown_outcome,
        locks,
        subscriptions: Arc::clone(&subscriptions),
        clients: Arc::clone(&about.clients),
        about: Box::new(move |section| info.text(section)),
    };
    let state = Arc::new(RedisState::new(setting, kind, known));
    let woken = Arc::downgrade(&state);
    state.nodes.on_silence(move || {
        if let Some(state) = woken.upgrade() {
            state.request_refresh();
        }
    });
    let protocol = || RedisProtocol::new(Arc::clone(&state));
    let mut running = Running::start::<RedisProtocol, RespWire>(
        ground,
        config,
        about,
        protocol,
        &options,
        state.clone(),
        &|thread, waker| subscriptions.set_waker(thread, waker),
    )?;
    keep_subscriptions(&mut running, config, client_tls, &options, &state)?;
    let kept = Arc::clone(&state);
    running.keep("refresher", move || {
        topology_refresher::run(&kept, &seeds, &options);
    })?;
    running.release = Box::new(move || state.stop());
    Ok(running)
}

/// Starts the thread that has the proxy's subscriptions at the nodes.
fn keep_subscriptions(
    running: &mut Running,
    config: &Config,
    tls: TlsSettings,
    options: &Arc<Options>,
    state: &Arc<RedisState>,
) -> Result<(), StartError> {
    let failed = |error| StartError::Thread { error };
    let network = Sockets::open().map_err(failed)?;
    let state = Arc::clone(state);
    let name = "subscriptions";
    match tls.is_plain() {
        true => {
            let thread = SubscriptionThread::new(network, config, options, state);
            let thread = thread.map_err(failed)?;
            running.keep(name, move || thread.run())
        }
        false => {
            let network = Tls::around(network, tls);
            let thread = SubscriptionThread::new(network, config, options, state);
            let thread = thread.map_err(failed)?;
            running.keep(name, move || thread.run())
        }
    }
}
