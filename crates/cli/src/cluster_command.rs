//! `kumiki cluster`: shows the state of the replicas of partitions, and changes their members.
//!
//! Nodes are asked at the addresses of their clients. Each command says what it waits for, waits
//! for a bounded time, and ends with what the operator can do.

mod change;
mod status;
mod survey;

use std::path::PathBuf;
use std::time::Duration;

use base::PartitionId;
use clap::{Args, Subcommand};
use cluster::Topology;
use cluster::topology::PartitionInfo;

use crate::membership;
use crate::node_connection::{CredentialOptions, Credentials};
use crate::output::say_line;

/// Options of `kumiki cluster`.
#[derive(Args, Debug)]
pub(crate) struct ClusterCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Say how each replica is. Exits with 1 when something is wrong.
    Status(StatusOptions),
    /// Have a node take part in its partition: one that is new, or has lost its disk. It must run.
    Add(MemberOptions),
    /// Have a node take no part any more, such as one that will not come back.
    Remove(MemberOptions),
    /// Have another node lead.
    Transfer(TransferOptions),
    /// Print the secret that Rust clients and proxies need; it opens no address of replicas.
    ClientSecret(SecretOptions),
}

#[derive(Args, Debug)]
struct SecretOptions {
    /// The file that describes the cluster.
    #[arg(long = "cluster", value_name = "FILE")]
    file: PathBuf,
}

/// Which cluster.
#[derive(Args, Debug)]
struct ClusterTarget {
    /// The file that describes the cluster.
    #[arg(long = "cluster", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    credentials: CredentialOptions,
}

