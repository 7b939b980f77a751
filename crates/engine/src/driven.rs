//! Calls to a driven engine, besides entries.

use std::sync::Arc;

use base::epochs::EpochClock;
use base::transaction::Holder;
use base::{Epoch, Timestamp, TransactionId};

use crate::engine::Engine;
use crate::garbage::Garbage;
use crate::log::RecordWrite;
use crate::staged_chain::StagedVersion;
use crate::worker_slot::WorkerSlot;

impl Engine {
    /// Returns the index of the newest entry that a driven engine has applied.
    #[must_use]
    pub fn applied(&self) -> Epoch {
        self.epochs.current().prev()
    }

    /// Returns the engine's time in milliseconds since the Unix epoch. It never decreases.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.epochs.time_ms()
    }

    /// Sets the time of a driven engine to at least `now_ms`, for transactions that begin from now
    /// on.
    ///
    /// It must not pass the deadline of any key before an entry with such a stamp is applied:
    /// otherwise replicas would not agree on the transactions that see the key.
    pub fn set_time_ms(&self, now_ms: u64) {
        self.epochs.set_time_ms(now_ms);
    }

    /// Gives back everything that is still held under this id, once the entry for which it was
    /// staged has been applied, or will never be submitted. Wakes the transactions that wait. Does
    /// nothing if nothing is held.
    ///
    /// For a transaction over several partitions this is called for the entry that commits or
    /// aborts it: until then it goes on holding its keys.
    pub fn release(&self, id: TransactionId) {
        assert!(self.epochs.is_driven(), "others give back by themselves");
        self.end_hold(id);
    }

    /// Gives all holds of all transactions back and forgets everything that was staged and
    /// prepared, because this replica leads no more. Wakes the transactions that wait. Before the
    /// replica leads again, [`Engine::restore_prepared`] restores the holds that the log has.
    ///
    /// It waits for workers that are just staging. They may finish staging afterwards: the caller
    /// that submits their entries must find out that they come too late, and release them.
    pub fn drop_holds(self: &Arc<Self>) {
        assert!(
            self.epochs.is_driven(),
            "others keep what they have prepared"
        );
        let staging: Vec<_> = self.slots.iter().map(|slot| slot.staging.lock()).collect();
        let applying = self.applying.lock();
        // What is staged last is given up first: it was made from what was staged before.
        self.prepared.lock().clear();
        let staged = self.holds.drop_all(|record| self.queue.push(record));
        self.withdraw(&staged);
        drop((applying, staging));
        self.holds.notify();
    }

    /// Frees staged versions, once no worker can see them. Of each record the newest comes first.
    fn withdraw(self: &Arc<Self>, staged: &[StagedVersion]) {
        if staged.is_empty() {
            return;
        }
        let thread = self.register_in(self.holds_restorer_slot());
        let _guard = thread.pin();
        for staged in staged {
            let bytes = staged.bytes();
            if let Some(tree) = staged.version.tree() {
                tree.withdraw();
            }
            // They count from now on, until they are freed.
            WorkerSlot::count(&thread.counters().bytes, bytes as i64);
            thread.retire(Garbage::Version(staged.version));
        }
    }

    /// Returns how many versions were staged after versions that were not applied yet, and how many staged versions
    /// were dropped with a leadership.
    #[must_use]
    pub fn staged_counts(&self) -> (u64, u64) {
        self.holds.staged_counts()
    }

    /// Passes the holds of a staged transaction on, whose entry is submitted at this moment and waits for `ticket`:
    /// transactions that come later may use its writes as if they were applied, and are submitted behind it. So they
    /// may also write what it has read. Does nothing if its holds last until the entry is applied.
    ///
    /// The caller submits no other entry of this engine meanwhile. Transactions that wait are not woken before
    /// [`Engine::release`].
    pub fn pass_holds(&self, id: TransactionId, ticket: u64) {
        let mut prepared = self.prepared.lock();
        let Some(staged) = prepared.get_mut(&id) else {
            return;
        };
        let holder = Holder {
            id,
            age: Timestamp(u64::MAX),
        };
        if staged.effects.is_empty() {
            return;
        }
        for RecordWrite { record, version } in std::mem::take(&mut staged.effects) {
            staged.passed.push(record);
            let version = StagedVersion {
                holder,
                version,
                ticket,
            };
            self.holds.pass(record, version);
        }
        let read = std::mem::take(&mut staged.held);
        self.release_hold(id, &read, std::mem::take(&mut staged.ranged));
    }
}
