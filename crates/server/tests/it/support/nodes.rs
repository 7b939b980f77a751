//! Several servers in this process, nodes of one cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::NodeId;
use cluster::{Timeouts, Topology, slot};
use kumiki_server::{Config, Membership, Running, serve};
use store::{Db, Options};
use testkit::cluster_file::{NodeAddresses, describe};
use testkit::{Client, Reply};

use super::{THREADS, connect};

/// A cluster of servers; each can be stopped and started again.
pub(crate) struct Nodes {
    pub(crate) topology: Arc<Topology>,
    pub(crate) options: NodesOptions,
    dirs: Vec<tempfile::TempDir>,
    running: Vec<Option<(Db, Running)>>,
}

/// How the servers are set up.
#[derive(Clone)]
pub(crate) struct NodesOptions {
    pub(crate) count: u16,
    /// `true` if data is kept on disk.
    pub(crate) durable: bool,
    /// With a certificate in it, nodes also listen for clients that speak TLS, at addresses of the
    /// cluster's file.
    pub(crate) config: Config,
    pub(crate) timeouts: Timeouts,
    pub(crate) encryption: fabric::tcp::Encryption,
}

impl Default for NodesOptions {
    /// Returns three nodes that keep data, with time-outs that suit a test.
    fn default() -> NodesOptions {
        NodesOptions {
            count: 3,
            durable: true,
            config: super::config(),
            timeouts: Timeouts {
                doubt: Duration::from_millis(300),
                forget: Duration::from_millis(500),
                unreachable: Duration::from_millis(500),
                ..Timeouts::default()
            },
            encryption: fabric::tcp::Encryption::Auto,
        }
    }
}

/// Returns a cluster of so many nodes with the default options.
pub(crate) fn nodes(count: u16) -> Nodes {
    Nodes::start(NodesOptions {
        count,
        ..NodesOptions::default()
    })
}

impl Nodes {
    pub(crate) fn start(options: NodesOptions) -> Nodes {
        let count = options.count;
        let mut nodes = Nodes {
            topology: Arc::new(topology(count, options.config.tls.is_some())),
            options,
            dirs: (0..count).map(|_| tempfile::tempdir().unwrap()).collect(),
            running: (0..count).map(|_| None).collect(),
        };
        (1..=count).for_each(|node| nodes.start_node(node));
        nodes
    }

    pub(crate) fn start_node(&mut self, node: u16) {
        let at = usize::from(node - 1);
        let dir = self.dirs[at].path();
        let options = Options {
            workers: THREADS + 2,
            ..match self.options.durable {
                true => Options::in_dir(dir),
                false => Options::default(),
            }
        };
        let db = Db::open(options).unwrap();
        let mut tls = self.options.config.tls.clone();
        if let Some(tls) = &mut tls {
            tls.listen = self.tls_address(node);
        }
        let config = Config {
            listen: self.address(node),
            tls,
            data: self.options.durable.then(|| dir.to_path_buf()),
            cluster: Some(Membership {
                topology: Arc::clone(&self.topology),
                secrets: self.topology.link_secrets(),
                node: NodeId(node),
                listen: None,
                timeouts: self.options.timeouts,
                transport: fabric::tcp::Transport::Tcp,
                encryption: self.options.encryption,
                verbs: None,
            }),
            ..self.options.config.clone()
        };
        let running = serve(db.clone(), config).unwrap();
        self.running[at] = Some((db, running));
    }

    /// Stops a node in good order.
    pub(crate) fn stop_node(&mut self, node: u16) {
        let (db, running) = self.running[usize::from(node - 1)].take().expect("it runs");
        running.stopper().stop();
        running.wait().unwrap();
        db.close().unwrap();
    }

    pub(crate) fn db(&self, node: u16) -> &Db {
        &self.running[usize::from(node - 1)]
            .as_ref()
            .expect("it runs")
            .0
    }

    pub(crate) fn running(&self, node: u16) -> &Running {
        &self.running[usize::from(node - 1)]
            .as_ref()
            .expect("it runs")
            .1
    }

    /// Returns where clients of a node connect.
    pub(crate) fn address(&self, node: u16) -> SocketAddr {
        self.topology.node(NodeId(node)).unwrap().client
    }

    /// Returns where clients of a node connect that speak TLS.
    pub(crate) fn tls_address(&self, node: u16) -> SocketAddr {
        let node = self.topology.node(NodeId(node)).unwrap();
        node.tls.expect("it speaks TLS")
    }

    pub(crate) fn client(&self, node: u16) -> Client {
        connect(self.address(node))
    }

    /// Returns the node that has a key.
    pub(crate) fn owner(&self, key: &str) -> u16 {
        self.topology
            .node_of(self.topology.partition_of(key.as_bytes()))
            .0
    }

    /// Returns a key that begins with `name` and is of this node, of another slot for each `name`.
    pub(crate) fn key_of(&self, node: u16, name: &str) -> String {
        let keys = (0..).map(|number: u32| format!("{name}:{number}"));
        let mut keys = keys.filter(|key| self.owner(key) == node);
        keys.next().expect("keys without end")
    }

    /// Returns a value, asked of the node that has it.
    pub(crate) fn get(&self, key: &str) -> Reply {
        self.client(self.owner(key)).call(&["GET", key])
    }

    /// Waits until a client of this node gets something else than an error that asks to try again.
    pub(crate) fn until_served(&self, node: u16, args: &[&str]) -> Reply {
        let begin = Instant::now();
        loop {
            let reply = self.client(node).call(args);
            let again = matches!(&reply, Reply::Error(text)
                if text.starts_with("TRYAGAIN") || text.starts_with("CLUSTERDOWN"));
            if !again || begin.elapsed() > Duration::from_secs(20) {
                return reply;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the place of the only node of a cluster.
pub(crate) fn membership_alone() -> Membership {
    let topology = topology(1, false);
    Membership {
        secrets: topology.link_secrets(),
        topology: Arc::new(topology),
        node: NodeId(1),
        listen: None,
        timeouts: Timeouts::default(),
        transport: fabric::tcp::Transport::Tcp,
        encryption: fabric::tcp::Encryption::Auto,
        verbs: None,
    }
}

/// Returns the slot of a key.
pub(crate) fn slot_of(key: &str) -> u16 {
    slot::of(key.as_bytes())
}

/// Returns a cluster of nodes on free ports, with equal shares of the slots.
fn topology(count: u16, has_tls: bool) -> Topology {
    let mut addresses = NodeAddresses::free(usize::from(count), false);
    if has_tls {
        addresses = NodeAddresses::with_tls(addresses);
    }
    let text = format!(
        "secret = \"of the tests, long enough\"\n{}",
        describe(&addresses, 1)
    );
    Topology::parse(&text, "the test's file").unwrap()
}
