//! The processes of the nodes, each in its own namespace and on its own volume.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cluster::topology::{self, NodeInfo};
use parking_lot::Mutex;
use rustix::process::{Signal, kill_process};

use super::network::{self, ChaosNetwork};
use super::volume::Volume;
use crate::server::{Program, settings_of_node};
use testkit::{Client, Reply};
use xtask::interrupt;
use xtask::process::Guarded;

/// The ports for clients, other nodes, and those of the same partition.
const PORTS: [u16; 3] = [7001, 17001, 27001];
/// The secret of the nodes. Their network has no other users.
const SECRET: &str = "the secret of a chaos run";
/// How long a node may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(20);
/// A node that was started so long ago needs no further room for its start.
const STARTED: Duration = Duration::from_secs(1);
/// How long a node may take to recover and to listen.
const READY: Duration = Duration::from_secs(30);

/// All nodes of a partition. They are killed when this is dropped.
#[derive(Debug)]
pub struct PartitionNodes {
    program: Program,
    file: PathBuf,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    id: u16,
    volume: Volume,
    log: PathBuf,
    process: Mutex<Option<Guarded>>,
    /// The time of its last start.
    started: Mutex<Instant>,
    /// There is no room on its disk.
    is_full: AtomicBool,
    /// Its disk was lost, and it was not added since.
    is_wiped: AtomicBool,
}

impl PartitionNodes {
    /// Describes `count` nodes in `dir`, with empty volumes. Starts none.
    ///
    /// # Errors
    /// Returns an error if files cannot be written, or volumes cannot be made.
    pub fn new(program: &Program, dir: &Path, count: u16) -> Result<PartitionNodes> {
        let infos: Vec<_> = (1..=count)
            .map(|id| {
                let at = |port| SocketAddr::from((network::address(id), port));
                let [client, fabric, replica] = PORTS.map(at);
                NodeInfo {
                    id: base::NodeId(id),
                    client,
                    tls: None,
                    fabric,
                    replica: Some(replica),
                }
            })
            .collect();
        fs::create_dir_all(dir)?;
        let file = dir.join("cluster.toml");
        let text = topology::even(&infos, infos.len(), Some(SECRET));
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let nodes = (1..=count).map(|id| {
            Ok(Node {
                id,
                volume: Volume::mount(dir.join(format!("node{id}")))?,
                log: dir.join(format!("node{id}.log")),
                process: Mutex::new(None),
                started: Mutex::new(Instant::now()),
                is_full: AtomicBool::new(false),
                is_wiped: AtomicBool::new(false),
            })
        });
        Ok(PartitionNodes {
            program: program.clone(),
            file,
            nodes: nodes.collect::<Result<_>>()?,
        })
    }

    /// Sets the program with which nodes are started from now on.
    pub fn set_program(&mut self, program: Program) {
        self.program = program;
    }

    /// Returns the nodes' numbers.
    pub fn ids(&self) -> impl Iterator<Item = u16> + use<'_> {
        self.nodes.iter().map(|node| node.id)
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn count(&self) -> u16 {
        u16::try_from(self.nodes.len()).expect("few nodes")
    }

