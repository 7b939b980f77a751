//! The binary under test as a server, a proxy, and a command that ends.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Command;

use testkit::process::{Server, finished};

/// Returns the binary under test.
pub(crate) fn kumiki() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kumiki"))
}

/// Returns `kumiki serve --listen ADDRESS`.
pub(crate) fn serve(address: SocketAddr) -> Command {
    let mut command = kumiki();
    command.args(["serve", "--listen", &address.to_string()]);
    command
}

/// Starts `kumiki serve` in a directory and on a port of its own; `args` come after
/// `serve --listen ADDRESS`.
pub(crate) fn start_server<A: AsRef<OsStr>>(args: &[A]) -> Server {
    Server::start(|address, dir| {
        let mut command = serve(address);
        command.args(args).current_dir(dir);
        command
    })
}

/// Starts `kumiki proxy` with these arguments, on a port of its own.
pub(crate) fn proxy<A: AsRef<OsStr>>(args: &[A]) -> Server {
    Server::start(|address, dir| {
        let mut command = kumiki();
        command.current_dir(dir);
        command.args(["proxy", "--listen", &address.to_string()]);
        command.args(args);
        command
    })
}

/// Runs the binary, which is expected to end by itself. Returns its exit code, its output and its
/// errors.
pub(crate) fn run(args: &[&str]) -> (Option<i32>, String, String) {
    finished(kumiki().args(args))
}
