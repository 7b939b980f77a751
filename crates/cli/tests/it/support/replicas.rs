//! A cluster of processes of the real binary whose partitions are replicated.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::client::Answer;
use testkit::cluster_file::{NodeAddresses, describe};
use testkit::process::Server;
use testkit::relay::{Passing, Relay};
use testkit::wait::PATIENCE;
use testkit::{Client, Frame, eventually, eventually_some};

use super::files::exchange;
use super::process::{kumiki, run};

/// The time without a leader after which another one is elected.
const ELECTION: &str = "300ms";
/// The name of the cluster's file.
const FILE: &str = "cluster.toml";

/// Processes, numbered from 1 on as in the file. They are killed when this is dropped.
pub(crate) struct Replicas {
    servers: Vec<Option<Server>>,
    addresses: Vec<NodeAddresses>,
    per_partition: usize,
    further: Vec<String>,
    /// The relays at the addresses that replicas know of each other, with the addresses on which they listen.
    relays: Vec<(Relay, SocketAddr)>,
    dir: TempDir,
}

/// Options of nodes whose leader is to stay the leader. With the short time-out of the other tests, a slow machine
/// elects another one at any time.
pub(crate) const STEADY: [&str; 2] = ["--election-timeout", "2s"];

impl Replicas {
    /// Starts so many partitions with so many nodes each, and waits until all have leaders.
    pub(crate) fn start(partitions: usize, per_partition: usize) -> Replicas {
        Replicas::start_with(partitions, per_partition, &[])
    }

    /// As [`Replicas::start`], with this at the top of the cluster's file.
    pub(crate) fn start_declared(partitions: usize, per_partition: usize, top: &str) -> Replicas {
        Replicas::begin(partitions, per_partition, &[], top, |_| ())
    }

    /// As [`Replicas::start`], with further arguments of each node. With --tls-cert among them, the file has
    /// addresses for clients that speak TLS.
    pub(crate) fn start_with(
        partitions: usize,
        per_partition: usize,
        further: &[&str],
    ) -> Replicas {
        Replicas::begin(partitions, per_partition, further, "", |_| ())
    }

    /// As [`Replicas::start_with`]. `prepare` gets the directory of each node's data before the node starts.
    pub(crate) fn start_prepared(
        partitions: usize,
        per_partition: usize,
        further: &[&str],
        prepare: impl FnMut(&Path),
    ) -> Replicas {
        Replicas::begin(partitions, per_partition, further, "", prepare)
    }

    /// As [`Replicas::start_with`] and [`Replicas::start_declared`].
    pub(crate) fn start_declared_with(
        partitions: usize,
        per_partition: usize,
        further: &[&str],
        top: &str,
    ) -> Replicas {
        Replicas::begin(partitions, per_partition, further, top, |_| ())
    }

