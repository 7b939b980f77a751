//! Reads of the file by this process itself.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::reads::{
    AllocatedBuffer, BufferPool, CompletedRead, PageCache, PooledBuffer, ReadFile, ReadQueue,
    ReadRequest,
};

use super::job::{AccessPattern, FileReader};
use super::offset_source::ReadRun;
use super::processors::node_and_readers;
use super::timeline::ReadTimeline;
use crate::content::Checker;
use crate::error::RunError;
use crate::storage_node::ReadMethodOption;

/// Reads of a plain thread between two checks if it must continue.
const TURN: usize = 16;
/// How long a turn may wait.
const WAIT: Duration = Duration::from_millis(100);

pub(super) fn run(work: &ReadRun<'_>) -> Result<ReadTimeline, RunError> {
    let cpu = node_and_readers(work.job.pinned)?.map(|[first, _]| first);
    let path = work.file.path();
    let timed = work.job.order == AccessPattern::Random;
    Ok(std::thread::scope(|scope| {
        let threads = match work.job.reader {
            FileReader::Plain { threads } => threads,
            FileReader::Own { .. } | FileReader::Node(_) => 1,
        };
        for thread in 0..threads {
            let path = &path;
            scope.spawn(move || {
                let pinned = || match cpu {
                    Some(cpu) => base::cpus::pin_current_thread(cpu).map_err(RunError::of),
                    None => Ok(()),
                };
                match work.job.reader {
                    FileReader::Own { read_method, depth } => work.tally.thread(
                        || {
                            pinned().and_then(|()| {
                                NodeReadLoop::new(path, read_method, depth, work.job.unit)
                            })
                        },
                        |way| way.read(work),
                    ),
                    FileReader::Plain { .. } | FileReader::Node(_) => work.tally.thread(
                        || pinned().and_then(|()| open(path)),
                        |file| plain(work, thread, &file),
                    ),
                }
            });
        }
        work.tally.follow(work.context, timed, &|| 0.0)
    }))
}

fn open(path: &Path) -> Result<ReadFile, RunError> {
    ReadFile::open(path, PageCache::Past)
        .map_err(|error| RunError::failed(&path.display().to_string())(&error))
}

/// Runs one of many threads that read in a loop.
fn plain(work: &ReadRun<'_>, thread: usize, file: &ReadFile) -> Result<(), RunError> {
    let unit = work.job.unit;
    let mut memory = AllocatedBuffer::new(unit);
    let mut offsets = work.offsets(thread, file.len());
    let mut checker = Checker::default();
    while work.tally.must_continue() {
        for _ in 0..TURN {
            let Some(offset) = offsets.next() else {
                return Ok(());
            };
            work.tally.add(thread, 1);
            if offsets.cached(offset, &mut checker)? {
                continue;
            }
            let into = &mut memory.as_mut()[..unit];
            let read = rustix::io::pread(file.as_fd(), into, offset);
            match read.map_err(|error| format!("reading at {offset}: {error}"))? {
                n if n == unit => {
                    offsets.checked(offset, &memory.as_ref()[..unit], &mut checker)?
                }
                n => {
                    return Err(RunError::Failed(format!(
                        "a read at {offset} checked back with {n} bytes"
                    )));
                }
            }
        }
    }
    Ok(())
}

/// The memory of one read, and the offset that was read.
type PendingRead = (PooledBuffer, u64);

/// One of the node's ways.
struct NodeReadLoop {
    reads: Box<dyn ReadQueue<PendingRead>>,
    file: disk::reads::FileId,
    len: u64,
    pool: BufferPool,
}

impl NodeReadLoop {
    fn new(
        path: &Path,
        read_method: ReadMethodOption,
        depth: usize,
        unit: usize,
    ) -> Result<NodeReadLoop, RunError> {
        let failed = |error: std::io::Error| error.to_string();
        let mut reads = read_method.disk_method().reads(depth).map_err(failed)?;
        let file = open(path)?;
        let len = file.len();
        let file = reads.add(Arc::new(file));
        let pool = BufferPool::new(depth as u32, unit).map_err(failed)?;
        // Without it reads cost a little more.
        let _ = reads.register(pool.memory());
        Ok(NodeReadLoop {
            reads,
            file,
            len,
            pool,
        })
    }

    fn read(mut self, work: &ReadRun<'_>) -> Result<(), RunError> {
        let unit = work.job.unit;
        let mut offsets = work.offsets(0, self.len);
        let mut checker = Checker::default();
        let mut done: Vec<CompletedRead<PendingRead>> = Vec::new();
        let mut more = true;
        while work.tally.must_continue() && (more || self.reads.under_way() > 0) {
            let mut found = 0;
            while more && self.reads.room() > 0 {
                let Some(offset) = offsets.next() else {
                    more = false;
                    break;
                };
                if offsets.cached(offset, &mut checker)? {
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
                    return Err(RunError::Failed(format!(
                        "a read at {offset} checked back with {n} bytes"
                    )));
                }
                offsets.checked(offset, &memory.as_ref()[..unit], &mut checker)?;
            }
        }
        Ok(())
    }
}
