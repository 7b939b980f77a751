//! A table on a storage node with many readers.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrow_array::{Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use disk::reads::{PageCache, ReadFile, ReadMethod};
use fabric::shm::Shm;
use kumiki_pages::node::{Extent, Limits, NoWorker, Node, NodeOptions, NodeStorage, OpenTable};
use kumiki_pages::remote::{
    ListedTable, RemoteNode, RemoteNodeOptions, SessionOptions, TableSummary,
};
use kumiki_pages::{
    Cache, Error, Groups, Memory, Page, PageAddress, PageError, PageNo, PageSize, Shape, Source,
    Table, Tally, Version,
};
use tempfile::NamedTempFile;

use crate::remote::support::{PATIENCE, Road, secret};

const ROWS: i64 = 20_000;

/// A node that has one table of two segments, each in two files.
struct Library {
    node: Option<Node>,
    address: SocketAddr,
    storage: Arc<One>,
    table: Arc<Table>,
    memory: Memory,
    files: Vec<NamedTempFile>,
}

struct One {
    opened: Arc<OpenTable>,
    /// The number of requests for a version of it.
    asked: AtomicU64,
}

impl NodeStorage for One {
    fn tables(&self) -> Result<Vec<u8>, Error> {
        let table = self.opened.table.as_ref().unwrap();
        Ok(ListedTable::encode(&[ListedTable {
            name: table.name.clone(),
            found: Ok(TableSummary::of(table)),
        }]))
    }

    fn open(&self, name: &str, version: Version) -> Result<Arc<OpenTable>, Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match (name, version) {
            ("numbers", Version(0 | 1)) => Ok(Arc::clone(&self.opened)),
            _ => {
                let text = format!("there is no version {} of {name}", version.0);
                Err(Error::Refused(text))
            }
        }
    }

    fn file(&self, _: &str, _: usize) -> Result<Arc<OpenTable>, Error> {
        Err(Error::Refused("no files are shown".to_owned()))
    }
}

fn batch(from: i64) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]);
    let numbers: Int64Array = (from..from + ROWS).collect();
    let texts: Vec<String> = (from..from + ROWS).map(|n| format!("row {n}")).collect();
    let texts = StringArray::from(texts);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

fn start(road: &Road, listen: SocketAddr, storage: &Arc<One>) -> Node {
    let options = NodeOptions {
        listen,
        secret: secret(),
        threads: 1,
        task_threads: 1,
        way: ReadMethod::ThreadPool { threads: 2 },
        depth: 64,
        transport: road.transport,
        encryption: fabric::tcp::Encryption::Auto,
        shm: Shm::default(),
        verbs: road.verbs.clone(),
        limits: Limits::default(),
    };
    Node::start(options, storage.clone(), Arc::new(NoWorker)).unwrap()
}

impl Library {
    fn new(road: &Road) -> Library {
        let memory = Memory::new();
        let first = batch(0);
        let groups = Groups::OneEach.resolve(&first.schema()).unwrap();
        let shape = Shape::new(first.schema(), PageSize::new(4096).unwrap(), groups, None).unwrap();
        let second = batch(ROWS);
        let segments = [&[first][..], &[second]];
        let table = memory.table("numbers", &shape, segments).unwrap();
        let (mut files, mut extents) = (Vec::new(), Vec::new());
        for segment in &table.segments {
            let mut stripes = [NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap()];
            for page in 0..segment.pages {
                let address = PageAddress {
                    segment: segment.id,
                    page: PageNo(page),
                };
                let bytes = memory.bytes(address).unwrap();
                stripes[page as usize % 2].write_all(&bytes).unwrap();
            }
            let open = |file: &NamedTempFile| {
                Arc::new(ReadFile::open(file.path(), PageCache::Past).unwrap())
            };
            extents.push(Extent {
                files: stripes.iter().map(open).collect(),
                pages: segment.pages.into(),
                memory: None,
            });
            files.extend(stripes);
        }
        let opened = OpenTable {
            table: Some(Arc::clone(&table)),
            description: Bytes::from(table.encode()),
            unit: 4096,
            extents,
            kept: None,
        };
        let storage = Arc::new(One {
            opened: Arc::new(opened),
            asked: AtomicU64::new(0),
        });
        let node = start(road, "127.0.0.1:0".parse().unwrap(), &storage);
        Library {
            address: node.address(),
            node: Some(node),
            storage,
            table,
            memory,
            files,
        }
    }

