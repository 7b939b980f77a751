//! The table of metrics: for each its name and section in `INFO`, its metric and the meaning, and
//! its value. Rows of a section are shown in the order of the table.

use std::time::{Duration, UNIX_EPOCH};

use admin::about;
use admin::exposition::Kind;
use base::size::Size;
use cluster::ramp::slots;
use replica::{Role, Status};

use super::row::InfoSection::{
    Checkpoints, Clients, Cluster, Cpu, Keyspace, Log, Memory, Persistence, Recovery, Replication,
    Server, Stats,
};
use super::row::MetricValue::{Durable, Maybe, Samples, Saves, Seconds, Text, Whole, WholeSeconds};
use super::row::{MetricDefinition, MetricRow};
use crate::routing::ClusterStatistics;
use crate::server_status::{ReplicaStatus, ServerStatus};
use crate::unix_time::unix_ms;
use channels::SubscriptionKind;

/// The first class of a histogram ends here.
const FIRST_CLASS: Duration = Duration::from_micros(2);

macro_rules! rows {
    ($($section:ident $info:literal
        $(, $kind:ident $name:literal $([$label:literal = $value:literal])? $help:literal)?
        => $show:expr;)*) => {
        &[$(MetricRow {
            section: $section,
            info: $info,
            metric: first(&[$(MetricDefinition {
                kind: Kind::$kind,
                name: $name,
                label: first_label(&[$(($label, $value))?]),
                help: $help,
            })?]),
            show: $show,
        }),*]
    };
}

/// Returns the only metric, or none.
const fn first(of: &[MetricDefinition]) -> Option<MetricDefinition> {
    match of {
        [metric, ..] => Some(MetricDefinition {
            kind: metric.kind,
            name: metric.name,
            label: metric.label,
            help: metric.help,
        }),
        [] => None,
    }
}

const fn first_label(of: &[(&'static str, &'static str)]) -> (&'static str, &'static str) {
    match of {
        [label, ..] => *label,
        [] => ("", ""),
    }
}

/// Returns a value of this node's replica, if its partition is replicated.
fn replica(status: &ServerStatus<'_>, value: fn(&Status) -> u64) -> Option<u64> {
    let replication = status.replication.as_ref()?;
    Some(value(&replication.status))
}

/// As [`replica`], but only if this node leads.
fn leading(status: &ServerStatus<'_>, value: fn(&Status) -> u64) -> Option<u64> {
    let replication = status.replication.as_ref().filter(|own| own.leads())?;
    Some(value(&replication.status))
}

/// Returns a value of this node's part of the cluster, if the server is a node of one.
fn cluster(status: &ServerStatus<'_>, value: fn(&ClusterStatistics) -> u64) -> Option<u64> {
    status.cluster.as_ref().map(value)
}

/// Returns a value of the versions that are published for clients to read by themselves.
fn published(status: &ServerStatus<'_>, value: fn(&slots::Figures) -> u64) -> Option<u64> {
    status.published.as_ref().map(value)
}

/// Returns a value of the last checkpoint, if there was one.
fn last_checkpoint(
    status: &ServerStatus<'_>,
    value: fn(&store::CheckpointReport) -> u64,
) -> Option<u64> {
    status.checkpoints.last.as_ref().map(value)
}

/// Returns a part of the time until transactions were durable.
fn latency(status: &ServerStatus<'_>, part: fn(&store::Stats) -> Duration) -> Option<f64> {
    status
        .is_durable()
        .then(|| part(&status.store).as_secs_f64())
}

/// Returns `ok`, or the reason of a failure.
fn ok_or_reason(failure: Option<&str>) -> String {
    match failure {
        Some(reason) => format!("err:{reason}"),
        None => "ok".to_owned(),
    }
}

/// Returns `ok` or `err`.
fn word(failed: bool) -> Option<String> {
    Some(if failed { "err" } else { "ok" }.to_owned())
}

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// Returns the whole seconds that the running checkpoint has taken; -1 if there is none.
fn running_seconds(status: &ServerStatus<'_>) -> i64 {
    let now_ms = unix_ms(status.server.started_at + status.uptime);
    match (status.checkpoints.running, status.checkpoints.started_ms) {
        (true, Some(started_ms)) => (now_ms.saturating_sub(started_ms) / 1000) as i64,
        _ => -1,
    }
}

