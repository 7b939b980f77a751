//! The file that is imported.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use values::dump::{RdbError, RdbReader};

/// The length of the longest value, which is also that of the longest argument of a command.
pub(super) const LONGEST: usize = 512 << 20;
/// The number of bytes that are read of the file at a time.
pub(super) const READ: usize = 1 << 20;

/// Opens the file, whose first item is at the returned reader's position.
pub(super) fn open(path: &Path) -> Result<RdbReader<BufReader<File>>, String> {
    let file =
        File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    RdbReader::new(BufReader::with_capacity(READ, file), LONGEST)
        .map_err(|error| refused(path, &error))
}

/// Returns the text of an error of a file.
pub(super) fn refused(path: &Path, error: &RdbError) -> String {
    format!("{}: {error}", path.display())
}
