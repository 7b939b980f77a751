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
mod region_file;
mod remote;

use std::io;

use base::memory::RemoteError;

use crate::memory::{Access, Grant, Memory};
pub use mapped::Mapped;
pub use region::ShmRegion;
pub use region_file::Shm;
pub use remote::ShmRemote;

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
