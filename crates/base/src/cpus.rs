//! The processors of this machine, and threads' places on them.
//!
//! Memory belongs to the processor whose thread first touches it; so a thread that is to stay on
//! one pins itself before it allocates what it will use. Threads inherit their place from those
//! that start them: start none from a pinned thread.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this thread may use, in their order: all of the machine's, unless a
/// container or an administrator allows fewer.
///
/// # Errors
/// What the system says.
pub fn usable() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Has this thread run on `cpu` alone.
///
/// # Errors
/// When there is no such processor, or this process may not use it.
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
