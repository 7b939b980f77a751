//! Processes of etcd, which form a cluster on this machine. Options that are not set here have
//! etcd's defaults; above all, it syncs its log before it answers.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::grpc::EtcdConnection;
use crate::error::RunError;
use crate::machine;

struct EtcdMember {
    name: String,
    client: SocketAddr,
    peer: SocketAddr,
}

/// The processes. They are killed when this is dropped.
pub(super) struct EtcdCluster {
    binary: PathBuf,
    dir: PathBuf,
    members: Vec<EtcdMember>,
    running: Vec<Child>,
}

impl EtcdCluster {
    /// Describes them; their data goes to `dir`. Starts none.
    pub(super) fn new(binary: &Path, dir: &Path, count: usize) -> Result<EtcdCluster, RunError> {
        let addresses = testkit::free_addresses(2 * count);
        let addresses = addresses.map_err(|error| RunError::failed("looking for ports")(&error))?;
        let member = |(number, of): (usize, &[SocketAddr])| EtcdMember {
            name: format!("member{number}"),
            client: of[0],
            peer: of[1],
        };
        Ok(EtcdCluster {
            binary: binary.to_owned(),
            dir: dir.to_owned(),
            members: (1..).zip(addresses.chunks(2)).map(member).collect(),
            running: Vec::new(),
        })
    }

    /// Starts all of them, which does not wait for anything.
    pub(super) fn start(&mut self) -> Result<(), RunError> {
        let all = self.members.iter();
        let all = all.map(|member| format!("{}=http://{}", member.name, member.peer));
        let all: Vec<String> = all.collect();
        for member in &self.members {
            let output = File::create(self.log(member));
            let output = output.and_then(|file| Ok((file.try_clone()?, file)));
            let (out, err) = output.map_err(|error| RunError::failed("making a file")(&error))?;
            let (client, peer) = (member.client, member.peer);
            let mut command = Command::new(&self.binary);
            command.args(["--name", &member.name, "--log-level", "error"]);
            command.arg("--data-dir").arg(self.dir.join(&member.name));
            command.args(["--listen-client-urls", &format!("http://{client}")]);
            command.args(["--advertise-client-urls", &format!("http://{client}")]);
            command.args(["--listen-peer-urls", &format!("http://{peer}")]);
            command.args(["--initial-advertise-peer-urls", &format!("http://{peer}")]);
            command.args(["--initial-cluster", &all.join(",")]);
            command.stdin(Stdio::null()).stdout(out).stderr(err);
            let child = command.spawn();
            let child = child.map_err(|error| RunError::failed("starting etcd")(&error));
            self.running.push(child?);
        }
        Ok(())
    }

    fn log(&self, member: &EtcdMember) -> PathBuf {
        self.dir.join(format!("{}.log", member.name))
    }

    /// Returns the leader's address for clients, and its version; `None` while there is none.
    pub(super) async fn leader(&self) -> Option<(SocketAddr, String)> {
        for member in &self.members {
            let Ok(mut link) = EtcdConnection::connect(member.client).await else {
                continue;
            };
            let Ok(status) = link.status().await else {
                continue;
            };
            if status.leader != 0 && status.leader == status.member {
                return Some((member.client, status.version));
            }
        }
        None
    }

    /// Returns the last output of the members, which may explain why there is no leader.
    pub(super) fn last_output(&self) -> String {
        let last = |member: &EtcdMember| {
            let output = std::fs::read_to_string(self.log(member)).unwrap_or_default();
            output.lines().last().map(str::to_owned)
        };
        let all: Vec<String> = self.members.iter().filter_map(last).collect();
        all.join("; ")
    }

    /// Returns the processor time that they have used, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        let used = self.running.iter().map(|child| machine::cpu_of(child.id()));
        used.sum()
    }

    /// Kills them, as a power failure would.
    pub(super) fn kill(&mut self) {
        for child in &mut self.running {
            // An error means that it has ended already, which `wait` reports.
            let _ = child.kill();
        }
        for mut child in self.running.drain(..) {
            let _ = child.wait();
        }
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        self.kill();
    }
}
