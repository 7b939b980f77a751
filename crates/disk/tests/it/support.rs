//! Short functions for files.

use std::io::IoSlice;

use kumiki_disk::DiskFile;

/// Writes all of these bytes at an offset.
pub(crate) fn write(file: &dyn DiskFile, bytes: &[u8], at: u64) {
    file.write_all_at(&[IoSlice::new(bytes)], at).unwrap();
}
