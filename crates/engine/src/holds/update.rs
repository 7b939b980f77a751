//! Update holds: those of a transaction that runs in slices (module `sliced`), which takes them one after another
//! and keeps them over many epochs.
//!
//! | the word has | other transactions | the hold has |
//! |---|---|---|
//! | `SHARED` | read the record; they neither write it nor hold it | no version |
//! | `HELD` | neither read nor write it | the version that the transaction will publish |
//!
//! A transaction that has committed publishes its versions in slices, too. Until a version is published, views that
//! have the transaction in them find it in the table of holds.

use base::transaction::Holder;
use base::{Epoch, Tid, TransactionId};

use super::{Hold, Holds};
use crate::record::{RecordRef, VersionRef};
use crate::update_hold::UpdateHold;
use crate::word::{DEAD, HELD, LockRefusal, SHARED, WordValue};

/// Room for holds that each shard keeps.
const KEPT: usize = 64;

impl Holds {
    /// Holds a record for a transaction that may write it later. Returns `false` if the transaction holds it already.
    pub(crate) fn hold_to_update(
        &self,
        record: RecordRef,
        holder: Holder,
    ) -> Result<bool, LockRefusal> {
        let mut shard = self.shard(record);
        match shard.holds.get(&record) {
            Some(Hold::Update(own)) if own.holder.id == holder.id => return Ok(false),
            Some(_) => return Err(LockRefusal::Held),
            None => {}
        }
        loop {
            match record.word().share(record.word().load(), None) {
                Ok(()) => break,
                // Another version has become current in the meantime.
                Err(LockRefusal::Dead) if !record.word().load().has(DEAD) => {}
                Err(refused) => return Err(refused),
            }
        }
        let version = None;
        let hold = Hold::Update(UpdateHold { holder, version });
        shard.holds.insert(record, hold);
        Ok(true)
    }

    /// Excludes readers from a record that a transaction has an update hold on and will write this version to.
    /// Returns the record's word, which does not change until the hold ends.
    pub(crate) fn exclude_readers(
        &self,
        record: RecordRef,
        version: VersionRef,
        id: TransactionId,
    ) -> WordValue {
        let mut shard = self.shard(record);
        match shard.holds.get_mut(&record) {
            Some(Hold::Update(own)) if own.holder.id == id => own.version = Some(version),
            _ => unreachable!("the transaction holds what it writes"),
        }
        record.word().replace_hold(SHARED, HELD);
        let held = record.word().load();
        drop(shard);
        self.writer_marks.forget(record);
        held
    }

    /// Gives back the memory of many holds that have ended.
    pub(crate) fn shrink(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let used = shard.holds.len();
            if shard.holds.capacity() > KEPT.max(4 * used) {
                shard.holds.shrink_to(KEPT);
            }
        }
    }

    /// Notes that a transaction has committed, and begins to publish what it holds.
    pub(crate) fn begin_publication(&self, id: TransactionId, tid: Tid) {
        self.publishing.lock().insert(id, tid);
    }

    /// Notes that a transaction has published everything.
    pub(crate) fn end_publication(&self, id: TransactionId) {
        self.publishing.lock().remove(&id);
    }

    /// Returns the version of a held record that a transaction of this epoch or an earlier one has committed and not
    /// published yet.
    pub(crate) fn committed_version(&self, record: RecordRef, until: Epoch) -> Option<VersionRef> {
        let shard = self.shard(record);
        let Some(Hold::Update(hold)) = shard.holds.get(&record) else {
            return None;
        };
        let version = hold.version?;
        let tid = *self.publishing.lock().get(&hold.holder.id)?;
        if tid.epoch() > until {
            return None;
        }
        // The publication, which waits for this shard, does the same.
        version.set_tid(tid);
        Some(version)
    }
}
