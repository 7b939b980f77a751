//! The partition that the server serves, of either kind, and a runtime's access to it.
//!
//! | kind | what a reply waits for | what may become of that |
//! |---|---|---|
//! | local | an epoch, to become durable | the log fails: no later epoch ever will be |
//! | replicated | a ticket, to resolve: what was written is agreed upon, or what was read was read by the leader | leadership is lost, and with it each open ticket; later ones may resolve |
//!
//! Tickets have the form of epochs. One branch tells the two kinds apart, and always goes the same
//! way: a server serves one partition for as long as it lives.

mod replicated;
mod worker;

use std::sync::Arc;

use base::eviction::EvictionSettings;
use base::key_event::KeyListener;
use base::{Epoch, TransactionId};
use store::{
    CheckpointError, CheckpointRefused, CheckpointReport, CheckpointStatus, Db, Durable, KeyStats,
    RecoveryReport, Snapshot, Stats,
};

pub use replicated::Replicated;
pub(crate) use worker::Worker;

/// The partition that the server serves.
#[derive(Clone)]
pub enum Partition {
    /// On this node alone.
    Local(Db),
    /// On several nodes.
    Replicated(Arc<Replicated>),
}

impl From<Db> for Partition {
    fn from(db: Db) -> Partition {
        Partition::Local(db)
    }
}

impl From<Arc<Replicated>> for Partition {
    fn from(replicated: Arc<Replicated>) -> Partition {
        Partition::Replicated(replicated)
    }
}

impl Partition {
    /// Returns a worker for one thread, or `None` when all are taken.
    pub(crate) fn worker(&self) -> Option<Worker> {
        match self {
            Partition::Local(db) => db.worker().map(Worker::Local),
            Partition::Replicated(replicated) => {
                replicated.member().worker().map(Worker::Replicated)
            }
        }
    }

    /// Returns the worker with this number, or `None` when another thread has it.
    pub(crate) fn worker_at(&self, index: usize) -> Option<Worker> {
        match self {
            Partition::Local(db) => db.worker_at(index).map(Worker::Local),
            // All of its workers are alike.
            Partition::Replicated(_) => self.worker(),
        }
    }

    /// Returns the partition if it is replicated.
    pub(crate) fn replicated(&self) -> Option<&Arc<Replicated>> {
        match self {
            Partition::Local(_) => None,
            Partition::Replicated(replicated) => Some(replicated),
        }
    }

    /// Returns how far durability has come.
    pub(crate) fn durable(&self) -> Durable {
        match self {
            Partition::Local(db) => db.durable(),
            // Without the member this node does not lead, and its tickets are lost, each by itself.
            Partition::Replicated(replicated) => Durable {
                epoch: replicated.member().durable(),
                failed: None,
            },
        }
    }

    /// Returns the epoch of [`Partition::durable`].
    #[inline]
    pub(crate) fn durable_epoch(&self) -> Epoch {
        match self {
            Partition::Local(db) => db.durable_epoch(),
            Partition::Replicated(replicated) => replicated.member().durable(),
        }
    }

    /// Returns the newest epoch all of whose changes are known. Those of a replicated partition are known
    /// entry by entry.
    pub(crate) fn finished_epoch(&self) -> Epoch {
        match self {
            Partition::Local(db) => db.finished_epoch(),
            Partition::Replicated(_) => Epoch(u64::MAX),
        }
    }

    /// Ends the current epoch, if that is possible at once.
    pub(crate) fn end_epoch(&self) {
        match self {
            Partition::Local(db) => db.end_epoch(),
            // Entries are its epochs.
            Partition::Replicated(_) => {}
        }
    }

    /// Returns the reason why nothing can be written here any more; `None` if writing is possible.
    pub(crate) fn failed(&self) -> Option<String> {
        match self {
            Partition::Local(db) => db.durable().failed,
            Partition::Replicated(replicated) => replicated.member().failed(),
        }
    }

    /// Returns `true` if an epoch can be lost and a later one not.
    #[inline]
    pub(crate) fn can_lose(&self) -> bool {
        match self {
            Partition::Local(_) => false,
            Partition::Replicated(_) => true,
        }
    }

