//! The limit on open files and sockets of this process, and the part of it that clients get.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for logs, checkpoints, links to other nodes and the admin endpoint.
const RESERVE: u64 = 128;
/// Descriptors reserved for each thread.
const OF_A_THREAD: u64 = 4;

/// Raises the limit as far as this process is allowed to, and returns it.
pub(crate) fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some() && current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns how many clients may connect at once: the wanted number, or fewer if the limit on open
/// files leaves less beside the needs of the process itself.
pub(crate) fn clients(wanted: usize, threads: usize, limit: u64) -> usize {
    let most = most_clients(threads, limit);
    if most >= wanted {
        return wanted;
    }
    tracing::warn!(
        "at most {most} clients instead of {wanted}: this process may have {limit} files open and keeps {} for \
         itself; raise the limit (ulimit -Hn) or lower --max-clients",
        kept(threads)
    );
    most
}

/// Returns how many clients the limit on open files leaves beside the needs of the process itself.
pub(crate) fn most_clients(threads: usize, limit: u64) -> usize {
    let most = limit.saturating_sub(kept(threads)).max(1);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Returns the number of descriptors that the process keeps for itself.
fn kept(threads: usize) -> u64 {
    RESERVE + OF_A_THREAD * threads as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_what_the_process_needs() {
        assert_eq!(clients(10_000, 2, u64::MAX), 10_000);
        assert_eq!(clients(10_000, 2, 1024), 1024 - 136);
        assert_eq!(clients(100, 2, 1024), 100);
        assert_eq!(clients(100, 2, 10), 1);
    }

    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        let limit = raise();
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(limit, most);
    }
}
