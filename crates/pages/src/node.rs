//! A storage node: gives pages to readers, and runs tasks for them beside the pages (paper 4, sections 3.1
//! and 3.2).
//!
//! | part | concept |
//! |---|---|
//! | `options` | how a node is set up |
//! | `shelf` | what it gives away: tables, and files it was told to show |
//! | `reader_loop` | one thread's turn: messages, reads, replies |
//! | `reader` | a reader on a link, and what it may have under way |
//! | `read_target` | where pages land on their way |
//! | `tasks` | threads that run tasks |
//! | `loading` | threads that load rows |
//! | `blocking_worker` | the thread that asks the shelf |
//!
//! Each reader loop's thread has links and reads of its own; none waits for another, and none blocks on a read. A
//! reader gets its pages in the order in which the device delivers them. If a reader loop's thread fails, the
//! node ends: no other reader loop serves its readers, or accepts those that it would have accepted.

mod blocking_worker;
mod loading;
mod options;
mod read_target;
mod reader_connection;
mod reader_loop;
mod shelf;
mod tasks;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use budget::Budget;
use fabric::tcp::{ConnectionBalancer, listen};
use mio::Waker;
use parking_lot::Mutex;

pub use options::{Limits, NodeOptions};
pub use shelf::{Extent, Loading, Opened, Shelf, ShownFiles, Stock};
pub use tasks::{NoWorker, Outcome, Output, Worker};

use blocking_worker::BlockingWorker;
use reader_loop::{LoopHandle, ReaderLoop};
use tasks::Tasks;

/// A running storage node.
#[derive(Debug)]
pub struct Node {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    tasks: Arc<Tasks>,
    blocking_worker: Arc<BlockingWorker>,
}

/// State that a node's threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// A budget for the messages of all links that have not arrived as a whole or are not sent.
    in_flight: Arc<Budget>,
    ending: AtomicBool,
    figures: Figures,
    /// The wakers of the reader loops.
    wakers: Mutex<Vec<Arc<Waker>>>,
    alarm: Mutex<Alarm>,
}

/// The function that is called when a reader loop's thread has failed.
#[derive(Default)]
struct Alarm {
    has_failed: bool,
    call: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Alarm");
        shown.field("has_failed", &self.has_failed);
        shown.finish_non_exhaustive()
    }
}

/// Bytes that links may hold together.
const IN_FLIGHT: u64 = 1 << 30;

impl Shared {
    fn new() -> Shared {
        Shared {
            in_flight: Budget::new(IN_FLIGHT),
            ending: AtomicBool::default(),
            figures: Figures::default(),
            wakers: Mutex::default(),
            alarm: Mutex::default(),
        }
    }

    /// Makes all reader loops end.
    fn end(&self) -> io::Result<()> {
        self.ending.store(true, Ordering::Release);
        self.wakers.lock().iter().try_for_each(|waker| waker.wake())
    }

    /// Runs a reader loop; if it fails, all others end, too.
    fn guard(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let done = catch_unwind(AssertUnwindSafe(work));
        let done =
            done.unwrap_or_else(|_| Err(io::Error::other("it has panicked; its log says where")));
        if let Err(error) = &done {
            tracing::error!(%error, "a storage node's thread has failed: the node ends");
            let woken = self.end();
            if let Err(error) = woken {
                tracing::error!(%error, "a storage node's threads cannot be woken");
            }
            let call = {
                let mut alarm = self.alarm.lock();
                alarm.has_failed = true;
                alarm.call.take()
            };
            if let Some(call) = call {
                call();
            }
        }
        done
    }
}

/// Counts of a node's work since it began.
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
    /// Nanoseconds of a recent read, from its beginning to its completion.
    pub read_ns: AtomicU64,
    /// Tasks that have completed.
    pub tasks: AtomicU64,
    /// Tasks that run or wait.
    pub tasks_under_way: AtomicU64,
}

impl Node {
    /// Starts a node's threads.
    ///
    /// # Errors
    /// Returns an error if the address cannot be listened on, or the system has no threads or rings.
    pub fn start(
        options: NodeOptions,
        shelf: Arc<dyn Shelf>,
        worker: Arc<dyn Worker>,
    ) -> io::Result<Node> {
        let threads = options.threads.max(1);
        let mut listener = listen(options.listen, 1)?.pop();
        let address = listener.as_ref().expect("one").local_addr()?;
        let shared = Arc::new(Shared::new());
        let tasks = Tasks::start(&options, worker, &shared)?;
        let mut node = Node {
            address,
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            tasks: Arc::clone(&tasks),
            blocking_worker: BlockingWorker::start(shelf)?,
        };
        let deal = ConnectionBalancer::new(threads);
        for number in 0..threads {
            let (blocking_worker, shared) =
                (Arc::clone(&node.blocking_worker), Arc::clone(&shared));
            let handle = LoopHandle {
                listener: listener.take(),
                deal: Arc::clone(&deal),
                number,
            };
            let reader_loop = ReaderLoop::new(
                &options,
                handle,
                blocking_worker,
                Arc::clone(&tasks),
                shared,
            )?;
            node.shared.wakers.lock().push(reader_loop.waker());
            node.spawn(format!("pages-{number}"), move || reader_loop.run())?;
        }
        Ok(node)
    }

    /// Starts a thread for a reader loop's work.
    fn spawn(
        &mut self,
        name: String,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || shared.guard(work))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Calls `call` when one of the node's threads has failed, at once if one has already. The node serves
    /// no reader any more then; [`Node::stop`] says why.
    pub fn on_failure(&self, call: impl FnOnce() + Send + 'static) {
        let mut alarm = self.shared.alarm.lock();
        match alarm.has_failed {
            true => {
                drop(alarm);
                call();
            }
            false => alarm.call = Some(Box::new(call)),
        }
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts of its work.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.shared.figures
    }

    /// Stops the node: reads that are under way are completed, tasks are cancelled, links are closed.
    ///
    /// # Errors
    /// Returns an error if a thread had failed.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        // Desks still hear of the last loads that the blocking worker has begun.
        self.blocking_worker.end();
        self.shared.ending.store(true, Ordering::Release);
        self.tasks.end();
        let mut result = self.shared.end();
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

#[cfg(test)]
mod tests;
