//! `FUNCTION` and its kin: libraries of functions. How a function runs is in [`crate::long_transaction`], how
//! libraries are stored in [`crate::function_libraries`].
//!
//! The nodes of a cluster have the libraries in common, and clients that take them for Redis's nodes send a command
//! to all of them. So in a cluster a command that would find its own work done does not fail.

use std::sync::Arc;

use resp::{Args, Writer};
use scripts::{Library, LibraryFunction, Options};
use values::dump::{LibraryPayloadError, decode_libraries, encode_libraries};

use super::arguments::is;
use super::help::help;
use super::script_kill::kill as kill_running;
use crate::command::CommandKind::{Container, Libraries, Local, Script};
use crate::command::{CommandDefinition, ScriptCommand, ScriptSource, commands};
use crate::function_libraries::{FunctionExists, FunctionLibraries};
use crate::refusal::{self, Refusal};
use crate::runtime_context::RuntimeContext;
use crate::script_registry::RunningKind;
use crate::session::ClientSession;
use base::glob;

/// The most bytes of the sources of all libraries.
const MOST_BYTES: usize = 64 << 20;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "scripting";
    "fcall" -3 "noscript stale skip_monitor no_mandatory_keys movablekeys may_replicate" COUNTED("RW access update") "scripting" ""
        "7.0.0" "Depends on the function that is executed.",
        Script(FCALL), "Calls a function of a library, as one transaction.";
    "fcall_ro" -3 "readonly noscript stale skip_monitor no_mandatory_keys movablekeys" COUNTED("RO access") "scripting" ""
        "7.0.0" "Depends on the function that is executed.",
        Script(FCALL_RO), "Calls a function of a library that only reads.";
    "function" -2 "" NONE("") "" ""
        "7.0.0" "Depends on subcommand.",
        Container, FUNCTION, "About libraries of functions, which the nodes of a cluster have in common.";
};

const FUNCTION: &[CommandDefinition] = commands! { "scripting";
    "function|load" -3 "write denyoom noscript" NONE("") "scripting" "request_policy:all_shards response_policy:all_succeeded"
        "7.0.0" "O(1) (considering compilation time is redundant)",
        Libraries(load), "Adds a library, or replaces one; answers its name.";
    "function|list" -2 "noscript" NONE("") "scripting" "nondeterministic_output_order"
        "7.0.0" "O(N) where N is the number of functions",
        Libraries(list), "The libraries and their functions.";
    "function|dump" 2 "noscript" NONE("") "scripting" ""
        "7.0.0" "O(N) where N is the number of functions",
        Libraries(dump), "All libraries, for RESTORE.";
    "function|restore" -3 "write denyoom noscript" NONE("") "scripting" "request_policy:all_shards response_policy:all_succeeded"
        "7.0.0" "O(N) where N is the number of functions on the payload",
        Libraries(restore), "Adds the libraries that DUMP has answered.";
    "function|delete" 3 "write noscript" NONE("") "scripting" "request_policy:all_shards response_policy:all_succeeded"
        "7.0.0" "O(1)",
        Libraries(delete), "Deletes a library.";
    "function|flush" -2 "write noscript" NONE("") "scripting" "request_policy:all_shards response_policy:all_succeeded"
        "7.0.0" "O(N) where N is the number of functions deleted",
        Libraries(flush), "Deletes all libraries.";
    "function|stats" 2 "noscript allow_busy" NONE("") "scripting" "nondeterministic_output request_policy:all_shards response_policy:special"
        "7.0.0" "O(1)",
        Libraries(stats), "The function that runs for long, and the number of libraries and functions.";
    "function|kill" 2 "noscript allow_busy" NONE("") "scripting" "request_policy:all_shards response_policy:one_succeeded"
        "7.0.0" "O(1)",
        Local(kill), "Ends the functions that run, which have no effect then.";
    "function|help" 2 "loading stale" NONE("") "scripting" ""
        "7.0.0" "O(1)",
        Local(function_help), "What can be asked.";
};

const FCALL: ScriptCommand = ScriptCommand {
    source: ScriptSource::Function,
    reads_only: false,
};
const FCALL_RO: ScriptCommand = ScriptCommand {
    source: ScriptSource::Function,
    reads_only: true,
};

