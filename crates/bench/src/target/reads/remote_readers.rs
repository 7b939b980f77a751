//! Reads of the file that a storage node shows.

use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::thread::Builder;
use std::time::Duration;

use fabric::tcp::Transport;
use foldhash::HashMap;
use pages::remote::session::TableHandle;
use pages::remote::{LinkPool, LinkPoolOptions, PageLink, Session, SessionOptions, SharedReader};

use super::job::{AccessPattern, RemoteReaders};
use super::offset_source::ReadRun;
use super::processors::node_and_readers;
use super::timeline::ReadTimeline;
use crate::content::Checker;
use crate::error::RunError;
use crate::storage_node::{self, ReadMethodOption, StorageNodeConfig};
use crate::systems::ListeningProcess;

/// How long a turn may wait.
const WAIT: Duration = Duration::from_millis(100);
/// The most units that a cache has between two turns.
const FOUND: usize = 256;
/// Bytes of a session's window: at least this, and twice the bytes under way.
const WINDOW: usize = 1 << 20;
/// The most reads that a thread of the node has under way.
const DEPTH: usize = 4096;
/// The most pages that a reader may have asked for: the limit of the node.
const REQUESTED: usize = 8192;
/// Bytes of the stack of a thread that shares its connection: there may be 10,000.
const STACK: usize = 128 << 10;

pub(super) fn run(work: &ReadRun<'_>, readers: &RemoteReaders) -> Result<ReadTimeline, RunError> {
    let processors = node_and_readers(work.job.pinned)?;
    let program = work.context.laboratory("storage nodes")?;
    if let Err(why) = readers.transport.domain() {
        return Err(RunError::skipped(why));
    }
    let node = ListeningProcess::start(program, work.file.dir(), "storage-node", |listen, _| {
        let config = StorageNodeConfig {
            listen,
            transport: readers.transport,
            read_method: readers.read_method.unwrap_or(ReadMethodOption::Here),
            depth: (readers.connections * readers.depth).min(DEPTH),
            threads: readers.node_threads,
            file: readers.read_method.is_some().then(|| work.file.path()),
            cpu: processors.map(|[first, _]| first),
        };
        let config = serde_json::to_string(&config);
        let config = config.map_err(|error| RunError::failed("naming a file")(&error))?;
        Ok(["storage-node", &config].map(str::to_owned).to_vec())
    })?;
    let address = node.address();
    let pool = match readers.threads_per_connection {
        None => None,
        Some(threads) => {
            let options = LinkPoolOptions {
                session: session_options(work, readers, address)?,
                connections: readers.connections,
                threads_per_connection: threads,
                stack_bytes: STACK,
            };
            Some(LinkPool::new(options).map_err(RunError::skipped)?)
        }
    };
    let pool = pool.as_ref();
    let pin = move || match processors {
        Some([_, last]) => base::cpus::pin_current_thread(last).map_err(RunError::of),
        None => Ok(()),
    };
    let run_thread = move |thread: usize| match pool {
        None => work.tally.thread(
            || pin().and_then(|()| connect(work, readers, address)),
            |(session, open)| read(work, thread, session, &open),
        ),
        Some(pool) => work.tally.thread(
            || pin().and_then(|()| share(work, readers, pool)),
            |(reader, open)| read(work, thread, reader, &open),
        ),
    };
    let timed = work.job.order == AccessPattern::Random;
    std::thread::scope(|scope| {
        let mut result = Ok(());
        for thread in 0..readers.threads() {
            let mut builder = Builder::new();
            if pool.is_some() {
                builder = builder.stack_size(STACK);
            }
            if let Err(error) = builder.spawn_scoped(scope, move || run_thread(thread)) {
                let why = format!("the system starts {thread} threads and no more: {error}");
                let why = RunError::Skipped(why);
                work.tally
                    .leave_out(readers.threads() - thread, why.clone());
                result = Err(why);
                break;
            }
        }
        let timeline = work.tally.follow(work.context, timed, &|| node.cpu());
        result.map(|()| timeline)
    })
}

