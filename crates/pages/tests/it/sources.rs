//! The guarantees of every [`Source`], for all pages and transports: the requested pages come, in order,
//! as they were written; after an error nothing comes; and a caller that leaves, or keeps pages, blocks
//! no other.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use disk::RealDisk;
use disk::reads::{PageCache, ReadMethod};
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use kumiki_pages::node::{Limits, LocalTables, NoWorker, Node, NodeOptions, ShownFiles};
use kumiki_pages::remote::{RemoteNode, RemoteNodeOptions, SessionOptions};
use kumiki_pages::{
    Cache, Groups, LoadOptions, Local, LocalOptions, Memory, Mode, Page, PageAddress, PageError,
    PageNo, PageSize, SegmentId, Shape, Source, Table, Tables,
};
use tempfile::TempDir;

const ROWS: i64 = 12_000;
const UNIT: usize = 4096;
/// Pages that all readers together may have, where memory shall run short.
const SLOTS: usize = 24;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]))
}

fn batch(from: i64) -> RecordBatch {
    let numbers: Int64Array = (from..from + ROWS).collect();
    let texts: Vec<String> = (from..from + ROWS).map(|n| format!("row {n}")).collect();
    let columns: Vec<arrow_array::ArrayRef> =
        vec![Arc::new(numbers), Arc::new(StringArray::from(texts))];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// A source, and its expected pages.
struct Case {
    name: String,
    source: Arc<dyn Source>,
    table: Arc<Table>,
    all: Vec<(PageAddress, Bytes)>,
}

/// Pages of a list, as places among all pages.
type List = Vec<usize>;

impl Case {
    fn read(
        &self,
        list: &[usize],
    ) -> Box<dyn Iterator<Item = Result<Arc<Page>, PageError>> + Send> {
        let addresses = list.iter().map(|&place| self.all[place].0);
        self.source.read(&self.table, addresses.collect())
    }

    fn assert_page(&self, page: &Page, place: usize) {
        let (address, bytes) = &self.all[place];
        assert_eq!(page.address(), *address, "{}", self.name);
        assert!(page.bytes() == bytes, "{}: {address} differs", self.name);
    }

    /// Reads all pages of a list, and keeps them until the end.
    fn assert_comes(&self, list: &[usize]) {
        let pages = self.read(list).collect::<Result<Vec<_>, _>>();
        let pages = pages.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        assert_eq!(pages.len(), list.len(), "{}", self.name);
        for (page, &place) in pages.iter().zip(list) {
            self.assert_page(page, place);
        }
    }

    /// Returns some pages, some of them repeatedly.
    fn list(&self, rng: &mut fastrand::Rng) -> List {
        let near = [self.all.len(), 20][rng.usize(..2)];
        let count = [1, 5, 60, 300][rng.usize(..4)];
        (0..count).map(|_| rng.usize(..near)).collect()
    }

    fn pages_come_in_the_order_in_which_they_were_asked_for(&self) {
        let mut rng = fastrand::Rng::with_seed(1);
        assert!(self.read(&[]).next().is_none());
        for _ in 0..12 {
            self.assert_comes(&self.list(&mut rng));
        }
        self.assert_comes(&(0..self.all.len()).collect::<List>());
    }

    fn a_dropped_stream_does_not_disturb_others(&self) {
        let mut rng = fastrand::Rng::with_seed(2);
        let mut left = Vec::new();
        for taken in 0..30 {
            let list = self.list(&mut rng);
            let mut pages = self.read(&list);
            let some: Vec<_> = pages.by_ref().take(taken).map(Result::unwrap).collect();
            for (page, &place) in some.iter().zip(&list) {
                self.assert_page(page, place);
            }
            // Some streams are dropped at once, some stay for a while.
            if taken % 7 == 0 {
                left.push((pages, some));
            }
        }
        self.assert_comes(&self.list(&mut rng));
        for (pages, _) in left {
            pages.for_each(|page| drop(page.unwrap()));
        }
    }

    fn pages_that_are_kept_stay_as_they_are(&self) {
        // The list has all pages several times, and far more than the memory into which they are read.
        let list: List = (0..self.all.len()).cycle().take(400).collect();
        let kept: Vec<_> = self.read(&list).map(Result::unwrap).collect();
        let again: Vec<_> = self.read(&list).map(Result::unwrap).collect();
        for ((page, other), &place) in kept.iter().zip(&again).zip(&list) {
            self.assert_page(page, place);
            self.assert_page(other, place);
        }
    }

    fn many_read_at_once(&self) {
        std::thread::scope(|scope| {
            for seed in 0..4 {
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    for _ in 0..6 {
                        self.assert_comes(&self.list(&mut rng));
                    }
                });
            }
        });
    }

    fn a_reader_goes_from_thread_to_thread(&self) {
        let mut rng = fastrand::Rng::with_seed(3);
        let list = self.list(&mut rng);
        let mut pages = self.read(&list);
        let mut count = 0;
        while let Some(page) = std::thread::scope(|scope| {
            let next = scope.spawn(|| pages.next());
            next.join().unwrap()
        }) {
            self.assert_page(&page.unwrap(), list[count]);
            count += 1;
        }
        assert_eq!(count, list.len(), "{}", self.name);
    }

    fn after_an_error_nothing_comes(&self) {
        let mut rng = fastrand::Rng::with_seed(4);
        let segment = self.table.segments[0].id;
        let (none, no_page) = (SegmentId(7), PageNo(self.table.segments[0].pages));
        for (segment, page) in [
            (segment, no_page),
            (none, PageNo(0)),
            (segment, PageNo(u32::MAX)),
        ] {
            let missing = PageAddress { segment, page };
            for good in [0, 1, 50] {
                let list: List = (0..100).map(|_| rng.usize(..self.all.len())).collect();
                let mut addresses: Vec<_> = list.iter().map(|&place| self.all[place].0).collect();
                addresses.insert(good, missing);
                let mut pages = self.source.read(&self.table, addresses);
                for &place in &list[..good] {
                    self.assert_page(&pages.next().unwrap().unwrap(), place);
                }
                let error = pages
                    .next()
                    .expect("it is told")
                    .expect_err("there is none");
                assert!(
                    matches!(error, PageError::Unreadable { address, .. } if address == missing),
                    "{}: {error}",
                    self.name
                );
                assert!(
                    pages.next().is_none() && pages.next().is_none(),
                    "{}",
                    self.name
                );
            }
        }
        self.assert_comes(&self.list(&mut rng));
    }

    fn conforms(&self) {
        self.pages_come_in_the_order_in_which_they_were_asked_for();
        self.a_dropped_stream_does_not_disturb_others();
        self.pages_that_are_kept_stay_as_they_are();
        self.many_read_at_once();
        self.a_reader_goes_from_thread_to_thread();
        self.after_an_error_nothing_comes();
    }
}

