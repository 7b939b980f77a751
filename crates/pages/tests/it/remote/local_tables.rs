//! A node's own tables: loaded, replaced and removed by readers while others read.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use disk::RealDisk;
use disk::reads::{PageCache, ReadMethod};
use fabric::shm::Shm;
use kumiki_pages::node::{
    Limits, LocalTables, NoWorker, Node, NodeOptions, NodeStorage, ShownFiles,
};
use kumiki_pages::remote::{RemoteLoad, RemoteNode, RemoteNodeOptions, Session, SessionOptions};
use kumiki_pages::{
    Error, Groups, Layout, LoadOptions, Mode, PageAddress, PageSize, Source, Table,
    TableStore as _, Tables, widen,
};
use tempfile::TempDir;

use crate::remote::support::{PATIENCE, Road, secret};

/// A node, and the directory of its tables.
pub(crate) struct LoadedNode {
    node: Option<Node>,
    road: Road,
    dir: TempDir,
}

impl LoadedNode {
    pub(crate) fn new(road: &Road) -> LoadedNode {
        let mut node = LoadedNode::empty(road);
        node.start();
        node
    }

    /// Returns a node that gives away the tables of another storage.
    pub(crate) fn with(road: &Road, storage: Arc<dyn NodeStorage>) -> LoadedNode {
        let mut node = LoadedNode::empty(road);
        node.serve(storage);
        node
    }

    fn empty(road: &Road) -> LoadedNode {
        LoadedNode {
            node: None,
            road: road.clone(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn dirs(&self) -> Vec<PathBuf> {
        ["main", "other"]
            .map(|name| self.dir.path().join(name))
            .to_vec()
    }

    pub(crate) fn start(&mut self) {
        let tables = Tables::open(Arc::new(RealDisk), &self.dirs()).unwrap();
        let local_tables = LocalTables::new(tables, ShownFiles::default(), PageCache::Past);
        self.serve(Arc::new(local_tables));
    }

    fn serve(&mut self, storage: Arc<dyn NodeStorage>) {
        let options = NodeOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            secret: secret(),
            threads: 1,
            task_threads: 1,
            way: ReadMethod::IoUring,
            depth: 64,
            transport: self.road.transport,
            encryption: fabric::tcp::Encryption::Auto,
            shm: Shm::default(),
            verbs: self.road.verbs.clone(),
            limits: Limits::default(),
        };
        let node = Node::start(options, storage, Arc::new(NoWorker)).unwrap();
        self.node = Some(node);
    }

    pub(crate) fn stop(&mut self) {
        self.node.take().unwrap().stop().unwrap();
    }

    fn options(&self) -> SessionOptions {
        let address = self.node.as_ref().unwrap().address();
        let mut options = SessionOptions::new(address, secret());
        options.patience = PATIENCE;
        self.road.set(&mut options);
        options
    }

    pub(crate) fn far(&self) -> RemoteNode {
        RemoteNode::new(RemoteNodeOptions::new(self.options()))
    }

    fn begin(&self, mode: Mode) -> Result<RemoteLoad, Error> {
        let session = Session::connect(self.options()).unwrap();
        let options = LoadOptions {
            page_size: PageSize::new(8192).unwrap(),
            ..LoadOptions::default()
        };
        RemoteLoad::begin(session, "numbers", &schema(), &options, mode)
    }

    /// Loads these numbers.
    fn load(&self, mode: Mode, from: i64, to: i64) -> Arc<Table> {
        let mut load = self.begin(mode).unwrap();
        for at in (from..to).step_by(10_000) {
            load.push(&batch(at, to.min(at + 10_000))).unwrap();
        }
        assert_eq!(load.rows(), (to - from) as u64);
        load.commit().unwrap()
    }

    /// Truncates the files of pages; the node, started again, finds that.
    pub(crate) fn damage(&mut self) {
        self.stop();
        for dir in self.dirs() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|end| end == "0") {
                    std::fs::write(path, "cut").unwrap();
                }
            }
        }
        self.start();
    }

    /// Returns the number of files.
    pub(crate) fn files(&self) -> usize {
        let count = |dir: PathBuf| std::fs::read_dir(dir).unwrap().count();
        self.dirs().into_iter().map(count).sum()
    }
}

pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

pub(crate) fn batch(from: i64, to: i64) -> RecordBatch {
    let numbers: Int64Array = (from..to).collect();
    RecordBatch::try_new(schema(), vec![Arc::new(numbers)]).unwrap()
}

/// Returns all of a table's numbers.
pub(crate) fn numbers(far: &RemoteNode, table: &Arc<Table>) -> Result<Vec<i64>, String> {
    let mut pages = Vec::new();
    for segment in &table.segments {
        pages.extend(segment.groups[0].iter().map(|entry| PageAddress {
            segment: segment.id,
            page: entry.page,
        }));
    }
    let mut all = Vec::new();
    for page in far.read(table, pages) {
        let page = page.map_err(|error| error.to_string())?;
        let column = widen(&page.column(0).unwrap(), &DataType::Int64);
        let column: &Int64Array = column.as_any().downcast_ref().unwrap();
        all.extend(column.values());
    }
    Ok(all)
}

pub(crate) fn what_was_loaded_is_read_and_stays(road: &Road) {
    let mut node = LoadedNode::new(road);
    let table = node.load(Mode::Create, 0, 100_000);
    assert_eq!((table.rows(), table.version.0), (100_000, 1));
    let table = node.load(Mode::Append, 100_000, 150_000);
    assert_eq!((table.rows(), table.version.0), (150_000, 2));
    let all: Vec<i64> = (0..150_000).collect();
    assert_eq!(numbers(&node.far(), &table).unwrap(), all);
    node.stop();
    node.start();
    let far = node.far();
    let table = far.open("numbers").unwrap();
    assert_eq!(numbers(&far, &table).unwrap(), all);
}

