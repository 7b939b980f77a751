//! Nodes that take long over requests: the reader that waits knows that its request is under way, and no
//! other reader waits.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use disk::RealDisk;
use disk::reads::PageCache;
use fabric::tcp::{Caller, CallerOptions, Transport};
use kumiki_pages::node::{
    Limits, LocalTables, NoWorker, Node, NodeLoad, NodeStorage, OpenTable, Output, ShownFiles,
    TaskRunner,
};
use kumiki_pages::remote::{ListedTable, RemoteNode, RemoteNodeOptions, Replicas, Session};
use kumiki_pages::{Error, LoadOptions, Mode, TableStore, Tables, Version};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::remote::local_tables::{batch, schema};
use crate::remote::support::{
    BYTES, PATIENCE, Road, content, secret, serve, session_options, until,
};

/// How long readers here wait for a silent node. Tests that run beside these keep all processors busy.
const SHORT: Duration = Duration::from_millis(600);
/// How long a step of a load takes.
const LONG: Duration = Duration::from_millis(2400);
/// How long a task takes: many times longer than readers wait.
const TASK: Duration = Duration::from_millis(12_600);

/// A stock that is slow.
struct Slow {
    local_tables: LocalTables,
    /// If set, the list of tables waits for a message on this channel.
    gate: Option<Mutex<Receiver<()>>>,
    _dir: TempDir,
}

impl Slow {
    fn new() -> Slow {
        let dir = tempfile::tempdir().unwrap();
        let dirs: [PathBuf; 1] = [dir.path().join("pages")];
        let tables = Tables::open(Arc::new(RealDisk), &dirs).unwrap();
        let mut shown = ShownFiles::default();
        let bytes: Vec<u8> = (0..BYTES / 4096)
            .flat_map(|page| content(page as u32, 4096))
            .collect();
        shown.show_memory("memory", bytes.into());
        Slow {
            local_tables: LocalTables::new(tables, shown, PageCache::Through),
            gate: None,
            _dir: dir,
        }
    }

    fn gated() -> (Slow, Sender<()>) {
        let (word, gate) = channel();
        let gate = Some(Mutex::new(gate));
        (
            Slow {
                gate,
                ..Slow::new()
            },
            word,
        )
    }
}

impl NodeStorage for Slow {
    fn tables(&self) -> Result<Vec<u8>, Error> {
        if let Some(gate) = &self.gate {
            gate.lock().recv_timeout(PATIENCE).unwrap();
        }
        NodeStorage::tables(&self.local_tables)
    }

    fn open(&self, name: &str, version: Version) -> Result<Arc<OpenTable>, Error> {
        self.local_tables.open(name, version)
    }

    fn file(&self, name: &str, unit: usize) -> Result<Arc<OpenTable>, Error> {
        self.local_tables.file(name, unit)
    }

    fn load(&self, definition: &[u8]) -> Result<Box<dyn NodeLoad>, Error> {
        Ok(Box::new(SlowLoad(self.local_tables.load(definition)?)))
    }
}

struct SlowLoad(Box<dyn NodeLoad>);

impl NodeLoad for SlowLoad {
    fn push(&mut self, block: Bytes) -> Result<(), Error> {
        self.0.push(block)
    }

    fn prepare(&mut self) -> Result<(), Error> {
        std::thread::sleep(LONG);
        self.0.prepare()
    }

    fn commit(self: Box<Self>) -> Result<Vec<u8>, Error> {
        std::thread::sleep(LONG);
        self.0.commit()
    }
}

/// A shelf and loads that panic.
struct Clumsy;

impl NodeStorage for Clumsy {
    fn tables(&self) -> Result<Vec<u8>, Error> {
        Ok(ListedTable::encode(&[]))
    }

    fn open(&self, _: &str, _: Version) -> Result<Arc<OpenTable>, Error> {
        panic!("a table that makes the shelf panic")
    }

    fn file(&self, _: &str, _: usize) -> Result<Arc<OpenTable>, Error> {
        panic!("a file that makes the shelf panic")
    }

    fn load(&self, _: &[u8]) -> Result<Box<dyn NodeLoad>, Error> {
        Ok(Box::new(Clumsy))
    }
}

impl NodeLoad for Clumsy {
    fn push(&mut self, _: Bytes) -> Result<(), Error> {
        panic!("rows that make the load panic")
    }

    fn prepare(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }
}

/// A worker that computes for long and has no results.
struct Thinker;

impl TaskRunner for Thinker {
    fn run(&self, _: &Arc<OpenTable>, _: &[u8], out: &mut dyn Output) -> Result<(), Error> {
        std::thread::sleep(TASK);
        out.batch(b"so".to_vec());
        Ok(())
    }
}

fn start(storage: Slow, progress: Duration) -> Node {
    let limits = Limits {
        progress,
        ..Limits::default()
    };
    serve(&road(), Arc::new(storage), Arc::new(Thinker), limits)
}

