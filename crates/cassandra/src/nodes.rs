//! The nodes of one cluster: started, stopped, paused, killed.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::network;
use crate::node::Node;
use crate::node_settings::NodeSettings;
use crate::options::Options;
use crate::readiness_probe;

/// How long nodes may take until each answers and knows the others.
const READY: Duration = Duration::from_secs(240);
/// How long nodes may take to end after SIGTERM. Each notifies the others first, which takes
/// seconds.
const PATIENCE: Duration = Duration::from_secs(40);
/// The interval at which starting nodes are asked.
const LOOK: Duration = Duration::from_millis(100);
/// The memory of a node besides its heap, in MiB: code, threads, and memory outside of the heap.
const BESIDE_HEAP: u64 = 600;

/// A step in the start of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    /// Its process runs.
    Started,
    /// Clients get answers.
    Answers,
    /// It knows all others.
    KnowsAll,
}

/// Observes nodes while they start. `()` does nothing.
pub trait StartObserver {
    /// Called when node `index` has reached `step`, so long after the start.
    fn reached(&mut self, index: usize, step: StartStep, after: Duration);

    /// Returns `true` if the start must be given up. It is called at intervals.
    fn is_stopped(&self) -> bool;
}

impl StartObserver for () {
    fn reached(&mut self, _: usize, _: StartStep, _: Duration) {}

    fn is_stopped(&self) -> bool {
        false
    }
}

/// Nodes of one cluster. They are killed when this is dropped.
#[derive(Debug)]
pub struct CassandraNodes {
    nodes: Vec<Node>,
    dir: PathBuf,
    /// Removed after the nodes: fields are dropped in their order.
    _temporary: Option<TempDir>,
}

impl CassandraNodes {
    /// Starts nodes, and waits until each answers and knows all others: 6 to 60 seconds.
    ///
    /// # Errors
    /// Returns an error if a port is taken, memory is short, a node ends, or they take more than
    /// four minutes. No node is left running then.
    pub fn start(options: &Options) -> Result<CassandraNodes> {
        CassandraNodes::start_watched(options, &mut ())
    }

    /// As [`CassandraNodes::start`], with an observer.
    ///
    /// # Errors
    /// Returns the errors of [`CassandraNodes::start`], and [`Error::Stopped`].
    pub fn start_watched(
        options: &Options,
        watch: &mut dyn StartObserver,
    ) -> Result<CassandraNodes> {
        if options.nodes == 0 || options.nodes == u8::MAX {
            return Err(Error::Count);
        }
        check_memory(
            options,
            &fs::read_to_string("/proc/meminfo").unwrap_or_default(),
        )?;
        (1..=options.nodes).try_for_each(|id| network::check_free(options.network, id))?;
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
        let settings = (1..=options.nodes).map(|id| NodeSettings::new(options, id, &dir));
        let nodes = settings.map(Node::new).collect::<Result<_>>()?;
        let mut nodes = CassandraNodes {
            nodes,
            dir,
            _temporary: temporary,
        };
        let begin = Instant::now();
        for index in 0..nodes.count() {
            nodes.nodes[index].start()?;
            watch.reached(index, StartStep::Started, begin.elapsed());
        }
        nodes.wait(&(0..nodes.count()).collect::<Vec<_>>(), watch)?;
        Ok(nodes)
    }

    /// Waits until these nodes answer and know all others.
    fn wait(&mut self, indices: &[usize], watch: &mut dyn StartObserver) -> Result<()> {
        let begin = Instant::now();
        let others = self.count() - 1;
        let mut waiting: Vec<(usize, StartStep)> = indices
            .iter()
            .map(|index| (*index, StartStep::Started))
            .collect();
        while !waiting.is_empty() {
            for (index, step) in &mut waiting {
                let node = &mut self.nodes[*index];
                node.check_running()?;
                if *step == StartStep::Started && readiness_probe::answers(node.address()) {
                    *step = StartStep::Answers;
                    watch.reached(*index, *step, begin.elapsed());
                }
                if *step == StartStep::Answers
                    && readiness_probe::peers(node.address()).is_ok_and(|known| known == others)
                {
                    *step = StartStep::KnowsAll;
                    watch.reached(*index, *step, begin.elapsed());
                }
            }
            waiting.retain(|(_, step)| *step != StartStep::KnowsAll);
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
    /// Returns the errors of [`CassandraNodes::start`].
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
    let first = network::ip(options.network, 1);
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
    use crate::installation::Installed;

    fn options() -> Options {
        let installed = Installed {
            java: "java".into(),
            jars: "jars".into(),
        };
        Options::new(installed, 3)
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
    fn nodes_of_a_test_run_beside_others() {
        assert_ne!(options().anywhere().network, [127, 0, 0]);
    }
}
