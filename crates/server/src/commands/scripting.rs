//! `EVAL`, `SCRIPT` and their kin. How a script runs is in [`crate::long_transaction`].

use std::sync::Arc;

use resp::Args;
use scripts::{Options, Script};

use super::arguments::is;
use super::help::help;
use super::script_kill::kill;
use crate::command::CommandKind::{Container, Local, Script as Runs};
use crate::command::{CommandDefinition, ScriptCommand, ScriptSource, commands};
use crate::refusal::Refusal;
use crate::runtime_context::RuntimeContext;
use crate::script_registry::{RegistryFull, RunningKind};
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "scripting";
    "eval" -3 "noscript stale skip_monitor no_mandatory_keys movablekeys may_replicate" COUNTED("RW access update") "scripting" ""
        "2.6.0" "Depends on the script that is executed.",
        Runs(EVAL), "Executes a script in Lua, as one transaction.";
    "evalsha" -3 "noscript stale skip_monitor no_mandatory_keys movablekeys may_replicate" COUNTED("RW access update") "scripting" ""
        "2.6.0" "Depends on the script that is executed.",
        Runs(EVALSHA), "Executes a script that the server has, given its checksum.";
    "eval_ro" -3 "readonly noscript stale skip_monitor no_mandatory_keys movablekeys" COUNTED("RO access") "scripting" ""
        "7.0.0" "Depends on the script that is executed.",
        Runs(EVAL_RO), "Executes a script in Lua that only reads.";
    "evalsha_ro" -3 "readonly noscript stale skip_monitor no_mandatory_keys movablekeys" COUNTED("RO access") "scripting" ""
        "7.0.0" "Depends on the script that is executed.",
        Runs(EVALSHA_RO), "Executes a script that the server has and that only reads, given its checksum.";
    "script" -2 "" NONE("") "" ""
        "2.6.0" "Depends on subcommand.",
        Container, SCRIPT, "About the scripts that the server has.";
};

const SCRIPT: &[CommandDefinition] = commands! { "scripting";
    "script|load" 3 "noscript stale" NONE("") "scripting" "request_policy:all_nodes response_policy:all_succeeded"
        "2.6.0" "O(N) with N being the length in bytes of the script body.",
        Local(script_load), "Keeps a script; answers its checksum.";
    "script|exists" -3 "noscript" NONE("") "scripting" "request_policy:all_shards response_policy:agg_logical_and"
        "2.6.0" "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
        Local(script_exists), "Which of the scripts with these checksums the server has.";
    "script|flush" -2 "noscript" NONE("") "scripting" "request_policy:all_nodes response_policy:all_succeeded"
        "2.6.0" "O(N) with N being the number of scripts in cache",
        Local(script_flush), "Forgets all scripts.";
    "script|kill" 2 "noscript allow_busy" NONE("") "scripting" "request_policy:all_shards response_policy:one_succeeded"
        "2.6.0" "O(1)",
        Local(script_kill), "Ends the scripts that run, which have no effect then.";
    "script|help" 2 "loading stale" NONE("") "scripting" ""
        "5.0.0" "O(1)",
        Local(script_help), "What can be asked.";
};

const EVAL: ScriptCommand = ScriptCommand {
    source: ScriptSource::Body,
    reads_only: false,
};
const EVALSHA: ScriptCommand = ScriptCommand {
    source: ScriptSource::Checksum,
    reads_only: false,
};
const EVAL_RO: ScriptCommand = ScriptCommand {
    source: ScriptSource::Body,
    reads_only: true,
};
const EVALSHA_RO: ScriptCommand = ScriptCommand {
    source: ScriptSource::Checksum,
    reads_only: true,
};

fn script_load(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let mut writer = session.writer();
    match load(context, args.at(2)) {
        Ok(script) => writer.bulk(script.sha1().as_bytes()),
        Err(text) => writer.error_bytes(&text),
    }
}

/// Compiles and keeps a script.
///
/// # Errors
/// Returns the text of the error.
fn load(context: &RuntimeContext, body: &[u8]) -> Result<Arc<Script>, Vec<u8>> {
    let script = Arc::new(Script::new(body)?);
    let options = Options {
        memory: context.shared.config.limits.script_memory,
        ..Options::default()
    };
    let lent = context.interpreters.take(options);
    let mut interpreter =
        lent.map_err(|error| format!("ERR the script cannot be compiled: {error}"))?;
    interpreter.compile(&script)?;
    let kept = context.shared.scripts.load(&script);
    kept.map_err(|RegistryFull| "OOM the scripts of SCRIPT LOAD take too much memory")?;
    Ok(script)
}

fn script_exists(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let mut writer = session.writer();
    writer.array(args.len() - 2);
    for sha1 in args.from(2).iter() {
        let found = context.shared.scripts.find(sha1);
        writer.int(i64::from(found.is_some()));
    }
}

fn script_flush(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let is_known = |mode| is(mode, "async") || is(mode, "sync");
    if args.len() > 3 || !args.get(2).is_none_or(is_known) {
        let text = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
        return Refusal::Text(text).write("script|flush", &mut session.writer());
    }
    context.shared.scripts.clear();
    session.writer().ok();
}

fn script_kill(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    kill(context, session, RunningKind::Script);
}

fn script_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("SCRIPT", SCRIPT, session);
}
