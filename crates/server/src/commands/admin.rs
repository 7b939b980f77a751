//! Commands about the server.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use base::Op;
use base::size::Size;
use resp::Args;

use super::{is, table};
use crate::command::{Command, Ops};
use crate::connection::Connection;
use crate::glob;
use crate::limits::BACKLOG;
use crate::refusal::Refusal;
use crate::render::Render;
use crate::shared::{Context, Shared};

pub(super) fn dbsize<'a>(_: Args<'a>, ops: &mut Ops<'a>) -> Result<Render<'a>, Refusal> {
    ops.push(Op::Count);
    Ok(Render::Plain)
}

pub(super) fn flush<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Result<Render<'a>, Refusal> {
    let option = args
        .get(1)
        .is_none_or(|option| is(option, "async") || is(option, "sync"));
    if args.len() > 2 || !option {
        return Err(Refusal::Syntax);
    }
    ops.push(Op::Flush);
    Ok(Render::Plain)
}

pub(super) fn time(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut writer = connection.writer();
    writer.array(2);
    writer.bulk_int(now.as_secs() as i64);
    writer.bulk_int(i64::from(now.subsec_micros()));
}

pub(super) fn info(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let text = crate::info::report(&context.shared, args.from(1));
    connection.writer().verbatim(b"txt", text.as_bytes());
}

/// Writes the lines of a `HELP`.
pub(super) fn help(container: &str, commands: &[Command], connection: &mut Connection) {
    let mut writer = connection.writer();
    writer.array(1 + 2 * commands.len());
    writer.status(&format!(
        "{container} <subcommand> [<arg> ...]. Subcommands are:"
    ));
    for command in commands {
        let word = &command.name[container.len() + 1..];
        writer.status(&word.to_ascii_uppercase());
        writer.status(&format!("    {}", command.summary));
    }
}

pub(super) fn config_help(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    help("CONFIG", table::CONFIG, connection);
}

/// Returns the parameters of `CONFIG GET`, under Redis's names, so that its clients and tools
/// understand the answer. Each value is the one that holds here; a parameter that does not exist
/// here has the value by which Redis says so.
fn parameters(shared: &Shared) -> Vec<(&'static str, String)> {
    let config = &shared.config;
    let limits = &config.limits;
    let yes = |flag| if flag { "yes" } else { "no" }.to_owned();
    let text = |text: &str| text.to_owned();
    let durable = config.data.is_some();
    let directory = config.data.as_ref().map(|dir| dir.display().to_string());
    let output = limits.output;
    vec![
        ("activedefrag", text("no")),
        ("appendfsync", text(if durable { "always" } else { "no" })),
        ("appendonly", yes(durable)),
        ("bind", config.listen.ip().to_string()),
        (
            "client-output-buffer-limit",
            format!("normal {output} 0 0 slave 0 0 0 pubsub 0 0 0"),
        ),
        ("client-query-buffer-limit", limits.query_buffer.to_string()),
        ("cluster-enabled", yes(config.cluster.is_some())),
        ("daemonize", text("no")),
        ("databases", text("1")),
        ("dir", directory.unwrap_or_default()),
        ("io-threads", config.threads.to_string()),
        ("io-threads-do-reads", text("yes")),
        ("latency-monitor-threshold", text("0")),
        ("latency-tracking", text("yes")),
        ("latency-tracking-info-percentiles", text("50 99 99.9")),
        ("logfile", String::new()),
        ("maxclients", limits.clients.to_string()),
        (
            "maxmemory",
            shared.memory.most.load(Ordering::Relaxed).to_string(),
        ),
        ("maxmemory-clients", limits.in_flight.to_string()),
        ("maxmemory-policy", text("noeviction")),
        ("notify-keyspace-events", String::new()),
        ("port", shared.port.to_string()),
        ("proto-max-bulk-len", limits.request.bulk.to_string()),
        ("protected-mode", yes(!config.insecure)),
        ("replica-read-only", text("yes")),
        ("requirepass", config.password.clone().unwrap_or_default()),
        ("save", String::new()),
        ("slave-read-only", text("yes")),
        ("slowlog-log-slower-than", text("-1")),
        ("slowlog-max-len", text("0")),
        ("tcp-backlog", BACKLOG.to_string()),
        (
            "tcp-keepalive",
            reactor::CLIENT_KEEP_ALIVE.as_secs().to_string(),
        ),
        (
            "timeout",
            limits.idle.map_or(0, |idle| idle.as_secs()).to_string(),
        ),
        ("tls-port", text("0")),
        ("unixsocket", String::new()),
    ]
}

pub(super) fn config_get(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let mut chosen = parameters(&context.shared);
    chosen.retain(|(name, _)| {
        args.from(2)
            .iter()
            .any(|pattern| glob::matches(pattern, name.as_bytes(), true))
    });
    let mut writer = connection.writer();
    writer.map(chosen.len());
    for (name, value) in chosen {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
}

pub(super) fn config_set(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let mut writer = connection.writer();
    if !args.len().is_multiple_of(2) {
        return writer.error("ERR syntax error");
    }
    let mut most = None;
    for at in (2..args.len()).step_by(2) {
        let (name, value) = (args.at(at), args.at(at + 1));
        let shown = || String::from_utf8_lossy(name).into_owned();
        if is(name, "maxmemory") {
            let size = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<Size>().ok());
            let Some(size) = size else {
                return writer.error(
                    "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument \
                     must be a memory value",
                );
            };
            most = Some(size.0);
        } else if parameters(&context.shared)
            .iter()
            .any(|(known, _)| is(name, known))
        {
            return writer.error(&format!(
                "ERR CONFIG SET failed (possibly related to argument '{}') - can't set immutable \
                 config",
                shown()
            ));
        } else {
            let text = format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                shown()
            );
            return writer.error(&text);
        }
    }
    if let Some(most) = most {
        context.shared.limit_memory(most);
    }
    writer.ok();
}

pub(super) fn config_resetstat(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let counters = &context.shared.counters;
    for counter in [
        &counters.connections,
        &counters.rejected,
        &counters.commands,
        &counters.reads,
        &counters.writes,
        &counters.bytes_in,
        &counters.bytes_out,
        &counters.errors,
        &counters.auth_failures,
        &counters.hits,
        &counters.misses,
    ] {
        counter.store(0, Ordering::Relaxed);
    }
    context.shared.statistics.reset();
    connection.writer().ok();
}
