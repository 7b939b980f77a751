//! `kumiki pages serve`: a storage node.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::{Args, ValueEnum};
use disk::RealDisk;
use disk::reads::{PageCache, ReadFile, ReadMethod};
use fabric::shm::Shm;
use operators::FragmentWorker;
use pages::node::{Limits, LocalTables, Node, NodeOptions, ShownFiles};
use pages::{Local, LocalOptions, Tables};

use crate::argument_values::parse_address;
use crate::descriptors;
use crate::logging::LogControl;
use crate::rdma::NamedDevice;
use crate::signals::{self, ConfigReload, SecretReload};
use crate::table_location::{ADDRESS_FILE, NodeAccess};

/// Options of `kumiki pages serve`.
#[derive(Args, Debug)]
pub(crate) struct StorageNodeOptions {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6395", value_parser = parse_address)]
    listen: SocketAddr,
    /// A directory of pages; made if it is not there. Given several times, pages are spread over
    /// them in turn; the first one has what tells of the tables, and is to be named first always.
    #[arg(long = "dir", value_name = "DIR", default_value = "./kumiki-pages")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    access: NodeAccess,
    /// Serve all who reach the address, without a secret.
    #[arg(long)]
    insecure: bool,
    /// Threads that serve readers; default: one for two processors.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Threads that run operators; default: one for each processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    task_threads: Option<u16>,
    /// How pages are read.
    #[arg(long, value_name = "WAY", default_value = "auto")]
    io: Io,
    /// Threads that read, for each thread that serves readers or runs operators (--io static).
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    io_threads: u16,
    /// Reads under way at a time, for each thread that serves readers or runs operators.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=32768))]
    depth: u16,
    /// Read through the operating system's page cache, and not past it.
    #[arg(long)]
    page_cache: bool,
    /// Let readers read a file as it is, under a name: for measurements.
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_shown)]
    show: Vec<(String, PathBuf)>,
}

/// How pages are read (paper 4, section 3.2).
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
enum Io {
    /// As suits the directories: here if all of them lie in memory, else ring; static where the
    /// system refuses io_uring.
    Auto,
    /// By io_uring, past the page cache.
    Ring,
    /// By threads that are made beforehand.
    Static,
    /// By a new thread for each page.
    Dynamic,
    /// By the thread that serves readers, which waits for each: for pages that lie in memory.
    Here,
}

fn parse_shown(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), file.into()))
        }
        _ => Err("write NAME=FILE, for example disk=/var/tmp/disk".to_owned()),
    }
}

/// Publishes the node's address for as long as it runs.
struct PublishedAddress(PathBuf);

impl PublishedAddress {
    fn new(dir: &Path, address: SocketAddr) -> Result<PublishedAddress, String> {
        let path = dir.join(ADDRESS_FILE);
        let told = std::fs::write(&path, format!("{address}\n"));
        told.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(PublishedAddress(path))
    }
}

impl Drop for PublishedAddress {
    fn drop(&mut self) {
        // A file that is left names a node that cannot be reached, which is an error of its own.
        drop(std::fs::remove_file(&self.0));
    }
}

/// The interval at which versions that no reader may need are looked for.
const TIDY: Duration = Duration::from_secs(60);

/// Serves until it is asked to stop.
pub(super) fn serve(options: &StorageNodeOptions, log: &Arc<LogControl>) -> Result<(), String> {
    descriptors::raise();
    let signals = signals::take(true)?;
    let has_secret = options.access.secret_file.is_some();
    if !has_secret && !options.insecure {
        let (strangers, trusted) = match options.listen.ip().is_loopback() {
            true => ("every user of this machine", "all of them are trusted"),
            false => (
                "everyone who reaches this address",
                "the network is trusted",
            ),
        };
        return Err(format!(
            "--listen {}: {strangers} could read, load and remove tables; give --secret-file FILE, here \
             and to all that connect (\"openssl rand -hex 32\" prints a secret; only its user may \
             read the file), or --insecure if {trusted}",
            options.listen
        ));
    }
    let tables = Tables::open(Arc::new(RealDisk), &options.dirs);
    let tables = tables.map_err(|error| error.to_string())?;
    for (name, what) in tables.damaged() {
        tracing::error!("table {name} is damaged: {what}; load it again, or remove it");
    }
    let mut shown = ShownFiles::default();
    let page_cache = match options.page_cache {
        true => PageCache::Through,
        false => PageCache::Past,
    };
    for (name, path) in &options.show {
        let file = ReadFile::open(path, page_cache);
        let file = file.map_err(|error| format!("--show {}: {error}", path.display()))?;
        if let Some(note) = file.note() {
            tracing::info!("{note}");
        }
        shown.show(name, file);
    }
    let count = tables.list().len();
    let node_options = node_options(options)?;
    let (secret, access) = (node_options.secret.clone(), options.access.clone());
    let secrets = SecretReload {
        read: Box::new(move || access.secret().map(|read| secret.replace(&read))),
    };
    let worker = FragmentWorker::new(Arc::new(Local::new(
        tables.clone(),
        LocalOptions {
            way: Some(node_options.way),
            page_cache,
            depth: node_options.depth,
            ..LocalOptions::default()
        },
    )));
    let stock = Arc::new(LocalTables::new(tables, shown, page_cache));
    let node = Node::start(node_options, Arc::clone(&stock) as _, Arc::new(worker));
    let node = node.map_err(|error| format!("cannot serve on {}: {error}", options.listen))?;
    let told = PublishedAddress::new(&options.dirs[0], node.address())?;
    announce(&node, count).map_err(|error| error.to_string())?;
    let (stop, stopped) = channel();
    let failed = stop.clone();
    // Without the address, a reader would wait for a node that serves no reader.
    node.on_failure(move || failed.send(()).unwrap_or_default());
    signals::stop_on(
        signals,
        ConfigReload::new(None, log).with_secrets(Some(secrets)),
        move || {
            // The receiver is gone once the first message has come.
            stop.send(()).unwrap_or_default();
        },
    );
    // The node may send as long as it exists, so that only a message or the time ends a wait.
    while stopped.recv_timeout(TIDY) == Err(RecvTimeoutError::Timeout) {
        stock.tidy();
    }
    drop(told);
    node.stop()
        .map_err(|error| format!("the storage node has failed: {error}"))
}

fn node_options(options: &StorageNodeOptions) -> Result<NodeOptions, String> {
    let cpus = base::cpus::usable().map_or(2, |cpus| cpus.len()).max(1);
    let transport = options.access.transport.of_links();
    Ok(NodeOptions {
        listen: options.listen,
        secret: options.access.secret()?,
        threads: options.threads.map_or(cpus.div_ceil(2), usize::from),
        task_threads: options.task_threads.map_or(cpus, usize::from),
        way: match options.io {
            Io::Auto => ReadMethod::suited(&options.dirs),
            Io::Ring => ReadMethod::IoUring,
            Io::Static => ReadMethod::ThreadPool {
                threads: options.io_threads.into(),
            },
            Io::Dynamic => ReadMethod::ThreadPerRead,
            Io::Here => ReadMethod::Inline,
        },
        depth: options.depth.into(),
        transport,
        encryption: options.access.encrypt_links.of_links(),
        shm: Shm::default(),
        verbs: NamedDevice::new(options.access.rdma_device.clone()).open(transport)?,
        limits: Limits::default(),
    })
}

fn announce(node: &Node, tables: usize) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "kumiki: storage node listening on {}, tables: {tables}",
        node.address()
    )?;
    out.flush()
}
