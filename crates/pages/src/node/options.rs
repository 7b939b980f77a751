//! The options of a node.

use std::net::SocketAddr;
use std::time::Duration;

use disk::reads::ReadMethod;
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::{Encryption, Transport};
use fabric::verbs::Domain;

/// The options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The address on which it listens; with port 0 the system chooses a port.
    pub listen: SocketAddr,
    /// The secret that readers must know.
    pub secret: Secret,
    /// Threads that serve links.
    pub threads: usize,
    /// Threads that run tasks.
    pub task_threads: usize,
    /// How pages are read.
    pub way: ReadMethod,
    /// The most reads that a thread has under way at a time.
    pub depth: usize,
    /// How messages travel.
    pub transport: Transport,
    /// Which connections are encrypted.
    pub encryption: Encryption,
    /// Where the memory is that processes share.
    pub shm: Shm,
    /// The RDMA device's domain, if there is one.
    pub verbs: Option<Domain>,
    /// The limits of a reader.
    pub limits: Limits,
}

/// The most that a reader may have under way. If a reader exceeds a limit, it gets an error and its link is
/// closed, as the programs here never do that.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Pages that are requested and not answered yet.
    pub pages: usize,
    /// Bytes of pages that are sent in messages and are not taken yet; further ones wait.
    pub inline_bytes: usize,
    /// Tables that are open at a time.
    pub handles: usize,
    /// Windows.
    pub windows: usize,
    /// Bytes of all its windows.
    pub window_bytes: usize,
    /// Queries, and steps of loads, that are not answered yet.
    pub requests: usize,
    /// Bytes of the longest message, in either direction.
    pub message: usize,
    /// Bytes of replies that its link has not taken: the link of a reader that does not read its replies
    /// is closed.
    pub overflow: usize,
    /// Tasks that run or wait.
    pub tasks: usize,
    /// Batches that a task may send before its reader has taken one; credit beyond this number is ignored.
    pub credit: u32,
    /// Loads that are going on.
    pub loads: usize,
    /// Bytes of a task.
    pub task_bytes: usize,
    /// Readers at a time, for each thread.
    pub readers: usize,
    /// How often a waiting reader gets a message that its requests are under way.
    pub progress: Duration,
    /// How long an ending node waits for readers to take its messages.
    pub farewell: Duration,
}

impl Default for Limits {
    /// Returns limits of 8192 pages, 16 MiB, 1024 tables, 8 windows of 1 GiB in all, 256 requests,
    /// messages of 1 GiB, 64 MiB that are not read, 64 tasks of 1 MiB with 16 batches each, 8 loads, 1024
    /// readers; every 5 s, 2 s.
    fn default() -> Limits {
        Limits {
            pages: 8192,
            inline_bytes: 16 << 20,
            handles: 1024,
            windows: 8,
            window_bytes: 1 << 30,
            requests: 256,
            message: 1 << 30,
            overflow: 64 << 20,
            tasks: 64,
            credit: 16,
            loads: 8,
            task_bytes: 1 << 20,
            readers: 1024,
            progress: Duration::from_secs(5),
            farewell: Duration::from_secs(2),
        }
    }
}