/// Returns the addresses of all pages of a table.
fn addresses(table: &Table) -> impl Iterator<Item = PageAddress> {
    table.segments.iter().flat_map(|segment| {
        (0..segment.pages).map(|page| PageAddress {
            segment: segment.id,
            page: PageNo(page),
        })
    })
}

/// Tables on a disk, of one table of two segments, each in two files.
struct Disk {
    tables: Tables,
    table: Arc<Table>,
    _dir: TempDir,
}

impl Disk {
    fn new(dir: TempDir) -> Disk {
        let dirs = ["main", "other"].map(|name| dir.path().join(name));
        let tables = Tables::open(Arc::new(RealDisk), &dirs).unwrap();
        let options = LoadOptions {
            page_size: PageSize::new(UNIT).unwrap(),
            ..LoadOptions::default()
        };
        let modes = [Mode::Create, Mode::Append].into_iter().zip([0, ROWS]);
        for (mode, from) in modes {
            let mut load = tables.load("numbers", &schema(), &options, mode).unwrap();
            load.push(&batch(from)).unwrap();
            load.commit().unwrap();
        }
        Disk {
            table: tables.table("numbers").unwrap(),
            tables,
            _dir: dir,
        }
    }

    fn on_disk() -> Disk {
        Disk::new(tempfile::tempdir().unwrap())
    }

