//! A cluster on this machine: processes of the real binary, and the file that describes them.
//!
//! | in the cluster's directory | what |
//! |---|---|
//! | `cluster.toml` | the configuration of all nodes |
//! | `node<n>/` | the data of node *n* |
//! | `node<n>.log` | what node *n* has printed since its last start |

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cluster::topology::{self, NodeInfo};

use crate::server::{Program, ServerUnderTest};
use testkit::{Client, Reply};
use xtask::interrupt;

/// The distance of a node's port for other nodes from that for clients.
const FABRIC: u16 = 10_000;
/// The distance of the port for members of the same partition.
const REPLICA: u16 = 20_000;
/// How long nodes may take to find each other.
const TOGETHER: Duration = Duration::from_secs(30);
/// The interval at which the nodes are checked.
const LOOK: Duration = Duration::from_millis(100);
/// How long a node stays dead before it is started again.
const REST: Duration = Duration::from_secs(2);

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of nodes.
    pub nodes: u16,
    /// The partitions and keys.
    pub shape: ClusterFileShape,
    /// The port at which clients find the first node; the others follow.
    pub base_port: u16,
    /// The directory of file, logs and data.
    pub dir: PathBuf,
    /// The transport of messages, as an argument of `kumiki serve`; `None`: its default.
    pub transport: Option<String>,
    /// `true` if a node that has died is started again.
    pub restart: bool,
}

impl Options {
    /// Returns the program with the arguments that follow from these options.
    fn program(&self, of: &Program) -> Program {
        match &self.transport {
            Some(transport) => of.with(&["--transport", transport]),
            None => of.clone(),
        }
    }
}

/// Partitions and keys in the cluster's file.
#[derive(Clone, Debug)]
pub struct ClusterFileShape {
    /// The number of nodes that hold the same partition.
    pub replicas: u16,
    /// Keys with these prefixes are read atomic.
    pub read_atomic: Vec<String>,
}

impl ClusterFileShape {
    /// Returns a shape in which so many nodes hold each partition, and no key is read atomic.
    #[must_use]
    pub fn replicas(replicas: u16) -> ClusterFileShape {
        ClusterFileShape {
            replicas,
            read_atomic: Vec::new(),
        }
    }

    /// Returns the text of the cluster's file.
    fn describe(&self, nodes: &[NodeInfo]) -> String {
        let text = topology::even(nodes, self.replicas.into(), None);
        if self.read_atomic.is_empty() {
            return text;
        }
        format!("read_atomic = {:?}\n\n{text}", self.read_atomic)
    }
}

/// Starts the nodes, prints where they are, and checks them until Ctrl-C.
///
/// # Errors
/// Returns an error if they cannot be started or do not find each other.
pub fn run(program: &Program, options: &Options) -> Result<()> {
    let ports = (0..options.nodes).map(|n| Ports::from(options.base_port.checked_add(n)?));
    let ports: Option<Vec<_>> = ports.collect();
    let ports = ports.context("the ports exceed 65535; choose a smaller --base-port")?;
    let program = options.program(program);
    let mut nodes = ClusterNodes::new(&program, &options.dir, &options.shape, &ports)?;
    nodes.start_all()?;
    let ready = nodes.wait_together();
    // Ctrl-C is a good reason to stop here.
    if ready.is_err() && interrupt::check().is_err() {
        return nodes.stop();
    }
    ready?;
    nodes.announce(options.transport.as_deref())?;
    while interrupt::check().is_ok() {
        thread::sleep(LOOK);
        nodes.look(options.restart)?;
    }
    println!("cluster: stopping");
    nodes.stop()
}

/// The ports of a node, on loopback.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// For clients.
    pub client: u16,
    /// For other nodes.
    pub fabric: u16,
    /// For those that hold the same partition.
    pub replica: u16,
}

impl Ports {
    /// Returns the ports that belong to one for clients, unless they are too great.
    fn from(client: u16) -> Option<Ports> {
        Some(Ports {
            client,
            fabric: client.checked_add(FABRIC)?,
            replica: client.checked_add(REPLICA)?,
        })
    }
}

/// The nodes of a cluster. They are killed when this is dropped.
#[derive(Debug)]
pub struct ClusterNodes {
    program: Program,
    dir: PathBuf,
    file: PathBuf,
    is_replicated: bool,
    /// A prefix of keys that are read atomic.
    read_atomic: Option<String>,
    nodes: Vec<Node>,
}

