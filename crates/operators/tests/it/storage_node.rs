//! A storage node that runs operators, and a reader of it.

use std::sync::Arc;
use std::time::Duration;

use disk::reads::{PageCache, ReadMethod};
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use fabric::verbs::Domain;
use kumiki_operators::FragmentWorker;
use pages::node::{Limits, LocalTables, Node, NodeOptions, ShownFiles};
use pages::remote::{RemoteNode, RemoteNodeOptions, SessionOptions};
use pages::{Source, Tables};

/// Starts a node that shows `tables`, whose operators read from `source`.
pub(crate) fn start(
    tables: Tables,
    source: &Arc<dyn Source>,
    transport: Transport,
    verbs: Option<Domain>,
) -> (Node, RemoteNode) {
    let secret = Secret::new("what readers know");
    let options = NodeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        secret: secret.clone(),
        threads: 1,
        task_threads: 1,
        way: ReadMethod::ThreadPool { threads: 1 },
        depth: 64,
        transport,
        encryption: fabric::tcp::Encryption::Auto,
        shm: Shm::default(),
        verbs: verbs.clone(),
        limits: Limits::default(),
    };
    let stock = LocalTables::new(tables, ShownFiles::default(), PageCache::Past);
    let operators = FragmentWorker::new(Arc::clone(source));
    let node = Node::start(options, Arc::new(stock), Arc::new(operators)).unwrap();
    let mut session = SessionOptions::new(node.address(), secret);
    session.patience = Duration::from_secs(60);
    session.transport = transport;
    if verbs.is_some() {
        // All of it is locked memory.
        session.window_bytes = 2 << 20;
    }
    session.verbs = verbs;
    (node, RemoteNode::new(RemoteNodeOptions::new(session)))
}
