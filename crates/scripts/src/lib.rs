//! Redis's scripts: Lua 5.1, its sandbox and its libraries, without a server.
//!
//! An [`Interpreter`] runs one script at a time, on a stack of its own. It returns a [`Step`] when
//! the script calls a command, when its slice of time is over, and when it has ended; the host
//! answers by [`Interpreter::resume`]. So one thread serves other clients while a script runs, and
//! this crate knows nothing of keys, transactions and connections.
//!
//! | module | has |
//! |---|---|
//! | `script` | sources, their hashes and flags |
//! | `library`, `register_function` | libraries of functions |
//! | `interpreter`, `step` | a run, step by step |
//! | `switch` | the stack of its own |
//! | `script_context` | what a running script and its host share |
//! | `lua` | Lua's C API, with checked indices |
//! | `sandbox` | the global variables |
//! | `protection` | tables that scripts cannot change |
//! | `base_library`, `math_library`, `redis_library`, `string_library` | functions of the sandbox |
//! | `bit_library`, `json_library`, `msgpack_library`, `struct_library` | the same, for formats of data |
//! | `error_reply` | errors of `redis.call` and its like |
//! | `pattern` | patterns whose search can be interrupted |
//! | `reply_reader`, `result_writer` | values between RESP and Lua |
//!
//! Invariants:
//! 1. Nothing that a script does is visible to a later one: it can change no table that outlives it,
//!    and settings of libraries begin anew with each run.
//! 2. A killed script executes no further instruction, also where it catches errors.
//! 3. A script neither ends the process nor exceeds the memory limit by more than one call of a
//!    function allocates.
//!
//! The decision that binds this crate: `docs/decisions/0085-transactions-in-steps-run-outside-of-epochs.md`.

#![deny(unsafe_code)]

mod base_library;
mod bit_library;
mod error_reply;
mod failure;
mod heap;
mod interpreter;
mod json_library;
mod json_settings;
mod library;
mod lua;
mod math_library;
mod msgpack_library;
mod number;
mod pattern;
mod protection;
mod random;
mod redis_library;
mod register_function;
mod reply_reader;
mod result_writer;
mod sandbox;
mod script;
mod script_context;
mod step;
mod string_library;
mod struct_library;
mod switch;

pub use interpreter::Interpreter;
pub use library::{Library, LibraryFunction};
pub use script::{Script, ScriptFlags, sha1_hex};
pub use script_context::ScriptLogLevel;
pub use step::{Answer, FunctionCall, Options, ScriptCall, ScriptOutcome, Step};
