//! A binary and the servers that run it.

use std::fs::{self, File, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use xtask::interrupt;
use xtask::process::Guarded;

use super::process_time;
use crate::cluster::{ClusterFileShape, ClusterNodes, Ports};
use crate::server::{Program, ServerUnderTest};
use crate::status::ReportedStatus;
use testkit::{Client, Reply};

/// How long a proxy, and an election, may take. Everything takes long while instructions are
/// counted.
const READY: Duration = Duration::from_secs(60);
/// How long a proxy may take to end.
const END: Duration = Duration::from_secs(60);

/// The servers of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// One server without a log.
    Ephemeral,
    /// One server that syncs its log before it answers.
    Group,
    /// Two nodes, each with half of the keys.
    Cluster,
    /// Two nodes without a log; all keys are read atomic.
    ReadAtomic,
    /// Three nodes that hold the same keys.
    Replicated,
    /// A proxy before one server without a log.
    Proxy,
}

/// Returns the processors of the servers and of their client; none if there is only one.
fn processors() -> Option<(usize, usize)> {
    let all = thread::available_parallelism().map_or(1, usize::from);
    (all > 1).then(|| (0, all - 1))
}

/// Pins this thread, and the processes that it starts without another setting, to the client's
/// processor.
pub(super) fn leave_the_servers_alone() -> Result<()> {
    let Some((_, client)) = processors() else {
        return Ok(());
    };
    let mut set = CpuSet::new();
    set.set(client);
    sched_setaffinity(None, &set).context("cannot choose the client's processor")
}

/// A binary, started through a script that sets its processor and its wrapper.
#[derive(Debug)]
pub(super) struct Subject {
    binary: PathBuf,
    dir: PathBuf,
    script: PathBuf,
}

impl Subject {
    /// Creates a subject for the binary on the servers' processor; `dir`, which is created, takes
    /// its files.
    pub(super) fn new(binary: &Path, dir: &Path) -> Result<Subject> {
        let binary = binary
            .canonicalize()
            .with_context(|| format!("there is no binary {}", binary.display()))?;
        let pinned = processors().map(|(servers, _)| format!("taskset -c {servers}"));
        Subject::behind(&binary, dir, &pinned.unwrap_or_default())
    }

    /// Returns the same binary behind these words of a shell, without a processor of its own.
    pub(super) fn wrapped(&self, words: &str, dir: &Path) -> Result<Subject> {
        Subject::behind(&self.binary, dir, words)
    }