    /// Returns the addresses of the nodes for clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ids().map(client_address).collect()
    }

    /// Starts a node that does not run, unless its disk is full: it would report that, and end.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start(&self, network: &ChaosNetwork, id: u16) -> Result<()> {
        let node = self.node(id);
        let mut process = node.process.lock();
        if process.is_some() || node.is_full.load(Ordering::SeqCst) {
            return Ok(());
        }
        *node.started.lock() = Instant::now();
        let data = node.volume.data();
        let program = self.program.with(settings_of_node(usize::from(id)));
        let line = program.node_line(&self.file, id, &data)?;
        let append = || File::options().append(true).create(true).open(&node.log);
        let mut command = network.wrapper(id);
        // Ctrl-C does not reach it: the process that started the nodes stops them.
        command.args(line).process_group(0);
        command.stdout(append()?).stderr(append()?);
        *process = Some(Guarded::spawn(&format!("node {id}"), &mut command)?);
        Ok(())
    }

    /// Sends SIGKILL, if it runs.
    ///
    /// # Errors
    /// Returns an error if it cannot be waited for.
    pub fn kill(&self, id: u16) -> Result<()> {
        let process = self.node(id).process.lock().take();
        process.map_or(Ok(()), |mut process| process.kill().map(drop))
    }

    /// Sends SIGKILL to all, before waiting for any of them.
    ///
    /// # Errors
    /// Returns an error if one cannot be waited for.
    pub fn kill_all(&self) -> Result<()> {
        self.ids().for_each(|id| self.signal(id, Signal::KILL));
        self.ids().try_for_each(|id| self.kill(id))
    }

    /// Sends SIGKILL, and empties the disk.
    ///
    /// # Errors
    /// Returns an error if it cannot be waited for, or the disk cannot be emptied.
    pub fn wipe(&self, id: u16) -> Result<()> {
        let node = self.node(id);
        let mut process = node.process.lock();
        if let Some(mut running) = process.take() {
            running.kill()?;
        }
        node.is_wiped.store(true, Ordering::SeqCst);
        node.volume.wipe()
    }

    /// Sends SIGSTOP, SIGCONT or any other signal, if it runs.
    pub fn signal(&self, id: u16, signal: Signal) {
        if let Some(process) = &*self.node(id).process.lock() {
            // It may have ended by itself, which `crashed` reports.
            let _ = kill_process(process.pid(), signal);
        }
    }

    /// Sends SIGTERM, if it runs, which must lead to a clean exit, unless another fault kills it
    /// first.
    ///
    /// The node counts as running until it has ended, so that no other thread starts it a second
    /// time.
    ///
    /// # Errors
    /// Returns an error if it does not end, or ends with another status than zero.
    pub fn stop(&self, id: u16) -> Result<()> {
        let pid = |process: &Guarded| process.pid();
        let Some(stopped) = self.node(id).process.lock().as_ref().map(pid) else {
            return Ok(());
        };
        self.signal(id, Signal::CONT);
        self.signal(id, Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut process = self.node(id).process.lock();
            let Some(running) = process.as_mut().filter(|one| pid(one) == stopped) else {
                return Ok(());
            };
            if let Some(status) = running.exited()? {
                *process = None;
                if status.success() || status.signal() == Some(Signal::KILL.as_raw()) {
                    return Ok(());
                }
                bail!(
                    "node {id} ended with {status} after SIGTERM\n{}",
                    self.tail(id)
                );
            }
            if Instant::now() > deadline {
                *process = None;
                bail!("node {id} did not end within {PATIENCE:?} after SIGTERM");
            }
            drop(process);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Fills a node's disk, if it has run for a while, or frees it.
    ///
    /// # Errors
    /// Returns an error if it cannot be filled.
    pub fn fill(&self, id: u16, is_full: bool) -> Result<()> {
        let node = self.node(id);
        let process = node.process.lock();
        if !is_full {
            node.volume.free();
        } else if process.is_some() && node.started.lock().elapsed() > STARTED {
            let filled = node.volume.fill();
            filled.with_context(|| format!("the disk of node {id}"))?;
        } else {
            return Ok(());
        }
        node.is_full.store(is_full, Ordering::SeqCst);
        Ok(())
    }

    /// Returns the nodes that have ended although the harness has not ended them. They are not
    /// started again.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn crashed(&self) -> Result<Vec<String>> {
        let mut told = Vec::new();
        for node in &self.nodes {
            let status = match &mut *node.process.lock() {
                Some(process) => process.exited()?,
                None => None,
            };
            if let Some(status) = status {
                let tail = self.tail(node.id);
                told.push(format!(
                    "node {} has ended by itself ({status})\n{tail}",
                    node.id
                ));
            }
        }
        Ok(told)
    }

    /// Waits until each node answers, with any answer.
    ///
    /// # Errors
    /// Returns an error if one ends, or takes too long.
    pub fn wait_answering(&self) -> Result<()> {
        let deadline = Instant::now() + READY;
        for id in self.ids() {
            while !answers(client_address(id)) {
                interrupt::check()?;
                if let [crash, ..] = &self.crashed()?[..] {
                    bail!("{crash}");
                }
                if Instant::now() > deadline {
                    bail!("node {id} does not answer\n{}", self.tail(id));
                }
                thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    /// Runs `kumiki cluster …`, about a node.
    ///
    /// # Errors
    /// Returns the output of the command, if it fails.
    pub fn command(&self, verb: &str, option: &str, id: u16, seconds: u64) -> Result<()> {
        let Program::Kumiki { binary, .. } = &self.program else {
            bail!("only Kumiki has such commands");
        };
        let mut command = Command::new(binary);
        command.args(["cluster", verb, "--cluster"]).arg(&self.file);
        command.args([option, &id.to_string()]);
        command.args(["--timeout", &seconds.to_string()]);
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }

    /// Adds the nodes that lost their disks again.
    ///
    /// # Errors
    /// Returns an error if one cannot be added within `seconds`.
    pub fn add_wiped(&self, seconds: u64) -> Result<usize> {
        let wiped = |node: &&Node| node.is_wiped.load(Ordering::SeqCst);
        let mut added = 0;
        for node in self.nodes.iter().filter(wiped) {
            let id = node.id;
            let deadline = Instant::now() + Duration::from_secs(seconds);
            while let Err(error) = self.command("add", "--node", id, seconds) {
                interrupt::check()?;
                if Instant::now() > deadline {
                    bail!(
                        "node {id}, whose disk was lost, cannot be added: {error:#}\n{}",
                        self.tail(id)
                    );
                }
                thread::sleep(Duration::from_millis(100));
            }
            node.is_wiped.store(false, Ordering::SeqCst);
            added += 1;
        }
        Ok(added)
    }

    /// Returns the last lines that a node has printed.
    #[must_use]
    pub fn tail(&self, id: u16) -> String {
        let text = fs::read(&self.node(id).log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(12)..];
        format!("the end of its log:\n  {}", tail.join("\n  "))
    }

    fn node(&self, id: u16) -> &Node {
        &self.nodes[usize::from(id) - 1]
    }
}

/// Returns the address of a node for clients.
#[must_use]
pub fn client_address(id: u16) -> SocketAddr {
    SocketAddr::from((network::address(id), PORTS[0]))
}

fn answers(address: SocketAddr) -> bool {
    let wait = Duration::from_millis(500);
    let asked = Client::connect_within(address, wait);
    let said = asked.and_then(|mut client| client.try_call(&["PING"]));
    said.is_ok_and(|said| said == Reply::Status("PONG".to_owned()))
}
