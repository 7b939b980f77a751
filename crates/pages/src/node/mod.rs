//! A storage node: gives pages to readers, and runs tasks for them beside the pages (paper 4,
//! sections 3.1 and 3.2).
//!
//! | part | concept |
//! |---|---|
//! | `options` | how a node is set up |
//! | `shelf` | what it gives away: tables, and files it was told to show |
//! | `desk` | one thread's turn: messages, reads, replies |
//! | `guest` | a reader on a link, and what it may have under way |
//! | `landing` | where pages land on their way |
//! | `tasks` | threads that run tasks |
//! | `loading` | threads that load rows |
//!
//! Each thread has links of its own and reads of its own; none waits for another, and none blocks on
//! a read. A reader gets what it asked for in the order in which the device has it.

mod desk;
mod guest;
mod landing;
mod loading;
mod options;
mod shelf;
mod tasks;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use fabric::tcp::{Deal, listen};
use mio::Waker;

pub use options::{Limits, NodeOptions};
pub use shelf::{Extent, Loading, Opened, Shelf, ShownFiles, Stock};
pub use tasks::{NoWorker, Outcome, Output, Worker};

use desk::{Desk, Door};
use tasks::Tasks;

/// A storage node that runs.
#[derive(Debug)]
pub struct Node {
    address: SocketAddr,
    shared: Arc<Shared>,
    wakers: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    tasks: Arc<Tasks>,
}

/// What a node's threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    ending: AtomicBool,
    figures: Figures,
}

/// What a node has done since it began.
#[derive(Debug, Default)]
pub struct Figures {
    /// Pages that were read.
    pub pages: AtomicU64,
    /// Bytes of them.
    pub bytes: AtomicU64,
    /// Pages that could not be read.
    pub unread: AtomicU64,
    /// Readers that are connected.
    pub readers: AtomicU64,
    /// Pages that are asked for and not read yet.
    pub waiting: AtomicU64,
    /// Nanoseconds that a read has taken lately, from being begun to being over.
    pub read_ns: AtomicU64,
    /// Tasks that were run to their end.
    pub tasks: AtomicU64,
    /// Tasks that run, or wait to.
    pub tasks_under_way: AtomicU64,
}

impl Node {
    /// Starts a node's threads.
    ///
    /// # Errors
    /// The address cannot be listened on, or the system has no threads or rings.
    pub fn start(
        options: NodeOptions,
        shelf: Arc<dyn Shelf>,
        worker: Arc<dyn Worker>,
    ) -> io::Result<Node> {
        let threads = options.threads.max(1);
        let mut listener = listen(options.listen, 1)?.pop();
        let address = listener.as_ref().expect("one").local_addr()?;
        let shared = Arc::new(Shared::default());
        let tasks = Tasks::start(&options, worker, &shared)?;
        let mut node = Node {
            address,
            shared: Arc::clone(&shared),
            wakers: Vec::new(),
            threads: Vec::new(),
            tasks: Arc::clone(&tasks),
        };
        let deal = Deal::among(threads);
        for number in 0..threads {
            let (shelf, shared) = (Arc::clone(&shelf), Arc::clone(&shared));
            let door = Door {
                listener: listener.take(),
                deal: Arc::clone(&deal),
                number,
            };
            let desk = Desk::new(&options, door, shelf, Arc::clone(&tasks), shared)?;
            node.wakers.push(desk.waker());
            let thread = std::thread::Builder::new().name(format!("pages-{number}"));
            node.threads.push(thread.spawn(move || desk.run())?);
        }
        Ok(node)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has done.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.shared.figures
    }

    /// Has it end: reads that are under way are finished, tasks are told to stop, links are closed.
    ///
    /// # Errors
    /// A thread had failed.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.shared.ending.store(true, Ordering::Release);
        self.tasks.end();
        for waker in &self.wakers {
            waker.wake()?;
        }
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")));
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a storage node's thread has failed");
        }
    }
}
