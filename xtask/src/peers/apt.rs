//! Debian packages.

use std::fs;
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

/// Downloads the source of a package into a folder and unpacks it there. The lists of source packages are kept in
/// that folder, because few machines have them.
pub(super) fn source(package: &str, folder: &Path) -> Result<()> {
    let folder = folder.canonicalize()?;
    // apt-get makes only the folders of the machine's own lists.
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::create_dir_all(folder.join("cache/archives/partial"))?;
    with_lists(|| {
        let format = "deb-src $(SITE) $(RELEASE) $(COMPONENT)";
        let mut command = Command::new("apt-get");
        command.args(["indextargets", "--format", format, "Created-By: Packages"]);
        let sources = process::output("apt-get indextargets", &mut command)?;
        fs::write(folder.join("sources.list"), sources)?;
        for arguments in [&["update"][..], &["source", package]] {
            let mut command = Command::new("apt-get");
            let mut option = |name: &str, file: &str| {
                command.arg("-o");
                command.arg(format!("{name}={}", folder.join(file).display()));
            };
            option("Dir::Etc::SourceList", "sources.list");
            option("Dir::Etc::SourceParts", "no-sources");
            option("Dir::State::Lists", "lists");
            option("Dir::Cache", "cache");
            command.args(["-o", "APT::Sandbox::User=root", "--quiet"]);
            command.args(arguments).current_dir(&folder);
            process::run("apt-get source", &mut command)?;
        }
        Ok(())
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