    /// Returns `true` if it will never be known that `epoch` is durable. Call this before
    /// [`Partition::durable`], which can have passed the epoch.
    pub(crate) fn is_lost(&self, epoch: Epoch) -> bool {
        match self {
            Partition::Local(_) => false,
            Partition::Replicated(replicated) => replicated.member().is_lost(epoch),
        }
    }

    /// Records that a reply waits for `epoch`.
    pub(crate) fn request_durable(&self, epoch: Epoch) {
        match self {
            Partition::Local(db) => db.request_durable(epoch),
            // A worker announces it.
            Partition::Replicated(_) => {}
        }
    }

    /// Makes `epoch` durable on this thread, if that is possible at once. Returns `true` if it did.
    pub(crate) fn sync_inline(&self, epoch: Epoch) -> bool {
        match self {
            Partition::Local(db) => db.sync_inline(epoch),
            Partition::Replicated(_) => false,
        }
    }

    /// Registers `notify`, which is called whenever epochs that replies wait for, or the leader,
    /// may have changed.
    pub(crate) fn on_change(&self, notify: Box<dyn Fn() + Send + Sync>) {
        match self {
            Partition::Local(db) => db.on_durable(notify),
            Partition::Replicated(replicated) => replicated.member().on_change(notify),
        }
    }

    /// Registers `notify`, which is called whenever holds have been given back.
    pub(crate) fn on_release(&self, notify: Box<dyn Fn() + Send + Sync>) {
        match self {
            Partition::Local(db) => db.on_release(notify),
            Partition::Replicated(replicated) => replicated.member().engine().on_release(notify),
        }
    }

    /// Sets the listener for changes of keys, which is not called before [`Partition::listen`].
    pub(crate) fn set_key_listener(&self, listener: Arc<dyn KeyListener>) {
        match self {
            Partition::Local(db) => db.set_key_listener(listener),
            Partition::Replicated(replicated) => {
                replicated.member().engine().set_key_listener(listener);
            }
        }
    }

    /// Begins to call the listener for changes of keys, or ends it.
    pub(crate) fn listen(&self, listens: bool) {
        match self {
            Partition::Local(db) => db.listen(listens),
            Partition::Replicated(replicated) => replicated.member().engine().listen(listens),
        }
    }

    /// Returns `true` if every transaction that commits from now on calls the listener.
    pub(crate) fn announces_all(&self) -> bool {
        match self {
            Partition::Local(db) => db.announces_all(),
            Partition::Replicated(replicated) => replicated.member().engine().announces_all(),
        }
    }

    /// Returns the number of times that holds have been given back.
    #[inline]
    pub(crate) fn releases(&self) -> u64 {
        match self {
            Partition::Local(db) => db.releases(),
            Partition::Replicated(replicated) => replicated.member().releases(),
        }
    }

    /// Gives back what [`Worker::hold`] holds under this id.
    pub(crate) fn end_hold(&self, id: TransactionId) {
        match self {
            Partition::Local(db) => db.end_hold(id),
            Partition::Replicated(_) => {}
        }
    }

    /// Returns a consistent view of all keys.
    pub(crate) fn snapshot(&self) -> Snapshot {
        match self {
            Partition::Local(db) => db.snapshot(),
            Partition::Replicated(replicated) => replicated.member().engine().snapshot(),
        }
    }

    /// Returns a consistent view of all keys, and the namespace of a database in it.
    pub(crate) fn snapshot_of(&self, database: u16) -> (Snapshot, u16) {
        match self {
            Partition::Local(db) => db.snapshot_of(database),
            Partition::Replicated(replicated) => replicated.member().engine().snapshot_of(database),
        }
    }