    fn behind(binary: &Path, dir: &Path, words: &str) -> Result<Subject> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let script = dir.join("kumiki");
        let text = format!("#!/bin/sh\nexec {words} '{}' \"$@\"\n", binary.display());
        fs::write(&script, text)?;
        fs::set_permissions(&script, Permissions::from_mode(0o755))?;
        Ok(Subject {
            binary: binary.to_owned(),
            dir: dir.to_owned(),
            script,
        })
    }

    /// Returns the directory for files of this binary during its measurement.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a command of the binary.
    pub(super) fn command(&self) -> Command {
        Command::new(&self.script)
    }

    /// Returns `kumiki serve` with these arguments.
    pub(super) fn program(&self, arguments: &[&str]) -> Program {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Program::kumiki(self.script.clone(), arguments)
    }

    /// Starts servers whose files lie in `dir`, and waits until they answer.
    pub(super) fn start(&self, setting: Setting, dir: &Path) -> Result<Running> {
        match setting {
            Setting::Ephemeral => self.one(&["--ephemeral"], dir),
            Setting::Group => self.one(&["--durability", "group"], dir),
            Setting::Cluster => self.nodes(&["--durability", "group"], dir, 1, 2),
            Setting::ReadAtomic => self.nodes(&["--ephemeral"], dir, 1, 2),
            Setting::Replicated => self.nodes(&[], dir, 3, 3),
            Setting::Proxy => self.proxy(dir),
        }
    }

    fn one(&self, arguments: &[&str], dir: &Path) -> Result<Running> {
        let mut server = self.program(arguments).start(&dir.join("data"), &vec![])?;
        server.wait_ready()?;
        Ok(Running {
            addresses: vec![server.addr()],
            pids: vec![server.pid()],
            servers: Servers::One(server),
        })
    }

    fn nodes(&self, arguments: &[&str], dir: &Path, replicas: u16, count: u16) -> Result<Running> {
        let shape = ClusterFileShape {
            replicas,
            read_atomic: match arguments {
                ["--ephemeral"] => vec!["key:".to_owned()],
                _ => Vec::new(),
            },
        };
        let ports = testkit::free_addresses(3 * usize::from(count))?;
        let ports = ports.chunks(3).map(|ports| Ports {
            client: ports[0].port(),
            fabric: ports[1].port(),
            replica: ports[2].port(),
        });
        let program = self.program(arguments);
        let mut nodes = ClusterNodes::new(&program, dir, &shape, &ports.collect::<Vec<_>>())?;
        nodes.start_all()?;
        nodes.wait_together()?;
        let pids = (0..nodes.count()).filter_map(|at| Some(nodes.server(at)?.pid()));
        let pids = pids.collect();
        let mut addresses = nodes.addresses();
        if replicas > 1 {
            addresses = vec![leader(&addresses)?];
        }
        Ok(Running {
            addresses,
            pids,
            servers: Servers::Cluster(nodes),
        })
    }

    fn proxy(&self, dir: &Path) -> Result<Running> {
        let Running {
            addresses,
            servers,
            mut pids,
        } = self.one(&["--ephemeral"], dir)?;
        let Servers::One(node) = servers else {
            unreachable!("it is one server");
        };
        let listen = testkit::free_address()?;
        let log = File::create(dir.join("proxy.log"))?;
        let mut command = self.command();
        command.arg("proxy");
        command.args(["--redis", &addresses[0].to_string()]);
        command.args(["--listen", &listen.to_string()]);
        command
            .args(["--locks", "memory", "--data"])
            .arg(dir.join("proxy"));
        command.stdout(log.try_clone()?).stderr(log);
        let mut proxy = Guarded::spawn("kumiki proxy", &mut command)?;
        wait_for_pong(&mut proxy, listen)
            .with_context(|| fs::read_to_string(dir.join("proxy.log")).unwrap_or_default())?;
        pids.push(proxy.pid());
        Ok(Running {
            addresses: vec![listen],
            pids,
            servers: Servers::Proxied { node, proxy },
        })
    }
}

fn wait_for_pong(process: &mut Guarded, address: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + READY;
    loop {
        interrupt::check()?;
        if let Some(status) = process.exited()? {
            bail!("the proxy ended ({status}) instead of listening");
        }
        let asked = Client::try_connect(address);
        let said = asked.and_then(|mut client| client.try_call(&["PING"]));
        if said.is_ok_and(|reply| reply == Reply::Status("PONG".to_owned())) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the proxy does not answer at {address}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the address of the node that leads.
fn leader(addresses: &[SocketAddr]) -> Result<SocketAddr> {
    let deadline = Instant::now() + READY;
    loop {
        interrupt::check()?;
        let leads =
            |at: &&SocketAddr| ReportedStatus::of(**at).is_ok_and(|said| said.role == "leader");
        if let Some(address) = addresses.iter().find(leads) {
            return Ok(*address);
        }
        if Instant::now() > deadline {
            bail!("no node leads");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Running servers. They are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    addresses: Vec<SocketAddr>,
    pids: Vec<Pid>,
    servers: Servers,
}

#[derive(Debug)]
enum Servers {
    One(ServerUnderTest),
    Cluster(ClusterNodes),
    Proxied {
        proxy: Guarded,
        node: ServerUnderTest,
    },
}

impl Running {
    /// Returns the addresses for clients.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the seconds that all servers' threads have run.
    pub(super) fn processor_time(&self) -> Result<f64> {
        self.pids.iter().map(|pid| process_time::of(*pid)).sum()
    }

    /// Ends the server at once, if it is a single one.
    pub(super) fn kill(self) -> Result<()> {
        if let Servers::One(mut server) = self.servers {
            server.kill()?;
        }
        Ok(())
    }

    /// Stops all of them in good order.
    pub(super) fn stop(self) -> Result<()> {
        match self.servers {
            Servers::One(mut server) => server.stop(),
            Servers::Cluster(mut nodes) => nodes.stop(),
            Servers::Proxied {
                mut proxy,
                mut node,
            } => {
                let status = proxy.terminate(END)?;
                if !status.success() {
                    bail!("the proxy ended with {status} after SIGTERM");
                }
                node.stop()
            }
        }
    }
}