/// One of them.
#[derive(Debug)]
struct Node {
    id: u16,
    client: SocketAddr,
    fabric: SocketAddr,
    server: Option<ServerUnderTest>,
    died: Option<Instant>,
}

impl ClusterNodes {
    /// Describes nodes 1, 2, … at these ports in `dir`. Starts none.
    ///
    /// # Errors
    /// Returns an error if the directory has the file of another cluster, or cannot be written, or
    /// if the number of nodes does not fit the number of replicas.
    pub fn new(
        program: &Program,
        dir: &Path,
        shape: &ClusterFileShape,
        ports: &[Ports],
    ) -> Result<ClusterNodes> {
        let replicas = usize::from(shape.replicas);
        if ports.is_empty() {
            bail!("a cluster has at least one node");
        }
        if !matches!(replicas, 1 | 3..) || !ports.len().is_multiple_of(replicas) {
            bail!(
                "{} nodes cannot hold partitions of {replicas} replicas: a partition is on one node, \
                 or on three or more, and the number of nodes is a multiple of that",
                ports.len()
            );
        }
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let infos: Vec<_> = (1..)
            .zip(ports)
            .map(|(id, ports)| NodeInfo {
                id: base::NodeId(id),
                client: at(ports.client),
                tls: None,
                fabric: at(ports.fabric),
                replica: (replicas > 1).then(|| at(ports.replica)),
            })
            .collect();
        let text = shape.describe(&infos);
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        let file = dir.join("cluster.toml");
        match fs::read_to_string(&file) {
            Ok(there) if there == text => {}
            Ok(_) => bail!(
                "{} describes another cluster, and its data lies beside it; remove the directory, \
                 or name another with --data",
                file.display()
            ),
            Err(_) => fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()))?,
        }
        let node = |info: NodeInfo| Node {
            id: info.id.0,
            client: info.client,
            fabric: info.fabric,
            server: None,
            died: None,
        };
        Ok(ClusterNodes {
            program: program.clone(),
            dir,
            file,
            is_replicated: replicas > 1,
            read_atomic: shape.read_atomic.first().cloned(),
            nodes: infos.into_iter().map(node).collect(),
        })
    }

    /// As [`ClusterNodes::new`] without replicas, at free ports.
    ///
    /// # Errors
    /// Returns the errors of [`ClusterNodes::new`].
    pub fn anywhere(program: &Program, dir: &Path, count: u16) -> Result<ClusterNodes> {
        ClusterNodes::replicated_anywhere(program, dir, 1, count)
    }

    /// As [`ClusterNodes::new`], at free ports.
    ///
    /// # Errors
    /// Returns the errors of [`ClusterNodes::new`].
    pub fn replicated_anywhere(
        program: &Program,
        dir: &Path,
        replicas: u16,
        count: u16,
    ) -> Result<ClusterNodes> {
        let ports = testkit::free_addresses(3 * usize::from(count))?;
        let ports = ports.chunks(3).map(|ports| Ports {
            client: ports[0].port(),
            fabric: ports[1].port(),
            replica: ports[2].port(),
        });
        let shape = ClusterFileShape::replicas(replicas);
        ClusterNodes::new(program, dir, &shape, &ports.collect::<Vec<_>>())
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the addresses of the nodes for clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.client).collect()
    }

    /// Returns the server of node `index`, from 0 on, if it was started.
    pub fn server(&mut self, index: usize) -> Option<&mut ServerUnderTest> {
        self.nodes[index].server.as_mut()
    }

    /// Starts node `index` without waiting for it, with further arguments.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start(&mut self, index: usize, further: &[&str]) -> Result<()> {
        let program = self.program.with(further);
        let data = self.data(index);
        let node = &mut self.nodes[index];
        node.server = Some(program.start_node(&self.file, node.id, node.client, &data)?);
        node.died = None;
        Ok(())
    }

    /// Starts all of them.
    ///
    /// # Errors
    /// Returns an error if one cannot be started.
    pub fn start_all(&mut self) -> Result<()> {
        (0..self.count()).try_for_each(|index| self.start(index, &[]))
    }

    /// Waits until each answers, and finds all others.
    ///
    /// # Errors
    /// Returns an error if one of them ends, or it takes too long; the message has the end of its
    /// log.
    pub fn wait_together(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            let Some(server) = &mut node.server else {
                bail!("node {} was not started", node.id);
            };
            server
                .wait_ready()
                .with_context(|| format!("node {}", node.id))?;
        }
        let deadline = Instant::now() + TOGETHER;
        for node in &self.nodes {
            while !is_whole(node.client) {
                interrupt::check()?;
                if Instant::now() > deadline {
                    let server = node.server.as_ref().expect("started");
                    bail!(
                        "node {} does not find the others\n{}",
                        node.id,
                        server.log_tail()
                    );
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Stops the running nodes, all at once.
    ///
    /// # Errors
    /// Returns an error if one does not end well.
    pub fn stop(&mut self) -> Result<()> {
        thread::scope(|scope| {
            let stop = |node: &mut Node| {
                let id = node.id;
                let server = node.server.take();
                scope.spawn(move || {
                    server.map_or(Ok(()), |mut server| {
                        server.stop().with_context(|| format!("node {id}"))
                    })
                })
            };
            let stopping: Vec<_> = self.nodes.iter_mut().map(stop).collect();
            let mut ended = stopping
                .into_iter()
                .map(|t| t.join().expect("it stops a node"));
            ended.try_for_each(|ended| ended)
        })
    }

    fn data(&self, index: usize) -> PathBuf {
        self.dir.join(format!("node{}", self.nodes[index].id))
    }

    /// Prints the nodes and how to use them.
    fn announce(&mut self, transport: Option<&str>) -> Result<()> {
        println!("cluster: {}", self.file.display());
        for index in 0..self.count() {
            let data = self.data(index);
            let node = &self.nodes[index];
            let server = node.server.as_ref().context("all were started")?;
            let pid = server.pid().as_raw_nonzero();
            let log = data.with_extension("log");
            println!(
                "  node {}: {}, process {pid}, log {}",
                node.id,
                node.client,
                log.display()
            );
        }
        println!("{}", self.of_rust_clients(transport));
        let port = self.nodes[0].client.port();
        println!("try:");
        println!("  redis-cli -c -p {port} mset a 1 b 2 c 3");
        println!("  redis-cli -p {port} mget a b c");
        if let Some(prefix) = &self.read_atomic {
            println!("  redis-cli -p {port} mset {prefix}x 1 {prefix}y 1");
            println!("  redis-cli -p {port} mget {prefix}x {prefix}y");
        }
        println!("  redis-cli -p {port} cluster nodes");
        if self.is_replicated
            && let Program::Kumiki { binary, .. } = &self.program
        {
            let (binary, file) = (binary.display(), self.file.display());
            println!("  {binary} cluster status --cluster {file}");
        }
        let last = self.nodes.last().and_then(|node| node.server.as_ref());
        if let Some(last) = last {
            println!("  kill -9 {}", last.pid().as_raw_nonzero());
        }
        println!("Ctrl-C stops all nodes");
        Ok(())
    }

    /// Returns a line on where Rust clients connect, and which transport they can choose.
    fn of_rust_clients(&self, transport: Option<&str>) -> String {
        let fabrics = self.nodes.iter().map(|node| node.fabric.to_string());
        let at = fabrics.collect::<Vec<_>>().join(" ");
        let way = match transport {
            Some(way @ ("shm" | "verbs" | "shm-send" | "verbs-send")) => {
                format!("; by {way} if their options say so, too")
            }
            _ => String::new(),
        };
        format!("Rust clients: {at}{way}")
    }

    /// Reports nodes that have died, and starts them again if that is requested.
    fn look(&mut self, restart: bool) -> Result<()> {
        for index in 0..self.count() {
            let data = self.data(index);
            let line = self
                .program
                .node_line(&self.file, self.nodes[index].id, &data)?;
            let node = &mut self.nodes[index];
            if let Some(server) = &mut node.server
                && let Some(status) = server.exited()?
            {
                println!("cluster: node {} has ended ({status})", node.id);
                if !status.success() {
                    println!("{}", server.log_tail());
                }
                node.server = None;
                node.died = Some(Instant::now());
                if !restart {
                    println!("start it again with: {}", line.join(" "));
                }
            }
            if restart && node.died.is_some_and(|died| died.elapsed() > REST) {
                let id = node.id;
                self.start(index, &[])?;
                println!("cluster: node {id} was started again");
            }
        }
        Ok(())
    }
}

/// Returns `true` if a node says that it finds all others.
fn is_whole(client: SocketAddr) -> bool {
    let asked = Client::try_connect(client);
    let said = asked.and_then(|mut client| client.try_call(&["CLUSTER", "INFO"]));
    matches!(said, Ok(Reply::Bulk(text)) if text.starts_with(b"cluster_state:ok"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kumiki() -> Program {
        Program::kumiki(PathBuf::from("kumiki"), vec!["--ephemeral".to_owned()])
    }

    #[test]
    fn the_file_is_one_that_nodes_read_and_stays_that_of_its_data() {
        let dir = tempfile::tempdir().unwrap();
        let ports = [7001, 7002].map(|port| Ports::from(port).unwrap());
        let new = |replicas, ports| {
            ClusterNodes::new(
                &kumiki(),
                dir.path(),
                &ClusterFileShape::replicas(replicas),
                ports,
            )
        };
        let nodes = new(1, &ports).unwrap();
        let text = fs::read_to_string(&nodes.file).unwrap();
        let topology = cluster::Topology::parse(&text, "cluster.toml").unwrap();
        assert_eq!(topology.nodes().len(), 2);
        assert_eq!(nodes.addresses()[1].port(), 7002);
        let line = kumiki().node_line(&nodes.file, 2, &nodes.data(1)).unwrap();
        let line = line.join(" ");
        assert!(
            line.contains("--node 2") && !line.contains("--data"),
            "{line}"
        );
        drop(new(1, &ports).unwrap());
        let other = new(1, &ports[..1]).unwrap_err();
        assert!(other.to_string().contains("another cluster"), "{other}");
    }

    #[test]
    fn keys_are_declared_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let ports = [7001, 7002].map(|port| Ports::from(port).unwrap());
        let shape = ClusterFileShape {
            replicas: 1,
            read_atomic: vec!["ra:".to_owned(), "a \"b\"".to_owned()],
        };
        let nodes = ClusterNodes::new(&kumiki(), dir.path(), &shape, &ports).unwrap();
        let topology = cluster::Topology::load(&nodes.file).unwrap();
        let declared: Vec<_> = topology.read_atomic().prefixes().collect();
        assert_eq!(declared, [&b"ra:"[..], b"a \"b\""]);
    }

    #[test]
    fn nodes_and_the_user_are_told_how_messages_travel() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options {
            nodes: 1,
            shape: ClusterFileShape::replicas(1),
            base_port: 7001,
            dir: dir.path().to_owned(),
            transport: None,
            restart: false,
        };
        let ports = [Ports::from(7001).unwrap()];
        let nodes = ClusterNodes::new(&kumiki(), dir.path(), &options.shape, &ports).unwrap();
        let line = |options: &Options| {
            let program = options.program(&kumiki());
            let line = program.node_line(&nodes.file, 1, &nodes.data(0)).unwrap();
            line.join(" ")
        };
        let said = |options: &Options| nodes.of_rust_clients(options.transport.as_deref());
        assert!(!line(&options).contains("--transport"));
        assert_eq!(said(&options), "Rust clients: 127.0.0.1:17001");
        options.transport = Some("shm".to_owned());
        let line = line(&options);
        assert!(line.contains("--ephemeral --transport shm"), "{line}");
        assert!(said(&options).contains("17001; by shm"));
    }

    #[test]
    fn replicas_are_on_nodes_that_follow_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let ports: Vec<_> = (7001..7007).flat_map(Ports::from).collect();
        let nodes = ClusterNodes::new(
            &kumiki(),
            dir.path(),
            &ClusterFileShape::replicas(3),
            &ports,
        )
        .unwrap();
        let topology = cluster::Topology::load(&nodes.file).unwrap();
        let holders = topology.partitions().iter().map(|one| one.nodes.clone());
        assert!(holders.eq([[1, 2, 3], [4, 5, 6]].map(|ids| ids.map(base::NodeId).to_vec())));
        for (replicas, count) in [(2, 6), (3, 4), (0, 3)] {
            let other = tempfile::tempdir().unwrap();
            let shape = ClusterFileShape::replicas(replicas);
            let refused = ClusterNodes::new(&kumiki(), other.path(), &shape, &ports[..count]);
            let said = refused.unwrap_err().to_string();
            assert!(said.contains("three or more"), "{said}");
        }
    }
}
