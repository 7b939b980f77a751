//! Members in one process, over TCP on loopback, on disks with moods.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::partition::OwnedReply;
use base::{NodeId, Op, Reply};
use kumiki_replica::{LogOptions, MemberOptions, OpenError, Options, Partition};

use crate::disk::MoodyDisk;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Group {
    dir: tempfile::TempDir,
    pub(crate) nodes: Vec<NodeId>,
    addresses: Vec<SocketAddr>,
    pub(crate) disks: Vec<MoodyDisk>,
    pub(crate) members: Vec<Option<Arc<Partition>>>,
    /// Small, so that a disk that is full shows soon.
    pub(crate) segment: u64,
}

impl Group {
    pub(crate) fn start(count: u16) -> Group {
        let nodes: Vec<NodeId> = (1..=count).map(NodeId).collect();
        let listen = |_: &NodeId| TcpListener::bind(loopback::free_address().unwrap()).unwrap();
        let listeners: Vec<TcpListener> = nodes.iter().map(listen).collect();
        let mut group = Group {
            dir: tempfile::tempdir().unwrap(),
            addresses: listeners.iter().map(|l| l.local_addr().unwrap()).collect(),
            disks: nodes.iter().map(|_| MoodyDisk::default()).collect(),
            members: nodes.iter().map(|_| None).collect(),
            nodes,
            segment: 16 << 10,
        };
        for (at, listener) in listeners.into_iter().enumerate() {
            group.open(at, listener).unwrap();
        }
        group
    }

    pub(crate) fn data(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("node{at}"))
    }

    fn open(&mut self, at: usize, listener: TcpListener) -> Result<(), OpenError> {
        let member = MemberOptions {
            election: Duration::from_millis(300),
            snapshot_bytes: 100 << 10,
            kept_entries: 10,
            ..MemberOptions::new(self.nodes[at], self.nodes.clone())
        };
        let addresses = self.nodes.iter().copied().zip(self.addresses.clone());
        let options = Options {
            disk: Arc::new(self.disks[at].clone()),
            dir: Some(self.data(at)),
            log: LogOptions {
                segment_bytes: self.segment,
                ..LogOptions::default()
            },
            peers: addresses.collect(),
            ..Options::new(member, listener)
        };
        self.members[at] = Some(Partition::open(options, &mut |_, _| {})?);
        Ok(())
    }

    pub(crate) fn restart(&mut self, at: usize) -> Result<(), OpenError> {
        let listener = fabric::tcp::listen(self.addresses[at], 1);
        self.open(at, listener.unwrap().remove(0))
    }

    /// Stops a member without a handover, as if it had been killed.
    pub(crate) fn stop(&mut self, at: usize) {
        self.members[at].take().unwrap().close(Duration::ZERO);
    }

    pub(crate) fn member(&self, at: usize) -> Arc<Partition> {
        Arc::clone(self.members[at].as_ref().unwrap())
    }

    pub(crate) fn alive(&self) -> impl Iterator<Item = (usize, &Arc<Partition>)> {
        let members = self.members.iter().enumerate();
        members.filter_map(|(at, member)| Some((at, member.as_ref()?)))
    }

    pub(crate) fn leader(&self) -> usize {
        until("a leader", || {
            self.alive().find(|(_, m)| m.is_leader()).map(|(at, _)| at)
        })
    }

    /// Executes at whoever leads, once; `None` if the outcome is not known, or nobody took it.
    pub(crate) fn once(&self, ops: &[Op<'_>]) -> Option<Vec<OwnedReply>> {
        let (_, member) = self.alive().find(|(_, member)| member.is_leader())?;
        let see = |replies: &[Reply<'_>], observed: base::transaction::Observed| {
            let replies: Vec<_> = replies.iter().map(OwnedReply::from).collect();
            (replies, observed.epoch)
        };
        let (replies, ticket) = member.worker()?.execute(ops, see).ok()?;
        until("a ticket", || {
            if member.is_lost(ticket) {
                return Some(None);
            }
            (member.durable() >= ticket).then(|| Some(replies.clone()))
        })
    }

    /// Executes as often as it takes.
    pub(crate) fn execute(&self, ops: &[Op<'_>]) -> Vec<OwnedReply> {
        until("a transaction", || self.once(ops))
    }

    /// Writes keys of a kilobyte each.
    pub(crate) fn fill(&self, keys: std::ops::Range<u32>) {
        for key in keys {
            self.execute(&[Op::put(&key.to_be_bytes(), &[7; 1000])]);
        }
    }

    /// Waits until all that are alive have the same.
    pub(crate) fn agree(&self) {
        until("all have caught up", || {
            let leader = self.alive().find(|(_, member)| member.is_leader())?.1;
            let applied = leader.engine().applied();
            let mut all = self.alive();
            all.all(|(_, member)| member.engine().applied() == applied)
                .then_some(())
        });
        let hashes = self.alive().map(|(_, member)| {
            let mut worker = member.worker().unwrap();
            worker.inner().state_hash(&member.engine().snapshot())
        });
        let hashes: Vec<u64> = hashes.collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }
}

pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}
