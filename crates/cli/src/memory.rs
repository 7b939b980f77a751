//! The memory that this process may use.

use std::path::Path;

/// The share of the memory that data may take: the rest is for buffers, for memory that the
/// allocator cannot give back, and for the machine.
const SHARE: (u64, u64) = (3, 4);

/// Returns the limit on data when the operator has given none: a share of the machine's memory, or
/// of the control group's if that is less; 0, no limit, if neither can be found out.
pub(crate) fn default_bound() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = machine.totalram.saturating_mul(machine.mem_unit.into());
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let group = group_limit(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    share(machine, group)
}

/// Returns the limit on clients' requests and replies when the operator has given none: half of the
/// memory that data leaves.
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

/// Returns the smallest memory limit of the process's control groups and of those above them, of
/// cgroup v1 and v2; `None` when there is none. The arguments are the contents of
/// `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn group_limit(groups: &str, mounts: &str) -> Option<u64> {
    let limits = mounts.lines().filter_map(|mount| {
        let (place, system) = mount.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, directory) = (place.next()?, Path::new(place.next()?));
        let mut system = system.split(' ');
        let (controller, file) = match (system.next()?, system.nth(1)?) {
            ("cgroup2", _) => ("", "memory.max"),
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => {
                ("memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = groups.lines().find_map(|group| {
            let (controllers, path) = group.split_once(':')?.1.split_once(':')?;
            controllers
                .split(',')
                .any(|one| one == controller)
                .then_some(path)
        })?;
        // In a container only a part of the hierarchy may be mounted.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        below
            .ancestors()
            .filter_map(|group| limit_in(&directory.join(group).join(file)))
            .min()
    });
    limits.min()
}

/// Returns the limit in a control group's file; `None` when there is none.
fn limit_in(file: &Path) -> Option<u64> {
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
        assert_eq!(limit_in(file.path()), None);
        std::fs::write(file.path(), "1024\n").unwrap();
        assert_eq!(limit_in(file.path()), Some(1024));
        assert_eq!(limit_in(Path::new("/nonexistent")), None);
    }

    #[test]
    fn the_smallest_limit_above_the_process_counts() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let group = root.join("system.slice/kumiki.service");
        std::fs::create_dir_all(&group).unwrap();
        let at = root.display();
        for (groups, system, file) in [
            ("0::", "cgroup2 cgroup2 rw", "memory.max"),
            (
                "0::/\n4:cpu,memory:",
                "cgroup cgroup rw,cpu,memory",
                "memory.limit_in_bytes",
            ),
        ] {
            let limit = |mounted: &str, below: &str| {
                let mounts = format!("1 2 0:3 {mounted} {at} rw - {system}\n");
                group_limit(&format!("{groups}{below}\n"), &mounts)
            };
            let below = "/system.slice/kumiki.service";
            assert_eq!(limit("/", below), None);
            std::fs::write(group.join(file), "3000\n").unwrap();
            assert_eq!(limit("/", below), Some(3000));
            std::fs::write(root.join("system.slice").join(file), "2000\n").unwrap();
            assert_eq!(limit("/", below), Some(2000));
            assert_eq!(limit("/", "/"), None);
            // The mount begins at a container's group.
            let inside = format!("/docker/1{below}");
            assert_eq!(limit("/docker/1", &inside), Some(2000));
            std::fs::write(root.join(file), "1000\n").unwrap();
            assert_eq!(limit("/docker/1", "/docker/1"), Some(1000));
            // The process's own group lies outside of the mount.
            assert_eq!(limit("/docker/1", "/"), Some(1000));
        }
        assert_eq!(group_limit("", ""), None);
    }

    #[test]
    fn this_machine_has_a_bound() {
        assert!(default_bound() > 1 << 20);
    }
}
