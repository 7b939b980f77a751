//! The guarantees of every depot, over directories, a storage node and several nodes; and the guarantees
//! of several nodes together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use disk::RealDisk;
use disk::reads::PageCache;
use kumiki_pages::node::{LocalTables, NodeLoad, NodeStorage, OpenTable, ShownFiles};
use kumiki_pages::remote::{RemoteLoad, RemoteNode, Replicas, Session};
use kumiki_pages::{
    Error, Identity, LoadOptions, Mode, PageAddress, PageSize, PartialChange, SegmentId, Sink,
    Source, Table, TableId, TableStore, Tables, Version,
};
use tempfile::TempDir;

use crate::remote::local_tables::{self, batch, numbers, schema};
use crate::remote::support::Road;

fn options() -> LoadOptions {
    LoadOptions {
        page_size: PageSize::new(8192).unwrap(),
        ..LoadOptions::default()
    }
}

fn begin(table_store: &dyn TableStore, mode: Mode) -> Result<Box<dyn Sink>, Error> {
    table_store.load("numbers", &schema(), &options(), mode)
}

fn load(table_store: &dyn TableStore, mode: Mode, from: i64, to: i64) -> Result<Arc<Table>, Error> {
    let mut sink = begin(table_store, mode)?;
    for at in (from..to).step_by(10_000) {
        sink.push(&batch(at, to.min(at + 10_000)))?;
    }
    assert_eq!(sink.rows(), (to - from) as u64);
    sink.commit()
}

/// Returns rows and version of the table.
fn found(table_store: &dyn TableStore) -> Option<(u64, u64)> {
    let table = table_store.table("numbers").unwrap();
    table.map(|table| (table.rows(), table.version.0))
}

/// Checks the guarantees of every depot.
fn conforms(table_store: &dyn TableStore) {
    assert!(table_store.list().unwrap().is_empty());
    assert_eq!(found(table_store), None);
    assert!(
        load(table_store, Mode::Append, 0, 1).is_err(),
        "there is none"
    );
    let table = load(table_store, Mode::Create, 0, 50_000).unwrap();
    assert_eq!((table.rows(), table.version.0), (50_000, 1));
    assert!(
        load(table_store, Mode::Create, 0, 1).is_err(),
        "there is one"
    );
    load(table_store, Mode::Append, 50_000, 60_000).unwrap();
    assert_eq!(found(table_store), Some((60_000, 2)));
    // A load that is dropped leaves nothing.
    let mut sink = begin(table_store, Mode::Replace).unwrap();
    sink.push(&batch(0, 7)).unwrap();
    drop(sink);
    assert_eq!(found(table_store), Some((60_000, 2)));
    load(table_store, Mode::Replace, 0, 7).unwrap();
    assert_eq!(found(table_store), Some((7, 3)));
    // A load may have no rows.
    load(table_store, Mode::Replace, 0, 0).unwrap();
    assert_eq!(found(table_store), Some((0, 4)));
    let wrong = table_store.load("../etc", &schema(), &options(), Mode::Create);
    assert!(wrong.is_err(), "a name that is none");
    let names: Vec<_> = table_store
        .list()
        .unwrap()
        .iter()
        .map(|t| t.name.clone())
        .collect();
    assert_eq!(names, ["numbers"]);
    table_store.remove("numbers").unwrap();
    assert_eq!(found(table_store), None);
    let error = table_store.remove("numbers").unwrap_err().to_string();
    assert!(error.contains("numbers"), "{error}");
}

pub(crate) fn every_depot_keeps_what_depots_keep(road: &Road) {
    let dir = tempfile::tempdir().unwrap();
    let dirs = ["a", "b"].map(|name| dir.path().join(name));
    conforms(&Tables::open(Arc::new(RealDisk), &dirs).unwrap());
    let (one, two, three) = (
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
    );
    conforms(&one.far());
    conforms(&Replicas::new(vec![one.far(), two.far(), three.far()]));
}