    /// Returns the bytes of everything in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Partition::Local(db) => db.memory_bytes(),
            Partition::Replicated(replicated) => replicated.member().engine().memory_bytes(),
        }
    }

    /// Sets the bytes of memory above which writes that need more are refused; 0: no limit.
    pub(crate) fn limit_memory(&self, bytes: u64) {
        match self {
            Partition::Local(db) => db.limit_memory(bytes),
            Partition::Replicated(replicated) => replicated.member().engine().limit_memory(bytes),
        }
    }

    /// Sets how keys are evicted when memory is full.
    pub(crate) fn set_eviction(&self, settings: &EvictionSettings) {
        match self {
            Partition::Local(db) => db.set_eviction(settings),
            Partition::Replicated(replicated) => {
                replicated.member().engine().set_eviction(settings);
            }
        }
    }

    /// Returns how keys are evicted.
    pub(crate) fn eviction(&self) -> EvictionSettings {
        match self {
            Partition::Local(db) => db.eviction(),
            Partition::Replicated(replicated) => replicated.member().engine().eviction(),
        }
    }

    /// Returns `true` if keys must be evicted before `bytes` more are used.
    pub(crate) fn must_evict(&self, bytes: u64) -> bool {
        match self {
            Partition::Local(db) => db.must_evict(bytes),
            Partition::Replicated(replicated) => replicated.member().engine().must_evict(bytes),
        }
    }

    /// Returns `true` if so much memory is used that writes that need more are refused.
    pub(crate) fn exceeds_memory(&self) -> bool {
        match self {
            Partition::Local(db) => db.exceeds_memory(),
            Partition::Replicated(replicated) => replicated.member().engine().exceeds_memory(),
        }
    }

    /// Has keys that have expired removed in the background, or kept.
    pub(crate) fn remove_expired(&self, removes: bool) {
        match self {
            Partition::Local(db) => db.remove_expired(removes),
            Partition::Replicated(replicated) => {
                replicated.member().engine().remove_expired(removes);
            }
        }
    }

    /// Returns `true` if there are hashes with fields that will expire, or have expired.
    pub(crate) fn has_expiring_hashes(&self) -> bool {
        match self {
            Partition::Local(db) => db.has_expiring_hashes(),
            Partition::Replicated(replicated) => replicated.member().engine().has_expiring_hashes(),
        }
    }

    /// Takes a hash with fields that have expired; its user removes them.
    pub(crate) fn take_expiring_hash(&self) -> Option<Vec<u8>> {
        match self {
            Partition::Local(db) => db.take_expiring_hash(),
            Partition::Replicated(replicated) => replicated.member().engine().take_expiring_hash(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match self {
            Partition::Local(db) => db.stats(),
            Partition::Replicated(replicated) => replicated.stats(),
        }
    }

    /// Returns figures of the keys of database 0, and of each other database that has keys, in order.
    pub(crate) fn key_stats(&self) -> Vec<(u16, KeyStats)> {
        match self {
            Partition::Local(db) => db.key_stats(),
            Partition::Replicated(replicated) => replicated.member().engine().key_stats(),
        }
    }

    /// Returns the number of keys of a database.
    pub(crate) fn keys_of(&self, database: u16) -> u64 {
        let stats = self.key_stats();
        let found = stats.iter().find(|(of, _)| *of == database);
        found.map_or(0, |(_, stats)| stats.keys)
    }

    /// Returns what recovery found at the start.
    pub(crate) fn recovery(&self) -> &RecoveryReport {
        match self {
            Partition::Local(db) => db.recovery(),
            Partition::Replicated(replicated) => replicated.recovery(),
        }
    }

    /// Returns the state of checkpoints.
    pub(crate) fn checkpoint_status(&self) -> CheckpointStatus {
        match self {
            Partition::Local(db) => db.checkpoint_status(),
            Partition::Replicated(replicated) => replicated.checkpoint_status(),
        }
    }

    /// Begins a checkpoint in the background.
    pub(crate) fn request_checkpoint(&self) -> Result<(), CheckpointRefused> {
        match self {
            Partition::Local(db) => db.request_checkpoint(),
            Partition::Replicated(replicated) => replicated.request_checkpoint(),
        }
    }

    /// Makes a checkpoint, and waits for it.
    pub(crate) fn checkpoint(&self) -> Result<CheckpointReport, CheckpointError> {
        match self {
            Partition::Local(db) => db.checkpoint(),
            Partition::Replicated(replicated) => replicated
                .checkpoint()
                .map_err(|error| CheckpointError::Failed(error.to_string())),
        }
    }
}