    fn case(&self, name: String, source: impl Source + 'static) -> Case {
        let bytes = |address: PageAddress| {
            let mut bytes = vec![0; UNIT];
            let files = self.tables.segment(address.segment).unwrap();
            files.read(address.page, &mut bytes).unwrap();
            (address, Bytes::from(bytes))
        };
        Case {
            name,
            source: Arc::new(source),
            table: Arc::clone(&self.table),
            all: addresses(&self.table).map(bytes).collect(),
        }
    }

    /// Checks with little memory and little read ahead, and with the usual options, with a cache and
    /// without.
    fn local(&self, way: Option<ReadMethod>, page_cache: PageCache) {
        let usual = LocalOptions {
            way,
            page_cache,
            ..LocalOptions::default()
        };
        let little = LocalOptions {
            ahead_bytes: 10 * UNIT,
            pool_bytes: SLOTS * UNIT,
            depth: 7,
            ..usual.clone()
        };
        let cached = |options: &LocalOptions, bytes| LocalOptions {
            cache: Some(Arc::new(Cache::new(bytes))),
            ..options.clone()
        };
        let all = [
            cached(&usual, 32 << 20),
            cached(&little, 40 * UNIT as u64),
            usual,
            little,
        ];
        for options in all {
            let name = format!("{options:?}");
            let source = Local::new(self.tables.clone(), options);
            self.case(name, source).conforms();
        }
    }

    fn far(&self, transport: Transport) {
        let local_tables =
            LocalTables::new(self.tables.clone(), ShownFiles::default(), PageCache::Past);
        let secret = || Secret::new("what readers know");
        let options = NodeOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            secret: secret(),
            threads: 2,
            task_threads: 1,
            way: ReadMethod::ThreadPool { threads: 2 },
            depth: 64,
            transport,
            encryption: fabric::tcp::Encryption::Auto,
            shm: Shm::default(),
            verbs: None,
            limits: Limits::default(),
        };
        let node = Node::start(options, Arc::new(local_tables), Arc::new(NoWorker)).unwrap();
        for cache in [None, Some(Arc::new(Cache::new(40 * UNIT as u64)))] {
            let mut session = SessionOptions::new(node.address(), secret());
            session.transport = transport;
            session.window_bytes = SLOTS * UNIT;
            let mut options = RemoteNodeOptions::new(session);
            options.ahead_bytes = 10 * UNIT;
            options.cache = cache;
            let name = format!("{options:?}");
            self.case(name, RemoteNode::new(options)).conforms();
        }
        node.stop().unwrap();
    }
}

#[test]
fn pages_in_memory() {
    let memory = Memory::new();
    let groups = Groups::OneEach.resolve(&schema()).unwrap();
    let shape = Shape::new(schema(), PageSize::new(UNIT).unwrap(), groups, None).unwrap();
    let batches = [batch(0), batch(ROWS)];
    let segments = batches.iter().map(std::slice::from_ref);
    let table = memory.table("numbers", &shape, segments).unwrap();
    let all = addresses(&table).map(|address| (address, memory.bytes(address).unwrap()));
    let case = Case {
        name: "memory".to_owned(),
        all: all.collect(),
        table,
        source: Arc::new(memory),
    };
    case.conforms();
}

#[test]
fn pages_of_the_disk_in_the_way_that_suits() {
    Disk::on_disk().local(None, PageCache::Past);
}

#[test]
fn pages_of_the_disk_by_rings() {
    Disk::on_disk().local(Some(ReadMethod::IoUring), PageCache::Past);
}

#[test]
fn pages_of_the_disk_by_threads() {
    Disk::on_disk().local(Some(ReadMethod::ThreadPool { threads: 3 }), PageCache::Past);
}

#[test]
fn pages_of_the_disk_by_new_threads() {
    Disk::on_disk().local(Some(ReadMethod::ThreadPerRead), PageCache::Past);
}

#[test]
fn pages_of_the_disk_on_the_thread_that_takes_them() {
    Disk::on_disk().local(Some(ReadMethod::Inline), PageCache::Past);
}

#[test]
fn pages_of_the_disk_through_the_page_cache() {
    Disk::on_disk().local(Some(ReadMethod::IoUring), PageCache::Through);
}

#[test]
fn pages_of_files_in_memory() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = Disk::new(dir);
    let dirs: &[PathBuf] = disk.tables.dirs();
    assert_eq!(ReadMethod::suited(dirs), ReadMethod::Inline);
    disk.local(None, PageCache::Past);
}

