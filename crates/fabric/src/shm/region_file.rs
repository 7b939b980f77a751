//! The files of regions: their directory, their names, and their headers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"kumiki\x00\x01");
/// The number of words before the region: a page, so that the region begins at a page.
pub(super) const HEADER: usize = 512;
/// The number of words at the end of the header for another kind of memory that shows the same
/// region.
pub(super) const MARGIN: usize = 8;
/// Places of the header's words.
pub(super) const WORDS: usize = 1;
pub(super) const ACCESS: usize = 2;
pub(super) const WITHDRAWN: usize = 3;
pub(super) const KEY: usize = 4;

const PREFIX: &str = "kumiki-";
/// The number of random characters of a name.
const RANDOM: usize = 32;

/// The directory of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shm {
    pub(super) dir: PathBuf,
}

impl Default for Shm {
    /// Returns `/dev/shm`.
    fn default() -> Shm {
        Shm::in_dir("/dev/shm")
    }
}

impl Shm {
    /// Uses another directory; its file system should lie in memory, or it is slow.
    #[must_use]
    pub fn in_dir(dir: impl Into<PathBuf>) -> Shm {
        Shm { dir: dir.into() }
    }

    /// Removes the files that dead owners have left. Returns the number of these files. Files whose
    /// owners live, and those of other users, stay.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn sweep(&self) -> io::Result<usize> {
        let mut removed = 0;
        for entry in std::fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            if name.to_str().is_some_and(is_name) && remove_if_dead(&self.dir.join(name)) {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Returns the path of the file of this name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Returns a name that no other region has.
pub(super) fn new_name() -> io::Result<String> {
    let mut random = [0; RANDOM / 2];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let digits = random.iter().map(|byte| format!("{byte:02x}"));
    Ok(PREFIX.to_owned() + &digits.collect::<String>())
}

pub(super) fn is_name(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == RANDOM && rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Opens a file that exists. A link or a pipe of this name leads nowhere else.
pub(super) fn open(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Removes a file if its owner is dead. An owner that is just making the file notices, and makes
/// another.
pub(super) fn remove_if_dead(path: &Path) -> bool {
    let Ok(file) = open(path, false) else {
        return false;
    };
    // The lock is held until the file is removed: an owner that is making it waits for the lock,
    // and then looks.
    file.try_lock().is_ok() && std::fs::remove_file(path).is_ok()
}

/// Returns a key as two words.
pub(super) fn halves(key: [u8; 16]) -> (u64, u64) {
    let key = u128::from_le_bytes(key);
    (key as u64, (key >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        let name = new_name().unwrap();
        assert!(is_name(&name), "{name}");
        for other in [
            "kumiki-",
            "kumiki-../../../../etc/passwd__________",
            "other",
            &name[1..],
            &format!("{name}0"),
            &format!("/{name}"),
        ] {
            assert!(!is_name(other), "{other}");
        }
    }
}
