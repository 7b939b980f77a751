//! Reads of the file by this process itself.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::reads::{CompletedRead, AllocatedBuffer, PageCache, BufferPool, PooledBuffer, ReadRequest, ReadFile, ReadQueue};

use super::course::Course;
use super::{Order, Reader, Work};
use crate::content::Checker;
use crate::sample::RunError;
use crate::storage::Reading;

/// Reads of a plain thread between two checks if it must continue.
const TURN: usize = 16;
/// How long a turn may wait.
const WAIT: Duration = Duration::from_millis(100);

pub(super) fn run(work: &Work<'_>) -> Result<Course, RunError> {
    let cpu = super::remote::places(work)?.map(|[first, _]| first);
    let path = work.file.path();
    let timed = work.job.order == Order::Random;
    Ok(std::thread::scope(|scope| {
        let threads = match work.job.reader {
            Reader::Plain { threads } => threads,
            Reader::Own { .. } | Reader::Node(_) => 1,
        };
        for thread in 0..threads {
            let path = &path;
            scope.spawn(move || {
                let pinned = || match cpu {
                    Some(cpu) => base::cpus::pin_current_thread(cpu).map_err(|e| e.to_string()),
                    None => Ok(()),
                };
                match work.job.reader {
                    Reader::Own { reading, depth } => work.tally.thread(
                        || pinned().and_then(|()| Way::new(path, reading, depth, work.job.unit)),
                        |way| way.read(work),
                    ),
                    Reader::Plain { .. } | Reader::Node(_) => work.tally.thread(
                        || pinned().and_then(|()| open(path)),
                        |file| plain(work, thread, &file),
                    ),
                }
            });
        }
        work.tally.follow(work.context, timed, &|| 0.0)
    }))
}

fn open(path: &Path) -> Result<ReadFile, String> {
    ReadFile::open(path, PageCache::Past).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs one of many threads that read in a loop.
fn plain(work: &Work<'_>, thread: usize, file: &ReadFile) -> Result<(), String> {
    let unit = work.job.unit;
    let mut memory = AllocatedBuffer::new(unit);
    let mut feed = work.feed(thread, file.len());
    let mut checker = Checker::default();
    while work.tally.goes_on() {
        for _ in 0..TURN {
            let Some(offset) = feed.next() else {
                return Ok(());
            };
            work.tally.add(thread, 1);
            if feed.cached(offset, &mut checker)? {
                continue;
            }
            let into = &mut memory.as_mut()[..unit];
            let read = rustix::io::pread(file.as_fd(), into, offset);
            match read.map_err(|error| format!("reading at {offset}: {error}"))? {
                n if n == unit => feed.came(offset, &memory.as_ref()[..unit], &mut checker)?,
                n => return Err(format!("a read at {offset} came back with {n} bytes")),
            }
        }
    }
    Ok(())
}

/// The memory of one read, and the offset that was read.
type Into = (PooledBuffer, u64);

/// One of the node's ways.
struct Way {
    reads: Box<dyn ReadQueue<Into>>,
    file: disk::reads::FileId,
    len: u64,
    pool: BufferPool,
}

impl Way {
    fn new(path: &Path, reading: Reading, depth: usize, unit: usize) -> Result<Way, String> {
        let failed = |error: std::io::Error| error.to_string();
        let mut reads = reading.way().reads(depth).map_err(failed)?;
        let file = open(path)?;
        let len = file.len();
        let file = reads.add(Arc::new(file));
        let pool = BufferPool::new(depth as u32, unit).map_err(failed)?;
        // Without it reads cost a little more.
        let _ = reads.register(pool.memory());
        Ok(Way {
            reads,
            file,
            len,
            pool,
        })
    }

    fn read(mut self, work: &Work<'_>) -> Result<(), String> {
        let unit = work.job.unit;
        let mut feed = work.feed(0, self.len);
        let mut checker = Checker::default();
        let mut done: Vec<CompletedRead<Into>> = Vec::new();
        let mut more = true;
        while work.tally.goes_on() && (more || self.reads.under_way() > 0) {
            let mut found = 0;
            while more && self.reads.room() > 0 {
                let Some(offset) = feed.next() else {
                    more = false;
                    break;
                };
                if feed.cached(offset, &mut checker)? {
                    found += 1;
                    continue;
                }
                let memory = self.pool.take().ok_or("there is memory for each read")?;
                self.reads.submit(ReadRequest {
                    file: self.file,
                    offset,
                    len: unit,
                    into: (memory, offset),
                });
            }
            self.reads.wait(&mut done, Some(WAIT));
            work.tally.add(0, found + done.len() as u64);
            for CompletedRead { into, result } in done.drain(..) {
                let (memory, offset) = into;
                let n = result.map_err(|error| format!("reading at {offset}: {error}"))?;
                if n != unit {
                    return Err(format!("a read at {offset} came back with {n} bytes"));
                }
                feed.came(offset, &memory.as_ref()[..unit], &mut checker)?;
            }
        }
        Ok(())
    }
}