#[test]
fn pages_of_a_node_over_tcp() {
    Disk::on_disk().far(Transport::Tcp);
}

#[test]
fn pages_of_a_node_over_shared_memory() {
    Disk::on_disk().far(Transport::Shm);
}

/// A page is not copied, and its memory is free again when its last user drops it.
#[test]
fn local_pages_lie_where_they_were_read() {
    let disk = Disk::on_disk();
    let options = LocalOptions {
        way: Some(ReadMethod::IoUring),
        ahead_bytes: UNIT,
        pool_bytes: SLOTS * UNIT,
        ..LocalOptions::default()
    };
    let case = disk.case(
        "places".to_owned(),
        Local::new(disk.tables.clone(), options),
    );
    let start = |page: &Arc<Page>| page.bytes().as_ptr() as usize;
    let mut places: Vec<usize> = Vec::new();
    for page in case.read(&(0..60).collect::<List>()) {
        places.push(start(&page.unwrap()));
    }
    let (first, last) = (places.iter().min().unwrap(), places.iter().max().unwrap());
    assert!(last - first < SLOTS * UNIT, "all of them lie in one memory");
    let kept: Vec<_> = case.read(&[0, 1]).map(Result::unwrap).collect();
    let array = kept[0].column(0).unwrap();
    let at = array.to_data().buffers()[0].as_ptr() as usize;
    assert!((start(&kept[0])..start(&kept[0]) + UNIT).contains(&at));
}

/// A process that only reads tables holds their files, too: if another process replaces one, the reader
/// loses nothing, however late it comes to a segment.
#[test]
fn what_another_process_replaces_is_read_to_its_end() {
    for page_cache in [PageCache::Past, PageCache::Through] {
        let disk = Disk::on_disk();
        let beside = Tables::open_read_only(Arc::new(RealDisk), disk.tables.dirs()).unwrap();
        let options = LocalOptions {
            page_cache,
            ahead_bytes: UNIT,
            ..LocalOptions::default()
        };
        let case = disk.case("beside".to_owned(), Local::new(beside, options));
        let list: List = (0..case.all.len()).collect();
        let mut pages = case.read(&list);
        case.assert_page(&pages.next().unwrap().unwrap(), 0);
        let options = LoadOptions::default();
        let load = disk
            .tables
            .load("numbers", &schema(), &options, Mode::Replace);
        let mut load = load.unwrap();
        load.push(&batch(0)).unwrap();
        load.commit().unwrap();
        let removed = disk.table.segments.iter().map(|segment| segment.id);
        for id in removed {
            assert!(disk.tables.segment(id).is_none(), "no table here has it");
        }
        for (page, &place) in pages.by_ref().zip(&list[1..]) {
            case.assert_page(&page.unwrap(), place);
        }
        assert!(pages.next().is_none());
        case.assert_comes(&list);
    }
}

/// A removed table is read to its end by its reader, and then is gone: nothing keeps it open.
#[test]
fn files_go_with_their_last_reader() {
    let disk = Disk::on_disk();
    let case = disk.case(
        "removed".to_owned(),
        Local::new(disk.tables.clone(), LocalOptions::default()),
    );
    let opened = disk.tables.opened("numbers").unwrap();
    let paths: Vec<PathBuf> = opened
        .files
        .iter()
        .flat_map(|f| f.paths().to_vec())
        .collect();
    let list: List = (0..case.all.len()).collect();
    let mut pages = case.read(&list);
    pages.next().unwrap().unwrap();
    disk.tables.remove("numbers").unwrap();
    case.assert_comes(&list);
    drop(opened);
    for (page, &place) in pages.zip(&list[1..60]) {
        case.assert_page(&page.unwrap(), place);
    }
    assert!(!paths.iter().any(|path| path.exists()));
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let main = paths[0].parent().unwrap();
    let left: Vec<PathBuf> = open
        .filter(|path| path.starts_with(main) && path.to_string_lossy().ends_with("(deleted)"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let error = case.read(&list).next().unwrap().expect_err("it is gone");
    assert!(error.to_string().contains("replaced or removed"), "{error}");
}
