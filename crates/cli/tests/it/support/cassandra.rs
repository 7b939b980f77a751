//! Cassandra nodes of the tests. Starting one takes longer than most tests take with it, so that tests
//! share a node where they can. Tests that need nodes of their own have the machine to themselves: few
//! machines have memory for the nodes of several tests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use ::cassandra::{CassandraNodes, Installed, Options};

static NODE: Mutex<Weak<CassandraNodes>> = Mutex::new(Weak::new());
/// Read by tests that share the node, written by tests with nodes of their own.
static MACHINE: RwLock<()> = RwLock::new(());

/// See the module's page. Each test has keyspaces of its own.
pub(crate) struct SharedNode {
    nodes: Arc<CassandraNodes>,
    _machine: RwLockReadGuard<'static, ()>,
}

/// Waits until no other test of this program has Cassandra nodes. No other test gets any until the
/// guard is dropped.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

impl SharedNode {
    /// Returns the node, which is started if no test has it; other callers wait until it is there.
    pub(crate) fn get(installed: &Installed) -> SharedNode {
        let machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        let mut shared = NODE.lock().unwrap_or_else(PoisonError::into_inner);
        let node = shared.upgrade().unwrap_or_else(|| {
            let options = Options::new(installed.clone(), 1).anywhere();
            Arc::new(CassandraNodes::start(&options).expect("it starts"))
        });
        *shared = Arc::downgrade(&node);
        SharedNode {
            nodes: node,
            _machine: machine,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.nodes.addresses()[0]
    }

    /// Leaves the node. The last test that leaves stops it, and it must end in good order.
    pub(crate) fn leave(self) {
        if let Some(node) = Arc::into_inner(self.nodes) {
            node.stop().expect("it ends in good order");
        }
    }
}
