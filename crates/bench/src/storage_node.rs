//! A storage node that is measured: a process of its own, which shows one file, or memory.
//!
//! A program that runs experiments starts itself with `storage-node CONFIGURATION` for it, where
//! `CONFIGURATION` is a [`StorageNodeConfig`] as JSON, and calls [`serve`].

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use disk::reads::{PageCache, ReadFile};
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use fabric::verbs::{Device, Domain, VerbsOptions};
use pages::node::{Limits, NoWorker, Node, NodeOptions, ShownFiles};
use serde::{Deserialize, Serialize};

use crate::content;
use crate::error::RunError;

/// The name under which the file is shown.
pub const NAME: &str = "content";
/// The secret of readers.
const SECRET: &str = "a measurement on one machine";
/// Bytes of shown memory.
const MEMORY: usize = 4 << 20;

/// How messages and pages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageTransport {
    /// Memory that processes share.
    Shm,
    /// TCP on loopback.
    Tcp,
    /// An RDMA device.
    Verbs,
}

impl PageTransport {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PageTransport::Shm => "shm",
            PageTransport::Tcp => "tcp",
            PageTransport::Verbs => "verbs",
        }
    }

    /// Returns the fabric's transport.
    #[must_use]
    pub fn transport(self) -> Transport {
        match self {
            PageTransport::Shm => Transport::Shm,
            PageTransport::Tcp => Transport::Tcp,
            PageTransport::Verbs => Transport::Verbs,
        }
    }

    /// Returns the device's domain, if one is needed.
    ///
    /// # Errors
    /// Returns an error if there is no device.
    pub fn domain(self) -> Result<Option<Domain>, RunError> {
        match self {
            PageTransport::Verbs => {
                let device = Device::open(&VerbsOptions::default());
                let device = device.map_err(RunError::of)?;
                device.domain().map(Some).map_err(RunError::of)
            }
            PageTransport::Shm | PageTransport::Tcp => Ok(None),
        }
    }
}

/// A way of reading, in the form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadMethodOption {
    /// A thread for each read.
    Dynamic,
    /// So many threads.
    Static(usize),
    /// io_uring.
    Ring,
    /// The thread that submits reads itself.
    Here,
}

impl ReadMethodOption {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReadMethodOption::Dynamic => "dynamic",
            ReadMethodOption::Static(_) => "static",
            ReadMethodOption::Ring => "ring",
            ReadMethodOption::Here => "here",
        }
    }

    /// Returns the disk's name for it.
    #[must_use]
    pub fn disk_method(self) -> disk::reads::ReadMethod {
        match self {
            ReadMethodOption::Dynamic => disk::reads::ReadMethod::ThreadPerRead,
            ReadMethodOption::Static(threads) => disk::reads::ReadMethod::ThreadPool { threads },
            ReadMethodOption::Ring => disk::reads::ReadMethod::IoUring,
            ReadMethodOption::Here => disk::reads::ReadMethod::Inline,
        }
    }
}

/// The configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageNodeConfig {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// How pages travel.
    #[serde(rename = "carrier")]
    pub transport: PageTransport,
    /// How they are read.
    #[serde(rename = "reading")]
    pub read_method: ReadMethodOption,
    /// Reads under way, of each thread.
    pub depth: usize,
    /// Threads that serve readers.
    pub threads: usize,
    /// The file; none: memory, whose pages need no read.
    pub file: Option<PathBuf>,
    /// The processor that all of it runs on, if it is pinned.
    pub cpu: Option<usize>,
}

/// Returns the secret of readers and nodes.
#[must_use]
pub fn secret() -> Secret {
    Secret::new(SECRET)
}

/// Runs a node, until the process is killed.
///
/// # Errors
/// The text says why it cannot run.
pub fn serve(config: &str) -> Result<(), RunError> {
    let config: StorageNodeConfig = serde_json::from_str(config).map_err(RunError::of)?;
    let failed = |error: io::Error| error.to_string();
    if let Some(cpu) = config.cpu {
        // Its threads inherit the processor.
        base::cpus::pin_current_thread(cpu).map_err(failed)?;
    }
    let mut shown = ShownFiles::default();
    match &config.file {
        Some(path) => {
            let file = ReadFile::open(path, PageCache::Past).map_err(failed)?;
            shown.show(NAME, file);
        }
        None => {
            let mut memory = vec![0; MEMORY];
            content::fill(0, &mut memory);
            shown.show_memory(NAME, Bytes::from(memory));
        }
    }
    let options = NodeOptions {
        listen: config.listen,
        secret: secret(),
        threads: config.threads,
        task_threads: 1,
        way: config.read_method.disk_method(),
        depth: config.depth,
        transport: config.transport.transport(),
        encryption: fabric::tcp::Encryption::Auto,
        shm: Shm::default(),
        verbs: config.transport.domain()?,
        limits: Limits::default(),
    };
    let _node = Node::start(options, Arc::new(shown), Arc::new(NoWorker)).map_err(failed)?;
    loop {
        std::thread::park();
    }
}
