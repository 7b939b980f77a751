//! The table `redis`.

use resp::Protocol;

use crate::error_reply::{fail, push_error};
use crate::failure::FunctionFailure;
use crate::lua::{Kind, LuaStack, NativeFunction};
use crate::number::{truncate, write_general};
use crate::protection::set_functions;
use crate::register_function::register_function;
use crate::reply_reader::push_reply;
use crate::script::sha1_hex;
use crate::script_context::{CalledCommand, ScriptLogLevel};
use crate::switch::{Resumption, Suspension};

/// The version of Redis whose scripts are interpreted.
const VERSION: (u32, u32, u32) = (7, 0, 15);

/// The functions for scripts and for functions of libraries.
const FUNCTIONS: [(&str, NativeFunction); 9] = [
    ("call", call),
    ("pcall", protected_call),
    ("error_reply", error_reply),
    ("status_reply", status_reply),
    ("sha1hex", sha1hex),
    ("log", log),
    ("setresp", set_resp),
    ("acl_check_cmd", acl_check),
    ("set_repl", set_replication),
];

/// The functions for scripts alone.
const SCRIPT_FUNCTIONS: [(&str, NativeFunction); 3] = [
    ("replicate_commands", replicate_commands),
    ("breakpoint", breakpoint),
    ("debug", debug),
];

const LEVELS: [(&str, f64); 4] = [
    ("LOG_DEBUG", 0.0),
    ("LOG_VERBOSE", 1.0),
    ("LOG_NOTICE", 2.0),
    ("LOG_WARNING", 3.0),
];

const REPLICATION: [(&str, f64); 5] = [
    ("REPL_NONE", 0.0),
    ("REPL_AOF", 1.0),
    ("REPL_SLAVE", 2.0),
    ("REPL_REPLICA", 2.0),
    ("REPL_ALL", 3.0),
];

/// Pushes the table of scripts.
pub(crate) fn push_for_scripts(stack: &mut LuaStack<'_>) {
    push_for_functions(stack);
    let table = stack.top();
    set_functions(stack, table, &SCRIPT_FUNCTIONS);
}

/// Pushes the table of functions of libraries.
pub(crate) fn push_for_functions(stack: &mut LuaStack<'_>) {
    stack.push_table(0, 32);
    let table = stack.top();
    set_functions(stack, table, &FUNCTIONS);
    set_constants(stack, table, &REPLICATION);
}

/// Pushes the table of the code of libraries, which cannot call commands.
pub(crate) fn push_for_loading(stack: &mut LuaStack<'_>) {
    stack.push_table(0, 16);
    let table = stack.top();
    let functions: [(&str, NativeFunction); 2] =
        [("log", log), ("register_function", register_function)];
    set_functions(stack, table, &functions);
    set_constants(stack, table, &[]);
}

/// Sets the version, the levels of the log, and other numbers.
fn set_constants(stack: &mut LuaStack<'_>, table: i32, others: &[(&str, f64)]) {
    for (name, number) in LEVELS.iter().chain(others) {
        stack.push_number(*number);
        stack.raw_set_field(table, name);
    }
    let (major, minor, patch) = VERSION;
    stack.push_bytes(format!("{major}.{minor}.{patch}").as_bytes());
    stack.raw_set_field(table, "REDIS_VERSION");
    stack.push_number(f64::from(major << 16 | minor << 8 | patch));
    stack.raw_set_field(table, "REDIS_VERSION_NUM");
}

/// `redis.call`
fn call(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    match execute(stack)? {
        true => Err(FunctionFailure::Value),
        false => Ok(1),
    }
}

/// `redis.pcall`
fn protected_call(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    execute(stack).map(|_| 1)
}

/// Executes the command in the arguments, and pushes its reply. Returns `true` if it is an error.
fn execute(stack: &mut LuaStack<'_>) -> Result<bool, FunctionFailure> {
    if let Err(text) = collect_command(stack) {
        push_error(stack, text.as_bytes());
        return Ok(true);
    }
    let context = stack.context();
    context.suspend(Suspension::Call)?;
    let reply = context.reply.take();
    stack.set_top(0);
    let is_error = push_reply(stack, &reply);
    context.reply.set(reply);
    Ok(is_error)
}

