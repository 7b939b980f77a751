//! The programs that tests and benchmarks stand beside: present or not, and how to get them.

mod cassandra;
mod etcd;
mod rdma;
mod rust_driver;

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{build, process};

/// A program, the Debian package that has it, and how it tells its version.
struct Peer {
    program: &'static str,
    package: &'static str,
    version: &'static str,
}

impl Peer {
    /// The program without its folder.
    fn name(&self) -> &'static str {
        self.program.rsplit('/').next().unwrap_or(self.program)
    }
}

const PEERS: &[Peer] = &[
    Peer {
        program: "redis-server",
        package: "redis-server",
        version: "--version",
    },
    Peer {
        program: "redis-cli",
        package: "redis-tools",
        version: "--version",
    },
    Peer {
        program: "redis-benchmark",
        package: "redis-tools",
        version: "--version",
    },
    Peer {
        program: "strace",
        package: "strace",
        version: "--version",
    },
    Peer {
        program: "python3",
        package: "python3",
        version: "--version",
    },
    Peer {
        program: "pip3",
        package: "python3-pip",
        version: "--version",
    },
    Peer {
        program: "node",
        package: "nodejs",
        version: "--version",
    },
    Peer {
        program: "npm",
        package: "npm",
        version: "--version",
    },
    Peer {
        program: "taskset",
        package: "util-linux",
        version: "--version",
    },
    Peer {
        program: "setpriv",
        package: "util-linux",
        version: "--version",
    },
    Peer {
        program: "psql",
        package: "postgresql-client",
        version: "--version",
    },
    // twemproxy. The folder is on the paths of few but root.
    Peer {
        program: "/usr/sbin/nutcracker",
        package: "nutcracker",
        version: "--version",
    },
];

/// A library of another language, for tests with clients that are not ours.
struct Library {
    name: &'static str,
    version: &'static str,
    /// What is named beside it, so that its version is not left to the installer.
    beside: &'static [&'static str],
    /// Where it lies under `target/peers` once it is installed; tests look there.
    place: &'static str,
    /// The program that installs it, and its arguments before the folder and the library.
    installer: &'static [&'static str],
    /// The folder under `target/peers` that is given to the program.
    folder: &'static str,
    /// What stands between name and version.
    join: &'static str,
}

/// Installs libraries for Python.
const PIP: &[&str] = &["pip3", "install", "--quiet", "--upgrade", "--target"];

const LIBRARIES: &[Library] = &[
    Library {
        name: "redis",
        version: "7.1.1",
        beside: &[],
        place: "python/redis",
        installer: PIP,
        folder: "python",
        join: "==",
    },
    Library {
        name: "cassandra-driver",
        version: "3.30.1",
        beside: &[],
        place: "python/cassandra",
        installer: PIP,
        folder: "python",
        join: "==",
    },
    // After its driver: each brings a folder `bin`, and the last one's stays.
    Library {
        name: "cqlsh",
        version: "6.2.2",
        beside: &["cassandra-driver==3.30.1"],
        place: "python/cqlshlib",
        installer: PIP,
        folder: "python",
        join: "==",
    },
    Library {
        name: "ioredis",
        version: "5.8.2",
        beside: &[],
        place: "node/node_modules/ioredis",
        installer: &[
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
        ],
        folder: "node",
        join: "@",
    },
];

impl Library {
    fn install(&self) -> Result<()> {
        let peers = build::root().join("target/peers");
        let wanted = format!("{}{}{}", self.name, self.join, self.version);
        // Written once it is complete.
        let mark = peers.join(format!("{}.installed", self.name));
        let there = std::fs::read_to_string(&mark).is_ok_and(|text| text == wanted);
        if !there || !peers.join(self.place).is_dir() {
            println!("peers: installing {wanted}");
            std::fs::create_dir_all(&peers)?;
            let [program, arguments @ ..] = self.installer else {
                bail!("no program installs {wanted}");
            };
            let mut command = Command::new(program);
            command.args(arguments).arg(peers.join(self.folder));
            command.arg(&wanted).args(self.beside);
            process::run(program, &mut command).with_context(|| {
                format!("cannot fetch {wanted}; {program} must reach its registry, or a mirror")
            })?;
            std::fs::write(&mark, &wanted)?;
        }
        println!("peers: {:<16} {}", self.name, self.version);
        Ok(())
    }
}

/// Installs what is missing, programs with apt-get and libraries of other languages with the
/// installers of those, and prints what is there.
///
/// # Errors
/// If something is missing and cannot be installed.
pub fn install() -> Result<()> {
    let mut packages: Vec<&str> = PEERS
        .iter()
        .filter(|p| version(p).is_none())
        .map(|p| p.package)
        .collect();
    packages.dedup();
    if !packages.is_empty() {
        println!("peers: installing {}", packages.join(" "));
        apt(&packages)?;
        stop_services();
    }
    for peer in PEERS {
        let Some(version) = version(peer) else {
            bail!(
                "{} is still missing; install the package {}",
                peer.program,
                peer.package
            );
        };
        println!("peers: {:<16} {version}", peer.name());
    }
    LIBRARIES.iter().try_for_each(Library::install)?;
    cassandra::install()?;
    rust_driver::install()?;
    etcd::install()?;
    rdma::install()
}

/// Whether a program can be started.
#[must_use]
pub fn has(program: &str) -> bool {
    PEERS
        .iter()
        .any(|p| p.name() == program && version(p).is_some())
}

/// Whether a check that lacks something on this machine is to fail instead of being skipped:
/// `KUMIKI_REQUIRE_PEERS` is set.
#[must_use]
pub fn are_required() -> bool {
    env::var_os("KUMIKI_REQUIRE_PEERS").is_some_and(|value| value != "0")
}

fn version(peer: &Peer) -> Option<String> {
    let mut command = Command::new(peer.program);
    let output = command.arg(peer.version).output().ok()?;
    // Some tell it where they tell errors.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default().trim();
    output.status.success().then(|| line.to_owned())
}

/// Installs packages. A fresh machine has no package lists; an installed one need not ask for them
/// again.
fn apt(packages: &[&str]) -> Result<()> {
    let install = || {
        let mut command = as_root("apt-get");
        command.args(["install", "--yes", "--no-install-recommends", "--quiet"]);
        process::run("apt-get install", command.args(packages))
    };
    with_lists(install)
}

/// Downloads a package into a folder, without installing it.
fn fetch(package: &str, folder: &Path) -> Result<()> {
    with_lists(|| {
        let mut command = as_root("apt-get");
        command.args(["download", "--quiet", package]);
        process::run("apt-get download", command.current_dir(folder))
    })
}

/// Does what needs package lists; again with new ones when that fails.
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

/// Packages are installed by root, or by whoever may become root without a password.
fn as_root(program: &str) -> Command {
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

/// Debian's packages start servers of their own, Redis at port 6379. They would use the cores that
/// are measured; our servers are started by the harnesses. Where there is no init system, there is
/// nothing to stop, and the command's failure says only that.
fn stop_services() {
    for service in ["redis-server", "nutcracker"] {
        let _ = process::output("service", as_root("service").args([service, "stop"]));
    }
}
