//! Processes of the server, which form a cluster on this machine.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::NodeId;
use client::Client;
use cluster::topology::{self, NodeInfo};

use crate::error::RunError;
use crate::machine;

use super::atomicity_protocol::READ_ATOMIC;
use super::cluster_transport::ClusterTransport;

/// How long a server may take to report its figures.
const INFO_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of attempts to start servers whose ports other processes have, and the pause between
/// them.
const TRIES: usize = 5;
const AGAIN: Duration = Duration::from_millis(300);
/// How long a Rust client waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to listen.
const READY: Duration = Duration::from_secs(60);

/// The processes. They are killed when this is dropped.
pub(crate) struct KumikiCluster {
    binary: PathBuf,
    dir: PathBuf,
    nodes: Vec<NodeInfo>,
    shape: ClusterShape,
    secret: String,
    running: Vec<Child>,
}

/// The shape of the processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterShape {
    /// How many.
    pub(crate) count: usize,
    /// How many of them hold a partition.
    pub(crate) replicas: usize,
    /// Threads of each that serve clients; `None`: its share of the processors.
    pub(crate) threads: Option<usize>,
    /// `true` if they keep logs.
    pub(crate) logged: bool,
    /// How their messages travel.
    pub(crate) transport: ClusterTransport,
    /// Where their messages arrive; clients that speak RESP find them on loopback.
    pub(crate) address: IpAddr,
}

impl ClusterShape {
    /// Returns a shape with a partition for each process, in memory only.
    pub(crate) fn partitions(count: usize) -> ClusterShape {
        ClusterShape {
            count,
            replicas: 1,
            threads: None,
            logged: false,
            transport: ClusterTransport::Tcp,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// Returns a shape with one partition for all processes, on disk.
    pub(crate) fn replicas(count: usize) -> ClusterShape {
        ClusterShape {
            replicas: count,
            logged: true,
            ..ClusterShape::partitions(count)
        }
    }
}

impl KumikiCluster {
    /// Describes them in `dir`, where their logs go, too; starts none. If there are several
    /// partitions, keys with the prefix [`READ_ATOMIC`] are read atomic.
    pub(crate) fn new(
        binary: &Path,
        dir: &Path,
        shape: ClusterShape,
    ) -> Result<KumikiCluster, RunError> {
        let has_replicas = shape.replicas > 1;
        let each = if has_replicas { 3 } else { 2 };
        let addresses = testkit::free_addresses(each * shape.count)
            .map_err(|error| RunError::failed("looking for ports")(&error))?;
        let node = |(id, of): (u16, &[SocketAddr])| NodeInfo {
            id: NodeId(id),
            client: of[0],
            tls: None,
            fabric: SocketAddr::new(shape.address, of[1].port()),
            replica: of.get(2).copied(),
        };
        let nodes: Vec<NodeInfo> = (1..).zip(addresses.chunks(each)).map(node).collect();
        // Other processes can connect to an address that is not loopback while the servers run.
        let length = if shape.address.is_loopback() { 0 } else { 32 };
        let secret: String = std::iter::repeat_with(fastrand::alphanumeric)
            .take(length)
            .collect();
        let given_secret = Some(secret.as_str()).filter(|secret| !secret.is_empty());
        let text = topology::even(&nodes, shape.replicas, given_secret);
        let text = match has_replicas {
            true => text,
            false => format!("read_atomic = [{READ_ATOMIC:?}]\n\n{text}"),
        };
        std::fs::write(dir.join("cluster.toml"), text)
            .map_err(|error| RunError::failed("describing the cluster")(&error))?;
        Ok(KumikiCluster {
            binary: binary.to_owned(),
            dir: dir.to_owned(),
            nodes,
            shape,
            secret,
            running: Vec::new(),
        })
    }

    /// Returns the addresses for Rust clients.
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.fabric)
    }

