//! A host of scripts that answers their commands.

use std::sync::Arc;
use std::time::Duration;

use kumiki_scripts::{Answer, Interpreter, Options, Script, ScriptCall, ScriptOutcome, Step};
use resp::{Args, Protocol};

/// Creates an interpreter with a heap of so many bytes.
pub(crate) fn interpreter(memory: usize) -> Interpreter {
    let slice = Duration::from_millis(1);
    Interpreter::new(Options { memory, slice }).unwrap()
}

/// Returns the reply to a command.
fn reply(arguments: Args<'_>, protocol: Protocol) -> Vec<u8> {
    let resp3 = protocol == Protocol::Resp3;
    let text = match (arguments.at(0), resp3) {
        (b"echo", _) => {
            let mut out = Vec::new();
            resp::Writer::new(&mut out, protocol).bulk(arguments.at(1));
            return out;
        }
        (b"count", _) => return format!(":{}\r\n", arguments.len()).into_bytes(),
        (b"reply", _) => return arguments.at(1).to_vec(),
        (b"set", _) => "+OK\r\n",
        (b"ping", _) => "+PONG\r\n",
        (b"get", false) => "$-1\r\n",
        (b"get", true) => "_\r\n",
        _ => "-ERR Unknown Redis command called from script\r\n",
    };
    text.as_bytes().to_vec()
}

/// Continues a script to its end.
pub(crate) fn finish(interpreter: &mut Interpreter, mut step: Step) -> ScriptOutcome {
    loop {
        step = match step {
            Step::Done(outcome) => return outcome,
            Step::Slice => interpreter.resume(Answer::Continue),
            Step::AclCheck => {
                let allowed = match interpreter.arguments().at(0) {
                    b"get" => Some(true),
                    b"set" => Some(false),
                    _ => None,
                };
                interpreter.resume(Answer::Allowed(allowed))
            }
            Step::Call { protocol } => {
                let reply = reply(interpreter.arguments(), protocol);
                interpreter.resume(Answer::Reply(&reply))
            }
        }
    }
}

/// Starts a script with the keys `k1` and `k2` and the argument `a1`.
pub(crate) fn start(interpreter: &mut Interpreter, body: &[u8], protocol: Protocol) -> Step {
    let script = Arc::new(Script::new(body).unwrap());
    interpreter.start(ScriptCall {
        script: &script,
        keys: &[b"k1", b"k2"],
        arguments: &[b"a1"],
        protocol,
    })
}

/// Runs a script, and returns its outcome.
pub(crate) fn outcome(
    interpreter: &mut Interpreter,
    body: &str,
    protocol: Protocol,
) -> ScriptOutcome {
    let step = start(interpreter, body.as_bytes(), protocol);
    finish(interpreter, step)
}

/// Runs a script, and returns its reply.
pub(crate) fn run_in(interpreter: &mut Interpreter, body: &str) -> String {
    let reply = outcome(interpreter, body, Protocol::Resp2).reply;
    String::from_utf8_lossy(&reply).into_owned()
}

/// Runs a script in a new interpreter, and returns its reply.
pub(crate) fn run(body: &str) -> String {
    run_in(&mut interpreter(64 << 20), body)
}

/// As [`run`], for a client that uses RESP3.
pub(crate) fn run3(body: &str) -> String {
    let reply = outcome(&mut interpreter(64 << 20), body, Protocol::Resp3).reply;
    String::from_utf8_lossy(&reply).into_owned()
}

/// Returns the error of a script without its mark, and without ` script: SHA1`.
pub(crate) fn error(body: &str) -> String {
    let reply = run(body);
    let text = reply
        .strip_prefix('-')
        .unwrap_or_else(|| panic!("an error: {reply}"));
    let sha1 = Script::new(body.as_bytes()).unwrap().sha1().to_owned();
    text.trim_end().replace(&format!(" script: {sha1}"), "")
}

/// Asserts the replies of scripts.
pub(crate) fn check(table: &[(&str, &str)]) {
    for (body, expected) in table {
        assert_eq!(run(body), *expected, "{body}");
    }
}

/// Asserts the errors of scripts.
pub(crate) fn check_errors(table: &[(&str, &str)]) {
    for (body, expected) in table {
        assert_eq!(error(body), *expected, "{body}");
    }
}
