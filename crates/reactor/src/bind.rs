//! Binding an address that an earlier process had.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// How long an address may be in use by a process that has ended.
const LIMIT: Duration = Duration::from_secs(1);
/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Repeats `bind` for up to a second while the address is in use: the kernel closes the sockets of a ring a moment
/// after the process that had the ring has ended.
///
/// # Errors
/// Returns the last error of `bind`.
pub fn bind_when_free<T>(mut bind: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begin = Instant::now();
    loop {
        match bind() {
            Err(error) if error.kind() == ErrorKind::AddrInUse && begin.elapsed() < LIMIT => {
                std::thread::sleep(PAUSE);
            }
            bound => return bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_is_tried_again_and_no_other_error() {
        let mut left = 3;
        let bound = bind_when_free(|| {
            left -= 1;
            match left {
                0 => Ok(7),
                _ => Err(ErrorKind::AddrInUse.into()),
            }
        });
        assert_eq!(bound.unwrap(), 7);
        let mut attempts = 0;
        let refused = bind_when_free(|| {
            attempts += 1;
            Err::<(), _>(ErrorKind::PermissionDenied.into())
        });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(attempts, 1);
        let used = bind_when_free(|| Err::<(), _>(ErrorKind::AddrInUse.into()));
        assert_eq!(used.unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
