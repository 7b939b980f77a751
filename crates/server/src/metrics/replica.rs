//! Figures of this node's replica of its partition.

use replica::{Role, Status};

use super::{Family, Samples, counter, gauge};
use crate::figures::{Figures, Replication};

/// Adds a figure if the partition is replicated.
fn of(figures: &Figures<'_>, out: &mut Samples<'_>, value: fn(&Status) -> u64) {
    if let Some(replication) = &figures.replication {
        out.add(value(&replication.status));
    }
}

pub(super) const FAMILIES: &[Family] = &[
    gauge(
        "kumiki_replica_leads",
        "1 when this node leads its partition and serves.",
        |f, out| of(f, out, |status| u64::from(status.role == Role::Leader)),
    ),
    gauge(
        "kumiki_replica_has_leader",
        "1 when this node knows who leads its partition.",
        |f, out| of(f, out, |status| u64::from(status.leader.is_some())),
    ),
    gauge(
        "kumiki_replica_stopped",
        "1 when this node's replica has stopped, and serves nothing until the process is restarted.",
        |f, out| of(f, out, |status| u64::from(status.role == Role::Stopped)),
    ),
    gauge(
        "kumiki_replica_term",
        "Raft's term, which grows with every election.",
        |f, out| of(f, out, |status| status.term),
    ),
    gauge(
        "kumiki_replica_last_index",
        "Index of the last entry in this node's log.",
        |f, out| of(f, out, |status| status.last),
    ),
    gauge(
        "kumiki_replica_committed_index",
        "Index of the last entry that is known to be committed.",
        |f, out| of(f, out, |status| status.committed),
    ),
    gauge(
        "kumiki_replica_applied_index",
        "Index of the last entry that is executed here.",
        |f, out| of(f, out, |status| status.applied),
    ),
    gauge(
        "kumiki_replica_snapshot_index",
        "Index of the newest snapshot.",
        |f, out| of(f, out, |status| status.snapshot),
    ),
    counter(
        "kumiki_replica_leaderships_total",
        "How often this node has begun to lead.",
        |f, out| of(f, out, |status| status.leaderships),
    ),
    counter(
        "kumiki_replica_groups_total",
        "Groups of entries that this node, leading, has appended and sent.",
        |f, out| of(f, out, |status| status.groups),
    ),
    counter(
        "kumiki_replica_entries_total",
        "Entries in those groups.",
        |f, out| of(f, out, |status| status.entries),
    ),
    counter(
        "kumiki_replica_syncs_total",
        "Syncs of this node's Raft log.",
        |f, out| of(f, out, |status| status.syncs),
    ),
    gauge(
        "kumiki_replica_log_bytes",
        "Bytes that this node's Raft log takes.",
        |f, out| of(f, out, |status| status.log_bytes),
    ),
    gauge(
        "kumiki_replica_voters",
        "Members of the partition that have a vote.",
        |f, out| of(f, out, Replication::voters),
    ),
    gauge(
        "kumiki_replica_voters_heard",
        "Those of them that the leader has heard of lately, itself among them; only where it leads.",
        |f, out| {
            if let Some(replication) = f.replication.as_ref().filter(|r| r.leads()) {
                out.add(Replication::heard(&replication.status));
            }
        },
    ),
    gauge(
        "kumiki_replica_lag_entries",
        "Entries that the slowest member lacks, of those that were heard of lately; only where this \
         node leads.",
        |f, out| {
            if let Some(replication) = f.replication.as_ref().filter(|r| r.leads()) {
                out.add(Replication::lag(&replication.status));
            }
        },
    ),
    gauge(
        "kumiki_replica_staleness_seconds",
        "How old what this node has may be; 0 where it leads, absent if nobody knows.",
        |f, out| {
            let replication = f.replication.as_ref();
            if let Some(staleness) = replication.and_then(Replication::staleness) {
                out.seconds(staleness.as_secs_f64());
            }
        },
    ),
    gauge(
        "kumiki_replica_receiving_bytes",
        "Bytes of a snapshot that this node has got from its leader; 0 when it gets none.",
        |f, out| {
            of(f, out, |status| {
                status.receiving.map_or(0, |(done, _)| done)
            })
        },
    ),
    gauge(
        "kumiki_replica_receiving_bytes_expected",
        "Bytes that the snapshot has in all.",
        |f, out| of(f, out, |status| status.receiving.map_or(0, |(_, all)| all)),
    ),
];
