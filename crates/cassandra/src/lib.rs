//! Real Cassandra nodes on this machine, for tests and measurements of the proxy.
//!
//! | in the nodes' directory | what |
//! |---|---|
//! | `nodes.txt` | how many they are and where, so that data is not given to others |
//! | `node<n>/` | node *n*: `cassandra.yaml`, `logback.xml`, data and commit log |
//! | `node<n>.log` | what node *n* has said since its last start |
//!
//! Node *n* of a network 127.*a*.*b* is at 127.*a*.*b*.*n*, port 9042 for clients and 7000 for other
//! nodes: all of 127.0.0.0/8 is this machine, so that Cassandra's own ports can be kept, and so that
//! several clusters run side by side.
//!
//! The nodes are the jars of the Maven repository, started by Java 17; `cargo xtask peers` installs
//! them. They end with the process that has started them, also if that is killed; in that case
//! their directory remains.
//!
//! | module | contents |
//! |---|---|
//! | this | nodes: started, stopped, paused, killed |
//! | [`Link`], [`Statement`], [`agree`] | a connection to a node that prepares and executes statements |
//! | [`ycsb`] | YCSB's core with bindings of our own |

#![forbid(unsafe_code)]

mod error;
mod link;
mod node;
mod process;
mod schema;
mod settings;
mod wire;
pub mod ycsb;

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tempfile::TempDir;

pub use error::Error;
pub use link::{Link, Statement};
use node::Node;
pub use schema::agree;
pub use settings::{Compiler, PORT, Paxos};
use settings::{STORAGE_PORT, Settings};

/// The directory into which `cargo xtask peers` puts the jars, below the repository.
const JARS: &str = "target/peers/cassandra/lib";
/// How long nodes may take until each answers and knows the others.
const READY: Duration = Duration::from_secs(240);
/// How long nodes may take to end after SIGTERM. Each notifies the others first, which takes
/// seconds.
const PATIENCE: Duration = Duration::from_secs(40);
/// The interval at which starting nodes are asked.
const LOOK: Duration = Duration::from_millis(100);
/// The memory of a node besides its heap, in MiB: code, threads, and memory outside of the heap.
const BESIDE_HEAP: u64 = 600;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// A Cassandra that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The program `java` of a Java 17.
    pub java: PathBuf,
    /// The directory with its jars.
    pub jars: PathBuf,
}

impl Installed {
    /// Returns the Cassandra that `cargo xtask peers` has installed in the repository `root`.
    ///
    /// # Errors
    /// Returns an error if the jars or Java 17 are missing.
    pub fn find(root: &Path) -> Result<Installed> {
        let jars = root.join(JARS);
        if !jars.is_dir() {
            return Err(Error::NotInstalled { jars });
        }
        let jars = jars.canonicalize().map_err(Error::file(&jars))?;
        let java = java()?;
        Ok(Installed { java, jars })
    }
}

/// Returns the program `java` of Java 17: on the path, of `JAVA_HOME`, or Debian's. Cassandra 5
/// does not start with a newer one.
///
/// # Errors
/// Returns an error if there is none.
pub fn java() -> Result<PathBuf> {
    let homes = env::var_os("JAVA_HOME").map(PathBuf::from);
    let debian = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let homes = homes.into_iter().chain(debian.map(|entry| entry.path()));
    let programs = homes.map(|home| home.join("bin/java"));
    let mut seen = Vec::new();
    for program in std::iter::once(PathBuf::from("java")).chain(programs) {
        let Ok(output) = Command::new(&program).arg("--version").output() else {
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().next().unwrap_or_default().to_owned();
        if is_17(&line) {
            return Ok(program);
        }
        seen.push(format!("{}: {line}", program.display()));
    }
    Err(Error::NoJava { seen })
}

/// Returns `true` if Java's first line, such as `openjdk 17.0.15 2025-04-15`, is of version 17.
fn is_17(line: &str) -> bool {
    let version = line.split_whitespace().nth(1).unwrap_or_default();
    version.split(['.', '-', '+']).next() == Some("17")
}

/// The options of nodes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The installed programs.
    pub installed: Installed,
    /// The number of nodes, at most 254.
    pub nodes: u8,
    /// The first three bytes of their addresses.
    pub network: [u8; 3],
    /// Java's heap of each node, in MiB. A node with less than 300 ends soon.
    pub heap_mib: u64,
    /// The algorithm of lightweight transactions.
    pub paxos: Paxos,
    /// How far Java compiles the nodes' code.
    pub compiler: Compiler,
    /// `true` if clients must give a name and a password, and have permissions; at first there is
    /// the user `cassandra` with the password `cassandra`, who may do everything.
    pub passwords: bool,
    /// The directory of data and logs, which are kept. Without it they lie in a temporary
    /// directory, which is removed with the nodes.
    pub dir: Option<PathBuf>,
}