/// Returns all of a table's pages, as they lie on a node.
fn pages(far: &RemoteNode, table: &Arc<Table>) -> Vec<Bytes> {
    let segments = table.segments.iter();
    let all = segments.flat_map(|segment| {
        let entries = segment.groups.iter().flatten();
        entries.map(|entry| PageAddress {
            segment: segment.id,
            page: entry.page,
        })
    });
    let read = far.read(table, all.collect());
    read.map(|page| Bytes::copy_from_slice(page.unwrap().bytes()))
        .collect()
}

pub(crate) fn replicas_are_equal_bit_by_bit(road: &Road) {
    let (one, two) = (
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
    );
    let both = Replicas::new(vec![one.far(), two.far()]);
    load(&both, Mode::Create, 0, 100_000).unwrap();
    load(&both, Mode::Append, 100_000, 150_000).unwrap();
    let [a, b] = [&one, &two].map(|node| node.far().open("numbers").unwrap());
    assert_eq!(a.encode(), b.encode());
    assert_eq!((a.segments.len(), a.version), (2, Version(2)));
    assert_eq!(pages(&one.far(), &a), pages(&two.far(), &b));
    // Readers of one node continue with the other one.
    assert_eq!(numbers(&two.far(), &a).unwrap().len(), 150_000);
}

pub(crate) fn nodes_that_differ_are_made_equal_by_replacing(road: &Road) {
    let (one, two) = (
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
    );
    let both = Replicas::new(vec![one.far(), two.far()]);
    load(&one.far(), Mode::Create, 0, 10).unwrap();
    load(&one.far(), Mode::Append, 10, 20).unwrap();
    let error = load(&both, Mode::Create, 0, 1).unwrap_err();
    assert!(matches!(error, Error::Exists(_)));
    let error = load(&both, Mode::Append, 0, 1).unwrap_err().to_string();
    for node in [&one, &two] {
        let address = node.far().options().session.address.to_string();
        assert!(error.contains(&address), "{error}");
    }
    assert!(error.contains("version 2 of 20 rows"), "{error}");
    let table = load(&both, Mode::Replace, 0, 5).unwrap();
    // The version continues that of the existing table.
    assert_eq!((table.rows(), table.version.0), (5, 3));
    // Two unrelated tables become one.
    load(&one.far(), Mode::Replace, 0, 1).unwrap();
    two.far().remove("numbers").unwrap();
    load(&two.far(), Mode::Create, 0, 2).unwrap();
    load(&both, Mode::Replace, 0, 5).unwrap();
    load(&both, Mode::Append, 5, 9).unwrap();
    assert_eq!(found(&both), Some((9, 6)));
    // The node that has the table removes it, and the other one is no obstacle.
    one.far().remove("numbers").unwrap();
    both.remove("numbers").unwrap();
    assert_eq!((found(&one.far()), found(&two.far())), (None, None));
}

pub(crate) fn of_two_loads_at_once_one_is_on_all_nodes_and_one_on_none(road: &Road) {
    let (one, two) = (
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
    );
    let both = Replicas::new(vec![one.far(), two.far()]);
    for mode in [Mode::Create, Mode::Replace, Mode::Append] {
        let mut first = begin(&both, mode).unwrap();
        let mut second = begin(&both, mode).unwrap();
        first.push(&batch(0, 30_000)).unwrap();
        second.push(&batch(0, 7)).unwrap();
        second.commit().unwrap();
        let before = found(&both);
        let error = first.commit().unwrap_err();
        assert!(matches!(error, Error::Replica { .. }), "{error}");
        assert_eq!(found(&both), before);
    }
}

