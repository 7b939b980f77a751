//! The first reading of the file: nothing is sent before its checksum is known to be right.

use std::collections::BTreeSet;
use std::path::Path;

use pages::Progress as _;
use values::dump::RdbItem;

use super::source::{open, refused};
use crate::progress::ProgressLine;
use crate::signals::StopRequest;

/// What a file has.
pub(super) struct Survey {
    pub(super) keys: u64,
    /// The numbers of the databases that have keys.
    pub(super) databases: BTreeSet<u64>,
    /// The length of the file.
    pub(super) end: u64,
}

/// Reads the file to its end.
///
/// # Errors
/// The text says what is wrong with it, or that no item begins where the import is to go on.
pub(super) fn read(path: &Path, continue_at: u64, stop: &StopRequest) -> Result<Survey, String> {
    let mut reader = open(path)?;
    let mut progress = ProgressLine::new(format!("{}: keys checked", path.display()));
    let mut survey = Survey {
        keys: 0,
        databases: BTreeSet::new(),
        end: 0,
    };
    let mut database = 0;
    let mut is_item = continue_at == 0;
    while let Some(item) = reader.next_item().map_err(|error| refused(path, &error))? {
        is_item |= reader.item_position() == continue_at;
        match item {
            RdbItem::Database(number) => database = number,
            RdbItem::Key { .. } => {
                survey.keys += 1;
                survey.databases.insert(database);
                if survey.keys.is_multiple_of(1024) {
                    progress.done(survey.keys, None);
                    if stop.is_wanted() {
                        return Err("stopped; nothing was sent".to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    survey.end = reader.item_position();
    if !is_item && continue_at != survey.end {
        return Err(format!(
            "{}: nothing begins at byte {}: give the position that the earlier import has printed, and the same file",
            path.display(),
            continue_at
        ));
    }
    Ok(survey)
}
