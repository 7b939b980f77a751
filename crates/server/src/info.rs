//! `INFO`: figures about the server, in Redis's sections and under its names where it has them.
//!
//! `docs/metrics.md` tells which field shows the same as which metric of the admin endpoint.

use std::fmt::{Result, Write};
use std::time::UNIX_EPOCH;

use admin::about;
use base::size::Size;
use resp::Args;

use crate::figures::{Figures, Replication, unix_ms};
use crate::shared::Shared;

type Section = fn(&Figures<'_>, &mut String) -> Result;

const SECTIONS: [(&str, Section); 12] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Log", log),
    ("Checkpoints", checkpoints),
    ("Recovery", recovery),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

/// The sections asked for; all, when none is.
pub(crate) fn report(shared: &Shared, asked: Args<'_>) -> String {
    let figures = Figures::now(shared);
    let every = |arg: &[u8]| {
        [&b"all"[..], b"default", b"everything"]
            .iter()
            .any(|word| arg.eq_ignore_ascii_case(word))
    };
    let mut text = String::new();
    for (name, section) in SECTIONS {
        let wanted = asked.is_empty()
            || asked
                .iter()
                .any(|arg| every(arg) || arg.eq_ignore_ascii_case(name.as_bytes()));
        if !wanted {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut lines = String::new();
        section(&figures, &mut lines).expect("a String takes any text");
        text.push_str(&format!("# {name}\r\n"));
        text.push_str(&lines.replace('\n', "\r\n"));
    }
    text
}

/// A text of several lines as one.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// `ok`, or why not.
fn status(failure: Option<&str>) -> String {
    match failure {
        Some(reason) => format!("err:{}", one_line(reason)),
        None => "ok".to_owned(),
    }
}

fn server(figures: &Figures<'_>, out: &mut String) -> Result {
    let shared = figures.shared;
    let uptime = figures.uptime.as_secs();
    let now = shared.started_at.duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default() + figures.uptime;
    writeln!(out, "redis_version:{}", about::REDIS_VERSION)?;
    writeln!(out, "kumiki_version:{}", about::VERSION)?;
    writeln!(out, "kumiki_commit:{}", shared.config.build.commit)?;
    writeln!(out, "kumiki_profile:{}", shared.config.build.profile)?;
    writeln!(out, "redis_mode:{}", shared.mode())?;
    writeln!(out, "os:{}", about::PLATFORM.join(" "))?;
    writeln!(out, "arch_bits:{}", usize::BITS)?;
    writeln!(out, "process_id:{}", std::process::id())?;
    writeln!(out, "run_id:{}", shared.run_id)?;
    writeln!(out, "tcp_port:{}", shared.port)?;
    writeln!(out, "server_time_usec:{}", now.as_micros())?;
    writeln!(out, "uptime_in_seconds:{uptime}")?;
    writeln!(out, "uptime_in_days:{}", uptime / 86_400)?;
    writeln!(out, "threads:{}", shared.config.threads)
}

fn clients(figures: &Figures<'_>, out: &mut String) -> Result {
    writeln!(out, "connected_clients:{}", figures.clients)?;
    writeln!(out, "maxclients:{}", figures.shared.config.limits.clients)?;
    writeln!(out, "snapshots_open:{}", figures.shared.snapshots.taken())
}

fn memory(figures: &Figures<'_>, out: &mut String) -> Result {
    let most = figures.memory_limit;
    let used = figures.store.memory_bytes;
    let resident = figures.process.resident_bytes;
    writeln!(out, "used_memory:{used}")?;
    writeln!(out, "used_memory_human:{}", Size(used))?;
    writeln!(out, "used_memory_rss:{resident}")?;
    writeln!(out, "used_memory_rss_human:{}", Size(resident))?;
    writeln!(out, "maxmemory:{most}")?;
    writeln!(out, "maxmemory_human:{}", Size(most))?;
    writeln!(out, "maxmemory_policy:noeviction")?;
    let clients = &figures.shared.in_flight;
    writeln!(out, "mem_clients_normal:{}", clients.used())?;
    writeln!(out, "maxmemory_clients:{}", clients.limit())
}

/// Redis's names, for its tools. A checkpoint is what they call `rdb`, and the log `aof`.
fn persistence(figures: &Figures<'_>, out: &mut String) -> Result {
    let checkpoints = &figures.checkpoints;
    let failed = figures.store.journal_failure.as_deref();
    let word = |failed: bool| if failed { "err" } else { "ok" };
    let last = checkpoints
        .last
        .as_ref()
        .filter(|_| checkpoints.completed > 0);
    let last_seconds = last.map_or(-1, |last| last.elapsed.as_secs() as i64);
    let now_ms = unix_ms(figures.shared.started_at + figures.uptime);
    let running = match (checkpoints.running, checkpoints.started_ms) {
        (true, Some(started_ms)) => (now_ms.saturating_sub(started_ms) / 1000) as i64,
        _ => -1,
    };
    writeln!(out, "loading:0")?;
    writeln!(
        out,
        "rdb_bgsave_in_progress:{}",
        u8::from(checkpoints.running)
    )?;
    writeln!(out, "rdb_last_save_time:{}", figures.last_save_ms() / 1000)?;
    let save_failed = checkpoints.last_error.is_some();
    writeln!(out, "rdb_last_bgsave_status:{}", word(save_failed))?;
    writeln!(out, "rdb_last_bgsave_time_sec:{last_seconds}")?;
    writeln!(out, "rdb_current_bgsave_time_sec:{running}")?;
    writeln!(out, "rdb_saves:{}", checkpoints.completed)?;
    writeln!(out, "aof_enabled:{}", u8::from(figures.is_durable()))?;
    writeln!(out, "aof_last_write_status:{}", word(failed.is_some()))?;
    writeln!(out, "durability:{}", figures.durability())?;
    writeln!(out, "log_failed:{}", u8::from(failed.is_some()))?;
    writeln!(out, "log_status:{}", status(failed))
}

fn log(figures: &Figures<'_>, out: &mut String) -> Result {
    let store = &figures.store;
    writeln!(out, "epoch:{}", store.epoch)?;
    if !figures.is_durable() {
        // The names are there for who looks for them.
        return writeln!(out, "durable_epoch:none");
    }
    writeln!(out, "durable_epoch:{}", store.durable_epoch)?;
    writeln!(out, "durable_lag_epochs:{}", figures.lag_epochs())?;
    writeln!(out, "log_bytes:{}", store.log_bytes)?;
    writeln!(out, "log_cycles:{}", store.log_cycles)?;
    writeln!(out, "log_inline_cycles:{}", store.log_inline_cycles)?;
    writeln!(out, "log_syncs:{}", store.log_syncs)?;
    let sync_time = store.log_sync_time.as_secs_f64();
    writeln!(out, "log_sync_seconds:{sync_time:.6}")?;
    writeln!(out, "log_buffers_waiting:{}", store.log_buffers_waiting)?;
    let latency = &store.log_latency;
    writeln!(
        out,
        "durability_latency_transactions:{}",
        latency.transactions
    )?;
    for (part, time) in [
        ("buffer", latency.buffer),
        ("queue", latency.queue),
        ("write", latency.write),
        ("notification", latency.notification),
    ] {
        writeln!(
            out,
            "durability_latency_{part}_seconds:{:.6}",
            time.as_secs_f64()
        )?;
    }
    Ok(())
}

fn checkpoints(figures: &Figures<'_>, out: &mut String) -> Result {
    let checkpoints = &figures.checkpoints;
    let written = checkpoints.entries_written;
    let failed = checkpoints.last_error.as_deref();
    writeln!(out, "checkpoint_entries_written:{written}")?;
    writeln!(out, "checkpoints_failed:{}", checkpoints.failed)?;
    writeln!(out, "checkpoint_last_failed:{}", u8::from(failed.is_some()))?;
    writeln!(out, "checkpoint_last_status:{}", status(failed))?;
    let log_bytes = checkpoints.log_bytes_since;
    writeln!(out, "log_bytes_since_checkpoint:{log_bytes}")?;
    let Some(last) = &checkpoints.last else {
        return Ok(());
    };
    writeln!(out, "checkpoint_last_epoch:{}", last.epoch)?;
    writeln!(
        out,
        "checkpoint_last_time:{:.3}",
        last.finished_ms as f64 / 1e3
    )?;
    writeln!(
        out,
        "checkpoint_last_seconds:{:.6}",
        last.elapsed.as_secs_f64()
    )?;
    writeln!(out, "checkpoint_last_entries:{}", last.entries)?;
    writeln!(out, "checkpoint_last_bytes:{}", last.bytes)?;
    let removed = last.segments_removed;
    writeln!(out, "checkpoint_last_segments_removed:{removed}")
}

fn recovery(figures: &Figures<'_>, out: &mut String) -> Result {
    let recovery = figures.recovery;
    writeln!(
        out,
        "recovery_seconds:{:.6}",
        recovery.elapsed.as_secs_f64()
    )?;
    let checkpoint = recovery.checkpoint.as_ref();
    let bytes = checkpoint.map_or(0, |checkpoint| checkpoint.bytes);
    let entries = checkpoint.map_or(0, |checkpoint| checkpoint.entries);
    writeln!(out, "recovery_bytes:{}", recovery.bytes)?;
    writeln!(out, "recovery_checkpoint_bytes:{bytes}")?;
    writeln!(out, "recovery_checkpoint_entries:{entries}")?;
    writeln!(out, "recovery_entries:{}", recovery.entries)?;
    writeln!(out, "recovery_keys:{}", recovery.keys)?;
    writeln!(out, "recovery_durable_epoch:{}", recovery.durable_epoch)?;
    writeln!(out, "recovery_torn_tails:{}", recovery.cuts.len())?;
    writeln!(out, "recovery_warnings:{}", recovery.warnings.len())
}

fn stats(figures: &Figures<'_>, out: &mut String) -> Result {
    let (traffic, store) = (&figures.traffic, &figures.store);
    writeln!(out, "total_connections_received:{}", traffic.accepted)?;
    writeln!(out, "total_commands_processed:{}", traffic.commands)?;
    writeln!(out, "total_reads_processed:{}", traffic.reads)?;
    writeln!(out, "total_writes_processed:{}", traffic.writes)?;
    writeln!(out, "total_net_input_bytes:{}", traffic.bytes_in)?;
    writeln!(out, "total_net_output_bytes:{}", traffic.bytes_out)?;
    writeln!(out, "rejected_connections:{}", traffic.rejected)?;
    writeln!(out, "total_error_replies:{}", traffic.errors)?;
    writeln!(out, "expired_keys:{}", store.expired)?;
    writeln!(out, "clock_steps:{}", store.clock_steps)?;
    writeln!(out, "evicted_keys:0")?;
    writeln!(out, "transactions_committed:{}", store.commits)?;
    writeln!(out, "transactions_conflicted:{}", store.conflicts)?;
    writeln!(out, "transactions_prepared:{}", store.prepared)?;
    writeln!(out, "versions_kept:{}", store.kept_versions)?;
    writeln!(out, "parked_clients:{}", figures.parked)
}

fn cpu(figures: &Figures<'_>, out: &mut String) -> Result {
    writeln!(out, "used_cpu_sys:{:.6}", figures.process.system_seconds)?;
    writeln!(out, "used_cpu_user:{:.6}", figures.process.user_seconds)
}

fn cluster(figures: &Figures<'_>, out: &mut String) -> Result {
    let enabled = u8::from(figures.cluster.is_some());
    writeln!(out, "cluster_enabled:{enabled}")?;
    let Some(cluster) = &figures.cluster else {
        return Ok(());
    };
    let counters = &cluster.counters;
    let fields = [
        ("transactions_committed", counters.committed),
        ("transactions_aborted", counters.aborted),
        ("transactions_unknown", counters.unknown),
        ("transactions_running", cluster.coordinating as u64),
        ("retries", counters.retried),
        ("prepares", counters.prepared),
        ("prepares_refused", counters.died),
        ("requests_waiting", cluster.waiting as u64),
        ("resolved_committed", counters.resolved_committed),
        ("resolved_aborted", counters.resolved_aborted),
        ("ramp_reads", counters.ramp_reads),
        ("ramp_second_rounds", counters.ramp_second_rounds),
        ("ramp_restarts", counters.ramp_restarts),
        ("ramp_lost", counters.ramp_lost),
        ("ramp_writes", counters.ramp_writes),
        ("ramp_overtaken", counters.ramp_overtaken),
        ("links", cluster.links as u64),
        ("links_through_memory", cluster.through_memory as u64),
    ];
    for (name, value) in fields {
        writeln!(out, "cluster_{name}:{value}")?;
    }
    let Some(published) = &figures.published else {
        return Ok(());
    };
    let fields = [
        ("bytes", published.bytes),
        ("slots", published.slots),
        ("versions", published.published),
        ("overtaken", published.overtaken),
        ("full", published.full),
        ("too_large", published.too_large),
        ("evicted", published.evicted),
    ];
    for (name, value) in fields {
        writeln!(out, "published_{name}:{value}")?;
    }
    Ok(())
}

/// Redis's names first, for its clients; a node without replicas is a master without slaves.
fn replication(figures: &Figures<'_>, out: &mut String) -> Result {
    let Some(replication) = &figures.replication else {
        return writeln!(out, "role:master\nconnected_slaves:0");
    };
    let status = &replication.status;
    if replication.leads() {
        let heard = Replication::heard(status).saturating_sub(1);
        writeln!(out, "role:master\nconnected_slaves:{heard}")?;
    } else {
        let link = if replication.staleness().is_some() && status.leader.is_some() {
            "up"
        } else {
            "down"
        };
        writeln!(out, "role:slave\nmaster_link_status:{link}")?;
        writeln!(out, "slave_read_only:1\nconnected_slaves:0")?;
    }
    let (done, expected) = status.receiving.unwrap_or((0, 0));
    let leader = status.leader.map_or(0, |leader| leader.0);
    let staleness = replication
        .staleness()
        .map_or(-1.0, |age| age.as_secs_f64());
    writeln!(out, "replica_role:{}", status.role.name())?;
    writeln!(out, "replica_leader:{leader}")?;
    writeln!(out, "replica_staleness_seconds:{staleness:.3}")?;
    let note = status.note.as_deref().unwrap_or("-");
    writeln!(out, "replica_note:{}", one_line(note))?;
    for (name, value) in [
        ("leads", u64::from(replication.leads())),
        ("has_leader", u64::from(status.leader.is_some())),
        ("stopped", u64::from(status.role == replica::Role::Stopped)),
        ("term", status.term),
        ("last_index", status.last),
        ("committed_index", status.committed),
        ("applied_index", status.applied),
        ("snapshot_index", status.snapshot),
        ("leaderships", status.leaderships),
        ("groups", status.groups),
        ("entries", status.entries),
        ("syncs", status.syncs),
        ("log_bytes", status.log_bytes),
        ("voters", Replication::voters(status)),
        ("voters_heard", Replication::heard(status)),
        ("lag_entries", Replication::lag(status)),
        ("receiving_bytes", done),
        ("receiving_bytes_expected", expected),
    ] {
        writeln!(out, "replica_{name}:{value}")?;
    }
    Ok(())
}

fn keyspace(figures: &Figures<'_>, out: &mut String) -> Result {
    match figures.store.keys {
        0 => Ok(()),
        keys => writeln!(out, "db0:keys={keys}"),
    }
}