impl Options {
    /// Returns options for so many nodes at 127.0.0.1 and so on, with 512 MiB of heap each and
    /// Paxos v1, which is Cassandra's default.
    #[must_use]
    pub fn new(installed: Installed, nodes: u8) -> Options {
        Options {
            installed,
            nodes,
            network: [127, 0, 0],
            heap_mib: 512,
            paxos: Paxos::V1,
            compiler: Compiler::Full,
            passwords: false,
            dir: None,
        }
    }

    /// Returns options for the same nodes in a network of this machine that no process uses now,
    /// with a quick start: for tests that run beside others.
    #[must_use]
    pub fn anywhere(self) -> Options {
        // A network whose ports are taken is detected when nodes start there.
        let free = |network: &[u8; 3]| (1..=self.nodes).all(|id| free(*network, id).is_ok());
        let mut networks = std::iter::repeat_with(|| [127, fastrand::u8(1..255), fastrand::u8(..)]);
        Options {
            network: networks
                .by_ref()
                .take(100)
                .find(free)
                .unwrap_or(self.network),
            compiler: Compiler::Quick,
            ..self
        }
    }
}

/// Returns the address of node `id`, from 1 on.
fn ip(network: [u8; 3], id: u8) -> Ipv4Addr {
    let [a, b, c] = network;
    Ipv4Addr::new(a, b, c, id)
}

/// Returns an error if another process listens at the address of node `id`.
fn free(network: [u8; 3], id: u8) -> Result<()> {
    [PORT, STORAGE_PORT].into_iter().try_for_each(|port| {
        let address = SocketAddr::from((ip(network, id), port));
        let bound = TcpListener::bind(address);
        bound
            .map(|_| ())
            .map_err(|source| Error::PortInUse { address, source })
    })
}

/// A step in the start of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its process runs.
    Started,
    /// Clients get answers.
    Answers,
    /// It knows all others.
    KnowsAll,
}

/// Observes nodes while they start. `()` does nothing.
pub trait Watch {
    /// Called when node `index` has reached `step`, so long after the start.
    fn reached(&mut self, index: usize, step: Step, after: Duration);

    /// Returns `true` if the start must be given up. It is called at intervals.
    fn is_stopped(&self) -> bool;
}

impl Watch for () {
    fn reached(&mut self, _: usize, _: Step, _: Duration) {}

    fn is_stopped(&self) -> bool {
        false
    }
}

/// Nodes of one cluster. They are killed when this is dropped.
#[derive(Debug)]
pub struct Nodes {
    nodes: Vec<Node>,
    dir: PathBuf,
    /// Removed after the nodes: fields are dropped in their order.
    _temporary: Option<TempDir>,
}

impl Nodes {
    /// Starts nodes, and waits until each answers and knows all others: 6 to 60 seconds.
    ///
    /// # Errors
    /// Returns an error if a port is taken, memory is short, a node ends, or they take more than
    /// four minutes. No node is left running then.
    pub fn start(options: &Options) -> Result<Nodes> {
        Nodes::start_watched(options, &mut ())
    }

