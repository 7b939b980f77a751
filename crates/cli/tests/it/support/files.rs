//! Directories of nodes that do not run.

use std::fs;
use std::path::Path;

/// Copies a directory with everything in it; `to` does not exist.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("a copy");
        }
    }
}

/// Exchanges two directories.
pub(crate) fn exchange(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    for (from, to) in [(one, &*aside), (other, one), (&aside, other)] {
        fs::rename(from, to).expect("a directory of a node");
    }
}
