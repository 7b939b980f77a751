//! `INFO`: figures about the server, in Redis's sections and under its names where it has them.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

use base::size::Size;
use resp::Args;

use crate::config::Durability;
use crate::shared::Shared;

/// The version of Redis whose commands these are: clients choose what to send by it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

type Section = fn(&Shared, &store::Stats, Option<&str>, &mut String) -> std::fmt::Result;

const SECTIONS: [(&str, Section); 7] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("CPU", cpu),
    ("Keyspace", keyspace),
];

/// The sections asked for; all, when none is.
pub(crate) fn report(shared: &Shared, failed: Option<&str>, asked: Args<'_>) -> String {
    let figures = shared.db.stats();
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
        section(shared, &figures, failed, &mut lines).expect("a String takes any text");
        text.push_str(&format!("# {name}\r\n"));
        text.push_str(&lines.replace('\n', "\r\n"));
    }
    text
}

fn server(
    shared: &Shared,
    _: &store::Stats,
    _: Option<&str>,
    out: &mut String,
) -> std::fmt::Result {
    let uptime = shared.started.elapsed().as_secs();
    let started = shared
        .started_at
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    writeln!(out, "redis_version:{REDIS_VERSION}")?;
    writeln!(out, "kumiki_version:{}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "redis_mode:standalone")?;
    writeln!(
        out,
        "os:{} {}",
        std::env::consts::OS,
        std::env::consts::ARCH
    )?;
    writeln!(out, "arch_bits:{}", usize::BITS)?;
    writeln!(out, "process_id:{}", std::process::id())?;
    writeln!(out, "run_id:{}", shared.run_id)?;
    writeln!(out, "tcp_port:{}", shared.port)?;
    writeln!(
        out,
        "server_time_usec:{}",
        started.as_micros() + shared.started.elapsed().as_micros()
    )?;
    writeln!(out, "uptime_in_seconds:{uptime}")?;
    writeln!(out, "uptime_in_days:{}", uptime / 86_400)?;
    writeln!(out, "threads:{}", shared.config.threads)
}

fn clients(
    shared: &Shared,
    _: &store::Stats,
    _: Option<&str>,
    out: &mut String,
) -> std::fmt::Result {
    writeln!(out, "connected_clients:{}", shared.clients.count())?;
    writeln!(out, "maxclients:{}", shared.config.limits.clients)
}

fn memory(
    shared: &Shared,
    figures: &store::Stats,
    _: Option<&str>,
    out: &mut String,
) -> std::fmt::Result {
    let most = shared.memory.most.load(Ordering::Relaxed);
    let resident = resident_bytes().unwrap_or(0);
    writeln!(out, "used_memory:{}", figures.memory_bytes)?;
    writeln!(out, "used_memory_human:{}", Size(figures.memory_bytes))?;
    writeln!(out, "used_memory_rss:{resident}")?;
    writeln!(out, "used_memory_rss_human:{}", Size(resident))?;
    writeln!(out, "maxmemory:{most}")?;
    writeln!(out, "maxmemory_human:{}", Size(most))?;
    writeln!(out, "maxmemory_policy:noeviction")
}

fn persistence(
    shared: &Shared,
    figures: &store::Stats,
    failed: Option<&str>,
    out: &mut String,
) -> std::fmt::Result {
    let failed = failed.or(figures.journal_failure.as_deref());
    let durability = match (&shared.config.data, shared.config.durability) {
        (None, _) => "ephemeral",
        (_, Durability::Group) => "group",
        (_, Durability::Async) => "async",
    };
    let durable_epoch = match &shared.config.data {
        Some(_) => figures.durable_epoch.to_string(),
        None => "none".to_owned(),
    };
    let status = match failed {
        Some(reason) => format!("err:{}", reason.replace(['\r', '\n'], " ")),
        None => "ok".to_owned(),
    };
    writeln!(out, "loading:0")?;
    writeln!(
        out,
        "aof_enabled:{}",
        u8::from(shared.config.data.is_some())
    )?;
    writeln!(
        out,
        "aof_last_write_status:{}",
        if failed.is_some() { "err" } else { "ok" }
    )?;
    writeln!(out, "durability:{durability}")?;
    writeln!(out, "epoch:{}", figures.epoch)?;
    writeln!(out, "durable_epoch:{durable_epoch}")?;
    writeln!(out, "log_bytes:{}", figures.log_bytes)?;
    writeln!(out, "log_syncs:{}", figures.log_syncs)?;
    writeln!(out, "log_status:{status}")
}

fn stats(
    shared: &Shared,
    figures: &store::Stats,
    _: Option<&str>,
    out: &mut String,
) -> std::fmt::Result {
    let counters = &shared.counters;
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    writeln!(
        out,
        "total_connections_received:{}",
        of(&counters.connections)
    )?;
    writeln!(out, "total_commands_processed:{}", of(&counters.commands))?;
    writeln!(out, "total_net_input_bytes:{}", of(&counters.bytes_in))?;
    writeln!(out, "total_net_output_bytes:{}", of(&counters.bytes_out))?;
    writeln!(out, "rejected_connections:{}", of(&counters.rejected))?;
    writeln!(out, "total_error_replies:{}", of(&counters.errors))?;
    writeln!(out, "expired_keys:{}", figures.expired)?;
    writeln!(out, "evicted_keys:0")?;
    writeln!(out, "transactions_committed:{}", figures.commits)?;
    writeln!(out, "transactions_conflicted:{}", figures.conflicts)
}

fn cpu(_: &Shared, _: &store::Stats, _: Option<&str>, out: &mut String) -> std::fmt::Result {
    let (user, system) = cpu_seconds().unwrap_or((0.0, 0.0));
    writeln!(out, "used_cpu_sys:{system:.6}")?;
    writeln!(out, "used_cpu_user:{user:.6}")
}

fn keyspace(
    _: &Shared,
    figures: &store::Stats,
    _: Option<&str>,
    out: &mut String,
) -> std::fmt::Result {
    match figures.keys {
        0 => Ok(()),
        keys => writeln!(out, "db0:keys={keys}"),
    }
}

/// The memory that the system has given to this process.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The processor time of this process, its own and the system's for it, in seconds.
fn cpu_seconds() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may hold blanks; fields are counted behind it.
    let mut fields = text[text.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(11);
    let mut seconds = || -> Option<f64> {
        let ticks: f64 = fields.next()?.parse().ok()?;
        Some(ticks / rustix::param::clock_ticks_per_second() as f64)
    };
    Some((seconds()?, seconds()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_system_tells_of_this_process() {
        assert!(super::resident_bytes().is_some_and(|bytes| bytes > 100_000));
        assert!(super::cpu_seconds().is_some());
    }
}
