//! The processors of this machine, and threads' places on them.
//!
//! Memory belongs to the processor whose thread first touches it. A thread that is to stay on one
//! processor therefore pins itself before it allocates the memory that it will use. Threads inherit
//! the place of the thread that starts them: start none from a pinned thread.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the processors that this thread may use, in ascending order: all of the machine's,
/// unless a container or an administrator allows fewer.
///
/// # Errors
/// Returns the system's error.
pub fn usable() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Pins this thread to `cpu`.
///
/// # Errors
/// Returns an error if there is no such processor, or if this process may not use it.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        let all = usable().unwrap();
        assert!(!all.is_empty());
        for cpu in all.clone() {
            let seen = std::thread::spawn(move || {
                pin_current_thread(cpu).unwrap();
                usable().unwrap()
            });
            assert_eq!(seen.join().unwrap(), [cpu]);
        }
        assert_eq!(usable().unwrap(), all, "this thread is not pinned");
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused() {
        for cpu in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            if !usable().unwrap().contains(&cpu) {
                assert!(
                    std::thread::spawn(move || pin_current_thread(cpu).is_err())
                        .join()
                        .unwrap()
                );
            }
        }
    }
}