/// Returns the whole seconds that the last checkpoint of this process took; -1 if there was none.
fn last_seconds(status: &ServerStatus<'_>) -> i64 {
    let checkpoints = &status.checkpoints;
    let last = checkpoints.last.as_ref();
    let own = last.filter(|_| checkpoints.completed > 0);
    own.map_or(-1, |last| last.elapsed.as_secs() as i64)
}

/// Returns the time as microseconds since the Unix epoch.
fn now_us(status: &ServerStatus<'_>) -> u128 {
    let started = status.server.started_at.duration_since(UNIX_EPOCH);
    (started.unwrap_or_default() + status.uptime).as_micros()
}

/// Returns the state of a follower's link to the leader, in the words of a Redis replica.
fn link(status: &ServerStatus<'_>) -> Option<String> {
    let replication = status.replication.as_ref().filter(|own| !own.leads())?;
    let up = replication.staleness().is_some() && replication.status.leader.is_some();
    text(if up { "up" } else { "down" })
}

fn is_follower(status: &ServerStatus<'_>) -> bool {
    status.replication.as_ref().is_some_and(|own| !own.leads())
}

/// Writes the numbers of keys in the form in which Redis shows them: a line for each database that has
/// keys.
pub(crate) fn write_databases(status: &ServerStatus<'_>, out: &mut String) {
    let now_ms = (now_us(status) / 1000) as u64;
    for (database, stats) in status.databases.iter().filter(|(_, stats)| stats.keys > 0) {
        let ttl = stats.mean_deadline_ms.saturating_sub(now_ms);
        let (keys, expires) = (stats.keys, stats.expiring.min(stats.keys));
        let line = format!("db{database}:keys={keys},expires={expires},avg_ttl={ttl}\r\n");
        out.push_str(&line);
    }
}