    /// Returns the addresses for RESP clients.
    pub(crate) fn clients(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.client)
    }

    /// Returns the number of reads of several read-atomic keys that they have run, and the number
    /// of these with more than one round. A server that does not answer counts as none.
    pub(crate) fn ramp_reads(&self) -> [u64; 2] {
        let output = self.clients().filter_map(|at| info(at).ok());
        output.fold([0; 2], |[reads, several], text| {
            let figure = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|number| number.parse().ok()).unwrap_or(0)
            };
            [
                reads + figure("cluster_ramp_reads:"),
                several + figure("cluster_ramp_second_rounds:"),
            ]
        })
    }

    /// Returns a Rust client; `reads` says where RAMP's reads run. Its writes are coordinated by servers.
    pub(crate) fn connect(&self, reads: client::Reads) -> Result<Client, RunError> {
        self.connect_with(reads, client::WriteCoordinator::Node)
    }

    /// As [`KumikiCluster::connect`]; `writes` says where writes are coordinated.
    pub(crate) fn connect_with(
        &self,
        reads: client::Reads,
        writes: client::WriteCoordinator,
    ) -> Result<Client, RunError> {
        let transport = self.shape.transport;
        let mut options = client::Options::new(&self.secret);
        (options.reads, options.writes) = (reads, writes);
        options.transport = transport.of_client();
        options.one_sided = transport.is_one_sided();
        options.timeout = ANSWER_TIMEOUT;
        let client = Client::connect(self.addresses().collect::<Vec<_>>(), options);
        client.map_err(|error| RunError::failed("connecting")(&error))
    }

    /// Starts all of them, and waits until they listen.
    pub(crate) fn start(&mut self) -> Result<(), RunError> {
        for _ in 0..TRIES {
            match self.try_start() {
                // Mostly the port is the near end of another process's connection, and not for
                // long.
                Err(RunError::Failed(what)) if what.contains("Address already in use") => {
                    self.kill();
                    std::thread::sleep(AGAIN);
                }
                started => return started,
            }
        }
        self.try_start()
    }

    fn try_start(&mut self) -> Result<(), RunError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = (cores / self.nodes.len()).max(1);
        let threads = self.shape.threads.unwrap_or(share).to_string();
        for node in &self.nodes {
            let name = format!("node{}", node.id);
            let output = File::create(self.dir.join(format!("{name}.log")));
            let output = output.and_then(|file| Ok((file.try_clone()?, file)));
            let (out, err) = output.map_err(|error| RunError::failed("making a file")(&error))?;
            let mut command = Command::new(&self.binary);
            command.args(["serve", "--threads", &threads, "--node"]);
            command.arg(node.id.to_string());
            command.arg("--cluster").arg(self.dir.join("cluster.toml"));
            command.args(["--transport", self.shape.transport.argument()]);
            if self.shape.logged {
                command.arg("--data").arg(self.dir.join(name));
            } else {
                command.arg("--ephemeral");
            }
            command.stdin(Stdio::null()).stdout(out).stderr(err);
            let child = command.spawn();
            self.running
                .push(child.map_err(|error| RunError::failed("starting a server")(&error))?);
        }
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<(), RunError> {
        let deadline = Instant::now() + READY;
        for (node, child) in self.nodes.iter().zip(&mut self.running) {
            while std::net::TcpStream::connect(node.fabric).is_err() {
                let ended = child.try_wait().ok().flatten();
                if ended.is_some() || Instant::now() > deadline {
                    let output = self.dir.join(format!("node{}.log", node.id));
                    let output = std::fs::read_to_string(output).unwrap_or_default();
                    let last = output.lines().last().unwrap_or("it said nothing");
                    let what = format!("node {} does not listen: {last}", node.id);
                    return Err(RunError::Failed(what));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    /// Returns the last output of each of them.
    pub(crate) fn last_output(&self) -> String {
        let last = |node: &NodeInfo| {
            let output = self.dir.join(format!("node{}.log", node.id));
            let output = std::fs::read_to_string(output).unwrap_or_default();
            output.lines().last().map(str::to_owned)
        };
        let all: Vec<String> = self.nodes.iter().filter_map(last).collect();
        all.join("; ")
    }

    /// Returns the processor time that each of them has used, in seconds.
    pub(crate) fn cpu_of_each(&self) -> Vec<f64> {
        let used = self.running.iter().map(|child| machine::cpu_of(child.id()));
        used.collect()
    }

    /// Returns the processor time that they have used, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu_of_each().into_iter().sum()
    }

    /// Kills them, as a power failure would.
    pub(crate) fn kill(&mut self) {
        for child in &mut self.running {
            // An error means that it has ended already, which `wait` reports.
            let _ = child.kill();
        }
        for mut child in self.running.drain(..) {
            let _ = child.wait();
        }
    }
}

/// Returns a server's figures of its cluster.
fn info(at: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(INFO_TIMEOUT))?;
    stream.write_all(b"*2\r\n$4\r\nINFO\r\n$7\r\ncluster\r\n*1\r\n$4\r\nQUIT\r\n")?;
    let mut output = String::new();
    stream.read_to_string(&mut output)?;
    Ok(output)
}

impl Drop for KumikiCluster {
    fn drop(&mut self) {
        self.kill();
    }
}
