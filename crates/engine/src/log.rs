//! The redo log of an engine's commits: the interface to the journal, or to any other log.

use base::{Abort, Change, Tid};

use crate::record::{RecordRef, VersionRef};
use crate::transaction_error::TransactionError;
use crate::version_tree::{LoggedForm, VersionTree};

/// The changes of one transaction.
#[derive(Clone, Copy)]
pub struct Changes<'a> {
    pub(crate) writes: &'a [RecordWrite],
    /// Those of the writes that change a part of a value, in the order of their records.
    pub(crate) edits: &'a [Edit],
    pub(crate) generation: RecordRef,
}

/// A write that a transaction is about to make, or has made.
#[derive(Clone, Copy)]
pub(crate) struct RecordWrite {
    pub(crate) record: RecordRef,
    pub(crate) version: VersionRef,
}

/// A write that changes a part of a value: the log gets that part instead of the value.
#[derive(Clone, Copy)]
pub(crate) struct Edit {
    pub(crate) record: RecordRef,
    /// The version that is changed.
    pub(crate) base: Tid,
    /// The offset and the length of the new bytes in the value.
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// Changes of a transaction, in the form in which a log keeps them.
#[derive(Debug, Default)]
pub struct EncodedChanges {
    /// The bytes, whose form the log determines.
    pub bytes: Vec<u8>,
    /// The number of changes.
    pub count: u32,
}

impl<'a> Changes<'a> {
    /// Returns the number of changes; at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.writes.len()
    }

    /// Returns the changes, in no particular order; a key appears once.
    pub fn iter(&self) -> impl Iterator<Item = Change<'a>> + use<'a> {
        let Changes {
            edits, generation, ..
        } = *self;
        let edit_of = move |record| {
            let at = edits.binary_search_by_key(&record, |edit: &Edit| edit.record);
            at.ok().map(|at| edits[at])
        };
        self.writes.iter().map(move |write| {
            let version = write.version;
            if !edits.is_empty()
                && let Some(edit) = edit_of(write.record)
            {
                Change::Edit {
                    key: write.record.key(),
                    base: edit.base,
                    offset: edit.offset,
                    bytes: &version.value()[edit.offset..][..edit.length],
                }
            } else if write.record == generation {
                Change::Flush {
                    generation: version.generation(),
                }
            } else if version.is_absent() {
                Change::Delete {
                    key: write.record.key(),
                    origin: version.origin(),
                }
            } else if let Some(tree) = version.tree()
                && let (LoggedForm::Elements(changes), Some(base)) =
                    (tree.logged(), tree.base_tid())
            {
                Change::Elements {
                    key: write.record.key(),
                    base,
                    deadline: version.deadline(),
                    changes,
                }
            } else {
                Change::Put {
                    key: write.record.key(),
                    value: value_of(version),
                    kind: version.kind(),
                    generation: version.generation(),
                    deadline: version.deadline(),
                    origin: version.origin(),
                }
            }
        })
    }
}

/// Returns the bytes of a version's value.
pub(crate) fn value_of<'a>(version: VersionRef) -> &'a [u8] {
    match version.tree().map(VersionTree::logged) {
        None => version.value(),
        Some(LoggedForm::Whole(block)) => block,
        Some(_) => unreachable!("a new collection was prepared for the log"),
    }
}

/// A log takes nothing any more: transactions that write are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LogFailure {
    /// The reason, as text for the operator.
    pub reason: String,
}

impl LogFailure {
    /// Returns the failure of a log for this reason.
    pub fn new(reason: impl ToString) -> LogFailure {
        LogFailure {
            reason: reason.to_string(),
        }
    }
}

impl From<LogFailure> for Abort {
    fn from(failure: LogFailure) -> Abort {
        Abort::ReadOnly {
            reason: failure.reason,
        }
    }
}

/// The redo log of one worker.
pub trait RedoLog {
    /// Waits until a writing transaction can be logged. Called outside of any epoch.
    ///
    /// # Errors
    /// Returns the reason why nothing can be logged any more.
    fn ready(&mut self) -> Result<(), LogFailure>;

    /// Appends a committed transaction's changes. Called inside the epoch of `tid`.
    ///
    /// In a driven engine (module [`crate::stage`]) these are changes that are to be applied:
    /// `tid` is zero and `stamp_ms` the transaction's time. The records that the transaction needs
    /// are locked meanwhile, so that this must not wait for the applier.
    ///
    /// # Errors
    /// Returns the reason why the changes will never be durable.
    fn append(&mut self, tid: Tid, stamp_ms: u64, changes: Changes<'_>) -> Result<(), LogFailure>;

    /// Adds changes of a transaction in slices, which has no TID yet, to those that were encoded before.
    fn encode(&mut self, _: Changes<'_>, _: &mut EncodedChanges) {}

    /// Appends a committed transaction's changes, which were encoded before, as [`RedoLog::append`].
    ///
    /// # Errors
    /// As [`RedoLog::append`]. A log that does not implement it takes no transactions in slices.
    fn append_encoded(&mut self, _: Tid, _: u64, _: &EncodedChanges) -> Result<(), LogFailure> {
        Err(LogFailure::new("this log takes no transactions in slices"))
    }

    /// Returns `true` if the log keeps what it gets. Otherwise no collection is packed for it.
    fn keeps_changes(&self) -> bool {
        true
    }

    /// Returns `true` if the owner of the log calls [`crate::Engine::pass_holds`] when it submits the changes that
    /// were just appended, so that other transactions may be staged after them before they are applied.
    fn passes_holds(&self) -> bool {
        false
    }
}

/// No log at all: an engine whose content dies with the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog;

impl RedoLog for NoLog {
    fn ready(&mut self) -> Result<(), LogFailure> {
        Ok(())
    }

    #[inline]
    fn append(&mut self, _: Tid, _: u64, _: Changes<'_>) -> Result<(), LogFailure> {
        Ok(())
    }

    fn append_encoded(&mut self, _: Tid, _: u64, _: &EncodedChanges) -> Result<(), LogFailure> {
        Ok(())
    }

    fn keeps_changes(&self) -> bool {
        false
    }
}

/// Appends changes to a worker's log; the transaction ends if the log has failed.
#[inline]
pub(crate) fn append(
    log: &mut impl RedoLog,
    changes: Changes<'_>,
    tid: Tid,
    stamp_ms: u64,
) -> Result<(), TransactionError> {
    log.append(tid, stamp_ms, changes)
        .map_err(|failure| TransactionError::Abort(failure.into()))
}

/// Waits until the log of a worker takes changes.
///
/// # Errors
/// Returns [`Abort::ReadOnly`] if the log has failed.
#[inline]
pub(crate) fn wait_ready(log: &mut impl RedoLog) -> Result<(), Abort> {
    Ok(log.ready()?)
}
