//! The state that all threads with clients share: the knowledge of the nodes, prepared statements, and
//! the agreements of the nodes on the schema.
//!
//! The [`topology_refresher`](super::topology_refresher) changes it. Threads with clients check a
//! version in each turn, and take over changes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::lock_table::LockTables;
use super::node_connection::Options;
use super::prepared::PreparedStatements;
use super::read_atomic::ReadAtomicTables;
use super::topology::{CassandraTopology, ClusterProperties};
use crate::config::Limits;
use crate::nodes::{NeededNodes, NodeRoles, Nodes};
use crate::refresh_signal::RefreshSignal;
use crate::runtime::query::NodeIndex;
use crate::runtime::thread_waker::ThreadWaker;
use crate::seeds::SeedAddresses;

/// The parts of a [`CassandraState`] besides the knowledge of the nodes.
pub(crate) struct CassandraOptions {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) options: Arc<Options>,
    pub(crate) limits: Limits,
    /// How many connections to a node clients share.
    pub(crate) connections: u8,
    /// How long a query is retried.
    pub(crate) patience: Duration,
    /// The address at which clients reach this proxy.
    pub(crate) address: SocketAddr,
    /// The addresses at which clients reach the other proxies.
    pub(crate) others: Vec<SocketAddr>,
    pub(crate) lock_tables: LockTables,
    pub(crate) read_atomic: ReadAtomicTables,
    /// Writes of several clients may become one CQL batch.
    pub(crate) merge_writes: bool,
}

/// The state that all threads with clients share.
pub(crate) struct CassandraState {
    pub(crate) setting: CassandraOptions,
    pub(crate) options: Arc<Options>,
    pub(crate) nature: ClusterProperties,
    pub(crate) prepared: PreparedStatements,
    /// Grows with each change of the knowledge.
    pub(crate) version: AtomicU64,
    known: RwLock<Arc<CassandraTopology>>,
    pub(super) refresh: RefreshSignal,
    agreement: SchemaAgreement,
    wakers: OnceLock<Vec<Arc<ThreadWaker>>>,
}

/// Requests for an agreement of the nodes on the schema, and the requests that are fulfilled.
#[derive(Debug, Default)]
struct SchemaAgreement {
    /// How many agreements were requested, and how many of these, the first ones, are reached.
    wanted: AtomicU64,
    reached: AtomicU64,
    /// Changes that clients are to be told after the next agreement.
    changes: Mutex<Vec<Bytes>>,
    /// Changes that clients can be told, and how many there were before them.
    told: Mutex<(u64, Vec<Bytes>)>,
    /// Grows with each agreement.
    version: AtomicU64,
}

impl CassandraState {
    pub(crate) fn new(
        setting: CassandraOptions,
        nature: ClusterProperties,
        known: CassandraTopology,
    ) -> CassandraState {
        CassandraState {
            options: Arc::clone(&setting.options),
            setting,
            nature,
            prepared: PreparedStatements::default(),
            version: AtomicU64::new(0),
            known: RwLock::new(Arc::new(known)),
            refresh: RefreshSignal::default(),
            agreement: SchemaAgreement::default(),
            wakers: OnceLock::new(),
        }
    }

    pub(crate) fn known(&self) -> Arc<CassandraTopology> {
        Arc::clone(&self.known.read())
    }

    /// Sets the threads to wake after an agreement.
    pub(crate) fn set_wakers(&self, wakers: Vec<Arc<ThreadWaker>>) {
        let _ = self.wakers.set(wakers);
    }

    /// Wakes the refresher: something shows that the knowledge is old.
    pub(crate) fn request_refresh(&self) {
        self.refresh.request();
    }

    /// Handles a node's event about a change of the schema.
    pub(crate) fn schema_changed(&self, body: Bytes) {
        self.agreement.changes.lock().push(body);
        self.want_agreement();
    }

    /// Requests that all nodes have one schema. Returns the number at which [`CassandraState::agreed`]
    /// reports that they do.
    pub(crate) fn want_agreement(&self) -> u64 {
        let number = self.agreement.wanted.fetch_add(1, Ordering::SeqCst) + 1;
        self.request_refresh();
        number
    }

    /// Returns how many agreements were requested, and takes the changes that clients are to be told
    /// after the next one.
    pub(super) fn take_requested_agreements(&self) -> (u64, Vec<Bytes>) {
        let wanted = self.agreement.wanted.load(Ordering::SeqCst);
        (wanted, std::mem::take(&mut *self.agreement.changes.lock()))
    }

    /// Returns the number up to which the nodes have agreed.
    pub(crate) fn agreed(&self) -> u64 {
        self.agreement.reached.load(Ordering::Acquire)
    }

    /// Returns a count that grows when nodes have agreed.
    pub(crate) fn agreements(&self) -> u64 {
        self.agreement.version.load(Ordering::Acquire)
    }

    /// Returns the changes of the schema after the first `seen`, and how many there are now.
    pub(crate) fn changes_since(&self, seen: u64) -> (u64, Vec<Bytes>) {
        let told = self.agreement.told.lock();
        let skipped = seen.saturating_sub(told.0) as usize;
        let now = told.0 + told.1.len() as u64;
        (now, told.1.iter().skip(skipped).cloned().collect())
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.refresh.is_stopping()
    }

    /// Ends the refresher and the listener.
    pub(crate) fn stop(&self) {
        self.refresh.stop();
    }

    /// Returns the addresses of nodes, known nodes first.
    pub(crate) fn addresses(&self, seeds: &SeedAddresses) -> Vec<SocketAddr> {
        let known = self.known();
        let nodes = known.map.nodes().iter();
        let mut addresses: Vec<SocketAddr> = nodes
            .map(|&node| self.setting.nodes.address(node))
            .collect();
        for seed in seeds.look_up_again() {
            if !addresses.contains(&seed) {
                addresses.push(seed);
            }
        }
        addresses
    }

    /// Replaces the knowledge of the nodes.
    pub(super) fn learn(&self, found: CassandraTopology) {
        let mut known = self.known.write();
        if **known != found {
            *known = Arc::new(found);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Records an agreement, or the end of the wait for one, and wakes the threads with clients.
    pub(crate) fn record_agreement(&self, wanted: u64, changes: Vec<Bytes>) {
        {
            let mut told = self.agreement.told.lock();
            let kept = told.1.len().saturating_sub(1024);
            told.1.drain(..kept);
            told.0 += kept as u64;
            told.1.extend(changes);
        }
        self.agreement.reached.store(wanted, Ordering::Release);
        self.agreement.version.fetch_add(1, Ordering::Release);
        for waker in self.wakers.get().into_iter().flatten() {
            waker.wake();
        }
    }
}

impl NodeRoles for CassandraState {
    fn slots(&self, _: NodeIndex) -> usize {
        0
    }

    fn needed(&self) -> NeededNodes {
        NeededNodes::Any(self.known().map.nodes().to_vec())
    }
}
