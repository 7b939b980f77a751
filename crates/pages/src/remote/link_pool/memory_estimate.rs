//! Estimates the memory of the threads and links of a pool, and refuses pools that do not fit.

use super::options::LinkPoolOptions;
use crate::error::Error;

/// Bytes of a link besides its window: the stack of its thread, rings, and buffers of messages.
const LINK: u64 = 1 << 20;
/// Bytes of a thread besides its stack: its inbox, and what the system keeps for it.
const THREAD: u64 = 32 << 10;

/// Returns the bytes that the links, and the threads that use them, take at most.
fn needed(options: &LinkPoolOptions) -> u64 {
    let link = LINK + options.session.window_bytes as u64;
    let thread = THREAD + options.stack_bytes as u64;
    let links = link.saturating_mul(options.connections as u64);
    links.saturating_add(thread.saturating_mul(options.threads() as u64))
}

/// Returns an error if there is not so much free memory; `Ok` where the system does not report it.
pub(super) fn check(options: &LinkPoolOptions) -> Result<(), Error> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    check_against(options, &meminfo)
}

fn check_against(options: &LinkPoolOptions, meminfo: &str) -> Result<(), Error> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let Some(free) = kib.map(|kib| kib.saturating_mul(1024)) else {
        return Ok(());
    };
    let needed = needed(options);
    if needed <= free {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    Err(Error::Options(format!(
        "{} connections to storage node {} with {} threads each need about {} MiB of memory, and {} MiB \
         are free: use fewer threads, or smaller stacks and windows",
        options.connections,
        options.session.address,
        options.threads_per_connection,
        mib(needed),
        mib(free),
    )))
}

#[cfg(test)]
mod tests {
    use fabric::Secret;

    use super::*;
    use crate::remote::SessionOptions;

    #[test]
    fn threads_that_do_not_fit_are_refused_with_both_numbers() {
        let address = "127.0.0.1:1".parse().unwrap();
        let mut options = LinkPoolOptions {
            session: SessionOptions::new(address, Secret::new("")),
            connections: 100,
            threads_per_connection: 100,
            stack_bytes: 96 << 10,
        };
        options.session.window_bytes = 1 << 20;
        // 100 links of 2 MiB, and 10,000 threads of 128 KiB.
        let needed_kib = 100 * 2 * 1024 + 10_000 * 128;
        let of = |kib: u64| format!("MemTotal: 1 kB\nMemAvailable:  {kib} kB\n");
        assert!(check_against(&options, &of(needed_kib)).is_ok());
        let error = check_against(&options, &of(needed_kib - 1)).unwrap_err();
        assert!(matches!(error, Error::Options(_)), "{error}");
        assert!(error.to_string().contains("need about 1450 MiB"), "{error}");
        assert!(error.to_string().contains("1449 MiB are free"), "{error}");
        // Without the figure there is nothing to compare with.
        assert!(check_against(&options, "").is_ok());
        options.threads_per_connection = usize::MAX;
        assert!(check_against(&options, &of(needed_kib)).is_err());
    }
}
