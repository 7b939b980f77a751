//! Calls to a driven engine, besides entries.

use base::epochs::EpochClock;
use base::{Epoch, TransactionId};

use crate::engine::Engine;

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
    pub fn drop_holds(&self) {
        assert!(
            self.epochs.is_driven(),
            "others keep what they have prepared"
        );
        let staging: Vec<_> = self.slots.iter().map(|slot| slot.staging.lock()).collect();
        let applying = self.applying.lock();
        self.prepared.lock().clear();
        self.holds.drop_all(|record| self.queue.push(record));
        drop((applying, staging));
        self.holds.notify();
    }
}