/// The groups of columns do not matter: records have all columns.
pub(crate) fn rows_are_loaded_in_the_layout_of_rows(road: &Road) {
    let node = LoadedNode::new(road);
    let options = LoadOptions {
        layout: Layout::Rows,
        groups: Groups::OneEach,
        text_widths: HashMap::from([("text".to_owned(), 9)]),
        ..LoadOptions::default()
    };
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]));
    let numbers: Int64Array = (0..5000).collect();
    let texts: StringArray = (0..5000).map(|n| Some(format!("text {n}"))).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(texts)];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let session = Session::connect(node.options()).unwrap();
    let load = RemoteLoad::begin(session, "records", &schema, &options, Mode::Create);
    let mut load = load.unwrap();
    load.push(&batch).unwrap();
    let table = load.commit().unwrap();
    assert_eq!((table.rows(), table.layout), (5000, Layout::Rows));
    assert_eq!(table.groups, [[0, 1]]);
    let all: Vec<i64> = (0..5000).collect();
    assert_eq!(self::numbers(&node.far(), &table).unwrap(), all);
}

pub(crate) fn a_load_that_is_broken_off_leaves_nothing(road: &Road) {
    let mut node = LoadedNode::new(road);
    let empty = node.files();
    let mut load = node.begin(Mode::Create).unwrap();
    load.push(&batch(0, 100_000)).unwrap();
    drop(load);
    let error = node
        .far()
        .open("numbers")
        .expect_err("nothing was committed");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    // The node's end interrupts another load.
    let mut load = node.begin(Mode::Create).unwrap();
    load.push(&batch(0, 100_000)).unwrap();
    node.stop();
    let error = load.commit().expect_err("the node is gone");
    // If the loader hears of the end before it has sent the commit, it knows that it was not made.
    let lost = matches!(error, Error::Lost(_) | Error::Doubtful(_));
    assert!(lost, "{error}");
    node.start();
    assert_eq!(node.files(), empty);
    node.load(Mode::Create, 0, 10);
}

pub(crate) fn a_reader_goes_on_with_the_version_that_it_began_with(road: &Road) {
    let node = LoadedNode::new(road);
    let far = node.far();
    node.load(Mode::Create, 0, 50_000);
    let before = far.open("numbers").unwrap();
    node.load(Mode::Replace, 7, 9);
    let after = far.open("numbers").unwrap();
    assert_eq!(numbers(&far, &after).unwrap(), [7, 8]);
    // This holds for links, too, on which the version was not open.
    for far in [far, node.far()] {
        assert_eq!(numbers(&far, &before).unwrap().len(), 50_000);
    }
    let mut session = Session::connect(node.options()).unwrap();
    session.remove("numbers").unwrap();
    assert!(node.far().open("numbers").is_err());
    assert_eq!(session.tables().unwrap(), []);
    let error = session.remove("numbers").expect_err("it is gone");
    assert!(error.to_string().contains("numbers"), "{error}");
}

pub(crate) fn a_load_that_cannot_be_is_refused_with_its_reason(road: &Road) {
    let node = LoadedNode::new(road);
    let error = node.begin(Mode::Append).expect_err("there is none");
    assert!(error.to_string().contains("numbers"), "{error}");
    node.load(Mode::Create, 0, 10);
    let error = node.begin(Mode::Create).expect_err("there is one");
    assert!(error.to_string().contains("numbers"), "{error}");
    let session = Session::connect(node.options()).unwrap();
    let options = LoadOptions::default();
    let error = RemoteLoad::begin(session, "../etc", &schema(), &options, Mode::Create);
    assert!(error.is_err(), "a name that is none");
    // Two loads begin, and one commits first.
    let one = node.begin(Mode::Replace).unwrap();
    let mut two = node.begin(Mode::Replace).unwrap();
    two.push(&batch(3, 5)).unwrap();
    assert_eq!(two.commit().unwrap().rows(), 2);
    assert_eq!(one.commit().unwrap().rows(), 0);
}

/// Readers that list or open the table get its damage; and it can be replaced, or removed.
pub(crate) fn a_table_that_is_damaged_says_so(road: &Road) {
    let mut node = LoadedNode::new(road);
    node.load(Mode::Create, 0, 50_000);
    node.damage();
    let far = node.far();
    let listed = far.tables().unwrap();
    assert_eq!((listed.len(), &*listed[0].name), (1, "numbers"));
    let damage = &listed[0].found.as_ref().unwrap_err().0;
    assert!(damage.contains("has 3 bytes"), "{damage}");
    assert_eq!(far.list().unwrap().len(), 0);
    assert_eq!(
        far.damaged().unwrap(),
        [("numbers".to_owned(), damage.clone())]
    );
    let asked = [
        far.open("numbers").unwrap_err().to_string(),
        far.table("numbers").unwrap_err().to_string(),
        node.begin(Mode::Append).unwrap_err().to_string(),
    ];
    for error in asked {
        assert!(error.contains(damage), "{error}");
    }
    let error = node.begin(Mode::Create).unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    let table = node.load(Mode::Replace, 0, 10);
    assert_eq!(numbers(&far, &table).unwrap().len(), 10);
    assert_eq!(far.damaged().unwrap(), []);
    node.damage();
    let far = node.far();
    far.remove("numbers").unwrap();
    assert_eq!(far.tables().unwrap(), []);
}
