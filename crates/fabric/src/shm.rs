//! Memory that processes of one machine share.
//!
//! A region is a file in `/dev/shm`, which its owner and its peers map. So it works between
//! containers that share this directory, and no descriptors or process numbers are passed.
//!
//! | part | concept |
//! |---|---|
//! | `mapping` | a file as words of memory |
//! | `region` | the owner's view |
//! | `remote` | a peer's view |
//! | `mapped` | a peer's view, as bytes |
//! | this | the directory, names, and the files that dead owners have left |
//!
//! The file of a region, in words of eight bytes:
//!
//! | word | field |
//! |---|---|
//! | 0 | magic, and the version of this layout |
//! | 1 | words of the region |
//! | 2 | the access of peers: 1 read, 2 read and write |
//! | 3 | 0; 1 when the grant is withdrawn |
//! | 4–5 | the key |
//! | 6–503 | zero |
//! | 504–511 | zero, or the words that an RDMA device's region has in front of it |
//! | 512– | the region |
//!
//! Invariants:
//!
//! 1. **The owner holds the file's lock** (`flock`) as long as it lives and the file has its name.
//!    The system releases the lock however the owner ends. A process that gets the lock knows that
//!    the owner is dead, and removes the file. So each file that is left is removed by a process
//!    that starts, or that reads the region.
//! 2. **The memory of a file is allocated when the file is made.** If there is none, this is an
//!    error then, and not a signal when the memory is touched.
//! 3. A file never changes its size. Its mode admits only the owner's user, and lets that user
//!    write only if peers may write. Peers that may not write map it so that they cannot.
//! 4. A name of a file that comes from a peer is used only if it looks as names do here.
//! 5. Peers map no file that another user owns or can write: that user could shorten it, which
//!    would end the process that has it mapped.
//!
//! **Processes of one user are not protected from each other.** One of them can shorten a file that
//! another one has mapped, which ends that one; but it could as well have killed it.

mod mapped;
mod mapping;
mod region;
mod remote;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::memory::RemoteError;

use crate::memory::{Access, Grant, Memory};
pub use mapped::Mapped;
pub use region::ShmRegion;
pub use remote::ShmRemote;

const MAGIC: u64 = u64::from_le_bytes(*b"kumiki\x00\x01");
/// The number of words before the region: a page, so that the region begins at a page.
const HEADER: usize = 512;
/// The number of words at the end of the header for another kind of memory that shows the same
/// region.
const MARGIN: usize = 8;
/// Places of the header's words.
const WORDS: usize = 1;
const ACCESS: usize = 2;
const WITHDRAWN: usize = 3;
const KEY: usize = 4;

const PREFIX: &str = "kumiki-";
/// The number of random characters of a name.
const RANDOM: usize = 32;

/// The directory of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shm {
    dir: PathBuf,
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
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Memory for Shm {
    type Region = ShmRegion;
    type Remote = ShmRemote;

    fn register(&self, words: usize, access: Access) -> io::Result<ShmRegion> {
        ShmRegion::new(self, words, access)
    }

    fn reach(&self, grant: &Grant) -> Result<ShmRemote, RemoteError> {
        ShmRemote::new(self, grant)
    }
}

/// Returns a name that no other region has.
fn new_name() -> io::Result<String> {
    let mut random = [0; RANDOM / 2];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let digits = random.iter().map(|byte| format!("{byte:02x}"));
    Ok(PREFIX.to_owned() + &digits.collect::<String>())
}

fn is_name(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == RANDOM && rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Opens a file that exists. A link or a pipe of this name leads nowhere else.
fn open(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Removes a file if its owner is dead. An owner that is just making the file notices, and makes
/// another.
fn remove_if_dead(path: &Path) -> bool {
    let Ok(file) = open(path, false) else {
        return false;
    };
    // The lock is held until the file is removed: an owner that is making it waits for the lock,
    // and then looks.
    file.try_lock().is_ok() && std::fs::remove_file(path).is_ok()
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
