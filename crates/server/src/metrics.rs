//! The figures in Prometheus's text format (version 0.0.4), for the admin endpoint.
//!
//! ```text
//! # HELP kumiki_commands_total Commands from clients, by what they do.
//! # TYPE kumiki_commands_total counter
//! kumiki_commands_total{kind="read"} 12
//! kumiki_commands_total{kind="write"} 3
//! ```
//!
//! `docs/metrics.md` lists every family; a test holds the two against each other. Families without
//! a sample, such as those of the log where there is none, are left out.

mod published;
mod replica;

use std::time::Duration;

use admin::exposition::{self, Kind, Samples, counter, gauge};
use admin::{about, process};

use crate::figures::Figures;
use crate::routing::ClusterFigures;
use crate::shared::Shared;

/// The first class of a histogram ends here.
const FIRST_CLASS: Duration = Duration::from_micros(2);

/// Figures of one name.
type Family = exposition::Family<fn(&Figures<'_>, &mut Samples<'_>)>;

/// All families, as the admin endpoint serves them.
fn report(figures: &Figures<'_>) -> String {
    let own = exposition::text(families(), |family, samples| {
        (family.fill)(figures, samples);
    });
    own + &process::text(&figures.process, figures.shared.started_at)
}

impl admin::Subject for Shared {
    fn metrics(&self) -> String {
        report(&Figures::now(self))
    }

    fn trouble(&self) -> Option<String> {
        let replicated = self.partition.replicated();
        if let Some(reason) = self.partition.failed() {
            return Some(match replicated {
                None => reason,
                Some(_) => format!(
                    "this node's replica has stopped, and nothing is served until the node is \
                     restarted: {reason}"
                ),
            });
        }
        let waiting = replicated.and_then(|own| own.member().status().log_trouble);
        if let Some(reason) = waiting {
            return Some(format!("this node's replica cannot write: {reason}"));
        }
        self.is_stopping().then(|| "stopping".to_owned())
    }
}

fn families() -> impl Iterator<Item = &'static Family> {
    let others = replica::FAMILIES.iter().chain(published::FAMILIES);
    FAMILIES.iter().chain(others)
}

/// Adds what `value` says if there is a log.
fn if_durable(figures: &Figures<'_>, samples: &mut Samples<'_>, value: u64) {
    if figures.is_durable() {
        samples.add(value);
    }
}

/// Adds what `value` says if the server is a node of a cluster.
fn if_clustered(
    figures: &Figures<'_>,
    samples: &mut Samples<'_>,
    value: fn(&ClusterFigures) -> u64,
) {
    if let Some(cluster) = &figures.cluster {
        samples.add(value(cluster));
    }
}

