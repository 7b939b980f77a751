//! A network of its own for the nodes: a namespace each, and one for the harness, on one bridge.
//!
//! ```text
//!   namespace …-hub                          namespace …-1
//!   harness, 10.231.0.254 ── bridge ── v1 ────── eth0, 10.231.0.1
//!                              ├────── v2 ──────  …
//! ```
//!
//! It is invisible from outside, so that neither addresses nor names of devices conflict with those
//! of others. Only namespaces have names that all processes see; they contain the harness's process
//! id, and a later run removes those of processes that are gone.
//!
//! | fault | by |
//! |---|---|
//! | a node is cut off from all, clients too | its cable's end at the bridge is set down |
//! | what a node sends to another one is lost | a route to there, in its namespace, that swallows everything |
//!
//! It takes the rights of root, and the programs `ip` and `nsenter`.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use xtask::process;

/// The prefix of the names of all namespaces.
pub(super) const PREFIX: &str = "kumiki-chaos-";
/// Where `ip` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// The network. It is removed when this is dropped, and all processes in it must have ended before.
#[derive(Debug)]
pub struct ChaosNetwork {
    tag: String,
    nodes: u16,
}

impl ChaosNetwork {
    /// Makes a network for nodes 1 to `nodes`, after removing leftovers of earlier runs.
    ///
    /// # Errors
    /// Returns an error if the system does not permit it; the message says what is needed.
    pub fn build(nodes: u16) -> Result<ChaosNetwork> {
        sweep()?;
        let tag = format!("{PREFIX}{}", std::process::id());
        // From here on everything that was made is removed if the rest fails.
        let network = ChaosNetwork { tag, nodes };
        network.lay().context(
            "network namespaces cannot be made, and chaos runs need them: run it as root, with \
             iproute2 installed, on a system that permits namespaces, bridges and veth pairs",
        )?;
        Ok(network)
    }

    fn lay(&self) -> Result<()> {
        let hub = self.hub();
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "set", "lo", "up"])?;
        ip(&["-n", &hub, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "br0", "up"])?;
        ip(&["-n", &hub, "addr", "add", "10.231.0.254/24", "dev", "br0"])?;
        for node in self.all() {
            let (name, cable) = (self.namespace(node), cable(node));
            let address = format!("{}/24", address(node));
            ip(&["netns", "add", &name])?;
            let end = ["type", "veth", "peer", "name", "eth0", "netns", &name];
            ip(&[&["-n", &hub, "link", "add", &cable][..], &end].concat())?;
            ip(&["-n", &hub, "link", "set", &cable, "master", "br0", "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&["-n", &name, "addr", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    /// Moves the calling thread, and the threads and processes that it starts, to the namespace
    /// from which all nodes can be reached.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn enter(&self) -> Result<()> {
        let path = Path::new(NAMESPACES).join(self.hub());
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), kind).context("cannot enter a network namespace")
    }

    /// Returns a command line that runs the command behind it in the namespace of `node`, in the
    /// same process.
    #[must_use]
    pub fn wrapper(&self, node: u16) -> Command {
        let path = Path::new(NAMESPACES).join(self.namespace(node));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", path.display()));
        command
    }

    /// Plugs a node in, or pulls its plug.
    ///
    /// # Errors
    /// Returns an error if `ip` fails.
    pub fn plug(&self, node: u16, is_in: bool) -> Result<()> {
        let state = if is_in { "up" } else { "down" };
        ip(&["-n", &self.hub(), "link", "set", &cable(node), state])
    }

    /// Drops everything that `from` sends to `to`, from now on.
    ///
    /// # Errors
    /// Returns an error if `ip` fails.
    pub fn block(&self, from: u16, to: u16) -> Result<()> {
        let (name, to) = (self.namespace(from), address(to).to_string());
        ip(&["-n", &name, "route", "replace", "blackhole", &to])
    }

    /// Stops dropping what `from` sends to `to`.
    pub fn unblock(&self, from: u16, to: u16) {
        let (name, to) = (self.namespace(from), address(to).to_string());
        // Another fault that has ended may have removed it already.
        let _ = ip(&["-n", &name, "route", "del", "blackhole", &to]);
    }

    /// Ends all faults.
    ///
    /// # Errors
    /// Returns an error if `ip` fails.
    pub fn heal(&self) -> Result<()> {
        for node in self.all() {
            self.plug(node, true)?;
            let name = self.namespace(node);
            ip(&["-n", &name, "route", "flush", "type", "blackhole"])?;
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.nodes
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.tag)
    }

    fn namespace(&self, node: u16) -> String {
        format!("{}-{node}", self.tag)
    }
}

impl Drop for ChaosNetwork {
    fn drop(&mut self) {
        let nodes = self.all().map(|node| self.namespace(node));
        for name in nodes.chain([self.hub()]) {
            // A namespace that was never made counts as removed.
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

/// Returns a node's address.
#[must_use]
pub fn address(node: u16) -> Ipv4Addr {
    let host = u8::try_from(node).expect("few nodes");
    Ipv4Addr::new(10, 231, 0, host)
}

fn cable(node: u16) -> String {
    format!("v{node}")
}

fn ip(arguments: &[&str]) -> Result<()> {
    process::output("ip", Command::new("ip").args(arguments)).map(drop)
}

/// Returns `true` if a name, which an earlier run has made, is of a process that is gone.
pub(super) fn is_stale(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return false;
    };
    let digits = rest.split('-').next().unwrap_or_default();
    let Ok(id) = digits.parse::<u32>() else {
        return false;
    };
    // Another process may have the number now: then it is another program.
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    name.trim_end() != own_name() || id == std::process::id()
}

fn own_name() -> String {
    let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Removes the namespaces of earlier runs that were killed, with the nodes that still run there.
fn sweep() -> Result<()> {
    let Ok(entries) = fs::read_dir(NAMESPACES) else {
        return Ok(());
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !is_stale(&name) {
            continue;
        }
        println!("chaos: removing {name}, which an earlier run has left");
        let list = process::output("ip", Command::new("ip").args(["netns", "pids", &name]));
        for pid in list.unwrap_or_default().lines() {
            if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
                // It may have ended in the meantime.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if ip(&["netns", "del", &name]).is_err() {
            bail!("{name} cannot be removed: try ip netns del {name}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_that_are_gone_are_stale_and_others_are_not() {
        assert!(
            is_stale("kumiki-chaos-4194305-hub"),
            "no process has this number"
        );
        assert!(
            is_stale("kumiki-chaos-1-2"),
            "it is another program's number"
        );
        for other in ["kumiki-chaos-x-1", "kumiki-chaos", "somebody-1-hub"] {
            assert!(!is_stale(other), "{other}");
        }
        assert_eq!(address(3), Ipv4Addr::new(10, 231, 0, 3));
    }
}
