//! A Cassandra node that the tests of one program share: to start one takes longer than most tests
//! take with it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bench::cassandra::{Installed, Nodes, Options};

static NODE: Mutex<Weak<Nodes>> = Mutex::new(Weak::new());

/// See the module's page. Each test has keyspaces of its own.
pub(crate) struct SharedNode(Arc<Nodes>);

impl SharedNode {
    /// The node, which is started if nobody has it; the others who ask wait until it is there.
    pub(crate) fn get(installed: &Installed) -> SharedNode {
        let mut shared = NODE.lock().unwrap_or_else(PoisonError::into_inner);
        let node = shared.upgrade().unwrap_or_else(|| {
            let options = Options::new(installed.clone(), 1).anywhere();
            Arc::new(Nodes::start(&options).expect("it starts"))
        });
        *shared = Arc::downgrade(&node);
        SharedNode(node)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.addresses()[0]
    }

    /// Whoever leaves as the last one stops the node, which must end in good order.
    pub(crate) fn leave(self) {
        if let Some(node) = Arc::into_inner(self.0) {
            node.stop().expect("it ends in good order");
        }
    }
}