fn load(
    context: &RuntimeContext,
    args: Args<'_>,
    libraries: &mut Arc<FunctionLibraries>,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let last = args.len() - 1;
    let mut replaces = false;
    for option in (2..last).map(|at| args.at(at)) {
        if !is(option, "replace") {
            let text = [b"ERR Unknown option given: ", refusal::shown(option)];
            return Err(Refusal::Owned(text.concat()));
        }
        replaces = true;
    }
    let library = Library::parse(args.at(last)).map_err(Refusal::Owned)?;
    let name = library.name().to_owned();
    let is_there = libraries.has(&name);
    if is_there && !replaces && !is_done(context, libraries, &library) {
        let text = format!("ERR Library '{name}' already exists");
        return Err(Refusal::Owned(text.into()));
    }
    if !is_there || replaces {
        let library = run(context, library)?;
        add(Arc::make_mut(libraries), library)?;
    }
    writer.bulk(name.as_bytes());
    Ok(())
}

/// Returns `true` if another node may have added a library for the same client.
fn is_done(context: &RuntimeContext, libraries: &FunctionLibraries, library: &Library) -> bool {
    let is_same =
        |own: &Arc<Library>| own.name() == library.name() && own.source() == library.source();
    context.shared.routes.is_some() && libraries.iter().any(is_same)
}

/// Runs the code of a library, and returns the library with the functions that it registers.
fn run(context: &RuntimeContext, library: Library) -> Result<Library, Refusal> {
    let options = Options {
        memory: context.shared.config.limits.script_memory,
        ..Options::default()
    };
    let lent = context.interpreters.take(options);
    let mut interpreter = lent.map_err(|error| {
        let text = format!("ERR the library cannot be loaded: {error}");
        Refusal::Owned(text.into())
    })?;
    interpreter.load_library(library).map_err(Refusal::Owned)
}

fn add(libraries: &mut FunctionLibraries, library: Library) -> Result<(), Refusal> {
    libraries.add(library).map_err(|FunctionExists(name)| {
        let text = format!("ERR Function {name} already exists");
        Refusal::Owned(text.into())
    })?;
    if libraries.bytes() > MOST_BYTES {
        let text = "OOM the libraries of functions take too much memory";
        return Err(Refusal::Text(text));
    }
    Ok(())
}

fn list(
    _: &RuntimeContext,
    args: Args<'_>,
    libraries: &mut Arc<FunctionLibraries>,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let (mut pattern, mut with_code) = (None, false);
    let mut rest = args.from(2).iter();
    while let Some(option) = rest.next() {
        if is(option, "withcode") && !with_code {
            with_code = true;
        } else if is(option, "libraryname") && pattern.is_none() {
            let missing = Refusal::Text("ERR library name argument was not given");
            pattern = Some(rest.next().ok_or(missing)?);
        } else {
            let text = [b"ERR Unknown argument ", refusal::shown(option)];
            return Err(Refusal::Owned(text.concat()));
        }
    }
    let is_listed = |library: &&Arc<Library>| {
        let name = library.name().as_bytes();
        pattern.is_none_or(|pattern| glob::matches(pattern, name, true))
    };
    let listed: Vec<_> = libraries.iter().filter(is_listed).collect();
    writer.array(listed.len());
    for library in listed {
        write_library(library, with_code, writer);
    }
    Ok(())
}

fn write_library(library: &Library, with_code: bool, writer: &mut Writer<'_>) {
    writer.map(3 + usize::from(with_code));
    writer.bulk(b"library_name");
    writer.bulk(library.name().as_bytes());
    writer.bulk(b"engine");
    writer.bulk(library.engine().as_bytes());
    writer.bulk(b"functions");
    writer.array(library.functions().len());
    for function in library.functions() {
        write_function(function, writer);
    }
    if with_code {
        writer.bulk(b"library_code");
        writer.bulk(library.source());
    }
}

fn write_function(function: &LibraryFunction, writer: &mut Writer<'_>) {
    writer.map(3);
    writer.bulk(b"name");
    writer.bulk(function.name.as_bytes());
    writer.bulk(b"description");
    match &function.description {
        Some(text) => writer.bulk(text),
        None => writer.null(),
    }
    writer.bulk(b"flags");
    let flags: Vec<_> = function.flags.names().collect();
    writer.set(flags.len());
    for flag in flags {
        writer.status(flag);
    }
}

fn dump(
    _: &RuntimeContext,
    _: Args<'_>,
    libraries: &mut Arc<FunctionLibraries>,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let sources = libraries.iter().map(|library| library.source());
    writer.bulk(&encode_libraries(sources));
    Ok(())
}

/// What `RESTORE` does with the libraries that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestorePolicy {
    Append,
    Replace,
    Flush,
}

