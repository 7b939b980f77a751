//! The state that all threads with clients share: the knowledge of the nodes, and the settings.
//!
//! The [`topology_refresher`](super::topology_refresher) changes it. Threads with clients check a
//! version in each turn, and take over changes.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::log_limit::LogLimit;
use parking_lot::{Mutex, RwLock};

use super::commands::Commands;
use super::slot_map::SlotMap;
use super::subscription_service::SubscriptionService;
use super::tracking_service::TrackingService;
use crate::config::{Limits, UnknownOutcome};
use crate::figures::Clients;
use crate::locks::lock_service::LockService;
use crate::node_kind::NodeKind;
use crate::nodes::{NeededNodes, NodeRoles, Nodes};
use crate::refresh_signal::RefreshSignal;
use crate::runtime::query::NodeIndex;

/// The node of each slot, and the addresses of all nodes.
pub(crate) type SlotOwners = (SlotMap, HashSet<SocketAddr>);

/// The knowledge of the nodes.
#[derive(Clone, Debug)]
pub(crate) struct ClusterMetadata {
    pub(crate) commands: Arc<Commands>,
    pub(crate) map: Arc<SlotMap>,
    /// All nodes that a node has reported, including those without slots, and those that were given to
    /// the proxy. No other address is trusted.
    pub(crate) addresses: Arc<HashSet<SocketAddr>>,
    /// The number of databases that clients can select.
    pub(crate) databases: u8,
}

/// Writes the text of `INFO`: of one section, or of all if the argument is empty.
pub(crate) type InfoWriter = Box<dyn Fn(&[u8]) -> String + Send + Sync>;

/// The state that all threads with clients share.
pub(crate) struct RedisState {
    pub(crate) kind: NodeKind,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) started: Instant,
    pub(crate) limits: Limits,
    pub(crate) password: Option<String>,
    /// How many connections to a node clients share.
    pub(crate) connection_keys: u8,
    /// The number of databases that clients can select.
    pub(crate) databases: u8,
    /// How long a query is retried.
    pub(crate) patience: Duration,
    /// How clients learn of unknown outcomes.
    pub(crate) unknown_outcome: UnknownOutcome,
    /// The locks, if the proxy keeps any.
    pub(crate) locks: Option<Arc<LockService>>,
    pub(crate) subscriptions: Arc<SubscriptionService>,
    pub(crate) tracking: Arc<TrackingService>,
    /// Grows with each change of the knowledge.
    pub(crate) version: AtomicU64,
    /// How often the nodes have reported the slots.
    pub(crate) looks: AtomicU64,
    known: RwLock<ClusterMetadata>,
    /// Writes the text of `INFO`.
    pub(crate) about: InfoWriter,
    clients: Arc<Clients>,
    /// Limits log lines that clients cause, by their text.
    log_limit: Mutex<LogLimit<&'static str>>,
    pub(super) refresh: RefreshSignal,
}

/// The parts of a [`RedisState`] besides the knowledge of the nodes.
pub(crate) struct RedisOptions {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) started: Instant,
    pub(crate) limits: Limits,
    pub(crate) password: Option<String>,
    pub(crate) connection_keys: u8,
    pub(crate) patience: Duration,
    pub(crate) unknown_outcome: UnknownOutcome,
    pub(crate) locks: Option<Arc<LockService>>,
    pub(crate) subscriptions: Arc<SubscriptionService>,
    pub(crate) about: InfoWriter,
    pub(crate) clients: Arc<Clients>,
}

/// Each log line that clients cause is written at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl RedisState {
    pub(crate) fn new(setting: RedisOptions, kind: NodeKind, known: ClusterMetadata) -> RedisState {
        let subscriptions = Arc::clone(&setting.subscriptions);
        let tracking = TrackingService::new(subscriptions, setting.limits.tracked_keys);
        RedisState {
            tracking: Arc::new(tracking),
            kind,
            nodes: setting.nodes,
            started: setting.started,
            limits: setting.limits,
            password: setting.password,
            connection_keys: setting.connection_keys,
            databases: known.databases,
            patience: setting.patience,
            unknown_outcome: setting.unknown_outcome,
            locks: setting.locks,
            subscriptions: setting.subscriptions,
            about: setting.about,
            clients: setting.clients,
            log_limit: Mutex::new(LogLimit::new(LOG_INTERVAL)),
            version: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            known: RwLock::new(known),
            refresh: RefreshSignal::default(),
        }
    }

    /// Counts a client's wrong name or password, and logs it at a limited rate.
    pub(crate) fn note_wrong_password(&self) {
        self.clients.refuse_password();
        self.warn("a client gave a wrong name or password");
    }

    /// Writes a log line that clients cause, at a limited rate.
    pub(crate) fn warn(&self, text: &'static str) {
        let now = self.started.elapsed();
        if let Some(left_out) = self.log_limit.lock().count(text, now) {
            tracing::warn!("{text}{left_out}");
        }
    }

    pub(crate) fn known(&self) -> ClusterMetadata {
        self.known.read().clone()
    }

    /// Returns `true` if there is a node at this address.
    pub(crate) fn knows(&self, address: SocketAddr) -> bool {
        self.known.read().addresses.contains(&address)
    }

    /// Returns the text of `INFO`: of one section, or of all if `section` is empty.
    pub(crate) fn info(&self, section: &[u8]) -> String {
        (self.about)(section)
    }

    /// Wakes the refresher: something shows that the knowledge is old.
    pub(crate) fn request_refresh(&self) {
        self.refresh.request();
    }

    /// Ends the refresher and the thread with the subscriptions.
    pub(crate) fn stop(&self) {
        self.refresh.stop();
        self.subscriptions.stop();
    }

    /// Replaces the knowledge of the slots.
    pub(super) fn learn(&self, (mut map, addresses): SlotOwners) {
        let mut known = self.known.write();
        map.follow(&known.map);
        known.addresses = Arc::new(addresses);
        if *known.map != map {
            tracing::info!(nodes = map.all().len(), "slots have moved");
            let before = std::mem::replace(&mut known.map, Arc::new(map));
            self.version.fetch_add(1, Ordering::Release);
            // Queries at a silent node are given up once threads with clients can see the nodes that
            // replace it.
            for &node in before.all() {
                if known.map.replaces(&before, node) {
                    self.nodes
                        .figures(node)
                        .set_replaced(self.started.elapsed());
                }
            }
        }
        drop(known);
        self.looks.fetch_add(1, Ordering::Release);
    }
}

impl NodeRoles for RedisState {
    fn slots(&self, node: NodeIndex) -> usize {
        self.known().map.count_of(node)
    }

    fn needed(&self) -> NeededNodes {
        NeededNodes::Each(self.known().map.all().to_vec())
    }
}
