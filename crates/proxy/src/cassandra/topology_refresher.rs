//! Keeps the knowledge of the nodes up to date, and notices when all of them have the same schema.
//!
//! A thread asks the nodes: at the start, when something shows that the knowledge is old, and at
//! regular intervals. Threads with clients check a version in each turn, and take over changes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};

use super::control_connection::ControlConnection;
use super::lock_table::{LockTables, schema};
use super::node_connection::Options;
use super::prepared::Prepared;
use super::topology::{ClusterProperties, Topology, topology};
use crate::config::Limits;
use crate::error::ProxyError;
use crate::nodes::{NeededNodes, NodeRoles, Nodes};
use crate::runtime::query::NodeIndex;
use crate::runtime::thread_waker::ThreadWaker;
use crate::seeds::Seeds;

/// Interval at which the nodes are asked without a reason.
const ROUTINE: Duration = Duration::from_secs(10);
/// The shortest interval between two rounds of questions.
const REST: Duration = Duration::from_millis(20);
/// How long the refresher waits for nodes that have another schema.
const AGREEMENT: Duration = Duration::from_secs(10);
/// A node that does not answer is left out for this time.
const ABSENCE: Duration = Duration::from_secs(5);

/// The parts of a [`State`] besides the knowledge of the nodes.
pub(crate) struct RefresherOptions {
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
    /// Writes of several clients may become one CQL batch.
    pub(crate) merge_writes: bool,
}

/// The state that all threads with clients share.
pub(crate) struct State {
    pub(crate) setting: RefresherOptions,
    pub(crate) options: Arc<Options>,
    pub(crate) nature: ClusterProperties,
    pub(crate) prepared: Prepared,
    /// Grows with each change of the knowledge.
    pub(crate) version: AtomicU64,
    known: RwLock<Arc<Topology>>,
    news: RefreshSignal,
    agreement: SchemaAgreement,
    wakers: OnceLock<Vec<Arc<ThreadWaker>>>,
}

/// Wakes the refresher.
#[derive(Debug, Default)]
struct RefreshSignal {
    wanted: Mutex<bool>,
    woken: Condvar,
    stopping: AtomicBool,
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

impl State {
    pub(crate) fn new(
        setting: RefresherOptions,
        nature: ClusterProperties,
        known: Topology,
    ) -> State {
        State {
            options: Arc::clone(&setting.options),
            setting,
            nature,
            prepared: Prepared::default(),
            version: AtomicU64::new(0),
            known: RwLock::new(Arc::new(known)),
            news: RefreshSignal::default(),
            agreement: SchemaAgreement::default(),
            wakers: OnceLock::new(),
        }
    }

    pub(crate) fn known(&self) -> Arc<Topology> {
        Arc::clone(&self.known.read())
    }

    /// Sets the threads to wake after an agreement.
    pub(crate) fn set_wakers(&self, wakers: Vec<Arc<ThreadWaker>>) {
        let _ = self.wakers.set(wakers);
    }

    /// Wakes the refresher: something shows that the knowledge is old.
    pub(crate) fn ask_for_news(&self) {
        let mut wanted = self.news.wanted.lock();
        if !std::mem::replace(&mut *wanted, true) {
            self.news.woken.notify_one();
        }
    }

    /// Handles a node's event about a change of the schema.
    pub(crate) fn schema_changed(&self, body: Bytes) {
        self.agreement.changes.lock().push(body);
        self.want_agreement();
    }

    /// Requests that all nodes have one schema. Returns the number at which [`State::agreed`] reports
    /// that they do.
    pub(crate) fn want_agreement(&self) -> u64 {
        let number = self.agreement.wanted.fetch_add(1, Ordering::SeqCst) + 1;
        self.ask_for_news();
        number
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
        self.news.stopping.load(Ordering::SeqCst)
    }

    /// Ends the refresher and the listener.
    pub(crate) fn stop(&self) {
        self.news.stopping.store(true, Ordering::SeqCst);
        self.ask_for_news();
    }

