//! What a host and an interpreter give each other.

use std::sync::Arc;
use std::time::Duration;

use resp::Protocol;

use crate::library::Library;
use crate::script::Script;
use crate::script_context::ScriptLogLevel;

/// The limits of an interpreter.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most bytes of the Lua heap; 1 GiB at most.
    pub memory: usize,
    /// The time after which a script returns control.
    pub slice: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 128 << 20,
            slice: Duration::from_millis(1),
        }
    }
}

/// A run of a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptCall<'a> {
    /// The script.
    pub script: &'a Arc<Script>,
    /// The table `KEYS`.
    pub keys: &'a [&'a [u8]],
    /// The table `ARGV`.
    pub arguments: &'a [&'a [u8]],
    /// The protocol of the client, in which the result is written.
    pub protocol: Protocol,
}

/// A call of a function of a library.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCall<'a> {
    /// The library.
    pub library: &'a Arc<Library>,
    /// The name of the function.
    pub function: &'a str,
    /// The function's first argument.
    pub keys: &'a [&'a [u8]],
    /// The function's second argument.
    pub arguments: &'a [&'a [u8]],
    /// The protocol of the client, in which the result is written.
    pub protocol: Protocol,
}

/// Why a script has returned control.
#[derive(Debug)]
pub enum Step {
    /// It calls the command in [`arguments`](crate::Interpreter::arguments), and expects [`Answer::Reply`].
    Call {
        /// The protocol of that reply.
        protocol: Protocol,
    },
    /// It asks whether it may call the command in [`arguments`](crate::Interpreter::arguments), and expects
    /// [`Answer::Allowed`].
    AclCheck,
    /// Its slice is over. It expects [`Answer::Continue`].
    Slice,
    /// It has ended.
    Done(ScriptOutcome),
}

/// The result of a script.
#[derive(Debug)]
pub struct ScriptOutcome {
    /// Its reply, in the protocol of the client.
    pub reply: Vec<u8>,
    /// The reply is an error.
    pub is_error: bool,
    /// The lines that it has logged, in order.
    pub log: Vec<(ScriptLogLevel, Vec<u8>)>,
}

/// The answer to a [`Step`].
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// The reply to a command.
    Reply(&'a [u8]),
    /// The command is allowed; `None` if there is no such command.
    Allowed(Option<bool>),
    /// The next slice begins.
    Continue,
    /// Ends the script with this error, whose text begins with its code. No later instruction of
    /// the script is executed. Valid as the answer to every step.
    Kill(&'a str),
}