    /// Starts one partition with so many nodes, further arguments of each, and relays between them that change
    /// the bytes that pass as `change` says.
    pub(crate) fn start_attacked<C>(
        count: usize,
        further: &[&str],
        change: impl Fn() -> C,
    ) -> Replicas
    where
        C: FnMut(Passing<'_>) + Send + 'static,
    {
        let mut replicas = Replicas::prepare(1, count, further, "");
        for node in &replicas.addresses {
            let known = node.replica.expect("it is replicated");
            let listens = testkit::free_address().expect("a free port");
            let relay = Relay::start_at(known, listens, change()).expect("a relay");
            replicas.relays.push((relay, listens));
        }
        (1..=count).for_each(|node| replicas.start_node(node));
        replicas.wait_until_led();
        replicas
    }

    fn begin(
        partitions: usize,
        per_partition: usize,
        further: &[&str],
        top: &str,
        mut prepare: impl FnMut(&Path),
    ) -> Replicas {
        let mut said = String::new();
        // Another process may take a port that was found free.
        for _ in 0..5 {
            let mut replicas = Replicas::prepare(partitions, per_partition, further, top);
            let nodes = 1..=replicas.count();
            for node in nodes.clone() {
                prepare(Path::new(&replicas.data(node)));
            }
            match { nodes }.try_for_each(|node| replicas.try_start_node(node)) {
                Ok(()) => {
                    replicas.wait_until_led();
                    return replicas;
                }
                Err(text) => said = text,
            }
        }
        panic!("the cluster does not start: {said}");
    }

    fn prepare(partitions: usize, per_partition: usize, further: &[&str], top: &str) -> Replicas {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let count = partitions * per_partition;
        let mut addresses = NodeAddresses::free(count, true);
        if further.contains(&"--tls-cert") {
            addresses = NodeAddresses::with_tls(addresses);
        }
        let text = format!("{top}\n{}", describe(&addresses, per_partition));
        std::fs::write(dir.path().join(FILE), text).expect("the cluster's file");
        Replicas {
            servers: (0..count).map(|_| None).collect(),
            addresses,
            per_partition,
            further: further.iter().map(|arg| (*arg).to_owned()).collect(),
            relays: Vec::new(),
            dir,
        }
    }

    /// Starts a node. If it does not start, returns its errors.
    pub(crate) fn try_start_node(&mut self, node: usize) -> Result<(), String> {
        let (dir, further) = (self.dir.path(), &self.further);
        let build = |_, _: &Path| {
            let mut command = kumiki();
            command.args(["serve", "--threads", "2"]).args(further);
            if !further.iter().any(|arg| arg == "--election-timeout") {
                command.args(["--election-timeout", ELECTION]);
            }
            if let Some((_, listens)) = self.relays.get(node - 1) {
                command.args(["--replica-listen", &listens.to_string()]);
            }
            command.arg("--cluster").arg(dir.join(FILE));
            command.args(["--node", &node.to_string()]);
            command.arg("--data").arg(dir.join(format!("node{node}")));
            command
        };
        let server = Server::insist_at(self.address(node), build)?;
        self.servers[node - 1] = Some(server);
        Ok(())
    }

    /// Starts a node that was killed or stopped.
    pub(crate) fn start_node(&mut self, node: usize) {
        self.try_start_node(node).expect("it starts again");
    }

    /// Adds a node to the cluster's file, as a replica of the only partition. Returns its number; it does
    /// not run.
    pub(crate) fn declare_another(&mut self) -> usize {
        self.addresses.extend(NodeAddresses::free(1, true));
        self.servers.push(None);
        self.per_partition += 1;
        let text = describe(&self.addresses, self.per_partition);
        std::fs::write(self.file(), text).expect("the cluster's file");
        self.count()
    }

    /// Returns the path of the cluster's file.
    pub(crate) fn file(&self) -> String {
        self.dir.path().join(FILE).display().to_string()
    }

    /// Kills a node as a crash would.
    pub(crate) fn kill_node(&mut self, node: usize) {
        self.servers[node - 1].take().expect("it runs").kill();
    }

    /// Stops a node as an operator would.
    pub(crate) fn stop_node(&mut self, node: usize) -> ExitStatus {
        self.servers[node - 1].take().expect("it runs").terminate()
    }

    /// Pauses a node, while its connections stay.
    pub(crate) fn pause_node(&self, node: usize) {
        self.servers[node - 1].as_ref().expect("it runs").pause();
    }

    /// Lets a paused node continue.
    pub(crate) fn resume_node(&self, node: usize) {
        self.servers[node - 1].as_ref().expect("it runs").resume();
    }

    /// Removes the data of a node that does not run from its disk.
    pub(crate) fn wipe_node(&self, node: usize) {
        std::fs::remove_dir_all(self.data(node)).expect("its data");
    }

    /// Exchanges the data of two nodes that do not run.
    pub(crate) fn exchange_data(&self, one: usize, other: usize) {
        exchange(Path::new(&self.data(one)), Path::new(&self.data(other)));
    }

    /// Returns the address at which a node's metrics are, for nodes with --admin 127.0.0.1:0.
    pub(crate) fn admin(&self, node: usize) -> SocketAddr {
        let line = self.servers[node - 1]
            .as_ref()
            .expect("it runs")
            .only_line();
        let (_, rest) = line.split_once("http://").expect("an address");
        let (address, _) = rest.split_once("/metrics").expect("a path");
        address.parse().expect("an address")
    }

    /// Returns the log of a node since it was started.
    pub(crate) fn log(&self, node: usize) -> String {
        self.servers[node - 1].as_ref().expect("it runs").errors()
    }

    /// Returns the address for clients of a node.
    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.addresses[node - 1].client
    }

    /// Returns the address for clients of a node that speak TLS.
    pub(crate) fn tls_address(&self, node: usize) -> SocketAddr {
        self.addresses[node - 1].tls.expect("it speaks TLS")
    }

    /// Returns the addresses for nodes and Rust clients.
    pub(crate) fn fabrics(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.addresses.iter().map(|node| node.fabric)
    }