    /// Returns the addresses of nodes, known nodes first.
    pub(crate) fn addresses(&self, seeds: &Seeds) -> Vec<SocketAddr> {
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

    /// Keeps the knowledge up to date until it is stopped.
    pub(crate) fn keep(&self, seeds: &Seeds) {
        let mut acquaintances = ControlConnections::default();
        while !self.is_stopping() {
            {
                let mut wanted = self.news.wanted.lock();
                if !*wanted {
                    self.news.woken.wait_for(&mut wanted, ROUTINE);
                }
                *wanted = false;
            }
            self.options.connection_keys.forget(Instant::now());
            let wanted = self.agreement.wanted.load(Ordering::SeqCst);
            let changes = std::mem::take(&mut *self.agreement.changes.lock());
            if wanted > self.agreed() {
                self.wait_for_agreement(seeds, &mut acquaintances);
            }
            match self.look(seeds, &mut acquaintances) {
                Ok(found) => self.learn(found),
                Err(tried) => {
                    tracing::warn!("no node tells which nodes there are: {}", tried.join("; "));
                }
            }
            if wanted > self.agreed() {
                self.tell(wanted, changes);
            }
            std::thread::sleep(REST);
        }
    }

    fn learn(&self, found: Topology) {
        let mut known = self.known.write();
        if **known != found {
            *known = Arc::new(found);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Records an agreement, or the end of the wait for one, and wakes the threads with clients.
    pub(crate) fn tell(&self, wanted: u64, changes: Vec<Bytes>) {
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

    fn wait_for_agreement(&self, seeds: &Seeds, acquaintances: &mut ControlConnections) {
        let begun = Instant::now();
        let text = "SELECT schema_version FROM system.local WHERE key = 'local'";
        while begun.elapsed() < AGREEMENT && !self.is_stopping() {
            let mut versions = Vec::new();
            for address in self.addresses(seeds) {
                let asked = acquaintances.ask(address, &self.options, |asked| asked.query(text));
                if let Ok(table) = asked {
                    let rows = table.rows.iter();
                    let found = rows.filter_map(|row| table.value(row, "schema_version"));
                    versions.extend(found.cloned());
                }
            }
            if versions.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            std::thread::sleep(REST);
        }
        tracing::warn!("the nodes do not agree on the schema; going on without");
    }

    /// Asks one node after another until one reports the topology.
    fn look(
        &self,
        seeds: &Seeds,
        acquaintances: &mut ControlConnections,
    ) -> Result<Topology, Vec<String>> {
        let mut tried = Vec::new();
        for address in self.addresses(seeds) {
            let nodes = &self.setting.nodes;
            let asked = acquaintances.ask(address, &self.options, |asked| {
                let lock_tables = schema::ask(asked, &self.setting.lock_tables.tables)?;
                let known = topology(asked, address, nodes)?;
                Ok(Topology {
                    lock_tables,
                    ..known
                })
            });
            match asked {
                Ok(known) => return Ok(known),
                Err(what) => tried.push(format!("{address} {what}")),
            }
        }
        Err(tried)
    }
}

/// Connections of the refresher, and the times at which nodes did not answer.
#[derive(Default)]
struct ControlConnections {
    connections: HashMap<SocketAddr, ControlConnection>,
    absent: HashMap<SocketAddr, Instant>,
}

impl ControlConnections {
    fn ask<T>(
        &mut self,
        address: SocketAddr,
        options: &Options,
        ask: impl Fn(&mut ControlConnection) -> Result<T, ProxyError>,
    ) -> Result<T, ProxyError> {
        if let Some(mut asked) = self.connections.remove(&address)
            && let Ok(answer) = ask(&mut asked)
        {
            self.connections.insert(address, asked);
            return Ok(answer);
        }
        if let Some(since) = self.absent.get(&address)
            && since.elapsed() < ABSENCE
        {
            return Err(ProxyError::unavailable("has not answered just now"));
        }
        let answer = ControlConnection::connect(address, options).and_then(|mut asked| {
            let answer = ask(&mut asked)?;
            Ok((answer, asked))
        });
        match answer {
            Ok((answer, asked)) => {
                self.absent.remove(&address);
                self.connections.insert(address, asked);
                Ok(answer)
            }
            Err(what) => {
                self.absent.insert(address, Instant::now());
                Err(what)
            }
        }
    }
}

impl NodeRoles for State {
    fn slots(&self, _: NodeIndex) -> usize {
        0
    }

    fn needed(&self) -> NeededNodes {
        NeededNodes::Any(self.known().map.nodes().to_vec())
    }
}