fn session_options(
    work: &ReadRun<'_>,
    readers: &RemoteReaders,
    address: SocketAddr,
) -> Result<SessionOptions, RunError> {
    let mut options = SessionOptions::new(address, storage_node::secret());
    options.transport = readers.transport.transport();
    options.verbs = readers.transport.domain()?;
    options.depth = readers.depth.min(REQUESTED);
    options.window_bytes = (2 * options.depth * work.job.unit).max(WINDOW);
    Ok(options)
}

/// Returns an error if messages travel in another way than they are to.
fn check_transport(readers: &RemoteReaders, used: Option<Transport>) -> Result<(), RunError> {
    if used == Some(readers.transport.transport()) {
        return Ok(());
    }
    Err(RunError::Failed(format!(
        "there is no way to the node over {}",
        readers.transport.name()
    )))
}

fn connect(
    work: &ReadRun<'_>,
    readers: &RemoteReaders,
    address: SocketAddr,
) -> Result<(Session, TableHandle), RunError> {
    let options = session_options(work, readers, address)?;
    let mut session = Session::connect(options).map_err(RunError::of)?;
    check_transport(readers, session.transport())?;
    let open = session.open_file(storage_node::NAME, work.job.unit);
    let open = open.map_err(RunError::of)?;
    Ok((session, open))
}

/// Takes a place on a shared connection.
fn share(
    work: &ReadRun<'_>,
    readers: &RemoteReaders,
    pool: &LinkPool,
) -> Result<(SharedReader, TableHandle), RunError> {
    let mut reader = pool.reader().map_err(RunError::of)?;
    check_transport(readers, reader.transport())?;
    let open = reader.open_file(storage_node::NAME, work.job.unit);
    let open = open.map_err(RunError::of)?;
    Ok((reader, open))
}

/// Runs one of the threads, with a connection of its own or a shared one.
fn read(
    work: &ReadRun<'_>,
    thread: usize,
    mut link: impl PageLink,
    open: &TableHandle,
) -> Result<(), RunError> {
    let unit = work.job.unit as u64;
    let mut offsets = work.offsets(thread, open.pages * unit);
    let mut checker = Checker::default();
    let mut under_way = UnderWay::default();
    let mut more = true;
    while work.tally.must_continue() && (more || link.under_way() > 0) {
        let mut found = 0;
        for _ in 0..link.room(open) {
            let Some(offset) = offsets.next() else {
                more = false;
                break;
            };
            if offsets.cached(offset, &mut checker)? {
                found += 1;
                if found == FOUND {
                    break;
                }
                continue;
            }
            if work.cache.is_some() && under_way.joins(offset) {
                offsets.joined();
                continue;
            }
            link.read(open, 0, (offset / unit) as u32, offset);
        }
        // Units from the cache are no reason to wait.
        let wait = if found > 0 { Duration::ZERO } else { WAIT };
        link.turn(wait).map_err(RunError::of)?;
        let mut checked = 0;
        while let Some(arrived) = link.next_page() {
            let page = arrived
                .page
                .map_err(|what| format!("byte {}: {what}", arrived.token))?;
            offsets.checked(arrived.token, page.as_ref(), &mut checker)?;
            checked += 1;
            if work.cache.is_some() {
                checked += under_way.ended(arrived.token);
            }
        }
        work.tally.add(thread, found as u64 + checked);
    }
    Ok(())
}

/// Units that are being read: a thread that needs one of them waits for it, and does not read it
/// again.
#[derive(Default)]
struct UnderWay(HashMap<u64, u64>);

impl UnderWay {
    /// Returns `true` if a unit is being read already. Otherwise marks it.
    fn joins(&mut self, offset: u64) -> bool {
        match self.0.entry(offset) {
            Entry::Occupied(mut waiting) => {
                *waiting.get_mut() += 1;
                true
            }
            Entry::Vacant(first) => {
                first.insert(0);
                false
            }
        }
    }

    /// Ends the read of a unit. Returns how many more reads than the first one have waited for it.
    fn ended(&mut self, offset: u64) -> u64 {
        self.0.remove(&offset).unwrap_or(0)
    }
}
