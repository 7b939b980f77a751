//! Members in one process, over TCP on loopback, on disks with faults.

use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::partition::OwnedReply;
use base::{Op, Reply};
use fabric::Secret;
use kumiki_replica::{LogOptions, MemberOptions, OpenError, Options, ReplicatedPartition};

use crate::support::members::Members;
use crate::trouble::disk::MoodyDisk;
use testkit::eventually_some;

pub(crate) struct Group {
    inner: Members,
    pub(crate) disks: Vec<MoodyDisk>,
    /// The segments are small, so that a full disk shows soon.
    pub(crate) segment: u64,
}

impl Deref for Group {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.inner
    }
}

impl DerefMut for Group {
    fn deref_mut(&mut self) -> &mut Members {
        &mut self.inner
    }
}

impl Group {
    pub(crate) fn start(count: u16) -> Group {
        let (inner, listeners) = Members::new(count);
        let mut group = Group {
            disks: listeners.iter().map(|_| MoodyDisk::default()).collect(),
            inner,
            segment: 16 << 10,
        };
        for (at, listener) in listeners.into_iter().enumerate() {
            group.open(at, listener).unwrap();
        }
        group
    }

    fn open(&mut self, at: usize, listener: TcpListener) -> Result<(), OpenError> {
        let options = self.options_of(at, listener);
        self.inner.open(at, options)
    }

    fn options_of(&self, at: usize, listener: TcpListener) -> Options {
        let member = MemberOptions {
            snapshot_bytes: 100 << 10,
            kept_entries: 10,
            // Also on a busy machine members answer in this time.
            compare: Duration::from_secs(3),
            ..self.member_options(at)
        };
        Options {
            disk: Arc::new(self.disks[at].clone()),
            log: LogOptions {
                segment_bytes: self.segment,
                ..LogOptions::default()
            },
            ..self.options(at, member, listener)
        }
    }

    /// Does the same as [`Group::restart`], with another secret.
    pub(crate) fn restart_with_secret(&mut self, at: usize, secret: &str) {
        let listener = self.listen(at);
        let options = Options {
            secret: Secret::new(secret),
            ..self.options_of(at, listener)
        };
        self.inner.open(at, options).unwrap();
    }

    pub(crate) fn restart(&mut self, at: usize) -> Result<(), OpenError> {
        let listener = self.listen(at);
        self.open(at, listener)
    }

    /// Starts a member that stands for a second process, with a copy of a member's data.
    pub(crate) fn start_copy(&self, of: usize, dir: PathBuf) -> Arc<ReplicatedPartition> {
        let listener = TcpListener::bind(testkit::free_address().unwrap()).unwrap();
        let options = Options {
            dir: Some(dir),
            ..self.options_of(of, listener)
        };
        ReplicatedPartition::open(options, &mut |_, _| {}).unwrap()
    }

    /// Executes at the leader, once. Returns `None` if the outcome is not known, or no leader took
    /// it.
    pub(crate) fn once(&self, ops: &[Op<'_>]) -> Option<Vec<OwnedReply>> {
        let (_, member) = self.alive().find(|(_, member)| member.is_leader())?;
        let see = |replies: &[Reply<'_>], observed: base::transaction::Observed| {
            let replies: Vec<_> = replies.iter().map(OwnedReply::from).collect();
            (replies, observed.epoch)
        };
        let (replies, ticket) = member.worker()?.execute(ops, see).ok()?;
        eventually_some("a ticket", || {
            if member.is_lost(ticket) {
                return Some(None);
            }
            (member.durable() >= ticket).then(|| Some(replies.clone()))
        })
    }

    /// Executes, and tries again until it succeeds.
    pub(crate) fn execute(&self, ops: &[Op<'_>]) -> Vec<OwnedReply> {
        eventually_some("a transaction", || self.once(ops))
    }

    /// Writes keys of a kilobyte each.
    pub(crate) fn fill(&self, keys: std::ops::Range<u32>) {
        for key in keys {
            self.execute(&[Op::put(&key.to_be_bytes(), &[7; 1000])]);
        }
    }

    /// Waits until all members that run have the same state.
    pub(crate) fn agree(&self) {
        let hashes = self.hashes();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }
}
