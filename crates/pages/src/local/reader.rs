//! A way of reading, which one stream has at a time, and memory for the pages that it reads.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use bytes::Bytes;
use disk::reads::{
    BufferPool, CompletedRead, FileId, PooledBuffer, ReadFile, ReadMethod, ReadQueue, ReadRequest,
};
use parking_lot::Mutex;

use super::options::LocalOptions;
use crate::owned_bytes::to_owned_bytes;
use crate::tables::Tables;

/// The most idle readers that are kept.
const KEPT: usize = 16;
/// Slots of a reader's own, which it uses when others have taken all memory.
const SPARE: u32 = 8;
/// How long the thread that gives back a reader waits for its next read to complete. After that another
/// thread waits for the rest, and the reader is not used again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state that all streams share.
pub(super) struct Readers {
    pub(super) tables: Tables,
    options: LocalOptions,
    way: ReadMethod,
    idle: Mutex<Vec<Reader>>,
    /// Pools by the size of pages.
    pools: Mutex<HashMap<usize, BufferPool>>,
}

impl Readers {
    pub(super) fn new(tables: Tables, options: LocalOptions) -> Readers {
        let way = options
            .way
            .unwrap_or_else(|| ReadMethod::suited(tables.dirs()));
        let threads = match way {
            ReadMethod::ThreadPool { threads } => threads,
            _ => 1,
        };
        assert!(threads > 0, "no thread to read");
        assert!((1..=1 << 15).contains(&options.depth), "no such depth");
        Readers {
            tables,
            options,
            way,
            idle: Mutex::default(),
            pools: Mutex::default(),
        }
    }

    pub(super) fn options(&self) -> &LocalOptions {
        &self.options
    }

    /// Returns how many pages of so many bytes a stream reads before they are taken.
    pub(super) fn ahead(&self, unit: usize) -> usize {
        match self.way {
            // A way that waits for each read gains nothing from reading ahead.
            ReadMethod::Inline => 1,
            _ => self.options.ahead_bytes / unit,
        }
    }

    /// Returns a reader, prepared for pages of so many bytes.
    pub(super) fn take(&self, unit: usize) -> io::Result<Reader> {
        let idle = self.idle.lock().pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => Reader {
                reads: self.way.reads(self.options.depth)?,
                done: Vec::new(),
                memory: HashMap::new(),
                has_failed: false,
            },
        };
        if !reader.memory.contains_key(&unit) {
            let pool = self.pool(unit)?;
            // It does no harm if the system refuses.
            reader.reads.register(pool.memory());
            let spare = None;
            reader.memory.insert(unit, Memory { pool, spare });
        }
        Ok(reader)
    }

    fn pool(&self, unit: usize) -> io::Result<BufferPool> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(&unit) {
            return Ok(pool.clone());
        }
        let slots = u32::try_from(self.options.pool_bytes / unit).unwrap_or(u32::MAX);
        let pool = BufferPool::new(slots.max(1), unit)?;
        pools.insert(unit, pool.clone());
        Ok(pool)
    }

    /// Keeps a reader for later, after its reads are complete. Its files are removed from it.
    pub(super) fn give_back(&self, mut reader: Reader, files: impl Iterator<Item = FileId>) {
        files.for_each(|file| reader.reads.remove(file));
        while reader.reads.under_way() > 0 {
            if reader.reads.wait(&mut reader.done, Some(PATIENCE)) == 0 {
                return give_up(reader);
            }
            reader.done.clear();
        }
        let mut idle = self.idle.lock();
        if idle.len() < KEPT && !reader.has_failed {
            idle.push(reader);
        }
    }
}

/// Ends a reader whose reads may be stuck. They write to memory that is lent to them, so that it ends
/// when they are complete, however long that takes; only a thread of its own waits for that.
fn give_up(reader: Reader) {
    let thread = Builder::new().name("reads-end".to_owned());
    if let Err(error) = thread.spawn(move || drop(reader)) {
        tracing::warn!("no thread could wait for reads that are stuck: {error}");
    }
}