pub(crate) fn a_node_that_is_lost_leaves_the_others_as_they_were(road: &Road) {
    let (mut one, mut two) = (
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
    );
    let both = Replicas::new(vec![one.far(), two.far()]);
    let empty = one.files();
    let mut sink = begin(&both, Mode::Create).unwrap();
    sink.push(&batch(0, 100_000)).unwrap();
    let lost = two.far().options().session.address.to_string();
    two.stop();
    let error = sink.commit().unwrap_err();
    assert!(
        matches!(&error, Error::Replica { node, .. } if *node == lost),
        "{error}"
    );
    assert_eq!(found(&one.far()), None);
    let error = begin(&both, Mode::Create).map(drop).unwrap_err();
    assert!(
        matches!(&error, Error::Replica { node, .. } if *node == lost),
        "{error}"
    );
    one.stop();
    one.start();
    assert_eq!(one.files(), empty);
}

pub(crate) fn a_table_that_is_damaged_on_one_node_is_replaced_on_all(road: &Road) {
    let (one, mut two) = (
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
    );
    let both = Replicas::new(vec![one.far(), two.far()]);
    load(&both, Mode::Create, 0, 50_000).unwrap();
    two.damage();
    let both = Replicas::new(vec![one.far(), two.far()]);
    let address = two.far().options().session.address.to_string();
    let damaged = both.damaged().unwrap();
    assert_eq!((damaged.len(), &*damaged[0].0), (1, "numbers"));
    assert!(damaged[0].1.contains(&address), "{damaged:?}");
    for mode in [Mode::Create, Mode::Append] {
        let error = load(&both, mode, 0, 1).unwrap_err().to_string();
        assert!(
            error.contains(&address) && error.contains("damaged"),
            "{error}"
        );
    }
    load(&both, Mode::Replace, 0, 7).unwrap();
    assert_eq!(
        (found(&both), both.damaged().unwrap().len()),
        (Some((7, 2)), 0)
    );
}

pub(crate) fn the_newest_version_of_any_node_is_listed(road: &Road) {
    let nodes = [
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
    ];
    let both = Replicas::new(nodes.iter().map(local_tables::LoadedNode::far).collect());
    // The result does not depend on the order of the nodes.
    for (newer, older) in [(0, 1), (1, 0)] {
        load(&nodes[older].far(), Mode::Create, 0, 10).unwrap();
        load(&nodes[newer].far(), Mode::Create, 0, 10).unwrap();
        load(&nodes[newer].far(), Mode::Append, 10, 20).unwrap();
        let listed = both.list().unwrap();
        let versions: Vec<u64> = listed.iter().map(|table| table.version.0).collect();
        assert_eq!(versions, [2]);
        both.remove("numbers").unwrap();
    }
}

pub(crate) fn numbers_of_versions_that_make_no_sense_are_refused(road: &Road) {
    let node = local_tables::LoadedNode::new(road);
    let far = node.far();
    let begin_as = |mode, version| {
        let session = Session::connect(far.options().session.clone()).unwrap();
        let identity = Identity {
            table: TableId::new(),
            version: Version(version),
            segment: SegmentId::new(),
        };
        RemoteLoad::begin_as(
            session,
            "numbers",
            &schema(),
            &options(),
            mode,
            Some(identity),
        )
    };
    for version in [0, u64::MAX] {
        for mode in [Mode::Create, Mode::Replace] {
            let error = begin_as(mode, version).unwrap_err();
            assert!(matches!(error, Error::Refused(_)), "{error}");
        }
    }
    begin_as(Mode::Create, u64::MAX - 1)
        .unwrap()
        .commit()
        .unwrap();
    // The last version that is possible.
    load(&far, Mode::Replace, 0, 10).unwrap();
    let all = Replicas::new(vec![far.clone()]);
    for mode in [Mode::Replace, Mode::Append] {
        for table_store in [&far as &dyn TableStore, &all] {
            let error = load(table_store, mode, 0, 10).unwrap_err().to_string();
            assert!(error.contains("no number is left"), "{error}");
        }
    }
    // The node works as before.
    assert_eq!(found(&far), Some((10, u64::MAX)));
    far.remove("numbers").unwrap();
    load(&all, Mode::Create, 0, 10).unwrap();
    assert_eq!(found(&far), Some((10, 1)));
}