#[derive(Args, Debug)]
struct StatusOptions {
    #[command(flatten)]
    target: ClusterTarget,
    /// Show this partition alone.
    #[arg(long, value_name = "ID")]
    partition: Option<u16>,
    /// Say it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct MemberOptions {
    #[command(flatten)]
    target: ClusterTarget,
    /// The partition; it may be left out if the node's place in the file determines it.
    #[arg(long, value_name = "ID")]
    partition: Option<u16>,
    /// The node.
    #[arg(long, value_name = "ID")]
    node: u16,
    /// How long to wait for it, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

#[derive(Args, Debug)]
struct TransferOptions {
    #[command(flatten)]
    target: ClusterTarget,
    /// The partition; it need not be named where only one is replicated.
    #[arg(long, value_name = "ID")]
    partition: Option<u16>,
    /// The node that is to lead; default: one that has everything.
    #[arg(long, value_name = "ID")]
    to: Option<u16>,
    /// How long to wait for it, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

/// A state that looks wrong is checked once more after this time.
const SECOND_LOOK: Duration = Duration::from_millis(500);

/// Executes the command of the command line.
///
/// # Errors
/// The text says what is wrong and what to do.
pub(crate) fn run(options: &ClusterCommand) -> Result<(), String> {
    match &options.command {
        Command::Status(status) => {
            let (topology, credentials) = status.target.open()?;
            let only = status.partition.map(PartitionId);
            if let Some(only) = only {
                known(&topology, only)?;
            }
            let ask = || survey::Survey::take(&topology, only, &credentials);
            let mut survey = ask();
            if !survey.problems().is_empty() {
                // A leader that has just been elected has not heard from all members yet.
                std::thread::sleep(SECOND_LOOK);
                survey = ask();
            }
            status::tell(&survey, status.json)
        }
        Command::ClientSecret(SecretOptions { file }) => {
            let topology = Topology::load(file).map_err(|error| error.to_string())?;
            let secret = topology.client_secret().ok_or_else(|| {
                format!(
                    "{} has no secret: clients need none, either",
                    file.display()
                )
            })?;
            say_line!("{secret}");
            Ok(())
        }
        Command::Add(member) => change_member(member, change::TargetState::Member),
        Command::Remove(member) => change_member(member, change::TargetState::NoMember),
        Command::Transfer(transfer) => {
            let (topology, credentials) = transfer.target.open()?;
            let partition = partition_of(&topology, transfer.partition, transfer.to)?;
            let change = change::Change {
                topology: &topology,
                partition,
                credentials: &credentials,
                patience: Duration::from_secs(transfer.timeout),
            };
            change.run(change::TargetState::Leader, transfer.to)
        }
    }
}

fn change_member(member: &MemberOptions, wanted: change::TargetState) -> Result<(), String> {
    let (topology, credentials) = member.target.open()?;
    let partition = partition_of(&topology, member.partition, Some(member.node))?;
    let change = change::Change {
        topology: &topology,
        partition,
        credentials: &credentials,
        patience: Duration::from_secs(member.timeout),
    };
    change.run(wanted, Some(member.node))
}

impl ClusterTarget {
    /// Returns the cluster, and how its nodes are reached.
    fn open(&self) -> Result<(Topology, Credentials), String> {
        Ok((membership::load(&self.file)?, self.credentials.open()?))
    }
}

fn known(topology: &Topology, id: PartitionId) -> Result<&PartitionInfo, String> {
    let ids = topology.partitions().iter().map(|one| one.id.to_string());
    let ids: Vec<String> = ids.collect();
    let found = topology.partition(id);
    found.ok_or_else(|| {
        let ids = ids.join(", ");
        format!("the cluster's file has no partition {id}; it has: {ids}")
    })
}

/// Returns the selected replicated partition: the named one, or that of the node, or the only one.
fn partition_of(
    topology: &Topology,
    named: Option<u16>,
    node: Option<u16>,
) -> Result<&PartitionInfo, String> {
    let of_node = match node.map(base::NodeId) {
        None => None,
        Some(node) if topology.node(node).is_none() => {
            let nodes = topology.nodes().iter().map(|node| node.id.to_string());
            let nodes: Vec<String> = nodes.collect();
            let nodes = nodes.join(", ");
            return Err(format!(
                "the cluster's file has no node {node}; it has: {nodes}"
            ));
        }
        Some(node) => topology.partition_at(node),
    };
    let mut replicated = topology.partitions().iter().filter(|p| p.nodes.len() > 1);
    let only = replicated.next().filter(|_| replicated.next().is_none());
    let id = match (named.map(PartitionId), of_node, only) {
        (Some(named), _, _) => named,
        (None, Some(id), _) => id,
        (None, None, Some(only)) if node.is_none() => only.id,
        (None, None, _) => return Err("name the partition by --partition".to_owned()),
    };
    let partition = known(topology, id)?;
    if let Some(node) = node
        && !partition.nodes.contains(&base::NodeId(node))
    {
        return Err(format!(
            "the cluster's file does not have node {node} among those of partition {id}, which are \
             {:?}: add it there, on all nodes, and restart them",
            partition
                .nodes
                .iter()
                .map(|node| node.0)
                .collect::<Vec<_>>()
        ));
    }
    if partition.nodes.len() == 1 {
        return Err(format!(
            "partition {id} is on one node, and not replicated: give it three or more in the \
             cluster's file before it has data"
        ));
    }
    Ok(partition)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[node]]
        id = 1
        client = "127.0.0.1:7001"
        fabric = "127.0.0.1:17001"
        replica = "127.0.0.1:27001"
        [[node]]
        id = 2
        client = "127.0.0.1:7002"
        fabric = "127.0.0.1:17002"
        replica = "127.0.0.1:27002"
        [[node]]
        id = 3
        client = "127.0.0.1:7003"
        fabric = "127.0.0.1:17003"
        replica = "127.0.0.1:27003"
        [[node]]
        id = 4
        client = "127.0.0.1:7004"
        fabric = "127.0.0.1:17004"
        [[node]]
        id = 5
        client = "127.0.0.1:7005"
        fabric = "127.0.0.1:17005"
        [[partition]]
        id = 7
        slots = ["0-8191"]
        nodes = [1, 2, 3]
        [[partition]]
        id = 8
        slots = ["8192-16383"]
        nodes = [4]
    "#;

    #[test]
    fn the_partition_is_named_or_follows() {
        let topology = Topology::parse(FILE, "f").unwrap();
        let of = |named, node| partition_of(&topology, named, node).map(|found| found.id.0);
        assert_eq!(of(None, None), Ok(7));
        assert_eq!(of(None, Some(2)), Ok(7));
        assert_eq!(of(Some(7), Some(2)), Ok(7));
        for (named, node, words) in [
            (Some(9), None, "no partition 9; it has: 7, 8"),
            (Some(7), Some(4), "[1, 2, 3]"),
            (Some(8), None, "is on one node"),
            (None, Some(4), "is on one node"),
            (None, Some(5), "--partition"),
            (None, Some(6), "no node 6; it has: 1, 2, 3, 4, 5"),
        ] {
            let said = of(named, node).unwrap_err();
            assert!(said.contains(words), "{named:?} {node:?}: {said}");
        }
    }
}
