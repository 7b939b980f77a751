//! The processors of a run whose processes have one each.

use crate::error::RunError;

/// Returns the processors of node and readers, if each must have one.
pub(super) fn node_and_readers(pinned: bool) -> Result<Option<[usize; 2]>, RunError> {
    if !pinned {
        return Ok(None);
    }
    let usable = base::cpus::usable();
    let usable = usable.map_err(|error| RunError::failed("asking for processors")(&error))?;
    match usable[..] {
        [first, .., last] => Ok(Some([first, last])),
        _ => {
            let why = "node and readers cannot have a processor each: there is one";
            Err(RunError::Skipped(why.to_owned()))
        }
    }
}
