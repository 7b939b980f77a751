//! `CONFIG`: the configuration, under Redis's names.

use std::sync::atomic::Ordering;

use base::size::Size;
use resp::Args;

use super::arguments::is;
use super::help::help;
use crate::command::CommandKind::{Container, Local};
use crate::command::{CommandDefinition, commands};
use crate::glob;
use crate::limits::{BACKLOG, KEEP_ALIVE};
use crate::runtime_context::RuntimeContext;
use crate::server_state::ServerState;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "config" -2 "" NONE("") "" ""
        "2.0.0" "Depends on subcommand.",
        Container, CONFIG, "About the configuration.";
};

const CONFIG: &[CommandDefinition] = commands! { "server";
    "config|get" -3 "admin noscript loading stale" NONE("") "" ""
        "2.0.0" "O(N) where N is the number of parameters.",
        Local(config_get), "Values of the configuration.";
    "config|set" -4 "admin noscript loading stale" NONE("") "" "request_policy:all_nodes response_policy:all_succeeded"
        "2.0.0" "O(N) where N is the number of parameters.",
        Local(config_set), "Changes the configuration.";
    "config|resetstat" 2 "admin noscript loading stale" NONE("") "" ""
        "2.0.0" "O(1)",
        Local(config_resetstat), "Starts counting anew.";
    "config|help" 2 "loading stale" NONE("") "" ""
        "5.0.0" "O(1)",
        Local(config_help), "What can be asked.";
};

fn config_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("CONFIG", CONFIG, session);
}

/// Returns the parameters of `CONFIG GET`, under Redis's names, so that its clients and tools
/// understand the answer. Each value is the one that holds here; a parameter that does not exist
/// here has the value by which Redis says so.
fn parameters(shared: &ServerState) -> Vec<(&'static str, String)> {
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
            format!(
                "normal {output} 0 0 slave 0 0 0 pubsub {} 0 0",
                limits.subscriber_output
            ),
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
            shared.memory.limit.load(Ordering::Relaxed).to_string(),
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
        ("tcp-keepalive", KEEP_ALIVE.as_secs().to_string()),
        (
            "timeout",
            limits.idle.map_or(0, |idle| idle.as_secs()).to_string(),
        ),
        ("tls-port", shared.tls_port.to_string()),
        ("unixsocket", String::new()),
    ]
}

fn config_get(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let mut chosen = parameters(&context.shared);
    chosen.retain(|(name, _)| {
        args.from(2)
            .iter()
            .any(|pattern| glob::matches(pattern, name.as_bytes(), true))
    });
    let mut writer = session.writer();
    writer.map(chosen.len());
    for (name, value) in chosen {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
}

fn config_set(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let mut writer = session.writer();
    if !args.len().is_multiple_of(2) {
        return writer.error("ERR syntax error");
    }
    let mut limit = None;
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
            limit = Some(size.0);
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
    if let Some(limit) = limit {
        context.shared.limit_memory(limit);
    }
    writer.ok();
}

fn config_resetstat(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let counters = &context.shared.counters;
    for counter in [
        &counters.connections,
        &counters.rejected,
        &counters.commands,
        &counters.reads,
        &counters.writes,
        &counters.bytes_in,
        &counters.bytes_out,
        &counters.messages,
        &counters.errors,
        &counters.auth_failures,
        &counters.hits,
        &counters.misses,
    ] {
        counter.store(0, Ordering::Relaxed);
    }
    context.shared.statistics.reset();
    session.writer().ok();
}
