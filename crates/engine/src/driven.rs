//! What a driven engine tells and is told, besides entries.

use base::epochs::EpochClock;
use base::{Epoch, TransactionId};

use crate::engine::Engine;

impl Engine {
    /// The index of the newest entry that a driven engine has applied.
    #[must_use]
    pub fn applied(&self) -> Epoch {
        self.epochs.current().prev()
    }

    /// The engine's time, milliseconds since the Unix epoch: it never decreases.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.epochs.time_ms()
    }

    /// Lets it be at least `now_ms` in a driven engine, for transactions that begin from now on.
    ///
    /// It must not pass the deadline of any key before an entry with such a stamp is applied:
    /// replicas would not agree on who sees the key.
    pub fn set_time_ms(&self, now_ms: u64) {
        self.epochs.set_time_ms(now_ms);
    }

    /// Gives back what is still held under this id, once the entry that it was staged for has been
    /// applied, or will never be submitted; whoever waits is told. Nothing happens if nothing is.
    ///
    /// Of a transaction over several partitions this is for the entry that commits or aborts it:
    /// until then it goes on holding its keys.
    pub fn release(&self, id: TransactionId) {
        assert!(self.epochs.is_driven(), "others give back by themselves");
        let prepared = self.prepared.lock().remove(&id);
        let Some(prepared) = prepared else {
            return;
        };
        for record in &prepared.held {
            if self.holds.give_back(*record, id) {
                self.queue.push(*record);
            }
        }
        if prepared.ranged {
            self.holds.give_ranges_back(id);
        }
        self.holds.notify();
    }

    /// Gives everything of everybody back and forgets what was staged and prepared, because this
    /// replica leads no more. Whoever waits is told. Before it leads again,
    /// [`Engine::restore_prepared`] brings back what the log has of it.
    ///
    /// It waits for those who are just being staged. Afterwards they may be staged still: whoever
    /// submits them must find out that they come too late, and release them.
    pub fn drop_holds(&self) {
        assert!(
            self.epochs.is_driven(),
            "others keep what they have prepared"
        );
        let staging: Vec<_> = self.places.iter().map(|p| p.staging.lock()).collect();
        let applying = self.applying.lock();
        self.prepared.lock().clear();
        self.holds.drop_all(|record| self.queue.push(record));
        drop((applying, staging));
        self.holds.notify();
    }
}
