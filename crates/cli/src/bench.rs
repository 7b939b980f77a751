//! `kumiki bench`: the program `kumiki-bench` in the directory of this one, with the same arguments.
//!
//! The experiments are a program of their own, so that a server carries neither their code nor
//! their dependencies.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

use crate::logging::DEFAULT_LOG_LEVEL;

/// The program that runs experiments.
const PROGRAM: &str = "kumiki-bench";

/// Options of `kumiki bench`.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// The arguments of kumiki-bench; `kumiki bench --help` prints its help.
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Becomes `kumiki-bench`. Returns only if that program could not be started, with the reason.
pub(crate) fn exec(options: &Bench, log_level: &str) -> String {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return format!("cannot find the directory of this program: {error}"),
    };
    let program = own.with_file_name(PROGRAM);
    let mut command = Command::new(&program);
    // Before the arguments, the option belongs to this program, which passes it on.
    if log_level != DEFAULT_LOG_LEVEL {
        command.args(["--log-level", log_level]);
    }
    let error = command.args(&options.arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        return format!(
            "experiments are run by a program of their own, and there is no {}; in Kumiki's sources, \
             `cargo build --release --package {PROGRAM}` builds it",
            program.display()
        );
    }
    format!("cannot start {}: {error}", program.display())
}