    /// As [`Nodes::start`], with an observer.
    ///
    /// # Errors
    /// Returns the errors of [`Nodes::start`], and [`Error::Stopped`].
    pub fn start_watched(options: &Options, watch: &mut dyn Watch) -> Result<Nodes> {
        if options.nodes == 0 || options.nodes == u8::MAX {
            return Err(Error::Count);
        }
        check_memory(
            options,
            &fs::read_to_string("/proc/meminfo").unwrap_or_default(),
        )?;
        (1..=options.nodes).try_for_each(|id| free(options.network, id))?;
        let (dir, temporary) = match &options.dir {
            Some(dir) => (dir.clone(), None),
            None => {
                let made =
                    TempDir::with_prefix("cassandra-").map_err(Error::file(&env::temp_dir()))?;
                (made.path().to_owned(), Some(made))
            }
        };
        fs::create_dir_all(&dir).map_err(Error::file(&dir))?;
        let dir = dir.canonicalize().map_err(Error::file(&dir))?;
        claim(&dir, options)?;
        let settings = (1..=options.nodes).map(|id| Settings::new(options, id, &dir));
        let nodes = settings.map(Node::new).collect::<Result<_>>()?;
        let mut nodes = Nodes {
            nodes,
            dir,
            _temporary: temporary,
        };
        let begin = Instant::now();
        for index in 0..nodes.count() {
            nodes.nodes[index].start()?;
            watch.reached(index, Step::Started, begin.elapsed());
        }
        nodes.wait(&(0..nodes.count()).collect::<Vec<_>>(), watch)?;
        Ok(nodes)
    }

    /// Waits until these nodes answer and know all others.
    fn wait(&mut self, indices: &[usize], watch: &mut dyn Watch) -> Result<()> {
        let begin = Instant::now();
        let others = self.count() - 1;
        let mut waiting: Vec<(usize, Step)> = indices
            .iter()
            .map(|index| (*index, Step::Started))
            .collect();
        while !waiting.is_empty() {
            for (index, step) in &mut waiting {
                let node = &mut self.nodes[*index];
                node.check_running()?;
                if *step == Step::Started && wire::answers(node.address()) {
                    *step = Step::Answers;
                    watch.reached(*index, *step, begin.elapsed());
                }
                if *step == Step::Answers
                    && wire::peers(node.address()).is_ok_and(|known| known == others)
                {
                    *step = Step::KnowsAll;
                    watch.reached(*index, *step, begin.elapsed());
                }
            }
            waiting.retain(|(_, step)| *step != Step::KnowsAll);
            if let Some((index, _)) = waiting.first()
                && begin.elapsed() > READY
            {
                return Err(self.nodes[*index].not_ready(begin.elapsed()));
            }
            if watch.is_stopped() {
                return Err(Error::Stopped);
            }
            if !waiting.is_empty() {
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Returns the number of nodes, dead ones included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the addresses of the nodes for clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::address).collect()
    }

    /// Returns the directory of data and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the file with the output of node `index`, from 0 on.
    #[must_use]
    pub fn log(&self, index: usize) -> &Path {
        self.nodes[index].log()
    }

    /// Returns the process of node `index` while it runs.
    #[must_use]
    pub fn pid(&self, index: usize) -> Option<Pid> {
        self.nodes[index].pid()
    }

    /// Kills node `index` as a crash would, and waits for its end. It may be dead already.
    ///
    /// # Errors
    /// Returns an error if it cannot be waited for.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.nodes[index].kill()
    }

    /// Stops node `index` in good order, and waits for its end. It may be dead already.
    ///
    /// # Errors
    /// Returns an error if it does not end within 40 seconds; it is killed then.
    pub fn terminate(&mut self, index: usize) -> Result<()> {
        self.nodes[index].signal_end()?;
        self.nodes[index].wait_end(Instant::now() + PATIENCE)
    }

    /// Starts node `index` again over its data, and waits until it answers. It is killed first if it
    /// runs.
    ///
    /// # Errors
    /// Returns the errors of [`Nodes::start`].
    pub fn restart(&mut self, index: usize) -> Result<()> {
        self.kill(index)?;
        self.nodes[index].start()?;
        self.wait(&[index], &mut ())
    }

    /// Pauses node `index`, like a machine that is overloaded. Returns when all of its threads are
    /// paused.
    ///
    /// # Errors
    /// Returns an error if it does not run.
    pub fn pause(&mut self, index: usize) -> Result<()> {
        self.nodes[index].pause()
    }

    /// Resumes node `index`.
    ///
    /// # Errors
    /// Returns an error if it does not run.
    pub fn resume(&mut self, index: usize) -> Result<()> {
        self.nodes[index].resume()
    }

