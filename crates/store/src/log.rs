//! The engine's redo log is the journal.

use base::{Change, Tid};
use engine::{Changes, RedoLog};
use journal::{EntryWriter, LogWriter};

/// Where a worker's commits go: the journal, or nowhere.
pub struct Log(pub(crate) Option<LogWriter>);

impl RedoLog for Log {
    fn ready(&mut self) -> Result<(), String> {
        let Some(writer) = &self.0 else { return Ok(()) };
        writer.wait_ready().map_err(|failed| failed.to_string())
    }

    fn append(&mut self, tid: Tid, stamp_ms: u64, changes: Changes<'_>) -> Result<(), String> {
        let Some(writer) = &self.0 else { return Ok(()) };
        let bytes = changes.iter().map(size).sum();
        let fill = |to: &mut EntryWriter<'_>| changes.iter().for_each(|change| to.change(&change));
        writer
            .append(tid, stamp_ms, bytes, fill)
            .map_err(|failed| failed.to_string())
    }
}

fn size(change: Change<'_>) -> usize {
    EntryWriter::OVERHEAD
        + match change {
            Change::Put { key, value, .. } => key.len() + value.len(),
            Change::Delete { key, .. } => key.len(),
            Change::Flush { .. } => 0,
        }
}