fn restore(
    context: &RuntimeContext,
    args: Args<'_>,
    libraries: &mut Arc<FunctionLibraries>,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    if args.len() > 4 {
        refusal::write_subcommand_syntax("FUNCTION", args, writer);
        return Ok(());
    }
    let policy = match args.get(3) {
        None => RestorePolicy::Append,
        Some(word) if is(word, "append") => RestorePolicy::Append,
        Some(word) if is(word, "replace") => RestorePolicy::Replace,
        Some(word) if is(word, "flush") => RestorePolicy::Flush,
        Some(_) => {
            return Err(Refusal::Text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let sources = decode_libraries(args.at(2), context.shared.config.limits.request.bulk);
    let sources = sources.map_err(|error| {
        Refusal::Text(match error {
            LibraryPayloadError::Footer => "ERR DUMP payload version or checksum are wrong",
            LibraryPayloadError::OtherType => "ERR given type is not a function",
            LibraryPayloadError::Early => "ERR Failed loading library name",
            LibraryPayloadError::Malformed => "ERR Failed loading library payload",
        })
    })?;
    let restored = run_all(context, sources)?;
    let own = Arc::make_mut(libraries);
    if policy == RestorePolicy::Flush {
        *own = FunctionLibraries::default();
    }
    let is_new = |library: &&Arc<Library>| !own.has(library.name());
    let fits = |library: &&Arc<Library>| is_new(library) || is_done(context, own, library);
    if policy == RestorePolicy::Append
        && let Some(library) = restored.iter().find(|library| !fits(library))
    {
        let text = format!("ERR Library {} already exists", library.name());
        return Err(Refusal::Owned(text.into()));
    }
    for library in restored.iter() {
        own.remove(library.name());
    }
    for library in restored.iter() {
        add(own, Library::clone(library))?;
    }
    writer.ok();
    Ok(())
}

/// Runs the code of all libraries of a payload. They must not collide with each other.
fn run_all(context: &RuntimeContext, sources: Vec<Vec<u8>>) -> Result<FunctionLibraries, Refusal> {
    let mut all = FunctionLibraries::default();
    for source in sources {
        let library = Library::parse(&source).map_err(Refusal::Owned)?;
        if all.has(library.name()) {
            let text = format!("ERR Library '{}' already exists", library.name());
            return Err(Refusal::Owned(text.into()));
        }
        add(&mut all, run(context, library)?)?;
    }
    Ok(all)
}

fn delete(
    context: &RuntimeContext,
    args: Args<'_>,
    libraries: &mut Arc<FunctionLibraries>,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let name = std::str::from_utf8(args.at(2)).ok();
    let found = name.filter(|name| libraries.has(name));
    match found {
        Some(name) => {
            Arc::make_mut(libraries).remove(name);
        }
        None if context.shared.routes.is_none() => {
            return Err(Refusal::Text("ERR Library not found"));
        }
        None => {}
    }
    writer.ok();
    Ok(())
}

fn flush(
    _: &RuntimeContext,
    args: Args<'_>,
    libraries: &mut Arc<FunctionLibraries>,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    if args.len() > 3 {
        refusal::write_subcommand_syntax("FUNCTION", args, writer);
        return Ok(());
    }
    let is_known = |mode| is(mode, "async") || is(mode, "sync");
    if !args.get(2).is_none_or(is_known) {
        let text = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option";
        return Err(Refusal::Text(text));
    }
    *libraries = Arc::default();
    writer.ok();
    Ok(())
}

fn stats(
    context: &RuntimeContext,
    _: Args<'_>,
    libraries: &mut Arc<FunctionLibraries>,
    writer: &mut Writer<'_>,
) -> Result<(), Refusal> {
    writer.map(2);
    writer.bulk(b"running_script");
    match context.shared.scripts.running_function() {
        Some(function) => {
            let own = &function.description;
            writer.map(3);
            writer.bulk(b"name");
            writer.bulk(own.name.as_bytes());
            writer.bulk(b"command");
            writer.array(own.command.len());
            own.command.iter().for_each(|arg| writer.bulk(arg));
            writer.bulk(b"duration_ms");
            let duration = context.now.saturating_sub(own.began);
            writer.int(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX));
        }
        None => writer.null(),
    }
    writer.bulk(b"engines");
    writer.map(1);
    writer.bulk(b"LUA");
    writer.map(2);
    writer.bulk(b"libraries_count");
    writer.int(libraries.iter().len() as i64);
    writer.bulk(b"functions_count");
    writer.int(libraries.functions() as i64);
    Ok(())
}

fn kill(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    kill_running(context, session, RunningKind::Function);
}

fn function_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("FUNCTION", FUNCTION, session);
}
