//! Debian packages.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;

/// Installs packages. The lists of packages are updated if there are none, or if installing fails with those that
/// are there.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    let install = || {
        let mut command = as_root("apt-get");
        command.args(["install", "--yes", "--no-install-recommends", "--quiet"]);
        process::run("apt-get install", command.args(packages))
    };
    with_lists(install)
}

/// Downloads a package into a folder, without installing it.
pub(super) fn download(package: &str, folder: &Path) -> Result<()> {
    with_lists(|| {
        let mut command = as_root("apt-get");
        command.args(["download", "--quiet", package]);
        process::run("apt-get download", command.current_dir(folder))
    })
}

/// Does work that needs lists of packages, and does it again with new lists if it fails.
fn with_lists(work: impl Fn() -> Result<()>) -> Result<()> {
    if has_lists() && work().is_ok() {
        return Ok(());
    }
    process::run(
        "apt-get update",
        as_root("apt-get").args(["update", "--quiet"]),
    )?;
    work()
}

/// Returns a command that runs as root, by `sudo` without a password if this process is not root's.
pub(super) fn as_root(program: &str) -> Command {
    let mut command = Command::new("env");
    if !rustix::process::geteuid().is_root() {
        command = Command::new("sudo");
        command.args(["--non-interactive", "env"]);
    }
    command.args(["DEBIAN_FRONTEND=noninteractive", program]);
    command
}

fn has_lists() -> bool {
    let Ok(lists) = Path::new("/var/lib/apt/lists").read_dir() else {
        return false;
    };
    lists
        .flatten()
        .any(|list| list.file_name().to_string_lossy().contains("_Packages"))
}
