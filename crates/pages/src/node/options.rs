//! How a node is set up.

use std::net::SocketAddr;
use std::time::Duration;

use disk::reads::Way;
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use fabric::verbs::Domain;

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where it listens; with port 0 the system chooses.
    pub listen: SocketAddr,
    /// What readers have to know.
    pub secret: Secret,
    /// Threads that serve links.
    pub threads: usize,
    /// Threads that run tasks.
    pub task_threads: usize,
    /// How pages are read.
    pub way: Way,
    /// Reads that a thread has under way at a time.
    pub depth: usize,
    /// How messages travel.
    pub transport: Transport,
    /// Where memory is that processes share.
    pub shm: Shm,
    /// The RDMA device's domain, if there is one.
    pub verbs: Option<Domain>,
    /// What a reader may have.
    pub limits: Limits,
}

/// What a reader may have under way. One that asks for more is told so and its link is ended, as the
/// programs here do not.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Pages asked for and not answered yet.
    pub pages: usize,
    /// Bytes of pages that travel in messages and are not taken yet; further ones wait.
    pub inline_bytes: usize,
    /// Tables opened at a time.
    pub handles: usize,
    /// Windows.
    pub windows: usize,
    /// Bytes of all its windows.
    pub window_bytes: usize,
    /// Questions, and steps of loads, that are not answered yet.
    pub requests: usize,
    /// Bytes of the longest message, in either direction.
    pub message: usize,
    /// Bytes of replies that its link does not take: who does not read what it asks for is shown out.
    pub overflow: usize,
    /// Tasks that run or wait.
    pub tasks: usize,
    /// Batches that a task may send before its reader has taken one; credit beyond that is not given.
    pub credit: u32,
    /// Loads that are going on.
    pub loads: usize,
    /// Bytes of a task.
    pub task_bytes: usize,
    /// Readers at a time, on each thread.
    pub readers: usize,
    /// How often who waits is told that what it waits for is under way.
    pub progress: Duration,
    /// How long it is waited for readers to take what was sent, when the node ends.
    pub farewell: Duration,
}

impl Default for Limits {
    /// 8192 pages, 16 MiB, 1024 tables, 8 windows of 1 GiB in all, 256 requests, messages of 1 GiB, 64 MiB
    /// that are not read, 64 tasks of 1 MiB with 16 batches each, 8 loads, 1024 readers; every 5 s, 2 s.
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
