//! Files of the repository that tests read (documents, corpora), and files with secrets.
//!
//! `root` is the caller's `env!("CARGO_MANIFEST_DIR")`, which lies two folders below the
//! repository's.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Checks that every row of the tables in the documentation of `modules` (paths below the crate's
/// `src`) is a line of `docs/DOCUMENT`.
///
/// # Panics
/// Panics if one is missing, or a module has fewer than five rows.
#[track_caller]
pub fn tables_are_in(root: &str, document: &str, modules: &[&str]) {
    let root = Path::new(root);
    let document = fs::read_to_string(root.join("../../docs").join(document)).expect("a document");
    let lines: Vec<&str> = document.lines().collect();
    for module in modules {
        let source = fs::read_to_string(root.join("src").join(module)).expect("a module");
        let rows = source
            .lines()
            .filter_map(|line| line.strip_prefix("//! "))
            .filter(|line| line.starts_with('|'));
        let mut found = 0;
        for row in rows {
            assert!(lines.contains(&row), "{module} has a row more: {row}");
            found += 1;
        }
        assert!(found > 4, "{module} has tables");
    }
}

/// Writes a file that only its user can read, as passwords and keys require.
///
/// # Panics
/// Panics if it cannot be written.
#[track_caller]
pub fn write_private(path: &Path, contents: impl AsRef<[u8]>) {
    write_with_mode(path, contents.as_ref(), 0o600);
}

/// Writes a file that every user can read, independent of the process's umask.
///
/// # Panics
/// Panics if it cannot be written.
#[track_caller]
pub fn write_public(path: &Path, contents: impl AsRef<[u8]>) {
    write_with_mode(path, contents.as_ref(), 0o644);
}

#[track_caller]
fn write_with_mode(path: &Path, contents: &[u8], mode: u32) {
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).expect("a file");
    let permissions = fs::Permissions::from_mode(mode);
    file.set_permissions(permissions).expect("its mode");
    file.write_all(contents).expect("its contents");
}

/// Returns the contents of the files in the crate's folder `corpus/NAME`, in the order of their names.
///
/// # Panics
/// Panics if there are none.
#[must_use]
#[track_caller]
pub fn corpus(root: &str, name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(root).join("corpus").join(name);
    let entries = fs::read_dir(&folder).expect("a corpus");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "an empty corpus in {}", folder.display());
    let read = |path| fs::read(path).expect("a file");
    paths.iter().map(read).collect()
}
