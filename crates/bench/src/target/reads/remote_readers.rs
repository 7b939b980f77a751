//! Reads of the file that a storage node shows.

use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::HashMap;
use pages::remote::session::TableHandle;
use pages::remote::{Session, SessionOptions};

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
    let timed = work.job.order == AccessPattern::Random;
    Ok(std::thread::scope(|scope| {
        for thread in 0..readers.connections {
            scope.spawn(move || {
                work.tally.thread(
                    || {
                        if let Some([_, last]) = processors {
                            base::cpus::pin_current_thread(last).map_err(RunError::of)?;
                        }
                        connect(work, readers, address)
                    },
                    |(session, open)| read(work, thread, session, &open),
                );
            });
        }
        work.tally.follow(work.context, timed, &|| node.cpu())
    }))
}

fn connect(
    work: &ReadRun<'_>,
    readers: &RemoteReaders,
    address: SocketAddr,
) -> Result<(Session, TableHandle), RunError> {
    let unit = work.job.unit;
    let mut options = SessionOptions::new(address, storage_node::secret());
    options.transport = readers.transport.transport();
    options.verbs = readers.transport.domain()?;
    options.depth = readers.depth;
    options.window_bytes = (2 * readers.depth * unit).max(WINDOW);
    let mut session = Session::connect(options).map_err(RunError::of)?;
    if session.transport() != Some(readers.transport.transport()) {
        return Err(RunError::Failed(format!(
            "there is no way to the node over {}",
            readers.transport.name()
        )));
    }
    let open = session.open_file(storage_node::NAME, unit);
    let open = open.map_err(RunError::of)?;
    Ok((session, open))
}

/// Runs one of the threads, with a connection of its own.
fn read(
    work: &ReadRun<'_>,
    thread: usize,
    mut session: Session,
    open: &TableHandle,
) -> Result<(), RunError> {
    let unit = work.job.unit as u64;
    let mut offsets = work.offsets(thread, open.pages * unit);
    let mut checker = Checker::default();
    let mut under_way = UnderWay::default();
    let mut more = true;
    while work.tally.must_continue() && (more || session.under_way() > 0) {
        let mut found = 0;
        for _ in 0..session.room(open) {
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
            session.read(open, 0, (offset / unit) as u32, offset);
        }
        // Units from the cache are no reason to wait.
        let wait = if found > 0 { Duration::ZERO } else { WAIT };
        session.turn(wait).map_err(RunError::of)?;
        let mut checked = 0;
        while let Some(arrived) = session.next_page() {
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
