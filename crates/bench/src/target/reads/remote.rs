//! Reads of the file that a storage node shows.

use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::HashMap;
use pages::remote::session::TableHandle;
use pages::remote::{Session, SessionOptions};

use super::course::Course;
use super::{Far, Order, Work};
use crate::content::Checker;
use crate::sample::RunError;
use crate::storage::{self, Reading, Showing};
use crate::target::process::Process;

/// How long a turn may wait.
const WAIT: Duration = Duration::from_millis(100);
/// The most units that a cache has between two turns.
const FOUND: usize = 256;
/// Bytes of a session's window: at least this, and twice the bytes under way.
const WINDOW: usize = 1 << 20;
/// The most reads that a thread of the node has under way.
const DEPTH: usize = 4096;

/// Returns the processors of node and readers, if each must have one.
pub(super) fn places(work: &Work<'_>) -> Result<Option<[usize; 2]>, RunError> {
    if !work.job.pinned {
        return Ok(None);
    }
    let usable = base::cpus::usable();
    let usable = usable.map_err(|error| RunError::failed("asking for processors")(&error))?;
    match usable[..] {
        [first, .., last] => Ok(Some([first, last])),
        _ => {
            let why = "node and readers cannot have a processor each: there is one";
            Err(RunError::Skipped(why.to_owned()))
        }
    }
}

pub(super) fn run(work: &Work<'_>, far: &Far) -> Result<Course, RunError> {
    let places = places(work)?;
    let Some(program) = work.context.laboratory else {
        let why = "there is no program whose storage nodes could be started";
        return Err(RunError::Skipped(why.to_owned()));
    };
    if let Err(why) = far.carrier.domain() {
        return Err(RunError::Skipped(why));
    }
    let node = Process::start(program, work.file.dir(), "storage-node", |listen, _| {
        let showing = Showing {
            listen,
            carrier: far.carrier,
            reading: far.reading.unwrap_or(Reading::Here),
            depth: (far.connections * far.depth).min(DEPTH),
            threads: far.desks,
            file: far.reading.is_some().then(|| work.file.path()),
            cpu: places.map(|[first, _]| first),
        };
        let showing = serde_json::to_string(&showing);
        let showing = showing.map_err(|error| RunError::failed("naming a file")(&error))?;
        Ok(["storage-node", &showing].map(str::to_owned).to_vec())
    })?;
    let address = node.address();
    let timed = work.job.order == Order::Random;
    Ok(std::thread::scope(|scope| {
        for thread in 0..far.connections {
            scope.spawn(move || {
                work.tally.thread(
                    || {
                        if let Some([_, last]) = places {
                            base::cpus::pin_current_thread(last).map_err(|e| e.to_string())?;
                        }
                        connect(work, far, address)
                    },
                    |(session, open)| read(work, thread, session, &open),
                );
            });
        }
        work.tally.follow(work.context, timed, &|| node.cpu())
    }))
}

fn connect(
    work: &Work<'_>,
    far: &Far,
    address: SocketAddr,
) -> Result<(Session, TableHandle), String> {
    let unit = work.job.unit;
    let mut options = SessionOptions::new(address, storage::secret());
    options.transport = far.carrier.transport();
    options.verbs = far.carrier.domain()?;
    options.depth = far.depth;
    options.window_bytes = (2 * far.depth * unit).max(WINDOW);
    let mut session = Session::connect(options).map_err(|error| error.to_string())?;
    if session.transport() != Some(far.carrier.transport()) {
        return Err(format!(
            "there is no way to the node over {}",
            far.carrier.name()
        ));
    }
    let open = session.open_file(storage::NAME, unit);
    let open = open.map_err(|error| error.to_string())?;
    Ok((session, open))
}

/// Runs one of the threads, with a connection of its own.
fn read(
    work: &Work<'_>,
    thread: usize,
    mut session: Session,
    open: &TableHandle,
) -> Result<(), String> {
    let unit = work.job.unit as u64;
    let mut feed = work.feed(thread, open.pages * unit);
    let mut checker = Checker::default();
    let mut under_way = UnderWay::default();
    let mut more = true;
    while work.tally.goes_on() && (more || session.under_way() > 0) {
        let mut found = 0;
        for _ in 0..session.room(open) {
            let Some(offset) = feed.next() else {
                more = false;
                break;
            };
            if feed.cached(offset, &mut checker)? {
                found += 1;
                if found == FOUND {
                    break;
                }
                continue;
            }
            if work.cache.is_some() && under_way.joins(offset) {
                feed.joined();
                continue;
            }
            session.read(open, 0, (offset / unit) as u32, offset);
        }
        // Units from the cache are no reason to wait.
        let wait = if found > 0 { Duration::ZERO } else { WAIT };
        session.turn(wait).map_err(|error| error.to_string())?;
        let mut came = 0;
        while let Some(arrived) = session.next_page() {
            let page = arrived
                .page
                .map_err(|what| format!("byte {}: {what}", arrived.token))?;
            feed.came(arrived.token, page.as_ref(), &mut checker)?;
            came += 1;
            if work.cache.is_some() {
                came += under_way.ended(arrived.token);
            }
        }
        work.tally.add(thread, found as u64 + came);
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
