//! `CONFIG`: the configuration, under Redis's names.

mod parameters;

use std::sync::atomic::Ordering;

use resp::Args;

use super::arguments::is;
use super::help::help;
use crate::command::CommandKind::{Container, Local};
use crate::command::{CommandDefinition, commands};
use crate::refusal::{Refusal, shown};
use crate::runtime_context::RuntimeContext;
use crate::server_state::ServerState;
use crate::session::ClientSession;
use base::glob;
use parameters::{CheckedChange, ConfigParameter, PARAMETERS, ParameterChange};

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
    "config|rewrite" 2 "admin noscript loading stale" NONE("") "" ""
        "2.8.0" "O(1)",
        Local(config_rewrite), "Writes what was changed to the configuration file.";
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

fn config_get(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let is_chosen = |parameter: &&ConfigParameter| {
        let mut patterns = args.from(2).iter();
        patterns.any(|pattern| glob::matches(pattern, parameter.name.as_bytes(), true))
    };
    let chosen: Vec<_> = PARAMETERS.iter().filter(is_chosen).collect();
    let mut writer = session.writer();
    writer.map(chosen.len());
    for parameter in chosen {
        writer.bulk(parameter.name.as_bytes());
        writer.bulk((parameter.show)(&context.shared).as_bytes());
    }
}

fn config_set(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let state = &context.shared;
    match checked_changes(state, args.from(2)) {
        Ok(changes) => {
            for (name, change) in changes {
                change.apply(state);
                state.settings.note_change(name);
            }
            session.writer().ok();
        }
        Err(refusal) => refusal.write("config|set", &mut session.writer()),
    }
}

fn config_rewrite(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let state = &context.shared;
    let mut writer = session.writer();
    let Some(file) = &state.config.file else {
        return writer.error("ERR The server is running without a config file");
    };
    let changed = PARAMETERS.iter().filter_map(|parameter| {
        let option = parameter.option?;
        let is_changed = state.settings.is_changed(parameter.name);
        is_changed.then(|| (option, (parameter.show)(state)))
    });
    match file.change(&changed.collect::<Vec<_>>()) {
        Ok(()) => writer.ok(),
        Err(reason) => {
            tracing::error!(%reason, "CONFIG REWRITE cannot write the configuration file");
            writer.error(&format!("ERR Rewriting config file: {reason}"));
        }
    }
}

/// Checks names and values of `CONFIG SET`, first all names. Nothing changes unless all of them can be set.
fn checked_changes(
    state: &ServerState,
    pairs: Args<'_>,
) -> Result<Vec<(&'static str, CheckedChange)>, Refusal> {
    if !pairs.len().is_multiple_of(2) {
        return Err(Refusal::Syntax);
    }
    let mut named: Vec<(&'static ConfigParameter, &[u8])> = Vec::new();
    for at in (0..pairs.len()).step_by(2) {
        let (name, value) = (pairs.at(at), pairs.at(at + 1));
        let mut parameters = PARAMETERS.iter();
        let Some(parameter) = parameters.find(|known| is(name, known.name)) else {
            let text = "ERR Unknown option or number of arguments for CONFIG SET -";
            return Err(Refusal::with_argument(text, name));
        };
        if matches!(parameter.change, ParameterChange::Never) {
            return Err(failed(name, "can't set immutable config"));
        }
        if named.iter().any(|(known, _)| known.name == parameter.name) {
            return Err(failed(name, "duplicate parameter"));
        }
        named.push((parameter, value));
    }
    let checked = named.into_iter().map(|(parameter, value)| {
        let checked = parameter.change.check(state, value);
        let checked = checked.map_err(|reason| failed(parameter.name.as_bytes(), &reason))?;
        Ok((parameter.name, checked))
    });
    checked.collect()
}

/// Returns the refusal of a parameter.
fn failed(name: &[u8], reason: &str) -> Refusal {
    let text = [
        b"ERR CONFIG SET failed (possibly related to argument '",
        shown(name),
        b"') - ",
        reason.as_bytes(),
    ];
    Refusal::Owned(text.concat())
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