const FAMILIES: &[Family] = &[
    gauge(
        "kumiki_build_info",
        "What runs, in labels; the value is always 1.",
        |f, out| about::describe(f.shared.config.build, out),
    ),
    gauge(
        "kumiki_uptime_seconds",
        "Time since the server began to serve.",
        |f, out| out.seconds(f.uptime.as_secs_f64()),
    ),
    gauge(
        "kumiki_durability_info",
        "When replies leave, as a label: group, async or ephemeral; the value is always 1.",
        |f, out| out.labelled(&[("durability", f.durability())], 1),
    ),
    // Clients.
    gauge("kumiki_connections", "Connections of clients.", |f, out| {
        out.add(f.clients as u64)
    }),
    gauge(
        "kumiki_connections_limit",
        "Connections of clients that there may be at once.",
        |f, out| out.add(f.shared.config.limits.clients as u64),
    ),
    counter(
        "kumiki_connections_accepted_total",
        "Connections that clients made, those rejected among them.",
        |f, out| out.add(f.traffic.accepted),
    ),
    counter(
        "kumiki_connections_rejected_total",
        "Connections closed at once because there were too many.",
        |f, out| out.add(f.traffic.rejected),
    ),
    gauge(
        "kumiki_snapshots_open",
        "Snapshots that clients have open (KUMIKI.SNAPSHOT).",
        |f, out| out.add(f.shared.snapshots.taken()),
    ),
    counter(
        "kumiki_commands_total",
        "Commands from clients, by what they do; other: neither read nor write, or refused.",
        |f, out| {
            out.labelled(&[("kind", "read")], f.traffic.reads);
            out.labelled(&[("kind", "write")], f.traffic.writes);
            out.labelled(&[("kind", "other")], f.other_commands());
        },
    ),
    counter(
        "kumiki_command_errors_total",
        "Replies to commands that are errors.",
        |f, out| out.add(f.traffic.errors),
    ),
    counter(
        "kumiki_received_bytes_total",
        "Bytes received from clients.",
        |f, out| out.add(f.traffic.bytes_in),
    ),
    counter(
        "kumiki_sent_bytes_total",
        "Bytes sent to clients.",
        |f, out| out.add(f.traffic.bytes_out),
    ),
    // The store.
    counter(
        "kumiki_transactions_committed_total",
        "Transactions that wrote and committed.",
        |f, out| out.add(f.store.commits),
    ),
    counter(
        "kumiki_transaction_conflicts_total",
        "Attempts of transactions that met a conflict and were repeated or given up.",
        |f, out| out.add(f.store.conflicts),
    ),
    gauge(
        "kumiki_transactions_prepared",
        "Transactions over several nodes that are prepared here and not decided.",
        |f, out| out.add(f.store.prepared),
    ),
    gauge(
        "kumiki_versions_kept",
        "Versions of read-atomic keys that are kept behind newer ones.",
        |f, out| out.add(f.store.kept_versions),
    ),
    gauge(
        "kumiki_connections_parked",
        "Connections that wait for what such a transaction holds.",
        |f, out| out.add(f.parked),
    ),
    // The cluster.
    counter(
        "kumiki_cluster_transactions_total",
        "Transactions over several nodes that this one coordinated, by how they ended.",
        |f, out| {
            if let Some(ClusterFigures { counters, .. }) = &f.cluster {
                out.labelled(&[("outcome", "committed")], counters.committed);
                out.labelled(&[("outcome", "aborted")], counters.aborted);
                out.labelled(&[("outcome", "unknown")], counters.unknown);
            }
        },
    ),
    gauge(
        "kumiki_cluster_transactions_running",
        "Transactions over several nodes that this one coordinates now.",
        |f, out| if_clustered(f, out, |cluster| cluster.coordinating as u64),
    ),
    counter(
        "kumiki_cluster_retries_total",
        "Attempts of such transactions beyond the first.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.retried),
    ),
    counter(
        "kumiki_cluster_prepares_total",
        "Parts of transactions over several nodes that were prepared here.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.prepared),
    ),
    counter(
        "kumiki_cluster_prepares_refused_total",
        "Parts that were not prepared because an older transaction held a key.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.died),
    ),
    gauge(
        "kumiki_cluster_requests_waiting",
        "Requests of other nodes that wait for what a transaction holds.",
        |f, out| if_clustered(f, out, |cluster| cluster.waiting as u64),
    ),
    counter(
        "kumiki_cluster_resolved_total",
        "Transactions whose coordinator was gone and that this node decided, by how.",
        |f, out| {
            if let Some(ClusterFigures { counters, .. }) = &f.cluster {
                out.labelled(&[("outcome", "committed")], counters.resolved_committed);
                out.labelled(&[("outcome", "aborted")], counters.resolved_aborted);
            }
        },
    ),
    counter(
        "kumiki_cluster_ramp_reads_total",
        "Read-atomic reads over several partitions that this node coordinated.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.ramp_reads),
    ),
    counter(
        "kumiki_cluster_ramp_second_rounds_total",
        "Those of them that took more than one round.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.ramp_second_rounds),
    ),
    counter(
        "kumiki_cluster_ramp_restarts_total",
        "How often such reads began again.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.ramp_restarts),
    ),
    counter(
        "kumiki_cluster_ramp_lost_total",
        "Versions that such reads knew of and did not find: lost by a partition.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.ramp_lost),
    ),
    counter(
        "kumiki_cluster_ramp_writes_total",
        "Read-atomic writes over several partitions that this node coordinated.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.ramp_writes),
    ),
    counter(
        "kumiki_cluster_ramp_overtaken_total",
        "Attempts at such writes that met newer versions.",
        |f, out| if_clustered(f, out, |cluster| cluster.counters.ramp_overtaken),
    ),
    gauge(
        "kumiki_cluster_links",
        "Links to other nodes, summed over the threads that serve clients.",
        |f, out| if_clustered(f, out, |cluster| cluster.links as u64),
    ),
    gauge(
        "kumiki_cluster_links_through_memory",
        "Links with nodes and Rust clients whose messages travel through memory.",
        |f, out| if_clustered(f, out, |cluster| cluster.through_memory as u64),
    ),
    gauge(
        "kumiki_keys",
        "Keys; expired ones that were not yet reclaimed count.",
        |f, out| out.add(f.store.keys),
    ),
    counter(
        "kumiki_keys_expired_total",
        "Keys removed because they had expired.",
        |f, out| out.add(f.store.expired),
    ),
    gauge(
        "kumiki_memory_bytes",
        "Memory of keys, values and what finds them.",
        |f, out| out.add(f.store.memory_bytes),
    ),
    gauge(
        "kumiki_memory_limit_bytes",
        "Memory beyond which commands that need more are refused; 0: no bound.",
        |f, out| out.add(f.memory_limit),
    ),
    counter(
        "kumiki_clock_steps_total",
        "Times that the machine's clock was seen to have been set, which time here follows slowly.",
        |f, out| out.add(f.store.clock_steps),
    ),
    // Epochs and the log.
    gauge("kumiki_epoch", "The current epoch.", |f, out| {
        out.add(f.store.epoch.0)
    }),
    gauge(
        "kumiki_durable_epoch",
        "Everything up to this epoch is durable.",
        |f, out| if_durable(f, out, f.store.durable_epoch.0),
    ),
    gauge(
        "kumiki_durable_lag_epochs",
        "Epochs from the durable one to the current one; an idle server stays one behind or more.",
        |f, out| if_durable(f, out, f.lag_epochs()),
    ),
    gauge(
        "kumiki_log_failed",
        "1 when the log cannot be written and writes are refused, else 0.",
        |f, out| if_durable(f, out, f.store.journal_failure.is_some().into()),
    ),
    counter(
        "kumiki_log_bytes_total",
        "Bytes written to the logs.",
        |f, out| if_durable(f, out, f.store.log_bytes),
    ),
    counter(
        "kumiki_log_cycles_total",
        "Times that a log was written and synced, by whose thread did it.",
        |f, out| {
            if f.is_durable() {
                let inline = f.store.log_inline_cycles;
                let logger = f.store.log_cycles.saturating_sub(inline);
                out.labelled(&[("thread", "logger")], logger);
                out.labelled(&[("thread", "runtime")], inline);
            }
        },
    ),
    Family {
        name: "kumiki_log_sync_seconds",
        kind: Kind::Histogram,
        help: "How long syncs of the logs took, the writes before them included.",
        fill: |f, out| {
            if f.is_durable() {
                let classes = &f.store.log_sync_histogram;
                out.histogram(&[], FIRST_CLASS, classes, f.store.log_sync_time);
            }
        },
    },
    gauge(
        "kumiki_log_buffers_waiting",
        "Full log buffers that wait for their logger.",
        |f, out| if_durable(f, out, f.store.log_buffers_waiting),
    ),
    counter(
        "kumiki_durability_latency_seconds_total",
        "Time from commit to durability, summed over transactions, by where it was spent.",
        |f, out| {
            let latency = &f.store.log_latency;
            for (part, time) in [
                ("buffer", latency.buffer),
                ("queue", latency.queue),
                ("write", latency.write),
                ("notification", latency.notification),
            ] {
                if f.is_durable() {
                    out.labelled_seconds(&[("part", part)], time.as_secs_f64());
                }
            }
        },
    ),
    counter(
        "kumiki_durability_latency_transactions_total",
        "Transactions that the sums of kumiki_durability_latency_seconds_total are over.",
        |f, out| if_durable(f, out, f.store.log_latency.transactions),
    ),
    // Checkpoints.
    gauge(
        "kumiki_checkpoint_running",
        "1 while a checkpoint is made, else 0.",
        |f, out| if_durable(f, out, f.checkpoints.running.into()),
    ),
    gauge(
        "kumiki_checkpoint_entries_written",
        "Keys written of the checkpoint that is being made.",
        |f, out| if_durable(f, out, f.checkpoints.entries_written),
    ),
    counter(
        "kumiki_checkpoints_completed_total",
        "Checkpoints made.",
        |f, out| if_durable(f, out, f.checkpoints.completed),
    ),
    counter(
        "kumiki_checkpoints_failed_total",
        "Checkpoints that could not be made.",
        |f, out| if_durable(f, out, f.checkpoints.failed),
    ),
    gauge(
        "kumiki_checkpoint_last_failed",
        "1 when the last attempt to make a checkpoint failed, else 0.",
        |f, out| if_durable(f, out, f.checkpoints.last_error.is_some().into()),
    ),
    gauge(
        "kumiki_log_bytes_since_checkpoint",
        "Bytes of log that a recovery would read, about.",
        |f, out| if_durable(f, out, f.checkpoints.log_bytes_since),
    ),
    gauge(
        "kumiki_checkpoint_last_epoch",
        "The epoch of the last checkpoint.",
        |f, out| {
            f.checkpoints
                .last
                .iter()
                .for_each(|last| out.add(last.epoch.0))
        },
    ),
    gauge(
        "kumiki_checkpoint_last_time_seconds",
        "When the last checkpoint was finished, in seconds since the Unix epoch.",
        |f, out| {
            let ms = f.checkpoints.last.as_ref().map(|last| last.finished_ms);
            ms.into_iter().for_each(|ms| out.seconds(ms as f64 / 1e3));
        },
    ),
    gauge(
        "kumiki_checkpoint_last_duration_seconds",
        "How long the last checkpoint took.",
        |f, out| {
            let last = f.checkpoints.last.iter();
            last.for_each(|last| out.seconds(last.elapsed.as_secs_f64()));
        },
    ),
    gauge(
        "kumiki_checkpoint_last_entries",
        "Keys in the last checkpoint.",
        |f, out| {
            f.checkpoints
                .last
                .iter()
                .for_each(|last| out.add(last.entries))
        },
    ),
    gauge(
        "kumiki_checkpoint_last_bytes",
        "Bytes of the last checkpoint.",
        |f, out| {
            f.checkpoints
                .last
                .iter()
                .for_each(|last| out.add(last.bytes))
        },
    ),
    gauge(
        "kumiki_checkpoint_last_segments_removed",
        "Log files that went away with the last checkpoint.",
        |f, out| {
            let last = f.checkpoints.last.iter();
            last.for_each(|last| out.add(last.segments_removed));
        },
    ),
    // The recovery at the start.
    gauge(
        "kumiki_recovery_duration_seconds",
        "How long the recovery at the start took.",
        |f, out| {
            if f.is_durable() {
                out.seconds(f.recovery.elapsed.as_secs_f64());
            }
        },
    ),
    gauge(
        "kumiki_recovery_bytes",
        "Bytes of log that the recovery at the start read.",
        |f, out| if_durable(f, out, f.recovery.bytes),
    ),
    gauge(
        "kumiki_recovery_checkpoint_bytes",
        "Bytes of the checkpoint that the recovery at the start used; 0 without one.",
        |f, out| {
            let checkpoint = f.recovery.checkpoint.as_ref();
            if_durable(f, out, checkpoint.map_or(0, |checkpoint| checkpoint.bytes));
        },
    ),
    gauge(
        "kumiki_recovery_checkpoint_entries",
        "Keys in the checkpoint that the recovery at the start used; 0 without one.",
        |f, out| {
            let checkpoint = f.recovery.checkpoint.as_ref();
            if_durable(
                f,
                out,
                checkpoint.map_or(0, |checkpoint| checkpoint.entries),
            );
        },
    ),
    gauge(
        "kumiki_recovery_entries",
        "Changes that the recovery at the start applied, those of the checkpoint included.",
        |f, out| if_durable(f, out, f.recovery.entries),
    ),
    gauge(
        "kumiki_recovery_keys",
        "Keys that the recovery at the start found.",
        |f, out| if_durable(f, out, f.recovery.keys),
    ),
    gauge(
        "kumiki_recovery_durable_epoch",
        "The epoch up to which the recovery at the start found everything.",
        |f, out| if_durable(f, out, f.recovery.durable_epoch.0),
    ),
    gauge(
        "kumiki_recovery_torn_tails",
        "Logs whose unfinished end the recovery at the start cut off.",
        |f, out| if_durable(f, out, f.recovery.cuts.len() as u64),
    ),
    gauge(
        "kumiki_recovery_warnings",
        "Warnings of the recovery at the start, which are in the server's log.",
        |f, out| if_durable(f, out, f.recovery.warnings.len() as u64),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once_and_says_its_kind() {
        exposition::check(families());
    }
}