    fn far(&self, road: &Road, cache: Option<Arc<Cache>>) -> RemoteNode {
        let mut session = SessionOptions::new(self.address, secret());
        session.patience = PATIENCE;
        road.set(&mut session);
        let mut options = RemoteNodeOptions::new(session);
        options.cache = cache;
        options.ahead_bytes = 40 * 4096;
        match road.sharing {
            None => RemoteNode::new(options),
            Some((connections, threads)) => {
                RemoteNode::sharing(options, connections, threads).unwrap()
            }
        }
    }

    /// Stops the node.
    fn leave(&mut self) {
        self.node.take().unwrap().stop().unwrap();
    }

    /// Starts the node again.
    fn come_back(&mut self, road: &Road) {
        self.node = Some(start(road, self.address, &self.storage));
    }

    /// Returns the number of pages that the node has read.
    fn pages_read(&self) -> u64 {
        let figures = self.node.as_ref().unwrap().figures();
        figures.pages.load(Ordering::Relaxed)
    }

    /// Waits until the node has read so many pages.
    fn until_pages_read(&self, count: usize) {
        let what = format!("the node has read {count} pages");
        testkit::eventually(&what, || self.pages_read() >= count as u64);
    }

    /// Returns the addresses of all pages, in random order.
    fn addresses(&self, seed: u64) -> Vec<PageAddress> {
        let mut all: Vec<PageAddress> = Vec::new();
        for segment in &self.table.segments {
            all.extend((0..segment.pages).map(|page| PageAddress {
                segment: segment.id,
                page: PageNo(page),
            }));
        }
        fastrand::Rng::with_seed(seed).shuffle(&mut all);
        all
    }

    fn check(
        &self,
        pages: impl Iterator<Item = Result<Arc<Page>, PageError>>,
        asked: &[PageAddress],
    ) {
        let mut count = 0;
        for (page, address) in pages.zip(asked) {
            let page = page.unwrap();
            assert_eq!(page.address(), *address);
            assert_eq!(page.bytes(), self.memory.bytes(*address).unwrap());
            count += 1;
        }
        assert_eq!(count, asked.len());
    }
}

pub(crate) fn a_table_s_pages_come_in_the_order_in_which_they_were_asked_for(road: &Road) {
    let library = Library::new(road);
    let far = library.far(road, None);
    let listed = far.tables().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].found.as_ref().unwrap().rows, 2 * ROWS as u64);
    let table = far.open("numbers").unwrap();
    assert_eq!(table.id, library.table.id);
    assert_eq!(table.segments.len(), 2);
    assert_eq!(table.segments[1].groups, library.table.segments[1].groups);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (far, table, library) = (&far, &table, &library);
            scope.spawn(move || {
                let asked = library.addresses(seed);
                library.check(far.read(table, asked.clone()), &asked);
                // A reader that takes some pages and leaves blocks no reader, itself included.
                let some: Vec<_> = far.read(table, asked.clone()).take(3).collect();
                library.check(some.into_iter(), &asked[..3]);
                library.check(far.read(table, asked[7..].to_vec()), &asked[7..]);
            });
        }
    });
    let (all, page) = (
        library.addresses(9),
        &library.table.segments[0].groups[0][0],
    );
    let first = PageAddress {
        segment: library.table.segments[0].id,
        page: page.page,
    };
    assert!(all.contains(&first));
    let page = far.read(&table, vec![first]).next().unwrap().unwrap();
    let numbers = page.column(0).unwrap();
    let numbers: &Int64Array = numbers.as_any().downcast_ref().unwrap();
    assert_eq!(numbers.values()[..3], [0, 1, 2]);
}

pub(crate) fn what_a_cache_has_is_not_read_again(road: &Road) {
    let library = Library::new(road);
    let cache = Arc::new(Cache::new(64 << 20));
    let far = library.far(road, Some(Arc::clone(&cache)));
    let table = far.open("numbers").unwrap();
    let asked = library.addresses(1);
    let pages = asked.len() as u64;
    for round in 0..3 {
        let tally = Arc::new(Tally::default());
        let tallied = far.tallied(&tally);
        library.check(tallied.read(&table, asked.clone()), &asked);
        let expected = if round == 0 { (pages, 0) } else { (0, pages) };
        assert_eq!((tally.read(), tally.cached()), expected, "round {round}");
        let figures = cache.figures();
        assert_eq!(figures.misses, asked.len() as u64, "round {round}");
        assert_eq!(figures.hits, round * asked.len() as u64);
        assert_eq!(figures.pages, asked.len() as u64);
    }
    assert_eq!(library.pages_read(), asked.len() as u64);
}

