//! Members of one partition in this process, over TCP on loopback, each with a directory.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use testkit::eventually_some;

use base::NodeId;
use kumiki_replica::{MemberOptions, OpenError, Options, ReplicatedPartition};
use reactor::Io;

/// The time that a test waits before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Members {
    dir: tempfile::TempDir,
    pub(crate) nodes: Vec<NodeId>,
    addresses: Vec<SocketAddr>,
    /// The members; `None` where a member is stopped.
    pub(crate) members: Vec<Option<Arc<ReplicatedPartition>>>,
}

/// Returns how a member waits for the network: the first one by io_uring where the system has it, so that all tests
/// run with both networks.
fn io_of(at: usize) -> Io {
    static OFFERED: LazyLock<Io> = LazyLock::new(|| Io::Auto.choose().expect("there is epoll"));
    match at {
        0 => *OFFERED,
        _ => Io::Epoll,
    }
}

impl Members {
    /// Returns `count` stopped members, and their listeners.
    pub(crate) fn new(count: u16) -> (Members, Vec<TcpListener>) {
        let nodes: Vec<NodeId> = (1..=count).map(NodeId).collect();
        let listen = |_: &NodeId| TcpListener::bind(testkit::free_address().unwrap()).unwrap();
        let listeners: Vec<TcpListener> = nodes.iter().map(listen).collect();
        let members = Members {
            dir: tempfile::tempdir().unwrap(),
            addresses: listeners.iter().map(|l| l.local_addr().unwrap()).collect(),
            members: nodes.iter().map(|_| None).collect(),
            nodes,
        };
        (members, listeners)
    }

    /// Listens again at the address of a member that was stopped.
    pub(crate) fn listen(&self, at: usize) -> TcpListener {
        let listeners = fabric::tcp::listen(self.addresses[at], 1);
        listeners.unwrap().remove(0)
    }

    /// Returns the address at which a member listens.
    pub(crate) fn address(&self, at: usize) -> SocketAddr {
        self.addresses[at]
    }

    /// Returns the directory of a member.
    pub(crate) fn data(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("node{at}"))
    }

    /// Returns options of a member whose elections are short.
    pub(crate) fn member_options(&self, at: usize) -> MemberOptions {
        MemberOptions {
            election: Duration::from_millis(300),
            ..MemberOptions::new(self.nodes[at], self.nodes.clone())
        }
    }

    /// Returns options of a partition with the directory and the peers of a member.
    pub(crate) fn options(
        &self,
        at: usize,
        member: MemberOptions,
        listener: TcpListener,
    ) -> Options {
        let addresses = self.nodes.iter().copied().zip(self.addresses.clone());
        Options {
            dir: Some(self.data(at)),
            peers: addresses.collect(),
            io: io_of(at),
            ..Options::new(member, listener)
        }
    }

    /// Opens a member.
    pub(crate) fn open(&mut self, at: usize, options: Options) -> Result<(), OpenError> {
        self.members[at] = Some(ReplicatedPartition::open(options, &mut |_, _| {})?);
        Ok(())
    }

    /// Stops a member without a handover, as if it had been killed.
    pub(crate) fn stop(&mut self, at: usize) {
        self.members[at].take().unwrap().close(Duration::ZERO);
    }

    pub(crate) fn member(&self, at: usize) -> Arc<ReplicatedPartition> {
        Arc::clone(self.members[at].as_ref().unwrap())
    }

    /// Returns the members that run.
    pub(crate) fn alive(&self) -> impl Iterator<Item = (usize, &Arc<ReplicatedPartition>)> {
        let members = self.members.iter().enumerate();
        members.filter_map(|(at, member)| Some((at, member.as_ref()?)))
    }

    /// Waits until a member leads, and returns its place.
    pub(crate) fn leader(&self) -> usize {
        eventually_some("a leader", || {
            self.alive().find(|(_, m)| m.is_leader()).map(|(at, _)| at)
        })
    }

    /// Waits until all members that run have applied the same entries as their leader.
    pub(crate) fn caught_up(&self) {
        eventually_some("all have caught up", || {
            let leader = self.alive().find(|(_, member)| member.is_leader())?.1;
            let applied = leader.engine().applied();
            let mut all = self.alive();
            all.all(|(_, member)| member.engine().applied() == applied)
                .then_some(())
        });
    }

    /// Returns the hashes of the states of all members that run, once they have caught up.
    pub(crate) fn hashes(&self) -> Vec<u64> {
        self.caught_up();
        let hash = |(_, member): (usize, &Arc<ReplicatedPartition>)| {
            let mut worker = member.worker().unwrap();
            worker.inner().state_hash(&member.engine().snapshot())
        };
        self.alive().map(hash).collect()
    }
}
