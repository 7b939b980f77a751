//! The log as Raft's library sees it.

use raft::eraftpb::{Entry, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use super::RaftLog;

impl Storage for RaftLog {
    fn initial_state(&self) -> Result<RaftState> {
        let members = self.state.base.1.clone();
        Ok(RaftState::new(self.state.hard.clone(), members))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.state.floor.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let last = self.state.last();
        assert!(
            high <= last + 1,
            "entries to {high} of a log that ends at {last}"
        );
        let max = max_size.into().unwrap_or(u64::MAX);
        Ok(self.state.range(low, high, max))
    }

    fn term(&self, index: u64) -> Result<u64> {
        let error = if index < self.state.floor.0 {
            StorageError::Compacted
        } else {
            StorageError::Unavailable
        };
        self.state.term(index).ok_or(Error::Store(error))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.state.floor.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.state.last())
    }

    /// Returns the description of the newest snapshot. Its content is sent in another way.
    fn snapshot(&self, request_index: u64, _: u64) -> Result<Snapshot> {
        let meta = self.snapshot.as_ref();
        let meta = meta.filter(|meta| meta.index >= request_index && meta.index > 0);
        let meta = meta.ok_or(Error::Store(StorageError::SnapshotTemporarilyUnavailable))?;
        let mut snapshot = Snapshot::default();
        snapshot.set_metadata(meta.clone());
        Ok(snapshot)
    }
}