    /// Returns the number of nodes.
    pub(crate) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Returns the nodes that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = usize> + '_ {
        let servers = (1..).zip(&self.servers);
        servers.filter_map(|(node, server)| server.is_some().then_some(node))
    }

    /// Returns a node's report on its replica: the value of the line with that name.
    pub(crate) fn said(&self, node: usize, name: &str) -> Option<String> {
        let mut client = Client::try_connect(self.address(node)).ok()?;
        let Answer::Reply(frame) = client.answer(&["CLUSTER", "REPLICATION", "STATUS"]) else {
            return None;
        };
        let text = String::from_utf8(frame.bytes()?.to_vec()).ok()?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(known, _)| *known == name)?;
        Some(value.to_owned())
    }

    /// Returns the node that leads a partition, numbered from 1 on; waits for it.
    pub(crate) fn leader(&self, partition: usize) -> usize {
        let first = (partition - 1) * self.per_partition + 1;
        let nodes = first..first + self.per_partition;
        eventually_some("a leader", || {
            let leads = |node: &usize| {
                self.said(*node, "role")
                    .is_some_and(|role| role == "leader")
            };
            let running: Vec<usize> = self.running().collect();
            let mut here = nodes.clone().filter(|node| running.contains(node));
            here.find(leads)
        })
    }

    fn wait_until_led(&self) {
        (1..=self.count() / self.per_partition).for_each(|partition| {
            self.leader(partition);
        });
    }

    /// Runs `kumiki cluster`. Returns its exit code, its output and its errors.
    pub(crate) fn command(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let file = self.dir.path().join(FILE).display().to_string();
        run(&[&["cluster"], args, &["--cluster", &file]].concat())
    }

    /// Hands over leadership by `kumiki cluster transfer`. It is refused while the leader has not
    /// heard from another member for a moment, so it is repeated until it succeeds.
    #[track_caller]
    pub(crate) fn transfer(&self, args: &[&str]) {
        let args = [&["transfer"], args].concat();
        eventually("leadership is handed over", || {
            let (code, said, errors) = self.command(&args);
            if code != Some(0) {
                eprintln!("transfer: {said}{errors}");
            }
            code == Some(0)
        });
    }

    /// Returns the data directory of a node.
    pub(crate) fn data(&self, node: usize) -> String {
        let data = self.dir.path().join(format!("node{node}"));
        data.display().to_string()
    }

    /// Returns a client that follows redirects.
    pub(crate) fn client(&self) -> Follower {
        Follower::of(self.addresses.iter().map(|node| node.client).collect())
    }
}

/// A client that follows redirects, and connects to another node when its connection breaks.
pub(crate) struct Follower {
    addresses: Vec<SocketAddr>,
    at: usize,
    client: Option<(SocketAddr, Client)>,
}

/// The result of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It was answered.
    Reply(Frame),
    /// It may have taken effect or not.
    Unknown(String),
}

impl Follower {
    /// Returns a client of the nodes at these addresses.
    pub(crate) fn of(addresses: Vec<SocketAddr>) -> Follower {
        Follower {
            addresses,
            at: 0,
            client: None,
        }
    }

    /// Sends a command on its connection, if it has one, and closes it, as a client that is killed.
    pub(crate) fn die_after<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        if let Some((_, client)) = self.client.as_mut() {
            client.push(args);
            // A connection that the node has closed takes no command.
            drop(client.flush());
        }
        self.leave();
    }

    /// Sends a command until it is answered, or its outcome is unknown.
    ///
    /// # Panics
    /// Panics if that takes too long.
    #[track_caller]
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Outcome {
        let begin = Instant::now();
        loop {
            let answer = self.try_call(args);
            let said = match answer {
                None => "no server listens".to_owned(),
                Some(Answer::Reply(frame)) if !frame.is_error() => return Outcome::Reply(frame),
                Some(Answer::Reply(frame)) => {
                    let text = String::from_utf8_lossy(frame.bytes().unwrap_or_default());
                    let text = text.into_owned();
                    match text.split(' ').next() {
                        Some("MOVED") => self.follow(&text),
                        Some("CLUSTERDOWN" | "TRYAGAIN" | "LOADING") => self.leave(),
                        Some("UNKNOWN") => return Outcome::Unknown(text),
                        _ => return Outcome::Reply(frame),
                    }
                    text
                }
                Some(broken) => {
                    self.leave();
                    return Outcome::Unknown(format!("{broken:?}"));
                }
            };
            assert!(
                begin.elapsed() < PATIENCE,
                "no answer within {PATIENCE:?}: {said}"
            );
        }
    }

    /// As [`Follower::call`], repeated while the outcome is unknown.
    #[track_caller]
    pub(crate) fn insist<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Frame {
        loop {
            if let Outcome::Reply(frame) = self.call(args) {
                return frame;
            }
        }
    }

    /// Sends commands as one block, on one connection. `None`: it was refused, or its outcome is
    /// unknown.
    pub(crate) fn block(&mut self, commands: &[&[&str]]) -> Option<Frame> {
        let all = [&[&["MULTI"][..]], commands, &[&["EXEC"][..]]].concat();
        let mut last = None;
        for args in all {
            match self.try_call(args) {
                Some(Answer::Reply(frame)) if !frame.is_error() => last = Some(frame),
                _ => {
                    // The block ends with the connection.
                    self.leave();
                    return None;
                }
            }
        }
        last
    }

    /// Sends a command once; `None` if the node does not listen.
    fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Option<Answer> {
        if self.client.is_none() {
            let address = self.addresses[self.at % self.addresses.len()];
            match Client::try_connect(address) {
                Ok(client) => self.client = Some((address, client)),
                Err(_) => {
                    self.leave();
                    return None;
                }
            }
        }
        let (_, client) = self.client.as_mut().expect("connected");
        Some(client.answer(args))
    }

    fn follow(&mut self, moved: &str) {
        let address: SocketAddr = moved
            .rsplit(' ')
            .next()
            .and_then(|address| address.parse().ok())
            .expect("an address");
        match Client::try_connect(address) {
            Ok(client) => self.client = Some((address, client)),
            Err(_) => self.leave(),
        }
    }

    /// Closes its connection, if it has one. The next call is sent to another node.
    pub(crate) fn leave(&mut self) {
        self.client = None;
        self.at += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
}
