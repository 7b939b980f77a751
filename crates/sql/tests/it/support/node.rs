//! Storage nodes over directories.

use std::path::Path;
use std::sync::Arc;

use disk::RealDisk;
use disk::reads::{PageCache, ReadMethod};
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use operators::FragmentWorker;
use pages::node::{Limits, LocalTables, Node, NodeOptions, ShownFiles};
use pages::remote::{RemoteNode, RemoteNodeOptions, SessionOptions};
use pages::{Local, LocalOptions, Tables};

/// Returns the secret of nodes and their readers.
pub(crate) fn secret() -> Secret {
    Secret::new("what nodes and readers know")
}

/// Returns a node that has a directory's tables.
pub(crate) fn serve(dir: &Path) -> Node {
    let tables = Tables::open(Arc::new(RealDisk), &[dir.to_owned()]).unwrap();
    let local = Local::new(tables.clone(), LocalOptions::default());
    let stock = LocalTables::new(tables, ShownFiles::default(), PageCache::Past);
    let options = NodeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        secret: secret(),
        threads: 1,
        task_threads: 2,
        way: ReadMethod::IoUring,
        depth: 128,
        transport: Transport::Auto,
        encryption: fabric::tcp::Encryption::Auto,
        shm: Shm::default(),
        verbs: None,
        limits: Limits::default(),
    };
    let worker = FragmentWorker::new(Arc::new(local));
    Node::start(options, Arc::new(stock), Arc::new(worker)).unwrap()
}

/// Returns options with which readers reach it over TCP.
pub(crate) fn far_options(node: &Node) -> RemoteNodeOptions {
    let mut options = SessionOptions::new(node.address(), secret());
    options.transport = Transport::Tcp;
    RemoteNodeOptions::new(options)
}

/// Returns a reader's handle of the node.
pub(crate) fn far(node: &Node) -> RemoteNode {
    RemoteNode::new(far_options(node))
}
