//! Redis's scripts: Lua 5.1, its sandbox and its libraries, without a server.
//!
//! An [`Interpreter`] runs one script at a time, on a stack of its own. It returns a [`Step`] when
//! the script calls a command, when its slice of time is over, and when it has ended; the host
//! answers by [`Interpreter::resume`]. So one thread serves other clients while a script runs, and
//! this crate knows nothing of keys, transactions and connections.
//!
//! | module | has |
//! |---|---|
//! | [`script`] | sources, their hashes and flags |
//! | [`interpreter`] | the steps of a run |
//! | [`switch`] | the stack of its own |
//! | [`lua`] | Lua's C API, with checked indices |
//! | [`sandbox`] | global variables, and tables that scripts cannot change |
//! | [`base_library`], [`redis_library`] | functions of the sandbox |
//! | [`string_library`], [`pattern`] | patterns that can be interrupted |
//! | [`json_library`], [`msgpack_library`], [`struct_library`], [`bit_library`] | the same, for formats of data |
//! | [`reply_reader`], [`result_writer`] | values between RESP and Lua |
//!
//! Invariants:
//! 1. Nothing that a script does is visible to a later one: it can change no table that outlives it,
//!    and settings of libraries begin anew with each run.
//! 2. A killed script executes no further instruction, whatever it catches.
//! 3. A script neither ends the process nor exceeds the memory limit by more than one call of a
//!    function allocates.

#![deny(unsafe_code)]

mod base_library;
mod bit_library;
mod host;
mod interpreter;
mod json_library;
mod lua;
mod msgpack_library;
mod number;
mod pattern;
mod random;
mod redis_library;
mod reply_reader;
mod result_writer;
mod sandbox;
mod script;
mod string_library;
mod struct_library;
mod switch;

pub use host::ScriptLogLevel;
pub use interpreter::{Answer, Interpreter, Options, ScriptCall, ScriptOutcome, Step};
pub use script::{Script, ScriptFlags, sha1_hex};
