//! `LATENCY`: events that took long, and how long commands take.

mod report;

use resp::Args;

use super::help::help;
use crate::command::CommandKind::{Container, Local};
use crate::command::{CommandDefinition, commands};
use crate::refusal::Refusal;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;
use crate::unix_time::unix_ms;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "latency" -2 "" NONE("") "" ""
        "2.8.13" "Depends on subcommand.",
        Container, LATENCY, "About what takes long.";
};

const LATENCY: &[CommandDefinition] = commands! { "server";
    "latency|doctor" 2 "admin noscript loading stale" NONE("") "" "nondeterministic_output request_policy:all_nodes response_policy:special"
        "2.8.13" "O(1)",
        Local(doctor), "A report on events that took long.";
    "latency|graph" 3 "admin noscript loading stale" NONE("") "" "nondeterministic_output request_policy:all_nodes response_policy:special"
        "2.8.13" "O(1)",
        Local(graph), "The samples of an event as a graph.";
    "latency|histogram" -2 "admin noscript loading stale" NONE("") "" "nondeterministic_output request_policy:all_nodes response_policy:special"
        "7.0.0" "O(N) where N is the number of commands with latency information being retrieved.",
        Local(histogram), "How long commands take: calls up to each time.";
    "latency|history" 3 "admin noscript loading stale" NONE("") "" "nondeterministic_output request_policy:all_nodes response_policy:special"
        "2.8.13" "O(1)",
        Local(history), "The samples of an event.";
    "latency|latest" 2 "admin noscript loading stale" NONE("") "" "nondeterministic_output request_policy:all_nodes response_policy:special"
        "2.8.13" "O(1)",
        Local(latest), "The last sample and the longest one of each event.";
    "latency|reset" -2 "admin noscript loading stale" NONE("") "" "request_policy:all_nodes response_policy:all_succeeded"
        "2.8.13" "O(1)",
        Local(reset), "Forgets events; answers how many there were.";
    "latency|help" 2 "loading stale" NONE("") "" ""
        "2.8.13" "O(1)",
        Local(latency_help), "What can be asked.";
};

fn latency_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("LATENCY", LATENCY, session);
}

fn latest(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let events = context.shared.latency.events();
    let mut writer = session.writer();
    writer.array(events.len());
    for (name, history) in events {
        let last = history.last();
        writer.array(4);
        writer.bulk(name.as_bytes());
        writer.int(last.map_or(0, |last| last.at as i64));
        writer.int(last.map_or(0, |last| last.ms as i64));
        writer.int(history.longest_ms as i64);
    }
}

fn history(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let history = context.shared.latency.history(args.at(2));
    let samples = history.unwrap_or_default().samples;
    let mut writer = session.writer();
    writer.array(samples.len());
    for sample in samples {
        writer.array(2);
        writer.int(sample.at as i64);
        writer.int(sample.ms as i64);
    }
}

fn reset(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let chosen = args.from(2);
    let is_chosen =
        |name: &str| chosen.is_empty() || chosen.iter().any(|event| event == name.as_bytes());
    let count = context.shared.latency.forget(is_chosen);
    session.writer().int(count as i64);
}

fn graph(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let event = args.at(2);
    let Some(history) = context.shared.latency.history(event) else {
        let text = "ERR No samples available for event";
        let refusal = Refusal::with_argument(text, event);
        return refusal.write("latency|graph", &mut session.writer());
    };
    let now = unix_ms(std::time::SystemTime::now()) / 1000;
    let name = String::from_utf8_lossy(event);
    let text = report::graph(&name, &history, now);
    session.writer().verbatim(b"txt", text.as_bytes());
}

fn doctor(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let monitor = &context.shared.latency;
    let text = report::diagnosis(
        monitor.threshold_ms(),
        &monitor.events(),
        context.shared.slow_log.slower_than(),
    );
    session.writer().verbatim(b"txt", text.as_bytes());
}

fn histogram(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let names = args.from(2);
    let mut commands = context.shared.statistics.histograms();
    commands.retain(|command| {
        let is_named = |name: &[u8]| {
            let words = command.name.as_bytes().split_at_checked(name.len());
            words.is_some_and(|(start, rest)| {
                start.eq_ignore_ascii_case(name) && (rest.is_empty() || rest[0] == b'|')
            })
        };
        names.is_empty() || names.iter().any(is_named)
    });
    let mut writer = session.writer();
    writer.map(commands.len());
    for command in commands {
        writer.bulk(command.name.as_bytes());
        writer.map(2);
        writer.bulk(b"calls");
        writer.int(command.calls as i64);
        writer.bulk(b"histogram_usec");
        writer.map(command.up_to.len());
        for (us, calls) in command.up_to {
            writer.int(us as i64);
            writer.int(calls as i64);
        }
    }
}