/// Makes the arguments the command that the host gets.
///
/// # Errors
/// They are no command, and the text says why.
fn collect_command(stack: &mut LuaStack<'_>) -> Result<(), &'static str> {
    let count = stack.top();
    if count == 0 {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let context = stack.context();
    let mut command = context.command.take();
    command.clear();
    let is_valid = (1..=count).all(|index| push_argument(stack, index, &mut command));
    context.command.set(command);
    if is_valid {
        Ok(())
    } else {
        Err("ERR Lua redis lib command arguments must be strings or integers")
    }
}

fn push_argument(stack: &LuaStack<'_>, index: i32, command: &mut CalledCommand) -> bool {
    match stack.kind(index) {
        Kind::String => {
            let bytes = stack.bytes(index).unwrap_or_default();
            command.push(|out| out.extend_from_slice(bytes));
        }
        Kind::Number => {
            let number = stack.number(index).unwrap_or_default();
            command.push(|out| write_general(out, number, 17));
        }
        _ => return false,
    }
    true
}

/// `redis.error_reply`
fn error_reply(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() != 1 || stack.kind(1) != Kind::String {
        push_error(stack, b"ERR wrong number or type of arguments");
        return Ok(1);
    }
    let text = stack.bytes(1).unwrap_or_default();
    // A text of one word is a message without a code.
    let text = match text.strip_prefix(b"-") {
        Some(rest) if rest.contains(&b' ') => rest.to_vec(),
        Some(rest) => [b"ERR ", rest].concat(),
        None if text.contains(&b' ') => text.to_vec(),
        None => [b"ERR ", text].concat(),
    };
    push_error(stack, &text);
    Ok(1)
}

/// `redis.status_reply`
fn status_reply(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() != 1 || stack.kind(1) != Kind::String {
        push_error(stack, b"ERR wrong number or type of arguments");
        return Ok(1);
    }
    stack.push_table(0, 1);
    stack.push_value(1);
    stack.raw_set_field(-2, "ok");
    Ok(1)
}

/// `redis.sha1hex`
fn sha1hex(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() != 1 {
        return Err(fail(stack, "ERR wrong number of arguments"));
    }
    stack.coerce_to_string(1);
    let digest = sha1_hex(stack.bytes(1).unwrap_or_default());
    stack.push_bytes(&digest);
    Ok(1)
}

/// `redis.log`
fn log(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() < 2 {
        return Err(fail(
            stack,
            "ERR redis.log() requires two arguments or more.",
        ));
    }
    let Some(level) = stack.number(1) else {
        return Err(fail(
            stack,
            "ERR First argument must be a number (log level).",
        ));
    };
    let level = match truncate(level) {
        0 => ScriptLogLevel::Debug,
        1 => ScriptLogLevel::Verbose,
        2 => ScriptLogLevel::Notice,
        3 => ScriptLogLevel::Warning,
        _ => return Err(fail(stack, "ERR Invalid debug level.")),
    };
    let mut line = Vec::new();
    for index in 2..=stack.top() {
        if stack.coerce_to_string(index) {
            if index > 2 {
                line.push(b' ');
            }
            line.extend_from_slice(stack.bytes(index).unwrap_or_default());
        }
    }
    stack.context().log(level, line)?;
    Ok(0)
}

/// `redis.setresp`
fn set_resp(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() != 1 {
        return Err(fail(stack, "ERR redis.setresp() requires one argument."));
    }
    let protocol = match truncate(stack.number(1).unwrap_or_default()) {
        2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        _ => return Err(fail(stack, "ERR RESP version must be 2 or 3.")),
    };
    stack.context().protocol.set(protocol);
    Ok(0)
}

/// `redis.acl_check_cmd`
fn acl_check(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if let Err(text) = collect_command(stack) {
        return Err(fail(stack, text));
    }
    match stack.context().suspend(Suspension::AclCheck)? {
        Resumption::Allowed(Some(allowed)) => {
            stack.push_boolean(allowed);
            Ok(1)
        }
        _ => Err(fail(
            stack,
            "ERR Invalid command passed to redis.acl_check_cmd()",
        )),
    }
}

/// `redis.replicate_commands`, which has no effect: effects are replicated always.
fn replicate_commands(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.push_boolean(true);
    Ok(1)
}

/// `redis.set_repl`, which has no effect: all effects are replicated.
fn set_replication(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() != 1 {
        return Err(fail(stack, "ERR redis.set_repl() requires two arguments."));
    }
    if !(0..=3).contains(&truncate(stack.number(1).unwrap_or_default())) {
        let text =
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(fail(stack, text));
    }
    Ok(0)
}

/// `redis.breakpoint`: there is no debugger.
fn breakpoint(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.push_boolean(false);
    Ok(1)
}

/// `redis.debug`: there is no debugger.
fn debug(_: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    Ok(0)
}
