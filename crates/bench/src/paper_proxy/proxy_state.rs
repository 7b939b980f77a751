//! What the threads of a proxy share.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::config::ProxyDesign;
use super::lock_table::SharedLockTable;
use super::message::{ClientMailbox, NodeMailbox};
use super::shared_queue::{CasRing, MutexQueue, SharedQueue};

/// Items that a queue holds.
const CAPACITY: usize = 8192;

/// See the module's page.
pub(super) struct ProxyState {
    design: ProxyDesign,
    addresses: Vec<SocketAddr>,
    /// The query queue of each node.
    pub(super) nodes: Vec<NodeMailbox>,
    pub(super) locks: SharedLockTable,
    /// The client threads, to wake them when the proxy stops.
    clients: Mutex<Vec<Weak<ClientMailbox>>>,
    stopping: AtomicBool,
    /// Why the proxy has stopped by itself.
    failure: Mutex<Option<String>>,
}

impl ProxyState {
    pub(super) fn new(
        design: ProxyDesign,
        addresses: Vec<SocketAddr>,
        nodes: Vec<NodeMailbox>,
    ) -> ProxyState {
        ProxyState {
            design,
            addresses,
            nodes,
            locks: SharedLockTable::default(),
            clients: Mutex::default(),
            stopping: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// Creates a queue of the proxy's design.
    pub(super) fn queue<T: Send + 'static>(&self) -> Box<dyn SharedQueue<T>> {
        queue(self.design)
    }

    pub(super) fn register(&self, client: &Arc<ClientMailbox>) {
        self.clients.lock().push(Arc::downgrade(client));
    }

    pub(super) fn forget(&self, client: &Arc<ClientMailbox>) {
        let client = Arc::downgrade(client);
        self.clients.lock().retain(|known| !known.ptr_eq(&client));
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Stops all threads.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for client in self.clients.lock().iter().filter_map(Weak::upgrade) {
            client.doorbell.ring();
        }
        for doorbell in self.nodes.iter().flat_map(|node| &node.doorbells) {
            doorbell.ring();
        }
    }

    /// Stops all threads because of a failure. The first one is kept.
    pub(super) fn fail(&self, what: String) {
        self.failure.lock().get_or_insert(what);
        self.stop();
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Returns an error that names the node.
    pub(super) fn at_node(&self, node: usize, error: &io::Error) -> io::Error {
        io::Error::new(
            error.kind(),
            format!("node {}: {error}", self.addresses[node]),
        )
    }
}

/// Creates a queue of a design.
pub(super) fn queue<T: Send + 'static>(design: ProxyDesign) -> Box<dyn SharedQueue<T>> {
    match design {
        ProxyDesign::Improved => Box::new(CasRing::new(CAPACITY)),
        ProxyDesign::Earlier => Box::new(MutexQueue::new(CAPACITY)),
    }
}