/// While a reader works on pages of the cache, the node reads others.
pub(crate) fn the_node_reads_while_pages_of_the_cache_are_taken(road: &Road) {
    let library = Library::new(road);
    let far = library.far(road, Some(Arc::new(Cache::new(64 << 20))));
    let table = far.open("numbers").unwrap();
    let asked = library.addresses(1);
    let known = &asked[..20];
    library.check(far.read(&table, known.to_vec()), known);
    library.until_pages_read(known.len());
    let mut pages = far.read(&table, asked.clone());
    // The reader takes half of the pages of the cache, and waits for no others.
    library.check(pages.by_ref().take(10), &known[..10]);
    library.until_pages_read(known.len() + 1);
    library.check(pages, &asked[10..]);
}

/// A failed request is reported in its turn: pages of the cache come before it, and nothing is requested
/// meanwhile, although the node would answer again.
pub(crate) fn a_node_that_is_away_for_a_moment_is_told_of_in_its_turn(road: &Road) {
    let mut library = Library::new(road);
    let cache = Arc::new(Cache::new(64 << 20));
    let far = library.far(road, Some(Arc::clone(&cache)));
    let table = far.open("numbers").unwrap();
    let asked = library.addresses(1);
    let (known, others) = asked.split_at(30);
    library.check(far.read(&table, known.to_vec()), known);
    drop(far);
    // A reader that has no session yet.
    let far = library.far(road, Some(cache));
    library.leave();
    let mut pages = far.read(&table, asked.clone());
    library.check(pages.by_ref().take(10), &known[..10]);
    library.come_back(road);
    library.check(pages.by_ref().take(20), &known[10..]);
    let begun = Instant::now();
    let error = pages.next().unwrap().expect_err("it was away");
    assert!(
        matches!(error, PageError::Lost { address, .. } if address == others[0]),
        "{error}"
    );
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert!(pages.next().is_none());
    library.check(far.read(&table, asked.clone()), &asked);
}

pub(crate) fn a_torn_page_is_not_believed(road: &Road) {
    let library = Library::new(road);
    // The first stripe has the even pages.
    library.files[0]
        .as_file()
        .write_all_at(&[0xff; 8], 4096 + 2000)
        .unwrap();
    let far = library.far(road, None);
    let table = far.open("numbers").unwrap();
    let segment = library.table.segments[0].id;
    let pages = (0..6).map(|page| PageAddress {
        segment,
        page: PageNo(page),
    });
    let come: Vec<_> = far.read(&table, pages.collect()).collect();
    assert_eq!(come.len(), 3, "nothing follows what is corrupt");
    let error = come[2].as_ref().expect_err("it is torn");
    assert!(matches!(error, PageError::Corrupt { address, .. } if address.page == PageNo(2)));
}

pub(crate) fn a_node_that_dies_loses_its_pages(road: &Road) {
    let mut library = Library::new(road);
    let far = library.far(road, None);
    let table = far.open("numbers").unwrap();
    let asked: Vec<PageAddress> = library.addresses(1).repeat(100);
    let mut pages = far.read(&table, asked);
    pages.next().unwrap().unwrap();
    library.leave();
    let error = pages.find_map(Result::err).expect("it is gone");
    assert!(matches!(error, PageError::Lost { .. }), "{error}");
    assert!(pages.next().is_none());
    // And so do reads that were not begun.
    let asked = library.addresses(1);
    let error = far.read(&table, asked).next().unwrap();
    assert!(matches!(error, Err(PageError::Lost { .. })));
}

pub(crate) fn a_version_that_is_gone_is_told(road: &Road) {
    let library = Library::new(road);
    let far = library.far(road, Some(Arc::new(Cache::new(64 << 20))));
    let asked = library.addresses(1);
    let known = &asked[..30];
    library.check(far.read(&library.table, known.to_vec()), known);
    let before = library.storage.asked.load(Ordering::Relaxed);
    let mut table = Table::clone(&library.table);
    table.version = Version(7);
    let mut pages = far.read(&Arc::new(table), asked.clone());
    library.check(pages.by_ref().take(30), known);
    let error = pages.next().unwrap();
    let error = error.expect_err("there is no such version");
    assert!(error.to_string().contains("no version 7"), "{error}");
    let asked_for = library.storage.asked.load(Ordering::Relaxed) - before;
    assert_eq!(asked_for, 1, "the first answer holds");
}