/// What happens to a change that is requested from a node.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    /// It is not made, and the node says so.
    Refused,
    /// It is made, and the node does not know it.
    Doubtful,
    /// It is made, and the node is silent for long.
    Silent,
}

/// How long readers here wait for a silent node.
const SHORT: Duration = Duration::from_millis(1500);

impl Change {
    fn make<T>(self, make: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let text = "the disk has just broken".to_owned();
        if self == Change::Refused {
            return Err(Error::Refused(text));
        }
        let made = make()?;
        if self == Change::Doubtful {
            return Err(Error::Doubtful(text));
        }
        std::thread::sleep(3 * SHORT);
        Ok(made)
    }
}

/// A stock whose loads prepare, and do not commit as they should.
struct Reluctant(LocalTables, Change);

struct Load(Box<dyn NodeLoad>, Change);

impl NodeStorage for Reluctant {
    fn tables(&self) -> Result<Vec<u8>, Error> {
        NodeStorage::tables(&self.0)
    }

    fn open(&self, name: &str, version: Version) -> Result<Arc<OpenTable>, Error> {
        self.0.open(name, version)
    }

    fn file(&self, name: &str, unit: usize) -> Result<Arc<OpenTable>, Error> {
        self.0.file(name, unit)
    }

    fn load(&self, definition: &[u8]) -> Result<Box<dyn NodeLoad>, Error> {
        Ok(Box::new(Load(self.0.load(definition)?, self.1)))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.1.make(|| self.0.remove(name))
    }
}

impl NodeLoad for Load {
    fn push(&mut self, block: Bytes) -> Result<(), Error> {
        self.0.push(block)
    }

    fn prepare(&mut self) -> Result<(), Error> {
        self.0.prepare()
    }

    fn commit(self: Box<Self>) -> Result<Vec<u8>, Error> {
        self.1.make(|| self.0.commit())
    }
}

/// Returns a node that handles changes in this way, and has a table of so many rows, if `rows` is not 0.
fn reluctant(road: &Road, change: Change, rows: i64) -> (local_tables::LoadedNode, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let dirs: [PathBuf; 1] = [dir.path().join("pages")];
    let tables = Tables::open(Arc::new(RealDisk), &dirs).unwrap();
    if rows > 0 {
        load(&tables, Mode::Create, 0, rows).unwrap();
    }
    let storage = LocalTables::new(tables, ShownFiles::default(), PageCache::Past);
    let node = local_tables::LoadedNode::with(road, Arc::new(Reluctant(storage, change)));
    (node, dir)
}

fn address(node: &local_tables::LoadedNode) -> SocketAddr {
    node.far().options().session.address
}

fn rows(node: &local_tables::LoadedNode) -> Option<u64> {
    found(&node.far()).map(|(rows, _)| rows)
}

/// Returns a depot of these nodes that does not wait for long.
fn hasty(nodes: [&local_tables::LoadedNode; 2]) -> Replicas {
    let far = nodes.map(|node| {
        let mut options = node.far().options().clone();
        options.session.patience = SHORT;
        RemoteNode::new(options)
    });
    Replicas::new(far.to_vec())
}

/// Returns the addresses alone.
fn nodes(told: &[(String, String)]) -> Vec<String> {
    told.iter().map(|(node, _)| node.clone()).collect()
}

fn apart(error: Error) -> PartialChange {
    match error {
        Error::Partial(partial) => *partial,
        other => panic!("{other}"),
    }
}

