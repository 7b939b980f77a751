//! The storage node that is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use disk::RealDisk;
use disk::reads::{PageCache, ReadMethod};
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use operators::FragmentWorker;
use pages::node::{Limits, LocalTables, Node, NodeOptions, ShownFiles};
use pages::{Local, LocalOptions, Tables};

use crate::error::RunError;
use crate::run_context::RunContext;
use crate::systems::ListeningProcess;

/// The configuration of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeSettings {
    /// Threads that run operators.
    pub(super) task_threads: usize,
    /// Threads that read pages; none: pages are read in the way that suits the device.
    pub(super) io_threads: Option<usize>,
    /// The processor that all of it runs on, if it is pinned.
    pub(super) cpu: Option<usize>,
}

/// A storage node. It ends when this is dropped.
pub(super) enum MeasuredNode {
    ListeningProcess(ListeningProcess),
    InProcess(Node),
}

impl MeasuredNode {
    /// Starts a node over the tables in a directory. Its output goes to a file in `output`.
    pub(super) fn start(
        dir: &Path,
        output: &Path,
        shape: NodeSettings,
        context: &RunContext<'_>,
    ) -> Result<MeasuredNode, RunError> {
        if context.server.is_none() {
            return MeasuredNode::here(dir, shape);
        }
        let program = context.server()?;
        let start = || {
            ListeningProcess::start(program, output, "storage-node", |address, _| {
                Ok(arguments(dir, shape, address))
            })
        };
        let Some(cpu) = shape.cpu else {
            return start().map(MeasuredNode::ListeningProcess);
        };
        // A process runs on the processor of the thread that starts it.
        std::thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                let pinned = base::cpus::pin_current_thread(cpu);
                pinned.map_err(|error| RunError::failed("pinning the storage node")(&error))?;
                start().map(MeasuredNode::ListeningProcess)
            });
            let panicked = |_| Err(RunError::Failed("a thread has panicked".to_owned()));
            pinned.join().unwrap_or_else(panicked)
        })
    }

    fn here(dir: &Path, shape: NodeSettings) -> Result<MeasuredNode, RunError> {
        let dirs = [dir.to_owned()];
        let way = match shape.io_threads {
            Some(threads) => ReadMethod::ThreadPool { threads },
            None => ReadMethod::suited(&dirs),
        };
        let tables = Tables::open(Arc::new(RealDisk), &dirs);
        let tables = tables.map_err(|error| RunError::failed("opening the tables")(&error))?;
        let options = NodeOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            secret: Secret::new(""),
            threads: 1,
            task_threads: shape.task_threads,
            way,
            depth: 256,
            transport: Transport::Auto,
            encryption: fabric::tcp::Encryption::Auto,
            shm: Shm::default(),
            verbs: None,
            limits: Limits::default(),
        };
        let reading = LocalOptions {
            way: Some(way),
            ..LocalOptions::default()
        };
        let worker = FragmentWorker::new(Arc::new(Local::new(tables.clone(), reading)));
        let stock = LocalTables::new(tables, ShownFiles::default(), PageCache::Past);
        let node = Node::start(options, Arc::new(stock), Arc::new(worker));
        let node = node.map_err(|error| RunError::failed("starting a storage node")(&error))?;
        Ok(MeasuredNode::InProcess(node))
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            MeasuredNode::ListeningProcess(process) => process.address(),
            MeasuredNode::InProcess(node) => node.address(),
        }
    }

    /// Returns the processor time that it has used, in seconds, if that is known.
    pub(super) fn cpu(&self) -> Option<f64> {
        match self {
            MeasuredNode::ListeningProcess(process) => Some(process.cpu()),
            MeasuredNode::InProcess(..) => None,
        }
    }
}

fn arguments(dir: &Path, shape: NodeSettings, address: SocketAddr) -> Vec<String> {
    let mut arguments: Vec<String> = ["pages", "serve", "--insecure"].map(str::to_owned).into();
    let mut give = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    give("--listen", address.to_string());
    give("--dir", dir.display().to_string());
    give("--task-threads", shape.task_threads.to_string());
    if let Some(threads) = shape.io_threads {
        give("--io", "static".to_owned());
        give("--io-threads", threads.to_string());
    }
    arguments
}
