//! A node that shows a file, and runs the tests' tasks.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use disk::reads::{PageCache, ReadFile, ReadMethod};
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use fabric::verbs::{Device, Domain, VerbsOptions};
use kumiki_pages::Error;
use kumiki_pages::node::{
    Limits, Node, NodeOptions, NodeStorage, OpenTable, Output, ShownFiles, TaskRunner,
};
use kumiki_pages::remote::{Session, SessionOptions};
use tempfile::NamedTempFile;

/// Far longer than any step takes here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// This variable is set where a missing RDMA device is a failure.
const REQUIRE: &str = "KUMIKI_REQUIRE_RDMA";
/// Bytes of the file.
pub(crate) const BYTES: usize = 4 << 20;

/// Returns the content of a page of the file.
pub(crate) fn content(page: u32, unit: usize) -> Vec<u8> {
    let from = page as usize * unit;
    (from..from + unit).map(byte).collect()
}

fn byte(at: usize) -> u8 {
    (at as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_be_bytes()[0]
}

/// A transport of messages and pages.
#[derive(Clone)]
pub(crate) struct Road {
    pub(crate) transport: Transport,
    pub(crate) verbs: Option<Domain>,
    /// Connections, and threads of each, if readers of tables share connections.
    pub(crate) sharing: Option<(usize, usize)>,
}

impl Road {
    pub(crate) fn new(transport: Transport) -> Road {
        Road {
            transport,
            verbs: None,
            sharing: None,
        }
    }

    /// Has readers of tables share so many connections, so many threads each.
    pub(crate) fn sharing(mut self, connections: usize, threads: usize) -> Road {
        self.sharing = Some((connections, threads));
        self
    }

    /// Returns the transport of an RDMA device; `None`, with a line that says why, where there is
    /// no such device.
    pub(crate) fn verbs() -> Option<Road> {
        match Device::open(&VerbsOptions::default()) {
            Ok(device) => Some(Road {
                transport: Transport::Verbs,
                verbs: Some(device.domain().unwrap()),
                sharing: None,
            }),
            Err(error) if std::env::var_os(REQUIRE).is_some() => panic!("{error}"),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    /// Makes a session use it.
    pub(crate) fn set(&self, options: &mut SessionOptions) {
        options.transport = self.transport;
        options.verbs.clone_from(&self.verbs);
        if self.verbs.is_some() {
            // All of it is locked memory.
            options.window_bytes = 2 << 20;
        }
    }
}

/// A node and its file.
pub(crate) struct Stand {
    pub(crate) node: Option<Node>,
    road: Road,
    pub(crate) ended: Arc<AtomicBool>,
    _file: NamedTempFile,
}

impl Stand {
    pub(crate) fn new(road: &Road) -> Stand {
        Stand::with(road, Limits::default())
    }

    pub(crate) fn with(road: &Road, limits: Limits) -> Stand {
        Stand::reading(road, limits, ReadMethod::ThreadPool { threads: 2 })
    }

    /// Makes a node that reads in this way.
    pub(crate) fn reading(road: &Road, limits: Limits, way: ReadMethod) -> Stand {
        let mut file = NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
        file.write_all(&bytes).unwrap();
        let mut shown = ShownFiles::default();
        let read = ReadFile::open(file.path(), PageCache::Past).unwrap();
        shown.show("file", read);
        shown.show_memory("memory", bytes.into());
        let ended = Arc::new(AtomicBool::new(false));
        let worker = Scribe(Arc::clone(&ended));
        let mut options = node_options(road, limits);
        options.way = way;
        options.threads = 2;
        let node = Node::start(options, Arc::new(shown), Arc::new(worker)).unwrap();
        Stand {
            node: Some(node),
            road: road.clone(),
            ended,
            _file: file,
        }
    }

    pub(crate) fn options(&self) -> SessionOptions {
        session_options(&self.road, self.node.as_ref().expect("it runs"))
    }

    pub(crate) fn session(&self) -> Session {
        Session::connect(self.options()).unwrap()
    }
}

/// Returns the options of a node of one desk.
fn node_options(road: &Road, limits: Limits) -> NodeOptions {
    NodeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        secret: secret(),
        threads: 1,
        task_threads: 2,
        way: ReadMethod::ThreadPool { threads: 2 },
        depth: 64,
        transport: road.transport,
        encryption: fabric::tcp::Encryption::Auto,
        shm: Shm::default(),
        verbs: road.verbs.clone(),
        limits,
    }
}

/// Starts a node of one desk.
pub(crate) fn serve(
    road: &Road,
    storage: Arc<dyn NodeStorage>,
    worker: Arc<dyn TaskRunner>,
    limits: Limits,
) -> Node {
    Node::start(node_options(road, limits), storage, worker).unwrap()
}

/// Returns the options of a session with a node.
pub(crate) fn session_options(road: &Road, node: &Node) -> SessionOptions {
    let mut options = SessionOptions::new(node.address(), secret());
    options.patience = PATIENCE;
    road.set(&mut options);
    options
}

pub(crate) fn secret() -> Secret {
    Secret::new("what readers know")
}

/// Takes turns until `ready` returns a value.
pub(crate) fn until<T>(
    session: &mut Session,
    mut ready: impl FnMut(&mut Session) -> Option<T>,
) -> Result<T, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ready(session) {
            return Ok(found);
        }
        assert!(Instant::now() < deadline, "nothing has come");
        session.turn(Duration::from_millis(50))?;
    }
}

/// Runs tasks whose text describes them.
struct Scribe(Arc<AtomicBool>);

impl TaskRunner for Scribe {
    fn run(&self, table: &Arc<OpenTable>, task: &[u8], out: &mut dyn Output) -> Result<(), Error> {
        let task = std::str::from_utf8(task).unwrap();
        match task.split_once(' ') {
            Some(("count", to)) => {
                for number in 0..to.parse().unwrap() {
                    let batch = format!("{number} of {}", table.unit).into_bytes();
                    if !out.batch(batch) {
                        self.0.store(true, Ordering::Release);
                        break;
                    }
                }
                Ok(())
            }
            // A task without results, however long it takes.
            Some(("work", _)) => {
                let cancellation = out.cancellation();
                while !cancellation.is_cancelled() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.0.store(true, Ordering::Release);
                Ok(())
            }
            Some(("large", bytes)) => {
                for bytes in [1, bytes.parse().unwrap(), 1] {
                    out.batch(vec![7; bytes]);
                }
                Ok(())
            }
            Some(("refuse", why)) => Err(Error::Refused(why.to_owned())),
            Some(("value", why)) => Err(Error::Value(why.to_owned())),
            Some(("page", why)) => Err(Error::Page(why.to_owned())),
            Some(("busy", why)) => Err(Error::Busy(why.to_owned())),
            Some(("untaken", why)) => Err(Error::ResultsNotTaken(why.to_owned())),
            _ => panic!("an unknown task"),
        }
    }
}