pub(super) const TABLE: &[MetricRow] = rows! {
    Server "redis_version" => Text(|_| text(about::REDIS_VERSION));
    Server "redis_mode" => Text(|f| text(f.server.mode()));
    Server "os" => Text(|_| text(about::PLATFORM.join(" ")));
    Server "arch_bits" => Whole(|_| usize::BITS.into());
    Server "multiplexing_api" => Text(|f| text(f.server.io));
    Server "process_id" => Whole(|_| std::process::id().into());
    Server "run_id" => Text(|f| text(&f.server.run_id));
    Server "tcp_port" => Whole(|f| f.server.port.into());
    Server "server_time_usec" => Text(|f| text(now_us(f)));
    Server "uptime_in_seconds", Gauge "kumiki_uptime_seconds"
        "Time since the server began to serve."
        => WholeSeconds(|f| f.uptime.as_secs_f64());
    Server "uptime_in_days" => Whole(|f| f.uptime.as_secs() / 86_400);
    Server "threads" => Whole(|f| f.server.config.threads as u64);
    Server "kumiki_version" => Text(|_| text(about::VERSION));
    Server "kumiki_commit" => Text(|f| text(f.server.config.build.commit));
    Server "kumiki_profile" => Text(|f| text(f.server.config.build.profile));
    Server "", Gauge "kumiki_build_info" "What runs, in labels; the value is always 1."
        => Samples(|f, out| about::describe(f.server.config.build, out));

    Clients "connected_clients", Gauge "kumiki_connections" "Connections of clients."
        => Whole(|f| f.clients as u64);
    Clients "maxclients", Gauge "kumiki_connections_limit"
        "Connections of clients that there may be at once."
        => Whole(|f| f.server.settings.clients() as u64);
    Clients "pubsub_clients", Gauge "kumiki_subscribers" "Clients that subscribe to channels."
        => Whole(|f| f.subscribers as u64);
    Clients "tracking_clients", Gauge "kumiki_tracking_clients"
        "Clients that are sent the news of keys that they keep (CLIENT TRACKING)."
        => Whole(|f| f.server.tracking.clients() as u64);
    Clients "blocked_clients" => Whole(|f| f.lock_waits + f.paused + f.server.blocked.count() as u64);
    Clients "snapshots_open", Gauge "kumiki_snapshots_open"
        "Snapshots that clients have open (KUMIKI.SNAPSHOT)."
        => Whole(|f| f.server.snapshots.taken());

    Memory "used_memory", Gauge "kumiki_memory_bytes" "Memory of keys, values and what finds them."
        => Whole(|f| f.store.memory_bytes);
    Memory "used_memory_human" => Text(|f| text(Size(f.store.memory_bytes)));
    Memory "used_memory_rss" => Whole(|f| f.process.resident_bytes);
    Memory "used_memory_rss_human" => Text(|f| text(Size(f.process.resident_bytes)));
    Memory "maxmemory", Gauge "kumiki_memory_limit_bytes"
        "Memory beyond which keys are evicted, or commands that need more are refused; 0: no bound."
        => Whole(|f| f.memory_limit);
    Memory "maxmemory_human" => Text(|f| text(Size(f.memory_limit)));
    Memory "maxmemory_policy" => Text(|f| text(f.server.partition.eviction().policy));
    Memory "used_memory_scripts_eval" => Whole(|f| f.server.scripts.size().1 as u64);
    Memory "number_of_cached_scripts", Gauge "kumiki_cached_scripts" "Scripts that the server has, by EVAL and SCRIPT LOAD."
        => Whole(|f| f.server.scripts.size().0 as u64);
    Memory "mem_clients_normal" => Whole(|f| f.server.in_flight.used());
    Memory "maxmemory_clients" => Whole(|f| f.server.in_flight.limit());

    // Redis's names, for its tools. A checkpoint is what they call `rdb`, and the log `aof`.
    Persistence "loading" => Whole(|_| 0);
    Persistence "rdb_bgsave_in_progress", Gauge "kumiki_checkpoint_running"
        "1 while a checkpoint is made, else 0."
        => Saves(|f| f.checkpoints.running.into());
    Persistence "rdb_last_save_time" => Whole(|f| f.last_save_ms() / 1000);
    Persistence "rdb_last_bgsave_status" => Text(|f| word(f.checkpoints.last_error.is_some()));
    Persistence "rdb_last_bgsave_time_sec" => Text(|f| text(last_seconds(f)));
    Persistence "rdb_current_bgsave_time_sec" => Text(|f| text(running_seconds(f)));
    Persistence "rdb_saves", Counter "kumiki_checkpoints_completed_total" "Checkpoints made."
        => Saves(|f| f.checkpoints.completed);
    Persistence "aof_enabled" => Whole(|f| f.is_durable().into());
    Persistence "aof_last_write_status" => Text(|f| word(f.store.journal_failure.is_some()));
    Persistence "durability" => Text(|f| text(f.durability()));
    Persistence "", Gauge "kumiki_durability_info"
        "When replies leave, as a label: group, async or ephemeral; the value is always 1."
        => Samples(|f, out| out.labelled(&[("durability", f.durability())], 1));
    Persistence "log_failed", Gauge "kumiki_log_failed"
        "1 while the log cannot be written and writes are refused, else 0."
        => Saves(|f| f.store.journal_failure.is_some().into());
    Persistence "log_status" => Text(|f| text(ok_or_reason(f.store.journal_failure.as_deref())));

    Log "epoch", Gauge "kumiki_epoch" "The current epoch." => Whole(|f| f.store.epoch.0);
    Log "durable_epoch", Gauge "kumiki_durable_epoch"
        "Everything up to this epoch is durable."
        => Durable(|f| f.store.durable_epoch.0);
    Log "durable_lag_epochs", Gauge "kumiki_durable_lag_epochs"
        "Epochs from the durable one to the current one; an idle server stays one behind or more."
        => Durable(|f| f.lag_epochs());
    Log "log_bytes", Counter "kumiki_log_bytes_total" "Bytes written to the logs."
        => Durable(|f| f.store.log_bytes);
    Log "log_cycles" => Durable(|f| f.store.log_cycles);
    Log "", Counter "kumiki_log_cycles_total" ["thread" = "logger"]
        "Times that a log was written and synced, by whose thread did it."
        => Durable(|f| f.store.log_cycles.saturating_sub(f.store.log_inline_cycles));
    Log "log_inline_cycles", Counter "kumiki_log_cycles_total" ["thread" = "runtime"] "As above."
        => Durable(|f| f.store.log_inline_cycles);
    Log "log_syncs" => Durable(|f| f.store.log_syncs);
    Log "log_sync_seconds" => Seconds(|f| latency(f, |store| store.log_sync_time));
    Log "", Histogram "kumiki_log_sync_seconds"
        "How long syncs of the logs took, the writes before them included."
        => Samples(|f, out| {
            if f.is_durable() {
                let classes = &f.store.log_sync_histogram;
                out.histogram(&[], FIRST_CLASS, classes, f.store.log_sync_time);
            }
        });
    Log "log_buffers_waiting", Gauge "kumiki_log_buffers_waiting"
        "Full log buffers that wait for their logger."
        => Durable(|f| f.store.log_buffers_waiting);
    Log "durability_latency_transactions", Counter "kumiki_durability_latency_transactions_total"
        "Transactions that the sums of kumiki_durability_latency_seconds_total are over."
        => Durable(|f| f.store.log_latency.transactions);
    Log "durability_latency_buffer_seconds",
        Counter "kumiki_durability_latency_seconds_total" ["part" = "buffer"]
        "Time from commit to durability, summed over transactions, by where it was spent."
        => Seconds(|f| latency(f, |store| store.log_latency.buffer));
    Log "durability_latency_queue_seconds",
        Counter "kumiki_durability_latency_seconds_total" ["part" = "queue"] "As above."
        => Seconds(|f| latency(f, |store| store.log_latency.queue));
    Log "durability_latency_write_seconds",
        Counter "kumiki_durability_latency_seconds_total" ["part" = "write"] "As above."
        => Seconds(|f| latency(f, |store| store.log_latency.write));
    Log "durability_latency_notification_seconds",
        Counter "kumiki_durability_latency_seconds_total" ["part" = "notification"] "As above."
        => Seconds(|f| latency(f, |store| store.log_latency.notification));

    Checkpoints "checkpoint_entries_written", Gauge "kumiki_checkpoint_entries_written"
        "Keys written of the checkpoint that is being made."
        => Durable(|f| f.checkpoints.entries_written);
    Checkpoints "checkpoints_failed", Counter "kumiki_checkpoints_failed_total"
        "Checkpoints that could not be made."
        => Durable(|f| f.checkpoints.failed);
    Checkpoints "checkpoint_last_failed", Gauge "kumiki_checkpoint_last_failed"
        "1 when the last attempt to make a checkpoint failed, else 0."
        => Durable(|f| f.checkpoints.last_error.is_some().into());
    Checkpoints "checkpoint_last_status"
        => Text(|f| text(ok_or_reason(f.checkpoints.last_error.as_deref())));
    Checkpoints "log_bytes_since_checkpoint", Gauge "kumiki_log_bytes_since_checkpoint"
        "Bytes of log that a recovery would read, about."
        => Durable(|f| f.checkpoints.log_bytes_since);
    Checkpoints "checkpoint_last_epoch", Gauge "kumiki_checkpoint_last_epoch"
        "The epoch of the last checkpoint."
        => Maybe(|f| last_checkpoint(f, |last| last.epoch.0));
    Checkpoints "checkpoint_last_time", Gauge "kumiki_checkpoint_last_time_seconds"
        "When the last checkpoint was finished, in seconds since the Unix epoch."
        => Seconds(|f| Some(f.checkpoints.last.as_ref()?.finished_ms as f64 / 1e3));
    Checkpoints "checkpoint_last_seconds", Gauge "kumiki_checkpoint_last_duration_seconds"
        "How long the last checkpoint took."
        => Seconds(|f| Some(f.checkpoints.last.as_ref()?.elapsed.as_secs_f64()));
    Checkpoints "checkpoint_last_entries", Gauge "kumiki_checkpoint_last_entries"
        "Keys in the last checkpoint."
        => Maybe(|f| last_checkpoint(f, |last| last.entries));
    Checkpoints "checkpoint_last_bytes", Gauge "kumiki_checkpoint_last_bytes"
        "Bytes of the last checkpoint."
        => Maybe(|f| last_checkpoint(f, |last| last.bytes));
    Checkpoints "checkpoint_last_segments_removed", Gauge "kumiki_checkpoint_last_segments_removed"
        "Log files that went away with the last checkpoint."
        => Maybe(|f| last_checkpoint(f, |last| last.segments_removed));

    Recovery "recovery_seconds", Gauge "kumiki_recovery_duration_seconds"
        "How long the recovery at the start took."
        => Seconds(|f| f.is_durable().then_some(f.recovery.elapsed.as_secs_f64()));
    Recovery "recovery_bytes", Gauge "kumiki_recovery_bytes"
        "Bytes of log that the recovery at the start read."
        => Durable(|f| f.recovery.bytes);
    Recovery "recovery_checkpoint_bytes", Gauge "kumiki_recovery_checkpoint_bytes"
        "Bytes of the checkpoint that the recovery at the start used; 0 without one."
        => Durable(|f| f.recovery.checkpoint.as_ref().map_or(0, |used| used.bytes));
    Recovery "recovery_checkpoint_entries", Gauge "kumiki_recovery_checkpoint_entries"
        "Keys in the checkpoint that the recovery at the start used; 0 without one."
        => Durable(|f| f.recovery.checkpoint.as_ref().map_or(0, |used| used.entries));
    Recovery "recovery_entries", Gauge "kumiki_recovery_entries"
        "Changes that the recovery at the start applied, those of the checkpoint included."
        => Durable(|f| f.recovery.entries);
    Recovery "recovery_keys", Gauge "kumiki_recovery_keys"
        "Keys that the recovery at the start found."
        => Durable(|f| f.recovery.keys);
    Recovery "recovery_durable_epoch", Gauge "kumiki_recovery_durable_epoch"
        "The epoch up to which the recovery at the start found everything."
        => Durable(|f| f.recovery.durable_epoch.0);
    Recovery "recovery_torn_tails", Gauge "kumiki_recovery_torn_tails"
        "Logs whose unfinished end the recovery at the start cut off."
        => Durable(|f| f.recovery.cuts.len() as u64);
    Recovery "recovery_warnings", Gauge "kumiki_recovery_warnings"
        "Warnings of the recovery at the start, which are in the server's log."
        => Durable(|f| f.recovery.warnings.len() as u64);

    Stats "total_connections_received", Counter "kumiki_connections_accepted_total"
        "Connections that clients made, those rejected among them."
        => Whole(|f| f.traffic.accepted);
    Stats "total_commands_processed" => Whole(|f| f.traffic.commands);
    Stats "total_reads_processed", Counter "kumiki_commands_total" ["kind" = "read"]
        "Commands from clients, by what they do; other: neither read nor write, or refused."
        => Whole(|f| f.traffic.reads);
    Stats "total_writes_processed", Counter "kumiki_commands_total" ["kind" = "write"] "As above."
        => Whole(|f| f.traffic.writes);
    Stats "", Counter "kumiki_commands_total" ["kind" = "other"] "As above."
        => Whole(|f| f.other_commands());
    Stats "total_net_input_bytes", Counter "kumiki_received_bytes_total"
        "Bytes received from clients."
        => Whole(|f| f.traffic.bytes_in);
    Stats "total_net_output_bytes", Counter "kumiki_sent_bytes_total" "Bytes sent to clients."
        => Whole(|f| f.traffic.bytes_out);
    Stats "rejected_connections", Counter "kumiki_connections_rejected_total"
        "Connections closed at once because there were too many."
        => Whole(|f| f.traffic.rejected);
    Stats "total_error_replies", Counter "kumiki_command_errors_total"
        "Replies to commands that are errors."
        => Whole(|f| f.traffic.errors);
    Stats "acl_access_denied_auth", Counter "kumiki_auth_failures_total"
        "Attempts to authenticate that were refused."
        => Whole(|f| f.traffic.auth_failures);
    Stats "expired_keys", Counter "kumiki_keys_expired_total"
        "Keys removed because they had expired."
        => Whole(|f| f.store.expired);
    Stats "clock_steps", Counter "kumiki_clock_steps_total"
        "Times that the machine's clock was seen to have been set, which time here follows slowly."
        => Whole(|f| f.store.clock_steps);
    Stats "evicted_keys", Counter "kumiki_keys_evicted_total"
        "Keys deleted because memory was full."
        => Whole(|f| f.store.evicted);
    Stats "total_eviction_exceeded_time" => Whole(|f| f.store.eviction_exceeded_ms);
    Stats "keyspace_hits", Counter "kumiki_key_lookups_total" ["result" = "hit"]
        "Keys that commands looked up to read, by whether they were there."
        => Whole(|f| f.traffic.hits);
    Stats "keyspace_misses", Counter "kumiki_key_lookups_total" ["result" = "miss"] "As above."
        => Whole(|f| f.traffic.misses);
    Stats "pubsub_channels", Gauge "kumiki_channels" ["kind" = "channel"]
        "Names to which clients of this node subscribe, by kind."
        => Whole(|f| f.server.channels.names(SubscriptionKind::Channel) as u64);
    Stats "pubsub_patterns", Gauge "kumiki_channels" ["kind" = "pattern"] "As above."
        => Whole(|f| f.server.channels.names(SubscriptionKind::Pattern) as u64);
    Stats "pubsubshard_channels", Gauge "kumiki_channels" ["kind" = "shard channel"] "As above."
        => Whole(|f| f.server.channels.names(SubscriptionKind::ShardChannel) as u64);
    Stats "tracking_total_keys", Gauge "kumiki_tracked_keys" "Keys that clients keep, as far as they are tracked."
        => Whole(|f| f.server.tracking.keys.keys_and_items().0 as u64);
    Stats "tracking_total_items", Gauge "kumiki_tracked_items" "Pairs of such a key and a client."
        => Whole(|f| f.server.tracking.keys.keys_and_items().1 as u64);
    Stats "tracking_total_prefixes", Gauge "kumiki_tracked_prefixes" "Prefixes of keys whose changes clients are sent."
        => Whole(|f| f.server.tracking.prefixes.len() as u64);
    Stats "", Counter "kumiki_channel_messages_total"
        "Messages that were sent to subscribers of this node, each subscriber counted."
        => Whole(|f| f.traffic.messages);
    Stats "transactions_committed", Counter "kumiki_transactions_committed_total"
        "Transactions that wrote and committed."
        => Whole(|f| f.store.commits);
    Stats "transactions_conflicted", Counter "kumiki_transaction_conflicts_total"
        "Attempts of transactions that met a conflict and were repeated or given up."
        => Whole(|f| f.store.conflicts);
    Stats "transactions_prepared", Gauge "kumiki_transactions_prepared"
        "Transactions over several nodes that are prepared here and not decided."
        => Whole(|f| f.store.prepared);
    Stats "versions_kept", Gauge "kumiki_versions_kept"
        "Versions of read-atomic keys that are kept behind newer ones."
        => Whole(|f| f.store.kept_versions);
    Stats "parked_clients", Gauge "kumiki_connections_parked"
        "Connections that wait for what such a transaction holds."
        => Whole(|f| f.lock_waits);

    // Redis's names first, for its clients; a node without replicas is a master without slaves.
    Replication "role" => Text(|f| text(if is_follower(f) { "slave" } else { "master" }));
    Replication "master_link_status" => Text(link);
    Replication "slave_read_only" => Maybe(|f| is_follower(f).then_some(1));
    Replication "connected_slaves"
        => Whole(|f| leading(f, ReplicaStatus::active_voters).map_or(0, |heard| heard.saturating_sub(1)));
    Replication "replica_role"
        => Text(|f| text(f.replication.as_ref()?.status.role.name()));
    Replication "replica_leader"
        => Maybe(|f| replica(f, |status| status.leader.map_or(0, |leader| leader.0.into())));
    Replication "replica_note"
        => Text(|f| text(f.replication.as_ref()?.status.note.as_deref().unwrap_or("-")));
    Replication "replica_staleness_seconds", Gauge "kumiki_replica_staleness_seconds"
        "How old what this node has may be; 0 where it leads, absent if that is not known."
        => Seconds(|f| Some(f.replication.as_ref()?.staleness()?.as_secs_f64()));
    Replication "replica_leads", Gauge "kumiki_replica_leads"
        "1 when this node leads its partition and serves."
        => Maybe(|f| replica(f, |status| (status.role == Role::Leader).into()));
    Replication "replica_has_leader", Gauge "kumiki_replica_has_leader"
        "1 when this node knows who leads its partition."
        => Maybe(|f| replica(f, |status| status.leader.is_some().into()));
    Replication "replica_stopped", Gauge "kumiki_replica_stopped"
        "1 when this node's replica has stopped, and serves nothing until the process is restarted."
        => Maybe(|f| replica(f, |status| (status.role == Role::Stopped).into()));
    Replication "replica_states_differ", Gauge "kumiki_replica_states_differ"
        "1 when this node leads and the last comparison of the members' states has found a difference."
        => Maybe(|f| replica(f, |status| status.difference.is_some().into()));
    Replication "replica_term", Gauge "kumiki_replica_term"
        "Raft's term, which grows with every election."
        => Maybe(|f| replica(f, |status| status.term));
    Replication "replica_last_index", Gauge "kumiki_replica_last_index"
        "Index of the last entry in this node's log."
        => Maybe(|f| replica(f, |status| status.last));
    Replication "replica_committed_index", Gauge "kumiki_replica_committed_index"
        "Index of the last entry that is known to be committed."
        => Maybe(|f| replica(f, |status| status.committed));
    Replication "replica_applied_index", Gauge "kumiki_replica_applied_index"
        "Index of the last entry that is executed here."
        => Maybe(|f| replica(f, |status| status.applied));
    Replication "replica_snapshot_index", Gauge "kumiki_replica_snapshot_index"
        "Index of the newest snapshot."
        => Maybe(|f| replica(f, |status| status.snapshot));
    Replication "replica_leaderships", Counter "kumiki_replica_leaderships_total"
        "How often this node has begun to lead."
        => Maybe(|f| replica(f, |status| status.leaderships));
    Replication "replica_groups", Counter "kumiki_replica_groups_total"
        "Groups of entries that this node, leading, has appended and sent."
        => Maybe(|f| replica(f, |status| status.groups));
    Replication "replica_entries", Counter "kumiki_replica_entries_total"
        "Entries in those groups."
        => Maybe(|f| replica(f, |status| status.entries));
    Replication "replica_syncs", Counter "kumiki_replica_syncs_total"
        "Syncs of this node's Raft log."
        => Maybe(|f| replica(f, |status| status.syncs));
    Replication "replica_log_bytes", Gauge "kumiki_replica_log_bytes"
        "Bytes that this node's Raft log takes."
        => Maybe(|f| replica(f, |status| status.log_bytes));
    Replication "replica_voters", Gauge "kumiki_replica_voters"
        "Members of the partition that have a vote."
        => Maybe(|f| replica(f, ReplicaStatus::voters));
    Replication "replica_voters_heard", Gauge "kumiki_replica_voters_heard"
        "Those of them that the leader has heard of lately, itself among them; only where it leads."
        => Maybe(|f| leading(f, ReplicaStatus::active_voters));
    Replication "replica_lag_entries", Gauge "kumiki_replica_lag_entries"
        "Entries that the slowest member lacks, of those heard of lately; only where this node leads."
        => Maybe(|f| leading(f, ReplicaStatus::lag));
    Replication "replica_receiving_bytes", Gauge "kumiki_replica_receiving_bytes"
        "Bytes of a snapshot that this node has got from its leader; 0 when it gets none."
        => Maybe(|f| replica(f, |status| status.receiving.map_or(0, |(done, _)| done)));
    Replication "replica_receiving_bytes_expected", Gauge "kumiki_replica_receiving_bytes_expected"
        "Bytes that the snapshot has in all."
        => Maybe(|f| replica(f, |status| status.receiving.map_or(0, |(_, all)| all)));

    Cpu "used_cpu_sys" => Seconds(|f| Some(f.process.system_seconds));
    Cpu "used_cpu_user" => Seconds(|f| Some(f.process.user_seconds));

    Cluster "cluster_enabled" => Whole(|f| f.cluster.is_some().into());
    Cluster "cluster_transactions_committed",
        Counter "kumiki_cluster_transactions_total" ["outcome" = "committed"]
        "Transactions over several nodes that this one coordinated, by how they ended."
        => Maybe(|f| cluster(f, |own| own.counters.committed));
    Cluster "cluster_transactions_aborted",
        Counter "kumiki_cluster_transactions_total" ["outcome" = "aborted"] "As above."
        => Maybe(|f| cluster(f, |own| own.counters.aborted));
    Cluster "cluster_transactions_unknown",
        Counter "kumiki_cluster_transactions_total" ["outcome" = "unknown"] "As above."
        => Maybe(|f| cluster(f, |own| own.counters.unknown));
    Cluster "cluster_transactions_running", Gauge "kumiki_cluster_transactions_running"
        "Transactions over several nodes that this one coordinates now."
        => Maybe(|f| cluster(f, |own| own.coordinating as u64));
    Cluster "cluster_retries", Counter "kumiki_cluster_retries_total"
        "Attempts of such transactions beyond the first."
        => Maybe(|f| cluster(f, |own| own.counters.retried));
    Cluster "cluster_prepares", Counter "kumiki_cluster_prepares_total"
        "Parts of transactions over several nodes that were prepared here."
        => Maybe(|f| cluster(f, |own| own.counters.prepared));
    Cluster "cluster_prepares_refused", Counter "kumiki_cluster_prepares_refused_total"
        "Parts that were not prepared because an older transaction held a key."
        => Maybe(|f| cluster(f, |own| own.counters.died));
    Cluster "cluster_requests_waiting", Gauge "kumiki_cluster_requests_waiting"
        "Requests of other nodes that wait for what a transaction holds."
        => Maybe(|f| cluster(f, |own| own.waiting as u64));
    Cluster "cluster_resolved_committed",
        Counter "kumiki_cluster_resolved_total" ["outcome" = "committed"]
        "Transactions whose coordinator was gone and that this node decided, by how."
        => Maybe(|f| cluster(f, |own| own.counters.resolved_committed));
    Cluster "cluster_resolved_aborted",
        Counter "kumiki_cluster_resolved_total" ["outcome" = "aborted"] "As above."
        => Maybe(|f| cluster(f, |own| own.counters.resolved_aborted));
    Cluster "cluster_ramp_reads", Counter "kumiki_cluster_ramp_reads_total"
        "Read-atomic reads over several partitions that this node coordinated."
        => Maybe(|f| cluster(f, |own| own.counters.ramp_reads));
    Cluster "cluster_ramp_second_rounds", Counter "kumiki_cluster_ramp_second_rounds_total"
        "Those of them that took more than one round."
        => Maybe(|f| cluster(f, |own| own.counters.ramp_second_rounds));
    Cluster "cluster_ramp_restarts", Counter "kumiki_cluster_ramp_restarts_total"
        "How often such reads began again."
        => Maybe(|f| cluster(f, |own| own.counters.ramp_restarts));
    Cluster "cluster_ramp_lost", Counter "kumiki_cluster_ramp_lost_total"
        "Versions that such reads knew of and did not find: lost by a partition."
        => Maybe(|f| cluster(f, |own| own.counters.ramp_lost));
    Cluster "cluster_ramp_writes", Counter "kumiki_cluster_ramp_writes_total"
        "Read-atomic writes over several partitions that this node coordinated."
        => Maybe(|f| cluster(f, |own| own.counters.ramp_writes));
    Cluster "cluster_ramp_overtaken", Counter "kumiki_cluster_ramp_overtaken_total"
        "Attempts at such writes that met newer versions."
        => Maybe(|f| cluster(f, |own| own.counters.ramp_overtaken));
    Cluster "cluster_links", Gauge "kumiki_cluster_links"
        "Links to other nodes, summed over the threads that serve clients."
        => Maybe(|f| cluster(f, |own| own.links as u64));
    Cluster "cluster_links_through_memory", Gauge "kumiki_cluster_links_through_memory"
        "Links with nodes and Rust clients whose messages travel through memory."
        => Maybe(|f| cluster(f, |own| own.through_memory as u64));
    Cluster "cluster_links_send_receive", Gauge "kumiki_cluster_links_send_receive"
        "Those of them whose messages travel by Send and Receive."
        => Maybe(|f| cluster(f, |own| own.send_receive as u64));
    Cluster "cluster_links_encrypted", Gauge "kumiki_cluster_links_encrypted"
        "Links with nodes and Rust clients whose messages are encrypted."
        => Maybe(|f| cluster(f, |own| own.encrypted as u64));
    Cluster "published_bytes", Gauge "kumiki_published_bytes"
        "Bytes of the region that clients read by themselves."
        => Maybe(|f| published(f, |own| own.bytes));
    Cluster "published_slots", Gauge "kumiki_published_slots" "Keys that have a slot there."
        => Maybe(|f| published(f, |own| own.slots));
    Cluster "published_versions", Counter "kumiki_published_versions_total"
        "Versions that were put into slots."
        => Maybe(|f| published(f, |own| own.published));
    Cluster "published_overtaken", Counter "kumiki_published_refused_total" ["reason" = "overtaken"]
        "Versions that were not put into a slot, by why."
        => Maybe(|f| published(f, |own| own.overtaken));
    Cluster "published_full", Counter "kumiki_published_refused_total" ["reason" = "full"]
        "As above."
        => Maybe(|f| published(f, |own| own.full));
    Cluster "published_too_large", Counter "kumiki_published_refused_total" ["reason" = "too_large"]
        "As above."
        => Maybe(|f| published(f, |own| own.too_large));
    Cluster "published_evicted", Counter "kumiki_published_evicted_total"
        "Slots that gave way to other keys."
        => Maybe(|f| published(f, |own| own.evicted));

    Keyspace "", Gauge "kumiki_keys" "Keys of all databases; expired ones that were not yet reclaimed count."
        => Whole(|f| f.store.keys);
    Keyspace "", Gauge "kumiki_keys_expiring" "Those of them that have a deadline."
        => Whole(|f| f.store.expiring);
};
