//! The storage node that is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use disk::RealDisk;
use disk::reads::{PageCache, Way};
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use operators::Operators;
use pages::node::{Limits, LocalTables, Node, NodeOptions, ShownFiles};
use pages::{Local, LocalOptions, Tables};

use crate::sample::RunError;
use crate::target::Context;
use crate::target::process::Process;

/// The configuration of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// Threads that run operators.
    pub(super) task_threads: usize,
    /// Threads that read pages; none: pages are read in the way that suits the device.
    pub(super) io_threads: Option<usize>,
    /// The processor that all of it runs on, if it is pinned.
    pub(super) cpu: Option<usize>,
}

/// A storage node. It ends when this is dropped.
pub(super) enum Host {
    Process(Process),
    Here(Node),
}

impl Host {
    /// Starts a node over the tables in a directory. Its output goes to a file in `said`.
    pub(super) fn start(
        dir: &Path,
        said: &Path,
        shape: Shape,
        context: &Context<'_>,
    ) -> Result<Host, RunError> {
        if context.server.is_none() {
            return Host::here(dir, shape);
        }
        let program = context.server()?;
        let start = || {
            Process::start(program, said, "storage-node", |address, _| {
                Ok(arguments(dir, shape, address))
            })
        };
        let Some(cpu) = shape.cpu else {
            return start().map(Host::Process);
        };
        // A process runs on the processor of the thread that starts it.
        std::thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                let pinned = base::cpus::pin_current_thread(cpu);
                pinned.map_err(|error| RunError::failed("pinning the storage node")(&error))?;
                start().map(Host::Process)
            });
            let panicked = |_| Err(RunError::Failed("a thread has panicked".to_owned()));
            pinned.join().unwrap_or_else(panicked)
        })
    }

    fn here(dir: &Path, shape: Shape) -> Result<Host, RunError> {
        let dirs = [dir.to_owned()];
        let way = match shape.io_threads {
            Some(threads) => Way::Static { threads },
            None => Way::suited(&dirs),
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
            shm: Shm::default(),
            verbs: None,
            limits: Limits::default(),
        };
        let reading = LocalOptions {
            way: Some(way),
            ..LocalOptions::default()
        };
        let worker = Operators::new(Arc::new(Local::new(tables.clone(), reading)));
        let stock = LocalTables::new(tables, ShownFiles::default(), PageCache::Past);
        let node = Node::start(options, Arc::new(stock), Arc::new(worker));
        let node = node.map_err(|error| RunError::failed("starting a storage node")(&error))?;
        Ok(Host::Here(node))
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Host::Process(process) => process.address(),
            Host::Here(node) => node.address(),
        }
    }

    /// Returns the processor time that it has used, in seconds, if that is known.
    pub(super) fn cpu(&self) -> Option<f64> {
        match self {
            Host::Process(process) => Some(process.cpu()),
            Host::Here(..) => None,
        }
    }
}

fn arguments(dir: &Path, shape: Shape, address: SocketAddr) -> Vec<String> {
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
