//! A cluster of processes of the real binary.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::process::{Server, free_address};

/// A running cluster. Its processes are killed when this is dropped.
pub(crate) struct Cluster {
    servers: Vec<Server>,
    /// Where the cluster's file lies.
    _dir: TempDir,
}

impl Cluster {
    /// Starts so many nodes with equal shares of the slots, which keep nothing on disk.
    pub(crate) fn start(count: usize) -> Cluster {
        let mut said = String::new();
        // Another process may take a port that was found free.
        for _ in 0..5 {
            match Cluster::try_start(count) {
                Ok(cluster) => return cluster,
                Err(text) => said = text,
            }
        }
        panic!("the cluster does not start: {said}");
    }

    fn try_start(count: usize) -> Result<Cluster, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("cluster.toml");
        let mut addresses = BTreeSet::new();
        while addresses.len() < 2 * count {
            addresses.insert(free_address());
        }
        let addresses: Vec<SocketAddr> = addresses.into_iter().collect();
        std::fs::write(&file, describe(&addresses)).expect("the cluster's file");
        let servers = addresses
            .chunks(2)
            .enumerate()
            .map(|(at, pair)| Server::start_at(pair[0], |_, _| node(&file, at + 1)))
            .collect::<Result<_, _>>()?;
        Ok(Cluster { servers, _dir: dir })
    }

    /// Where clients of a node connect; nodes are numbered from 0 here.
    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.servers[node].address
    }
}

fn node(file: &Path, id: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki"));
    command.args(["serve", "--ephemeral", "--threads", "2", "--cluster"]);
    command.arg(file).args(["--node", &id.to_string()]);
    command
}

/// The file of nodes with these addresses, a pair for each.
fn describe(addresses: &[SocketAddr]) -> String {
    let count = addresses.len() / 2;
    let mut text = String::new();
    for (at, pair) in addresses.chunks(2).enumerate() {
        let (id, [client, fabric]) = (at + 1, [pair[0], pair[1]]);
        let (first, last) = (at * 16_384 / count, (at + 1) * 16_384 / count - 1);
        write!(
            text,
            "[[node]]\nid = {id}\nclient = \"{client}\"\nfabric = \"{fabric}\"\n\
             [[partition]]\nid = {id}\nslots = [\"{first}-{last}\"]\nnodes = [{id}]\n"
        )
        .expect("a String takes any text");
    }
    text
}
