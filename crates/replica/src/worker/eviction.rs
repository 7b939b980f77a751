//! Eviction by the leader: the deletions are transactions like those of clients, and take effect on all members.

use std::time::Duration;

use base::Abort;
use engine::{Evicted, EvictionRun};

use super::Worker;

impl Worker {
    /// Evicts keys until `bytes` more can be used, for as long as `most`. The memory that deletions free which were
    /// submitted counts as free. A member that does not lead evicts nothing, and says that there is enough.
    ///
    /// # Errors
    /// Returns an [`Abort`] if nothing can be submitted.
    pub fn evict(&mut self, bytes: u64, most: Duration) -> Result<Evicted, Abort> {
        self.settle_evictions();
        if self.leads().is_err() || !self.shared.engine.must_evict(bytes) {
            return Ok(Evicted::Enough);
        }
        if self.is_naive() {
            return Ok(Evicted::NothingLeft);
        }
        let mut run = EvictionRun::new(bytes, most);
        loop {
            if let Some(outcome) = run.outcome(&self.shared.engine) {
                return Ok(outcome);
            }
            let Some(key) = self.inner.choose_victim() else {
                run.note_none();
                continue;
            };
            let evicted = self.transact(|txn| txn.evict(&key));
            self.inner.recycle_victim(key);
            match evicted {
                Ok(freed) => {
                    if let Some(freed) = freed {
                        self.shared.engine.note_submitted(freed);
                        self.evictions.push_back((self.observed.epoch, freed));
                    }
                    run.note(freed.is_some());
                }
                Err(Abort::Held { .. } | Abort::Conflict { .. }) => run.note(false),
                Err(Abort::Elsewhere { .. }) => return Ok(Evicted::Enough),
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Returns `true` if deletions were submitted whose outcome is not known.
    #[must_use]
    pub fn awaits_evictions(&self) -> bool {
        !self.evictions.is_empty()
    }

    /// Forgets the deletions that are applied, and those that never will be.
    fn settle_evictions(&mut self) {
        let resolved = self.shared.tickets.resolved();
        while let Some(&(ticket, freed)) = self.evictions.front() {
            let is_over = ticket <= resolved || self.shared.tickets.is_lost(ticket);
            if !is_over && self.leads().is_ok() {
                return;
            }
            self.evictions.pop_front();
            self.shared.engine.note_settled(freed);
        }
    }
}