    /// Returns the nodes that have ended by themselves since the last call, each with the end of
    /// its output.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn ended(&mut self) -> Result<Vec<(usize, Error)>> {
        let mut ended = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            match node.check_running() {
                Err(error @ Error::Ended { .. }) => ended.push((index, error)),
                other => other?,
            }
        }
        Ok(ended)
    }

    /// Stops all in good order: sends SIGTERM to each, and SIGKILL to those that still run 40
    /// seconds later.
    ///
    /// # Errors
    /// Returns an error if one had to be killed.
    pub fn stop(mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.signal_end()?;
        }
        let deadline = Instant::now() + PATIENCE;
        // Each is waited for, also if the one before it failed.
        let ends: Vec<_> = self
            .nodes
            .iter_mut()
            .map(|node| node.wait_end(deadline))
            .collect();
        ends.into_iter().collect()
    }
}

/// Records the nodes that the directory belongs to.
///
/// # Errors
/// Returns an error if it belongs to other nodes: their data would be looked for at the wrong ones.
fn claim(dir: &Path, options: &Options) -> Result<()> {
    let file = dir.join("nodes.txt");
    let first = ip(options.network, 1);
    let text = format!("{} nodes from {first} on\n", options.nodes);
    match fs::read_to_string(&file) {
        Ok(there) if there == text => Ok(()),
        Ok(there) => Err(Error::OtherNodes {
            dir: dir.to_owned(),
            there: there.trim().to_owned(),
        }),
        Err(_) => fs::write(&file, text).map_err(Error::file(&file)),
    }
}

/// Returns an error if the nodes exceed the free memory according to `meminfo`: a machine that
/// swaps or kills takes down more than the nodes.
fn check_memory(options: &Options, meminfo: &str) -> Result<()> {
    let mut words = meminfo.lines().filter_map(|line| {
        line.strip_prefix("MemAvailable:")?
            .split_whitespace()
            .next()
    });
    let Some(free_kib) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
        return Ok(());
    };
    let needed_mib = u64::from(options.nodes) * (options.heap_mib + BESIDE_HEAP);
    let free_mib = free_kib / 1024;
    match needed_mib > free_mib {
        true => Err(Error::Memory {
            needed_mib,
            free_mib,
        }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let installed = Installed {
            java: "java".into(),
            jars: "jars".into(),
        };
        Options::new(installed, 3)
    }

    #[test]
    fn java_tells_its_version() {
        assert!(is_17("openjdk 17.0.15 2025-04-15"));
        assert!(is_17("openjdk 17 2021-09-14"));
        assert!(is_17("java 17-ea 2021-09-14"));
        for line in [
            "openjdk 21.0.2 2024-01-16",
            "openjdk 11.0.17 2022",
            "17",
            "",
        ] {
            assert!(!is_17(line), "{line}");
        }
    }

    #[test]
    fn nodes_need_memory() {
        let of = |mib: u64| format!("MemTotal: 1 kB\nMemAvailable:  {} kB\n", mib * 1024);
        assert!(check_memory(&options(), &of(3 * 1112)).is_ok());
        let refused = check_memory(&options(), &of(3 * 1112 - 1)).unwrap_err();
        let said = refused.to_string();
        assert!(
            said.contains("3336 MiB") && said.contains("3335 MiB"),
            "{said}"
        );
        assert!(check_memory(&options(), "nothing that is known").is_ok());
    }

    #[test]
    fn a_directory_belongs_to_its_nodes() {
        let dir = tempfile::tempdir().unwrap();
        claim(dir.path(), &options()).unwrap();
        claim(dir.path(), &options()).unwrap();
        let more = Options {
            nodes: 5,
            ..options()
        };
        let refused = claim(dir.path(), &more).unwrap_err().to_string();
        assert!(refused.contains("3 nodes from 127.0.0.1 on"), "{refused}");
    }

    #[test]
    fn a_port_in_use_is_told() {
        let options = options().anywhere();
        assert_ne!(options.network, [127, 0, 0]);
        let _taken = TcpListener::bind((ip(options.network, 2), PORT)).unwrap();
        assert!(free(options.network, 1).is_ok());
        let refused = free(options.network, 2).unwrap_err().to_string();
        assert!(refused.contains(":9042"), "{refused}");
    }

    #[test]
    fn what_is_not_installed_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Installed::find(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("cargo xtask peers"), "{refused}");
    }
}
