//! Opens this node's replica of a partition.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use base::limits::Limits;
use cluster::topology::PartitionInfo;
use reactor::Io;
use replica::{Grouping, LogOptions, MemberOptions};
use server::{Membership, Replicated};
use store::{EpochTime, RecoveryProgress, RecoveryReport};

use crate::data_directory::{LOCAL_DATA, REPLICA};
use crate::disk_layer;
use crate::serve_options::{DurabilityOption, ServeOptions};

/// The longest value unless an option says otherwise, in bytes. Heartbeats wait behind an entry of Raft's log that is
/// written and sent, and a leader whose heartbeats stay away for longer than the election timeout loses its leadership.
const MAX_VALUE: usize = 32 << 20;

/// Limits of a replicated partition. A transaction is one entry.
fn limits(value: usize) -> Limits {
    Limits {
        value,
        transaction_bytes: (2 * value).clamp(2 * MAX_VALUE, Limits::default().transaction_bytes),
        ..Limits::default()
    }
}

/// Returns this node's partition, if several nodes hold it.
pub(crate) fn partition(membership: &Membership) -> Option<&PartitionInfo> {
    let topology = &membership.topology;
    let own = topology.partition(topology.partition_at(membership.node)?)?;
    (own.nodes.len() > 1).then_some(own)
}

/// Refuses options that contradict what the cluster's file says about this node.
///
/// # Errors
/// The text says which, and what to do.
pub(crate) fn check(options: &ServeOptions, membership: Option<&Membership>) -> Result<(), String> {
    let given = &options.replication;
    let Some(partition) = membership.and_then(partition) else {
        let named = [
            ("--group", given.group.is_some()),
            ("--naive", given.naive),
            ("--lease-reads", given.lease_reads),
            ("--election-timeout", given.election_timeout.is_some()),
        ];
        return match named.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(format!(
                "{option} is about replicated partitions, and the cluster's file has this node's on \
                 one node, or gives it none: leave it out, or name three nodes or more there"
            )),
            None => Ok(()),
        };
    };
    let named = [
        (
            "--ephemeral",
            options.ephemeral,
            "a replica that forgets what it has voted for would lose what others rely upon",
        ),
        (
            "--durability async",
            options.durability == DurabilityOption::Async,
            "its replies wait until most of its nodes have what they show",
        ),
        (
            "--epoch-time",
            options.epoch_time != EpochTime::Adaptive,
            "it has Raft's log instead of epochs of one log",
        ),
        (
            "--durability-target",
            options.durability_target.is_some(),
            "it has Raft's log instead of epochs of one log",
        ),
        (
            "--max-epoch-diff",
            options.max_epoch_diff.0.is_some(),
            "it has Raft's log instead of epochs of one log",
        ),
        (
            "--loggers",
            options.loggers.is_some(),
            "it has one log, Raft's",
        ),
        (
            "--affinity",
            options.affinity.is_some(),
            "it has no log threads to be placed",
        ),
        (
            "--log-warm-up",
            options.log_warm_up,
            "it sets its log's files aside by itself",
        ),
    ];
    match named.iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => Err(format!(
            "{option} does not suit partition {}, which is replicated: {why}; leave it out",
            partition.id
        )),
        None => Ok(()),
    }
}

/// Refuses to open a partition that is on one node in a directory with a replica's data, which it
/// would not see.
///
/// # Errors
/// The text says what lies there.
pub(crate) fn refuse_beside_replica(data: &Path) -> Result<(), String> {
    if !data.join(REPLICA).exists() {
        return Ok(());
    }
    Err(format!(
        "{} has a replica of a partition that several nodes hold: start it with the cluster's file \
         that it was made with, or name another directory by --data",
        data.display()
    ))
}

/// A replica, and the lock of its data directory.
pub(crate) struct OpenedReplica {
    pub(crate) replicated: Arc<Replicated>,
    _lock: Box<dyn disk::DirLock>,
}

/// Reads this node's replica and starts it.
///
/// # Errors
/// The text says what is wrong, and what to do.
pub(crate) fn open(
    options: &ServeOptions,
    membership: &Membership,
    (workers, io): (usize, Io),
    progress: &dyn Fn(&RecoveryProgress),
) -> Result<OpenedReplica, String> {
    let data = &options.data;
    if data.join(LOCAL_DATA).exists() {
        return Err(format!(
            "{} has a partition that is on one node, and the cluster's file gives this node one that \
             several nodes hold: name another directory by --data",
            data.display()
        ));
    }
    let disk = disk_layer::open(options.disk, options.log_device)?;
    let made = fs::create_dir_all(data);
    made.map_err(|error| format!("cannot make {}: {error}", data.display()))?;
    let lock = disk.lock_dir(data).map_err(|error| error.to_string())?;
    let opening = replica::Options {
        io,
        ..replica_options(options, membership, workers, disk)?
    };
    let start = Instant::now();
    let mut report = RecoveryReport::default();
    let member = replica::ReplicatedPartition::open(opening, &mut |bytes_read, bytes_total| {
        report.bytes = bytes_read;
        progress(&RecoveryProgress {
            bytes_read,
            bytes_total,
            entries: 0,
            elapsed: start.elapsed(),
        });
    });
    let member = member.map_err(|error| error.to_string())?;
    report.elapsed = start.elapsed();
    report.durable_epoch = member.engine().applied();
    Ok(OpenedReplica {
        replicated: Arc::new(Replicated::new(member, report)),
        _lock: lock,
    })
}

fn replica_options(
    options: &ServeOptions,
    membership: &Membership,
    workers: usize,
    disk: Arc<dyn disk::Disk>,
) -> Result<replica::Options, String> {
    let (topology, me) = (&membership.topology, membership.node);
    let partition = partition(membership).expect("it is replicated");
    let peers = partition.nodes.iter().filter_map(|id| topology.node(*id));
    let peers = peers.filter_map(|node| Some((node.id, node.replica?)));
    let peers: std::collections::HashMap<_, _> = peers.collect();
    let address = options.cluster.replica_listen.unwrap_or(peers[&me]);
    let encryption = membership.encryption;
    let listener = fabric::tcp::listen(address, 1).map_err(|error| {
        format!(
            "cannot listen for other replicas on {address}: {error}; choose another one \
             by --replica-listen, or correct that of node {me} in the cluster's file"
        )
    })?;
    let listener = listener.into_iter().next().expect("one was asked for");
    let given = &options.replication;
    let defaults = MemberOptions::new(me, partition.nodes.clone());
    let member = MemberOptions {
        grouping: match given.naive {
            true => Grouping::Naive,
            false => Grouping::Group(given.group.map_or(replica::GROUP, |group| group as usize)),
        },
        election: given.election(),
        leases: given.lease_reads,
        snapshot_bytes: match options.checkpoint_log_size.map(|size| size.0) {
            None => defaults.snapshot_bytes,
            Some(0) => u64::MAX,
            Some(size) => size,
        },
        seed: fastrand::u64(..),
        read_atomic: topology.read_atomic().clone(),
        ..defaults
    };
    Ok(replica::Options {
        disk,
        dir: Some(options.data.join(REPLICA)),
        log: LogOptions {
            segment_bytes: options
                .log_segment_size
                .map_or(LogOptions::default().segment_bytes, |size| size.0),
            ..LogOptions::default()
        },
        peers,
        secret: membership.secrets.nodes.clone(),
        encryption,
        cluster: topology.fingerprint(),
        workers,
        limits: limits(options.max_value(MAX_VALUE)),
        link_memory: options.client_memory(),
        ..replica::Options::new(member, listener)
    })
}
