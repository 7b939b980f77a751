//! How much memory this process may use.

use std::path::Path;

/// Of the memory that there is, what data may take: the rest is for buffers, for what the
/// allocator cannot give back, and for the machine.
const SHARE: (u64, u64) = (3, 4);

/// The bound on data when the operator has given none: a share of the machine's memory, or of the
/// control group's if that is less; 0, no bound, where neither can be found out.
pub(crate) fn default_bound() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = machine.totalram.saturating_mul(machine.mem_unit.into());
    let group = group_limit(Path::new("/sys/fs/cgroup/memory.max"));
    share(machine, group)
}

/// The bound on what clients' requests and replies take, when the operator has given none: half of what is left
/// beside the data.
pub(crate) fn default_client_bound() -> u64 {
    let data = default_bound();
    let left = data / SHARE.0 * (SHARE.1 - SHARE.0);
    match left / 2 {
        0 => u64::MAX,
        half => half,
    }
}

fn share(machine: u64, group: Option<u64>) -> u64 {
    let memory = group.map_or(machine, |group| group.min(machine));
    memory / SHARE.1 * SHARE.0
}

/// The limit that a control group's file tells; `None` when there is none.
fn group_limit(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_limit_counts() {
        assert_eq!(share(400, None), 300);
        assert_eq!(share(400, Some(100)), 75);
        assert_eq!(share(400, Some(u64::MAX)), 300);
    }

    #[test]
    fn a_group_without_a_limit_has_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "max\n").unwrap();
        assert_eq!(group_limit(file.path()), None);
        std::fs::write(file.path(), "1024\n").unwrap();
        assert_eq!(group_limit(file.path()), Some(1024));
        assert_eq!(group_limit(Path::new("/nonexistent")), None);
    }

    #[test]
    fn this_machine_has_a_bound() {
        assert!(default_bound() > 1 << 20);
    }
}
