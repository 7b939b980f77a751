//! The journal as the engine's redo log.

use base::change::Origin;
use base::{Change, Tid};
use engine::{Changes, EncodedChanges, LogFailure, RedoLog};
use journal::{EntryWriter, LogWriter};

/// The log of a worker's commits: the journal, or none.
pub(crate) struct JournalLog(pub(crate) Option<LogWriter>);

impl RedoLog for JournalLog {
    fn ready(&mut self) -> Result<(), LogFailure> {
        let Some(writer) = &self.0 else { return Ok(()) };
        writer.wait_ready().map_err(LogFailure::new)
    }

    fn append(&mut self, tid: Tid, stamp_ms: u64, changes: Changes<'_>) -> Result<(), LogFailure> {
        let Some(writer) = &self.0 else { return Ok(()) };
        let (mut bytes, mut origin) = (0, None);
        for change in changes.iter() {
            bytes += size(change);
            origin = origin.or(origin_of(&change));
        }
        bytes += origin.map_or(0, |origin| {
            EntryWriter::ORIGIN_OVERHEAD + origin.siblings.len()
        });
        let fill = |to: &mut EntryWriter<'_>| {
            if origin.is_none() {
                return changes.iter().for_each(|change| to.change(&change));
            }
            // The changes that have an origin come last, so that it is written once.
            for with in [false, true] {
                let some = changes
                    .iter()
                    .filter(|change| origin_of(change).is_some() == with);
                some.for_each(|change| to.change(&change));
            }
        };
        writer
            .append(tid, stamp_ms, bytes, fill)
            .map_err(LogFailure::new)
    }

    fn encode(&mut self, changes: Changes<'_>, to: &mut EncodedChanges) {
        to.count += journal::write_changes(&mut to.bytes, |writer| {
            changes.iter().for_each(|change| writer.change(&change));
        });
    }

    fn append_encoded(
        &mut self,
        tid: Tid,
        stamp_ms: u64,
        changes: &EncodedChanges,
    ) -> Result<(), LogFailure> {
        let Some(writer) = &self.0 else { return Ok(()) };
        let EncodedChanges { bytes, count } = changes;
        writer
            .append(tid, stamp_ms, bytes.len(), |to| to.written(bytes, *count))
            .map_err(LogFailure::new)
    }

    fn keeps_changes(&self) -> bool {
        self.0.is_some()
    }
}

fn origin_of<'a>(change: &Change<'a>) -> Option<Origin<'a>> {
    match *change {
        Change::Put { origin, .. } | Change::Delete { origin, .. } => origin,
        Change::Edit { .. } | Change::Elements { .. } | Change::Flush { .. } => None,
    }
}

fn size(change: Change<'_>) -> usize {
    EntryWriter::OVERHEAD
        + match change {
            Change::Put { key, value, .. } => key.len() + value.len(),
            Change::Edit { key, bytes, .. } => key.len() + bytes.len(),
            Change::Elements { key, changes, .. } => key.len() + changes.len(),
            Change::Delete { key, .. } => key.len(),
            Change::Flush { .. } => 0,
        }
}
