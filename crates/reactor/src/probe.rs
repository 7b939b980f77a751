//! The choice between epoll and io_uring, by what the kernel offers to this process.
//!
//! Containers forbid io_uring by seccomp. Most profiles have the call fail; some kill the process that makes it.
//! So a child process makes the first call.
//!
//! Safety contract: between `fork` and `_exit` the child makes system calls alone, which is allowed in a process
//! with several threads. It shares no memory with its parent that it writes to.

#![allow(unsafe_code)]

use std::fmt;
use std::io;

use crate::network::Network;
use crate::uring::Uring;

/// The way in which a thread waits for its connections, reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Io {
    /// io_uring if the kernel offers it, else epoll.
    #[default]
    Auto,
    /// epoll.
    Epoll,
    /// io_uring.
    Uring,
}

/// The reason why io_uring cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel offers no io_uring to this process ({0}); Linux 6.1 or later has it, unless a container forbids it"
)]
pub struct NoUring(String);

impl Io {
    /// Chooses epoll or io_uring: never returns [`Io::Auto`]. With [`Io::Auto`], the reason for epoll is logged,
    /// and the process is forked for a moment: choose before the process has much memory.
    ///
    /// # Errors
    /// Returns an error if io_uring is asked for and cannot be used.
    pub fn choose(self) -> Result<Io, NoUring> {
        match self {
            Io::Epoll => Ok(Io::Epoll),
            Io::Uring => make_ring().map(|()| Io::Uring),
            Io::Auto => match survives_setup().and_then(|()| make_ring()) {
                Ok(()) => Ok(Io::Uring),
                Err(reason) => {
                    tracing::info!(%reason, "epoll is used");
                    Ok(Io::Epoll)
                }
            },
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Io::Auto => "auto",
            Io::Epoll => "epoll",
            Io::Uring => "io_uring",
        })
    }
}

/// Makes a ring; returns the reason if that is not possible.
fn make_ring() -> Result<(), NoUring> {
    Uring::open()
        .map(drop)
        .map_err(|error| NoUring(error.to_string()))
}

/// Makes the system call of io_uring in a child process. Returns the reason if the child was killed for it.
fn survives_setup() -> Result<(), NoUring> {
    // SAFETY: see the module.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(NoUring(format!(
            "no process to try it: {}",
            io::Error::last_os_error()
        )));
    }
    if child == 0 {
        let mut parameters = [0_u8; 120];
        // SAFETY: the parameters are as long as the kernel's `io_uring_params`, and zeroed as it wants them. The
        // ring ends with the process.
        unsafe {
            libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr());
            libc::_exit(0);
        }
    }
    let mut status = 0;
    loop {
        // SAFETY: the child is this process's, and `status` outlives the call.
        match unsafe { libc::waitpid(child, &raw mut status, 0) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            // A program that ignores the ends of its children learns nothing of them.
            -1 => return Ok(()),
            _ if libc::WIFSIGNALED(status) => {
                return Err(NoUring(format!(
                    "a process that tries is killed by signal {}",
                    libc::WTERMSIG(status)
                )));
            }
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_uring_is_chosen_where_it_is_to_be_had() {
        assert_eq!(Io::Epoll.choose().expect("no question"), Io::Epoll);
        let has_it = Uring::open().is_ok();
        let auto = Io::Auto.choose().expect("there is always a way");
        assert_eq!(auto, if has_it { Io::Uring } else { Io::Epoll });
        assert_eq!(Io::Uring.choose().is_ok(), has_it);
    }
}
