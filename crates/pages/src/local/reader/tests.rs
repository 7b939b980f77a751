//! Readers over a way of reading that reports its calls.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::ThreadId;

use arrow_array::{Int64Array, RecordBatch};
use disk::RealDisk;
use disk::reads::{RegistrableMemory, RegistrationId};
use tempfile::TempDir;

use super::*;
use crate::local::stream::Stream;
use crate::table::{PageAddress, PageNo, PageSize};
use crate::tables::{LoadOptions, Mode};

const UNIT: usize = 4096;
/// Pages that a stream reads before they are taken.
const AHEAD: usize = 64;
/// The most pages that are taken between two looks at the reads.
const LOOK: usize = AHEAD / 8;

/// Hands reads on to another way. A wait returns all reads that are under way, at once.
struct Watched {
    reads: Box<dyn ReadQueue<Lent>>,
    submitted: usize,
    begun: Arc<AtomicUsize>,
    /// Simulates one more read that never completes: the channel gets the thread that drops it.
    stuck: Option<Sender<ThreadId>>,
}

impl Watched {
    fn begin(&mut self) {
        let submitted = std::mem::take(&mut self.submitted);
        self.begun.fetch_add(submitted, Ordering::Relaxed);
    }
}

impl ReadQueue<Lent> for Watched {
    fn add(&mut self, file: Arc<ReadFile>) -> FileId {
        self.reads.add(file)
    }

    fn remove(&mut self, file: FileId) {
        self.reads.remove(file);
    }

    fn register(&mut self, memory: Arc<dyn RegistrableMemory>) -> Option<RegistrationId> {
        self.reads.register(memory)
    }

    fn room(&self) -> usize {
        self.reads.room()
    }

    fn submit(&mut self, read: ReadRequest<Lent>) {
        self.submitted += 1;
        self.reads.submit(read);
    }

    fn start(&mut self) -> io::Result<()> {
        self.begin();
        self.reads.start()
    }

    fn finish(&mut self, done: &mut Vec<CompletedRead<Lent>>) -> usize {
        self.reads.finish(done)
    }

    fn wait(&mut self, done: &mut Vec<CompletedRead<Lent>>, at_most: Option<Duration>) -> usize {
        self.begin();
        let before = done.len();
        while self.reads.under_way() > 0 {
            self.reads.wait(done, at_most);
        }
        done.len() - before
    }

    fn under_way(&self) -> usize {
        self.reads.under_way() + usize::from(self.stuck.is_some())
    }

    fn arm(&mut self) -> bool {
        self.reads.arm()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.reads.bell()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(stuck) = &self.stuck {
            stuck.send(std::thread::current().id()).unwrap();
        }
    }
}

/// Readers of a table, and a reader that is watched.
struct WatchedReaders {
    readers: Arc<Readers>,
    reader: Reader,
    begun: Arc<AtomicUsize>,
    _dir: TempDir,
}

impl WatchedReaders {
    fn new(stuck: Option<Sender<ThreadId>>) -> WatchedReaders {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(Arc::new(RealDisk), &[dir.path().to_owned()]).unwrap();
        let values = Int64Array::from_iter_values((0..100_000).map(|n| n * n * n));
        let batch = RecordBatch::try_from_iter([("n", Arc::new(values) as _)]).unwrap();
        let options = LoadOptions {
            page_size: PageSize::new(UNIT).unwrap(),
            ..LoadOptions::default()
        };
        let load = tables.load("numbers", &batch.schema(), &options, Mode::Create);
        let mut load = load.unwrap();
        load.push(&batch).unwrap();
        load.commit().unwrap();
        let way = ReadMethod::ThreadPool { threads: 1 };
        let options = LocalOptions {
            way: Some(way),
            ahead_bytes: AHEAD * UNIT,
            ..LocalOptions::default()
        };
        let begun = Arc::new(AtomicUsize::new(0));
        let watched = Watched {
            reads: way.reads(options.depth).unwrap(),
            submitted: 0,
            begun: Arc::clone(&begun),
            stuck,
        };
        let reader = Reader {
            reads: Box::new(watched),
            done: Vec::new(),
            memory: HashMap::new(),
            has_failed: false,
        };
        WatchedReaders {
            readers: Arc::new(Readers::new(tables, options)),
            reader,
            begun,
            _dir: dir,
        }
    }
}

#[test]
fn others_are_read_while_pages_are_taken_that_have_come_at_once() {
    let room = WatchedReaders::new(None);
    room.readers.idle.lock().push(room.reader);
    let table = room.readers.tables.table("numbers").unwrap();
    let segment = &table.segments[0];
    let address = |page| PageAddress {
        segment: segment.id,
        page: PageNo(page),
    };
    let addresses: Vec<PageAddress> = (0..segment.pages).map(address).collect();
    let all = addresses.len();
    assert!(all > 2 * AHEAD, "{all} pages");
    let pages = Stream::new(&room.readers, &table, addresses);
    for (taken, page) in pages.enumerate() {
        page.unwrap();
        let begun = room.begun.load(Ordering::Relaxed);
        let least = (taken + AHEAD + 1 - LOOK).min(all);
        assert!(begun >= least, "{begun} of {least} when {taken} were taken");
    }
}

#[test]
fn stuck_reads_hold_up_no_other_thread() {
    let (stuck, ended) = channel();
    let room = WatchedReaders::new(Some(stuck));
    room.readers.give_back(room.reader, std::iter::empty());
    assert!(room.readers.idle.lock().is_empty(), "it is not used again");
    let thread = ended.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_ne!(thread, std::thread::current().id());
}