fn road() -> Road {
    Road::new(Transport::Tcp)
}

fn far(node: &Node) -> RemoteNode {
    let mut options = session_options(&road(), node);
    options.patience = SHORT;
    RemoteNode::new(RemoteNodeOptions::new(options))
}

fn load(table_store: &dyn TableStore) -> Result<u64, String> {
    let options = LoadOptions::default();
    let sink = table_store.load("numbers", &schema(), &options, Mode::Create);
    let mut sink = sink.map_err(|error| error.to_string())?;
    sink.push(&batch(0, 10_000)).unwrap();
    let table = sink.commit().map_err(|error| error.to_string())?;
    Ok(table.rows())
}

#[test]
fn a_load_whose_end_takes_long_is_waited_for() {
    let often = Duration::from_millis(20);
    let one = start(Slow::new(), often);
    assert_eq!(load(&far(&one)), Ok(10_000));
    let two = [start(Slow::new(), often), start(Slow::new(), often)];
    let replicas = Replicas::new(two.iter().map(far).collect());
    assert_eq!(load(&replicas), Ok(10_000));
}

#[test]
fn a_task_that_takes_long_is_waited_for() {
    let node = start(Slow::new(), Duration::from_millis(20));
    let far = far(&node);
    load(&far).unwrap();
    let table = far.open("numbers").unwrap();
    let batches: Result<Vec<Bytes>, Error> = far.run(&table, b"think").unwrap().collect();
    assert_eq!(batches.unwrap(), ["so"]);
}

/// A request that has panicked is not reported as under way.
#[test]
fn what_has_panicked_is_not_waited_for() {
    let node = serve(
        &road(),
        Arc::new(Clumsy),
        Arc::new(NoWorker),
        Limits::default(),
    );
    let options = session_options(&road(), &node);
    let far = RemoteNode::new(RemoteNodeOptions::new(options));
    for error in [
        load(&far).unwrap_err(),
        far.open("numbers").unwrap_err().to_string(),
    ] {
        assert!(error.contains("panic"), "{error}");
    }
    assert!(far.tables().unwrap().is_empty());
}

#[test]
fn a_node_of_which_nothing_is_heard_is_given_up() {
    let node = start(Slow::new(), Duration::from_secs(3600));
    let begun = Instant::now();
    let error = load(&far(&node)).unwrap_err();
    assert!(error.contains("has not come in"), "{error}");
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

/// Removing a table, for example, holds up readers that ask for tables, and no reader of pages.
#[test]
fn readers_of_pages_do_not_wait_for_what_others_ask_for() {
    let (slow, word) = Slow::gated();
    let node = serve(
        &road(),
        Arc::new(slow),
        Arc::new(NoWorker),
        Limits::default(),
    );
    let options = session_options(&road(), &node);
    let mut reader = Session::connect(options.clone()).unwrap();
    let open = reader.open_file("memory", 4096).unwrap();
    let asking = std::thread::spawn(move || Session::connect(options).unwrap().tables());
    let begun = Instant::now();
    let mut page = 0;
    // Long enough for the other reader to ask.
    while begun.elapsed() < Duration::from_millis(300) {
        reader.read(&open, 0, page % 1000, 0);
        let arrived = until(&mut reader, Session::next_page).unwrap();
        let bytes = arrived.page.unwrap();
        assert_eq!(bytes.as_ref(), content(page % 1000, 4096));
        page += 1;
    }
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert!(!asking.is_finished(), "it waits for a word");
    word.send(()).unwrap();
    assert_eq!(asking.join().unwrap().unwrap(), []);
}

/// Returns the last message of a node that closes the link because of these requests, none of which is
/// answered.
fn shown_out(requests: &[u32]) -> String {
    let (slow, word) = Slow::gated();
    let limits = Limits {
        requests: 8,
        ..Limits::default()
    };
    let node = serve(&road(), Arc::new(slow), Arc::new(NoWorker), limits);
    let mut options = CallerOptions::new(secret());
    options.transport = Transport::Tcp;
    let mut caller = Caller::connect(node.address(), &options).unwrap();
    let deadline = Instant::now() + PATIENCE;
    for request in requests {
        // The question for the list of tables.
        let message = [&[2][..], &request.to_le_bytes(), &[0]].concat();
        caller.send(&message, deadline).unwrap();
    }
    let reply = caller.receive(deadline).unwrap();
    let said = String::from_utf8_lossy(reply).into_owned();
    for _ in requests {
        word.send(()).unwrap();
    }
    said
}

#[test]
fn a_reader_that_asks_for_too_much_at_a_time_is_closed() {
    let said = shown_out(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(said.contains("more than 8 requests"), "{said}");
    let said = shown_out(&[1, 2, 1]);
    assert!(said.contains("request 1 is under way already"), "{said}");
}
