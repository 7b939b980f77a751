//! A storage node: gives pages to readers, and runs tasks for them beside the pages (paper 4, sections 3.1
//! and 3.2).
//!
//! | part | concept |
//! |---|---|
//! | `options` | how a node is set up |
//! | `storage` | what it serves: a trait, and versions of tables and files that are open |
//! | `shown_files`, `local_tables` | the storages: files for measurements; tables of the node's directories |
//! | `figures`, `state` | counts of its work; what its threads share |
//! | `reply_address` | the request to which a message of another thread belongs |
//! | `load_thread` | a thread that loads rows |
//! | `mailbox` | messages of other threads to a reader loop |
//! | `worker`, `task_control`, `task_pool` | tasks: what runs them, their credit, the threads |
//! | `blocking_worker` | the thread that calls the storage |
//! | `read_target`, `page_buffers`, `open_files` | where pages are read to, and from |
//! | `reader_connection` | a reader on a link, and what it may have under way |
//! | `reader_loop` | one thread's turn: messages, reads, replies |
//!
//! Each reader loop's thread has links and reads of its own; none waits for another, and none blocks on a read. A
//! reader gets its pages in the order in which the device delivers them. If a reader loop's thread fails, the
//! node ends: no other reader loop serves its readers, or accepts those that it would have accepted.

mod blocking_worker;
mod figures;
mod load_thread;
mod local_tables;
mod mailbox;
mod open_files;
mod options;
mod page_buffers;
mod read_target;
mod reader_connection;
mod reader_loop;
mod reply_address;
mod shown_files;
mod state;
mod storage;
mod task_control;
mod task_pool;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use fabric::tcp::{ConnectionBalancer, listen};

pub use figures::StorageFigures;
pub use local_tables::LocalTables;
pub use options::{Limits, NodeOptions};
pub use shown_files::ShownFiles;
pub use storage::{Extent, NodeLoad, NodeStorage, OpenTable};
pub use worker::{NoWorker, Output, TaskRunner};

use blocking_worker::BlockingWorker;
use reader_loop::{LoopHandle, ReaderLoop};
use state::NodeState;
use task_pool::TaskPool;

/// A running storage node.
#[derive(Debug)]
pub struct Node {
    address: SocketAddr,
    state: Arc<NodeState>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    tasks: Arc<TaskPool>,
    blocking_worker: Arc<BlockingWorker>,
}

impl Node {
    /// Starts a node's threads.
    ///
    /// # Errors
    /// Returns an error if the address cannot be listened on, or the system has no threads or rings.
    pub fn start(
        options: NodeOptions,
        storage: Arc<dyn NodeStorage>,
        worker: Arc<dyn TaskRunner>,
    ) -> io::Result<Node> {
        let threads = options.threads.max(1);
        let mut listener = listen(options.listen, 1)?.pop();
        let address = listener.as_ref().expect("one").local_addr()?;
        let state = Arc::new(NodeState::new());
        let tasks = TaskPool::start(&options, worker, &state)?;
        let mut node = Node {
            address,
            state: Arc::clone(&state),
            threads: Vec::new(),
            tasks: Arc::clone(&tasks),
            blocking_worker: BlockingWorker::start(storage)?,
        };
        let deal = ConnectionBalancer::new(threads);
        for number in 0..threads {
            let (blocking_worker, state) = (Arc::clone(&node.blocking_worker), Arc::clone(&state));
            let handle = LoopHandle {
                listener: listener.take(),
                deal: Arc::clone(&deal),
                number,
            };
            let reader_loop =
                ReaderLoop::new(&options, handle, blocking_worker, Arc::clone(&tasks), state)?;
            node.state.wakers.lock().push(reader_loop.waker());
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
        let state = Arc::clone(&self.state);
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || state.guard(work))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Calls `call` when one of the node's threads has failed, at once if one has already. The node serves
    /// no reader any more then; [`Node::stop`] says why.
    pub fn on_failure(&self, call: impl FnOnce() + Send + 'static) {
        let mut hook = self.state.failure_hook.lock();
        match hook.has_failed {
            true => {
                drop(hook);
                call();
            }
            false => hook.call = Some(Box::new(call)),
        }
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts of its work.
    #[must_use]
    pub fn figures(&self) -> &StorageFigures {
        &self.state.figures
    }

    /// Stops the node: reads that are under way are completed, tasks are cancelled, links are closed.
    ///
    /// # Errors
    /// Returns an error if a thread had failed.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        // Reader loops still hear of the last loads that the blocking worker has begun.
        self.blocking_worker.end();
        self.state.ending.store(true, Ordering::Release);
        self.tasks.end();
        let mut result = self.state.end();
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
