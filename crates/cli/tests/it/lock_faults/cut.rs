//! Cuts a process's connections: its sockets are borrowed and shut down, which both ends see as an
//! end without any announcement.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Cuts the connections of a child process whose other end is at one of these addresses. Returns
/// their number.
///
/// # Errors
/// Returns the system's error, above all if it does not allow access to sockets of another process.
pub(crate) fn cut(process: u32, to: &[SocketAddr]) -> io::Result<usize> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pidfd = pidfd_open(pid.expect("a process"), PidfdFlags::empty())?;
    let mut count = 0;
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let path = entry?.path();
        let is_socket = std::fs::read_link(&path)
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(number) = name
            .and_then(|name| name.parse().ok())
            .filter(|_| is_socket)
        else {
            continue;
        };
        let stream = match pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) {
            Ok(file) => TcpStream::from(file),
            // The process has just closed it.
            Err(rustix::io::Errno::BADF) => continue,
            Err(error) => return Err(error.into()),
        };
        // A socket that is no TCP connection has no peer's address.
        if stream.peer_addr().is_ok_and(|peer| to.contains(&peer)) {
            stream.shutdown(Shutdown::Both)?;
            count += 1;
        }
    }
    Ok(count)
}