pub(crate) fn which_nodes_have_a_version_is_told(road: &Road) {
    let (broken, _dir) = reluctant(road, Change::Refused, 0);
    let sound = [
        local_tables::LoadedNode::new(road),
        local_tables::LoadedNode::new(road),
    ];
    let all = Replicas::new(vec![sound[0].far(), broken.far(), sound[1].far()]);
    let mut sound_nodes = sound.each_ref().map(address);
    sound_nodes.sort();
    let error = load(&all, Mode::Create, 0, 10).unwrap_err();
    if address(&broken) < sound_nodes[0] {
        // No node had the table when the load failed.
        assert!(matches!(error, Error::Replica { .. }), "{error}");
        assert_eq!(sound.each_ref().map(rows), [None, None]);
    } else {
        let told = error.to_string();
        assert!(told.contains("the disk has just broken"), "{told}");
        let apart = apart(error);
        assert_eq!(apart.done, sound_nodes.map(|node| node.to_string()));
        assert_eq!(nodes(&apart.failed), [address(&broken).to_string()]);
        assert_eq!(apart.doubtful, []);
        assert_eq!(sound.each_ref().map(rows), [Some(10), Some(10)]);
    }
    assert_eq!(rows(&broken), None);
}

/// The change may have been made, so the error must not say that nothing has changed.
pub(crate) fn an_error_names_the_nodes_whose_outcome_is_unknown(road: &Road) {
    for change in [Change::Doubtful, Change::Silent] {
        let (one, _one) = reluctant(road, change, 0);
        let (two, _two) = reluctant(road, change, 0);
        let mut both = [&one, &two];
        both.sort_by_key(|node| address(node));
        let error = load(&hasty(both), Mode::Create, 0, 10).unwrap_err();
        let told = error.to_string();
        assert!(told.contains("it is unknown"), "{told}");
        let apart = apart(error);
        assert!(apart.done.is_empty(), "{told}");
        assert_eq!(nodes(&apart.doubtful), [address(both[0]).to_string()]);
        assert_eq!(nodes(&apart.failed), [address(both[1]).to_string()]);
        assert_eq!(both.map(rows), [Some(10), None]);
        // A single node reports the same.
        let far = both[1].far();
        let mut options = far.options().clone();
        options.session.patience = SHORT;
        let error = load(&RemoteNode::new(options), Mode::Create, 0, 10).unwrap_err();
        let told = error.to_string();
        assert!(told.contains("it is unknown"), "{told}");
        assert_eq!(rows(both[1]), Some(10));
    }
}

pub(crate) fn where_a_table_was_removed_is_told(road: &Road) {
    for change in [Change::Refused, Change::Doubtful, Change::Silent] {
        let sound = local_tables::LoadedNode::new(road);
        load(&sound.far(), Mode::Create, 0, 10).unwrap();
        let (broken, _dir) = reluctant(road, change, 10);
        let error = hasty([&sound, &broken]).remove("numbers").unwrap_err();
        let apart = apart(error);
        assert_eq!(apart.done, [address(&sound).to_string()]);
        let (told, none, left) = match change {
            Change::Refused => (apart.failed, apart.doubtful, Some(10)),
            Change::Doubtful | Change::Silent => (apart.doubtful, apart.failed, None),
        };
        assert_eq!(nodes(&told), [address(&broken).to_string()]);
        assert_eq!(none, []);
        assert_eq!((rows(&sound), rows(&broken)), (None, left));
    }
}

/// The error names each node on which nothing has changed.
pub(crate) fn where_a_table_was_not_removed_is_told(road: &Road) {
    let (one, _one) = reluctant(road, Change::Refused, 10);
    let (two, _two) = reluctant(road, Change::Refused, 10);
    let error = Replicas::new(vec![one.far()])
        .remove("numbers")
        .unwrap_err();
    assert!(matches!(error, Error::Replica { .. }), "{error}");
    let error = hasty([&one, &two]).remove("numbers").unwrap_err();
    let apart = apart(error);
    let mut both = [&one, &two].map(address);
    both.sort();
    assert_eq!(nodes(&apart.failed), both.map(|node| node.to_string()));
    assert_eq!((apart.done.len(), apart.doubtful.len()), (0, 0));
    let (three, _three) = reluctant(road, Change::Doubtful, 10);
    let error = Replicas::new(vec![three.far()])
        .remove("numbers")
        .unwrap_err();
    assert!(error.to_string().contains("it is unknown"), "{error}");
}