/// See the [module](self).
pub(super) struct Reader {
    reads: Box<dyn ReadQueue<Lent>>,
    done: Vec<CompletedRead<Lent>>,
    /// Memory by the size of pages.
    memory: HashMap<usize, Memory>,
    /// `true` after a read has failed: the kernel may refuse this way, which is not used again.
    has_failed: bool,
}

struct Memory {
    pool: BufferPool,
    /// The pool is made when it is first needed.
    spare: Option<BufferPool>,
}

/// The memory of a read, and its page.
type Lent = (PooledBuffer, Tag);

struct Tag {
    /// The place among the stream's pages.
    place: usize,
    len: usize,
    is_spare: bool,
}

/// The result of an attempt to begin a read.
pub(super) enum Begun {
    Yes,
    /// Earlier reads have to complete first.
    Full,
}

/// What a reader does if no read is complete yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// It waits for one.
    Wait,
    /// It returns, and looks again later.
    Look,
}

impl Reader {
    pub(super) fn add(&mut self, file: &Arc<ReadFile>) -> FileId {
        self.reads.add(Arc::clone(file))
    }

    /// Begins to read a page, at the latest in the next [turn](Reader::turn).
    ///
    /// # Errors
    /// Returns an error if the system has no memory for it.
    pub(super) fn begin(
        &mut self,
        place: usize,
        (file, offset): (FileId, u64),
        unit: usize,
    ) -> io::Result<Begun> {
        if self.reads.room() == 0 {
            return Ok(Begun::Full);
        }
        let memory = self.memory.get_mut(&unit).expect("it was prepared");
        let (into, is_spare) = match memory.pool.take() {
            Some(into) => (into, false),
            None => match memory.spare(unit)? {
                Some(into) => (into, true),
                None => return Ok(Begun::Full),
            },
        };
        let tag = Tag {
            place,
            len: unit,
            is_spare,
        };
        self.reads.submit(ReadRequest {
            file,
            offset,
            len: unit,
            into: (into, tag),
        });
        Ok(Begun::Yes)
    }

    /// Begins the submitted reads, and reports each page that has come by its place. If memory is scarce
    /// and pages `stay` in it, they are copied out.
    pub(super) fn turn(
        &mut self,
        turn: Turn,
        unit: usize,
        stay: bool,
        mut tell: impl FnMut(usize, io::Result<Bytes>),
    ) {
        match turn {
            Turn::Wait => {
                self.reads.wait(&mut self.done, None);
            }
            Turn::Look => {
                // Reads that could not begin end with the error.
                let _ = self.reads.start();
                self.reads.finish(&mut self.done);
            }
        }
        let pool = &self.memory.get(&unit).expect("it was prepared").pool;
        let is_scarce = stay && pool.free() * 2 < pool.slots() as usize;
        for CompletedRead { into, result } in self.done.drain(..) {
            let (memory, tag) = into;
            let page = match result {
                Ok(n) if n < tag.len => {
                    let what = format!("the file ends after {n} bytes of it");
                    Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
                }
                Ok(_) if is_scarce || tag.is_spare => {
                    Ok(to_owned_bytes(&memory.as_ref()[..tag.len]))
                }
                Ok(_) => Ok(memory.into_bytes(tag.len)),
                Err(error) => {
                    self.has_failed = true;
                    Err(error)
                }
            };
            tell(tag.place, page);
        }
    }
}

impl Memory {
    /// Returns a slot of the reader's own; `None` if reads have all of them.
    fn spare(&mut self, unit: usize) -> io::Result<Option<PooledBuffer>> {
        if self.spare.is_none() {
            self.spare = Some(BufferPool::new(SPARE, unit)?);
        }
        Ok(self.spare.as_ref().and_then(BufferPool::take))
    }
}

#[cfg(test)]
mod tests;
